package nodes

import (
	"context"
	"errors"
	"time"
)

// Times of the tick's lease and of claims.
const (
	leaseTTL    = 60 * time.Second // of the tick's lease
	leaseMargin = 5 * time.Second  // the lease counts as valid this much shorter than it lasts: clocks differ

	// renewLimit ends one attempt to renew a claim, so that an unreachable store doesn't delay the drain
	// after a warning.
	renewLimit = 3 * time.Second
)

// tenure is how long a lease or a claim lasts and how its holder works under it.
type tenure struct {
	ttl    time.Duration
	renew  time.Duration // age at which it is renewed
	margin time.Duration // it counts as valid this much shorter than it lasts
	slice  time.Duration // of one drain call, so that it is renewed in time
}

var (
	tickTenure = tenure{ttl: leaseTTL, renew: 20 * time.Second, margin: leaseMargin, slice: 10 * time.Second}
	// A claim is renewed often, because a warning leaves two minutes and another worker has to notice soon that
	// this one has died. Every write under it carries its fence, and an expired one may be renewed as long as
	// no other worker has taken it.
	claimTenure = tenure{ttl: 9 * time.Second, renew: time.Second, margin: 2 * time.Second, slice: 2 * time.Second}
)

// claimPatience is how long a warning's claim is watched before it is taken from a worker that writes nothing.
// It is longer than the longest call between two renewals by rule, a slice, so that a live worker keeps its
// claim. One that is slow instead of dead loses it, which costs nothing but its work on the warning: the store
// refuses its writes from then on.
const claimPatience = 3500 * time.Millisecond

// ErrLeaseLost says that the lease was lost while a tick ran. The tick does nothing more.
var ErrLeaseLost = errors.New("the lease was lost")

// errUncertain says that a claim has expired and can't be renewed because the store does not answer. Another
// worker may have it.
var errUncertain = errors.New("the claim has expired and the store can't be asked to renew it")

// lost reports whether err means that this run holds nothing any more.
func lost(err error) bool { return errors.Is(err, ErrLeaseLost) || errors.Is(err, ErrStaleFence) }

// renewal moves the expiry of what is held in the store, which refuses it once another worker has taken it.
type renewal func(ctx context.Context, now time.Time) error

// lease is the tick's lease, or an interruption's claim, as its holder sees it. The zero lease holds nothing,
// and everything is allowed that needs no lease.
//
// A lease counts as valid until the time at which the attempt to take it began, plus its length, minus a
// margin. The expiry in the store is counted from the same moment, so no other process can have taken it by
// then, however late the store got the write or its reply came. Counted from the reply, a lease would look
// valid that others may take already.
type lease struct {
	clock Clock
	tenure
	renewAt    time.Time
	validUntil time.Time
	renewing   renewal // nil: it is not renewed any more

	renewExpired bool // it may be renewed after it has expired: its writes are fenced, so nothing happened in between
	taken        bool // another worker has it
	harmless     bool // what is done now does no harm beside another worker
}

// hold begins to hold what was taken in an attempt that began at start.
func (l *lease) hold(start time.Time, t tenure, renewExpired bool, renew renewal) {
	*l = lease{clock: l.clock, tenure: t, renewExpired: renewExpired, renewing: renew}
	l.confirmedAt(start)
}

// confirmedAt counts validity from the start of an attempt to take or to renew the lease that succeeded.
func (l *lease) confirmedAt(start time.Time) {
	l.renewAt, l.validUntil = start.Add(l.renew), start.Add(l.ttl-l.margin)
}

// stopRenewing is called before the lease is released: what is left of it suffices for that.
func (l *lease) stopRenewing() { l.renewing = nil }

// withoutHarm marks what is done until end is called as harmless beside another worker that does the same.
func (l *lease) withoutHarm() (end func()) {
	l.harmless = true
	return func() { l.harmless = false }
}

// keep renews the lease when that is due, and returns until when it is valid, the zero time if nothing is
// held. The error is ErrLeaseLost or errUncertain.
func (l *lease) keep(ctx context.Context) (validUntil time.Time, err error) {
	if l.validUntil.IsZero() {
		return time.Time{}, nil
	}
	now := l.clock.Now()
	if l.renewalDue(now) {
		if err := l.renewNow(ctx, now); err == nil {
			l.confirmedAt(now)
		} else if IsRefused(err) {
			l.validUntil, l.taken = now, true
		}
		now = l.clock.Now() // renewing took its time
	}
	if !now.Before(l.validUntil) {
		if l.renewExpired && !l.taken {
			return now, errUncertain
		}
		return now, ErrLeaseLost
	}
	return l.validUntil, nil
}

func (l *lease) renewalDue(now time.Time) bool {
	held := l.renewing != nil && !l.taken
	renewable := l.renewExpired || now.Before(l.validUntil)
	return held && renewable && !now.Before(l.renewAt)
}

func (l *lease) renewNow(ctx context.Context, now time.Time) error {
	if l.renewExpired {
		limited, cancel := l.clock.WithDeadline(ctx, now.Add(renewLimit))
		defer cancel()
		ctx = limited
	}
	return l.renewing(ctx, now)
}
