package nodes

import (
	"context"
	"errors"
	"fmt"
	"slices"
)

// exchange ends a scale-up that replaces workers: that of a consolidation or of a drifted worker. Between its launch and now minutes have passed, in which other pods may have come, so
// whether the pods of the workers still fit is asked again, now with the new node as it is:
//
//  1. If they do, one write ends the scale-up and opens the scale-down of these workers. There is no moment at which a crash would leave
//     the new node without the action that it is for.
//  2. If they don't, the scale-up ends like every other, and the workers are on the skip list for a while: asked again at once, they would
//     have one new node after the other. The new node is a worker, which a later consolidation may remove and which the next replacement of
//     a drifted worker makes use of.
type exchange struct{ *run }

func (u scaleUp) exchange() exchange { return exchange{u.run} }

// handOn opens the scale-down of the replaced workers. False means that they stay and that the scale-up is to be completed; objection is
// then what stands against them, "" if it is something else that only has to end.
func (p exchange) handOn(ctx context.Context, s *survey) (done bool, objection string, err error) {
	up, targets := p.state.record.ScaleUpActionID, p.state.record.ScaleUpReplaces
	if why := p.objection(s, targets); why != "" {
		p.log.report(ctx, "replacement.held", targets[0], "it stays: %s", why)
		for _, id := range targets {
			p.people.tell(ctx, s.nodeOf(id), NodeKept, up, "it is not replaced: %s", why)
		}
		return false, why, nil
	}
	down := p.newActionID()
	err = p.state.apply(ctx, CompleteReplacement{Fence: p.state.fence, ActionID: up, Down: down, Now: p.now()})
	if errors.Is(err, ErrPaused) || errors.Is(err, ErrScalingInProgress) { // since the survey
		p.log.report(ctx, "replacement.held", targets[0], "it stays: %v", err)
		return false, "", nil
	}
	if err != nil {
		return false, "", err
	}
	for _, id := range targets {
		p.people.tell(ctx, s.nodeOf(id), NodeDrains, down, "it is drained and then terminated: the node that replaces it is Ready")
	}
	p.log.append(ctx, Event{Kind: "scaleUp.completed", ActionID: up, Message: fmt.Sprintf("Ready; %s replaces %v by it", down, targets)})
	return true, "", nil
}

// objection says why the workers can't go now, "" if they can.
func (p exchange) objection(s *survey, targets []string) string {
	if err := s.fleetErr(); err != nil {
		return err.Error()
	}
	if open := slices.ContainsFunc(s.open, func(i Interruption) bool { return !i.Closed }); open {
		return "a worker is being interrupted"
	}
	var leaving []Pod
	var others []*Node
	for _, w := range s.workers {
		switch {
		case slices.Contains(targets, w.Instance.ID):
			if why := unremovable(w, s.fleet(), s.record, p.now()); why != "" {
				return why
			}
			leaving = append(leaving, w.Node.Pods...)
		case w.Available():
			others = append(others, w.Node)
		}
	}
	for _, id := range targets {
		if why, _ := s.objection(id, p.config.Policy); why != "" {
			return why
		}
	}
	fitter := p.config.Fitter
	if fitter == nil {
		fitter = RequestsFit{}
	}
	if why := s.view.BuffersWhy; why != "" { // what can't be read may need the room
		return why
	}
	o := s.fleet()
	o.Pending, o.Buffers = s.view.Pending, s.view.Buffers
	kept := keptPods(o.Buffers, headrooms(p.config.Policy, p.config.Sizer, o, s.record.Exhausted, p.now()))
	return fitter.Fits(append(leaving, kept...), others)
}
