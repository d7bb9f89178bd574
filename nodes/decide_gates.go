package nodes

import (
	"cmp"
	"fmt"
	"strings"
	"time"

	"github.com/muster-dev/muster/internal/quantity"
)

// verdict sums up the gates of one path: whether the situation asks for it, and what the first obstacle is.
type verdict struct {
	wanted  bool
	holds   bool   // the trigger holds, whatever else is in the way
	byCPU   bool   // the CPU trigger holds
	action  Action // by which a consolidation saves; "" of the other paths
	blocker Reason
	detail  string
}

// need makes a condition that does not hold the obstacle, unless there is one already.
func (v *verdict) need(ok bool, why Reason, detail string) {
	if !ok && v.blocker == "" {
		v.blocker, v.detail = why, detail
	}
}

// noop is the decision to do nothing because of the first obstacle.
func (v verdict) noop() Decision { return Decision{Action: Noop, Reason: v.blocker, Detail: v.detail} }

// decision is the action that the situation asks for, or a NOOP if there is an obstacle.
func (v verdict) decision(a Action, why Reason) Decision {
	if v.blocker != "" {
		return v.noop()
	}
	return Decision{Action: a, Reason: why}
}

// sharedGates are those of every action; a repair passes over the pause and the metrics. What has lasted is
// for each path to ask.
func sharedGates(g *gates, in inputs) verdict {
	var v verdict
	v.need(actionGate(g, in), ReasonInProgress, actionText(in.r))
	v.need(g.add("fleet-known", okText(in.o.FleetWhy), "complete", in.o.FleetKnown), ReasonFleetUnknown, in.o.FleetWhy)
	paused := !g.add("not-paused", pausedText(in.r), "not paused", !in.r.Paused())
	v.need(g.add("metrics-known", okText(in.metrics), in.signals(), in.metrics == ""), ReasonMetricsMissing, in.metrics)
	v.need(!paused, ReasonPaused, in.r.pauseText()) // last: a fault must be seen before scaling is resumed
	return v
}

// actionGate passes while another action may begin, MAX_ACTIONS being the limit.
func actionGate(g *gates, in inputs) bool {
	most := max(in.p.MaxActions, 1)
	threshold := "none in progress"
	if most > 1 {
		threshold = fmt.Sprintf("fewer than %d in progress", most)
	}
	unnamed := in.r.ScalingInProgress && in.r.ActionID() == ""
	return g.add("no-action", actionText(in.r), threshold, len(in.r.Actions()) < most && !unnamed)
}

func actionText(r Record) string {
	switch {
	case !r.ScalingInProgress:
		return "none"
	case r.ActionID() == "":
		return "unnamed"
	}
	var ids []string
	for _, a := range r.Actions() {
		ids = append(ids, a.ID())
	}
	return strings.Join(ids, ", ")
}

func pausedText(r Record) string {
	if !r.Paused() {
		return "not paused"
	}
	return r.pauseText()
}

func okText(why string) string {
	if why == "" {
		return "ok"
	}
	return why
}

// repairGates are those of a scale-up that brings the cluster back to MIN_WORKERS: no trigger and no
// cooldown, but never within a failure back-off. Replacements on their way count, or an interruption would be
// made up for twice.
func repairGates(g *gates, in inputs) verdict {
	v := verdict{wanted: !g.add("repair.min-workers", in.expected, in.p.MinWorkers, in.expected >= in.p.MinWorkers)}
	v.need(backoffGate(g, "repair.backoff", in), ReasonBackoff, backoffText(in.r))
	v.need(in.r.launching() == "" || !in.p.parallel(), ReasonInProgress, in.r.launching()+" is launching")
	v.need(g.add("repair.max-workers", in.occupied, in.p.MaxWorkers, in.occupied < in.p.MaxWorkers), ReasonMaxWorkers, in.unhealthyText())
	return v
}

// trigger is how a scale-up's trigger was found.
type trigger struct {
	now   bool // its condition is met at this moment
	holds bool // and has been for long enough
}

func cpuTrigger(g *gates, in inputs) trigger {
	if in.p.byAPI() {
		return trigger{} // it is not read
	}
	m, since := in.o.Readings, in.r.CPUHighSinceEpoch
	now := g.add("up.cpu", m.CPU, in.p.CPUUp, m.CPU.Known && m.CPU.Value >= in.p.CPUUp)
	lasted := g.add("up.cpu-since", in.age(since), in.p.CPUUpFor, in.lasted(since, in.p.CPUUpFor))
	sustained := g.add("up.cpu-sustained", m.CPUMin, in.p.CPUUp, m.CPUMin.Known && m.CPUMin.Value >= in.p.CPUUp)
	return trigger{now: now, holds: now && lasted && sustained}
}

func pendingTrigger(g *gates, in inputs) trigger {
	if in.p.byAPI() {
		return waitingTrigger(g, in)
	}
	m, since := in.o.Readings, in.r.PendingSinceEpoch.Value()
	now := g.add("up.pending", in.pending, 1, m.Pending.Known && in.pending > 0)
	lasted := g.add("up.pending-since", in.age(since), in.p.PendingUpFor, in.lasted(since, in.p.PendingUpFor))
	sustained := g.add("up.pending-sustained", m.PendingMin, in.neverFit+1, m.PendingMin.Known && int(m.PendingMin.Value) > in.neverFit)
	return trigger{now: now, holds: now && lasted && sustained}
}

// upGates are those of a scale-up by its trigger.
func upGates(g *gates, in inputs) verdict {
	cpu, pending := cpuTrigger(g, in), pendingTrigger(g, in)
	v := verdict{wanted: cpu.now || pending.now, byCPU: cpu.holds}
	v.need(in.upWindows == "", ReasonMetricsMissing, in.upWindows)
	switch {
	case in.p.Trigger == TriggerAll:
		v.need(cpu.holds || !cpu.now, ReasonCPUTooShort, "")
		v.need(pending.holds || !pending.now, ReasonPendingTooShort, "")
		v.need(cpu.now == pending.now, ReasonTriggerPartial, fmt.Sprintf("cpu %t, pending %t", cpu.now, pending.now))
	case !cpu.holds && !pending.holds:
		v.need(!pending.now, ReasonPendingTooShort, "")
		v.need(!cpu.now, ReasonCPUTooShort, "")
	}

	v.holds = v.wanted && v.blocker == ""
	holds := fmt.Sprintf("cpu %t, pending %t", cpu.holds, pending.holds)
	g.add("up.trigger", holds, in.p.Trigger, v.holds)
	besideGates(g, in, &v, pending.holds)
	v.need(g.add("up.cooldown", in.age(in.r.LastScaleEpoch), in.p.CooldownUp, in.cooled(in.p.CooldownUp)), ReasonCooldownUp, "")
	v.need(backoffGate(g, "up.backoff", in), ReasonBackoff, backoffText(in.r))
	v.need(g.add("up.max-workers", in.occupied, in.p.MaxWorkers, in.occupied < in.p.MaxWorkers), ReasonMaxWorkers, in.unhealthyText())
	return v
}

// besideGates are those of a scale-up beside one that is open. MAX_WORKERS is held against what was launched, so
// another begins only once the launches are made. And nodes on their way have no effect on the CPU yet, so the
// CPU alone asks for none beside them.
func besideGates(g *gates, in inputs, v *verdict, pending bool) {
	if !in.p.parallel() {
		return
	}
	id := in.r.launching()
	v.need(g.add("up.launched", cmp.Or(id, "none"), "no scale-up is launching", id == ""), ReasonInProgress, id+" is launching")
	waits := v.byCPU && !pending && in.r.growing()
	v.need(g.add("up.cpu-alone", waits, "not beside another scale-up", !waits), ReasonInProgress, "the CPU has to show what "+actionText(in.r)+" brings")
	v.byCPU = v.byCPU && !in.r.growing()
}

// downGates are those of a scale-down. It also returns the targets, because a last condition is that there are some.
func downGates(g *gates, in inputs, fitter Fitter) (verdict, []Target, []Passed) {
	if in.p.byAPI() {
		g.add("down.cpu", notRead, in.p.CPUDown, false)
		return verdict{}, nil, nil
	}
	m := in.o.Readings
	low := g.add("down.cpu", m.CPU, in.p.CPUDown, m.CPU.Known && m.CPU.Value <= in.p.CPUDown)
	v := verdict{wanted: low}
	v.need(in.downWindows == "", ReasonMetricsMissing, in.downWindows)
	none := m.Pending.Known && in.pending == 0
	v.need(g.add("down.no-pending", in.pending, 0, none), ReasonPodsPending, "")
	idle := g.add("down.idle-since", in.age(in.r.IdleSinceEpoch.Value()), in.p.IdleDownFor, in.lasted(in.r.IdleSinceEpoch.Value(), in.p.IdleDownFor))
	cpuMax := g.add("down.cpu-sustained", m.CPUMax, in.p.CPUDown, m.CPUMax.Known && m.CPUMax.Value <= in.p.CPUDown)
	pendingMax := g.add("down.pending-sustained", m.PendingMax, in.neverFit, m.PendingMax.Known && int(m.PendingMax.Value) <= in.neverFit)
	v.need(idle && cpuMax && pendingMax, ReasonIdleTooShort, "")
	v.need(g.add("down.cooldown", in.age(in.r.LastScaleEpoch), in.p.CooldownDown, in.cooled(in.p.CooldownDown)), ReasonCooldownDown, "")
	open := len(in.o.Interruptions)
	v.need(g.add("down.no-interruption", open, 0, open == 0), ReasonInterruption, "")
	if in.p.parallel() {
		v.need(g.add("down.no-action", actionText(in.r), "none in progress", !in.r.ScalingInProgress), ReasonInProgress, actionText(in.r))
	}
	n := min(in.p.MaxBatchDown, in.available-in.p.MinWorkers)
	if in.p.parallel() {
		n = min(n, in.p.MaxActions) // each is an action
	}
	v.need(g.add("down.min-workers", in.available-max(n, 1), in.p.MinWorkers, n >= 1), ReasonMinWorkers, "")

	var targets []Target
	var passed []Passed
	if n >= 1 && in.o.FleetKnown {
		targets, passed = selectTargets(in.p, in.o, in.r, fitter, n, in.now)
	}
	why, fits := targetsText(passed)
	v.need(g.add("down.pods-fit", fits, "all pods of a target", len(targets) > 0 || fits == "yes"), ReasonPodsDontFit, fits)
	v.need(g.add("down.target", len(targets), 1, len(targets) > 0), ReasonNoTarget, why)
	return v, targets, passed
}

func backoffGate(g *gates, name string, in inputs) bool {
	left := max(time.Unix(in.r.BackoffUntilEpoch, 0).Sub(in.now), 0)
	if in.r.BackoffUntilEpoch == 0 {
		left = 0
	}
	return g.add(name, left, time.Duration(0), left == 0)
}

func backoffText(r Record) string {
	return fmt.Sprintf("%s in a row, until %d", quantity.Of(r.ScaleUpFailures, "failure"), r.BackoffUntilEpoch)
}

// targetsText sums up why workers were passed over: the first causes, and the first pod that fits nowhere else.
func targetsText(passed []Passed) (why, fits string) {
	fits = "yes"
	var causes []string
	for _, p := range passed {
		switch {
		case len(causes) < mostCauses:
			causes = append(causes, p.InstanceID+": "+p.Why)
		case len(causes) == mostCauses:
			causes = append(causes, fmt.Sprintf("and %d more", len(passed)-mostCauses))
		}
		if fits == "yes" && p.PodsStay {
			fits = p.Why
		}
	}
	return strings.Join(causes, "; "), fits
}
