package fit

import (
	"cmp"
	"iter"
	"maps"
	"math"
	"slices"

	corev1 "k8s.io/api/core/v1"

	"github.com/muster-dev/muster/nodes"
)

// engine places classes of pods on bins. Pods of free kinds are placed by the number; those with ports, affinity or spread, and
// those that such pods look at, one by one, because each changes what the next may do.
type engine struct {
	m         *market // nil: there are no nodes but those that are there
	kinds     *kinds
	classes   []*class
	bins      []*bin
	perZone   []int           // nodes by zone of the market, those to come included
	packing   *packer         // that looks for company
	companies map[sharing]int // offerings found to be best
	skip      []bool          // offerings that another one is always as good as

	leastOf func(*kind, *spreadRule) int // in place of least; nil: least itself
}

// class is a number of pods alike.
type class struct {
	*kind
	pod    nodes.Pod
	left   int
	needs  nodes.Resources
	zones  []uint64 // by offering: in which zones it admits the class
	value  float64  // what it costs at least to run one, USD an hour
	closed string   // why the rest can't be placed
}

// bin is a node, there or to come. One that is there has a node, room and what runs on it; of and zones don't count. One to come
// has the offering that it is bought as and may stand for count equal nodes, of each of which content is what was put on it.
// Admission depends on a pod's kind alone, so it is kept for each kind that asked.
type bin struct {
	node  *corev1.Node
	all   nodes.Resources // allocatable of a node that is there
	room  nodes.Resources
	extra map[string]int64 // extended resources that are left
	ports []HostPort
	admit map[*kind]bool

	of      int    // index of the offering of a node to come, -1 for one that is there
	zones   uint64 // in which it may be, a bit each
	content []portion
	count   int // how many nodes are like this one
}

func newEngine(m *market, pods []nodes.Pod) *engine {
	e := &engine{m: m, kinds: newKinds()}
	for _, p := range pods {
		e.classes = append(e.classes, newClass(e.kinds.of(p.Scheduling), p))
	}
	return e
}

func newClass(k *kind, p nodes.Pod) *class {
	c := &class{kind: k, pod: p, left: p.N(), needs: p.Requests}
	c.needs.Pods = 1
	return c
}

// addNode adds a node that is there, with its pods.
func (e *engine) addNode(n *nodes.Node) *bin {
	b := newBin(n)
	e.bins = append(e.bins, b)
	for _, p := range n.Pods {
		if k := e.hold(b, p); k != nil {
			b.content = append(b.content, portion{&class{kind: k, pod: p}, p.N()})
		}
	}
	return b
}

// newBin returns a node that is there, with the pods of its DaemonSets alone.
func newBin(n *nodes.Node) *bin {
	b := &bin{node: asNode(n.Name, n.Labels, n.Taints), all: n.Allocatable, room: n.Allocatable, of: -1, count: 1}
	b.take(n.Daemon, 1)
	b.room.Pods -= n.Daemon.Pods
	b.extra = maps.Clone(n.Extended)
	return b
}

// hold gives a bin's room to a pod that runs there, and returns the pod's kind, nil for one without constraints.
func (e *engine) hold(b *bin, p nodes.Pod) *kind {
	b.take(p.Requests, p.N())
	b.room.Pods -= p.N()
	if p.Scheduling == "" {
		return nil
	}
	k := e.kinds.of(p.Scheduling)
	b.use(k.Resources, p.N())
	b.ports = append(b.ports, k.HostPorts...)
	return k
}

func (b *bin) take(r nodes.Resources, times int) {
	b.room.MilliCPU -= r.MilliCPU * int64(times)
	b.room.Memory -= r.Memory * int64(times)
}

// use takes extended resources.
func (b *bin) use(extra map[string]int64, times int) {
	for name, v := range extra {
		if _, has := b.extra[name]; has {
			b.extra[name] -= v * int64(times)
		}
	}
}

// start makes the rules ready. It is called when all nodes that are there have been added.
func (e *engine) start() {
	e.kinds.link()
	for _, b := range e.bins {
		for _, p := range b.content {
			e.note(p.class.kind, b, p.n)
		}
	}
	for _, c := range e.classes {
		c.closed = c.problem
	}
	order(e.classes)
}

// order sorts classes as they are placed: real pods before those of buffers, of each what is bound most first, then the biggest.
func order(classes []*class) {
	slices.SortStableFunc(classes, func(a, b *class) int {
		if a.virtual() != b.virtual() {
			if b.virtual() {
				return -1
			}
			return 1
		}
		if a.free() != b.free() {
			if b.free() {
				return -1
			}
			return 1
		}
		return cmp.Compare(b.size(), a.size())
	})
}

// size makes amounts of different resources comparable: a core weighs as much as 4 GiB, about the ratio at which EC2 sells them.
func (c *class) size() float64 {
	return math.Max(float64(c.needs.MilliCPU)/1000, float64(c.needs.Memory)/(4<<30))
}

// note counts pods of a kind that a bin holds.
func (e *engine) note(k *kind, b *bin, n int) {
	for _, r := range k.selected {
		if d, ok := b.domain(r.key); ok {
			r.count[d] += n
			r.total += n
		}
	}
	for _, r := range k.without {
		if d, ok := b.domain(r.key); ok {
			r.holders[d] += n
		}
	}
}

// domain returns the value of a node label; a node's name stands for its host name.
func (b *bin) domain(key string) (string, bool) {
	if v, ok := b.node.Labels[key]; ok {
		return v, true
	}
	return b.node.Name, key == corev1.LabelHostname && b.node.Name != ""
}

// admits reports whether labels and taints of a bin let a kind in.
func (b *bin) admits(k *kind) bool {
	if k.anywhere && len(b.node.Spec.Taints) == 0 {
		return true
	}
	ok, known := b.admit[k]
	if !known {
		ok = k.admits(b.node) == ""
		if b.admit == nil {
			b.admit = map[*kind]bool{}
		}
		b.admit[k] = ok
	}
	return ok
}

// capacity returns how many pods of a class fit a bin's room, up to most.
func (b *bin) capacity(c *class, most int) int {
	n := min(most, b.room.Pods)
	if c.needs.MilliCPU > 0 {
		n = min(n, int(max(b.room.MilliCPU, 0)/c.needs.MilliCPU))
	}
	if c.needs.Memory > 0 {
		n = min(n, int(max(b.room.Memory, 0)/c.needs.Memory))
	}
	if len(c.Resources) > 0 {
		for name, v := range c.Resources {
			n = min(n, int(max(b.extra[name], 0)/v))
		}
	}
	return max(n, 0)
}

// put places n pods of a class.
func (e *engine) put(c *class, b *bin, n int) {
	b.take(c.needs, n)
	b.room.Pods -= n
	b.use(c.Resources, n)
	b.ports = append(b.ports, c.HostPorts...)
	if last := len(b.content) - 1; last >= 0 && b.content[last].class == c {
		b.content[last].n += n
	} else {
		b.content = append(b.content, portion{c, n})
	}
	e.note(c.kind, b, n)
	c.left -= n
}

// never reports whether a bin will not take a class any more, whatever else happens: room and ports only become less, and the pods that
// it can't bear beside it only more.
func (b *bin) never(c *class) bool {
	return b.capacity(c, 1) == 0 || !b.admits(c.kind) || collides(b.ports, c.HostPorts) || b.unbearable(c.kind) != nil
}

// unbearable returns the rule of the anti-affinity that keeps a kind off a bin, its own or that of pods that are there; nil if none does.
func (b *bin) unbearable(k *kind) *rule {
	for _, r := range k.without {
		if d, ok := b.domain(r.key); ok && r.count[d] > 0 {
			return r
		}
	}
	for _, r := range k.selected {
		if !r.forbids {
			continue
		}
		if d, ok := b.domain(r.key); ok && r.holders[d] > 0 {
			return r
		}
	}
	return nil
}

// allows reports whether affinity, anti-affinity and spread let one more pod of a kind onto a bin; the reason is "" if they do.
// leasts are those of the kind's spread constraints.
func (e *engine) allows(k *kind, b *bin, leasts []int) (reason string) {
	if r := b.unbearable(k); r != nil {
		return unbearableText(k, r)
	}
	for _, r := range k.with {
		d, ok := b.domain(r.key)
		first := r.total == 0 && slices.Contains(k.selected, r) // nothing to be near to yet, and it may be near to itself
		if !ok || r.count[d] == 0 && !first {
			return "the pods that its affinity needs are in no " + r.key + " that has room"
		}
	}
	for i, s := range k.spread {
		d, ok := b.domain(s.key)
		self := 0
		if slices.Contains(k.selected, s.rule) {
			self = 1
		}
		if !ok || s.count[d]+self-leasts[i] > int(s.MaxSkew) {
			return "its topology spread over " + s.key + " would be uneven"
		}
	}
	return ""
}

const portTaken = "its host port is taken"

func unbearableText(k *kind, r *rule) string {
	if slices.Contains(k.without, r) {
		return "its anti-affinity rules out every " + r.key + " that has room"
	}
	return "the anti-affinity of other pods rules out every " + r.key + " that has room"
}

// least returns the fewest selected pods that a domain of a spread constraint has, counting the domains of nodes that are there, of
// nodes to come, and the zones in which a node could be launched.
func (e *engine) least(k *kind, s *spreadRule) int {
	look := func(d string, n *corev1.Node) {
		if !s.known[d] && s.counts(k, n) {
			s.known[d] = true
			s.domains = append(s.domains, d)
		}
	}
	if e.m != nil && s.looked == 0 && s.key == corev1.LabelTopologyZone {
		for i := range e.m.offerings {
			for z, n := range e.m.offerings[i].nodes {
				if e.m.offerings[i].zones&(1<<z) != 0 {
					look(e.m.zones[z], n)
				}
			}
		}
	}
	before := len(s.domains)
	for _, b := range e.bins[s.looked:] {
		if d, ok := b.domain(s.key); ok {
			look(d, b.node)
		}
	}
	s.looked = len(e.bins)
	if len(s.domains) < int(s.MinDomains) || len(s.domains) == 0 {
		return 0
	}
	if before == len(s.domains) && s.known[s.witness] && s.count[s.witness] == s.least {
		return s.least // counts only grow
	}
	s.least = math.MaxInt
	for _, d := range s.domains {
		if n := s.count[d]; n <= s.least {
			s.least, s.witness = n, d // the last one, which is chosen last
		}
	}
	return s.least
}

// placeOnExisting places what fits the nodes that are there.
func (e *engine) placeOnExisting() {
	for _, c := range e.classes {
		if c.closed == "" {
			e.placeOn(c, e.bins)
		}
	}
}

// placeOn places as much of a class as fits some bins.
func (e *engine) placeOn(c *class, bins []*bin) {
	if c.free() {
		for _, b := range bins {
			if c.left == 0 {
				return
			}
			if n := b.capacity(c, c.left/b.count); n > 0 && b.count == 1 && b.admits(c.kind) {
				e.put(c, b, n)
			}
		}
		return
	}
	e.placeEach(c, slices.Clone(bins))
}

// placeEach places as many of a class that is not free as bins allow, one by one. It returns those of the bins that may allow more when
// pods have come elsewhere, in the same array.
func (e *engine) placeEach(c *class, open []*bin) []*bin {
	open = slices.DeleteFunc(open, func(b *bin) bool { return b.never(c) })
	for c.left > 0 {
		b := e.choose(c, slices.Values(open))
		if b == nil {
			break
		}
		e.put(c, b, 1)
		if b.never(c) {
			i := slices.Index(open, b)
			open = slices.Delete(open, i, i+1)
		}
	}
	return open
}

// choose returns the bin for one pod: of those that allow it the one with the fewest pods that its first spread constraint counts,
// then the first; nil if none allows it.
func (e *engine) choose(c *class, bins iter.Seq[*bin]) *bin {
	var best *bin
	fewest := math.MaxInt
	leasts := e.leasts(c.kind)
	for b := range bins {
		n := 0
		if len(c.spread) > 0 {
			d, _ := b.domain(c.spread[0].key)
			n = c.spread[0].count[d]
		}
		if n < fewest && e.allows(c.kind, b, leasts) == "" {
			best, fewest = b, n
			if n == 0 || len(leasts) > 0 && n <= leasts[0] {
				break
			}
		}
	}
	return best
}

func (e *engine) leasts(k *kind) []int {
	out := make([]int, len(k.spread))
	least := e.least
	if e.leastOf != nil {
		least = e.leastOf
	}
	for i, s := range k.spread {
		out[i] = least(k, s)
	}
	return out
}

// refusal says why the rest of a class fits none of the bins: the reason of the bin that came nearest to taking it.
func (e *engine) refusal(c *class) string {
	if c.closed != "" {
		return c.closed
	}
	near, why := 0, "no node is there"
	leasts := e.leasts(c.kind)
	for _, b := range e.bins {
		var n int
		var reason string
		switch {
		case !b.admits(c.kind):
			n, reason = 1, c.admits(b.node)
		case b.capacity(c, 1) == 0:
			n, reason = 2, "none that it may run on has room"
		case collides(b.ports, c.HostPorts):
			n, reason = 3, portTaken
		default:
			n, reason = 4, e.allows(c.kind, b, leasts)
		}
		if n > near {
			near, why = n, reason
		}
	}
	return why
}

// portion is how many pods of a class a bin holds.
type portion struct {
	class *class
	n     int
}

// sharing is a class of which some pods share a node in a zone.
type sharing struct {
	class *class
	zone  int
	pods  int
}
