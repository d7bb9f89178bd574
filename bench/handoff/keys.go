package handoff

import (
	"cmp"
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"sync"
	"time"
)

// This file measures what a key costs the other keys of its slot when it has far more messages
// than they have, or a far slower handler. Nothing moves.

// Disturbance is how some keys differ from all others.
type Disturbance struct {
	Name string `json:"name"`
	Rate int    `json:"rate"` // times the messages of another key
	Work int    `json:"work"` // times the handler time of another key
}

// Disturbances are all that are measured. The first is none, which the others are compared
// with.
func Disturbances() []Disturbance {
	return []Disturbance{{"none", 1, 1}, {"hot", 100, 1}, {"slow", 1, 1000}}
}

// KeyLoad is what all keys have to bear.
type KeyLoad struct {
	Keys    int           `json:"keys"`
	Slots   int           `json:"slots"`
	Workers int           `json:"workers"`
	Odd     int           `json:"odd"`       // keys that disturb, each in a slot of its own
	Every   time.Duration `json:"every_ns"`  // from one message of a key to the next
	Work    time.Duration `json:"work_ns"`   // that a handler takes
	During  time.Duration `json:"during_ns"` // that messages are published for with each disturbance
	Rounds  int           `json:"rounds"`    // in each of which the disturbances take turns
	Quiet   time.Duration `json:"quiet_ns"`  // as Load.Quiet
}

// QuickKeyLoad is a short one, to see that every contender works.
func QuickKeyLoad() KeyLoad {
	return KeyLoad{Keys: 400, Slots: 4, Workers: 2, Odd: 2, Every: 2 * time.Second, Work: time.Millisecond,
		During: 4 * time.Second, Rounds: 1, Quiet: time.Minute}
}

// FullKeyLoad has 200 keys a slot: with a message of each every 2 s a handler is at work on a
// slot for a tenth of the time, and on a slow key for half of the time.
func FullKeyLoad() KeyLoad {
	k := QuickKeyLoad()
	k.Keys, k.Slots, k.Odd, k.During, k.Rounds = 1600, 8, 4, 5*time.Second, 2
	return k
}

// KeyContenders are all whose keys are disturbed, ours first.
func KeyContenders() []Contender {
	kafka := kafkaSetting{next: true}
	all := []Contender{
		{Name: "muster, 64 in flight", inFlight: 64, start: startMuster},
		{Name: "muster, 1 in flight", start: startMuster},
		{Name: "JetStream, consumer per partition", static: true, start: startPartitioned},
		{Name: "Kafka, franz-go, goroutine per partition", kafka: kafka.fast(), start: startFranz},
	}
	for i := range all {
		all[i].Replicas, all[i].Sync = 1, defaultSync
	}
	return all
}

// KeyPhase is what one disturbance did in one round: how long messages took from being
// published to the end of their handler.
type KeyPhase struct {
	Disturbance
	Neighbors Spread `json:"neighbors"` // other keys of the slots with a key that disturbs
	Odd       Spread `json:"odd"`       // the keys that disturb
	Elsewhere Spread `json:"elsewhere"` // keys of the other slots
}

// KeyResult is what a contender did.
type KeyResult struct {
	Findings
	Contender string       `json:"contender"`
	Load      KeyLoad      `json:"load"`
	Rounds    [][]KeyPhase `json:"rounds"` // with each disturbance, in the order of Disturbances
}

// Median returns the median over all rounds of something with one disturbance.
func (r KeyResult) Median(disturbance int, of func(KeyPhase) time.Duration) time.Duration {
	var xs []time.Duration
	for _, round := range r.Rounds {
		xs = append(xs, of(round[disturbance]))
	}
	return median(xs)
}

// Ratio returns the median over all rounds of the neighbours' p99 with a disturbance, divided
// by that without one in the same round. It is 0 if there is none to compare with.
func (r KeyResult) Ratio(disturbance int) float64 {
	var xs []float64
	for _, round := range r.Rounds {
		if none := round[0].Neighbors.P99; none > 0 {
			xs = append(xs, float64(round[disturbance].Neighbors.P99)/float64(none))
		}
	}
	if xs == nil {
		return 0
	}
	return median(xs)
}

// MeasureKeys measures one contender on new servers.
func MeasureKeys(ctx context.Context, c Contender, load KeyLoad) (KeyResult, error) {
	result := KeyResult{Contender: c.Name, Load: load}
	dir, err := os.MkdirTemp("", "keys-")
	if err != nil {
		return result, err
	}
	defer func() { _ = os.RemoveAll(dir) }()
	brokers, url, err := c.serve(ctx, dir)
	if err != nil {
		return result, err
	}
	defer brokers.stop()

	k := Case{Keys: load.Keys, Slots: load.Slots, Before: load.Workers, After: load.Workers}
	m := &keyMeasurement{KeyLoad: load, ledger: newLedger()}
	g, err := c.start(ctx, c.at(k, url, m.ledger))
	if err != nil {
		return result, err
	}
	defer g.stop()
	if err := g.change(ctx, load.Workers, func([]int) {}); err != nil {
		return result, err
	}
	m.publisher = newPublisher(m.ledger, load.Keys, func(ctx context.Context, msg message) error {
		m.sent.note(msg, time.Now())
		return g.send(ctx, msg)
	})
	defer m.publisher.stop()

	result.Rounds, err = m.all(ctx)
	result.Findings = examine(m.ledger.record())
	return result, err
}

// keyMeasurement is one contender at work.
type keyMeasurement struct {
	KeyLoad
	ledger    *ledger
	publisher *publisher
	sent      sentTimes
}

// sentTimes are when messages were published, since it was emptied.
type sentTimes struct {
	mu sync.Mutex
	at map[message]time.Time
}

// note notes the first time that a message was tried to be published.
func (s *sentTimes) note(m message, at time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if _, again := s.at[m]; !again {
		s.at[m] = at
	}
}

// empty forgets all and returns it.
func (s *sentTimes) empty() map[message]time.Time {
	s.mu.Lock()
	defer s.mu.Unlock()
	at := s.at
	s.at = map[message]time.Time{}
	return at
}

// all measures each disturbance in each round. A phase with none comes first and is not kept:
// by then every key has been worked on and connections are warm.
func (m *keyMeasurement) all(ctx context.Context) ([][]KeyPhase, error) {
	m.ledger.least.Store(int64(m.Work))
	m.sent.empty()
	m.publisher.publish(m.publisher.every()...)
	if err := m.settle(ctx); err != nil {
		return nil, err
	}
	_, runs := m.ledger.record()
	units := unitsOf(runs)
	odd := oddKeys(units, m.Odd)
	if len(odd) < m.Odd {
		return nil, fmt.Errorf("%d keys are in %d slots with two keys or more: %d are needed", m.Keys, len(odd), m.Odd)
	}
	if _, err := m.phase(ctx, Disturbances()[0], odd, units); err != nil {
		return nil, err
	}

	var rounds [][]KeyPhase
	for range m.Rounds {
		var round []KeyPhase
		for _, d := range Disturbances() {
			p, err := m.phase(ctx, d, odd, units)
			if err != nil {
				return rounds, fmt.Errorf("with the disturbance %q: %w", d.Name, err)
			}
			round = append(round, p)
		}
		rounds = append(rounds, round)
	}
	return rounds, nil
}

// phase publishes with one disturbance and waits until all is processed.
func (m *keyMeasurement) phase(ctx context.Context, d Disturbance, odd []int, units map[int]int) (KeyPhase, error) {
	slow := slowKeys{}
	for _, key := range odd {
		slow[key] = m.Work * time.Duration(d.Work)
	}
	m.ledger.slow.Store(&slow)
	m.sent.empty()
	began := time.Now()
	for _, next := range schedule(m.Keys, m.Every, m.During, odd, d.Rate) {
		wait := time.Until(began.Add(next.at))
		if wait > 0 {
			select {
			case <-ctx.Done():
				return KeyPhase{}, ctx.Err()
			case <-time.After(wait):
			}
		}
		m.publisher.publish(next.key)
	}
	if err := m.settle(ctx); err != nil {
		return KeyPhase{}, err
	}
	_, runs := m.ledger.record()
	return keyPhase(d, runs, m.sent.empty(), odd, units), nil
}

// settle waits until all is published and processed.
func (m *keyMeasurement) settle(ctx context.Context) error {
	if err := m.publisher.flush(ctx); err != nil {
		return err
	}
	left, err := m.ledger.settled(ctx, m.Quiet)
	if err == nil && left > 0 {
		err = fmt.Errorf("%d messages have not come", left)
	}
	return err
}

// unitsOf returns the slot or partition of each key.
func unitsOf(runs []run) map[int]int {
	units := map[int]int{}
	for _, r := range runs {
		units[r.key] = r.unit
	}
	return units
}

// oddKeys chooses n keys, each the first of a unit that has others, too.
func oddKeys(units map[int]int, n int) (odd []int) {
	keysOf := map[int][]int{}
	for key, unit := range units {
		keysOf[unit] = append(keysOf[unit], key)
	}
	for _, keys := range keysOf {
		if len(keys) > 1 {
			odd = append(odd, slices.Min(keys))
		}
	}
	slices.Sort(odd)
	return odd[:min(n, len(odd))]
}

// due is when a key's next message is published.
type due struct {
	at  time.Duration
	key int
}

// schedule returns what is published, in order: each key begins at a random moment, the same in
// every call, and then has a message in every period. The odd ones have that many times as
// many.
func schedule(keys int, every, during time.Duration, odd []int, times int) (all []due) {
	random := rand.New(rand.NewPCG(1, 2))
	for key := range keys {
		begin, period := time.Duration(random.Int64N(int64(every))), every
		if slices.Contains(odd, key) {
			period = every / time.Duration(times)
			begin /= time.Duration(times)
		}
		for at := begin; at < during; at += period {
			all = append(all, due{at, key})
		}
	}
	slices.SortStableFunc(all, func(a, b due) int { return cmp.Compare(a.at, b.at) })
	return all
}

// keyPhase sorts the messages of a phase by whose they are: from each one's publishing to the
// first end of its handler.
func keyPhase(d Disturbance, runs []run, sent map[message]time.Time, odd []int, units map[int]int) KeyPhase {
	disturbed := map[int]bool{}
	for _, key := range odd {
		disturbed[units[key]] = true
	}
	first := map[message]time.Time{}
	for _, r := range runs {
		if _, ours := sent[r.message]; !ours || !r.done {
			continue
		}
		if end, ok := first[r.message]; !ok || r.end.Before(end) {
			first[r.message] = r.end
		}
	}
	var own, neighbors, elsewhere []time.Duration
	for m, end := range first {
		took := end.Sub(sent[m])
		switch {
		case slices.Contains(odd, m.key):
			own = append(own, took)
		case disturbed[units[m.key]]:
			neighbors = append(neighbors, took)
		default:
			elsewhere = append(elsewhere, took)
		}
	}
	return KeyPhase{Disturbance: d, Neighbors: spread(neighbors), Odd: spread(own), Elsewhere: spread(elsewhere)}
}
