package nodes

import (
	"fmt"
	"strings"
	"time"

	"github.com/muster-dev/muster/setting"
)

// SignalSource says where pending pods and load are read.
type SignalSource string

// The sources of signals.
const (
	SignalsPrometheus SignalSource = "prometheus" // CPU and pending pods from Prometheus; "" stands for it
	SignalsKubernetes SignalSource = "kubernetes" // pending pods and requests from the Kubernetes API; the CPU's load is not read
)

// byAPI reports whether the Kubernetes API alone is asked. Then the CPU triggers nothing, the idle scale-down is off, and CONSOLIDATION
// shrinks the cluster by requests. How long pods have waited is told by their own conditions.
func (p Policy) byAPI() bool { return p.Signals == SignalsKubernetes }

// notRead is why a reading is missing that only Prometheus has.
const notRead = "not read with SIGNALS=kubernetes"

// modeDefault is what a setting is with SIGNALS=kubernetes unless it is set.
type modeDefault struct {
	env, value string
	same       func(a, b Policy) bool // whether two policies have the same of it
}

// modeDefaults are those of SIGNALS=kubernetes. The scheduler's verdict needs no window to be believed, nodes that have just joined are
// counted by their room and not by what a metric will show, and without the CPU's load only a consolidation takes workers away.
var modeDefaults = []modeDefault{
	{"PENDING_UP_SEC", "0", func(a, b Policy) bool { return a.PendingUpFor == b.PendingUpFor }},
	{"COOLDOWN_UP_SEC", "0", func(a, b Policy) bool { return a.CooldownUp == b.CooldownUp }},
	{"CONSOLIDATION", string(ConsolidationRemove), func(a, b Policy) bool { return a.Consolidation == b.Consolidation }},
}

// ModeDefault returns the default that a setting has with a value of SIGNALS; false if it is the ordinary one.
func ModeDefault(signals SignalSource, env string) (string, bool) {
	for _, d := range modeDefaults {
		if signals == SignalsKubernetes && d.env == env {
			return d.value, true
		}
	}
	return "", false
}

// withModeDefaults returns lookup with the defaults that go with the SIGNALS it names. What p has other than by default counts as set.
func (p Policy) withModeDefaults(lookup setting.Lookup) setting.Lookup {
	signals, _ := lookup("SIGNALS")
	if SignalSource(strings.TrimSpace(signals)) != SignalsKubernetes || p.byAPI() {
		return lookup
	}
	return func(env string) (string, bool) {
		if v, ok := lookup(env); ok {
			return v, ok
		}
		for _, d := range modeDefaults {
			if d.env == env && d.same(p, DefaultPolicy()) {
				return d.value, true
			}
		}
		return "", false
	}
}

// signalProblems are the settings that contradict SIGNALS.
func (p Policy) signalProblems() []setting.Problem {
	var out []setting.Problem
	check := func(ok bool, env string, value any, fix string) {
		if !ok {
			out = append(out, setting.Problem{Setting: env, Value: fmt.Sprint(value), Fix: fix})
		}
	}
	known := p.Signals == "" || p.Signals == SignalsPrometheus || p.byAPI()
	check(known, "SIGNALS", p.Signals, "use prometheus or kubernetes")
	if p.byAPI() {
		check(p.PendingUpFor >= 0, "PENDING_UP_SEC", seconds(p.PendingUpFor), "use 0 or more seconds")
		check(p.Trigger != TriggerAll, "SCALE_UP_TRIGGER", p.Trigger, "use any: with SIGNALS=kubernetes the CPU's load is not read")
		check(p.Pending != PendingPhase, "PENDING_SOURCE", p.Pending, "use unschedulable: with SIGNALS=kubernetes the scheduler's verdict counts")
		return out
	}
	check(p.PendingUpFor > 0, "PENDING_UP_SEC", seconds(p.PendingUpFor), "use a whole number of seconds above 0; 0 needs SIGNALS=kubernetes")
	return out
}

// WithoutEffect lists the settings of a policy that mean nothing with SIGNALS=kubernetes.
func WithoutEffect() []string { return []string{"CPU_UP", "CPU_DOWN", "CPU_UP_SEC"} }

// ClusterReadings are the readings that the Kubernetes API alone gives: how many pods the scheduler could not place.
func ClusterReadings(pending []Pod, now time.Time) Readings {
	n := 0
	for _, p := range pending {
		n += p.N()
	}
	none := Missing(notRead)
	return Readings{
		At:  now,
		CPU: none, CPUMin: none, CPUMax: none,
		Pending: Read(float64(n)), PendingMin: none, PendingMax: none, PendingOther: none,
	}
}

// PendingSince is since when a pod waits that a new node could run, zero if none does or that is not known. With SIGNALS=kubernetes it is
// the earliest by the pods' own conditions; where these say nothing, as in event logs of Prometheus' signals, and with Prometheus it is
// since ticks have seen pods pending.
func PendingSince(p Policy, o Observation, r Record) time.Time {
	var first time.Time
	if p.byAPI() {
		for _, pod := range o.Pending {
			if pod.NeverFit == "" {
				first = firstOf(first, pod.Since)
			}
		}
	}
	if epoch := r.PendingSinceEpoch.Value(); first.IsZero() && epoch != 0 {
		return time.Unix(epoch, 0)
	}
	return first
}

// firstOf returns the earlier of two times, of which a zero one is none.
func firstOf(a, b time.Time) time.Time {
	if a.IsZero() || !b.IsZero() && b.Before(a) {
		return b
	}
	return a
}

// waitingTrigger is the trigger of pending pods by the Kubernetes API. A condition of the near future comes from a server whose clock is
// ahead: it has begun.
func waitingTrigger(g *gates, in inputs) trigger {
	now := g.add("up.pending", in.pending, 1, in.o.Readings.Pending.Known && in.pending > 0)
	var waited time.Duration
	if since := PendingSince(in.p, in.o, in.r); now && !since.IsZero() {
		waited = max(in.now.Sub(since).Truncate(time.Second), 0)
	}
	lasted := g.add("up.pending-since", waited, in.p.PendingUpFor, now && waited >= in.p.PendingUpFor)
	return trigger{now: now, holds: now && lasted}
}

// quietGate passes when no pod that a new node could run has been pending for IDLE_DOWN_SEC. By the Kubernetes API that is what ticks
// have seen: one that could not see ends it, because capacity is never taken away on a guess.
func quietGate(g *gates, path string, in inputs) bool {
	if in.p.byAPI() {
		since := in.r.IdleSinceEpoch.Value()
		return g.add(path+".pending-sustained", in.age(since), in.p.IdleDownFor, in.lasted(since, in.p.IdleDownFor))
	}
	m := in.o.Readings
	return g.add(path+".pending-sustained", m.PendingMax, in.neverFit, m.PendingMax.Known && int(m.PendingMax.Value) <= in.neverFit)
}
