package nodes_test

import (
	"strings"
	"testing"
	"time"

	"github.com/muster-dev/muster/nodes"
	"github.com/muster-dev/muster/nodes/sim"
)

// TestRepair/at_the_maximum: a worker whose node is dead for good makes room for pods that wait.
func TestRepair(t *testing.T) {
	t.Run("at the maximum", func(t *testing.T) {
		s := newSet(t, "abab", func(c *nodes.Config) { c.Policy.MaxWorkers, c.Policy.PodsPerNode = 4, 10 })
		s.AddPods(8, one("old"))
		s.Flap(w1, 30*time.Second, 100*time.Hour)
		s.ticks(t, 2)
		s.AddPods(2, one("new"))
		s.ticks(t, 25)
		f := s.Fleet()
		if f.Alive > 4 || f.Available != 4 || s.Instance(w1).Alive() {
			t.Errorf("after 25 minutes: %+v, %s alive %t", f, w1, s.Instance(w1).Alive())
		}
		if n := s.count(sim.Launched); n != 1 {
			t.Errorf("%d launches", n)
		}
	})
}

// TestAFullDiskCallsForANode: at MIN_WORKERS a worker whose disk has been full for too long counts no more, so that another comes first.
func TestAFullDiskCallsForANode(t *testing.T) {
	s := newSet(t, "ab", func(c *nodes.Config) { c.Policy.DiskPressureFor = 2 * time.Minute })
	s.AddPodOn(w1, one("stays"))
	s.FillDisk(w1, 30*time.Second, 100*time.Hour)
	d := s.ticks(t, 3).Decision
	if d.Action != nodes.ScaleUp || d.Reason != nodes.ReasonRepair || d.Nodes != 1 {
		t.Errorf("decided %s %s %q, %d nodes; unhealthy %+v", d.Action, d.Reason, d.Detail, d.Nodes, d.Unhealthy)
	}
	s.ticks(t, 12)
	if f := s.Fleet(); f.Available != 2 || s.Instance(w1).Alive() || s.count(sim.Evicted) != 1 || s.count(sim.Lost) != 0 {
		t.Errorf("%+v, %d evicted, %d lost", f, s.count(sim.Evicted), s.count(sim.Lost))
	}
}

// TestAnImpairedInstanceCallsForANode: at MIN_WORKERS a worker whose instance has failed a status check for too long counts no more, so
// that another comes first.
func TestAnImpairedInstanceCallsForANode(t *testing.T) {
	s := newSet(t, "ab", func(c *nodes.Config) {
		c.Policy.ImpairedFor, c.Statuses = 2*time.Minute, c.Cloud.(nodes.StatusReader)
	})
	s.AddPodOn(w1, one("stays"))
	s.Impair(w1, "system", 30*time.Second, 100*time.Hour)
	d := s.ticks(t, 3).Decision
	if d.Action != nodes.ScaleUp || d.Reason != nodes.ReasonRepair || d.Nodes != 1 {
		t.Errorf("decided %s %s %q, %d nodes; unhealthy %+v", d.Action, d.Reason, d.Detail, d.Nodes, d.Unhealthy)
	}
	s.ticks(t, 12)
	if f := s.Fleet(); f.Available != 2 || s.Instance(w1).Alive() || s.count(sim.Evicted) != 1 || s.count(sim.Lost) != 0 {
		t.Errorf("%+v, %d evicted, %d lost", f, s.count(sim.Evicted), s.count(sim.Lost))
	}
}

// TestStatusChecksThatCannotBeRead: a tick says so and does all else that it would. What an earlier tick read is not taken for what is.
func TestStatusChecksThatCannotBeRead(t *testing.T) {
	s := newSet(t, "abab", func(c *nodes.Config) {
		c.Policy.ImpairedFor, c.Statuses = 3*time.Minute, c.Cloud.(nodes.StatusReader)
	})
	s.Impair(w1, "instance", 30*time.Second, 100*time.Hour)
	if d := s.ticks(t, 2).Decision; len(d.Unhealthy) != 1 || d.Unhealthy[0].FailedCheck != "instance" {
		t.Fatalf("unhealthy %+v", d.Unhealthy)
	}
	s.Outage(sim.StatusesPart, 0, time.Hour)
	s.AddPods(12, one("new"))
	for range 10 {
		s.Advance(time.Minute)
		report, err := s.Tick(t.Context())
		if err == nil || !strings.Contains(err.Error(), "reading status checks") {
			t.Fatalf("the tick's error is %v", err)
		}
		if d := report.Decision; d == nil || len(d.Unhealthy) > 0 {
			t.Fatalf("decided %+v", d)
		}
	}
	if n := s.count(sim.Launched); n == 0 || s.count(sim.Terminated) > 0 || !s.Instance(w1).Alive() {
		t.Errorf("%d launched, %d terminated", n, s.count(sim.Terminated))
	}
}

func TestUnhealthyWorkers(t *testing.T) {
	now := time.Unix(1_000_000, 0)
	ago := func(d time.Duration) time.Time { return now.Add(-d) }
	worker := func(id string, notReadyFor time.Duration) nodes.Worker {
		w := nodes.Worker{Instance: nodes.Instance{ID: id, State: nodes.StateRunning, LaunchedAt: ago(time.Hour)},
			Node: &nodes.Node{NodeRef: nodes.NodeRef{Name: id, UID: "u-" + id}, Ready: notReadyFor == 0, CreatedAt: ago(time.Hour)}}
		if notReadyFor > 0 {
			w.Node.NotReadySince = ago(notReadyFor)
		}
		return w
	}
	fleet := func(n int, sick ...nodes.Worker) []nodes.Worker {
		for range n - len(sick) {
			sick = append(sick, worker("well", 0))
		}
		return sick
	}
	full := func(id string, since time.Duration) nodes.Worker {
		w := worker(id, 0)
		w.Node.DiskFullSince = ago(since)
		return w
	}
	impaired := func(w nodes.Worker, since time.Duration) nodes.Worker {
		w.Instance.Impairment = nodes.Impairment{Check: "system", Since: ago(since)}
		return w
	}
	long := 11 * time.Minute
	for _, tt := range []struct {
		name   string
		fleet  []nodes.Worker
		change func(*nodes.Policy, *nodes.Observation, *nodes.Record)
		want   string // "" none; else instance: why
		due    string
	}{
		{name: "all Ready", fleet: fleet(4)},
		{name: "for long", fleet: fleet(4, worker("i-1", long)), want: "i-1: removed now", due: "i-1"},
		{name: "not for long", fleet: fleet(4, worker("i-1", 5*time.Minute)), want: "i-1: removed in 5m0s unless it becomes Ready"},
		{name: "the only worker", fleet: fleet(1, worker("i-1", long)), want: "i-1: removed now", due: "i-1"},
		{name: "two of seven, the older first", fleet: fleet(7, worker("i-1", long), worker("i-2", 2*long)), want: "i-2: removed now; i-1: removed after i-2", due: "i-2"},
		{name: "two of six", fleet: fleet(6, worker("i-1", long), worker("i-2", long)), want: "i-1: kept: 2 of 6 workers are not Ready"},
		{name: "one of three, another joins", fleet: fleet(3, worker("i-1", long), worker("i-2", 20*time.Second)), want: "i-1: removed now; i-2: removed in 9m40s", due: "i-1"},
		{name: "the limit is off", fleet: fleet(4, worker("i-1", long)), want: "i-1: kept: NOT_READY_TIMEOUT_SEC is 0",
			change: func(p *nodes.Policy, _ *nodes.Observation, _ *nodes.Record) { p.NotReadyFor = 0 }},
		{name: "paused", fleet: fleet(4, worker("i-1", long)), want: "i-1: kept: scaling is paused",
			change: func(_ *nodes.Policy, _ *nodes.Observation, r *nodes.Record) { r.PausedSinceEpoch = 5 }},
		{name: "a disk full for long", fleet: fleet(4, full("i-1", 31*time.Minute)), want: "i-1: removed now", due: "i-1"},
		{name: "a disk full not for long", fleet: fleet(4, full("i-1", 20*time.Minute)), want: "i-1: removed in 10m0s unless its disk has room again"},
		{name: "a full disk, and none to spare", fleet: fleet(2, full("i-1", time.Hour)), want: "i-1: removed once another worker is there for it"},
		{name: "a full disk, none to spare, no room", fleet: fleet(2, full("i-1", time.Hour)), want: "i-1: removed now", due: "i-1",
			change: func(p *nodes.Policy, _ *nodes.Observation, _ *nodes.Record) { p.MaxWorkers = 2 }},
		{name: "two of six disks full", fleet: fleet(6, full("i-1", time.Hour), full("i-2", time.Hour)), want: "i-1: kept: 2 of 6 workers are under disk pressure"},
		{name: "one disk full, another not Ready", fleet: fleet(4, full("i-1", time.Hour), worker("i-2", 2*long)), want: "i-1: removed now; i-2: removed after i-1", due: "i-1"},
		{name: "a full disk while that is off", fleet: fleet(4, full("i-1", time.Hour)), want: "i-1: kept: DISK_PRESSURE_TIMEOUT_SEC is 0",
			change: func(p *nodes.Policy, _ *nodes.Observation, _ *nodes.Record) { p.DiskPressureFor = 0 }},
		{name: "impaired for long", fleet: fleet(4, impaired(worker("i-1", 0), long)), want: "i-1: removed now", due: "i-1"},
		{name: "impaired not for long", fleet: fleet(4, impaired(worker("i-1", 0), 4*time.Minute)), want: "i-1: removed in 6m0s unless its system status check passes again"},
		{name: "impaired, and none to spare", fleet: fleet(2, impaired(worker("i-1", 0), long)), want: "i-1: removed once another worker is there for it"},
		{name: "impaired, none to spare, no room", fleet: fleet(2, impaired(worker("i-1", 0), long)), want: "i-1: removed now", due: "i-1",
			change: func(p *nodes.Policy, _ *nodes.Observation, _ *nodes.Record) { p.MaxWorkers = 2 }},
		{name: "impaired since nobody knows when", fleet: fleet(4, func() nodes.Worker {
			w := impaired(worker("i-1", 0), long)
			w.Instance.Impairment.Since = time.Time{}
			return w
		}()), want: "i-1: removed in 10m0s unless"},
		{name: "two of six impaired", fleet: fleet(6, impaired(worker("i-1", 0), long), impaired(worker("i-2", 0), long)), want: "i-1: kept: 2 of 6 workers are not Ready or fail a status check, probably because of"},
		{name: "two of seven impaired", fleet: fleet(7, impaired(worker("i-1", 0), long), impaired(worker("i-2", 0), 2*long)), want: "i-2: removed now; i-1: removed after i-2", due: "i-2"},
		{name: "one impaired and one not Ready of six", fleet: fleet(6, impaired(worker("i-1", 0), long), worker("i-2", long)), want: "i-1: kept: 2 of 6 workers are not Ready or fail"},
		{name: "one impaired, one disk full", fleet: fleet(4, impaired(worker("i-1", 0), long), full("i-2", time.Hour)), want: "i-2: removed now; i-1: removed after i-2", due: "i-2"},
		{name: "impaired and not Ready", fleet: fleet(4, impaired(worker("i-1", 5*time.Minute), long)), want: "i-1: removed now", due: "i-1"},
		{name: "impaired and not Ready for long, and none to spare", fleet: fleet(2, impaired(worker("i-1", long), 2*long)), want: "i-1: removed now", due: "i-1"},
		{name: "impaired while that is off", fleet: fleet(4, impaired(worker("i-1", 0), time.Hour)), want: "i-1: kept: IMPAIRED_TIMEOUT_SEC is 0",
			change: func(p *nodes.Policy, _ *nodes.Observation, _ *nodes.Record) { p.ImpairedFor = 0 }},
		{name: "impaired while that is off, another not Ready", fleet: fleet(6, impaired(worker("i-1", 0), time.Hour), worker("i-2", long)), want: "i-1: kept: IMPAIRED_TIMEOUT_SEC is 0; i-2: removed now", due: "i-2",
			change: func(p *nodes.Policy, _ *nodes.Observation, _ *nodes.Record) { p.ImpairedFor = 0 }},
		{name: "impaired and annotated", fleet: fleet(4, impaired(worker("i-1", 0), long)), want: "i-1: kept: annotated",
			change: func(_ *nodes.Policy, o *nodes.Observation, _ *nodes.Record) { o.Fleet[0].Node.Keep = true }},
		{name: "annotated", fleet: fleet(4, worker("i-1", long)), want: "i-1: kept: annotated",
			change: func(_ *nodes.Policy, o *nodes.Observation, _ *nodes.Record) { o.Fleet[0].Node.Keep = true }},
		{name: "given back a moment ago", fleet: fleet(4, worker("i-1", long)), want: "i-1: kept for a while: its node",
			change: func(_ *nodes.Policy, _ *nodes.Observation, r *nodes.Record) {
				r.SkipList = []nodes.Skip{{InstanceID: "i-1", UntilEpoch: now.Unix() + 60, Cause: "its node is not there any more"}}
			}},
		{name: "being removed", fleet: fleet(7, worker("i-1", long), worker("i-2", long)), want: "i-1: being removed; i-2: removed after i-1",
			change: func(_ *nodes.Policy, _ *nodes.Observation, r *nodes.Record) {
				r.Removals = []nodes.Removal{{InstanceID: "i-1", NotReady: true, Phase: nodes.PhaseDraining}}
			}},
		{name: "of an open scale-up", fleet: fleet(4, worker("i-1", long)),
			change: func(_ *nodes.Policy, _ *nodes.Observation, r *nodes.Record) { r.ScaleUpInstanceIDs = []string{"i-1"} }},
		{name: "interrupted", fleet: fleet(4, worker("i-1", long)),
			change: func(_ *nodes.Policy, o *nodes.Observation, _ *nodes.Record) {
				o.Interruptions = []nodes.Interruption{{InstanceID: "i-1"}}
			}},
		{name: "a fleet that can't be read", fleet: fleet(4, worker("i-1", long)),
			change: func(_ *nodes.Policy, o *nodes.Observation, _ *nodes.Record) { o.FleetKnown = false }},
		{name: "a node that does not say since when", fleet: fleet(4, func() nodes.Worker {
			w := worker("i-1", long)
			w.Node.NotReadySince, w.Node.CreatedAt = time.Time{}, time.Time{}
			return w
		}()), want: "i-1: removed in 10m0s unless it becomes Ready"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			p, o, r := nodes.DefaultPolicy(), nodes.Observation{Fleet: tt.fleet, FleetKnown: true}, nodes.Record{}
			if tt.change != nil {
				tt.change(&p, &o, &r)
			}
			var got []string
			due := ""
			for _, u := range nodes.UnhealthyWorkers(p, o, r, now) {
				got = append(got, u.InstanceID+": "+u.Why)
				if u.Due {
					due += u.InstanceID
				}
			}
			text := strings.Join(got, "; ")
			if due != tt.due || tt.want == "" && text != "" || !strings.HasPrefix(text, tt.want) {
				t.Errorf("got %q, due %q", text, due)
			}
		})
	}
}

// TestDecisionTellsOfWorkersThatAreNotReady: at MAX_WORKERS the detail names what takes the room.
func TestDecisionTellsOfWorkersThatAreNotReady(t *testing.T) {
	s := newSet(t, "abab", func(c *nodes.Config) { c.Policy.MaxWorkers = 4 })
	s.AddPods(10, one("p"))
	s.Flap(w1, 30*time.Second, 100*time.Hour)
	d := s.ticks(t, 4).Decision
	if d.Reason != nodes.ReasonMaxWorkers || !strings.Contains(d.Detail, w1+" has not been Ready for 210s (removed in 6m") || len(d.Unhealthy) != 1 {
		t.Errorf("%s %q, %+v", d.Reason, d.Detail, d.Unhealthy)
	}
}

// TestRepairStartsAgainWhenAWorkerWasReady: a worker that is Ready for a moment while its removal is under way, and then no longer, has
// not been without it for NOT_READY_TIMEOUT_SEC.
func TestRepairStartsAgainWhenAWorkerWasReady(t *testing.T) {
	s := newSet(t, "abab", func(c *nodes.Config) { c.Policy.NotReadyFor = 3 * time.Minute })
	s.Flap(w1, time.Second, 200*time.Second)
	s.Flap(w1, 210*time.Second, time.Hour)
	at := func(d time.Duration) { s.Advance(start.Add(d).Sub(s.Clock().Now())) }
	stalled := &stalls{call: "cluster.Cordon", then: func() { at(215 * time.Second) }}
	at(185 * time.Second)
	_, _ = s.starts(t, "A", stalled, nil).Tick(t.Context())
	if !stalled.done {
		t.Fatal("no removal began")
	}
	at(230 * time.Second)
	_, _ = s.starts(t, "B", nil, nil).Tick(t.Context())
	if n := s.count(sim.Terminated); n > 0 {
		t.Errorf("it was terminated, %s after it was Ready", s.Clock().Now().Sub(start)-210*time.Second)
	}
}
