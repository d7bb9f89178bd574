package fit

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/muster-dev/muster/nodes"
)

// busy is a cluster in which every node has a pod that fits no other one.
func busy(n int) []*nodes.Node {
	var out []*nodes.Node
	for i := range n {
		node := &nodes.Node{NodeRef: nodes.NodeRef{Name: fmt.Sprint("n", i)}, Ready: true, Allocatable: nodes.Resources{MilliCPU: 8000, Memory: 32 << 30, Pods: 110}}
		for k := range 20 {
			node.Pods = append(node.Pods, nodes.Pod{Name: fmt.Sprintf("p/%d-%d", i, k), Requests: nodes.Resources{MilliCPU: int64(10 + k), Memory: 64 << 20},
				Scheduling: Constraints{Namespace: "p", Labels: map[string]string{"app": fmt.Sprint(k)}}.Text()})
		}
		node.Pods = append(node.Pods, nodes.Pod{Name: fmt.Sprint("p/huge-", i), Requests: nodes.Resources{MilliCPU: 7500}})
		out = append(out, node)
	}
	return out
}

// TestFleetPacksNothingThatCanNotFit counts packings: none is needed for nodes with a pod that fits nowhere else.
func TestFleetPacksNothingThatCanNotFit(t *testing.T) {
	list := busy(300)
	fl := New(Config{}).Fleet(list).(*fleet)
	for _, n := range list {
		if why := fl.Without(n, n.Pods); why != fmt.Sprintf("pod %s (7500m CPU, 0 MiB) fits no other node: none that it may run on has room", n.Pods[20].Name) {
			t.Fatal(why)
		}
	}
	if fl.packed != 0 {
		t.Errorf("%d packings", fl.packed)
	}
}

// TestFleetAnswersAsFitsDoes: for random fleets, as nodes go one after the other.
func TestFleetAnswersAsFitsDoes(t *testing.T) {
	rnd := rand.New(rand.NewPCG(3, 4))
	yes, no, saved := 0, 0, 0
	for range 60 {
		var list []*nodes.Node
		for i := range 2 + rnd.IntN(8) {
			n := &nodes.Node{NodeRef: nodes.NodeRef{Name: fmt.Sprint("n", i)}, Allocatable: nodes.Resources{MilliCPU: 4000, Memory: 8 << 30, Pods: 3 + rnd.IntN(6)}}
			if rnd.IntN(3) == 0 {
				n.Labels = map[string]string{"pool": "a"}
			}
			if rnd.IntN(4) == 0 {
				n.Taints = []nodes.Taint{{Key: "batch", Effect: "NoSchedule"}}
			}
			for k := range rnd.IntN(5) {
				c := Constraints{Namespace: "p"}
				if n.Labels != nil && rnd.IntN(2) == 0 {
					c.NodeSelector = n.Labels
				}
				n.Pods = append(n.Pods, nodes.Pod{Name: fmt.Sprintf("p/%d-%d", i, k), Count: 1 + rnd.IntN(2), Requests: nodes.Resources{MilliCPU: rnd.Int64N(3) * rnd.Int64N(2000)}, Scheduling: c.Text()})
			}
			list = append(list, n)
		}
		f := New(Config{})
		fl := f.Fleet(list).(*fleet)
		left, leaving := list, []nodes.Pod(nil)
		for _, n := range list {
			together := append(leaving[:len(leaving):len(leaving)], n.Pods...)
			want := f.Fits(together, nodes.Others(left, n))
			got := fl.Without(n, together)
			if (got == "") != (want == "") {
				t.Fatalf("got %q, want %q", got, want)
			}
			if want != "" {
				no++
				continue
			}
			yes++
			leaving, left = together, nodes.Others(left, n)
			fl.Remove(n)
		}
		saved += len(list) - fl.packed
	}
	if yes < 20 || no < 20 || saved < 20 {
		t.Errorf("%d fit, %d don't, %d without packing: the fleets show too little", yes, no, saved)
	}
}

func BenchmarkDecideWhenNoTargetFits(b *testing.B) {
	for _, n := range []int{1000, 5000} {
		b.Run(fmt.Sprint(n, " nodes"), func(b *testing.B) {
			now := time.Unix(1_000_000, 0)
			o := nodes.Observation{FleetKnown: true, Readings: nodes.Readings{CPU: nodes.Read(0.1), CPUMin: nodes.Read(0.1), CPUMax: nodes.Read(0.1),
				Pending: nodes.Read(0), PendingMin: nodes.Read(0), PendingMax: nodes.Read(0)}}
			for i, node := range busy(n) {
				o.Fleet = append(o.Fleet, nodes.Worker{Instance: nodes.Instance{ID: fmt.Sprint("i-", i), State: nodes.StateRunning, Zone: string(rune('a' + i%3))}, Node: node})
			}
			p := nodes.DefaultPolicy()
			p.MaxWorkers = 2 * n
			d := nodes.Decider{Policy: p, Fitter: New(Config{})}
			b.ReportAllocs()
			for b.Loop() {
				if dec := d.Decide(o, nodes.Record{}, now); len(dec.Passed) != n {
					b.Fatal(len(dec.Passed))
				}
			}
		})
	}
}
