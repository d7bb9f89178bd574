package defender

import (
	"context"
	"fmt"
	"log/slog"
	"sync/atomic"
	"time"

	"github.com/muster-dev/muster/partition/event"
)

// worker is the stable ID that log lines carry.
type worker struct{ id atomic.Pointer[string] }

func (w *worker) get() string {
	if id := w.id.Load(); id != nil {
		return *id
	}
	return ""
}

// logger writes the log lines of a defender, with its stable ID.
type logger struct {
	to      *slog.Logger
	name    worker
	version string // of the build
}

// line returns the logger of one line.
func (l *logger) line() *slog.Logger { return l.to.With("worker", l.name.get()) }

// claimed takes note of the stable ID when a worker claims one.
func (l *logger) claimed(e event.Event) {
	if e.Kind == event.IDClaimed {
		l.name.id.Store(&e.Worker)
	}
}

// observe writes the line of an event, if it has one.
func (l *logger) observe(e event.Event) {
	text, ok := l.textOf(e)
	if !ok {
		return
	}
	l.line().Log(context.Background(), levelOf(e.Kind), text, "event", string(e.Kind))
}

// textOf returns what the log says of an event, false for nothing.
func (l *logger) textOf(e event.Event) (string, bool) {
	if e.Kind == event.Started {
		return "Starting defender " + l.version, true
	}
	text, ok := texts[e.Kind]
	if !ok {
		return "", false
	}
	return text(e), true
}

// texts are what the log says of each kind of event; nothing of the others.
var texts = map[event.Kind]func(event.Event) string{
	event.IDClaimed:     func(e event.Event) string { return fmt.Sprintf("Claimed stable ID: %s", e.Worker) },
	event.Elected:       electedText,
	event.StateChanged:  func(e event.Event) string { return fmt.Sprintf("State transition: %s → %s", e.From, e.To) },
	event.WorkerJoined:  func(e event.Event) string { return fmt.Sprintf("New defender detected: %s", e.Peer) },
	event.WorkerLeaving: func(e event.Event) string { return fmt.Sprintf("Defender leaves: %s", e.Peer) },
	event.WorkerGone:    func(e event.Event) string { return fmt.Sprintf("Defender gone: %s (%s)", e.Peer, e.Reason) },
	event.Topology: func(e event.Event) string {
		return fmt.Sprintf("Topology change: %d → %d defenders", e.Before, e.After)
	},
	event.WindowStarted: func(e event.Event) string {
		return fmt.Sprintf("Stabilization window started (%s, %s)", e.Duration.Round(time.Second), e.Reason)
	},
	event.WindowDone: func(e event.Event) string {
		return fmt.Sprintf("Stabilization window complete (%d defenders, %s)", e.After, e.Reason)
	},
	event.Rebalance: func(e event.Event) string { return fmt.Sprintf("Rebalancing triggered (%s detected)", e.Reason) },
	event.Planned: func(e event.Event) string {
		return fmt.Sprintf("Assignment calculation complete (%s, %d chambers moved in %d slots, %d defenders)", e.Duration.Round(time.Microsecond), e.Keys, e.Count, e.After)
	},
	event.MapPublished: func(e event.Event) string {
		return fmt.Sprintf("Published assignment map (version %d, %d defenders)", e.Version, e.After)
	},
	event.Rebalanced: func(e event.Event) string {
		return fmt.Sprintf("Rebalancing complete (version %d, %s)", e.Version, e.Duration.Round(time.Millisecond))
	},
	event.MapReceived: func(e event.Event) string { return fmt.Sprintf("Received assignment map (version %d)", e.Version) },
	event.Resharded: func(e event.Event) string {
		return fmt.Sprintf("The chambers are divided in %d slots, %d before", e.After, e.Before)
	},
	event.SlotTakenOver: slotText,
	event.SlotAcquired:  slotText,
	event.SlotReleased:  slotText,
	event.SlotReleasing: slotText,
	event.Standby: func(e event.Event) string {
		return fmt.Sprintf("Standby: all of %d wanted defenders have an ID", e.After)
	},
	event.WorkerRestarting: func(e event.Event) string {
		return fmt.Sprintf("Defender restarts, its chambers wait for its successor: %s", e.Peer)
	},
	event.WorkerAwaited: func(e event.Event) string {
		return fmt.Sprintf("Defender lost with the broker, waiting %s for it: %s", e.Duration.Round(time.Second), e.Peer)
	},
	event.WorkerRejoined:  func(e event.Event) string { return fmt.Sprintf("Defender is back under its name: %s", e.Peer) },
	event.WorkerSuspected: func(e event.Event) string { return fmt.Sprintf("Defender unreachable: %s", e.Peer) },
	event.LeaseUncertain:  func(e event.Event) string { return fmt.Sprintf("Paused: not sure of the lease (%s)", e.Reason) },
	event.LeaseConfirmed:  func(e event.Event) string { return fmt.Sprintf("Resumed after %s", e.Duration.Round(time.Millisecond)) },
	event.IdentityLost:    func(e event.Event) string { return fmt.Sprintf("Lost the stable ID, joining again (%s)", e.Reason) },
	event.HandoffForced: func(e event.Event) string {
		return fmt.Sprintf("Slot %d is given up with a message unsettled: its processing did not end in time", e.Slot)
	},
	event.PrepareFailed: func(e event.Event) string { return fmt.Sprintf("Warming the cache failed: %s", e.Err) },
	event.StreamRolledBack: func(e event.Event) string {
		return fmt.Sprintf("Stream %s is not the one that it was (%s): messages may be lost, or processed again", e.Reason, e.Err)
	},
	event.FencesRaised: func(e event.Event) string { return fmt.Sprintf("Fences raised to version %d: %s", e.Version, e.Reason) },
	event.Left:         func(e event.Event) string { return fmt.Sprintf("Left after %s", e.Duration.Round(time.Millisecond)) },
}

func electedText(e event.Event) string {
	role := "FOLLOWER"
	if e.Peer == e.Worker {
		role = "LEADER"
	}
	return fmt.Sprintf("Election result: %s (leader: %s)", role, e.Peer)
}

func slotText(e event.Event) string {
	return fmt.Sprintf("%s: slot %d %s %s", e.Kind, e.Slot, e.Peer, e.Reason)
}

// levelOf returns the level at which events of a kind are logged.
func levelOf(k event.Kind) slog.Level {
	switch k {
	case event.SlotTakenOver, event.SlotAcquired, event.SlotReleased, event.SlotReleasing:
		return slog.LevelDebug
	case event.WorkerGone, event.WorkerAwaited, event.WorkerSuspected, event.LeaseUncertain,
		event.IdentityLost, event.HandoffForced, event.PrepareFailed, event.FencesRaised:
		return slog.LevelWarn
	case event.StreamRolledBack:
		return slog.LevelError
	}
	return slog.LevelInfo
}
