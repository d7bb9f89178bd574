package sim

import (
	"fmt"
	"iter"
	"slices"
	"strings"
	"time"

	"github.com/muster-dev/muster/nodes"
)

// Simulator is a simulated region and cluster: the side of its scripts, which do what people, pods and the cloud do by themselves, and
// of tests that look at what is there. Processes use it by a Client. Its methods may be called by several goroutines.
type Simulator struct{ *state }

// New returns a cluster with its first workers Ready.
func New(o Options) *Simulator { return &Simulator{newState(o)} }

// Client returns access for a process of that name; hook may be nil.
func (w *Simulator) Client(actor string, hook Hook) *Client {
	return &Client{state: w.state, actor: actor, hook: hook}
}

// Clock returns the simulator's time.
func (w *Simulator) Clock() Clock { return Clock{w.state} }

// Zones returns the zones in their order; each has one subnet, subnet-ZONE.
func (w *Simulator) Zones() []string { return slices.Clone(w.zones) }

// Cluster returns the name of the cluster.
func (w *Simulator) Cluster() string { return w.policy.Cluster }

// ---- time

// Advance lets d pass.
func (w *Simulator) Advance(d time.Duration) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.time.advance(w.time.now.Add(d))
}

// After does f when d has passed. f runs with the simulator locked: it must not call the simulator's methods.
func (w *Simulator) After(d time.Duration, f func()) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.time.after(d, f)
}

// Scrape calls f with what the exporters show, now and then after every interval of the simulator's time, until stop is called. f runs
// with the simulator locked: it must not call the simulator's methods.
func (w *Simulator) Scrape(every time.Duration, f func(Exporters)) (stop func()) {
	w.mu.Lock()
	defer w.mu.Unlock()
	stopped := false
	var scrape func()
	scrape = func() {
		if !stopped {
			f(exportersOf(w.state))
			w.time.after(every, scrape)
		}
	}
	scrape()
	return func() {
		w.mu.Lock()
		defer w.mu.Unlock()
		stopped = true
	}
}

// ---- instances and nodes

// AddWorker adds a Ready worker that a person made, and returns its instance ID.
func (w *Simulator) AddWorker(zone string, launched time.Time) string {
	w.mu.Lock()
	defer w.mu.Unlock()
	id := w.fleet.addWorker(zone, launched)
	w.settle()
	return id
}

// SetBoots says how the next launched instances come up, in order; after them every one comes up well.
func (w *Simulator) SetBoots(bs ...Boot) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.market.boots = bs
}

// AddShortage makes offerings short.
func (w *Simulator) AddShortage(s Shortage) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.market.shortages = append(w.market.shortages, s)
}

// TakeAway ends an instance from outside, without a warning.
func (w *Simulator) TakeAway(instanceID string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.fleet.takeAway(w.fleet.find(instanceID))
	w.settle()
}

// Announce announces an interruption and returns its event. A warned instance is taken away 120 s later.
func (w *Simulator) Announce(kind nodes.InterruptionKind, instanceID string) nodes.InterruptionEvent {
	w.mu.Lock()
	defer w.mu.Unlock()
	in := w.fleet.find(instanceID)
	w.ledger.record(Entry{Kind: Warned, Instance: instanceID, Detail: string(kind), Facts: w.fleet.facts(in)})
	if kind == nodes.Warning {
		w.time.after(120*time.Second, func() { w.fleet.takeAway(in) })
	}
	return nodes.InterruptionEvent{ID: fmt.Sprintf("event-%d", w.ledger.written), Kind: kind, InstanceID: instanceID, At: w.time.now}
}

// Flap makes a node not Ready from now+after for a while; the instance may be one that is launched before then.
func (w *Simulator) Flap(instanceID string, after, d time.Duration) {
	w.mu.Lock()
	defer w.mu.Unlock()
	set := func(ready bool) func() {
		return func() {
			if in := w.fleet.find(instanceID); in != nil && in.node != nil && in.alive() {
				w.fleet.setReady(in.node, ready)
			}
		}
	}
	w.time.after(after, set(false))
	w.time.after(after+d, set(true))
}

// FillDisk puts a node under disk pressure from now+after for a while. No pod is placed there meanwhile, and those that run stay.
func (w *Simulator) FillDisk(instanceID string, after, d time.Duration) {
	w.mu.Lock()
	defer w.mu.Unlock()
	set := func(full bool) func() {
		return func() {
			in := w.fleet.find(instanceID)
			if in == nil || in.node == nil || !in.alive() {
				return
			}
			in.node.DiskFullSince, in.node.Pressure = time.Time{}, ""
			if full {
				in.node.DiskFullSince, in.node.Pressure = w.time.now, "DiskPressure"
			}
			in.node.kube.changes++
			w.ledger.record(Entry{Kind: map[bool]Kind{true: DiskFull, false: DiskFree}[full], Instance: instanceID})
		}
	}
	w.time.after(after, set(true))
	w.time.after(after+d, set(false))
}

// Impair makes an instance fail a status check, "system" or "instance", from now+after for a while. Its node stays as it is.
func (w *Simulator) Impair(instanceID, check string, after, d time.Duration) {
	w.mu.Lock()
	defer w.mu.Unlock()
	set := func(impaired bool) func() {
		return func() {
			in := w.fleet.find(instanceID)
			if in == nil || !in.alive() {
				return
			}
			in.impaired = nodes.Impairment{}
			if impaired {
				in.impaired = nodes.Impairment{Check: check, Since: w.time.now}
			}
			w.ledger.record(Entry{Kind: map[bool]Kind{true: Impaired, false: Unimpaired}[impaired], Instance: instanceID, Detail: check})
		}
	}
	w.time.after(after, set(true))
	w.time.after(after+d, set(false))
}

// CordonByHand makes a node unschedulable as a person would, without a claim.
func (w *Simulator) CordonByHand(instanceID string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	n := w.fleet.find(instanceID).node
	n.Unschedulable, n.byHand = true, true
	w.settle()
}

// MarkByHand marks a node as to be deleted, without a claim, as one whose annotations a person has taken off.
func (w *Simulator) MarkByHand(instanceID string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.fleet.find(instanceID).node.mark(true)
	w.settle()
}

// DeleteNode deletes a Node object by hand.
func (w *Simulator) DeleteNode(instanceID string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if n := w.fleet.nodeOf(instanceID); n != nil {
		w.fleet.removeNode(n)
	}
	w.settle()
}

// MakeStock makes the node of an instance one as K3s registers it without settings of its own: named after the host, with a provider
// ID that says nothing about the instance.
func (w *Simulator) MakeStock(instanceID string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if n := w.fleet.nodeOf(instanceID); n != nil {
		n.Name = "ip-" + strings.ReplaceAll(n.InternalIP, ".", "-")
		n.ProviderID = "k3s://" + n.Name
	}
}

// AnnotateNode sets an annotation on the node of an instance, as a person would.
func (w *Simulator) AnnotateNode(instanceID, key, value string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if n := w.fleet.nodeOf(instanceID); n != nil {
		n.kube.set(key, value)
	}
}

// ---- pods

// AddPods adds n pods alike; they are placed where there is room.
func (w *Simulator) AddPods(n int, spec PodSpec) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for i := range n {
		one := spec
		one.Name = fmt.Sprintf("%s-%d", spec.Name, i)
		w.pods.add(one, nil)
	}
	w.settle()
}

// AddPodLater adds a pod when a time has passed. If it is withdrawn, its owner takes it away, running or not, after that time.
func (w *Simulator) AddPodLater(after time.Duration, spec PodSpec, withdrawn time.Duration) {
	w.mu.Lock()
	defer w.mu.Unlock()
	p := &pod{PodSpec: spec}
	w.time.after(after, func() {
		p.since = w.time.now
		w.pods.pods = append(w.pods.pods, p)
	})
	if withdrawn == 0 {
		return
	}
	w.time.after(withdrawn, func() {
		if w.pods.drop(p) {
			w.ledger.follow(Entry{Kind: Withdrawn, Detail: p.Name})
		}
	})
}

// AddPodOn adds a pod on the node of an instance.
func (w *Simulator) AddPodOn(instanceID string, spec PodSpec) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if n := w.fleet.nodeOf(instanceID); n != nil {
		w.pods.add(spec, n)
	}
	w.settle()
}

// RemovePods removes every pod whose name begins with prefix.
func (w *Simulator) RemovePods(prefix string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.pods.remove(func(p *pod) bool { return strings.HasPrefix(p.Name, prefix) })
	w.settle()
}

// Populate adds pods on the nodes of instances, all at once, whether or not there is room: for clusters so large that placing one pod
// after another would take its time. Pods of instances without a node are left out.
func (w *Simulator) Populate(pods iter.Seq2[string, PodSpec]) {
	w.mu.Lock()
	defer w.mu.Unlock()
	byID := make(map[string]*node, len(w.fleet.nodes))
	for _, n := range w.fleet.nodes {
		byID[n.instance.ID] = n
	}
	for id, spec := range pods {
		if n := byID[id]; n != nil {
			w.pods.add(spec, n)
		}
	}
	w.settle()
}

// Deploy returns a deployment without pods. spec is of each pod; its Name is the deployment's, namespace/name, its Grace the pods'
// termination grace period, by default 30 s. start starts a pod's process and must not wait for it to be ready.
func (w *Simulator) Deploy(spec PodSpec, start func(PodRun) (Process, error)) *Deployment {
	return newDeployment(w.state, spec, start)
}

// ---- what fails, and what the signals say

// Outage makes a part unreachable from now+after for a while.
func (w *Simulator) Outage(part Part, after, d time.Duration) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.outages.add(part, after, d, false)
}

// Partial makes a part's lists incomplete from now+after for a while.
func (w *Simulator) Partial(part Part, after, d time.Duration) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.outages.add(part, after, d, true)
}

// SetLoad overrides the utilisation that the signals report; a negative one gives it back to the pods.
func (w *Simulator) SetLoad(cpu float64) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.signals.load = cpu
	w.settle()
}

// SetBudgets replaces the disruption budgets.
func (w *Simulator) SetBudgets(bs ...Budget) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.objects.budgets = bs
}

// ---- what is there

// Instance returns an instance as it is, visible or not; the zero Instance if there never was one.
func (w *Simulator) Instance(id string) nodes.Instance {
	w.mu.Lock()
	defer w.mu.Unlock()
	if in := w.fleet.find(id); in != nil {
		return in.Instance
	}
	return nodes.Instance{}
}

// Instances returns every instance that there was, oldest first, ended ones too.
func (w *Simulator) Instances() []nodes.Instance {
	w.mu.Lock()
	defer w.mu.Unlock()
	out := make([]nodes.Instance, 0, len(w.fleet.instances))
	for _, in := range w.fleet.instances {
		out = append(out, in.Instance)
	}
	return out
}

// NodeTime adds up how long workers have lived so far. Those that were there at the beginning count from then on.
func (w *Simulator) NodeTime() time.Duration {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.fleet.lived(w.start)
}

// Fleet returns the workers as they are.
func (w *Simulator) Fleet() Fleet {
	w.mu.Lock()
	defer w.mu.Unlock()
	f := w.fleet.count()
	f.Pending = w.pods.pending()
	for _, p := range w.pods.pods {
		if p.Responds && p.node != nil && p.askedHere() {
			f.Requested++
		}
	}
	return f
}

// Ledger returns what has happened so far, in order.
func (w *Simulator) Ledger() []Entry {
	w.mu.Lock()
	defer w.mu.Unlock()
	return slices.Clip(w.ledger.entries)
}

// SignalsOutage reports whether the metrics are unreachable now, or answer only in part.
func (w *Simulator) SignalsOutage() (down, partial bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.outages.of(SignalsPart)
}

// Record returns the record as it is.
func (w *Simulator) Record() nodes.Record {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.store.record.Clone()
}

// SetRecord writes the record by hand.
func (w *Simulator) SetRecord(change func(*nodes.Record)) {
	w.mu.Lock()
	defer w.mu.Unlock()
	change(&w.store.record)
}

// OpenItems returns how many interruptions are open.
func (w *Simulator) OpenItems() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return len(w.store.open())
}
