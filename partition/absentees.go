package partition

import (
	"maps"
	"sync"
	"time"

	"github.com/muster-dev/muster/partition/event"
	"github.com/muster-dev/muster/partition/internal/record"
)

// absentees are the workers of the map that have no lease, and how the leader waits for those
// that will rejoin under their stable IDs: after a rolling update or a broker outage. Their
// slots wait, no key moves, and the map keeps its version. Only the claim beside the stable ID
// changes in the map, and with it the fence.
//
// A worker that receives SIGTERM can't know whether it is replaced, so the leader decides. If
// there are more workers than expected, it leaves, and its slots move first. Otherwise it
// restarts. The decision is in the map before the worker acts on it, so that the next leader
// continues from it: the leader may itself be among those that restart.
type absentees struct {
	*core
	roster *roster
	maps   *mapStore

	absent map[record.Process]absence
}

// absence describes a worker of the map that has no lease.
type absence struct {
	since time.Time
	until time.Time        // its slots wait that long for it to rejoin; zero: they don't
	lease record.Heartbeat // its last one
}

// reset forgets all absences.
func (a *absentees) reset() {
	*a = absentees{core: a.core, roster: a.roster, maps: a.maps, absent: make(map[record.Process]absence)}
}

// restarters returns the stopping workers that have slots and should be replaced, by ascending
// ID: as many as keep the group at its expected size.
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
			there-- // it has no slots, or has handed off all of them
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

// reserve marks restarting workers in the map, and reports whether it writes one. A worker with
// moving slots finishes these moves first.
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

// miss notes that a worker of the map has no lease. Its slots wait if it restarts, and also if
// the cause may be a broker outage, because then it comes back, too.
func (a *absentees) miss(w record.Process, lease record.Heartbeat, many bool) {
	away := absence{since: a.now, lease: lease}
	// A stopping worker restarts, too, if the group is too small without it. No map may say so: it
	// stops without a decision when nobody leads, and one that acts on the map is gone, perhaps,
	// before the leader hears that its map was written.
	replaced := lease.Leaving && a.roster.peers.staying() < a.expected()
	switch {
	case a.roster.flagged(w) || replaced:
		away.until = a.now.Add(a.cfg.Rebalance.RestartGrace)
	case a.lease.uncertain(a.now) || many:
		away.until = a.now.Add(a.cfg.Rebalance.RestartGrace)
		a.emit(event.Event{Kind: event.WorkerAwaited, Peer: w.ID, Claim: w.Claim, Duration: a.cfg.Rebalance.RestartGrace})
	}
	a.absent[w] = away
}

// missingAtSync notes which workers of the map have no lease when a leader begins. If they are
// many, a common cause is likely, such as a broker outage, and the leader waits for them.
func (a *absentees) missingAtSync() {
	if a.cur == nil {
		return
	}
	var gone []record.Process
	renewed := 0 // workers that are back under a new claim: the same cause may have ended them
	for _, w := range a.cur.Workers {
		switch p := a.roster.peers.get(w.ID); {
		case p == nil:
			gone = append(gone, w)
		case p.Process != w:
			renewed++
		}
	}
	// When nearly all workers are new the group starts as a whole, which takes longer.
	grace := a.cfg.Rebalance.RestartGrace
	if a.roster.coldStart() {
		grace = max(grace, a.cfg.Rebalance.ColdWindow)
	}
	for _, w := range gone {
		// Its lease ended while there was no leader, or before this one looked.
		a.emit(event.Event{Kind: event.WorkerGone, Peer: w.ID, Claim: w.Claim, Reason: reasonExpired})
		a.miss(w, record.Heartbeat{}, len(gone)+renewed > many(len(a.cur.Workers)))
		if away := a.absent[w]; !away.until.IsZero() {
			away.until = a.now.Add(grace)
			a.absent[w] = away
		}
	}
}

// awaited reports whether the slots of an absent worker still wait for it to rejoin. They don't
// once as many workers are live as are wanted.
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

// adopt puts workers that rejoined under a stable ID of the map into their predecessor's place,
// and reports whether it writes a map. A stable ID has one lease, so the predecessor's has ended,
// and it has stopped. Messages in flight to it are taken over as from a failed worker.
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
				// The slot was moving away: let it arrive.
				delete(next.Moves, s)
				next.Owner[s], next.Since[s] = mv.Next, mv.Version
			} else {
				// The slot may have moved to a worker that held it and failed before
				// any map showed that. The fence must be above that worker's, too.
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

// prune removes workers from the map that have left or drain, once all their slots have arrived
// elsewhere.
func (a *absentees) prune() {
	if a.cur == nil || !a.cur.Settled() || a.cur.Epoch != a.leaderLease.epoch {
		return
	}
	if a.roster.allThere() && a.roster.peers.count(markGoing) == 0 {
		return // nobody to remove: a live worker that doesn't drain stays
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

// staysInMap reports for each worker of the map whether it stays there: it has slots, is live
// and takes some, or is awaited.
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

// forget drops absences of workers that are no longer in the map.
func (a *absentees) forget() {
	maps.DeleteFunc(a.absent, func(w record.Process, _ absence) bool { return a.roster.index().index(w) == record.None })
}

// quits returns a function that reports whether a worker leaves permanently, or drains. The
// function computes the restarters once, for all workers that it is asked about.
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
