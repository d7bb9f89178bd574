package fit

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/muster-dev/muster/nodes"
)

// podOf is a pod that asks for n cores, and for no memory.
func podOf(name string, n int64) nodes.Pod {
	return nodes.Pod{Name: "p/" + name, Requests: nodes.Resources{MilliCPU: 1000 * n}}
}

// eightCores is a node of eight cores on which pods run.
func eightCores(name string, pods ...nodes.Pod) *nodes.Node {
	return &nodes.Node{NodeRef: nodes.NodeRef{Name: name}, Ready: true, Pods: pods, Allocatable: nodes.Resources{MilliCPU: 8000, Memory: 32 << 30, Pods: 110}}
}

// TestScheduling: the scheduler puts a pod where most is free, so pods for which there is room may leave none for the next.
func TestScheduling(t *testing.T) {
	headroom := podOf("headroom", 4)
	headroom.Buffer = "p/headroom"
	fourSmall := podOf("small", 1)
	fourSmall.Count = 4
	for _, test := range []struct {
		name    string
		leaving []nodes.Pod
		others  []*nodes.Node
		want    string
	}{
		{"small pods take what a big one needs", []nodes.Pod{podOf("big", 4), fourSmall},
			[]*nodes.Node{eightCores("a", podOf("runs", 4)), eightCores("b", podOf("runs", 4))}, "pod p/big (4000m CPU, 0 MiB) fits no other node"},
		{"an idle node takes the small ones", []nodes.Pod{podOf("big", 4), fourSmall},
			[]*nodes.Node{eightCores("a", podOf("runs", 4)), eightCores("b", podOf("runs", 4)), eightCores("c")}, ""},
		{"small pods go where more is free", []nodes.Pod{podOf("big", 2), fourSmall},
			[]*nodes.Node{eightCores("a", podOf("runs", 6)), eightCores("b", podOf("runs", 2))}, ""},
		{"headroom is what pods leave", []nodes.Pod{headroom, podOf("big", 5)},
			[]*nodes.Node{eightCores("a", podOf("runs", 3)), eightCores("b", podOf("runs", 4))}, ""},
		{"a node that tells no memory", []nodes.Pod{podOf("big", 4)},
			[]*nodes.Node{{NodeRef: nodes.NodeRef{Name: "a"}, Ready: true, Allocatable: nodes.Resources{MilliCPU: 8000, Pods: 110}}}, ""},
	} {
		t.Run(test.name, func(t *testing.T) {
			goes := eightCores("goes", test.leaving...)
			list := append([]*nodes.Node{goes}, test.others...)
			fl := New(Config{}).Fleet(list).(*fleet)
			fl.Know(test.leaving)
			if why := New(Config{}).Fits(test.leaving, test.others); why != "" {
				t.Fatalf("packed, they don't fit: %s", why)
			}
			for range 2 { // the first question changes nothing for the second
				if got := fl.Without(goes, test.leaving); (got == "") != (test.want == "") || !strings.HasPrefix(got, test.want) {
					t.Errorf("%q, want %q", got, test.want)
				}
			}
		})
	}
}

// TestScheduling_most: a decision about thousands of nodes bounds its simulations.
func TestScheduling_most(t *testing.T) {
	list := scattered(mostFailed + 10)
	fl := New(Config{}).Fleet(list).(*fleet)
	for i, n := range list[2:] {
		why := fl.Without(n, n.Pods)
		if refused := strings.Contains(why, "no more were looked at"); why == "" || refused != (i >= mostFailed) {
			t.Fatalf("node %d: %q", i, why)
		}
	}
}

// scattered is a cluster of full nodes, two excepted, onto which the pods of any other fit in a packing, and not as the scheduler
// places them.
func scattered(n int) []*nodes.Node {
	list := []*nodes.Node{eightCores("n0", podOf("0-big", 4)), eightCores("n1", podOf("1-big", 4))}
	for i := 2; i < n; i++ {
		node := eightCores(fmt.Sprint("n", i), podOf(fmt.Sprint(i, "-big"), 4))
		for k := range 4 {
			node.Pods = append(node.Pods, podOf(fmt.Sprint(i, "-small-", k), 1))
		}
		list = append(list, node)
	}
	return list
}

// scheduled places pods on nodes as simulateScheduling is to do, from the beginning, and looks at every node for each.
func scheduled(leaving []nodes.Pod, others []*nodes.Node) bool {
	e := newEngine(nil, leaving)
	for _, n := range others {
		e.addNode(n)
	}
	classes := slices.Clone(e.classes) // start sorts them
	e.start()
	slices.SortStableFunc(classes, func(a, b *class) int { return cmp.Compare(a.size(), b.size()) })
	for _, c := range classes {
		for c.left > 0 {
			var best *bin
			most := 0.0
			for i, b := range e.bins {
				if c.closed != "" || b.never(c) || e.allows(c.kind, b, e.leasts(c.kind)) != "" {
					continue
				}
				all := others[i].Allocatable
				cpu := float64(b.room.MilliCPU-c.needs.MilliCPU) / float64(all.MilliCPU)
				memory := float64(b.room.Memory-c.needs.Memory) / float64(all.Memory)
				if free := (cpu + memory) / 2; best == nil || free > most {
					best, most = b, free
				}
			}
			if best == nil {
				return false
			}
			e.put(c, best, 1)
		}
	}
	return true
}
