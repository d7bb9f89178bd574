package nodes

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"
)

// handOverPoll is the time between two questions how far workers are with handing over.
const handOverPoll = time.Second

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
		if s = t.survey(ctx); s.recordErr != nil { // the next target is judged by what is there after this one
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
		if err := t.cordon(ctx, w.Node.NodeRef, t.state.record.ScaleDownActionID); err != nil {
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
	gone, err := t.confirmedGone(ctx, s, id)
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
		if why, blame := t.objection(s, id); why != "" {
			return false, t.failDown(ctx, s, blame, why)
		}
		m = Removal{InstanceID: id, ActionID: t.state.record.ScaleDownActionID, Node: s.nodeOf(id), DrainedSince: t.now().Unix(), Reason: "scale-down"}
		if err := t.state.apply(ctx, StartDrain{Fence: t.state.fence, Removal: m}); err != nil {
			return false, err
		}
	}
	drained, failure, err := t.drain(ctx, m)
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
	s = t.survey(ctx)
	if err := errors.Join(s.fleetErr(), s.recordErr); err != nil {
		return false, err
	}
	if why, _ := t.objection(s, id); why != "" {
		return false, t.failDown(ctx, s, "", why)
	}
	if err := t.state.apply(ctx, MarkTerminating{Fence: t.state.fence, Removal: m}); err != nil {
		return false, err
	}
	t.log.report(ctx, "scaleDown.marked", id, "drained")
	return t.finishTarget(ctx, id, m, false)
}

// objection tells why a target may not be removed as things are now, and which instance is to blame for it, if one is.
func (t *run) objection(s *survey, id string) (why, blame string) {
	w, ok := s.worker(id)
	all, inZone, several := s.availableBeside(id)
	switch {
	case !ok || w.Node == nil:
		return "its node is not there", ""
	case w.Node.Blocker != "":
		return w.Node.Blocker, id
	case w.Node.Keep:
		return "annotated against scale-down", ""
	case all < t.config.Policy.MinWorkers:
		return fmt.Sprintf("only %d other workers are available", all), ""
	case several && inZone == 0:
		return "it has become the last worker of its zone", ""
	}
	return "", ""
}

// confirmedGone tells whether the cloud says that an instance is ending or has ended. One that it no longer shows is asked for by
// ID, because a list may lag.
func (t *run) confirmedGone(ctx context.Context, s *survey, id string) (bool, error) {
	if s.cloudErr != nil {
		return false, nil
	}
	for _, in := range s.instances {
		if in.ID == id {
			return in.Gone(), nil
		}
	}
	found, err := t.lookup(ctx, id)
	in, there := found[id]
	return err == nil && (!there || in.Gone()), err
}

func (t *run) lookup(ctx context.Context, ids ...string) (found map[string]Instance, err error) {
	err = t.calls.doSafe(ctx, "looking instances up", func(ctx context.Context) (err error) {
		found, err = t.config.Cloud.Lookup(ctx, ids)
		return err
	})
	return found, err
}

// nodeOf returns the node of an instance, also of one that the cloud has stopped listing.
func (s *survey) nodeOf(id string) NodeRef {
	if w, ok := s.worker(id); ok && w.Node != nil {
		return w.Node.NodeRef
	}
	for _, n := range s.view.Nodes {
		if n.InstanceID() == id && !n.ControlPlane {
			return n.NodeRef
		}
	}
	return NodeRef{}
}

// finishTarget takes a target past the point of no return to its end: terminate, delete the Node object, mark done. The Node object
// goes before the mark: after the mark nobody would look for it.
func (t *run) finishTarget(ctx context.Context, id string, m Removal, gone bool) (bool, error) {
	if err := t.terminateAndRemove(ctx, id, m.Node, gone); err != nil {
		return false, err
	}
	if err := t.state.apply(ctx, MarkScaleDownInstanceDone{Fence: t.state.fence, ActionID: t.state.record.ScaleDownActionID, InstanceID: id}); err != nil {
		return false, err
	}
	t.log.report(ctx, "scaleDown.removed", id, "")
	return true, nil
}

func (t *run) terminateAndRemove(ctx context.Context, id string, node NodeRef, gone bool) error {
	if !gone {
		err := t.calls.do(ctx, "terminating "+id, func(ctx context.Context) error { return t.config.Cloud.Terminate(ctx, id) })
		if err != nil {
			return err
		}
	}
	if node.Name == "" {
		return nil
	}
	return t.calls.do(ctx, "deleting node "+node.Name, func(ctx context.Context) error { return t.config.Cluster.Remove(ctx, node) })
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
		if err := t.uncordon(ctx, m.Node, action); err != nil {
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

// claim is the name under which a removal cordons its node.
func (m Removal) claim() string {
	if m.ActionID == "" {
		return "sweep-" + m.InstanceID
	}
	return m.ActionID
}

// drain cordons a node and drains it until it is done, has failed, or the tick has no more time. The cordon is repeated by every
// tick: it is idempotent, and the one of an earlier tick may have been lost.
func (t *run) drain(ctx context.Context, m Removal) (done bool, failure string, err error) {
	deadline := time.Unix(m.DrainedSince, 0).Add(t.config.Policy.DrainTimeout)
	if !t.now().Before(deadline) {
		return false, "not drained within DRAIN_TIMEOUT_SEC", nil
	}
	if err := t.cordon(ctx, m.Node, m.claim()); err != nil {
		return false, "", err
	}
	for !t.handedOver(ctx, m.Node, time.Unix(m.DrainedSince, 0), deadline) {
		if t.budget.spent(ctx) {
			t.log.report(ctx, "drain.continues", m.InstanceID, "its workers are handing over")
			return false, "", nil
		}
		if err := t.config.Clock.Sleep(ctx, handOverPoll); err != nil {
			return false, "", err
		}
	}
	for {
		p, err := t.drainOnce(ctx, DrainRequest{Node: m.Node, Until: earlier(deadline, t.now().Add(t.lease.slice))})
		if why, blocked := IsDrainBlocked(err); blocked {
			return false, why, nil
		}
		switch {
		case err != nil:
			return false, "", err
		case p.Done:
			return true, "", nil
		case !t.now().Before(deadline):
			return false, fmt.Sprintf("not drained within DRAIN_TIMEOUT_SEC: %d pod(s) left, %s", p.Left, p.Why), nil
		case t.budget.spent(ctx):
			t.log.report(ctx, "drain.continues", m.InstanceID, "%d pod(s) left, %s", p.Left, p.Why)
			return false, "", nil
		}
	}
}

func (t *run) drainOnce(ctx context.Context, req DrainRequest) (p DrainProgress, err error) {
	err = t.calls.do(ctx, "draining "+req.Node.Name, func(ctx context.Context) (err error) {
		p, err = t.config.Cluster.Drain(ctx, req)
		return err
	})
	return p, err
}

func (t *run) cordon(ctx context.Context, n NodeRef, claim string) error {
	return t.calls.do(ctx, "cordoning "+n.Name, func(ctx context.Context) error { return t.config.Cluster.Cordon(ctx, n, claim) })
}

// uncordon gives a node back, and its workers their work. Failing at the latter stops nothing: what they were asked for ends by itself.
func (t *run) uncordon(ctx context.Context, n NodeRef, claim string) error {
	if t.config.WorkerPlane != nil {
		if err := t.calls.do(ctx, "taking the request for hand-over back", func(ctx context.Context) error { return t.config.WorkerPlane.TakeBack(ctx, n.Name) }); err != nil {
			if lost(err) {
				return err
			}
			t.log.collect(err)
		}
	}
	return t.calls.do(ctx, "uncordoning "+n.Name, func(ctx context.Context) error { return t.config.Cluster.Uncordon(ctx, n, claim) })
}

// handedOver asks the workers on a node to give their work away and tells whether the drain may begin: when they hold nothing any
// more, or three quarters of the time from since to deadline are over. What remains is for evicting them as they are, which is worse
// and not wrong: they hand over when they are told to stop. A worker plane that doesn't answer is asked again for half of the time.
func (t *run) handedOver(ctx context.Context, n NodeRef, since, deadline time.Time) bool {
	if t.config.WorkerPlane == nil {
		return true
	}
	var left int
	ask := func(ctx context.Context) (err error) {
		left, err = t.config.WorkerPlane.HandOver(ctx, n.Name, deadline)
		return err
	}
	err := t.calls.do(ctx, "asking for hand-over", ask)
	if err != nil && !lost(err) { // a lost reply is not a worker plane that can't be asked
		err = t.calls.do(ctx, "asking for hand-over", ask)
	}
	patience := deadline.Sub(since) * 3 / 4
	if err != nil {
		t.log.collect(err)
		patience = deadline.Sub(since) / 2
	}
	return err == nil && left == 0 || !t.now().Before(since.Add(patience))
}
