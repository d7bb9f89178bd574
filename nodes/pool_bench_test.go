package nodes_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/muster-dev/muster/nodes"
	"github.com/muster-dev/muster/nodes/fit"
	"github.com/muster-dev/muster/nodes/sim"
)

// largePools is a question about a number of full workers of three pools, with 30 pods each as the Kubernetes adapter shows them, in classes.
func largePools(workers int, pods []nodes.Pod) *pooled {
	batch := nodes.Pool{Name: "batch", Weight: 5, Labels: map[string]string{"team": "batch"}, Taints: []nodes.Taint{batchTaint}}
	q := newPooled(nodes.Pool{Name: nodes.DefaultPool, InstanceTypes: []string{"m", "n", "big"}}, batch, nodes.Pool{Name: "arm", InstanceTypes: []string{"arm"}})
	q.p.MaxWorkers, q.p.Consolidation, q.p.ConsolidatePerHour, q.p.MaxBatchUp = 2*workers, nodes.ConsolidationReplace, 10, 100
	q.o.Fleet, q.o.Zones = nil, []string{"a", "b", "c"}
	for i := range workers {
		w := q.worker(fmt.Sprint("i-", i), q.o.Zones[i%3], q.p.Pools[i%3].Name)
		if i%3 == 1 {
			w.Node.Labels, w.Node.Taints = batch.Labels, batch.Taints
		}
		w.Node.Allocatable = nodes.Resources{MilliCPU: 2000, Memory: 8 << 30, Pods: 110}
		w.Node.Pods = nodes.Classes([]nodes.Pod{
			{Name: "p/small", Count: 20, Requests: nodes.Resources{MilliCPU: 40, Memory: 64 << 20}},
			{Name: "p/large", Count: 10, Requests: nodes.Resources{MilliCPU: 110 + int64(i%7), Memory: 128 << 20}},
		})
		q.o.Fleet = append(q.o.Fleet, w)
	}
	q.o.Pending = pods
	total := 0
	for _, p := range pods {
		total += p.N()
	}
	known := nodes.Read(float64(total))
	q.o.Readings = nodes.Readings{CPU: nodes.Read(0.5), CPUMin: nodes.Read(0.5), CPUMax: nodes.Read(0.5), Pending: known, PendingMin: known, PendingMax: known}
	if total > 0 {
		q.r.PendingSinceEpoch = nodes.Num(q.now.Add(-time.Hour).Unix())
	}
	return q
}

// ninehundred are pods of several kinds, a third of them of the pool batch.
func ninehundred() []nodes.Pod {
	var out []nodes.Pod
	for i := range 30 {
		p := nodes.Pod{Name: fmt.Sprint("default/p", i), Count: 30, Requests: nodes.Resources{MilliCPU: int64(100 + 10*(i%10)), Memory: 256 << 20}}
		if i%3 == 0 {
			p.Scheduling = batchPod("").Scheduling
		}
		out = append(out, p)
	}
	return out
}

// BenchmarkDecideInPools is a decision about three pools: with nothing pending, when every worker is looked at for a consolidation, and
// with 900 pods that wait.
func BenchmarkDecideInPools(b *testing.B) {
	f := fit.New(fit.Config{Catalog: poolTypes(), MemoryOverhead: 1e-9})
	for _, workers := range []int{1000, 5000} {
		for name, pods := range map[string][]nodes.Pod{"nothing pending": nil, "900 pods pending": ninehundred()} {
			b.Run(fmt.Sprintf("%d nodes, %s", workers, name), func(b *testing.B) {
				q := largePools(workers, pods)
				d := nodes.Decider{Policy: q.p, Sizer: f, Fitter: f, Appraiser: f}
				b.ReportAllocs()
				var got nodes.Decision
				for b.Loop() {
					got = d.Decide(q.o, q.r, q.now)
				}
				b.ReportMetric(float64(got.Nodes), "nodes")
				if len(pods) > 0 && got.Action != nodes.ScaleUp {
					b.Fatal(got.Action, got.Reason, got.Detail)
				}
			})
		}
	}
}

// TestGrowthInPools: 900 pods bring the nodes of two pools within few ticks, and each tick makes few calls.
func TestGrowthInPools(t *testing.T) {
	sc := scenario{name: "growth in pools", workers: "abababab", setup: func(s *stage) {
		s.SetLoad(0.5)
		s.AddPods(16, one("old"))
		for i := range 90 {
			spec := sim.PodSpec{Name: fmt.Sprint("new-", i), MilliCPU: 200, Memory: 64 << 20}
			if i%3 == 0 {
				spec = batchPod(spec.Name)
				spec.MilliCPU = 200
			}
			s.AddPods(10, spec)
		}
	}, policy: func(p *nodes.Policy) {
		generalAndBatch(p)
		p.Pools[1].Limits = nodes.Limits{Nodes: 40}
		p.MaxActions, p.MaxBatchUp, p.MaxWorkers = 10, 5, 120
	}, region: joining, length: minutes(9)}
	p := perform(&sc, schedule{}, nil, nil)
	launched := p.stage.count(sim.Launched, nil)
	var last time.Duration
	for _, e := range p.stage.Ledger() {
		if e.Kind == sim.Launched {
			last = e.At.Sub(start)
		}
	}
	t.Logf("%d nodes, the last launched after %s; %d calls; batch %d", launched, last, p.calls, len(p.stage.livingIn("batch")))
	if f := p.stage.Fleet(); f.Pending != 0 || launched > 94 || len(p.stage.livingIn("batch")) > 40 {
		t.Errorf("%d pods wait after %d launches; %d in batch", f.Pending, launched, len(p.stage.livingIn("batch")))
	}
	for _, v := range check(p.stage) {
		t.Errorf("%s: %s", v.invariant, v.what)
	}
}
