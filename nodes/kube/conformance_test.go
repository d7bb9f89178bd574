package kube_test

import (
	"context"
	"errors"
	"maps"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	"k8s.io/client-go/rest"

	"github.com/muster-dev/muster/nodes"
	"github.com/muster-dev/muster/nodes/kube"
	"github.com/muster-dev/muster/nodes/sim"
	"github.com/muster-dev/muster/nodes/sim/kubeapi"
)

// start returns a simulator with workers in the given zones, its Kubernetes API, and the cluster as the adapter sees it through that. All
// time is the simulator's.
func start(t *testing.T, rules kube.Rules, zones ...string) (*sim.Simulator, *kubeapi.Server, *kube.Cluster) {
	t.Helper()
	w := sim.New(sim.Options{Policy: nodes.DefaultPolicy(), Workers: zones})
	api := kubeapi.New(w.Client("kube", nil))
	return w, api, over(t, api, kube.Options{Drain: rules, Clock: w.Clock()})
}

// over returns a cluster that reaches an API over HTTP.
func over(t *testing.T, api *kubeapi.Server, o kube.Options) *kube.Cluster {
	t.Helper()
	server := httptest.NewServer(api)
	t.Cleanup(server.Close)
	c, err := kube.New(&rest.Config{Host: server.URL}, o)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// bothWays runs a test of behaviour on the simulated cluster itself and on the real client through the simulated API: they must not
// differ, or what the crash-point explorer proves on the one says nothing about the other.
func bothWays(t *testing.T, f func(t *testing.T, w *sim.Simulator, c nodes.Cluster)) {
	t.Run("simulated", func(t *testing.T) {
		w := sim.New(sim.Options{Policy: nodes.DefaultPolicy(), Workers: []string{"a", "b"}})
		f(t, w, w.Client("A", nil))
	})
	t.Run("over the wire", func(t *testing.T) {
		w, _, c := start(t, kube.Rules{}, "a", "b")
		f(t, w, c)
	})
}

const first, second = "i-002", "i-003" // the instances of the workers

func view(t *testing.T, c nodes.Cluster) nodes.View {
	t.Helper()
	v, err := c.View(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return v
}

// node returns the node of an instance.
func node(t *testing.T, c nodes.Cluster, instance string) nodes.Node {
	t.Helper()
	for _, n := range view(t, c).Nodes {
		if n.Name == instance {
			return n
		}
	}
	t.Fatalf("no node of %s", instance)
	return nodes.Node{}
}

func drain(t *testing.T, w *sim.Simulator, c nodes.Cluster, instance string, d time.Duration) nodes.DrainProgress {
	t.Helper()
	p, err := c.Drain(t.Context(), nodes.DrainRequest{Node: node(t, c, instance).NodeRef, Until: w.Clock().Now().Add(d)})
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func cordon(t *testing.T, c nodes.Cluster, instance, claim string) {
	t.Helper()
	if err := c.Cordon(t.Context(), node(t, c, instance).NodeRef, claim); err != nil {
		t.Fatal(err)
	}
}

func uncordon(t *testing.T, c nodes.Cluster, instance, claim string) {
	t.Helper()
	if err := c.Uncordon(t.Context(), node(t, c, instance).NodeRef, claim); err != nil {
		t.Fatal(err)
	}
}

func count(w *sim.Simulator, k sim.Kind) int {
	n := 0
	for _, e := range w.Ledger() {
		if e.Kind == k {
			n++
		}
	}
	return n
}

func TestAViewShowsNodesTheirPodsAndWhatWaits(t *testing.T) {
	bothWays(t, func(t *testing.T, w *sim.Simulator, c nodes.Cluster) {
		w.AddPodOn(first, sim.PodSpec{Name: "default/web", MilliCPU: 500, Memory: 1 << 30})
		w.AddPodOn(first, sim.PodSpec{Name: "kube-system/svclb", MilliCPU: 100, Memory: 1 << 20, Daemon: true, Critical: true})
		w.AddPods(1, sim.PodSpec{Name: "default/huge", MilliCPU: 64000})
		v := view(t, c)
		if len(v.Nodes) != 3 || !v.Nodes[0].ControlPlane || v.Nodes[1].ControlPlane {
			t.Fatalf("nodes: %+v", v.Nodes)
		}
		n := v.Nodes[1]
		if n.Name != first || n.UID == "" || n.ProviderID != "aws:///a/i-002" || n.InternalIP != "10.0.0.3" || !n.Ready || n.Unschedulable || n.Blocker != "" {
			t.Errorf("node: %+v", n)
		}
		if n.Allocatable != (nodes.Resources{MilliCPU: 2000, Memory: 8 << 30, Pods: 20}) || n.Daemon != (nodes.Resources{MilliCPU: 100, Memory: 1 << 20, Pods: 1}) {
			t.Errorf("resources: %+v", n)
		}
		if len(n.Pods) != 1 || n.Pods[0].Name != "default/web" || n.Pods[0].Requests != (nodes.Resources{MilliCPU: 500, Memory: 1 << 30}) {
			t.Errorf("pods: %+v", n.Pods)
		}
		if len(v.Pending) != 1 || v.Pending[0].Name != "default/huge-0" || v.Pending[0].Requests.MilliCPU != 64000 {
			t.Errorf("pending: %+v", v.Pending)
		}
	})
}

func TestANodeStaysCordonedUntilItsLastClaimIsGone(t *testing.T) {
	bothWays(t, func(t *testing.T, w *sim.Simulator, c nodes.Cluster) {
		for _, claim := range []string{"one", "two", "one"} {
			cordon(t, c, first, claim)
		}
		if n := node(t, c, first); !n.Unschedulable || !slices.Equal(n.Claims, []string{"one", "two"}) {
			t.Fatalf("cordoned: %+v", n)
		}
		if got := count(w, sim.Cordoned); got != 2 {
			t.Errorf("%d cordons, want one per claim", got)
		}
		uncordon(t, c, first, "one")
		uncordon(t, c, first, "never there")
		if n := node(t, c, first); !n.Unschedulable || !slices.Equal(n.Claims, []string{"two"}) {
			t.Errorf("one claim is left: %+v", n)
		}
		uncordon(t, c, first, "two")
		if n := node(t, c, first); n.Unschedulable || len(n.Claims) != 0 {
			t.Errorf("none is left: %+v", n)
		}
	})
}

func TestANodeIsMarkedWithItsFirstClaimAndNotWithoutOne(t *testing.T) {
	bothWays(t, func(t *testing.T, w *sim.Simulator, c nodes.Cluster) {
		before := node(t, c, first)
		cordon(t, c, first, "one")
		n := node(t, c, first)
		if !n.ToBeDeleted || n.Available() {
			t.Errorf("cordoned: %+v", n)
		}
		isMark := func(x nodes.Taint) bool { return x.Key == kube.ToBeDeletedTaint }
		if !maps.Equal(n.Labels, before.Labels) || slices.ContainsFunc(n.Taints, isMark) {
			t.Errorf("the marks are shown as labels and taints: %v %v", n.Labels, n.Taints)
		}
		cordon(t, c, first, "two")
		uncordon(t, c, first, "one")
		if n := node(t, c, first); !n.ToBeDeleted {
			t.Errorf("a claim is left: %+v", n)
		}
		uncordon(t, c, first, "two")
		if n := node(t, c, first); n.ToBeDeleted || !n.Available() || w.Fleet().Cordoned != 0 {
			t.Errorf("uncordoned: %+v", n)
		}

		w.MarkByHand(second)
		cordon(t, c, second, "one")
		uncordon(t, c, second, "")
		if n := node(t, c, second); !n.ToBeDeleted || !n.Unschedulable {
			t.Errorf("an empty claim took another's: %+v", n)
		}
		uncordon(t, c, second, "one")
		w.MarkByHand(second)
		uncordon(t, c, second, "")
		if n := node(t, c, second); n.ToBeDeleted || w.Fleet().Cordoned != 0 {
			t.Errorf("a mark that nothing claims: %+v", n)
		}

		w.CordonByHand(second)
		cordon(t, c, second, "one")
		uncordon(t, c, second, "one")
		if n := node(t, c, second); n.ToBeDeleted || !n.Unschedulable {
			t.Errorf("cordoned by hand: %+v", n)
		}
	})
}

func TestANodeCordonedByHandStaysSo(t *testing.T) {
	bothWays(t, func(t *testing.T, w *sim.Simulator, c nodes.Cluster) {
		w.CordonByHand(first)
		uncordon(t, c, first, "one")
		cordon(t, c, first, "one")
		if n := node(t, c, first); !slices.Equal(n.Claims, []string{"one"}) {
			t.Errorf("%+v", n)
		}
		uncordon(t, c, first, "one")
		if n := node(t, c, first); !n.Unschedulable || len(n.Claims) != 0 {
			t.Errorf("%+v", n)
		}
	})
}

func TestADrainReturnsInTimeAndGoesOnWhenCalledAgain(t *testing.T) {
	bothWays(t, func(t *testing.T, w *sim.Simulator, c nodes.Cluster) {
		w.AddPodOn(first, sim.PodSpec{Name: "default/slow", Grace: 20 * time.Second})
		w.AddPodOn(first, sim.PodSpec{Name: "default/quick"})
		w.AddPodOn(first, sim.PodSpec{Name: "kube-system/svclb", Daemon: true, Critical: true})
		cordon(t, c, first, "me")
		begin := w.Clock().Now()
		p := drain(t, w, c, first, 10*time.Second)
		if p.Done || p.Left != 1 || !strings.Contains(p.Why, "default/slow") {
			t.Errorf("%+v", p)
		}
		if took := w.Clock().Now().Sub(begin); took > 11*time.Second {
			t.Errorf("it took %s", took)
		}
		if p := drain(t, w, c, first, 15*time.Second); !p.Done || p.Left != 0 {
			t.Errorf("%+v", p)
		}
		if got := count(w, sim.Evicted); got != 2 {
			t.Errorf("%d evictions, want one per pod: the second call goes on", got)
		}
	})
}

func TestACriticalPodBlocksADrainBeforeAnythingIsEvicted(t *testing.T) {
	bothWays(t, func(t *testing.T, w *sim.Simulator, c nodes.Cluster) {
		w.AddPodOn(first, sim.PodSpec{Name: "default/web"})
		w.AddPodOn(first, sim.PodSpec{Name: "default/important", Critical: true})
		n := node(t, c, first)
		if !strings.Contains(n.Blocker, "default/important") {
			t.Errorf("the view says %q", n.Blocker)
		}
		cordon(t, c, first, "me")
		req := nodes.DrainRequest{Node: n.NodeRef, Until: w.Clock().Now().Add(time.Minute)}
		_, err := c.Drain(t.Context(), req)
		if why, blocked := nodes.IsDrainBlocked(err); !blocked || !strings.Contains(why, "default/important") {
			t.Errorf("got %v", err)
		}
		if got := count(w, sim.Evicted); got != 0 {
			t.Errorf("%d pods were evicted first", got)
		}
		req.SkipCritical, req.Until = true, w.Clock().Now().Add(time.Minute)
		if p, err := c.Drain(t.Context(), req); err != nil || !p.Done {
			t.Errorf("passing over it: %+v, %v", p, err)
		}
		if n := node(t, c, first); len(n.Pods) != 1 {
			t.Errorf("left: %+v", n.Pods)
		}
	})
}

func TestABudgetThatAllowsNoneHoldsADrainUp(t *testing.T) {
	bothWays(t, func(t *testing.T, w *sim.Simulator, c nodes.Cluster) {
		w.AddPodOn(first, sim.PodSpec{Name: "default/db", Blocked: true})
		if n := node(t, c, first); !strings.Contains(n.Blocker, "default/db") {
			t.Errorf("the view says %q", n.Blocker)
		}
		p := drain(t, w, c, first, 30*time.Second)
		if p.Done || p.Left != 1 || !strings.Contains(p.Why, "default/db") || count(w, sim.Evicted) != 0 {
			t.Errorf("%+v", p)
		}
	})
}

func TestAPodThatNeverGoesIsWaitedForUntilTheEnd(t *testing.T) {
	bothWays(t, func(t *testing.T, w *sim.Simulator, c nodes.Cluster) {
		w.AddPodOn(first, sim.PodSpec{Name: "default/stays", Stuck: true})
		for range 2 {
			if p := drain(t, w, c, first, 30*time.Second); p.Done || !strings.Contains(p.Why, "default/stays") {
				t.Errorf("%+v", p)
			}
		}
		if got := count(w, sim.Evicted); got != 1 {
			t.Errorf("it was evicted %d times", got)
		}
	})
}

func TestTheGraceOfPodsCanBeCapped(t *testing.T) {
	bothWays(t, func(t *testing.T, w *sim.Simulator, c nodes.Cluster) {
		w.AddPodOn(first, sim.PodSpec{Name: "default/slow", Grace: 10 * time.Minute})
		cordon(t, c, first, "me")
		p, err := c.Drain(t.Context(), nodes.DrainRequest{Node: node(t, c, first).NodeRef, Until: w.Clock().Now().Add(time.Minute), MaxGrace: 20 * time.Second})
		if err != nil || !p.Done {
			t.Errorf("%+v, %v", p, err)
		}
	})
}

func TestANodeIsRemovedOnlyUnderItsUID(t *testing.T) {
	bothWays(t, func(t *testing.T, _ *sim.Simulator, c nodes.Cluster) {
		n := node(t, c, first)
		if err := c.Remove(t.Context(), nodes.NodeRef{Name: n.Name, UID: "another"}); err != nil {
			t.Fatal(err)
		}
		if got := len(view(t, c).Nodes); got != 3 {
			t.Fatalf("%d nodes: another incarnation was removed", got)
		}
		for range 2 { // removing it again is no error
			if err := c.Remove(t.Context(), n.NodeRef); err != nil {
				t.Fatal(err)
			}
		}
		if got := len(view(t, c).Nodes); got != 2 {
			t.Errorf("%d nodes", got)
		}
	})
}

func TestANodeThatHasGoneIsDrainedAndCantBeCordoned(t *testing.T) {
	bothWays(t, func(t *testing.T, w *sim.Simulator, c nodes.Cluster) {
		n := node(t, c, first)
		w.DeleteNode(first)
		p, err := c.Drain(t.Context(), nodes.DrainRequest{Node: n.NodeRef, Until: w.Clock().Now().Add(time.Minute)})
		if err != nil || !p.Done {
			t.Errorf("drain: %+v, %v", p, err)
		}
		if err := c.Cordon(t.Context(), n.NodeRef, "me"); err == nil {
			t.Error("it was cordoned")
		}
		if err := c.Uncordon(t.Context(), n.NodeRef, "me"); err == nil {
			t.Error("it was uncordoned")
		}
	})
}

func TestNothingIsAskedAfterTheDeadline(t *testing.T) {
	bothWays(t, func(t *testing.T, w *sim.Simulator, c nodes.Cluster) {
		w.AddPodOn(first, sim.PodSpec{Name: "default/web"})
		n := node(t, c, first).NodeRef
		before := len(w.Ledger())
		ctx, cancel := w.Clock().WithDeadline(t.Context(), w.Clock().Now().Add(time.Second))
		defer cancel()
		w.Advance(2 * time.Second)
		_, viewErr := c.View(ctx)
		_, drainErr := c.Drain(ctx, nodes.DrainRequest{Node: n, Until: w.Clock().Now().Add(time.Minute)})
		for what, err := range map[string]error{"view": viewErr, "drain": drainErr, "cordon": c.Cordon(ctx, n, "me"), "uncordon": c.Uncordon(ctx, n, "me"), "remove": c.Remove(ctx, n)} {
			if !errors.Is(err, context.DeadlineExceeded) {
				t.Errorf("%s: %v", what, err)
			}
		}
		for _, e := range w.Ledger()[before:] {
			if e.Kind != sim.Expired {
				t.Errorf("there was an effect: %+v", e)
			}
		}
	})
}

func TestAnUnreachableOrHalfAnsweringAPIGivesAnError(t *testing.T) {
	bothWays(t, func(t *testing.T, w *sim.Simulator, c nodes.Cluster) {
		w.Outage(sim.ClusterPart, 0, time.Minute)
		if v, err := c.View(t.Context()); err == nil {
			t.Errorf("unreachable: %+v", v)
		}
		w.Advance(2 * time.Minute)
		w.Partial(sim.ClusterPart, 0, time.Minute)
		if _, err := c.View(t.Context()); err == nil {
			t.Error("half a list is no error")
		}
		w.Advance(2 * time.Minute)
		view(t, c)
	})
}
