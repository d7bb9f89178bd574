package nodes

import (
	"context"
	"errors"
	"slices"
)

// round is one pass over the open actions after a decision. A tick makes several while drains are under way or
// more actions are to begin, and looks and decides again before each. So a drain, which may last minutes, keeps
// nothing waiting for longer than its turn.
//
// The order within a round matters:
//
//  1. Scale-downs whose nodes are needed again are cancelled before anything is launched: the next decision
//     counts the nodes that are given back.
//  2. Scale-ups come before drains, which take their time.
//  3. If an action ended in this round, the decision was made too early to begin another. The next round decides
//     again.
type round struct {
	*tick
	survey      *survey
	observation Observation
	decision    *Decision
}

// do makes the round. True means that another one has something to do in this tick.
func (r round) do(ctx context.Context) (again bool, err error) {
	defer r.state.workOn("")
	cancelled, err := r.cancel(ctx)
	if err != nil {
		return false, err
	}
	if cancelled {
		return r.config.Policy.parallel(), nil
	}

	open := len(r.state.record.Actions())
	err = r.grow(ctx)
	if lost(err) {
		return false, err
	}
	ended := len(r.state.record.Actions()) < open
	more := false
	if err == nil && !ended {
		more, err = r.begin(ctx, open)
	}
	if lost(err) {
		return false, err
	}
	waiting, drainErr := r.drain(ctx) // also after an error: what fails for one action must not hold up the others
	err = errors.Join(err, drainErr)
	return err == nil && r.config.Policy.parallel() && (more || ended || waiting), err
}

// cancel ends the scale-downs whose nodes are needed again: they are uncordoned and the workers on them told.
func (r round) cancel(ctx context.Context) (bool, error) {
	for _, id := range r.decision.Cancel {
		r.state.workOn(id)
		if err := r.scaleDown.cancel(ctx, r.survey); err != nil {
			return false, err
		}
	}
	return len(r.decision.Cancel) > 0, nil
}

// grow continues the open scale-ups.
func (r round) grow(ctx context.Context) error {
	var errs []error
	for _, a := range r.state.record.Actions() {
		if !a.Up() {
			continue
		}
		r.state.workOn(a.ID())
		err := r.scaleUp.proceed(ctx, r.survey, r.observation.Readings)
		if lost(err) {
			return err
		}
		errs = append(errs, err)
	}
	r.state.workOn("")
	return errors.Join(errs...)
}

// begin begins what was decided, unless only one action may be open and one was. True means that more than that is
// needed.
func (r round) begin(ctx context.Context, open int) (more bool, err error) {
	if open > 0 && !r.config.Policy.parallel() {
		return false, nil
	}
	switch r.decision.Action {
	case ScaleUp:
		more = r.decision.More
		err = r.scaleUp.begin(ctx, r.survey, r.observation, *r.decision)
	case ScaleDown:
		err = r.scaleDown.begin(ctx, r.survey, *r.decision)
	default:
		return false, nil
	}
	r.state.workOn("")
	if errors.Is(err, ErrPaused) { // after the decision; the next one knows
		r.log.append(ctx, Event{Kind: "scaling.held", Message: err.Error()})
		return false, nil
	}
	return more && err == nil, err
}

// drain gives each open scale-down a turn. True means that some are not done and have more to do in this tick.
func (r round) drain(ctx context.Context) (waiting bool, err error) {
	var open []string
	for _, a := range r.state.record.Actions() {
		if !a.Up() {
			open = append(open, a.ID())
		}
	}
	if len(open) == 0 {
		return false, nil
	}

	if r.config.Policy.parallel() {
		defer r.budget.endTurn()
	}
	began := r.now()
	var errs []error
	for i, id := range open {
		if r.config.Policy.parallel() {
			r.budget.beginTurn(len(open))
		}
		s := r.survey
		if i > 0 { // the turn before took its time
			s = r.surveyor.survey(ctx)
		}
		r.state.workOn(id)
		err := r.scaleDown.proceed(ctx, s)
		if lost(err) {
			return false, err
		}
		errs = append(errs, err)
	}
	r.state.workOn("")
	if err := errors.Join(errs...); err != nil {
		return false, err
	}
	waiting = r.survey.fleetErr() == nil && slices.ContainsFunc(r.state.record.Actions(), func(a ScalingAction) bool { return !a.Up() })
	if spare := minTurn - r.now().Sub(began); waiting && spare > 0 && r.config.Policy.parallel() {
		err = r.config.Clock.Sleep(ctx, spare) // whatever they wait for, asking again at once is of no use
	}
	return waiting, err
}
