package nodes

import (
	"slices"
	"time"
)

// CompleteReplacement closes the scale-up of a replacement, whose node is verified, and opens the scale-down of the workers that the node
// replaces, in one write.
type CompleteReplacement struct {
	Fence    int64
	ActionID string // of the scale-up
	Down     string // of the scale-down, unique
	Now      time.Time
}

// Name returns completeReplacement.
func (CompleteReplacement) Name() string { return "completeReplacement" }

func (t CompleteReplacement) actionID() string { return t.ActionID }

// Apply turns the scale-up into the scale-down, unless scaling is paused or another scale-up is open.
func (t CompleteReplacement) Apply(r Record) (Record, error) {
	if r.LastActionID == t.ActionID {
		return r, nil
	}
	if err := scalingUp(t, r, t.Fence, t.ActionID); err != nil {
		return r, err
	}
	if r.Paused() {
		return r, refuse(t, ErrPaused, "%s", r.pauseText())
	}
	if i := slices.IndexFunc(r.OtherActions, ScalingAction.Up); i >= 0 {
		return r, refuse(t, ErrScalingInProgress, "%s is open", r.OtherActions[i].ID())
	}
	targets := slices.Clone(r.ScaleUpReplaces)
	for _, id := range targets {
		if other := r.targetOf(id); other != "" {
			return r, refuse(t, ErrScalingInProgress, "%s is a target of %s", id, other)
		}
	}
	next, err := CompleteScaleUp{Fence: t.Fence, ActionID: t.ActionID, Now: t.Now}.Apply(r)
	if err != nil {
		return r, err
	}
	next.ScalingInProgress = true
	next.ScaleDownActionID, next.ScaleDownStartedEpoch = t.Down, t.Now.Unix()
	next.ScaleDownPhase = PhaseDraining
	next.ScaleDownTargetInstanceIDs = targets
	next.ScaleDownCompletedInstanceIDs = []string{}
	return next, nil
}
