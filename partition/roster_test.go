package partition

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/muster-dev/muster/partition/internal/record"
)

func TestRoster(t *testing.T) {
	t.Parallel()
	peer := func(id string, claim uint64, lease record.Heartbeat) *peerView {
		lease.ID, lease.MapSchema = id, record.MapSchema
		return &peerView{Process: record.Process{ID: id, Claim: claim}, lease: lease}
	}
	var r peerTable
	r.put(peer("w-10", 1, record.Heartbeat{}))
	r.put(peer("w-9", 2, record.Heartbeat{Leaving: true}))
	r.put(peer("w-2", 3, record.Heartbeat{Draining: true}))
	r.put(peer("w-3", 4, record.Heartbeat{}))
	r.get("w-3").lease.MapSchema = 0
	r.get("w-10").suspectAt = time.Unix(1000, 0)
	r.note(r.get("w-3"))
	r.note(r.get("w-10"))

	var order string
	for _, p := range r.all() {
		order += p.ID + " "
	}
	if order != "w-2 w-3 w-9 w-10 " {
		t.Errorf("the order is %s", order)
	}
	if r.live(record.Process{ID: "w-9", Claim: 1}) != nil || r.live(record.Process{ID: "w-9", Claim: 2}) == nil || r.live(record.Process{ID: "w-1", Claim: 1}) != nil {
		t.Error("want a worker found under its claim only")
	}
	if got := r.staying(); got != 2 {
		t.Errorf("%d stay, want 2: w-3 and w-10", got)
	}
	if got := r.takers(); got != 1 {
		t.Errorf("%d take slots, want 1: w-3 can't read the map", got)
	}
	if got := r.count(markSuspect); got != 1 {
		t.Errorf("%d are suspected, want 1", got)
	}
}

// checkRoster compares what a roster counts along with what a walk through all workers and
// slots finds.
func checkRoster(r *roster) error {
	t := &r.peers
	for m, is := range isSo {
		n := 0
		for id, p := range t.byID {
			if _, has := t.marked[m][id]; has != is(p) {
				return fmt.Errorf("%s has mark %d: %v, want %v", id, m, has, is(p))
			}
			if is(p) {
				n++
			}
		}
		if n != len(t.marked[m]) {
			return fmt.Errorf("%d workers have mark %d, want %d", len(t.marked[m]), m, n)
		}
	}

	var earliest time.Time
	for id, p := range t.byID {
		if watched := !p.fencing && p.Process != r.self; watched != (p.place > 0) {
			return fmt.Errorf("%s is watched: %v, want %v", id, p.place > 0, watched)
		} else if watched && (earliest.IsZero() || p.seenAt.Before(earliest)) {
			earliest = p.seenAt
		}
	}
	if p := t.silent.earliest(); p != nil && !p.seenAt.Equal(earliest) || p == nil && !earliest.IsZero() {
		return fmt.Errorf("the longest silence began at another time than %v", earliest)
	}
	if len(t.byID) == 0 {
		return nil
	}
	return checkPlacement(r)
}

// checkPlacement does so for the placement, and for the index of the map.
func checkPlacement(r *roster) error {
	a, placed := r.cur, r.placement()
	if a == nil {
		a = &record.Assignment{}
	}
	for id, p := range r.peers.byID {
		predecessor := a.Predecessor(p.Process)
		joins, rejoins := a.Index(p.Process) == record.None && predecessor == record.None, predecessor != record.None
		if _, is := placed.joining[id]; is != joins {
			return fmt.Errorf("%s joins: %v, want %v", id, is, joins)
		}
		if _, is := placed.rejoining[id]; is != rejoins {
			return fmt.Errorf("%s rejoins: %v, want %v", id, is, rejoins)
		}
		if got, want := placed.index.predecessor(p.Process), a.Predecessor(p.Process); got != want {
			return fmt.Errorf("%s rejoins in place %d, want %d", id, got, want)
		}
	}
	missing := 0
	for i, w := range a.Workers {
		gone := r.peers.live(w) == nil
		if gone {
			missing++
		}
		if placed.missing[int32(i)] != gone || placed.index.index(w) != int32(i) {
			return fmt.Errorf("%s is missing: %v, want %v, in place %d, want %d", w.ID, !gone, gone, placed.index.index(w), i)
		}
	}
	if missing != len(placed.missing) {
		return fmt.Errorf("%d workers of the map are missing, want %d", len(placed.missing), missing)
	}
	return nil
}

// TestLeaderRenewal: at rest a renewal costs the leader the same whatever the size of the
// group. There is no set left of which it walks through the members, and it allocates as much
// memory, which a copy or a sorting of the workers would not.
func TestLeaderRenewal(t *testing.T) {
	allocated := func(workers int) float64 {
		m := leaderOf(t, workers)
		r := &m.lead.roster
		for mark := range r.peers.marked {
			if n := len(r.peers.marked[mark]); n > 0 {
				t.Errorf("%d workers: %d have mark %d at rest", workers, n, mark)
			}
		}
		if n := len(r.placement().joining) + len(r.placement().rejoining) + len(r.placement().missing); n > 0 {
			t.Errorf("%d workers: %d are looked at by each renewal", workers, n)
		}

		in, rev := renewalOf(m, 7, 0), uint64(workers)
		return testing.AllocsPerRun(100, func() {
			rev++
			in.rev = rev
			m.step(m.now, in)
			m.wake()
		})
	}
	if few, many := allocated(100), allocated(2000); few != many {
		t.Errorf("a renewal makes %v allocations among 100 workers and %v among 2,000", few, many)
	}
}

// TestRosterCounts: workers come, go and change, and so does the map, and the roster counts
// the same as a walk through all of them.
func TestRosterCounts(t *testing.T) {
	t.Parallel()
	rng := rand.New(rand.NewPCG(1, 7))
	m := leaderOf(t, 12)
	r := &m.lead.roster
	for step := range 2000 {
		m.now = m.now.Add(time.Duration(rng.IntN(3)) * time.Second)
		changeRoster(rng, m)
		if err := checkRoster(r); err != nil {
			t.Fatalf("step %d: %v", step, err)
		}
	}
}

// changeRoster makes one change at random.
func changeRoster(rng *rand.Rand, m *machine) {
	r := &m.lead.roster
	id := fmt.Sprintf("sim-%d", rng.IntN(16))
	p := r.peers.get(id)
	switch change := rng.IntN(6); {
	case change == 0:
		a := m.cur.Clone()
		i := rng.IntN(len(a.Workers))
		a.Workers[i].Claim += uint64(rng.IntN(2))
		a.Owner[rng.IntN(len(a.Owner))] = int32(i)
		m.cur = a
	case change == 1 || p == nil:
		r.enter(&peerView{Process: record.Process{ID: id, Claim: 1 + uint64(rng.IntN(20))}, seenAt: m.now})
	case change == 2:
		r.drop(p)
	case change == 3:
		p.seenAt = m.now // a renewal: nothing to note
	default:
		p.lease = record.Heartbeat{ID: id, Leaving: rng.IntN(4) == 0, Draining: rng.IntN(4) == 0, MapSchema: record.MapSchema - rng.IntN(2)}
		p.fencing, p.unproven = rng.IntN(3) == 0, rng.IntN(3) == 0
		p.suspectAt, p.leavingAt = time.Time{}, time.Time{}
		if rng.IntN(2) == 0 {
			p.suspectAt, p.leavingAt = m.now, m.now
		}
		r.peers.note(p)
	}
}
