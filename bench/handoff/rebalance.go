package handoff

import (
	"cmp"
	"context"
	"fmt"
	"os"
	"slices"
	"sync"
	"time"
)

// This file changes the consumers of many partitions step by step under a steady load, with
// Muster and with Kafka's protocols.

// RebalanceLoad is the size of the group and what its partitions have to bear.
type RebalanceLoad struct {
	Keys       int           `json:"keys"`
	Partitions int           `json:"partitions"` // or slots
	Consumers  int           `json:"consumers"`  // that one becomes
	Every      time.Duration `json:"every_ns"`   // from one message of a partition to the next
	Work       time.Duration `json:"work_ns"`    // that a handler takes at least, and up to as long again
	JoinEvery  time.Duration `json:"join_every_ns"`
	Rest       time.Duration `json:"rest_ns"`  // that the load goes on for before a consumer is killed
	Quiet      time.Duration `json:"quiet_ns"` // as Load.Quiet
}

// FullRebalance is 900 partitions and ten consumers, the size that the new protocol of Kafka was
// shown with. The load goes on for longer than Kafka's clients wait between two commits.
func FullRebalance() RebalanceLoad {
	return RebalanceLoad{Keys: 9000, Partitions: 900, Consumers: 10, Every: time.Second, Work: 4 * time.Millisecond,
		JoinEvery: time.Second, Rest: 6 * time.Second, Quiet: time.Minute}
}

// QuickRebalance is a small one, to see that every contender works.
func QuickRebalance() RebalanceLoad {
	l := FullRebalance()
	l.Keys, l.Partitions, l.Consumers, l.JoinEvery = 900, 90, 4, 500*time.Millisecond
	return l
}

// Rebalancers are Muster and clients of Kafka with fast timers. With all of them it is also those
// with the timers that are their defaults, and Kafka's older protocol.
func Rebalancers(withDefaults bool) []Contender {
	cooperative, broker := kafkaSetting{}, kafkaSetting{next: true}
	all := []Contender{
		{Name: "muster", start: startMuster},
		{Name: "muster, 10 shards, 64 in flight", shards: 10, inFlight: 64, start: startMuster},
		{Name: "Kafka, franz-go, KIP-848, fast", kafka: broker.fast(), start: startFranz},
		{Name: "Kafka, Java, KIP-848, fast", kafka: broker.fast(), start: startJava},
	}
	if withDefaults {
		all = append(all,
			Contender{Name: "Kafka, Java, cooperative, fast", kafka: cooperative.fast(), start: startJava},
			Contender{Name: "Kafka, franz-go, KIP-848", kafka: &broker, start: startFranz},
			Contender{Name: "Kafka, Java, KIP-848", kafka: &broker, start: startJava},
			Contender{Name: "Kafka, Java, cooperative", kafka: &cooperative, start: startJava})
	}
	for i := range all {
		all[i].Replicas, all[i].Sync = 1, defaultSync
	}
	return all
}

// Step is one change of a group's consumers.
type Step struct {
	Name     string        `json:"name"`
	From     int           `json:"from"`
	To       int           `json:"to"`
	Assigned time.Duration `json:"assigned_ns"` // until every consumer had its share
	// Consuming is the time until every partition that moved was worked on by its last owner.
	Consuming time.Duration `json:"consuming_ns"`
	Moves     int           `json:"moves"` // partitions that went to another consumer, each time that they did
	// Pause is the longest time for each partition, moved or not, that a message of it waited and
	// no consumer worked on it.
	Pause Spread `json:"pause"`
}

// RebalanceRun is what a contender did in the steps of one group.
type RebalanceRun struct {
	Findings
	Contender string        `json:"contender"`
	Load      RebalanceLoad `json:"load"`
	Started   time.Duration `json:"started_ns"` // until the first consumer had all partitions
	Steps     []Step        `json:"steps"`
}

// The names of the steps.
const (
	joinAtOnce   = "join at once"
	joinOneByOne = "join one by one"
	oneKilled    = "one is killed"
	oneLeaves    = "one leaves"
)

// StepNames are all steps that are measured.
func StepNames() []string { return []string{joinAtOnce, joinOneByOne, oneKilled, oneLeaves} }

// StepOf returns the medians of a contender's runs of a step, the longest pause of all, the sums
// of what was found in the groups that made the step, and how many these are.
func StepOf(runs []RebalanceRun, contender, step string) (s Step, f Findings, n int) {
	var all []Step
	for _, r := range runs {
		at := slices.IndexFunc(r.Steps, func(s Step) bool { return s.Name == step })
		if r.Contender == contender && at >= 0 {
			all = append(all, r.Steps[at])
			f = f.plus(r.Findings)
		}
	}
	if all == nil {
		return s, f, 0
	}
	of := func(d func(Step) time.Duration) time.Duration {
		var xs []time.Duration
		for _, s := range all {
			xs = append(xs, d(s))
		}
		return median(xs)
	}
	s = Step{Name: step, From: all[0].From, To: all[0].To,
		Assigned:  of(func(s Step) time.Duration { return s.Assigned }),
		Consuming: of(func(s Step) time.Duration { return s.Consuming }),
		Pause: Spread{N: all[0].Pause.N,
			P50: of(func(s Step) time.Duration { return s.Pause.P50 }),
			P99: of(func(s Step) time.Duration { return s.Pause.P99 }),
			Max: slices.MaxFunc(all, func(a, b Step) int { return cmp.Compare(a.Pause.Max, b.Pause.Max) }).Pause.Max}}
	var moves []int
	for _, s := range all {
		moves = append(moves, s.Moves)
	}
	s.Moves = median(moves)
	return s, f, len(all)
}

// MeasureRebalances measures a contender on new servers twice: consumers join all at once, one
// of them crashes and one leaves; and, in a new group, they join one after the other.
func MeasureRebalances(ctx context.Context, c Contender, load RebalanceLoad) ([]RebalanceRun, error) {
	var runs []RebalanceRun
	for _, steps := range []func(*rebalancing, context.Context) error{(*rebalancing).atOnce, (*rebalancing).oneByOne} {
		r, err := rebalanceOnce(ctx, c, load, steps)
		if err != nil {
			return runs, err
		}
		runs = append(runs, r)
	}
	return runs, nil
}

func rebalanceOnce(ctx context.Context, c Contender, load RebalanceLoad, steps func(*rebalancing, context.Context) error) (RebalanceRun, error) {
	m := &rebalancing{Contender: c, RebalanceLoad: load, ledger: newLedger(), run: RebalanceRun{Contender: c.Name, Load: load}}
	dir, err := os.MkdirTemp("", "rebalance-")
	if err != nil {
		return m.run, err
	}
	defer func() { _ = os.RemoveAll(dir) }()
	brokers, url, err := c.serve(ctx, dir)
	if err != nil {
		return m.run, err
	}
	defer brokers.stop()

	k := Case{Keys: load.Keys, Slots: load.Partitions, Before: 1, After: load.Consumers}
	g, err := c.start(ctx, c.at(k, url, m.ledger))
	if err != nil {
		return m.run, err
	}
	defer g.stop()
	m.group = g
	m.stepwise = g.(stepwise)
	m.publisher = newPublisher(m.ledger, load.Keys, g.send)
	defer m.publisher.stop()

	if err := m.begin(ctx); err != nil {
		return m.run, err
	}
	defer m.background()
	if err := steps(m, ctx); err != nil {
		return m.run, err
	}
	m.background()
	if err := m.worked(ctx); err != nil {
		return m.run, err
	}
	m.run.Findings = examine(m.ledger.record())
	return m.run, nil
}

// rebalancing is a contender at work.
type rebalancing struct {
	Contender
	RebalanceLoad
	group      group
	stepwise   stepwise
	ledger     *ledger
	publisher  *publisher
	units      map[int]int // by key
	first      []int       // a key of each partition
	background func()      // ends the steady load
	run        RebalanceRun
}

// begin starts the first consumer, has it work on every key, and begins the steady load.
func (m *rebalancing) begin(ctx context.Context) error {
	m.ledger.least.Store(int64(m.Work))
	m.ledger.spread.Store(int64(m.Work))
	if g, ok := m.group.(paced); ok {
		g.pace(int64(m.Work), int64(m.Work))
	}
	began := time.Now()
	if err := m.group.change(ctx, 1, func([]int) {}); err != nil {
		return err
	}
	m.run.Started = time.Since(began)
	m.publisher.publish(m.publisher.every()...)
	if err := m.worked(ctx); err != nil {
		return err
	}
	_, runs := m.ledger.record()
	m.units = unitsOf(runs)
	order := evenly(m.units)
	m.first = firstOfEach(order, m.units)
	rate := float64(len(m.first)) / m.Every.Seconds()
	m.background = m.publisher.at(int(rate), order)
	return wait(ctx, m.Every) // until every partition has had it
}

// wait lets the load go on for a while.
func wait(ctx context.Context, d time.Duration) error {
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(d):
		return nil
	}
}

// worked waits until what is published by now is processed.
func (m *rebalancing) worked(ctx context.Context) error {
	if err := m.publisher.flush(ctx); err != nil {
		return err
	}
	return m.ledger.processed(ctx, m.Quiet+m.detects())
}

func (m *rebalancing) atOnce(ctx context.Context) error {
	n := m.Consumers
	err := m.step(ctx, joinAtOnce, 1, n, func() error { return m.group.change(ctx, n, m.moving()) })
	if err != nil {
		return err
	}
	if err := wait(ctx, m.Rest); err != nil {
		return err
	}
	m.stepwise.crash(1)
	err = m.step(ctx, oneKilled, n, n-1, func() error {
		// Whatever partition was the crashed one's has something to do.
		m.publisher.publish(m.first...)
		return m.stepwise.settle(ctx, n-1)
	})
	if err != nil {
		return err
	}
	return m.step(ctx, oneLeaves, n-1, n-2, func() error { return m.group.change(ctx, n-2, m.moving()) })
}

func (m *rebalancing) oneByOne(ctx context.Context) error {
	return m.step(ctx, joinOneByOne, 1, m.Consumers, func() error {
		if err := m.stepwise.announce(ctx, m.Consumers, m.moving()); err != nil {
			return err
		}
		for i := 1; i < m.Consumers; i++ {
			if i > 1 {
				if err := wait(ctx, m.JoinEvery); err != nil {
					return err
				}
			}
			if err := m.stepwise.join(); err != nil {
				return err
			}
		}
		return m.stepwise.settle(ctx, m.Consumers)
	})
}

// moving returns what publishes a message for each partition as soon as it is known to move.
func (m *rebalancing) moving() func(keys []int) {
	var mu sync.Mutex
	told := map[int]bool{}
	return func(keys []int) {
		mu.Lock()
		defer mu.Unlock()
		for _, key := range keys {
			if unit := m.units[key]; !told[unit] {
				told[unit] = true
				m.publisher.publish(key)
			}
		}
	}
}

// step makes a change and waits until every partition is worked on after it.
func (m *rebalancing) step(ctx context.Context, name string, from, to int, change func() error) error {
	s := Step{Name: name, From: from, To: to}
	since := time.Now()
	if err := change(); err != nil {
		return fmt.Errorf("%s, %d to %d consumers: %w", name, from, to, err)
	}
	s.Assigned = time.Since(since)
	m.publisher.publish(m.first...)
	if err := m.worked(ctx); err != nil {
		return err
	}
	_, runs := m.ledger.record()
	s.Moves, s.Consuming = moves(runs, since)
	s.Pause = spread(gaps(runs, since))
	m.run.Steps = append(m.run.Steps, s)
	return nil
}

// evenly orders keys such that units take turns; a unit with few keys has them again.
func evenly(units map[int]int) (order []int) {
	keysOf := map[int][]int{}
	most := 0
	for key, unit := range units {
		keysOf[unit] = append(keysOf[unit], key)
		most = max(most, len(keysOf[unit]))
	}
	var all []int
	for unit, keys := range keysOf {
		slices.Sort(keys)
		all = append(all, unit)
	}
	slices.Sort(all)
	for i := range most {
		for _, unit := range all {
			order = append(order, keysOf[unit][i%len(keysOf[unit])])
		}
	}
	return order
}

// firstOfEach returns the first key of each unit.
func firstOfEach(order []int, units map[int]int) (first []int) {
	seen := map[int]bool{}
	for _, key := range order {
		if unit := units[key]; !seen[unit] {
			seen[unit] = true
			first = append(first, key)
		}
	}
	return first
}

// moves counts how often units went to another worker after since, and returns how long it took
// until each that has another worker in the end was worked on by that one.
func moves(runs []run, since time.Time) (n int, last time.Duration) {
	for _, rs := range byUnit(runs) {
		var before, now, moved = -1, -1, time.Time{}
		for _, r := range rs {
			if !r.start.After(since) {
				before, now = r.worker, r.worker
				continue
			}
			if now >= 0 && r.worker != now {
				n++
				moved = r.start
			}
			now = r.worker
		}
		if now != before && !moved.IsZero() {
			last = max(last, moved.Sub(since))
		}
	}
	return n, last
}

// gaps returns, for each unit, the longest time after since that a message of it waited and
// no worker was at it: from the last end of a handler, or the arrival of the message if that was
// later, to the next start.
func gaps(runs []run, since time.Time) (longest []time.Duration) {
	for _, rs := range byUnit(runs) {
		free := since // no handler is at it from then on
		var most time.Duration
		after := false
		for _, r := range rs {
			if r.start.After(since) {
				after = true
				from := free
				if r.arrived.After(from) {
					from = r.arrived
				}
				most = max(most, r.start.Sub(from))
			}
			if r.end.IsZero() {
				break // it goes on, and what begins later begins beside it
			}
			if r.end.After(free) {
				free = r.end
			}
		}
		if after {
			longest = append(longest, most)
		}
	}
	return longest
}
