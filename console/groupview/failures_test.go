package groupview

import (
	"testing"
	"time"

	"github.com/muster-dev/muster/console"
	"github.com/muster-dev/muster/partition/event"
	"github.com/muster-dev/muster/partition/report"
	"github.com/muster-dev/muster/partition/state"
)

// at is a moment, some milliseconds after a fixed one.
func at(ms int) time.Time {
	return time.Date(2026, 1, 2, 12, 0, 0, 0, time.UTC).Add(time.Duration(ms) * time.Millisecond)
}

func TestFailures(t *testing.T) {
	t.Parallel()
	claimed := func(ms int, id string, claim uint64) event.Event {
		return event.Event{Time: at(ms), Kind: event.IDClaimed, Worker: id, Claim: claim}
	}
	gone := func(ms int, id string, claim uint64, reason string) event.Event {
		return event.Event{Time: at(ms), Kind: event.WorkerGone, Worker: "w-0", Peer: id, Claim: claim, Reason: reason, Duration: 300 * time.Millisecond}
	}
	left := func(ms int, id string) event.Event {
		return event.Event{Time: at(ms), Kind: event.Left, Worker: id}
	}
	both := map[string]state.State{"w-0": state.Stable, "w-3": state.Stable}
	for _, c := range []struct {
		name   string
		events []event.Event
		want   string // why w-3 failed
	}{
		{"a crash", []event.Event{claimed(0, "w-3", 7), gone(5000, "w-3", 7, "connection gone")}, "connection gone"},
		{"a worker that left", []event.Event{claimed(0, "w-3", 7), left(4900, "w-3"), gone(5000, "w-3", 7, "left")}, ""},
		{"a worker that left, whose leader saw only its connection", []event.Event{claimed(0, "w-3", 7), left(4900, "w-3"), gone(5000, "w-3", 7, "connection gone")}, ""},
		{"the same, in the other order", []event.Event{claimed(0, "w-3", 7), gone(5000, "w-3", 7, "connection gone"), left(4900, "w-3")}, ""},
		{"a new holder of the ID", []event.Event{claimed(0, "w-3", 7), gone(5000, "w-3", 7, "lease expired"), claimed(9000, "w-3", 9)}, ""},
		{"a new holder of the ID, before the leader's word", []event.Event{claimed(0, "w-3", 7), claimed(4900, "w-3", 9), gone(5000, "w-3", 7, "lease expired")}, ""},
		{"one that fails again", []event.Event{claimed(0, "w-3", 7), gone(5000, "w-3", 7, "crash"), claimed(9000, "w-3", 9), gone(20000, "w-3", 9, "lease expired")}, "lease expired"},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			f := NewFailures()
			for _, e := range c.events {
				f.Follow(e, e.Time)
			}
			states := map[string]state.State{"w-0": state.Stable, "w-3": state.Stable}
			got, failed := f.Now(at(21000), states, 2)["w-3"]
			if failed != (c.want != "") || got.Reason != c.want {
				t.Errorf("failed %t: %+v, want %q", failed, got, c.want)
			}
			if _, live := states["w-3"]; live == failed {
				t.Errorf("it is listed as live: %t, and failed: %t", live, failed)
			}
			if failed && !got.At.Equal(c.events[len(c.events)-1].Time.Add(-300*time.Millisecond)) {
				t.Errorf("it failed at %v", got.At)
			}
		})
	}
	t.Run("a lease that is gone and no leader to report it", func(t *testing.T) {
		t.Parallel()
		f := NewFailures()
		f.Follow(claimed(0, "w-0", 6), at(0))
		f.Follow(claimed(0, "w-3", 7), at(0))
		f.Follow(claimed(4000, "w-5", 8), at(4000)) // while the leases are read
		f.Leases(at(3000), map[string]report.Lease{"w-0": {}}, both)
		if got := f.Now(at(5000), map[string]state.State{}, 3); len(got) != 1 || got["w-3"].Reason != leaseGone {
			t.Errorf("failed: %+v", got)
		}
		// It lives: the reading was of a replica that was behind.
		f.Leases(at(20000), map[string]report.Lease{"w-0": {}, "w-5": {}, "w-3": {Process: report.Process{ID: "w-3", Claim: 7}, Renewed: at(19000)}}, both)
		if got := f.Now(at(20000), map[string]state.State{}, 3); len(got) != 0 {
			t.Errorf("failed: %+v", got)
		}
	})
	t.Run("a worker that hands off and leaves", func(t *testing.T) {
		t.Parallel()
		f := NewFailures()
		f.Follow(claimed(0, "w-3", 7), at(0))
		f.Leases(at(3000), map[string]report.Lease{}, map[string]state.State{"w-3": state.Shutdown})
		if got := f.Now(at(5000), map[string]state.State{}, 1); len(got) != 0 {
			t.Errorf("failed: %+v", got)
		}
	})
	t.Run("it is shown until it is replaced", func(t *testing.T) {
		t.Parallel()
		f := NewFailures()
		f.Follow(claimed(0, "w-3", 7), at(0))
		f.Follow(gone(1000, "w-3", 7, "crash"), at(1000))
		shown := func(after time.Duration, expected int) bool {
			_, is := f.Now(at(1000).Add(after), map[string]state.State{"w-0": state.Stable}, expected)["w-3"]
			return is
		}
		if !shown(30*time.Minute, 2) || !shown(time.Minute, 1) || shown(10*time.Minute, 1) || !shown(48*time.Hour, 2) || shown(2*time.Hour, 0) {
			t.Error("it is shown for too long or not for long enough")
		}
	})
	t.Run("it is shown until it is acknowledged, and again when it fails again", func(t *testing.T) {
		t.Parallel()
		f := NewFailures()
		f.Follow(claimed(0, "w-3", 7), at(0))
		f.Follow(gone(1000, "w-3", 7, "crash"), at(1000))
		states := func() map[string]state.State { return map[string]state.State{"w-0": state.Stable} }
		if f.Acknowledge("w-0") || !f.Acknowledge("w-3") || f.Acknowledge("w-3") {
			t.Error("only w-3 can be acknowledged, and only once")
		}
		if got := f.Now(at(2000), states(), 2); len(got) != 0 {
			t.Errorf("acknowledged, and shown: %+v", got)
		}
		f.Follow(claimed(9000, "w-3", 9), at(9000))
		f.Follow(gone(20000, "w-3", 9, "crash"), at(20000))
		if got := f.Now(at(21000), states(), 2); len(got) != 1 {
			t.Errorf("failed again, and shown: %+v", got)
		}
	})
}

// TestAcknowledgeAt: a console that was restarted replays the stored events, and what was acknowledged on the one before it.
func TestAcknowledgeAt(t *testing.T) {
	t.Parallel()
	claimed := func(ms int, claim uint64) event.Event {
		return event.Event{Time: at(ms), Kind: event.IDClaimed, Worker: "w-3", Claim: claim}
	}
	shown := func(f *Failures) bool {
		_, is := f.Now(at(60_000), map[string]state.State{"w-0": state.Stable}, 2)["w-3"]
		return is
	}
	t.Run("a failure that the leader reported", func(t *testing.T) {
		t.Parallel()
		f := NewFailures()
		f.Follow(claimed(0, 7), at(0))
		f.Follow(event.Event{Time: at(1000), Kind: event.WorkerGone, Worker: "w-0", Peer: "w-3", Claim: 7, Reason: "crash"}, at(1000))
		f.AcknowledgeAt("w-3", at(500))
		if !shown(f) {
			t.Error("it was acknowledged before it happened")
		}
		f.AcknowledgeAt("w-3", at(5000))
		if shown(f) {
			t.Error("it is shown")
		}
	})
	t.Run("a missing lease, which is noticed again", func(t *testing.T) {
		t.Parallel()
		for claim, want := range map[int]bool{0: false, 6000: true} {
			f := NewFailures()
			f.Follow(claimed(claim, 7), at(claim))
			f.AcknowledgeAt("w-3", at(5000))
			f.Leases(at(9000), map[string]report.Lease{}, map[string]state.State{})
			if shown(f) != want {
				t.Errorf("claimed at %d ms and acknowledged at 5000 ms: shown: %t", claim, !want)
			}
		}
	})
}

func TestSlotMoves(t *testing.T) {
	t.Parallel()
	happened := func(ms int, kind event.Kind, worker string, slot int, reason string) event.Event {
		return event.Event{Time: at(ms), Kind: kind, Worker: worker, Slot: slot, Reason: reason}
	}
	acquired, released := event.SlotAcquired, event.SlotReleased
	gone := event.Event{Time: at(5000), Kind: event.WorkerGone, Worker: "b", Peer: "a", Reason: "connection gone", Duration: 500 * time.Millisecond}
	move := func(ms int, from, to string, pause time.Duration, takeover bool) console.SlotMove {
		return console.SlotMove{Slot: 1, From: from, To: to, At: at(ms), Pause: pause, Takeover: takeover}
	}
	first := happened(0, acquired, "a", 1, "assigned")
	for name, c := range map[string]struct {
		events []event.Event
		want   []console.SlotMove
	}{
		"the first owner":           {[]event.Event{first}, nil},
		"a handoff":                 {[]event.Event{first, happened(100, released, "a", 1, ""), happened(103, acquired, "b", 1, "handoff")}, []console.SlotMove{move(103, "a", "b", 3*time.Millisecond, false)}},
		"a handoff, seen backwards": {[]event.Event{first, happened(103, acquired, "b", 1, "handoff"), happened(100, released, "a", 1, "")}, []console.SlotMove{move(103, "a", "b", 3*time.Millisecond, false)}},
		"a takeover":                {[]event.Event{first, gone, happened(5014, acquired, "b", 1, "takeover")}, []console.SlotMove{move(5014, "a", "b", 514*time.Millisecond, true)}},
		"a takeover, before the leader's word": {[]event.Event{first, happened(4990, acquired, "b", 1, "takeover"), gone},
			[]console.SlotMove{move(4990, "a", "b", -1, true)}},
		"a takeover from an unknown owner": {[]event.Event{happened(5014, acquired, "b", 1, "takeover")}, []console.SlotMove{move(5014, "", "b", -1, true)}},
		"an owner that failed after its release": {[]event.Event{first, happened(4000, released, "a", 1, ""), gone, happened(5014, acquired, "b", 1, "takeover")},
			[]console.SlotMove{move(5014, "a", "b", 1014*time.Millisecond, true)}},
		"an owner that left": {[]event.Event{first, happened(100, released, "a", 1, ""), {Time: at(110), Kind: event.WorkerGone, Worker: "b", Peer: "a", Reason: "left"}, happened(120, acquired, "b", 1, "assigned")},
			[]console.SlotMove{move(120, "a", "b", 20*time.Millisecond, false)}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			m := NewMoves()
			var got []console.SlotMove
			for _, e := range c.events {
				if v, ok := m.Follow(e); ok {
					got = append(got, v)
				}
			}
			if len(got) != len(c.want) || len(got) == 1 && got[0] != c.want[0] {
				t.Errorf("%+v, want %+v", got, c.want)
			}
		})
	}
}
