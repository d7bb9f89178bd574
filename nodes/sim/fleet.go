package sim

import (
	"fmt"
	"slices"
	"time"

	"github.com/muster-dev/muster/nodes"
)

// Boot says how one launched instance comes up.
type Boot struct {
	After      time.Duration // until its node joins and is Ready; 0: Options.Boot
	NeverJoins bool          // no Node object ever appears
	NeverReady bool          // the Node object appears and stays not Ready
	DiesAfter  time.Duration // the cloud takes it away this long after the launch; 0: never

	Labels      map[string]string // that its user data gives the node
	Taints      []nodes.Taint
	Unplaceable bool            // no pod tolerates its taints
	keeps       []nodes.Taint   // that pods have to tolerate
	Allocatable nodes.Resources // zero: by its type
}

// Joins is what user data gives a node. Unlike those of a Boot, which only show, the scheduler heeds these taints.
type Joins struct {
	Labels map[string]string
	Taints []nodes.Taint
}

// hardware says what the machines of a region are like.
type hardware struct {
	workerType string
	workerHash string
	poolOf     func(n int) string
	workerGets Joins
	capacity   func(typ string) nodes.Resources
	bootOf     func(instance string) time.Duration
}

// fleet is the instances of the region and the nodes of the cluster that they become.
//
// A long simulation forgets an instance an hour after its end, when no list shows it any more.
type fleet struct {
	time     *timeline
	ledger   *ledger
	pods     *workload
	signals  *signals
	hardware hardware
	forgets  bool // ended instances are dropped

	made      int // instances so far
	instances []*instance
	nodes     []*node
}

// create adds an instance that is pending.
func (f *fleet) create(in nodes.Instance) *instance {
	f.made++
	n := f.made
	in.ID = fmt.Sprintf("i-%03d", n)
	in.PrivateIP = fmt.Sprintf("10.%d.%d.%d", n/62500, n/250%250, n%250+1)
	in.State = nodes.StatePending
	i := &instance{Instance: in}
	f.instances = append(f.instances, i)
	return i
}

// addReady adds an instance that a person made and that has joined the cluster already.
func (f *fleet) addReady(in nodes.Instance) string {
	i := f.create(in)
	i.State, i.visibleAt = nodes.StateRunning, f.time.now
	f.join(i, true)
	return i.ID
}

// addWorker adds a Ready, hand-made Spot worker.
func (f *fleet) addWorker(zone string, launched time.Time) string {
	h := f.hardware
	id := f.addReady(nodes.Instance{Type: h.workerType, Zone: zone, Market: nodes.Spot, Pool: h.poolOf(f.made - 1), LaunchedAt: launched, TemplateHash: h.workerHash})
	node := f.nodeOf(id)
	node.Labels, node.Taints, node.keeps = h.workerGets.Labels, h.workerGets.Taints, h.workerGets.Taints
	return id
}

// boot lets a launched instance come up.
func (f *fleet) boot(in *instance, b Boot) {
	after := b.After
	if after == 0 {
		after = f.hardware.bootOf(in.ID)
	}
	f.time.after(5*time.Second, func() {
		if in.State == nodes.StatePending {
			in.State = nodes.StateRunning
		}
	})
	if b.DiesAfter > 0 {
		f.time.after(b.DiesAfter, func() { f.takeAway(in) })
	}
	if b.NeverJoins {
		return
	}

	f.time.after(after, func() {
		if in.State == nodes.StateRunning {
			f.join(in, !b.NeverReady)
			in.node.Labels, in.node.Taints, in.node.closed = b.Labels, b.Taints, b.Unplaceable
			in.node.keeps = b.keeps
			if b.Allocatable.Pods > 0 {
				in.node.Allocatable = b.Allocatable
			}
		}
	})
}

// join registers the Node object of an instance.
func (f *fleet) join(in *instance, ready bool) {
	now := f.time.now
	n := &node{instance: in}
	n.Name = in.ID
	n.UID = fmt.Sprintf("uid-%d", f.ledger.written+1000*len(f.nodes))
	n.ProviderID = "aws:///" + in.Zone + "/" + in.ID
	n.InternalIP, n.ControlPlane, n.CreatedAt = in.PrivateIP, in.ControlPlane, now
	n.Allocatable = f.hardware.capacity(in.Type)
	n.NotReadySince = now
	in.node = n
	f.nodes = append(f.nodes, n)
	f.ledger.record(Entry{Kind: Joined, Instance: in.ID, Node: n.NodeRef, Zone: in.Zone})
	if ready {
		f.setReady(n, true)
	}
}

// setReady makes a node Ready or not Ready.
func (f *fleet) setReady(n *node, ready bool) {
	if n.Ready == ready {
		return
	}

	now := f.time.now
	n.Ready, n.NotReadySince = ready, now
	kind := BecameNotReady
	if ready {
		n.NotReadySince = time.Time{}
		kind, n.readySince, n.instance.everReady = BecameReady, now, true
	}
	f.ledger.record(Entry{Kind: kind, Instance: n.instance.ID, Node: n.NodeRef, Zone: n.instance.Zone})
}

// end begins the end of an instance, on anybody's request.
func (f *fleet) end(in *instance) {
	in.State, in.goneAt, in.PrivateIP = nodes.StateShuttingDown, f.time.now, ""
	if n := in.node; n != nil {
		if lost := f.pods.movable(n); len(lost) > 0 {
			f.ledger.record(Entry{Kind: Lost, Instance: in.ID, Detail: fmt.Sprint(len(lost))})
		}
		f.time.after(10*time.Second, func() {
			f.setReady(n, false)
			f.pods.release(n)
		})
	}
	f.time.after(30*time.Second, func() { in.State = nodes.StateTerminated })
	if f.forgets {
		f.time.after(time.Hour, func() { f.forget(in) })
	}
}

// forget drops an instance that nothing shows any more.
func (f *fleet) forget(in *instance) {
	if in.node == nil {
		f.instances = slices.DeleteFunc(f.instances, func(i *instance) bool { return i == in })
	}
	f.signals.forget()
}

// takeAway ends an instance from outside, if it hasn't ended.
func (f *fleet) takeAway(in *instance) {
	if !in.alive() {
		return
	}
	f.ledger.record(Entry{Kind: TakenAway, Instance: in.ID, Zone: in.Zone, Facts: f.facts(in)})
	f.end(in)
}

// removeNode deletes a Node object. Its instance lives on.
func (f *fleet) removeNode(n *node) {
	f.pods.release(n)
	n.instance.node = nil
	f.nodes = slices.DeleteFunc(f.nodes, func(o *node) bool { return o == n })
}

// find returns an instance, nil if there is none of that ID.
func (f *fleet) find(id string) *instance {
	for _, in := range f.instances {
		if in.ID == id {
			return in
		}
	}
	return nil
}

// findNode returns a node, nil if there is none of that name and UID.
func (f *fleet) findNode(ref nodes.NodeRef) *node {
	for _, n := range f.nodes {
		if n.NodeRef == ref {
			return n
		}
	}
	return nil
}

// nodeOf returns the node of an instance, nil if either doesn't exist.
func (f *fleet) nodeOf(instanceID string) *node {
	if in := f.find(instanceID); in != nil {
		return in.node
	}
	return nil
}

// Fleet counts the workers as they are, and the pods that wait for one.
type Fleet struct {
	Alive      int // pending and running
	Ready      int // alive with a Ready node
	Available  int // Ready and not cordoned
	Cordoned   int // alive with a node that is cordoned or has a mark of a drain
	Nodeless   int // alive without a Node object
	StaleNodes int // Node objects of instances that have ended
	Pending    int // pods without a node that some node could run
	Requested  int // pods whose eviction is requested where they are
}

// count counts the workers.
func (f *fleet) count() Fleet {
	var c Fleet
	for _, in := range f.instances {
		if in.ControlPlane || !in.alive() {
			continue
		}
		c.Alive++
		n := in.node
		if n == nil {
			c.Nodeless++
			continue
		}
		if n.Ready {
			c.Ready++
		}
		if n.Available() {
			c.Available++
		}
		if n.Closed() || n.unbalanced {
			c.Cordoned++
		}
	}
	for _, n := range f.nodes {
		if !n.instance.alive() {
			c.StaleNodes++
		}
	}
	return c
}

// lived adds up how long workers have lived since a time.
func (f *fleet) lived(since time.Time) time.Duration {
	var sum time.Duration
	for _, in := range f.instances {
		if in.ControlPlane {
			continue
		}
		from, to := in.LaunchedAt, f.time.now
		if from.Before(since) {
			from = since
		}
		if !in.goneAt.IsZero() {
			to = in.goneAt
		}
		sum += to.Sub(from)
	}
	return sum
}

// facts returns what is true of an instance now.
func (f *fleet) facts(in *instance) Facts {
	facts := Facts{Alive: in.alive(), EverReady: in.everReady, Control: in.ControlPlane, HandMade: in.ActionID == ""}
	if n := in.node; n != nil {
		facts.Joined, facts.Cordoned = true, n.Unschedulable && n.marked()
		if n.Ready {
			facts.ReadySince = n.readySince
		}
		facts.Pods = len(f.pods.movable(n))
	}

	for _, o := range f.instances {
		if o.ControlPlane || !o.alive() {
			continue
		}
		facts.AliveAll++
		if o == in || o.node == nil || !o.node.Available() {
			continue
		}
		facts.Available++
		if o.Zone == in.Zone {
			facts.InZone++
		} else {
			facts.Elsewhere++
		}
	}
	return facts
}

// markedFacts returns the facts of the instance that a write has marked for its termination, if it has marked one.
func (f *fleet) markedFacts(before, after nodes.Record) Facts {
	for _, m := range after.Removals {
		old, _ := before.Removal(m.InstanceID)
		marked := m.Phase == nodes.PhaseTerminating && old.Phase != nodes.PhaseTerminating
		if in := f.find(m.InstanceID); marked && in != nil {
			return f.facts(in)
		}
	}
	return Facts{}
}
