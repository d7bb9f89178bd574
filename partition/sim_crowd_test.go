package partition

import (
	"flag"
	"fmt"
	"testing"
	"time"

	"github.com/muster-dev/muster/partition/internal/record"
)

// This file simulates a group of thousands of workers without messages: how it starts, grows,
// shrinks, and loses a twentieth at once, with what each of that costs the server.

var crowdFlag = flag.Int("sim.crowd", 500, "workers of the simulated crowd, with eight slots each up to 65,536")

// crowdSlots is the most slots that a group can have.
const crowdSlots = 65_536

// simCrowd is what a sim of a large group does otherwise than one of a small group, so that it
// ends in a time that is not that of its size squared.
type simCrowd struct {
	workers int
	steps   int

	// A map is decoded once for all workers. None may change it, which each of them may in
	// production: the last one is compared with its record at the end.
	decoded *record.Assignment
	of      *simKV

	maps, mapBytes int // maps that were read by workers, and their size
	probes         int
}

// looksNow reports whether the checks that walk through all workers are made at this step.
func (c *simCrowd) looksNow() bool {
	c.steps++
	return c.steps%(50*c.workers) == 0
}

// storm is how many events a virtual second can have.
func (s *sim) storm() int {
	if s.crowd == nil {
		return simStorm
	}
	return max(simStorm, 400*s.crowd.workers)
}

// readMap is the map as a worker decodes it.
func (w *simWorker) readMap(kv *simKV) (*record.Assignment, error) {
	crowd := w.s.crowd
	if crowd == nil {
		return record.DecodeAssignment(w.reads(kv.value))
	}
	crowd.maps++
	crowd.mapBytes += len(kv.value)
	if crowd.of == kv {
		return crowd.decoded, nil
	}
	a, err := record.DecodeAssignment(kv.value)
	if err == nil {
		crowd.decoded, crowd.of = a, kv
	}
	return a, err
}

// newCrowd is a group that is told to expect this number of workers.
func newCrowd(workers int) *sim {
	s := newSim(1, false)
	s.cfg = Config{Name: s.cfg.Name, Stream: s.cfg.Stream, Subject: s.cfg.Subject, Slots: min(8*workers, crowdSlots), Shards: 1, Identity: Identity{PoolSize: 2 * workers}}.resolve()
	s.crowd = &simCrowd{workers: workers}
	s.faults = simFaults{latency: time.Millisecond, reconnect: 600 * time.Millisecond}
	s.resize(s.cfg.Slots)
	s.expect(workers)
	return s
}

// shared reports whether this number of workers shares all slots, and each owner holds what it has by
// the map.
func (s *sim) shared(workers int) bool {
	a := s.check.current
	if a == nil || len(a.Workers) != workers || !a.Settled() {
		return false
	}
	wanted := a.Counts()
	for _, w := range s.live() {
		if len(w.delivery.slots) != wanted[w.m.self.ID] {
			return false
		}
	}
	return true
}

// crowdStep is one change of the group.
type crowdStep struct {
	name    string
	change  func(*sim)
	workers int           // that share all slots afterwards
	within  time.Duration // of virtual time
}

func crowdSteps(n int) []crowdStep {
	start := func(count int) func(*sim) {
		return func(s *sim) {
			s.expect(len(s.live()) + count)
			for range count {
				s.startWorker()
			}
		}
	}
	end := func(count int, how func(*simWorker)) func(*sim) {
		return func(s *sim) {
			live := s.live()
			s.expect(len(live) - count)
			for _, w := range live[:count] {
				how(w)
			}
		}
	}
	tenth, twentieth := n/10, n/20
	return []crowdStep{
		{"all start", start(n), n, 2 * time.Minute},
		{"a tenth more", start(tenth), n + tenth, 2 * time.Minute},
		{"as many leave", end(tenth, (*simWorker).leave), n, 2 * time.Minute},
		{"a twentieth is killed", end(twentieth, (*simWorker).crash), n - twentieth, 2 * time.Minute},
	}
}

func TestSimulatedCrowd(t *testing.T) {
	oneGoroutine(t)
	t.Parallel()
	n := *crowdFlag
	s := newCrowd(n)
	began := time.Now()
	for _, step := range crowdSteps(n) {
		from, before, events := s.now, *s.crowd, s.steps
		step.change(s)
		for !s.shared(step.workers) {
			if s.check.violation != nil || s.now > from+step.within {
				t.Fatalf("%s: not shared by %d workers after %v: %v; %s", step.name, step.workers, s.now-from, s.check.violation, s.crowdState())
			}
			s.run(s.now+100*time.Millisecond, nil)
		}
		t.Logf("%-22s %6d workers, %6d slots: shared after %.1f s; %d events, %d maps read, %d MB; the map has %d bytes; %v passed",
			step.name, step.workers, s.cfg.Slots, (s.now - from).Seconds(), s.steps-events, s.crowd.maps-before.maps, (s.crowd.mapBytes-before.mapBytes)>>20, len(s.crowd.of.value), time.Since(began).Round(time.Second))
	}

	from, before, events := s.now, *s.crowd, s.steps
	s.run(s.now+10*time.Second, nil)
	if v := s.check.violation; v != nil {
		t.Fatalf("at rest: %s: %s", v.name, v.text)
	}
	live, seconds := float64(len(s.live())), (s.now - from).Seconds()
	probes := float64(s.crowd.probes-before.probes) / seconds
	t.Logf("at rest: %.1f events a second for each worker, %.0f probes a second, %d maps read", float64(s.steps-events)/seconds/live, probes, s.crowd.maps-before.maps)
	if probes > live/10 {
		t.Errorf("the leader probes %.0f workers a second, want at most a tenth of %.0f, since their renewals aren't late", probes, live)
	}
	if again, err := record.DecodeAssignment(s.crowd.of.value); err != nil || describe(again) != describe(s.crowd.decoded) {
		t.Errorf("a worker has changed the map that all share: %v", err)
	}
}

// crowdState says what a group has that does not share its slots yet.
func (s *sim) crowdState() string {
	a := s.check.current
	if a == nil {
		joined := 0
		for _, w := range s.live() {
			if w.m.self != (record.Process{}) {
				joined++
			}
		}
		return fmt.Sprintf("there is no map, and %d workers have a stable ID", joined)
	}
	return fmt.Sprintf("version %d has %d workers, %d moves, %d slots without an owner", a.Version, len(a.Workers), len(a.Moves), len(a.Taking))
}
