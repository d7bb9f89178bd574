package handoff

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"sync"
	"time"
)

// Load is what the keys have to bear while some of them move.
type Load struct {
	// Rate is how many messages a second come for all keys in turn, Press how
	// many for those that are about to move.
	Rate  int `json:"rate"`
	Press int `json:"press"`
	// Work is how long a handler takes at least, and up to WorkSpread more.
	Work       time.Duration `json:"work_ns"`
	WorkSpread time.Duration `json:"work_spread_ns"`
	// Backlog is how many messages are drained at the end by handlers that take
	// no time.
	Backlog int `json:"backlog"`
	// Quiet is how long nothing may come before what is left counts as lost. It
	// must be longer than the broker waits for an acknowledgement.
	Quiet time.Duration `json:"quiet_ns"`
}

// Run is one measurement of one contender.
type Run struct {
	Findings
	Forced int    `json:"forced"` // keys that got a message the moment that their move was known
	Pause  Spread `json:"pause"`

	// Of the backlog, what no worker had been given when handlers could begin;
	// 0 for the fake of Kafka, which gives everything ahead.
	Drained   int           `json:"drained"`
	Stuck     int           `json:"stuck"` // of the backlog, what never came
	Took      time.Duration `json:"drain_ns"`
	ServerCPU time.Duration `json:"drain_server_cpu_ns"`
	ClientCPU time.Duration `json:"drain_client_cpu_ns"`
}

// Rate is how many messages were drained in a second.
func (r Run) Rate() float64 { return per(r.Drained, r.Took) }

// PerCore is how many messages were drained in a second of CPU time, the
// brokers' and the workers'.
func (r Run) PerCore() float64 { return per(r.Drained, r.ServerCPU+r.ClientCPU) }

// ServerPerMessage is the CPU time of the brokers for each drained message.
func (r Run) ServerPerMessage() time.Duration {
	if r.Drained == 0 {
		return 0
	}
	return r.ServerCPU / time.Duration(r.Drained)
}

func per(n int, d time.Duration) float64 {
	if d <= 0 {
		return 0
	}
	return float64(n) / d.Seconds()
}

// Result is what a contender did in a case.
type Result struct {
	Case
	Contender string `json:"contender"`
	Replicas  int    `json:"replicas"`
	Load      Load   `json:"load"`
	Runs      []Run  `json:"runs"`
}

// Sum adds up the findings of all runs.
func (r Result) Sum() (f Findings) {
	for _, x := range r.Runs {
		f.Published += x.Published
		f.Lost += x.Lost
		f.Concurrent += x.Concurrent
		f.OutOfOrder += x.OutOfOrder
		f.Duplicates += x.Duplicates
	}
	return f
}

// Pause returns the medians of all runs' quantiles, and the longest of all.
func (r Result) Pause() Spread {
	var n []int
	var p50, p99, longest []time.Duration
	for _, x := range r.Runs {
		n, p50, p99, longest = append(n, x.Pause.N), append(p50, x.Pause.P50), append(p99, x.Pause.P99), append(longest, x.Pause.Max)
	}
	return Spread{N: median(n), P50: median(p50), P99: median(p99), Max: slices.Max(longest)}
}

// Median returns the median of something over all runs.
func (r Result) Median(of func(Run) float64) float64 {
	var xs []float64
	for _, x := range r.Runs {
		xs = append(xs, of(x))
	}
	return median(xs)
}

// Turn is what is measured together: contenders that take turns on one case.
type Turn struct {
	Case        Case
	Contenders  []Contender
	Repetitions int
	Load        Load
}

// Measure runs every turn's contenders one after the other, and again as often as
// it is to be repeated, so that a disturbance of the machine hits all of them.
// tell gets each run as it ends. A run that fails is left out, and told in the
// error beside the results of the others.
func Measure(ctx context.Context, turns []Turn, tell func(Result, Run)) ([]Result, error) {
	var results []Result
	var errs []error
	for _, t := range turns {
		own := make([]Result, len(t.Contenders))
		for range t.Repetitions {
			for i, c := range t.Contenders {
				if ctx.Err() != nil {
					break
				}
				own[i].Case, own[i].Contender, own[i].Replicas, own[i].Load = t.Case, c.Name, c.Replicas, t.Load
				r, err := once(ctx, c, t.Case, t.Load)
				if err != nil {
					errs = append(errs, fmt.Errorf("measuring %s, %d workers to %d, %d replicas: %w", c.Name, t.Case.Before, t.Case.After, c.Replicas, err))
					continue
				}
				own[i].Runs = append(own[i].Runs, r)
				tell(own[i], r)
			}
		}
		results = append(results, slices.DeleteFunc(own, func(r Result) bool { return len(r.Runs) == 0 })...)
	}
	return results, errors.Join(append(errs, ctx.Err())...)
}

func once(ctx context.Context, c Contender, k Case, load Load) (Run, error) {
	dir, err := os.MkdirTemp("", "handoff-")
	if err != nil {
		return Run{}, err
	}
	defer func() { _ = os.RemoveAll(dir) }()
	brokers, url, err := c.serve(ctx, dir, k.Slots)
	if err != nil {
		return Run{}, err
	}
	defer stopChildren(brokers)
	l := newLedger()
	g, err := c.start(ctx, env{Case: k, url: url, replicas: c.Replicas, shards: c.shards, ledger: l})
	if err != nil {
		return Run{}, err
	}
	defer g.stop()
	p := newPublisher(l, k.Keys, g.send)
	defer p.stop()
	if err := g.change(ctx, k.Before, func([]int) {}); err != nil {
		return Run{}, err
	}
	var out Run
	if err := move(ctx, g, l, p, k, load, &out); err != nil {
		return out, err
	}
	if c.kafka || load.Backlog == 0 {
		return out, nil
	}
	err = drain(ctx, l, p, brokers, load, &out)
	return out, err
}

// move changes the number of workers under load.
func move(ctx context.Context, g group, l *ledger, p *publisher, k Case, load Load, out *Run) error {
	l.least.Store(int64(load.Work))
	l.spread.Store(int64(load.WorkSpread))
	// Every key has been worked on before.
	p.publish(p.every()...)
	if err := p.flush(ctx); err != nil {
		return err
	}
	if left, err := l.settled(ctx, load.Quiet); err != nil || left > 0 {
		return errors.Join(fmt.Errorf("%d of the first %d messages have not come", left, k.Keys), err)
	}
	keys, err := g.predicted(k.After)
	if err != nil {
		return err
	}
	background, pressure := p.at(load.Rate, p.every()), p.at(load.Press, keys)
	defer background()
	defer pressure()
	time.Sleep(500 * time.Millisecond) // until it is in work
	var mu sync.Mutex
	forced := map[int]bool{}
	since := time.Now()
	err = g.change(ctx, k.After, func(keys []int) {
		mu.Lock()
		defer mu.Unlock()
		for _, key := range keys {
			if !forced[key] {
				forced[key] = true
				p.publish(key)
			}
		}
	})
	if err != nil {
		return err
	}
	pressure()
	time.Sleep(200 * time.Millisecond)
	background()
	// What has moved gets something to do afterwards, too.
	p.publish(p.every()...)
	if err := p.flush(ctx); err != nil {
		return err
	}
	if _, err := l.settled(ctx, load.Quiet); err != nil {
		return err
	}
	published, runs := l.record()
	out.Findings = examine(published, runs)
	out.Pause = spread(pauses(runs, since))
	mu.Lock()
	out.Forced = len(forced)
	mu.Unlock()
	return nil
}

// drain lets a backlog come together while handlers wait, and times its end.
func drain(ctx context.Context, l *ledger, p *publisher, brokers []*child, load Load, out *Run) error {
	l.abandon()
	l.least.Store(0)
	ahead := l.delivered.Load()
	open := l.close()
	for at := range load.Backlog {
		p.publish(at % p.keys)
	}
	if err := p.flush(ctx); err != nil {
		open()
		return err
	}
	before, err := usedBy(brokers)
	if err != nil {
		open()
		return err
	}
	ahead = l.delivered.Load() - ahead
	began := time.Now()
	open()
	left, err := l.settled(ctx, load.Quiet)
	if err != nil {
		return err
	}
	out.Stuck, out.Took = left, time.Since(began)
	if left > 0 {
		out.Took -= load.Quiet
	}
	after, err := usedBy(brokers)
	if err != nil {
		return err
	}
	out.Drained = max(0, load.Backlog-int(ahead)-left)
	out.ServerCPU, out.ClientCPU = after.brokers-before.brokers, after.own-before.own
	return nil
}

// cpu is CPU time used so far.
type cpu struct{ brokers, own time.Duration }

func usedBy(brokers []*child) (u cpu, err error) {
	if u.brokers, err = childrenCPU(brokers); err != nil {
		return u, err
	}
	u.own, err = ownCPU()
	return u, err
}
