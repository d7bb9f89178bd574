package partition

import (
	"cmp"
	"container/heap"
	"maps"
	"slices"
	"time"

	"github.com/muster-dev/muster/partition/internal/record"
)

// peerTable has the workers with a lease, by stable ID, as a leader sees them. In a group of W
// workers the leader looks at it after W/2 renewals a second, so what it asks then must not
// cost more with more workers. That is why the few workers of which something unusual is so are
// kept in sets. The zero value is an empty table.
type peerTable struct {
	byID   map[string]*peerView
	sorted []*peerView // by ascending ID; nil: to be sorted again
	marked [marks]map[string]*peerView
	silent silenceQueue
}

// mark is something unusual that can be so of a worker. At rest no worker has a mark.
type mark int

const (
	markGoing     mark = iota // leaves or drains
	markRefuses               // can't be given slots
	markOutdated              // can't read the maps that this worker writes
	markSuspect               // its connection seems gone
	markAnnounced             // has said that it leaves, or drains
	markUnproven              // its lease is being proven to be over
	marks
)

// isSo reports of each mark whether a worker has it.
var isSo = [marks]func(*peerView) bool{
	markGoing:     (*peerView).going,
	markRefuses:   func(p *peerView) bool { return !p.takesSlots() },
	markOutdated:  (*peerView).outdated,
	markSuspect:   func(p *peerView) bool { return !p.suspectAt.IsZero() },
	markAnnounced: func(p *peerView) bool { return !p.leavingAt.IsZero() },
	markUnproven:  func(p *peerView) bool { return p.unproven },
}

func (t *peerTable) len() int { return len(t.byID) }

// get returns the worker with a stable ID, under whatever claim; nil if there is none.
func (t *peerTable) get(id string) *peerView { return t.byID[id] }

// put enters a worker, in place of an earlier one with its ID.
func (t *peerTable) put(p *peerView) {
	if t.byID == nil {
		t.byID = make(map[string]*peerView)
	}
	t.remove(p.ID)
	t.byID[p.ID], t.sorted = p, nil
	t.note(p)
}

// remove removes the worker with a stable ID, if there is one.
func (t *peerTable) remove(id string) {
	p := t.byID[id]
	if p == nil {
		return
	}
	t.silent.ignore(p)
	delete(t.byID, id)
	t.sorted = nil
	for m := range t.marked {
		delete(t.marked[m], id)
	}
}

// note brings the marks of a worker up to date. It must follow every change of what they
// rest on, and of fencing: a lease that is being deleted can't get overdue.
func (t *peerTable) note(p *peerView) {
	for m, is := range isSo {
		switch set := t.marked[m]; {
		case !is(p):
			delete(set, p.ID)
		case set == nil:
			t.marked[m] = map[string]*peerView{p.ID: p}
		default:
			set[p.ID] = p
		}
	}
	if p.fencing || p.self {
		t.silent.ignore(p)
	} else {
		t.silent.watch(p)
	}
}

// count counts the workers that have a mark.
func (t *peerTable) count(m mark) int { return len(t.marked[m]) }

// with returns the workers that have a mark, by ascending ID.
func (t *peerTable) with(m mark) []*peerView { return peersByID(t.marked[m]) }

// all returns the workers by ascending ID. The slice must not be changed.
func (t *peerTable) all() []*peerView {
	if t.sorted == nil {
		t.sorted = peersByID(t.byID)
	}
	return t.sorted
}

// live returns a worker if it is there under this claim, nil if not.
func (t *peerTable) live(m record.Process) *peerView {
	if p := t.byID[m.ID]; p != nil && p.Process == m {
		return p
	}
	return nil
}

// staying counts the workers that neither leave nor drain.
func (t *peerTable) staying() int { return t.len() - t.count(markGoing) }

// takers counts the workers that can be given slots.
func (t *peerTable) takers() int { return t.len() - t.count(markRefuses) }

// peersByID returns workers by ascending ID.
func peersByID(of map[string]*peerView) []*peerView {
	if len(of) == 0 {
		return nil
	}
	return slices.SortedFunc(maps.Values(of), byStableID)
}

func byStableID(p, q *peerView) int { return compareIDs(p.ID, q.ID) }

// placement compares the workers that are there with those of one map. At rest all sets are
// empty. While a group starts, nearly every worker is joining, so nothing walks through those
// for each lease that comes.
type placement struct {
	known     bool // it was made at all
	index     mapIndex
	joining   map[string]*peerView // are there, and not in the map under this claim or an earlier one
	rejoining map[string]*peerView // are there, and in the map under an earlier claim
	missing   map[int32]bool       // by place in the map: are in it, and not there under their claim
}

// newPlacement compares them with the map of an index.
func newPlacement(index mapIndex, peers *peerTable) placement {
	l := placement{known: true, index: index, joining: make(map[string]*peerView), rejoining: make(map[string]*peerView), missing: make(map[int32]bool)}
	for _, i := range index.place {
		if peers.live(index.of.Workers[i]) == nil {
			l.missing[i] = true
		}
	}
	for _, p := range peers.byID {
		if index.index(p.Process) == record.None {
			l.unplaced(p)
		}
	}
	return l
}

// unplaced enters a worker that is not in the map under its claim.
func (l *placement) unplaced(p *peerView) {
	if l.index.predecessor(p.Process) == record.None {
		l.joining[p.ID] = p
	} else {
		l.rejoining[p.ID] = p
	}
}

// came: a worker is there.
func (l *placement) came(p *peerView) {
	if i := l.index.index(p.Process); i != record.None {
		delete(l.missing, i)
	} else {
		l.unplaced(p)
	}
}

// went: a worker isn't there any more.
func (l *placement) went(p *peerView) {
	delete(l.joining, p.ID)
	delete(l.rejoining, p.ID)
	if i := l.index.index(p.Process); i != record.None {
		l.missing[i] = true
	}
}

// silenceQueue finds the worker whose renewal was seen the longest time ago. Renewals are far
// more frequent than leases that end, so a renewal doesn't move a worker in the heap: its
// place there is by a time that was right once, seenAt never goes back, and earliest puts
// right what comes to the top.
type silenceQueue []*peerView

// watch adds a worker, unless it is in the queue.
func (q *silenceQueue) watch(p *peerView) {
	if p.place == 0 {
		p.queuedAt = p.seenAt
		heap.Push(q, p)
	}
}

// ignore removes a worker.
func (q *silenceQueue) ignore(p *peerView) {
	if p.place != 0 {
		heap.Remove(q, p.place-1)
	}
}

// earliest returns the worker that was not seen for the longest time, nil if there is none.
func (q *silenceQueue) earliest() *peerView {
	for len(*q) > 0 {
		p := (*q)[0]
		if p.queuedAt.Equal(p.seenAt) {
			return p
		}
		p.queuedAt = p.seenAt
		heap.Fix(q, 0)
	}
	return nil
}

// take removes and returns the workers that were not seen since a time for which over is
// true, by ascending ID.
func (q *silenceQueue) take(over func(seen time.Time) bool) []*peerView {
	var out []*peerView
	for p := q.earliest(); p != nil && over(p.seenAt); p = q.earliest() {
		q.ignore(p)
		out = append(out, p)
	}
	slices.SortFunc(out, byStableID)
	return out
}

// Len implements heap.Interface.
func (q silenceQueue) Len() int { return len(q) }

// Less implements heap.Interface.
func (q silenceQueue) Less(i, j int) bool {
	if c := q[i].queuedAt.Compare(q[j].queuedAt); c != 0 {
		return c < 0
	}
	return cmp.Less(q[i].ID, q[j].ID)
}

// Swap implements heap.Interface.
func (q silenceQueue) Swap(i, j int) {
	q[i], q[j] = q[j], q[i]
	q[i].place, q[j].place = i+1, j+1
}

// Push implements heap.Interface.
func (q *silenceQueue) Push(x any) {
	p := x.(*peerView)
	*q = append(*q, p)
	p.place = len(*q)
}

// Pop implements heap.Interface.
func (q *silenceQueue) Pop() any {
	last := len(*q) - 1
	p := (*q)[last]
	*q, p.place = (*q)[:last], 0
	return p
}
