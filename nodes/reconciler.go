package nodes

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"slices"
)

// Reconciler makes a cluster what its policy wants. It keeps nothing in memory between two ticks: everything that has to survive is
// in the record.
type Reconciler struct {
	c Config
}

// New returns a Reconciler. The error lists what is missing or wrong.
func New(c Config) (*Reconciler, error) {
	if c.Signals == nil || c.Cloud == nil || c.Cluster == nil || c.Store == nil || c.Journal == nil {
		return nil, errors.New("a reconciler needs Signals, Cloud, Cluster, Store and Journal")
	}
	if err := c.Policy.Validate(); err != nil {
		return nil, err
	}
	if c.Policy.Sizing == SizingFit && c.Sizer == nil {
		return nil, errors.New("SIZING=fit needs a Sizer that packs pods")
	}
	if c.Clock == nil {
		c.Clock = SystemClock{}
	}
	if c.NewID == nil {
		c.NewID = func() string { return rand.Text()[:12] }
	}
	if c.TickBudget == 0 {
		c.TickBudget = tickBudget
	}
	if c.Holder != "" {
		c.self = identity{holder: c.Holder, process: c.NewID()}
	}
	return &Reconciler{c: c}, nil
}

// Report is what a tick did.
type Report struct {
	Tick     string    // its ID, by which its events are found
	Held     bool      // another tick holds the lease: nothing was done
	Decision *Decision // nil if it did not come to one; while an action is open it is a NOOP
	Events   []Event   // what it journaled
}

// Tick does one round: it goes on with open interruptions, takes the lease, sweeps, carries on with the open action or decides on
// one, and gives the lease back. It begins at most one scaling action and leaves the record valid wherever it ends. The error joins
// everything that went wrong; the next tick tries again, so callers log it and go on.
func (r *Reconciler) Tick(ctx context.Context) (Report, error) {
	t := r.newTick()
	t.resumeInterruptions(ctx)
	report := Report{Tick: t.id}
	start := t.now()
	held, err := t.state.acquireLease(ctx, t.id, start)
	switch {
	case err != nil:
		t.log.fail(ctx, "lease", err)
	case !held:
		report.Held = true
		t.log.append(ctx, Event{Kind: "lease.held", Message: "another tick holds the lease"})
	default:
		t.budget.restart(start) // interruptions may have taken their time before
		report.Decision = t.leased(ctx)
		if err := t.state.releaseLease(ctx, t.id); err != nil {
			t.log.fail(ctx, "releasing the lease", err)
		}
		t.lease.end()
	}
	report.Events = t.log.events
	return report, t.log.err()
}

// Plan observes and decides without writing, launching or removing anything.
func (r *Reconciler) Plan(ctx context.Context) (Snapshot, error) {
	t := r.newTick()
	s := t.survey(ctx)
	if s.recordErr != nil {
		return Snapshot{}, s.recordErr
	}
	o := t.observe(ctx, s)
	next, _, err := Applied(s.record, t.noted(s, o, s.record.LeaseFence))
	if err != nil {
		return Snapshot{}, err
	}
	return t.decide(o, next), nil
}

// newTick begins a run that does a tick, or one event.
func (r *Reconciler) newTick() *run { return newRun(&r.c, r.c.NewID(), r.c.stopping) }

// leased is the part of a tick under the lease. It returns the decision, nil if it did not come to one.
func (t *run) leased(ctx context.Context) *Decision {
	s := t.survey(ctx)
	if s.recordErr != nil {
		t.log.fail(ctx, "survey", s.recordErr)
		return nil
	}
	if s.fleetErr() != nil {
		t.log.fail(ctx, "survey", s.fleetErr())
	}
	if err := t.noteTemplate(ctx, s); err != nil {
		t.log.fail(ctx, "noting what new nodes are", err)
		if lost(err) {
			return nil
		}
	}
	s.record.TemplateSeen = t.state.record.TemplateSeen
	o := t.observe(ctx, s)
	if err := t.state.apply(ctx, t.noted(s, o, t.state.fence)); err != nil {
		t.log.fail(ctx, "noting what was seen", err)
		return nil
	}
	if err := t.sweep(ctx, s); err != nil {
		t.log.fail(ctx, "sweep", err)
		if lost(err) {
			return nil
		}
	}
	d, err := t.act(ctx, s, o)
	if err != nil {
		t.log.fail(ctx, "action", err)
	}
	return d
}

// act carries on with the open action, or decides on one and begins it.
func (t *run) act(ctx context.Context, s *survey, o Observation) (*Decision, error) {
	if t.state.record.ScalingInProgress && t.state.record.ActionID() == "" {
		t.log.append(ctx, Event{Kind: "record.repaired", Message: "scalingInProgress named no action"})
		if err := t.state.apply(ctx, RepairRecord{Fence: t.state.fence}); err != nil {
			return nil, err
		}
	}
	// Also while an action is open, so that the journal has no gap in what was seen.
	snap := t.decide(o, t.state.record)
	t.log.appendData(ctx, Event{Kind: "decision", Message: fmt.Sprintf("%s: %s %s", snap.Decision.Action, snap.Decision.Reason, snap.Decision.Detail)}, snap)
	switch {
	case t.state.record.ScalingUp():
		return &snap.Decision, t.carryOnUp(ctx, s, o.Readings)
	case t.state.record.ScalingDown():
		return &snap.Decision, t.carryOnDown(ctx, s)
	}
	var err error
	switch snap.Decision.Action {
	case ScaleUp:
		err = t.beginUp(ctx, s, o, snap.Decision)
	case ScaleDown:
		err = t.beginDown(ctx, s, snap.Decision)
	}
	if errors.Is(err, ErrPaused) { // after the decision; the next one knows
		t.log.append(ctx, Event{Kind: "scaling.held", Message: err.Error()})
		return &snap.Decision, nil
	}
	return &snap.Decision, err
}

func (t *run) decide(o Observation, r Record) Snapshot {
	now := t.now()
	d := Decider{Policy: t.config.Policy, Sizer: t.config.Sizer, Fitter: t.config.Fitter}.Decide(o, r, now)
	return Snapshot{Now: now, Policy: t.config.Policy, Observation: o, Record: r, Decision: d}
}

// newActionID returns an ID that sorts by time and that no other action has.
func (t *run) newActionID() string { return fmt.Sprintf("%d-%s", t.now().Unix(), t.config.NewID()) }

// ---- what is seen

// survey is one look at the cloud, the record and the cluster, in this order. The order matters: an instance that is in the list
// was launched before the record was read, so the record either names the action that launched it or that action has ended; and it
// either had joined when the nodes were read or had not joined at a moment after the list. Read the other way round, an instance
// launched in between would look like one that nobody knows.
type survey struct {
	instances []Instance
	cloudErr  error
	record    Record
	recordErr error
	view      View
	viewErr   error
	open      []Interruption
	openErr   error
	workers   []Worker
}

func (t *run) survey(ctx context.Context) *survey {
	s := &survey{}
	s.cloudErr = t.calls.doSafe(ctx, "listing instances", func(ctx context.Context) (err error) {
		s.instances, err = t.config.Cloud.Workers(ctx)
		return err
	})
	s.recordErr = t.calls.doSafe(ctx, "reading the record", func(ctx context.Context) (err error) {
		s.record, err = t.config.Store.Load(ctx)
		return err
	})
	s.openErr = t.calls.doSafe(ctx, "reading interruptions", func(ctx context.Context) (err error) {
		s.open, err = t.config.Store.OpenInterruptions(ctx)
		return err
	})
	s.viewErr = t.calls.doSafe(ctx, "reading nodes", func(ctx context.Context) (err error) {
		s.view, err = t.config.Cluster.View(ctx)
		return err
	})
	if s.cloudErr != nil {
		s.instances = nil // a part of a list proves nothing
	}
	if s.viewErr != nil {
		s.view = View{}
	}
	s.view.Pending = Classes(s.view.Pending)
	for i := range s.view.Nodes {
		s.view.Nodes[i].Pods = Classes(s.view.Nodes[i].Pods)
	}
	s.workers = Match(s.instances, s.view.Nodes)
	return s
}

// fleetErr is why nothing may be concluded from what the survey lacks; nil if it is complete.
func (s *survey) fleetErr() error { return errors.Join(s.cloudErr, s.viewErr, s.openErr) }

func (s *survey) worker(instanceID string) (Worker, bool) {
	i := slices.IndexFunc(s.workers, func(w Worker) bool { return w.Instance.ID == instanceID })
	if i < 0 {
		return Worker{}, false
	}
	return s.workers[i], true
}

// cordoned tells whether a node was seen cordoned, by a claim among others; false also if it was not seen.
func (s *survey) cordoned(ref NodeRef, claim string) bool {
	return slices.ContainsFunc(s.view.Nodes, func(n Node) bool {
		return n.NodeRef == ref && n.Unschedulable && slices.Contains(n.Claims, claim)
	})
}

// availableBeside returns the number of Ready, uncordoned workers besides one, in all and in its zone, and whether there are some in
// other zones.
func (s *survey) availableBeside(instanceID string) (all, inZone int, severalZones bool) {
	zones := map[string]int{}
	own := ""
	for _, w := range s.workers {
		if w.Instance.ID == instanceID {
			own = w.Instance.Zone
		} else if w.Available() {
			all++
			zones[w.Instance.Zone]++
		}
	}
	inZone = zones[own]
	delete(zones, own)
	return all, inZone, len(zones) > 0
}

// observe adds the metrics to a survey.
func (t *run) observe(ctx context.Context, s *survey) Observation {
	o := Observation{Fleet: s.workers, Pending: s.view.Pending, Interruptions: s.open, FleetKnown: s.fleetErr() == nil}
	if seen := s.record.TemplateSeen; seen != nil && seen.Template == fingerprint(t.config.Template, t.config.Policy) {
		o.TemplateSeen = seen
	}
	if !o.FleetKnown {
		o.FleetWhy = s.fleetErr().Error()
	} else if t.config.Screener != nil && len(o.Pending) > 0 {
		t.screen(ctx, &o)
	}
	err := t.calls.do(ctx, "reading metrics", func(ctx context.Context) (err error) {
		o.Readings, err = t.config.Signals.Observe(ctx)
		return err
	})
	if err != nil {
		why := Missing(err.Error())
		o.Readings = Readings{CPU: why, CPUMin: why, CPUMax: why, Pending: why, PendingMin: why, PendingMax: why, PendingOther: why}
		t.log.collect(err)
	}
	if t.config.WorkerPlane != nil && s.viewErr == nil {
		err := t.calls.do(ctx, "asking for costs", func(ctx context.Context) (err error) {
			o.Costs, err = t.config.WorkerPlane.Cost(ctx, nodeNames(s.view.Nodes))
			return err
		})
		if err != nil { // costs only break ties
			t.log.collect(err)
		}
	}
	return o
}

// screen finds the pods that no new node would run. It has to know where nodes can be launched, or a pod that waits for the first
// node of a zone would be taken to wait for ever.
func (t *run) screen(ctx context.Context, o *Observation) {
	subnets, err := t.subnets(ctx)
	if err != nil {
		t.log.collect(err)
		return
	}
	for _, s := range subnets {
		if !slices.Contains(o.Zones, s.Zone) {
			o.Zones = append(o.Zones, s.Zone)
		}
	}
	slices.Sort(o.Zones)
	o.Pending = t.config.Screener.Screen(t.config.Policy, *o)
}

func nodeNames(nodes []Node) []string {
	out := make([]string, len(nodes))
	for i, n := range nodes {
		out[i] = n.Name
	}
	return out
}

// noted turns an observation into what the record keeps of it.
func (t *run) noted(s *survey, o Observation, fence int64) Note {
	n := Note{Fence: fence, Now: t.now()}
	in := newInputs(t.config.Policy, o, s.record, n.Now)
	if m := o.Readings; m.Pending.Known {
		pending := in.pending > 0
		n.Pending = &pending
		if m.CPU.Known {
			idle := !pending && m.CPU.Value <= t.config.Policy.CPUDown
			n.Idle = &idle
		}
	}
	if o.Readings.CPU.Known {
		high := o.Readings.CPU.Value >= t.config.Policy.CPUUp
		n.CPUHigh = &high
	}
	if s.cloudErr == nil && s.viewErr == nil {
		n.Workers = &in.available
		n.Alive = []string{}
		for _, w := range s.workers {
			if w.Instance.Alive() {
				n.Alive = append(n.Alive, w.Instance.ID)
				if w.Node != nil {
					n.Joined = append(n.Joined, w.Instance.ID)
				}
			}
		}
		// An instance whose Node object is still there is remembered as ours, until the object has been deleted as well.
		for _, node := range s.view.Nodes {
			if id := node.InstanceID(); id != "" && slices.Contains(s.record.Joined, id) && !slices.Contains(n.Alive, id) {
				n.Alive = append(n.Alive, id)
			}
		}
	}
	return n
}
