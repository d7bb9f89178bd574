package nodes

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
)

// large returns a cluster of nodes idle workers with 30 pods each, in three zones.
func large(nodes int) (Observation, Record) {
	s := idle()
	s.o.Fleet = nil
	for n := range nodes {
		w := readyWorker(n, string(rune('a'+n%3)))
		for k := range 30 {
			w.Node.Pods = append(w.Node.Pods, Pod{Name: fmt.Sprintf("p/%d-%d", n, k), Requests: Resources{MilliCPU: int64(10 * (k%4 + 1)), Memory: 64 << 20}})
		}
		w.Node.Allocatable.Pods = 60
		s.o.Fleet = append(s.o.Fleet, w)
	}
	return s.o, s.r
}

// addHuge gives every worker a pod that fits no other beside its own.
func addHuge(o *Observation) {
	for i := range o.Fleet {
		n := *o.Fleet[i].Node
		n.Pods = append(Classes(n.Pods), Pod{Name: "p/huge", Requests: Resources{MilliCPU: 3900}})
		o.Fleet[i].Node = &n
	}
}

// BenchmarkDecideWhenNoTargetFits is the ordinary case of a large and busy cluster: every worker is asked, and none may go.
func BenchmarkDecideWhenNoTargetFits(b *testing.B) {
	for _, nodes := range []int{1000, 5000} {
		b.Run(fmt.Sprint(nodes, " nodes"), func(b *testing.B) {
			o, r := large(nodes)
			addHuge(&o)
			p := DefaultPolicy()
			p.MaxWorkers = 2 * nodes
			b.ReportAllocs()
			for b.Loop() {
				if d := Decide(p, o, r, at(100000)); len(d.Targets) > 0 || len(d.Passed) != nodes {
					b.Fatal(d.Targets)
				}
			}
		})
	}
}

// countingFit keeps the fleet that it prepared.
type countingFit struct {
	RequestsFit
	fleet *requestsFleet
}

func (c *countingFit) Fleet(nodes []*Node) FittedFleet {
	c.fleet = c.RequestsFit.Fleet(nodes).(*requestsFleet)
	return c.fleet
}

// TestSelectTargetsIsNotQuadratic counts what is looked at, for the time depends on the machine: five times as many workers may cost
// little more than five times as much.
func TestSelectTargetsIsNotQuadratic(t *testing.T) {
	visits := func(nodes int) int {
		o, r := large(nodes)
		addHuge(&o)
		f := &countingFit{}
		targets, passed := selectTargets(DefaultPolicy(), o, r, f, 1, at(100000))
		if len(targets) > 0 || len(passed) != nodes {
			t.Fatalf("%d targets, %d passed over", len(targets), len(passed))
		}
		return f.fleet.room.visits
	}
	small, big := visits(1000), visits(5000)
	t.Logf("1,000 workers: %d entries, 5,000: %d", small, big)
	if big > 8*small || big > 5000*2000 {
		t.Errorf("1,000 workers: %d entries, 5,000: %d", small, big)
	}
}

// TestRoomAnswersAsASearchDoes compares the tree with a search from the first node to the last, at random.
func TestRoomAnswersAsASearchDoes(t *testing.T) {
	rnd := rand.New(rand.NewPCG(1, 2))
	for round := range 200 {
		nodes := make([]*Node, rnd.IntN(20))
		free := make([]Resources, len(nodes))
		for i := range nodes {
			nodes[i] = &Node{Allocatable: Resources{MilliCPU: rnd.Int64N(10), Memory: rnd.Int64N(10), Pods: rnd.IntN(4)}}
			free[i] = nodes[i].free()
		}
		room := NewRoom(nodes)
		before := slices.Clone(free)
		mark := room.Mark()
		for range 40 {
			want := Resources{MilliCPU: rnd.Int64N(5), Memory: rnd.Int64N(5)}
			from := rnd.IntN(len(nodes) + 1)
			i := slices.IndexFunc(free[from:], func(f Resources) bool { return f.holds(want) })
			if i >= 0 {
				i += from
			}
			if got := room.First(from, want); got != i {
				t.Fatalf("round %d: First(%d, %v) = %d, want %d of %v", round, from, want, got, i, free)
			}
			if i >= 0 {
				room.Take(i, want)
				free[i].MilliCPU -= want.MilliCPU
				free[i].Memory -= want.Memory
				free[i].Pods--
			}
		}
		room.Undo(mark)
		for i := range before {
			if room.tree[room.half+i] != before[i] {
				t.Fatalf("round %d: after Undo node %d has %v, want %v", round, i, room.tree[room.half+i], before[i])
			}
		}
	}
}

func BenchmarkDecideAt1000Nodes30000Pods(b *testing.B) {
	o, r := large(1000)
	p := DefaultPolicy()
	p.MaxWorkers = 2000
	for _, c := range []struct {
		name    string
		prepare func(*Observation)
	}{
		{"pods one by one", func(*Observation) {}},
		{"pods in classes", func(o *Observation) {
			for i := range o.Fleet {
				n := *o.Fleet[i].Node
				n.Pods = Classes(n.Pods)
				o.Fleet[i].Node = &n
			}
		}},
		{"no target fits", addHuge},
	} {
		b.Run(c.name, func(b *testing.B) {
			o := o
			o.Fleet = append([]Worker(nil), o.Fleet...)
			c.prepare(&o)
			b.ReportAllocs()
			var d Decision
			for b.Loop() {
				d = Decide(p, o, r, at(100000))
			}
			b.ReportMetric(float64(len(d.Targets)), "targets")
		})
	}
}
