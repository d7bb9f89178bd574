package nodes

import (
	"context"
	"errors"
	"slices"
	"time"
)

// beginDown opens a scale-down with its plan and goes on with it.
func (t *run) beginDown(ctx context.Context, s *survey, d Decision) error {
	var ids []string
	for _, target := range d.Targets {
		ids = append(ids, target.InstanceID)
	}
	err := t.state.apply(ctx, BeginScaleDown{Fence: t.state.fence, ActionID: t.newActionID(), Now: t.now(), Targets: ids})
	if err != nil {
		return err
	}
	t.log.report(ctx, "scaleDown.begun", "", "targets %v", ids)
	return t.carryOnDown(ctx, s)
}

// carryOnDown goes on with the open scale-down from wherever it was left, target by target.
func (t *run) carryOnDown(ctx context.Context, s *survey) error {
	if err := t.cordonTargets(ctx, s); err != nil {
		return err
	}
	for _, id := range t.state.record.ScaleDownTargetInstanceIDs {
		if !t.state.record.Targets(id) {
			continue
		}
		done, err := t.removeTarget(ctx, s, id)
		if err != nil || !done {
			return err
		}
		if s = (surveyor{t}).survey(ctx); s.recordErr != nil { // the next target is judged by what is there after this one
			return s.recordErr
		}
	}
	id := t.state.record.ScaleDownActionID
	err := t.state.apply(ctx, CompleteScaleDown{Fence: t.state.fence, ActionID: id, Now: t.now()})
	if err == nil {
		t.log.append(ctx, Event{Kind: "scaleDown.completed", ActionID: id})
	}
	return err
}

// cordonTargets cordons the targets that wait for their turn, so that what is evicted from one is not placed on the next only to be
// evicted again. A single target is cordoned by its drain.
func (t *run) cordonTargets(ctx context.Context, s *survey) error {
	if len(t.state.record.ScaleDownTargetInstanceIDs) < 2 || s.fleetErr() != nil || t.stuck() {
		return nil
	}
	for _, id := range t.state.record.ScaleDownTargetInstanceIDs {
		w, _ := s.worker(id)
		if _, started := t.state.record.Removal(id); started || !t.state.record.Targets(id) || w.Node == nil || slices.Contains(w.Node.Claims, t.state.record.ScaleDownActionID) {
			continue
		}
		if err := (drainer{t}).cordon(ctx, w.Node.NodeRef, t.state.record.ScaleDownActionID); err != nil {
			return err
		}
	}
	return nil
}

// stuck tells whether the scale-down has had its time.
func (t *run) stuck() bool {
	return t.now().Sub(time.Unix(t.state.record.ScaleDownStartedEpoch, 0)) >= t.config.Policy.ScaleDownStuck
}

// removeTarget brings one target as far as it goes now: done, or to be continued by the next tick, or, if it can't be removed, the
// action ended.
func (t *run) removeTarget(ctx context.Context, s *survey, id string) (done bool, err error) {
	m, started := t.state.record.Removal(id)
	stuck := t.stuck()
	gone, err := (surveyor{t}).confirmedGone(ctx, s, id)
	if err == nil && (gone || m.Phase == PhaseTerminating) {
		if m.Node.Name == "" {
			m.Node = s.nodeOf(id)
		}
		done, err = t.finishTarget(ctx, id, m, gone)
		if done || !stuck || lost(err) {
			return done, err
		}
	}
	switch {
	case stuck: // whatever holds it up must not block all scaling; what is marked is finished by the sweep
		return false, errors.Join(err, t.failDown(ctx, s, "", "older than SCALE_DOWN_STUCK_SEC"))
	case err != nil:
		return false, err
	case s.fleetErr() != nil:
		return false, nil // what can't be seen is not removed
	}
	if !started {
		if why, blame := s.objection(id, t.config.Policy.MinWorkers); why != "" {
			return false, t.failDown(ctx, s, blame, why)
		}
		m = Removal{InstanceID: id, ActionID: t.state.record.ScaleDownActionID, Node: s.nodeOf(id), DrainedSince: t.now().Unix(), Reason: "scale-down"}
		if err := t.state.apply(ctx, StartDrain{Fence: t.state.fence, Removal: m}); err != nil {
			return false, err
		}
	}
	drained, failure, err := (drainer{t}).drain(ctx, m)
	switch {
	case err != nil:
		return false, err
	case failure != "":
		return false, t.failDown(ctx, s, id, failure)
	case !drained:
		return false, nil
	}
	// The drain took its time. The cluster is looked at again, with this node cordoned already, before the point of no return. An
	// interruption that cordoned its node meanwhile is seen here, or sees our cordon: whichever came second.
	s = (surveyor{t}).survey(ctx)
	if err := errors.Join(s.fleetErr(), s.recordErr); err != nil {
		return false, err
	}
	if why, _ := s.objection(id, t.config.Policy.MinWorkers); why != "" {
		return false, t.failDown(ctx, s, "", why)
	}
	if err := t.state.apply(ctx, MarkTerminating{Fence: t.state.fence, Removal: m}); err != nil {
		return false, err
	}
	t.log.report(ctx, "scaleDown.marked", id, "drained")
	return t.finishTarget(ctx, id, m, false)
}

// finishTarget takes a target past the point of no return to its end: terminate, delete the Node object, mark done. The Node object
// goes before the mark: after the mark nobody would look for it.
func (t *run) finishTarget(ctx context.Context, id string, m Removal, gone bool) (bool, error) {
	if err := (drainer{t}).terminateAndRemove(ctx, id, m.Node, gone); err != nil {
		return false, err
	}
	if err := t.state.apply(ctx, MarkScaleDownInstanceDone{Fence: t.state.fence, ActionID: t.state.record.ScaleDownActionID, InstanceID: id}); err != nil {
		return false, err
	}
	t.log.report(ctx, "scaleDown.removed", id, "")
	return true, nil
}

// failDown ends the scale-down. What it cordoned and did not mark is uncordoned first, so that a crash in between is followed by
// doing it again. If uncordoning fails the action ends all the same, or one unreachable API would block all scaling: the sweep
// uncordons every node whose claim nobody stands behind.
func (t *run) failDown(ctx context.Context, s *survey, culprit, why string) error {
	action := t.state.record.ScaleDownActionID
	for _, id := range t.state.record.ScaleDownTargetInstanceIDs {
		m, started := t.state.record.Removal(id)
		if !t.state.record.Targets(id) || m.Phase == PhaseTerminating {
			continue
		}
		if !started {
			m.Node = s.nodeOf(id)
		}
		if m.Node.Name == "" {
			continue
		}
		if err := (drainer{t}).uncordon(ctx, m.Node, action); err != nil {
			if lost(err) {
				return err
			}
			t.log.fail(ctx, "uncordoning", err)
		}
	}
	err := t.state.apply(ctx, FailScaleDown{Fence: t.state.fence, ActionID: action, Now: t.now(), Culprit: culprit, Cause: why})
	if err == nil {
		t.log.append(ctx, Event{Kind: "scaleDown.failed", ActionID: action, Instance: culprit, Message: why})
	}
	return err
}
