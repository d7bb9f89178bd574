package fit

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

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

// someConstraints are what pods of an application ask for besides room, any of what a fleet knows.
func someConstraints(rnd *rand.Rand, node *nodes.Node) Constraints {
	app := map[string]string{"app": fmt.Sprint(rnd.IntN(4))}
	c := Constraints{Namespace: "p", Labels: app}
	same := &metav1.LabelSelector{MatchLabels: app}
	key := []string{corev1.LabelTopologyZone, corev1.LabelHostname}[rnd.IntN(2)]
	term := Term{Key: key, Selector: same, Namespaces: []string{"p"}}
	if node.Labels["pool"] != "" && rnd.IntN(3) == 0 {
		c.NodeSelector = map[string]string{"pool": node.Labels["pool"]}
	}
	switch rnd.IntN(12) {
	case 0:
		c.Spread = []Spread{{Key: key, MaxSkew: int32(1 + rnd.IntN(2)), Selector: same}}
	case 1:
		c.Spread = []Spread{{Key: key, MaxSkew: 1, MinDomains: 2, Selector: same, IgnoreTaints: true, IgnoreSelectors: true}}
	case 2:
		c.AntiAffinity = []Term{term}
	case 3:
		c.Affinity = []Term{term}
	case 4:
		c.HostPorts = []HostPort{{Port: int32(80 + rnd.IntN(2)), Protocol: "TCP"}}
	case 5:
		c.Resources = map[string]int64{"nvidia.com/gpu": 1}
	case 6:
		c.Tolerations = []corev1.Toleration{{Key: "batch", Operator: corev1.TolerationOpExists}}
	}
	return c
}

// someNodes is a small cluster at random, in zones and pools, with anything that keeps a pod off a node.
func someNodes(rnd *rand.Rand) (list []*nodes.Node) {
	tainted := rnd.IntN(2) == 0
	for i := range 2 + rnd.IntN(9) {
		n := &nodes.Node{
			NodeRef:     nodes.NodeRef{Name: fmt.Sprint("n", i)},
			Labels:      map[string]string{corev1.LabelTopologyZone: string(rune('a' + rnd.IntN(3)))},
			Allocatable: nodes.Resources{MilliCPU: 4000, Memory: 8 << 30, Pods: 3 + rnd.IntN(8)},
			Daemon:      nodes.Resources{MilliCPU: rnd.Int64N(200), Pods: rnd.IntN(2)},
		}
		if rnd.IntN(3) == 0 {
			n.Labels["pool"] = "a"
		}
		if rnd.IntN(4) == 0 {
			n.Extended = map[string]int64{"nvidia.com/gpu": 1 + rnd.Int64N(2)}
		}
		if tainted && rnd.IntN(4) == 0 {
			n.Taints = []nodes.Taint{{Key: "batch", Effect: "NoSchedule"}}
		}
		for k := range rnd.IntN(6) {
			n.Pods = append(n.Pods, nodes.Pod{
				Name: fmt.Sprintf("p/%d-%d", i, k), Count: 1 + rnd.IntN(2), Scheduling: someConstraints(rnd, n).Text(),
				Requests: nodes.Resources{MilliCPU: rnd.Int64N(3) * rnd.Int64N(1200), Memory: rnd.Int64N(2) * rnd.Int64N(2<<30)},
			})
		}
		list = append(list, n)
	}
	return list
}

// TestFleetAnswersAsFitsDoes compares the fleet with Fits and scheduled, which place everything from the beginning: for clusters at
// random, each node asked for twice, as nodes go one after the other.
func TestFleetAnswersAsFitsDoes(t *testing.T) {
	rnd := rand.New(rand.NewPCG(3, 4))
	yes, no, saved, packedOnly := 0, 0, 0, 0
	for round := range clusters {
		list := someNodes(rnd)
		f := New(Config{})
		fl := f.Fleet(list).(*fleet)
		left, leaving := list, []nodes.Pod(nil)
		for _, n := range list {
			together := append(leaving[:len(leaving):len(leaving)], n.Pods...)
			others := nodes.Others(left, n)
			want := f.Fits(together, others)
			if want == "" && !scheduled(together, others) {
				want = "the scheduler finds no place"
				packedOnly++
			}
			for range 2 {
				if got := fl.Without(n, together); (got == "") != (want == "") {
					t.Fatalf("cluster %d, node %s: got %q, want %q", round, n.Name, got, want)
				}
			}
			if want != "" {
				no++
				continue
			}
			yes++
			if rnd.IntN(3) > 0 { // a node that could go may stay all the same
				leaving, left = together, nodes.Others(left, n)
				fl.Remove(n)
			}
		}
		saved += 2*len(list) - fl.packed
	}
	t.Logf("%d fit, %d don't, %d of them only packed, %d answered without a placement", yes, no, packedOnly, saved)
	if yes < clusters || no < clusters || saved < clusters || packedOnly < clusters/50 {
		t.Errorf("%d fit, %d don't, %d of them only packed, %d without placement: the fleets show too little", yes, no, packedOnly, saved)
	}
}

const clusters = 1000

// TestFleetIsNotQuadratic counts the nodes that are looked at, for the time depends on the machine: five times as many nodes may cost
// little more than five times as much.
func TestFleetIsNotQuadratic(t *testing.T) {
	for name, cluster := range map[string]func(int) []*nodes.Node{"tight": tight, "spread": spread, "scattered": scattered} {
		t.Run(name, func(t *testing.T) {
			looked := func(n int) int {
				list := cluster(n)
				fl := New(Config{}).Fleet(list).(*fleet)
				for _, node := range list {
					fl.Without(node, node.Pods)
				}
				if fl.packed < n/2 {
					t.Fatalf("%d of %d nodes needed a placement: the cluster shows too little", fl.packed, n)
				}
				return fl.looked
			}
			small, big := looked(300), looked(1500)
			t.Logf("300 nodes: %d looks, 1,500: %d", small, big)
			if big > 7*small {
				t.Errorf("300 nodes: %d looks, 1,500: %d", small, big)
			}
		})
	}
}

// tight is a cluster without room for a whole node's pods, although each pod alone would fit the one node that has some: three pods of
// a third of a node each, and room for a single one of them.
func tight(n int) []*nodes.Node {
	var out []*nodes.Node
	for i := range n {
		node := &nodes.Node{NodeRef: nodes.NodeRef{Name: fmt.Sprint("n", i)}, Ready: true, Allocatable: nodes.Resources{MilliCPU: 8000, Memory: 32 << 30, Pods: 110}}
		for k := range 27 {
			node.Pods = append(node.Pods, nodes.Pod{Name: fmt.Sprintf("p/%d-%d", i, k), Requests: nodes.Resources{MilliCPU: 10, Memory: 64 << 20},
				Scheduling: Constraints{Namespace: "p", Labels: map[string]string{"app": fmt.Sprint(k)}}.Text()})
		}
		for k := range 3 {
			if i != 1 && i != n-1 || k > 0 {
				node.Pods = append(node.Pods, nodes.Pod{Name: fmt.Sprintf("p/large-%d-%d", i, k), Requests: nodes.Resources{MilliCPU: 2570}})
			}
		}
		out = append(out, node)
	}
	return out
}

// spread is tight, and a fifth of its pods have a spread constraint or an anti-affinity.
func spread(n int) []*nodes.Node {
	list := tight(n)
	for i, node := range list {
		node.Labels = map[string]string{corev1.LabelTopologyZone: string(rune('a' + i%3))}
		for k := range 6 {
			app := map[string]string{"app": fmt.Sprint((i*6 + k) % 60)}
			c := Constraints{Namespace: "p", Labels: app}
			if same := (&metav1.LabelSelector{MatchLabels: app}); k%2 == 0 {
				c.Spread = []Spread{{Key: corev1.LabelTopologyZone, MaxSkew: 1, Selector: same}}
			} else {
				c.AntiAffinity = []Term{{Key: corev1.LabelHostname, Selector: same, Namespaces: []string{"p"}}}
			}
			node.Pods[k].Scheduling = c.Text()
		}
	}
	return list
}

func decideOn(b testing.TB, list []*nodes.Node, f nodes.Fitter) nodes.Decision {
	b.Helper()
	now := time.Unix(1_000_000, 0)
	o := nodes.Observation{FleetKnown: true, Readings: nodes.Readings{CPU: nodes.Read(0.1), CPUMin: nodes.Read(0.1), CPUMax: nodes.Read(0.1),
		Pending: nodes.Read(0), PendingMin: nodes.Read(0), PendingMax: nodes.Read(0)}}
	for i, node := range list {
		o.Fleet = append(o.Fleet, nodes.Worker{Instance: nodes.Instance{ID: fmt.Sprint("i-", i), State: nodes.StateRunning, Zone: string(rune('a' + i%3))}, Node: node})
	}
	p := nodes.DefaultPolicy()
	p.MaxWorkers = 2 * len(list)
	return nodes.Decider{Policy: p, Fitter: f}.Decide(o, nodes.Record{}, now)
}

// BenchmarkDecide decides when nothing can go: because of one pod of each node, or, in a cluster that is well used, because only the
// pods of a node together have no place elsewhere.
func BenchmarkDecide(b *testing.B) {
	for _, c := range []struct {
		name    string
		cluster func(int) []*nodes.Node
	}{{"a pod fits nowhere", busy}, {"each pod fits, all don't", tight}, {"with spread and anti-affinity", spread}} {
		for _, n := range []int{1000, 5000} {
			b.Run(fmt.Sprintf("%s/%d nodes", c.name, n), func(b *testing.B) {
				list := c.cluster(n)
				b.ReportAllocs()
				for b.Loop() {
					if dec := decideOn(b, list, New(Config{})); len(dec.Passed) != n {
						b.Fatal(len(dec.Passed), dec.Reason, dec.Detail)
					}
				}
			})
		}
	}
}
