package nodes

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/muster-dev/muster/internal/quantity"
)

// removals continues the removals that no open scale-down works on: of instances that never joined, of
// workers that are not Ready or whose instances or disks are not well, and of what a scale-down marked before it failed. A crash may come between any
// two steps of a removal, so their order matters:
//
//  1. StartDrain writes the removal down before its node is cordoned. A cordon without a removal behind it is
//     taken away again.
//  2. The node is cordoned and drained; one that is not Ready is only cordoned. Until the mark, a node that
//     turns out to be a worker after all is given back.
//  3. The cluster is surveyed again, with the cordon in place: nothing can be scheduled to the node any more
//     that isn't seen now.
//  4. MarkTerminating writes the mark before the cloud is asked to terminate. The mark is final: nothing
//     gives the instance back.
//  5. The instance is terminated, then its Node object deleted.
//  6. FinishRemoval forgets the removal. It comes last, because nothing would look for the Node object
//     afterwards.
type removals struct {
	*run
	surveyor surveyor
	drainer  drainer
}

// advanceAll brings every removal as far as it goes now.
func (m removals) advanceAll(ctx context.Context, s *survey) error {
	var errs []error
	for _, r := range m.state.record.Removals {
		if m.state.record.Targets(r.InstanceID) || m.budget.spent(ctx) {
			continue
		}
		if err := m.advance(ctx, s, r); err != nil {
			if lost(err) {
				return err
			}
			errs = append(errs, err)
		}
	}
	return errors.Join(errs...)
}

// advance brings one removal as far as it goes now. Its drain has a turn, as those of scale-downs have: nothing
// waits for it.
func (m removals) advance(ctx context.Context, s *survey, r Removal) error {
	if m.config.Policy.parallel() {
		m.budget.beginTurn(len(m.state.record.Removals))
		defer m.budget.endTurn()
	}
	gone, err := m.surveyor.confirmedGone(ctx, s, r.InstanceID)
	if err != nil {
		return err
	}
	if !gone {
		if r.DrainedSince != 0 && r.ActionID == "" {
			m.people.tell(ctx, r.Node, NodeDrains, r.cause(), "it is drained as far as it can be, and then terminated: %s", r.Reason)
		}
		ready, err := m.readyToEnd(ctx, &r)
		if err != nil || !ready {
			return err
		}
	}

	if r.Node.Name == "" {
		r.Node = s.nodeOf(r.InstanceID)
	}
	if err := m.drainer.terminateAndRemove(ctx, r.InstanceID, r.Node, gone); err != nil {
		return err
	}
	if err := m.state.apply(ctx, FinishRemoval{Fence: m.state.fence, InstanceID: r.InstanceID}); err != nil {
		return err
	}
	m.log.report(ctx, "sweep.removed", r.InstanceID, "%s", r.Reason)
	return nil
}

// readyToEnd reports whether an instance is marked and nothing on it needs a drain, and brings it there if it
// can. What needs a drain is judged by a new survey: an instance that had not joined a minute ago may have
// joined, and run pods, by now.
func (m removals) readyToEnd(ctx context.Context, r *Removal) (bool, error) {
	marked := r.Phase == PhaseTerminating
	switch {
	case marked && (r.NotReady || r.Impaired):
		return m.drainRecovered(ctx, *r)
	case r.repairs() && !marked:
		if ready, err := m.prepareRepair(ctx, *r); err != nil || !ready {
			return false, err
		}
		return m.mark(ctx, *r)
	}

	drained := marked && r.DrainedSince != 0 // what is marked without a drain had not joined then
	if !drained {
		if ready, err := m.prepare(ctx, r); err != nil || !ready {
			return false, err
		}
	}
	if marked {
		return true, nil
	}
	return m.mark(ctx, *r)
}

// mark writes the mark; false unless it is durable.
func (m removals) mark(ctx context.Context, r Removal) (bool, error) {
	err := m.state.apply(ctx, MarkTerminating{Fence: m.state.fence, Removal: r})
	return err == nil, err
}

// prepare drains an instance that needs it; true means that the instance may end. One that is not marked yet
// and is Ready is a worker after all and given back. One that is marked is drained whatever it has become.
func (m removals) prepare(ctx context.Context, r *Removal) (bool, error) {
	w, listed, err := m.look(ctx, r.InstanceID)
	if err != nil {
		return false, err // what can't be seen is not removed
	}
	marked := r.Phase == PhaseTerminating
	neverJoined := listed && r.Node.Name == ""
	switch {
	case w.Node == nil && (neverJoined || marked):
		return true, nil
	case w.Node == nil:
		return false, m.giveBack(ctx, *r, "its node is not there any more")
	case w.Node.Ready && !marked:
		return false, m.giveBack(ctx, *r, "")
	}

	if r.DrainedSince == 0 {
		r.Node, r.DrainedSince = w.Node.NodeRef, m.now().Unix()
		if err := m.state.apply(ctx, StartDrain{Fence: m.state.fence, Removal: *r}); err != nil {
			return false, err
		}
	}
	return m.drain(ctx, *r)
}

// drain drains a node whose drain has been written down.
func (m removals) drain(ctx context.Context, r Removal) (bool, error) {
	marked := r.Phase == PhaseTerminating
	drained, failure, err := m.drainer.drain(ctx, r)
	switch {
	case err != nil || failure == "" && !drained:
		return false, err
	case failure != "" && !marked:
		return false, m.giveBack(ctx, r, failure)
	case failure != "":
		m.log.report(ctx, "sweep.drainFailed", r.InstanceID, "marked and can't be drained: %s", failure)
		return false, nil
	case marked:
		return true, nil
	}
	return m.stillNotReady(ctx, r)
}

// stillNotReady looks once more after a drain, before the mark: a worker that became Ready meanwhile is kept.
func (m removals) stillNotReady(ctx context.Context, r Removal) (bool, error) {
	w, _, err := m.look(ctx, r.InstanceID)
	if err != nil {
		return false, err
	}
	if w.Node != nil && w.Node.Ready {
		return false, m.giveBack(ctx, r, "")
	}
	return true, nil
}

// prepareRepair takes a worker that is to be repaired out of service; true means that the instance may end. A worker that has become
// well is kept, and so is one of many that are not.
//
// A node that is Ready is drained, and one that is not is only cordoned. An impaired instance may go from one to the other at any time:
//
//  1. Its node stops being Ready during the drain. The pods that are left can't end in order, and the next turn, which finds it so,
//     waits for none.
//  2. Its node becomes Ready after it was only cordoned. Its pods run, so it must not be marked: the next turn drains it.
func (m removals) prepareRepair(ctx context.Context, r Removal) (bool, error) {
	before, ok, err := m.stillUnhealthy(ctx, r)
	if err != nil || !ok {
		return false, err
	}
	if before.Ready {
		ok, err = m.drainUnhealthy(ctx, r)
	} else {
		ok, err = m.cordonNotReady(ctx, r)
	}
	if err != nil || !ok {
		return false, err
	}
	// The drain or the cordon took its time, and a pod can have been scheduled before the cordon. Look again before
	// the mark, which is final.
	after, ok, err := m.stillUnhealthy(ctx, r)
	if err != nil || !ok {
		return false, err
	}
	return before.Ready || !after.Ready, nil
}

// cordonNotReady cordons a node that is not Ready and asks the workers on it for their work.
func (m removals) cordonNotReady(ctx context.Context, r Removal) (bool, error) {
	if err := m.drainer.cordon(ctx, r.Node, r.claim()); err != nil {
		return false, err
	}
	since := time.Unix(r.DrainedSince, 0)
	if !m.drainer.handedOff(ctx, r.Node, since, since.Add(m.config.Policy.DrainTimeout)) {
		m.log.report(ctx, "drain.continues", r.InstanceID, "its workers are handing over")
		return false, nil
	}
	return true, nil
}

// drainUnhealthy drains a worker whose kubelet works, so that its pods end in order. A disruption budget that holds one up keeps the
// worker for a while.
func (m removals) drainUnhealthy(ctx context.Context, r Removal) (bool, error) {
	drained, failure, err := m.drainer.drain(ctx, r)
	if err == nil && failure != "" {
		return false, m.giveBack(ctx, r, failure)
	}
	return drained && err == nil, err
}

// stillUnhealthy reports whether a worker that is repaired still has to go, and returns its node as it is then. It gives the worker back
// if not.
func (m removals) stillUnhealthy(ctx context.Context, r Removal) (Node, bool, error) {
	s := m.surveyor.survey(ctx)
	if err := errors.Join(s.fleetErr(), s.recordErr); err != nil {
		return Node{}, false, err // what can't be seen is not removed
	}
	if !r.DiskFull {
		m.surveyor.readStatuses(ctx, s)
	}
	if r.Impaired && s.statusErr != nil {
		return Node{}, false, m.unseen(ctx, r)
	}
	w, _ := s.worker(r.InstanceID)
	switch {
	case w.Node == nil:
		return Node{}, false, m.giveBack(ctx, r, "its node is not there any more")
	case !m.still(r, w): // it is or was well meanwhile
		return Node{}, false, m.giveBack(ctx, r, "")
	}
	h, _ := newHealth(m.config.Policy, s.fleet(), m.state.record, m.now())
	why := h.many(r.defect())
	if r.defect().replacedFirst() && h.short() {
		why = "MIN_WORKERS would not be there without it"
	}
	if why != "" {
		m.log.report(ctx, "repair.held", r.InstanceID, "%s", why)
		return Node{}, false, m.giveBack(ctx, r, "")
	}
	return *w.Node, true, nil
}

// unseen deals with an impaired worker whose status checks can't be read: its removal waits, but its node does not stay cordoned
// for longer than a drain may last.
func (m removals) unseen(ctx context.Context, r Removal) error {
	if m.now().Sub(time.Unix(r.DrainedSince, 0)) < m.config.Policy.DrainTimeout {
		return nil // readStatuses has said why
	}
	return m.giveBack(ctx, r, "its status checks can't be read")
}

// still reports whether a worker is as it was when its repair began, and has been so for long enough.
func (m removals) still(r Removal, w Worker) bool {
	now := m.now()
	return slices.ContainsFunc(w.defects(now), func(l lasting) bool {
		return l.defect == r.defect() && now.Sub(l.since) >= l.defect.limit(m.config.Policy)
	})
}

// drainRecovered drains a marked worker that has become Ready again, or still is: its pods run, and the mark is final.
func (m removals) drainRecovered(ctx context.Context, r Removal) (bool, error) {
	w, _, err := m.look(ctx, r.InstanceID)
	if err != nil {
		return false, err
	}
	if w.Node == nil || !w.Node.Ready {
		return true, nil
	}
	for {
		p, err := m.drainer.drainOnce(ctx, DrainRequest{Node: r.Node, Until: m.now().Add(m.budget.turn(m.lease.slice))})
		why, blocked := IsDrainBlocked(err)
		switch {
		case blocked:
			m.log.report(ctx, "sweep.drainFailed", r.InstanceID, "marked, Ready again, and can't be drained: %s", why)
			return false, nil
		case err != nil || p.Done:
			return err == nil, err
		case m.budget.turnOver(ctx):
			m.log.report(ctx, "drain.continues", r.InstanceID, "%s left, %s", quantity.Of(p.Left, "pod"), p.Why)
			return false, nil
		}
	}
}

// look surveys everything again and returns one worker of it. The error says that something could not be seen.
func (m removals) look(ctx context.Context, instanceID string) (w Worker, listed bool, err error) {
	s := m.surveyor.survey(ctx)
	if err := errors.Join(s.fleetErr(), s.recordErr); err != nil {
		return Worker{}, false, err
	}
	w, listed = s.worker(instanceID)
	return w, listed, nil
}

// giveBack ends a removal that is not marked: its node stays a worker. The node is uncordoned before the
// record forgets the removal. The other way round, a crash in between would leave a cordon with no removal
// behind it. With a cause the instance is not chosen for removal for a while.
func (m removals) giveBack(ctx context.Context, r Removal, cause string) error {
	if r.Node.Name != "" {
		if err := m.drainer.uncordon(ctx, r.Node, r.claim()); err != nil {
			return err
		}
	}
	m.log.report(ctx, "sweep.givenBack", r.InstanceID, "%s", cause)
	if err := m.state.apply(ctx, GiveBack{Fence: m.state.fence, InstanceID: r.InstanceID, Now: m.now(), Cause: cause}); err != nil {
		return err
	}
	if cause == "" {
		m.people.tell(ctx, r.Node, NodeSpared, r.cause(), "it is kept: what it had to go for is over")
	} else {
		m.people.tell(ctx, r.Node, NodeKept, r.cause(), "it is kept: %s", cause)
	}
	return nil
}
