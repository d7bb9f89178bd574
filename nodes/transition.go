package nodes

import (
	"fmt"
	"reflect"
)

// Applied returns the record that a store has to write after t, and whether there is anything to write.
// Stores call it between their read and their conditional write, so that what is common to all transitions is
// in one place.
func Applied(r Record, t Transition) (next Record, changed bool, err error) {
	if r.SchemaVersion > SchemaVersion {
		return r, false, refuse(t, ErrSchemaTooNew, "version %d, this program knows %d", r.SchemaVersion, SchemaVersion)
	}
	next, err = t.Apply(seenBy(t, r))
	if err != nil {
		return r, false, err
	}
	next = next.normal()
	if reflect.DeepEqual(r, next) {
		return r, false, nil
	}
	next.Revision = r.Revision + 1
	return next, true, nil
}

// acting is a transition of one action.
type acting interface {
	actionID() string // "": of none
}

// seenBy returns the record as the action of a transition sees it, the record itself if it is of none.
func seenBy(t Transition, r Record) Record {
	if a, ok := t.(acting); ok && a.actionID() != "" {
		return r.Of(a.actionID())
	}
	return r
}

// fenced refuses a writer whose lease has passed to another process. A lease that has merely expired does not
// matter here: as long as the fence is the writer's own, no other process has written.
func fenced(t Transition, r Record, fence int64) error {
	if r.LeaseFence != fence {
		return refuse(t, ErrStaleFence, "fence is %d, the writer's %d", r.LeaseFence, fence)
	}
	return nil
}

// RepairRecord clears a scalingInProgress that names no action, which no transition writes but a hand or
// another program may: it would block all scaling for good.
type RepairRecord struct{ Fence int64 }

// Name returns repairRecord.
func (RepairRecord) Name() string { return "repairRecord" }

// Apply clears the flag if no action is named.
func (t RepairRecord) Apply(r Record) (Record, error) {
	if err := fenced(t, r, t.Fence); err != nil {
		return r, err
	}
	if !r.ScalingInProgress || r.ActionID() != "" {
		return r, nil
	}
	r = r.Clone()
	r.ScalingInProgress = false
	return r, nil
}

// beginning is the condition of both begins. most is how many actions may be open, the new one included.
func beginning(t Transition, r Record, fence int64, actionID string, most int) error {
	if err := fenced(t, r, fence); err != nil {
		return err
	}
	if r.ScalingInProgress && r.ActionID() != actionID {
		return refuse(t, ErrScalingInProgress, "%s", r.ActionID())
	}
	if r.ActionID() == "" && len(r.OtherActions) >= max(most, 1) {
		return refuse(t, ErrScalingInProgress, "%s", r.OtherActions[0].ID())
	}
	if r.LastActionID == actionID {
		return refuse(t, errNotThatAction, "it has ended")
	}
	return nil
}

// refuse says that a transition's condition did not hold.
func refuse(t Transition, condition error, detail string, args ...any) error {
	return &RefusedError{Transition: t.Name(), Condition: condition, Detail: fmt.Sprintf(detail, args...)}
}
