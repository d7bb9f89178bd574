package nodes

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"github.com/muster-dev/muster/internal/quantity"
)

const (
	// leastSaving is the share of a worker's price that a replacement has to save. Less doesn't pay for the launch, in which both are
	// paid for, and for the evictions.
	leastSaving = 0.15
	// mostAppraised is for how many workers a decision looks for a cheaper node. Each takes a packing of all of the fleet.
	mostAppraised = 10
	// mostPerHour bounds what the record remembers of the disruption budget.
	mostPerHour = 1000
	// causeNothingLaunched is why a worker is left alone whose replacement could not be launched.
	causeNothingLaunched = "no replacement could be launched"
)

func (c Consolidation) known() bool {
	return c == "" || c == ConsolidationOff || c == ConsolidationRemove || c == ConsolidationReplace
}

func (c Consolidation) on() bool { return c == ConsolidationRemove || c == ConsolidationReplace }

// merger is what a consolidation would do, or drift.
type merger struct {
	targets  []Target // to be removed at once
	replaced *Target  // or one to be replaced
	by       *Want    // by this
	pool     string   // of this pool; "" without pools
	why      string
}

// fill writes what is to be done into a decision for a consolidation.
func (m merger) fill(d *Decision) {
	d.Detail = m.why
	if d.Action == ScaleDown {
		d.Targets = m.targets
		return
	}
	d.Nodes, d.Wanted, d.Replaces = 1, []Want{*m.by}, []string{m.replaced.InstanceID}
	d.Pool = m.pool
}

// consolidateGates are those of a consolidation: a scale-down of workers whose pods fit on the others whatever the CPU's load, or a
// scale-up by one cheaper node that takes the pods of a worker. Which workers these are is looked for only if everything else holds,
// because it is the expensive part.
func consolidateGates(g *gates, in inputs, d Decider) (verdict, merger) {
	if !in.p.Consolidation.on() {
		return verdict{}, merger{}
	}
	var v verdict
	left := disruptionGates(g, "consolidate", in, &v)
	if v.blocker != "" || !in.o.FleetKnown {
		return v, merger{}
	}

	c := newConsolidator(in, d)
	found := c.remove(min(left, in.p.MaxBatchDown, in.available-in.p.MinWorkers, max(in.p.MaxActions, in.p.MaxBatchDown)))
	v.action = ScaleDown
	if len(found.targets) == 0 && in.p.Consolidation == ConsolidationReplace {
		found = c.replace()
		v.action = ScaleUp
	}
	v.wanted = g.add("consolidate.target", cmp.Or(found.why, "none"), "a worker whose pods fit elsewhere, for less", found.why != "")
	v.holds = v.wanted
	return v, found
}

// disruptionGates are those of what takes a worker away that the pods could keep: a consolidation and drift. They return how many workers
// the disruption budget still has.
func disruptionGates(g *gates, path string, in inputs, v *verdict) (left int) {
	if why := in.o.BuffersWhy; why != "" { // what can't be read may need the room
		v.need(g.add(path+".buffers", why, "capacity buffers that can be read", false), ReasonFleetUnknown, why)
	}
	m := in.o.Readings
	v.need(g.add(path+".no-pending", in.pending, 0, m.Pending.Known && in.pending == 0), ReasonPodsPending, "")
	v.need(in.downWindows == "", ReasonMetricsMissing, in.downWindows)
	quiet := quietGate(g, path, in)
	v.need(quiet, ReasonPodsPending, "")
	v.need(g.add(path+".cooldown", in.age(in.r.LastScaleEpoch), in.p.CooldownDown, in.cooled(in.p.CooldownDown)), ReasonCooldownDown, "")
	v.need(backoffGate(g, path+".backoff", in), ReasonBackoff, backoffText(in.r))
	open := len(in.o.Interruptions)
	v.need(g.add(path+".no-interruption", open, 0, open == 0), ReasonInterruption, "")
	v.need(g.add(path+".no-action", actionText(in.r), "none in progress", !in.r.ScalingInProgress), ReasonInProgress, actionText(in.r))
	left = in.p.ConsolidatePerHour - in.r.consolidatedSince(in.now)
	v.need(g.add(path+".budget", left, 1, left >= 1), ReasonBudget, "")
	if windows := in.p.ConsolidateWindows; len(windows) > 0 {
		v.need(g.add(path+".window", in.now.UTC().Format("Mon 15:04"), windows, windows.open(in.now)), ReasonWindow, "")
	}
	return left
}

// consolidator looks for workers whose pods fit elsewhere.
type consolidator struct {
	in    inputs
	d     Decider
	zones map[string]int // available workers in each
	total int64          // milli-CPU of all available workers
	cands []thrifty      // whose removal saves most per eviction first
}

// thrifty is a worker that may go, with what its end saves.
type thrifty struct {
	Worker
	price  float64
	priced bool
	pods   int
}

// worth is what the worker's end saves an hour for each pod that is disturbed. A node itself counts as one.
func (t thrifty) worth() float64 { return t.price / float64(1+t.pods) }

func newConsolidator(in inputs, d Decider) *consolidator {
	c := &consolidator{in: in, d: d, zones: count(in.o).zones}
	for _, w := range in.o.Fleet {
		if w.Available() {
			c.total += w.Node.Allocatable.MilliCPU
		}
		if unremovable(w, in.o, in.r, in.now) != "" {
			continue
		}
		t := thrifty{Worker: w, price: 1, pods: podCount(w.Node.Pods)}
		if d.Appraiser != nil {
			if usd, known := d.Appraiser.Price(w.Instance.Type, w.Instance.Market, w.Instance.Zone); known {
				t.price, t.priced = usd, true
			}
		}
		c.cands = append(c.cands, t)
	}
	slices.SortStableFunc(c.cands, func(a, b thrifty) int {
		return cmp.Or(cmp.Compare(b.worth(), a.worth()), a.Instance.LaunchedAt.Compare(b.Instance.LaunchedAt), cmp.Compare(a.Instance.ID, b.Instance.ID))
	})
	return c
}

// remove chooses up to n workers whose pods fit on the others together.
func (c *consolidator) remove(n int) merger {
	var m merger
	fleet := fleetKeeping(c.d.Fitter, c.available(), c.in.kept)
	var leaving []Pod
	gone, saved, evicted := int64(0), 0.0, 0
	for _, t := range c.cands {
		if len(m.targets) >= n {
			break
		}
		cpu := gone + t.Node.Allocatable.MilliCPU
		if c.lastOfZone(t.Worker) || c.busyAfter(-cpu) {
			continue
		}
		together := append(leaving[:len(leaving):len(leaving)], t.Node.Pods...)
		if fleet.Without(t.Node, together) != "" {
			continue
		}
		fleet.Remove(t.Node)
		leaving, gone, saved, evicted = together, cpu, saved+t.price, evicted+t.pods
		c.zones[t.Instance.Zone]--
		m.targets = append(m.targets, Target{InstanceID: t.Instance.ID, Node: t.Node.NodeRef, Zone: t.Instance.Zone,
			Why: fmt.Sprintf("the others have room for its %s", quantity.Of(t.pods, "pod"))})
	}
	if len(m.targets) > 0 {
		m.why = fmt.Sprintf("the others have room for the %s of %s", quantity.Of(evicted, "pod"), quantity.Of(len(m.targets), "worker"))
		if c.d.Appraiser != nil {
			m.why += fmt.Sprintf(", saving %.3f USD/h", saved)
		}
	}
	return m
}

// replace chooses the worker whose replacement by a cheaper node saves most for each pod that is disturbed. The new node is of the same
// zone, so that the zones stay as they are, and there has to be room for it below MAX_WORKERS beside the worker.
func (c *consolidator) replace() merger {
	var best merger
	if c.d.Appraiser == nil || c.in.occupied >= c.in.p.MaxWorkers || c.in.available < c.in.p.MinWorkers {
		return best
	}
	most, looked := 0.0, 0
	for _, t := range c.cands {
		if looked == mostAppraised {
			break
		}
		// What saves most for each pod comes first, so a later one can't do better than by its whole price.
		if !t.priced || t.worth() <= most || !c.launchable(t.Instance.Zone) {
			continue
		}
		question, may := c.inPool(c.question(t.Worker), t.Instance.Pool)
		if !may {
			continue
		}
		looked++
		r, ok := c.d.Appraiser.Cheaper(question, t.price*(1-leastSaving))
		if !ok || c.busyAfter(r.Room.MilliCPU-t.Node.Allocatable.MilliCPU) {
			continue
		}
		if worth := (t.price - r.Price) / float64(1+t.pods); worth > most {
			most = worth
			best = merger{by: &r.Want, pool: question.Policy.Pool, replaced: &Target{InstanceID: t.Instance.ID}, why: fmt.Sprintf(
				"the others and one %s (%.3f USD/h) have room for the %s of %s (%s, %.3f USD/h)", r.Type, r.Price, quantity.Of(t.pods, "pod"), t.Instance.ID, t.Instance.Type, t.price)}
		}
	}
	return best
}

// question asks for a node for the pods of a worker that is not there any more.
func (c *consolidator) question(w Worker) Question {
	o := c.in.o
	o.Fleet = slices.DeleteFunc(slices.Clone(o.Fleet), func(other Worker) bool { return other.Instance.ID == w.Instance.ID })
	o.Zones = []string{w.Instance.Zone}
	o.Pending = slices.Clone(w.Node.Pods)
	for i := range o.Pending {
		o.Pending[i].NeverFit = ""
	}
	o.Pending = append(o.Pending, c.in.kept...)
	return Question{Policy: c.in.p, Observation: o, Exhausted: c.in.r.Exhausted, Now: c.in.now, Pending: max(podCount(o.Pending), 1), Room: 1}
}

// inPool narrows a question to the pool of the worker that it is about: a worker is replaced by a node of its own pool, beside which the
// worker still counts. False: its pool may launch nothing there.
func (c *consolidator) inPool(q Question, tag string) (Question, bool) {
	if c.in.pools == nil {
		return q, true
	}
	for _, a := range c.in.pools.pools {
		if a.Name != c.in.p.PoolOf(tag) || a.blocker != "" {
			continue
		}
		zones := q.Observation.Zones
		q.Policy = a.policy
		q.Observation.TemplateSeen = a.o.TemplateSeen
		return q, len(a.Zones) == 0 || slices.Contains(a.Zones, zones[0])
	}
	return q, false
}

func (c *consolidator) launchable(zone string) bool {
	return len(c.in.o.Zones) == 0 || slices.Contains(c.in.o.Zones, zone)
}

func (c *consolidator) available() []*Node {
	var out []*Node
	for _, w := range c.in.o.Fleet {
		if w.Available() {
			out = append(out, w.Node)
		}
	}
	return out
}

func (c *consolidator) lastOfZone(w Worker) bool {
	several := 0
	for _, n := range c.zones {
		if n > 0 {
			several++
		}
	}
	return several > 1 && c.zones[w.Instance.Zone] <= 1 && !c.in.p.EmptyZones
}

// busyAfter reports whether a change of the cluster's milli-CPU would bring the load to where high CPU alone asks for a node: what was
// saved would be launched again.
func (c *consolidator) busyAfter(change int64) bool {
	after := c.total + change
	if c.in.p.Trigger == TriggerAll || c.in.p.byAPI() { // high CPU alone asks for none
		return false
	}
	return after <= 0 || c.in.o.Readings.CPU.Value*float64(c.total)/float64(after) >= c.in.p.CPUUp
}

// consolidatedSince is how many workers consolidations began to remove within the hour before now.
func (r Record) consolidatedSince(now time.Time) int {
	n := 0
	for _, at := range r.ConsolidatedEpochs {
		if now.Unix()-at < int64(time.Hour/time.Second) {
			n++
		}
	}
	return n
}

// consolidate takes a number of workers from the disruption budget; false if there are not as many left.
func (r *Record) consolidate(workers, perHour int, now time.Time) bool {
	if workers == 0 {
		return true
	}
	r.ConsolidatedEpochs = slices.DeleteFunc(r.ConsolidatedEpochs, func(at int64) bool { return now.Unix()-at >= int64(time.Hour/time.Second) })
	if len(r.ConsolidatedEpochs)+workers > perHour {
		return false
	}
	for range workers {
		r.ConsolidatedEpochs = append(r.ConsolidatedEpochs, now.Unix())
	}
	return true
}

// unconsolidate gives back what an action that began at a time took from the disruption budget.
func (r *Record) unconsolidate(workers int, began int64) {
	for range workers {
		if i := slices.Index(r.ConsolidatedEpochs, began); i >= 0 {
			r.ConsolidatedEpochs = slices.Delete(r.ConsolidatedEpochs, i, i+1)
		}
	}
}
