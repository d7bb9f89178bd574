package nodes

import (
	"errors"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/muster-dev/muster/setting"
)

func env(kv map[string]string) func(string) (string, bool) {
	return func(k string) (string, bool) { v, ok := kv[k]; return v, ok }
}

func TestDefaultPolicyIsTheDocumentedOne(t *testing.T) {
	p := DefaultPolicy()
	if err := p.Validate(); err != nil {
		t.Fatalf("defaults are refused: %v", err)
	}
	for _, c := range []struct {
		env       string
		got, want any
	}{
		{"CPU_UP", p.CPUUp, 0.70}, {"CPU_DOWN", p.CPUDown, 0.30},
		{"CPU_UP_SEC", p.CPUUpFor, 180 * time.Second}, {"PENDING_UP_SEC", p.PendingUpFor, 180 * time.Second},
		{"IDLE_DOWN_SEC", p.IdleDownFor, 600 * time.Second},
		{"COOLDOWN_UP_SEC", p.CooldownUp, 300 * time.Second}, {"COOLDOWN_DOWN_SEC", p.CooldownDown, 600 * time.Second},
		{"MIN_WORKERS", p.MinWorkers, 2}, {"MAX_WORKERS", p.MaxWorkers, 10},
		{"MAX_BATCH_UP", p.MaxBatchUp, 5}, {"MAX_BATCH_DOWN", p.MaxBatchDown, 1}, {"MAX_ACTIONS", p.MaxActions, 10}, {"CONSOLIDATION", p.Consolidation, ConsolidationOff}, {"CONSOLIDATE_PER_HOUR", p.ConsolidatePerHour, 6}, {"CONSOLIDATE_WINDOWS", p.ConsolidateWindows.String(), ""}, {"DRIFT", p.Drift, false}, {"EXPIRE_AFTER_SEC", p.ExpireAfter, time.Duration(0)}, {"DISK_PRESSURE_TIMEOUT_SEC", p.DiskPressureFor, 1800 * time.Second}, {"IMPAIRED_TIMEOUT_SEC", p.ImpairedFor, 600 * time.Second}, {"PODS_PER_NODE", p.PodsPerNode, 10},
		{"JOIN_TIMEOUT_SEC", p.JoinTimeout, 600 * time.Second}, {"NOT_READY_TIMEOUT_SEC", p.NotReadyFor, 600 * time.Second}, {"DRAIN_TIMEOUT_SEC", p.DrainTimeout, 300 * time.Second},
		{"SCALE_DOWN_STUCK_SEC", p.ScaleDownStuck, 900 * time.Second},
		{"NODE_MAX_PODS", p.NodeMaxPods, 110}, {"SCALE_UP_TRIGGER", p.Trigger, TriggerAny}, {"SIZING", p.Sizing, SizingPodsPerNode}, {"SIGNALS", p.Signals, SignalsPrometheus},
	} {
		if c.got != c.want {
			t.Errorf("%s defaults to %v, want %v", c.env, c.got, c.want)
		}
	}
}

func TestPolicyFromEnvReadsEverySetting(t *testing.T) {
	got, err := PolicyFromEnv(env(map[string]string{
		"CLUSTER": "blue", "SIGNALS": "prometheus", "CPU_UP": "0.8", "CPU_DOWN": " 0.2 ", "CPU_UP_SEC": "60", "PENDING_UP_SEC": "61", "IDLE_DOWN_SEC": "62",
		"COOLDOWN_UP_SEC": "0", "COOLDOWN_DOWN_SEC": "64", "MIN_WORKERS": "0", "MAX_WORKERS": "4", "MAX_BATCH_UP": "3",
		"MAX_BATCH_DOWN": "2", "MAX_ACTIONS": "6", "CONSOLIDATION": "replace", "CONSOLIDATE_PER_HOUR": "3", "CONSOLIDATE_WINDOWS": "Mon-Fri 22:00-06:00", "DRIFT": "true", "EXPIRE_AFTER_SEC": "3600", "PODS_PER_NODE": "7", "JOIN_TIMEOUT_SEC": "65", "NOT_READY_TIMEOUT_SEC": "67", "DISK_PRESSURE_TIMEOUT_SEC": "68", "IMPAIRED_TIMEOUT_SEC": "69", "DRAIN_TIMEOUT_SEC": "66",
		"SCALE_DOWN_STUCK_SEC": "133", "SCALE_UP_TRIGGER": "all", "SIZING": "fit", "PENDING_SOURCE": "phase",
		"INSTANCE_TYPES": "a, b,", "SPOT": "false", "STATE_TABLE": "s", "LOGS_TABLE": "l",
		"INSTANCE_TABLE": "types.csv", "NODE_MAX_PODS": "58", "NODE_LABELS": "pool=batch, team=", "NODE_TAINTS": "batch=true:NoSchedule,slow:NoExecute",
	}))
	if err != nil {
		t.Fatal(err)
	}
	want := Policy{Cluster: "blue", CPUUp: 0.8, CPUDown: 0.2, CPUUpFor: 60 * time.Second, PendingUpFor: 61 * time.Second,
		IdleDownFor: 62 * time.Second, CooldownDown: 64 * time.Second, MaxWorkers: 4, MaxBatchUp: 3, MaxBatchDown: 2, MaxActions: 6, Consolidation: ConsolidationReplace, ConsolidatePerHour: 3, ConsolidateWindows: Windows{{time.Monday, time.Friday, 22 * 60, 6 * 60}}, Drift: true, ExpireAfter: time.Hour, PodsPerNode: 7,
		JoinTimeout: 65 * time.Second, NotReadyFor: 67 * time.Second, DiskPressureFor: 68 * time.Second, ImpairedFor: 69 * time.Second, DrainTimeout: 66 * time.Second, ScaleDownStuck: 133 * time.Second, Signals: SignalsPrometheus, Trigger: TriggerAll,
		Sizing: SizingFit, Pending: PendingPhase, InstanceTypes: []string{"a", "b"}, StateTable: "s", LogsTable: "l",
		InstanceTable: "types.csv", NodeMaxPods: 58, NodeLabels: map[string]string{"pool": "batch", "team": ""},
		NodeTaints: []Taint{{Key: "batch", Value: "true", Effect: "NoSchedule"}, {Key: "slow", Effect: "NoExecute"}}}
	if !equal(got, want) {
		t.Errorf("got  %+v\nwant %+v", got, want)
	}
}

func TestEverySettingWrongAtOnceIsOneMessageThatListsAll(t *testing.T) {
	_, err := PolicyFromEnv(env(map[string]string{
		"CPU_UP": "70%", "CPU_DOWN": "NaN", "CPU_UP_SEC": "-1", "PENDING_UP_SEC": "3m", "IDLE_DOWN_SEC": "0", "COOLDOWN_UP_SEC": "-5",
		"COOLDOWN_DOWN_SEC": "x", "MIN_WORKERS": "20", "MAX_WORKERS": "10", "MAX_BATCH_UP": "0", "MAX_BATCH_DOWN": "-1", "MAX_ACTIONS": "0", "CONSOLIDATION": "on", "CONSOLIDATE_PER_HOUR": "-1", "CONSOLIDATE_WINDOWS": "at night", "DRIFT": "maybe", "EXPIRE_AFTER_SEC": "5", "DISK_PRESSURE_TIMEOUT_SEC": "5", "IMPAIRED_TIMEOUT_SEC": "5",
		"PODS_PER_NODE": "0", "JOIN_TIMEOUT_SEC": "", "NOT_READY_TIMEOUT_SEC": "30", "DRAIN_TIMEOUT_SEC": "0", "SCALE_DOWN_STUCK_SEC": "0", "SIGNALS": "both", "SCALE_UP_TRIGGER": "both",
		"SIZING": "guess", "PENDING_SOURCE": "some", "INSTANCE_TYPES": " , ", "SPOT": "perhaps", "EMPTY_ZONES": "some", "STATE_TABLE": "s",
		"NODE_MAX_PODS": "0", "NODE_LABELS": "batch", "NODE_TAINTS": "batch=true:Never", "POOLS": "many",
	}))
	var se *setting.Error
	if !errors.As(err, &se) {
		t.Fatalf("got %v, want a *setting.Error", err)
	}
	seen := map[string]int{}
	for _, p := range se.Problems {
		seen[p.Setting]++
		if p.Fix == "" {
			t.Errorf("%s has no fix", p.Setting)
		}
		if !strings.Contains(err.Error(), p.Setting) {
			t.Errorf("%s is not in the message", p.Setting)
		}
	}
	for _, s := range Settings() {
		fine := s.Env == "CLUSTER" || s.Env == "STATE_TABLE" || s.Env == "INSTANCE_TABLE" || s.Env == "MAX_WORKERS"
		if want := map[bool]int{true: 0, false: 1}[fine]; seen[s.Env] != want {
			t.Errorf("%s is reported %d times, want %d", s.Env, seen[s.Env], want)
		}
	}
}

func TestValidateRefusesSettingsThatContradictEachOther(t *testing.T) {
	for name, c := range map[string]struct {
		change  func(*Policy)
		setting string
	}{
		"down threshold at up threshold":     {func(p *Policy) { p.CPUDown = p.CPUUp }, "CPU_DOWN"},
		"minimum above maximum":              {func(p *Policy) { p.MinWorkers = 11 }, "MIN_WORKERS"},
		"stuck before the drains can end":    {func(p *Policy) { p.MaxBatchDown = 3 }, "SCALE_DOWN_STUCK_SEC"},
		"a state table without an event log": {func(p *Policy) { p.StateTable = "s" }, "LOGS_TABLE"},
		"a threshold that is not a number":   {func(p *Policy) { p.CPUUp = math.NaN() }, "CPU_UP"},
	} {
		t.Run(name, func(t *testing.T) {
			p := DefaultPolicy()
			c.change(&p)
			var se *setting.Error
			if !errors.As(p.Validate(), &se) || len(se.Problems) != 1 || se.Problems[0].Setting != c.setting {
				t.Errorf("got %v, want one problem with %s", p.Validate(), c.setting)
			}
		})
	}
}

func TestWithChangesOnlyWhatIsGiven(t *testing.T) {
	p := DefaultPolicy()
	p.CPUUp, p.MaxWorkers, p.InstanceTypes = 0.9, 30, []string{"x"}
	got, err := p.With(env(map[string]string{"MAX_WORKERS": "20", "CPU_DOWN": "0.30"}))
	want := p
	want.MaxWorkers = 20
	if err != nil || !equal(got, want) {
		t.Errorf("got %+v, %v", got, err)
	}
	if _, err := p.With(env(map[string]string{"CPU_DOWN": "0.95"})); err == nil || !strings.Contains(err.Error(), "below CPU_UP (0.9)") {
		t.Errorf("a contradiction with what was there is not found: %v", err)
	}
}
