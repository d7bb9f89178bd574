package partition

import (
	"fmt"

	"github.com/muster-dev/muster/partition/internal/record"
	"github.com/muster-dev/muster/partition/plan"
)

// This file holds what a leader does with workers of an earlier version, which can't
// read its map, while a rolling update replaces them. Such a worker continues with the
// slots that it has, and never hears of others. So it keeps those and gets none: a slot
// that it were given would be processed by nobody until it ends.

func outdatedNote(worker string) string {
	return fmt.Sprintf("%s is of an earlier version, which can't read this map (schema %d): it keeps its slots and gets no others; replace it", worker, record.MapSchema)
}

// keepSlots takes the load of the slots whose owners keep them out of a problem, and
// tells which slots those are.
func keepSlots(p *plan.Problem, keeps []bool, kept func(slot int, owner int32)) {
	var weights []uint64
	for s, o := range p.Owners {
		if o < 0 || !keeps[o] {
			continue
		}
		if weights == nil {
			weights = weightsOf(p)
		}
		weights[s] = 0
		kept(s, o)
	}
	if weights != nil {
		p.Weights = weights
	}
}

// weightsOf returns a copy of the weights of a problem's slots.
func weightsOf(p *plan.Problem) []uint64 {
	out := make([]uint64, p.Slots)
	for s := range out {
		out[s] = weightOf(p.Weights, s)
	}
	return out
}
