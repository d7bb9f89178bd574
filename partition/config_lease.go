package partition

import "time"

// Lease sets how soon a failed worker is noticed, and how long a worker that can't reach the
// servers goes on. Its slots move when its lease ends, or SuspicionGrace and SuspicionMargin
// after its connection is gone, whichever is first.
type Lease struct {
	// Heartbeat is how often a worker renews its lease; default 2 s. With replicas it is at
	// most a third of SuspicionGrace.
	Heartbeat time.Duration
	// TTL is after how long without a renewal a worker has failed; at least 1 s and three
	// times Heartbeat, default 6 s.
	TTL time.Duration
	// Margin is how long before the server lets a lease expire its holder stops relying on it:
	// it covers clock rates and the cancelling of handlers. At most half of TTL; default a
	// quarter.
	Margin time.Duration
	// IDTTL is how long a stable ID outlives its holder; at least TTL, default 30 s.
	IDTTL time.Duration
	// SuspicionGrace is how long a worker continues without a sign that it is connected, and
	// SuspicionMargin what the leader waits longer before it gives the slots of an unreachable
	// worker away. Default 500 ms and 150 ms; with replicas, where the sign is a replicated
	// write, 1.5 s and 300 ms; if Identity.PoolSize is above 500, 2 s and 150 ms, since every
	// worker measures a round trip four times within the grace, and thousands of them would
	// load the server more than their messages.
	// The sign is a write, too, on a server that is part of a cluster, or a leaf node, with
	// one replica: the lease is renewed three times within the grace there.
	SuspicionGrace, SuspicionMargin time.Duration
	// ProbeInterval is how often the leader checks whether workers are connected: all of up to
	// 100 others, and in a larger group those whose renewal is late, or all once it has found
	// one gone; default 100 ms, and 200 ms if Identity.PoolSize is above 500.
	ProbeInterval time.Duration
}

// largePool is from how many stable IDs on, exclusive, a group can be so large that the checks
// of its connections cost more than they are worth. Workers agree in the pool's size.
const largePool = 500

// resolve fills in the defaults, which depend on whether there are replicas, and on the number
// of stable IDs.
func (l Lease) resolve(replicated bool, pool int) Lease {
	defaulted(&l.Heartbeat, 2*time.Second)
	defaulted(&l.TTL, 6*time.Second)
	defaulted(&l.Margin, l.TTL/4)
	defaulted(&l.IDTTL, 30*time.Second)
	if replicated {
		defaulted(&l.SuspicionGrace, 1500*time.Millisecond)
		defaulted(&l.SuspicionMargin, 300*time.Millisecond)
	}
	if pool > largePool {
		defaulted(&l.SuspicionGrace, 2*time.Second)
		defaulted(&l.ProbeInterval, 200*time.Millisecond)
	}
	defaulted(&l.SuspicionGrace, 500*time.Millisecond)
	defaulted(&l.SuspicionMargin, 150*time.Millisecond)
	defaulted(&l.ProbeInterval, 100*time.Millisecond)

	// With replicas only a write proves more than that one server answers, so the lease itself
	// is renewed within the grace.
	if replicated && l.Heartbeat > l.SuspicionGrace/3 {
		l.Heartbeat = l.SuspicionGrace / 3
	}
	return l
}

// rareCheck is how often a worker measures a round trip if SuspicionGrace is long enough. A
// renewal that succeeds then replaces the next round trip: see membership.leaseRenewed.
const rareCheck = time.Second

// checkEvery is how often a worker measures a round trip to its server: four times within
// SuspicionGrace, or every rareCheck if the grace leaves as much for the answer.
func (l Lease) checkEvery() time.Duration {
	if l.SuspicionGrace < 2*rareCheck {
		return l.SuspicionGrace / 4
	}
	return rareCheck
}

func (l Lease) validate(f *faults) {
	f.positive("Lease.Heartbeat", l.Heartbeat)
	if l.TTL < time.Second || l.TTL < 3*l.Heartbeat {
		f.add("Lease.TTL is %v: give at least 1s and three times Lease.Heartbeat (%v)", l.TTL, l.Heartbeat)
	}
	if l.Margin <= 0 || l.Margin > l.TTL/2 {
		f.add("Lease.Margin is %v: give more than 0, at most half of Lease.TTL (%v)", l.Margin, l.TTL)
	}
	if l.IDTTL < l.TTL {
		f.add("Lease.IDTTL is %v: a name must outlive its lease, give at least Lease.TTL (%v)", l.IDTTL, l.TTL)
	}
	f.positive("Lease.SuspicionGrace", l.SuspicionGrace)
	f.positive("Lease.SuspicionMargin", l.SuspicionMargin)
	f.positive("Lease.ProbeInterval", l.ProbeInterval)
}
