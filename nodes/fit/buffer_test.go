package fit

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/muster-dev/muster/nodes"
)

// virtual are pods of a buffer.
func virtual(n int, milliCPU int64, scheduling string) nodes.Pod {
	return nodes.Pod{Name: "buffer:ns/web", Buffer: "ns/web", Count: n, Requests: nodes.Resources{MilliCPU: milliCPU}, Scheduling: scheduling}
}

// cores is a Ready worker of eight cores, of which pods take some.
func cores(name string, taken int64) nodes.Worker {
	w := nodes.Worker{Instance: nodes.Instance{ID: name, State: nodes.StateRunning, Type: "x.large", Zone: "eu-1a"}, Node: &nodes.Node{Ready: true,
		Allocatable: nodes.Resources{MilliCPU: 8000, Memory: 32 << 30, Pods: 110}, Pods: []nodes.Pod{{Name: "ns/p", Requests: nodes.Resources{MilliCPU: taken}}}}}
	w.Node.Name = name
	return w
}

func TestPlaced(t *testing.T) {
	now := time.Unix(1_800_000_000, 0)
	coming := nodes.Worker{Instance: nodes.Instance{ID: "c", State: nodes.StatePending, Type: "x.small", Zone: "eu-1a", LaunchedAt: now}}
	closed := cores("closed", 0)
	closed.Node.Unschedulable = true
	for name, c := range map[string]struct {
		fleet         []nodes.Worker
		pending       []nodes.Pod
		ready, coming []int
	}{
		"on what is left of the nodes":     {[]nodes.Worker{cores("a", 6000), cores("b", 7000)}, []nodes.Pod{virtual(5, 1000, "")}, []int{3}, []int{0}},
		"after real pods, however small":   {[]nodes.Worker{cores("a", 6000)}, []nodes.Pod{virtual(1, 2000, ""), {Name: "ns/q", Requests: nodes.Resources{MilliCPU: 500}}}, []int{0, 1}, []int{0, 0}},
		"not on a cordoned node":           {[]nodes.Worker{closed}, []nodes.Pod{virtual(1, 1000, "")}, []int{0}, []int{0}},
		"on nodes that are on their way":   {[]nodes.Worker{cores("a", 7000), coming}, []nodes.Pod{virtual(4, 1000, "")}, []int{1}, []int{2}},
		"of none that no node would run":   {[]nodes.Worker{cores("a", 0)}, []nodes.Pod{{Name: "x", Count: 3, NeverFit: "too big", Buffer: "ns/x"}, virtual(2, 1000, "")}, []int{0, 2}, []int{0, 0}},
		"where their selectors allow them": {[]nodes.Worker{cores("a", 0)}, []nodes.Pod{virtual(2, 1000, `{"nodeSelector":{"team":"b"}}`)}, []int{0}, []int{0}},
	} {
		t.Run(name, func(t *testing.T) {
			q := nodes.Question{Policy: policy(), Observation: nodes.Observation{Fleet: c.fleet, Pending: c.pending}, Now: now, Room: 1}
			ready, coming := fit().Placed(q)
			if !slices.Equal(ready, c.ready) || !slices.Equal(coming, c.coming) {
				t.Errorf("ready %v, coming %v; want %v, %v", ready, coming, c.ready, c.coming)
			}
		})
	}
}

// TestFleetKnows: a fleet that was told of pods answers as one that was not, and does not look at all nodes for it.
func TestFleetKnows(t *testing.T) {
	a, b := cores("a", 2000), cores("b", 5000)
	a.Node.Labels = map[string]string{"team": "b"}
	list := []*nodes.Node{a.Node, b.Node}
	for _, text := range []string{"", `{"nodeSelector":{"team":"b"}}`, `{"antiAffinity":[{"key":"kubernetes.io/hostname"}]}`} {
		for _, n := range []int{1, 5} {
			asked := append(slices.Clone(b.Node.Pods), virtual(n, 500, text))
			told, blank := fit().Fleet(list), fit().Fleet(list)
			told.(interface{ Know([]nodes.Pod) }).Know([]nodes.Pod{virtual(n, 500, text)})
			got, want := told.Without(b.Node, asked), blank.Without(b.Node, asked)
			if (got == "") != (want == "") {
				t.Errorf("%d pods of %q: told %q, not told %q", n, text, got, want)
			}
			if packs := told.(*fleet).packed; packs != 1 && !strings.Contains(text, "antiAffinity") {
				t.Errorf("%d pods of %q: %d packings of the fleet, want one", n, text, packs)
			}
		}
	}
}
