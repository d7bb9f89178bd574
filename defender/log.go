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

func (d *Defender) log() *slog.Logger { return d.c.Logger.With("worker", d.name.get()) }

// Observe writes the log lines of membership, planning and handoff. It
// implements partition.Observer.
func (d *Defender) Observe(e event.Event) {
	if e.Kind == event.IDClaimed {
		d.name.id.Store(&e.Worker)
	}
	d.assignment.observe(e)
	level, line := d.line(e)
	if line == "" {
		return
	}
	d.log().Log(context.Background(), level, line, "event", string(e.Kind))
}

// line returns what the log says of an event, "" for nothing.
func (d *Defender) line(e event.Event) (slog.Level, string) {
	text := func(format string, args ...any) (slog.Level, string) {
		return slog.LevelInfo, fmt.Sprintf(format, args...)
	}
	warn := func(format string, args ...any) (slog.Level, string) {
		return slog.LevelWarn, fmt.Sprintf(format, args...)
	}
	switch e.Kind {
	case event.Started:
		return text("Starting defender %s", d.c.Version)
	case event.IDClaimed:
		return text("Claimed stable ID: %s", e.Worker)
	case event.Elected:
		role := "FOLLOWER"
		if e.Peer == e.Worker {
			role = "LEADER"
		}
		return text("Election result: %s (leader: %s)", role, e.Peer)
	case event.StateChanged:
		return text("State transition: %s → %s", e.From, e.To)
	case event.WorkerJoined:
		return text("New defender detected: %s", e.Peer)
	case event.WorkerLeaving:
		return text("Defender leaves: %s", e.Peer)
	case event.WorkerGone:
		return warn("Defender gone: %s (%s)", e.Peer, e.Reason)
	case event.Topology:
		return text("Topology change: %d → %d defenders", e.Before, e.After)
	case event.WindowStarted:
		return text("Stabilization window started (%s, %s)", e.Duration.Round(time.Second), e.Reason)
	case event.WindowDone:
		return text("Stabilization window complete (%d defenders, %s)", e.After, e.Reason)
	case event.Rebalance:
		return text("Rebalancing triggered (%s detected)", e.Reason)
	case event.Planned:
		return text("Assignment calculation complete (%s, %d chambers moved in %d slots, %d defenders)", e.Duration.Round(time.Microsecond), e.Keys, e.Count, e.After)
	case event.MapPublished:
		return text("Published assignment map (version %d, %d defenders)", e.Version, e.After)
	case event.Rebalanced:
		return text("Rebalancing complete (version %d, %s)", e.Version, e.Duration.Round(time.Millisecond))
	case event.MapReceived:
		return text("Received assignment map (version %d)", e.Version)
	case event.Resharded:
		return text("The chambers are divided in %d slots, %d before", e.After, e.Before)
	case event.SlotTakenOver, event.SlotAcquired, event.SlotReleased, event.SlotReleasing:
		return slog.LevelDebug, fmt.Sprintf("%s: slot %d %s %s", e.Kind, e.Slot, e.Peer, e.Reason)
	case event.Standby:
		return text("Standby: all of %d wanted defenders have an ID", e.After)
	case event.WorkerRestarting:
		return text("Defender restarts, its chambers wait for its successor: %s", e.Peer)
	case event.WorkerAwaited:
		return warn("Defender lost with the broker, waiting %s for it: %s", e.Duration.Round(time.Second), e.Peer)
	case event.WorkerRejoined:
		return text("Defender is back under its name: %s", e.Peer)
	case event.WorkerSuspected:
		return warn("Defender unreachable: %s", e.Peer)
	case event.LeaseUncertain:
		return warn("Paused: not sure of the lease (%s)", e.Reason)
	case event.LeaseConfirmed:
		return text("Resumed after %s", e.Duration.Round(time.Millisecond))
	case event.IdentityLost:
		return warn("Lost the stable ID, joining again (%s)", e.Reason)
	case event.HandoffForced:
		return warn("Slot %d is given up with a message unsettled: its processing did not end in time", e.Slot)
	case event.PrepareFailed:
		return warn("Warming the cache failed: %s", e.Err)
	case event.StreamRolledBack:
		return slog.LevelError, fmt.Sprintf("Stream %s is not the one that it was (%s): messages may be lost, or processed again", e.Reason, e.Err)
	case event.FencesRaised:
		return warn("Fences raised to version %d: %s", e.Version, e.Reason)
	case event.Left:
		return text("Left after %s", e.Duration.Round(time.Millisecond))
	}
	return slog.LevelInfo, ""
}
