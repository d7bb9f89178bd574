package fit

import (
	"cmp"
	"math"
	"slices"
)

// greedy fills nodes one after the other, each time by the filling that is worth most for its price.
type greedy struct {
	*packer
	order []int     // offerings that can be had, the empty node that is worth most for its price first
	worth []float64 // of an empty node of each offering
	least float64   // offerings whose empty node is worth less are left out, unless nothing else will do; 0: none is
}

// greedy fills nodes until nothing is left, or nothing that can be had holds any of it. Types whose empty node is worth less than
// least are left out unless nothing else will do.
func (p *packer) greedy(left []int, prices vector, least float64, evenly bool) (bins []*bin, rest []int) {
	g := p.newGreedy(prices, least)
	for {
		remains := p.e.remains(left, prices)
		if remains.value == 0 {
			return bins, left
		}
		best, found := g.best(left, remains, evenly)
		switch {
		case found:
			bins = append(bins, p.open(best, left))
		case g.least > 0:
			g.least = 0 // what is left runs on small types alone
		default:
			return bins, left
		}
	}
}

func (p *packer) newGreedy(prices vector, least float64) *greedy {
	offerings := p.e.m.offerings
	g := &greedy{packer: p, order: make([]int, 0, len(offerings)), worth: make([]float64, len(offerings))}
	most := 0.0
	for i, o := range offerings {
		g.worth[i] = asVector(o.room).dot(prices)
		if !p.e.skip[i] {
			most = math.Max(most, g.worth[i])
			g.order = append(g.order, i)
		}
	}
	slices.SortStableFunc(g.order, func(a, b int) int {
		return cmp.Compare(g.worth[b]/offerings[b].price, g.worth[a]/offerings[a].price)
	})
	g.least = math.Min(least, most)
	return g
}

// remainder is what is left to be placed.
type remainder struct {
	value   float64 // of all of it
	dearest float64 // the most that what a filling takes can be worth, as a multiple of the room it takes
}

func (e *engine) remains(left []int, prices vector) remainder {
	r := remainder{dearest: 1}
	for i, n := range left {
		if n > 0 {
			c := e.classes[i]
			r.value += c.value * float64(n)
			r.dearest = math.Max(r.dearest, c.value/c.vector().dot(prices))
		}
	}
	return r
}

// best returns the best filling of one node with what is left.
func (g *greedy) best(left []int, remains remainder, evenly bool) (filling, bool) {
	c := contest{e: g.e, remains: remains, cost: math.Inf(1)}
	for _, i := range g.order {
		o := &g.e.m.offerings[i]
		if g.worth[i] < g.least*0.999 {
			continue
		}
		if c.found && !c.ending() && remains.dearest*g.worth[i]/o.price < c.ratio*0.99 {
			break // no filling of this type or a later one can be better
		}
		if f := g.fill(i, o.zones, -1, left, evenly); f.value > 0 {
			c.enter(f)
		}
	}
	return c.best, c.found
}

// contest keeps the best of the fillings that enter it.
type contest struct {
	e       *engine
	remains remainder

	best  filling
	found bool
	ratio float64 // of the best one's value to its price, while that decides
	cost  float64 // of the best one and what remains after it, once that decides; infinite before
}

// ending reports whether a filling was found that takes all that is left. Then what counts is no longer the ratio but what all
// that is left will cost.
func (c *contest) ending() bool { return !math.IsInf(c.cost, 1) }

func (c *contest) enter(f filling) {
	ratio := f.value / c.price(f)
	switch {
	case c.ending() || f.value > c.remains.value*(1-1e-9):
		c.enterEnd(f)
	case ratio > c.ratio*1.005 || ratio > c.ratio*0.995 && f.value > c.best.value:
		c.keep(f)
		c.ratio = ratio
	}
}

func (c *contest) enterEnd(f filling) {
	cost := c.total(f)
	if !c.ending() && c.found {
		c.cost = c.total(c.best)
	}
	if cost < c.cost {
		c.keep(f)
		c.cost = cost
	}
}

func (c *contest) keep(f filling) {
	c.best, c.found = f, true
	c.best.shares = slices.Clone(f.shares) // what it was made of is used again
}

func (c *contest) price(f filling) float64 { return c.e.m.offerings[f.of].price }

// total estimates what everything costs with a filling: its price, and for the rest what nodes cost that are worth 90 % of it.
func (c *contest) total(f filling) float64 {
	return c.price(f) + math.Max(c.remains.value-f.value, 0)/0.9
}
