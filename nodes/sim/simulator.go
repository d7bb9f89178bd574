package sim

import (
	"cmp"
	"container/heap"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/muster-dev/muster/nodes"
)

// Options describe a world at its beginning.
type Options struct {
	Policy  nodes.Policy // whose windows the signals use
	Start   time.Time    // zero: 2024-10-27T04:00:00Z
	Latency time.Duration
	Visible time.Duration // how long a new instance is not listed
	Boot    time.Duration // how long a new instance takes to become Ready; 0: 90 s
	Zones   []string      // one subnet each; nil: a, b
	Workers []string      // zones of the workers that are there, oldest first, hand-made

	WorkerType string                              // of the workers that are there; "": t3.large
	Capacity   func(typ string) nodes.Resources    // what a node of a type can be given; nil: 2 cores, 8 GiB, 20 pods
	BootOf     func(instance string) time.Duration // how long a new instance takes to become Ready; nil: Boot

	// Watch, if it is not nil, is handed every entry when it happens, Placed and Finished ones among them, and the simulator keeps no
	// ledger and forgets instances an hour after their end, so that it can run for months. It is called with the simulator locked.
	Watch func(Entry)
}

// Simulator is a simulated region and cluster. Its methods may be called by several goroutines.
type Simulator struct {
	mu        sync.Mutex
	opts      Options
	now       time.Time
	agenda    agenda
	seq       int
	ledger    []Entry
	entries   int // written so far, whether they are kept or not
	made      int // instances so far
	instances []*instance
	nodes     []*node
	pods      []*pod
	tokens    map[string]*tokenUse
	launches  int
	boots     []Boot
	shortages []Shortage
	outages   []outage
	load      float64 // overrides the computed utilisation if not negative
	history   []sample
	store     store
	events    []nodes.Event
	eventKeys map[string]bool
	budgets   []Budget       // of the Kubernetes API
	replicas  map[string]int // that deployments are to have, by namespace/name
}

// Boot says how one launched instance comes up.
type Boot struct {
	After      time.Duration // until its node joins and is Ready; 0: Options.Boot
	NeverJoins bool          // no Node object ever appears
	NeverReady bool          // the Node object appears and stays not Ready
	DiesAfter  time.Duration // the cloud takes it away this long after the launch; 0: never

	Labels      map[string]string // that its user data gives the node
	Taints      []nodes.Taint
	Unplaceable bool            // no pod tolerates its taints
	Allocatable nodes.Resources // zero: by its type
}

// Shortage refuses launches of matching offerings; empty fields match all.
type Shortage struct {
	Zone, Type string
	Market     nodes.Market
	Kind       nodes.LaunchFailure // "" means FailCapacity
	Until      time.Time           // zero: for good
	FromLaunch int                 // not before this many instances have been launched
}

// Part is a part of the simulator that can be unreachable.
type Part string

// The parts.
const (
	CloudPart   Part = "cloud"
	ClusterPart Part = "cluster"
	SignalsPart Part = "signals"
	StorePart   Part = "store"
	JournalPart Part = "journal"
	WorkersPart Part = "workers"

	TerminatePart Part = "terminate" // terminations alone, as when the permission for them is missing
)

type outage struct {
	part    Part
	from    time.Time
	until   time.Time
	partial bool // lists come back half, with an *nodes.IncompleteError
}

type instance struct {
	nodes.Instance
	visibleAt time.Time
	goneAt    time.Time // when it began to end; zero while it lives
	node      *node     // its Node object, while it exists
	everReady bool
}

func (i *instance) alive() bool { return i.Alive() }

type node struct {
	nodes.Node
	used       nodes.Resources // by pods, when settle last counted
	instance   *instance
	readySince time.Time
	claims     []string
	byHand     bool // a person cordoned it
	closed     bool // no pod tolerates its taints
	kube       kubeNode
}

// PodSpec describes a pod.
type PodSpec struct {
	Name     string
	MilliCPU int64
	Memory   int64
	Critical bool          // aborts a drain
	Stuck    bool          // once evicted it never goes away by itself
	Grace    time.Duration // from its eviction until it is gone; 0: 2 s
	Blocked  bool          // a disruption budget forbids its eviction
	Daemon   bool          // of a DaemonSet: no drain moves it
	NeverFit string        // why no node could run it
	Work     time.Duration // a worker that takes this long to give its work away when asked; 0: no worker
	Runs     time.Duration // how long it runs, once it is on a node, until it has finished and is gone; 0: for good
	Kube     KubeTraits    // what only the Kubernetes API shows of it

	Selector   map[string]string // labels that its node must have
	Scheduling string            // nodes.Pod's; has to say the same as Selector
}

type pod struct {
	PodSpec
	node  *node
	goes  time.Time // when an evicted pod is gone; zero: not evicted
	began int       // how often it was placed
	since time.Time

	handing   time.Time // when it was asked to give its work away; zero: it was not
	handingOn *node     // where it was then: a pod that has moved is another worker
}

// holding reports whether the pod is a worker that would lose its work if it were evicted now.
func (p *pod) holding(now time.Time) bool {
	asked := !p.handing.IsZero() && p.handingOn == p.node
	return p.Work > 0 && (!asked || now.Sub(p.handing) < p.Work)
}

type tokenUse struct {
	request  nodes.LaunchRequest
	instance *instance
}

type sample struct {
	at      time.Time
	cpu     float64
	pending int
}

// New returns a world with its initial workers Ready.
func New(o Options) *Simulator {
	if o.Start.IsZero() {
		o.Start = time.Unix(1730001600, 0).UTC()
	}
	if o.Boot == 0 {
		o.Boot = 90 * time.Second
	}
	if o.Latency == 0 {
		o.Latency = 20 * time.Millisecond
	}
	if o.Zones == nil {
		o.Zones = []string{"a", "b"}
	}
	w := &Simulator{opts: o, now: o.Start, tokens: map[string]*tokenUse{}, load: -1, eventKeys: map[string]bool{}}
	w.store = store{record: nodes.NewRecord(o.Policy.Cluster), items: map[string]nodes.Interruption{}}
	server := w.newInstance(nodes.Instance{Type: "server", Zone: o.Zones[0], Market: nodes.OnDemand, ControlPlane: true, LaunchedAt: o.Start.Add(-200 * time.Hour)})
	server.State, server.visibleAt = nodes.StateRunning, o.Start
	w.join(server, true)
	for i, zone := range o.Workers {
		w.addWorker(zone, o.Start.Add(time.Duration(i-100)*time.Hour))
	}
	w.settle()
	w.ledger = nil
	return w
}

// Clock returns the simulator's time.
func (w *Simulator) Clock() Clock { return Clock{w} }

// addWorker adds a Ready, hand-made Spot worker.
func (w *Simulator) addWorker(zone string, launched time.Time) string {
	in := w.newInstance(nodes.Instance{Type: cmp.Or(w.opts.WorkerType, "t3.large"), Zone: zone, Market: nodes.Spot, LaunchedAt: launched})
	in.State, in.visibleAt = nodes.StateRunning, w.now
	w.join(in, true)
	return in.ID
}

func (w *Simulator) newInstance(in nodes.Instance) *instance {
	w.made++
	n := w.made
	in.ID = fmt.Sprintf("i-%03d", n)
	in.PrivateIP = fmt.Sprintf("10.%d.%d.%d", n/62500, n/250%250, n%250+1)
	in.State = nodes.StatePending
	i := &instance{Instance: in}
	w.instances = append(w.instances, i)
	return i
}

// ---- time

// Advance lets d pass.
func (w *Simulator) Advance(d time.Duration) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.advance(w.now.Add(d))
}

// After does f when d has passed. f runs with the simulator locked and uses its unexported side through the functions of this package
// that say so; it is for scripts of scenarios.
func (w *Simulator) After(d time.Duration, f func()) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.after(d, f)
}

func (w *Simulator) after(d time.Duration, f func()) {
	w.seq++
	heap.Push(&w.agenda, item{w.now.Add(d), w.seq, f})
}

func (w *Simulator) advance(to time.Time) {
	for len(w.agenda) > 0 && !w.agenda[0].at.After(to) {
		it := heap.Pop(&w.agenda).(item)
		if it.at.After(w.now) {
			w.now = it.at
		}
		it.do()
		w.settle()
	}
	if to.After(w.now) {
		w.now = to
	}
}

type item struct {
	at  time.Time
	seq int
	do  func()
}

type agenda []item

func (a agenda) Len() int { return len(a) }
func (a agenda) Less(i, j int) bool {
	return a[i].at.Before(a[j].at) || a[i].at.Equal(a[j].at) && a[i].seq < a[j].seq
}
func (a agenda) Swap(i, j int) { a[i], a[j] = a[j], a[i] }
func (a *agenda) Push(x any)   { *a = append(*a, x.(item)) }
func (a *agenda) Pop() any {
	old := *a
	it := old[len(old)-1]
	*a = old[:len(old)-1]
	return it
}

// ---- instances and nodes

func (w *Simulator) boot(in *instance, b Boot) {
	if b.After == 0 && w.opts.BootOf != nil {
		b.After = w.opts.BootOf(in.ID)
	}
	b.After = cmp.Or(b.After, w.opts.Boot)
	w.after(5*time.Second, func() {
		if in.State == nodes.StatePending {
			in.State = nodes.StateRunning
		}
	})
	if b.DiesAfter > 0 {
		w.after(b.DiesAfter, func() { w.takeAway(in) })
	}
	if b.NeverJoins {
		return
	}
	w.after(b.After, func() {
		if in.State == nodes.StateRunning {
			w.join(in, !b.NeverReady)
			in.node.Labels, in.node.Taints, in.node.closed = b.Labels, b.Taints, b.Unplaceable
			if b.Allocatable.Pods > 0 {
				in.node.Allocatable = b.Allocatable
			}
		}
	})
}

func (w *Simulator) join(in *instance, ready bool) {
	n := &node{instance: in}
	n.Name = in.ID
	n.UID = fmt.Sprintf("uid-%d", w.entries+1000*len(w.nodes))
	n.ProviderID = "aws:///" + in.Zone + "/" + in.ID
	n.InternalIP, n.ControlPlane, n.CreatedAt = in.PrivateIP, in.ControlPlane, w.now
	n.Allocatable = nodes.Resources{MilliCPU: 2000, Memory: 8 << 30, Pods: 20}
	if w.opts.Capacity != nil {
		n.Allocatable = w.opts.Capacity(in.Type)
	}
	n.NotReadySince = w.now
	in.node = n
	w.nodes = append(w.nodes, n)
	w.record(Entry{Kind: Joined, Instance: in.ID, Node: n.NodeRef, Zone: in.Zone})
	if ready {
		w.setReady(n, true)
	}
}

func (w *Simulator) setReady(n *node, ready bool) {
	if n.Ready == ready {
		return
	}
	n.Ready, n.NotReadySince = ready, w.now
	kind := BecameNotReady
	if ready {
		n.NotReadySince = time.Time{}
		kind, n.readySince, n.instance.everReady = BecameReady, w.now, true
	}
	w.record(Entry{Kind: kind, Instance: n.instance.ID, Node: n.NodeRef, Zone: n.instance.Zone})
}

// end begins the end of an instance, on anybody's request.
func (w *Simulator) end(in *instance) {
	in.State, in.goneAt, in.PrivateIP = nodes.StateShuttingDown, w.now, ""
	if n := in.node; n != nil {
		if lost := w.movable(n); len(lost) > 0 {
			w.record(Entry{Kind: Lost, Instance: in.ID, Detail: fmt.Sprint(len(lost))})
		}
		w.after(10*time.Second, func() {
			w.setReady(n, false)
			w.release(n)
		})
	}
	w.after(30*time.Second, func() { in.State = nodes.StateTerminated })
	if w.opts.Watch != nil {
		w.after(time.Hour, func() { w.forget(in) })
	}
}

// forget drops an instance that nothing shows any more.
func (w *Simulator) forget(in *instance) {
	if in.node == nil {
		w.instances = slices.DeleteFunc(w.instances, func(i *instance) bool { return i == in })
	}
	w.history = slices.DeleteFunc(w.history, func(s sample) bool { return w.now.Sub(s.at) > 24*time.Hour })
}

// release makes the pods of a node pending again, or forgets them if no controller would.
func (w *Simulator) release(n *node) {
	w.pods = slices.DeleteFunc(w.pods, func(p *pod) bool { return p.node == n && p.Daemon })
	for _, p := range w.pods {
		if p.node == n {
			p.node, p.goes, p.Stuck, p.since = nil, time.Time{}, false, w.now
		}
	}
}

func (w *Simulator) takeAway(in *instance) {
	if !in.alive() {
		return
	}
	w.record(Entry{Kind: TakenAway, Instance: in.ID, Zone: in.Zone, Facts: w.facts(in)})
	w.end(in)
}

func (w *Simulator) find(id string) *instance {
	for _, in := range w.instances {
		if in.ID == id {
			return in
		}
	}
	return nil
}

func (w *Simulator) findNode(ref nodes.NodeRef) *node {
	for _, n := range w.nodes {
		if n.NodeRef == ref {
			return n
		}
	}
	return nil
}

// movable returns the pods on a node that a drain moves.
func (w *Simulator) movable(n *node) []*pod {
	var out []*pod
	for _, p := range w.pods {
		if p.node == n && !p.Daemon {
			out = append(out, p)
		}
	}
	return out
}

// ---- pods

// settle places pending pods, those that have waited longest first, and notes load and pending pods for the signals.
func (w *Simulator) settle() {
	for _, n := range w.nodes {
		n.used = nodes.Resources{}
	}
	for _, p := range w.pods {
		if p.node != nil {
			p.node.use(p)
		}
	}
	s := sample{at: w.now}
	for _, p := range w.pods {
		if p.node != nil {
			continue
		}
		if p.NeverFit == "" {
			if n := w.place(p); n != nil {
				w.start(p, n)
				continue
			}
		}
		s.pending++
	}
	s.cpu = w.utilisation()
	if n := len(w.history); n == 0 || w.history[n-1].cpu != s.cpu || w.history[n-1].pending != s.pending {
		w.history = append(w.history, s)
	}
}

func (n *node) use(p *pod) {
	n.used.MilliCPU += p.MilliCPU
	n.used.Memory += p.Memory
	n.used.Pods++
}

// start puts a pod onto a node.
func (w *Simulator) start(p *pod, n *node) {
	p.node = n
	p.began++
	n.use(p)
	if w.opts.Watch != nil {
		w.record(Entry{Kind: Placed, Instance: n.instance.ID, Node: n.NodeRef, Detail: p.Name})
	}
	if p.Runs == 0 {
		return
	}
	run := p.began
	w.after(p.Runs, func() {
		if p.node == nil || p.began != run { // evicted meanwhile, it starts from the beginning
			return
		}
		if w.opts.Watch != nil {
			w.record(Entry{Kind: Finished, Instance: p.node.instance.ID, Node: p.node.NodeRef, Detail: p.Name})
		}
		w.pods = slices.DeleteFunc(w.pods, func(o *pod) bool { return o == p })
	})
}

// place returns the node on which a pod leaves most room, on average of CPU and memory, as the scheduler's LeastAllocated does; the
// first of equals, nil if it fits none.
func (w *Simulator) place(p *pod) *node {
	var best *node
	most := -1.0
	for _, n := range w.nodes {
		if n.ControlPlane || !n.Ready || n.Unschedulable || !n.instance.alive() {
			continue
		}
		if n.closed || !p.selects(n) {
			continue
		}
		cpu, mem := n.Allocatable.MilliCPU-n.used.MilliCPU-p.MilliCPU, n.Allocatable.Memory-n.used.Memory-p.Memory
		if cpu < 0 || mem < 0 || n.used.Pods >= n.Allocatable.Pods {
			continue
		}
		if score := float64(cpu)/float64(n.Allocatable.MilliCPU) + float64(mem)/float64(n.Allocatable.Memory); score > most {
			best, most = n, score
		}
	}
	return best
}

func (p *pod) selects(n *node) bool {
	for name, value := range p.Selector {
		if v, ok := n.Labels[name]; !ok || v != value {
			return false
		}
	}
	return true
}

func (w *Simulator) utilisation() float64 {
	if w.load >= 0 {
		return w.load
	}
	var used, all int64
	for _, n := range w.nodes {
		if n.ControlPlane || !n.Ready {
			continue
		}
		used += n.used.MilliCPU
		all += n.Allocatable.MilliCPU
	}
	if all == 0 {
		return 0
	}
	return float64(used) / float64(all)
}
