package partition

import (
	"errors"
	"fmt"
	"time"

	"github.com/muster-dev/muster/partition/event"
	"github.com/muster-dev/muster/partition/internal/record"
)

// Reasons of the event that a worker has failed.
const (
	reasonUnreachable = "connection gone"
	reasonExpired     = "lease expired"
	reasonDeleted     = "lease deleted"
)

// roster is the leader's list of live workers, built from a watch of the lease bucket. Until
// the watch has delivered every lease, a worker without one may still be live, so nothing is
// concluded from a missing lease before synced is set. A restarted watch delivers every lease
// again; the number of a watch tells its deliveries from late ones of the watch before.
type roster struct {
	*core
	up rosterUser

	peers  peerTable
	placed placement // of peers in the map; see placement
	// listing is set from a watch's start until it has delivered every lease.
	listing bool
	// synced is set once a watch of this term has delivered every lease.
	synced  bool
	watches uint64    // number of the current watch
	newest  time.Time // server's time of the newest lease

	malformed map[string]badLease // by stable ID
	// inherited is this worker's suspicion against the former leader, whose candidate it was.
	inherited suspicion
}

// rosterUser learns what the leases show.
type rosterUser interface {
	// workerJoined is called when a worker that is not in the map has joined.
	workerJoined()
	// going is called when a worker has begun to leave or to drain.
	going()
	// takesSlotsAgain is called when a worker of the map has stopped draining.
	takesSlotsAgain()
	// absent is called when the lease of a worker of the map has ended.
	absent(w record.Process, lease record.Heartbeat)
	// listed is called once every lease is known.
	listed()
	// rosterChanged is called after a change that may need a plan.
	rosterChanged()
	// overtaken is called when another process has claimed this worker's stable ID.
	overtaken()
	// ownLease returns what this worker writes as its lease.
	ownLease() []byte
}

// begin starts a new term as the leader.
func (r *roster) begin(inherited suspicion) {
	*r = roster{core: r.core, up: r.up, watches: r.watches, malformed: make(map[string]badLease), inherited: inherited}
}

// reset forgets every worker.
func (r *roster) reset() { *r = roster{core: r.core, up: r.up, watches: r.watches} }

// gone reports whether a worker's lease has ended.
func (r *roster) gone(w record.Process) bool {
	return r.synced && r.peers.live(w) == nil
}

// watchLeases starts the watch of the lease bucket, or restarts it: a watch that the server has
// forgotten delivers nothing, not even an error.
func (r *roster) watchLeases() {
	r.listing = true
	r.watches++
	r.do(watchLeasesEffect{on: true, watch: r.watches})
}

func (r *roster) seeLease(in leaseInput) {
	if !r.leaderLease.held || in.watch != r.watches {
		return
	}
	p := r.peers.get(in.id)
	if in.err != nil {
		r.seeBadLease(in)
		return
	}
	delete(r.malformed, in.id)
	if !in.deleted && in.id == r.self.ID && in.value.Claim > r.self.Claim {
		// The bucket of stable IDs was lost, and another process has claimed this worker's ID.
		// This worker is about to notice. It must not give away its own slots as those of a
		// failed worker, because it still works on them.
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
	if r.superseded(record.Process{ID: in.id, Claim: in.value.Claim}) {
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
	if h := r.inherited; p.Process == h.who && in.rev == h.rev {
		p.suspectAt = h.since // not renewed since
	}
	r.peers.note(p)
	r.up.rosterChanged()
}

// leaseGone handles a lease that was deleted or has expired.
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

// newPeer enters a worker whose lease is new. It returns nil if the lease is stale.
func (r *roster) newPeer(in leaseInput) *peerView {
	p := &peerView{Process: record.Process{ID: in.id, Claim: in.value.Claim}, joined: r.now, at: in.at}
	if r.listing && r.staleLease(p) {
		return nil
	}
	r.enter(p)
	if r.joiner(p) {
		r.emit(event.Event{Kind: event.WorkerJoined, Peer: p.ID, Claim: p.Claim})
		r.up.workerJoined()
	}
	return p
}

// noteIntent notes that a worker has begun to leave or to drain, or drains no longer.
func (r *roster) noteIntent(p *peerView, now record.Heartbeat) {
	leaves, drains := now.Leaving && !p.lease.Leaving, now.Draining && !p.lease.Draining
	switch {
	case now.Leaving && (leaves || drains):
		r.emit(event.Event{Kind: event.WorkerLeaving, Peer: p.ID})
	case drains:
		r.emit(event.Event{Kind: event.WorkerDraining, Peer: p.ID})
	}
	if leaves || drains {
		p.leavingAt = r.now
		r.up.going()
	}
	if p.lease.Draining && !now.Draining && !r.joiner(p) {
		r.up.takesSlotsAgain()
	}
}

// staleLease reports whether a listed lease has expired, although a lagging replica lists it:
// its worker is not in the map, and the lease is far older than others by the server's clock.
// It can't be deleted, because the bucket's leader no longer has it. If the servers' clocks
// differ by that much, the lease's next renewal shows that its worker lives.
func (r *roster) staleLease(p *peerView) bool {
	return r.joiner(p) && p.at.Before(r.newest.Add(-r.cfg.Lease.TTL-time.Second))
}

// joiner reports whether a live worker is not in the map yet, under this claim or
// an earlier one.
func (r *roster) joiner(p *peerView) bool {
	x := r.index()
	return x.index(p.Process) == record.None && x.predecessor(p.Process) == record.None
}

// enter adds a live worker, in place of an earlier one with its ID.
func (r *roster) enter(p *peerView) {
	placed := r.placement()
	if before := r.peers.get(p.ID); before != nil {
		placed.went(before)
	}
	p.self = p.Process == r.self
	r.peers.put(p)
	placed.came(p)
}

// drop removes a worker whose lease has ended.
func (r *roster) drop(p *peerView) {
	placed := r.placement()
	r.peers.remove(p.ID)
	placed.went(p)
}

// placement compares the live workers with those of the newest map.
func (r *roster) placement() *placement {
	if !r.placed.known || r.placed.index.of != r.cur {
		r.placed = newPlacement(newMapIndex(r.cur), &r.peers)
	}
	return &r.placed
}

// index is that of the newest map.
func (r *roster) index() *mapIndex { return &r.placement().index }

// joining returns the workers that are not in the map yet, by ascending ID.
func (r *roster) joining() []*peerView { return peersByID(r.placement().joining) }

// rejoining returns the workers that the map has under an earlier claim, by ascending ID.
func (r *roster) rejoining() []*peerView { return peersByID(r.placement().rejoining) }

// flagged reports whether the map says that a worker restarts.
func (r *roster) flagged(w record.Process) bool {
	i := r.index().index(w)
	return i != record.None && r.cur.Restarting[int(i)]
}

// joiningTakers counts the workers that are not in the map yet and can be given slots.
func (r *roster) joiningTakers() int {
	joining := r.placement().joining
	n := len(joining)
	for id := range r.peers.marked[markRefuses] {
		if joining[id] != nil {
			n--
		}
	}
	return n
}

func (r *roster) peerGone(p *peerView, reason string) {
	// The time since its last sign of life. A leader whose own lease was uncertain could not
	// see any, so it counts only from when its lease was valid again.
	var silent time.Duration
	if r.lease.valid && (reason == reasonExpired || reason == reasonUnreachable) {
		silent = r.now.Sub(later(later(p.seenAt, p.suspectAt), r.lease.regained))
	}
	r.drop(p)
	if r.index().index(p.Process) != record.None {
		r.up.absent(p.Process, p.lease)
	}
	r.emit(event.Event{Kind: event.WorkerGone, Peer: p.ID, Claim: p.Claim, Reason: reason, Duration: silent})
	r.up.rosterChanged()
}

func (r *roster) leasesSynced(age time.Duration) {
	if !r.leaderLease.held {
		return
	}
	if age > 0 {
		// The bucket was lost. This worker may not know of it, or have joined since.
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

// allListed lets the leader begin its work, since every lease is known.
func (r *roster) allListed() {
	r.synced = true
	// Whether a lease is stale is known only now: the newest of the list came last.
	for _, p := range r.joining() {
		if r.staleLease(p) {
			r.drop(p)
		}
	}
	r.up.listed()
}

// expireDue deletes leases that are overdue and that the server still has.
func (r *roster) expireDue() {
	if !r.synced {
		return
	}
	over := func(seen time.Time) bool { return !r.now.Before(r.overdue(seen)) }
	for _, p := range r.peers.silent.take(over) {
		p.fencing, p.overdue, p.seenAt = true, true, r.now
		r.peers.note(p)
		r.kv(kvEffect{purpose: forFencing, op: opDelete, bucket: r.cfg.bucketLeases(), key: p.ID, rev: p.rev})
	}
}

func (r *roster) fenceDue() {
	suspects := r.peers.count(markSuspect)
	// When many vanish together it is more likely the network or a server
	// than they; then their leases decide.
	if suspects == 0 || suspects > many(r.peers.len()) || r.now.Before(r.quietUntil) {
		return
	}
	for _, p := range r.peers.with(markSuspect) {
		if p.fencing || r.now.Before(p.suspectAt.Add(r.suspicionTime())) {
			continue
		}
		p.fencing, p.overdue = true, false
		r.peers.note(p)
		r.kv(kvEffect{purpose: forFencing, op: opDelete, bucket: r.cfg.bucketLeases(), key: p.ID, rev: p.rev})
	}
}

func (r *roster) fenced(in kvInput) {
	if r.leaderLease.held && in.rev == 0 {
		r.proved(in)
		return
	}
	p := r.peers.get(in.key)
	if !r.leaderLease.held || p == nil || p.rev != in.rev {
		return // renewed meanwhile: it lives
	}
	p.fencing = false
	r.peers.note(p)
	if p.overdue && errors.Is(in.err, errNotFound) {
		// The lease ended long ago, and the watch has missed it.
		r.peerGone(p, "lease expired")
		return
	}
	if in.err != nil {
		if p.suspectAt.IsZero() && errors.Is(in.err, errConflict) {
			r.watchLeases() // the worker has renewed, and the watch has missed it
		}
		p.suspectAt = time.Time{}
		r.peers.note(p)
		return
	}
	r.peerGone(p, reasonUnreachable)
}

// coldStart reports whether the group starts as a whole: for the first time, or with nearly all
// workers of the last map gone (10 or more before, under 5 now).
func (r *roster) coldStart() bool {
	before := r.workersInMap()
	if before == 0 {
		return true
	}
	now := r.peers.len() - len(r.placement().joining)
	return now == 0 || (before >= 10 && now < 5)
}

// wake passes on when a worker has to be looked at again.
func (r *roster) wake(sooner func(time.Time)) {
	for _, p := range r.peers.marked[markSuspect] {
		if !p.fencing {
			sooner(p.suspectAt.Add(r.suspicionTime()))
		}
	}
	if p := r.peers.silent.earliest(); p != nil && r.synced {
		sooner(r.overdue(p.seenAt))
	}
	for _, p := range r.peers.marked[markAnnounced] {
		if at := p.leavingAt.Add(r.cfg.Rebalance.LeaveWindow); at.After(r.now) {
			sooner(at)
		}
	}
	for _, b := range r.malformed {
		sooner(b.due)
	}
}

// isOutdated reports whether this is a live worker that is outdated.
func (r *roster) isOutdated(w record.Process) bool {
	p := r.peers.live(w)
	return p != nil && p.outdated()
}

// takersInMap counts the workers of the map that can be given slots.
func (r *roster) takersInMap() int {
	return r.peers.takers() - r.joiningTakers()
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
	for _, p := range r.peers.byID {
		if !p.self && p.lease.Version < r.lossVersion {
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

// sweepDue removes malformed heartbeats that are not renewed. Such a record may have no TTL, and
// would keep the next holder of its stable ID out permanently.
func (r *roster) sweepDue() {
	for id, b := range r.malformed {
		if !r.now.Before(b.due) {
			delete(r.malformed, id)
			r.kv(kvEffect{purpose: forSweep, op: opDelete, bucket: r.cfg.bucketLeases(), key: id, rev: b.rev})
		}
	}
}

// allThere reports whether every worker of the map lives.
func (r *roster) allThere() bool { return len(r.placement().missing) == 0 }

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
		if r.peers.get(w.ID) == nil {
			r.enter(r.unlisted(w))
		}
	}
}

// unlisted is how a worker of the map counts whose lease the list lacks.
func (r *roster) unlisted(w record.Process) *peerView {
	p := &peerView{Process: w, joined: r.now, seenAt: r.now}
	switch b, scribbled := r.malformed[w.ID]; {
	case scribbled:
		// It may live, and trust the lease that is under this: as long as that would.
		p.rev = b.rev
		if w.ID == r.self.ID {
			// The record lies over this worker's own lease. The worker of the map is
			// an earlier process with the same stable ID.
			p.Process = r.self
			p.lease, _ = record.DecodeHeartbeat(w.ID, r.up.ownLease())
		}
	case r.leasesLostLately():
		// It may live, and have no lease until it hears that the bucket was lost.
		p.seenAt = r.leasesLost
	default:
		p.fencing, p.unproven = true, true
		r.proveOver(p)
	}
	return p
}

// proveOver asks the bucket's leader to write the delete marker of a lease that was never seen,
// on the condition that none is there.
func (r *roster) proveOver(p *peerView) {
	r.kv(kvEffect{purpose: forFencing, op: opDelete, bucket: r.cfg.bucketLeases(), key: p.ID})
}

// allProven reports whether every question of proveUnlisted is answered.
func (r *roster) allProven() bool {
	return r.peers.count(markUnproven) == 0
}

// proved takes the answer about a lease that was never seen.
func (r *roster) proved(in kvInput) {
	p := r.peers.get(in.key)
	if p != nil && p.rev == 0 {
		first := p.unproven
		p.fencing, p.unproven = false, false
		r.peers.note(p)

		switch {
		case in.err == nil && first:
			r.drop(p) // missingAtSync reports it
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
		r.peers.note(p)
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
	r.peers.note(p)
	v, err := record.DecodeHeartbeat(in.key, in.gotValue)
	if err != nil {
		return // the watch reports it; it may lie over a lease that is trusted
	}

	if v.Claim != p.Claim {
		// There is one lease for a name, so that of the map's worker is over.
		if r.synced {
			r.peerGone(p, "replaced by a new holder of its ID")
		}
		p = &peerView{Process: record.Process{ID: p.ID, Claim: v.Claim}, joined: r.now, seenAt: r.now, rev: in.gotRev}
		r.enter(p)
	}
	p.lease = v
	r.peers.note(p)
}

// superseded reports whether a lease was written by an earlier holder of a name than the
// map's worker: a replica that is behind may show it. Claims only grow.
func (r *roster) superseded(w record.Process) bool {
	return r.index().superseded(w)
}

// suspect takes in that a probe found nobody listening on a worker's subject, so its
// connection is gone. If the worker lives it knows so within the grace, since its own
// round trips fail, and has stopped by then. That is why waiting for grace and margin, and
// a conditional deletion of its lease, make it as dead as its lease's expiry would.
//
// It reports whether this is news: a live worker that was not suspected before.
func (r *roster) suspect(who record.Process) bool {
	p := r.peers.live(who)
	if p == nil || !p.suspectAt.IsZero() || who == r.self {
		return false
	}

	p.suspectAt = r.now
	r.peers.note(p)
	r.emit(event.Event{Kind: event.WorkerSuspected, Peer: p.ID})
	return true
}

// many is the number of workers, out of a total, that don't vanish at once by a chance of
// their own.
func many(of int) int { return max(3, of/5) }
