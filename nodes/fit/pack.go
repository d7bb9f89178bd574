package fit

import (
	"cmp"
	"fmt"
	"math"
	"math/bits"
	"slices"

	corev1 "k8s.io/api/core/v1"
)

// newBin adds an empty node of an offering in a zone.
func (e *engine) newBin(i, z int) *bin {
	b := e.virtual(i, z)
	b.node.Name = fmt.Sprintf("new-%d", len(e.bins))
	e.bins = append(e.bins, b)
	return b
}

// virtual returns an empty node that is not added.
func (e *engine) virtual(i, z int) *bin {
	o := &e.m.offerings[i]
	n := *o.nodes[z]
	n.Name = "new"
	b := &bin{node: &n, room: o.room, of: i, zones: 1 << z, count: 1}
	if o.extended != nil {
		b.extra = map[string]int64{}
		for k, v := range o.extended {
			b.extra[k] = v
		}
	}
	return b
}

// prepare works out in which zones each offering admits a class.
func (c *class) prepare(m *market) {
	c.zones = make([]uint64, len(m.offerings))
	for i := range m.offerings {
		o := &m.offerings[i]
		if !o.holds(c.kind, c.needs) {
			continue
		}
		c.zones[i] = c.masks(m)[i]
	}
}

// masks returns by offering the zones in which it can be had and admits a kind.
func (k *kind) masks(m *market) []uint64 {
	if k.admitted != nil {
		return k.admitted
	}
	k.admitted = make([]uint64, len(m.offerings))
	for i, o := range m.offerings {
		for z := range m.zones {
			if o.zones&(1<<z) != 0 && k.admits(o.nodes[z]) == "" {
				k.admitted[i] |= 1 << z
			}
		}
	}
	return k.admitted
}

// ---- pods that depend on other pods

// openForBound places the pods of kinds that are not free, opening nodes for them as needed.
func (e *engine) openForBound(there int) {
	for _, c := range e.classes {
		if c.free() || c.closed != "" {
			continue
		}
		open := e.placeEach(c, slices.Clone(e.bins[there:]))
		for c.left > 0 {
			i, z, why := e.placement(c)
			if why != "" {
				c.closed = why
				break
			}
			b := e.newBin(i, z)
			e.perZone[z]++
			e.put(c, b, 1)
			open = e.placeEach(c, append(open, b))
		}
	}
}

// placement returns offering and zone of a new node for a class: of the zones that allow it the one in which its spread counts fewest, then
// the one with fewest nodes; in it the type that is worth most with what else it could hold.
func (e *engine) placement(c *class) (of, zone int, why string) {
	leasts := e.leasts(c.kind)
	zone, why = -1, "no type that can be had now runs it"
	var fewest, fullness int
	for z := range e.m.zones {
		i := slices.IndexFunc(c.zones, func(m uint64) bool { return m&(1<<z) != 0 })
		if i < 0 {
			continue
		}
		b := e.virtual(i, z)
		if reason := e.allows(c.kind, b, leasts); reason != "" {
			if zone < 0 {
				why = reason
			}
			continue
		}
		n := 0
		if len(c.spread) > 0 {
			d, _ := b.domain(c.spread[0].key)
			n = c.spread[0].count[d]
		}
		if zone < 0 || n < fewest || n == fewest && e.perZone[z] < fullness {
			zone, fewest, fullness, why = z, n, e.perZone[z], ""
		}
	}
	if zone < 0 {
		return 0, 0, why
	}
	return e.company(c, zone), zone, ""
}

// company returns the type of a new node in a zone that is worth most with pods of a class and with those free pods that it could hold
// beside them. The free pods are placed later, so that the answer stays the same as long as the class shares a node by as many.
func (e *engine) company(c *class, zone int) int {
	pods := c.perNode(len(e.m.zones))
	key := sharing{c, zone, 1 << bits.Len(uint(pods-1))} // a power of two, since more or less makes little difference
	if of, known := e.companies[key]; known {
		return of
	}
	left := make([]int, len(e.classes))
	for i, o := range e.classes {
		if o.free() && o.closed == "" {
			left[i] = o.left
		}
	}
	self := slices.Index(e.classes, c)
	left[self] = min(key.pods, c.left)
	best, of := -1.0, 0
	if e.packing == nil {
		e.packing = e.packer()
		e.packing.bySize = slices.DeleteFunc(e.packing.bySize, func(i int) bool { return left[i] == 0 || i == self })
	}
	p := e.packing
	for i, m := range c.zones {
		if m&(1<<zone) == 0 || e.skip[i] {
			continue
		}
		fill := p.fill(i, 1<<zone, self, left, false)
		if score := fill.value / e.m.offerings[i].price; score > best {
			best, of = score, i
		}
	}
	if e.companies == nil {
		e.companies = map[sharing]int{}
	}
	e.companies[key] = of
	return of
}

// perNode estimates how many pods of a class will share a node.
func (c *class) perNode(zones int) int {
	n := c.left
	if len(c.HostPorts) > 0 {
		n = 1
	}
	for _, r := range c.without {
		if slices.Contains(c.selected, r) {
			n = 1
		}
	}
	for _, s := range c.spread {
		switch s.key {
		case corev1.LabelHostname:
			n = min(n, int(s.MaxSkew))
		case corev1.LabelTopologyZone:
			n = min(n, (c.left+zones-1)/zones)
		}
	}
	return max(n, 1)
}

// ---- pods that don't

// A packing is repeated with values learned from the one before, as often as this many looks at a class allow, and at least once.
const (
	rounds = 4
	looks  = 4e6
)

// effort returns how many classes there are to pack, and how many types that are worth a look.
func (e *engine) effort(left []int) (classes, types float64) {
	for _, n := range left {
		if n > 0 {
			classes++
		}
	}
	for i := range e.m.offerings {
		if !e.skip[i] {
			types++
		}
	}
	return classes, types
}

// dominated reports whether there is another type that costs no more and takes whatever this one takes.
func (e *engine) dominated(i int) bool {
	o := &e.m.offerings[i]
	return slices.ContainsFunc(e.m.offerings, func(p offering) bool {
		if p.Name == o.Name || p.price > o.price || p.room.MilliCPU < o.room.MilliCPU || p.room.Memory < o.room.Memory || p.room.Pods < o.room.Pods || o.zones&^p.zones != 0 {
			return false
		}
		if p.price == o.price && p.room == o.room && p.Name > o.Name {
			return false // of equals the first stays
		}
		for k, v := range o.extended {
			if p.extended[k] < v {
				return false
			}
		}
		at := slices.IndexFunc(e.m.offerings, func(q offering) bool { return q.Name == p.Name })
		return !slices.ContainsFunc(e.classes, func(c *class) bool { return c.zones[i]&^c.zones[at] != 0 })
	})
}

// cheapest packs what is left of the free classes in some ways and keeps the cheapest set of nodes; if there is room for fewer, it
// tries with bigger types.
func (e *engine) cheapest(room int, prices vector) []*bin {
	left := make([]int, len(e.classes))
	total := 0.0
	for i, c := range e.classes {
		if c.free() && c.closed == "" {
			left[i] = c.left
			total += c.value * float64(c.left)
		}
	}
	var best []*bin
	var rest []int
	cost, count := math.Inf(1), 0
	try := func(evenly bool) {
		p := e.packer()
		bins, after := p.greedy(slices.Clone(left), prices, 0, evenly)
		if n, _ := e.tally(bins); n > room && n > 0 { // once more, with bigger types
			bigger, then := p.greedy(slices.Clone(left), prices, total/math.Max(float64(room), 1), evenly)
			if m, _ := e.tally(bigger); m < n {
				bins, after = bigger, then
			}
		}
		if n, sum := e.tally(bins); sum < cost*(1-1e-9) || sum <= cost*(1+1e-9) && n < count { // of equal cost the fewer nodes
			best, rest, cost, count = bins, after, sum, n
		}
		e.reappraise(bins)
	}
	classes, types := e.effort(left)
	for n := range rounds { // each makes about as many nodes as there are classes, and looks at each type with each class for each
		if n == 0 || float64(n+1)*classes*classes*types <= looks {
			try(false)
		}
	}
	for n := range rounds { // and here with each class for each class that is taken
		if float64(n+1)*classes*classes*classes*types <= looks {
			try(true)
		}
	}
	if best == nil {
		rest = left
	}
	for i, c := range e.classes {
		if left[i] > 0 {
			c.left = rest[i]
			if c.left > 0 {
				c.closed = "no type that can be had now runs it"
			}
		}
	}
	return best
}

// result completes a packing with the new nodes, those that hold most first.
func (e *engine) result(out *Packing, bins []*bin) {
	var demand vector
	for _, b := range bins {
		for _, s := range b.content {
			for d, v := range s.class.vector() {
				demand[d] += v * float64(s.n*b.count)
			}
		}
	}
	slices.SortStableFunc(bins, func(a, b *bin) int { return cmp.Compare(b.worth(), a.worth()) })
	for _, b := range bins {
		g := Group{Count: b.count}
		holders := e.holders(b)
		if !slices.Contains(holders, b.of) || e.typed() {
			holders = []int{b.of}
		}
		g.Price = e.m.offerings[holders[0]].price
		for _, i := range holders {
			if o := e.m.offerings[i]; o.price <= 2*g.Price { // a node that costs more is not worth having in its place
				g.Types = append(g.Types, o.Name)
			}
		}
		for z, name := range e.m.zones {
			if b.zones&(1<<z) != 0 && name != "" {
				g.Zones = append(g.Zones, name)
			}
		}
		if len(g.Zones) == len(e.m.zones) {
			g.Zones = nil
		}
		for _, s := range b.content {
			g.Pods = append(g.Pods, Portion{s.class.pod.Name, s.n})
		}
		out.Cost += g.Price * float64(g.Count)
		out.New = append(out.New, g)
	}
	for _, c := range e.classes {
		if c.left > 0 {
			out.Unplaced = append(out.Unplaced, Unplaced{c.pod, c.left, cmp.Or(c.closed, e.refusal(c))})
		}
	}
	var planes []plane
	for _, o := range e.m.offerings {
		if v := asVector(o.room); v[0] > 0 && v[1] > 0 && v[2] > 0 {
			planes = append(planes, plane{v, o.price})
		}
	}
	out.Bound = demand.dot(shadowPrices(demand, planes))
}

// typed reports whether some rule looks at a label that comes with the instance type: then a node may not become another type.
func (e *engine) typed() bool {
	for _, r := range e.kinds.rules {
		switch r.key {
		case corev1.LabelInstanceTypeStable, corev1.LabelInstanceType, corev1.LabelArchStable, "beta.kubernetes.io/arch":
			return true
		}
	}
	return false
}
