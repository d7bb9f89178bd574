package machines

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/muster-dev/muster/internal/lab"
	"github.com/muster-dev/muster/nodes/sim"
)

// crashBackOff is how long a process that ended by itself isn't started again.
const crashBackOff = 10 * time.Second

// Deployment is a real Deployment in whose pods real processes run: this package is the kubelet that starts them when their pod is
// Running, tells them to stop when its deletion begins, and lets the pod go when they have ended or its grace is over.
type Deployment struct {
	m         *Machines
	namespace string
	name      string
	grace     time.Duration
	start     func(sim.PodRun) (sim.Process, error)

	mu      sync.Mutex
	pods    map[string]*pod // by name
	failed  chan error      // the first
	running sync.WaitGroup
}

// pod is a pod with its process.
type pod struct {
	uid     types.UID
	status  sim.PodStatus
	process sim.Process
	ending  bool
	gone    chan struct{} // closed when the object is gone
}

// Deploy makes a Deployment without pods. spec is of each pod; its Name is the deployment's, namespace/name, its Grace the pods'
// termination grace period, by default 30 s. start starts a pod's process and must not wait for it to be ready.
func (m *Machines) Deploy(ctx context.Context, spec sim.PodSpec, start func(sim.PodRun) (sim.Process, error)) (*Deployment, error) {
	d := &Deployment{m: m, grace: cmp.Or(spec.Grace, 30*time.Second), start: start, pods: map[string]*pod{}, failed: make(chan error, 1)}
	d.namespace, d.name = spec.Split()
	seconds, token := int64(d.grace/time.Second), false
	template := corev1.PodTemplateSpec{
		ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{"app": d.name, lab.ProcessLabel: lab.ProcessOutside}},
		Spec: corev1.PodSpec{TerminationGracePeriodSeconds: &seconds, AutomountServiceAccountToken: &token, Containers: []corev1.Container{{
			Name: d.name, Image: "muster", Resources: requests(spec),
		}}},
	}
	return d, m.create(ctx, d.namespace, d.name, template)
}

// create creates a Deployment without pods, and its namespace. The template needs the label
// app with the deployment's name.
func (m *Machines) create(ctx context.Context, namespace, name string, template corev1.PodTemplateSpec) error {
	ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: namespace}}
	if _, err := m.core.Namespaces().Create(ctx, ns, metav1.CreateOptions{}); err != nil && !apierrors.IsAlreadyExists(err) {
		return fmt.Errorf("creating namespace %s: %w", namespace, err)
	}

	none, labels := int32(0), map[string]string{"app": name}
	object := &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: appsv1.DeploymentSpec{Replicas: &none, Selector: &metav1.LabelSelector{MatchLabels: labels}, Template: template}}
	return m.until(func(context.Context) error { // a namespace takes a moment to be usable
		if _, err := m.apps.Deployments(namespace).Create(ctx, object, metav1.CreateOptions{}); err != nil && !apierrors.IsAlreadyExists(err) {
			return fmt.Errorf("creating deployment %s: %w", name, err)
		}
		return nil
	})
}

// scale sets the number of a Deployment's replicas as kubectl scale does.
func (m *Machines) scale(ctx context.Context, namespace, name string, n int) error {
	if _, err := m.lab.Kubectl(ctx, "-n", namespace, "scale", "deployment", name, fmt.Sprint("--replicas=", n)); err != nil {
		return fmt.Errorf("scaling %s: %w", name, err)
	}
	return nil
}

// requests are what a pod asks for.
func requests(spec sim.PodSpec) corev1.ResourceRequirements {
	return corev1.ResourceRequirements{Requests: corev1.ResourceList{
		corev1.ResourceCPU: *resource.NewMilliQuantity(spec.MilliCPU, resource.DecimalSI), corev1.ResourceMemory: *resource.NewQuantity(spec.Memory, resource.BinarySI)}}
}

// evicted notes the eviction of a pod whose deletion has begun, if a drain did it.
func (m *Machines) evicted(object *corev1.Pod) {
	if !slices.ContainsFunc(object.Status.Conditions, func(c corev1.PodCondition) bool {
		return c.Type == corev1.DisruptionTarget && c.Reason == "EvictionByEvictionAPI"
	}) {
		return
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.note(sim.Entry{Kind: sim.Evicted, Instance: object.Spec.NodeName, Detail: object.Namespace + "/" + object.Name})
}

// Scale sets the number of replicas as kubectl scale does.
func (d *Deployment) Scale(ctx context.Context, n int) error {
	return d.m.scale(ctx, d.namespace, d.name, n)
}

// Pods returns the pods in the order of their names.
func (d *Deployment) Pods() []sim.PodStatus {
	d.mu.Lock()
	defer d.mu.Unlock()
	out := make([]sim.PodStatus, 0, len(d.pods))
	for _, p := range d.pods {
		out = append(out, p.status)
	}
	slices.SortFunc(out, func(a, b sim.PodStatus) int { return cmp.Compare(a.Name, b.Name) })
	return out
}

// Run runs the pods' processes until ctx ends; then it tells every process to stop and waits until all have, at most for the grace of
// a pod, after which it kills them. The error is that of a process that could not be started.
func (d *Deployment) Run(ctx context.Context) error {
	watching, stop := context.WithCancel(ctx)
	defer stop()
	var watches sync.WaitGroup
	watches.Go(func() { d.m.watch(watching, &corev1.Pod{}, "pods", d.namespace, d.podChanged) })
	watches.Go(func() { d.mind(watching) })
	var err error
	select {
	case <-ctx.Done():
	case err = <-d.failed:
	}
	stop()
	watches.Wait()
	d.shutdown()
	return err
}

func (d *Deployment) shutdown() {
	d.mu.Lock()
	var left []sim.Process
	for _, p := range d.pods {
		if p.process != nil {
			left = append(left, p.process)
		}
		if !p.ending { // a caller that waits for its deletion need not
			p.ending = true
			close(p.gone)
		}
	}
	d.mu.Unlock()
	sim.StopAll(left, d.grace)
	d.running.Wait()
}

// podChanged does what a kubelet does about a pod.
func (d *Deployment) podChanged(name string, o any) {
	object, _ := o.(*corev1.Pod)
	d.mu.Lock()
	defer d.mu.Unlock()
	p := d.pods[name]
	if object == nil {
		if p != nil {
			if p.process != nil {
				p.process.Kill() // too late for anything else, if it still runs
			}
			if !p.ending {
				p.ending = true
				close(p.gone)
			}
			delete(d.pods, name)
		}
		return
	}
	if p == nil {
		p = &pod{uid: object.UID, gone: make(chan struct{}), status: sim.PodStatus{Name: name, Phase: sim.PodPending}}
		d.pods[name] = p
	}
	p.status.Node = object.Spec.NodeName
	switch {
	case object.DeletionTimestamp != nil:
		d.end(p, object)
	case object.Status.Phase == corev1.PodRunning:
		p.status.Phase = sim.PodRunning
		d.run(p)
	}
}

// run starts the process of a pod, unless it has one.
func (d *Deployment) run(p *pod) {
	if p.process != nil {
		return
	}
	process, err := d.start(sim.PodRun{Pod: p.status.Name, Node: p.status.Node, Instance: p.status.Node})
	if err != nil {
		select {
		case d.failed <- fmt.Errorf("starting pod %s on %s: %w", p.status.Name, p.status.Node, err):
		default:
		}
		return
	}
	p.process = process
	d.running.Go(func() { d.restart(p, process) })
}

// restart restarts a process that ended by itself, later.
func (d *Deployment) restart(p *pod, process sim.Process) {
	<-process.Done()
	select {
	case <-p.gone:
		return
	case <-time.After(crashBackOff):
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if !p.ending && p.process == process {
		p.process = nil
		d.run(p)
	}
}

// end begins the end of a pod whose deletion has begun.
func (d *Deployment) end(p *pod, object *corev1.Pod) {
	if p.ending {
		return
	}
	p.ending = true
	p.status.Phase = sim.PodTerminating
	d.m.evicted(object)
	close(p.gone)
	process := p.process
	if process != nil {
		process.Stop()
	}
	name, uid := p.status.Name, p.uid
	d.running.Go(func() {
		if process != nil {
			select {
			case <-process.Done():
			case <-time.After(d.grace):
				process.Kill()
				<-process.Done()
			}
		}
		d.release(name, uid)
	})
}

// release tells the API that a pod's process has ended, as a kubelet does.
func (d *Deployment) release(name string, uid types.UID) {
	now := int64(0)
	err := d.m.core.Pods(d.namespace).Delete(d.m.ctx, name, metav1.DeleteOptions{GracePeriodSeconds: &now, Preconditions: &metav1.Preconditions{UID: &uid}})
	if err != nil && !apierrors.IsNotFound(err) && !apierrors.IsConflict(err) {
		d.m.failed(fmt.Errorf("letting go of pod %s: %w", name, err))
	}
}

// mind kills the processes on machines that have gone.
func (d *Deployment) mind(ctx context.Context) {
	t := time.NewTicker(look)
	defer t.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-t.C:
		}
		alive := map[string]bool{}
		for _, in := range d.m.region.Simulator.Instances() {
			alive[in.ID] = in.Alive()
		}
		d.mu.Lock()
		for _, p := range d.pods {
			if p.process != nil && !alive[p.status.Node] {
				p.process.Kill()
			}
		}
		d.mu.Unlock()
	}
}
