package plan

import (
	"fmt"
	"math/big"
)

// Evenness tells how even loads are.
type Evenness struct {
	// WorstOverMean is the worst load relative to the worker's share of the
	// total, as in [Stats]; 0 if there is no load or no worker.
	WorstOverMean float64
	// Excess is the sum of what the loads are above their workers' shares,
	// which are rounded up to whole units.
	Excess uint64
	// Short is the sum of what the loads are below their workers' shares,
	// which are rounded down to whole units.
	Short uint64
}

// Measure tells how even p is with these owners, which are as in [Plan.Owners];
// slots that nobody who takes any owns are left out. The error is that of
// [Problem.Validate], or says that owners is not of p.
func Measure(p Problem, owners []int32) (Evenness, error) {
	f, err := newFrame(&p)
	if err != nil {
		return Evenness{}, err
	}
	if len(owners) != p.Slots {
		return Evenness{}, &FieldError{Field: "owners", Fault: fmt.Sprintf("has %d entries for %d slots", len(owners), p.Slots)}
	}
	load := make([]uint64, len(p.Workers))
	var total, all uint64
	for s, o := range owners {
		if o >= 0 && int(o) < len(p.Workers) && f.rank[o] != None {
			load[o] += f.weight(s)
			total += f.weight(s)
		}
	}
	for _, w := range f.takers {
		all += f.capacity[w]
	}
	var b Evenness
	if total == 0 {
		return b, nil
	}
	for _, w := range f.takers {
		share := float64(total) * (float64(f.capacity[w]) / float64(all))
		b.WorstOverMean = max(b.WorstOverMean, float64(load[w])/share)
		up, down := scaled(total, f.capacity[w], all)
		b.Excess += max(load[w], up) - up
		b.Short += down - min(load[w], down)
	}
	return b, nil
}

// scaled is a*b/c rounded up and down, whatever a*b is; b is at most c.
func scaled(a, b, c uint64) (up, down uint64) {
	x := new(big.Int).Mul(new(big.Int).SetUint64(a), new(big.Int).SetUint64(b))
	whole, rest := x.DivMod(x, new(big.Int).SetUint64(c), new(big.Int))
	down = whole.Uint64()
	return down + uint64(rest.Sign()), down
}
