package nodes

import (
	"fmt"
	"math"
	"slices"

	"github.com/muster-dev/muster/internal/quantity"
)

// PoolSizer is what decisions in pools need to know of pods, types and prices. It alters nothing that it is given.
type PoolSizer interface {
	Sizer
	Screener
	Appraiser
	// Size returns the vCPUs and the memory of an instance type, false if the type is not known.
	Size(instanceType string) (Resources, bool)
}

// PoolUse is what counts against the limits of a pool: instances that are pending or running, and those that are about to be launched.
type PoolUse struct {
	Nodes int `json:"nodes"`
	Spot  int `json:"spot"` // of Nodes
	Resources
}

func (u *PoolUse) add(size Resources, m Market) {
	u.Nodes++
	u.MilliCPU += size.MilliCPU
	u.Memory += size.Memory
	if m == Spot {
		u.Spot++
	}
}

// text says how much is used.
func (u PoolUse) text() string {
	return fmt.Sprintf("%s, %d vCPU, %d MiB", quantity.Of(u.Nodes, "node"), u.MilliCPU/1000, u.Memory>>20)
}

// PoolUses counts what each pool uses. Launches in flight count, or a limit would be passed between a launch and the moment at which the
// cloud lists it: those that open scale-ups have made or have still to make, and the replacements of interrupted workers.
func PoolUses(p Policy, o Observation, r Record, size func(instanceType string) (Resources, bool)) map[string]*PoolUse {
	c := poolCount{p: p, size: size, uses: map[string]*PoolUse{}}
	for _, pool := range p.Pools {
		c.uses[pool.Name] = &PoolUse{}
	}
	listed := map[string]bool{}
	for _, w := range o.Fleet {
		if w.Instance.Alive() {
			listed[w.Instance.ID] = true
			c.add(w.Instance.Pool, w.Instance.Market, w.Instance.Type)
		}
	}
	for _, in := range o.Launched {
		c.add(in.Pool, in.Market, in.Type)
	}
	for _, i := range o.Interruptions {
		if i.Closed || !i.replacing() || listed[i.ReplacementID] {
			continue
		}
		at := i.Offering
		if i.Intent != nil {
			at = i.Intent.Request.Offering
		}
		c.add(at.Pool, at.Market, at.Type)
	}
	for _, a := range r.Actions() {
		c.unlaunched(a)
	}
	return c.uses
}

// poolCount counts what pools use.
type poolCount struct {
	p    Policy
	size func(string) (Resources, bool)
	uses map[string]*PoolUse
}

// add counts an instance that is of one of some types: as the largest, because which one it will be is not known yet.
func (c poolCount) add(tag string, m Market, types ...string) {
	use := c.uses[c.p.PoolOf(tag)]
	if use == nil {
		return
	}
	var largest Resources
	for _, t := range types {
		if c.size == nil {
			break
		}
		if s, ok := c.size(t); ok {
			largest = Resources{MilliCPU: max(largest.MilliCPU, s.MilliCPU), Memory: max(largest.Memory, s.Memory)}
		}
	}
	use.add(largest, m)
}

// unlaunched counts what an open scale-up has still to launch.
func (c poolCount) unlaunched(a ScalingAction) {
	for ordinal := len(a.ScaleUpInstanceIDs); a.Up() && ordinal < a.ScaleUpRequested; ordinal++ {
		types, market := c.p.In(a.ScaleUpPool).InstanceTypes, OnDemand
		if ordinal < len(a.ScaleUpWanted) && len(a.ScaleUpWanted[ordinal].Types) > 0 {
			types = a.ScaleUpWanted[ordinal].Types
		}
		if i := a.ScaleUpIntent; i != nil && i.Ordinal == ordinal {
			types, market = []string{i.Request.Offering.Type}, i.Request.Offering.Market
		}
		c.add(a.ScaleUpPool, market, types...)
	}
}

// allowance is what a pool may still launch.
type allowance struct {
	limits Limits
	share  int // of Spot, in percent
	use    PoolUse
	size   func(string) (Resources, bool)
}

// newAllowance returns what a pool may launch beside what it uses.
func newAllowance(p Policy, pool Pool, use PoolUse, size func(string) (Resources, bool)) allowance {
	return allowance{limits: pool.Limits, share: p.spotShare(pool), use: use, size: size}
}

// nodes is how many more instances the limit of nodes allows.
func (a allowance) nodes() int {
	if a.limits.Nodes == 0 {
		return math.MaxInt
	}
	return max(a.limits.Nodes-a.use.Nodes, 0)
}

// holds reports whether one more instance of a type stays within the limits.
func (a allowance) holds(instanceType string) bool {
	size, known := a.size(instanceType)
	bounded := a.limits.CPU > 0 || a.limits.Memory > 0
	switch {
	case a.nodes() < 1:
		return false
	case !known:
		return !bounded // what is not known might pass them
	}
	fitsCPU := a.limits.CPU == 0 || a.use.MilliCPU+size.MilliCPU <= int64(a.limits.CPU)*1000
	fitsMemory := a.limits.Memory == 0 || a.use.Memory+size.Memory <= a.limits.Memory
	return fitsCPU && fitsMemory
}

// permits reports whether an offering stays within the limits and the share of Spot.
func (a allowance) permits(o Offering) bool {
	return a.holds(o.Type) && (o.Market != Spot || a.permitsSpot())
}

// permitsSpot reports whether one more Spot instance stays within the share of Spot.
func (a allowance) permitsSpot() bool { return 100*(a.use.Spot+1) <= a.share*(a.use.Nodes+1) }

// fitting returns the types of which one more stays within the limits.
func (a allowance) fitting(types []string) []string {
	return slices.DeleteFunc(slices.Clone(types), func(t string) bool { return !a.holds(t) })
}

// cut shortens what is wanted to what the limits allow together. The types that are left of each are those of which the node still fits
// beside the ones before it.
func (a allowance) cut(wanted []Want, types []string) []Want {
	var out []Want
	for _, w := range wanted {
		if len(w.Types) == 0 {
			w.Types = types
		}
		w.Types = a.fitting(w.Types)
		if len(w.Types) == 0 {
			break
		}
		size, _ := a.size(w.Types[0])
		a.use.add(size, OnDemand)
		out = append(out, w)
	}
	return out
}
