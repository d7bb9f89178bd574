package nodes

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"
)

// Decider decides with replaceable sizing and fitting. Its zero parts stand for PodsPerNode and RequestsFit.
type Decider struct {
	Policy Policy
	Sizer  Sizer
	Fitter Fitter
	// Appraiser knows prices; without it no worker is replaced by a cheaper one.
	Appraiser Appraiser
}

// Decide says what to do. It depends on nothing but its arguments: no clock, no I/O, the same answer for the
// same question. r is the record after the tick noted what it saw.
func Decide(p Policy, o Observation, r Record, now time.Time) Decision {
	return Decider{Policy: p}.Decide(o, r, now)
}

// Decide says what to do. Every gate is evaluated and listed, also those behind a failed one, so that a
// person sees all that stands in the way and not only the first thing.
func (d Decider) Decide(o Observation, r Record, now time.Time) Decision {
	if d.Sizer == nil {
		d.Sizer = PodsPerNode{}
	}
	if d.Fitter == nil {
		d.Fitter = RequestsFit{}
	}
	d = d.priced(r, now)
	in := newInputs(d.Policy, o, r, now)
	stand := headrooms(d.Policy, d.Sizer, o, r.Exhausted, now)
	in.kept = keptPods(o.Buffers, stand)
	g := &gates{}
	shared := sharedGates(g, in)
	repair := repairGates(g, in)
	up := upGates(g, in)
	down, targets, passed := downGates(g, in, d.Fitter)
	if s, ok := d.Sizer.(PoolSizer); ok && len(d.Policy.Pools) > 0 {
		in.pools = newPoolChooser(g, in, s)
	}

	buffer, refill := headroomGates(g, in, d, up, stand)
	drift, renewed := driftGates(g, in, d)
	consolidate, merged := consolidateGates(g, in, d)

	dec := choose(in, shared, repair, up, down, buffer, drift, consolidate)
	switch {
	case dec.Reason == ReasonHeadroom:
		refill.fill(&dec)
	case dec.Reason == ReasonDrift:
		renewed.fill(&dec)
	case dec.Reason == ReasonConsolidates:
		merged.fill(&dec)
	case dec.Action == ScaleUp:
		d.size(&dec, g, in, up.byCPU)
	case dec.Action == ScaleDown:
		dec.Targets = targets
	}
	// No pod that waits needs a node of its own: only now is it the buffers' turn.
	needless := dec.Action == Noop && (dec.Reason == ReasonRoomExists || dec.Reason == ReasonNoNodeHelps)
	if needless && buffer.holds {
		dec = buffer.decision(ScaleUp, ReasonHeadroom)
		refill.fill(&dec)
	}
	if in.o.FleetKnown && (repair.wanted || up.holds && in.metrics == "") {
		dec.cancel(cancellable(r))
	}
	dec.Passed, dec.Unhealthy, dec.Headroom = passed, in.unhealthy, stand
	dec.Gates = g.list
	return dec
}

// cancel makes it the decision to cancel scale-downs, if there are any. What else is to be done is decided once
// their nodes count again.
func (d *Decision) cancel(ids []string) {
	if len(ids) > 0 {
		why := fmt.Sprintf("%s, because of %s", strings.Join(ids, ", "), d.Reason)
		*d = Decision{Action: Noop, Reason: ReasonCancels, Detail: why, Cancel: ids}
	}
}

// cancellable lists the open scale-downs that can be cancelled: those with a target that is not marked.
func cancellable(r Record) []string {
	var out []string
	for _, a := range r.Actions() {
		open := slices.ContainsFunc(a.ScaleDownTargetInstanceIDs, func(id string) bool {
			m, _ := r.Removal(id)
			return a.Targets(id) && m.Phase != PhaseTerminating
		})
		if open {
			out = append(out, a.ID())
		}
	}
	return out
}

// choose turns the gates of each path into one decision. Repair comes first: it needs no metrics, and a
// cluster below its minimum is in more danger than one under load. A pause does not stop it either:
// MIN_WORKERS is what people said the cluster can't do without, and a pause that is forgotten must not let it
// wither.
func choose(in inputs, shared, repair, up, down, buffer, drift, consolidate verdict) Decision {
	windows := cmp.Or(in.upWindows, in.downWindows)
	shared = pausedBeside(shared, in.r, windows)
	switch {
	case shared.blocker == ReasonInProgress || shared.blocker == ReasonFleetUnknown:
		return shared.noop()
	case repair.wanted:
		return repair.decision(ScaleUp, ReasonRepair)
	case shared.blocker != "":
		return shared.noop()
	}

	if buffer.holds && !up.holds { // before what takes workers away, which would be launched again
		return buffer.decision(ScaleUp, ReasonHeadroom)
	}

	idle := down.wanted && down.blocker == ""
	switch {
	case up.holds || idle:
	case drift.holds: // before a consolidation, which would rather keep the cheaper worker than the newer one
		return drift.decision(drift.action, ReasonDrift)
	case consolidate.holds:
		return consolidate.decision(consolidate.action, ReasonConsolidates)
	}

	// Half a trigger at low CPU: a scale-down is the nearer one.
	upIsNearer := up.blocker != ReasonTriggerPartial || !down.wanted
	switch {
	case up.wanted && upIsNearer:
		return up.decision(ScaleUp, ReasonTriggered)
	case down.wanted:
		return down.decision(ScaleDown, ReasonIdle)
	}
	return nothingToDo(in, windows, buffer, drift)
}

// nothingToDo says what a reader should know while neither pods nor CPU ask for a change.
func nothingToDo(in inputs, windows string, buffer, drift verdict) Decision {
	switch {
	case windows != "":
		return Decision{Action: Noop, Reason: ReasonMetricsMissing, Detail: windows}
	case buffer.wanted && buffer.blocker != "":
		return buffer.noop()
	case drift.wanted && drift.blocker != "":
		return drift.noop()
	case in.neverFit > 0 && in.pending == 0:
		return Decision{Action: Noop, Reason: ReasonNeverFit, Detail: in.neverFitWhy}
	}
	return Decision{Action: Noop, Reason: ReasonSteady}
}

// pausedBeside names a pause beside whatever else is in the way, or it comes as a surprise once that is
// fixed. Missing windows go before the pause, because a person should see them before scaling is resumed.
func pausedBeside(shared verdict, r Record, windows string) verdict {
	if shared.blocker == ReasonPaused && windows != "" {
		shared.blocker, shared.detail = ReasonMetricsMissing, windows
	}
	if r.Paused() && shared.blocker != ReasonPaused {
		shared.detail = strings.TrimPrefix(shared.detail+"; "+string(ReasonPaused)+" "+r.pauseText(), "; ")
	}
	return shared
}

// size computes the nodes to launch: by the sizer for pods, one for the CPU's load alone, by the deficit for
// a repair, within the batch and MAX_WORKERS. The sizer may find that no node is needed, which makes it a
// NOOP unless high CPU suffices.
func (d Decider) size(dec *Decision, g *gates, in inputs, byCPU bool) {
	if in.pools != nil {
		d.sizeInPool(dec, g, in, byCPU)
		return
	}
	room := in.p.MaxWorkers - in.occupied
	var n int
	switch {
	case dec.Reason == ReasonRepair:
		n = in.p.MinWorkers - in.expected
		dec.Detail = fmt.Sprintf("%d below MIN_WORKERS", n)
	case in.pending == 0:
		n, dec.Detail = 1, in.cpuText()+", no pod is pending: one node"
	default:
		n = d.sizeForPods(dec, g, in, room, byCPU)
	}
	if dec.Action == Noop {
		return
	}

	dec.Nodes = max(min(n, in.p.MaxBatchUp, room), 1)
	dec.More = min(n, room) > dec.Nodes
	if dec.Nodes < n {
		dec.Detail = fmt.Sprintf("%s, capped to %d (MAX_BATCH_UP %d, room below MAX_WORKERS %d)", dec.Detail, dec.Nodes, in.p.MaxBatchUp, room)
	}
	dec.Wanted = dec.Wanted[:min(len(dec.Wanted), dec.Nodes)]
	if !anyParticular(dec.Wanted) {
		dec.Wanted = nil
	}
}

// sizeForPods asks the sizer and returns how many nodes it wants, one if only the CPU's load or a long wait
// asks for a node. If no node is needed it makes the decision a NOOP.
func (d Decider) sizeForPods(dec *Decision, g *gates, in inputs, room int, byCPU bool) int {
	plan := d.Sizer.Plan(Question{
		Policy:      in.p,
		Observation: in.o,
		Exhausted:   in.r.Exhausted,
		Now:         in.now,
		Pending:     in.pending,
		Room:        max(room, 1),
	})
	byCPU = byCPU && in.p.Trigger != TriggerAll // which wants pods that need a node as well
	waited := in.waitedInVain(plan) && in.inVain(false) == "" && !in.r.growing()
	if why := in.inVain(true); why != "" && !anyParticular(plan.Nodes) {
		plan.Nodes, plan.Helpless = nil, why
	}
	needed := len(plan.Nodes) > 0 || byCPU || waited
	g.add("up.plan", plan.Why, "a node that helps", needed)

	n := len(plan.Nodes)
	dec.Wanted, dec.Detail = plan.Nodes, plan.Why
	switch {
	case !needed:
		dec.Action, dec.Reason = Noop, ReasonRoomExists
		if plan.Helpless != "" {
			dec.Reason, dec.Detail = ReasonNoNodeHelps, plan.Helpless
		}
	case n == 0 && byCPU:
		n, dec.Detail = 1, in.cpuText()+": one node; "+plan.Why
	case n == 0:
		pending := text(in.age(in.r.PendingSinceEpoch.Value()))
		n, dec.Detail = 1, fmt.Sprintf("pending for %s although there is room: one node; %s", pending, plan.Why)
	}
	return n
}

// anyParticular reports whether one of the nodes has to be of a certain type or in a certain zone.
func anyParticular(nodes []Want) bool {
	return slices.ContainsFunc(nodes, func(w Want) bool { return !w.any() })
}
