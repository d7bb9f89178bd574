package wiretest

import (
	"fmt"
	"testing"
	"time"

	"github.com/muster-dev/muster/nodes"
	"github.com/muster-dev/muster/nodes/sim"
)

// large is a cluster in three zones with pods spread over them, which Prometheus has watched for a while.
func large(t testing.TB, workers, pods int, watched time.Duration) *rig {
	g := build(t, func(s *set) {
		s.policy, s.wait = nodes.DefaultPolicy(), time.Minute // a simulated Prometheus takes its time over this many series
		s.policy.Cluster, s.policy.MaxWorkers = "prod", 2000
		s.sim.Zones, s.sim.Workers = []string{"a", "b", "c"}, nil
		for i := range workers {
			s.sim.Workers = append(s.sim.Workers, string(rune('a'+i%3)))
		}
	})
	g.SetLoad(0.5)
	g.Populate(func(yield func(string, sim.PodSpec) bool) {
		for i := range pods {
			p := sim.PodSpec{Name: fmt.Sprintf("shop/web-%d-%d", i/workers, i%workers), MilliCPU: int64(10 * (i/workers%4 + 1)), Memory: 64 << 20}
			if !yield(fmt.Sprintf("i-%03d", 2+i%workers), p) {
				return
			}
		}
	})
	g.Advance(watched)
	return g
}

// spent returns the requests by protocol since an earlier reading.
func (g *rig) spent(before [4]int64) (out [4]int64) {
	for i := range g.calls {
		out[i] = g.calls[i].Load() - before[i]
	}
	return out
}

func TestTheRequestsOfATickDontGrowWithThePods(t *testing.T) {
	count := func(pods int) [4]int64 {
		g := large(t, 100, pods, time.Minute)
		rep, err := g.tick()
		if err != nil || rep.Decision == nil {
			t.Fatalf("%d pods: %v", pods, err)
		}
		return g.spent([4]int64{})
	}
	few, many := count(300), count(30000)
	const page = 1000 // objects of one answer of the Kubernetes API
	want := few
	want[toKubernetes] += 30000/page - 1 // a page of a list is a request, a pod is none
	if many != want {
		t.Errorf("requests to EC2, Kubernetes, Prometheus and the store: %v for 300 pods, %v for 30,000, want %v", few, many, want)
	}
	if few[toAWS] != 2 || few[toKubernetes] != 3 || few[toPrometheus] != 11 {
		t.Errorf("requests to EC2, Kubernetes and Prometheus: %v, want 2, 3 and 11", few[:3])
	}
}

// BenchmarkTickAt1000Nodes30000Pods is one tick with every adapter over HTTP, the event log on disk and no worker that could be taken
// away, so that every one is looked at. The servers answer from memory: what is measured is the tick.
func BenchmarkTickAt1000Nodes30000Pods(b *testing.B) {
	g := large(b, 1000, 30000, 16*time.Minute)
	g.frozen.Store(true)
	tick := func() {
		if rep, err := g.r.Tick(b.Context()); err != nil || rep.Decision == nil || rep.Decision.Reason != nodes.ReasonSteady {
			b.Fatalf("%v", err)
		}
	}
	tick()
	before := g.spent([4]int64{})
	b.ReportAllocs()
	for b.Loop() {
		tick()
	}
	calls := g.spent(before)
	for i, name := range []string{toAWS: "EC2-calls/op", toKubernetes: "Kubernetes-calls/op", toPrometheus: "Prometheus-calls/op"} {
		b.ReportMetric(float64(calls[i])/float64(b.N), name)
	}
}
