package nodes

import (
	"slices"
	"time"
)

// maxBackoff is the longest time after a failed scale-up in which none begins.
const maxBackoff = time.Hour

// BeginScaleUp opens a scale-up.
type BeginScaleUp struct {
	Fence     int64
	ActionID  string // unique
	Now       time.Time
	Requested int
	Pool      string   // in which they are launched; "" without pools
	Wanted    []Want   // of which kinds, by ordinal; ordinals beyond its end may be of any
	Replaces  []string // workers that go once the nodes are Ready: a consolidation, or drift
	PerHour   int      // disruption budget of these
	Repair    bool     // it brings the cluster back to MIN_WORKERS, which a pause does not stop
	// MaxActions is how many actions may be open with it; below 1 stands for 1.
	MaxActions int
}

// Name returns beginScaleUp.
func (BeginScaleUp) Name() string { return "beginScaleUp" }

func (t BeginScaleUp) actionID() string { return t.ActionID }

// Apply opens the action if there is room for another and scaling is not paused. While a scale-up is
// launching no other begins: MAX_WORKERS is held against what was launched, and that is not known yet.
func (t BeginScaleUp) Apply(r Record) (Record, error) {
	if err := beginning(t, r, t.Fence, t.ActionID, t.MaxActions); err != nil || r.ScaleUpActionID == t.ActionID {
		return r, err
	}
	if id := r.launching(); id != "" {
		return r, refuse(t, ErrScalingInProgress, "%s is launching", id)
	}
	if r.Paused() && !t.Repair {
		return r, refuse(t, ErrPaused, "%s", r.pauseText())
	}
	for _, id := range t.Replaces {
		if other := r.targetOf(id); other != "" {
			return r, refuse(t, ErrScalingInProgress, "%s is a target of %s", id, other)
		}
	}
	r = r.Clone()
	if !r.consolidate(len(t.Replaces), t.PerHour, t.Now) {
		return r, refuse(t, errNoBudget, "")
	}
	r.ScalingInProgress = true
	r.ScaleUpActionID, r.ScaleUpStartedEpoch, r.ScaleUpRequested = t.ActionID, t.Now.Unix(), t.Requested
	r.ScaleUpInstanceIDs, r.ScaleUpIntent, r.ScaleUpLaunches = []string{}, nil, nil
	r.ScaleUpWanted, r.ScaleUpReplaces, r.ScaleUpPool = t.Wanted, slices.Clone(t.Replaces), t.Pool
	return r, nil
}

// IntendLaunch writes a launch down before it is made. Exhausted says what the previous attempt found to be
// out of stock.
type IntendLaunch struct {
	Fence     int64
	ActionID  string
	Intent    Intent
	Exhausted []Exhausted
}

// Name returns intendLaunch.
func (IntendLaunch) Name() string { return "intendLaunch" }

func (t IntendLaunch) actionID() string { return t.ActionID }

// Apply writes the intent, over that of a previous attempt of the same ordinal only: one of unknown outcome
// is never passed over, because the caller moves to another attempt only after a definite refusal.
func (t IntendLaunch) Apply(r Record) (Record, error) {
	if err := scalingUp(t, r, t.Fence, t.ActionID); err != nil {
		return r, err
	}
	if i := r.ScaleUpIntent; i != nil && i.Request.Token == t.Intent.Request.Token {
		return r, nil
	}
	if t.Intent.Ordinal != len(r.ScaleUpInstanceIDs) {
		return r, refuse(t, errNotRecorded, "ordinal %d after %d recorded", t.Intent.Ordinal, len(r.ScaleUpInstanceIDs))
	}
	if i := r.ScaleUpIntent; i != nil && t.Intent.Attempt <= i.Attempt {
		return r, refuse(t, errNotRecorded, "attempt %d after %d", t.Intent.Attempt, i.Attempt)
	}
	r = r.Clone()
	i := t.Intent
	r.ScaleUpIntent = &i
	r.exhaust(t.Exhausted)
	return r, nil
}

// RecordScaleUpInstances resolves the open intent: its instance exists.
type RecordScaleUpInstances struct {
	Fence      int64
	ActionID   string
	Token      string // of the intent that is resolved
	InstanceID string
	Launched   time.Time // by the cloud
}

// Name returns recordScaleUpInstances.
func (RecordScaleUpInstances) Name() string { return "recordScaleUpInstances" }

func (t RecordScaleUpInstances) actionID() string { return t.ActionID }

// Apply appends the instance, once.
func (t RecordScaleUpInstances) Apply(r Record) (Record, error) {
	if err := scalingUp(t, r, t.Fence, t.ActionID); err != nil {
		return r, err
	}
	if slices.Contains(r.ScaleUpInstanceIDs, t.InstanceID) {
		return r, nil
	}
	i := r.ScaleUpIntent
	if i == nil || i.Request.Token != t.Token {
		return r, refuse(t, errNotRecorded, "no open intent with this token")
	}
	r = r.Clone()
	launch := *r.ScaleUpIntent
	launch.InstanceID, launch.Launched = t.InstanceID, t.Launched.Unix()
	r.ScaleUpIntent = nil
	r.ScaleUpLaunches = append(r.ScaleUpLaunches, launch)
	r.ScaleUpInstanceIDs = append(r.ScaleUpInstanceIDs, t.InstanceID)
	return r, nil
}

// ReduceScaleUp lowers what was requested to what was launched, because nothing more can be had now.
type ReduceScaleUp struct {
	Fence     int64
	ActionID  string
	Exhausted []Exhausted
}

// Name returns reduceScaleUp.
func (ReduceScaleUp) Name() string { return "reduceScaleUp" }

func (t ReduceScaleUp) actionID() string { return t.ActionID }

// Apply sets scaleUpRequested to the number of recorded instances. With none recorded the action has failed instead.
func (t ReduceScaleUp) Apply(r Record) (Record, error) {
	if err := scalingUp(t, r, t.Fence, t.ActionID); err != nil {
		return r, err
	}
	if len(r.ScaleUpInstanceIDs) == 0 {
		return r, refuse(t, errNotRecorded, "nothing was launched")
	}
	r = r.Clone()
	r.ScaleUpRequested = len(r.ScaleUpInstanceIDs)
	r.ScaleUpIntent = nil
	r.exhaust(t.Exhausted)
	return r, nil
}

// CompleteScaleUp closes a scale-up whose nodes are verified. Cooldown starts here and nowhere else.
type CompleteScaleUp struct {
	Fence     int64
	ActionID  string
	Now       time.Time
	Unchecked []string // instances whose nodes could not be seen, so that their labels and taints are still to be compared
	Template  string   // fingerprint of theirs
	Objection string   // why the workers stay that the nodes were to replace; "": there are none, or nothing is against them
}

// Name returns completeScaleUp.
func (CompleteScaleUp) Name() string { return "completeScaleUp" }

func (t CompleteScaleUp) actionID() string { return t.ActionID }

// Apply removes the action's fields and starts the cooldown. Workers that stay are not replaced for a while.
func (t CompleteScaleUp) Apply(r Record) (Record, error) {
	if r.LastActionID == t.ActionID {
		return r, nil
	}
	if err := scalingUp(t, r, t.Fence, t.ActionID); err != nil {
		return r, err
	}
	r = r.Clone()
	r.LastScaleEpoch = t.Now.Unix()
	s := r.PoolState(r.ScaleUpPool)
	s.ScaleUpFailures, s.BackoffUntilEpoch = 0, 0
	r.putPool(s)
	r.uncheck(r.ScaleUpPool, t.Template, t.Unchecked)
	if t.Objection != "" {
		for _, id := range r.ScaleUpReplaces {
			r.skip(id, t.Objection, t.Now)
		}
	}
	r.clearScaleUp()
	return r, nil
}

// FailScaleUp closes a scale-up that did not succeed.
type FailScaleUp struct {
	Fence    int64
	ActionID string
	Now      time.Time
	Backoff  time.Duration // after the first failure in a row; doubles with each, up to an hour; 0: nodes join in general, so none
	// Removals are the instances to be taken away. They are written with the failure itself, so that there is
	// no moment at which an instance belongs to nothing.
	Removals  []Removal
	Exhausted []Exhausted
}

// Name returns failScaleUp.
func (FailScaleUp) Name() string { return "failScaleUp" }

func (t FailScaleUp) actionID() string { return t.ActionID }

// Apply removes the action's fields and starts a back-off, if it has one, instead of the cooldown. A replacement that launched nothing
// has disturbed no worker: the budget is given back, and the worker is left alone for a while, or the next tick would try again.
func (t FailScaleUp) Apply(r Record) (Record, error) {
	if r.LastActionID == t.ActionID {
		return r, nil
	}
	if err := scalingUp(t, r, t.Fence, t.ActionID); err != nil {
		return r, err
	}
	r = r.Clone()
	if t.Backoff > 0 { // of the pool: what is wrong with its nodes holds up no other's
		s := r.PoolState(r.ScaleUpPool)
		s.ScaleUpFailures++
		s.BackoffUntilEpoch = t.Now.Add(doubled(t.Backoff, s.ScaleUpFailures, maxBackoff)).Unix()
		r.putPool(s)
	}
	for _, m := range t.Removals {
		if _, known := r.Removal(m.InstanceID); !known {
			r.putRemoval(m)
		}
	}
	if len(r.ScaleUpInstanceIDs) == 0 {
		r.unconsolidate(len(r.ScaleUpReplaces), r.ScaleUpStartedEpoch)
		for _, id := range r.ScaleUpReplaces {
			r.skip(id, causeNothingLaunched, t.Now)
		}
	}
	r.exhaust(t.Exhausted)
	r.clearScaleUp()
	return r, nil
}

func scalingUp(t Transition, r Record, fence int64, actionID string) error {
	if err := fenced(t, r, fence); err != nil {
		return err
	}
	if !r.ScalingUp() || r.ScaleUpActionID != actionID {
		return refuse(t, errNotThatAction, "in progress is %q", r.ActionID())
	}
	return nil
}
