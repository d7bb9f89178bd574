package machines

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/muster-dev/muster/nodes/sim"
)

// ContainerSpec says what each pod of a deployment on real nodes runs.
type ContainerSpec struct {
	sim.PodSpec
	Image string
	Args  []string // $(POD_NAME) and $(NODE_NAME) stand for the pod's own
	Env   []string // NAME=VALUE
	Port  int      // at which it serves metrics
	Share string   // folder of its node that it has at the same path
}

// Containers is a Deployment on real nodes. Their kubelets run what is in the pods; this
// package only watches it. It is made by Machines.DeployContainers.
type Containers struct {
	m         *Machines
	spec      ContainerSpec
	namespace string
	name      string
	grace     time.Duration
	started   func(*Container) sim.Process

	mu     sync.Mutex
	pods   map[string]*containerPod // by name
	failed chan error               // the first
}

// containerPod is a pod with the container that runs in it now.
type containerPod struct {
	status  sim.PodStatus
	current *Container  // nil: none has run
	process sim.Process // by which the caller knows the current one
}

// DeployContainers makes a Deployment without pods. started is called with each container
// that runs, and returns how the caller is told that its machine is gone: by Kill.
func (m *Machines) DeployContainers(ctx context.Context, spec ContainerSpec, started func(*Container) sim.Process) (*Containers, error) {
	c := &Containers{m: m, spec: spec, grace: cmp.Or(spec.Grace, 30*time.Second), started: started, pods: map[string]*containerPod{}, failed: make(chan error, 1)}
	c.namespace, c.name = spec.Split()
	return c, m.create(ctx, c.namespace, c.name, c.template())
}

// template is what each pod is made from.
func (c *Containers) template() corev1.PodTemplateSpec {
	seconds, no, root := int64(c.grace/time.Second), false, int64(0)
	own := func(name, path string) corev1.EnvVar {
		return corev1.EnvVar{Name: name, ValueFrom: &corev1.EnvVarSource{FieldRef: &corev1.ObjectFieldSelector{FieldPath: path}}}
	}
	env := []corev1.EnvVar{own("POD_NAME", "metadata.name"), own("NODE_NAME", "spec.nodeName")}
	for _, e := range c.spec.Env {
		name, value, _ := strings.Cut(e, "=")
		env = append(env, corev1.EnvVar{Name: name, Value: value})
	}
	volume := corev1.Volume{Name: "share", VolumeSource: corev1.VolumeSource{HostPath: &corev1.HostPathVolumeSource{Path: c.spec.Share}}}
	return corev1.PodTemplateSpec{
		ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{"app": c.name}},
		Spec: corev1.PodSpec{
			TerminationGracePeriodSeconds: &seconds, AutomountServiceAccountToken: &no, EnableServiceLinks: &no, DNSPolicy: corev1.DNSDefault,
			Volumes: []corev1.Volume{volume},
			Containers: []corev1.Container{{
				Name: c.name, Image: c.spec.Image, ImagePullPolicy: corev1.PullNever, Args: c.spec.Args, Env: env, Resources: requests(c.spec.PodSpec),
				// The files on the shared volume are root's, who runs the rest of the stack.
				SecurityContext: &corev1.SecurityContext{RunAsUser: &root},
				VolumeMounts:    []corev1.VolumeMount{{Name: volume.Name, MountPath: c.spec.Share}},
			}},
		},
	}
}

// Scale sets the number of replicas as kubectl scale does.
func (c *Containers) Scale(ctx context.Context, n int) error {
	return c.m.scale(ctx, c.namespace, c.name, n)
}

// Pods returns the pods in the order of their names.
func (c *Containers) Pods() []sim.PodStatus {
	c.mu.Lock()
	defer c.mu.Unlock()
	out := make([]sim.PodStatus, 0, len(c.pods))
	for _, p := range c.pods {
		out = append(out, p.status)
	}
	slices.SortFunc(out, func(a, b sim.PodStatus) int { return cmp.Compare(a.Name, b.Name) })
	return out
}

// Run follows the pods until ctx ends; then it has the Deployment scaled to zero and waits
// until all containers have ended, at most for the grace of a pod and a while. The error is
// that of a pod whose container can't be made.
func (c *Containers) Run(ctx context.Context) error {
	watching, stop := context.WithCancel(context.WithoutCancel(ctx))
	defer stop()
	var watches sync.WaitGroup
	watches.Go(func() { c.m.watch(watching, &corev1.Pod{}, "pods", c.namespace, c.podChanged) })
	watches.Go(func() { c.mind(watching) })
	var err error
	select {
	case <-ctx.Done():
	case err = <-c.failed:
	}

	c.shutdown(watching)
	stop()
	watches.Wait()
	return err
}

// ending is how much longer than their grace the containers may take to be reported ended.
const ending = 15 * time.Second

func (c *Containers) shutdown(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, c.grace+ending)
	defer cancel()
	if err := c.Scale(ctx, 0); err != nil {
		c.m.failed(err)
	}
	c.mu.Lock()
	var left []*Container
	for _, p := range c.pods {
		if p.current != nil {
			left = append(left, p.current)
		}
	}
	c.mu.Unlock()
	for _, container := range left {
		select {
		case <-container.Done():
		case <-ctx.Done(): // their machines end soon
		}
	}
}

// podChanged takes in what the API shows of a pod, nil when it is gone.
func (c *Containers) podChanged(name string, o any) {
	object, _ := o.(*corev1.Pod)
	c.mu.Lock()
	defer c.mu.Unlock()
	p := c.pods[name]
	if object == nil {
		if p != nil && p.current != nil {
			p.current.end(unknownCode) // its node has let it go
		}
		delete(c.pods, name)
		return
	}
	if p == nil {
		p = &containerPod{status: sim.PodStatus{Name: name, Phase: sim.PodPending}}
		c.pods[name] = p
	}
	p.status.Node = object.Spec.NodeName

	for _, s := range object.Status.ContainerStatuses {
		c.containerChanged(p, object, s)
	}
	switch {
	case object.DeletionTimestamp != nil && p.status.Phase != sim.PodTerminating:
		p.status.Phase = sim.PodTerminating
		c.m.evicted(object)
	case object.DeletionTimestamp == nil && object.Status.Phase == corev1.PodRunning:
		p.status.Phase = sim.PodRunning
	}
}

// containerChanged takes in the state of a pod's container. A kubelet that restarts it
// reports another ID, and how the one before ended, maybe both at once.
func (c *Containers) containerChanged(p *containerPod, object *corev1.Pod, s corev1.ContainerStatus) {
	for _, t := range []*corev1.ContainerStateTerminated{s.State.Terminated, s.LastTerminationState.Terminated} {
		if t != nil && p.current != nil && t.ContainerID == p.current.id {
			p.current.end(int(t.ExitCode))
		}
	}
	if w := s.State.Waiting; w != nil && hopeless[w.Reason] {
		select {
		case c.failed <- fmt.Errorf("starting pod %s on %s: %s: %s", object.Name, object.Spec.NodeName, w.Reason, w.Message):
		default:
		}
	}
	if s.State.Running == nil || p.current != nil && p.current.id == s.ContainerID {
		return
	}

	if p.current != nil {
		p.current.end(unknownCode)
	}
	p.current = &Container{PodRun: sim.PodRun{Pod: object.Name, Node: object.Spec.NodeName, Instance: object.Spec.NodeName},
		c: c, id: s.ContainerID, uid: object.UID, done: make(chan struct{})}
	p.process = c.started(p.current)
}

// hopeless are the reasons of containers that can't be made, and so of a wrong set-up.
var hopeless = map[string]bool{"ErrImageNeverPull": true, "InvalidImageName": true, "CreateContainerConfigError": true, "RunContainerError": true}

// mind tells the caller of containers on machines that have gone: no kubelet reports those.
func (c *Containers) mind(ctx context.Context) {
	t := time.NewTicker(look)
	defer t.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-t.C:
		}
		c.mu.Lock()
		for _, p := range c.pods {
			if p.process != nil && !p.current.ended() && !c.m.region.Simulator.Instance(p.status.Node).Alive() {
				p.process.Kill()
			}
		}
		c.mu.Unlock()
	}
}

// Container is a container that a real node's kubelet runs.
type Container struct {
	sim.PodRun

	c   *Containers
	id  string
	uid types.UID

	once sync.Once
	done chan struct{}
	code int // valid after done
}

// unknownCode stands for the exit code of a container whose end was not reported.
const unknownCode = -1

// end notes how the container has ended. What comes first holds.
func (c *Container) end(code int) {
	c.once.Do(func() {
		c.code = code
		close(c.done)
	})
}

func (c *Container) ended() bool {
	select {
	case <-c.done:
		return true
	default:
		return false
	}
}

// Done is closed when the container has ended, or its machine has.
func (c *Container) Done() <-chan struct{} { return c.done }

// Code returns the container's exit code once it has ended, -1 if no node reported one.
func (c *Container) Code() int { return c.code }

// Stop deletes the pod: its kubelet sends SIGTERM, and SIGKILL after the grace.
func (c *Container) Stop() {
	err := c.c.m.core.Pods(c.c.namespace).Delete(c.c.m.ctx, c.Pod, metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &c.uid}})
	if err != nil && !apierrors.IsNotFound(err) && !apierrors.IsConflict(err) {
		c.c.m.failed(fmt.Errorf("deleting pod %s: %w", c.Pod, err))
	}
}

// Lost notes that the container's machine is gone.
func (c *Container) Lost() { c.end(unknownCode) }

// Metrics returns what the container serves at /metrics, by the API server.
func (c *Container) Metrics(ctx context.Context) ([]byte, error) {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	text, err := c.c.m.core.Pods(c.c.namespace).ProxyGet("http", c.Pod, strconv.Itoa(c.c.spec.Port), "metrics", nil).DoRaw(ctx)
	if err != nil {
		return nil, fmt.Errorf("reading the metrics of pod %s: %w", c.Pod, err)
	}
	return text, nil
}
