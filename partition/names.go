package partition

import (
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/muster-dev/muster/partition/internal/record"
	"github.com/muster-dev/muster/partition/internal/xxh64"
)

// nameTable is what a worker that looks for a stable ID knows of the names. The lists
// may come from a replica that is behind: a name that seems to be free is read before it
// is believed to be.
type nameTable struct {
	// taken are the names that are held, by the last list.
	taken map[string]bool
	// confirmed are those of them that were read since, and are held indeed.
	confirmed map[string]bool
	// released are names whose end a watch has told, and which were not read since.
	released map[string]bool
	// unleased are the names that no worker has a lease under, and since when. A worker
	// that has just claimed its name has no lease yet, either.
	unleased map[string]time.Time
	// leasesListed: unleased is of the same moment as taken, leasesAt.
	leasesListed bool
	leasesAt     time.Time
}

// list takes in a list of the names that are held.
func (t *nameTable) list(names []string) {
	t.taken, t.confirmed, t.leasesListed = make(map[string]bool, len(names)), make(map[string]bool), false
	for _, name := range names {
		t.taken[name] = true
	}
}

// listLeases takes in a list of the names that workers have leases under.
func (t *nameTable) listLeases(names []string, now time.Time) {
	unleased := make(map[string]time.Time)
	for name := range t.taken {
		if slices.Contains(names, name) {
			continue
		}
		unleased[name] = now
		if since, before := t.unleased[name]; before {
			unleased[name] = since
		}
	}
	t.unleased, t.leasesListed, t.leasesAt = unleased, true, now
}

// takenBefore notes that another worker was faster to claim a name. It has no lease yet, or one that
// the last list doesn't have.
func (t *nameTable) takenBefore(name string) {
	t.taken[name] = true
	delete(t.unleased, name)
}

// abandoned reports whether a name is held, and was without a lease for so long, when the leases
// were listed, that its holder must be dead. What has passed since says nothing: meanwhile
// another worker may have taken the name.
func (t *nameTable) abandoned(name string, after func(name string) time.Duration) bool {
	since, unleased := t.unleased[name]
	return unleased && t.leasesListed && t.taken[name] && t.leasesAt.Sub(since) >= after(name)
}

// live counts the names whose holders are not dead.
func (t *nameTable) live(after func(name string) time.Duration) int {
	n := len(t.taken)
	for name := range t.unleased {
		if t.abandoned(name, after) {
			n--
		}
	}
	return n
}

// unsure returns the lowest name that is held by the list but seems to be free, "" if
// there is none.
func (t *nameTable) unsure(after func(name string) time.Duration) string {
	for _, name := range slices.SortedFunc(maps.Keys(t.taken), compareIDs) {
		seemsFree := t.released[name] || t.abandoned(name, after)
		if seemsFree && !t.confirmed[name] {
			return name
		}
	}
	return ""
}

// read takes in whether a name that was read is held.
func (t *nameTable) read(name string, held bool) {
	if !held {
		delete(t.taken, name)
		return
	}
	t.confirmed[name] = true
	delete(t.released, name)
}

// claimed forgets what was noted for the search that has ended with a name.
func (t *nameTable) claimed() {
	t.unleased = nil
	clear(t.released)
}

// lowestFree returns the first of the names 0 to limit-1 that is not held, "" if all are.
func (t *nameTable) lowestFree(name func(int) string, limit int) string {
	for n := range limit {
		if id := name(n); !t.taken[id] {
			return id
		}
	}
	return ""
}

// probes is how many names a worker tries at random before it looks at all of them.
const probes = 16

// anyFree returns one of the names 0 to limit-1 that is not held, "" if all are. Which one it
// is depends on the worker and on its attempt, and looks random.
func (t *nameTable) anyFree(name func(int) string, limit int, worker string, attempt uint64) string {
	// Usually many are free, and trying a few at random finds one without a look at each.
	for try := range probes {
		n := int(xxh64.Sum(fmt.Appendf(nil, "%s %d %d", worker, attempt, try)) % uint64(limit))
		if id := name(n); !t.taken[id] {
			return id
		}
	}

	var free []string
	for n := range limit {
		if id := name(n); !t.taken[id] {
			free = append(free, id)
		}
	}
	if len(free) == 0 {
		return ""
	}
	h := xxh64.Sum(fmt.Appendf(nil, "%s %d", worker, attempt))
	return free[h%uint64(len(free))]
}

// vacancy returns a name that has slots by the map and that nobody holds, "" if
// there is none: of a worker that restarts, or else of one that is missed. A
// worker that takes it moves no slot; a lower name that is free, left by a scale-down, would.
func (t *nameTable) vacancy(cur *record.Assignment) string {
	if cur == nil {
		return ""
	}
	best, restarts := "", false
	counts := cur.Counts()
	for i, w := range cur.Workers {
		r := cur.Restarting[i]
		switch {
		case t.taken[w.ID], counts[w.ID] == 0, restarts && !r:
		case best == "", r && !restarts, compareIDs(w.ID, best) < 0:
			best, restarts = w.ID, r
		}
	}
	return best
}
