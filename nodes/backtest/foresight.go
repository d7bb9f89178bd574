package backtest

import (
	"cmp"
	"math"
	"slices"
	"time"

	"github.com/muster-dev/muster/nodes"
	"github.com/muster-dev/muster/nodes/fit"
)

// Step is a number of nodes from a moment on.
type Step struct {
	At    time.Duration
	Nodes int
}

// foresee works out what somebody who knew the future would have needed: every pod runs from its creation, nodes come and go in no
// time, pods can be torn apart between nodes, and MIN_WORKERS are kept. At any moment that takes at least as many nodes as the pods'
// CPU or memory is multiples of the largest offered type's; and it costs at least what the fractions of nodes cost that cover both.
// Pods that no offered type runs, and those that never ran when recorded, ask for nothing.
//
// No settings can do better without making pods wait. They can if they do: waiting pods fill gaps.
func (r *run) foresee() {
	type change struct {
		at  time.Duration
		cpu int64
		mem int64
		n   int
	}
	var changes []change
	length := r.c.Window.Length()
	for _, p := range r.pods {
		ask := []nodes.Pod{{Requests: nodes.Resources{MilliCPU: p.MilliCPU, Memory: p.Memory}}}
		if p.Withdrawn > 0 || r.fit.Screen(r.c.Policy, nodes.Observation{Pending: ask})[0].NeverFit != "" {
			continue
		}
		changes = append(changes, change{p.Created, p.MilliCPU, p.Memory, 1}, change{min(p.end(), length), -p.MilliCPU, -p.Memory, -1})
	}
	slices.SortStableFunc(changes, func(a, b change) int { return cmp.Compare(a.at, b.at) })
	var types []fit.InstanceType
	var largest nodes.Resources
	cheapest := math.Inf(1)
	for _, name := range r.c.Policy.InstanceTypes {
		t := r.types[name]
		market := nodes.OnDemand
		if r.c.Policy.Spot {
			market = nodes.Spot
		}
		t.OnDemand = r.price(t, market)
		types = append(types, t)
		a := r.fit.Allocatable(t)
		largest.MilliCPU, largest.Memory = max(largest.MilliCPU, a.MilliCPU), max(largest.Memory, a.Memory)
		cheapest = min(cheapest, t.OnDemand)
	}
	bound := r.fit.Bound(types)
	var cpu, mem int64
	pods := 0
	last := time.Duration(0)
	least := r.c.Policy.MinWorkers
	steps := []Step{{0, least}}
	need, cost := least, float64(least)*cheapest
	book := func(until time.Duration) {
		hours := (until - last).Hours()
		r.out.Nodes.Foresight += hours * float64(need)
		r.out.Nodes.BoundCost += hours * cost
		last = until
	}
	for i, c := range changes {
		cpu, mem, pods = cpu+c.cpu, mem+c.mem, pods+c.n
		if i+1 < len(changes) && changes[i+1].at == c.at {
			continue
		}
		book(c.at)
		need = max(least, int(math.Ceil(math.Max(float64(cpu)/float64(largest.MilliCPU), float64(mem)/float64(largest.Memory)))))
		cost = math.Max(float64(least)*cheapest, bound(nodes.Resources{MilliCPU: cpu, Memory: mem, Pods: pods}))
		steps = append(steps, Step{c.at, need})
	}
	book(length)
	r.out.Needed = steps
}
