// Package machines makes the nodes of a laboratory follow the machines of a simulated region: the cloud is simulated behind its protocol,
// Kubernetes, kube-state-metrics and Prometheus are the real ones. A machine that has booted registers its Node object, one that ends
// falls silent and leaves the object behind, and node-exporter answers on each that runs. Package machines can also run real processes
// in pods, as their kubelet.
package machines

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"path/filepath"
	"slices"
	"sync"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	appsv1client "k8s.io/client-go/kubernetes/typed/apps/v1"
	corev1client "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/muster-dev/muster/internal/lab"
	"github.com/muster-dev/muster/nodes"
	"github.com/muster-dev/muster/nodes/prom"
	"github.com/muster-dev/muster/nodes/sim"
	"github.com/muster-dev/muster/nodes/sim/region"
)

const (
	look     = 50 * time.Millisecond // between looks at the region
	patience = 3 * time.Minute       // for the control plane to take what it is told, and for real nodes to join, on a busy machine
)

const controlPlaneLabel = "node-role.kubernetes.io/control-plane"

// Machines are the machines of a region as nodes of a laboratory. They are made by New, and follow the region from Attach to Close.
type Machines struct {
	region   *region.Region
	exporter *http.Server
	addr     string
	capacity nodes.Resources
	sized    func(instanceType string) nodes.Resources // of workers; nil: capacity
	real     bool                                      // workers are real nodes, which join by themselves

	core *corev1client.CoreV1Client
	apps *appsv1client.AppsV1Client
	rest *rest.Config
	lab  *lab.Lab

	ctx     context.Context // ends with Close
	stop    context.CancelFunc
	running sync.WaitGroup

	mu     sync.Mutex
	load   float64 // that node-exporter reports of every worker
	busy   float64 // CPU seconds
	idle   float64
	asOf   time.Time
	known  map[string]string // addresses of the machines that run, by instance
	states map[string]state  // of nodes, by name
	ledger []sim.Entry
	errs   []error
}

// state is what is followed of a Node object.
type state struct{ ready, cordoned bool }

// New returns the machines of a region, each with so much for pods, and starts their node-exporter.
func New(r *region.Region, capacity nodes.Resources) (*Machines, error) {
	l, err := new(net.ListenConfig).Listen(context.Background(), "tcp", "127.0.0.1:0")
	if err != nil {
		return nil, fmt.Errorf("starting node-exporter: %w", err)
	}
	m := &Machines{region: r, addr: l.Addr().String(), capacity: capacity, load: 0.5, asOf: time.Now(), known: map[string]string{}, states: map[string]state{}}
	m.ctx, m.stop = context.WithCancel(context.Background())
	m.exporter = &http.Server{Handler: http.HandlerFunc(m.export), ReadHeaderTimeout: 5 * time.Second}
	m.running.Go(func() { _ = m.exporter.Serve(l) })
	return m, nil
}

// NewReal returns the machines of a region whose workers are real nodes of the laboratory:
// they register their Node objects themselves. Only the server of the control plane is
// registered here.
func NewReal(r *region.Region) (*Machines, error) {
	m, err := New(r, nodes.Resources{MilliCPU: 2000, Memory: 8 << 30, Pods: 110})
	if err == nil {
		m.real = true
	}
	return m, err
}

// Sized gives each worker what a function says of its instance type, in place of what New was told. It is to be called before Attach.
func (m *Machines) Sized(of func(instanceType string) nodes.Resources) { m.sized = of }

// Scrape returns what the laboratory's Prometheus must read of the machines, for lab.Options.
func (m *Machines) Scrape() map[string]string { return map[string]string{"node-exporter": m.addr} }

// Attach registers the machines that are there with the laboratory, waits until its scheduler may place pods on them, and begins to
// follow the region and the laboratory's nodes.
func (m *Machines) Attach(l *lab.Lab) error {
	config, err := clientcmd.BuildConfigFromFlags("", l.Kubeconfig)
	if err != nil {
		return fmt.Errorf("reading the laboratory's kubeconfig: %w", err)
	}
	config.QPS = -1
	// Not the clientset of all API groups: that is tens of megabytes in the program.
	if m.core, err = corev1client.NewForConfig(config); err != nil {
		return fmt.Errorf("connecting to the laboratory: %w", err)
	}
	if m.apps, err = appsv1client.NewForConfig(config); err != nil {
		return fmt.Errorf("connecting to the laboratory: %w", err)
	}
	m.rest, m.lab = config, l
	seen := len(m.region.Simulator.Ledger())
	var there []string
	for _, in := range m.region.Simulator.Instances() {
		if !in.Alive() {
			continue
		}
		if in.ControlPlane || !m.real {
			if err := m.join(m.ctx, in); err != nil {
				return err
			}
		}
		there = append(there, in.ID)
	}
	if err := m.system(); err != nil {
		return err
	}
	m.running.Go(func() { m.follow(seen) })
	m.running.Go(func() { m.watch(m.ctx, &corev1.Node{}, "nodes", "", m.nodeChanged) })
	return m.until(func(context.Context) error {
		m.mu.Lock()
		defer m.mu.Unlock()
		for _, id := range there {
			if !m.states[id].ready {
				return fmt.Errorf("node %s is not Ready", id)
			}
		}
		return nil
	})
}

// join registers the Node object of an instance, with our user data's provider ID.
func (m *Machines) join(ctx context.Context, in nodes.Instance) error {
	size := m.capacity
	if m.sized != nil && !in.ControlPlane {
		size = m.sized(in.Type)
	}
	all := corev1.ResourceList{
		corev1.ResourceCPU:    *resource.NewMilliQuantity(size.MilliCPU, resource.DecimalSI),
		corev1.ResourceMemory: *resource.NewQuantity(size.Memory, resource.BinarySI),
		corev1.ResourcePods:   *resource.NewQuantity(int64(size.Pods), resource.DecimalSI),
	}
	n := &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: in.ID, Labels: map[string]string{
			lab.KubeletLabel: lab.KubeletUp, corev1.LabelHostname: in.ID, corev1.LabelOSStable: "linux", corev1.LabelTopologyZone: in.Zone}},
		Spec: corev1.NodeSpec{ProviderID: "aws:///" + in.Zone + "/" + in.ID},
		Status: corev1.NodeStatus{Capacity: all, Allocatable: all, NodeInfo: corev1.NodeSystemInfo{KubeletVersion: lab.Kubernetes},
			Addresses: []corev1.NodeAddress{{Type: corev1.NodeInternalIP, Address: in.PrivateIP}, {Type: corev1.NodeHostName, Address: in.ID}}},
	}
	if in.ControlPlane {
		n.Labels[controlPlaneLabel] = "true"
		n.Spec.Taints = []corev1.Taint{{Key: "CriticalAddonsOnly", Value: "true", Effect: corev1.TaintEffectNoExecute}}
	} else {
		m.mu.Lock()
		m.known[in.ID] = in.PrivateIP
		m.mu.Unlock()
	}
	_, err := m.core.Nodes().Create(ctx, n, metav1.CreateOptions{})
	if err != nil && !apierrors.IsAlreadyExists(err) {
		return fmt.Errorf("registering node %s: %w", in.ID, err)
	}
	return nil
}

// system puts onto the control plane what every K3s cluster has there: without a pod of kube-system the metrics count as incomplete.
func (m *Machines) system() error {
	labels, one := map[string]string{"app": "coredns"}, int32(1)
	d := &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Name: "coredns"}, Spec: appsv1.DeploymentSpec{Replicas: &one, Selector: &metav1.LabelSelector{MatchLabels: labels},
		Template: corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: labels}, Spec: corev1.PodSpec{
			Containers:   []corev1.Container{{Name: "coredns", Image: "coredns"}},
			NodeSelector: map[string]string{controlPlaneLabel: "true"},
			Tolerations:  []corev1.Toleration{{Key: "CriticalAddonsOnly", Operator: corev1.TolerationOpExists}},
		}}}}
	return m.until(func(ctx context.Context) error {
		if _, err := m.apps.Deployments("kube-system").Create(ctx, d, metav1.CreateOptions{}); err != nil && !apierrors.IsAlreadyExists(err) {
			return fmt.Errorf("creating coredns: %w", err)
		}
		return nil
	})
}

// follow does to the laboratory's nodes what happens to the region's machines, from the ledger's entry number seen.
func (m *Machines) follow(seen int) {
	t := time.NewTicker(look)
	defer t.Stop()
	for {
		for _, e := range m.region.Simulator.Ledger()[seen:] {
			seen++
			err := m.apply(e)
			if err != nil {
				m.failed(err)
			}
		}
		select {
		case <-m.ctx.Done():
			return
		case <-t.C:
		}
	}
}

// failed keeps an error for Close, unless it is of the end itself.
func (m *Machines) failed(err error) {
	if m.ctx.Err() != nil {
		return
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.errs = append(m.errs, err)
}

// apply does to the laboratory's nodes what an entry of the region's ledger says.
func (m *Machines) apply(e sim.Entry) error {
	switch {
	case e.Kind == sim.Joined && !m.real:
		return m.join(m.ctx, m.region.Simulator.Instance(e.Instance))
	case e.Kind == sim.Terminated, e.Kind == sim.TakenAway:
		m.mu.Lock()
		delete(m.known, e.Instance)
		m.mu.Unlock()
		if m.real {
			return nil // its kubelet ends with the machine
		}
		// It says nothing more; the Node object stays until somebody deletes it.
		return m.silence(e.Instance)
	}
	return nil
}

// silence ends the kubelet of a node.
func (m *Machines) silence(name string) error {
	patch := fmt.Sprintf(`{"metadata":{"labels":{%q:%q}}}`, lab.KubeletLabel, lab.KubeletGone)
	_, err := m.core.Nodes().Patch(m.ctx, name, types.MergePatchType, []byte(patch), metav1.PatchOptions{})
	if err != nil && !apierrors.IsNotFound(err) {
		return fmt.Errorf("ending the kubelet of %s: %w", name, err)
	}
	return nil
}

// nodeChanged notes what the API shows of a node, nil when it is gone.
func (m *Machines) nodeChanged(name string, o any) {
	n, _ := o.(*corev1.Node)
	m.mu.Lock()
	defer m.mu.Unlock()
	before, there := m.states[name]
	if n == nil {
		delete(m.states, name)
		m.note(sim.Entry{Kind: sim.NodeRemoved, Instance: name})
		return
	}
	now := state{cordoned: n.Spec.Unschedulable}
	for _, c := range n.Status.Conditions {
		now.ready = now.ready || c.Type == corev1.NodeReady && c.Status == corev1.ConditionTrue
	}
	// A node that is Ready takes pods only when the controllers have taken their taints off it.
	now.ready = now.ready && !slices.ContainsFunc(n.Spec.Taints, func(t corev1.Taint) bool {
		return t.Key == corev1.TaintNodeNotReady || t.Key == corev1.TaintNodeUnreachable
	})
	m.states[name] = now
	ref := nodes.NodeRef{Name: name, UID: string(n.UID)}
	if m.real {
		m.joined(n)
		if !there {
			m.note(sim.Entry{Kind: sim.Joined, Instance: name, Node: ref})
		}
	}
	for _, c := range []struct {
		was, is bool
		on, off sim.Kind
	}{{before.ready, now.ready, sim.BecameReady, sim.BecameNotReady}, {before.cordoned, now.cordoned, sim.Cordoned, sim.Uncordoned}} {
		switch {
		case c.is && !c.was:
			m.note(sim.Entry{Kind: c.on, Instance: name, Node: ref})
		case c.was && !c.is:
			m.note(sim.Entry{Kind: c.off, Instance: name, Node: ref})
		}
	}
}

// joined takes the address of a real node, by which node-exporter's series name it. The
// region has made up another one. The caller has the lock.
func (m *Machines) joined(n *corev1.Node) {
	in := m.region.Simulator.Instance(n.Name)
	if in.ControlPlane || !in.Alive() {
		return // what ended is not to come back with a late report of its node
	}
	for _, a := range n.Status.Addresses {
		if a.Type == corev1.NodeInternalIP {
			m.known[n.Name] = a.Address
		}
	}
}

func (m *Machines) note(e sim.Entry) {
	e.Seq, e.At = len(m.ledger), time.Now()
	m.ledger = append(m.ledger, e)
}

// Ledger returns what the API has shown of nodes becoming Ready or not, of real nodes joining, cordons, removed Node objects and evictions of pods of
// deployments, in order. What happens to instances is in the region's.
func (m *Machines) Ledger() []sim.Entry {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.ledger[:len(m.ledger):len(m.ledger)]
}

// Fleet returns the workers as they are: instances by the region, nodes by the API.
func (m *Machines) Fleet() sim.Fleet {
	alive := map[string]bool{}
	var f sim.Fleet
	for _, in := range m.region.Simulator.Instances() {
		alive[in.ID] = in.Alive()
		if in.Alive() && !in.ControlPlane {
			f.Alive++
		}
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	nodeless := f.Alive
	for name, n := range m.states {
		switch {
		case !alive[name]:
			f.StaleNodes++
			continue
		case m.known[name] == "":
			continue
		case n.ready && !n.cordoned:
			f.Available++
		}
		nodeless--
		if n.ready {
			f.Ready++
		}
		if n.cordoned {
			f.Cordoned++
		}
	}
	f.Nodeless = max(nodeless, 0)
	return f
}

// SetLoad sets the CPU utilisation of every worker, 0 to 1.
func (m *Machines) SetLoad(load float64) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.account()
	m.load = load
}

// account adds the CPU time since it was last asked.
func (m *Machines) account() {
	now := time.Now()
	d := now.Sub(m.asOf).Seconds()
	m.asOf = now
	m.busy += d * m.load
	m.idle += d * (1 - m.load)
}

// export is node-exporter on every worker.
func (m *Machines) export(w http.ResponseWriter, _ *http.Request) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.account()
	_, _ = fmt.Fprintln(w, "# TYPE node_cpu_seconds_total counter")
	for _, ip := range m.known {
		for mode, v := range map[string]float64{"user": m.busy * 0.7, "system": m.busy * 0.3, "idle": m.idle} {
			_, _ = fmt.Fprintf(w, "node_cpu_seconds_total{instance=\"%s:9100\",cpu=\"0\",mode=%q} %f\n", ip, mode, v)
		}
	}
}

// Signals returns the laboratory's Prometheus as the node plane reads it.
func (m *Machines) Signals(ctx context.Context, p nodes.Policy) (*prom.Signals, error) {
	c := prom.DefaultConfig()
	c.URL, c.Step, c.Rate, c.MaxAge = m.lab.Prometheus, time.Second, 4*time.Second, 30*time.Second
	return prom.Open(ctx, c, p)
}

// Account applies the manifests of Muster's role and of its pools, and returns a client's configuration as its service account, which
// may do what the role allows and nothing else. The manifests are looked for beside the laboratory's sources.
func (m *Machines) Account(ctx context.Context) (*rest.Config, error) {
	source, err := lab.Source()
	if err != nil {
		return nil, err
	}
	manifests := filepath.Join(source, "..", "deploy", "kubernetes", "nodes")
	if _, err := m.lab.Kubectl(ctx, "apply", "-f", filepath.Join(manifests, "rbac.yaml"), "-f", filepath.Join(manifests, "pools.yaml")); err != nil {
		return nil, fmt.Errorf("applying the role of the node plane and its pools: %w", err)
	}
	hours := int64(12 * 3600)
	token, err := m.core.ServiceAccounts("muster").CreateToken(ctx, "muster-nodes",
		&authenticationv1.TokenRequest{Spec: authenticationv1.TokenRequestSpec{ExpirationSeconds: &hours}}, metav1.CreateOptions{})
	if err != nil {
		return nil, fmt.Errorf("making a token for the node plane: %w", err)
	}
	return &rest.Config{Host: m.rest.Host, BearerToken: token.Status.Token, TLSClientConfig: rest.TLSClientConfig{CAData: m.rest.CAData}, QPS: -1}, nil
}

// until tries until it succeeds or patience ends.
func (m *Machines) until(try func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(m.ctx, patience)
	defer cancel()
	for {
		err := try(ctx)
		if err == nil {
			return nil
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("waiting for the laboratory: %w", err)
		case <-time.After(look):
		}
	}
}

// Close stops following and returns what went wrong meanwhile. Deployments are to have ended before.
func (m *Machines) Close() error {
	m.stop()
	err := m.exporter.Close()
	m.running.Wait()
	m.mu.Lock()
	defer m.mu.Unlock()
	return errors.Join(append(m.errs, err)...)
}
