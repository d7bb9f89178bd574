package partition

import (
	"slices"
	"testing"
	"time"

	"github.com/muster-dev/muster/partition/internal/record"
	"github.com/muster-dev/muster/partition/state"
)

// TestShownState: a worker is not STABLE while its group can't replace who dies.
func TestShownState(t *testing.T) {
	t.Parallel()
	stable := func(t *testing.T) *machine {
		t.Helper()
		m, a := joinedMachine(t)
		settled := a.Clone()
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
		m.step(m.now, leaderInput{leader: record.Process{ID: "sim-1", Claim: 8}, rev: 50})
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
		m.cur.Leader = record.Process{ID: "sim-1", Claim: 8}
		next := m.lead.maps.afterLoss()
		if next.Version != 1000 || len(next.Taking) != 4 || len(next.Moves) != 0 {
			t.Errorf("it writes %s over %s", describe(next), describe(m.cur))
		}
		for s := range next.Owner {
			if fenceOf(next, s).Compare(fenceOf(m.cur, s)) <= 0 {
				t.Errorf("slot %d: the fence is %v after %v", s, fenceOf(next, s), fenceOf(m.cur, s))
			}
		}
		next.Encode()
		if _, err := record.DecodeAssignment(next.Encode()); err != nil {
			t.Error(err)
		}
	})
}

// TestJunkWhereAMapWasLost: what a leader writes over something that is no map, by what the
// bucket had before. A bucket that was made again and has something at the map's key, but has
// never had a map, may have lost newer ones than the leader's.
func TestJunkWhereAMapWasLost(t *testing.T) {
	t.Parallel()
	aMap := func(a *record.Assignment, rev uint64) kvVersion { return kvVersion{rev: rev, value: a.Encode()} }
	junk := func(rev uint64) kvVersion { return kvVersion{rev: rev, value: []byte("junk")} }
	purged := func(rev uint64) kvVersion { return kvVersion{rev: rev, deleted: true} }
	for name, tt := range map[string]struct {
		history func(a *record.Assignment) []kvVersion // the worker has a as of revision 5
		all     bool                                   // every slot is taken
	}{
		"after the map":              {func(a *record.Assignment) []kvVersion { return []kvVersion{aMap(a, 5), junk(6)} }, false},
		"after the map was purged":   {func(*record.Assignment) []kvVersion { return []kvVersion{purged(6), junk(7)} }, false},
		"in a bucket made again":     {func(*record.Assignment) []kvVersion { return []kvVersion{junk(2000)} }, true},
		"so often that the map left": {func(*record.Assignment) []kvVersion { return slices.Repeat([]kvVersion{junk(2000)}, mapHistoryDepth) }, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			m, a := joinedMachine(t)
			m.leaderLease = leaderLease{held: true, epoch: 1, rev: 2000, start: m.now}
			m.lead.maps.historyRead(kvInput{history: tt.history(a)})
			w := m.lead.maps.writer.writing
			if w == nil {
				t.Fatal("nothing is written")
			}
			if took := len(w.next.Taking) == m.cfg.Slots; took != tt.all {
				t.Errorf("it writes %s over %s", describe(w.next), describe(a))
			}
		})
	}
}

// TestStandbyWhereNobodyLeads: leases that stay for good keep a standby out as long as
// somebody leads, who removes them, and no longer.
func TestStandbyWhereNobodyLeads(t *testing.T) {
	t.Parallel()
	cfg := Config{Name: "sim", Stream: "sim", Subject: "sim.*", Slots: 4}.resolve()
	m := newMachine(cfg, "p1")
	now := simEpoch
	m.step(now, startInput{})
	m.step(now, expectedInput{n: 2, rev: 1})
	m.step(now, leaderInput{leader: record.Process{ID: "sim-1", Claim: 8}, rev: 2})
	m.step(now, mapSyncedInput{led: true})
	names := []string{"sim-0", "sim-1"}
	look := func() []effect {
		m.step(now, kvInput{kvEffect: kvEffect{purpose: forNames}, keys: names})
		return m.step(now, kvInput{kvEffect: kvEffect{purpose: forLeaseNames}, keys: names})
	}
	claims := func(es []effect) bool {
		return slices.ContainsFunc(es, func(e effect) bool {
			kv, ok := e.(kvEffect)
			return ok && kv.purpose == forClaim && kv.key == "sim-2"
		})
	}

	allGone := now.Add(cfg.Lease.TTL + time.Second + cfg.Rebalance.RestartGrace)
	for ; now.Before(allGone); now = now.Add(standbyPoll) {
		m.step(now, tickInput{})
		if claims(look()) {
			t.Fatalf("it claims a third ID %v after a sign of the leader", now.Sub(simEpoch))
		}
	}
	now = allGone.Add(standbyPoll)
	m.step(now, tickInput{})
	if !claims(look()) {
		t.Error("it waits although nobody leads")
	}
}
