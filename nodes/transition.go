package nodes

import (
	"reflect"
	"slices"
	"time"
)

// How long things are remembered.
const (
	maxBackoff  = time.Hour
	firstSkip   = 10 * time.Minute
	maxSkip     = 6 * time.Hour
	exhaustedIn = 5 * time.Minute
)

// Applied returns the record that a store has to write after t, and whether there is anything to write. Stores call it between
// their read and their conditional write, so that what is common to all transitions is in one place.
func Applied(r Record, t Transition) (next Record, changed bool, err error) {
	if r.SchemaVersion > SchemaVersion {
		return r, false, refuse(t, ErrSchemaTooNew, "version %d, this program knows %d", r.SchemaVersion, SchemaVersion)
	}
	next, err = t.Apply(r)
	if err != nil {
		return r, false, err
	}
	if reflect.DeepEqual(r, next) {
		return r, false, nil
	}
	next.Revision = r.Revision + 1
	return next, true, nil
}

// ---- the lease

// AcquireLease takes the lease if nobody holds it. Owner must be new for every attempt to hold it: finding the own name there
// then means that the attempt succeeded and only its reply was lost.
type AcquireLease struct {
	Owner string
	Now   time.Time
	TTL   time.Duration
}

// Name returns acquireLease.
func (AcquireLease) Name() string { return "acquireLease" }

// Apply sets owner and expiry and raises the fence. Expiry is judged here, inside the condition.
func (t AcquireLease) Apply(r Record) (Record, error) {
	if r.LeaseOwner == t.Owner {
		return r, nil
	}
	if r.LeaseOwner != "" && t.Now.Unix() <= r.LeaseUntilEpoch {
		return r, refuse(t, ErrLeaseHeld, "by %s until %d", r.LeaseOwner, r.LeaseUntilEpoch)
	}
	r = r.Clone()
	r.LeaseOwner, r.LeaseUntilEpoch = t.Owner, t.Now.Add(t.TTL).Unix()
	r.LeaseFence++
	return r, nil
}

// RenewLease moves the expiry of a lease that is still held.
type RenewLease struct {
	Owner string
	Fence int64
	Now   time.Time
	TTL   time.Duration
}

// Name returns renewLease.
func (RenewLease) Name() string { return "renewLease" }

// Apply moves the expiry. An expired lease that nobody took in the meantime may be renewed: nothing happened in between.
func (t RenewLease) Apply(r Record) (Record, error) {
	if err := fenced(t, r, t.Fence); err != nil {
		return r, err
	}
	if r.LeaseOwner != t.Owner {
		return r, refuse(t, ErrStaleFence, "owner is %q", r.LeaseOwner)
	}
	r = r.Clone()
	r.LeaseUntilEpoch = t.Now.Add(t.TTL).Unix()
	return r, nil
}

// ReleaseLease gives the lease back. Releasing one that has passed on does nothing.
type ReleaseLease struct {
	Owner string
	Fence int64
}

// Name returns releaseLease.
func (ReleaseLease) Name() string { return "releaseLease" }

// Apply clears owner and expiry; the fence stays, it never goes back.
func (t ReleaseLease) Apply(r Record) (Record, error) {
	if r.LeaseFence != t.Fence || r.LeaseOwner != t.Owner {
		return r, nil
	}
	r = r.Clone()
	r.LeaseOwner, r.LeaseUntilEpoch = "", 0
	return r, nil
}

// fenced refuses a writer whose lease has passed to somebody else. A lease that has merely expired does not matter here: as long
// as the fence is the writer's own nobody else has written.
func fenced(t Transition, r Record, fence int64) error {
	if r.LeaseFence != fence {
		return refuse(t, ErrStaleFence, "fence is %d, the writer's %d", r.LeaseFence, fence)
	}
	return nil
}

// ---- what each tick notes

// Note writes what a tick saw. Nil pointers and a nil Alive mean that it could not be seen.
type Note struct {
	Fence   int64
	Now     time.Time
	Workers *int
	Pending *bool    // pods pending
	Idle    *bool    // low CPU and nothing pending
	CPUHigh *bool    // CPU at or above CPU_UP
	Alive   []string // every instance that is pending or running
	Joined  []string // instances that have a node
}

// Name returns noteObservation.
func (Note) Name() string { return "noteObservation" }

// Apply sets workerCount and sets, keeps or zeroes the since-epochs. What could not be seen keeps the pending epoch, because the
// sustained query judges as well, but ends idleness: capacity is never taken away on a guess. Expired entries are dropped.
func (t Note) Apply(r Record) (Record, error) {
	if err := fenced(t, r, t.Fence); err != nil {
		return r, err
	}
	r = r.Clone()
	now := t.Now.Unix()
	if t.Workers != nil {
		r.WorkerCount = Num(int64(*t.Workers))
	}
	if t.Pending != nil {
		r.PendingSinceEpoch = Num(since(r.PendingSinceEpoch.Value(), *t.Pending, now))
	}
	r.IdleSinceEpoch = Num(since(r.IdleSinceEpoch.Value(), t.Idle != nil && *t.Idle, now))
	if t.CPUHigh != nil {
		r.CPUHighSinceEpoch = since(r.CPUHighSinceEpoch, *t.CPUHigh, now)
	}
	if t.Alive != nil {
		alive := setOf(t.Alive)
		r.Joined = slices.DeleteFunc(r.Joined, func(id string) bool { return !alive[id] })
		known := setOf(r.Joined)
		for _, id := range t.Joined {
			if !known[id] {
				known[id] = true
				r.Joined = append(r.Joined, id)
			}
		}
		if len(r.Joined) == 0 {
			r.Joined = nil
		}
		// A skip outlives its hour while the instance lives, so that the next failure is known to be the second.
		r.SkipList = nilIfEmpty(slices.DeleteFunc(r.SkipList, func(s Skip) bool { return !alive[s.InstanceID] }))
	}
	r.Exhausted = nilIfEmpty(slices.DeleteFunc(r.Exhausted, func(e Exhausted) bool { return e.UntilEpoch <= now }))
	return r, nil
}

func setOf(ids []string) map[string]bool {
	out := make(map[string]bool, len(ids))
	for _, id := range ids {
		out[id] = true
	}
	return out
}

func since(epoch int64, holds bool, now int64) int64 {
	switch {
	case !holds:
		return 0
	case epoch == 0:
		return now
	}
	return epoch
}

func nilIfEmpty[T any](s []T) []T {
	if len(s) == 0 {
		return nil
	}
	return s
}

// NoteTemplate writes what nodes of the current template turned out to be.
type NoteTemplate struct {
	Fence int64
	Seen  TemplateSeen
}

// Name returns noteTemplate.
func (NoteTemplate) Name() string { return "noteTemplate" }

// Apply replaces what was known; nothing is kept of a template whose nodes are as promised.
func (t NoteTemplate) Apply(r Record) (Record, error) {
	if err := fenced(t, r, t.Fence); err != nil {
		return r, err
	}
	r = r.Clone()
	r.TemplateSeen = nil
	if t.Seen.differs() || len(t.Seen.Sizes) > 0 || len(t.Seen.Unchecked) > 0 {
		s := t.Seen.clone()
		r.TemplateSeen = &s
	}
	return r, nil
}

// RepairRecord clears a scalingInProgress that names no action, which no transition writes but a hand or another program may: it
// would block all scaling for good.
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

// ---- scale-up

// BeginScaleUp opens a scale-up.
type BeginScaleUp struct {
	Fence     int64
	ActionID  string // unique
	Now       time.Time
	Requested int
	Wanted    []Want // of which kinds, by ordinal; ordinals beyond its end may be of any
	Repair    bool   // it brings the cluster back to MIN_WORKERS, which a pause does not stop
}

// Name returns beginScaleUp.
func (BeginScaleUp) Name() string { return "beginScaleUp" }

// Apply opens the action if no other is open and scaling is not paused.
func (t BeginScaleUp) Apply(r Record) (Record, error) {
	if err := beginning(t, r, t.Fence, t.ActionID); err != nil || r.ScaleUpActionID == t.ActionID {
		return r, err
	}
	if r.Paused() && !t.Repair {
		return r, refuse(t, ErrPaused, "%s", r.pauseText())
	}
	r = r.Clone()
	r.ScalingInProgress = true
	r.ScaleUpActionID, r.ScaleUpStartedEpoch, r.ScaleUpRequested = t.ActionID, t.Now.Unix(), t.Requested
	r.ScaleUpInstanceIDs, r.ScaleUpIntent, r.ScaleUpLaunches = []string{}, nil, nil
	r.ScaleUpWanted = t.Wanted
	return r, nil
}

// beginning is the condition of both begins.
func beginning(t Transition, r Record, fence int64, actionID string) error {
	if err := fenced(t, r, fence); err != nil {
		return err
	}
	if r.ScalingInProgress && r.ActionID() != actionID {
		return refuse(t, ErrScalingInProgress, "%s", r.ActionID())
	}
	if r.LastActionID == actionID {
		return refuse(t, ErrNotThatAction, "it has ended")
	}
	return nil
}

// IntendLaunch writes a launch down before it is made. Exhausted says what the previous attempt found to be out of stock.
type IntendLaunch struct {
	Fence     int64
	ActionID  string
	Intent    Intent
	Exhausted []Exhausted
}

// Name returns intendLaunch.
func (IntendLaunch) Name() string { return "intendLaunch" }

// Apply writes the intent, over that of a previous attempt of the same ordinal only: one of unknown outcome is never passed over,
// because the caller moves to another attempt only after a definite refusal.
func (t IntendLaunch) Apply(r Record) (Record, error) {
	if err := scalingUp(t, r, t.Fence, t.ActionID); err != nil {
		return r, err
	}
	if i := r.ScaleUpIntent; i != nil && i.Request.Token == t.Intent.Request.Token {
		return r, nil
	}
	if t.Intent.Ordinal != len(r.ScaleUpInstanceIDs) {
		return r, refuse(t, ErrNotRecorded, "ordinal %d after %d recorded", t.Intent.Ordinal, len(r.ScaleUpInstanceIDs))
	}
	if i := r.ScaleUpIntent; i != nil && t.Intent.Attempt <= i.Attempt {
		return r, refuse(t, ErrNotRecorded, "attempt %d after %d", t.Intent.Attempt, i.Attempt)
	}
	r = r.Clone()
	i := t.Intent
	r.ScaleUpIntent = &i
	r.exhaust(t.Exhausted)
	return r, nil
}

func (r *Record) exhaust(es []Exhausted) {
	for _, e := range es {
		same := func(o Exhausted) bool { o.UntilEpoch = e.UntilEpoch; return o == e }
		r.Exhausted = append(slices.DeleteFunc(r.Exhausted, same), e)
	}
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
		return r, refuse(t, ErrNotRecorded, "no open intent with this token")
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

// Apply sets scaleUpRequested to the number of recorded instances. With none recorded the action has failed instead.
func (t ReduceScaleUp) Apply(r Record) (Record, error) {
	if err := scalingUp(t, r, t.Fence, t.ActionID); err != nil {
		return r, err
	}
	if len(r.ScaleUpInstanceIDs) == 0 {
		return r, refuse(t, ErrNotRecorded, "nothing was launched")
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
}

// Name returns completeScaleUp.
func (CompleteScaleUp) Name() string { return "completeScaleUp" }

// Apply removes the action's fields and starts the cooldown.
func (t CompleteScaleUp) Apply(r Record) (Record, error) {
	if r.LastActionID == t.ActionID {
		return r, nil
	}
	if err := scalingUp(t, r, t.Fence, t.ActionID); err != nil {
		return r, err
	}
	r = r.Clone()
	r.LastScaleEpoch = t.Now.Unix()
	r.ScaleUpFailures, r.BackoffUntilEpoch = 0, 0
	r.uncheck(t.Template, t.Unchecked)
	r.clearScaleUp()
	return r, nil
}

// FailScaleUp closes a scale-up that did not succeed.
type FailScaleUp struct {
	Fence    int64
	ActionID string
	Now      time.Time
	Backoff  time.Duration // after the first failure in a row; doubles with each, up to an hour
	// Removals are the instances to be taken away. They are written with the failure itself, so that there is no moment at which
	// an instance belongs to nobody.
	Removals  []Removal
	Exhausted []Exhausted
}

// Name returns failScaleUp.
func (FailScaleUp) Name() string { return "failScaleUp" }

// Apply removes the action's fields and starts a back-off instead of the cooldown.
func (t FailScaleUp) Apply(r Record) (Record, error) {
	if r.LastActionID == t.ActionID {
		return r, nil
	}
	if err := scalingUp(t, r, t.Fence, t.ActionID); err != nil {
		return r, err
	}
	r = r.Clone()
	r.ScaleUpFailures++
	r.BackoffUntilEpoch = t.Now.Add(doubled(t.Backoff, r.ScaleUpFailures, maxBackoff)).Unix()
	for _, m := range t.Removals {
		if _, known := r.Removal(m.InstanceID); !known {
			r.putRemoval(m)
		}
	}
	r.exhaust(t.Exhausted)
	r.clearScaleUp()
	return r, nil
}

func (r *Record) clearScaleUp() {
	r.LastActionID = r.ScaleUpActionID
	r.ScalingInProgress = false
	r.ScaleUpActionID, r.ScaleUpStartedEpoch, r.ScaleUpRequested = "", 0, 0
	r.ScaleUpInstanceIDs, r.ScaleUpIntent, r.ScaleUpLaunches, r.ScaleUpWanted = nil, nil, nil, nil
}

func scalingUp(t Transition, r Record, fence int64, actionID string) error {
	if err := fenced(t, r, fence); err != nil {
		return err
	}
	if !r.ScalingUp() || r.ScaleUpActionID != actionID {
		return refuse(t, ErrNotThatAction, "in progress is %q", r.ActionID())
	}
	return nil
}

// doubled returns base, doubled for each failure after the first, at most limit.
func doubled(base time.Duration, failures int, limit time.Duration) time.Duration {
	d := base
	for i := 1; i < failures && d < limit; i++ {
		d *= 2
	}
	return min(d, limit)
}

// ---- scale-down

// BeginScaleDown opens a scale-down with its plan.
type BeginScaleDown struct {
	Fence    int64
	ActionID string // unique
	Now      time.Time
	Targets  []string // instance IDs, in the order in which they go
}

// Name returns beginScaleDown.
func (BeginScaleDown) Name() string { return "beginScaleDown" }

// Apply opens the action if no other is open and scaling is not paused.
func (t BeginScaleDown) Apply(r Record) (Record, error) {
	if err := beginning(t, r, t.Fence, t.ActionID); err != nil || r.ScaleDownActionID == t.ActionID {
		return r, err
	}
	if r.Paused() {
		return r, refuse(t, ErrPaused, "%s", r.pauseText())
	}
	r = r.Clone()
	r.ScalingInProgress = true
	r.ScaleDownActionID, r.ScaleDownStartedEpoch = t.ActionID, t.Now.Unix()
	r.ScaleDownPhase = PhaseDraining
	r.ScaleDownTargetInstanceIDs = slices.Clone(t.Targets)
	r.ScaleDownCompletedInstanceIDs = []string{}
	return r, nil
}

// StartDrain records the start of an instance's drain, before its node is cordoned. An instance whose drain has been started keeps
// its start: a drain is continued, not restarted.
type StartDrain struct {
	Fence   int64
	Removal Removal // Phase is ignored
}

// Name returns startDrain.
func (StartDrain) Name() string { return "startDrain" }

// Apply adds the removal in phase DRAINING, or adds the drain's start to one that has none.
func (t StartDrain) Apply(r Record) (Record, error) {
	if err := removing(t, r, t.Fence, t.Removal); err != nil {
		return r, err
	}
	m, known := r.Removal(t.Removal.InstanceID)
	if known && m.DrainedSince != 0 {
		return r, nil
	}
	if t.Removal.NotReady && !known && r.Paused() {
		return r, refuse(t, ErrPaused, "%s", r.pauseText())
	}
	r = r.Clone()
	m = t.Removal
	m.Phase = PhaseDraining
	if old, ok := r.Removal(m.InstanceID); ok { // a mark stays: it joined after it was marked, and is drained all the same
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

// removing is the condition of steps on a removal: one that belongs to an action needs that action open and the target unfinished.
func removing(t Transition, r Record, fence int64, m Removal) error {
	if err := fenced(t, r, fence); err != nil {
		return err
	}
	if m.ActionID == "" || m.ActionID != r.ScaleDownActionID {
		if r.Targets(m.InstanceID) {
			return refuse(t, ErrNotThatAction, "%s is a target of %s", m.InstanceID, r.ScaleDownActionID)
		}
		if m.ActionID == "" {
			return nil
		}
		if old, ok := r.Removal(m.InstanceID); ok && old.ActionID == m.ActionID {
			return nil // left behind by an action that has ended
		}
		return refuse(t, ErrNotThatAction, "in progress is %q", r.ActionID())
	}
	if !r.Targets(m.InstanceID) {
		return refuse(t, ErrNotRecorded, "%s is not an unfinished target", m.InstanceID)
	}
	return nil
}

func (r *Record) setPhase(m Removal) {
	if m.ActionID != "" && m.ActionID == r.ScaleDownActionID {
		r.ScaleDownPhase = m.Phase
	}
}

// MarkScaleDownInstanceDone records that a target is gone: its instance is terminated and its Node object deleted.
type MarkScaleDownInstanceDone struct {
	Fence      int64
	ActionID   string
	InstanceID string
}

// Name returns markScaleDownInstanceDone.
func (MarkScaleDownInstanceDone) Name() string { return "markScaleDownInstanceDone" }

// Apply appends the instance to the completed ones, once, and ends its removal.
func (t MarkScaleDownInstanceDone) Apply(r Record) (Record, error) {
	if err := scalingDown(t, r, t.Fence, t.ActionID); err != nil {
		return r, err
	}
	if slices.Contains(r.ScaleDownCompletedInstanceIDs, t.InstanceID) {
		return r, nil
	}
	if !slices.Contains(r.ScaleDownTargetInstanceIDs, t.InstanceID) {
		return r, refuse(t, ErrNotRecorded, "%s is not a target", t.InstanceID)
	}
	r = r.Clone()
	r.ScaleDownCompletedInstanceIDs = append(r.ScaleDownCompletedInstanceIDs, t.InstanceID)
	r.dropRemoval(t.InstanceID)
	r.ScaleDownPhase = PhaseDraining
	return r, nil
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
	if r.Targets(t.InstanceID) {
		return r, refuse(t, ErrNotThatAction, "%s is a target of %s", t.InstanceID, r.ScaleDownActionID)
	}
	if _, ok := r.Removal(t.InstanceID); !ok {
		return r, nil
	}
	r = r.Clone()
	r.dropRemoval(t.InstanceID)
	return r, nil
}

// GiveBack ends a removal that is still draining: its node has been uncordoned and stays a worker. With a cause the instance is
// skipped for a while.
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
		return r, refuse(t, ErrMarked, "%s", t.InstanceID)
	}
	r = r.Clone()
	r.dropRemoval(t.InstanceID)
	if t.Cause != "" {
		r.skip(t.InstanceID, t.Cause, t.Now)
	}
	return r, nil
}

func (r *Record) skip(instanceID, cause string, now time.Time) {
	s := Skip{InstanceID: instanceID}
	for _, old := range r.SkipList {
		if old.InstanceID == instanceID {
			s = old
		}
	}
	s.Failures++
	s.Cause = cause
	s.UntilEpoch = now.Add(doubled(firstSkip, s.Failures, maxSkip)).Unix()
	r.SkipList = append(slices.DeleteFunc(r.SkipList, func(o Skip) bool { return o.InstanceID == instanceID }), s)
}

// CompleteScaleDown closes a scale-down whose targets are all done and starts the cooldown.
type CompleteScaleDown struct {
	Fence    int64
	ActionID string
	Now      time.Time
}

// Name returns completeScaleDown.
func (CompleteScaleDown) Name() string { return "completeScaleDown" }

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
			return r, refuse(t, ErrUnfinished, "%s is not done", id)
		}
	}
	r = r.Clone()
	r.LastScaleEpoch = t.Now.Unix()
	r.clearScaleDown()
	return r, nil
}

// FailScaleDown closes a scale-down that did not succeed. The nodes that it cordoned and did not mark have been uncordoned before;
// what it did mark stays marked and is finished by the sweep.
type FailScaleDown struct {
	Fence    int64
	ActionID string
	Now      time.Time
	Culprit  string // instance to be skipped for a while; "" if none is to blame
	Cause    string
}

// Name returns failScaleDown.
func (FailScaleDown) Name() string { return "failScaleDown" }

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

func (r *Record) clearScaleDown() {
	r.LastActionID = r.ScaleDownActionID
	r.ScalingInProgress = false
	r.ScaleDownActionID, r.ScaleDownStartedEpoch, r.ScaleDownPhase = "", 0, ""
	r.ScaleDownTargetInstanceIDs, r.ScaleDownCompletedInstanceIDs = nil, nil
}

func scalingDown(t Transition, r Record, fence int64, actionID string) error {
	if err := fenced(t, r, fence); err != nil {
		return err
	}
	if !r.ScalingDown() || r.ScaleDownActionID != actionID {
		return refuse(t, ErrNotThatAction, "in progress is %q", r.ActionID())
	}
	return nil
}
