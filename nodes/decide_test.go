package nodes

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"
	"time"
)

// situation is a cluster in which nothing is to be done; rows of the tables change one thing.
type situation struct {
	p   Policy
	o   Observation
	r   Record
	now time.Time
}

// steady has 4 Ready workers in two zones, medium load, no pending pods, cooldowns over.
func steady() *situation {
	s := &situation{p: DefaultPolicy(), now: at(100000)}
	s.o.FleetKnown = true
	for i, zone := range []string{"a", "a", "b", "b"} {
		s.o.Fleet = append(s.o.Fleet, readyWorker(i+1, zone))
	}
	s.p.MaxActions = 1
	s.metrics(0.5, 0)
	s.r = NewRecord("")
	s.r.LastScaleEpoch = s.ago(3600)
	return s
}

func readyWorker(n int, zone string) Worker {
	id := fmt.Sprintf("i-%d", n)
	return Worker{
		Instance: Instance{ID: id, State: StateRunning, Zone: zone, LaunchedAt: at(n)},
		Node:     &Node{NodeRef: NodeRef{Name: id, UID: "u" + id}, Ready: true, Allocatable: Resources{MilliCPU: 4000, Memory: 8 << 30, Pods: 20}},
	}
}

func (s *situation) ago(sec int) int64 { return s.now.Unix() - int64(sec) }

// metrics sets every reading to a load that has lasted.
func (s *situation) metrics(cpu float64, pending int) {
	n := float64(pending)
	s.o.Readings = Readings{CPU: Read(cpu), CPUMin: Read(cpu), CPUMax: Read(cpu), Pending: Read(n), PendingMin: Read(n), PendingMax: Read(n)}
	s.r.PendingSinceEpoch, s.r.IdleSinceEpoch, s.r.CPUHighSinceEpoch = Num(0), Num(0), 0
	if pending > 0 {
		s.r.PendingSinceEpoch = Num(s.ago(3600))
	}
	if cpu <= s.p.CPUDown && pending == 0 {
		s.r.IdleSinceEpoch = Num(s.ago(3600))
	}
	if cpu >= s.p.CPUUp {
		s.r.CPUHighSinceEpoch = s.ago(3600)
	}
}

func pressed() *situation { s := steady(); s.metrics(0.5, 12); return s }
func hot() *situation     { s := steady(); s.metrics(0.9, 0); return s }
func idle() *situation    { s := steady(); s.metrics(0.1, 0); return s }

func none(*situation) {}

func TestDecide(t *testing.T) {
	type row struct {
		name   string
		s      *situation
		change func(*situation)
		action Action
		reason Reason
		nodes  int
	}
	rows := []row{
		{"nothing to do at medium load", steady(), none, Noop, ReasonSteady, 0},

		// scale up: either trigger (seed 002)
		{"pods pending for long ask for nodes", pressed(), none, ScaleUp, ReasonTriggered, 2},
		{"CPU high for long asks for one node", hot(), none, ScaleUp, ReasonTriggered, 1},
		{"CPU exactly at CPU_UP counts as high", hot(), func(s *situation) { s.metrics(0.70, 0) }, ScaleUp, ReasonTriggered, 1},
		{"CPU just below CPU_UP does not", hot(), func(s *situation) { s.metrics(0.69, 0) }, Noop, ReasonSteady, 0},
		{"CPU high but not since CPU_UP_SEC", hot(), func(s *situation) { s.r.CPUHighSinceEpoch = s.ago(179) }, Noop, ReasonCPUTooShort, 0},
		{"CPU high since exactly CPU_UP_SEC", hot(), func(s *situation) { s.r.CPUHighSinceEpoch = s.ago(180) }, ScaleUp, ReasonTriggered, 1},
		{"CPU high by the timestamp but not by the sustained query", hot(), func(s *situation) { s.o.Readings.CPUMin = Read(0.6) }, Noop, ReasonCPUTooShort, 0},
		{"pods pending but not since PENDING_UP_SEC", pressed(), func(s *situation) { s.r.PendingSinceEpoch = Num(s.ago(179)) }, Noop, ReasonPendingTooShort, 0},
		{"pods pending since exactly PENDING_UP_SEC", pressed(), func(s *situation) { s.r.PendingSinceEpoch = Num(s.ago(180)) }, ScaleUp, ReasonTriggered, 2},
		{"pods pending by the timestamp but not by the sustained query", pressed(), func(s *situation) { s.o.Readings.PendingMin = Read(0) }, Noop, ReasonPendingTooShort, 0},
		{"pods pending that no tick has noted yet", pressed(), func(s *situation) { s.r.PendingSinceEpoch = Num(0) }, Noop, ReasonPendingTooShort, 0},
		{"pods pending too short while CPU has been high for long", pressed(), func(s *situation) { s.metrics(0.9, 12); s.r.PendingSinceEpoch = Num(s.ago(1)) }, ScaleUp, ReasonTriggered, 2},

		// scale up: both triggers (seed 000)
		{"all: CPU and pending", pressed(), func(s *situation) { s.metrics(0.9, 12); s.p.Trigger = TriggerAll }, ScaleUp, ReasonTriggered, 2},
		{"all: pending alone is not enough", pressed(), func(s *situation) { s.p.Trigger = TriggerAll }, Noop, ReasonTriggerPartial, 0},
		{"all: pending alone at low CPU holds up a scale-down", pressed(), func(s *situation) { s.metrics(0.1, 12); s.p.Trigger = TriggerAll }, Noop, ReasonPodsPending, 0},
		{"all: CPU alone is not enough", hot(), func(s *situation) { s.p.Trigger = TriggerAll }, Noop, ReasonTriggerPartial, 0},
		{"all: CPU high too short", pressed(), func(s *situation) {
			s.metrics(0.9, 12)
			s.p.Trigger = TriggerAll
			s.r.CPUHighSinceEpoch = s.ago(10)
		}, Noop, ReasonCPUTooShort, 0},
		{"all: pending too short", pressed(), func(s *situation) {
			s.metrics(0.9, 12)
			s.p.Trigger = TriggerAll
			s.r.PendingSinceEpoch = Num(s.ago(10))
		}, Noop, ReasonPendingTooShort, 0},

		// scale up: constraints
		{"within the up-cooldown", pressed(), func(s *situation) { s.r.LastScaleEpoch = s.ago(299) }, Noop, ReasonCooldownUp, 0},
		{"at the end of the up-cooldown", pressed(), func(s *situation) { s.r.LastScaleEpoch = s.ago(300) }, ScaleUp, ReasonTriggered, 2},
		{"no cooldown before the first action", pressed(), func(s *situation) { s.r.LastScaleEpoch = 0 }, ScaleUp, ReasonTriggered, 2},
		{"within a failure back-off", pressed(), func(s *situation) { s.r.BackoffUntilEpoch = s.ago(-1) }, Noop, ReasonBackoff, 0},
		{"after a failure back-off", pressed(), func(s *situation) { s.r.BackoffUntilEpoch = s.ago(0) }, ScaleUp, ReasonTriggered, 2},
		{"at MAX_WORKERS", pressed(), func(s *situation) { s.p.MaxWorkers = 4 }, Noop, ReasonMaxWorkers, 0},
		{"an instance that boots counts for MAX_WORKERS", pressed(), func(s *situation) {
			s.p.MaxWorkers = 5
			s.o.Fleet = append(s.o.Fleet, Worker{Instance: Instance{ID: "i-9", State: StatePending}})
		}, Noop, ReasonMaxWorkers, 0},
		{"an instance that ends does not count for MAX_WORKERS", pressed(), func(s *situation) {
			s.p.MaxWorkers = 5
			s.o.Fleet = append(s.o.Fleet, Worker{Instance: Instance{ID: "i-9", State: StateShuttingDown}})
		}, ScaleUp, ReasonTriggered, 1},
		{"an open replacement not yet listed counts for MAX_WORKERS", pressed(), func(s *situation) {
			s.p.MaxWorkers = 5
			s.o.Interruptions = []Interruption{{InstanceID: "i-1", Replace: ReplaceYes, Intent: &Intent{}}}
		}, Noop, ReasonMaxWorkers, 0},
		{"an open scale-up blocks", pressed(), func(s *situation) { s.r.ScalingInProgress = true; s.r.ScaleUpActionID = "x" }, Noop, ReasonInProgress, 0},
		{"an open scale-down blocks", pressed(), func(s *situation) { s.r.ScalingInProgress = true; s.r.ScaleDownActionID = "x" }, Noop, ReasonInProgress, 0},

		// a pause
		{"paused: no scale-up by its trigger", pressed(), pause, Noop, ReasonPaused, 0},
		{"paused: no scale-down", idle(), pause, Noop, ReasonPaused, 0},
		{"paused: said also where nothing asks for a change", steady(), pause, Noop, ReasonPaused, 0},
		{"paused: a cluster below MIN_WORKERS is repaired", idle(), func(s *situation) { pause(s); s.keep(1) }, ScaleUp, ReasonRepair, 1},
		{"paused: metrics that are missing come first", idle(), func(s *situation) { pause(s); s.o.Readings.CPU = Missing("timeout") }, Noop, ReasonMetricsMissing, 0},
		{"paused: so do windows", idle(), func(s *situation) { pause(s); s.o.Readings.PendingMax = Missing("a gap") }, Noop, ReasonMetricsMissing, 0},
		{"paused: a repair waits for its back-off all the same", idle(), func(s *situation) { pause(s); s.keep(1); s.r.BackoffUntilEpoch = s.ago(-1) }, Noop, ReasonBackoff, 0},
		{"paused: an open action goes on", pressed(), func(s *situation) { pause(s); s.r.ScalingInProgress = true; s.r.ScaleUpActionID = "x" }, Noop, ReasonInProgress, 0},

		// sizing
		{"one pending pod is one node", pressed(), func(s *situation) { s.metrics(0.5, 1) }, ScaleUp, ReasonTriggered, 1},
		{"exactly PODS_PER_NODE pods are one node", pressed(), func(s *situation) { s.metrics(0.5, 10) }, ScaleUp, ReasonTriggered, 1},
		{"one more is two nodes", pressed(), func(s *situation) { s.metrics(0.5, 11) }, ScaleUp, ReasonTriggered, 2},
		{"never more than MAX_BATCH_UP", pressed(), func(s *situation) { s.metrics(0.5, 500) }, ScaleUp, ReasonTriggered, 5},
		{"never past MAX_WORKERS", pressed(), func(s *situation) { s.metrics(0.5, 500); s.p.MaxWorkers = 7 }, ScaleUp, ReasonTriggered, 3},

		// pods that no node could run
		{"pods that never fit do not trigger", pressed(), func(s *situation) { s.neverFit(12) }, Noop, ReasonNeverFit, 0},
		{"pods that never fit for different reasons add up", pressed(), func(s *situation) { s.neverFit(5); s.neverFit(7) }, Noop, ReasonNeverFit, 0},
		{"pods that never fit are not sized for", pressed(), func(s *situation) { s.neverFit(11) }, ScaleUp, ReasonTriggered, 1},
		{"pods that never fit do not hold up a sustained trigger", pressed(), func(s *situation) { s.neverFit(11); s.o.Readings.PendingMin = Read(11) }, Noop, ReasonPendingTooShort, 0},
		{"pods that never fit do not block a scale-down", idle(), func(s *situation) {
			s.metrics(0.1, 3)
			s.r.IdleSinceEpoch = Num(s.ago(3600))
			s.neverFit(3)
		}, ScaleDown, ReasonIdle, 0},

		// metrics
		{"CPU missing", idle(), func(s *situation) { s.o.Readings.CPU = Missing("timeout") }, Noop, ReasonMetricsMissing, 0},
		{"CPU not a number", idle(), func(s *situation) { s.o.Readings.CPU = Read(math.NaN()) }, Noop, ReasonMetricsMissing, 0},
		{"sustained CPU missing", idle(), func(s *situation) { s.o.Readings.CPUMax = Reading{} }, Noop, ReasonMetricsMissing, 0},
		{"pending missing is not zero pending", idle(), func(s *situation) { s.o.Readings.Pending = Missing("stale") }, Noop, ReasonMetricsMissing, 0},
		{"sustained pending missing", pressed(), func(s *situation) { s.o.Readings.PendingMin = Missing("partial") }, Noop, ReasonMetricsMissing, 0},
		{"pending over the idle time missing", idle(), func(s *situation) { s.o.Readings.PendingMax = Missing("partial") }, Noop, ReasonMetricsMissing, 0},
		{"a scale-up does not wait for what a scale-down needs", pressed(), func(s *situation) {
			s.o.Readings.CPUMax, s.o.Readings.PendingMax = Missing("a gap"), Missing("a gap")
		}, ScaleUp, ReasonTriggered, 2},
		{"a scale-down does not wait for what a scale-up needs", idle(), func(s *situation) { s.o.Readings.CPUMin = Missing("a gap") }, ScaleDown, ReasonIdle, 0},
		{"a missing window is told where nothing asks for it", steady(), func(s *situation) { s.o.Readings.CPUMax = Missing("a gap") }, Noop, ReasonMetricsMissing, 0},
		{"no metrics at all", pressed(), func(s *situation) { s.o.Readings = Readings{} }, Noop, ReasonMetricsMissing, 0},
		{"fleet unknown", idle(), func(s *situation) { s.o.FleetKnown, s.o.FleetWhy = false, "timeout" }, Noop, ReasonFleetUnknown, 0},

		// below the minimum
		{"below MIN_WORKERS without trigger or cooldown", steady(), func(s *situation) { s.keep(1); s.r.LastScaleEpoch = s.ago(1) }, ScaleUp, ReasonRepair, 1},
		{"below MIN_WORKERS without metrics", steady(), func(s *situation) { s.keep(0); s.o.Readings = Readings{} }, ScaleUp, ReasonRepair, 2},
		{"a cordoned worker does not count for MIN_WORKERS", steady(), func(s *situation) { s.keep(2); s.o.Fleet[0].Node.Unschedulable = true }, ScaleUp, ReasonRepair, 1},
		{"a worker that is not Ready does not count for MIN_WORKERS", steady(), func(s *situation) { s.keep(2); s.o.Fleet[0].Node.Ready = false }, ScaleUp, ReasonRepair, 1},
		{"below MIN_WORKERS but within a back-off", steady(), func(s *situation) { s.keep(1); s.r.BackoffUntilEpoch = s.ago(-60) }, Noop, ReasonBackoff, 0},
		{"below MIN_WORKERS but at MAX_WORKERS", steady(), func(s *situation) {
			s.p.MinWorkers, s.p.MaxWorkers = 4, 4
			s.o.Fleet[0].Node.Ready = false
		}, Noop, ReasonMaxWorkers, 0},
		{"below MIN_WORKERS with a replacement on its way", steady(), func(s *situation) {
			s.keep(2)
			s.o.Fleet[0].Node.Unschedulable = true
			s.o.Interruptions = []Interruption{{InstanceID: "i-1", Replace: ReplaceYes}}
		}, Noop, ReasonSteady, 0},
		{"below MIN_WORKERS with a replacement that failed", steady(), func(s *situation) {
			s.keep(2)
			s.o.Fleet[0].Node.Unschedulable = true
			s.o.Interruptions = []Interruption{{InstanceID: "i-1", Replace: ReplaceYes, LaunchFailed: "no capacity"}}
		}, ScaleUp, ReasonRepair, 1},
		{"below MIN_WORKERS with an action open", steady(), func(s *situation) { s.keep(1); s.r.ScalingInProgress, s.r.ScaleDownActionID = true, "x" }, Noop, ReasonInProgress, 0},
		{"below MIN_WORKERS as far as is known", steady(), func(s *situation) { s.keep(1); s.o.FleetKnown = false }, Noop, ReasonFleetUnknown, 0},
		{"repair is capped by the batch", steady(), func(s *situation) { s.p.MinWorkers = 10; s.p.MaxWorkers = 20; s.keep(1) }, ScaleUp, ReasonRepair, 5},

		// scale down
		{"idle for long removes one worker", idle(), none, ScaleDown, ReasonIdle, 0},
		{"CPU exactly at CPU_DOWN counts as low", idle(), func(s *situation) { s.metrics(0.30, 0) }, ScaleDown, ReasonIdle, 0},
		{"CPU just above CPU_DOWN does not", idle(), func(s *situation) { s.metrics(0.31, 0) }, Noop, ReasonSteady, 0},
		{"low CPU with pods pending for a moment", idle(), func(s *situation) { s.metrics(0.1, 1); s.r.PendingSinceEpoch = Num(s.ago(1)) }, Noop, ReasonPendingTooShort, 0},
		{"idle but not since IDLE_DOWN_SEC", idle(), func(s *situation) { s.r.IdleSinceEpoch = Num(s.ago(599)) }, Noop, ReasonIdleTooShort, 0},
		{"idle since exactly IDLE_DOWN_SEC", idle(), func(s *situation) { s.r.IdleSinceEpoch = Num(s.ago(600)) }, ScaleDown, ReasonIdle, 0},
		{"idle by the timestamp but not by the CPU query", idle(), func(s *situation) { s.o.Readings.CPUMax = Read(0.5) }, Noop, ReasonIdleTooShort, 0},
		{"idle by the timestamp but not by the pending query", idle(), func(s *situation) { s.o.Readings.PendingMax = Read(1) }, Noop, ReasonIdleTooShort, 0},
		{"within the down-cooldown", idle(), func(s *situation) { s.r.LastScaleEpoch = s.ago(599) }, Noop, ReasonCooldownDown, 0},
		{"at the end of the down-cooldown", idle(), func(s *situation) { s.r.LastScaleEpoch = s.ago(600) }, ScaleDown, ReasonIdle, 0},
		{"a failure back-off does not hold up a scale-down", idle(), func(s *situation) { s.r.BackoffUntilEpoch = s.ago(-60) }, ScaleDown, ReasonIdle, 0},
		{"an open interruption blocks a scale-down", idle(), func(s *situation) {
			s.o.Interruptions = []Interruption{{InstanceID: "i-1", Replace: ReplaceNo}}
		}, Noop, ReasonInterruption, 0},
		{"at MIN_WORKERS", idle(), func(s *situation) { s.keep(2) }, Noop, ReasonMinWorkers, 0},
		{"cordoned workers do not count above MIN_WORKERS", idle(), func(s *situation) {
			s.keep(3)
			s.o.Fleet[0].Node.Unschedulable = true
		}, Noop, ReasonMinWorkers, 0},
		{"a scale-down with an action open", idle(), func(s *situation) { s.r.ScalingInProgress = true; s.r.ScaleUpActionID = "x" }, Noop, ReasonInProgress, 0},
		{"pods that would fit nowhere else", idle(), func(s *situation) {
			for i := range s.o.Fleet {
				s.o.Fleet[i].Node.Pods = []Pod{{Name: "a/big", Requests: Resources{MilliCPU: 3000}}}
			}
		}, Noop, ReasonPodsDontFit, 0},
		{"no worker may go", idle(), func(s *situation) {
			for i := range s.o.Fleet {
				s.o.Fleet[i].Node.Keep = true
			}
		}, Noop, ReasonNoTarget, 0},
	}
	met := map[Reason]bool{}
	for _, c := range rows {
		met[c.reason] = true
		t.Run(c.name, func(t *testing.T) {
			c.change(c.s)
			d := Decide(c.s.p, c.s.o, c.s.r, c.s.now)
			if d.Action != c.action || d.Reason != c.reason || d.Nodes != c.nodes {
				t.Errorf("got %s because %s (%s), %d nodes; want %s because %s, %d nodes\n%+v",
					d.Action, d.Reason, d.Detail, d.Nodes, c.action, c.reason, c.nodes, d.Gates)
			}
			if d.Action == ScaleDown && len(d.Targets) == 0 {
				t.Error("a scale-down without targets")
			}
			if again := Decide(c.s.p, c.s.o, c.s.r, c.s.now); !equal(d, again) {
				t.Error("the same question got another answer")
			}
		})
	}
	for _, r := range []Reason{ReasonTriggered, ReasonRepair, ReasonIdle, ReasonSteady, ReasonInProgress, ReasonMetricsMissing,
		ReasonFleetUnknown, ReasonCPUTooShort, ReasonPendingTooShort, ReasonTriggerPartial, ReasonNeverFit, ReasonCooldownUp, ReasonBackoff,
		ReasonMaxWorkers, ReasonIdleTooShort, ReasonPodsPending, ReasonCooldownDown, ReasonInterruption, ReasonMinWorkers, ReasonNoTarget,
		ReasonPodsDontFit, ReasonPaused} {
		if !met[r] {
			t.Errorf("no row is about %s", r)
		}
	}
}

func (s *situation) neverFit(n int) {
	s.o.Pending = append(s.o.Pending, Pod{Name: "a/huge", Count: n, NeverFit: "asks for 512 CPUs"})
}

func pause(s *situation) {
	s.r.PausedSinceEpoch, s.r.PausedBy, s.r.PauseReason = s.ago(60), "alice", "inventory"
}

func (s *situation) keep(n int) { s.o.Fleet = s.o.Fleet[:n] }

func TestEveryDecisionListsEveryGate(t *testing.T) {
	want := []string{"no-action", "fleet-known", "not-paused", "metrics-known", "repair.min-workers", "repair.backoff", "repair.max-workers",
		"up.cpu", "up.cpu-since", "up.cpu-sustained", "up.pending", "up.pending-since", "up.pending-sustained", "up.trigger", "up.cooldown",
		"up.backoff", "up.max-workers", "down.cpu", "down.no-pending", "down.idle-since", "down.cpu-sustained", "down.pending-sustained",
		"down.cooldown", "down.no-interruption", "down.min-workers", "down.pods-fit", "down.target"}
	blocked := pressed()
	blocked.r.ScalingInProgress = true
	nothing := &situation{p: DefaultPolicy()}
	nothing.p.MaxActions = 1
	for _, s := range []*situation{steady(), pressed(), hot(), idle(), blocked, nothing} {
		var got []string
		for _, g := range Decide(s.p, s.o, s.r, s.now).Gates {
			got = append(got, g.Name)
			if g.Value == "" || g.Threshold == "" {
				t.Errorf("gate %s says %q against %q", g.Name, g.Value, g.Threshold)
			}
		}
		if planned := append(slices.Clone(want), "up.plan"); !slices.Equal(got, want) && !slices.Equal(got, planned) {
			t.Errorf("got  %v\nwant %v, and up.plan where pods are sized for", got, want)
		}
	}
}

type fixedSize int

func (n fixedSize) Plan(Question) Plan { return Plan{Nodes: make([]Want, n), Why: "fixed"} }

// TestWhatIsInTheWayBesideAPauseIsSaid: an operator who resumes must not learn only then that there are no metrics, nor one who
// fixes the metrics that scaling is paused.
func TestWhatIsInTheWayBesideAPauseIsSaid(t *testing.T) {
	const paused = " since 2024-10-28T07:19:00Z by alice: inventory"
	for want, change := range map[string]func(*situation){
		"PAUSED" + paused: none,
		"METRICS_UNAVAILABLE cpu: timeout; PAUSED" + paused:     func(s *situation) { s.o.Readings.CPU = Missing("timeout") },
		"METRICS_UNAVAILABLE cpu-max: too few; PAUSED" + paused: func(s *situation) { s.o.Readings.CPUMax = Missing("too few") },
		"FLEET_UNAVAILABLE throttled; PAUSED" + paused:          func(s *situation) { s.o.FleetKnown, s.o.FleetWhy = false, "throttled" },
		"IN_PROGRESS up-1; PAUSED" + paused:                     func(s *situation) { s.r.ScalingInProgress, s.r.ScaleUpActionID = true, "up-1" },
	} {
		s := idle()
		pause(s)
		change(s)
		d := Decide(s.p, s.o, s.r, s.now)
		if got := string(d.Reason) + " " + d.Detail; got != want {
			t.Errorf("got  %s\nwant %s", got, want)
		}
	}
}

// coming is a worker that was launched some seconds ago and has no node yet.
func (s *situation) coming(id string, ago int) Worker {
	return Worker{Instance: Instance{ID: id, State: StatePending, Zone: "a", LaunchedAt: time.Unix(s.ago(ago), 0)}}
}

// replaced interrupts the first worker, on which some pods still run, with a replacement.
func (s *situation) replaced(left int, change func(*Interruption)) {
	s.o.Fleet[0].Node.Unschedulable = true
	s.o.Fleet[0].Node.Pods = []Pod{{Name: "a/left", Count: max(left, 1)}}[:min(left, 1)]
	i := Interruption{InstanceID: "i-1", Kind: Warning, OpenedEpoch: s.ago(60), Replace: ReplaceYes, Intent: &Intent{Epoch: s.ago(60)}}
	if change != nil {
		change(&i)
	}
	s.o.Interruptions = append(s.o.Interruptions, i)
}

func TestPodsThatWaitForANodeOnItsWayAskForNoOther(t *testing.T) {
	const per = 10 // PODS_PER_NODE; 12 pods wait
	for _, c := range []struct {
		name   string
		change func(*situation)
		nodes  int
		reason Reason
	}{
		{"nothing comes", none, 2, ReasonTriggered},
		{"a node that boots", func(s *situation) { s.o.Fleet = append(s.o.Fleet, s.coming("i-9", 60)) }, 1, ReasonTriggered},
		{"two that boot", func(s *situation) {
			s.o.Fleet = append(s.o.Fleet, s.coming("i-8", 60), s.coming("i-9", 60))
		}, 0, ReasonRoomExists},
		{"one that boots is enough for what waits", func(s *situation) {
			s.metrics(0.5, per)
			s.o.Fleet = append(s.o.Fleet, s.coming("i-9", 60))
		}, 0, ReasonRoomExists},
		{"and not for one pod more", func(s *situation) {
			s.metrics(0.5, per+1)
			s.o.Fleet = append(s.o.Fleet, s.coming("i-9", 60))
		}, 1, ReasonTriggered},
		{"one that boots for longer than JOIN_TIMEOUT_SEC", func(s *situation) { s.o.Fleet = append(s.o.Fleet, s.coming("i-9", 600)) }, 2, ReasonTriggered},
		{"one that is joining", func(s *situation) {
			w := s.coming("i-9", 60)
			w.Node = &Node{NodeRef: NodeRef{Name: "i-9"}}
			s.o.Fleet = append(s.o.Fleet, w)
		}, 1, ReasonTriggered},
		{"one that ends", func(s *situation) {
			s.o.Fleet = append(s.o.Fleet, s.coming("i-9", 60))
			s.o.Fleet[4].Instance.State = StateShuttingDown
		}, 2, ReasonTriggered},
		{"one that will be taken away, without a replacement", func(s *situation) {
			s.o.Fleet = append(s.o.Fleet, s.coming("i-9", 60))
			s.o.Interruptions = []Interruption{{InstanceID: "i-9", Replace: ReplaceNo}}
		}, 2, ReasonTriggered},
		{"a replacement that boots", func(s *situation) {
			s.o.Fleet = append(s.o.Fleet, s.coming("i-9", 60))
			s.replaced(0, func(i *Interruption) { i.ReplacementID = "i-9" })
		}, 1, ReasonTriggered},
		{"a replacement that the cloud does not list yet", func(s *situation) { s.replaced(0, func(i *Interruption) { i.ReplacementID = "i-9" }) }, 1, ReasonTriggered},
		{"a replacement that is being launched", func(s *situation) { s.replaced(0, nil) }, 1, ReasonTriggered},
		{"a replacement that is about to be", func(s *situation) { s.replaced(0, func(i *Interruption) { i.Intent, i.Replace = nil, "" }) }, 1, ReasonTriggered},
		{"a replacement that needs its room for pods that are still to come", func(s *situation) { s.replaced(9, nil) }, 2, ReasonTriggered},
		{"a replacement that can't be had", func(s *situation) { s.replaced(0, func(i *Interruption) { i.LaunchFailed = "no capacity" }) }, 2, ReasonTriggered},
		{"a replacement that has ended", func(s *situation) {
			s.o.Fleet = append(s.o.Fleet, s.coming("i-9", 60))
			s.o.Fleet[4].Instance.State = StateTerminated
			s.replaced(0, func(i *Interruption) { i.ReplacementID = "i-9" })
		}, 2, ReasonTriggered},
		{"a replacement that was asked for too long ago", func(s *situation) {
			s.replaced(0, func(i *Interruption) { i.OpenedEpoch, i.Intent.Epoch = s.ago(900), s.ago(601) })
		}, 2, ReasonTriggered},
		{"a node that has joined while they waited, with pods already", func(s *situation) {
			w := readyWorker(9, "a")
			w.Node.CreatedAt = time.Unix(s.ago(100), 0)
			w.Node.Pods = []Pod{{Name: "a/new", Count: 3}}
			s.o.Fleet = append(s.o.Fleet, w)
		}, 1, ReasonTriggered},
		{"one that had joined when they began to", func(s *situation) {
			w := readyWorker(9, "a")
			w.Node.CreatedAt = time.Unix(s.ago(200), 0)
			s.o.Fleet = append(s.o.Fleet, w)
		}, 2, ReasonTriggered},
		{"CPU asks for a node of its own", func(s *situation) {
			s.metrics(0.9, per)
			s.o.Fleet = append(s.o.Fleet, s.coming("i-9", 60))
		}, 1, ReasonTriggered},
		{"but not where the pods have to ask as well", func(s *situation) {
			s.metrics(0.9, per)
			s.p.Trigger = TriggerAll
			s.o.Fleet = append(s.o.Fleet, s.coming("i-9", 60))
		}, 0, ReasonRoomExists},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := pressed()
			c.change(s)
			if d := Decide(s.p, s.o, s.r, s.now); d.Nodes != c.nodes || d.Reason != c.reason {
				t.Errorf("%s %s: %d nodes (%s), want %s: %d", d.Action, d.Reason, d.Nodes, d.Detail, c.reason, c.nodes)
			}
		})
	}
}

func TestAScaleUpSaysWhatAskedForIt(t *testing.T) {
	booting := func(s *situation) *situation { s.o.Fleet = append(s.o.Fleet, s.coming("i-9", 60)); return s }
	for want, s := range map[string]*situation{
		"CPU at 0.9 of 0.7 for 3600s, no pod is pending: one node": hot(),
		"ceil(12 / 10) = 2": pressed(),
		"ceil((12 - 10) / 10) = 1: room for 10 on 1 node on their way and 0 just joined": booting(pressed()),
		"CPU at 0.9 of 0.7 for 3600s: one node; 8 pods, room for 10 on 1 node on their way and 0 just joined": func() *situation {
			s := booting(hot())
			s.o.Readings.Pending = Read(8)
			return s
		}(),
	} {
		if d := Decide(s.p, s.o, s.r, s.now); d.Action != ScaleUp || d.Detail != want || d.Wanted != nil {
			t.Errorf("got  %s %q, of kinds %v\nwant %q", d.Action, d.Detail, d.Wanted, want)
		}
	}
}

func TestAnotherSizerIsCappedLikeTheFirst(t *testing.T) {
	s := pressed()
	d := Decider{Policy: s.p, Sizer: fixedSize(9)}.Decide(s.o, s.r, s.now)
	if d.Nodes != s.p.MaxBatchUp {
		t.Errorf("got %d nodes, want %d", d.Nodes, s.p.MaxBatchUp)
	}
}

// planned is a sizer that always has the same plan.
type planned Plan

func (p planned) Plan(Question) Plan { return Plan(p) }

func TestWhatBecomesOfASizersPlan(t *testing.T) {
	big := Want{Types: []string{"big"}}
	// inVain is a worker that was launched for the pods, joined 10 minutes ago and has taken none.
	inVain := func(s *situation) {
		w := readyWorker(9, "a")
		w.Instance.ActionID, w.Node.CreatedAt = "up-1", time.Unix(s.ago(600), 0)
		s.o.Fleet, s.o.Zones = append(s.o.Fleet, w), []string{"a"}
	}
	waited := func(sec int) func(*situation) {
		return func(s *situation) { s.r.PendingSinceEpoch = Num(s.ago(sec)) }
	}
	for _, c := range []struct {
		name   string
		plan   Plan
		s      *situation
		change func(*situation)
		want   string // reason, number and kinds of nodes, detail
	}{
		{"there is room", Plan{Why: "room"}, pressed(), waited(599), "ROOM_EXISTS 0 [] room"},
		{"there is room, but pods have waited for ten minutes", Plan{Why: "room"}, pressed(), waited(600),
			"TRIGGERED 1 [] pending for 600s although there is room: one node; room"},
		{"three times PENDING_UP_SEC are longer", Plan{Why: "room"}, pressed(), func(s *situation) { s.p.PendingUpFor = 5 * time.Minute; waited(899)(s) }, "ROOM_EXISTS 0 [] room"},
		{"and are over", Plan{Why: "room"}, pressed(), func(s *situation) { s.p.PendingUpFor = 5 * time.Minute; waited(900)(s) },
			"TRIGGERED 1 [] pending for 900s although there is room: one node; room"},
		{"the room is on its way", Plan{Why: "room", Coming: true}, pressed(), none, "ROOM_EXISTS 0 [] room"},
		{"no node would help", Plan{Why: "room", Helpless: "pod x"}, pressed(), none, "NO_NODE_HELPS 0 [] pod x"},
		{"they have waited, but the last node was launched in vain", Plan{Why: "room"}, pressed(), func(s *situation) { inVain(s); s.o.Zones = []string{"a", "b"} }, "ROOM_EXISTS 0 [] room"},
		{"another node of any kind would be in vain", Plan{Nodes: make([]Want, 2), Why: "two"}, pressed(), inVain,
			"NO_NODE_HELPS 0 [] launched in vain: i-9 joined while the pods waited and has taken none of them; compare its labels, taints and size with what they ask for"},
		{"one of a certain kind may help", Plan{Nodes: []Want{{}, big}, Why: "two"}, pressed(), inVain, "TRIGGERED 2 [{[] [] } {[big] [] }] two"},
		{"high CPU wants one node where the pods have room", Plan{Why: "room"}, pressed(), func(s *situation) { s.metrics(0.9, 12); waited(200)(s) },
			"TRIGGERED 1 [] CPU at 0.9 of 0.7 for 3600s: one node; room"},
		{"high CPU wants no more than the pods", Plan{Nodes: make([]Want, 2), Why: "two"}, pressed(), func(s *situation) { s.metrics(0.9, 12) }, "TRIGGERED 2 [] two"},
		{"kinds are capped with the nodes", Plan{Nodes: []Want{big, big, big, {}, {}, {}}, Why: "six"}, pressed(), func(s *situation) { s.p.MaxBatchUp = 3 },
			"TRIGGERED 3 [{[big] [] } {[big] [] } {[big] [] }] six, capped to 3 (MAX_BATCH_UP 3, room below MAX_WORKERS " + fmt.Sprint(DefaultPolicy().MaxWorkers-4) + ")"},
		{"kinds that were capped away are not mentioned", Plan{Nodes: []Want{{}, {}, big}, Why: "three"}, pressed(), func(s *situation) { s.p.MaxWorkers = 6 },
			"TRIGGERED 2 [] three, capped to 2 (MAX_BATCH_UP 5, room below MAX_WORKERS 2)"},
		{"just as many as there is room for", Plan{Nodes: make([]Want, 2), Why: "two"}, pressed(), func(s *situation) { s.p.MaxWorkers = 6 }, "TRIGGERED 2 [] two"},
		{"a repair asks no sizer", Plan{Why: "room"}, pressed(), func(s *situation) { s.p.MinWorkers = 6 }, "MIN_REPAIR 2 [] 2 below MIN_WORKERS"},
	} {
		t.Run(c.name, func(t *testing.T) {
			c.change(c.s)
			d := Decider{Policy: c.s.p, Sizer: planned(c.plan)}.Decide(c.s.o, c.s.r, c.s.now)
			if got := fmt.Sprintf("%s %d %v %s", d.Reason, d.Nodes, d.Wanted, d.Detail); got != c.want {
				t.Errorf("got  %s\nwant %s", got, c.want)
			}
		})
	}
}

// TestADecisionNamesAFewCausesAndCountsTheOthers where it has to name workers.
func TestADecisionNamesAFewCausesAndCountsTheOthers(t *testing.T) {
	kept := func(n int) *situation {
		s := idle()
		s.o.Fleet = nil
		for i := range n {
			w := readyWorker(i+1, "a")
			w.Node.Keep = true
			s.o.Fleet = append(s.o.Fleet, w)
		}
		return s
	}
	sick := func(n int) *situation {
		s := pressed()
		s.p.MaxWorkers, s.p.MinWorkers = 8, 0
		s.o.Fleet = nil
		for i := range 8 {
			w := readyWorker(i+1, "a")
			if i < n {
				w.Node.Ready, w.Node.NotReadySince = false, time.Unix(s.ago(60), 0)
			}
			s.o.Fleet = append(s.o.Fleet, w)
		}
		return s
	}
	for name, c := range map[string]struct {
		s     *situation
		named int
		more  string
	}{
		"three kept": {kept(3), 3, ""}, "four kept": {kept(4), 3, "; and 1 more"}, "six kept": {kept(6), 3, "; and 3 more"},
		"none sick": {sick(0), 0, ""}, "two sick": {sick(2), 2, ""}, "three sick": {sick(3), 3, ""}, "five sick": {sick(5), 3, "; and 2 more"},
	} {
		d := Decide(c.s.p, c.s.o, c.s.r, c.s.now)
		if n := strings.Count(d.Detail, "i-"); n != c.named || !strings.HasSuffix(d.Detail, c.more) || c.more == "" && strings.Contains(d.Detail, "more") {
			t.Errorf("%s: %s %q names %d workers, want %d and the end %q", name, d.Reason, d.Detail, n, c.named, c.more)
		}
	}
}

// TestGatesSayWhatWasHeldAgainstWhat for some whose figures are worked out.
func TestGatesSayWhatWasHeldAgainstWhat(t *testing.T) {
	for name, c := range map[string]struct {
		s      *situation
		change func(*situation)
		want   Gate
	}{
		"no action":                         {idle(), none, Gate{"no-action", "none", "none in progress", true}},
		"an open action":                    {idle(), func(s *situation) { s.r.ScalingInProgress, s.r.ScaleUpActionID = true, "up-1" }, Gate{"no-action", "up-1", "none in progress", false}},
		"a flag without an action":          {idle(), func(s *situation) { s.r.ScalingInProgress = true }, Gate{"no-action", "unnamed", "none in progress", false}},
		"the fleet is complete":             {idle(), none, Gate{"fleet-known", "ok", "complete", true}},
		"the fleet is not known":            {idle(), func(s *situation) { s.o.FleetKnown, s.o.FleetWhy = false, "timeout" }, Gate{"fleet-known", "timeout", "complete", false}},
		"a reading that is missing":         {idle(), func(s *situation) { s.o.Readings.CPU = Missing("timeout") }, Gate{"up.cpu", "missing", "0.7", false}},
		"CPU missing without a word":        {idle(), func(s *situation) { s.o.Readings.CPU = Reading{} }, Gate{"metrics-known", "cpu: no value", "cpu and pending", false}},
		"pending missing":                   {idle(), func(s *situation) { s.o.Readings.Pending = Missing("stale") }, Gate{"metrics-known", "pending: stale", "cpu and pending", false}},
		"not paused":                        {idle(), none, Gate{"not-paused", "not paused", "not paused", true}},
		"expected with a replacement":       {idle(), func(s *situation) { s.replaced(0, nil) }, Gate{"repair.min-workers", "4", "2", true}},
		"occupied with a launch":            {idle(), func(s *situation) { s.replaced(0, nil); s.p.MaxWorkers = 6 }, Gate{"repair.max-workers", "5", "6", true}},
		"what is left of a back-off":        {idle(), func(s *situation) { s.r.BackoffUntilEpoch = s.ago(-90) }, Gate{"up.backoff", "90s", "0s", false}},
		"a back-off that is over":           {idle(), func(s *situation) { s.r.BackoffUntilEpoch = s.ago(90) }, Gate{"up.backoff", "0s", "0s", true}},
		"no back-off":                       {idle(), none, Gate{"repair.backoff", "0s", "0s", true}},
		"what has not begun has not lasted": {steady(), none, Gate{"up.pending-since", "0s", "180s", false}},
		"whole seconds":                     {hot(), func(s *situation) { s.now = s.now.Add(700 * time.Millisecond) }, Gate{"up.cpu-since", "3600s", "180s", true}},
		"sustained pods beyond misfits":     {pressed(), func(s *situation) { s.neverFit(11) }, Gate{"up.pending-sustained", "12", "12", true}},
		"more misfits than pods":            {pressed(), func(s *situation) { s.neverFit(13) }, Gate{"up.pending", "0", "1", false}},
		"sustained misfits":                 {idle(), func(s *situation) { s.neverFit(3); s.o.Readings.PendingMax = Read(4) }, Gate{"down.pending-sustained", "4", "3", false}},
		"the trigger by CPU":                {hot(), none, Gate{"up.trigger", "cpu true, pending false", "any", true}},
		"no trigger":                        {steady(), none, Gate{"up.trigger", "cpu false, pending false", "any", false}},
		"workers left after a batch":        {idle(), func(s *situation) { s.p.MaxBatchDown = 9 }, Gate{"down.min-workers", "2", "2", true}},
		"workers left after one":            {idle(), func(s *situation) { s.p.MaxBatchDown = 1 }, Gate{"down.min-workers", "3", "2", true}},
		"workers left if one went":          {idle(), func(s *situation) { s.keep(2) }, Gate{"down.min-workers", "1", "2", false}},
		"one above MIN_WORKERS":             {idle(), func(s *situation) { s.keep(3) }, Gate{"down.min-workers", "2", "2", true}},
		"interruptions":                     {idle(), func(s *situation) { s.o.Interruptions = []Interruption{{InstanceID: "i-1"}} }, Gate{"down.no-interruption", "1", "0", false}},
		"targets":                           {idle(), func(s *situation) { s.p.MaxBatchDown = 2 }, Gate{"down.target", "2", "1", true}},
		"no targets of an unknown fleet":    {idle(), func(s *situation) { s.o.FleetKnown = false }, Gate{"down.target", "0", "1", false}},
		"a target whose pods fit":           {idle(), none, Gate{"down.pods-fit", "yes", "all pods of a target", true}},
		"one of two whose pods don't fit": {idle(), func(s *situation) {
			s.o.Fleet[0].Node.Pods = []Pod{{Name: "a/big", Requests: Resources{MilliCPU: 5000}}}
		}, Gate{"down.pods-fit", "pod a/big (5000m CPU, 0 MiB) fits no other node", "all pods of a target", true}},
		"a cooldown without an action": {idle(), func(s *situation) { s.r.LastScaleEpoch = 0 }, Gate{"down.cooldown", "0s", "600s", true}},
	} {
		t.Run(name, func(t *testing.T) {
			c.change(c.s)
			gates := Decide(c.s.p, c.s.o, c.s.r, c.s.now).Gates
			i := slices.IndexFunc(gates, func(g Gate) bool { return g.Name == c.want.Name })
			if i < 0 || gates[i] != c.want {
				t.Errorf("got %+v, want %+v", gates, c.want)
			}
		})
	}
}

func TestSelectTargets(t *testing.T) {
	for name, c := range map[string]struct {
		zones  string // one letter per worker, in order of age
		change func(*Observation, *Record)
		n      int
		want   []string
	}{
		"the oldest of the fullest zone":               {"abbb", nil, 1, []string{"i-2"}},
		"again from the fullest zone as zones level":   {"abbbb", nil, 3, []string{"i-2", "i-3", "i-4"}},
		"alternates when zones are level":              {"aabb", nil, 2, []string{"i-1", "i-3"}},
		"never empties a zone while there are several": {"ab", nil, 1, nil},
		"takes from a single zone":                     {"aaa", nil, 2, []string{"i-1", "i-2"}},
		"leaves the last of each zone":                 {"aab", nil, 3, []string{"i-1"}},
		"passes over the control plane":                {"aaa", func(o *Observation, _ *Record) { o.Fleet[0].Node.ControlPlane = true }, 1, []string{"i-2"}},
		"passes over annotated nodes":                  {"aaa", func(o *Observation, _ *Record) { o.Fleet[0].Node.Keep = true }, 1, []string{"i-2"}},
		"passes over nodes whose pods block":           {"aaa", func(o *Observation, _ *Record) { o.Fleet[0].Node.Blocker = "pod a/b: critical" }, 1, []string{"i-2"}},
		"passes over cordoned nodes":                   {"aaa", func(o *Observation, _ *Record) { o.Fleet[0].Node.Unschedulable = true }, 1, []string{"i-2"}},
		"passes over nodes that are not Ready":         {"aaa", func(o *Observation, _ *Record) { o.Fleet[0].Node.Ready = false }, 1, []string{"i-2"}},
		"passes over instances without a node":         {"aaa", func(o *Observation, _ *Record) { o.Fleet[0].Node = nil }, 1, []string{"i-2"}},
		"passes over instances that end":               {"aaa", func(o *Observation, _ *Record) { o.Fleet[0].Instance.State = StateShuttingDown }, 1, []string{"i-2"}},
		"passes over the skip list while it holds":     {"aaa", func(_ *Observation, r *Record) { r.SkipList = []Skip{{InstanceID: "i-1", UntilEpoch: at(1001).Unix()}} }, 1, []string{"i-2"}},
		"takes from the skip list when it has run out": {"aaa", func(_ *Observation, r *Record) { r.SkipList = []Skip{{InstanceID: "i-1", UntilEpoch: at(1000).Unix()}} }, 1, []string{"i-1"}},
		"passes over what is being removed":            {"aaa", func(_ *Observation, r *Record) { r.Removals = []Removal{{InstanceID: "i-1"}} }, 1, []string{"i-2"}},
		"passes over interrupted and replacement nodes": {"aaa", func(o *Observation, _ *Record) {
			o.Interruptions = []Interruption{{InstanceID: "i-1", ReplacementID: "i-2"}}
		}, 1, []string{"i-3"}},
		"at equal age the cheaper one goes first": {"aaa", func(o *Observation, _ *Record) {
			for i := range o.Fleet {
				o.Fleet[i].Instance.LaunchedAt = at(1)
			}
			o.Costs = map[string]float64{"i-1": 3, "i-2": 1, "i-3": 2}
		}, 1, []string{"i-2"}},
		"at different ages the cost says nothing": {"aaa", func(o *Observation, _ *Record) { o.Costs = map[string]float64{"i-1": 3} }, 1, []string{"i-1"}},
		"what one action launched is of equal age, and the cheaper one goes first": {"aaa", func(o *Observation, _ *Record) {
			o.Fleet[1].Instance.ActionID, o.Fleet[2].Instance.ActionID = "up-1", "up-1"
			o.Costs = map[string]float64{"i-1": 1, "i-2": 64, "i-3": 32}
		}, 2, []string{"i-1", "i-3"}},
		"an action is as old as the first of it": {"aaa", func(o *Observation, _ *Record) {
			o.Fleet[0].Instance.ActionID, o.Fleet[2].Instance.ActionID = "up-1", "up-1"
			o.Costs = map[string]float64{"i-1": 2, "i-3": 1}
		}, 2, []string{"i-3", "i-1"}},
		"the fuller zone comes before the cost": {"aab", func(o *Observation, _ *Record) {
			for i := range o.Fleet {
				o.Fleet[i].Instance.ActionID = "up-1"
			}
			o.Costs = map[string]float64{"i-1": 5, "i-2": 4}
		}, 1, []string{"i-2"}},
		"a zone of cordoned workers is not one of several": {"aab", func(o *Observation, _ *Record) { o.Fleet[2].Node.Unschedulable = true }, 2, []string{"i-1", "i-2"}},
		"pods that fit nowhere else keep their node": {"aaa", func(o *Observation, _ *Record) {
			o.Fleet[0].Node.Pods = []Pod{{Name: "x/y", Requests: Resources{MilliCPU: 5000}}}
		}, 1, []string{"i-2"}},
		"two targets' pods are not given the same room": {"aaa", func(o *Observation, _ *Record) {
			for i := range o.Fleet {
				o.Fleet[i].Node.Pods = []Pod{{Name: "x/y", Requests: Resources{MilliCPU: 2000}}}
			}
		}, 2, []string{"i-1"}},
	} {
		t.Run(name, func(t *testing.T) {
			var o Observation
			var r Record
			for i, z := range c.zones {
				o.Fleet = append(o.Fleet, readyWorker(i+1, string(z)))
			}
			if c.change != nil {
				c.change(&o, &r)
			}
			targets, passed := selectTargets(DefaultPolicy(), o, r, RequestsFit{}, c.n, at(1000))
			var got []string
			for _, x := range targets {
				got = append(got, x.InstanceID)
			}
			if !slices.Equal(got, c.want) {
				t.Errorf("got %v, want %v; passed over %v", got, c.want, passed)
			}
			if len(targets)+len(passed) != len(o.Fleet) {
				t.Errorf("%d workers, %d chosen and %d passed over", len(o.Fleet), len(targets), len(passed))
			}
		})
	}
}

func TestATargetSaysWhyItGoesBeforeTheNext(t *testing.T) {
	equal := func(costs map[string]float64) func(*Observation) {
		return func(o *Observation) {
			for i := range o.Fleet {
				o.Fleet[i].Instance.ActionID = "up-1"
			}
			o.Costs = costs
		}
	}
	for name, c := range map[string]struct {
		zones  string
		change func(*Observation)
		want   string
	}{
		"zone":       {"aab", func(*Observation) {}, "i-1 older than i-2"},
		"other zone": {"baa", func(o *Observation) { o.Fleet[1].Node.Keep = true }, "i-3 zone a has 2 workers, b has 1"},
		"cost":       {"aa", equal(map[string]float64{"i-1": 64, "i-2": 32}), "i-2 as old as i-1, and costs the workers 32, not 64"},
		"no cost":    {"aa", equal(nil), "i-1 as old as i-2, and costs the workers as much, 0"},
		"the only":   {"a", func(*Observation) {}, "i-1 "},
	} {
		t.Run(name, func(t *testing.T) {
			var o Observation
			for i, z := range c.zones {
				o.Fleet = append(o.Fleet, readyWorker(i+1, string(z)))
			}
			c.change(&o)
			targets, passed := selectTargets(DefaultPolicy(), o, Record{}, RequestsFit{}, 1, at(1000))
			if len(targets) != 1 {
				t.Fatalf("%d targets; passed over %v", len(targets), passed)
			}
			if got := targets[0].InstanceID + " " + targets[0].Why; got != c.want {
				t.Errorf("%q, want %q", got, c.want)
			}
		})
	}
}

func TestLaunchOrder(t *testing.T) {
	p := DefaultPolicy()
	p.InstanceTypes = []string{"big", "small"}
	subnets := []Subnet{{"s-b", "b"}, {"s-a2", "a"}, {"s-a1", "a"}}
	names := func(os []Offering) (out []string) {
		for _, o := range os {
			out = append(out, fmt.Sprintf("%s/%s/%s", o.Subnet, o.Market, o.Type))
		}
		return out
	}
	for name, c := range map[string]struct {
		counts    map[string]int
		exhausted []Exhausted
		noSpot    bool
		want      []string
	}{
		"least filled zone, Spot across types, On-Demand across types, next zone": {counts: map[string]int{"a": 2, "b": 1}, want: []string{
			"s-b/spot/big", "s-b/spot/small", "s-b/on-demand/big", "s-b/on-demand/small",
			"s-a1/spot/big", "s-a2/spot/big", "s-a1/spot/small", "s-a2/spot/small",
			"s-a1/on-demand/big", "s-a2/on-demand/big", "s-a1/on-demand/small", "s-a2/on-demand/small"}},
		"without Spot": {counts: map[string]int{"b": 1}, noSpot: true, want: []string{
			"s-a1/on-demand/big", "s-a2/on-demand/big", "s-a1/on-demand/small", "s-a2/on-demand/small", "s-b/on-demand/big", "s-b/on-demand/small"}},
		"exhausted offerings are left out while they are": {counts: map[string]int{"b": 1}, noSpot: true, exhausted: []Exhausted{
			{Zone: "a", Type: "big", Market: OnDemand, UntilEpoch: at(1).Unix()}, {Subnet: "s-b", UntilEpoch: at(1).Unix()}, {Type: "small", UntilEpoch: at(0).Unix()}},
			want: []string{"s-a1/on-demand/small", "s-a2/on-demand/small"}},
		"an unusable Spot role leaves On-Demand": {counts: map[string]int{"a": 1}, exhausted: exhaustedBy(FailSpotRole, Offering{}, at(0)), want: []string{
			"s-b/on-demand/big", "s-b/on-demand/small", "s-a1/on-demand/big", "s-a2/on-demand/big", "s-a1/on-demand/small", "s-a2/on-demand/small"}},
	} {
		t.Run(name, func(t *testing.T) {
			p := p
			p.Spot = !c.noSpot
			if got := names(launchOrder(p, subnets, c.counts, c.exhausted, nil, at(0))); !slices.Equal(got, c.want) {
				t.Errorf("got  %v\nwant %v", got, c.want)
			}
		})
	}
}

func TestMatchFindsEachInstancesOwnNode(t *testing.T) {
	in := func(id, ip string, s InstanceState) Instance { return Instance{ID: id, PrivateIP: ip, State: s} }
	for name, c := range map[string]struct {
		in   Instance
		node Node
		want bool
	}{
		"by provider ID":                                   {in("i-1", "", StateRunning), Node{ProviderID: "aws:///eu-1a/i-1"}, true},
		"by a node name that is the instance ID":           {in("i-1", "", StateRunning), Node{NodeRef: NodeRef{Name: "i-1"}}, true},
		"by internal IP on a stock node":                   {in("i-1", "10.0.0.1", StateRunning), Node{NodeRef: NodeRef{Name: "ip-10"}, ProviderID: "k3s://ip-10", InternalIP: "10.0.0.1"}, true},
		"not by the IP of an instance that has ended":      {in("i-1", "10.0.0.1", StateTerminated), Node{NodeRef: NodeRef{Name: "ip-10"}, InternalIP: "10.0.0.1"}, false},
		"not by IP when the node names another instance":   {in("i-1", "10.0.0.1", StateRunning), Node{ProviderID: "aws:///a/i-2", InternalIP: "10.0.0.1"}, false},
		"not by an empty address":                          {in("i-1", "", StateRunning), Node{NodeRef: NodeRef{Name: "x"}}, false},
		"an ending instance still has its node by its own": {in("i-1", "", StateShuttingDown), Node{ProviderID: "aws:///a/i-1"}, true},
	} {
		t.Run(name, func(t *testing.T) {
			ws := Match([]Instance{c.in}, []Node{c.node})
			if len(ws) != 1 || (ws[0].Node != nil) != c.want {
				t.Errorf("got %+v, want a node: %v", ws, c.want)
			}
		})
	}
}

func TestMatchLeavesTheControlPlaneOut(t *testing.T) {
	ws := Match([]Instance{{ID: "i-1", ControlPlane: true}, {ID: "i-2"}}, []Node{{NodeRef: NodeRef{Name: "i-2"}, ControlPlane: true}})
	if len(ws) != 0 {
		t.Errorf("got %+v", ws)
	}
}

func ExampleDecide() {
	o := Observation{FleetKnown: true}
	for i, zone := range []string{"a", "b"} {
		o.Fleet = append(o.Fleet, readyWorker(i, zone))
	}
	o.Readings = Readings{CPU: Read(0.4), CPUMin: Read(0.4), CPUMax: Read(0.4), Pending: Read(25), PendingMin: Read(25), PendingMax: Read(25)}
	now := time.Unix(1730000300, 0)
	r := NewRecord("")
	r.PendingSinceEpoch = Num(1730000000)
	d := Decide(DefaultPolicy(), o, r, now)
	fmt.Println(d.Action, d.Nodes, d.Detail)
	// Output: SCALE_UP 3 ceil(25 / 10) = 3
}
