package fit

import (
	"cmp"
	"fmt"
	"math"
	"math/bits"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

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
		parts = append(parts, fmt.Sprintf("%d on %d new node(s) (%s, %.3f USD/h)", p.Pods-p.Existing-unplaced, count, strings.Join(order, ", "), p.Cost))
	}
	if unplaced > 0 {
		parts = append(parts, fmt.Sprintf("%d helped by no new node", unplaced))
	}
	if len(parts) == 0 {
		return "the Kubernetes API shows no pending pod"
	}
	return fmt.Sprintf("of %d pod(s) %s", p.Pods, strings.Join(parts, ", "))
}

// Pack places the pending pods of a question first on what is there and coming, then on new nodes, as cheap as it finds them.
//
// Pods whose placement depends on other pods come first and one by one. The others are packed by patterns: for each type a node is
// filled, the filling that is worth most for its price at the shadow prices of the whole demand wins and is repeated as often as there are
// pods for it. In the end each node becomes the cheapest type that holds what it got.
func (f *Fit) Pack(q nodes.Question) Packing {
	m := f.offers(q.Policy, q.Observation, q.Exhausted, q.Now)
	var pods []nodes.Pod
	for _, p := range q.Observation.Pending {
		if p.NeverFit == "" {
			pods = append(pods, p)
		}
	}
	e := newEngine(&m, pods)
	coming := f.addFleet(e, q)
	e.start()
	e.placeOnExisting()

	out := Packing{}
	for _, b := range coming {
		for _, p := range b.content {
			out.Coming += p.n
		}
	}
	for i, c := range e.classes {
		out.Pods += c.pod.N()
		out.Existing += c.pod.N() - c.left
		e.classes[i].prepare(&m)
	}
	prices := e.appraise()
	e.skip = make([]bool, len(m.offerings))
	for i := range e.skip {
		e.skip[i] = e.dominated(i)
	}
	there := len(e.bins)
	e.openForBound(there)
	for _, c := range e.classes {
		if c.free() && c.closed == "" {
			e.placeOn(c, e.bins[there:])
		}
	}
	bound := e.bins[there:]
	free := e.cheapest(q.Room-len(bound), prices)
	e.result(&out, slices.Concat(bound, free))
	out.Bound = min(out.Bound, out.Cost)
	return out
}

// addFleet adds what is there, and what is on its way, which it returns. On a node that replaces another there is room only beside the
// pods that still have to come over.
func (f *Fit) addFleet(e *engine, q nodes.Question) (coming []*bin) {
	interrupted := map[string]bool{}
	for _, i := range q.Observation.Interruptions {
		interrupted[i.InstanceID] = !i.Closed
	}
	e.perZone = make([]int, len(e.m.zones))
	count := func(zone string) (index int) {
		z := slices.Index(e.m.zones, zone)
		if z >= 0 {
			e.perZone[z]++
		}
		return z
	}
	listed := map[string]bool{}
	for _, w := range q.Observation.Fleet {
		listed[w.Instance.ID] = true
		if w.Instance.Alive() {
			count(w.Instance.Zone)
		}
		if w.Node == nil || !w.Node.Ready {
			continue
		}
		b := e.addNode(w.Node)
		if !w.Instance.Alive() || interrupted[w.Instance.ID] || w.Node.Unschedulable {
			b.room = nodes.Resources{} // its pods count for others' affinity all the same
		}
	}
	for _, a := range nodes.Arriving(q.Policy, q.Observation, q.Now) {
		z := slices.Index(e.m.zones, a.Zone)
		if !listed[a.ID] {
			z = count(a.Zone)
		}
		i := slices.IndexFunc(e.m.offerings, func(o offering) bool { return o.Name == a.Type })
		if i < 0 || z < 0 {
			continue
		}
		b := e.newBin(i, z)
		b.of = -1
		for _, p := range a.Leaving {
			b.take(p.Requests, p.N())
			b.room.Pods -= p.N()
		}
		coming = append(coming, b)
	}
	return coming
}

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

// sharing is a class of which some pods share a node in a zone.
type sharing struct {
	class *class
	zone  int
	pods  int
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

// A packing is repeated with values learned from the one before, as often as this many looks at a class allow, and at least once.
const (
	rounds = 4
	looks  = 4e6
)

// tally returns the number of nodes and what they cost.
func (e *engine) tally(bins []*bin) (count int, cost float64) {
	for _, b := range bins {
		count += b.count
		cost += e.m.offerings[b.of].price * float64(b.count)
	}
	return count, cost
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

// greedy fills nodes until nothing is left, each time by the filling that is worth most for its price. Types whose empty node is
// worth less than least are left out unless nothing else will do.
func (p *packer) greedy(left []int, prices vector, least float64, evenly bool) (bins []*bin, rest []int) {
	e := p.e
	order := make([]int, 0, len(e.m.offerings))
	worth := make([]float64, len(e.m.offerings))
	most := 0.0
	for i, o := range e.m.offerings {
		worth[i] = asVector(o.room).dot(prices)
		if !e.skip[i] {
			most = math.Max(most, worth[i])
			order = append(order, i)
		}
	}
	least = math.Min(least, most)
	slices.SortStableFunc(order, func(a, b int) int {
		return cmp.Compare(worth[b]/e.m.offerings[b].price, worth[a]/e.m.offerings[a].price)
	})
	big := least > 0
	for {
		total, dearest := 0.0, 1.0
		for i, n := range left {
			if n > 0 {
				c := e.classes[i]
				total += c.value * float64(n)
				dearest = math.Max(dearest, c.value/c.vector().dot(prices))
			}
		}
		if total == 0 {
			return bins, left
		}
		var best filling
		found, score, estimate := false, 0.0, math.Inf(1)
		keep := func(f filling) {
			best = f
			best.shares = slices.Clone(f.shares)
			found = true
		}
		for _, i := range order {
			o := &e.m.offerings[i]
			if worth[i] < least*0.999 && big {
				continue
			}
			if found && dearest*worth[i]/o.price < score*0.99 && math.IsInf(estimate, 1) {
				break // no filling of this type or a later one can be better
			}
			f := p.fill(i, o.zones, -1, left, evenly)
			if f.value <= 0 {
				continue
			}
			s := f.value / o.price
			switch {
			case f.value > total*(1-1e-9) || !math.IsInf(estimate, 1):
				// The end is near: what counts is no longer the ratio but what all that is left will cost.
				if x := o.price + math.Max(total-f.value, 0)/0.9; x < estimate {
					if math.IsInf(estimate, 1) && found {
						estimate = e.m.offerings[best.of].price + math.Max(total-best.value, 0)/0.9
					}
					if x < estimate {
						keep(f)
						estimate = x
					}
				}
			case s > score*1.005 || s > score*0.995 && f.value > best.value:
				keep(f)
				score = s
			}
		}
		if !found && big {
			big = false // what is left runs on small types alone
			continue
		}
		if !found {
			return bins, left
		}
		times := math.MaxInt
		for _, s := range best.shares {
			times = min(times, left[s.class]/s.n)
		}
		b := &bin{of: best.of, zones: best.zones, count: times}
		for _, s := range best.shares {
			left[s.class] -= s.n * times
			b.content = append(b.content, portion{e.classes[s.class], s.n})
		}
		p.shrink(b)
		bins = append(bins, b)
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

func (b *bin) worth() float64 {
	sum := 0.0
	for _, s := range b.content {
		sum += s.class.value * float64(s.n)
	}
	return sum
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

// Bound returns a function that tells what pods that ask for so much together cost an hour at least, in USD, on nodes of some types
// at their On-Demand price, whichever nodes are chosen and however the pods are placed. It asks for no DaemonSet.
func (f *Fit) Bound(types []InstanceType) func(nodes.Resources) float64 {
	var planes []plane
	for _, t := range types {
		planes = append(planes, plane{asVector(f.Allocatable(t)), t.OnDemand})
	}
	return func(r nodes.Resources) float64 {
		demand := asVector(r)
		return demand.dot(shadowPrices(demand, planes))
	}
}
