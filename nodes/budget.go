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

	turnEnds time.Time // zero: a turn lasts as long as the run
}

// A round of a tick gives the drains this long in all, and each of them at least minTurn. So it is how long a
// scale-up may wait behind drains.
const (
	drainTime = 5 * time.Second
	minTurn   = time.Second
)

// beginTurn gives what comes next a share of a round's time.
func (b *budget) beginTurn(of int) {
	b.turnEnds = b.clock.Now().Add(max(drainTime/time.Duration(max(of, 1)), minTurn))
}

// endTurn lets what comes next have the rest of the run's time.
func (b *budget) endTurn() { b.turnEnds = time.Time{} }

// turn returns how long a call may last in the current turn, at most limit.
func (b *budget) turn(limit time.Duration) time.Duration {
	if b.turnEnds.IsZero() {
		return limit
	}
	return min(limit, max(b.turnEnds.Sub(b.clock.Now()), minTurn))
}

// turnOver reports whether somebody else is to have the time: the turn has ended, or the run has.
func (b *budget) turnOver(ctx context.Context) bool {
	return !b.turnEnds.IsZero() && !b.clock.Now().Before(b.turnEnds) || b.spent(ctx)
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
