package partition

import (
	"errors"
	"slices"
	"strconv"
	"time"

	"github.com/muster-dev/muster/partition/event"
	"github.com/muster-dev/muster/partition/internal/record"
)

// identity is the worker's stable ID, which is claimed and then renewed.
//
// To claim one the worker lists the IDs that are taken, and creates the one that it had
// before, or one whose slots wait for a successor, or the lowest that is free. A conflict
// means that another worker was faster, so it tries the next. When as many workers have IDs
// as there should be, this one is a standby until an ID is free: a pod that a rolling update
// adds before it ends another takes that other's place, and nothing moves.
type identity struct {
	*core
	up identityUser

	names      nameTable
	former     record.Process // who this worker was before it lost its identity
	reclaiming bool           // and may be again
	// unseen is the ID of a claim that the server may have carried out, or may carry out yet: its
	// reply has not arrived, and a read found no claim. "": there is none.
	unseen string
	// mapKnown: what was in the map's bucket at the start has been seen.
	mapKnown bool
	// conflicts is how many IDs in a row others were faster to claim.
	conflicts int
	// exhausted: a person was told that there are too few IDs.
	exhausted bool
	// standby: the worker waits for an ID.
	standby     bool
	reconnected time.Time // when the connection last did
	retryAt     time.Time // of a claim or a join that failed; zero: none did

	rev      uint64    // of the claim
	due      time.Time // when to renew it next
	renewing bool
}

// identityUser is told what becomes of the stable ID.
type identityUser interface {
	// join: the worker has one.
	join()
	// loseIdentity: it has it no more, by the outcome of a renewal.
	loseIdentity(in kvInput)
	// unledSince is since when nobody can be said to lead, in the future if somebody leads.
	unledSince() time.Time
}

const (
	staleName = 1200 * time.Millisecond // where nothing is waited for
	// leaderlessName is for who restarts while there is no leader: its successor may be
	// slow, and the next leader soon there.
	leaderlessName = 3 * time.Second
)

// standbyPoll is how often a standby looks, beside being told.
const standbyPoll = 600 * time.Millisecond

// begin claims an ID: the former one again, if it may still be this worker's. After a claim
// whose outcome is unknown it looks first. The list of the taken IDs would not tell it whether
// it is this worker who has taken one.
func (i *identity) begin() {
	switch {
	case i.reclaiming:
		i.reclaim()
	case i.unseen != "":
		i.kv(kvEffect{purpose: forUnseenClaim, op: opGet, bucket: i.cfg.bucketIDs(), key: i.unseen})
	default:
		i.claim()
	}
}

// unseenClaimRead takes in what is there of the ID of a claim whose outcome is unknown.
func (i *identity) unseenClaimRead(in kvInput) {
	if i.stage != stageClaiming {
		return
	}
	switch {
	case in.err == nil && i.ownValue(in.gotValue):
		i.reclaimFound(in)
	case in.err == nil:
		i.unseen = ""
		i.claim()
	case errors.Is(in.err, errNotFound):
		i.claim() // it may be carried out yet, so a standby looks each time
	default:
		i.retryAt = i.now.Add(retryInterval)
	}
}

// reclaimFound renews an earlier claim of this worker, which has turned out to have been
// carried out.
func (i *identity) reclaimFound(in kvInput) {
	i.unseen = ""
	i.former, i.reclaiming = record.Process{ID: in.key, Claim: in.gotRev}, true
	i.rev = in.gotRev
	i.reclaim()
}

// lose forgets the ID and returns it. The worker tries to have it again.
func (i *identity) lose() (former record.Process) {
	former, i.self = i.self, record.Process{}
	i.renewing = false
	i.former, i.reclaiming = former, true
	return former
}

// retryNow reports whether to try again what failed, and notes that it is tried.
func (i *identity) retryNow() bool {
	if i.retryAt.IsZero() || i.now.Before(i.retryAt) {
		return false
	}
	i.retryAt = time.Time{}
	return true
}

// wake tells when there is something to do.
func (i *identity) wake(sooner func(time.Time)) {
	switch i.stage {
	case stageClaiming, stageJoining:
		sooner(i.retryAt)
	case stageJoined, stageLeaving:
		if !i.renewing {
			sooner(i.due)
		}
	case stageInit, stageGone:
	}
}

// claim begins by listing the IDs that are taken.
func (i *identity) claim() {
	i.stage = stageClaiming
	i.names.taken = nil
	i.retryAt = time.Time{}
	i.kv(kvEffect{purpose: forNames, op: opList, bucket: i.cfg.bucketIDs()})
}

// room reports whether one more worker is wanted beside those that have names. A
// name that nobody has a lease for is a dead one's, who has yet to expire.
//
// A lease may be there for good, with nobody behind it: a server has forgotten when it ends,
// or somebody has written over it. The leader removes such a lease. Where nobody has led for
// long the workers of all names are gone, since one that lives would lead.
func (i *identity) room() bool {
	want := i.expected()
	allGone := !i.now.Before(i.up.unledSince().Add(i.cfg.Rebalance.RestartGrace))
	return want == 0 || allGone || i.names.live(i.staleAfter) < want
}

// staleAfter is how long a name must be seen without a lease to be a dead one's.
// Who has just claimed a name has no lease yet, either. When its slots wait for who
// has it, because it restarts, or may have lost its lease by the same outage as this
// worker its connection, that may take as long as they wait.
func (i *identity) staleAfter(id string) time.Duration {
	if i.cur == nil {
		return staleName
	}
	at := slices.IndexFunc(i.cur.Workers, func(w record.Process) bool { return w.ID == id })
	switch {
	case at < 0 || !slices.Contains(i.cur.Owner, int32(at)):
		return staleName
	case i.now.Before(i.reconnected.Add(i.cfg.Rebalance.RestartGrace)):
		return i.cfg.Rebalance.RestartGrace
	case i.cur.Restarting[at] && i.leader == (record.Process{}): // nobody ends the wait
		return leaderlessName
	case i.cur.Restarting[at]:
		return i.cfg.Rebalance.RestartGrace
	}
	return staleName
}

// stand has the worker wait for an ID.
func (i *identity) stand() {
	if !i.standby {
		i.standby = true
		i.do(watchNamesEffect{true})
		i.emit(event.Event{Kind: event.Standby, After: i.expected()})
	}
	i.retryAt = i.now.Add(standbyPoll)
}

// lookAgain has a standby look whether there is a name for it now.
func (i *identity) lookAgain() {
	if i.stage == stageClaiming && i.standby && !i.retryAt.IsZero() {
		i.retryAt = time.Time{}
		i.begin()
	}
}

func (i *identity) stableID(n int) string { return i.cfg.Name + "-" + strconv.Itoa(n) }

// claimNext claims the first ID that seems free.
func (i *identity) claimNext() {
	if !i.room() {
		i.stand()
		return
	}
	id := i.former.ID
	if id == "" || i.names.taken[id] {
		id = i.names.vacancy(i.cur)
	}
	if id == "" || i.names.taken[id] {
		id = i.freeID()
	}
	if id == "" {
		i.noteExhausted()
		i.stand()
		return
	}
	i.attempt++
	i.kv(kvEffect{purpose: forClaim, op: opCreate, bucket: i.cfg.bucketIDs(), key: id, value: i.value(), ttl: i.cfg.Lease.IDTTL})
}

// spreadAfter is how many IDs in a row others were faster to claim before a worker claims one
// at random.
const spreadAfter = 8

// freeID returns an ID that seems free, "" if none does: the lowest one, so that the IDs of a
// group are in sequence.
//
// If a thousand workers start together, all want the lowest, one gets it, and the others want
// the next: half a million writes. So a worker that others were faster than again and again
// takes any of those that the expected workers will have. About ln N writes each are enough
// then, and when all have come the IDs are in sequence again.
func (i *identity) freeID() string {
	limit := i.cfg.Identity.PoolSize
	if want := min(i.expected(), limit); i.conflicts >= spreadAfter && want > 0 {
		if id := i.names.anyFree(i.stableID, want, i.instance, i.attempt); id != "" {
			return id
		}
	}
	return i.names.lowestFree(i.stableID, limit)
}

// noteExhausted tells a person, once, that more workers run than there are stable IDs.
func (i *identity) noteExhausted() {
	if i.exhausted {
		return
	}
	i.exhausted = true
	i.cfg.Logger.Warn("All stable IDs are taken, so this worker is a standby. Raise Identity.PoolSize in all workers to run more.", "pool_size", i.cfg.Identity.PoolSize)
}

func (i *identity) value() []byte {
	return record.Encode(record.Claim{Schema: record.Schema, Pod: i.cfg.Identity.Pod, PodUID: i.cfg.Identity.PodUID, Version: i.cfg.Identity.Version, Instance: i.instance, N: i.attempt})
}

// renewDue renews the stable ID when it is time to.
func (i *identity) renewDue() {
	if i.renewing || i.now.Before(i.due) {
		return
	}
	i.renewing = true
	i.attempt++
	i.kv(kvEffect{purpose: forIDRenewal, op: opUpdate, bucket: i.cfg.bucketIDs(), key: i.self.ID, value: i.value(), rev: i.rev, ttl: i.cfg.Lease.IDTTL})
}

func (i *identity) namesListed(in kvInput) {
	if i.stage != stageClaiming {
		return
	}
	if in.err != nil {
		i.retryAt = i.now.Add(retryInterval)
		return
	}
	i.names.list(in.keys)
	if want := i.expected(); want > 0 && len(i.names.taken) >= want {
		i.kv(kvEffect{purpose: forLeaseNames, op: opList, bucket: i.cfg.bucketLeases()})
		return
	}
	i.lookAtDead()
}

// leasesListed notes which names have no lease.
func (i *identity) leasesListed(in kvInput) {
	if i.stage != stageClaiming {
		return
	}
	if in.err != nil {
		i.retryAt = i.now.Add(retryInterval)
		return
	}
	i.names.listLeases(in.keys, i.now)
	i.lookAtDead()
}

// lookAtDead reads the names that seem to be of the dead, or were told to be free, one
// after the other, before the list is believed of them: it may come from a replica
// that is behind, and then a name that was given back is on it.
func (i *identity) lookAtDead() {
	if name := i.names.unsure(i.staleAfter); name != "" {
		i.kv(kvEffect{purpose: forDeadName, op: opGet, bucket: i.cfg.bucketIDs(), key: name})
		return
	}
	i.claimNext()
}

func (i *identity) deadNameRead(in kvInput) {
	if i.stage != stageClaiming {
		return
	}
	switch {
	case in.err == nil && i.ownValue(in.gotValue):
		// A claim of this worker has been carried out after all, whose outcome it did not see.
		i.reclaimFound(in)
		return
	case in.err == nil:
		i.names.read(in.key, true)
	case errors.Is(in.err, errNotFound):
		i.names.read(in.key, false)
	default:
		i.retryAt = i.now.Add(retryInterval)
		return
	}
	i.lookAtDead()
}

// claimed takes the outcome of a claim.
func (i *identity) claimed(in kvInput) {
	if i.stage != stageClaiming {
		return
	}
	switch {
	case in.err == nil:
		i.self = record.Process{ID: in.key, Claim: in.gotRev}
		i.rev = in.gotRev
		i.stage = stageJoining
		i.former, i.reclaiming, i.unseen = record.Process{}, false, ""
		i.names.claimed()
		i.conflicts = 0
		if i.standby {
			i.standby = false
			i.do(watchNamesEffect{false})
		}
		i.emit(event.Event{Kind: event.IDClaimed, Claim: in.gotRev, Duration: i.now.Sub(i.started)})
		// Before the lease: a leader that sees the lease probes at once, and
		// what nobody listens to looks dead.
		i.do(listenEffect{i.self})
		i.up.join()
	case errors.Is(in.err, errConflict) && i.ownValue(in.gotValue):
		i.reclaimFound(in) // one that was given up was carried out after all
	case errors.Is(in.err, errConflict) && in.op == opUpdate:
		i.reclaiming = false
		i.claim() // not ours any more; maybe it is free
	case errors.Is(in.err, errConflict):
		i.names.takenBefore(in.key)
		i.conflicts++
		i.claimNext()
	case in.op == opCreate:
		i.unseen = in.key
		i.retryAt = i.now.Add(retryInterval)
	default:
		i.retryAt = i.now.Add(retryInterval)
	}
}

// renewed takes the outcome of a renewal of the stable ID.
func (i *identity) renewed(in kvInput) {
	i.renewing = false
	if i.stage != stageJoined && i.stage != stageLeaving || in.key != i.self.ID {
		return
	}
	switch i.renewal(in) {
	case renewalDone:
		i.rev, i.due = in.gotRev, in.start.Add(i.cfg.Lease.IDTTL/6)
	case renewalLate, renewalHidden:
		i.rev, i.due = in.gotRev, i.now
	case renewalEnded:
		nobodyHasIt := in.gotRev == 0 && in.op == opUpdate && errors.Is(in.err, errConflict)
		if !nobodyHasIt || !i.lease.valid {
			i.up.loseIdentity(in)
			return
		}
		// The name has ended, with its bucket or because its renewals took too long.
		// There is one lease for a name, and it is this worker's, so nobody can have
		// joined under the name: this worker has it again if it is the first to create
		// it, under the claim that it has.
		i.renewing = true
		i.attempt++
		i.kv(kvEffect{purpose: forIDRenewal, op: opCreate, bucket: i.cfg.bucketIDs(), key: i.self.ID, value: i.value(), ttl: i.cfg.Lease.IDTTL})
	case renewalUnknown:
		i.due = i.now.Add(retryInterval)
	}
}

// reclaim renews the former name with a new claim.
func (i *identity) reclaim() {
	i.attempt++
	i.kv(kvEffect{purpose: forClaim, op: opUpdate, bucket: i.cfg.bucketIDs(), key: i.former.ID, value: i.value(), rev: i.rev, ttl: i.cfg.Lease.IDTTL})
}

// nameFreed: a stable ID has become free.
func (i *identity) nameFreed(id string) {
	i.names.released[id] = true
	i.lookAgain()
}
