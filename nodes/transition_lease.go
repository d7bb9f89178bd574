package nodes

import "time"

// AcquireLease takes the lease if it is free. Owner must be new for every attempt to hold it: finding the own
// name there then means that the attempt succeeded and only its reply was lost.
type AcquireLease struct {
	Owner string
	Now   time.Time
	TTL   time.Duration
}

// Name returns acquireLease.
func (AcquireLease) Name() string { return "acquireLease" }

// Apply sets owner and expiry and raises the fence. Expiry is judged here, inside the condition.
func (t AcquireLease) Apply(r Record) (Record, error) {
	if r.LeaseOwner == t.Owner {
		return r, nil
	}
	if r.LeaseOwner != "" && t.Now.Unix() <= r.LeaseUntilEpoch {
		return r, refuse(t, ErrLeaseHeld, "by %s until %d", r.LeaseOwner, r.LeaseUntilEpoch)
	}
	r = r.Clone()
	r.LeaseOwner, r.LeaseUntilEpoch = t.Owner, t.Now.Add(t.TTL).Unix()
	r.LeaseFence++
	return r, nil
}

// RenewLease moves the expiry of a lease that is still held.
type RenewLease struct {
	Owner string
	Fence int64
	Now   time.Time
	TTL   time.Duration
}

// Name returns renewLease.
func (RenewLease) Name() string { return "renewLease" }

// Apply moves the expiry. An expired lease that no other process took in the meantime may be renewed: nothing
// happened in between.
func (t RenewLease) Apply(r Record) (Record, error) {
	if err := fenced(t, r, t.Fence); err != nil {
		return r, err
	}
	if r.LeaseOwner != t.Owner {
		return r, refuse(t, ErrStaleFence, "owner is %q", r.LeaseOwner)
	}
	r = r.Clone()
	r.LeaseUntilEpoch = t.Now.Add(t.TTL).Unix()
	return r, nil
}

// ReleaseLease gives the lease back. Releasing one that has passed on does nothing.
type ReleaseLease struct {
	Owner string
	Fence int64
}

// Name returns releaseLease.
func (ReleaseLease) Name() string { return "releaseLease" }

// Apply clears owner and expiry; the fence stays, it never goes back.
func (t ReleaseLease) Apply(r Record) (Record, error) {
	if r.LeaseFence != t.Fence || r.LeaseOwner != t.Owner {
		return r, nil
	}
	r = r.Clone()
	r.LeaseOwner, r.LeaseUntilEpoch = "", 0
	return r, nil
}
