package partition

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/muster-dev/muster/partition/event"
)

// roster has the workers with a lease, by stable ID, as a leader sees them.
type peerTable map[string]*peerView

// peerView is one of them: its lease as it was last seen, when it was renewed, and what the
// leader concludes. A worker has failed for the leader once its lease has expired, or
// once the leader has deleted the lease of a worker that was suspected for long enough.
// Between the two, fencing and overdue say which deletion is under way.
type peerView struct {
	Member
	lease leaseValue // as last seen
	rev   uint64     // of that
	at    time.Time  // when it was written, by the server's clock

	joined    time.Time
	seenAt    time.Time // when a renewal was last seen
	leavingAt time.Time // when the worker said that it leaves, or drains; zero: it has not
	suspectAt time.Time // since when its connection seems gone; zero: it doesn't

	// fencing: its lease is being deleted.
	fencing bool
	// overdue: that is because it was not renewed, not because the worker can't be reached.
	overdue bool
	// unproven: its lease was never seen, and is being proven to be over.
	unproven bool
}

// going reports whether a worker leaves or drains.
func (p *peerView) going() bool { return p.lease.Leaving || p.lease.Draining }

// takesSlots reports whether a worker can be given slots.
func (p *peerView) takesSlots() bool { return !p.going() && !p.outdated() }

// live returns a worker if it is there under this claim, nil if not.
func (t peerTable) live(m Member) *peerView {
	if p := t[m.ID]; p != nil && p.Member == m {
		return p
	}
	return nil
}

// allLive reports whether all of these are there.
func (t peerTable) allLive(members []Member) bool {
	return !slices.ContainsFunc(members, func(m Member) bool { return t.live(m) == nil })
}

// sorted returns the workers by ascending ID.
func (t peerTable) sorted() []*peerView {
	out := make([]*peerView, 0, len(t))
	for _, id := range slices.SortedFunc(maps.Keys(t), compareIDs) {
		out = append(out, t[id])
	}
	return out
}

// count counts the workers of which something is so.
func (t peerTable) count(is func(*peerView) bool) int {
	n := 0
	for _, p := range t {
		if is(p) {
			n++
		}
	}
	return n
}

// staying counts the workers that neither leave nor drain.
func (t peerTable) staying() int { return t.count(func(p *peerView) bool { return !p.going() }) }

// takers counts the workers that can be given slots.
func (t peerTable) takers() int { return t.count((*peerView).takesSlots) }

// suspects counts the workers whose connection seems gone.
func (t peerTable) suspects() int {
	return t.count(func(p *peerView) bool { return !p.suspectAt.IsZero() })
}

// Why a worker is gone, in events.
const (
	reasonUnreachable = "connection gone"
	reasonExpired     = "lease expired"
	reasonDeleted     = "lease deleted"
)

// roster is who is there, as the leader sees it by the leases. Before all leases have been
// shown, a worker that is missing may be live: synced says that they have, and nothing is
// concluded from a missing lease before. A watch that begins again shows all leases
// again, so what an earlier one shows late is told apart by its number.
type roster struct {
	*core
	up rosterUser

	peers peerTable
	// listing: the watch has begun again, and has not shown all leases yet.
	listing bool
	// synced: all leases are known.
	synced  bool
	watches uint64    // begun so far; tells what a watch shows from what an earlier one did
	newest  time.Time // lease, by the server's clock

	malformed map[string]badLease // records that are no leases, by stable ID
	// inherited is the suspicion against the leader before, from the time as its candidate.
	inherited suspicion
}

// rosterUser is told what the leases show.
type rosterUser interface {
	// workerJoined: a worker has joined that is not in the map.
	workerJoined()
	// going: a worker has begun to leave or to drain.
	going()
	// takesSlotsAgain: a worker of the map drains no longer.
	takesSlotsAgain()
	// absent: a worker of the map is not there any more.
	absent(w Member, lease leaseValue)
	// listed: all leases are known.
	listed()
	// rosterChanged: it may be time to plan.
	rosterChanged()
	// overtaken: this worker's stable ID has a newer claim.
	overtaken()
	// ownLease returns what this worker writes as its lease.
	ownLease() []byte
}

// begin forgets what an earlier time as the leader has shown.
func (r *roster) begin(inherited suspicion) {
	*r = roster{core: r.core, up: r.up, watches: r.watches, peers: make(peerTable), malformed: make(map[string]badLease), inherited: inherited}
}

// reset forgets everybody.
func (r *roster) reset() { *r = roster{core: r.core, up: r.up, watches: r.watches} }

// gone reports whether a worker's lease has ended.
func (r *roster) gone(w Member) bool {
	return r.synced && r.peers.live(w) == nil
}

// watchLeases begins to watch the leases, or begins again: a watch does not tell
// when its server has forgotten it.
func (r *roster) watchLeases() {
	r.listing = true
	r.watches++
	r.do(watchLeasesEffect{on: true, watch: r.watches})
}

func (r *roster) seeLease(in leaseInput) {
	if !r.leaderLease.held || in.watch != r.watches {
		return
	}
	p := r.peers[in.id]
	if in.err != nil {
		r.seeBadLease(in)
		return
	}
	delete(r.malformed, in.id)
	if !in.deleted && in.id == r.self.ID && in.value.Claim > r.self.Claim {
		// This worker has lost its name, with the bucket of names, and is about to see
		// so. It must not plan for its own place, which it still holds.
		r.up.overtaken()
		return
	}
	if in.deleted {
		r.leaseGone(p, in)
		return
	}
	if p != nil && in.rev <= p.rev {
		p.seenAt = r.now
		return
	}
	if r.superseded(Member{ID: in.id, Claim: in.value.Claim}) {
		return
	}
	if p != nil && p.Claim != in.value.Claim {
		r.peerGone(p, "replaced by a new holder of its ID")
		p = nil
	}
	r.newest = later(r.newest, in.at)
	if p == nil {
		if p = r.newPeer(in); p == nil {
			return
		}
	}
	r.noteIntent(p, in.value)
	p.rev, p.at, p.lease, p.seenAt = in.rev, in.at, in.value, r.now
	p.suspectAt = time.Time{}
	if h := r.inherited; p.Member == h.who && in.rev == h.rev {
		p.suspectAt = h.since // not renewed since
	}
	r.up.rosterChanged()
}

// leaseGone: a lease was deleted, or has expired.
func (r *roster) leaseGone(p *peerView, in leaseInput) {
	// The delete marker may be of an earlier lease than one that was never seen.
	if p == nil || p.rev == 0 || in.rev <= p.rev {
		return
	}
	reason := reasonExpired
	switch {
	case p.lease.Leaving:
		reason = "left"
	case p.fencing:
		reason = reasonUnreachable
	case in.at.Before(p.at.Add(r.cfg.Lease.TTL / 2)):
		// Too soon to have expired, by the server's clock: a new leader may have seen the
		// lease only now. A worker that leaves without slots deletes its lease right after
		// it has said that it leaves, and the stream may keep only the second of the two.
		reason = reasonDeleted
	}
	r.peerGone(p, reason)
}

// newPeer enters a worker whose lease is new, nil if the lease is a stale one.
func (r *roster) newPeer(in leaseInput) *peerView {
	p := &peerView{Member: Member{ID: in.id, Claim: in.value.Claim}, joined: r.now, at: in.at}
	if r.listing && r.staleLease(p) {
		return nil
	}
	r.peers[in.id] = p
	if r.joiner(p) {
		r.emit(event.Event{Kind: event.WorkerJoined, Peer: p.ID, Claim: p.Claim})
		r.up.workerJoined()
	}
	return p
}

// noteIntent notes that a worker has begun to leave or to drain, or drains no longer.
func (r *roster) noteIntent(p *peerView, now leaseValue) {
	leaves, yields := now.Leaving && !p.lease.Leaving, now.Draining && !p.lease.Draining
	switch {
	case now.Leaving && (leaves || yields):
		r.emit(event.Event{Kind: event.WorkerLeaving, Peer: p.ID})
	case yields:
		r.emit(event.Event{Kind: event.WorkerDraining, Peer: p.ID})
	}
	if leaves || yields {
		p.leavingAt = r.now
		r.up.going()
	}
	if p.lease.Draining && !now.Draining && !r.joiner(p) {
		r.up.takesSlotsAgain()
	}
}

// staleLease reports whether a listed lease has expired. It is the lease of a worker that is
// not in the map, and far older than others by the server's clock. A replica that was away
// when it expired can list it again and again, and it can't be deleted, since it is not
// there. If the servers' clocks differ by that much, the lease's next renewal shows that its
// worker lives.
func (r *roster) staleLease(p *peerView) bool {
	return r.joiner(p) && p.at.Before(r.newest.Add(-r.cfg.Lease.TTL-time.Second))
}

// joiner reports whether a live worker is not in the map yet, under this claim or
// an earlier one.
func (r *roster) joiner(p *peerView) bool {
	return r.cur == nil || r.cur.index(p.Member) == none && r.cur.predecessor(p.Member) == none
}

func (r *roster) peerGone(p *peerView, reason string) {
	// Since its last sign of life. Who has been away has not been looking, and tells
	// no more than since when it was.
	var silent time.Duration
	if r.lease.valid && (reason == reasonExpired || reason == reasonUnreachable) {
		silent = r.now.Sub(later(later(p.seenAt, p.suspectAt), r.lease.regained))
	}
	delete(r.peers, p.ID)
	if r.cur != nil && r.cur.index(p.Member) != none {
		r.up.absent(p.Member, p.lease)
	}
	r.emit(event.Event{Kind: event.WorkerGone, Peer: p.ID, Claim: p.Claim, Reason: reason, Duration: silent})
	r.up.rosterChanged()
}

func (r *roster) leasesSynced(age time.Duration) {
	if !r.leaderLease.held {
		return
	}
	if age > 0 {
		// This worker may not have heard of the loss, or may have joined since.
		r.leasesLost = later(r.leasesLost, r.now.Add(-age))
	}
	r.listing = false
	if r.synced {
		r.up.rosterChanged()
		return
	}
	r.proveUnlisted()
	if r.allProven() {
		r.allListed()
	}
}

// allListed has the leader begin its work: every lease is known.
func (r *roster) allListed() {
	r.synced = true
	// The newest of the list came last.
	maps.DeleteFunc(r.peers, func(_ string, p *peerView) bool { return r.staleLease(p) })
	r.up.listed()
}

// expireDue ends the leases that the server does not let expire.
func (r *roster) expireDue() {
	if !r.synced {
		return
	}
	for _, p := range r.peers.sorted() {
		if p.fencing || p.Member == r.self || r.now.Before(r.overdue(p.seenAt)) {
			continue
		}
		p.fencing, p.overdue, p.seenAt = true, true, r.now
		r.kv(kvEffect{purpose: forFencing, op: opDelete, bucket: r.cfg.bucketLeases(), key: p.ID, rev: p.rev})
	}
}

func (r *roster) fenceDue() {
	suspects := r.peers.suspects()
	// When many vanish together it is more likely the network or a server
	// than they; then their leases decide.
	if suspects == 0 || suspects > many(len(r.peers)) || r.now.Before(r.quietUntil) {
		return
	}
	for _, p := range r.peers.sorted() {
		if p.suspectAt.IsZero() || p.fencing || r.now.Before(p.suspectAt.Add(r.suspicionTime())) {
			continue
		}
		p.fencing, p.overdue = true, false
		r.kv(kvEffect{purpose: forFencing, op: opDelete, bucket: r.cfg.bucketLeases(), key: p.ID, rev: p.rev})
	}
}

func (r *roster) fenced(in kvInput) {
	if r.leaderLease.held && in.rev == 0 {
		r.proved(in)
		return
	}
	p := r.peers[in.key]
	if !r.leaderLease.held || p == nil || p.rev != in.rev {
		return // renewed meanwhile: it lives
	}
	p.fencing = false
	if p.overdue && errors.Is(in.err, errNotFound) {
		// It has ended long ago, and the watch does not tell.
		r.peerGone(p, "lease expired")
		return
	}
	if in.err != nil {
		if p.suspectAt.IsZero() && errors.Is(in.err, errConflict) {
			r.watchLeases() // it has renewed, and the watch does not tell
		}
		p.suspectAt = time.Time{}
		return
	}
	r.peerGone(p, reasonUnreachable)
}

// coldStart reports whether the cluster starts as a whole: the first time, or with
// nearly everybody of the last map gone (10 or more before, under 5 now).
func (r *roster) coldStart() bool {
	before := r.workersInMap()
	if before == 0 {
		return true
	}
	now := r.peers.count(func(p *peerView) bool { return !r.joiner(p) })
	return now == 0 || (before >= 10 && now < 5)
}

// peerWake tells when a worker is to be looked at again.
func (r *roster) peerWake(p *peerView, sooner func(time.Time)) {
	if !p.suspectAt.IsZero() && !p.fencing {
		sooner(p.suspectAt.Add(r.suspicionTime()))
	}
	if p.Member != r.self && !p.fencing && r.synced {
		sooner(r.overdue(p.seenAt))
	}
	if at := p.leavingAt.Add(r.cfg.Rebalance.LeaveWindow); !p.leavingAt.IsZero() && at.After(r.now) {
		sooner(at)
	}
}

// isOutdated reports whether this is a live worker that is outdated.
func (r *roster) isOutdated(w Member) bool {
	p := r.peers.live(w)
	return p != nil && p.outdated()
}

// takersInMap counts the workers of the map that can be given slots.
func (r *roster) takersInMap() int {
	return r.peers.count(func(p *peerView) bool { return p.takesSlots() && !r.joiner(p) })
}

// lostMapUnseen reports whether slots must not be taken yet, since a live worker may
// hold some by the map that was lost. Usually a slot is taken from a worker whose lease
// has ended; here its holder lives, and which one it is was in the lost map:
//
//  1. A handoff from A to B is under way when the bucket is deleted.
//  2. The next leader doesn't know the handoff's end, and gives the slot to C.
//  3. B drops the slot when it sees the new map, not before.
//
// So the leader waits until every live worker has renewed its lease with the version of
// the first map after the loss or a later one, or has no lease any more.
func (r *roster) lostMapUnseen() bool {
	if r.lossVersion == 0 {
		return false
	}
	if !r.synced {
		return true // whose leases there are isn't known yet
	}
	for _, p := range r.peers {
		if p.Member != r.self && p.lease.Version < r.lossVersion {
			return true
		}
	}
	r.lossVersion = 0
	return false
}

func (r *roster) seeBadLease(in leaseInput) {
	if b, ok := r.malformed[in.id]; ok && b.rev >= in.rev {
		return
	}
	r.refuse(recordHeartbeat, in.rev, fmt.Errorf("at %s: %w", in.id, in.err))
	r.malformed[in.id] = badLease{rev: in.rev, due: r.now.Add(r.cfg.Lease.TTL + time.Second)}
}

// sweepDue removes what is no heartbeat and is not renewed. It may have no end of
// its own, and keep the name's next holder out.
func (r *roster) sweepDue() {
	for id, b := range r.malformed {
		if !r.now.Before(b.due) {
			delete(r.malformed, id)
			r.kv(kvEffect{purpose: forSweep, op: opDelete, bucket: r.cfg.bucketLeases(), key: id, rev: b.rev})
		}
	}
}

// allThere reports whether every worker of the map lives.
func (r *roster) allThere() bool { return r.peers.allLive(r.cur.Workers) }

// proveUnlisted asks about every worker of the map whose lease the first list of a leader
// lacks. Until the answer it counts as live.
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
func (r *roster) proveUnlisted() {
	if r.cur == nil {
		return
	}
	for _, w := range r.cur.Workers {
		if r.peers[w.ID] != nil {
			continue
		}
		p := &peerView{Member: w, joined: r.now, seenAt: r.now}
		r.peers[w.ID] = p
		if b, scribbled := r.malformed[w.ID]; scribbled {
			// It may live, and trust the lease that is under this: as long as that would.
			p.rev = b.rev
			if w.ID == r.self.ID {
				// The record lies over this worker's own lease. The worker of the map is
				// an earlier process with the same stable ID.
				p.Member = r.self
				p.lease, _ = decodeLease(w.ID, r.up.ownLease())
			}
			continue
		}
		if r.leasesLostLately() {
			// It may live, and have no lease until it hears that the bucket was lost.
			p.seenAt = r.leasesLost
			continue
		}
		p.fencing, p.unproven = true, true
		r.proveOver(p)
	}
}

// proveOver asks the bucket's leader to write the delete marker of a lease that was never seen,
// on the condition that none is there.
func (r *roster) proveOver(p *peerView) {
	r.kv(kvEffect{purpose: forFencing, op: opDelete, bucket: r.cfg.bucketLeases(), key: p.ID})
}

// allProven reports whether every question of proveUnlisted is answered.
func (r *roster) allProven() bool {
	return r.peers.count(func(p *peerView) bool { return p.unproven }) == 0
}

// proved takes the answer about a lease that was never seen.
func (r *roster) proved(in kvInput) {
	p := r.peers[in.key]
	if p != nil && p.rev == 0 {
		first := p.unproven
		p.fencing, p.unproven = false, false

		switch {
		case in.err == nil && first:
			delete(r.peers, p.ID) // missingAtSync reports it
		case in.err == nil:
			r.peerGone(p, reasonExpired)
		case errors.Is(in.err, errConflict) && in.gotRev > 0:
			r.foundLease(p, in)
		default:
			// Not known: it counts as live, and expireDue asks again.
			p.seenAt = r.now
		}
	} else if p != nil {
		p.fencing, p.unproven = false, false // the watch has shown it meanwhile
	}

	if !r.synced && !r.listing && r.allProven() {
		r.allListed()
	}
}

// foundLease takes in a lease that the list did not show.
func (r *roster) foundLease(p *peerView, in kvInput) {
	// A suspicion from before can't rest on this revision: the holder may have renewed
	// its lease since.
	p.seenAt, p.suspectAt, p.rev = r.now, time.Time{}, in.gotRev
	v, err := decodeLease(in.key, in.gotValue)
	if err != nil {
		return // the watch reports it; it may lie over a lease that is trusted
	}

	if v.Claim != p.Claim {
		// There is one lease for a name, so that of the map's worker is over.
		if r.synced {
			r.peerGone(p, "replaced by a new holder of its ID")
		}
		p = &peerView{Member: Member{ID: p.ID, Claim: v.Claim}, joined: r.now, seenAt: r.now, rev: in.gotRev}
		r.peers[p.ID] = p
	}
	p.lease = v
}

// superseded reports whether a lease was written by an earlier holder of a name than the
// map's worker: a replica that is behind may show it. Claims only grow.
func (r *roster) superseded(w Member) bool {
	if r.cur == nil {
		return false
	}
	for _, have := range r.cur.Workers {
		if have.ID == w.ID {
			return w.Claim < have.Claim
		}
	}
	return false
}

// suspect takes in that a probe found nobody listening on a worker's subject, so its
// connection is gone. If the worker lives it knows so within the grace, since its own
// round trips fail, and has stopped by then. That is why waiting for grace and margin, and
// a conditional deletion of its lease, make it as dead as its lease's expiry would.
func (r *roster) suspect(who Member) {
	if p := r.peers.live(who); p != nil && p.suspectAt.IsZero() && who != r.self {
		p.suspectAt = r.now
		r.emit(event.Event{Kind: event.WorkerSuspected, Peer: p.ID})
	}
}

// many is the number of workers, out of a total, that don't vanish at once by a chance of
// their own.
func many(of int) int { return max(3, of/5) }

// outdated reports whether a worker can't read the maps that this one writes. Of a worker
// whose lease was not seen, nothing is known.
func (p *peerView) outdated() bool { return p.lease.ID != "" && p.lease.mapSchemaRead() < mapSchema }
