package nodes

import (
	"encoding/json"
	"slices"
	"strconv"
	"time"
)

// SchemaVersion is the newest layout of the record that this package understands. A record without the
// attribute is of version 1.
const SchemaVersion = poolsVersion

// severalActionsVersion is the version of a record with more than one open action. With one or none it is of
// version 1, so a program that knows only that can take over as soon as the others have ended.
const severalActionsVersion = 2

// poolsVersion is the version of a record that says something of pools.
const poolsVersion = 3

// Record is the one durable item of a cluster: what is in progress, since when, and who may continue it. The
// attributes of the first three groups are named, typed and omitted as the record's specification has them;
// the rest are optional additions, absent from a record at rest unless they say something. All epochs are
// Unix seconds.
//
// A Record is a value: transitions return a changed copy and never alter the one they are given.
type Record struct {
	PK                string `json:"pk"`                         // "cluster", or "cluster#NAME"
	ScalingInProgress bool   `json:"scalingInProgress"`          // an action is open
	LastScaleEpoch    int64  `json:"lastScaleEpoch"`             // last completed action; cooldowns count from it
	PendingSinceEpoch Number `json:"pendingSinceEpoch,omitzero"` // pods pending without a break since; 0: none pending
	IdleSinceEpoch    Number `json:"idleSinceEpoch,omitzero"`    // cluster idle without a break since; 0: not idle
	WorkerCount       Number `json:"workerCount,omitzero"`       // workers seen by the last tick

	ScaleUpActionID     string   `json:"scaleUpActionId,omitempty"`
	ScaleUpStartedEpoch int64    `json:"scaleUpStartedEpoch,omitempty"`
	ScaleUpRequested    int      `json:"scaleUpRequested,omitempty"`
	ScaleUpInstanceIDs  []string `json:"scaleUpInstanceIds,omitzero"` // launched so far, in order of their ordinals

	ScaleDownActionID             string         `json:"scaleDownActionId,omitempty"`
	ScaleDownStartedEpoch         int64          `json:"scaleDownStartedEpoch,omitempty"`
	ScaleDownPhase                ScaleDownPhase `json:"scaleDownPhase,omitempty"`
	ScaleDownTargetInstanceIDs    []string       `json:"scaleDownTargetInstanceIds,omitzero"`    // the plan
	ScaleDownCompletedInstanceIDs []string       `json:"scaleDownCompletedInstanceIds,omitzero"` // terminated so far

	LeaseOwner      string `json:"leaseOwner,omitempty"`      // who may write; "": the lease is free
	LeaseUntilEpoch int64  `json:"leaseUntilEpoch,omitempty"` // the lease may be taken by others after this
	LeaseFence      int64  `json:"leaseFence,omitempty"`      // grows with every lease; older holders' writes are refused

	ScaleUpIntent   *Intent  `json:"scaleUpIntent,omitempty"`   // the launch that may be in flight
	ScaleUpLaunches []Intent `json:"scaleUpLaunches,omitempty"` // the launches behind scaleUpInstanceIds
	ScaleUpWanted   []Want   `json:"scaleUpWanted,omitempty"`   // of which kinds the nodes should be, by ordinal

	// ScaleUpReplaces are the workers that a scale-down removes once the nodes are Ready, if their pods still fit then.
	ScaleUpReplaces []string `json:"scaleUpReplaces,omitempty"`

	ScaleUpPool string `json:"scaleUpPool,omitempty"` // in which the scale-up launches; "" without pools

	OtherActions []ScalingAction `json:"otherActions,omitempty"` // open beside the one above, which began first

	Removals  []Removal   `json:"removals,omitempty"`           // instances on their way out, of any cause
	Joined    []string    `json:"joinedInstanceIds,omitempty"`  // instances whose node some tick has seen
	SkipList  []Skip      `json:"skipList,omitempty"`           // workers not to be chosen for a while
	Exhausted []Exhausted `json:"exhaustedOfferings,omitempty"` // offerings not to be tried for a while

	// ConsolidatedEpochs is when consolidations began within the last hour, one for each worker: the disruption budget.
	ConsolidatedEpochs []int64 `json:"consolidatedEpochs,omitempty"`

	TemplateSeen *TemplateSeen `json:"templateSeen,omitempty"` // what new nodes turned out to be

	PoolStates []PoolState `json:"poolStates,omitempty"` // the same, and failures and back-off, of each pool

	Prices *Prices `json:"prices,omitempty"` // the cloud's, as they were last read

	ScaleUpFailures   int   `json:"scaleUpFailures,omitempty"`   // failures in a row
	BackoffUntilEpoch int64 `json:"backoffUntilEpoch,omitempty"` // no scale-up before this
	CPUHighSinceEpoch int64 `json:"cpuHighSinceEpoch,omitempty"` // CPU at or above CPU_UP without a break since

	PausedSinceEpoch int64  `json:"pausedSinceEpoch,omitempty"` // no new scale-up by its trigger, no new scale-down; 0: not paused
	PausedBy         string `json:"pausedBy,omitempty"`         // who paused, if that was said
	PauseReason      string `json:"pauseReason,omitempty"`

	LastActionID  string `json:"lastActionId,omitempty"` // the action that ended last, by which a lost reply is recognised
	SchemaVersion int    `json:"schemaVersion,omitempty"`
	Revision      int64  `json:"revision,omitempty"` // grows with every write; stores compare it to make a write conditional
}

// ScaleDownPhase tells how far a scale-down is with its current target.
type ScaleDownPhase string

// The phases of a scale-down.
const (
	PhaseDraining    ScaleDownPhase = "DRAINING"
	PhaseTerminating ScaleDownPhase = "TERMINATING"
)

// Intent is a launch that is about to be made, written down before it is made, complete enough to be repeated
// to the letter by another process. Until it is resolved its instance may or may not exist.
type Intent struct {
	Ordinal    int           `json:"ordinal"`                 // which instance of its action, from 0
	Attempt    int           `json:"attempt"`                 // which offering of its ordinal, from 0
	Epoch      int64         `json:"epoch"`                   // when it was written
	Request    LaunchRequest `json:"request"`                 // to be sent as it stands, token included
	InstanceID string        `json:"instanceId,omitempty"`    // set once resolved
	Launched   int64         `json:"launchedEpoch,omitempty"` // when the instance was launched, which may be long after it was intended
}

// Removal is an instance on its way out. In phase DRAINING its node, if it has one, may still be given back.
// In phase TERMINATING it may not: the phase is the mark that has to be durable before the cloud is asked to
// terminate the instance, and nothing, not even a failed action, takes it away until the instance is gone.
type Removal struct {
	InstanceID   string         `json:"instanceId"`
	ActionID     string         `json:"actionId,omitempty"` // action it belongs to; "" for the sweep's own
	Node         NodeRef        `json:"node,omitzero"`      // zero for an instance that never joined
	Phase        ScaleDownPhase `json:"phase"`
	DrainedSince int64          `json:"drainStartedEpoch,omitempty"` // start of the drain; 0: none needed
	NotReady     bool           `json:"notReady,omitempty"`          // its node is not Ready, so it is cordoned and not drained
	DiskFull     bool           `json:"diskFull,omitempty"`          // its node is under disk pressure, and drained like any other
	Impaired     bool           `json:"impaired,omitempty"`          // its instance fails a status check; drained while its node is Ready
	Reason       string         `json:"reason,omitempty"`
}

// repairs reports whether a removal is a repair: of a worker that is not Ready, or whose instance or disk is not well.
func (m Removal) repairs() bool { return m.NotReady || m.DiskFull || m.Impaired }

// defect is what a repair is for.
func (m Removal) defect() defect {
	switch {
	case m.Impaired:
		return impaired
	case m.DiskFull:
		return diskFull
	}
	return notReady
}

// claim is the name under which a removal cordons its node.
func (m Removal) claim() string {
	if m.ActionID == "" {
		return "sweep-" + m.InstanceID
	}
	return m.ActionID
}

// How long a worker is skipped, after the first failure and at most.
const (
	firstSkip = 10 * time.Minute
	maxSkip   = 6 * time.Hour
)

// Skip is a worker that is not to be chosen for scale-down before an hour that grows with every failure.
type Skip struct {
	InstanceID string `json:"instanceId"`
	Failures   int    `json:"failures"`
	UntilEpoch int64  `json:"untilEpoch"`
	Cause      string `json:"cause,omitempty"`
}

// Number is a numeric attribute that a record may lack. Absent and zero differ: a record that came without
// the attribute is written back without it.
type Number struct {
	n   int64
	set bool
}

// Num returns a present Number.
func Num(n int64) Number { return Number{n: n, set: true} }

// Value returns the number, 0 when absent.
func (n Number) Value() int64 { return n.n }

// IsZero reports whether the attribute is absent; encoding/json's omitzero asks it.
func (n Number) IsZero() bool { return !n.set }

// MarshalJSON writes the number.
func (n Number) MarshalJSON() ([]byte, error) { return strconv.AppendInt(nil, n.n, 10), nil }

// UnmarshalJSON reads a whole number.
func (n *Number) UnmarshalJSON(b []byte) error {
	var v int64
	if err := json.Unmarshal(b, &v); err != nil {
		return err
	}
	*n = Num(v)
	return nil
}

// RecordKey returns the key of a cluster's record: "cluster" for the only one of its table, "cluster#NAME"
// for a named one.
func RecordKey(cluster string) string {
	if cluster == "" {
		return "cluster"
	}
	return "cluster#" + cluster
}

// NewRecord returns the record of a cluster that has none yet.
func NewRecord(cluster string) Record { return Record{PK: RecordKey(cluster)} }

// Clone returns a copy that shares nothing with r.
func (r Record) Clone() Record {
	r.setFront(r.front().clone())
	r.OtherActions = slices.Clone(r.OtherActions)
	for i := range r.OtherActions {
		r.OtherActions[i] = r.OtherActions[i].clone()
	}
	if r.TemplateSeen != nil {
		s := r.TemplateSeen.clone()
		r.TemplateSeen = &s
	}
	r.PoolStates = slices.Clone(r.PoolStates)
	for i := range r.PoolStates {
		r.PoolStates[i] = r.PoolStates[i].clone()
	}
	r.Removals = slices.Clone(r.Removals)
	r.Joined = slices.Clone(r.Joined)
	r.SkipList = slices.Clone(r.SkipList)
	r.Exhausted = slices.Clone(r.Exhausted)
	r.ConsolidatedEpochs = slices.Clone(r.ConsolidatedEpochs)
	r.Prices = r.Prices.clone()
	return r
}

// ScalingUp reports whether the action that the record's own attributes are of is a scale-up.
func (r Record) ScalingUp() bool { return r.ScalingInProgress && r.ScaleUpActionID != "" }

// ScalingDown reports whether the action that the record's own attributes are of is a scale-down.
func (r Record) ScalingDown() bool { return r.ScalingInProgress && r.ScaleDownActionID != "" }

// ActionID returns the ID of the action that the record's own attributes are of, "" if there is none. Actions
// lists all of them.
func (r Record) ActionID() string {
	if r.ScaleUpActionID != "" {
		return r.ScaleUpActionID
	}
	return r.ScaleDownActionID
}

// Removal returns the removal of an instance.
func (r Record) Removal(instanceID string) (Removal, bool) {
	for _, m := range r.Removals {
		if m.InstanceID == instanceID {
			return m, true
		}
	}
	return Removal{}, false
}

// Skipped returns the skip-list entry of an instance while it holds.
func (r Record) Skipped(instanceID string, now time.Time) (Skip, bool) {
	for _, s := range r.SkipList {
		if s.InstanceID == instanceID && now.Unix() < s.UntilEpoch {
			return s, true
		}
	}
	return Skip{}, false
}

// Paused reports whether scaling is paused: no new scale-up by its trigger and no new scale-down begins. An
// open action continues to its end, interruptions are worked on, the sweep sweeps, and a cluster below
// MIN_WORKERS is brought back to it.
func (r Record) Paused() bool { return r.PausedSinceEpoch != 0 }

// pauseText says since when, by whom and why scaling is paused.
func (r Record) pauseText() string {
	text := "since " + time.Unix(r.PausedSinceEpoch, 0).UTC().Format(time.RFC3339)
	if r.PausedBy != "" {
		text += " by " + r.PausedBy
	}
	if r.PauseReason != "" {
		text += ": " + r.PauseReason
	}
	return text
}

// The methods below change the record that a transition has cloned.

// uncheck notes instances to be compared as soon as their nodes can be seen.
func (r *Record) uncheck(pool, template string, ids []string) {
	if len(ids) == 0 {
		return
	}
	s := r.PoolState(pool)
	if s.TemplateSeen == nil || s.TemplateSeen.Template != template {
		s.TemplateSeen = &TemplateSeen{Template: template}
	}
	s.TemplateSeen.Unchecked = ids
	r.putPool(s)
}

// putRemoval adds or replaces the removal of one instance.
func (r *Record) putRemoval(m Removal) {
	for i := range r.Removals {
		if r.Removals[i].InstanceID == m.InstanceID {
			r.Removals[i] = m
			return
		}
	}
	r.Removals = append(r.Removals, m)
}

// dropRemoval forgets the removal of one instance.
func (r *Record) dropRemoval(instanceID string) {
	r.Removals = nilIfEmpty(slices.DeleteFunc(r.Removals, func(m Removal) bool { return m.InstanceID == instanceID }))
}

// skip notes one more failure of an instance and until when it is not chosen.
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

// exhaust notes offerings that can't be had; a new entry replaces an older one of the same offerings.
func (r *Record) exhaust(es []Exhausted) {
	for _, e := range es {
		same := func(o Exhausted) bool { o.UntilEpoch = e.UntilEpoch; return o == e }
		r.Exhausted = append(slices.DeleteFunc(r.Exhausted, same), e)
	}
}

// setPhase shows the phase of a removal as that of the scale-down, if it belongs to the open one.
func (r *Record) setPhase(m Removal) {
	if m.ActionID != "" && m.ActionID == r.ScaleDownActionID {
		r.ScaleDownPhase = m.Phase
	}
}

// clearScaleUp ends the open scale-up.
func (r *Record) clearScaleUp() {
	r.LastActionID = r.ScaleUpActionID
	r.ScalingInProgress = false
	r.ScaleUpActionID, r.ScaleUpStartedEpoch, r.ScaleUpRequested = "", 0, 0
	r.ScaleUpInstanceIDs, r.ScaleUpIntent, r.ScaleUpLaunches, r.ScaleUpWanted = nil, nil, nil, nil
	r.ScaleUpReplaces, r.ScaleUpPool = nil, ""
}

// clearScaleDown ends the open scale-down.
func (r *Record) clearScaleDown() {
	r.LastActionID = r.ScaleDownActionID
	r.ScalingInProgress = false
	r.ScaleDownActionID, r.ScaleDownStartedEpoch, r.ScaleDownPhase = "", 0, ""
	r.ScaleDownTargetInstanceIDs, r.ScaleDownCompletedInstanceIDs = nil, nil
}

// doubled returns base, doubled for each failure after the first, at most limit.
func doubled(base time.Duration, failures int, limit time.Duration) time.Duration {
	d := base
	for i := 1; i < failures && d < limit; i++ {
		d *= 2
	}
	return min(d, limit)
}

// nilIfEmpty keeps an empty list out of the stored record.
func nilIfEmpty[T any](s []T) []T {
	if len(s) == 0 {
		return nil
	}
	return s
}
