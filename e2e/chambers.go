package e2e

import (
	"maps"
	"slices"

	"github.com/muster-dev/muster/defender"
	"github.com/muster-dev/muster/partition"
)

// chambers are those of a stack. Each is known by its place among them.
type chambers []defender.Chamber

// bySlot returns the chambers of each of n slots that has any.
func (c chambers) bySlot(n int) map[int][]int {
	m := map[int][]int{}
	for i, ch := range c {
		slot := partition.SlotOf(n, ch.Tool, ch.Name)
		m[slot] = append(m[slot], i)
	}
	return m
}

// oneOfEach returns a chamber of each of n slots that has any.
func (c chambers) oneOfEach(n int) []int {
	bySlot := c.bySlot(n)
	var out []int
	for _, slot := range slices.Sorted(maps.Keys(bySlot)) {
		out = append(out, bySlot[slot][0])
	}
	return out
}

// slotsOf returns the slots with chambers of a worker.
func (c chambers) slotsOf(a *partition.Assignment, id string) []int {
	var slots []int
	bySlot := c.bySlot(a.Slots)
	for slot := range a.Owner {
		if a.OwnerOf(slot) == id && len(bySlot[slot]) > 0 {
			slots = append(slots, slot)
		}
	}
	return slots
}

// counts returns the number of chambers of each worker of a map.
func (c chambers) counts(a *partition.Assignment) []int {
	byID := map[string]int{}
	for _, w := range a.Workers {
		byID[w.ID] = 0
	}
	for slot, all := range c.bySlot(a.Slots) {
		byID[a.OwnerOf(slot)] += len(all)
	}
	var counts []int
	for _, n := range byID {
		counts = append(counts, n)
	}
	return counts
}

// covered returns how many chambers have an owner; -1 if a slot has none.
func (c chambers) covered(a *partition.Assignment) int {
	covered := 0
	for _, n := range c.counts(a) {
		covered += n
	}
	for slot := range a.Owner {
		if a.OwnerOf(slot) == "" {
			covered = -1
		}
	}
	return covered
}
