package kube_test

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"net/http"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/muster-dev/muster/broker"
	"github.com/muster-dev/muster/defender/responder"
	"github.com/muster-dev/muster/internal/lab"
	"github.com/muster-dev/muster/internal/lab/labtest"
	"github.com/muster-dev/muster/nodes"
	"github.com/muster-dev/muster/nodes/kube"
	"github.com/muster-dev/muster/nodes/workers"
	"github.com/muster-dev/muster/partition"
)

const (
	crewGroup = "crew"
	crewSlots = 32
	crewKeys  = 64
	crewGrace = 30 * time.Second // of the pods
)

// TestWorkersOnARealControlPlane drains nodes whose pods are real workers of a group on a real NATS server, under load. The pods are
// KWOK's; the test plays their containers: a worker gets SIGTERM, which is the end of its context, when its pod's deletion begins.
// Whatever happens to a worker, no message may be lost.
func TestWorkersOnARealControlPlane(t *testing.T) {
	on137 := func(t *testing.T, evictions bool) *laboratory {
		return newLaboratory(t, lab.Options{Kubernetes: "1.37", Evictions: evictions})
	}
	t.Run("1.37: a drain waits for the handoff, and eviction by hand hands off in the pods' grace", func(t *testing.T) {
		l := on137(t, true)
		t.Run("a drain waits for the handoff", func(t *testing.T) { drainWaitsForHandoff(t, newCrew(t, l, "waits", true)) })
		t.Run("kubectl drain", func(t *testing.T) { kubectlDrainHandsOff(t, newCrew(t, l, "kubectl", true)) })
		t.Run("a worker dies in the middle", func(t *testing.T) { deadResponderIsPassedOver(t, newCrew(t, l, "dies", true)) })
		t.Run("a withdrawn request", func(t *testing.T) { withdrawnRequestIsTakenBack(t, newCrew(t, l, "stays", true)) })
	})
	t.Run("1.37 without a controller of evictions: the workers are asked directly", func(t *testing.T) {
		workersAreAskedDirectly(t, newCrew(t, on137(t, false), "direct", true), 1)
	})
	t.Run("1.36: the workers are asked directly", func(t *testing.T) {
		workersAreAskedDirectly(t, newCrew(t, newLaboratory(t, lab.Options{}), "direct", true), 0)
	})
}

// crew is four workers in pods on two nodes, their load, and what became of it.
type crew struct {
	*laboratory
	t         *testing.T
	namespace string
	url       string // of the NATS server
	nc        *nats.Conn
	nodes     [2]nodes.NodeRef
	cluster   *kube.Cluster
	mates     []*mate

	mu      sync.Mutex
	sent    map[string]time.Time
	handled map[string]time.Time // first
	stop    func()               // the load
}

// mate is one worker in its pod.
type mate struct {
	pod, uid, node string
	nc             *nats.Conn
	worker         *partition.Worker
	terminate      context.CancelFunc // SIGTERM
	ended          chan struct{}
	respond        context.CancelFunc
	hold           chan struct{} // its handlers wait until this is closed; nil: they don't

	slotsAtTerm int // that it had when SIGTERM came
	termedAt    time.Time
	goneAt      time.Time
}

func newCrew(t *testing.T, l *laboratory, name string, responds bool) *crew {
	t.Helper()
	c := &crew{laboratory: l, t: t, namespace: "crew-" + name, sent: map[string]time.Time{}, handled: map[string]time.Time{}}
	b, err := broker.Start(broker.Options{Dir: t.TempDir()})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(b.Stop)
	c.url = b.URL()
	c.nc = c.connect()
	if err := partition.Open(c.nc, crewGroup).Provision(t.Context(), c.config()); err != nil {
		t.Fatal(err)
	}
	labtest.Create(t, l.admin.CoreV1().Namespaces().Create, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: c.namespace}})
	c.cluster = l.cluster(t, kube.Rules{BarePods: kube.Evict})
	for i := range c.nodes {
		c.nodes[i] = l.worker(t, c.cluster, fmt.Sprintf("%s-%d", name, i))
	}
	for i := range 4 {
		c.start(fmt.Sprintf("%s-%d", name, i), c.nodes[i%2].Name, responds)
	}
	labtest.Eventually(t, "every worker has slots", func() error {
		for _, m := range c.mates {
			if n := len(m.worker.Status().Slots); n < crewSlots/8 {
				return fmt.Errorf("%s has %d", m.pod, n)
			}
		}
		return nil
	})
	c.load()
	return c
}

func (c *crew) connect() *nats.Conn {
	nc, err := nats.Connect(c.url)
	if err != nil {
		c.t.Fatal(err)
	}
	c.t.Cleanup(nc.Close)
	return nc
}

func (c *crew) config() partition.Config {
	return partition.Config{Name: crewGroup, Stream: crewGroup, Subject: crewGroup + ".*", Slots: crewSlots,
		Rebalance: partition.Rebalance{Expected: func() int { return 4 }, LeaveTimeout: crewGrace - 8*time.Second}}
}

// start creates a pod and runs its worker.
func (c *crew) start(pod, node string, responds bool) {
	c.t.Helper()
	m := &mate{pod: pod, node: node, nc: c.connect(), ended: make(chan struct{})}
	c.create(m)
	config := c.config()
	config.Identity.Pod, config.Identity.PodUID, config.Identity.Node = m.pod, m.uid, m.node
	var err error
	if m.worker, err = partition.New(m.nc, config, partition.HandlerFunc(func(ctx context.Context, msg partition.Message) error { return c.handle(ctx, m, msg) })); err != nil {
		c.t.Fatal(err)
	}
	var ctx context.Context
	ctx, m.terminate = context.WithCancel(context.Background())
	go func() {
		defer close(m.ended)
		_ = m.worker.Run(ctx) // one whose connection was cut ends with an error
	}()
	if responds {
		c.respond(m)
	}
	kubelet, stop := context.WithCancel(context.Background())
	finished := make(chan struct{})
	go func() {
		defer close(finished)
		c.playKubelet(kubelet, m)
	}()
	c.t.Cleanup(func() {
		stop()
		m.terminate()
		<-finished
		<-m.ended
	})
	c.mates = append(c.mates, m)
}

// create creates the pod as JSON: the types of our clients don't know the field.
func (c *crew) create(m *mate) {
	c.t.Helper()
	seconds := int64(crewGrace / time.Second)
	body, err := json.Marshal(map[string]any{"apiVersion": "v1", "kind": "Pod",
		"metadata": map[string]any{"name": m.pod, "namespace": c.namespace, "labels": map[string]string{lab.ProcessLabel: lab.ProcessOutside}},
		"spec": map[string]any{"nodeName": m.node, "terminationGracePeriodSeconds": seconds,
			"evictionResponders": []any{map[string]any{"name": responder.Name, "priority": 10000}},
			"containers":         []any{map[string]any{"name": "worker", "image": "none"}}}})
	if err != nil {
		c.t.Fatal(err)
	}
	labtest.Eventually(c.t, "creating pod "+m.pod, func() error { // its namespace may have no service account yet
		var made corev1.Pod
		err := c.admin.CoreV1().RESTClient().Post().Namespace(c.namespace).Resource("pods").Body(body).Do(c.t.Context()).Into(&made)
		m.uid = string(made.UID)
		return err
	})
}

// respond runs the worker's responder, as the pod's service account would.
func (c *crew) respond(m *mate) {
	c.t.Helper()
	rc, err := clientcmd.BuildConfigFromFlags("", c.Kubeconfig)
	if err != nil {
		c.t.Fatal(err)
	}
	transport, err := rest.TransportFor(&rest.Config{TLSClientConfig: rest.TLSClientConfig{CAData: rc.CAData}})
	if err != nil {
		c.t.Fatal(err)
	}
	r := responder.New(responder.Config{Pod: m.pod, PodUID: m.uid, Worker: m.worker, Logger: slog.New(slog.DiscardHandler), API: responder.API{URL: rc.Host, Namespace: c.namespace,
		Client: &http.Client{Transport: transport}, Token: func() (string, error) { return rc.BearerToken, nil }}})
	var ctx context.Context
	ctx, m.respond = context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() {
		defer close(done)
		r.Run(ctx)
	}()
	c.t.Cleanup(func() {
		m.respond()
		<-done
	})
}

// playKubelet does what a kubelet does when the pod's deletion begins: SIGTERM, wait for the process, at most for the grace, then the
// object goes.
func (c *crew) playKubelet(ctx context.Context, m *mate) {
	pods := c.admin.CoreV1().Pods(c.namespace)
	for ; ctx.Err() == nil; time.Sleep(20 * time.Millisecond) {
		p, err := pods.Get(ctx, m.pod, metav1.GetOptions{})
		if err != nil || p.DeletionTimestamp == nil {
			continue
		}
		c.mu.Lock()
		m.slotsAtTerm, m.termedAt = len(m.worker.Status().Slots), time.Now()
		c.mu.Unlock()
		m.terminate()
		select {
		case <-m.ended:
		case <-time.After(crewGrace):
		}
		c.mu.Lock()
		m.goneAt = time.Now()
		c.mu.Unlock()
		if err := pods.Delete(ctx, m.pod, *metav1.NewDeleteOptions(0)); err == nil {
			return
		}
	}
}

func (c *crew) handle(ctx context.Context, m *mate, msg partition.Message) error {
	c.mu.Lock()
	hold := m.hold
	c.mu.Unlock()
	if hold != nil {
		select {
		case <-hold:
		case <-ctx.Done():
			return ctx.Err()
		}
	}

	c.mu.Lock()
	defer c.mu.Unlock()
	if _, again := c.handled[string(msg.Data)]; !again {
		c.handled[string(msg.Data)] = time.Now()
	}
	return nil
}

// load publishes 100 messages a second until finish.
func (c *crew) load() {
	publisher, err := partition.Open(c.nc, crewGroup).Publisher(c.t.Context())
	if err != nil {
		c.t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() {
		defer close(done)
		tick := time.NewTicker(10 * time.Millisecond)
		defer tick.Stop()
		for i := 0; ctx.Err() == nil; i++ {
			data, at := fmt.Sprint(i), time.Now()
			if _, err := publisher.Publish(ctx, partition.Outgoing{Key: fmt.Sprint("k", i%crewKeys), Data: []byte(data)}); err == nil {
				c.mu.Lock()
				c.sent[data] = at
				c.mu.Unlock()
			}
			select {
			case <-tick.C:
			case <-ctx.Done():
			}
		}
	}()
	c.stop = sync.OnceFunc(func() {
		cancel()
		<-done
	})
	c.t.Cleanup(c.stop)
}

// finish ends the load and checks that every message was handled. It returns the p99 of the time that messages since some time took.
func (c *crew) finish(since time.Time) time.Duration {
	c.t.Helper()
	time.Sleep(time.Second) // of load after the event
	c.stop()
	labtest.Eventually(c.t, "every message is handled", func() error {
		c.mu.Lock()
		defer c.mu.Unlock()
		var lost []string
		for data := range c.sent {
			if _, ok := c.handled[data]; !ok {
				lost = append(lost, data)
			}
		}
		if len(lost) > 0 {
			return fmt.Errorf("%d of %d are not, for example %s", len(lost), len(c.sent), lost[0])
		}
		return nil
	})
	var took []time.Duration
	for data, at := range c.sent {
		if at.After(since) {
			took = append(took, c.handled[data].Sub(at))
		}
	}
	slices.Sort(took)
	p99 := took[len(took)*99/100]
	c.t.Logf("%d messages, lost 0; of %d since the drain began p99 %s, longest %s", len(c.sent), len(took), p99.Round(time.Millisecond), took[len(took)-1].Round(time.Millisecond))
	return p99
}

// on returns the workers on a node.
func (c *crew) on(n nodes.NodeRef) (out []*mate) {
	for _, m := range c.mates {
		if m.node == n.Name {
			out = append(out, m)
		}
	}
	return out
}

// request requests evictions, as the node plane does, until none is at work or the time is over, and returns how many are.
func (c *crew) request(n nodes.NodeRef, limit time.Duration) (left int) {
	c.t.Helper()
	for end := time.Now().Add(limit); ; time.Sleep(100 * time.Millisecond) {
		left, err := c.cluster.RequestEvictions(c.t.Context(), n)
		if err != nil {
			c.t.Fatal(err)
		}
		if left == 0 || time.Now().After(end) {
			return left
		}
	}
}

// drain evicts what is left on a node.
func (c *crew) drain(n nodes.NodeRef) {
	c.t.Helper()
	p, err := c.cluster.Drain(c.t.Context(), nodes.DrainRequest{Node: n, Until: time.Now().Add(2 * time.Minute)})
	if err != nil || !p.Done {
		c.t.Fatalf("drain: %+v, %v", p, err)
	}
}

func (c *crew) cordon(n nodes.NodeRef) {
	c.t.Helper()
	if err := c.cluster.Cordon(c.t.Context(), n, "test"); err != nil {
		c.t.Fatal(err)
	}
}

// checkEmptyAtTerm checks that the workers on a node had handed off before they got SIGTERM.
func (c *crew) checkEmptyAtTerm(n nodes.NodeRef) {
	c.t.Helper()
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, m := range c.on(n) {
		if m.termedAt.IsZero() || m.slotsAtTerm > 0 {
			c.t.Errorf("%s got SIGTERM at %s with %d slots", m.pod, m.termedAt, m.slotsAtTerm)
		}
	}
}

func drainWaitsForHandoff(t *testing.T, c *crew) {
	begin := time.Now()
	c.cordon(c.nodes[0])
	if left := c.request(c.nodes[0], time.Minute); left > 0 {
		t.Errorf("%d pods still respond after %s", left, time.Since(begin))
	}
	t.Logf("handed off after %s", time.Since(begin).Round(time.Millisecond))
	c.drain(c.nodes[0])
	c.checkEmptyAtTerm(c.nodes[0])
	if p99 := c.finish(begin); p99 > 2*time.Second {
		t.Errorf("p99 of the messages is %s", p99)
	}
}

func kubectlDrainHandsOff(t *testing.T, c *crew) {
	begin := time.Now()
	drained := make(chan error, 1)
	go func() {
		_, err := c.Kubectl(t.Context(), "drain", c.nodes[0].Name, "--force", "--timeout=100s")
		drained <- err
	}()
	for _, m := range c.on(c.nodes[0]) { // a ReplicaSet replaces pods as soon as their deletion begins
		labtest.Eventually(t, "SIGTERM in "+m.pod, func() error {
			c.mu.Lock()
			defer c.mu.Unlock()
			return unless(!m.termedAt.IsZero(), "not yet")
		})
		c.start(m.pod+"-next", c.nodes[1].Name, true)
	}
	if err := <-drained; err != nil {
		t.Fatal(err)
	}

	c.mu.Lock()
	for _, m := range c.on(c.nodes[0]) {
		took := m.goneAt.Sub(m.termedAt)
		t.Logf("%s got SIGTERM with %d slots and ended after %s", m.pod, m.slotsAtTerm, took.Round(time.Millisecond))
		if took <= 0 || took > crewGrace {
			t.Errorf("%s took %s to end", m.pod, took)
		}
	}
	c.mu.Unlock()
	c.finish(begin)
}

func deadResponderIsPassedOver(t *testing.T, c *crew) {
	begin := time.Now()
	victim := c.on(c.nodes[0])[0]
	hold := make(chan struct{}) // its handoff takes until then
	defer close(hold)
	c.mu.Lock()
	victim.hold = hold
	c.mu.Unlock()
	c.cordon(c.nodes[0])
	labtest.Eventually(t, "the other one has handed off, and the victim is in the middle of it", func() error {
		left, err := c.cluster.RequestEvictions(t.Context(), c.nodes[0])
		if err == nil && (left != 1 || !victim.worker.Status().Draining) {
			err = fmt.Errorf("%d respond, the victim drains: %t", left, victim.worker.Status().Draining)
		}
		return err
	})
	if len(victim.worker.Status().Slots) == 0 {
		t.Error("the victim has handed off")
	}

	// As when its process is killed: nothing is reported any more, and its slots are taken over.
	victim.respond()
	victim.nc.Close()
	if left := c.request(c.nodes[0], 3*time.Second); left != 1 {
		t.Errorf("%d pods respond, though one is dead for less than a minute", left)
	}
	c.drain(c.nodes[0]) // as the node plane does when three quarters of its time are over
	c.finish(begin)
}

func withdrawnRequestIsTakenBack(t *testing.T, c *crew) {
	begin := time.Now()
	m := c.on(c.nodes[0])[0]
	if _, err := c.cluster.RequestEvictions(t.Context(), c.nodes[0]); err != nil {
		t.Fatal(err)
	}
	labtest.Eventually(t, "the worker drains", func() error { return unless(m.worker.Status().Draining, "it does not") })
	if err := c.cluster.WithdrawEvictions(t.Context(), c.nodes[0]); err != nil {
		t.Fatal(err)
	}
	c.mu.Lock()
	terminated := !m.termedAt.IsZero()
	c.mu.Unlock()
	if !terminated { // it may have been quicker than the withdrawal
		labtest.Eventually(t, "the worker has slots again", func() error {
			s := m.worker.Status()
			c.mu.Lock()
			defer c.mu.Unlock()
			return unless(!m.termedAt.IsZero() || !s.Draining && len(s.Slots) > 0, fmt.Sprintf("it has %d, and drains: %t", len(s.Slots), s.Draining))
		})
	}
	c.finish(begin)
}

func unless(ok bool, why string) error {
	if ok {
		return nil
	}
	return fmt.Errorf("%s", why)
}

// workersAreAskedDirectly drains where nobody answers requests for evictions. As many requests as there are pods, or none, are made.
func workersAreAskedDirectly(t *testing.T, c *crew, served int) {
	begin := time.Now()
	c.cordon(c.nodes[0])
	if left := c.request(c.nodes[0], 20*time.Second); left > 0 {
		t.Errorf("%d pods are waited for", left)
	}
	requests, err := c.Kubectl(t.Context(), "get", "--raw", filepath.Join("/apis/lifecycle.k8s.io/v1alpha1/namespaces", c.namespace, "evictionrequests"))
	if made := strings.Count(requests, `"requester":"`+kube.Requester+`"`); made != served*len(c.on(c.nodes[0])) || served > 0 && err != nil {
		t.Errorf("%d requests: %s, %v", made, requests, err)
	}
	plane := workers.New(c.nc, crewGroup)
	labtest.Eventually(t, "the workers hand off", func() error {
		left, err := plane.DrainWorkers(t.Context(), c.nodes[0].Name, time.Now().Add(time.Minute))
		if err == nil && left > 0 {
			err = fmt.Errorf("%d slots are left", left)
		}
		return err
	})
	c.drain(c.nodes[0])
	c.checkEmptyAtTerm(c.nodes[0])
	if p99 := c.finish(begin); p99 > 2*time.Second {
		t.Errorf("p99 of the messages is %s", p99)
	}
}
