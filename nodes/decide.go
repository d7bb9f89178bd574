package nodes

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"
)

// Action is what a decision asks for.
type Action string

// The actions.
const (
	Noop      Action = "NOOP"
	ScaleUp   Action = "SCALE_UP"
	ScaleDown Action = "SCALE_DOWN"
)

// Reason is why a decision is what it is. Every cause of a NOOP has its own.
type Reason string

// The reasons. The first three are those of actions, the others block one.
const (
	ReasonTriggered  Reason = "TRIGGERED"   // a scale-up's trigger holds
	ReasonRepair     Reason = "MIN_REPAIR"  // fewer workers than MIN_WORKERS
	ReasonIdle       Reason = "IDLE"        // a scale-down's conditions hold
	ReasonSteady     Reason = "STEADY"      // nothing asks for a change
	ReasonInProgress Reason = "IN_PROGRESS" // an action is open

	ReasonMetricsMissing Reason = "METRICS_UNAVAILABLE" // a reading is missing, stale, partial or not a number
	ReasonFleetUnknown   Reason = "FLEET_UNAVAILABLE"   // the cloud or the Kubernetes API can't be read completely
	ReasonPaused         Reason = "PAUSED"              // a person has paused scaling

	ReasonCPUTooShort     Reason = "CPU_HIGH_TOO_SHORT" // CPU is high, but not for CPU_UP_SEC
	ReasonPendingTooShort Reason = "PENDING_TOO_SHORT"  // pods are pending, but not for PENDING_UP_SEC
	ReasonTriggerPartial  Reason = "TRIGGER_PARTIAL"    // SCALE_UP_TRIGGER=all and only one of the two holds
	ReasonNeverFit        Reason = "PODS_NEVER_FIT"     // the only pending pods are of a kind that no new node could run
	ReasonRoomExists      Reason = "ROOM_EXISTS"        // every pending pod fits a node that is there or coming
	ReasonNoNodeHelps     Reason = "NO_NODE_HELPS"      // a new node could not run the pending pods either, because of other pods
	ReasonCooldownUp      Reason = "COOLDOWN_UP"
	ReasonBackoff         Reason = "FAILURE_BACKOFF"
	ReasonMaxWorkers      Reason = "MAX_WORKERS"

	ReasonIdleTooShort Reason = "IDLE_TOO_SHORT" // idle, but not for IDLE_DOWN_SEC
	ReasonPodsPending  Reason = "PODS_PENDING"   // CPU is low, but pods are pending
	ReasonCooldownDown Reason = "COOLDOWN_DOWN"
	ReasonInterruption Reason = "INTERRUPTION_OPEN"
	ReasonMinWorkers   Reason = "MIN_WORKERS"
	ReasonNoTarget     Reason = "NO_TARGET"     // no worker may be taken away
	ReasonPodsDontFit  Reason = "PODS_DONT_FIT" // the remaining workers can't take a target's pods
)

// Gate is one condition of a decision, as it was found.
type Gate struct {
	Name      string `json:"name"`
	Value     string `json:"value"`
	Threshold string `json:"threshold"`
	Passed    bool   `json:"passed"`
}

// Decision is what to do and why. A NOOP's Reason is its blocker: the first gate that kept the nearest action from being taken.
type Decision struct {
	Action  Action   `json:"action"`
	Reason  Reason   `json:"reason"`
	Detail  string   `json:"detail,omitempty"`
	Nodes   int      `json:"nodes,omitempty"`   // to launch
	Wanted  []Want   `json:"wanted,omitempty"`  // of which kinds, one each; nil: of any
	Targets []Target `json:"targets,omitempty"` // to remove, in this order
	Passed  []Passed `json:"passed,omitempty"`  // workers not chosen for removal
	// Unhealthy are the workers that are not Ready. They are removed by the sweep, whatever the decision.
	Unhealthy []Unhealthy `json:"unhealthy,omitempty"`
	Gates     []Gate      `json:"gates"`
}

// Decider decides with replaceable sizing and fitting. Its zero parts stand for PodsPerNode and RequestsFit.
type Decider struct {
	Policy Policy
	Sizer  Sizer
	Fitter Fitter
}

// Decide says what to do. It depends on nothing but its arguments: no clock, no I/O, the same answer for the same question. r is
// the record after the tick noted what it saw.
func Decide(p Policy, o Observation, r Record, now time.Time) Decision {
	return Decider{Policy: p}.Decide(o, r, now)
}

// Decide says what to do. Every gate is evaluated and listed, also those behind a failed one, so that a person sees all that stands
// in the way and not only the first thing.
func (d Decider) Decide(o Observation, r Record, now time.Time) Decision {
	if d.Sizer == nil {
		d.Sizer = PodsPerNode{}
	}
	if d.Fitter == nil {
		d.Fitter = RequestsFit{}
	}
	in := newInputs(d.Policy, o, r, now)
	g := &gates{}
	shared := d.sharedGates(g, in)
	repair := d.repairGates(g, in)
	up := d.upGates(g, in)
	down, targets, passed := d.downGates(g, in)

	dec := d.choose(in, shared, repair, up, down)
	switch dec.Action {
	case ScaleUp:
		d.size(&dec, g, in, up.byCPU)
	case ScaleDown:
		dec.Targets = targets
	}
	dec.Passed, dec.Unhealthy = passed, in.unhealthy
	dec.Gates = g.list
	return dec
}

// choose turns the gates of each path into one decision. Repair comes first: it needs no metrics, and a cluster below its minimum
// is in more danger than one under load. A pause does not stop it either: MIN_WORKERS is what people said the cluster can't do
// without, and a pause that is forgotten must not let it wither.
func (d Decider) choose(in inputs, shared, repair, up, down verdict) Decision {
	noop := func(v verdict) Decision { return Decision{Action: Noop, Reason: v.blocker, Detail: v.detail} }
	windows := cmp.Or(in.upWindows, in.downWindows)
	if shared.blocker == ReasonPaused && windows != "" {
		shared.blocker, shared.detail = ReasonMetricsMissing, windows
	}
	if in.r.Paused() && shared.blocker != ReasonPaused { // said beside whatever else is in the way: who mends that may not know of it
		shared.detail = strings.TrimPrefix(shared.detail+"; "+string(ReasonPaused)+" "+in.r.pauseText(), "; ")
	}
	switch {
	case shared.blocker == ReasonInProgress || shared.blocker == ReasonFleetUnknown:
		return noop(shared)
	case repair.wanted && repair.blocker == "":
		return Decision{Action: ScaleUp, Reason: ReasonRepair}
	case repair.wanted:
		return noop(repair)
	case shared.blocker != "":
		return noop(shared)
	case up.wanted && up.blocker == "":
		return Decision{Action: ScaleUp, Reason: ReasonTriggered}
	case up.wanted && (up.blocker != ReasonTriggerPartial || !down.wanted): // at low CPU a scale-down is the nearer one
		return noop(up)
	case down.wanted && down.blocker == "":
		return Decision{Action: ScaleDown, Reason: ReasonIdle}
	case down.wanted:
		return noop(down)
	case windows != "": // nothing asks for them now, but whoever reads this should know
		return Decision{Action: Noop, Reason: ReasonMetricsMissing, Detail: windows}
	case in.neverFit > 0 && in.pending == 0:
		return Decision{Action: Noop, Reason: ReasonNeverFit, Detail: in.neverFitWhy}
	}
	return Decision{Action: Noop, Reason: ReasonSteady}
}

// size computes the nodes to launch: by the sizer for pods, one for the CPU's load alone, by the deficit for a repair, within the batch
// and MAX_WORKERS. The sizer may find that no node is needed, which makes it a NOOP unless high CPU suffices.
func (d Decider) size(dec *Decision, g *gates, in inputs, byCPU bool) {
	room := in.p.MaxWorkers - in.occupied
	var n int
	switch {
	case dec.Reason == ReasonRepair:
		n = in.p.MinWorkers - in.expected
		dec.Detail = fmt.Sprintf("%d below MIN_WORKERS", n)
	case in.pending == 0:
		n, dec.Detail = 1, in.cpuText()+", no pod is pending: one node"
	default:
		plan := d.Sizer.Plan(Question{Policy: in.p, Observation: in.o, Exhausted: in.r.Exhausted, Now: in.now, Pending: in.pending, Room: max(room, 1)})
		byCPU = byCPU && in.p.Trigger != TriggerAll // which wants pods that need a node as well
		inVain := in.waitedInVain(plan) && in.inVain(false) == ""
		if why := in.inVain(true); why != "" && !slices.ContainsFunc(plan.Nodes, func(w Want) bool { return !w.any() }) {
			plan.Nodes, plan.Helpless = nil, why
		}
		needed := len(plan.Nodes) > 0 || byCPU || inVain
		g.add("up.plan", plan.Why, "a node that helps", needed)
		n, dec.Wanted, dec.Detail = len(plan.Nodes), plan.Nodes, plan.Why
		switch {
		case !needed:
			dec.Action, dec.Reason = Noop, ReasonRoomExists
			if plan.Helpless != "" {
				dec.Reason, dec.Detail = ReasonNoNodeHelps, plan.Helpless
			}
			return
		case n == 0 && byCPU:
			n, dec.Detail = 1, in.cpuText()+": one node; "+plan.Why
		case n == 0:
			n, dec.Detail = 1, fmt.Sprintf("pending for %s although there is room: one node; %s", text(in.age(in.r.PendingSinceEpoch.Value())), plan.Why)
		}
	}
	dec.Nodes = max(min(n, in.p.MaxBatchUp, room), 1)
	if dec.Nodes < n {
		dec.Detail = fmt.Sprintf("%s, capped to %d (MAX_BATCH_UP %d, room below MAX_WORKERS %d)", dec.Detail, dec.Nodes, in.p.MaxBatchUp, room)
	}
	dec.Wanted = dec.Wanted[:min(len(dec.Wanted), dec.Nodes)]
	if !slices.ContainsFunc(dec.Wanted, func(w Want) bool { return !w.any() }) {
		dec.Wanted = nil
	}
}

// cpuText says why the CPU asks for a node.
func (in inputs) cpuText() string {
	return fmt.Sprintf("CPU at %s of %s for %s", text(in.o.Readings.CPU), text(in.p.CPUUp), text(in.age(in.r.CPUHighSinceEpoch)))
}

// waitedInVain tells whether pods that a plan says to have room have waited so long that the scheduler, which tries again at least
// every five minutes, must see something that the plan does not. For a node that is not there yet nobody has waited in vain.
func (in inputs) waitedInVain(plan Plan) bool {
	return plan.Helpless == "" && !plan.Coming && in.lasted(in.r.PendingSinceEpoch.Value(), max(3*in.p.PendingUpFor, 10*time.Minute))
}

// inVain names a worker that was launched while the pods waited and that has taken none since, in one zone or, if every is true, in
// each one in which nodes can be launched. The scheduler has had its time to place a pod there, so another node of any kind would
// most likely stay empty as well.
func (in inputs) inVain(every bool) (why string) {
	since := in.r.PendingSinceEpoch.Value()
	if since == 0 || every && len(in.o.Zones) == 0 {
		return ""
	}
	empty := map[string]string{} // instance by zone
	for _, w := range in.o.Fleet {
		if w.Instance.ActionID == "" || !w.Available() || len(w.Node.Pods) > 0 || w.Node.CreatedAt.Unix() <= since {
			continue
		}
		if in.now.Sub(w.Node.CreatedAt) >= max(settleTime, in.p.PendingUpFor) {
			empty[w.Instance.Zone] = w.Instance.ID
		}
	}
	if every {
		for _, z := range in.o.Zones {
			if empty[z] == "" {
				return ""
			}
		}
	}
	for _, z := range slices.Sorted(maps.Keys(empty)) {
		return fmt.Sprintf("launched in vain: %s joined while the pods waited and has taken none of them; compare its labels, taints and size with what they ask for", empty[z])
	}
	return ""
}

// inputs is what the gates look at, worked out once.
type inputs struct {
	p   Policy
	o   Observation
	r   Record
	now time.Time

	census
	occupied    int // what MAX_WORKERS is held against
	expected    int // what MIN_WORKERS is held against when repairing: available workers and replacements on their way
	pending     int // pods that a new node could run
	neverFit    int // pods that no new node could run
	neverFitWhy string
	unhealthy   []Unhealthy
	metrics     string // why what is now can't be told by the metrics; "" if it can
	upWindows   string // why what has lasted can't, for a scale-up
	downWindows string // and for a scale-down, whose window is longer: after a gap a scale-up needn't wait for it
}

func newInputs(p Policy, o Observation, r Record, now time.Time) inputs {
	in := inputs{p: p, o: o, r: r, now: now, census: count(o)}
	in.occupied = in.alive + in.intents
	in.expected = in.available + in.coming
	in.unhealthy = UnhealthyWorkers(p, o, r, now)
	for _, pod := range o.Pending {
		if pod.NeverFit != "" {
			in.neverFit += pod.N()
			in.neverFitWhy = "pod " + pod.Name + ": " + pod.NeverFit
		}
	}
	in.pending = max(int(o.Readings.Pending.Value)-in.neverFit, 0)
	m := o.Readings
	in.metrics = missing("cpu", m.CPU, "pending", m.Pending)
	in.upWindows = missing("cpu-min", m.CPUMin, "pending-min", m.PendingMin)
	in.downWindows = missing("cpu-max", m.CPUMax, "pending-max", m.PendingMax)
	return in
}

// missing says why the first of two readings that is missing is, "" if both are there.
func missing(first string, a Reading, second string, b Reading) string {
	switch {
	case !a.Known:
		return first + ": " + cmp.Or(a.Why, "no value")
	case !b.Known:
		return second + ": " + cmp.Or(b.Why, "no value")
	}
	return ""
}

// unhealthyText names the workers that count and are not Ready, "" if there are none.
func (in inputs) unhealthyText() string {
	var out []string
	for _, u := range in.unhealthy[:min(len(in.unhealthy), mostCauses)] {
		out = append(out, fmt.Sprintf("%s has not been Ready for %s (%s)", u.InstanceID, text(in.age(u.SinceEpoch)), u.Why))
	}
	if n := len(in.unhealthy) - len(out); n > 0 {
		out = append(out, fmt.Sprintf("and %d more", n))
	}
	return strings.Join(out, "; ")
}

// verdict sums up the gates of one path: whether the situation asks for it, and what the first obstacle is.
type verdict struct {
	wanted  bool
	byCPU   bool // the CPU trigger holds
	blocker Reason
	detail  string
}

func (v *verdict) need(ok bool, why Reason, detail string) {
	if !ok && v.blocker == "" {
		v.blocker, v.detail = why, detail
	}
}

type gates struct{ list []Gate }

func (g *gates) add(name string, value, threshold any, passed bool) bool {
	g.list = append(g.list, Gate{Name: name, Value: text(value), Threshold: text(threshold), Passed: passed})
	return passed
}

func text(v any) string {
	switch v := v.(type) {
	case float64:
		return strconv.FormatFloat(v, 'g', 4, 64)
	case time.Duration:
		return strconv.FormatInt(seconds(v), 10) + "s"
	case Reading:
		if !v.Known {
			return "missing"
		}
		return strconv.FormatFloat(v.Value, 'g', 4, 64)
	}
	return fmt.Sprint(v)
}

// sharedGates are those of every action; a repair passes over the pause and the metrics. What has lasted is for each path to ask.
func (d Decider) sharedGates(g *gates, in inputs) verdict {
	var v verdict
	v.need(g.add("no-action", actionText(in.r), "none in progress", !in.r.ScalingInProgress), ReasonInProgress, in.r.ActionID())
	v.need(g.add("fleet-known", okText(in.o.FleetWhy), "complete", in.o.FleetKnown), ReasonFleetUnknown, in.o.FleetWhy)
	paused := !g.add("not-paused", pausedText(in.r), "not paused", !in.r.Paused())
	v.need(g.add("metrics-known", okText(in.metrics), "cpu and pending", in.metrics == ""), ReasonMetricsMissing, in.metrics)
	v.need(!paused, ReasonPaused, in.r.pauseText()) // last: what nobody has chosen must be seen before it is resumed
	return v
}

func actionText(r Record) string {
	switch {
	case !r.ScalingInProgress:
		return "none"
	case r.ActionID() == "":
		return "unnamed"
	}
	return r.ActionID()
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

// repairGates are those of a scale-up that brings the cluster back to MIN_WORKERS: no trigger and no cooldown, but never within a
// failure back-off. Replacements on their way count, or an interruption would be made up for twice.
func (d Decider) repairGates(g *gates, in inputs) verdict {
	v := verdict{wanted: !g.add("repair.min-workers", in.expected, in.p.MinWorkers, in.expected >= in.p.MinWorkers)}
	v.need(d.backoffGate(g, "repair.backoff", in), ReasonBackoff, backoffText(in.r))
	v.need(g.add("repair.max-workers", in.occupied, in.p.MaxWorkers, in.occupied < in.p.MaxWorkers), ReasonMaxWorkers, in.unhealthyText())
	return v
}

func (d Decider) backoffGate(g *gates, name string, in inputs) bool {
	left := max(time.Unix(in.r.BackoffUntilEpoch, 0).Sub(in.now), 0)
	if in.r.BackoffUntilEpoch == 0 {
		left = 0
	}
	return g.add(name, left, time.Duration(0), left == 0)
}

func backoffText(r Record) string {
	return fmt.Sprintf("%d failure(s) in a row, until %d", r.ScaleUpFailures, r.BackoffUntilEpoch)
}

// upGates are those of a scale-up by its trigger.
func (d Decider) upGates(g *gates, in inputs) verdict {
	m := in.o.Readings
	cpu := g.add("up.cpu", m.CPU, in.p.CPUUp, m.CPU.Known && m.CPU.Value >= in.p.CPUUp)
	cpuFor := g.add("up.cpu-since", in.age(in.r.CPUHighSinceEpoch), in.p.CPUUpFor, in.lasted(in.r.CPUHighSinceEpoch, in.p.CPUUpFor))
	cpuMin := g.add("up.cpu-sustained", m.CPUMin, in.p.CPUUp, m.CPUMin.Known && m.CPUMin.Value >= in.p.CPUUp)
	pending := g.add("up.pending", in.pending, 1, m.Pending.Known && in.pending > 0)
	pendingFor := g.add("up.pending-since", in.age(in.r.PendingSinceEpoch.Value()), in.p.PendingUpFor, in.lasted(in.r.PendingSinceEpoch.Value(), in.p.PendingUpFor))
	pendingMin := g.add("up.pending-sustained", m.PendingMin, in.neverFit+1, m.PendingMin.Known && int(m.PendingMin.Value) > in.neverFit)

	cpuHolds := cpu && cpuFor && cpuMin
	pendingHolds := pending && pendingFor && pendingMin
	v := verdict{wanted: cpu || pending, byCPU: cpuHolds}
	v.need(in.upWindows == "", ReasonMetricsMissing, in.upWindows)
	if in.p.Trigger == TriggerAll {
		v.wanted = cpu && pending
		v.need(cpuHolds || !cpu, ReasonCPUTooShort, "")
		v.need(pendingHolds || !pending, ReasonPendingTooShort, "")
		if cpu != pending {
			v.wanted = true
			v.need(false, ReasonTriggerPartial, fmt.Sprintf("cpu %t, pending %t", cpu, pending))
		}
	} else if !cpuHolds && !pendingHolds {
		v.need(!pending, ReasonPendingTooShort, "")
		v.need(!cpu, ReasonCPUTooShort, "")
	}
	g.add("up.trigger", fmt.Sprintf("cpu %t, pending %t", cpuHolds, pendingHolds), in.p.Trigger, v.wanted && v.blocker == "")
	v.need(g.add("up.cooldown", in.age(in.r.LastScaleEpoch), in.p.CooldownUp, in.cooled(in.p.CooldownUp)), ReasonCooldownUp, "")
	v.need(d.backoffGate(g, "up.backoff", in), ReasonBackoff, backoffText(in.r))
	v.need(g.add("up.max-workers", in.occupied, in.p.MaxWorkers, in.occupied < in.p.MaxWorkers), ReasonMaxWorkers, in.unhealthyText())
	return v
}

// downGates are those of a scale-down, the targets included.
func (d Decider) downGates(g *gates, in inputs) (verdict, []Target, []Passed) {
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
	n := min(in.p.MaxBatchDown, in.available-in.p.MinWorkers)
	v.need(g.add("down.min-workers", in.available-max(n, 1), in.p.MinWorkers, n >= 1), ReasonMinWorkers, "")

	var targets []Target
	var passed []Passed
	if n >= 1 && in.o.FleetKnown {
		targets, passed = SelectTargets(in.o, in.r, d.Fitter, n, in.now)
	}
	why, fits := targetsText(passed)
	v.need(g.add("down.pods-fit", fits, "all pods of a target", len(targets) > 0 || fits == "yes"), ReasonPodsDontFit, fits)
	v.need(g.add("down.target", len(targets), 1, len(targets) > 0), ReasonNoTarget, why)
	return v, targets, passed
}

// mostCauses is how many causes a decision is told with.
const mostCauses = 3

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

// age is the time since an epoch, 0 if it is not set.
func (in inputs) age(epoch int64) time.Duration {
	if epoch == 0 {
		return 0
	}
	return in.now.Sub(time.Unix(epoch, 0)).Truncate(time.Second)
}

// lasted tells whether what began at epoch has lasted for d; something that has not begun has not.
func (in inputs) lasted(epoch int64, d time.Duration) bool { return epoch != 0 && in.age(epoch) >= d }

// cooled tells whether d has passed since the last completed action; without one it has.
func (in inputs) cooled(d time.Duration) bool {
	return in.r.LastScaleEpoch == 0 || in.age(in.r.LastScaleEpoch) >= d
}
