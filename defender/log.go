package defender

import (
	"context"
	"fmt"
	"log/slog"
	"sync/atomic"
	"time"

	"github.com/muster-dev/muster/partition"
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
func (d *Defender) Observe(e partition.Event) {
	if e.Kind == partition.EventIDClaimed {
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
func (d *Defender) line(e partition.Event) (slog.Level, string) {
	text := func(format string, args ...any) (slog.Level, string) {
		return slog.LevelInfo, fmt.Sprintf(format, args...)
	}
	warn := func(format string, args ...any) (slog.Level, string) {
		return slog.LevelWarn, fmt.Sprintf(format, args...)
	}
	switch e.Kind {
	case partition.EventStarted:
		return text("Starting defender %s", d.c.Version)
	case partition.EventIDClaimed:
		return text("Claimed stable ID: %s", e.Worker)
	case partition.EventElected:
		role := "FOLLOWER"
		if e.Peer == e.Worker {
			role = "LEADER"
		}
		return text("Election result: %s (leader: %s)", role, e.Peer)
	case partition.EventState:
		return text("State transition: %s → %s", e.From, e.To)
	case partition.EventWorkerJoined:
		return text("New defender detected: %s", e.Peer)
	case partition.EventWorkerLeaving:
		return text("Defender leaves: %s", e.Peer)
	case partition.EventWorkerGone:
		return warn("Defender gone: %s (%s)", e.Peer, e.Reason)
	case partition.EventTopology:
		return text("Topology change: %d → %d defenders", e.Before, e.After)
	case partition.EventWindowStarted:
		return text("Stabilization window started (%s, %s)", e.Duration.Round(time.Second), e.Reason)
	case partition.EventWindowDone:
		return text("Stabilization window complete (%d defenders, %s)", e.After, e.Reason)
	case partition.EventRebalance:
		return text("Rebalancing triggered (%s detected)", e.Reason)
	case partition.EventPlanned:
		return text("Assignment calculation complete (%s, %d chambers moved in %d slots, %d defenders)", e.Duration.Round(time.Microsecond), e.Keys, e.Count, e.After)
	case partition.EventMapPublished:
		return text("Published assignment map (version %d, %d defenders)", e.Version, e.After)
	case partition.EventRebalanced:
		return text("Rebalancing complete (version %d, %s)", e.Version, e.Duration.Round(time.Millisecond))
	case partition.EventMapReceived:
		return text("Received assignment map (version %d)", e.Version)
	case partition.EventLayout:
		return text("The chambers are divided in %d slots, %d before", e.After, e.Before)
	case partition.EventTakenOver, partition.EventSlotAcquired, partition.EventSlotReleased, partition.EventReleasing:
		return slog.LevelDebug, fmt.Sprintf("%s: slot %d %s %s", e.Kind, e.Slot, e.Peer, e.Reason)
	case partition.EventStandby:
		return text("Standby: all of %d wanted defenders have an ID", e.After)
	case partition.EventRestarting:
		return text("Defender restarts, its chambers wait for its successor: %s", e.Peer)
	case partition.EventReserved:
		return warn("Defender lost with the broker, waiting %s for it: %s", e.Duration.Round(time.Second), e.Peer)
	case partition.EventSucceeded:
		return text("Defender is back under its name: %s", e.Peer)
	case partition.EventSuspected:
		return warn("Defender unreachable: %s", e.Peer)
	case partition.EventTrustLost:
		return warn("Paused: not sure of the lease (%s)", e.Reason)
	case partition.EventTrustRegained:
		return text("Resumed after %s", e.Duration.Round(time.Millisecond))
	case partition.EventIdentityLost:
		return warn("Lost the stable ID, joining again (%s)", e.Reason)
	case partition.EventHandoverForced:
		return warn("Slot %d is given up with a message unsettled: its processing did not end in time", e.Slot)
	case partition.EventPrepareFailed:
		return warn("Warming the cache failed: %s", e.Err)
	case partition.EventStreamRolledBack:
		return slog.LevelError, fmt.Sprintf("Stream %s is not the one that it was (%s): messages may be lost, or processed again", e.Reason, e.Err)
	case partition.EventFencesRaised:
		return warn("Fences raised to version %d: %s", e.Version, e.Reason)
	case partition.EventLeft:
		return text("Left after %s", e.Duration.Round(time.Millisecond))
	}
	return slog.LevelInfo, ""
}
