package nodes

import "time"

// StartDrain records the start of an instance's drain, before its node is cordoned. An instance whose drain
// has been started keeps its start: a drain is continued, not restarted.
type StartDrain struct {
	Fence   int64
	Removal Removal // Phase is ignored
}

// Name returns startDrain.
func (StartDrain) Name() string { return "startDrain" }

func (t StartDrain) actionID() string { return t.Removal.ActionID }

// Apply adds the removal in phase DRAINING, or adds the drain's start to one that has none.
func (t StartDrain) Apply(r Record) (Record, error) {
	if err := removing(t, r, t.Fence, t.Removal); err != nil {
		return r, err
	}
	m, known := r.Removal(t.Removal.InstanceID)
	if known && m.DrainedSince != 0 {
		return r, nil
	}
	if t.Removal.repairs() && !known && r.Paused() {
		return r, refuse(t, ErrPaused, "%s", r.pauseText())
	}
	r = r.Clone()
	m = t.Removal
	m.Phase = PhaseDraining
	// A mark stays: it joined after it was marked, and is drained all the same.
	if old, ok := r.Removal(m.InstanceID); ok {
		m.Phase = old.Phase
	}
	r.putRemoval(m)
	r.setPhase(m)
	return r, nil
}

// MarkTerminating marks an instance before the cloud is asked to terminate it. The mark is final.
type MarkTerminating struct {
	Fence   int64
	Removal Removal // Phase is ignored
}

// Name returns markTerminating.
func (MarkTerminating) Name() string { return "markTerminating" }

func (t MarkTerminating) actionID() string { return t.Removal.ActionID }

// Apply puts the removal into phase TERMINATING.
func (t MarkTerminating) Apply(r Record) (Record, error) {
	if err := removing(t, r, t.Fence, t.Removal); err != nil {
		return r, err
	}
	m, ok := r.Removal(t.Removal.InstanceID)
	if ok && m.Phase == PhaseTerminating {
		return r, nil
	}
	if !ok {
		m = t.Removal
	}
	r = r.Clone()
	m.Phase = PhaseTerminating
	r.putRemoval(m)
	r.setPhase(m)
	return r, nil
}

// removing is the condition of steps on a removal: one that belongs to an action needs that action open and
// the target unfinished.
func removing(t Transition, r Record, fence int64, m Removal) error {
	if err := fenced(t, r, fence); err != nil {
		return err
	}
	if m.ActionID == "" || m.ActionID != r.ScaleDownActionID {
		if other := r.targetOf(m.InstanceID); other != "" {
			return refuse(t, errNotThatAction, "%s is a target of %s", m.InstanceID, other)
		}
		if m.ActionID == "" {
			return nil
		}
		if old, ok := r.Removal(m.InstanceID); ok && old.ActionID == m.ActionID {
			return nil // left behind by an action that has ended
		}
		return refuse(t, errNotThatAction, "in progress is %q", r.ActionID())
	}
	if !r.front().Targets(m.InstanceID) {
		return refuse(t, errNotRecorded, "%s is not an unfinished target", m.InstanceID)
	}
	return nil
}

// FinishRemoval ends a removal outside a scale-down: the instance is gone.
type FinishRemoval struct {
	Fence      int64
	InstanceID string
}

// Name returns finishRemoval.
func (FinishRemoval) Name() string { return "finishRemoval" }

// Apply drops the removal.
func (t FinishRemoval) Apply(r Record) (Record, error) {
	if err := fenced(t, r, t.Fence); err != nil {
		return r, err
	}
	if other := r.targetOf(t.InstanceID); other != "" {
		return r, refuse(t, errNotThatAction, "%s is a target of %s", t.InstanceID, other)
	}
	if _, ok := r.Removal(t.InstanceID); !ok {
		return r, nil
	}
	r = r.Clone()
	r.dropRemoval(t.InstanceID)
	return r, nil
}

// GiveBack ends a removal that is still draining: its node has been uncordoned and stays a worker. With a
// cause the instance is skipped for a while.
type GiveBack struct {
	Fence      int64
	InstanceID string
	Now        time.Time
	Cause      string // "" for one that is not to blame
}

// Name returns giveBack.
func (GiveBack) Name() string { return "giveBack" }

// Apply drops the removal, unless it is marked: a marked instance is never given back.
func (t GiveBack) Apply(r Record) (Record, error) {
	if err := fenced(t, r, t.Fence); err != nil {
		return r, err
	}
	m, ok := r.Removal(t.InstanceID)
	if !ok {
		return r, nil
	}
	if m.Phase == PhaseTerminating {
		return r, refuse(t, errMarked, "%s", t.InstanceID)
	}
	r = r.Clone()
	r.dropRemoval(t.InstanceID)
	if t.Cause != "" {
		r.skip(t.InstanceID, t.Cause, t.Now)
	}
	return r, nil
}
