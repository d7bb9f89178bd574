package partition

import (
	"maps"
	"sync"
	"time"

	"github.com/muster-dev/muster/partition/event"
	"github.com/muster-dev/muster/partition/internal/record"
)

// absentees are the workers of the map that are not there, and what the leader does with
// workers that go and come back under their names: a rolling update, and a broker that was away. Their slots wait,
// no key moves, and the map keeps its version; only the claim beside the name
// changes in it, and with it the fence.
//
// A worker can't tell why it is told to end, so the leader does: if there are
// more than there should be it leaves, and its slots move before it goes, else it
// restarts. Which of both is in the map before the worker acts on it, so that a
// later leader, the leader may be among those that restart, continues from it.
type absentees struct {
	*core
	roster *roster
	maps   *mapStore

	absent map[record.Process]absence
}

// absence is of a worker in the map that is not there. Its slots wait until then
// for a process that rejoins by its name, if they wait.
type absence struct {
	since time.Time
	until time.Time // zero: they don't
	lease record.Heartbeat
}

// reset forgets who is not there.
func (a *absentees) reset() {
	*a = absentees{core: a.core, roster: a.roster, maps: a.maps, absent: make(map[record.Process]absence)}
}

// restarters are the workers that leave, have slots and should be replaced, by
// ascending ID: as many as keep the number at what is expected.
func (a *absentees) restarters() []string {
	want := a.expected()
	if want == 0 || a.cur == nil {
		return nil
	}

	x := a.roster.index()
	var ids []string
	there := a.awaitedRestarts() + a.roster.peers.len()
	for _, p := range a.roster.peers.with(markGoing) {
		i := x.index(p.Process)
		switch {
		case !p.lease.Leaving || a.roster.flagged(p.Process):
		case i == record.None || x.gets[i] == 0:
			there-- // has nothing, or has given it all away: it is as good as gone
		default:
			ids = append(ids, p.ID)
		}
	}
	return ids[:max(0, len(ids)-max(0, there-want))]
}

// awaitedRestarts counts the workers that restart and have gone.
func (a *absentees) awaitedRestarts() int {
	n := 0
	for i := range a.cur.Restarting {
		if a.roster.peers.get(a.cur.Workers[i].ID) == nil {
			n++
		}
	}
	return n
}

// reserve enters workers that restart in the map and reports whether it writes
// one. One that has slots in motion continues with them first.
func (a *absentees) reserve(now bool) bool {
	var who []int32
	for _, id := range a.restarters() {
		p := a.roster.peers.get(id)
		i := a.roster.index().index(p.Process)
		if a.atRest(i) && (now || !a.now.Before(p.leavingAt.Add(a.cfg.Rebalance.LeaveWindow))) {
			who = append(who, i)
		}
	}
	if who == nil {
		return false
	}
	next := a.cur.Clone()
	next.Epoch, next.Leader = a.leaderLease.epoch, a.self
	var events []event.Event
	for _, i := range who {
		next.Restarting[int(i)] = true
		events = append(events, event.Event{Kind: event.WorkerRestarting, Peer: next.Workers[i].ID, Claim: next.Workers[i].Claim})
	}
	a.maps.write(next, events)
	return true
}

// atRest reports whether no slot moves to or from a worker.
func (a *absentees) atRest(i int32) bool {
	for s, mv := range a.cur.Moves {
		if mv.Next == i || a.cur.Owner[s] == i {
			return false
		}
	}
	for s := range a.cur.Taking {
		if a.cur.Owner[s] == i {
			return false
		}
	}
	return true
}

// miss notes that a worker of the map is not there. Its slots wait if it restarts,
// or if it may have gone because the broker was away: it, too, comes back then.
func (a *absentees) miss(w record.Process, lease record.Heartbeat, many bool) {
	away := absence{since: a.now, lease: lease}
	switch {
	case a.roster.flagged(w):
		away.until = a.now.Add(a.cfg.Rebalance.RestartGrace)
	case a.lease.uncertain(a.now) || many:
		away.until = a.now.Add(a.cfg.Rebalance.RestartGrace)
		a.emit(event.Event{Kind: event.WorkerAwaited, Peer: w.ID, Claim: w.Claim, Duration: a.cfg.Rebalance.RestartGrace})
	}
	a.absent[w] = away
}

// missingAtSync notes who of the map is not there when a leader begins. If that
// are many, something has befallen all of them, and they are waited for.
func (a *absentees) missingAtSync() {
	if a.cur == nil {
		return
	}
	var gone []record.Process
	renewed := 0 // are back under their names, so whatever befell the others may have befallen them
	for _, w := range a.cur.Workers {
		switch p := a.roster.peers.get(w.ID); {
		case p == nil:
			gone = append(gone, w)
		case p.Process != w:
			renewed++
		}
	}
	// When nearly all are new the cluster starts as a whole, which takes longer.
	grace := a.cfg.Rebalance.RestartGrace
	if a.roster.coldStart() {
		grace = max(grace, a.cfg.Rebalance.ColdWindow)
	}
	for _, w := range gone {
		// Its lease ended while no leader was there to tell, or before this one looked.
		a.emit(event.Event{Kind: event.WorkerGone, Peer: w.ID, Claim: w.Claim, Reason: reasonExpired})
		a.miss(w, record.Heartbeat{}, len(gone)+renewed > many(len(a.cur.Workers)))
		if away := a.absent[w]; !away.until.IsZero() {
			away.until = a.now.Add(grace)
			a.absent[w] = away
		}
	}
}

// awaited reports whether the slots of a worker that is not there wait for
// it to rejoin. They don't once enough workers are there that none is missing.
func (a *absentees) awaited(i int32) bool {
	w := a.cur.Workers[i]
	away := a.absent[w]
	if away.until.IsZero() || !a.now.Before(away.until) {
		return false
	}
	want := a.expected()
	if want == 0 {
		want = len(a.cur.Workers)
	}
	if a.cur.Restarting[int(i)] {
		return a.roster.peers.len()+a.awaitedRestarts() <= want
	}
	return a.roster.peers.staying() < want
}

// adopt gives workers that came under the name of one in the map its place there,
// and reports whether it writes a map. There is one lease for a name, so the
// predecessor's has ended, and it has stopped. What was in flight to it is taken
// as from a failed one.
func (a *absentees) adopt() bool {
	if a.cur == nil || a.leasesLostLately() {
		return false
	}
	var next *record.Assignment
	var events []event.Event
	for _, p := range a.roster.rejoining() {
		i := a.roster.index().predecessor(p.Process)
		if next == nil {
			next = a.cur.Clone()
			next.Epoch, next.Leader = a.leaderLease.epoch, a.self
		}
		was := next.Workers[i]
		next.Workers[i] = p.Process
		delete(next.Restarting, int(i))
		for s, owner := range next.Owner {
			if owner != i {
				continue
			}
			if mv, moving := next.Moves[s]; moving {
				// It was on its way, and arrives.
				delete(next.Moves, s)
				next.Owner[s], next.Since[s] = mv.Next, mv.Version
			} else {
				// It may have been on its way before, to somebody who had it
				// and died before a map showed that: the fence must be above
				// that one's, too.
				next.Since[s] = next.Version
			}
			next.Taking[s] = true
		}
		e := event.Event{Kind: event.WorkerRejoined, Peer: p.ID, Claim: p.Claim}
		if away, missed := a.absent[was]; missed {
			e.Duration = a.now.Sub(away.since)
			delete(a.absent, was)
		}
		events = append(events, e)
	}
	if next == nil {
		return false
	}
	a.maps.write(next, events)
	return true
}

// prune takes workers out of the map that have left or drain, once all that they had has
// arrived elsewhere.
func (a *absentees) prune() {
	if a.cur == nil || !a.cur.Settled() || a.cur.Epoch != a.leaderLease.epoch {
		return
	}
	if a.roster.allThere() && a.roster.peers.count(markGoing) == 0 {
		return // at rest: a worker that is there and doesn't drain stays
	}

	stays := a.staysInMap()
	at := make([]int32, len(a.cur.Workers))
	var workers []record.Process
	for i, w := range a.cur.Workers {
		if stays[i] {
			at[i] = int32(len(workers))
			workers = append(workers, w)
		}
	}
	if len(workers) == len(a.cur.Workers) || len(workers) == 0 {
		return
	}

	next := a.cur.Clone()
	next.Epoch, next.Leader, next.Workers = a.leaderLease.epoch, a.self, workers
	for s, i := range next.Owner {
		if i != record.None {
			next.Owner[s] = at[i]
		}
	}
	next.Restarting = make(map[int]bool)
	for i := range a.cur.Restarting {
		if stays[i] {
			next.Restarting[int(at[i])] = true
		}
	}
	a.maps.write(next, nil)
}

// staysInMap tells, for each worker of the map, whether it has slots, is there and
// takes some, or is awaited.
func (a *absentees) staysInMap() []bool {
	stays := make([]bool, len(a.cur.Workers))
	for _, owner := range a.cur.Owner {
		if owner != record.None {
			stays[owner] = true
		}
	}
	for i, w := range a.cur.Workers {
		p := a.roster.peers.live(w)
		there := p != nil && !p.lease.Draining
		stays[i] = stays[i] || there || a.awaited(int32(i))
	}
	return stays
}

// forget drops what is known of workers that the map does not name any more.
func (a *absentees) forget() {
	maps.DeleteFunc(a.absent, func(w record.Process, _ absence) bool { return a.roster.index().index(w) == record.None })
}

// quits returns a function that reports whether a worker leaves for good, or drains. It finds
// the workers that should be replaced once for all that it is asked about.
func (a *absentees) quits() func(*peerView) bool {
	restarters := sync.OnceValue(func() map[string]bool {
		replaced := make(map[string]bool)
		for _, id := range a.restarters() {
			replaced[id] = true
		}
		return replaced
	})
	return func(p *peerView) bool {
		stays := func() bool { return a.cur != nil && (a.roster.flagged(p.Process) || restarters()[p.ID]) }
		return p.lease.Draining || p.lease.Leaving && !stays()
	}
}
