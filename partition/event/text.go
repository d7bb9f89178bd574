package event

import (
	"fmt"
	"strings"
	"time"
)

// Text says in a few words what an event tells beside its kind and worker; ""
// where that is all.
func (e Event) Text() string {
	if text := texts[e.Kind]; text != nil {
		return text(e)
	}
	return strings.TrimSpace(strings.Join([]string{e.Peer, e.Reason, e.Err}, " "))
}

// texts has those kinds whose events tell more, or less, than peer, reason and error.
var texts = map[Kind]func(Event) string{
	Started: func(_ Event) string { return "" },
	IDClaimed: func(e Event) string {
		return fmt.Sprintf("claim %d, %s after the start", e.Claim, milliseconds(e.Duration))
	},
	Elected: func(e Event) string {
		if e.Peer == e.Worker {
			return fmt.Sprintf("leads, epoch %d", e.Epoch)
		}
		return "follows " + e.Peer
	},
	StateChanged: func(e Event) string { return fmt.Sprintf("%s -> %s", e.From, e.To) },
	WorkerGone: func(e Event) string {
		if e.Duration > 0 {
			return fmt.Sprintf("%s: %s, %s after its last sign of life", e.Peer, e.Reason, milliseconds(e.Duration))
		}
		return fmt.Sprintf("%s: %s", e.Peer, e.Reason)
	},
	WorkerJoined:     peer,
	WorkerLeaving:    peer,
	WorkerRestarting: peer,
	WorkerSuspected:  peer,
	WorkerDraining:   peer,
	WorkerRejoined: func(e Event) string {
		return fmt.Sprintf("%s is back, claim %d, after %s", e.Peer, e.Claim, milliseconds(e.Duration))
	},
	WorkerAwaited: func(e Event) string { return fmt.Sprintf("%s, for %s", e.Peer, milliseconds(e.Duration)) },
	Standby:       func(e Event) string { return fmt.Sprintf("all of %d wanted workers have their names", e.After) },
	Topology:      func(e Event) string { return fmt.Sprintf("%d -> %d workers", e.Before, e.After) },
	WindowStarted: func(e Event) string { return fmt.Sprintf("%s, %s", e.Reason, milliseconds(e.Duration)) },
	WindowDone: func(e Event) string {
		return fmt.Sprintf("%s: %d workers after %s", e.Reason, e.After, milliseconds(e.Duration))
	},
	Planned: func(e Event) string {
		return fmt.Sprintf("%s: %d of %d slots move, load %d, to %d workers; took %s", e.Reason, e.Count, e.Before, e.Keys, e.After, e.Duration.Round(time.Microsecond))
	},
	MapPublished: func(e Event) string { return fmt.Sprintf("version %d for %d workers", e.Version, e.After) },
	MapReceived:  func(e Event) string { return fmt.Sprintf("version %d", e.Version) },
	Rebalanced: func(e Event) string {
		return fmt.Sprintf("version %d: %d slots moved in %s", e.Version, e.Count, milliseconds(e.Duration))
	},
	Assigned: func(e Event) string {
		return fmt.Sprintf("version %d: %d -> %d slots, %d come, %d go", e.Version, e.Before, e.After, len(e.Slots), len(e.Lost))
	},
	SlotAcquired: func(e Event) string { return fmt.Sprintf("slot %d by %s, version %d", e.Slot, e.Reason, e.Version) },
	SlotResumed: func(e Event) string {
		return fmt.Sprintf("slot %d, a message waited for %s", e.Slot, e.Duration.Round(100*time.Microsecond))
	},
	SlotReleasing: func(e Event) string {
		if e.Busy {
			return fmt.Sprintf("slot %d, ends its message first", e.Slot)
		}
		return fmt.Sprintf("slot %d", e.Slot)
	},
	SlotReleased: func(e Event) string {
		return fmt.Sprintf("slot %d to %s after %s", e.Slot, e.Peer, milliseconds(e.Duration))
	},
	SlotTakenOver: func(e Event) string { return fmt.Sprintf("slot %d for %s", e.Slot, e.Peer) },
	HandoffForced: slotAndReason,
	StalePinFreed: slotAndReason,
	KeyQueued: func(e Event) string {
		return fmt.Sprintf("%s of slot %d, after %d attempts", e.Reason, e.Slot, e.Count)
	},
	KeyFreed: func(e Event) string { return fmt.Sprintf("%s of slot %d", e.Reason, e.Slot) },
	DeadLettered: func(e Event) string {
		return fmt.Sprintf("a message of %s, slot %d, after %d attempts: %s", e.Reason, e.Slot, e.Count, e.Err)
	},
	FencesRaised: func(e Event) string {
		return fmt.Sprintf("version %d: slot %d of %s: %s", e.Version, e.Slot, e.Peer, e.Reason)
	},
	StateMoved: func(e Event) string {
		return fmt.Sprintf("slot %d from %s, %d bytes in %s", e.Slot, e.Peer, e.Count, milliseconds(e.Duration))
	},
	StateNotMoved: func(e Event) string {
		return fmt.Sprintf("slot %d from %s, prepared instead after %s: %s", e.Slot, e.Peer, milliseconds(e.Duration), e.Err)
	},
	StreamRolledBack: func(e Event) string {
		return fmt.Sprintf("%s: %s; what was settled of %d slots is forgotten", e.Reason, e.Err, e.Count)
	},
	Panicked:       func(e Event) string { return fmt.Sprintf("slot %d: %s", e.Slot, e.Err) },
	LeaseConfirmed: after,
	Left:           after,
	Draining: func(e Event) string {
		if e.Duration == 0 {
			return "takes slots again"
		}
		return "for " + e.Duration.Round(time.Second).String()
	},
	Rebalance:      reason,
	LeaseUncertain: reason,
	IdentityLost:   reason,
	PrepareFailed:  reason,
	PlanNote:       reason,
}

func milliseconds(d time.Duration) string { return d.Round(time.Millisecond).String() }

func peer(e Event) string {
	return e.Peer
}

func slotAndReason(e Event) string {
	if e.Reason != "" {
		return fmt.Sprintf("slot %d: %s", e.Slot, e.Reason)
	}
	return fmt.Sprintf("slot %d", e.Slot)
}

func after(e Event) string {
	return "after " + milliseconds(e.Duration)
}

func reason(e Event) string {
	return strings.TrimSpace(e.Reason + e.Err)
}
