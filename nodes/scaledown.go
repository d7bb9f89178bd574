package nodes

import (
	"context"
	"errors"
	"slices"
	"time"
)

// scaleDown removes the workers that a decision chose, one after the other. Any tick can continue it, because
// every step is in the record before it is made: StartDrain before the cordon, MarkTerminating before the
// instance is terminated, and MarkScaleDownInstanceDone after its Node object is deleted. See removals for
// why in this order.
type scaleDown struct {
	*run
	surveyor surveyor
	drainer  drainer
}

// begin opens what a decision chose: one scale-down that removes the targets in their order, or, if several
// actions may be in flight, one for each, so that none waits for another and each fails for itself.
func (d scaleDown) begin(ctx context.Context, s *survey, decision Decision) error {
	var ids []string
	for _, target := range decision.Targets {
		ids = append(ids, target.InstanceID)
	}
	if !d.config.Policy.parallel() {
		if err := d.open(ctx, ids, decision.Reason); err != nil {
			return err
		}
		d.tell(ctx, decision, decision.Targets)
		return nil
	}
	for i, id := range ids {
		if err := d.open(ctx, []string{id}, decision.Reason); err != nil {
			return err
		}
		d.tell(ctx, decision, decision.Targets[i:i+1])
	}
	if len(ids) < 2 || s.fleetErr() != nil {
		return nil
	}
	// As cordonTargets does within one scale-down.
	for _, target := range decision.Targets {
		if err := d.drainer.cordon(ctx, target.Node, d.state.record.normal().targetOf(target.InstanceID)); err != nil {
			return err
		}
	}
	return nil
}

// tell says of the targets of the scale-down that was just opened why they go.
func (d scaleDown) tell(ctx context.Context, decision Decision, targets []Target) {
	for _, target := range targets {
		why := string(decision.Reason)
		for _, more := range []string{decision.Detail, target.Why} {
			if more != "" {
				why += "; " + more
			}
		}
		d.people.tell(ctx, target.Node, NodeDrains, d.state.record.normal().targetOf(target.InstanceID), "it is drained and then terminated: %s", why)
	}
}

// open opens a scale-down.
func (d scaleDown) open(ctx context.Context, targets []string, why Reason) error {
	id := d.newActionID()
	d.state.workOn(id)
	err := d.state.apply(ctx, BeginScaleDown{
		Fence:    d.state.fence,
		ActionID: id,
		Now:      d.now(),
		Targets:  targets,

		Consolidates: why == ReasonConsolidates || why == ReasonDrift,
		PerHour:      d.config.Policy.ConsolidatePerHour,

		MaxActions: d.config.Policy.MaxActions,
	})
	if err == nil {
		d.log.report(ctx, "scaleDown.begun", "", "targets %v", targets)
	}
	return err
}

// proceed continues the open scale-down from wherever it was left, target by target.
func (d scaleDown) proceed(ctx context.Context, s *survey) error {
	if err := d.cordonTargets(ctx, s); err != nil {
		return err
	}
	for _, id := range d.state.record.ScaleDownTargetInstanceIDs {
		if !d.state.record.Targets(id) {
			continue
		}
		done, err := d.removeTarget(ctx, s, id)
		if err != nil || !done {
			return err
		}
		if s = d.surveyor.survey(ctx); s.recordErr != nil { // the next target is judged by what is there after this one
			return s.recordErr
		}
	}
	id := d.state.record.ScaleDownActionID
	err := d.state.apply(ctx, CompleteScaleDown{Fence: d.state.fence, ActionID: id, Now: d.now()})
	if err == nil {
		d.log.append(ctx, Event{Kind: "scaleDown.completed", ActionID: id})
	}
	return err
}

// cordonTargets cordons the targets that wait for their turn, so that what is evicted from one is not placed
// on the next only to be evicted again. A single target is cordoned by its drain.
func (d scaleDown) cordonTargets(ctx context.Context, s *survey) error {
	if len(d.state.record.ScaleDownTargetInstanceIDs) < 2 || s.fleetErr() != nil || d.stuck() {
		return nil
	}
	action := d.state.record.ScaleDownActionID
	for _, id := range d.state.record.ScaleDownTargetInstanceIDs {
		w, _ := s.worker(id)
		_, started := d.state.record.Removal(id)
		if started || !d.state.record.Targets(id) || w.Node == nil || slices.Contains(w.Node.Claims, action) {
			continue
		}
		if err := d.drainer.cordon(ctx, w.Node.NodeRef, action); err != nil {
			return err
		}
	}
	return nil
}

// stuck reports whether the scale-down has had its time.
func (d scaleDown) stuck() bool {
	return d.now().Sub(time.Unix(d.state.record.ScaleDownStartedEpoch, 0)) >= d.config.Policy.ScaleDownStuck
}

// removeTarget brings one target as far as it goes now: done, or to be continued by the next tick, or, if it
// can't be removed, the action ended.
func (d scaleDown) removeTarget(ctx context.Context, s *survey, id string) (done bool, err error) {
	m, started := d.state.record.Removal(id)
	stuck := d.stuck()
	gone, err := d.surveyor.confirmedGone(ctx, s, id)
	if err == nil && (gone || m.Phase == PhaseTerminating) {
		if m.Node.Name == "" {
			m.Node = s.nodeOf(id)
		}
		done, err = d.finishTarget(ctx, id, m, gone)
		if done || !stuck || lost(err) {
			return done, err
		}
	}

	switch {
	case stuck: // whatever holds it up must not block all scaling; what is marked is finished by the sweep
		return false, errors.Join(err, d.fail(ctx, s, "", "older than SCALE_DOWN_STUCK_SEC"))
	case err != nil:
		return false, err
	case s.fleetErr() != nil:
		return false, nil // what can't be seen is not removed
	case started:
		return d.drainTarget(ctx, s, m)
	}
	if why, blame := s.objection(id, d.config.Policy); why != "" {
		return false, d.fail(ctx, s, blame, why)
	}
	m = Removal{
		InstanceID:   id,
		ActionID:     d.state.record.ScaleDownActionID,
		Node:         s.nodeOf(id),
		DrainedSince: d.now().Unix(),
		Reason:       "scale-down",
	}
	if err := d.state.apply(ctx, StartDrain{Fence: d.state.fence, Removal: m}); err != nil {
		return false, err
	}
	return d.drainTarget(ctx, s, m)
}

// drainTarget continues a target whose drain is in the record: drain, look again, mark, and finish.
func (d scaleDown) drainTarget(ctx context.Context, s *survey, m Removal) (done bool, err error) {
	id := m.InstanceID
	d.people.tell(ctx, m.Node, NodeDrains, m.cause(), "it is drained and then terminated, by scale-down %s", m.ActionID)
	drained, failure, err := d.drainer.drain(ctx, m)
	switch {
	case err != nil:
		return false, err
	case failure != "":
		return false, d.fail(ctx, s, id, failure)
	case !drained:
		return false, nil
	}

	// The drain took its time. The cluster is surveyed again, with this node cordoned already, before the
	// mark, which is final. An interruption that cordoned its node meanwhile is seen here, or sees our
	// cordon: whichever came second.
	s = d.surveyor.survey(ctx)
	if err := errors.Join(s.fleetErr(), s.recordErr); err != nil {
		return false, err
	}
	if why, _ := s.objection(id, d.config.Policy); why != "" {
		return false, d.fail(ctx, s, "", why)
	}
	if err := d.state.apply(ctx, MarkTerminating{Fence: d.state.fence, Removal: m}); err != nil {
		return false, err
	}
	d.log.report(ctx, "scaleDown.marked", id, "drained")
	return d.finishTarget(ctx, id, m, false)
}

// finishTarget takes a marked target to its end: terminate, delete the Node object, record it as done. The
// Node object goes before that last write: afterwards nothing would look for it.
func (d scaleDown) finishTarget(ctx context.Context, id string, m Removal, gone bool) (bool, error) {
	if err := d.drainer.terminateAndRemove(ctx, id, m.Node, gone); err != nil {
		return false, err
	}
	done := MarkScaleDownInstanceDone{
		Fence:      d.state.fence,
		ActionID:   d.state.record.ScaleDownActionID,
		InstanceID: id,
	}
	if err := d.state.apply(ctx, done); err != nil {
		return false, err
	}
	d.log.report(ctx, "scaleDown.removed", id, "")
	return true, nil
}

// fail ends the scale-down. What it cordoned and did not mark is uncordoned first, so that after a crash in
// between it is done again. If uncordoning fails the action ends all the same, or one unreachable API would
// block all scaling: the sweep uncordons every node whose cordon nothing stands behind.
func (d scaleDown) fail(ctx context.Context, s *survey, culprit, why string) error {
	return d.end(ctx, s, "scaleDown.failed", culprit, why)
}

// scaleDownCancelled is the kind of the event of a cancelled scale-down.
const scaleDownCancelled = "scaleDown.cancelled"

// cancel ends the scale-down because its nodes are needed again. They are uncordoned and the workers on them
// told; what is marked is still removed.
func (d scaleDown) cancel(ctx context.Context, s *survey) error {
	return d.end(ctx, s, scaleDownCancelled, "", "its nodes are needed again")
}

func (d scaleDown) end(ctx context.Context, s *survey, kind, culprit, why string) error {
	action := d.state.record.ScaleDownActionID
	var kept []NodeRef
	for _, id := range d.state.record.ScaleDownTargetInstanceIDs {
		m, started := d.state.record.Removal(id)
		if !d.state.record.Targets(id) || m.Phase == PhaseTerminating {
			continue
		}
		if !started {
			m.Node = s.nodeOf(id)
		}
		if m.Node.Name == "" {
			continue
		}
		kept = append(kept, m.Node)
		if err := d.drainer.uncordon(ctx, m.Node, action); err != nil {
			if lost(err) {
				return err
			}
			d.log.fail(ctx, "uncordoning", err)
		}
	}
	err := d.state.apply(ctx, FailScaleDown{
		Fence:    d.state.fence,
		ActionID: action,
		Now:      d.now(),
		Culprit:  culprit,
		Cause:    why,

		Cancelled: kind == scaleDownCancelled,
	})
	if err != nil {
		return err
	}
	d.log.append(ctx, Event{Kind: kind, ActionID: action, Instance: culprit, Message: why})
	for _, node := range kept {
		if kind == scaleDownCancelled {
			d.people.tell(ctx, node, NodeSpared, action, "it is kept: its scale-down is cancelled, because pods need it")
		} else {
			d.people.tell(ctx, node, NodeKept, action, "it is kept: its scale-down ended: %s", why)
		}
	}
	return nil
}
