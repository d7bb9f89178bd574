package nodes

import (
	"errors"
	"fmt"
	"math"
	"sort"
	"strconv"
	"strings"
	"time"
)

// Trigger says how the two scale-up triggers combine.
type Trigger string

// The two ways to combine the CPU and the pending-pods trigger.
const (
	TriggerAny Trigger = "any" // CPU or pending pods
	TriggerAll Trigger = "all" // CPU and pending pods
)

// SizingMode says how the number of nodes of a scale-up is computed.
type SizingMode string

// The sizing modes.
const (
	SizingPodsPerNode SizingMode = "pods-per-node" // ceil(pending / PODS_PER_NODE)
	SizingFit         SizingMode = "fit"           // pack the real pods onto real instance types
)

// PendingSource says which of the two pending-pod counts drives decisions.
type PendingSource string

// The pending-pod counts.
const (
	PendingUnschedulable PendingSource = "unschedulable" // pods the scheduler could not place
	PendingPhase         PendingSource = "phase"         // every pod in phase Pending
)

// Policy holds every setting that decisions depend on. It is plain data: two equal policies decide equally.
// DefaultPolicy gives the documented defaults; Validate reports everything that is wrong with it.
type Policy struct {
	Cluster string // name of the cluster; "" is the only cluster of its table

	CPUUp   float64 // scale up at or above this average utilisation, 0..1
	CPUDown float64 // scale down at or below this average utilisation, 0..1

	CPUUpFor     time.Duration // CPU must have stayed at or above CPUUp this long
	PendingUpFor time.Duration // pods must have been pending this long
	IdleDownFor  time.Duration // the cluster must have been idle this long
	CooldownUp   time.Duration // since the last completed action, before a scale-up
	CooldownDown time.Duration // since the last completed action, before a scale-down

	MinWorkers   int // never fewer Ready, uncordoned workers by our own doing
	MaxWorkers   int // never more pending and running instances, except by open replacements
	MaxBatchUp   int // most nodes of one scale-up
	MaxBatchDown int // most nodes of one scale-down
	PodsPerNode  int // pods that one new node is expected to take

	JoinTimeout    time.Duration // launched nodes must be Ready within this
	DrainTimeout   time.Duration // hard limit of one node's drain, across ticks
	ScaleDownStuck time.Duration // a scale-down older than this is cleared

	Trigger Trigger
	Sizing  SizingMode
	Pending PendingSource

	InstanceTypes []string // types to launch, most wanted first
	Spot          bool     // whether Spot is tried before On-Demand

	StateTable string // table of the record; "" with the embedded store
	LogsTable  string // table of the journal; "" with the embedded store
}

// DefaultPolicy returns the documented defaults.
func DefaultPolicy() Policy {
	var p Policy
	for _, s := range settings {
		if err := s.set(&p, s.Default); err != nil {
			panic("nodes: default of " + s.Env + ": " + err.Error()) // a programming error that every test run would meet
		}
	}
	return p
}

// Setting describes one setting for help texts and documentation.
type Setting struct {
	Env     string // environment variable
	Default string // default as one would write it in the environment
	Meaning string // one line

	set func(*Policy, string) error
}

// Settings lists every setting in the order in which documentation shows them.
func Settings() []Setting { return append([]Setting(nil), settings...) }

// PolicyFromEnv reads a policy from the environment that lookup stands for (os.LookupEnv in production); what is unset keeps its
// default. The error is a *SettingsError that lists every wrong setting at once, both unreadable values and values that
// contradict each other.
func PolicyFromEnv(lookup func(string) (string, bool)) (Policy, error) {
	p := DefaultPolicy()
	var problems []Problem
	unreadable := map[string]bool{}
	for _, s := range settings {
		v, ok := lookup(s.Env)
		if !ok {
			continue
		}
		if err := s.set(&p, strings.TrimSpace(v)); err != nil {
			unreadable[s.Env] = true
			problems = append(problems, Problem{Setting: s.Env, Value: v, Fix: err.Error()})
		}
	}
	for _, pr := range p.problems() {
		if !unreadable[pr.Setting] { // its default is not what the person wrote: one message per setting is enough
			problems = append(problems, pr)
		}
	}
	return p, settingsError(problems)
}

// Validate returns nil or a *SettingsError that lists everything that is wrong with p, each with its fix.
func (p Policy) Validate() error { return settingsError(p.problems()) }

// Problem is one wrong setting.
type Problem struct {
	Setting string // environment variable
	Value   string // as given
	Fix     string // what to do about it
}

// SettingsError lists every wrong setting of a policy.
type SettingsError struct{ Problems []Problem }

// Error returns one line per problem.
func (e *SettingsError) Error() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%d wrong setting(s):", len(e.Problems))
	for _, p := range e.Problems {
		fmt.Fprintf(&b, "\n  %s=%q: %s", p.Setting, p.Value, p.Fix)
	}
	return b.String()
}

func settingsError(ps []Problem) error {
	if len(ps) == 0 {
		return nil
	}
	sort.SliceStable(ps, func(i, j int) bool { return settingIndex(ps[i].Setting) < settingIndex(ps[j].Setting) })
	return &SettingsError{Problems: ps}
}

func settingIndex(env string) int {
	for i, s := range settings {
		if s.Env == env {
			return i
		}
	}
	return len(settings)
}

// problems checks p as a whole; each check stands alone so that one mistake never hides another.
func (p Policy) problems() []Problem {
	var out []Problem
	check := func(ok bool, env string, value any, fix string, args ...any) {
		if !ok {
			out = append(out, Problem{Setting: env, Value: fmt.Sprint(value), Fix: fmt.Sprintf(fix, args...)})
		}
	}
	positive := func(env string, d time.Duration) {
		check(d > 0, env, seconds(d), "use a whole number of seconds above 0")
	}
	atLeastOne := func(env string, n int) { check(n >= 1, env, n, "use 1 or more") }

	check(ratio(p.CPUUp), "CPU_UP", p.CPUUp, "use a utilisation above 0 and at most 1, for example 0.70")
	check(ratio(p.CPUDown), "CPU_DOWN", p.CPUDown, "use a utilisation above 0 and at most 1, for example 0.30")
	check(!ratio(p.CPUUp) || !ratio(p.CPUDown) || p.CPUDown < p.CPUUp, "CPU_DOWN", p.CPUDown,
		"keep it below CPU_UP (%v), or the cluster would grow and shrink at the same load", p.CPUUp)
	positive("CPU_UP_SEC", p.CPUUpFor)
	positive("PENDING_UP_SEC", p.PendingUpFor)
	positive("IDLE_DOWN_SEC", p.IdleDownFor)
	check(p.CooldownUp >= 0, "COOLDOWN_UP_SEC", seconds(p.CooldownUp), "use 0 or more seconds")
	check(p.CooldownDown >= 0, "COOLDOWN_DOWN_SEC", seconds(p.CooldownDown), "use 0 or more seconds")
	check(p.MinWorkers >= 0, "MIN_WORKERS", p.MinWorkers, "use 0 or more")
	atLeastOne("MAX_WORKERS", p.MaxWorkers)
	check(p.MaxWorkers < 1 || p.MinWorkers <= p.MaxWorkers, "MIN_WORKERS", p.MinWorkers, "keep it at or below MAX_WORKERS (%d)", p.MaxWorkers)
	atLeastOne("MAX_BATCH_UP", p.MaxBatchUp)
	atLeastOne("MAX_BATCH_DOWN", p.MaxBatchDown)
	atLeastOne("PODS_PER_NODE", p.PodsPerNode)
	positive("JOIN_TIMEOUT_SEC", p.JoinTimeout)
	positive("DRAIN_TIMEOUT_SEC", p.DrainTimeout)
	positive("SCALE_DOWN_STUCK_SEC", p.ScaleDownStuck)
	if p.MaxBatchDown >= 1 && p.DrainTimeout > 0 {
		need := time.Duration(p.MaxBatchDown) * p.DrainTimeout
		check(need < p.ScaleDownStuck, "SCALE_DOWN_STUCK_SEC", seconds(p.ScaleDownStuck),
			"keep it above MAX_BATCH_DOWN x DRAIN_TIMEOUT_SEC (%d), or an action would be cleared while it drains", seconds(need))
	}
	check(p.Trigger == TriggerAny || p.Trigger == TriggerAll, "SCALE_UP_TRIGGER", p.Trigger, "use any or all")
	check(p.Sizing == SizingPodsPerNode || p.Sizing == SizingFit, "SIZING", p.Sizing, "use pods-per-node or fit")
	check(p.Pending == PendingUnschedulable || p.Pending == PendingPhase, "PENDING_SOURCE", p.Pending, "use unschedulable or phase")
	check(len(p.InstanceTypes) > 0, "INSTANCE_TYPES", strings.Join(p.InstanceTypes, ","), "name at least one instance type")
	check((p.StateTable == "") == (p.LogsTable == ""), "LOGS_TABLE", p.LogsTable, "set both STATE_TABLE and LOGS_TABLE, or neither")
	return out
}

func ratio(f float64) bool { return f > 0 && f <= 1 } // false for NaN

func seconds(d time.Duration) int64 { return int64(d / time.Second) }

// settings is the one list of names, defaults and meanings; help, documentation and parsing all read it.
var settings = []Setting{
	{"CLUSTER", "", "name of the cluster, when several share a table", setText(func(p *Policy) *string { return &p.Cluster })},
	{"CPU_UP", "0.70", "scale up at or above this average utilisation, 0..1", setRatio(func(p *Policy) *float64 { return &p.CPUUp })},
	{"CPU_DOWN", "0.30", "scale down at or below this average utilisation, 0..1", setRatio(func(p *Policy) *float64 { return &p.CPUDown })},
	{"CPU_UP_SEC", "180", "CPU must stay at or above CPU_UP this long", setSeconds(func(p *Policy) *time.Duration { return &p.CPUUpFor })},
	{"PENDING_UP_SEC", "180", "pods must be pending this long", setSeconds(func(p *Policy) *time.Duration { return &p.PendingUpFor })},
	{"IDLE_DOWN_SEC", "600", "cluster must be idle this long", setSeconds(func(p *Policy) *time.Duration { return &p.IdleDownFor })},
	{"COOLDOWN_UP_SEC", "300", "since the last completed action, before a scale-up", setSeconds(func(p *Policy) *time.Duration { return &p.CooldownUp })},
	{"COOLDOWN_DOWN_SEC", "600", "since the last completed action, before a scale-down", setSeconds(func(p *Policy) *time.Duration { return &p.CooldownDown })},
	{"MIN_WORKERS", "2", "fewest workers", setInt(func(p *Policy) *int { return &p.MinWorkers })},
	{"MAX_WORKERS", "10", "most workers", setInt(func(p *Policy) *int { return &p.MaxWorkers })},
	{"MAX_BATCH_UP", "5", "most nodes per scale-up", setInt(func(p *Policy) *int { return &p.MaxBatchUp })},
	{"MAX_BATCH_DOWN", "1", "most nodes per scale-down", setInt(func(p *Policy) *int { return &p.MaxBatchDown })},
	{"PODS_PER_NODE", "10", "pods that one new node is expected to take", setInt(func(p *Policy) *int { return &p.PodsPerNode })},
	{"JOIN_TIMEOUT_SEC", "600", "launched nodes must be Ready within this", setSeconds(func(p *Policy) *time.Duration { return &p.JoinTimeout })},
	{"DRAIN_TIMEOUT_SEC", "300", "hard limit for one node's drain, across ticks", setSeconds(func(p *Policy) *time.Duration { return &p.DrainTimeout })},
	{"SCALE_DOWN_STUCK_SEC", "900", "a scale-down older than this is cleared", setSeconds(func(p *Policy) *time.Duration { return &p.ScaleDownStuck })},
	{"SCALE_UP_TRIGGER", "any", "any: CPU or pending pods; all: CPU and pending pods", func(p *Policy, v string) error { p.Trigger = Trigger(v); return nil }},
	{"SIZING", "pods-per-node", "pods-per-node or fit", func(p *Policy, v string) error { p.Sizing = SizingMode(v); return nil }},
	{"PENDING_SOURCE", "unschedulable", "which count drives: unschedulable or phase", func(p *Policy, v string) error { p.Pending = PendingSource(v); return nil }},
	{"INSTANCE_TYPES", "t3.large,t3a.large,m5.large", "types to launch, most wanted first", setList(func(p *Policy) *[]string { return &p.InstanceTypes })},
	{"SPOT", "true", "try Spot before On-Demand", setBool(func(p *Policy) *bool { return &p.Spot })},
	{"STATE_TABLE", "", "DynamoDB table of the record", setText(func(p *Policy) *string { return &p.StateTable })},
	{"LOGS_TABLE", "", "DynamoDB table of the journal", setText(func(p *Policy) *string { return &p.LogsTable })},
}

func setText(f func(*Policy) *string) func(*Policy, string) error {
	return func(p *Policy, v string) error { *f(p) = v; return nil }
}

func setRatio(f func(*Policy) *float64) func(*Policy, string) error {
	return func(p *Policy, v string) error {
		n, err := strconv.ParseFloat(v, 64)
		if err != nil || math.IsNaN(n) || math.IsInf(n, 0) {
			return errors.New("write a number between 0 and 1, for example 0.5")
		}
		*f(p) = n
		return nil
	}
}

func setSeconds(f func(*Policy) *time.Duration) func(*Policy, string) error {
	return func(p *Policy, v string) error {
		n, err := strconv.ParseInt(v, 10, 32)
		if err != nil {
			return errors.New("write a whole number of seconds, for example 300")
		}
		*f(p) = time.Duration(n) * time.Second
		return nil
	}
}

func setInt(f func(*Policy) *int) func(*Policy, string) error {
	return func(p *Policy, v string) error {
		n, err := strconv.ParseInt(v, 10, 32)
		if err != nil {
			return errors.New("write a whole number")
		}
		*f(p) = int(n)
		return nil
	}
}

func setBool(f func(*Policy) *bool) func(*Policy, string) error {
	return func(p *Policy, v string) error {
		b, err := strconv.ParseBool(v)
		if err != nil {
			return errors.New("write true or false")
		}
		*f(p) = b
		return nil
	}
}

func setList(f func(*Policy) *[]string) func(*Policy, string) error {
	return func(p *Policy, v string) error {
		var out []string
		for _, s := range strings.Split(v, ",") {
			if s = strings.TrimSpace(s); s != "" {
				out = append(out, s)
			}
		}
		*f(p) = out
		return nil
	}
}
