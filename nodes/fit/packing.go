package fit

import (
	"fmt"
	"strings"

	"github.com/muster-dev/muster/internal/quantity"
	"github.com/muster-dev/muster/nodes"
)

// Packing says where pending pods go.
type Packing struct {
	Pods     int // to be placed
	Existing int // of these placed on nodes that are there or coming
	Coming   int // of these placed on nodes that are coming
	New      []Group
	Unplaced []Unplaced
	Cost     float64 // of the new nodes, USD an hour
	// Bound is a lower bound of what any set of nodes of these types costs that runs the pods on the new nodes: nodes can't be
	// bought in fractions, so the true minimum lies between Bound and Cost.
	Bound float64
}

// Group is a number of new nodes alike.
type Group struct {
	Types []string // that hold the pods, cheapest first; a node of the first is what Price is about
	Zones []string // in one of which each has to be; nil: in any
	Price float64  // of one, USD an hour
	Count int
	Pods  []Portion // on each
}

// Portion is a number of pods alike on one node.
type Portion struct {
	Pod   string // name of the first of its class
	Count int
}

// Unplaced is a class of pods of which some could not be placed.
type Unplaced struct {
	Pod   nodes.Pod
	Count int
	Why   string
}

// String sums a packing up in a line.
func (p Packing) String() string {
	var parts []string
	if p.Existing > 0 {
		there := "that are there"
		if p.Coming > 0 {
			there += fmt.Sprintf(" or on their way (%d)", p.Coming)
		}
		parts = append(parts, fmt.Sprintf("%d fit nodes %s", p.Existing, there))
	}
	count, unplaced := 0, 0
	byType := map[string]int{}
	var order []string
	for _, g := range p.New {
		count += g.Count
		if byType[g.Types[0]] == 0 {
			order = append(order, g.Types[0])
		}
		byType[g.Types[0]] += g.Count
	}
	for _, u := range p.Unplaced {
		unplaced += u.Count
	}
	if count > 0 {
		for i, t := range order {
			order[i] = fmt.Sprintf("%d %s", byType[t], t)
		}
		parts = append(parts, fmt.Sprintf("%d on %s (%s, %.3f USD/h)", p.Pods-p.Existing-unplaced, quantity.Of(count, "new node"), strings.Join(order, ", "), p.Cost))
	}
	if unplaced > 0 {
		parts = append(parts, fmt.Sprintf("%d helped by no new node", unplaced))
	}
	if len(parts) == 0 {
		return "the Kubernetes API shows no pending pod"
	}
	return fmt.Sprintf("of %s %s", quantity.Of(p.Pods, "pod"), strings.Join(parts, ", "))
}
