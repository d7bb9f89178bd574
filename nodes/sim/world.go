package sim

import (
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
}

// World is a simulated region and cluster. Its methods may be called by several goroutines.
type World struct {
	mu        sync.Mutex
	opts      Options
	now       time.Time
	agenda    agenda
	seq       int
	ledger    []Entry
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
}

// Boot says how one launched instance comes up.
type Boot struct {
	After      time.Duration // until its node joins and is Ready; 0: Options.Boot
	NeverJoins bool          // no Node object ever appears
	NeverReady bool          // the Node object appears and stays not Ready
	DiesAfter  time.Duration // the cloud takes it away this long after the launch; 0: never
}

// Shortage refuses launches of matching offerings; empty fields match all.
type Shortage struct {
	Zone, Type string
	Market     nodes.Market
	Kind       nodes.LaunchFailure // "" means FailCapacity
	Until      time.Time           // zero: for good
	FromLaunch int                 // not before this many instances have been launched
}

// Part is a part of the world that can be unreachable.
type Part string

// The parts.
const (
	CloudPart   Part = "cloud"
	ClusterPart Part = "cluster"
	SignalsPart Part = "signals"
	StorePart   Part = "store"
	JournalPart Part = "journal"

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
	instance   *instance
	readySince time.Time
	claims     []string
	byHand     bool // a person cordoned it
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
}

type pod struct {
	PodSpec
	node  *node
	goes  time.Time // when an evicted pod is gone; zero: not evicted
	since time.Time
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
func New(o Options) *World {
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
	w := &World{opts: o, now: o.Start, tokens: map[string]*tokenUse{}, load: -1, eventKeys: map[string]bool{}}
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

// Clock returns the world's time.
func (w *World) Clock() Clock { return Clock{w} }

// addWorker adds a Ready, hand-made Spot worker.
func (w *World) addWorker(zone string, launched time.Time) string {
	in := w.newInstance(nodes.Instance{Type: "t3.large", Zone: zone, Market: nodes.Spot, LaunchedAt: launched})
	in.State, in.visibleAt = nodes.StateRunning, w.now
	w.join(in, true)
	return in.ID
}

func (w *World) newInstance(in nodes.Instance) *instance {
	n := len(w.instances) + 1
	in.ID = fmt.Sprintf("i-%03d", n)
	in.PrivateIP = fmt.Sprintf("10.0.%d.%d", n/250, n%250+1)
	in.State = nodes.StatePending
	i := &instance{Instance: in}
	w.instances = append(w.instances, i)
	return i
}

// ---- time

// Advance lets d pass.
func (w *World) Advance(d time.Duration) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.advance(w.now.Add(d))
}

// After does f when d has passed. f runs with the world locked and uses its unexported side through the functions of this package
// that say so; it is for scripts of scenarios.
func (w *World) After(d time.Duration, f func()) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.after(d, f)
}

func (w *World) after(d time.Duration, f func()) {
	w.seq++
	heap.Push(&w.agenda, item{w.now.Add(d), w.seq, f})
}

func (w *World) advance(to time.Time) {
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

func (w *World) boot(in *instance, b Boot) {
	if b.After == 0 {
		b.After = w.opts.Boot
	}
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
		}
	})
}

func (w *World) join(in *instance, ready bool) {
	n := &node{instance: in}
	n.Name = in.ID
	n.UID = fmt.Sprintf("uid-%d", len(w.ledger)+1000*len(w.nodes))
	n.ProviderID = "aws:///" + in.Zone + "/" + in.ID
	n.InternalIP, n.ControlPlane, n.CreatedAt = in.PrivateIP, in.ControlPlane, w.now
	n.Allocatable = nodes.Resources{MilliCPU: 2000, Memory: 8 << 30, Pods: 20}
	in.node = n
	w.nodes = append(w.nodes, n)
	w.record(Entry{Kind: Joined, Instance: in.ID, Node: n.NodeRef, Zone: in.Zone})
	if ready {
		w.setReady(n, true)
	}
}

func (w *World) setReady(n *node, ready bool) {
	if n.Ready == ready {
		return
	}
	n.Ready = ready
	kind := BecameNotReady
	if ready {
		kind, n.readySince, n.instance.everReady = BecameReady, w.now, true
	}
	w.record(Entry{Kind: kind, Instance: n.instance.ID, Node: n.NodeRef, Zone: n.instance.Zone})
}

// end begins the end of an instance, whoever asked for it.
func (w *World) end(in *instance) {
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
}

// release makes the pods of a node pending again, or forgets them if no controller would.
func (w *World) release(n *node) {
	w.pods = slices.DeleteFunc(w.pods, func(p *pod) bool { return p.node == n && p.Daemon })
	for _, p := range w.pods {
		if p.node == n {
			p.node, p.goes, p.Stuck, p.since = nil, time.Time{}, false, w.now
		}
	}
}

func (w *World) takeAway(in *instance) {
	if !in.alive() {
		return
	}
	w.record(Entry{Kind: TakenAway, Instance: in.ID, Zone: in.Zone, Facts: w.facts(in)})
	w.end(in)
}

func (w *World) find(id string) *instance {
	for _, in := range w.instances {
		if in.ID == id {
			return in
		}
	}
	return nil
}

func (w *World) findNode(ref nodes.NodeRef) *node {
	for _, n := range w.nodes {
		if n.NodeRef == ref {
			return n
		}
	}
	return nil
}

// movable returns the pods on a node that a drain moves.
func (w *World) movable(n *node) []*pod {
	var out []*pod
	for _, p := range w.pods {
		if p.node == n && !p.Daemon {
			out = append(out, p)
		}
	}
	return out
}

// ---- pods

// settle places pending pods and notes load and pending pods for the signals.
func (w *World) settle() {
	for _, p := range w.pods {
		if p.node == nil && p.NeverFit == "" {
			p.node = w.place(p)
		}
	}
	s := sample{at: w.now, cpu: w.utilisation()}
	for _, p := range w.pods {
		if p.node == nil {
			s.pending++
		}
	}
	if n := len(w.history); n == 0 || w.history[n-1].cpu != s.cpu || w.history[n-1].pending != s.pending {
		w.history = append(w.history, s)
	}
}

func (w *World) place(p *pod) *node {
	for _, n := range w.nodes {
		if n.ControlPlane || !n.Ready || n.Unschedulable || !n.instance.alive() {
			continue
		}
		cpu, mem, count := w.used(n)
		if cpu+p.MilliCPU <= n.Allocatable.MilliCPU && mem+p.Memory <= n.Allocatable.Memory && count < n.Allocatable.Pods {
			return n
		}
	}
	return nil
}

func (w *World) used(n *node) (cpu, mem int64, count int) {
	for _, p := range w.pods {
		if p.node == n {
			cpu += p.MilliCPU
			mem += p.Memory
			count++
		}
	}
	return cpu, mem, count
}

func (w *World) utilisation() float64 {
	if w.load >= 0 {
		return w.load
	}
	var used, all int64
	for _, n := range w.nodes {
		if n.ControlPlane || !n.Ready {
			continue
		}
		cpu, _, _ := w.used(n)
		used += cpu
		all += n.Allocatable.MilliCPU
	}
	if all == 0 {
		return 0
	}
	return float64(used) / float64(all)
}
