package fit

import (
	"cmp"
	"math"
	"slices"

	"github.com/muster-dev/muster/nodes"
)

// open opens as many nodes with a filling as what is left is enough for, and takes it.
func (p *packer) open(f filling, left []int) *bin {
	times := math.MaxInt
	for _, s := range f.shares {
		times = min(times, left[s.class]/s.n)
	}
	b := &bin{of: f.of, zones: f.zones, count: times}
	for _, s := range f.shares {
		left[s.class] -= s.n * times
		b.content = append(b.content, portion{p.e.classes[s.class], s.n})
	}
	p.shrink(b)
	return b
}

// packer fills nodes with classes by number.
type packer struct {
	e      *engine
	bySize []int // classes, those worth most first
	parts  [2][]share
}

// share is how many pods of a numbered class a filling has.
type share struct{ class, n int }

// filling is one way to fill a node.
type filling struct {
	of     int
	zones  uint64
	shares []share // valid until the next but one
	value  float64
}

func (e *engine) packer() *packer {
	p := &packer{e: e}
	for i := range e.classes {
		p.bySize = append(p.bySize, i)
	}
	slices.SortStableFunc(p.bySize, func(a, b int) int { return cmp.Compare(e.classes[b].value, e.classes[a].value) })
	return p
}

// fill fills a node of an offering in some of its zones with what is left: first with class first, if it is not negative, then with
// those that are worth most, or those that use what is left of the node most evenly.
func (p *packer) fill(of int, zones uint64, first int, left []int, evenly bool) filling {
	o := &p.e.m.offerings[of]
	out := filling{of: of, zones: zones, shares: p.parts[0][:0]}
	room := o.room
	var extra map[string]int64
	take := func(i, most int) bool {
		c := p.e.classes[i]
		z := c.zones[of] & out.zones
		if z == 0 {
			return false
		}
		b := bin{room: room, extra: o.extended}
		if extra != nil {
			b.extra = extra
		}
		n := b.capacity(c, most)
		if n == 0 {
			return false
		}
		out.zones = z
		room.MilliCPU -= c.needs.MilliCPU * int64(n)
		room.Memory -= c.needs.Memory * int64(n)
		room.Pods -= n
		if len(c.Resources) > 0 {
			if extra == nil {
				extra = map[string]int64{}
				for k, v := range o.extended {
					extra[k] = v
				}
			}
			for k, v := range c.Resources {
				extra[k] -= v * int64(n)
			}
		}
		out.value += c.value * float64(n)
		for s := range out.shares {
			if out.shares[s].class == i {
				out.shares[s].n += n
				return true
			}
		}
		out.shares = append(out.shares, share{i, n})
		return true
	}
	if first >= 0 {
		take(first, left[first])
	}
	if evenly {
		p.fillEvenly(o, &room, left, take)
	} else {
		for _, i := range p.bySize {
			if left[i] > 0 && i != first {
				take(i, left[i])
			}
		}
	}
	p.parts[0], p.parts[1] = p.parts[1], out.shares
	return out
}

// fillEvenly takes again and again what is most like the room that is left.
func (p *packer) fillEvenly(o *offering, room *nodes.Resources, left []int, take func(i, most int) bool) {
	whole := asVector(o.room)
	taken := make([]int, len(left))
	open := slices.DeleteFunc(slices.Clone(p.bySize), func(i int) bool { return left[i] == 0 })
	for len(open) > 0 {
		rest := asVector(*room)
		best, at := -1.0, 0
		for k, i := range open {
			v := p.e.classes[i].vector()
			like := 0.0
			for d := range dims {
				like += v[d] / whole[d] * rest[d] / whole[d]
			}
			if like > best {
				best, at = like, k
			}
		}
		i := open[at]
		before := room.Pods
		if !take(i, max((left[i]-taken[i])/8, 1)) {
			open = slices.Delete(open, at, at+1)
			continue
		}
		if taken[i] += before - room.Pods; taken[i] == left[i] {
			open = slices.Delete(open, at, at+1)
		}
	}
}

// shrink turns a node into the cheapest that holds what it got.
func (p *packer) shrink(b *bin) {
	if holders := p.e.holders(b); len(holders) > 0 && p.e.m.offerings[holders[0]].price < p.e.m.offerings[b.of].price {
		b.of = holders[0]
	}
}

// holders returns the offerings that hold what a new node got, cheapest first.
func (e *engine) holders(b *bin) []int {
	var used nodes.Resources
	extra := map[string]int64{}
	for _, s := range b.content {
		used.MilliCPU += s.class.needs.MilliCPU * int64(s.n)
		used.Memory += s.class.needs.Memory * int64(s.n)
		used.Pods += s.n
		for k, v := range s.class.Resources {
			extra[k] += v * int64(s.n)
		}
	}
	var out []int
	for i := range e.m.offerings {
		o := &e.m.offerings[i]
		if o.room.MilliCPU < used.MilliCPU || o.room.Memory < used.Memory || o.room.Pods < used.Pods {
			continue
		}
		zones := b.zones
		for _, s := range b.content {
			zones &= s.class.zones[i]
		}
		enough := zones == b.zones // what decides on zones was decided already
		for k, v := range extra {
			enough = enough && o.extended[k] >= v
		}
		if enough {
			out = append(out, i)
		}
	}
	slices.SortStableFunc(out, func(a, b int) int { return cmp.Compare(e.m.offerings[a].price, e.m.offerings[b].price) })
	return out
}
