package event

import (
	"fmt"
	"strings"
	"time"
)

// Text says in a few words what an event tells beside its kind and worker; ""
// where that is all.
func (e Event) Text() string {
	ms := func(d time.Duration) string { return d.Round(time.Millisecond).String() }
	switch e.Kind {
	case Started:
		return ""
	case IDClaimed:
		return fmt.Sprintf("claim %d, %s after the start", e.Claim, ms(e.Duration))
	case Elected:
		if e.Peer == e.Worker {
			return fmt.Sprintf("leads, epoch %d", e.Epoch)
		}
		return "follows " + e.Peer
	case StateChanged:
		return fmt.Sprintf("%s -> %s", e.From, e.To)
	case WorkerGone:
		if e.Duration > 0 {
			return fmt.Sprintf("%s: %s, %s after its last sign of life", e.Peer, e.Reason, ms(e.Duration))
		}
		return fmt.Sprintf("%s: %s", e.Peer, e.Reason)
	case WorkerJoined, WorkerLeaving, WorkerRestarting, WorkerSuspected, WorkerDraining:
		return e.Peer
	case WorkerRejoined:
		return fmt.Sprintf("%s is back, claim %d, after %s", e.Peer, e.Claim, ms(e.Duration))
	case WorkerAwaited:
		return fmt.Sprintf("%s, for %s", e.Peer, ms(e.Duration))
	case Standby:
		return fmt.Sprintf("all of %d wanted workers have their names", e.After)
	case Topology:
		return fmt.Sprintf("%d -> %d workers", e.Before, e.After)
	case WindowStarted:
		return fmt.Sprintf("%s, %s", e.Reason, ms(e.Duration))
	case WindowDone:
		return fmt.Sprintf("%s: %d workers after %s", e.Reason, e.After, ms(e.Duration))
	case Planned:
		return fmt.Sprintf("%s: %d of %d slots move, load %d, to %d workers; took %s", e.Reason, e.Count, e.Before, e.Keys, e.After, e.Duration.Round(time.Microsecond))
	case MapPublished:
		return fmt.Sprintf("version %d for %d workers", e.Version, e.After)
	case MapReceived:
		return fmt.Sprintf("version %d", e.Version)
	case Rebalanced:
		return fmt.Sprintf("version %d: %d slots moved in %s", e.Version, e.Count, ms(e.Duration))
	case Assigned:
		return fmt.Sprintf("version %d: %d -> %d slots, %d come, %d go", e.Version, e.Before, e.After, len(e.Slots), len(e.Lost))
	case SlotAcquired:
		return fmt.Sprintf("slot %d by %s, version %d", e.Slot, e.Reason, e.Version)
	case SlotResumed:
		return fmt.Sprintf("slot %d, a message waited for %s", e.Slot, e.Duration.Round(100*time.Microsecond))
	case SlotReleasing:
		if e.Busy {
			return fmt.Sprintf("slot %d, ends its message first", e.Slot)
		}
		return fmt.Sprintf("slot %d", e.Slot)
	case SlotReleased:
		return fmt.Sprintf("slot %d to %s after %s", e.Slot, e.Peer, ms(e.Duration))
	case SlotTakenOver:
		return fmt.Sprintf("slot %d for %s", e.Slot, e.Peer)
	case HandoffForced, StalePinFreed:
		if e.Reason != "" {
			return fmt.Sprintf("slot %d: %s", e.Slot, e.Reason)
		}
		return fmt.Sprintf("slot %d", e.Slot)
	case KeyQueued:
		return fmt.Sprintf("%s of slot %d, after %d attempts", e.Reason, e.Slot, e.Count)
	case KeyFreed:
		return fmt.Sprintf("%s of slot %d", e.Reason, e.Slot)
	case FencesRaised:
		return fmt.Sprintf("version %d: slot %d of %s: %s", e.Version, e.Slot, e.Peer, e.Reason)
	case StreamRolledBack:
		return fmt.Sprintf("%s: %s; what was settled of %d slots is forgotten", e.Reason, e.Err, e.Count)
	case Panicked:
		return fmt.Sprintf("slot %d: %s", e.Slot, e.Err)
	case LeaseConfirmed, Left:
		return "after " + ms(e.Duration)
	case Draining:
		if e.Duration == 0 {
			return "takes slots again"
		}
		return "for " + e.Duration.Round(time.Second).String()
	case Rebalance, LeaseUncertain, IdentityLost, PrepareFailed, PlanNote:
		return strings.TrimSpace(e.Reason + e.Err)
	}
	return strings.TrimSpace(strings.Join([]string{e.Peer, e.Reason, e.Err}, " "))
}
