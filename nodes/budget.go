package nodes

import (
	"context"
	"time"
)

// tickBudget is how long a tick begins new work, unless Config says otherwise.
const tickBudget = 50 * time.Second

// budget limits how long a run begins new work. What has begun is continued by the next tick.
type budget struct {
	clock Clock
	start time.Time
	limit time.Duration
	stop  func() bool // true when something else ends the run early; nil: nothing does
}

// restart counts the time from now on.
func (b *budget) restart(now time.Time) { b.start = now }

// used is how long the run has been working.
func (b *budget) used() time.Duration { return b.clock.Now().Sub(b.start) }

// spent reports whether the run should begin nothing new, because its time is used up or the process is about
// to be stopped.
func (b *budget) spent(ctx context.Context) bool {
	if b.used() >= b.limit || b.stop != nil && b.stop() {
		return true
	}
	deadline, ok := ctx.Deadline()
	return ok && deadline.Sub(b.clock.Now()) < callTimeout+leaseMargin
}
