package partition

import (
	"math"
	"testing"
	"time"

	"github.com/muster-dev/muster/partition/event"
	"github.com/muster-dev/muster/partition/internal/record"
)

// leadingMachine is a leader with a map in which each of two workers has two slots.
func leadingMachine(t *testing.T) *machine {
	t.Helper()
	m, a := joinedMachine(t)
	settled := a.Clone()
	settled.Version, settled.Epoch, settled.Leader, settled.Moves = 4, 3, m.self, nil
	m.step(m.now, mapInput{settled, 9})
	m.election.won(m.self, 8)
	m.leaderLease = leaderLease{held: true, epoch: 3, rev: 8, start: m.now, due: m.now.Add(time.Second)}
	m.lead.begin(suspicion{})
	m.lead.maps.ready, m.lead.roster.synced = true, true
	for _, w := range settled.Workers {
		m.lead.roster.enter(&peerView{Process: w, lease: record.Heartbeat{Version: 4, Weight: 1}, seenAt: m.now})
	}
	if !m.mayAct() {
		t.Fatal("it does not lead")
	}
	return m
}

// mapWrites returns the maps that a step writes.
func mapWrites(t *testing.T, effects []effect) (maps []*record.Assignment) {
	t.Helper()
	for _, e := range effects {
		if w, is := e.(kvEffect); is && w.purpose == forMapWrite {
			a, err := record.DecodeAssignment(w.value)
			if err != nil {
				t.Fatal(err)
			}
			maps = append(maps, a)
		}
	}
	return maps
}

func reportOf(m *machine, slot int, stored Fence) record.FenceReport {
	return record.FenceReport{Schema: record.Schema, From: m.cur.OwnerAt(slot), To: m.self, Layout: m.cur.Layout, Slots: m.cur.Slots, Slot: slot, Fence: record.Fence(fenceOf(m.cur, slot)), Stored: record.Fence(stored)}
}

// TestFenceReport: what a leader does about the report that a store has a higher fence
// than the owner.
func TestFenceReport(t *testing.T) {
	t.Parallel()
	t.Run("every fence is raised above it, and no slot moves", func(t *testing.T) {
		t.Parallel()
		for name, stored := range map[string]Fence{
			"of a later version":                   {500, 2},
			"of a version that the map has had":    {2, 90},
			"of the same version":                  {1, 90},
			"of a raised version":                  {record.RaisedVersion(simEpoch) - 5, 2},
			"of a leader whose clock was in front": {record.RaisedVersion(simEpoch.Add(time.Hour)), 2},
		} {
			m := leadingMachine(t)
			before := m.cur
			written := mapWrites(t, m.step(m.now, fenceReportInput{reportOf(m, 3, stored)}))
			if len(written) != 1 {
				t.Errorf("%s: %d maps are written", name, len(written))
				continue
			}
			a := written[0]
			if err := a.CheckOrder(12, before, m.now); err != nil {
				t.Errorf("%s: no worker believes the map: %v", name, err)
			}
			for s := range a.Owner {
				if a.OwnerAt(s) != before.OwnerAt(s) || a.Taking[s] || fenceOf(a, s).Compare(stored) <= 0 || fenceOf(a, s).Compare(fenceOf(before, s)) <= 0 {
					t.Errorf("%s: slot %d is of %v with fence %v, was of %v with %v, the store has %v", name, s, a.OwnerAt(s), fenceOf(a, s), before.OwnerAt(s), fenceOf(before, s), stored)
				}
			}
			told := false
			for _, e := range m.step(m.now, kvInput{kvEffect: kvEffect{purpose: forMapWrite, op: opUpdate}, gotRev: 12}) {
				if e, is := e.(emitEffect); is && e.event.Kind == event.FencesRaised {
					told = e.event.Version == a.Version && e.event.Slot == 3 && e.event.Peer == "sim-1"
				}
			}
			if !told {
				t.Errorf("%s: no event tells of it", name)
			}
		}
	})
	for name, change := range map[string]func(m *machine, r *record.FenceReport){
		"of a worker that the map does not name is nothing": func(_ *machine, r *record.FenceReport) { r.From = record.Process{ID: "sim-2", Claim: 3} },
		"of an earlier holder of the owner's name is nothing": func(_ *machine, r *record.FenceReport) {
			r.From.Claim, r.Fence.Claim = r.From.Claim-1, r.Fence.Claim-1
		},
		"of a former owner's fence is nothing":         func(_ *machine, r *record.FenceReport) { r.Fence.Version = 0 },
		"of another worker's slot is nothing":          func(_ *machine, r *record.FenceReport) { r.Slot = 0 },
		"of another number of slots is nothing":        func(_ *machine, r *record.FenceReport) { r.Slots = 8 },
		"of a fence that is valid is nothing":          func(_ *machine, r *record.FenceReport) { r.Stored = r.Fence },
		"of a fence that no group can give is nothing": func(_ *machine, r *record.FenceReport) { r.Stored.Version = math.MaxUint64 },
		"of a version that is many years ahead is nothing": func(m *machine, r *record.FenceReport) {
			r.Stored.Version = record.RaisedVersion(m.now.AddDate(40, 0, 0))
		},
		"for another leader is nothing":                func(_ *machine, r *record.FenceReport) { r.To.Claim++ },
		"to a leader whose lease has ended is nothing": func(m *machine, _ *record.FenceReport) { m.leaderLease.start = m.now.Add(-m.cfg.Lease.TTL) },
		"to a worker that does not lead is nothing":    func(m *machine, _ *record.FenceReport) { m.leaderLease.held = false },
		"of a slot that moves waits":                   func(m *machine, _ *record.FenceReport) { m.cur.Moves = map[int]record.Move{3: {Next: 0, Version: 4}} },
		"of a slot that waits for its takeover waits":  func(m *machine, _ *record.FenceReport) { m.cur.Taking = map[int]bool{3: true} },
		"while another slot moves waits until it has":  func(m *machine, _ *record.FenceReport) { m.cur.Moves = map[int]record.Move{0: {Next: 1, Version: 4}} },
		"soon after a raise waits":                     func(m *machine, _ *record.FenceReport) { m.lead.incarnation.notSoon = m.now.Add(raisePause) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			m := leadingMachine(t)
			r := reportOf(m, 3, Fence{500, 2})
			change(m, &r)
			if written := mapWrites(t, m.step(m.now, fenceReportInput{r})); len(written) != 0 {
				t.Errorf("it writes %s", describe(written[0]))
			}
		})
	}
	t.Run("that had to wait is not forgotten", func(t *testing.T) {
		t.Parallel()
		m := leadingMachine(t)
		m.lead.incarnation.notSoon = m.now.Add(raisePause)
		m.step(m.now, fenceReportInput{reportOf(m, 3, Fence{500, 2})})
		if due := m.wake(); due.After(m.now.Add(raisePause)) {
			t.Errorf("it looks again in %v", due.Sub(m.now))
		}
		m.leaderLease.start, m.lease.renewed, m.lease.confirmed = m.now.Add(raisePause), m.now.Add(raisePause), m.now.Add(raisePause)
		if written := mapWrites(t, m.step(m.now.Add(raisePause), tickInput{})); len(written) != 1 {
			t.Errorf("%d maps are written when it may", len(written))
		}
	})
}

// TestFencedOwner: an owner reports the rejection of the fence that its map gives it, and
// of no other.
func TestFencedOwner(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		change  func(m *machine, in *fencedInput)
		reports int
	}{
		"its own":                             {func(*machine, *fencedInput) {}, 1},
		"of a fence that it has no more":      {func(_ *machine, in *fencedInput) { in.fence.Version = 0 }, 0},
		"of a slot that it doesn't hold":      {func(m *machine, _ *fencedInput) { delete(m.own.slots, 1) }, 0},
		"while it can't be sure of its lease": {func(m *machine, _ *fencedInput) { m.step(m.now, connectionInput{up: false}) }, 0},
		"while nobody leads":                  {func(m *machine, _ *fencedInput) { m.leader = record.Process{} }, 0},
		"that isn't one":                      {func(_ *machine, in *fencedInput) { in.stored = in.fence }, 0},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			m, _ := joinedMachine(t)
			in := fencedInput{place: generationOf(m.cur).place(1), fence: fenceOf(m.cur, 1), stored: Fence{500, 2}}
			tt.change(m, &in)
			reports := 0
			for _, e := range m.step(m.now, in) {
				if e, is := e.(reportFenceEffect); is {
					if reports++; e.report.From != m.self || e.report.To != m.leader || Fence(e.report.Stored) != in.stored {
						t.Errorf("it reports %+v", e.report)
					}
				}
			}
			if reports != tt.reports {
				t.Errorf("%d reports, want %d", reports, tt.reports)
			}
		})
	}
}
