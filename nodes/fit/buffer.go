package fit

import "github.com/muster-dev/muster/nodes"

var _ nodes.BufferSizer = (*Fit)(nil)

// Placed says how much of the pending pods has room on what is there and coming. A packing's order puts the pods of buffers last.
func (f *Fit) Placed(q nodes.Question) (ready, coming []int) {
	pending := q.Observation.Pending
	ready, coming = make([]int, len(pending)), make([]int, len(pending))
	m := f.offers(q.Policy, q.Observation, q.Exhausted, q.Now)
	e := newEngine(&m, nil)
	of := make([]*class, len(pending)) // nil: no node would run it
	for i, p := range pending {
		if p.NeverFit == "" {
			of[i] = newClass(e.kinds.of(p.Scheduling), p)
			e.classes = append(e.classes, of[i])
		}
	}
	bins := f.addFleet(e, q)
	e.start()
	e.placeOnExisting()

	onTheirWay := map[*class]int{}
	for _, b := range bins {
		for _, p := range b.content {
			onTheirWay[p.class] += p.n
		}
	}
	for i, c := range of {
		if c != nil {
			coming[i] = onTheirWay[c]
			ready[i] = c.pod.N() - c.left - coming[i]
		}
	}
	return ready, coming
}

// virtual reports whether the class is of pods that nobody has created: those of a capacity buffer.
func (c *class) virtual() bool { return c.pod.Buffer != "" }

// Know makes pods known that are on none of the fleet's nodes and will be asked about with every question. Those with affinity or spread of
// their own would change the rules that the nodes were counted by: they stay unknown, and a question about them looks at all nodes.
func (fl *fleet) Know(pods []nodes.Pod) {
	for _, p := range pods {
		c, err := Decode(p.Scheduling)
		if err != nil || len(c.Spread)+len(c.Affinity)+len(c.AntiAffinity) > 0 {
			continue
		}
		k := fl.known.of(p.Scheduling)
		k.selected = nil
		for _, r := range fl.known.rules {
			if r.selects(k.Constraints) {
				k.selected = append(k.selected, r)
			}
		}
	}
}
