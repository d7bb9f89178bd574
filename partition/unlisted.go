package partition

import (
	"errors"
	"time"
)

// This file holds what the leader does about a worker whose lease a list does not show.
//
// Any replica of a bucket answers a list. One that was restarted answers before it has
// caught up: leases that it held have expired by its own clock, and their renewals have
// not arrived. So a list that lacks a lease is no proof that the lease is over. Two
// things are:
//
//   - its delete marker, which the bucket's leader writes when it expires;
//   - a conditional write of this worker, which the replicas have agreed on: the lease's
//     deletion under the revision that was last seen, or, for one that was never seen, a
//     delete marker written where no lease is.
//
// A worker that the leader has seen stays until its lease must have ended, and then a
// conditional deletion decides (expireDue). A new leader, which has seen none, proves at
// once that the leases are over that its list lacks. It plans when all answers are in.

// proveUnlisted asks about every worker of the map whose lease the first list of a leader
// lacks. Until the answer it counts as live.
func (m *machine) proveUnlisted() {
	if m.cur == nil {
		return
	}
	for _, w := range m.cur.Workers {
		if m.lead.peers[w.ID] != nil {
			continue
		}
		p := &peerView{Member: w, joined: m.now, seenAt: m.now}
		m.lead.peers[w.ID] = p
		if b, scribbled := m.lead.junk[w.ID]; scribbled {
			// It may live, and trust the lease that is under this: as long as that would.
			p.rev = b.rev
			if w.ID == m.self.ID {
				// The record lies over this worker's own lease. The worker of the map is
				// an earlier process with the same stable ID.
				p.Member = m.self
				p.lease, _ = decodeLease(w.ID, m.leaseValue())
			}
			continue
		}
		if m.leasesLostLately() {
			// It may live, and have no lease until it hears that the bucket was lost.
			p.seenAt = m.leasesLost
			continue
		}
		p.fencing, p.unproven = true, true
		m.proveOver(p)
	}
}

// proveOver asks the bucket's leader to write the delete marker of a lease that was never seen,
// on the condition that none is there.
func (m *machine) proveOver(p *peerView) {
	m.kv(kvEffect{purpose: forFencing, op: opDelete, bucket: m.cfg.bucketLeases(), key: p.ID})
}

// allProven reports whether every question of proveUnlisted is answered.
func (m *machine) allProven() bool {
	return m.lead.peers.count(func(p *peerView) bool { return p.unproven }) == 0
}

// proved takes the answer about a lease that was never seen.
func (m *machine) proved(in kvInput) {
	l := &m.lead
	p := l.peers[in.key]
	if p != nil && p.rev == 0 {
		first := p.unproven
		p.fencing, p.unproven = false, false

		switch {
		case in.err == nil && first:
			delete(l.peers, p.ID) // missingAtSync reports it
		case in.err == nil:
			m.peerGone(p, reasonExpired)
		case errors.Is(in.err, errConflict) && in.gotRev > 0:
			m.foundLease(p, in)
		default:
			// Not known: it counts as live, and expireDue asks again.
			p.seenAt = m.now
		}
	} else if p != nil {
		p.fencing, p.unproven = false, false // the watch has shown it meanwhile
	}

	if !l.synced && !l.listing && m.allProven() {
		m.allListed()
	}
}

// foundLease takes in a lease that the list did not show.
func (m *machine) foundLease(p *peerView, in kvInput) {
	// A suspicion from before can't rest on this revision: the holder may have renewed
	// its lease since.
	p.seenAt, p.suspectAt, p.rev = m.now, time.Time{}, in.gotRev
	v, err := decodeLease(in.key, in.gotValue)
	if err != nil {
		return // the watch reports it; it may lie over a lease that is trusted
	}

	if v.Claim != p.Claim {
		// There is one lease for a name, so that of the map's worker is over.
		if m.lead.synced {
			m.peerGone(p, "replaced by a new holder of its ID")
		}
		p = &peerView{Member: Member{ID: p.ID, Claim: v.Claim}, joined: m.now, seenAt: m.now, rev: in.gotRev}
		m.lead.peers[p.ID] = p
	}
	p.lease = v
}

// superseded reports whether a lease was written by an earlier holder of a name than the
// map's worker: a replica that is behind may show it. Claims only grow.
func (m *machine) superseded(w Member) bool {
	if m.cur == nil {
		return false
	}
	for _, have := range m.cur.Workers {
		if have.ID == w.ID {
			return w.Claim < have.Claim
		}
	}
	return false
}
