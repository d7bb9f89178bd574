package nodes_test

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/muster-dev/muster/nodes"
	"github.com/muster-dev/muster/nodes/sim"
)

// The invariants. Each is judged from the simulated region's ledger and final state alone.
const (
	oneAction      = "as many actions as MAX_ACTIONS, one of them launching"
	noneLeaked     = "no instance leaked"
	launchedOnce   = "no instance launched twice"
	tokenPerTry    = "one token, one request"
	intentFirst    = "a launch is written down before it is made"
	recordedNext   = "an instance is recorded before the next is launched"
	markedFirst    = "no termination without its mark"
	markFinal      = "a marked instance is never given back"
	drainedFirst   = "no worker terminated undrained"
	onlyOurs       = "only what Muster launched is reaped"
	minKept        = "MIN_WORKERS undercut only by outside loss"
	zoneKept       = "no zone emptied"
	maxKept        = "MAX_WORKERS passed only by open replacements"
	cooldownAtEnd  = "cooldown starts at completion only"
	verifiedReady  = "complete means Ready"
	writesFenced   = "only the lease holder writes"
	drainLimit     = "a drain has one deadline"
	liveNodesStay  = "no Node object of a living worker deleted"
	interruptsDone = "an interruption is worked to its end"
	atRest         = "at rest in time"
	asExpected     = "the scenario ends as it has to"
	handedFirst    = "no worker evicted while it holds its work"
	targetsStay    = "a scale-down's target is not replaced"
	pauseHolds     = "a pause begins nothing but a repair"
	poolKept       = "a pool's limit passed only by open replacements"
	poolsOwn       = "an instance boots from its pool's template"
	budgetKept     = "no more workers consolidated or replaced within an hour than CONSOLIDATE_PER_HOUR"
	longNotReady   = "a worker is given up only after NOT_READY_TIMEOUT_SEC, IMPAIRED_TIMEOUT_SEC or DISK_PRESSURE_TIMEOUT_SEC, and not while many are like it"
)

// cordon is when a node was cordoned, and how many leases had run out before.
type cordon struct {
	at     time.Time
	ranOut int
}

// slack is how old an observation may be when it is acted on: one call's deadline.
const slack = 16 * time.Second

// violation is an invariant that did not hold.
type violation struct{ invariant, what string }

// judge checks the ledger of a stage.
type judge struct {
	s          *stage
	violations []violation
	record     *nodes.Record // as last written
	holder     string        // actor that last took the lease
	lastOut    time.Time     // last loss from outside
	launches   map[string]*sim.Entry
	gone       map[string]bool
	marked     map[string]bool
	intents    map[nodes.LaunchRequest]bool
	ready      map[string]bool
	changed    map[string]time.Time  // when readiness changed last
	taken      map[string]time.Time  // when the cloud took an instance away
	cordoned   map[string]cordon     // by instance and claim
	ranOut     int                   // leases so far that another actor took before they were given back
	warned     map[string]bool       // joined workers with a Spot warning
	replaced   map[string]bool       // instances for which a replacement was launched
	noReplace  map[string]bool       // items that say no replacement, or could get none
	opened     map[string]bool       // instances with an item
	items      map[string]*sim.Entry // the last write of each item
	full       map[string]time.Time  // whose disk is full, since when
	free       map[string]time.Time  // and whose no longer is
	impaired   map[string]time.Time  // whose instance fails a status check, since when
	well       map[string]time.Time  // and whose no longer does
	merged     []time.Time           // workers whose removal a consolidation or drift began; in its scenarios the cluster is never idle
	givenUp    map[string]bool       // marked because they were not Ready
}

func check(s *stage) []violation {
	j := &judge{s: s, launches: map[string]*sim.Entry{}, gone: map[string]bool{}, marked: map[string]bool{}, intents: map[nodes.LaunchRequest]bool{},
		ready: map[string]bool{}, changed: map[string]time.Time{}, taken: map[string]time.Time{}, cordoned: map[string]cordon{}, warned: map[string]bool{},
		replaced: map[string]bool{}, noReplace: map[string]bool{}, opened: map[string]bool{}, items: map[string]*sim.Entry{}, full: map[string]time.Time{}, free: map[string]time.Time{}, impaired: map[string]time.Time{}, well: map[string]time.Time{}, givenUp: map[string]bool{}}
	ledger := s.Ledger()
	for i := range ledger {
		j.entry(&ledger[i])
	}
	j.end()
	return j.violations
}

func (j *judge) fail(invariant, what string, args ...any) {
	j.violations = append(j.violations, violation{invariant, fmt.Sprintf(what, args...)})
}

func (j *judge) entry(e *sim.Entry) {
	switch e.Kind {
	case sim.Launched, sim.LaunchedAgain:
		j.launch(e)
	case sim.TokenMismatch:
		j.fail(tokenPerTry, "token %.8s came with another request", e.Request.Token)
	case sim.Terminated:
		j.terminated(e)
	case sim.TakenAway:
		j.gone[e.Instance], j.lastOut, j.taken[e.Instance] = true, e.At, e.At
	case sim.Warned:
		j.lastOut = e.At
		if e.Facts.Joined && e.Detail == string(nodes.Warning) {
			j.warned[e.Instance] = true
		}
	case sim.Evicted:
		if e.Holding && !j.s.sc.deaf {
			j.fail(handedFirst, "%s on %s", e.Detail, e.Instance)
		}
	case sim.BecameReady, sim.BecameNotReady:
		j.ready[e.Instance], j.changed[e.Instance] = e.Kind == sim.BecameReady, e.At
		if e.Kind == sim.BecameNotReady {
			j.lastOut = e.At
		}
	case sim.DiskFull:
		j.full[e.Instance] = e.At
	case sim.DiskFree:
		delete(j.full, e.Instance)
		j.free[e.Instance] = e.At
	case sim.Impaired:
		j.impaired[e.Instance] = e.At
	case sim.Unimpaired:
		delete(j.impaired, e.Instance)
		j.well[e.Instance] = e.At
	case sim.Cordoned:
		if _, ok := j.cordoned[e.Instance+e.Detail]; !ok {
			j.cordoned[e.Instance+e.Detail] = cordon{e.At, j.ranOut}
		}
	case sim.Uncordoned:
		if j.marked[e.Instance] && !j.gone[e.Instance] {
			j.fail(markFinal, "%s was uncordoned", e.Instance)
		}
		j.cordonEnds(e, e.Detail)
	case sim.NodeRemoved:
		if e.Facts.Alive && !j.marked[e.Instance] {
			j.fail(liveNodesStay, "%s", e.Instance)
		}
	case sim.Written:
		j.written(e)
	case sim.WrittenItem:
		j.item(e)
	}
}

func (j *judge) launch(e *sim.Entry) {
	req := e.Request
	if req.Token == "" || len(req.Token) > 64 {
		j.fail(tokenPerTry, "a launch with token %q", req.Token)
	}
	if strings.HasPrefix(req.Token, "orphan") {
		return
	}
	if !j.intents[req] {
		j.fail(intentFirst, "%s by %s", e.Instance, req.ActionID)
	}
	if e.Kind == sim.LaunchedAgain {
		return
	}
	key := fmt.Sprint(req.ActionID, "/", req.Ordinal)
	if old := j.launches[key]; old != nil && !j.gone[old.Instance] {
		j.fail(launchedOnce, "%s has %s and %s", key, old.Instance, e.Instance)
	}
	j.launches[key] = e
	j.pool(e)
	if of, ok := strings.CutPrefix(req.ActionID, "int-"); ok {
		j.replaced[of] = true
		return
	}
	if e.Late {
		return // no cloud refuses a request for its age of a minute or two: what comes of it has to be reaped or to join, no more
	}
	if j.record == nil || !j.record.Open(req.ActionID) {
		j.fail(oneAction, "%s was launched by %s, which is not open", e.Instance, req.ActionID)
	} else if n := len(j.record.Of(req.ActionID).ScaleUpInstanceIDs); n < req.Ordinal {
		j.fail(recordedNext, "ordinal %d was launched with %d recorded", req.Ordinal, n)
	}
	replacements := 0
	for k, l := range j.launches {
		if strings.HasPrefix(k, "int-") && !j.gone[l.Instance] {
			replacements++
		}
	}
	if e.Facts.AliveAll > j.s.policy.MaxWorkers+replacements {
		j.fail(maxKept, "%d workers with %s", e.Facts.AliveAll, e.Instance)
	}
}

// pool judges the launch of an instance in a pool, by what was launched in it and has not ended.
func (j *judge) pool(e *sim.Entry) {
	pool, ok := j.s.policy.PoolNamed(e.Request.Offering.Pool)
	if !ok {
		if len(j.s.policy.Pools) > 0 {
			j.fail(poolsOwn, "%s is of no pool", e.Instance)
		}
		return
	}
	if t := templatesOf(j.s.policy)[pool.Name]; e.Request.Template != t {
		j.fail(poolsOwn, "%s of pool %s boots from %s", e.Instance, pool.Name, e.Request.Template.ID)
	}
	if len(pool.Zones) > 0 && !slices.Contains(pool.Zones, e.Zone) {
		j.fail(poolsOwn, "%s of pool %s is in zone %s", e.Instance, pool.Name, e.Zone)
	}
	j.limits(e, pool)
}

// limits judges what is alive in a pool of what was launched in it. A replacement doesn't count while the worker lives that it is for.
func (j *judge) limits(e *sim.Entry, pool nodes.Pool) {
	used, catalog := nodes.Limits{}, poolCatalog()
	for key, l := range j.launches {
		if l.Request.Offering.Pool != pool.Name || j.gone[l.Instance] {
			continue
		}
		if of, ok := strings.CutPrefix(key, "int-"); ok && !j.gone[strings.TrimSuffix(of, "/0")] {
			continue
		}
		size, _ := catalog.Size(l.Request.Offering.Type)
		used.Nodes++
		used.CPU += int(size.MilliCPU / 1000)
		used.Memory += size.Memory
	}
	limit := pool.Limits
	passed := limit.Nodes > 0 && used.Nodes > limit.Nodes || limit.CPU > 0 && used.CPU > limit.CPU || limit.Memory > 0 && used.Memory > limit.Memory
	if passed && !e.Late {
		j.fail(poolKept, "%s in %s with %s", used, pool.Name, e.Instance)
	}
}

func (j *judge) terminated(e *sim.Entry) {
	f := e.Facts
	j.gone[e.Instance] = true
	if f.Control {
		j.fail(onlyOurs, "%s is a server of the control plane", e.Instance)
	}
	if f.HandMade && !f.EverReady {
		j.fail(onlyOurs, "%s was made by a person", e.Instance)
	}
	if !j.marked[e.Instance] {
		j.fail(markedFirst, "%s", e.Instance)
	}
	justReady := !f.ReadySince.IsZero() && e.At.Sub(f.ReadySince) < slack
	// A worker that is not Ready can't be drained. Whether it was given up rightly is judged at its mark.
	givenUp := j.givenUp[e.Instance] && f.ReadySince.IsZero() && f.Cordoned
	if f.EverReady && f.Joined && (!f.Cordoned || f.Pods > 0) && !justReady && !givenUp {
		j.fail(drainedFirst, "%s with %d pods, cordoned %t", e.Instance, f.Pods, f.Cordoned)
	}
	j.cordonEnds(e, "")
}

// cordonEnds judges how long a node was cordoned for a drain; with an empty claim, for any.
func (j *judge) cordonEnds(e *sim.Entry, claim string) {
	for key, since := range j.cordoned {
		own, ok := strings.CutPrefix(key, e.Instance)
		if !ok || claim != "" && own != claim {
			continue
		}
		delete(j.cordoned, key)
		if strings.HasPrefix(own, "int-") || j.s.sc.outage {
			continue // a warned node stays cordoned until its end; in an outage nobody can uncordon
		}
		// One drain deadline for each target and the tick in which it is noticed; after each fault, a lease that runs out and another tick.
		// Actors at the same time take the lease from each other far more often.
		faults := max(len(j.s.plan.faults), j.ranOut-since.ranOut)
		limit := time.Duration(j.s.policy.MaxBatchDown)*j.s.policy.DrainTimeout + 90*time.Second + time.Duration(faults)*3*time.Minute + j.s.plan.pause
		if took := e.At.Sub(since.at); took > limit {
			j.fail(drainLimit, "%s was cordoned for %s, with %d faults", e.Instance, took, faults)
		}
	}
}

func (j *judge) written(e *sim.Entry) {
	before, after := e.Before, e.After
	j.record = after
	switch {
	case e.Detail == "acquireLease":
		if before.LeaseOwner != "" {
			j.ranOut++
		}
		j.holder = e.Actor
	case e.Detail == "pauseScaling" || e.Detail == "resumeScaling": // by people, who hold no lease
	case e.Actor != j.holder:
		j.fail(writesFenced, "%s by %s while %s holds the lease", e.Detail, e.Actor, j.holder)
	}
	begun := begins(before, after)
	if n := len(after.Actions()); begun != "" && n > max(j.s.policy.MaxActions, 1) {
		j.fail(oneAction, "%s began as one of %d", begun, n)
	}
	launching := 0
	for _, a := range after.Actions() {
		if a.Launching() {
			launching++
		}
		if i := a.ScaleUpIntent; i != nil {
			j.intents[i.Request] = true
		}
	}
	if launching > 1 {
		j.fail(oneAction, "%d scale-ups are launching", launching)
	}
	if begun != "" && before.Paused() {
		if repair := e.Detail == "beginScaleUp" && before.WorkerCount.Value() < int64(j.s.policy.MinWorkers); !repair {
			j.fail(pauseHolds, "%s with %d workers", e.Detail, before.WorkerCount.Value())
		}
	}
	if before.Paused() && !after.Paused() && e.Detail != "resumeScaling" {
		j.fail(pauseHolds, "%s ended the pause", e.Detail)
	}
	j.budget(e)
	j.cooldown(e)
	j.marks(e)
}

func (j *judge) cooldown(e *sim.Entry) {
	before, after := e.Before, e.After
	if before.LastScaleEpoch != after.LastScaleEpoch {
		ended := begins(after, before) != ""
		if !ended || e.Detail == "failScaleUp" {
			j.fail(cooldownAtEnd, "%s set lastScaleEpoch", e.Detail)
		}
	}
	verified := e.Detail == "completeScaleUp" || e.Detail == "completeReplacement"
	if !verified || e.Late { // nobody had taken the lease meanwhile: as if what happened meanwhile had happened after
		return
	}
	ready := 0
	own := before.Of(begins(after, before))
	if !own.ScalingUp() {
		return
	}
	for _, id := range own.ScaleUpInstanceIDs {
		if j.ready[id] && !j.gone[id] || j.unseen(e, j.changed[id]) || j.unseen(e, j.taken[id]) {
			ready++
		}
	}
	if ready < own.ScaleUpRequested {
		j.fail(verifiedReady, "%s with %d of %d Ready", own.ScaleUpActionID, ready, own.ScaleUpRequested)
	}
}

// unseen reports whether what happened at a time can have come after the last look of the process that writes an entry. No store can
// compare a write with the cluster, so a process that stands still between its look and its write acts by an old view, until its lease has
// run out. One that goes on has no such excuse.
func (j *judge) unseen(e *sim.Entry, at time.Time) bool {
	if at.IsZero() {
		return false
	}
	stood := time.Duration(0)
	if j.s.stood != nil {
		stood = j.s.stood(e.Actor, at, e.At)
	}
	return e.At.Sub(at) < slack+stood
}

// budget counts the workers that consolidations are about to remove, by the actions alone and not by what the record keeps of them. An
// hour is one between the times at which they began, in whole seconds as the actions say them: a write may arrive some seconds later.
func (j *judge) budget(e *sim.Entry) {
	off := j.s.policy.Consolidation == "" || j.s.policy.Consolidation == nodes.ConsolidationOff
	if off && !j.s.policy.Drift && j.s.policy.ExpireAfter == 0 {
		return
	}
	if own := e.Before.Of(begins(e.After, e.Before)); e.Detail == "failScaleUp" && len(own.ScaleUpInstanceIDs) == 0 {
		for range own.ScaleUpReplaces { // it launched nothing, so it disturbs none
			if i := slices.Index(j.merged, time.Unix(own.ScaleUpStartedEpoch, 0)); i >= 0 {
				j.merged = slices.Delete(j.merged, i, i+1)
			}
		}
	}
	own := e.After.Of(begins(e.Before, e.After))
	workers, began := 0, int64(0)
	switch e.Detail {
	case "beginScaleUp":
		workers, began = len(own.ScaleUpReplaces), own.ScaleUpStartedEpoch
	case "beginScaleDown":
		workers, began = len(own.ScaleDownTargetInstanceIDs), own.ScaleDownStartedEpoch
	}
	if workers == 0 {
		return
	}
	now := time.Unix(began, 0)
	for range workers {
		j.merged = append(j.merged, now)
	}
	j.merged = slices.DeleteFunc(j.merged, func(at time.Time) bool { return now.Sub(at) >= time.Hour })
	if len(j.merged) > j.s.policy.ConsolidatePerHour {
		j.fail(budgetKept, "%d within an hour", len(j.merged))
	}
}

// begins returns the action that is open after a write and was not before it, "" if there is none.
func begins(before, after *nodes.Record) string {
	for _, a := range after.Actions() {
		if !before.Open(a.ID()) {
			return a.ID()
		}
	}
	return ""
}

func (j *judge) marks(e *sim.Entry) {
	for _, m := range e.Before.Removals {
		if m.Phase != nodes.PhaseTerminating || j.gone[m.InstanceID] {
			continue
		}
		if now, ok := e.After.Removal(m.InstanceID); !ok || now.Phase != nodes.PhaseTerminating {
			j.fail(markFinal, "%s took the mark from %s", e.Detail, m.InstanceID)
		}
	}
	for _, m := range e.After.Removals {
		if old, _ := e.Before.Removal(m.InstanceID); m.Phase == nodes.PhaseTerminating && old.Phase != nodes.PhaseTerminating {
			j.mark(m.InstanceID, e, m.DiskFull || m.Impaired)
			if m.Impaired {
				j.impairment(m.InstanceID, e)
			}
			if m.DiskFull {
				j.fullDisk(m.InstanceID, e)
			}
			if m.NotReady {
				j.giveUp(m.InstanceID, e)
			}
		}
	}
}

// fullDisk judges the mark of a worker because of its disk, beside what changed too short a time ago to be seen.
func (j *judge) fullDisk(id string, e *sim.Entry) {
	at, full := j.full[id]
	if !full && !j.unseen(e, j.free[id]) || full && e.At.Sub(at) < j.s.policy.DiskPressureFor {
		j.fail(longNotReady, "%s was marked; its disk is full %t, since %s", id, full, at)
	}
}

// impairment judges the mark of a worker because of a status check of its instance, beside what changed too short a time ago to be seen.
// Where its node is not Ready it was not drained.
func (j *judge) impairment(id string, e *sim.Entry) {
	at, failed := j.impaired[id]
	if !failed && !j.unseen(e, j.well[id]) || failed && e.At.Sub(at) < j.s.policy.ImpairedFor {
		j.fail(longNotReady, "%s was marked; its instance fails a status check %t, since %s", id, failed, at)
	}
	j.givenUp[id] = !j.ready[id]
	failing := 0
	for other, since := range j.impaired {
		if !j.gone[other] && !j.elsewhere(other, e) && e.At.Sub(since) > time.Minute+slack {
			failing++
		}
	}
	if failing > 1 && 3*failing >= e.Facts.AliveAll {
		j.fail(longNotReady, "%s was marked while %d of %d instances failed a status check", id, failing, e.Facts.AliveAll)
	}
}

// giveUp judges the mark of a worker that is not Ready, beside what changed too short a time ago to be seen.
func (j *judge) giveUp(id string, e *sim.Entry) {
	j.givenUp[id] = true
	since := e.At.Sub(j.changed[id])
	if j.ready[id] && since > slack || !j.ready[id] && since < j.s.policy.NotReadyFor {
		j.fail(longNotReady, "%s was marked; Ready %t for %s", id, j.ready[id], since)
	}
	down := 0
	for other, ready := range j.ready {
		if !ready && !j.elsewhere(other, e) && !j.gone[other] && e.At.Sub(j.changed[other]) > time.Minute+slack {
			down++
		}
	}
	if down > 1 && 3*down >= e.Facts.AliveAll {
		j.fail(longNotReady, "%s was marked while %d of %d were not Ready", id, down, e.Facts.AliveAll)
	}
}

// elsewhere reports whether something else than a repair deals with a worker that is not Ready: the scale-up that launched it, or the
// interruption, open or closed a moment ago, of itself or of the worker that it replaces. Such a worker says nothing of the others: the
// one has just booted, and the other is ended by the cloud.
func (j *judge) elsewhere(id string, e *sim.Entry) bool {
	if slices.ContainsFunc(e.After.Actions(), func(a nodes.ScalingAction) bool { return slices.Contains(a.ScaleUpInstanceIDs, id) }) {
		return true
	}
	for _, i := range j.items {
		if (i.Item.InstanceID == id || i.Item.ReplacementID == id) && (!i.Item.Closed || j.unseen(e, i.At)) {
			return true
		}
	}
	return false
}

// mark judges the cluster at the moment of a mark, beside what was lost from outside too short a time ago to be seen.
// A worker whose disk is full or whose instance fails a status check can't be kept, so it may go as the last of its zone, and at MAX_WORKERS, where nothing can be launched beside
// it, below MIN_WORKERS.
func (j *judge) mark(id string, e *sim.Entry, unwell bool) {
	f := e.Facts
	j.marked[id] = true
	if f.ReadySince.IsZero() || !f.Alive || e.At.Sub(j.lastOut) < slack && !j.lastOut.IsZero() {
		return
	}
	if f.Available < j.s.policy.MinWorkers && (!unwell || f.AliveAll < j.s.policy.MaxWorkers) {
		j.fail(minKept, "%s was marked with %d other workers available", id, f.Available)
	}
	if !unwell && f.InZone == 0 && f.Elsewhere > 0 && !j.s.policy.EmptyZones {
		j.fail(zoneKept, "%s was marked as the last of its zone", id)
	}
}

func (j *judge) item(e *sim.Entry) {
	i := e.Item
	j.opened[i.InstanceID], j.items[i.InstanceID] = true, e
	if i.Intent != nil {
		j.intents[i.Intent.Request] = true
	}
	if i.Marked && !j.marked[i.InstanceID] {
		j.mark(i.InstanceID, e, false)
	}
	if r := j.record; e.Detail == "planInterruption" && i.Replace == nodes.ReplaceYes && r != nil && r.Targets(i.InstanceID) &&
		e.At.Sub(targetSince(*r, i.InstanceID)) > slack {
		j.fail(targetsStay, "%s", i.InstanceID)
	}
	if i.Replace == nodes.ReplaceNo || i.LaunchFailed != "" {
		j.noReplace[i.InstanceID] = true
	}
}

// targetSince is when the scale-down began that has an instance as its target.
func targetSince(r nodes.Record, instanceID string) time.Time {
	for _, a := range r.Actions() {
		if a.Targets(instanceID) {
			return time.Unix(a.ScaleDownStartedEpoch, 0)
		}
	}
	return time.Time{}
}

// end judges the state in which everything came to rest.
func (j *judge) end() {
	s := j.s
	r, f := s.Record(), s.Fleet()
	switch {
	case r.ScalingInProgress:
		j.fail(atRest, "%s is open", r.ActionID())
	case len(r.Removals) > 0:
		j.fail(atRest, "removals %+v", r.Removals)
	case r.LeaseOwner != "":
		j.fail(atRest, "the lease is held by %s", r.LeaseOwner)
	case s.OpenItems() > 0:
		j.fail(atRest, "%d interruptions open", s.OpenItems())
	case f.Cordoned > 0 || f.StaleNodes > 0:
		j.fail(atRest, "%d cordoned, %d Node objects of instances that are gone", f.Cordoned, f.StaleNodes)
	case f.Requested > 0 && !j.requestedLate():
		j.fail(atRest, "the evictions of %d pods on workers that stay are requested", f.Requested)
	case f.Available < s.policy.MinWorkers:
		j.fail(atRest, "%d workers available", f.Available)
	}
	if f.Nodeless > s.sc.nodeless {
		j.fail(noneLeaked, "%d instances without a node", f.Nodeless)
	}
	for id := range j.warned {
		if !j.opened[id] && s.plan.pause > 100*time.Second {
			continue // nobody was there to hear it before it was too late
		}
		if !j.replaced[id] && !j.noReplace[id] {
			j.fail(interruptsDone, "%s was warned and nothing was done", id)
		}
	}
	if s.sc.undone != nil && len(s.plan.faults) == 0 {
		if why := s.sc.undone(s); why != "" {
			j.fail(asExpected, "%s", why)
		}
	}
	if s.sc.want != nil {
		if why := s.sc.want(s); why != "" {
			j.fail(asExpected, "%s", why)
		}
	}
}

// requestedLate reports whether a request for evictions arrived long after it was sent, maybe when its node was already given back. It ends
// with its pod, which hands off and is evicted once for nothing: there is no condition on the node that the Kubernetes API could check.
func (j *judge) requestedLate() bool {
	return slices.ContainsFunc(j.s.Ledger(), func(e sim.Entry) bool { return e.Kind == sim.EvictionsRequested && e.Late })
}

func names(vs []violation) []string {
	var out []string
	for _, v := range vs {
		if !slices.Contains(out, v.invariant) {
			out = append(out, v.invariant)
		}
	}
	return out
}
