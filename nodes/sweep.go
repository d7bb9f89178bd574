package nodes

import (
	"context"
	"errors"
	"slices"
	"time"
)

// sweep makes every instance one of: recorded in an action, joined, being removed, reaped; and every cordon
// of ours one that an action, a removal or an interruption stands behind. It collects what crashes and failed
// actions have left.
type sweep struct {
	*run
	surveyor surveyor
	drainer  drainer
	launcher launcher
	removals removals
	repair   repair
}

// do makes the steps. Removals come first, since they need no complete view. The others conclude something
// from absence, and do so only when cloud, record, interruptions and nodes could all be read completely: an
// hour without the Kubernetes API terminates nothing.
func (sw sweep) do(ctx context.Context, s *survey) error {
	steps := []func(context.Context, *survey) error{
		sw.removals.advanceAll,
		sw.reap,
		sw.repair.begin,
		sw.removeDeadNodes,
		sw.uncordonAbandoned,
	}
	var errs []error
	for _, step := range steps {
		err := step(ctx, s)
		if lost(err) {
			return err
		}
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}

// reap removes instances that Muster launched, that no action or interruption knows any more, and that never joined.
func (sw sweep) reap(ctx context.Context, s *survey) error {
	if s.fleetErr() != nil {
		return nil
	}
	for _, w := range s.workers {
		if !sw.orphaned(s, w) || sw.budget.spent(ctx) {
			continue
		}
		sw.launcher.diagnose(ctx, w)
		m := Removal{
			InstanceID: w.Instance.ID,
			Phase:      PhaseDraining,
			Reason:     "launched by " + w.Instance.ActionID + " and never joined",
		}
		if err := sw.removals.advance(ctx, s, m); err != nil {
			return err
		}
	}
	return nil
}

// orphaned reports whether an instance is to be reaped. An action or removal counts if it is open now or was
// open at the survey: what ended in between is judged by the next sweep.
func (sw sweep) orphaned(s *survey, w Worker) bool {
	in, now := w.Instance, sw.state.record
	if in.ActionID == "" || !in.Alive() || in.ControlPlane || w.Node != nil {
		return false
	}
	if sw.now().Sub(in.LaunchedAt) < sw.config.Policy.JoinTimeout { // it may still join, and what joins is kept
		return false
	}
	if now.Open(in.ActionID) || s.record.Open(in.ActionID) || slices.Contains(now.Joined, in.ID) {
		return false
	}
	if _, removing := now.Removal(in.ID); removing {
		return false
	}
	return !slices.ContainsFunc(s.open, func(i Interruption) bool { return i.ReplacementID == in.ID || i.claim() == in.ActionID })
}

// removeDeadNodes deletes the Node objects of instances that the cloud confirms to be gone; K3s never does.
func (sw sweep) removeDeadNodes(ctx context.Context, s *survey) error {
	if s.fleetErr() != nil {
		return nil
	}
	suspects, unlisted := deadSuspects(s)
	if len(suspects) == 0 {
		return nil
	}
	found := map[string]Instance{}
	if len(unlisted) > 0 { // the list may lag; asking by ID is a second opinion
		var err error
		if found, err = sw.surveyor.lookup(ctx, unlisted...); err != nil {
			return err
		}
	}

	for _, n := range suspects {
		id := n.InstanceID()
		in, there := found[id]
		lives := there && !in.Gone()
		justJoined := sw.now().Sub(n.CreatedAt) < time.Minute
		// Never known to be ours: of another account perhaps.
		foreign := !there && slices.Contains(unlisted, id) && !slices.Contains(s.record.Joined, id)
		if lives || justJoined || foreign {
			continue
		}
		err := sw.calls.do(ctx, "deleting node "+n.Name, func(ctx context.Context) error {
			return sw.config.Cluster.Remove(ctx, n.NodeRef)
		})
		if err != nil {
			return err
		}
		sw.log.report(ctx, "sweep.nodeDeleted", id, "node %s of an instance that is gone", n.Name)
	}
	return nil
}

// deadSuspects returns the nodes that are not Ready and whose instance is not alive, and the IDs of those
// instances that the cloud does not list. A node that names no instance is left alone: there is no telling
// whose it was.
func deadSuspects(s *survey) (suspects []Node, unlisted []string) {
	alive := map[string]bool{}
	for _, in := range s.instances {
		alive[in.ID] = !in.Gone()
	}
	for _, n := range s.view.Nodes {
		id := n.InstanceID()
		if id == "" || n.ControlPlane || n.Ready || alive[id] {
			continue
		}
		if _, listed := alive[id]; !listed {
			unlisted = append(unlisted, id)
		}
		suspects = append(suspects, n)
	}
	return suspects, unlisted
}

// uncordonAbandoned takes away cordons of ours that nothing stands behind: of a crash between a failed
// drain's end and its uncordon, or one that arrived after its action had ended. So it does with the mark of a node
// to be deleted whose claims somebody has taken away.
func (sw sweep) uncordonAbandoned(ctx context.Context, s *survey) error {
	if s.fleetErr() != nil {
		return nil
	}
	for _, w := range s.workers {
		// The node of a machine that has ended stays closed to pods until it is deleted: it may count as
		// Ready for a while.
		if w.Node == nil || !w.Instance.Alive() {
			continue
		}
		for _, claim := range w.Node.Claims {
			abandoned, err := sw.abandoned(ctx, s, w.Instance.ID, claim)
			if err != nil {
				return err
			}
			if !abandoned {
				continue
			}
			if err := sw.drainer.uncordon(ctx, w.Node.NodeRef, claim); err != nil {
				return err
			}
			sw.log.report(ctx, "sweep.uncordoned", w.Instance.ID, "claim %s was abandoned", claim)
		}
		if w.Node.ToBeDeleted && len(w.Node.Claims) == 0 {
			if err := sw.unmark(ctx, w); err != nil {
				return err
			}
		}
	}
	return nil
}

// unmark takes the mark of a node to be deleted away. A claim that was added since the survey keeps it.
func (sw sweep) unmark(ctx context.Context, w Worker) error {
	err := sw.calls.do(ctx, "taking the mark off "+w.Node.Name, func(ctx context.Context) error {
		return sw.config.Cluster.Uncordon(ctx, w.Node.NodeRef, "")
	})
	if err == nil {
		sw.log.report(ctx, "sweep.uncordoned", w.Instance.ID, "it was marked as to be deleted, and no claim stood behind that")
	}
	return err
}

// abandoned reports whether nothing stands behind a cordon. It reads the interruptions again, because one may
// have been opened, and have cordoned the node, after they were listed and before the nodes were read.
func (sw sweep) abandoned(ctx context.Context, s *survey, instanceID, claim string) (bool, error) {
	if sw.standsBehind(s, instanceID, claim) {
		return false, nil
	}
	err := sw.calls.do(ctx, "reading interruptions", func(ctx context.Context) (err error) {
		s.open, err = sw.config.Store.OpenInterruptions(ctx)
		return err
	})
	if err != nil {
		return false, err
	}
	return !sw.standsBehind(s, instanceID, claim), nil
}

// standsBehind reports whether a removal, a scale-down or an interruption is the reason of a cordon.
func (sw sweep) standsBehind(s *survey, instanceID, claim string) bool {
	for _, r := range []Record{s.record, sw.state.record} { // what ended during this sweep is judged by the next
		if m, ok := r.Removal(instanceID); ok && m.claim() == claim || r.Targets(instanceID) && r.targetOf(instanceID) == claim {
			return true
		}
	}
	return slices.ContainsFunc(s.open, func(i Interruption) bool { return i.InstanceID == instanceID && i.claim() == claim })
}
