package local

import (
	"time"

	"github.com/muster-dev/muster/partition/event"
)

// Say prints an event and keeps it on the timeline.
func (c *Stack) Say(format string, args ...any) { c.Timeline.say(format, args...) }

// tellEvent puts the events of a rebalance and of failures on the timeline.
func (c *Stack) tellEvent(e SeenEvent) {
	if f := c.OnEvent.Load(); f != nil {
		(*f)(e)
	}
	c.pauseEvent(e)
	switch e.Kind {
	case event.Topology:
		c.Say("%s: Topology change: %d → %d defenders", e.Worker, e.Before, e.After)
	case event.WindowStarted:
		c.Say("%s: Stabilization window started (%s, %s)", e.Worker, e.Duration.Round(time.Second), e.Reason)
	case event.WindowDone:
		c.Say("%s: Stabilization window complete after %.1f s (%d defenders, %s)", e.Worker, e.Duration.Seconds(), e.After, e.Reason)
	case event.WorkerGone:
		c.Say("%s: Defender gone: %s (%s)", e.Worker, e.Peer, e.Reason)
	case event.Planned:
		c.Say("%s: Assignment calculation complete (%s, %d chambers in %d slots move)", e.Worker, e.Duration.Round(time.Microsecond), e.Keys, e.Count)
	case event.MapPublished:
		c.Say("%s: Published assignment map (version %d, %d defenders, %s)", e.Worker, e.Version, e.After, e.Reason)
	case event.Rebalanced:
		c.Say("%s: Rebalancing complete (version %d, %.0f ms after its plan)", e.Worker, e.Version, e.Duration.Seconds()*1000)
	case event.IdentityLost, event.HandoffForced:
		c.Say("%s: %s %s", e.Worker, e.Kind, e.Reason)
	default:
	}
}
