package local

import (
	"time"

	"github.com/muster-dev/muster/partition/event"
)

// narrate puts the events of a rebalance and of failures on the timeline.
func narrate(t *Timeline, e SeenEvent) {
	switch e.Kind {
	case event.Topology:
		t.Say("%s: Topology change: %d → %d defenders", e.Worker, e.Before, e.After)
	case event.WindowStarted:
		t.Say("%s: Stabilization window started (%s, %s)", e.Worker, e.Duration.Round(time.Second), e.Reason)
	case event.WindowDone:
		t.Say("%s: Stabilization window complete after %.1f s (%d defenders, %s)", e.Worker, e.Duration.Seconds(), e.After, e.Reason)
	case event.WorkerGone:
		t.Say("%s: Defender gone: %s (%s)", e.Worker, e.Peer, e.Reason)
	case event.Planned:
		t.Say("%s: Assignment calculation complete (%s, %d chambers in %d slots move)", e.Worker, e.Duration.Round(time.Microsecond), e.Keys, e.Count)
	case event.MapPublished:
		t.Say("%s: Published assignment map (version %d, %d defenders, %s)", e.Worker, e.Version, e.After, e.Reason)
	case event.Rebalanced:
		t.Say("%s: Rebalancing complete (version %d, %.0f ms after its plan)", e.Worker, e.Version, e.Duration.Seconds()*1000)
	case event.IdentityLost, event.HandoffForced:
		t.Say("%s: %s %s", e.Worker, e.Kind, e.Reason)
	default:
	}
}
