package deploy

import (
	"context"
	"fmt"
	"maps"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	corev1client "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/muster-dev/muster/internal/component"
	"github.com/muster-dev/muster/internal/lab"
)

// kubelet is the kubelet of one node of a laboratory. It runs a real process for each pod of one app, with the arguments,
// environment, readiness probe and grace period that the pod states. Pods of other apps stay pending.
//
// Like a kubelet it reports what it sees at each look, so a report that is lost or overwritten is made again.
type kubelet struct {
	client  *corev1client.CoreV1Client
	node    string
	app     string
	program string // that stands for the image, whatever its tag
	logs    string // folder

	mu     sync.Mutex
	pods   map[types.UID]*podProcess
	errs   []error
	fewest int // pods that were ready at a look since watch
}

// podProcess is the process of a pod.
type podProcess struct {
	cmd      *exec.Cmd
	address  string // that it serves at, in place of its port
	ended    <-chan struct{}
	wasReady time.Time // when its probe last succeeded
	stopping bool
}

// startKubelet registers a node and runs its pods until the test's end.
func startKubelet(t *testing.T, l *lab.Lab, app, program string) *kubelet {
	t.Helper()
	config, err := clientcmd.BuildConfigFromFlags("", l.Kubeconfig)
	if err != nil {
		t.Fatal(err)
	}
	config.QPS = -1
	client, err := corev1client.NewForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	k := &kubelet{client: client, node: "worker-1", app: app, program: program, logs: t.TempDir(), pods: map[types.UID]*podProcess{}}
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: k.node, Labels: map[string]string{corev1.LabelHostname: k.node}}}
	if _, err := client.Nodes().Create(t.Context(), node, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(context.WithoutCancel(t.Context()))
	var running sync.WaitGroup
	running.Go(func() { k.every(ctx, time.Second, k.heartbeat) })
	running.Go(func() { k.every(ctx, 50*time.Millisecond, k.look) })
	t.Cleanup(func() {
		stop()
		running.Wait()
		k.mu.Lock()
		defer k.mu.Unlock()
		for _, p := range k.pods {
			_ = p.cmd.Process.Kill() // it may have ended
			<-p.ended
		}
		for _, err := range k.errs {
			t.Error(err)
		}
	})
	return k
}

func (k *kubelet) every(ctx context.Context, interval time.Duration, do func(context.Context) error) {
	tick := time.NewTicker(interval)
	defer tick.Stop()
	for {
		// What others changed meanwhile is seen at the next look.
		if err := do(ctx); err != nil && ctx.Err() == nil && !apierrors.IsConflict(err) && !apierrors.IsNotFound(err) {
			k.mu.Lock()
			k.errs = append(k.errs, fmt.Errorf("the kubelet: %w", err))
			k.mu.Unlock()
			return
		}
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
	}
}

// heartbeat reports that the node is ready.
func (k *kubelet) heartbeat(ctx context.Context) error {
	node, err := k.client.Nodes().Get(ctx, k.node, metav1.GetOptions{})
	if err != nil {
		return err
	}
	now := metav1.Now()
	node.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue, Reason: "KubeletReady", LastHeartbeatTime: now, LastTransitionTime: now}}
	node.Status.Capacity = corev1.ResourceList{
		corev1.ResourceCPU: resource.MustParse("64"), corev1.ResourceMemory: resource.MustParse("256Gi"), corev1.ResourcePods: resource.MustParse("110"),
	}
	node.Status.Allocatable = node.Status.Capacity
	_, err = k.client.Nodes().UpdateStatus(ctx, node, metav1.UpdateOptions{})
	return err
}

// look brings the processes in line with the pods, and the pods' states in line with the processes.
func (k *kubelet) look(ctx context.Context) error {
	pods, err := k.client.Pods(metav1.NamespaceAll).List(ctx, metav1.ListOptions{LabelSelector: "app=" + k.app, FieldSelector: "spec.nodeName=" + k.node})
	if err != nil {
		return err
	}
	ready := 0
	for _, pod := range pods.Items {
		isReady, err := k.mind(ctx, &pod)
		if err != nil {
			return err
		}
		if isReady {
			ready++
		}
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	k.fewest = min(k.fewest, ready)
	return nil
}

// watch begins to count the fewest pods that are ready at a time.
func (k *kubelet) watch() {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.fewest = 1 << 30
}

// fewestReady returns the fewest pods that were ready at a time since watch.
func (k *kubelet) fewestReady() int {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.fewest
}

// mind starts, probes, stops or lets go of one pod, and reports whether it is ready and not on its way out.
func (k *kubelet) mind(ctx context.Context, pod *corev1.Pod) (ready bool, err error) {
	k.mu.Lock()
	p := k.pods[pod.UID]
	k.mu.Unlock()
	if pod.DeletionTimestamp != nil {
		return false, k.end(ctx, pod, p)
	}
	if p == nil {
		if p, err = k.start(ctx, pod); err != nil {
			return false, fmt.Errorf("starting pod %s: %w", pod.Name, err)
		}
		k.mu.Lock()
		k.pods[pod.UID] = p
		k.mu.Unlock()
	}
	select {
	case <-p.ended:
		return false, fmt.Errorf("the process of pod %s ended by itself: %s, see %s", pod.Name, p.cmd.ProcessState, filepath.Join(k.logs, pod.Name))
	default:
	}
	// As the probe states: one failure makes no ready pod unready. A defender that claims the name it waited for isn't
	// ready for a moment.
	readiness := pod.Spec.Containers[0].ReadinessProbe
	if probe(ctx, "http://"+p.address+readiness.HTTPGet.Path) {
		p.wasReady = time.Now()
	}
	ready = time.Since(p.wasReady) < time.Duration(readiness.FailureThreshold*readiness.PeriodSeconds)*time.Second
	return ready, k.report(ctx, pod, ready)
}

// probe asks a process once whether it is ready.
func probe(ctx context.Context, url string) bool {
	ctx, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return false
	}
	res, err := http.DefaultClient.Do(r)
	if err != nil {
		return false
	}
	_ = res.Body.Close()
	return res.StatusCode == http.StatusOK
}

// start starts the process of a pod.
func (k *kubelet) start(ctx context.Context, pod *corev1.Pod) (*podProcess, error) {
	container := pod.Spec.Containers[0]
	env, err := environment(ctx, k.client, pod)
	if err != nil {
		return nil, err
	}
	port, err := component.FreePort()
	if err != nil {
		return nil, err
	}
	p := &podProcess{address: fmt.Sprintf("127.0.0.1:%d", port)}
	// All pods share this machine's addresses, so each gets a port of its own in place of its container's.
	own := fmt.Sprintf(":%d", container.Ports[0].ContainerPort)
	var args []string
	for _, arg := range container.Args {
		for name, value := range env {
			arg = strings.ReplaceAll(arg, "$("+name+")", value)
		}
		if arg == own {
			arg = p.address
		}
		args = append(args, arg)
	}
	log, err := os.Create(filepath.Join(k.logs, pod.Name))
	if err != nil {
		return nil, err
	}
	defer func() { _ = log.Close() }() // the process has its own
	p.cmd = exec.Command(k.program, args...)
	p.cmd.Stdout, p.cmd.Stderr = log, log
	p.cmd.Dir = k.logs
	for _, name := range slices.Sorted(maps.Keys(env)) {
		p.cmd.Env = append(p.cmd.Env, name+"="+env[name])
	}
	if p.ended, err = component.StartTethered(p.cmd); err != nil {
		return nil, err
	}
	return p, nil
}

// environment returns the variables that a pod's container has.
func environment(ctx context.Context, client *corev1client.CoreV1Client, pod *corev1.Pod) (map[string]string, error) {
	out := map[string]string{}
	container := pod.Spec.Containers[0]
	for _, from := range container.EnvFrom {
		m, err := client.ConfigMaps(pod.Namespace).Get(ctx, from.ConfigMapRef.Name, metav1.GetOptions{})
		if err != nil {
			return nil, err
		}
		maps.Copy(out, m.Data)
	}
	for _, e := range container.Env {
		switch from := e.ValueFrom; {
		case from == nil:
			out[e.Name] = e.Value
		case from.FieldRef != nil:
			out[e.Name] = map[string]string{"metadata.name": pod.Name, "spec.nodeName": pod.Spec.NodeName}[from.FieldRef.FieldPath]
		case from.SecretKeyRef != nil:
			s, err := client.Secrets(pod.Namespace).Get(ctx, from.SecretKeyRef.Name, metav1.GetOptions{})
			if err != nil {
				return nil, err
			}
			out[e.Name] = string(s.Data[from.SecretKeyRef.Key])
		}
	}
	return out, nil
}

// report writes the state of a pod whose process runs, if that is not yet known.
func (k *kubelet) report(ctx context.Context, pod *corev1.Pod, ready bool) error {
	status := corev1.ConditionFalse
	if ready {
		status = corev1.ConditionTrue
	}
	known := slices.ContainsFunc(pod.Status.Conditions, func(c corev1.PodCondition) bool { return c.Type == corev1.PodReady && c.Status == status })
	if known && pod.Status.Phase == corev1.PodRunning {
		return nil
	}
	now := metav1.Now()
	for _, kind := range []corev1.PodConditionType{corev1.PodInitialized, corev1.ContainersReady, corev1.PodReady} {
		c := corev1.PodCondition{Type: kind, Status: status, LastTransitionTime: now}
		if kind == corev1.PodInitialized {
			c.Status = corev1.ConditionTrue
		}
		pod.Status.Conditions = slices.DeleteFunc(pod.Status.Conditions, func(c corev1.PodCondition) bool { return c.Type == kind })
		pod.Status.Conditions = append(pod.Status.Conditions, c)
	}
	started := true
	container := pod.Spec.Containers[0]
	pod.Status.Phase = corev1.PodRunning
	pod.Status.ContainerStatuses = []corev1.ContainerStatus{{Name: container.Name, Image: container.Image, Ready: ready, Started: &started,
		State: corev1.ContainerState{Running: &corev1.ContainerStateRunning{StartedAt: now}}}}
	_, err := k.client.Pods(pod.Namespace).UpdateStatus(ctx, pod, metav1.UpdateOptions{})
	return err
}

// end stops the process of a pod whose deletion has begun, and lets the pod go when the process has ended or its grace is over.
func (k *kubelet) end(ctx context.Context, pod *corev1.Pod, p *podProcess) error {
	if p != nil && !p.stopping {
		p.stopping = true
		_ = p.cmd.Process.Signal(syscall.SIGTERM) // it may have ended
	}
	if p != nil {
		select {
		case <-p.ended:
		default:
			if time.Now().Before(pod.DeletionTimestamp.Time) {
				return nil
			}
			_ = p.cmd.Process.Kill()
			<-p.ended
		}
	}
	now := int64(0)
	err := k.client.Pods(pod.Namespace).Delete(ctx, pod.Name, metav1.DeleteOptions{GracePeriodSeconds: &now, Preconditions: &metav1.Preconditions{UID: &pod.UID}})
	if apierrors.IsNotFound(err) {
		return nil
	}
	return err
}
