package nodes

import (
	"context"
	"errors"
	"slices"
	"time"
)

// sweep makes every instance one of: recorded in an action, joined, being removed, reaped; and every cordon of ours one that
// somebody stands behind. It goes on with removals first, since that needs no complete view, and concludes from absence only when
// cloud, record, interruptions and nodes could all be read completely: an hour without the Kubernetes API terminates nothing.
func (t *run) sweep(ctx context.Context, s *survey) error {
	var errs []error
	for _, step := range []func(context.Context, *survey) error{t.finishRemovals, t.reap, t.repair, t.removeDeadNodes, t.uncordonAbandoned} {
		err := step(ctx, s)
		if lost(err) {
			return err
		}
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}

// finishRemovals goes on with removals that no open scale-down works on.
func (t *run) finishRemovals(ctx context.Context, s *survey) error {
	var errs []error
	for _, m := range t.state.record.Removals {
		if t.state.record.Targets(m.InstanceID) || t.budget.spent(ctx) {
			continue
		}
		if err := t.finishRemoval(ctx, s, m); err != nil {
			if lost(err) {
				return err
			}
			errs = append(errs, err)
		}
	}
	return errors.Join(errs...)
}

// finishRemoval brings one removal as far as it goes now.
func (t *run) finishRemoval(ctx context.Context, s *survey, m Removal) error {
	gone, err := (surveyor{t}).confirmedGone(ctx, s, m.InstanceID)
	if err != nil {
		return err
	}
	if !gone {
		ready, err := t.readyToEnd(ctx, &m)
		if err != nil || !ready {
			return err
		}
	}
	if m.Node.Name == "" {
		m.Node = s.nodeOf(m.InstanceID)
	}
	if err := (drainer{t}).terminateAndRemove(ctx, m.InstanceID, m.Node, gone); err != nil {
		return err
	}
	if err := t.state.apply(ctx, FinishRemoval{Fence: t.state.fence, InstanceID: m.InstanceID}); err != nil {
		return err
	}
	t.log.report(ctx, "sweep.removed", m.InstanceID, "%s", m.Reason)
	return nil
}

// readyToEnd tells whether an instance is marked and nothing on it needs a drain. It looks anew: an instance that had not joined a
// minute ago may have joined, and hold pods, by now. One that is not marked yet and is Ready is a worker after all and given back;
// one that is marked is drained whatever it has become.
func (t *run) readyToEnd(ctx context.Context, m *Removal) (bool, error) {
	switch {
	case m.NotReady && m.Phase == PhaseTerminating:
		return t.drainRecovered(ctx, *m)
	case m.NotReady:
		if ready, err := t.prepareRepair(ctx, *m); err != nil || !ready {
			return false, err
		}
		err := t.state.apply(ctx, MarkTerminating{Fence: t.state.fence, Removal: *m})
		return err == nil, err
	}
	if m.Phase == PhaseTerminating && m.DrainedSince == 0 || m.Phase == PhaseDraining {
		if settled, err := t.prepare(ctx, m); err != nil || !settled {
			return false, err
		}
	}
	if m.Phase == PhaseTerminating {
		return true, nil
	}
	err := t.state.apply(ctx, MarkTerminating{Fence: t.state.fence, Removal: *m})
	return err == nil, err
}

// prepare drains what needs a drain; true means that the instance may end.
func (t *run) prepare(ctx context.Context, m *Removal) (bool, error) {
	s := (surveyor{t}).survey(ctx)
	if err := errors.Join(s.fleetErr(), s.recordErr); err != nil {
		return false, err // what can't be seen is not removed
	}
	w, listed := s.worker(m.InstanceID)
	marked := m.Phase == PhaseTerminating
	switch {
	case w.Node == nil && m.Node.Name == "" && (listed || marked):
		return true, nil // it never joined
	case w.Node == nil && marked:
		return true, nil
	case w.Node == nil:
		return false, t.giveBack(ctx, *m, "its node is not there any more")
	case w.Node.Ready && !marked:
		return false, t.giveBack(ctx, *m, "")
	}
	if m.DrainedSince == 0 {
		m.Node, m.DrainedSince = w.Node.NodeRef, t.now().Unix()
		if err := t.state.apply(ctx, StartDrain{Fence: t.state.fence, Removal: *m}); err != nil {
			return false, err
		}
	}
	drained, failure, err := (drainer{t}).drain(ctx, *m)
	switch {
	case err != nil || failure == "" && !drained:
		return false, err
	case failure != "" && !marked:
		return false, t.giveBack(ctx, *m, failure)
	case failure != "":
		t.log.report(ctx, "sweep.drainFailed", m.InstanceID, "marked and can't be drained: %s", failure)
		return false, nil
	case marked:
		return true, nil
	}
	return t.stillNotReady(ctx, *m)
}

// stillNotReady looks once more after a drain: what joined meanwhile is kept.
func (t *run) stillNotReady(ctx context.Context, m Removal) (bool, error) {
	s := (surveyor{t}).survey(ctx)
	if err := errors.Join(s.fleetErr(), s.recordErr); err != nil {
		return false, err
	}
	if w, ok := s.worker(m.InstanceID); ok && w.Node != nil && w.Node.Ready {
		return false, t.giveBack(ctx, m, "")
	}
	return true, nil
}

func (t *run) giveBack(ctx context.Context, m Removal, cause string) error {
	if m.Node.Name != "" {
		if err := (drainer{t}).uncordon(ctx, m.Node, m.claim()); err != nil {
			return err
		}
	}
	t.log.report(ctx, "sweep.givenBack", m.InstanceID, "%s", cause)
	return t.state.apply(ctx, GiveBack{Fence: t.state.fence, InstanceID: m.InstanceID, Now: t.now(), Cause: cause})
}

// reap removes instances that Muster launched, that no action or interruption knows any more, and that never joined.
func (t *run) reap(ctx context.Context, s *survey) error {
	if s.fleetErr() != nil {
		return nil
	}
	for _, w := range s.workers {
		if !t.orphaned(s, w) || t.budget.spent(ctx) {
			continue
		}
		(launcher{t}).diagnose(ctx, w.Instance.ID)
		m := Removal{InstanceID: w.Instance.ID, Phase: PhaseDraining, Reason: "launched by " + w.Instance.ActionID + " and never joined"}
		if err := t.finishRemoval(ctx, s, m); err != nil {
			return err
		}
	}
	return nil
}

func (t *run) orphaned(s *survey, w Worker) bool {
	in := w.Instance
	if in.ActionID == "" || !in.Alive() || in.ControlPlane || w.Node != nil {
		return false
	}
	if t.now().Sub(in.LaunchedAt) < t.config.Policy.JoinTimeout { // it may still join, and what joins is kept
		return false
	}
	if in.ActionID == t.state.record.ActionID() || in.ActionID == s.record.ActionID() || slices.Contains(t.state.record.Joined, in.ID) {
		return false
	}
	if _, removing := t.state.record.Removal(in.ID); removing {
		return false
	}
	return !slices.ContainsFunc(s.open, func(i Interruption) bool { return i.ReplacementID == in.ID || i.claim() == in.ActionID })
}

// removeDeadNodes deletes the Node objects of instances that the cloud confirms to be gone; K3s never does. A node that names no
// instance is left alone: nobody can tell whose it was.
func (t *run) removeDeadNodes(ctx context.Context, s *survey) error {
	if s.fleetErr() != nil {
		return nil
	}
	alive := map[string]bool{}
	for _, in := range s.instances {
		alive[in.ID] = !in.Gone()
	}
	var suspects []Node
	var unknown []string
	for _, n := range s.view.Nodes {
		id := n.InstanceID()
		if id == "" || n.ControlPlane || n.Ready || alive[id] {
			continue
		}
		if _, listed := alive[id]; !listed {
			unknown = append(unknown, id)
		}
		suspects = append(suspects, n)
	}
	if len(suspects) == 0 {
		return nil
	}
	found := map[string]Instance{}
	if len(unknown) > 0 { // the list may lag; asking by ID is a second opinion
		var err error
		if found, err = (surveyor{t}).lookup(ctx, unknown...); err != nil {
			return err
		}
	}
	for _, n := range suspects {
		id := n.InstanceID()
		in, there := found[id]
		switch {
		case there && !in.Gone(), t.now().Sub(n.CreatedAt) < time.Minute:
			continue
		case !there && slices.Contains(unknown, id) && !slices.Contains(s.record.Joined, id):
			continue // never known to be ours: of another account perhaps
		}
		err := t.calls.do(ctx, "deleting node "+n.Name, func(ctx context.Context) error { return t.config.Cluster.Remove(ctx, n.NodeRef) })
		if err != nil {
			return err
		}
		t.log.report(ctx, "sweep.nodeDeleted", id, "node %s of an instance that is gone", n.Name)
	}
	return nil
}

// uncordonAbandoned takes away cordons of ours that nobody stands behind: a crash between a failed drain's end and its uncordon, or
// a cordon that arrived after its action had ended.
func (t *run) uncordonAbandoned(ctx context.Context, s *survey) error {
	if s.fleetErr() != nil {
		return nil
	}
	for _, w := range s.workers {
		// The node of a machine that has ended stays closed to pods until it is deleted: it may count as Ready for a while.
		if w.Node == nil || !w.Instance.Alive() {
			continue
		}
		for _, claim := range w.Node.Claims {
			if t.standsBehind(s, w.Instance.ID, claim) {
				continue
			}
			// An interruption may have been opened, and have cordoned, after they were listed and before the nodes were read.
			err := t.calls.do(ctx, "reading interruptions", func(ctx context.Context) (err error) {
				s.open, err = t.config.Store.OpenInterruptions(ctx)
				return err
			})
			if err != nil {
				return err
			}
			if t.standsBehind(s, w.Instance.ID, claim) {
				continue
			}
			if err := (drainer{t}).uncordon(ctx, w.Node.NodeRef, claim); err != nil {
				return err
			}
			t.log.report(ctx, "sweep.uncordoned", w.Instance.ID, "claim %s was abandoned", claim)
		}
	}
	return nil
}

func (t *run) standsBehind(s *survey, id, claim string) bool {
	for _, r := range []Record{s.record, t.state.record} { // what ended during this sweep is judged by the next
		if m, ok := r.Removal(id); ok && m.claim() == claim || r.Targets(id) && r.ScaleDownActionID == claim {
			return true
		}
	}
	return slices.ContainsFunc(s.open, func(i Interruption) bool { return i.InstanceID == id && i.claim() == claim })
}
