package partition

import "time"

// leaseValidity decides whether a worker may rely on its lease, and so act as the owner of
// anything. Two conditions have to hold:
//
//   - The lease was renewed less than a TTL ago, with a margin for clocks.
//   - A round trip to the servers was answered a moment ago; on a cluster only a renewal
//     counts as one (see membership.answered). A leader that finds a worker unreachable waits
//     no longer than Lease.SuspicionGrace and Lease.SuspicionMargin before it ends the lease.
type leaseValidity struct {
	connected bool
	// renewed is when the last renewal that succeeded began.
	renewed time.Time
	// confirmed is when the last round trip that was answered began. The connection was
	// alive then.
	confirmed time.Time

	valid bool
	ended time.Time // when the lease last ceased to be valid; zero: never
	// doubted is until when a renewal must not have begun to make the lease valid again. It is
	// never before ended, and later if a renewal since then proves nothing.
	doubted  time.Time
	regained time.Time // when it last was valid again
	// uncertainUntil is until when another loss of validity counts as one of the same cause
	// as the long one before it.
	uncertainUntil time.Time
}

// validityChange is what a check of the validity has found.
type validityChange int

const (
	validityUnchanged validityChange = iota
	validityLost
	validityGained
)

// begin starts with a lease that was created by a write that began at start.
func (v *leaseValidity) begin(start time.Time) { v.renewed, v.confirmed = start, start }

// confirm notes that a round trip that began at start was answered.
func (v *leaseValidity) confirm(start time.Time) {
	if start.After(v.confirmed) {
		v.confirmed = start
	}
}

// end is when the lease is not valid any more, if nothing renews and confirms it.
func (v *leaseValidity) end(c *Config) time.Time {
	end := v.renewed.Add(c.Lease.TTL - c.Lease.Margin)
	if unconfirmed := v.confirmed.Add(c.Lease.SuspicionGrace); unconfirmed.Before(end) {
		end = unconfirmed
	}
	return end
}

// ranOut reports whether the last renewal has been too long ago for the lease to be valid.
//
// The servers end a lease that has run out by a marker, which removes what the lease's key has
// at that time. With replicas, a renewal that is not carried out yet when they propose the
// marker comes before it: they acknowledge the renewal, and then the marker removes it. The
// leader sees the marker alone. So a renewal that is acknowledged after the lease has run out
// proves nothing. The next one does: it expects the revision of the one before, and fails if
// that was removed.
func (v *leaseValidity) ranOut(now time.Time, c *Config) bool {
	return !now.Before(v.renewed.Add(c.Lease.TTL - c.Lease.Margin))
}

// discount has a renewal that began before now not make the lease valid again. Since when it is
// not valid stays as it is: that tells an outage from a short gap.
func (v *leaseValidity) discount(now time.Time) { v.doubted = now }

// doubts reports whether a renewal that began at start proves nothing: the lease was not valid
// at some time since then.
func (v *leaseValidity) doubts(start time.Time) bool {
	return !v.doubted.IsZero() && !start.After(v.doubted)
}

// provable is when a renewal can begin that proves something. It is never the very moment of the
// doubt: a clock that stands still would have the worker renew without end.
func (v *leaseValidity) provable(now time.Time) time.Time {
	return later(now, v.doubted.Add(time.Nanosecond))
}

// lose has the lease not be valid, whatever its times: another worker may have its place.
func (v *leaseValidity) lose(now time.Time) {
	if v.valid {
		v.valid, v.ended = false, now
	}
	v.discount(now)
}

// check compares the validity with the time.
func (v *leaseValidity) check(now time.Time, c *Config) validityChange {
	valid := v.connected && now.Before(v.end(c))
	// A worker whose lease was not valid may have lost its slots meanwhile. Only a
	// renewal that began later shows that it has not.
	if valid && !v.valid && v.doubts(v.renewed) {
		valid = false
	}

	switch {
	case v.valid && !valid:
		v.lose(now)
		return validityLost
	case !v.valid && valid:
		v.valid = true
		v.noteGap(now, c)
		return validityGained
	}
	return validityUnchanged
}

// noteGap notes how long the lease was not valid, if it ever was before.
func (v *leaseValidity) noteGap(now time.Time, c *Config) {
	if v.ended.IsZero() {
		return
	}
	v.regained = now
	if now.Sub(v.ended) > c.Lease.TTL/3 || now.Before(v.uncertainUntil) {
		// A short gap soon after a long one has the same cause.
		v.uncertainUntil = now.Add(c.Lease.TTL)
	}
}

// uncertain reports whether the lease is not valid, or was not for a good while until a
// moment ago. If other workers' leases ended then, that has the same cause.
func (v *leaseValidity) uncertain(now time.Time) bool {
	return !v.valid || now.Before(v.uncertainUntil)
}

// why returns why the lease is not valid.
func (v *leaseValidity) why(now time.Time, c *Config) string {
	switch {
	case !v.connected:
		return "disconnected"
	case !now.Before(v.confirmed.Add(c.Lease.SuspicionGrace)):
		return "no round trip within the grace"
	default:
		return "lease not renewed in time"
	}
}
