package wiretest

import (
	"context"
	"flag"
	"fmt"
	"os"
	"runtime"
	"runtime/metrics"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/muster-dev/muster/nodes"
	"github.com/muster-dev/muster/nodes/fit"
	"github.com/muster-dev/muster/nodes/sim"
)

var (
	scaleSizes = flag.String("scale", "", "numbers of nodes at which TestScale measures, with 30 pods each, such as 1000,5000; growth then is for 900 pods")
	scaleTable = flag.String("scale.table", "", "write TestScale's tables to this file")
)

// scaled is the policy of a measurement: everything that looks at every worker is on.
func scaled(pools bool, most int) nodes.Policy {
	p := nodes.DefaultPolicy()
	p.Cluster, p.MaxWorkers, p.Sizing = "prod", most, nodes.SizingFit
	p.Consolidation, p.ConsolidatePerHour, p.Drift = nodes.ConsolidationReplace, 10, true
	p.InstanceTypes = []string{"m5.large", "c5.large", "r5.large"}
	if pools {
		p.Pools = []nodes.Pool{
			{Name: "general", InstanceTypes: p.InstanceTypes, Weight: 10},
			{Name: "compute", InstanceTypes: []string{"c5.large", "c5.xlarge"}, Labels: map[string]string{"team": "compute"}},
			{Name: "batch", InstanceTypes: []string{"m5.large", "m5.xlarge"}, Limits: nodes.Limits{Nodes: most},
				Labels: map[string]string{"team": "batch"}, Taints: []nodes.Taint{{Key: "batch", Value: "true", Effect: "NoSchedule"}}},
		}
	}
	return p
}

// allocatable is what a node of a type can give to pods, as the packing expects.
func allocatable(typ string) nodes.Resources {
	return fit.New(fit.Config{}).Allocatable(fit.Shipped()[typ])
}

// poolOf spreads workers over the pools of a policy.
func poolOf(p nodes.Policy) func(int) string {
	return func(n int) string {
		if len(p.Pools) == 0 {
			return ""
		}
		return p.Pools[n%len(p.Pools)].Name
	}
}

// podsEach are the pods of a node.
const podsEach = 30

// crowded is a cluster in which no worker's pods fit on the others, so that a decision looks at every one.
func crowded(t testing.TB, workers int, pools bool) *rig {
	g := build(t, func(s *set) {
		s.policy, s.direct = scaled(pools, 2*workers), true // a simulated Prometheus takes minutes over this many series
		s.sim.Zones, s.sim.Workers, s.sim.WorkerType, s.sim.WorkerPoolOf = []string{"a", "b", "c"}, nil, "m5.large", poolOf(s.policy)
		s.sim.Capacity = allocatable
		for i := range workers {
			s.sim.Workers = append(s.sim.Workers, string(rune('a'+i%3)))
		}
	})
	g.SetLoad(0.5)
	g.Advance(16 * time.Minute)
	room := allocatable("m5.large").MilliCPU - podsEach/2
	g.Populate(func(yield func(string, sim.PodSpec) bool) {
		for i := range workers * podsEach {
			p := sim.PodSpec{Name: fmt.Sprintf("shop/web-%d-%d", i/workers, i%workers), MilliCPU: room/podsEach + int64(i/workers%2), Memory: 64 << 20}
			if !yield(fmt.Sprintf("i-%03d", 2+i%workers), p) {
				return
			}
		}
	})
	g.Advance(time.Minute)
	return g
}

// cost is what one tick took. The servers answer from memory in the same process, so their part is in it.
type cost struct {
	took, cpu, deciding time.Duration
	allocated, most     uint64 // bytes; most is beside what was in use before
	calls               [4]int64
	decision            nodes.Decision
}

// cpuTime is what the process has used so far.
func cpuTime() time.Duration {
	var u syscall.Rusage
	_ = syscall.Getrusage(syscall.RUSAGE_SELF, &u)
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// peak follows how much memory objects take, until it is stopped.
func peak() (stop func() uint64) {
	sample := []metrics.Sample{{Name: "/memory/classes/heap/objects:bytes"}}
	read := func() uint64 { metrics.Read(sample); return sample[0].Value.Uint64() }
	before, most := read(), uint64(0)
	done, ended := make(chan bool), make(chan bool)
	go func() {
		defer close(ended)
		for {
			most = max(most, read())
			select {
			case <-done:
				return
			case <-time.After(2 * time.Millisecond):
			}
		}
	}()
	return func() uint64 {
		close(done)
		<-ended
		return most - min(most, before)
	}
}

// measured is the cost of the median of some ticks.
func (g *rig) measured(ticks int) cost {
	g.frozen.Store(true)
	g.once() // the servers remember their answers
	all := make([]cost, 0, ticks)
	for range ticks {
		all = append(all, g.once())
	}
	slices.SortFunc(all, func(a, b cost) int { return int(a.took - b.took) })
	out := all[len(all)/2]
	out.deciding = g.decides()
	return out
}

func (g *rig) once() cost {
	var before, after runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&before)
	calls, cpu, began, stop := g.spent([4]int64{}), cpuTime(), time.Now(), peak()
	rep, err := g.r.Tick(context.Background())
	c := cost{took: time.Since(began), most: stop(), cpu: cpuTime() - cpu, calls: g.spent(calls)}
	g.must(err)
	if rep.Decision == nil {
		g.t.Fatalf("a tick without a decision: %+v", rep.Events)
	}
	runtime.ReadMemStats(&after)
	c.allocated, c.decision = after.TotalAlloc-before.TotalAlloc, *rep.Decision
	return c
}

// decides is how long the decision alone takes.
func (g *rig) decides() time.Duration {
	s, err := g.r.Plan(context.Background())
	g.must(err)
	f := fit.New(fit.Config{})
	d := nodes.Decider{Policy: g.policy, Sizer: f, Fitter: f, Appraiser: f}
	took := make([]time.Duration, 5)
	for i := range took {
		began := time.Now()
		d.Decide(s.Observation, s.Record, s.Now)
		took[i] = time.Since(began)
	}
	slices.Sort(took)
	return took[len(took)/2]
}

// growth is what it took until 900 pods ran.
type growth struct {
	took     time.Duration // of the simulator's time
	launched int
	ticks    int
	cpu      time.Duration
	calls    [4]int64
}

// grow takes a full cluster of a tenth of the pods' nodes until all pods run, at a tick every 10 s.
func grow(t testing.TB, pods int, pools bool, change func(*nodes.Policy)) growth {
	workers := pods / 90
	g := build(t, func(s *set) {
		s.policy = scaled(pools, workers*11)
		s.policy.Consolidation, s.policy.Drift = nodes.ConsolidationOff, false
		change(&s.policy)
		s.sim.Zones, s.sim.Workers, s.sim.WorkerType, s.sim.WorkerPoolOf = []string{"a", "b", "c"}, nil, "m5.large", poolOf(s.policy)
		s.sim.Capacity = allocatable
		for i := range workers {
			s.sim.Workers = append(s.sim.Workers, string(rune('a'+i%3)))
		}
	})
	g.SetLoad(0.5)
	g.AddPods(workers, sim.PodSpec{Name: "shop/old", MilliCPU: 1800})
	g.watched()
	for i := range 3 {
		p := sim.PodSpec{Name: fmt.Sprint("shop/new-", i), MilliCPU: 180, Memory: 256 << 20}
		if pools && i == 2 {
			p.Selector, p.Tolerates = map[string]string{"team": "batch"}, g.policy.Pools[2].Taints
		}
		g.AddPods(pods/3, p)
	}
	began, calls, cpu := g.Clock().Now(), g.spent([4]int64{}), cpuTime()
	out := growth{}
	for g.Fleet().Pending > 0 {
		if out.ticks++; out.ticks > 1500 {
			t.Fatalf("%+v after %d ticks", g.Fleet(), out.ticks)
		}
		now := g.Clock().Now()
		g.Advance(now.Truncate(10 * time.Second).Add(10 * time.Second).Sub(now))
		_, err := g.r.Tick(context.Background())
		g.must(err)
	}
	out.took, out.launched, out.cpu, out.calls = g.Clock().Now().Sub(began).Round(time.Second), g.count(sim.Launched), cpuTime()-cpu, g.spent(calls)
	return out
}

// TestScale measures whole ticks, with every adapter over HTTP and the event log on disk, and growth, both with pools and without. What
// it judges is what doesn't depend on the machine: a tick asks for the same whether there are pools, and launches no more than is needed.
func TestScale(t *testing.T) {
	sizes, pods := []string{"30"}, 90
	if *scaleSizes != "" {
		sizes, pods = strings.Split(*scaleSizes, ","), 900
	}
	var out strings.Builder
	out.WriteString("| nodes | pods | pools | tick | of it decision | CPU | allocated | most in use | EC2 calls | Kubernetes calls |\n" +
		"| ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: |\n")
	for _, s := range sizes {
		workers, err := strconv.Atoi(s)
		if err != nil {
			t.Fatal(err)
		}
		for _, pools := range []bool{false, true} {
			c := crowded(t, workers, pools).measured(5)
			if c.decision.Action != nodes.Noop || c.decision.Reason != nodes.ReasonSteady {
				t.Errorf("%d nodes, pools %t: decided %s %s %q", workers, pools, c.decision.Action, c.decision.Reason, c.decision.Detail)
			}
			// What a tick reads, and nothing that it does to a node.
			if want := pages(workers+1) + pages(workers*podsEach) + 1; c.calls[toKubernetes] != want {
				t.Errorf("%d nodes, pools %t: %d calls of the Kubernetes API, want %d: the pages of nodes, of which one is the server, and of pods, and the disruption budgets", workers, pools, c.calls[toKubernetes], want)
			}
			t.Logf("%d nodes, pools %t: %s", workers, pools, c.took)
			fmt.Fprintf(&out, "| %d | %d | %s | %s | %s | %s | %d MB | %d MB | %d | %d |\n", workers, workers*podsEach, number(pools), c.took.Round(time.Millisecond),
				c.deciding.Round(100*time.Microsecond), c.cpu.Round(10*time.Millisecond), c.allocated/1e6, c.most/1e6, c.calls[toAWS], c.calls[toKubernetes])
		}
	}
	ticks := out.String()
	out.Reset()
	out.WriteString("| settings | pools | all pods run after | nodes launched | ticks | CPU | EC2 calls | Kubernetes calls | Prometheus calls |\n" +
		"| --- | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: |\n")
	for _, s := range []struct {
		name   string
		change func(*nodes.Policy)
	}{
		{"defaults", func(*nodes.Policy) {}},
		{"`MAX_BATCH_UP=100`", func(p *nodes.Policy) { p.MaxBatchUp = 100 }},
		{"`MAX_BATCH_UP=100 PENDING_UP_SEC=10`", func(p *nodes.Policy) { p.MaxBatchUp, p.PendingUpFor = 100, 10*time.Second }},
	} {
		if *scaleSizes == "" && s.name == "defaults" {
			continue
		}
		for _, pools := range []bool{false, true} {
			n := grow(t, pods, pools, s.change)
			if most := pods/10 + 2; n.launched > most {
				t.Errorf("%s, pools %t: %d nodes launched for %d pods, at most %d are needed", s.name, pools, n.launched, pods, most)
			}
			fmt.Fprintf(&out, "| %s | %s | %s | %d | %d | %s | %d | %d | %d |\n", s.name, number(pools), n.took, n.launched, n.ticks, n.cpu.Round(10*time.Millisecond),
				n.calls[toAWS], n.calls[toKubernetes], n.calls[toPrometheus])
		}
	}
	t.Logf("\n%s\n%s", ticks, out.String())
	if *scaleTable != "" {
		if err := os.WriteFile(*scaleTable, fmt.Appendf(nil, scalePage, runtime.NumCPU(), ticks, out.String()), 0o644); err != nil {
			t.Fatal(err)
		}
	}
}

// pages is how many answers a list of objects takes.
func pages(objects int) int64 {
	const page = 1000
	return int64((objects + page - 1) / page)
}

func number(pools bool) string {
	if pools {
		return "3"
	}
	return "none"
}

const scalePage = `# What a tick costs

Written by ` + "`go test ./nodes/wiretest -run Scale$ -timeout 30m -scale 1000,5000 -scale.table $PWD/docs/results/scale.md`" + ` on %d cores, one run.

## Whole ticks

The adapters of EC2 and Kubernetes talk HTTP to a simulated region whose servers answer from memory in the same process, so their part is in the figures. Metrics come without Prometheus, which is asked 11 times per tick. The event log is on disk. No pods wait, and no worker's pods fit elsewhere, so each one is looked at: ` + "`SIZING=fit CONSOLIDATION=replace DRIFT=true`" + `. The median of five ticks. "Most in use" is memory of objects beside what was in use before.

%s
## Growth

10 full nodes, and 900 pods of which ten fit on a node; with pools a third of them only in one. A node joins 70 s after its launch. A tick every 10 s, ` + "`SIZING=fit MAX_WORKERS=110`" + `. The time is the simulated region's. CPU is of the whole process, of which the simulated Prometheus takes half.

%s`
