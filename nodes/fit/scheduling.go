package fit

import (
	"cmp"
	"fmt"
	"math"
	"slices"

	"github.com/muster-dev/muster/nodes"
)

const (
	// mostScored is how many nodes with room are compared for a pod. The scheduler compares all of 100 nodes, and of larger
	// clusters at least as many (percentageOfNodesToScore).
	mostScored = 100
	// mostFailed is after how many simulations without success a fleet refuses more, so that a decision about thousands of nodes stays
	// short.
	mostFailed = 200
)

// simulateScheduling places pods as the scheduler's default scoring does (NodeResourcesFit with LeastAllocated), and takes everything back. It
// returns "" if all find a place.
//
// Pods can fit in a packing that the scheduler never makes: it spreads small pods over nodes, and then no node has room for a big one. So
// the smallest come first here, the order that leaves least room.
func (fl *fleet) simulateScheduling(own int, leaving []nodes.Pod) string {
	if fl.failed >= mostFailed {
		return fmt.Sprintf("the scheduler would find no place for pods of %d others, so no more were looked at", fl.failed)
	}

	var classes []*class
	for _, p := range leaving {
		classes = append(classes, newClass(fl.known.byText[p.Scheduling], p))
	}
	slices.SortStableFunc(classes, func(a, b *class) int {
		switch {
		case a.virtual() == b.virtual():
			return cmp.Compare(a.size(), b.size())
		case a.virtual(): // headroom is what pods leave
			return 1
		}
		return -1
	})

	why := fl.try(own, classes, (*trial).schedule)
	if why != "" {
		fl.failed++
	}
	return why
}

// schedule places pods of a class one by one, each where most room is left.
func (t *trial) schedule(c *class) {
	for c.left > 0 {
		b := t.leastAllocated(c)
		if b == nil {
			return
		}
		t.put(c, b, 1)
	}
}

// leastAllocated returns the node of which a pod leaves the largest share free, nil if none takes it.
func (t *trial) leastAllocated(c *class) *bin {
	var best *bin
	most, scored := math.Inf(-1), 0
	leasts := t.fl.e.leasts(c.kind)
	for b := range t.bins(c) {
		if b.never(c) || !c.free() && t.fl.e.allows(c.kind, b, leasts) != "" {
			continue
		}
		if free := b.freeAfter(c); free > most {
			best, most = b, free
		}
		if scored++; scored == mostScored {
			break
		}
	}
	return best
}

// freeAfter is the share of a node's CPU and memory, on average, that is free beside one more pod.
func (b *bin) freeAfter(c *class) float64 {
	share := func(room, all int64) float64 {
		if all <= 0 {
			return 0
		}
		return float64(room) / float64(all)
	}
	return (share(b.room.MilliCPU-c.needs.MilliCPU, b.all.MilliCPU) + share(b.room.Memory-c.needs.Memory, b.all.Memory)) / 2
}
