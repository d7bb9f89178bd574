package nodes

import (
	"bytes"
	"encoding/json"
	"errors"
	"reflect"
	"slices"
	"testing"
	"time"
)

func equal(a, b any) bool { return reflect.DeepEqual(a, b) }

// The examples of the record's specification, and one that is paused.
var specified = map[string]string{
	"idle": `{"pk":"cluster","scalingInProgress":false,"lastScaleEpoch":1730000000,"pendingSinceEpoch":0,` +
		`"idleSinceEpoch":1730000100,"workerCount":2}`,
	"scale-up in progress": `{"pk":"cluster","scalingInProgress":true,"lastScaleEpoch":1730000000,` +
		`"scaleUpActionId":"1730000300-req-xyz","scaleUpStartedEpoch":1730000300,"scaleUpRequested":2,` +
		`"scaleUpInstanceIds":["i-aaa","i-bbb"]}`,
	"scale-up just begun": `{"pk":"cluster","scalingInProgress":true,"lastScaleEpoch":0,"scaleUpActionId":"a",` +
		`"scaleUpStartedEpoch":1,"scaleUpRequested":2,"scaleUpInstanceIds":[]}`,
	"paused": `{"pk":"cluster","scalingInProgress":false,"lastScaleEpoch":1730000000,"workerCount":2,` +
		`"pausedSinceEpoch":1730000200,"pausedBy":"alice","pauseReason":"inventory"}`,
	"scale-down in progress": `{"pk":"cluster","scalingInProgress":true,"lastScaleEpoch":1,"scaleDownActionId":"d",` +
		`"scaleDownStartedEpoch":2,"scaleDownPhase":"TERMINATING","scaleDownTargetInstanceIds":["i-a","i-b"],` +
		`"scaleDownCompletedInstanceIds":["i-a"]}`,
}

func TestSpecifiedRecordsRoundTripUnchanged(t *testing.T) {
	for name, text := range specified {
		t.Run(name, func(t *testing.T) {
			var r Record
			dec := json.NewDecoder(bytes.NewReader([]byte(text)))
			dec.DisallowUnknownFields()
			if err := dec.Decode(&r); err != nil {
				t.Fatal(err)
			}
			got, err := json.Marshal(r)
			if err != nil {
				t.Fatal(err)
			}
			if string(got) != text {
				t.Errorf("got  %s\nwant %s", got, text)
			}
		})
	}
}

func TestRecordKeyNamesTheCluster(t *testing.T) {
	if RecordKey("") != "cluster" || RecordKey("blue") != "cluster#blue" {
		t.Error(RecordKey(""), RecordKey("blue"))
	}
}

func TestCloneSharesNothing(t *testing.T) {
	r := fullRecord()
	before, _ := json.Marshal(r)
	c := r.Clone()
	c.ScaleUpInstanceIDs[0], c.ScaleDownTargetInstanceIDs[0], c.ScaleDownCompletedInstanceIDs[0] = "x", "x", "x"
	c.ScaleUpIntent.Attempt, c.ScaleUpLaunches[0].Attempt = 9, 9
	c.ScaleUpWanted[0].Types[0], c.ScaleUpWanted[0].Zones[0] = "x", "x"
	c.Removals[0].Reason, c.Joined[0], c.SkipList[0].Cause, c.Exhausted[0].Zone = "x", "x", "x", "x"
	c.PoolStates[0].TemplateSeen.Lacks[0], c.PoolStates[0].ScaleUpFailures = "x", 9
	c.Prices.OnDemand.USD["m"], c.Prices.Spot.USD["a/m"], c.Prices.Spot.Failure = 9, 9, "x"
	after, _ := json.Marshal(r)
	if !bytes.Equal(before, after) {
		t.Errorf("changing the clone changed the record:\n%s\n%s", before, after)
	}
}

func fullRecord() Record {
	return Record{PK: "cluster", ScaleUpInstanceIDs: []string{"i"}, ScaleDownTargetInstanceIDs: []string{"i"},
		ScaleDownCompletedInstanceIDs: []string{"i"}, ScaleUpIntent: &Intent{}, ScaleUpLaunches: []Intent{{}},
		ScaleUpWanted: []Want{{Types: []string{"t"}, Zones: []string{"z"}}}, Removals: []Removal{{}},
		Joined: []string{"i"}, SkipList: []Skip{{}}, Exhausted: []Exhausted{{}},
		Prices:     &Prices{OnDemand: &PriceList{USD: map[string]float64{"m": 1}}, Spot: &PriceList{USD: map[string]float64{"a/m": 1}}},
		PoolStates: []PoolState{{Name: "p", TemplateSeen: &TemplateSeen{Lacks: []string{"l"}}}}}
}

func TestRecordOfPools(t *testing.T) {
	begun := apply(t, leased(), BeginScaleUp{Fence: 7, ActionID: "up", Now: at(1), Requested: 1, Pool: "batch"})
	if begun.ScaleUpPool != "batch" || begun.SchemaVersion != poolsVersion {
		t.Fatalf("begun in pool %q, version %d", begun.ScaleUpPool, begun.SchemaVersion)
	}

	t.Run("a failure is the pool's", func(t *testing.T) {
		r := apply(t, begun, FailScaleUp{Fence: 7, ActionID: "up", Now: at(2), Backoff: time.Minute})
		if s := r.PoolState("batch"); s.ScaleUpFailures != 1 || s.BackoffUntilEpoch != at(62).Unix() || r.BackoffUntilEpoch != 0 || r.ScaleUpPool != "" {
			t.Errorf("got %+v, the cluster's back-off %d, pool %q", s, r.BackoffUntilEpoch, r.ScaleUpPool)
		}
		if r.SchemaVersion != poolsVersion {
			t.Errorf("a record with a pool's back-off is of version %d", r.SchemaVersion)
		}
		r = apply(t, r, BeginScaleUp{Fence: 7, ActionID: "again", Now: at(70), Requested: 0, Pool: "batch"}, CompleteScaleUp{Fence: 7, ActionID: "again", Now: at(80)})
		if len(r.PoolStates) != 0 || r.SchemaVersion != 0 {
			t.Errorf("after a success the record has %+v, version %d", r.PoolStates, r.SchemaVersion)
		}
	})
	t.Run("beside another action it keeps its pool", func(t *testing.T) {
		r := apply(t, leased(), BeginScaleDown{Fence: 7, ActionID: "down", Now: at(1), Targets: []string{"i-1"}, MaxActions: 3},
			BeginScaleUp{Fence: 7, ActionID: "up", Now: at(2), Requested: 1, Pool: "batch", MaxActions: 3})
		if got := r.Of("up").ScaleUpPool; got != "batch" || r.Of("down").ScaleUpPool != "" {
			t.Errorf("the scale-up is of pool %q", got)
		}
	})
	t.Run("what its nodes lack is the pool's", func(t *testing.T) {
		r := apply(t, begun, NoteTemplate{Fence: 7, Pool: "batch", Seen: TemplateSeen{Template: "f", InstanceID: "i", Lacks: []string{"team=batch"}}})
		if r.TemplateSeen != nil || r.PoolState("batch").TemplateSeen == nil || r.PoolState("other").TemplateSeen != nil {
			t.Errorf("got %+v and %+v", r.TemplateSeen, r.PoolStates)
		}
	})
}

// ---- transitions

var t0 = time.Unix(1730000000, 0)

func at(sec int) time.Time { return t0.Add(time.Duration(sec) * time.Second) }

// leased returns a record whose lease has fence 7.
func leased() Record {
	r := NewRecord("")
	r.LeaseOwner, r.LeaseUntilEpoch, r.LeaseFence = "me", at(60).Unix(), 7
	return r
}

// apply makes transitions one after another and fails the test if one is refused.
func apply(t *testing.T, r Record, ts ...Transition) Record {
	t.Helper()
	for _, tr := range ts {
		next, _, err := Applied(r, tr)
		if err != nil {
			t.Fatal(err)
		}
		r = next
	}
	return r
}

func launchIntent(ordinal, attempt int, token string) Intent {
	return Intent{Ordinal: ordinal, Attempt: attempt, Epoch: 1, Request: LaunchRequest{Token: token, ActionID: "up"}}
}

func upBegun(t *testing.T) Record {
	return apply(t, leased(), BeginScaleUp{Fence: 7, ActionID: "up", Now: at(1), Requested: 2})
}

func upLaunched(t *testing.T) Record {
	return apply(t, upBegun(t), IntendLaunch{Fence: 7, ActionID: "up", Intent: launchIntent(0, 0, "t0")},
		RecordScaleUpInstances{Fence: 7, ActionID: "up", Token: "t0", InstanceID: "i-1"})
}

func downBegun(t *testing.T) Record {
	return apply(t, leased(), BeginScaleDown{Fence: 7, ActionID: "down", Now: at(1), Targets: []string{"i-1", "i-2"}})
}

func downRemoval(id string) Removal {
	return Removal{InstanceID: id, ActionID: "down", Node: NodeRef{Name: "n", UID: "u"}, DrainedSince: at(2).Unix()}
}

func TestTransitionsSetWhatTheSpecificationSays(t *testing.T) {
	up, down := upLaunched(t), downBegun(t)
	for name, c := range map[string]struct {
		from Record
		do   Transition
		want func(Record) bool
	}{
		"beginScaleUp sets the action's fields and clears the IDs": {leased(), BeginScaleUp{Fence: 7, ActionID: "up", Now: at(1), Requested: 2}, func(r Record) bool {
			return r.ScalingInProgress && r.ScaleUpActionID == "up" && r.ScaleUpStartedEpoch == at(1).Unix() && r.ScaleUpRequested == 2 &&
				r.ScaleUpInstanceIDs != nil && len(r.ScaleUpInstanceIDs) == 0
		}},
		"recordScaleUpInstances appends and resolves the intent": {up, Note{Fence: 7, Now: at(2)}, func(r Record) bool {
			return slices.Equal(r.ScaleUpInstanceIDs, []string{"i-1"}) && r.ScaleUpIntent == nil && r.ScaleUpLaunches[0].InstanceID == "i-1"
		}},
		"reduceScaleUp lowers the request to what was launched": {up, ReduceScaleUp{Fence: 7, ActionID: "up"}, func(r Record) bool { return r.ScaleUpRequested == 1 }},
		"completeScaleUp starts the cooldown, removes the fields, ends the failures": {failedOnce(up), CompleteScaleUp{Fence: 7, ActionID: "up", Now: at(9)}, func(r Record) bool {
			return !r.ScalingInProgress && r.LastScaleEpoch == at(9).Unix() && r.ScaleUpActionID == "" && r.ScaleUpInstanceIDs == nil &&
				r.ScaleUpLaunches == nil && r.ScaleUpFailures == 0 && r.BackoffUntilEpoch == 0
		}},
		"failScaleUp starts a back-off and no cooldown": {up, FailScaleUp{Fence: 7, ActionID: "up", Now: at(9), Backoff: time.Minute}, func(r Record) bool {
			return !r.ScalingInProgress && r.LastScaleEpoch == 0 && r.BackoffUntilEpoch == at(69).Unix() && r.ScaleUpFailures == 1
		}},
		"a second failure in a row backs off twice as long": {failedOnce(up), FailScaleUp{Fence: 7, ActionID: "up", Now: at(9), Backoff: time.Minute}, func(r Record) bool {
			return r.BackoffUntilEpoch == at(9+120).Unix()
		}},
		"failScaleUp marks what never joined in the same write": {up, FailScaleUp{Fence: 7, ActionID: "up", Now: at(9), Removals: []Removal{{InstanceID: "i-1", Phase: PhaseTerminating}}}, func(r Record) bool {
			m, ok := r.Removal("i-1")
			return ok && m.Phase == PhaseTerminating
		}},
		"beginScaleDown stores the plan": {leased(), BeginScaleDown{Fence: 7, ActionID: "down", Now: at(1), Targets: []string{"i-1"}, MaxActions: 1}, func(r Record) bool {
			return r.ScalingInProgress && r.ScaleDownPhase == PhaseDraining && slices.Equal(r.ScaleDownTargetInstanceIDs, []string{"i-1"}) &&
				r.ScaleDownCompletedInstanceIDs != nil && len(r.ScaleDownCompletedInstanceIDs) == 0 && r.ScaleDownStartedEpoch == at(1).Unix()
		}},
		"startDrain keeps the start of a drain that goes on": {apply(t, down, StartDrain{7, downRemoval("i-1")}), StartDrain{7, Removal{InstanceID: "i-1", ActionID: "down", DrainedSince: at(99).Unix()}}, func(r Record) bool {
			m, _ := r.Removal("i-1")
			return m.DrainedSince == at(2).Unix()
		}},
		"markTerminating sets phase and mark": {apply(t, down, StartDrain{7, downRemoval("i-1")}), MarkTerminating{7, downRemoval("i-1")}, func(r Record) bool {
			m, _ := r.Removal("i-1")
			return m.Phase == PhaseTerminating && r.ScaleDownPhase == PhaseTerminating
		}},
		"markScaleDownInstanceDone appends and ends the removal": {apply(t, down, StartDrain{7, downRemoval("i-1")}), MarkScaleDownInstanceDone{7, "down", "i-1"}, func(r Record) bool {
			return slices.Equal(r.ScaleDownCompletedInstanceIDs, []string{"i-1"}) && r.Removals == nil && !r.Targets("i-1") && r.Targets("i-2")
		}},
		"completeScaleDown starts the cooldown and removes the fields": {apply(t, down, MarkScaleDownInstanceDone{7, "down", "i-1"}, MarkScaleDownInstanceDone{7, "down", "i-2"}), CompleteScaleDown{7, "down", at(9)}, func(r Record) bool {
			return !r.ScalingInProgress && r.LastScaleEpoch == at(9).Unix() && r.ScaleDownActionID == "" && r.ScaleDownTargetInstanceIDs == nil && r.ScaleDownPhase == ""
		}},
		"failScaleDown before anything went starts no cooldown and skips the culprit": {apply(t, down, StartDrain{7, downRemoval("i-1")}), FailScaleDown{7, "down", at(9), "i-1", "pdb", false}, func(r Record) bool {
			s, skipped := r.Skipped("i-1", at(10))
			return !r.ScalingInProgress && r.LastScaleEpoch == 0 && r.Removals == nil && skipped && s.Cause == "pdb"
		}},
		"failScaleDown after something went starts the cooldown": {apply(t, down, MarkScaleDownInstanceDone{7, "down", "i-1"}), FailScaleDown{Fence: 7, ActionID: "down", Now: at(9)}, func(r Record) bool {
			return r.LastScaleEpoch == at(9).Unix()
		}},
		"failScaleDown keeps a mark and counts it as gone": {apply(t, down, StartDrain{7, downRemoval("i-1")}, MarkTerminating{7, downRemoval("i-1")}), FailScaleDown{Fence: 7, ActionID: "down", Now: at(9)}, func(r Record) bool {
			m, ok := r.Removal("i-1")
			return ok && m.Phase == PhaseTerminating && r.LastScaleEpoch == at(9).Unix()
		}},
		"giveBack drops a drain and skips the instance longer each time": {skippedOnce(apply(t, leased(), StartDrain{7, Removal{InstanceID: "i-1", DrainedSince: 1}})), GiveBack{7, "i-1", at(9), "slow"}, func(r Record) bool {
			return r.Removals == nil && r.SkipList[0].Failures == 2 && r.SkipList[0].UntilEpoch == at(9+1200).Unix()
		}},
		"pauseScaling says since when, who and why, and leaves the lease alone": {leased(), PauseScaling{at(5), "alice", "inventory"}, func(r Record) bool {
			return r.PausedSinceEpoch == at(5).Unix() && r.PausedBy == "alice" && r.PauseReason == "inventory" && r.LeaseOwner == "me" && r.LeaseFence == 7
		}},
		"pauseScaling keeps a pause that is there": {paused(leased()), PauseScaling{at(99), "bob", "lunch"}, func(r Record) bool {
			return r.PausedSinceEpoch == at(5).Unix() && r.PausedBy == "alice" && r.PauseReason == "inventory"
		}},
		"pauseScaling leaves the open action alone": {up, PauseScaling{Now: at(5)}, func(r Record) bool { return r.Paused() && r.ScaleUpActionID == "up" }},
		"resumeScaling leaves nothing of the pause": {paused(leased()), ResumeScaling{}, func(r Record) bool { return !r.Paused() && r.PausedBy+r.PauseReason == "" && r.LeaseFence == 7 }},
		"an action that was begun goes on while paused": {paused(up), IntendLaunch{Fence: 7, ActionID: "up", Intent: launchIntent(1, 0, "t1")}, func(r Record) bool {
			return r.Paused() && r.ScaleUpIntent != nil
		}},
		"a begin whose reply was lost before the pause is recognised": {paused(up), BeginScaleUp{Fence: 7, ActionID: "up", Now: at(1), Requested: 2}, func(r Record) bool { return r.ScaleUpActionID == "up" }},
		"a repair begins while paused":                                {paused(leased()), BeginScaleUp{Fence: 7, ActionID: "up", Now: at(1), Requested: 2, Repair: true}, func(r Record) bool { return r.ScalingUp() && r.Paused() }},
		"finishRemoval drops a mark":                                  {apply(t, leased(), MarkTerminating{7, Removal{InstanceID: "i-1"}}), FinishRemoval{7, "i-1"}, func(r Record) bool { return r.Removals == nil }},
		"repairRecord clears a flag that names no action":             {func() Record { r := leased(); r.ScalingInProgress = true; return r }(), RepairRecord{7}, func(r Record) bool { return !r.ScalingInProgress }},
		"repairRecord leaves an action alone":                         {up, RepairRecord{7}, func(r Record) bool { return r.ScalingInProgress }},
		"acquireLease raises the fence": {NewRecord(""), AcquireLease{"a", at(0), time.Minute}, func(r Record) bool {
			return r.LeaseOwner == "a" && r.LeaseFence == 1 && r.LeaseUntilEpoch == at(60).Unix()
		}},
		"acquireLease takes an expired lease": {leased(), AcquireLease{"a", at(61), time.Minute}, func(r Record) bool { return r.LeaseOwner == "a" && r.LeaseFence == 8 }},
		"renewLease moves the expiry":         {leased(), RenewLease{"me", 7, at(30), time.Minute}, func(r Record) bool { return r.LeaseUntilEpoch == at(90).Unix() && r.LeaseFence == 7 }},
		"releaseLease keeps the fence":        {leased(), ReleaseLease{"me", 7}, func(r Record) bool { return r.LeaseOwner == "" && r.LeaseFence == 7 }},
		"releaseLease leaves a successor's":   {leased(), ReleaseLease{"old", 6}, func(r Record) bool { return r.LeaseOwner == "me" }},
		"releaseLease needs the owner":        {leased(), ReleaseLease{"old", 7}, func(r Record) bool { return r.LeaseOwner == "me" }},
		"releaseLease needs the fence":        {leased(), ReleaseLease{"me", 6}, func(r Record) bool { return r.LeaseOwner == "me" }},
		"a record of this version is written": {Record{SchemaVersion: SchemaVersion}, AcquireLease{"a", at(0), time.Minute}, func(r Record) bool { return r.LeaseOwner == "a" }},
		"intendLaunch replaces what it learns of an offering and keeps the others": {exhausted(upBegun(t)), IntendLaunch{Fence: 7, ActionID: "up", Intent: launchIntent(0, 0, "t0"), Exhausted: []Exhausted{{Zone: "a", UntilEpoch: 9}}}, func(r Record) bool {
			return slices.Equal(r.Exhausted, []Exhausted{{Zone: "b", UntilEpoch: 5}, {Zone: "a", UntilEpoch: 9}})
		}},
		"failScaleUp keeps a removal that is there": {apply(t, up, StartDrain{7, Removal{InstanceID: "i-1", DrainedSince: 5}}), FailScaleUp{Fence: 7, ActionID: "up", Now: at(9), Removals: []Removal{{InstanceID: "i-1"}, {InstanceID: "i-2"}}}, func(r Record) bool {
			m, _ := r.Removal("i-1")
			return len(r.Removals) == 2 && m.DrainedSince == 5
		}},
		"startDrain adds its start to a mark, which stays": {apply(t, leased(), MarkTerminating{7, Removal{InstanceID: "i-1"}}), StartDrain{7, Removal{InstanceID: "i-1", DrainedSince: 5}}, func(r Record) bool {
			m, _ := r.Removal("i-1")
			return m.DrainedSince == 5 && m.Phase == PhaseTerminating
		}},
		"startDrain begins while paused, since an interruption does not wait": {paused(leased()), StartDrain{7, Removal{InstanceID: "i-1", DrainedSince: 5}}, func(r Record) bool { return len(r.Removals) == 1 }},
		"startDrain of a worker that is not Ready is continued while paused": {paused(apply(t, leased(), MarkTerminating{7, Removal{InstanceID: "i-1"}})), StartDrain{7, Removal{InstanceID: "i-1", DrainedSince: 5, NotReady: true}}, func(r Record) bool {
			return r.Removals[0].DrainedSince == 5
		}},
		"startDrain of a worker that is not Ready begins": {leased(), StartDrain{7, Removal{InstanceID: "i-1", DrainedSince: 5, NotReady: true}}, func(r Record) bool { return len(r.Removals) == 1 }},
		"the sweep's own mark leaves the phase of the open scale-down alone": {down, MarkTerminating{7, Removal{InstanceID: "i-9"}}, func(r Record) bool {
			return r.ScaleDownPhase == PhaseDraining && len(r.Removals) == 1
		}},
		"what an ended scale-down left behind is marked without a phase": {leftBehind(t), MarkTerminating{7, downRemoval("i-1")}, func(r Record) bool { return r.ScaleDownPhase == "" && r.Removals[0].Phase == PhaseTerminating }},
		"markScaleDownInstanceDone goes on with the next target": {apply(t, down, StartDrain{7, downRemoval("i-1")}, MarkTerminating{7, downRemoval("i-1")}), MarkScaleDownInstanceDone{7, "down", "i-1"}, func(r Record) bool {
			return r.ScaleDownPhase == PhaseDraining
		}},
		"giveBack without a cause skips nothing": {apply(t, leased(), StartDrain{7, Removal{InstanceID: "i-1", DrainedSince: 1}}), GiveBack{7, "i-1", at(9), ""}, func(r Record) bool { return r.Removals == nil && r.SkipList == nil }},
		"giveBack counts the failures of each instance by itself": {skippedOnce(apply(t, leased(), StartDrain{7, Removal{InstanceID: "i-2", DrainedSince: 1}})), GiveBack{7, "i-2", at(9), "slow"}, func(r Record) bool {
			return slices.Equal(r.SkipList, []Skip{{InstanceID: "i-1", Failures: 1, UntilEpoch: 5}, {InstanceID: "i-2", Failures: 1, UntilEpoch: at(9 + 600).Unix(), Cause: "slow"}})
		}},
		"failScaleDown without a culprit skips nothing": {down, FailScaleDown{Fence: 7, ActionID: "down", Now: at(9), Cause: "timeout"}, func(r Record) bool { return r.SkipList == nil }},
		"failScaleDown leaves the removals of others alone, and they start no cooldown": {apply(t, down, StartDrain{7, Removal{InstanceID: "i-8", DrainedSince: 1}}, MarkTerminating{7, Removal{InstanceID: "i-9"}}), FailScaleDown{Fence: 7, ActionID: "down", Now: at(9)}, func(r Record) bool {
			return len(r.Removals) == 2 && r.LastScaleEpoch == 0
		}},
	} {
		t.Run(name, func(t *testing.T) {
			got, _, err := Applied(c.from, c.do)
			if err != nil {
				t.Fatal(err)
			}
			if !c.want(got) {
				b, _ := json.MarshalIndent(got, "", " ")
				t.Errorf("after %s: %s", c.do.Name(), b)
			}
		})
	}
}

func paused(r Record) Record {
	r.PausedSinceEpoch, r.PausedBy, r.PauseReason = at(5).Unix(), "alice", "inventory"
	return r
}

func exhausted(r Record) Record {
	r.Exhausted = []Exhausted{{Zone: "a", UntilEpoch: 5}, {Zone: "b", UntilEpoch: 5}}
	return r
}

// leftBehind returns a record with the removal of a scale-down that has ended.
func leftBehind(t *testing.T) Record {
	r := apply(t, leased(), StartDrain{7, Removal{InstanceID: "i-1", DrainedSince: 5}})
	r.Removals[0].ActionID = "down"
	return r
}

func failedOnce(r Record) Record {
	r.ScaleUpFailures, r.BackoffUntilEpoch = 1, 5
	return r
}

func skippedOnce(r Record) Record {
	r.SkipList = []Skip{{InstanceID: "i-1", Failures: 1, UntilEpoch: 5}}
	return r
}

func TestTransitionsRefuse(t *testing.T) {
	up, down := upLaunched(t), downBegun(t)
	marked := apply(t, leased(), MarkTerminating{7, Removal{InstanceID: "i-1"}})
	for name, c := range map[string]struct {
		from Record
		do   Transition
		why  error
	}{
		"a lease that is held":                        {leased(), AcquireLease{"a", at(60), time.Minute}, ErrLeaseHeld},
		"renewing a lease that passed on":             {leased(), RenewLease{"old", 6, at(1), time.Minute}, ErrStaleFence},
		"a second scale-up":                           {up, BeginScaleUp{Fence: 7, ActionID: "up2", Now: at(1), Requested: 1}, ErrScalingInProgress},
		"a scale-down during a scale-up":              {up, BeginScaleDown{Fence: 7, ActionID: "d", Now: at(1), Targets: nil, MaxActions: 1}, ErrScalingInProgress},
		"a scale-up during a scale-down":              {down, BeginScaleUp{Fence: 7, ActionID: "u", Now: at(1), Requested: 1}, ErrScalingInProgress},
		"a scale-up while paused":                     {paused(leased()), BeginScaleUp{Fence: 7, ActionID: "up", Now: at(6), Requested: 1}, ErrPaused},
		"a scale-down while paused":                   {paused(leased()), BeginScaleDown{Fence: 7, ActionID: "d", Now: at(6), Targets: nil, MaxActions: 1}, ErrPaused},
		"beginning an action that has ended":          {apply(t, up, CompleteScaleUp{Fence: 7, ActionID: "up", Now: at(2)}), BeginScaleUp{Fence: 7, ActionID: "up", Now: at(3), Requested: 1}, errNotThatAction},
		"an intent of another action":                 {up, IntendLaunch{Fence: 7, ActionID: "x", Intent: launchIntent(1, 0, "t")}, errNotThatAction},
		"an intent that skips an ordinal":             {up, IntendLaunch{Fence: 7, ActionID: "up", Intent: launchIntent(2, 0, "t")}, errNotRecorded},
		"an intent that goes back to an old attempt":  {apply(t, up, IntendLaunch{Fence: 7, ActionID: "up", Intent: launchIntent(1, 1, "t1")}), IntendLaunch{Fence: 7, ActionID: "up", Intent: launchIntent(1, 0, "t0")}, errNotRecorded},
		"an intent of the same attempt":               {apply(t, up, IntendLaunch{Fence: 7, ActionID: "up", Intent: launchIntent(1, 1, "t1")}), IntendLaunch{Fence: 7, ActionID: "up", Intent: launchIntent(1, 1, "t2")}, errNotRecorded},
		"recording with another token":                {apply(t, up, IntendLaunch{Fence: 7, ActionID: "up", Intent: launchIntent(1, 1, "t1")}), RecordScaleUpInstances{7, "up", "t0", "i-9", at(2)}, errNotRecorded},
		"draining what another action left behind":    {leftBehind(t), StartDrain{7, Removal{InstanceID: "i-1", ActionID: "other"}}, errNotThatAction},
		"draining what no action left behind":         {leftBehind(t), StartDrain{7, Removal{InstanceID: "i-2", ActionID: "down"}}, errNotThatAction},
		"removing what is not Ready while paused":     {paused(leased()), StartDrain{7, Removal{InstanceID: "i-1", NotReady: true}}, ErrPaused},
		"recording without an intent":                 {up, RecordScaleUpInstances{7, "up", "t9", "i-9", at(2)}, errNotRecorded},
		"recording for another action":                {up, RecordScaleUpInstances{7, "x", "t", "i-9", at(2)}, errNotThatAction},
		"reducing when nothing was launched":          {upBegun(t), ReduceScaleUp{Fence: 7, ActionID: "up"}, errNotRecorded},
		"completing another action":                   {up, CompleteScaleUp{Fence: 7, ActionID: "x", Now: at(2)}, errNotThatAction},
		"failing another action":                      {up, FailScaleUp{Fence: 7, ActionID: "x"}, errNotThatAction},
		"completing a scale-down that is not done":    {down, CompleteScaleDown{7, "down", at(2)}, errUnfinished},
		"marking done what is not a target":           {down, MarkScaleDownInstanceDone{7, "down", "i-9"}, errNotRecorded},
		"draining for an action that is not open":     {leased(), StartDrain{7, downRemoval("i-1")}, errNotThatAction},
		"draining what is not a target":               {down, StartDrain{7, downRemoval("i-9")}, errNotRecorded},
		"the sweep marking a scale-down's target":     {down, MarkTerminating{7, Removal{InstanceID: "i-1"}}, errNotThatAction},
		"the sweep finishing a scale-down's target":   {apply(t, down, StartDrain{7, downRemoval("i-1")}), FinishRemoval{7, "i-1"}, errNotThatAction},
		"giving back a marked instance":               {marked, GiveBack{7, "i-1", at(1), ""}, errMarked},
		"failing another scale-down":                  {down, FailScaleDown{Fence: 7, ActionID: "x"}, errNotThatAction},
		"a record of a newer version":                 {Record{SchemaVersion: 99}, AcquireLease{"a", at(0), time.Minute}, ErrSchemaTooNew},
		"beginScaleUp with a stale fence":             {leased(), BeginScaleUp{Fence: 6, ActionID: "up", Now: at(1), Requested: 2}, ErrStaleFence},
		"intendLaunch with a stale fence":             {up, IntendLaunch{Fence: 6, ActionID: "up", Intent: launchIntent(1, 0, "t")}, ErrStaleFence},
		"recordScaleUpInstances with a stale fence":   {up, RecordScaleUpInstances{6, "up", "t0", "i-1", at(2)}, ErrStaleFence},
		"reduceScaleUp with a stale fence":            {up, ReduceScaleUp{Fence: 6, ActionID: "up"}, ErrStaleFence},
		"completeScaleUp with a stale fence":          {up, CompleteScaleUp{Fence: 6, ActionID: "up", Now: at(1)}, ErrStaleFence},
		"failScaleUp with a stale fence":              {up, FailScaleUp{Fence: 6, ActionID: "up"}, ErrStaleFence},
		"beginScaleDown with a stale fence":           {leased(), BeginScaleDown{Fence: 6, ActionID: "d", Now: at(1), Targets: nil, MaxActions: 1}, ErrStaleFence},
		"startDrain with a stale fence":               {down, StartDrain{6, downRemoval("i-1")}, ErrStaleFence},
		"markTerminating with a stale fence":          {down, MarkTerminating{6, downRemoval("i-1")}, ErrStaleFence},
		"markScaleDownInstanceDone with stale fence":  {down, MarkScaleDownInstanceDone{6, "down", "i-1"}, ErrStaleFence},
		"completeScaleDown with a stale fence":        {down, CompleteScaleDown{6, "down", at(1)}, ErrStaleFence},
		"failScaleDown with a stale fence":            {down, FailScaleDown{Fence: 6, ActionID: "down"}, ErrStaleFence},
		"giveBack with a stale fence":                 {marked, GiveBack{6, "i-1", at(1), ""}, ErrStaleFence},
		"finishRemoval with a stale fence":            {marked, FinishRemoval{6, "i-1"}, ErrStaleFence},
		"noteObservation with a stale fence":          {leased(), Note{Fence: 6}, ErrStaleFence},
		"repairRecord with a stale fence":             {leased(), RepairRecord{6}, ErrStaleFence},
		"renewLease of a released lease by its owner": {apply(t, leased(), ReleaseLease{"me", 7}), RenewLease{"me", 7, at(1), time.Minute}, ErrStaleFence},
	} {
		t.Run(name, func(t *testing.T) {
			got, changed, err := Applied(c.from, c.do)
			if !errors.Is(err, c.why) || !IsRefused(err) {
				t.Fatalf("got %v, want a refusal because %v", err, c.why)
			}
			if changed || !equal(got, c.from) {
				t.Error("a refused transition changed the record")
			}
		})
	}
}

func TestRepeatedTransitionsChangeNothingSoThatALostReplyIsRecognised(t *testing.T) {
	marking := apply(t, downBegun(t), StartDrain{7, downRemoval("i-1")})
	ended := apply(t, downBegun(t), MarkScaleDownInstanceDone{7, "down", "i-1"}, MarkScaleDownInstanceDone{7, "down", "i-2"})
	for _, c := range []struct {
		from Record
		do   Transition
	}{
		{NewRecord(""), AcquireLease{"a", at(0), time.Minute}},
		{leased(), RenewLease{"me", 7, at(30), time.Minute}},
		{leased(), PauseScaling{at(5), "alice", "inventory"}},
		{paused(leased()), ResumeScaling{}},
		{leased(), ReleaseLease{"me", 7}},
		{leased(), Note{Fence: 7, Now: at(1), Workers: ptr(3), Pending: ptr(true), Idle: ptr(false), CPUHigh: ptr(true), Alive: []string{"i"}, Joined: []string{"i"}}},
		{leased(), NotePrices{Fence: 7, Prices: &Prices{OnDemand: &PriceList{USD: map[string]float64{"m": 1}, Epoch: 1}}}},
		{leased(), BeginScaleUp{Fence: 7, ActionID: "up", Now: at(1), Requested: 2}},
		{upBegun(t), IntendLaunch{Fence: 7, ActionID: "up", Intent: launchIntent(0, 0, "t0"), Exhausted: []Exhausted{{Zone: "a", UntilEpoch: 9}}}},
		{apply(t, upBegun(t), IntendLaunch{Fence: 7, ActionID: "up", Intent: launchIntent(0, 0, "t0")}), RecordScaleUpInstances{7, "up", "t0", "i-1", at(2)}},
		{upLaunched(t), ReduceScaleUp{Fence: 7, ActionID: "up"}},
		{upLaunched(t), CompleteScaleUp{Fence: 7, ActionID: "up", Now: at(2)}},
		{upLaunched(t), FailScaleUp{Fence: 7, ActionID: "up", Now: at(2), Backoff: time.Minute, Removals: []Removal{{InstanceID: "i-1"}}}},
		{leased(), BeginScaleDown{Fence: 7, ActionID: "down", Now: at(1), Targets: []string{"i-1"}, MaxActions: 1}},
		{downBegun(t), StartDrain{7, downRemoval("i-1")}},
		{marking, MarkTerminating{7, downRemoval("i-1")}},
		{marking, MarkScaleDownInstanceDone{7, "down", "i-1"}},
		{ended, CompleteScaleDown{7, "down", at(3)}},
		{marking, FailScaleDown{7, "down", at(3), "i-1", "cause", false}},
		{apply(t, leased(), StartDrain{7, Removal{InstanceID: "i-1", DrainedSince: 1}}), GiveBack{7, "i-1", at(3), "cause"}},
		{apply(t, leased(), MarkTerminating{7, Removal{InstanceID: "i-1"}}), FinishRemoval{7, "i-1"}},
	} {
		t.Run(c.do.Name(), func(t *testing.T) {
			before := c.from.Clone()
			once, changed, err := Applied(c.from, c.do)
			if err != nil || !changed || once.Revision != c.from.Revision+1 {
				t.Fatalf("first time: changed %v, revision %d, %v", changed, once.Revision, err)
			}
			if !equal(before, c.from) {
				t.Error("the transition altered the record it was given")
			}
			twice, changed, err := Applied(once, c.do)
			if err != nil || changed || !equal(once, twice) {
				t.Errorf("second time: changed %v, %v", changed, err)
			}
		})
	}
}

func ptr[T any](v T) *T { return &v }

func TestNoteKeepsSinceEpochsWhileTheyHold(t *testing.T) {
	r := leased()
	r.PendingSinceEpoch, r.IdleSinceEpoch, r.CPUHighSinceEpoch = Num(5), Num(6), 7
	r.Joined, r.SkipList = []string{"i-old", "i-1"}, []Skip{{InstanceID: "i-old"}, {InstanceID: "i-1"}}
	r.Exhausted = []Exhausted{{Zone: "a", UntilEpoch: at(9).Unix()}, {Zone: "b", UntilEpoch: at(11).Unix()}, {Zone: "c", UntilEpoch: at(10).Unix()}}
	for name, c := range map[string]struct {
		note Note
		want func(Record) bool
	}{
		"what still holds keeps its start": {Note{Pending: ptr(true), Idle: ptr(true), CPUHigh: ptr(true)}, func(r Record) bool {
			return r.PendingSinceEpoch == Num(5) && r.IdleSinceEpoch == Num(6) && r.CPUHighSinceEpoch == 7
		}},
		"what no longer holds is zeroed": {Note{Pending: ptr(false), Idle: ptr(false), CPUHigh: ptr(false)}, func(r Record) bool {
			return r.PendingSinceEpoch == Num(0) && r.IdleSinceEpoch == Num(0) && r.CPUHighSinceEpoch == 0
		}},
		"what can't be seen ends idleness only": {Note{}, func(r Record) bool {
			return r.PendingSinceEpoch == Num(5) && r.IdleSinceEpoch == Num(0) && r.CPUHighSinceEpoch == 7 && len(r.Joined) == 2
		}},
		"instances that are gone are forgotten": {Note{Alive: []string{"i-1", "i-2", "i-3"}, Joined: []string{"i-2"}}, func(r Record) bool {
			return slices.Equal(r.Joined, []string{"i-1", "i-2"}) && len(r.SkipList) == 1
		}},
		"expired offerings are dropped": {Note{}, func(r Record) bool { return len(r.Exhausted) == 1 && r.Exhausted[0].Zone == "b" }},
		"workers are counted":           {Note{Workers: ptr(4)}, func(r Record) bool { return r.WorkerCount == Num(4) }},
	} {
		t.Run(name, func(t *testing.T) {
			c.note.Fence, c.note.Now = 7, at(10)
			if got := apply(t, r, c.note); !c.want(got) {
				t.Errorf("%+v", got)
			}
		})
	}
}

func TestBackoffDoublesUpToItsLimit(t *testing.T) {
	for n, want := range []time.Duration{1: time.Minute, 2: 2 * time.Minute, 3: 4 * time.Minute, 7: time.Hour, 500: time.Hour} {
		if want != 0 && doubled(time.Minute, n, time.Hour) != want {
			t.Errorf("after %d failures %v, want %v", n, doubled(time.Minute, n, time.Hour), want)
		}
	}
}
