package instances_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"

	"github.com/muster-dev/muster/console"
	"github.com/muster-dev/muster/internal/lab"
	"github.com/muster-dev/muster/internal/lab/labtest"
	"github.com/muster-dev/muster/nodes/sim"
)

// history is what happened to nodes and to the pods of the deployment, in the order in which the API told it. A drain lasts a tick, so
// looking after each one would miss it.
type history struct {
	mu    sync.Mutex
	nodes map[string]*nodeHistory
	pods  map[types.UID]*podHistory
	logs  sync.WaitGroup // of containers, until they have ended
}

// nodeHistory is a node's.
type nodeHistory struct {
	takes      bool         // it is Ready and not cordoned
	whenReady  *corev1.Node // as it was when it was Ready for the first time
	cordoned   bool
	takeBeside []string // the other nodes that took pods when it was cordoned
}

// podHistory is a pod's.
type podHistory struct {
	name, node string
	evicted    bool // by the eviction API
	written    string
}

// follow keeps the history until the end of the test.
func (r *faultRig) follow(t *testing.T) *history {
	t.Helper()
	h := &history{nodes: map[string]*nodeHistory{}, pods: map[types.UID]*podHistory{}}
	nodes, err := r.kube.CoreV1().Nodes().Watch(t.Context(), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	pods, err := r.kube.CoreV1().Pods("default").Watch(t.Context(), metav1.ListOptions{LabelSelector: "app=batch"})
	if err != nil {
		t.Fatal(err)
	}
	var following sync.WaitGroup
	following.Go(func() {
		for change := range nodes.ResultChan() {
			if n, ok := change.Object.(*corev1.Node); ok {
				h.nodeChanged(n, change.Type == watch.Deleted)
			}
		}
	})
	following.Go(func() {
		for change := range pods.ResultChan() {
			if p, ok := change.Object.(*corev1.Pod); ok && h.podChanged(p) {
				h.logs.Go(func() { h.read(t.Context(), r, p) })
			}
		}
	})
	t.Cleanup(func() {
		nodes.Stop()
		pods.Stop()
		following.Wait()
		h.logs.Wait()
	})
	return h
}

func (h *history) nodeChanged(n *corev1.Node, deleted bool) {
	if _, controlPlane := n.Labels["node-role.kubernetes.io/control-plane"]; controlPlane {
		return
	}
	ready := slices.ContainsFunc(n.Status.Conditions, func(c corev1.NodeCondition) bool {
		return c.Type == corev1.NodeReady && c.Status == corev1.ConditionTrue
	})
	h.mu.Lock()
	defer h.mu.Unlock()
	x := h.nodes[n.Name]
	if x == nil {
		x = &nodeHistory{}
		h.nodes[n.Name] = x
	}
	x.takes = ready && !n.Spec.Unschedulable && !deleted
	if ready && x.whenReady == nil {
		x.whenReady = n.DeepCopy()
	}
	if n.Spec.Unschedulable && !x.cordoned {
		x.cordoned = true
		for name, other := range h.nodes {
			if other.takes {
				x.takeBeside = append(x.takeBeside, name)
			}
		}
	}
}

// podChanged reports whether the pod's container runs now and did not before.
func (h *history) podChanged(p *corev1.Pod) (started bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	x := h.pods[p.UID]
	if x == nil && p.Status.Phase == corev1.PodRunning {
		x, started = &podHistory{name: p.Name, node: p.Spec.NodeName}, true
		h.pods[p.UID] = x
	}
	if x != nil && slices.ContainsFunc(p.Status.Conditions, func(c corev1.PodCondition) bool {
		return c.Type == corev1.DisruptionTarget && c.Reason == "EvictionByEvictionAPI"
	}) {
		x.evicted = true
	}
	return started
}

// read keeps what a container writes until it ends.
func (h *history) read(ctx context.Context, r *faultRig, p *corev1.Pod) {
	text := ""
	stream, err := r.kube.CoreV1().Pods(p.Namespace).GetLogs(p.Name, &corev1.PodLogOptions{Follow: true}).Stream(ctx)
	if err == nil {
		defer stream.Close()
		var all []byte
		all, err = io.ReadAll(stream)
		text = string(all)
	}
	if err != nil {
		text += err.Error()
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	h.pods[p.UID].written = text
}

// labelled checks that every node had a label and a taint at the moment at which it was Ready for the first time.
func (h *history) labelled(t *testing.T, label, value string, taint corev1.Taint) {
	t.Helper()
	h.mu.Lock()
	defer h.mu.Unlock()
	for name, x := range h.nodes {
		if x.whenReady == nil {
			t.Errorf("node %s was never Ready", name)
			continue
		}
		if got := x.whenReady.Labels[label]; got != value {
			t.Errorf("when node %s was Ready its label %s was %q, want %s", name, label, got, value)
		}
		if !slices.ContainsFunc(x.whenReady.Spec.Taints, func(got corev1.Taint) bool { return got == taint }) {
			t.Errorf("when node %s was Ready it had the taints %v, want %s among them", name, x.whenReady.Spec.Taints, taint.ToString())
		}
	}
}

// replacedFirst checks that as many other nodes took pods at the moment at which one was cordoned, which is before its drain.
func (h *history) replacedFirst(t *testing.T, node string, others int) {
	t.Helper()
	h.mu.Lock()
	defer h.mu.Unlock()
	x := h.nodes[node]
	if x == nil || !x.cordoned {
		t.Errorf("node %s was not cordoned", node)
		return
	}
	if len(x.takeBeside) < others {
		t.Errorf("when node %s was cordoned only %v took pods, want %d nodes: its drain began before its replacement was Ready", node, x.takeBeside, others)
	}
}

// emptied checks that every pod on some nodes was evicted by the API, and that its container had its time to end after SIGTERM.
func (h *history) emptied(t *testing.T, from ...string) {
	t.Helper()
	labtest.Eventually(t, "the end of containers", func() error {
		h.mu.Lock()
		defer h.mu.Unlock()
		for _, p := range h.pods {
			if slices.Contains(from, p.node) && p.written == "" {
				return fmt.Errorf("pod %s on %s has not ended", p.name, p.node)
			}
		}
		return nil
	})
	h.mu.Lock()
	defer h.mu.Unlock()
	moved := map[string]int{}
	for _, p := range h.pods {
		if !slices.Contains(from, p.node) {
			continue
		}
		moved[p.node]++
		if !p.evicted {
			t.Errorf("pod %s on %s ended without an eviction", p.name, p.node)
		}
		if p.written != "up\nSIGTERM\ndone\n" {
			t.Errorf("the container of pod %s on %s wrote %q: it had no time to end", p.name, p.node, p.written)
		}
	}
	for _, node := range from {
		if moved[node] == 0 {
			t.Errorf("no pod ran on %s, so none was moved", node)
		}
	}
	t.Logf("pods moved, by node: %v", moved)
}

// strangerWaits has a pod wait that wants a node of the pool and doesn't tolerate the pool's taint. kubectl says why, and shows the pool.
func (r *faultRig) strangerWaits(t *testing.T) {
	t.Helper()
	const name = "stranger"
	labtest.Create(t, r.kube.CoreV1().Pods("default").Create, &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: corev1.PodSpec{NodeSelector: map[string]string{"team": "batch"},
			Containers: []corev1.Container{{Name: "pod", Image: lab.PodImage, ImagePullPolicy: corev1.PullNever, Command: []string{"/pod", "serve", "1s"}}}},
	})
	r.tick(t, "telling why a pod waits", func(string, console.NodePlane) error {
		p, err := r.kube.CoreV1().Pods("default").Get(t.Context(), name, metav1.GetOptions{})
		if err != nil {
			return err
		}
		if p.Spec.NodeName != "" {
			t.Fatalf("a pod that does not tolerate the pool's taint was placed on %s", p.Spec.NodeName)
		}
		text, err := r.lab.Kubectl(t.Context(), "describe", "pod", name)
		return errors.Join(err, has(text, "untolerated taint", "NotTriggerScaleUp", "muster-nodes", "no node that can be launched would run it"))
	})
	r.tick(t, "showing the pool", func(string, console.NodePlane) error {
		text, err := r.lab.Kubectl(t.Context(), "get", "pools")
		if err == nil {
			t.Log("kubectl get pools\n" + text)
		}
		return errors.Join(err, has(strings.Join(strings.Fields(text), " "), "NAME NODES READY JOINING SPOT CPU MEMORY LIMITS LAUNCH", "batch 2 2 0 0"))
	})
	if err := r.kube.CoreV1().Pods("default").Delete(t.Context(), name, metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
}

// has says which of some texts a text lacks.
func has(text string, want ...string) error {
	for _, w := range want {
		if !strings.Contains(text, w) {
			return fmt.Errorf("%q is not in\n%s", w, text)
		}
	}
	return nil
}

// terminated checks that instances were terminated by an API call and nothing of them is left: no machine, no node.
func (r *faultRig) terminated(t *testing.T, ids ...string) {
	t.Helper()
	ended := map[string]sim.Kind{}
	for _, e := range r.region.Simulator.Ledger() {
		if e.Kind == sim.Terminated || e.Kind == sim.TakenAway {
			ended[e.Instance] = e.Kind
		}
	}
	list, err := r.kube.CoreV1().Nodes().List(t.Context(), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	left := map[string]bool{}
	for _, n := range list.Items {
		left[n.Name] = true
	}
	for _, id := range ids {
		if ended[id] != sim.Terminated {
			t.Errorf("the end of instance %s was %q, want %s", id, ended[id], sim.Terminated)
		}
		if left[id] {
			t.Errorf("node %s is still there", id)
		}
		// A machine that is being ended while the lab ends fails the test. Ending it once more returns when that is over.
		labtest.Eventually(t, "the end of machine "+id, func() error { return r.lab.CutPower(t.Context(), id) })
		if s, err := r.lab.Inspect(t.Context(), id); err != nil || s.Running {
			t.Errorf("the machine of instance %s: running %v, %v", id, s.Running, err)
		}
	}
	if all := slices.Sorted(maps.Keys(ended)); len(all) != len(ids) {
		t.Errorf("the instances that ended are %v, want %v", all, ids)
	}
}
