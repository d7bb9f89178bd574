package partition

import (
	"math/rand/v2"
	"testing"
	"time"

	"github.com/muster-dev/muster/partition/event"
	"github.com/muster-dev/muster/partition/internal/record"
)

// scribble writes what no worker would write where workers write, now and then,
// without an end of its own.
func (s *sim) scribble(rng *rand.Rand, end time.Duration) {
	if s.now >= end {
		return
	}
	if s.srv.up {
		junk := []string{"junk", "", `{"schema":0}`, `{"schema":1,"id":">","claim":1,"weight":-1}`}
		value := junk[rng.IntN(len(junk))]
		e := kvEffect{bucket: s.cfg.bucketMap(), key: record.AssignmentKey}
		switch n := rng.IntN(10); {
		case n < 3:
		case n < 6:
			e.key = leaderKey
		case n < 8:
			e.bucket, e.key = s.cfg.bucketLeases(), s.somebody(rng)
		default:
			e.bucket, e.key = s.cfg.bucketIDs(), s.somebody(rng)
		}
		if e.key == leaderKey && rng.IntN(4) == 0 {
			value = `{"schema":2}` // and is not renewed
		}
		e.value = []byte(value)
		s.logf("somebody writes %q to %s/%s", value, e.bucket, e.key)
		s.srv.put(s.srv.buckets[e.bucket], e)
	}
	s.after(time.Duration(rng.Int64N(int64(4*time.Second))), func() { s.scribble(rng, end) })
}

// somebody returns the name of a worker that lives, if there is one.
func (s *sim) somebody(rng *rand.Rand) string {
	if ws := s.live(); len(ws) > 0 {
		if id := ws[rng.IntN(len(ws))].m.self.ID; id != "" {
			return id
		}
	}
	return "sim-0"
}

// TestSimulationWithHostileRecords: every invariant holds, and all comes to rest,
// while somebody scribbles over the records, beside all other faults.
func TestSimulationWithHostileRecords(t *testing.T) {
	t.Parallel()
	refusals := 0
	for seed := *simFirst; seed < *simFirst+uint64(*simSeeds)/10; seed++ {
		run := func(tracing bool) *sim {
			s := newSim(seed, tracing)
			s.faults.hostile = true
			s.observe = func(_ *simWorker, e event.Event) {
				if e.Kind == event.RecordRejected {
					refusals++
				}
			}
			rng := rand.New(rand.NewPCG(seed, 7))
			s.after(time.Duration(rng.Int64N(int64(3*time.Second))), func() { s.scribble(rng, 12*time.Second) })
			s.simulate()
			return s
		}
		if v := run(false).check.violation; v != nil {
			s := run(true)
			t.Fatalf("seed %d: %s: %s\nits last steps:\n%s", seed, v.name, v.text, s.lastSteps(simTold))
		}
	}
	if refusals == 0 {
		t.Error("nothing was refused")
	}
	t.Logf("%d refusals", refusals)
}

// TestScribbledLeaseOfTheLeader: a leader that has the name of a worker of the map, and
// whose own lease somebody has written over, does not take that for the other's lease.
func TestScribbledLeaseOfTheLeader(t *testing.T) {
	oneGoroutine(t)
	t.Parallel()
	for seed := uint64(1); seed <= 100; seed++ {
		s := newSim(seed, testing.Verbose())
		s.resize(8)
		s.faults = simFaults{latency: time.Millisecond, reconnect: 600 * time.Millisecond, hostile: true}
		s.startWorker()
		s.run(8*time.Second, nil)
		s.leader().crash()
		s.run(s.now+6*s.cfg.Lease.TTL, nil) // until its name is free
		s.startWorker()
		again := s.live()[0]
		leases := s.srv.buckets[s.cfg.bucketLeases()]
		joined := func() bool {
			lease := leases.last[again.m.self.ID]
			return again.m.self.ID != "" && lease != nil && !lease.deleted
		}
		s.run(s.now+time.Minute, joined)
		if !joined() {
			t.Fatalf("seed %d: the worker has not joined", seed)
		}

		s.srv.put(leases, kvEffect{bucket: s.cfg.bucketLeases(), key: again.m.self.ID, value: []byte("junk")})
		s.run(s.now+4*s.cfg.Lease.TTL, nil)
		if v := s.check.violation; v != nil {
			t.Fatalf("seed %d: %s: %s\n%s", seed, v.name, v.text, s.lastSteps(simTold))
		}
		if !s.check.atRest() {
			t.Fatalf("seed %d: not at rest: %s", seed, s.check.whyNotAtRest())
		}
	}
}
