package wiretest

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/muster-dev/muster/nodes"
	"github.com/muster-dev/muster/nodes/sim"
	"github.com/muster-dev/muster/nodes/sim/awsapi"
	"github.com/muster-dev/muster/nodes/sim/kubeapi"
	"github.com/muster-dev/muster/nodes/sim/promapi"
)

func contains(s, sub string) bool { return strings.Contains(s, sub) }

// watched gives Prometheus enough to look back on.
func (g *rig) watched() *rig {
	g.Advance(20 * time.Minute)
	return g
}

// wanting is a rig with two full workers and two pods that need a third, which is asked for if nothing is wrong.
func wanting(t *testing.T, change ...func(*set)) *rig {
	g := build(t, change...)
	g.SetLoad(0.5)
	g.AddPods(4, sim.PodSpec{Name: "shop/old", MilliCPU: 1000})
	g.watched()
	g.AddPods(2, sim.PodSpec{Name: "shop/new", MilliCPU: 1000})
	g.ticks(1, func(nodes.Report) bool { return true }) // pending since here
	return g
}

// ends is what every story of wanting has to end in: one worker more, one instance launched, nothing else done.
func (g *rig) ends() {
	g.t.Helper()
	g.ticks(12, func(nodes.Report) bool { f := g.Fleet(); return f.Available == 3 && f.Pending == 0 })
	if n := g.count(sim.Launched); n != 1 {
		g.show()
		g.t.Errorf("%d instances launched, want one", n)
	}
	g.unharmed()
}

// unharmed wants that nothing was taken away.
func (g *rig) unharmed() {
	g.t.Helper()
	if n := g.count(sim.Terminated, sim.Evicted, sim.Cordoned, sim.NodeRemoved, sim.TokenMismatch, sim.Lost); n != 0 {
		g.show()
		g.t.Errorf("%d harmful entries in the ledger, want none", n)
	}
}

func TestAScaleUpOverTheWire(t *testing.T) {
	wanting(t).ends()
}

func TestAScaleDownOverTheWire(t *testing.T) {
	scaleDown(t)
}

// draining is a rig with an idle worker too many, whose pods have some grace.
func draining(t *testing.T, change ...func(*set)) *rig {
	g := build(t, append(change, func(s *set) { s.sim.Workers = []string{"a", "b", "a"} })...)
	g.SetLoad(0.1)
	for i := range 3 {
		g.AddPodOn("i-002", sim.PodSpec{Name: fmt.Sprint("shop/web-", i), MilliCPU: 300, Grace: g.grace})
	}
	return g.watched()
}

// scaleDown tells the whole story of a scale-down and judges it from the ledger.
func scaleDown(t *testing.T, change ...func(*set)) *rig {
	g := draining(t, change...)
	g.ticks(20, func(nodes.Report) bool { f := g.Fleet(); return f.Alive == 2 && f.StaleNodes == 0 && f.Cordoned == 0 })
	var order []string
	for _, e := range g.Ledger() {
		switch e.Kind {
		case sim.Cordoned, sim.Evicted, sim.Terminated, sim.NodeRemoved:
			order = append(order, string(e.Kind)+" "+e.Instance)
		}
		if e.Kind != sim.Terminated {
			continue
		}
		if e.Facts.Pods != 0 || !e.Facts.Cordoned || e.Facts.Available < 2 || e.Facts.InZone < 1 {
			t.Errorf("terminated with %+v", e.Facts)
		}
	}
	want := "cordoned i-002; evicted i-002; evicted i-002; evicted i-002; terminated i-002; node-removed i-002"
	if got := strings.Join(order, "; "); got != want { // the oldest of the zone that has two
		t.Errorf("got  %s\nwant %s", got, want)
	}
	g.ticks(10, func(rep nodes.Report) bool {
		return rep.Decision != nil && rep.Decision.Reason == nodes.ReasonMinWorkers
	})
	if f := g.Fleet(); f.Available != 2 || f.Pending != 0 {
		t.Errorf("at the end %+v", f)
	}
	return g
}

// TestWhatGoesWrongWithMetricsIsANoopWithItsReason: nothing is done, nothing is lost, and the next tick does what was to be done.
func TestWhatGoesWrongWithMetricsIsANoopWithItsReason(t *testing.T) {
	for _, c := range []struct {
		name, detail string
		fault        promapi.Fault
		err          bool
	}{
		{"hangs", "no answer within", promapi.Fault{Hang: true}, true},
		{"closes its connections", "can't be reached", promapi.Fault{Drop: true}, true},
		{"answers garbage", "answers with an error", promapi.Fault{Body: "<html>Welcome"}, false},
		{"answers NaN", "not a number", promapi.Fault{NaN: true}, false},
		{"has half the series", "have no CPU series", promapi.Fault{Half: true}, false},
		{"is overloaded", "503", promapi.Fault{Status: 503, Body: "no healthy upstream"}, false},
		{"warns", "may be partial", promapi.Fault{Warnings: []string{"a store did not answer"}}, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			g := wanting(t, func(s *set) {
				if c.fault.Hang {
					s.wait = 300 * time.Millisecond
				}
			})
			g.prom.SetFault(c.fault)
			for range 3 {
				rep, err := g.tick()
				if (err != nil) != c.err {
					t.Errorf("the tick ended with %v", err)
				}
				g.decided(rep, nodes.ReasonMetricsMissing, c.detail)
			}
			if n := g.count(sim.Launched, sim.LaunchRefused); n != 0 {
				t.Errorf("%d launches without metrics", n)
			}
			g.prom.SetFault(promapi.Fault{})
			g.ends()
		})
	}
}

func TestThrottledByEC2NothingIsConcludedFromTheListAndTheNextTickRecovers(t *testing.T) {
	g := wanting(t)
	g.aws.Fault(awsapi.Fault{})
	for range 3 {
		rep, err := g.tick()
		if err == nil {
			t.Error("the tick says that all is well")
		}
		g.decided(rep, nodes.ReasonFleetUnknown, "RequestLimitExceeded")
	}
	g.aws.Heal()
	g.ends()
}

func TestALaunchThatIsThrottledIsRepeatedAsItWas(t *testing.T) {
	g := wanting(t)
	g.aws.Fault(awsapi.Fault{Action: "RunInstances"})
	for range 3 {
		_, _ = g.tick()
	}
	if n := g.count(sim.Launched); n != 0 {
		t.Errorf("%d launched", n)
	}
	g.aws.Heal()
	g.ends()
}

func TestALaunchWhoseReplyIsLostIsMadeOnce(t *testing.T) {
	g := wanting(t)
	g.aws.Fault(awsapi.Fault{Action: "RunInstances", Drop: true, Times: 3})
	for range 3 {
		_, _ = g.tick()
	}
	g.aws.Heal()
	g.ends()
}

func TestAnHourWithoutTheKubernetesAPITerminatesNothing(t *testing.T) {
	for _, c := range []struct {
		name  string
		fault kubeapi.Fault
	}{{"closed connections", kubeapi.Fault{}}, {"503", kubeapi.Fault{Status: 503}}, {"half a list", kubeapi.Fault{Use: kubeapi.Use{Resource: "pods"}, Expire: true}}} {
		t.Run(c.name, func(t *testing.T) {
			g := wanting(t, func(s *set) { s.page = 3 })
			g.kube.Fail(c.fault)
			for range 60 {
				rep, err := g.tick()
				if err == nil {
					t.Fatal("a tick says that all is well")
				}
				g.decided(rep, nodes.ReasonFleetUnknown, "reading nodes")
			}
			g.unharmed()
			if n := g.count(sim.Launched); n != 0 {
				t.Errorf("%d launched into a cluster that can't be seen", n)
			}
			g.kube.Heal()
			g.ends()
		})
	}
}

func TestAnHourWithoutTheKubernetesAPIInTheMiddleOfActions(t *testing.T) {
	t.Run("scale-up", func(t *testing.T) {
		g := wanting(t)
		g.ticks(5, func(nodes.Report) bool { return g.count(sim.Launched) == 1 })
		g.kube.Fail(kubeapi.Fault{})
		for range 60 {
			_, _ = g.tick()
		}
		g.unharmed()
		g.kube.Heal()
		g.ends()
	})
	t.Run("scale-down", func(t *testing.T) {
		g := draining(t, func(s *set) { s.grace = 100 * time.Second }) // longer than a tick
		g.ticks(20, func(nodes.Report) bool { return g.count(sim.Evicted) > 0 })
		g.kube.Fail(kubeapi.Fault{})
		for range 60 {
			_, _ = g.tick()
		}
		if n := g.count(sim.Terminated); n != 0 {
			g.show()
			t.Errorf("%d terminated while nobody could see whether the drain was done", n)
		}
		g.kube.Heal()
		g.ticks(40, func(nodes.Report) bool { f := g.Fleet(); return f.Alive == 2 && f.StaleNodes == 0 && f.Cordoned == 0 })
		if n := g.count(sim.Lost); n != 0 {
			t.Errorf("pods lost: %d entries", n)
		}
	})
}
