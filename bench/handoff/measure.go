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
	// Backlog is how many messages are published at once and then drained by handlers that
	// take no time; 0 for none. It must be far more than what workers are given before the
	// handlers begin, which can be a message of each key: that is finished in the same time
	// and is not counted.
	Backlog int `json:"backlog"`
	// Crash is for how long the load goes on in the end before some workers crash; 0 if none
	// does. What Kafka's clients did since their last commit, at most 5 s ago, is done again.
	Crash time.Duration `json:"crash_ns"`
	// Quiet is how long nothing may come before what is left counts as lost. It
	// must be longer than the broker waits for an acknowledgement.
	Quiet time.Duration `json:"quiet_ns"`
}

// Run is one measurement of one contender. What a contender doesn't do is 0: raw JetStream
// moves nothing, and the models of other libraries have no worker that fails.
type Run struct {
	Findings
	Forced   int    `json:"forced"` // keys that got a message the moment that their move was known
	Pause    Spread `json:"pause"`
	Takeover Spread `json:"takeover"`

	Filled  time.Duration `json:"fill_ns"` // that publishing the backlog took
	Drained int           `json:"drained"` // of the backlog, what no worker had been given when handlers could begin
	Took    time.Duration `json:"drain_ns"`
	// CPU time from when handlers could begin until the backlog was done.
	ServerCPU time.Duration `json:"drain_server_cpu_ns"`
	ClientCPU time.Duration `json:"drain_client_cpu_ns"`
}

// Rate is how many messages were drained in a second.
func (r Run) Rate() float64 { return per(r.Drained, r.Took) }

// ServerPerMessage is the CPU time of the brokers for each drained message, in microseconds.
func (r Run) ServerPerMessage() float64 { return perMessage(r.ServerCPU, r.Drained) }

// ClientPerMessage is the CPU time of the workers for each drained message, in microseconds.
func (r Run) ClientPerMessage() float64 { return perMessage(r.ClientCPU, r.Drained) }

func perMessage(d time.Duration, n int) float64 {
	if n == 0 {
		return 0
	}
	return float64(d) / float64(n) / 1e3
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
	Sync      string `json:"sync"`
	Load      Load   `json:"load"`
	Runs      []Run  `json:"runs"`
}

// PublishRate is how many messages of the backlog were published in a second.
func (r Result) PublishRate() float64 {
	return r.Median(func(x Run) float64 { return per(r.Load.Backlog, x.Filled) })
}

// Sum adds up the findings of all runs.
func (r Result) Sum() (f Findings) {
	for _, x := range r.Runs {
		f = f.plus(x.Findings)
	}
	return f
}

// Spread returns the medians of all runs' quantiles of something, and the longest of all.
func (r Result) Spread(of func(Run) Spread) Spread {
	var n []int
	var p50, p99, longest []time.Duration
	for _, x := range r.Runs {
		s := of(x)
		n, p50, p99, longest = append(n, s.N), append(p50, s.P50), append(p99, s.P99), append(longest, s.Max)
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
	Profiles    string // directory for CPU profiles of the drains; "" for none
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
				own[i].Case, own[i].Contender, own[i].Replicas, own[i].Sync, own[i].Load = t.Case, c.Name, c.Replicas, c.Sync, t.Load
				r, err := once(ctx, c, t)
				if err != nil {
					errs = append(errs, fmt.Errorf("measuring %s, %d workers to %d, %d replicas, sync %s: %w", c.Name, t.Case.Before, t.Case.After, c.Replicas, c.Sync, err))
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

// measurement is a contender at work in a case.
type measurement struct {
	Contender
	Case
	Load
	group     group
	ledger    *ledger
	publisher *publisher
	brokers   servers
	profiles  string // directory; "" for none
	run       Run
}

func once(ctx context.Context, c Contender, t Turn) (Run, error) {
	dir, err := os.MkdirTemp("", "handoff-")
	if err != nil {
		return Run{}, err
	}
	defer func() { _ = os.RemoveAll(dir) }()
	brokers, url, err := c.serve(ctx, dir)
	if err != nil {
		return Run{}, err
	}
	defer brokers.stop()

	m := &measurement{Contender: c, Case: t.Case, Load: t.Load, profiles: t.Profiles, ledger: newLedger(), brokers: brokers}
	m.group, err = c.start(ctx, c.at(t.Case, url, m.ledger))
	if err != nil {
		return Run{}, err
	}
	defer m.group.stop()
	m.publisher = newPublisher(m.ledger, t.Case.Keys, m.group.send)
	defer m.publisher.stop()
	err = m.all(ctx)
	return m.run, err
}

// all changes the number of workers under load, drains a backlog and lets workers crash, as
// far as the contender can.
func (m *measurement) all(ctx context.Context) error {
	if err := m.group.change(ctx, m.Before, func([]int) {}); err != nil {
		return err
	}
	if !m.static {
		if err := m.move(ctx); err != nil {
			return err
		}
	}
	if m.Backlog > 0 {
		// The second counts: by then connections, caches and Java's compiler are warm.
		for range 2 {
			if err := m.drain(ctx); err != nil {
				return err
			}
		}
	}
	if g, ok := m.group.(crasher); ok && m.Crash > 0 {
		if err := m.takeover(ctx, g); err != nil {
			return err
		}
	}
	m.run.Findings = examine(m.ledger.record())
	return nil
}

// move changes the number of workers under load.
func (m *measurement) move(ctx context.Context) error {
	l, p := m.ledger, m.publisher
	m.work()
	// Every key has been worked on before.
	p.publish(p.every()...)
	if err := p.flush(ctx); err != nil {
		return err
	}
	if left, err := l.settled(ctx, m.Quiet); err != nil || left > 0 {
		return errors.Join(fmt.Errorf("%d of the first %d messages have not come", left, m.Keys), err)
	}
	keys, err := m.group.predicted(m.After)
	if err != nil {
		return err
	}
	background, pressure := p.at(m.Rate, p.every()), p.at(m.Press, keys)
	defer background()
	defer pressure()
	time.Sleep(500 * time.Millisecond) // until it is in work

	var mu sync.Mutex
	forced := map[int]bool{}
	since := time.Now()
	err = m.group.change(ctx, m.After, func(keys []int) {
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
	if _, err := l.settled(ctx, m.Quiet); err != nil {
		return err
	}
	_, runs := l.record()
	m.run.Pause = spread(pauses(runs, since))
	mu.Lock()
	defer mu.Unlock()
	m.run.Forced = len(forced)
	return nil
}

// work has handlers take their time.
func (m *measurement) work() {
	m.ledger.least.Store(int64(m.Work))
	m.ledger.spread.Store(int64(m.WorkSpread))
	m.pace()
}

// idle has handlers take no time.
func (m *measurement) idle() {
	m.ledger.least.Store(0)
	m.pace()
}

// pace tells workers in another process how long handlers take.
func (m *measurement) pace() {
	if g, ok := m.group.(paced); ok {
		g.pace(m.ledger.least.Load(), m.ledger.spread.Load())
	}
}

// drain publishes a backlog as fast as it can be while the workers wait, and times its end.
func (m *measurement) drain(ctx context.Context) error {
	l := m.ledger
	l.abandon()
	m.idle()
	ahead := l.delivered.Load()
	release := l.close
	if g, ok := m.group.(holder); ok {
		release = g.hold
	}
	open := release()
	defer open()

	backlog := m.publisher.take(m.Backlog)
	began := time.Now()
	if err := m.group.fill(ctx, backlog); err != nil {
		return fmt.Errorf("publishing the backlog: %w", err)
	}
	m.run.Filled = time.Since(began)

	before, err := m.used()
	if err != nil {
		return err
	}
	ahead = l.delivered.Load() - ahead
	var left int
	var ended time.Time
	err = m.profiled(func() (err error) {
		began = time.Now()
		open()
		left, ended, err = m.drained(ctx)
		return err
	})
	if err != nil {
		return err
	}
	after, err := m.used()
	if err != nil {
		return err
	}
	m.run.Took = ended.Sub(began)
	m.run.Drained = max(0, m.Backlog-int(ahead)-left)
	if int(ahead) > m.Backlog/leastBehind && m.Backlog >= leastMeasured {
		return fmt.Errorf("workers had been given %d of the %d messages before handlers could begin, more than a tenth: "+
			"the rate would say little; drain more", ahead, m.Backlog)
	}
	m.run.ServerCPU, m.run.ClientCPU = after.brokers-before.brokers, after.clients-before.clients
	return nil
}

// A rate is measured only of a backlog of which at most a tenth was ahead. A smaller backlog than leastMeasured
// is that of a test, which asks what is lost and not how fast it is.
const (
	leastBehind   = 10
	leastMeasured = 2000
)

// drained waits until the backlog is done, and returns how much of it is left and when it was done.
func (m *measurement) drained(ctx context.Context) (left int, ended time.Time, err error) {
	if left, err = m.ledger.settled(ctx, m.Quiet); err != nil {
		return left, ended, err
	}
	ended = time.Unix(0, m.ledger.progress.Load())
	if g, ok := m.group.(acknowledger); ok {
		if err := g.acknowledged(ctx); err != nil {
			return left, ended, err
		}
		ended = time.Now()
	}
	return left, ended, nil
}

// takeover has some workers crash under load and waits until others have done their
// work.
func (m *measurement) takeover(ctx context.Context, g crasher) error {
	l, p := m.ledger, m.publisher
	l.abandon()
	m.work()
	background := p.at(m.Rate, p.every())
	defer background()
	time.Sleep(m.Crash)

	crashed := m.crashing()
	g.crash(crashed)
	since := time.Now()
	// Each unit of theirs has something to do.
	p.publish(p.every()...)
	if err := p.flush(ctx); err != nil {
		return err
	}
	// The other load goes on until then: members that wait for a next message would be in the
	// middle of a long fetch when they get more partitions.
	if err := l.processed(ctx, m.Quiet+m.detects()); err != nil {
		return err
	}
	background()
	if _, err := l.settled(ctx, m.Quiet+m.detects()); err != nil {
		return err
	}
	_, runs := l.record()
	m.run.Takeover = spread(takeovers(runs, since, func(worker int) bool { return worker >= m.After-crashed }))
	return nil
}

// cpu is CPU time used so far.
type cpu struct{ brokers, clients time.Duration }

// used returns the CPU time of the brokers and of the workers, which are in this process or in
// their own.
func (m *measurement) used() (u cpu, err error) {
	if u.brokers, err = m.brokers.cpu(); err != nil {
		return u, err
	}
	if g, ok := m.group.(separate); ok {
		u.clients, err = g.running().cpu()
		return u, err
	}
	u.clients, err = ownCPU()
	return u, err
}
