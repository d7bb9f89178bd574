package plan

import (
	"cmp"
	"errors"
	"fmt"
	"math"
	"slices"
)

// Values of [Problem.Owners] and [Plan.Owners] that are not an index.
const (
	// None marks a slot that nobody owns.
	None int32 = -1
	// Gone marks a slot whose previous owner is not among the workers any
	// more. It is planned like None; only the reason of its move differs.
	Gone int32 = -2
)

// Worker is a live member that slots can be assigned to.
type Worker struct {
	// ID names the worker. It must be unique and not empty. Ties are broken
	// by it, so a plan does not depend on the order of Problem.Workers.
	ID string
	// Weight is the capacity relative to the other workers: one of weight 2
	// gets twice the load of one of weight 1. Zero means 1. It must be
	// finite and not negative.
	Weight float64
	// Zone is the failure domain, or empty. It decides only between workers
	// that are otherwise equal: what is left over after an even split goes
	// round the zones, not to the first zone.
	Zone string
	// Draining workers give everything away and take nothing, not even a
	// overridden slot. While nobody else can take it, they keep what they have.
	Draining bool
}

// Override holds a slot on a worker, whatever the balance.
type Override struct {
	Slot   int    // 0 <= Slot < Problem.Slots
	Worker string // ID; an override to an absent or draining worker is ignored with a note
}

// Problem is all that a plan depends on. The zero Problem is valid: no slots,
// nobody to own them.
type Problem struct {
	// Slots is the number of slots, 0 to math.MaxInt32.
	Slots int
	// Weights is the load of each slot, in any unit: keys, messages, cost.
	// Nil means that every slot weighs 1. Zeros are legal. The sum must not
	// exceed 1<<60.
	Weights []uint64
	// Workers are the live workers, in any order.
	Workers []Worker
	// Owners is the previous owner of each slot as an index into Workers, or
	// None, or Gone. Nil means that nobody owned anything.
	Owners []int32
	// Overrides are honoured before anything is balanced.
	Overrides []Override
	// Budget is the most slots that may move only to tune weights, beyond
	// those that joins, leaves and crashes require; below 0 there is no
	// limit. After a crash 0 is best: the orphans move at once and alone, and a
	// later plan tunes. It has no effect on slots of equal weight, which need
	// no tuning.
	Budget int
	// TuneOnly says that nothing but the weights has changed: no worker counts
	// as a joining worker, and every move that nothing forces counts against Budget.
	// Without it Budget does not limit what workers get that lack load.
	TuneOnly bool
}

// FieldError is one fault of a [Problem].
type FieldError struct {
	Field string // for example "Workers[3].ID"
	Fault string // what is wrong with it, in words
}

// Error returns "plan: field: fault".
func (e *FieldError) Error() string { return "plan: " + e.Field + ": " + e.Fault }

// maxTotal leaves room to double and to add loads.
const maxTotal = 1 << 60

// maxFaults is how many faults of one list are spelt out. A million slots with
// a wrong owner have one cause, not a million.
const maxFaults = 8

// Validate reports every fault of p at once, joined by [errors.Join], each a
// *[FieldError]; for a long list of alike faults it spells out the first few
// and counts the rest. Strategies call it: calling it first is not needed.
func (p Problem) Validate() error {
	_, err := p.validate()
	return err
}

// validate also returns the indexes of the workers in order of their IDs, which
// costs a sort that planning needs as well.
func (p *Problem) validate() ([]int32, error) {
	var errs []error
	add := func(field, format string, args ...any) {
		errs = append(errs, &FieldError{Field: field, Fault: fmt.Sprintf(format, args...)})
	}
	if p.Slots < 0 || p.Slots > math.MaxInt32 {
		add("Slots", "%d is outside 0 to %d", p.Slots, math.MaxInt32)
	}
	if len(p.Workers) > math.MaxInt32 {
		add("Workers", "%d are more than %d", len(p.Workers), math.MaxInt32)
		return nil, errors.Join(errs...)
	}
	p.validateWeights(add)
	byID := p.validateWorkers(add)
	p.validateOwners(add)
	p.validateOverrides(add)
	return byID, errors.Join(errs...)
}

type addFault func(field, format string, args ...any)

func (p *Problem) validateWeights(add addFault) {
	if p.Weights == nil {
		return
	}
	if len(p.Weights) != p.Slots {
		add("Weights", "has %d entries for %d slots", len(p.Weights), p.Slots)
	}
	var sum uint64
	for i, w := range p.Weights {
		if w > maxTotal-sum {
			add("Weights", "the sum overflows at slot %d: it must not exceed %d", i, uint64(maxTotal))
			return
		}
		sum += w
	}
}

func (p *Problem) validateWorkers(add addFault) []int32 {
	byID := make([]int32, len(p.Workers))
	faults := counter{field: "Workers", add: add}
	for i := range p.Workers {
		w := &p.Workers[i]
		byID[i] = int32(i)
		if w.ID == "" {
			faults.add1(fmt.Sprintf("Workers[%d].ID", i), "is empty")
		}
		if w.Weight < 0 || math.IsNaN(w.Weight) || math.IsInf(w.Weight, 0) {
			faults.add1(fmt.Sprintf("Workers[%d].Weight", i), "%v is not a finite number of at least 0", w.Weight)
		}
	}
	slices.SortFunc(byID, func(a, b int32) int {
		if c := cmp.Compare(p.Workers[a].ID, p.Workers[b].ID); c != 0 {
			return c
		}
		return cmp.Compare(a, b)
	})
	for k := 1; k < len(byID); k++ {
		a, b := byID[k-1], byID[k]
		if id := p.Workers[b].ID; id != "" && id == p.Workers[a].ID {
			faults.add1(fmt.Sprintf("Workers[%d].ID", b), "%q is taken by Workers[%d]", id, a)
		}
	}
	faults.close()
	return byID
}

func (p *Problem) validateOwners(add addFault) {
	if p.Owners == nil {
		return
	}
	if len(p.Owners) != p.Slots {
		add("Owners", "has %d entries for %d slots", len(p.Owners), p.Slots)
	}
	faults := counter{field: "Owners", add: add}
	for s, o := range p.Owners {
		if o < Gone || int(o) >= len(p.Workers) {
			faults.add1(fmt.Sprintf("Owners[%d]", s), "%d is no index into %d workers", o, len(p.Workers))
		}
	}
	faults.close()
}

func (p *Problem) validateOverrides(add addFault) {
	if len(p.Overrides) == 0 {
		return
	}
	faults := counter{field: "Overrides", add: add}
	bySlot := make([]int, len(p.Overrides))
	for i, override := range p.Overrides {
		bySlot[i] = i
		if override.Slot < 0 || override.Slot >= p.Slots {
			faults.add1(fmt.Sprintf("Overrides[%d].Slot", i), "%d is outside 0 to %d", override.Slot, p.Slots-1)
		}
	}
	slices.SortStableFunc(bySlot, func(a, b int) int { return cmp.Compare(p.Overrides[a].Slot, p.Overrides[b].Slot) })
	for k := 1; k < len(bySlot); k++ {
		a, b := bySlot[k-1], bySlot[k]
		if p.Overrides[a].Slot == p.Overrides[b].Slot && p.Overrides[a].Worker != p.Overrides[b].Worker {
			faults.add1(fmt.Sprintf("Overrides[%d]", b), "slot %d is overridden to %q and to %q",
				p.Overrides[b].Slot, p.Overrides[a].Worker, p.Overrides[b].Worker)
		}
	}
	faults.close()
}

// counter passes on the first maxFaults faults of a list and counts the rest.
type counter struct {
	field string
	add   addFault
	n     int
}

func (c *counter) add1(field, format string, args ...any) {
	if c.n++; c.n <= maxFaults {
		c.add(field, format, args...)
	}
}

func (c *counter) close() {
	if c.n > maxFaults {
		c.add(c.field, "has %d more faults", c.n-maxFaults)
	}
}
