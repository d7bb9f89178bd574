package nodes

import "context"

// rebalance works on a rebalance recommendation or a scheduled change. There is time to replace first: the
// replacement is launched and verified, and only then is the instance drained and removed. If anything fails
// the instance is kept.
type rebalance struct {
	*claimedInterruption
	surveyor    surveyor
	drainer     drainer
	replacement replacement
}

// do brings the interruption as far as it goes now.
func (r *rebalance) do(ctx context.Context, s *survey, gone bool) error {
	if r.item.Replace == ReplaceNo {
		return r.close(ctx, "nothing to replace")
	}
	for r.replacement.wanted() && !r.budget.spent(ctx) {
		if err := r.replacement.launch(ctx, s); err != nil {
			return err
		}
	}
	if err := s.fleetErr(); err != nil {
		return err
	}
	settled, err := r.replacement.settled(ctx, s)
	switch {
	case err != nil || !settled:
		return err
	case gone:
		return r.close(ctx, "the instance has ended; %s", r.replacement.text())
	case !r.item.Verified:
		return r.close(ctx, "kept: %s", r.replacement.text())
	case r.item.Marked:
		return r.end(ctx)
	case r.item.Node.Name == "":
		return r.close(ctx, "kept: its node is not known")
	}
	return r.drain(ctx)
}

// drain drains the node, marks the instance and ends it. The steps are in the order of a scale-down's, for
// the same reasons.
func (r *rebalance) drain(ctx context.Context) error {
	if err := r.startDrain(ctx); err != nil {
		return err
	}
	r.people.tell(ctx, r.item.Node, NodeDrains, r.item.cause(), "it is drained and then terminated: interrupted (%s); %s", r.item.Kind, r.replacement.text())
	m := Removal{
		InstanceID:   r.item.InstanceID,
		ActionID:     r.item.claim(),
		Node:         r.item.Node,
		DrainedSince: r.item.DrainSince,
	}
	drained, failure, err := r.drainer.drain(ctx, m)
	switch {
	case err != nil || failure == "" && !drained:
		return err
	case failure != "":
		return r.keep(ctx, failure)
	}

	// As before a scale-down's mark: look again, with this node cordoned already.
	s := r.surveyor.survey(ctx)
	if err := s.fleetErr(); err != nil {
		return err
	}
	if why, _ := s.objection(r.item.InstanceID, r.config.Policy); why != "" {
		return r.keep(ctx, why)
	}
	if err := r.step(ctx, "markTerminating", func(i *Interruption) { i.Drained, i.Marked = true, true }); err != nil {
		return err
	}
	return r.end(ctx)
}

// end terminates a marked instance and closes the interruption, in this order: nothing would terminate it afterwards.
func (r *rebalance) end(ctx context.Context) error {
	if err := r.drainer.terminateAndRemove(ctx, r.item.InstanceID, r.item.Node, false); err != nil {
		return err
	}
	return r.close(ctx, "replaced and removed; %s", r.replacement.text())
}

// keep gives the node back and closes the interruption, in this order: after a crash in between the node is
// uncordoned again.
func (r *rebalance) keep(ctx context.Context, why string) error {
	if err := r.drainer.uncordon(ctx, r.item.Node, r.item.claim()); err != nil {
		return err
	}
	if err := r.close(ctx, "kept: %s", why); err != nil {
		return err
	}
	r.people.tell(ctx, r.item.Node, NodeKept, r.item.cause(), "it is kept: %s", why)
	return nil
}
