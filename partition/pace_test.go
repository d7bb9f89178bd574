package partition

import (
	"fmt"
	"testing"
	"time"

	"github.com/muster-dev/muster/partition/event"
)

// TestHandOversOfAPlanArePaced: three workers join six, and a third of the slots
// moves, one after the other and not all at once; and the map is written a few times
// for all of them, not for each.
func TestHandOversOfAPlanArePaced(t *testing.T) {
	t.Parallel()
	const slots = 96
	for seed := uint64(1); seed <= 20; seed++ {
		s := newSim(seed, false)
		s.resize(slots)
		s.faults = simFaults{latency: time.Millisecond, reconnect: 600 * time.Millisecond}
		s.expect(6)
		for range 6 {
			s.startWorker()
		}
		s.run(6*time.Second, nil)
		var acquired []time.Duration
		s.observe = func(_ *simWorker, e event.Event) {
			if e.Kind == event.SlotAcquired && e.Reason == "handoff" {
				acquired = append(acquired, s.now)
			}
		}
		writes := 0
		s.broken.onEffect = func(_ *simWorker, e effect) effect {
			if kv, ok := e.(kvEffect); ok && kv.purpose == forMapWrite {
				writes++
			}
			return e
		}
		s.expect(9)
		for range 3 {
			s.startWorker()
		}
		s.run(s.now+10*time.Second, func() bool { return s.check.current.Version > 1 && s.check.current.Settled() })
		s.run(s.now+time.Second, nil) // the leader may hear of a handoff before the next owner does
		if v := s.check.violation; v != nil {
			t.Fatalf("seed %d: %s: %s", seed, v.name, v.text)
		}
		moves := s.check.current.Moved
		if len(acquired) != moves || moves < slots/4 {
			t.Fatalf("seed %d: %d slots were handed off, %d move", seed, len(acquired), moves)
		}
		const few, least = 8, 20 * time.Millisecond
		for i := few; i < moves; i++ {
			if d := acquired[i] - acquired[i-few]; d < least {
				t.Errorf("seed %d: %d slots are handed off within %v", seed, few, d)
			}
		}
		took := acquired[moves-1] - acquired[0]
		// Joining workers need up to a second to prepare.
		if most := time.Duration(moves)*handoffPace + 1500*time.Millisecond; took > most {
			t.Errorf("seed %d: it takes %v, want at most %v", seed, took, most)
		}
		if most := int(3 + took/settleDelay); writes < 2 || writes > most {
			t.Errorf("seed %d: the map is written %d times in %v, want 2 to %d", seed, writes, took, most)
		}
	}
}

// TestPacingIsBounded: however many slots a plan moves, the handoffs of all of its
// owners begin within a time, and none waits that is of an earlier plan.
func TestPacingIsBounded(t *testing.T) {
	t.Parallel()
	const slots, owners = 4096, 8
	a := &Assignment{Schema: mapSchema, Version: 2, Layout: 1, Slots: slots, Owner: make(ownerColumn, slots), Since: make(versionColumn, slots), Moves: make(moveTable)}
	for i := range 2 * owners {
		a.Workers = append(a.Workers, Member{ID: fmt.Sprintf("sim-%d", i), Claim: uint64(i + 1)})
	}
	for s := range slots {
		a.Owner[s] = int32(s % owners)
		a.Moves[s] = plannedMove{Next: int32(owners + s%owners), Version: 2}
	}
	began := time.Unix(1_700_000_000, 0)
	for i := range owners {
		m := &machine{core: core{cur: a, self: a.Workers[i], now: began}}
		m.own.core = &m.core
		n := 0
		for s := i; s < slots; s += owners {
			for m.own.pacing.waits(s, 2, &m.core) {
				m.now = m.own.pacing.next
			}
			n++
		}
		if took := m.now.Sub(began); n != slots/owners || took > longestPacing || took < longestPacing*9/10 {
			t.Errorf("owner %d begins its %d handoffs within %v, want %v for all", i, n, took, longestPacing)
		}
		if m.now = began; m.own.pacing.waits(i, 1, &m.core) {
			t.Errorf("owner %d lets a move of an earlier plan wait", i)
		}
	}
}
