package nodes

import (
	"cmp"
	"slices"
)

// ScalingAction is one open scale-up or scale-down with everything that is needed to continue it. Its attributes
// have the names that they have in a record with a single action.
type ScalingAction struct {
	ScaleUpActionID     string   `json:"scaleUpActionId,omitempty"`
	ScaleUpStartedEpoch int64    `json:"scaleUpStartedEpoch,omitempty"`
	ScaleUpRequested    int      `json:"scaleUpRequested,omitempty"`
	ScaleUpInstanceIDs  []string `json:"scaleUpInstanceIds,omitzero"`
	ScaleUpIntent       *Intent  `json:"scaleUpIntent,omitempty"`
	ScaleUpLaunches     []Intent `json:"scaleUpLaunches,omitempty"`
	ScaleUpWanted       []Want   `json:"scaleUpWanted,omitempty"`
	ScaleUpReplaces     []string `json:"scaleUpReplaces,omitempty"`
	ScaleUpPool         string   `json:"scaleUpPool,omitempty"`

	ScaleDownActionID             string         `json:"scaleDownActionId,omitempty"`
	ScaleDownStartedEpoch         int64          `json:"scaleDownStartedEpoch,omitempty"`
	ScaleDownPhase                ScaleDownPhase `json:"scaleDownPhase,omitempty"`
	ScaleDownTargetInstanceIDs    []string       `json:"scaleDownTargetInstanceIds,omitzero"`
	ScaleDownCompletedInstanceIDs []string       `json:"scaleDownCompletedInstanceIds,omitzero"`
}

// ID returns the action's ID.
func (a ScalingAction) ID() string { return cmp.Or(a.ScaleUpActionID, a.ScaleDownActionID) }

// Up reports whether the action is a scale-up.
func (a ScalingAction) Up() bool { return a.ScaleUpActionID != "" }

// Launching reports whether the action is a scale-up with launches still to be made or resolved.
func (a ScalingAction) Launching() bool {
	return a.Up() && len(a.ScaleUpInstanceIDs) < a.ScaleUpRequested
}

// Targets reports whether the action still means to remove the instance.
func (a ScalingAction) Targets(instanceID string) bool {
	return slices.Contains(a.ScaleDownTargetInstanceIDs, instanceID) && !slices.Contains(a.ScaleDownCompletedInstanceIDs, instanceID)
}

// startedEpoch is when the action began.
func (a ScalingAction) startedEpoch() int64 {
	return cmp.Or(a.ScaleUpStartedEpoch, a.ScaleDownStartedEpoch)
}

// clone returns a copy that shares nothing with a.
func (a ScalingAction) clone() ScalingAction {
	a.ScaleUpInstanceIDs = slices.Clone(a.ScaleUpInstanceIDs)
	a.ScaleDownTargetInstanceIDs = slices.Clone(a.ScaleDownTargetInstanceIDs)
	a.ScaleDownCompletedInstanceIDs = slices.Clone(a.ScaleDownCompletedInstanceIDs)
	if a.ScaleUpIntent != nil {
		i := *a.ScaleUpIntent
		a.ScaleUpIntent = &i
	}
	a.ScaleUpLaunches = slices.Clone(a.ScaleUpLaunches)
	a.ScaleUpWanted = slices.Clone(a.ScaleUpWanted)
	for i, w := range a.ScaleUpWanted {
		a.ScaleUpWanted[i] = Want{Types: slices.Clone(w.Types), Zones: slices.Clone(w.Zones), Market: w.Market}
	}
	a.ScaleUpReplaces = slices.Clone(a.ScaleUpReplaces)
	return a
}

// Actions returns the open actions, the one that began first at the front.
func (r Record) Actions() []ScalingAction {
	var out []ScalingAction
	if front := r.front(); r.ScalingInProgress && front.ID() != "" {
		out = append(out, front)
	}
	out = append(out, r.OtherActions...)
	slices.SortFunc(out, func(a, b ScalingAction) int {
		return cmp.Or(cmp.Compare(a.startedEpoch(), b.startedEpoch()), cmp.Compare(a.ID(), b.ID()))
	})
	return out
}

// Of returns the record as one action sees it: that action's attributes are the record's own, and the other
// open actions are in OtherActions. If the action is not open, the attributes of an action are empty. Every
// transition of an action is applied to this view, so it is the same whether or not others are open beside it.
func (r Record) Of(actionID string) Record {
	front := r.front()
	if front.ID() == actionID || len(r.OtherActions) == 0 && front.ID() == "" {
		return r
	}
	var own ScalingAction
	var others []ScalingAction
	for _, a := range r.Actions() {
		if a.ID() == actionID {
			own = a
		} else {
			others = append(others, a)
		}
	}
	r.setFront(own)
	r.ScalingInProgress = own.ID() != ""
	r.OtherActions = others
	return r
}

// normal returns the record as it is stored: the action that began first has the record's own attributes. A
// record with more than one action is of version 2, and one that says something of pools of version 3, so that a program that knows
// nothing of these refuses it.
func (r Record) normal() Record {
	if len(r.OtherActions) > 0 {
		actions := r.Actions()
		r.setFront(actions[0])
		r.ScalingInProgress = true
		r.OtherActions = nil
		if len(actions) > 1 {
			r.OtherActions = actions[1:]
		}
	}
	switch {
	case r.ofPools():
		r.SchemaVersion = poolsVersion
	case len(r.OtherActions) > 0:
		r.SchemaVersion = severalActionsVersion
	case r.SchemaVersion == severalActionsVersion || r.SchemaVersion == poolsVersion:
		r.SchemaVersion = 0
	}
	return r
}

// ofPools reports whether the record says something of pools that must not be lost.
func (r Record) ofPools() bool {
	return len(r.PoolStates) > 0 || slices.ContainsFunc(r.all(), func(a ScalingAction) bool { return a.ScaleUpPool != "" })
}

// front returns the action whose attributes are the record's own.
func (r Record) front() ScalingAction {
	return ScalingAction{
		ScaleUpActionID:     r.ScaleUpActionID,
		ScaleUpStartedEpoch: r.ScaleUpStartedEpoch,
		ScaleUpRequested:    r.ScaleUpRequested,
		ScaleUpInstanceIDs:  r.ScaleUpInstanceIDs,
		ScaleUpIntent:       r.ScaleUpIntent,
		ScaleUpLaunches:     r.ScaleUpLaunches,
		ScaleUpWanted:       r.ScaleUpWanted,
		ScaleUpReplaces:     r.ScaleUpReplaces,
		ScaleUpPool:         r.ScaleUpPool,

		ScaleDownActionID:             r.ScaleDownActionID,
		ScaleDownStartedEpoch:         r.ScaleDownStartedEpoch,
		ScaleDownPhase:                r.ScaleDownPhase,
		ScaleDownTargetInstanceIDs:    r.ScaleDownTargetInstanceIDs,
		ScaleDownCompletedInstanceIDs: r.ScaleDownCompletedInstanceIDs,
	}
}

func (r *Record) setFront(a ScalingAction) {
	r.ScaleUpActionID, r.ScaleUpStartedEpoch, r.ScaleUpRequested = a.ScaleUpActionID, a.ScaleUpStartedEpoch, a.ScaleUpRequested
	r.ScaleUpInstanceIDs, r.ScaleUpIntent = a.ScaleUpInstanceIDs, a.ScaleUpIntent
	r.ScaleUpLaunches, r.ScaleUpWanted, r.ScaleUpReplaces = a.ScaleUpLaunches, a.ScaleUpWanted, a.ScaleUpReplaces
	r.ScaleUpPool = a.ScaleUpPool
	r.ScaleDownActionID, r.ScaleDownStartedEpoch, r.ScaleDownPhase = a.ScaleDownActionID, a.ScaleDownStartedEpoch, a.ScaleDownPhase
	r.ScaleDownTargetInstanceIDs = a.ScaleDownTargetInstanceIDs
	r.ScaleDownCompletedInstanceIDs = a.ScaleDownCompletedInstanceIDs
}

// Open reports whether an action is open.
func (r Record) Open(actionID string) bool {
	return slices.ContainsFunc(r.Actions(), func(a ScalingAction) bool { return a.ID() == actionID })
}

// Launched reports whether an open scale-up has launched the instance.
func (r Record) Launched(instanceID string) bool {
	return slices.ContainsFunc(r.all(), func(a ScalingAction) bool { return slices.Contains(a.ScaleUpInstanceIDs, instanceID) })
}

// Launches returns the launches of every open scale-up that are known to have succeeded.
func (r Record) Launches() []Intent {
	var out []Intent
	for _, a := range r.Actions() {
		out = append(out, a.ScaleUpLaunches...)
	}
	return out
}

// Targets reports whether an open scale-down still means to remove the instance.
func (r Record) Targets(instanceID string) bool { return r.targetOf(instanceID) != "" }

// targetOf returns the open scale-down that still means to remove the instance, "" if there is none.
func (r Record) targetOf(instanceID string) string {
	for _, a := range r.all() {
		if a.Targets(instanceID) {
			return a.ScaleDownActionID
		}
	}
	return ""
}

// all returns the open actions and, in no order, whatever else stands in the record's own attributes.
func (r Record) all() []ScalingAction { return append([]ScalingAction{r.front()}, r.OtherActions...) }

// growing reports whether a scale-up is open.
func (r Record) growing() bool { return slices.ContainsFunc(r.Actions(), ScalingAction.Up) }

// launching returns the scale-up that has launches still to be made or resolved, "" if there is none. There is
// never more than one.
func (r Record) launching() string {
	for _, a := range r.Actions() {
		if a.Launching() {
			return a.ID()
		}
	}
	return ""
}

// unlaunched is how many nodes open scale-ups have still to launch. A launch of unknown outcome is among them.
func (r Record) unlaunched() int {
	n := 0
	for _, a := range r.Actions() {
		if a.Up() {
			n += max(a.ScaleUpRequested-len(a.ScaleUpInstanceIDs), 0)
		}
	}
	return n
}
