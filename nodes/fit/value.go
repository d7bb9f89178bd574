package fit

import (
	"math"

	"github.com/muster-dev/muster/nodes"
)

func (c *class) vector() vector { return asVector(c.needs) }

func asVector(r nodes.Resources) vector {
	return vector{float64(r.MilliCPU) / 1000, float64(r.Memory) / (1 << 30), float64(r.Pods)}
}

// appraise returns the shadow prices of what is left to place and sets every class's value by them.
func (e *engine) appraise() vector {
	var demand vector
	for _, c := range e.classes {
		for d, v := range c.vector() {
			demand[d] += v * float64(c.left)
		}
	}
	var planes []plane
	for _, o := range e.m.offerings {
		if v := asVector(o.room); v[0] > 0 && v[1] > 0 && v[2] > 0 {
			planes = append(planes, plane{v, o.price})
		}
	}
	prices := shadowPrices(demand, planes)
	for _, c := range e.classes {
		c.value = math.Max(c.vector().dot(prices), 1e-9)
		if least, some := e.leastCost(c); some {
			c.value = math.Max(c.value, least)
		}
	}
	return prices
}

// leastCost returns what a pod costs on the cheapest fraction of a node that it fits, if it does not fit all kinds of nodes: the
// shadow prices, which are about all kinds, would undervalue it.
func (e *engine) leastCost(c *class) (least float64, some bool) {
	least = math.Inf(1)
	for i, zones := range c.zones {
		o := &e.m.offerings[i]
		if zones == 0 {
			some = true
			continue
		}
		share := 0.0
		room := asVector(o.room)
		for d, v := range c.vector() {
			share = math.Max(share, v/room[d])
		}
		for name, v := range c.Resources {
			share = math.Max(share, float64(v)/float64(o.extended[name]))
		}
		least = math.Min(least, share*o.price)
	}
	return least, some && !math.IsInf(least, 1)
}

// reappraise sets the value of every class to what its pods cost in a packing, each node's price being shared in proportion to the
// values before. Pods that made bad use of their nodes become worth more, and the next packing looks for better company for them first.
func (e *engine) reappraise(bins []*bin) {
	cost := make(map[*class]float64, len(e.classes))
	pods := make(map[*class]int, len(e.classes))
	for _, b := range bins {
		scale := e.m.offerings[b.of].price / b.worth()
		for _, s := range b.content {
			cost[s.class] += s.class.value * scale * float64(s.n*b.count)
			pods[s.class] += s.n * b.count
		}
	}
	for c, n := range pods {
		c.value = (c.value + cost[c]/float64(n)) / 2
	}
}

func (b *bin) worth() float64 {
	sum := 0.0
	for _, s := range b.content {
		sum += s.class.value * float64(s.n)
	}
	return sum
}

// tally returns the number of nodes and what they cost.
func (e *engine) tally(bins []*bin) (count int, cost float64) {
	for _, b := range bins {
		count += b.count
		cost += e.m.offerings[b.of].price * float64(b.count)
	}
	return count, cost
}
