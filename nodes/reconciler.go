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
	(interruptions{t, surveyor{t}}).resume(ctx)
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
	s := (surveyor{t}).survey(ctx)
	if s.recordErr != nil {
		return Snapshot{}, s.recordErr
	}
	o := (surveyor{t}).observe(ctx, s)
	next, _, err := Applied(s.record, t.noted(s, o, s.record.LeaseFence))
	if err != nil {
		return Snapshot{}, err
	}
	return t.decide(o, next), nil
}

// Interrupt handles one event. When it returns nil the event is either of no concern or durably noted, and need not be delivered
// again; an interruption that could not be worked to its end now is taken up by the next tick. It runs beside ticks, without
// their lease.
func (r *Reconciler) Interrupt(ctx context.Context, e InterruptionEvent) error {
	t := r.newTick()
	return interruptions{t, surveyor{t}}.handle(ctx, e)
}

// newTick begins a run that does a tick, or one event.
func (r *Reconciler) newTick() *run { return newRun(&r.c, r.c.NewID(), r.c.stopping) }

// leased is the part of a tick under the lease. It returns the decision, nil if it did not come to one.
func (t *run) leased(ctx context.Context) *Decision {
	s := (surveyor{t}).survey(ctx)
	if s.recordErr != nil {
		t.log.fail(ctx, "survey", s.recordErr)
		return nil
	}
	if s.fleetErr() != nil {
		t.log.fail(ctx, "survey", s.fleetErr())
	}
	if err := (templateCheck{t}).note(ctx, s); err != nil {
		t.log.fail(ctx, "noting what new nodes are", err)
		if lost(err) {
			return nil
		}
	}
	s.record.TemplateSeen = t.state.record.TemplateSeen
	o := (surveyor{t}).observe(ctx, s)
	if err := t.state.apply(ctx, t.noted(s, o, t.state.fence)); err != nil {
		t.log.fail(ctx, "noting what was seen", err)
		return nil
	}
	if err := t.sweep().do(ctx, s); err != nil {
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
		return &snap.Decision, t.scaleUp().proceed(ctx, s, o.Readings)
	case t.state.record.ScalingDown():
		return &snap.Decision, t.scaleDown().proceed(ctx, s)
	}
	var err error
	switch snap.Decision.Action {
	case ScaleUp:
		err = t.scaleUp().begin(ctx, s, o, snap.Decision)
	case ScaleDown:
		err = t.scaleDown().begin(ctx, s, snap.Decision)
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

func (t *run) removals() removals {
	return removals{run: t, surveyor: surveyor{t}, drainer: drainer{t}}
}

func (t *run) sweep() sweep {
	m := t.removals()
	return sweep{run: t, surveyor: surveyor{t}, drainer: drainer{t}, launcher: launcher{t}, removals: m, repair: repair{run: t, removals: m}}
}

func (t *run) scaleUp() scaleUp {
	return scaleUp{run: t, surveyor: surveyor{t}, launcher: launcher{t}, removals: t.removals()}
}

func (t *run) scaleDown() scaleDown {
	return scaleDown{run: t, surveyor: surveyor{t}, drainer: drainer{t}}
}
