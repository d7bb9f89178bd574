package groupview

import (
	"cmp"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/muster-dev/muster/console"
	"github.com/muster-dev/muster/partition/event"
)

// Moments turns a group's events into the lines of its timeline.
type Moments struct {
	mu  sync.Mutex
	led uint64 // the epoch of the last election that has a line
}

// Of is MomentOf, but an election has one line. A worker that wins sends two events if its watch delivers its write before
// the write is answered.
func (m *Moments) Of(e event.Event) (console.Moment, bool) {
	moment, ok := MomentOf(e)
	if !ok || e.Kind != event.Elected {
		return moment, ok
	}

	m.mu.Lock()
	defer m.mu.Unlock()
	if e.Epoch == m.led {
		return console.Moment{}, false
	}
	m.led = e.Epoch
	return moment, true
}

// MomentOf says in words what an event of a defender tells; not every event is worth a line.
func MomentOf(e event.Event) (console.Moment, bool) {
	line := liner(e)
	switch e.Kind {
	case event.IDClaimed:
		return line("", "claimed its stable ID after %s", took(e.Duration))
	case event.Elected:
		if e.Worker == e.Peer {
			return line("", "is the leader, epoch %d", e.Epoch)
		}
	case event.WorkerGone:
		level := "bad"
		if e.Reason == "left" { // in good order
			level = ""
		}
		return line(level, "%s is gone (%s)", e.Peer, e.Reason)
	case event.WorkerSuspected:
		return line("warn", "%s is suspected to have failed", e.Peer)
	case event.WorkerLeaving:
		return line("", "%s is leaving", e.Peer)
	case event.Topology:
		return line("", "topology change: %d → %d workers", e.Before, e.After)
	case event.WindowStarted:
		return line("", "stabilization window of %s (%s)", e.Duration.Round(time.Second), e.Reason)
	case event.WindowDone:
		return line("", "window complete after %s: %d workers, %s", took(e.Duration), e.After, e.Reason)
	case event.Planned:
		return line("", "planned in %s: %d slots move (%s)", e.Duration.Round(time.Microsecond), e.Count, e.Reason)
	case event.MapPublished:
		return line("", "published map version %d for %d workers", e.Version, e.After)
	case event.Rebalanced:
		return line("good", "rebalanced to version %d, %s after the plan", e.Version, took(e.Duration))
	case event.SlotTakenOver:
		return line("warn", "slot %d is taken over by %s", e.Slot, e.Peer)
	default:
		return ownMoment(e)
	}
	return console.Moment{}, false
}

// liner returns what makes a line of an event.
func liner(e event.Event) func(level, format string, args ...any) (console.Moment, bool) {
	return func(level, format string, args ...any) (console.Moment, bool) {
		text := cmp.Or(e.Worker, "a worker") + ": " + fmt.Sprintf(format, args...)
		return console.Moment{At: e.Time, Plane: "workers", Kind: string(e.Kind), Subject: cmp.Or(e.Worker, e.Peer), Level: level, Text: text}, true
	}
}

// ownMoment is MomentOf for what a worker tells of itself.
func ownMoment(e event.Event) (console.Moment, bool) {
	line := liner(e)
	switch e.Kind {
	case event.LeaseUncertain:
		return line("bad", "paused: its lease is uncertain (%s)", e.Reason)
	case event.LeaseConfirmed:
		return line("good", "resumed after %s", took(e.Duration))
	case event.IdentityLost, event.HandoffForced, event.PrepareFailed, event.StalePinFreed, event.ResourceRecreated, event.FencesRaised:
		return line("warn", "%s %s%s", strings.ReplaceAll(string(e.Kind), "-", " "), e.Reason, e.Err)
	case event.StreamRolledBack, event.Panicked:
		return line("bad", "%s: %s: %s", strings.ReplaceAll(string(e.Kind), "-", " "), e.Reason, e.Err)
	case event.Draining:
		if e.Duration == 0 {
			return line("good", "undrained: takes slots again")
		}
		return line("warn", "drains: hands off its slots and takes none for %s", e.Duration.Round(time.Second))
	case event.Left:
		return line("", "left after a drain of %s", took(e.Duration))
	default:
	}
	return console.Moment{}, false
}

// took writes a duration with the digits that tell short ones apart.
func took(d time.Duration) string {
	ms := float64(d) / float64(time.Millisecond)
	switch {
	case ms < 1:
		return fmt.Sprintf("%.2f ms", ms)
	case ms < 10:
		return fmt.Sprintf("%.1f ms", ms)
	case ms < 1000:
		return fmt.Sprintf("%.0f ms", ms)
	}
	return fmt.Sprintf("%.1f s", d.Seconds())
}
