package nodes

import (
	"slices"
	"time"
)

// BeginScaleDown opens a scale-down with its plan.
type BeginScaleDown struct {
	Fence    int64
	ActionID string // unique
	Now      time.Time
	Targets  []string // instance IDs, in the order in which they go
	// MaxActions is how many actions may be open with it; below 1 stands for 1.
	MaxActions int
	// Consolidates says that it is a consolidation or a drifted worker, whose disruption budget is PerHour.
	Consolidates bool
	PerHour      int
}

// Name returns beginScaleDown.
func (BeginScaleDown) Name() string { return "beginScaleDown" }

func (t BeginScaleDown) actionID() string { return t.ActionID }

// Apply opens the action if there is room for another, no scale-up is open, no other action has one of its
// targets, and scaling is not paused.
func (t BeginScaleDown) Apply(r Record) (Record, error) {
	if err := beginning(t, r, t.Fence, t.ActionID, t.MaxActions); err != nil || r.ScaleDownActionID == t.ActionID {
		return r, err
	}
	if r.growing() {
		return r, refuse(t, ErrScalingInProgress, "a scale-up is open")
	}
	for _, id := range t.Targets {
		if other := r.targetOf(id); other != "" {
			return r, refuse(t, ErrScalingInProgress, "%s is a target of %s", id, other)
		}
	}
	if r.Paused() {
		return r, refuse(t, ErrPaused, "%s", r.pauseText())
	}
	r = r.Clone()
	if t.Consolidates && !r.consolidate(len(t.Targets), t.PerHour, t.Now) {
		return r, refuse(t, errNoBudget, "")
	}
	r.ScalingInProgress = true
	r.ScaleDownActionID, r.ScaleDownStartedEpoch = t.ActionID, t.Now.Unix()
	r.ScaleDownPhase = PhaseDraining
	r.ScaleDownTargetInstanceIDs = slices.Clone(t.Targets)
	r.ScaleDownCompletedInstanceIDs = []string{}
	return r, nil
}

// MarkScaleDownInstanceDone records that a target is gone: its instance is terminated and its Node object deleted.
type MarkScaleDownInstanceDone struct {
	Fence      int64
	ActionID   string
	InstanceID string
}

// Name returns markScaleDownInstanceDone.
func (MarkScaleDownInstanceDone) Name() string { return "markScaleDownInstanceDone" }

func (t MarkScaleDownInstanceDone) actionID() string { return t.ActionID }

// Apply appends the instance to the completed ones, once, and ends its removal.
func (t MarkScaleDownInstanceDone) Apply(r Record) (Record, error) {
	if err := scalingDown(t, r, t.Fence, t.ActionID); err != nil {
		return r, err
	}
	if slices.Contains(r.ScaleDownCompletedInstanceIDs, t.InstanceID) {
		return r, nil
	}
	if !slices.Contains(r.ScaleDownTargetInstanceIDs, t.InstanceID) {
		return r, refuse(t, errNotRecorded, "%s is not a target", t.InstanceID)
	}
	r = r.Clone()
	r.ScaleDownCompletedInstanceIDs = append(r.ScaleDownCompletedInstanceIDs, t.InstanceID)
	r.dropRemoval(t.InstanceID)
	r.ScaleDownPhase = PhaseDraining
	return r, nil
}

// CompleteScaleDown closes a scale-down whose targets are all done and starts the cooldown.
type CompleteScaleDown struct {
	Fence    int64
	ActionID string
	Now      time.Time
}

// Name returns completeScaleDown.
func (CompleteScaleDown) Name() string { return "completeScaleDown" }

func (t CompleteScaleDown) actionID() string { return t.ActionID }

// Apply removes the action's fields and starts the cooldown.
func (t CompleteScaleDown) Apply(r Record) (Record, error) {
	if r.LastActionID == t.ActionID {
		return r, nil
	}
	if err := scalingDown(t, r, t.Fence, t.ActionID); err != nil {
		return r, err
	}
	for _, id := range r.ScaleDownTargetInstanceIDs {
		if r.Targets(id) {
			return r, refuse(t, errUnfinished, "%s is not done", id)
		}
	}
	r = r.Clone()
	r.LastScaleEpoch = t.Now.Unix()
	r.clearScaleDown()
	return r, nil
}

// FailScaleDown closes a scale-down that did not succeed. The nodes that it cordoned and did not mark have
// been uncordoned before; what it did mark stays marked and is finished by the sweep.
type FailScaleDown struct {
	Fence    int64
	ActionID string
	Now      time.Time
	Culprit  string // instance to be skipped for a while; "" if none is to blame
	Cause    string
	// Cancelled says that nothing failed: the nodes are needed again.
	Cancelled bool
}

// Name returns failScaleDown.
func (FailScaleDown) Name() string { return "failScaleDown" }

func (t FailScaleDown) actionID() string { return t.ActionID }

// Apply removes the action's fields. If something was terminated, or is marked and so will be, the cooldown starts.
func (t FailScaleDown) Apply(r Record) (Record, error) {
	if r.LastActionID == t.ActionID {
		return r, nil
	}
	if err := scalingDown(t, r, t.Fence, t.ActionID); err != nil {
		return r, err
	}
	r = r.Clone()
	removed := len(r.ScaleDownCompletedInstanceIDs) > 0
	r.Removals = nilIfEmpty(slices.DeleteFunc(r.Removals, func(m Removal) bool {
		own := m.ActionID == t.ActionID
		removed = removed || own && m.Phase == PhaseTerminating
		return own && m.Phase != PhaseTerminating
	}))
	if removed {
		r.LastScaleEpoch = t.Now.Unix()
	}
	if t.Culprit != "" {
		r.skip(t.Culprit, t.Cause, t.Now)
	}
	r.clearScaleDown()
	return r, nil
}

func scalingDown(t Transition, r Record, fence int64, actionID string) error {
	if err := fenced(t, r, fence); err != nil {
		return err
	}
	if !r.ScalingDown() || r.ScaleDownActionID != actionID {
		return refuse(t, errNotThatAction, "in progress is %q", r.ActionID())
	}
	return nil
}
