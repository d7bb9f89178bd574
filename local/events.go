package local

import (
	"time"

	"github.com/muster-dev/muster/partition"
)

// Say prints an event and keeps it on the timeline.
func (c *Stack) Say(format string, args ...any) { c.Timeline.say(format, args...) }

// tellEvent tells of the events that make the story.
func (c *Stack) tellEvent(e SeenEvent) {
	if f := c.OnEvent.Load(); f != nil {
		(*f)(e)
	}
	c.pauseEvent(e)
	switch e.Kind {
	case partition.EventTopology:
		c.Say("%s: Topology change: %d → %d defenders", e.Worker, e.Before, e.After)
	case partition.EventWindowStarted:
		c.Say("%s: Stabilization window started (%s, %s)", e.Worker, e.Duration.Round(time.Second), e.Reason)
	case partition.EventWindowDone:
		c.Say("%s: Stabilization window complete after %.1f s (%d defenders, %s)", e.Worker, e.Duration.Seconds(), e.After, e.Reason)
	case partition.EventWorkerGone:
		c.Say("%s: Defender gone: %s (%s)", e.Worker, e.Peer, e.Reason)
	case partition.EventPlanned:
		c.Say("%s: Assignment calculation complete (%s, %d chambers in %d slots move)", e.Worker, e.Duration.Round(time.Microsecond), e.Keys, e.Count)
	case partition.EventMapPublished:
		c.Say("%s: Published assignment map (version %d, %d defenders, %s)", e.Worker, e.Version, e.After, e.Reason)
	case partition.EventRebalanced:
		c.Say("%s: Rebalancing complete (version %d, %.0f ms after its plan)", e.Worker, e.Version, e.Duration.Seconds()*1000)
	case partition.EventIdentityLost, partition.EventHandoverForced:
		c.Say("%s: %s %s", e.Worker, e.Kind, e.Reason)
	default:
	}
}
