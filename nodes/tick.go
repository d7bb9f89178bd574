package nodes

import (
	"context"
	"fmt"
)

// tick is one round of the reconciler: open interruptions, then, under the lease, survey, note, sweep, decide and act.
type tick struct {
	*run
	surveyor      surveyor
	interruptions interruptions
	templateCheck templateCheck
	sweep         sweep
	scaleUp       scaleUp
	scaleDown     scaleDown
	prices        priceReader

	carried bool      // an action was open when it decided
	decided *Snapshot // the last that asked for an action, or else the last; nil if it came to none
}

// newTick puts a tick's parts together, around one run that they share.
func newTick(c *Config) *tick {
	r := newRun(c, c.NewID(), c.stopping)
	v, d, l := surveyor{r}, drainer{r}, launcher{r}
	m := removals{run: r, surveyor: v, drainer: d}
	return &tick{
		run:           r,
		surveyor:      v,
		interruptions: interruptions{run: r, surveyor: v},
		templateCheck: templateCheck{r},
		sweep:         sweep{run: r, surveyor: v, drainer: d, launcher: l, removals: m, repair: repair{run: r, removals: m}},
		scaleUp:       scaleUp{run: r, surveyor: v, launcher: l, removals: m},
		scaleDown:     scaleDown{run: r, surveyor: v, drainer: d},
		prices:        priceReader{run: r, surveyor: v},
	}
}

// do does the round. held says that another tick has the lease and that nothing was done; decision is nil if
// it did not come to one. What went wrong is in the log.
func (t *tick) do(ctx context.Context) (decision *Decision, held bool) {
	// Before the lease: a warning's two minutes can't wait until another tick gives it back.
	t.interruptions.resume(ctx)

	start := t.now()
	acquired, err := t.state.acquireLease(ctx, t.id, start)
	if err != nil {
		t.log.fail(ctx, "lease", err)
		return nil, false
	}
	if !acquired {
		t.log.append(ctx, Event{Kind: "lease.held", Message: "another tick holds the lease"})
		return nil, true
	}
	t.budget.restart(start) // interruptions may have taken their time before

	decision = t.underLease(ctx)
	if err := t.state.releaseLease(ctx, t.id); err != nil {
		t.log.fail(ctx, "releasing the lease", err)
	}
	return decision, false
}

// underLease is the part of a tick under the lease. Each step leaves the record valid, and a crash after any
// of them is followed by another tick that begins again. The order is this:
//
//  1. The template and the observation are noted first, because they change since when something lasts, on
//     which decisions depend, and which instances have joined, on which the sweep depends.
//  2. The sweep runs before a decision, so that nothing new begins beside what a crash has left.
//  3. A decision is made, the open actions continue, and another begins if the decision says so and
//     MAX_ACTIONS allows it.
//  4. What was decided is shown in the cluster: nothing depends on it.
//  5. Prices are read last: nothing waits for them.
func (t *tick) underLease(ctx context.Context) *Decision {
	s := t.surveyor.survey(ctx)
	if s.recordErr != nil {
		t.log.fail(ctx, "survey", s.recordErr)
		return nil
	}
	if s.fleetErr() != nil {
		t.log.fail(ctx, "survey", s.fleetErr())
	}

	if err := t.noteTemplates(ctx, s); lost(err) {
		return nil
	}
	o := t.surveyor.observe(ctx, s)
	if err := t.state.apply(ctx, t.noted(s, o, t.state.fence)); err != nil {
		t.log.fail(ctx, "noting what was seen", err)
		return nil
	}

	if err := t.sweep.do(ctx, s); err != nil {
		t.log.fail(ctx, "sweep", err)
		if lost(err) {
			return nil
		}
	}

	d, err := t.act(ctx, s, o)
	if err != nil {
		t.log.fail(ctx, "action", err)
	}
	if lost(err) {
		return d
	}
	t.report(ctx)
	if err := t.prices.do(ctx); err != nil {
		t.log.fail(ctx, "prices", err)
	}
	return d
}

// noteTemplates compares the nodes of a survey with what is promised of them. It comes before everything that is done by the survey: a
// scale-up that is completed by it is not looked at again, and what its nodes lack would never be known.
func (t *tick) noteTemplates(ctx context.Context, s *survey) error {
	err := t.templateCheck.note(ctx, s)
	if err != nil {
		t.log.fail(ctx, "noting what new nodes are", err)
	}
	s.record.TemplateSeen, s.record.PoolStates = t.state.record.TemplateSeen, t.state.record.PoolStates
	return err
}

// act decides, continues the open actions and begins what was decided, in rounds: see round.
func (t *tick) act(ctx context.Context, s *survey, o Observation) (*Decision, error) {
	if t.state.record.ScalingInProgress && t.state.record.ActionID() == "" {
		t.log.append(ctx, Event{Kind: "record.repaired", Message: "scalingInProgress named no action"})
		if err := t.state.apply(ctx, RepairRecord{Fence: t.state.fence}); err != nil {
			return nil, err
		}
	}

	t.carried = t.state.record.ScalingInProgress
	var told *Decision
	for {
		// Also while an action is open, so that the event log has no gap in what was seen.
		snap := t.decide(o, t.state.record)
		d := &snap.Decision
		t.log.appendData(ctx, Event{Kind: "decision", Message: fmt.Sprintf("%s: %s %s", d.Action, d.Reason, d.Detail)}, snap)
		if told == nil || d.Action != Noop || told.Action == Noop {
			told, t.decided = d, &snap
		}
		again, err := round{tick: t, survey: s, observation: o, decision: d}.do(ctx)
		if err != nil || !again || t.budget.spent(ctx) {
			return told, err
		}

		s = t.surveyor.survey(ctx)
		if s.recordErr != nil {
			return told, s.recordErr
		}
		if err := t.noteTemplates(ctx, s); lost(err) {
			return told, err
		}
		o = t.surveyor.observe(ctx, s)
		if err := t.state.apply(ctx, t.noted(s, o, t.state.fence)); err != nil {
			return told, err
		}
	}
}

// plan observes and decides as a tick does, without the lease and without writing anything.
func (t *tick) plan(ctx context.Context) (Snapshot, error) {
	s := t.surveyor.survey(ctx)
	if s.recordErr != nil {
		return Snapshot{}, s.recordErr
	}
	o := t.surveyor.observe(ctx, s)
	next, _, err := Applied(s.record, t.noted(s, o, s.record.LeaseFence))
	if err != nil {
		return Snapshot{}, err
	}
	return t.decide(o, next), nil
}

func (t *tick) decide(o Observation, r Record) Snapshot {
	now := t.now()
	d := Decider{Policy: t.config.Policy, Sizer: t.config.Sizer, Fitter: t.config.Fitter, Appraiser: t.config.Appraiser}.Decide(o, r, now)
	return Snapshot{Now: now, Policy: t.config.Policy, Observation: o, Record: r, Decision: d}
}

// noted turns an observation into what the record keeps of it.
func (t *tick) noted(s *survey, o Observation, fence int64) Note {
	n := Note{Fence: fence, Now: t.now()}
	in := newInputs(t.config.Policy, o, s.record, n.Now)
	cpu, byAPI := o.Readings.CPU, t.config.Policy.byAPI()
	if o.Readings.Pending.Known {
		pending := in.pending > 0
		n.Pending = &pending
		if byAPI || cpu.Known { // by the API alone a cluster is idle while no pod waits: see quietGate
			idle := !pending && (byAPI || cpu.Value <= t.config.Policy.CPUDown)
			n.Idle = &idle
		}
	}
	if byAPI || cpu.Known { // an epoch from before the CPU's load was no longer read must not come back
		high := !byAPI && cpu.Value >= t.config.Policy.CPUUp
		n.CPUHigh = &high
	}
	if s.cloudErr == nil && s.viewErr == nil {
		n.Workers = &in.available
		n.Alive, n.Joined = s.aliveAndJoined()
	}
	return n
}
