package partition

import (
	"testing"
	"time"

	"github.com/muster-dev/muster/partition/state"
)

// TestShownState: a worker is not STABLE while its group can't replace who dies.
func TestShownState(t *testing.T) {
	t.Parallel()
	stable := func(t *testing.T) *machine {
		t.Helper()
		m, a := joinedMachine(t)
		settled := a.clone()
		settled.Version, settled.Epoch, settled.Moves = 4, 2, nil
		settled.Planned = settled.Planned.Add(time.Second)
		m.step(m.now, mapInput{settled, 9})
		for _, s := range []int{0, 1} {
			m.own.slots[s] = &slotState{phase: phaseHolding, version: 1}
		}
		m.step(m.now, tickInput{})
		if m.state != state.Stable {
			t.Fatalf("it begins as %s", m.state)
		}
		return m
	}
	// alive goes on for a while, with renewals of the worker's own lease.
	alive := func(m *machine, d time.Duration) {
		for end := m.now.Add(d); m.now.Before(end); {
			now := m.now.Add(100 * time.Millisecond)
			m.step(now, pongInput{start: now})
			m.membership.renewing = false
			m.step(now, kvInput{kvEffect: kvEffect{purpose: forLeaseRenewal, op: opUpdate, key: "sim-0", start: now}, gotRev: m.membership.rev + 1})
		}
	}
	t.Run("DEGRADED while a bucket can't be created again", func(t *testing.T) {
		t.Parallel()
		m := stable(t)
		m.step(m.now, missingInput{[]string{"bucket sim-assignments"}})
		if m.state != state.Degraded {
			t.Errorf("it is %s", m.state)
		}
		m.step(m.now, missingInput{})
		if m.state != state.Stable {
			t.Errorf("it is %s when nothing is missing", m.state)
		}
	})
	t.Run("ELECTION without a sign of the leader", func(t *testing.T) {
		t.Parallel()
		m := stable(t)
		alive(m, m.cfg.Lease.TTL/2)
		if m.state != state.Stable {
			t.Errorf("it is %s within the leader's lease", m.state)
		}
		alive(m, m.cfg.Lease.TTL)
		if m.state != state.Election {
			t.Errorf("it is %s a lease and a half after the last sign of the leader", m.state)
		}
		m.step(m.now, leaderInput{leader: Member{"sim-1", 8}, rev: 50})
		if m.state != state.Stable {
			t.Errorf("it is %s when the leader has renewed its lease", m.state)
		}
	})
}

// TestLostMap: what a leader writes that finds nothing where its map was.
func TestLostMap(t *testing.T) {
	t.Parallel()
	m, _ := joinedMachine(t)
	m.leaderLease.epoch = 1000
	t.Run("the leader that wrote it goes on from it", func(t *testing.T) {
		m.cur.Leader = m.self
		next := m.lead.maps.afterLoss()
		if next.Version != m.cur.Version+1 || next.Epoch != 1000 || len(next.Taking) != 0 || len(next.Moves) != len(m.cur.Moves) {
			t.Errorf("it writes %s over %s", describe(next), describe(m.cur))
		}
	})
	t.Run("another takes every slot, with higher fences", func(t *testing.T) {
		m.cur.Leader = Member{"sim-1", 8}
		next := m.lead.maps.afterLoss()
		if next.Version != 1000 || len(next.Taking) != 4 || len(next.Moves) != 0 {
			t.Errorf("it writes %s over %s", describe(next), describe(m.cur))
		}
		for s := range next.Owner {
			if next.fence(s).Compare(m.cur.fence(s)) <= 0 {
				t.Errorf("slot %d: the fence is %v after %v", s, next.fence(s), m.cur.fence(s))
			}
		}
		next.encode()
		if err := next.validate(); err != nil {
			t.Error(err)
		}
	})
}
