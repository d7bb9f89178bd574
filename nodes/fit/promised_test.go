package fit

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/muster-dev/muster/nodes"
	"github.com/muster-dev/muster/nodes/sim"
)

// labelled is a region whose workers come as their user data makes them, and a pod that needs the label team=a.
type labelled struct {
	t         *testing.T
	simulator *sim.Simulator
	policy    nodes.Policy
	n         int
	last      nodes.Report
}

func newLabelled(t *testing.T, sizing nodes.SizingMode) *labelled {
	t.Helper()
	p := policy()
	p.Sizing, p.MaxWorkers, p.MinWorkers, p.PendingUpFor, p.CooldownUp = sizing, 12, 1, time.Minute, time.Minute
	p.NodeLabels = map[string]string{"team": "a"}
	f := New(Config{Catalog: small(), MemoryOverhead: 1e-12})
	l := &labelled{t: t, policy: p}
	l.simulator = sim.New(sim.Options{Policy: p, Workers: []string{"a"}, WorkerType: "x.small", Capacity: func(typ string) nodes.Resources { return f.Allocatable(small()[typ]) }})
	l.simulator.SetLoad(0.5)
	text := Constraints{Namespace: "default", NodeSelector: map[string]string{"team": "a"}}.Text()
	l.simulator.AddPods(1, sim.PodSpec{Name: "default/needs", MilliCPU: 500, Memory: 1 << 30, Selector: map[string]string{"team": "a"}, Scheduling: text})
	return l
}

// minutes ticks once a minute, each time as a new process that knows nothing.
func (l *labelled) minutes(n int) {
	l.t.Helper()
	for range n {
		f := New(Config{Catalog: small(), MemoryOverhead: 1e-12, Labels: l.policy.NodeLabels, Taints: l.policy.NodeTaints})
		c := l.simulator.Client("A", nil)
		config := nodes.Config{Policy: l.policy, Signals: c, Cloud: c, Cluster: c, Store: c, EventLog: c, Clock: l.simulator.Clock(), Fitter: f, Screener: f,
			NewID: func() string { l.n++; return fmt.Sprint(l.n) }}
		if l.policy.Sizing == nodes.SizingFit {
			config.Sizer = f
		}
		r, err := nodes.New(config)
		if err != nil {
			l.t.Fatal(err)
		}
		if l.last, err = r.Tick(l.t.Context()); err != nil {
			l.t.Fatal(err)
		}
		l.simulator.Advance(time.Minute)
	}
}

func (l *labelled) launched() (ids []string) {
	for _, e := range l.simulator.Ledger() {
		if e.Kind == sim.Launched {
			ids = append(ids, e.Instance)
		}
	}
	return ids
}

// boots sets how every instance from now on comes up.
func (l *labelled) boots(b sim.Boot) { l.simulator.SetBoots(slices.Repeat([]sim.Boot{b}, 100)...) }

func TestNodesWithoutTheLabelThatAPodNeeds(t *testing.T) {
	for _, sizing := range []nodes.SizingMode{nodes.SizingFit, nodes.SizingPodsPerNode} {
		t.Run(string(sizing)+"/one is launched in vain and no more", func(t *testing.T) {
			l := newLabelled(t, sizing)
			l.minutes(60)
			if ids := l.launched(); len(ids) != 1 {
				t.Fatalf("%d nodes were launched: %v", len(ids), ids)
			}
			id := l.launched()[0]
			d := l.last.Decision
			if d.Action != nodes.Noop || !strings.Contains(d.Detail, id+" joined without the label team=a") {
				t.Errorf("%s %s: %s", d.Action, d.Reason, d.Detail)
			}
			told := 0
			for e, err := range l.simulator.Client("A", nil).Read(t.Context(), nodes.Query{}) {
				if err != nil {
					t.Fatal(err)
				}
				if e.Kind == "template.differs" && e.Instance == id && strings.Contains(e.Message, "team=a") {
					told++
				}
			}
			if told != 1 {
				t.Errorf("told %d times", told)
			}
			// The useless node is gone, and what is known of its kind is not.
			l.simulator.TakeAway(id)
			l.minutes(60)
			if n := len(l.launched()); n != 1 {
				t.Errorf("%d nodes were launched when the first was gone", n)
			}
			// Another promise is another template.
			l.policy.NodeLabels = map[string]string{"team": "a", "tier": "b"}
			l.boots(sim.Boot{Labels: l.policy.NodeLabels})
			l.minutes(20)
			if f := l.simulator.Fleet(); len(l.launched()) != 2 || f.Pending != 0 {
				t.Errorf("with the settings changed: launched %v, %+v", l.launched(), f)
			}
		})
		t.Run(string(sizing)+"/as promised", func(t *testing.T) {
			l := newLabelled(t, sizing)
			l.boots(sim.Boot{Labels: map[string]string{"team": "a", "other": "x"}})
			l.minutes(30)
			if f := l.simulator.Fleet(); len(l.launched()) != 1 || f.Pending != 0 {
				t.Errorf("launched %v, %+v", l.launched(), f)
			}
		})
		t.Run(string(sizing)+"/a taint that the settings don't name", func(t *testing.T) {
			l := newLabelled(t, sizing)
			l.boots(sim.Boot{Labels: map[string]string{"team": "a"}, Taints: []nodes.Taint{{Key: "batch", Value: "true", Effect: "NoSchedule"}}, Unplaceable: true})
			l.minutes(60)
			if n := len(l.launched()); n != 1 || !strings.Contains(l.last.Decision.Detail, "with the taint batch=true:NoSchedule") {
				t.Errorf("%d nodes were launched; %s", n, l.last.Decision.Detail)
			}
		})
		t.Run(string(sizing)+"/smaller than the table says", func(t *testing.T) {
			l := newLabelled(t, sizing)
			l.boots(sim.Boot{Labels: map[string]string{"team": "a"}, Allocatable: nodes.Resources{MilliCPU: 100, Memory: 1 << 29, Pods: 10}})
			l.minutes(60)
			types := map[string]int{}
			for _, e := range l.simulator.Ledger() {
				if e.Kind == sim.Launched {
					types[e.Request.Offering.Type]++
				}
			}
			most := 1 // packing knows which types are too small
			if sizing == nodes.SizingPodsPerNode {
				most = 2 // one in each zone
			}
			for typ, n := range types {
				if n > most {
					t.Errorf("%d of %s were launched", n, typ)
				}
			}
		})
	}
}

// TestPodsThatTheSchedulerRefuses: for a reason that no plan sees, pods-per-node fills every zone with one empty node and no more.
func TestPodsThatTheSchedulerRefuses(t *testing.T) {
	for _, sizing := range []nodes.SizingMode{nodes.SizingFit, nodes.SizingPodsPerNode} {
		t.Run(string(sizing), func(t *testing.T) {
			l := newLabelled(t, sizing)
			l.policy.NodeLabels = nil
			l.simulator.RemovePods("default/needs")
			l.simulator.AddPods(3, sim.PodSpec{Name: "odd", MilliCPU: 500, Memory: 1 << 30, Selector: map[string]string{"what": "ever"}}) // the plan does not know
			l.minutes(240)
			if n := len(l.launched()); n > 2 || l.last.Decision.Action != nodes.Noop {
				t.Errorf("%d nodes were launched; %s %s", n, l.last.Decision.Reason, l.last.Decision.Detail)
			}
			t.Log(l.last.Decision.Reason, l.last.Decision.Detail)
		})
	}
}
