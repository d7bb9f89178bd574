package partition

import (
	"slices"
	"testing"
	"time"

	"github.com/muster-dev/muster/partition/internal/record"
)

// holds returns the slots that effects begin to hold.
func holds(effects []effect) (slots []int) {
	for _, e := range effects {
		if h, is := e.(holdEffect); is {
			slots = append(slots, h.slot)
		}
	}
	return slots
}

func peerSays(from, to record.Process, kind record.PeerKind, marks ...record.SlotMark) peerInput {
	return peerInput{record.PeerMessage{Schema: record.Schema, Kind: kind, From: from, To: to, Slots: marks}}
}

// TestOnlyTheReleaseOfThisMoveGivesASlot: a message between workers may come late, and a
// release is of the move that it names.
func TestOnlyTheReleaseOfThisMoveGivesASlot(t *testing.T) {
	t.Parallel()
	owner := record.Process{ID: "sim-1", Claim: 8}
	for name, tt := range map[string]struct {
		from record.Process
		mark record.SlotMark
		want []int
	}{
		"of this move":                   {owner, record.SlotMark{Slot: 2, Version: 3}, []int{2}},
		"of an earlier move":             {owner, record.SlotMark{Slot: 2, Version: 2}, nil},
		"of a later move":                {owner, record.SlotMark{Slot: 2, Version: 4}, nil},
		"with a message unsettled":       {owner, record.SlotMark{Slot: 2, Version: 3, Forced: true}, nil},
		"of a slot that does not move":   {owner, record.SlotMark{Slot: 3, Version: 3}, nil},
		"of an earlier holder's name":    {record.Process{ID: "sim-1", Claim: 6}, record.SlotMark{Slot: 2, Version: 3}, nil},
		"of a worker that is not owner":  {record.Process{ID: "sim-9", Claim: 9}, record.SlotMark{Slot: 2, Version: 3}, nil},
		"of a slot that moves elsewhere": {owner, record.SlotMark{Slot: 0, Version: 3}, nil},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			m, _ := joinedMachine(t)
			if got := holds(m.step(m.now, peerSays(tt.from, m.self, record.Released, tt.mark))); !slices.Equal(got, tt.want) {
				t.Errorf("it holds %v, want %v", got, tt.want)
			}
		})
	}
}

// TestAFenceNamesTheMoveAndTheClaim: two workers never have the same fence, since a name
// may have several holders in the time of one map, and a worker a slot several times.
func TestAFenceNamesTheMoveAndTheClaim(t *testing.T) {
	t.Parallel()
	m, _ := joinedMachine(t)
	for _, e := range m.step(m.now, peerSays(record.Process{ID: "sim-1", Claim: 8}, m.self, record.Released, record.SlotMark{Slot: 2, Version: 3})) {
		if h, is := e.(holdEffect); is && h.fence != (Fence{3, 7}) {
			t.Errorf("the fence is %v, want 3.7", h.fence)
		}
	}
}

// TestAGrantCountsForItsTakeover: a grant that was for another takeover of the slot does
// not say that the messages of this one were reset.
func TestAGrantCountsForItsTakeover(t *testing.T) {
	t.Parallel()
	m, a := joinedMachine(t)
	next := a.Clone()
	next.Version, next.Moves = 4, nil
	next.Owner[2], next.Since[2], next.Taking = 0, 4, map[int]bool{2: true}
	m.step(m.now, mapInput{next, 6})
	leader := record.Process{ID: "sim-1", Claim: 8}
	for _, version := range []uint64{3, 5} {
		if got := holds(m.step(m.now, peerSays(leader, m.self, record.Grant, record.SlotMark{Slot: 2, Version: version}))); got != nil {
			t.Errorf("a grant of takeover %d gives slots %v, which wait for takeover 4", version, got)
		}
	}
	if got := holds(m.step(m.now, peerSays(leader, m.self, record.Grant, record.SlotMark{Slot: 2, Version: 4}))); !slices.Equal(got, []int{2}) {
		t.Errorf("the grant gives slots %v", got)
	}
}

// TestAnOlderMapChangesNothing: a watch that is made again, or a slow replica, shows
// what was there before. The version alone does not tell: the end of a handoff keeps it.
func TestAnOlderMapChangesNothing(t *testing.T) {
	t.Parallel()
	m, a := joinedMachine(t)
	next := a.Clone()
	delete(next.Moves, 2)
	next.Owner[2], next.Since[2] = 0, 3
	m.step(m.now, mapInput{next, 6})
	m.step(m.now, mapInput{a, 5})
	if m.curRev != 6 || m.cur.OwnerAt(2) != m.self {
		t.Errorf("the map is that of revision %d, in which %v owns slot 2", m.curRev, m.cur.OwnerAt(2))
	}
}

// TestAnOwnerWaitsForThePreparedOfThisMove: what a next owner was prepared for before
// does not say that it is prepared now.
func TestAnOwnerWaitsForThePreparedOfThisMove(t *testing.T) {
	t.Parallel()
	m, _ := joinedMachine(t)
	next := record.Process{ID: "sim-1", Claim: 8}
	released := func(version uint64) bool {
		return slices.ContainsFunc(m.step(m.now, peerSays(next, m.self, record.Prepared, record.SlotMark{Slot: 0, Version: version})), func(e effect) bool {
			r, is := e.(releaseEffect)
			return is && r.slot == 0
		})
	}
	if released(2) {
		t.Error("it gives the slot up to an owner that was prepared for an earlier move")
	}
	if !released(3) {
		t.Error("it keeps the slot although the next owner is prepared")
	}
}

// TestAHandoffIsForcedInTime: a handler that does not return holds a handoff up for as
// long as is allowed, and no longer.
func TestAHandoffIsForcedInTime(t *testing.T) {
	t.Parallel()
	m, _ := joinedMachine(t)
	m.step(m.now, peerSays(record.Process{ID: "sim-1", Claim: 8}, m.self, record.Prepared, record.SlotMark{Slot: 0, Version: 3}))
	forced := func(at time.Time) bool {
		return slices.ContainsFunc(m.step(at, tickInput{}), func(e effect) bool {
			f, is := e.(forceEffect)
			return is && f.slot == 0
		})
	}
	end := m.now.Add(m.cfg.Rebalance.HandoffTimeout)
	if forced(end.Add(-time.Millisecond)) {
		t.Error("it is forced before its time")
	}
	if due := m.wake(); due.After(end) {
		t.Errorf("nobody wakes the machine then: %v later", due.Sub(end))
	}
	if !forced(end) {
		t.Error("it is not forced")
	}
}

// TestAReleaseOfAnEarlierTenure: a map may give a slot to its owner again while the owner still
// releases it for a move that is over, as after the loss of the map. The end of that release
// gives the slot to nobody, so the owner holds it again, and can release it for the next move.
func TestAReleaseOfAnEarlierTenure(t *testing.T) {
	t.Parallel()
	next := record.Process{ID: "sim-1", Claim: 8}
	for name, tt := range map[string]struct {
		taking bool
		want   []int
	}{
		"given again":               {false, []int{0}},
		"to be taken for the owner": {true, nil},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			m, a := joinedMachine(t)
			m.step(m.now, peerSays(next, m.self, record.Prepared, record.SlotMark{Slot: 0, Version: 3}))
			again := a.Clone()
			again.Version, again.Since[0] = 5, 4
			again.Moves = map[int]record.Move{0: {Next: 1, Version: 5}}
			if tt.taking {
				again.Moves, again.Taking = nil, map[int]bool{0: true}
			}
			m.step(m.now, mapInput{again, 6})

			if got := holds(m.step(m.now, slotReleasedInput{place: m.own.at(0), claim: m.self.Claim})); !slices.Equal(got, tt.want) {
				t.Errorf("it holds %v, want %v", got, tt.want)
			}
			if tt.taking {
				if got := holds(m.step(m.now, peerSays(next, m.self, record.Grant, record.SlotMark{Slot: 0, Version: 4}))); !slices.Equal(got, []int{0}) {
					t.Errorf("the grant gives it %v", got)
				}
				return
			}
			released := slices.ContainsFunc(m.step(m.now, peerSays(next, m.self, record.Prepared, record.SlotMark{Slot: 0, Version: 5})), func(e effect) bool {
				r, is := e.(releaseEffect)
				return is && r.slot == 0
			})
			if !released {
				t.Error("it does not release the slot for the next move")
			}
		})
	}
}
