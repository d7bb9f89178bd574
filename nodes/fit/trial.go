package fit

// trial is one question to a fleet: one node is out, and what is placed is taken back at its end.
type trial struct {
	fl     *fleet
	own    int // the node that is out
	placed []placing
	on     map[*bin]bool // on which something is placed
}

// placing is a number of pods of a class that were put on a bin.
type placing struct {
	class *class
	bin   *bin
	n     int
}

// changed reports whether a node is not as it is between two questions.
func (t *trial) changed(b *bin) bool { return t != nil && (t.on[b] || t.fl.e.bins[t.own] == b) }

// try places classes one after the other on all nodes but one, and takes everything back. It returns "" if all have a place.
func (fl *fleet) try(own int, classes []*class, place func(*trial, *class)) string {
	for _, c := range classes {
		fl.spreadOf(c.kind)
	}
	t := &trial{fl: fl, own: own, on: map[*bin]bool{}}
	fl.trial = t
	fl.note(own, -1)
	defer func() {
		t.undo()
		fl.note(own, 1)
		fl.trial = nil
	}()

	for _, c := range classes {
		if place(t, c); c.left > 0 {
			return refused(c, t.refusal(c))
		}
	}
	return ""
}

// place places as much of a class as fits, as an engine with these nodes would.
func (t *trial) place(c *class) {
	if !c.free() {
		t.placeEach(c)
		return
	}
	for b := range t.bins(c) {
		if n := b.capacity(c, c.left); n > 0 {
			t.put(c, b, n)
		}
		if c.left == 0 {
			return
		}
	}
}

// placeEach places pods of a class that is not free, one by one, because each changes what the next may do.
func (t *trial) placeEach(c *class) {
	for c.left > 0 {
		b := t.fl.e.choose(c, func(yield func(*bin) bool) {
			for b := range t.bins(c) {
				if !b.never(c) && !yield(b) {
					return
				}
			}
		})
		if b == nil {
			return
		}
		t.put(c, b, 1)
	}
}

// bins yields the nodes that may take a pod of a class, in their order, without the one that is out.
func (t *trial) bins(c *class) func(yield func(*bin) bool) {
	places := t.fl.placesOf(c)
	return func(yield func(*bin) bool) {
		for n := 0; ; n++ {
			i, found := t.fl.nth(places, n)
			t.fl.looked++
			if !found || i != t.own && !yield(t.fl.e.bins[i]) {
				return
			}
		}
	}
}

func (t *trial) put(c *class, b *bin, n int) {
	t.fl.e.put(c, b, n)
	t.placed = append(t.placed, placing{c, b, n})
	t.on[b] = true
}

// undo takes back what was placed, the last first.
func (t *trial) undo() {
	for i := len(t.placed) - 1; i >= 0; i-- {
		p := t.placed[i]
		p.bin.take(p.class.needs, -p.n)
		p.bin.room.Pods += p.n
		p.bin.use(p.class.Resources, -p.n)
		p.bin.ports = p.bin.ports[:len(p.bin.ports)-len(p.class.HostPorts)]
		p.bin.content = nil // a fleet keeps what runs on a node elsewhere
		t.fl.e.note(p.class.kind, p.bin, -p.n)
	}
}

// refusal says why the rest of a class has no place: the reason of the node that comes nearest to taking it.
func (t *trial) refusal(c *class) string {
	full := t.fl.nowhere(c, t.fl.placesOf(c), t.own)
	leasts := t.fl.e.leasts(c.kind)
	for b := range t.bins(c) {
		switch {
		case b.capacity(c, 1) == 0:
			continue
		case collides(b.ports, c.HostPorts):
			full = portTaken
			continue
		}
		if why := t.fl.e.allows(c.kind, b, leasts); why != "" {
			return why
		}
	}
	return full
}
