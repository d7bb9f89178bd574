package prom_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/muster-dev/muster/internal/component"
	"github.com/muster-dev/muster/internal/lab"
	"github.com/muster-dev/muster/internal/lab/labtest"
	"github.com/muster-dev/muster/nodes"
	"github.com/muster-dev/muster/nodes/prom"
)

// TestSignalsOnARealControlPlane reads a real Prometheus that scrapes a real kube-state-metrics, and compares what the adapter makes of it
// with what the API server says of the cluster and with the load that the machines' exporters report. The steps follow each other: each
// finds the cluster as the one before has left it.
func TestSignalsOnARealControlPlane(t *testing.T) {
	c := newReal(t)
	t.Run("every query answers and nodes and load are the cluster's", c.atRest)
	t.Run("pending pods are those that the scheduler can't place", c.pending)
	t.Run("a load that lasts is seen to last", c.load)
	t.Run("a worker without series makes the load unknown and nothing else", c.exporterGone)
	t.Run("a node that is gone is no worker", c.nodeGone)
	t.Run("without kube-state-metrics nothing is known", c.stateMetricsGone)
	t.Run("a Prometheus that was killed goes on, and what it has from before is stale", c.killed)
	t.Run("a Prometheus that lost its data has to watch before anything has lasted", c.dataLost)
}

// realCluster is a control plane, what its machines report, and a Prometheus in a process of its own.
type realCluster struct {
	lab     *lab.Lab
	client  *kubernetes.Clientset
	policy  nodes.Policy
	signals *prom.Signals // by the scheduler's verdict
	byPhase *prom.Signals // by the pods' phase

	stateMetrics, exporter string      // targets, as HOST:PORT
	away                   atomic.Bool // kube-state-metrics

	listen     string // of Prometheus
	prometheus *lab.Prometheus
	data       string

	mu    sync.Mutex
	loads map[string]float64     // of the machines that export, by address
	spent map[string]*[2]float64 // CPU seconds busy and idle
	asOf  time.Time
}

const (
	maxAge = 15 * time.Second
	server = "10.9.0.1" // of the control plane
)

func newReal(t *testing.T) *realCluster {
	c := &realCluster{lab: labtest.Start(t, lab.Options{}), asOf: time.Now(), spent: map[string]*[2]float64{},
		loads: map[string]float64{server: 1, "10.9.0.2": 0.2, "10.9.0.3": 0.5, "10.9.0.4": 0.8}}
	rc, err := clientcmd.BuildConfigFromFlags("", c.lab.Kubeconfig)
	if err != nil {
		t.Fatal(err)
	}
	rc.QPS = -1
	if c.client, err = kubernetes.NewForConfig(rc); err != nil {
		t.Fatal(err)
	}
	proxy := httputil.NewSingleHostReverseProxy(&url.URL{Scheme: "http", Host: c.lab.StateMetrics})
	c.stateMetrics = serve(t, func(w http.ResponseWriter, r *http.Request) {
		if c.away.Load() {
			w.WriteHeader(http.StatusServiceUnavailable)
			return
		}
		proxy.ServeHTTP(w, r)
	})
	c.exporter = serve(t, c.export)
	port, err := component.FreePort()
	if err != nil {
		t.Fatal(err)
	}
	c.listen, c.data = fmt.Sprintf("127.0.0.1:%d", port), t.TempDir()
	c.start(t)
	t.Cleanup(func() { c.prometheus.Stop() }) // whichever runs by then

	c.policy = nodes.DefaultPolicy()
	c.policy.CPUUpFor, c.policy.PendingUpFor, c.policy.IdleDownFor = 5*time.Second, 5*time.Second, 20*time.Second
	config := prom.DefaultConfig()
	config.URL, config.Step, config.Rate, config.MaxAge = c.prometheus.URL, time.Second, 4*time.Second, maxAge
	if c.signals, err = prom.Open(t.Context(), config, c.policy); err != nil {
		t.Fatal(err)
	}
	phase := c.policy
	phase.Pending = nodes.PendingPhase
	if c.byPhase, err = prom.Open(t.Context(), config, phase); err != nil {
		t.Fatal(err)
	}

	c.node(t, "server", server, lab.KubeletUp, map[string]string{"node-role.kubernetes.io/control-plane": "true"})
	for i, name := range []string{"one", "two", "three"} {
		c.node(t, name, fmt.Sprintf("10.9.0.%d", i+2), lab.KubeletUp, nil)
	}
	c.node(t, "never", "10.9.0.5", "", nil) // no kubelet: it never becomes Ready, and exports nothing
	c.pod(t, "kube-system", "coredns", func(p *corev1.Pod) { p.Spec.NodeName = "server" })
	return c
}

func serve(t *testing.T, f http.HandlerFunc) (addr string) {
	s := httptest.NewServer(f)
	t.Cleanup(s.Close)
	return strings.TrimPrefix(s.URL, "http://")
}

// start starts Prometheus, on the data of the one before if there was one.
func (c *realCluster) start(t *testing.T) {
	t.Helper()
	p, err := c.lab.RunPrometheus(context.WithoutCancel(t.Context()), c.data, c.listen, lab.Options{Scrape: map[string]string{"kube-state-metrics": c.stateMetrics, "node-exporter": c.exporter}})
	if err != nil {
		t.Fatal(err)
	}
	c.prometheus = p
}

// export is the machines' node-exporters.
func (c *realCluster) export(w http.ResponseWriter, _ *http.Request) {
	c.mu.Lock()
	defer c.mu.Unlock()
	now := time.Now()
	d := now.Sub(c.asOf).Seconds()
	c.asOf = now
	_, _ = fmt.Fprintln(w, "# TYPE node_cpu_seconds_total counter")
	for ip, load := range c.loads {
		if c.spent[ip] == nil {
			c.spent[ip] = &[2]float64{}
		}
		s := c.spent[ip]
		s[0] += d * load
		s[1] += d * (1 - load)
		for mode, v := range map[string]float64{"user": s[0] * 0.7, "system": s[0] * 0.3, "idle": s[1], "iowait": 0} {
			_, _ = fmt.Fprintf(w, "node_cpu_seconds_total{instance=\"%s:9100\",cpu=\"0\",mode=%q} %f\n", ip, mode, v)
		}
	}
}

func (c *realCluster) setLoads(loads map[string]float64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.loads = loads
}

// node creates a Node object; kubelet is what its kubelet does.
func (c *realCluster) node(t *testing.T, name, ip, kubelet string, labels map[string]string) {
	t.Helper()
	resources := corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("4"), corev1.ResourceMemory: resource.MustParse("8Gi"), corev1.ResourcePods: resource.MustParse("110")}
	n := &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{lab.KubeletLabel: kubelet, corev1.LabelHostname: name, corev1.LabelOSStable: "linux"}},
		Status: corev1.NodeStatus{Capacity: resources, Allocatable: resources,
			Addresses: []corev1.NodeAddress{{Type: corev1.NodeInternalIP, Address: ip}, {Type: corev1.NodeHostName, Address: name}}},
	}
	maps.Copy(n.Labels, labels)
	if _, err := c.client.CoreV1().Nodes().Create(t.Context(), n, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
}

func (c *realCluster) pod(t *testing.T, namespace, name string, change func(*corev1.Pod)) {
	t.Helper()
	p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name},
		Spec: corev1.PodSpec{TerminationGracePeriodSeconds: new(int64), Containers: []corev1.Container{{Name: "main", Image: "none"}}}}
	change(p)
	labtest.Create(t, c.client.CoreV1().Pods(namespace).Create, p)
}

// truth is what the API server says.
type truth struct {
	ready                  []string // addresses of the Ready nodes
	unschedulable, waiting float64  // pods that the scheduler can't place; pods in phase Pending that no gate holds
}

func (c *realCluster) truth(t *testing.T) truth {
	t.Helper()
	var out truth
	list, err := c.client.CoreV1().Nodes().List(t.Context(), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	for _, n := range list.Items {
		if slices.ContainsFunc(n.Status.Conditions, func(x corev1.NodeCondition) bool {
			return x.Type == corev1.NodeReady && x.Status == corev1.ConditionTrue
		}) {
			out.ready = append(out.ready, n.Status.Addresses[0].Address)
		}
	}
	slices.Sort(out.ready)
	pods, err := c.client.CoreV1().Pods("").List(t.Context(), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range pods.Items {
		scheduled := slices.IndexFunc(p.Status.Conditions, func(x corev1.PodCondition) bool { return x.Type == corev1.PodScheduled })
		if p.Status.Phase != corev1.PodPending || scheduled >= 0 && p.Status.Conditions[scheduled].Reason == corev1.PodReasonSchedulingGated {
			continue
		}
		out.waiting++
		if scheduled >= 0 && p.Status.Conditions[scheduled].Reason == corev1.PodReasonUnschedulable {
			out.unschedulable++
		}
	}
	return out
}

// becomes waits until the adapter's readings are as they should be.
func (c *realCluster) becomes(t *testing.T, what string, ok func(nodes.Readings) error) nodes.Readings {
	t.Helper()
	var r nodes.Readings
	labtest.Eventually(t, what, func() (err error) {
		if r, err = c.signals.Observe(t.Context()); err != nil {
			return err
		}
		return ok(r)
	})
	return r
}

// is returns an error unless a reading is near a value.
func is(name string, r nodes.Reading, want, within float64) error {
	if !r.Known || r.Value < want-within || r.Value > want+within {
		return fmt.Errorf("%s is %+v, want %v", name, r, want)
	}
	return nil
}

// lacks returns an error unless a reading is missing for a reason.
func lacks(name string, r nodes.Reading, why string) error {
	if r.Known || !strings.Contains(r.Why, why) {
		return fmt.Errorf("%s is %+v, want it missing with %q", name, r, why)
	}
	return nil
}

// known returns an error that names the readings that are missing.
func known(r nodes.Readings) error {
	var errs []error
	for n, x := range all(r) {
		if !x.Known {
			errs = append(errs, fmt.Errorf("%s is missing: %s", n, x.Why))
		}
	}
	return errors.Join(errs...)
}

// missing returns an error unless all readings are missing for one reason.
func missing(r nodes.Readings, why string) error {
	errs := []error{nil}
	for n, x := range all(r) {
		errs = append(errs, lacks(n, x, why))
	}
	if r.ReadyIPsKnown {
		errs = append(errs, errors.New("the Ready addresses are known"))
	}
	return errors.Join(errs...)
}

func (c *realCluster) atRest(t *testing.T) {
	r := c.becomes(t, "everything is known and the workers are Ready", func(r nodes.Readings) error {
		if len(r.ReadyIPs) != 4 {
			return fmt.Errorf("Ready are %v", r.ReadyIPs)
		}
		return known(r)
	})
	want := c.truth(t)
	if !slices.Equal(r.ReadyIPs, want.ready) || !r.ReadyIPsKnown || len(want.ready) != 4 {
		t.Errorf("Ready are %v, by the API %v", r.ReadyIPs, want.ready)
	}
	c.becomes(t, "the load is the workers' average, the server of the control plane left out", func(r nodes.Readings) error {
		return errors.Join(is("cpu", r.CPU, 0.5, 0.02), is("cpuMin", r.CPUMin, 0.5, 0.02), is("cpuMax", r.CPUMax, 0.5, 0.02), is("pending", r.Pending, 0, 0),
			is("pendingOther", r.PendingOther, 0, 0), is("pendingMin", r.PendingMin, 0, 0), is("pendingMax", r.PendingMax, 0, 0))
	})
	labtest.Eventually(t, "every check of doctor holds", func() error {
		checks := c.signals.Check(t.Context())
		var errs []error
		for _, x := range checks {
			if !x.OK {
				errs = append(errs, fmt.Errorf("%s: %s", x.Name, x.Detail))
			}
			if strings.Contains(x.Name, "CPU series of every Ready worker") && x.Detail != "3 Ready workers, 1 machines of the control plane left out" {
				errs = append(errs, errors.New(x.Detail))
			}
		}
		if len(checks) != 20 { // the server, 11 queries, 2 verdicts, 6 readings
			errs = append(errs, fmt.Errorf("%d checks", len(checks)))
		}
		return errors.Join(errs...)
	})
}

// pending makes pods that can't be placed, pods behind a gate and one that was placed where no kubelet starts it.
func (c *realCluster) pending(t *testing.T) {
	for i := range 5 {
		c.pod(t, "default", fmt.Sprint("large-", i), func(p *corev1.Pod) {
			p.Spec.Containers[0].Resources.Requests = corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("64")}
		})
	}
	for i := range 2 {
		c.pod(t, "default", fmt.Sprint("gated-", i), func(p *corev1.Pod) {
			p.Spec.SchedulingGates = []corev1.PodSchedulingGate{{Name: "lab.muster.dev/gate"}}
		})
	}
	c.pod(t, "default", "starting", func(p *corev1.Pod) { p.Spec.NodeName = "never" })
	c.becomes(t, "five pods have been unschedulable for as long as it takes", func(r nodes.Readings) error {
		want := c.truth(t)
		return errors.Join(is("pending", r.Pending, 5, 0), is("pending by the API", nodes.Read(want.unschedulable), 5, 0), is("pendingMin", r.PendingMin, 5, 0), is("pendingMax", r.PendingMax, 5, 0),
			is("pendingOther", r.PendingOther, 6, 0), is("pending phase by the API", nodes.Read(want.waiting), 6, 0))
	})
	labtest.Eventually(t, "by phase it is the other way round", func() error {
		r, err := c.byPhase.Observe(t.Context())
		return errors.Join(err, is("pending", r.Pending, 6, 0), is("pendingOther", r.PendingOther, 5, 0), is("pendingMin", r.PendingMin, 6, 0))
	})
	for i := range 5 {
		if err := c.client.CoreV1().Pods("default").Delete(t.Context(), fmt.Sprint("large-", i), metav1.DeleteOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	r := c.becomes(t, "none is pending", func(r nodes.Readings) error {
		return errors.Join(is("pending", r.Pending, 0, 0), is("pendingOther", r.PendingOther, 1, 0))
	})
	if err := is("pendingMax, of the window in which there were some", r.PendingMax, 5, 0); err != nil {
		t.Error(err)
	}
	c.becomes(t, "not all of the window had some", func(r nodes.Readings) error { return is("pendingMin", r.PendingMin, 0, 0) })
	c.becomes(t, "none has been for the whole window", func(r nodes.Readings) error { return is("pendingMax", r.PendingMax, 0, 0) })
}

func (c *realCluster) load(t *testing.T) {
	c.setLoads(map[string]float64{server: 0, "10.9.0.2": 0.9, "10.9.0.3": 1, "10.9.0.4": 0.8})
	c.becomes(t, "the load is high", func(r nodes.Readings) error { return is("cpu", r.CPU, 0.9, 0.02) })
	c.becomes(t, "it has been for as long as it takes to grow", func(r nodes.Readings) error { return is("cpuMin", r.CPUMin, 0.9, 0.02) })
	c.setLoads(map[string]float64{server: 1, "10.9.0.2": 0.1, "10.9.0.3": 0, "10.9.0.4": 0.2})
	r := c.becomes(t, "the load is low", func(r nodes.Readings) error { return is("cpu", r.CPU, 0.1, 0.02) })
	if err := is("cpuMax, of the window in which it was high", r.CPUMax, 0.9, 0.03); err != nil {
		t.Error(err)
	}
	c.becomes(t, "it has been for as long as it takes to shrink", func(r nodes.Readings) error { return is("cpuMax", r.CPUMax, 0.1, 0.02) })
}

func (c *realCluster) exporterGone(t *testing.T) {
	c.setLoads(map[string]float64{server: 1, "10.9.0.2": 0.1, "10.9.0.4": 0.2})
	r := c.becomes(t, "the load is unknown", func(r nodes.Readings) error {
		const why = "1 of 3 Ready workers have no CPU series: two"
		return errors.Join(lacks("cpu", r.CPU, why), lacks("cpuMin", r.CPUMin, why), lacks("cpuMax", r.CPUMax, why))
	})
	if err := errors.Join(is("pending", r.Pending, 0, 0), is("pendingMin", r.PendingMin, 0, 0)); err != nil || len(r.ReadyIPs) != 4 {
		t.Errorf("%v; Ready are %v", err, r.ReadyIPs)
	}
}

func (c *realCluster) nodeGone(t *testing.T) {
	if err := c.client.CoreV1().Nodes().Delete(t.Context(), "two", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	r := c.becomes(t, "the load is that of the two that are left", func(r nodes.Readings) error { return errors.Join(is("cpu", r.CPU, 0.15, 0.02), known(r)) })
	if want := c.truth(t); !slices.Equal(r.ReadyIPs, want.ready) || len(want.ready) != 3 {
		t.Errorf("Ready are %v, by the API %v", r.ReadyIPs, want.ready)
	}
}

func (c *realCluster) stateMetricsGone(t *testing.T) {
	c.away.Store(true)
	c.becomes(t, "nothing is known", func(r nodes.Readings) error { return missing(r, "kube-state-metrics is not up") })
	c.away.Store(false)
	r := c.becomes(t, "what is now is known again", func(r nodes.Readings) error {
		return errors.Join(is("cpu", r.CPU, 0.15, 0.02), is("pending", r.Pending, 0, 0), is("pendingOther", r.PendingOther, 1, 0))
	})
	if err := lacks("pendingMax", r.PendingMax, "not all 20 points of the last 20s are there"); err != nil {
		t.Errorf("right after the gap: %v", err)
	}
	c.becomes(t, "and what has lasted, once the gap is behind", known)
}

func (c *realCluster) killed(t *testing.T) {
	c.prometheus.Kill()
	if r, err := c.signals.Observe(t.Context()); err == nil || !strings.Contains(err.Error(), "can't be reached") {
		t.Errorf("without Prometheus: %v, %+v", err, r)
	}
	c.away.Store(true)
	c.start(t) // it shows what it had before for five minutes, and does not know that it is no more
	c.becomes(t, "what it has from before is stale", func(r nodes.Readings) error { return missing(r, "kube-state-metrics is stale: last scraped") })
	c.away.Store(false)
	c.becomes(t, "everything is known again", func(r nodes.Readings) error { return errors.Join(known(r), is("cpu", r.CPU, 0.15, 0.02)) })
}

func (c *realCluster) dataLost(t *testing.T) {
	c.prometheus.Kill()
	c.data = t.TempDir()
	c.start(t)
	t.Cleanup(c.prometheus.Stop) // before its data goes
	r := c.becomes(t, "what is now is known", func(r nodes.Readings) error {
		return errors.Join(is("cpu", r.CPU, 0.15, 0.02), is("pending", r.Pending, 0, 0))
	})
	if err := lacks("pendingMax", r.PendingMax, "not all 20 points of the last 20s are there"); err != nil {
		t.Errorf("right after the start: %v", err)
	}
	c.becomes(t, "and what has lasted, in time", known)
}
