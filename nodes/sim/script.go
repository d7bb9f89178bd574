package sim

import (
	"fmt"
	"slices"
	"time"

	"github.com/muster-dev/muster/nodes"
)

// This file is the script's side of a world: what people, pods and the cloud do by themselves.

// AddWorker adds a Ready worker that a person made, and returns its instance ID.
func (w *Simulator) AddWorker(zone string, launched time.Time) string {
	w.mu.Lock()
	defer w.mu.Unlock()
	id := w.addWorker(zone, launched)
	w.settle()
	return id
}

// AddPods adds n pods alike; they are placed where there is room.
func (w *Simulator) AddPods(n int, spec PodSpec) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.addPods(n, spec)
}

func (w *Simulator) addPods(n int, spec PodSpec) {
	for i := range n {
		s := spec
		s.Name = fmt.Sprintf("%s-%d", spec.Name, i)
		w.pods = append(w.pods, &pod{PodSpec: s, since: w.now})
	}
	w.settle()
}

// AddPodLater adds a pod when a time has passed. If it is withdrawn, its owner takes it away, running or not, after that time.
func (w *Simulator) AddPodLater(after time.Duration, spec PodSpec, withdrawn time.Duration) {
	w.mu.Lock()
	defer w.mu.Unlock()
	p := &pod{PodSpec: spec}
	w.after(after, func() {
		p.since = w.now
		w.pods = append(w.pods, p)
	})
	if withdrawn == 0 {
		return
	}
	w.after(withdrawn, func() {
		before := len(w.pods)
		w.pods = slices.DeleteFunc(w.pods, func(o *pod) bool { return o == p })
		if len(w.pods) < before && w.opts.Watch != nil {
			w.record(Entry{Kind: Withdrawn, Detail: p.Name})
		}
	})
}

// AddPodOn adds a pod on the node of an instance.
func (w *Simulator) AddPodOn(instanceID string, spec PodSpec) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if in := w.find(instanceID); in != nil && in.node != nil {
		w.pods = append(w.pods, &pod{PodSpec: spec, since: w.now, node: in.node})
	}
	w.settle()
}

// RemovePods removes every pod whose name begins with prefix.
func (w *Simulator) RemovePods(prefix string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.pods = slices.DeleteFunc(w.pods, func(p *pod) bool { return len(p.Name) >= len(prefix) && p.Name[:len(prefix)] == prefix })
	w.settle()
}

// SetLoad overrides the utilisation that the signals report; a negative one gives it back to the pods.
func (w *Simulator) SetLoad(cpu float64) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.load = cpu
	w.settle()
}

// SetBoots says how the next launched instances come up, in order; after them every one comes up well.
func (w *Simulator) SetBoots(bs ...Boot) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.boots = bs
}

// AddShortage makes offerings short.
func (w *Simulator) AddShortage(s Shortage) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.shortages = append(w.shortages, s)
}

// Outage makes a part unreachable from now+after for a while.
func (w *Simulator) Outage(part Part, after, d time.Duration) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.outages = append(w.outages, outage{part: part, from: w.now.Add(after), until: w.now.Add(after + d)})
}

// Partial makes a part's lists incomplete from now+after for a while.
func (w *Simulator) Partial(part Part, after, d time.Duration) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.outages = append(w.outages, outage{part: part, from: w.now.Add(after), until: w.now.Add(after + d), partial: true})
}

// Flap makes a node not Ready from now+after for a while; the instance may be one that is launched before then.
func (w *Simulator) Flap(instanceID string, after, d time.Duration) {
	w.mu.Lock()
	defer w.mu.Unlock()
	set := func(ready bool) func() {
		return func() {
			if in := w.find(instanceID); in != nil && in.node != nil && in.alive() {
				w.setReady(in.node, ready)
			}
		}
	}
	w.after(after, set(false))
	w.after(after+d, set(true))
}

// TakeAway ends an instance from outside, without a warning.
func (w *Simulator) TakeAway(instanceID string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.takeAway(w.find(instanceID))
	w.settle()
}

// Announce announces an interruption and returns its event. A warned instance is taken away 120 s later.
func (w *Simulator) Announce(kind nodes.InterruptionKind, instanceID string) nodes.InterruptionEvent {
	w.mu.Lock()
	defer w.mu.Unlock()
	in := w.find(instanceID)
	w.record(Entry{Kind: Warned, Instance: instanceID, Detail: string(kind), Facts: w.facts(in)})
	if kind == nodes.Warning {
		w.after(120*time.Second, func() { w.takeAway(in) })
	}
	return nodes.InterruptionEvent{ID: fmt.Sprintf("event-%d", w.entries), Kind: kind, InstanceID: instanceID, At: w.now}
}

// CordonByHand makes a node unschedulable as a person would, without a claim.
func (w *Simulator) CordonByHand(instanceID string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	n := w.find(instanceID).node
	n.Unschedulable, n.byHand = true, true
	w.settle()
}

// DeleteNode deletes a Node object by hand.
func (w *Simulator) DeleteNode(instanceID string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if in := w.find(instanceID); in.node != nil {
		w.removeNode(in.node)
	}
	w.settle()
}

func (w *Simulator) removeNode(n *node) {
	w.release(n)
	n.instance.node = nil
	w.nodes = slices.DeleteFunc(w.nodes, func(o *node) bool { return o == n })
}

// Instance returns an instance as it is, visible or not; the zero Instance if there never was one.
func (w *Simulator) Instance(id string) nodes.Instance {
	w.mu.Lock()
	defer w.mu.Unlock()
	if in := w.find(id); in != nil {
		return in.Instance
	}
	return nodes.Instance{}
}

// Instances returns every instance that there was, oldest first, ended ones too.
func (w *Simulator) Instances() []nodes.Instance {
	w.mu.Lock()
	defer w.mu.Unlock()
	out := make([]nodes.Instance, 0, len(w.instances))
	for _, in := range w.instances {
		out = append(out, in.Instance)
	}
	return out
}

// Fleet counts the workers as they are.
type Fleet struct {
	Alive      int // pending and running
	Ready      int // alive with a Ready node
	Available  int // Ready and not cordoned
	Cordoned   int // alive with a cordoned node
	Nodeless   int // alive without a Node object
	StaleNodes int // Node objects of instances that have ended
	Pending    int // pods without a node that some node could run
}

// Fleet returns the workers as they are.
func (w *Simulator) Fleet() Fleet {
	w.mu.Lock()
	defer w.mu.Unlock()
	var f Fleet
	for _, in := range w.instances {
		switch {
		case in.ControlPlane || !in.alive():
			continue
		case in.node == nil:
			f.Nodeless++
		case in.node.Ready:
			f.Ready++
			if !in.node.Unschedulable {
				f.Available++
			}
		}
		if in.node != nil && in.node.Unschedulable {
			f.Cordoned++
		}
		f.Alive++
	}
	for _, n := range w.nodes {
		if !n.instance.alive() {
			f.StaleNodes++
		}
	}
	for _, p := range w.pods {
		if p.node == nil && p.NeverFit == "" {
			f.Pending++
		}
	}
	return f
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
