package sim

import (
	"cmp"
	"slices"
	"time"
)

// workload is the pods and the scheduler that places them.
type workload struct {
	time   *timeline
	ledger *ledger
	pods   []*pod
}

// add adds a pod that waits for a node, or runs on one without asking whether there is room.
func (l *workload) add(spec PodSpec, on *node) {
	l.pods = append(l.pods, &pod{PodSpec: spec, since: l.time.now, node: on})
}

// remove removes the pods that a condition is true of, and reports whether there were any.
func (l *workload) remove(which func(*pod) bool) bool {
	before := len(l.pods)
	l.pods = slices.DeleteFunc(l.pods, which)
	return len(l.pods) < before
}

// drop removes one pod, and reports whether it was there.
func (l *workload) drop(p *pod) bool {
	return l.remove(func(o *pod) bool { return o == p })
}

// pending returns how many pods wait for a node that some node could run.
func (l *workload) pending() int {
	n := 0
	for _, p := range l.pods {
		if p.node == nil && p.NeverFit == "" {
			n++
		}
	}
	return n
}

// movable returns the pods on a node that a drain moves.
func (l *workload) movable(n *node) []*pod {
	var out []*pod
	for _, p := range l.pods {
		if p.node == n && !p.Daemon {
			out = append(out, p)
		}
	}
	return out
}

// release makes the pods of a node pending again, or forgets them if no controller would.
func (l *workload) release(n *node) {
	l.remove(func(p *pod) bool { return p.node == n && p.Daemon })
	for _, p := range l.pods {
		if p.node == n {
			p.unplace(l.time.now)
			p.Stuck = false
		}
	}
}

// evict begins the deletion of a pod on a client's behalf. Its grace is the pod's own, at most most unless that is 0.
func (l *workload) evict(actor string, p *pod, most time.Duration) {
	now := l.time.now
	grace := cmp.Or(p.Grace, 2*time.Second)
	if most > 0 {
		grace = min(grace, most)
	}
	l.ledger.record(Entry{Actor: actor, Kind: Evicted, Instance: p.node.instance.ID, Node: p.node.NodeRef, Detail: p.Name, Holding: p.holding(now)})
	if p.Stuck {
		p.goes = now.Add(never)
		return
	}

	from := p.node
	p.goes = now.Add(grace)
	l.time.after(grace, func() {
		if p.node == from {
			p.unplace(l.time.now)
		}
	})
}

// never is longer than any simulation takes.
const never = 1000 * time.Hour

// schedule counts what each node has in use and places pending pods, those that have waited longest first. It returns how many stay pending.
func (l *workload) schedule(on []*node) (pending int) {
	for _, n := range on {
		n.used.MilliCPU, n.used.Memory, n.used.Pods = 0, 0, 0
	}
	for _, p := range l.pods {
		if p.node != nil {
			p.occupy()
		}
	}

	for _, p := range l.pods {
		if p.node != nil {
			continue
		}
		if p.NeverFit == "" {
			if n := place(p, on); n != nil {
				l.start(p, n)
				continue
			}
		}
		pending++
	}
	return pending
}

// place returns the node on which a pod leaves most room, on average of CPU and memory, as the scheduler's LeastAllocated does; the
// first of equals, nil if it fits none.
func place(p *pod, on []*node) *node {
	var best *node
	most := -1.0
	for _, n := range on {
		schedulable := !n.ControlPlane && n.Available() && n.instance.alive()
		if !schedulable || n.closed || !n.DiskFullSince.IsZero() || !p.selects(n) || !p.tolerated(n) {
			continue
		}
		if room, fits := p.room(n); fits && room > most {
			best, most = n, room
		}
	}
	return best
}

// start puts a pod onto a node.
func (l *workload) start(p *pod, n *node) {
	p.node = n
	p.began++
	p.occupy()
	l.ledger.follow(Entry{Kind: Placed, Instance: n.instance.ID, Node: n.NodeRef, Detail: p.Name})
	if p.Runs == 0 {
		return
	}

	run := p.began
	l.time.after(p.Runs, func() {
		if p.node == nil || p.began != run { // evicted meanwhile, it starts from the beginning
			return
		}
		l.ledger.follow(Entry{Kind: Finished, Instance: p.node.instance.ID, Node: p.node.NodeRef, Detail: p.Name})
		l.drop(p)
	})
}
