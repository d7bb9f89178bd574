package nodes

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/muster-dev/muster/setting"
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

// Consolidation says what is done about workers whose pods need less than is paid for.
type Consolidation string

// The kinds of consolidation.
const (
	ConsolidationOff     Consolidation = "off"     // nothing: only an idle cluster shrinks
	ConsolidationRemove  Consolidation = "remove"  // a worker is removed if its pods fit on the others
	ConsolidationReplace Consolidation = "replace" // and replaced if they fit on the others and a cheaper node
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

	MinWorkers   int  // never fewer Ready, uncordoned workers by our own doing
	EmptyZones   bool // a scale-down may take the last worker of a zone while others have some
	MaxWorkers   int  // never more pending and running instances, except by open replacements
	MaxBatchUp   int  // most nodes of one scale-up
	MaxBatchDown int  // most nodes of one scale-down
	MaxActions   int  // most scaling actions in flight at a time; below 1 stands for 1
	PodsPerNode  int  // pods that one new node is expected to take

	Consolidation Consolidation // "" stands for off
	// ConsolidatePerHour is the disruption budget: the most workers whose removal a consolidation or drift begins within an hour.
	ConsolidatePerHour int
	// Drift says that a worker that would be launched otherwise now is replaced.
	Drift       bool
	ExpireAfter time.Duration // a worker that was launched longer ago is replaced; 0: never
	// ConsolidateWindows are when a consolidation or drift may begin.
	ConsolidateWindows Windows `json:",omitempty"`

	JoinTimeout     time.Duration // launched nodes must be Ready within this
	NotReadyFor     time.Duration // a worker whose node has not been Ready for this long is removed; 0: never
	DiskPressureFor time.Duration // a worker whose disk has been full for this long is drained and removed; 0: never
	ImpairedFor     time.Duration // a worker whose instance has failed a status check for this long is drained and removed; 0: never, and none is read
	DrainTimeout    time.Duration // hard limit of one node's drain, across ticks
	ScaleDownStuck  time.Duration // a scale-down older than this is cleared

	Signals SignalSource // "" stands for prometheus
	Trigger Trigger
	Sizing  SizingMode
	Pending PendingSource

	InstanceTypes []string // types to launch, most wanted first
	Spot          bool     // whether Spot is tried before On-Demand

	InstanceTable string            // file with sizes and prices of instance types; "" is the table that comes with Muster
	NodeMaxPods   int               // pods that the kubelet of a new node takes
	NodeLabels    map[string]string // that new nodes are given by their user data, beside the well-known ones
	NodeTaints    []Taint           // that new nodes are given by their user data

	// Pools are the kinds of nodes; none: one kind, by the settings above. Pool is the one that this policy is narrowed to, see In.
	Pools []Pool `json:",omitempty"`
	Pool  string `json:",omitempty"`

	StateTable string // table of the record; "" with the store on this machine
	LogsTable  string // table of the event log; "" with the store on this machine
}

// DefaultPolicy returns the documented defaults.
func DefaultPolicy() Policy {
	var p Policy
	if err := setting.Parse(&p, settings, func(string) (string, bool) { return "", false }, nil); err != nil {
		panic(err) // without values there are none that can't be read
	}
	return p
}

// mostActions is how many actions the record is made for: DynamoDB's limit of an item is 400 KB.
const mostActions = 50

// parallel reports whether several actions may be in flight.
func (p Policy) parallel() bool { return p.MaxActions > 1 }

// Settings lists every setting in the order in which documentation shows them.
func Settings() []setting.Info { return setting.Describe(settings) }

// PolicyFromEnv reads a policy from the environment that lookup stands for (os.LookupEnv in production); what
// is unset keeps its default. The error is a *setting.Error that lists every wrong setting at once, both
// unreadable values and values that contradict each other.
func PolicyFromEnv(lookup setting.Lookup) (Policy, error) {
	var p Policy
	err := setting.Parse(&p, settings, DefaultPolicy().withModeDefaults(lookup), Policy.problems)
	return p, err
}

// With returns p with the settings that lookup has changed; the others stay as they are in p. Errors are
// PolicyFromEnv's.
func (p Policy) With(lookup setting.Lookup) (Policy, error) {
	changes := slices.Clone(settings)
	for i := range changes {
		changes[i].Default = ""
	}
	err := setting.Parse(&p, changes, p.withModeDefaults(lookup), Policy.problems)
	return p, err
}

// Validate returns nil or a *setting.Error that lists everything that is wrong with p, each with its fix.
func (p Policy) Validate() error { return setting.Problems(p.problems(), nil) }

// problems checks p as a whole; each check stands alone so that one mistake never hides another.
func (p Policy) problems() []setting.Problem {
	var out []setting.Problem
	check := func(ok bool, env string, value any, fix string, args ...any) {
		if !ok {
			out = append(out, setting.Problem{Setting: env, Value: fmt.Sprint(value), Fix: fmt.Sprintf(fix, args...)})
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
	positive("IDLE_DOWN_SEC", p.IdleDownFor)
	check(p.CooldownUp >= 0, "COOLDOWN_UP_SEC", seconds(p.CooldownUp), "use 0 or more seconds")
	check(p.CooldownDown >= 0, "COOLDOWN_DOWN_SEC", seconds(p.CooldownDown), "use 0 or more seconds")
	check(p.MinWorkers >= 0, "MIN_WORKERS", p.MinWorkers, "use 0 or more")
	atLeastOne("MAX_WORKERS", p.MaxWorkers)
	check(p.MaxWorkers < 1 || p.MinWorkers <= p.MaxWorkers, "MIN_WORKERS", p.MinWorkers, "keep it at or below MAX_WORKERS (%d)", p.MaxWorkers)
	atLeastOne("MAX_BATCH_UP", p.MaxBatchUp)
	atLeastOne("MAX_BATCH_DOWN", p.MaxBatchDown)
	check(p.MaxActions >= 1 && p.MaxActions <= mostActions, "MAX_ACTIONS", p.MaxActions, "use 1 to %d", mostActions)
	check(p.Consolidation.known(), "CONSOLIDATION", p.Consolidation, "use off, remove or replace")
	check(p.ConsolidatePerHour >= 0 && p.ConsolidatePerHour <= mostPerHour, "CONSOLIDATE_PER_HOUR", p.ConsolidatePerHour,
		"use 1 to %d, or 0 to begin none", mostPerHour)
	atLeastOne("PODS_PER_NODE", p.PodsPerNode)
	atLeastOne("NODE_MAX_PODS", p.NodeMaxPods)
	positive("JOIN_TIMEOUT_SEC", p.JoinTimeout)
	check(p.ExpireAfter == 0 || p.ExpireAfter >= time.Hour, "EXPIRE_AFTER_SEC", seconds(p.ExpireAfter), "use 3600 or more, or 0 to keep workers of any age")
	check(p.DiskPressureFor == 0 || p.DiskPressureFor >= time.Minute, "DISK_PRESSURE_TIMEOUT_SEC", seconds(p.DiskPressureFor),
		"use 60 or more, or 0 to keep workers under disk pressure")
	check(p.ImpairedFor == 0 || p.ImpairedFor >= time.Minute, "IMPAIRED_TIMEOUT_SEC", seconds(p.ImpairedFor),
		"use 60 or more seconds, or 0 to keep workers whose instances fail a status check")
	check(p.NotReadyFor == 0 || p.NotReadyFor >= time.Minute, "NOT_READY_TIMEOUT_SEC", seconds(p.NotReadyFor),
		"use 60 or more seconds, so that a reboot or a moment without the network costs no worker, or 0 to keep every worker that is not Ready")
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
	out = append(out, p.signalProblems()...)
	out = append(out, p.poolProblems()...)
	check((p.StateTable == "") == (p.LogsTable == ""), "LOGS_TABLE", p.LogsTable, "set both STATE_TABLE and LOGS_TABLE, or neither")
	return out
}

func ratio(f float64) bool { return f > 0 && f <= 1 } // false for NaN

func seconds(d time.Duration) int64 { return int64(d / time.Second) }

var (
	labelName  = regexp.MustCompile(`^([a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*/)?[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?$`)
	labelValue = regexp.MustCompile(`^([A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?)?$`)
)

// readLabels reads name=value pairs separated by commas.
func readLabels(p *Policy, v string) error {
	p.NodeLabels = nil
	for _, s := range strings.Split(v, ",") {
		if s = strings.TrimSpace(s); s == "" {
			continue
		}
		name, value, ok := strings.Cut(s, "=")
		if !ok || name == "" {
			return fmt.Errorf("write name=value pairs separated by commas, for example pool=batch; %q is none", s)
		}
		if err := checkLabel(name, value); err != nil {
			return err
		}
		if p.NodeLabels == nil {
			p.NodeLabels = map[string]string{}
		}
		p.NodeLabels[name] = value
	}
	return nil
}

// checkLabel reports what is wrong with a label.
func checkLabel(name, value string) error {
	if !labelName.MatchString(name) || !labelValue.MatchString(value) {
		return fmt.Errorf("%q is no label of Kubernetes: use up to 63 letters, digits, -, _ and . for name and value, beginning and ending with a letter or a digit, for example example.com/pool=batch", name+"="+value)
	}
	return nil
}

// readTaints reads taints as kubectl writes them, separated by commas.
func readTaints(p *Policy, v string) error {
	p.NodeTaints = nil
	for _, s := range strings.Split(v, ",") {
		if s = strings.TrimSpace(s); s == "" {
			continue
		}
		t, err := parseTaint(s)
		if err != nil {
			return err
		}
		p.NodeTaints = append(p.NodeTaints, t)
	}
	return nil
}

// parseTaint reads one taint as kubectl writes it.
func parseTaint(s string) (Taint, error) {
	rest, effect, _ := strings.Cut(s, ":")
	key, value, _ := strings.Cut(rest, "=")
	if key == "" || effect != "NoSchedule" && effect != "PreferNoSchedule" && effect != "NoExecute" {
		return Taint{}, fmt.Errorf("write key=value:effect separated by commas, with NoSchedule, PreferNoSchedule or NoExecute, for example batch=true:NoSchedule; %q is none", s)
	}
	if !labelName.MatchString(key) || !labelValue.MatchString(value) {
		return Taint{}, fmt.Errorf("%q is no taint of Kubernetes: use up to 63 letters, digits, -, _ and . for key and value, beginning and ending with a letter or a digit, for example example.com/batch=true:NoSchedule", s)
	}
	return Taint{Key: key, Value: value, Effect: effect}, nil
}

// settings is the one list of names, defaults and meanings; help, documentation and parsing all read it.
var settings = []setting.Setting[Policy]{
	setting.New("CLUSTER", "", "name of the cluster, when several share a table", setting.Text(func(p *Policy) *string { return &p.Cluster })),
	setting.New("SIGNALS", "prometheus", "where pending pods and load are read: prometheus; kubernetes: pending pods and requests from its API, with PENDING_UP_SEC=0, COOLDOWN_UP_SEC=0, CONSOLIDATION=remove unless set, no CPU", func(p *Policy, v string) error { p.Signals = SignalSource(v); return nil }),
	setting.New("CPU_UP", "0.70", "scale up at or above this average utilisation, 0..1", setting.Number(func(p *Policy) *float64 { return &p.CPUUp })),
	setting.New("CPU_DOWN", "0.30", "scale down at or below this average utilisation, 0..1", setting.Number(func(p *Policy) *float64 { return &p.CPUDown })),
	setting.New("CPU_UP_SEC", "180", "CPU must stay at or above CPU_UP this long", setting.Seconds(func(p *Policy) *time.Duration { return &p.CPUUpFor })),
	setting.New("PENDING_UP_SEC", "180", "pods must be pending this long", setting.Seconds(func(p *Policy) *time.Duration { return &p.PendingUpFor })),
	setting.New("IDLE_DOWN_SEC", "600", "cluster must be idle this long", setting.Seconds(func(p *Policy) *time.Duration { return &p.IdleDownFor })),
	setting.New("COOLDOWN_UP_SEC", "300", "since the last completed action, before a scale-up", setting.Seconds(func(p *Policy) *time.Duration { return &p.CooldownUp })),
	setting.New("COOLDOWN_DOWN_SEC", "600", "since the last completed action, before a scale-down", setting.Seconds(func(p *Policy) *time.Duration { return &p.CooldownDown })),
	setting.New("MIN_WORKERS", "2", "fewest workers", setting.Int(func(p *Policy) *int { return &p.MinWorkers })),
	setting.New("MAX_WORKERS", "10", "most workers", setting.Int(func(p *Policy) *int { return &p.MaxWorkers })),
	setting.New("EMPTY_ZONES", "false", "a scale-down may take the last worker of a zone; otherwise each zone keeps one while several have workers", setting.Bool(func(p *Policy) *bool { return &p.EmptyZones })),
	setting.New("MAX_BATCH_UP", "5", "most nodes per scale-up", setting.Int(func(p *Policy) *int { return &p.MaxBatchUp })),
	setting.New("MAX_BATCH_DOWN", "1", "most nodes per scale-down", setting.Int(func(p *Policy) *int { return &p.MaxBatchDown })),
	setting.New("MAX_ACTIONS", "10", "most scaling actions in flight at a time; 1: one after the other", setting.Int(func(p *Policy) *int { return &p.MaxActions })),
	setting.New("CONSOLIDATION", "off", "remove: a worker whose pods fit on the others is removed; replace: it may be replaced by a cheaper one; off", func(p *Policy, v string) error { p.Consolidation = Consolidation(v); return nil }),
	setting.New("CONSOLIDATE_PER_HOUR", "6", "disruption budget: most workers removed by CONSOLIDATION and DRIFT within an hour", setting.Int(func(p *Policy) *int { return &p.ConsolidatePerHour })),
	setting.New("CONSOLIDATE_WINDOWS", "", "when CONSOLIDATION and DRIFT may begin, in UTC: [DAY[-DAY] ]HH:MM-HH:MM,..., for example Mon-Fri 22:00-06:00,Sat-Sun 00:00-24:00; default always", readWindows),
	setting.New("DRIFT", "false", "replace workers whose launch template, image, user data, labels, taints or type are not what new nodes get", setting.Bool(func(p *Policy) *bool { return &p.Drift })),
	setting.New("EXPIRE_AFTER_SEC", "0", "replace workers that were launched longer ago than this; 0: never", setting.Seconds(func(p *Policy) *time.Duration { return &p.ExpireAfter })),
	setting.New("PODS_PER_NODE", "10", "pods that one new node is expected to take", setting.Int(func(p *Policy) *int { return &p.PodsPerNode })),
	setting.New("JOIN_TIMEOUT_SEC", "600", "launched nodes must be Ready within this", setting.Seconds(func(p *Policy) *time.Duration { return &p.JoinTimeout })),
	setting.New("NOT_READY_TIMEOUT_SEC", "600", "a worker that has not been Ready for this long is removed; 0: never", setting.Seconds(func(p *Policy) *time.Duration { return &p.NotReadyFor })),
	setting.New("DISK_PRESSURE_TIMEOUT_SEC", "1800", "a worker that has been under disk pressure for this long is drained and removed; 0: never", setting.Seconds(func(p *Policy) *time.Duration { return &p.DiskPressureFor })),
	setting.New("IMPAIRED_TIMEOUT_SEC", "600", "a worker whose instance has failed a status check of EC2 for this long is drained and removed; 0: never, and none is read", setting.Seconds(func(p *Policy) *time.Duration { return &p.ImpairedFor })),
	setting.New("DRAIN_TIMEOUT_SEC", "300", "hard limit for one node's drain, across ticks", setting.Seconds(func(p *Policy) *time.Duration { return &p.DrainTimeout })),
	setting.New("SCALE_DOWN_STUCK_SEC", "900", "a scale-down older than this is cleared", setting.Seconds(func(p *Policy) *time.Duration { return &p.ScaleDownStuck })),
	setting.New("SCALE_UP_TRIGGER", "any", "any: CPU or pending pods; all: CPU and pending pods", func(p *Policy, v string) error { p.Trigger = Trigger(v); return nil }),
	setting.New("SIZING", "pods-per-node", "pods-per-node or fit", func(p *Policy, v string) error { p.Sizing = SizingMode(v); return nil }),
	setting.New("PENDING_SOURCE", "unschedulable", "which count drives: unschedulable or phase", func(p *Policy, v string) error { p.Pending = PendingSource(v); return nil }),
	setting.New("INSTANCE_TYPES", "t3.large,t3a.large,m5.large", "types to launch, most wanted first", setting.List(func(p *Policy) *[]string { return &p.InstanceTypes })),
	setting.New("SPOT", "true", "try Spot before On-Demand", setting.Bool(func(p *Policy) *bool { return &p.Spot })),
	setting.New("INSTANCE_TABLE", "", "file with sizes and prices of instance types, instead of the table that comes with Muster", setting.Text(func(p *Policy) *string { return &p.InstanceTable })),
	setting.New("NODE_MAX_PODS", "110", "pods that a new node takes", setting.Int(func(p *Policy) *int { return &p.NodeMaxPods })),
	setting.New("NODE_LABELS", "", "labels of new nodes: name=value,...; given by USER_DATA=k3s, other user data must give them itself", readLabels),
	setting.New("NODE_TAINTS", "", "taints of new nodes: key=value:effect,...; given by USER_DATA=k3s, other user data must give them itself", readTaints),
	setting.New(PoolsSetting, "", "kinds of nodes, each with types, zones, labels, taints, weight and limits of its own: a list in the file of --config, JSON elsewhere", readPools),
	setting.New("STATE_TABLE", "", "DynamoDB table of the record", setting.Text(func(p *Policy) *string { return &p.StateTable })),
	setting.New("LOGS_TABLE", "", "DynamoDB table of the event log", setting.Text(func(p *Policy) *string { return &p.LogsTable })),
}
