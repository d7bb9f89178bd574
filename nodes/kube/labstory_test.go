package kube_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/url"
	"slices"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/muster-dev/muster/internal/lab"
	"github.com/muster-dev/muster/internal/lab/labtest"
	"github.com/muster-dev/muster/internal/lab/machines"
	"github.com/muster-dev/muster/nodes"
	"github.com/muster-dev/muster/nodes/sim"
	"github.com/muster-dev/muster/nodes/sim/region"
)

// TestTheStoryOfTheNodePlaneOnARealControlPlane runs the reconciler with every real adapter in real time: Kubernetes, kube-state-metrics
// and Prometheus are the real ones, EC2 is the simulated region behind its protocol. What happened is read from the region's ledger
// and from the API, not from what the reconciler says.
func TestTheStoryOfTheNodePlaneOnARealControlPlane(t *testing.T) {
	s := newStory(t)
	t.Run("pending pods bring nodes, idle nodes go", s.growsAndShrinks)
	t.Run("a drain that a finalizer holds ends at its limit and nothing is terminated", s.limitOfADrain)
	t.Run("the API is away for the whole join window and nothing is terminated", s.apiAway)
}

// story is a cluster whose machines are the region's and whose nodes are the laboratory's.
type story struct {
	*laboratory
	region   *region.Region
	machines *machines.Machines
	api      *proxy
	cluster  nodes.Cluster
	parts    nodes.Config // of the plane
	plane    *nodes.Reconciler
}

func storyPolicy() nodes.Policy {
	p := nodes.DefaultPolicy()
	p.CPUUpFor, p.PendingUpFor, p.IdleDownFor = 4*time.Second, 3*time.Second, 5*time.Second
	p.CooldownUp, p.CooldownDown = 2*time.Second, 2*time.Second
	p.JoinTimeout, p.DrainTimeout, p.ScaleDownStuck = 30*time.Second, 12*time.Second, 60*time.Second
	p.Cluster, p.MinWorkers, p.MaxWorkers = "lab", 1, 4
	return p
}

func newStory(t *testing.T) *story {
	r, err := region.Start(region.Options{Sim: sim.Options{Policy: storyPolicy(), Workers: []string{"a", "b"}, Boot: 6 * time.Second}, Dir: t.TempDir()})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = r.Close() })
	s := &story{region: r}
	if s.machines, err = machines.New(r, nodes.Resources{MilliCPU: 4000, Memory: 8 << 30, Pods: 110}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.machines.Close(); err != nil {
			t.Error(err)
		}
	})
	s.laboratory = newLaboratory(t, lab.Options{Scrape: s.machines.Scrape()})
	if err := s.machines.Attach(s.Lab); err != nil {
		t.Fatal(err)
	}
	s.api = newProxy(t, s.config.APIURL)
	s.config.APIURL, s.config.Timeout = s.api.url, 5*time.Second
	s.cluster = open(t, s.config)
	c, err := r.Config(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if c.Signals, err = s.machines.Signals(t.Context(), c.Policy); err != nil {
		t.Fatal(err)
	}
	c.Cluster = s.cluster
	s.parts = c
	if s.plane, err = nodes.New(c); err != nil {
		t.Fatal(err)
	}
	return s
}

// tick lets the reconciler work once a second until something holds.
func (s *story) tick(t *testing.T, what string, until func() error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Second)
	defer cancel()
	var last nodes.Report
	var reason nodes.Reason
	for {
		report, err := s.plane.Tick(ctx)
		for _, e := range report.Events {
			if e.Kind != "decision" && e.Kind != "tick" {
				t.Logf("%s %s %s %s", e.At.Format("05.0"), e.Kind, e.Instance, e.Message)
			}
		}
		if report.Decision != nil && report.Decision.Reason != reason {
			reason = report.Decision.Reason
			t.Logf("%s decided %s %s", time.Now().Format("05.0"), reason, report.Decision.Detail)
		}
		if len(report.Events) > 0 {
			last = report
		}
		holds := until()
		if holds == nil {
			return
		}
		select {
		case <-ctx.Done():
			t.Fatalf("%s: %v; the last tick: %v, decided %+v", what, holds, err, last.Decision)
		case <-time.After(time.Second):
		}
	}
}

// entries returns how often something happened to workers, by the region's ledger.
func (s *story) entries(k sim.Kind) (instances []string) {
	for _, e := range s.region.Simulator.Ledger() {
		if e.Kind == k {
			instances = append(instances, e.Instance)
		}
	}
	return instances
}

func (s *story) running(t *testing.T, app string) (on map[string]int) {
	t.Helper()
	list, err := s.admin.CoreV1().Pods("default").List(t.Context(), metav1.ListOptions{LabelSelector: "app=" + app})
	if err != nil {
		t.Fatal(err)
	}
	on = map[string]int{}
	for _, p := range list.Items {
		if p.Status.Phase == corev1.PodRunning && p.DeletionTimestamp == nil {
			on[p.Spec.NodeName]++
		}
	}
	return on
}

func anywhere(p *corev1.PodTemplateSpec) {
	p.Spec.NodeSelector = nil
	p.Spec.Containers[0].Resources.Requests[corev1.ResourceCPU] = resource.MustParse("1500m")
}

func (s *story) scale(t *testing.T, app string, replicas int) {
	t.Helper()
	if _, err := s.Kubectl(t.Context(), "scale", "deployment", app, fmt.Sprint("--replicas=", replicas)); err != nil {
		t.Fatal(err)
	}
}

func want[T any](ok bool, got T) error {
	if ok {
		return nil
	}
	return fmt.Errorf("%+v", got)
}

func (s *story) growsAndShrinks(t *testing.T) {
	s.deploy(t, "default", 4, template("load", "", anywhere)) // two fit a worker's 4 CPUs
	s.scale(t, "load", 6)
	s.tick(t, "a node was launched, has joined and was verified, and the pods run", func() error {
		on := s.running(t, "load")
		return want(on[first] == 2 && on[second] == 2 && on["i-004"] == 2 && s.idleRecord(t), on)
	})
	if got := s.entries(sim.Launched); !slices.Equal(got, []string{"i-004"}) {
		t.Errorf("launched %v", got)
	}
	s.scale(t, "load", 1)
	s.machines.SetLoad(0.05)
	s.tick(t, "the idle node was drained, terminated, and its Node object is gone", func() error {
		v := view(t, s.cluster)
		return want(len(s.entries(sim.Terminated)) == 1 && len(v.Nodes) == 3 && s.idleRecord(t), fmt.Sprint(s.entries(sim.Terminated), len(v.Nodes)))
	})
	ended := s.entries(sim.Terminated)[0]
	for _, n := range view(t, s.cluster).Nodes {
		if n.Name == ended || n.Unschedulable || len(n.Claims) > 0 {
			t.Errorf("left: %+v", n)
		}
	}
	s.machines.SetLoad(0.5)
	labtest.Eventually(t, "the pod runs on another node", func() error {
		on := s.running(t, "load")
		return want(on[ended] == 0 && len(on) == 1, on)
	})
}

// idleRecord reports whether no action is open.
func (s *story) idleRecord(t *testing.T) bool {
	t.Helper()
	snapshot, err := s.plane.Plan(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return !snapshot.Record.ScalingInProgress
}

func (s *story) workers(t *testing.T) (names []string) {
	t.Helper()
	for _, n := range view(t, s.cluster).Nodes {
		if !n.ControlPlane {
			names = append(names, n.Name)
		}
	}
	return names
}

func (s *story) limitOfADrain(t *testing.T) {
	s.addWorker(t)
	for _, name := range s.workers(t) { // whichever it chooses
		s.deploy(t, "default", 1, template("held-on-"+name, name, finalized))
	}
	before := len(s.entries(sim.Terminated))
	s.machines.SetLoad(0.05)
	var cordoned string
	s.tick(t, "a drain has begun", func() error {
		for _, n := range view(t, s.cluster).Nodes {
			if n.Unschedulable {
				cordoned = n.Name
			}
		}
		return want(cordoned != "" || s.heldEnding(t), "nothing cordoned")
	})
	s.tick(t, "the drain has ended and the node was given back", func() error {
		for _, n := range view(t, s.cluster).Nodes {
			if n.Unschedulable || len(n.Claims) > 0 {
				return fmt.Errorf("%+v", n)
			}
		}
		return want(s.heldEnding(t) && s.idleRecord(t), "the drain goes on")
	})
	s.machines.SetLoad(0.5)
	if got := s.entries(sim.Terminated); len(got) != before {
		t.Errorf("terminated %v", got[before:])
	}
	for _, name := range s.workers(t) {
		if _, err := s.Kubectl(t.Context(), "delete", "deployment", "held-on-"+name); err != nil {
			t.Error(err)
		}
	}
	s.release(t)
}

// release takes the finalizers off the pods.
func (s *story) release(t *testing.T) {
	t.Helper()
	list, err := s.admin.CoreV1().Pods("default").List(t.Context(), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range list.Items {
		if len(p.Finalizers) > 0 {
			_, _ = s.Kubectl(t.Context(), "patch", "pod", p.Name, "--type=merge", `--patch={"metadata":{"finalizers":null}}`)
		}
	}
}

// heldEnding reports whether a pod that a finalizer holds was evicted.
func (s *story) heldEnding(t *testing.T) bool {
	t.Helper()
	list, err := s.admin.CoreV1().Pods("default").List(t.Context(), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return slices.ContainsFunc(list.Items, func(p corev1.Pod) bool { return len(p.Finalizers) > 0 && p.DeletionTimestamp != nil })
}

// addWorker adds a worker that a person made and waits until it is Ready.
func (s *story) addWorker(t *testing.T) {
	t.Helper()
	id := s.region.Simulator.AddWorker("b", time.Now())
	labtest.Eventually(t, id+" is Ready", func() error { n := seen(t, s.cluster, id); return want(n.Ready && len(n.Taints) == 0, n) })
}

func (s *story) apiAway(t *testing.T) {
	launched, terminated := len(s.entries(sim.Launched)), len(s.entries(sim.Terminated))
	s.scale(t, "load", 8) // two more than three workers take
	s.tick(t, "a node was launched", func() error { return want(len(s.entries(sim.Launched)) > launched, "none") })
	s.api.away(true)
	until := time.Now().Add(storyPolicy().JoinTimeout + 3*time.Second)
	s.tick(t, "the join window has passed", func() error { return want(time.Now().After(until), "not yet") })
	if got := s.entries(sim.Terminated); len(got) != terminated {
		t.Errorf("terminated %v without having seen the cluster", got[terminated:])
	}
	s.api.away(false)
	s.scale(t, "load", 1)
	s.tick(t, "the API is back and all is at rest", func() error {
		for _, n := range view(t, s.cluster).Nodes {
			if n.Unschedulable || !n.Ready {
				return fmt.Errorf("%+v", n)
			}
		}
		return want(s.idleRecord(t), "an action is open")
	})
	if got := s.entries(sim.Terminated); len(got) != terminated {
		t.Errorf("terminated %v", got[terminated:])
	}
	alive := s.region.Simulator.Fleet().Alive
	if got := len(s.workers(t)); got != alive {
		t.Errorf("%d workers of %d instances", got, alive)
	}
}

// proxy stands between a client and the API, and can make it unreachable.
type proxy struct {
	url string

	mu    sync.Mutex
	gone  bool
	conns map[net.Conn]bool
}

func newProxy(t *testing.T, target string) *proxy {
	u, err := url.Parse(target)
	if err != nil {
		t.Fatal(err)
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	p := &proxy{url: "https://" + l.Addr().String(), conns: map[net.Conn]bool{}}
	var running sync.WaitGroup
	running.Go(func() {
		for {
			conn, err := l.Accept()
			if errors.Is(err, net.ErrClosed) {
				return
			}
			if err == nil && p.keep(conn) {
				running.Go(func() { p.forward(conn, u.Host) })
			}
		}
	})
	t.Cleanup(func() { _ = l.Close(); p.away(true); running.Wait() })
	return p
}

// keep notes a connection, or closes it while the API is away.
func (p *proxy) keep(c net.Conn) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.gone {
		_ = c.Close()
		return false
	}
	p.conns[c] = true
	return true
}

func (p *proxy) forward(c net.Conn, target string) {
	defer func() {
		_ = c.Close()
		p.mu.Lock()
		defer p.mu.Unlock()
		delete(p.conns, c)
	}()
	up, err := net.Dial("tcp", target)
	if err != nil {
		return
	}
	defer up.Close()
	go func() { _, _ = io.Copy(up, c); _ = up.Close() }()
	_, _ = io.Copy(c, up)
}

// away makes the API unreachable, connections that are open included, or reachable again.
func (p *proxy) away(gone bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.gone = gone
	if gone {
		for c := range p.conns {
			_ = c.Close()
		}
	}
}
