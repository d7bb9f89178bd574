package partition

import (
	"errors"
	"time"

	"github.com/muster-dev/muster/partition/event"
	"github.com/muster-dev/muster/partition/internal/record"
)

// mapStore reads and writes the map for the leader. A leader's authority is its epoch: it
// first writes the map again with its own epoch, so that a former leader's next write,
// which expects the revision before, fails.
//
// It also puts back a map that was deleted, overwritten by something else, or lost with
// its bucket: the newest one that the bucket's history or this worker has.
type mapStore struct {
	*core
	up mapUser

	writer mapWriter
	// ready: the map has this leader's epoch.
	ready bool
	// rereadAt is when to read the map again; zero: there is no need.
	rereadAt time.Time
	// restoring: the map's history is being read.
	restoring bool
	// backRev is the revision of a map that was read once, below the newest one seen;
	// 0: none.
	backRev uint64
	// running is the version whose handoffs are not all finished; 0: none.
	running uint64
}

// mapUser is told what becomes of the map.
type mapUser interface {
	// seeMap takes a newer map in.
	seeMap(a *record.Assignment, rev uint64)
	// mapTaken: the map has this leader's epoch, for the first time.
	mapTaken()
	// mapWritten: a newer map is in the bucket.
	mapWritten()
	// slotsDue takes the slots that the map says are to be taken.
	slotsDue()
	// mapChanged: it may be time to plan.
	mapChanged()
	// resign: somebody else is to lead.
	resign()
}

// reset begins with nothing under way.
func (s *mapStore) reset() { *s = mapStore{core: s.core, up: s.up} }

// read reads the map, since what the bucket holds is not known.
func (s *mapStore) read() {
	s.rereadAt = time.Time{}
	s.kv(kvEffect{purpose: forMapRead, op: opGet, bucket: s.cfg.bucketMap(), key: record.AssignmentKey})
}

// wasRead continues from a read of the map: after an election, or after a write
// whose outcome was unknown or refused.
func (s *mapStore) wasRead(in kvInput) {
	if !s.leaderLease.held {
		return
	}
	var a *record.Assignment
	switch {
	case errors.Is(in.err, errNotFound) && s.cur != nil:
		s.readHistory() // deleted, not by a worker
		return
	case errors.Is(in.err, errNotFound):
		// There was no map yet, only what is none, and the bucket has been lost with it.
		s.curRev, s.bad.rev = 0, 0
	case in.err != nil:
		s.rereadAt = s.now.Add(retryInterval)
		return
	default:
		var err error
		if a, err = record.DecodeAssignment(in.gotValue); err != nil {
			s.seeMalformed(in.gotRev, err)
		} else {
			s.up.seeMap(a, in.gotRev)
		}
		if !s.leaderLease.held {
			return // a later epoch wrote it
		}
		if s.bad.rev == in.gotRev && s.mapHidden() {
			s.rereadAt = s.now.Add(25 * retryInterval)
			return
		}
		if s.wentBack(in.gotRev) {
			return
		}
	}
	if s.cur != nil && s.cur.Epoch > s.leaderLease.epoch {
		s.up.resign() // revisions have gone back, and with them the epochs: the next one is higher
		return
	}
	if s.cur != nil {
		a = s.cur // a replica that lags may have answered
	}
	if a != nil && a.Epoch != s.leaderLease.epoch {
		next := a.Clone()
		next.Epoch, next.Leader = s.leaderLease.epoch, s.self
		s.write(next, nil)
		return
	}
	s.taken()
}

// taken: the map has this leader's epoch. Nothing that a former leader still writes can
// replace it.
func (s *mapStore) taken() {
	if s.ready {
		s.afterWrite()
		return
	}
	s.ready = true
	s.up.mapTaken()
}

// write writes the map that follows the newest one, and reports events when it is there.
func (s *mapStore) write(next *record.Assignment, events []event.Event) {
	s.writeAt(next, events, s.curRev)
}

// writeAt writes a map over a revision of what is there, 0 for nothing.
func (s *mapStore) writeAt(next *record.Assignment, events []event.Event, rev uint64) {
	s.writer.writing = &mapWrite{next: next, events: events}
	e := kvEffect{purpose: forMapWrite, op: opUpdate, bucket: s.cfg.bucketMap(), key: record.AssignmentKey, value: next.Encode(), rev: rev}
	if rev == 0 {
		e.op = opCreate
	}
	s.kv(e)
}

// written takes the outcome of a write.
func (s *mapStore) written(in kvInput) {
	w := s.writer.writing
	if !s.leaderLease.held || w == nil {
		return
	}
	if in.err != nil {
		// Refused or unknown: whatever the bucket holds now decides.
		s.writer.failed()
		s.read()
		return
	}
	for _, e := range w.events {
		s.emit(e)
		if e.Kind == event.MapPublished {
			s.running = e.Version
		}
	}
	s.up.seeMap(w.next, in.gotRev)
	s.writer.done(in.gotRev)
	if !s.leaderLease.held {
		return
	}
	s.writer.dropStale(s.curRev)
	s.up.mapWritten()
	if !s.ready {
		s.taken()
		return
	}
	s.afterWrite()
}

// afterWrite continues with what waited for the newest map.
func (s *mapStore) afterWrite() {
	s.up.slotsDue()
	if s.running != 0 && s.cur != nil && s.cur.Version == s.running && s.cur.Settled() && s.writer.pending == nil {
		s.emit(event.Event{Kind: event.Rebalanced, Version: s.running, Count: s.cur.Moved, Duration: s.now.Sub(s.cur.Planned)})
		s.running = 0
	}
	s.up.mapChanged()
}

// seen: the watch may show our own write before its reply is here.
func (s *mapStore) seen() {
	if !s.leaderLease.held {
		return
	}
	s.writer.dropStale(s.curRev)
	s.up.slotsDue()
}

// pending returns the map that finished handoffs and takeovers are entered in.
func (s *mapStore) pending() *record.Assignment {
	a, first := s.writer.change(s.cur, s.curRev, s.now)
	if first {
		a.Epoch, a.Leader = s.leaderLease.epoch, s.self
	}
	return a
}

// latest is the map as it will be when everything on its way is written.
func (s *mapStore) latest() *record.Assignment { return s.writer.latest(s.cur) }

// flush writes the pending changes, if nothing speaks against it.
func (s *mapStore) flush() {
	if s.writer.pending == nil || s.writer.busy() || !s.mayAct() || s.mapHidden() {
		return
	}
	s.write(s.writer.take(), nil)
}

// afterLoss returns the map to write where nothing is left of any. The leader that wrote
// the last one knows it. Another may have missed some: then a slot may be with a worker
// that its map does not name, and so it takes all of them, with fences above every one
// that was given.
func (s *mapStore) afterLoss() *record.Assignment {
	next := s.cur.Clone()
	wrote := s.cur.Leader == s.self
	next.Epoch, next.Leader = s.leaderLease.epoch, s.self
	if wrote {
		next.Version++
		return next
	}
	next.Version = max(next.Version+1, s.leaderLease.epoch) // which counts writes: above all that there were
	next.Moves = make(map[int]record.Move)
	takeAll(next)
	return next
}

// seeMalformed: the map that is in the bucket is not valid. What everybody has
// stays in force; the leader puts it back.
func (s *mapStore) seeMalformed(rev uint64, err error) {
	if rev <= s.curRev || rev <= s.bad.rev {
		return
	}
	s.bad = badMap{rev: rev, seen: s.now, newer: errors.Is(err, record.ErrNewerSchema)}
	s.refuse(recordMap, rev, err)
	s.restore()
}

// restore looks for the last map that is valid, if the leader may put
// it back. One of a newer version may be another leader's. It is not if it came
// while this worker led and its lease was renewed after that: a later
// leader would have written the lease first.
func (s *mapStore) restore() {
	if !s.mayAct() || s.writer.busy() || s.restoring || !s.mapHidden() || s.now.Before(s.bad.again) {
		return
	}
	if s.bad.newer && (s.bad.rev < s.leaderLease.epoch || !s.leaderLease.start.After(s.bad.seen)) {
		return
	}
	s.readHistory()
}

// readHistory reads what the bucket had before.
func (s *mapStore) readHistory() {
	if s.restoring {
		return
	}
	s.restoring = true
	s.kv(kvEffect{purpose: forMapHistory, op: opHistory, bucket: s.cfg.bucketMap(), key: record.AssignmentKey})
}

// restoreLater has the map and its history read again after a while.
func (s *mapStore) restoreLater(after time.Duration) {
	s.rereadAt = s.now.Add(after)
	s.bad.again = s.rereadAt
}

// seeHistory takes in the maps of the history that are newer than this worker's. It
// returns the last revision, and whether no other map can have come between.
func (s *mapStore) seeHistory(history []kvVersion) (last uint64, covered bool) {
	covered = len(history) < mapHistoryDepth
	for _, v := range history {
		last = v.rev
		covered = covered || v.rev <= s.curRev
		if v.deleted || v.rev <= s.curRev {
			continue
		}
		if a, err := record.DecodeAssignment(v.value); err == nil && a.CheckOrder(v.rev, s.cur, s.now) == nil {
			s.up.seeMap(a, v.rev)
		}
	}
	return last, covered
}

// neverHeld reports whether a bucket has had no map at all, although this worker has one: it was
// made again, and somebody has written to the map's key before a leader put a map back. The
// lost bucket may have had newer maps than this worker's.
func (s *mapStore) neverHeld(history []kvVersion) bool {
	if len(history) == 0 || len(history) >= mapHistoryDepth || history[0].deleted {
		return false // a purge, too, leaves nothing but its marker
	}
	return history[0].rev > s.curRev
}

// historyRead writes the newest map that is valid over what is there now.
func (s *mapStore) historyRead(in kvInput) {
	if !s.leaderLease.held {
		return
	}
	s.restoring = false
	if in.err != nil {
		s.restoreLater(retryInterval)
		return
	}
	last, covered := s.seeHistory(in.history)
	switch {
	case !s.leaderLease.held || s.writer.busy():
	case last != 0 && last == s.curRev, last > s.bad.rev && s.mapHidden():
		s.read() // somebody has written meanwhile
	case s.cur == nil && covered && len(in.history) > 0:
		s.curRev = last // there never was one: begin
		s.taken()
	case s.cur == nil || !covered && s.cur.Epoch != s.leaderLease.epoch:
		s.cfg.Logger.Error("The leader finds no assignment map that it can read and changes nothing. Restore one from a backup, or delete the key to start without one.", "revision", last)
		s.restoreLater(25 * retryInterval)
	case last == 0 && len(in.history) == 0:
		s.writeAt(s.afterLoss(), nil, 0)
	case s.neverHeld(in.history):
		s.writeAt(s.afterLoss(), nil, last)
	default:
		next := s.cur.Clone()
		next.Epoch, next.Leader = s.leaderLease.epoch, s.self
		s.writeAt(next, nil, last)
	}
}

// wentBack handles a map that the leader of the bucket's stream has at a lower
// revision than one that was seen, after the bucket's revisions have passed that one, so
// that the keeper sees nothing. It is written over when it is read a second time. That
// expects the revision that was read, so it does nothing if a newer map is there after
// all.
func (s *mapStore) wentBack(rev uint64) (handled bool) {
	if rev >= s.curRev || s.cur == nil {
		s.backRev = 0
		return false
	}
	if s.backRev != rev {
		s.backRev, s.rereadAt = rev, s.now.Add(retryInterval)
		return true
	}
	s.backRev = 0
	s.writeAt(s.afterLoss(), nil, rev)
	return true
}
