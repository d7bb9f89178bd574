package partition

import (
	"math/rand/v2"
	"testing"
	"time"
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
		e := kvEffect{bucket: s.cfg.bucketMap(), key: AssignmentKey}
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
			s.observe = func(_ *simWorker, e Event) {
				if e.Kind == EventRefused {
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
