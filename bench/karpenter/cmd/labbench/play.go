package main

import (
	"context"
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"sync"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/muster-dev/muster/internal/lab"
	"github.com/muster-dev/muster/nodes/backtest"
)

// contender is an autoscaler.
type contender interface {
	name() string
	start(ctx context.Context, l *lab.Lab, config *rest.Config, dir string) error
	failed() error
	stop() (outcome, error)
}

// outcome is what a contender did and used.
type outcome struct {
	ledger ledger
	until  time.Time // the window ended
	usage  usage
	calls  string // by verb
	sum    int
}

// result is a contender's column of the table. Times are the trace's.
type result struct {
	Name     string
	Cost     float64
	Hours    float64
	Launched int

	Evicted  int // by the eviction API
	Lost     int // pods that ended otherwise before their time
	Placed   int // of the pods that came after the beginning
	Finished int
	Waiting  int // at the end
	P50, P99 time.Duration
	Usage    usage
	Calls    string
	Sum      int
	Versions map[string]string
}

// play runs the trace on a control plane of its own.
func play(ctx context.Context, s scene, c contender, dir string) (r result, err error) {
	release, err := lab.ReleaseOf("")
	if err != nil {
		return r, err
	}
	binary, reason := lab.Built(release)
	if reason != "" {
		return r, errors.New(reason)
	}
	home := filepath.Join(dir, "lab")
	if err := os.Mkdir(home, 0o755); err != nil {
		return r, err
	}
	l, err := lab.Run(ctx, binary, home, lab.Options{})
	if err != nil {
		return r, err
	}
	defer l.Stop()
	config, err := clientcmd.BuildConfigFromFlags("", l.Kubeconfig)
	if err != nil {
		return r, err
	}
	config.QPS = -1
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		return r, err
	}
	if err := c.start(ctx, l, config, dir); err != nil {
		return r, err
	}
	w := newWorkload(s, client)
	if err := w.run(ctx, c.failed); err != nil {
		_, stopErr := c.stop()
		return r, errors.Join(err, stopErr)
	}
	r = w.result()
	r.Name, r.Versions = c.name(), l.Versions
	o, err := c.stop()
	if err != nil {
		return r, err
	}
	r.Launched, r.Usage, r.Calls, r.Sum = len(o.ledger), o.usage, o.calls, o.sum
	r.Cost, r.Hours, err = o.ledger.bill(s, o.until)
	return r, err
}

const namespace = "default"

// workload is the pods of the trace. Each belongs to a ReplicaSet of its own, which replaces it when it is evicted and is deleted when the pod
// has run as long as it did when it was recorded.
type workload struct {
	scene  scene
	client kubernetes.Interface

	mu   sync.Mutex
	jobs []job
	errs []error
}

// job is what has become of a pod of the trace.
type job struct {
	created  time.Time // zero: not yet
	waited   time.Duration
	placed   bool
	finished bool
	pod      string      // UID of the one that runs, or ran last
	end      *time.Timer // of its run
	evicted  int
	lost     int
	seen     map[string]bool // UIDs of pods whose end is counted
}

func newWorkload(s scene, client kubernetes.Interface) *workload {
	return &workload{scene: s, client: client, jobs: make([]job, len(s.pods))}
}

const indexLabel = "labbench/pod"

// run creates the pods when it is time, until the window is over.
func (w *workload) run(ctx context.Context, failed func() error) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	factory := informers.NewSharedInformerFactoryWithOptions(w.client, 0, informers.WithNamespace(namespace))
	pods := factory.Core().V1().Pods().Informer()
	if _, err := pods.AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc:    func(o any) { w.changed(ctx, o, false) },
		UpdateFunc: func(_, o any) { w.changed(ctx, o, false) },
		DeleteFunc: func(o any) { w.changed(ctx, o, true) },
	}); err != nil {
		return err
	}
	factory.Start(ctx.Done())
	if !cache.WaitForCacheSync(ctx.Done(), pods.HasSynced) {
		return ctx.Err()
	}
	begin := time.Now()
	for i, p := range w.scene.pods {
		if err := until(ctx, begin.Add(w.scene.short(p.Created)), failed); err != nil {
			return err
		}
		if err := w.create(ctx, i, p); err != nil {
			return fmt.Errorf("creating pod %s of the trace: %w", p.Name, err)
		}
	}
	if err := until(ctx, begin.Add(w.scene.short(w.scene.window.Length())), failed); err != nil {
		return err
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	return errors.Join(w.errs...)
}

// until waits for a moment, and looks meanwhile whether the autoscaler runs.
func until(ctx context.Context, at time.Time, failed func() error) error {
	for {
		if err := failed(); err != nil {
			return err
		}
		left := time.Until(at)
		if left <= 0 {
			return nil
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(min(left, time.Second)):
		}
	}
}

func (w *workload) create(ctx context.Context, i int, p backtest.Pod) error {
	one, none, off := int32(1), int64(0), false
	labels := map[string]string{indexLabel: strconv.Itoa(i)}
	set := &appsv1.ReplicaSet{ObjectMeta: metav1.ObjectMeta{Name: setName(i)}, Spec: appsv1.ReplicaSetSpec{Replicas: &one,
		Selector: &metav1.LabelSelector{MatchLabels: labels},
		Template: corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: labels}, Spec: corev1.PodSpec{
			TerminationGracePeriodSeconds: &none, AutomountServiceAccountToken: &off,
			Containers: []corev1.Container{{Name: "pod", Image: "pod", Resources: corev1.ResourceRequirements{Requests: corev1.ResourceList{
				corev1.ResourceCPU:    *resource.NewMilliQuantity(p.MilliCPU, resource.DecimalSI),
				corev1.ResourceMemory: *resource.NewQuantity(p.Memory, resource.BinarySI)}}}}}}}}
	w.mu.Lock()
	w.jobs[i].created, w.jobs[i].seen = time.Now(), map[string]bool{}
	w.mu.Unlock()
	_, err := w.client.AppsV1().ReplicaSets(namespace).Create(ctx, set, metav1.CreateOptions{})
	return err
}

func setName(i int) string { return fmt.Sprintf("trace-%d", i) }

// changed takes in what the API shows of a pod.
func (w *workload) changed(ctx context.Context, o any, gone bool) {
	if tomb, ok := o.(cache.DeletedFinalStateUnknown); ok {
		o = tomb.Obj
	}
	pod, ok := o.(*corev1.Pod)
	if !ok {
		return
	}
	i, err := strconv.Atoi(pod.Labels[indexLabel])
	if err != nil || i < 0 || i >= len(w.jobs) {
		return // not of the trace
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	j := &w.jobs[i]
	switch uid := string(pod.UID); {
	case j.finished || j.seen[uid]:
	case gone || pod.DeletionTimestamp != nil:
		j.seen[uid] = true
		j.ended(pod)
	case pod.Spec.NodeName != "" && j.pod != uid:
		j.pod = uid
		if !j.placed {
			j.placed, j.waited = true, time.Since(j.created)
		}
		j.end = time.AfterFunc(w.scene.short(w.scene.pods[i].Runs), func() { w.finish(ctx, i, uid) })
	}
}

// ended counts a pod that has ended before its time; the next one starts over.
func (j *job) ended(pod *corev1.Pod) {
	if j.end != nil {
		j.end.Stop()
	}
	if slices.ContainsFunc(pod.Status.Conditions, func(c corev1.PodCondition) bool {
		return c.Type == corev1.DisruptionTarget && c.Reason == "EvictionByEvictionAPI"
	}) {
		j.evicted++
		return
	}
	j.lost++
}

// finish deletes the ReplicaSet of a pod that has run for its time.
func (w *workload) finish(ctx context.Context, i int, uid string) {
	w.mu.Lock()
	j := &w.jobs[i]
	over := j.pod == uid && !j.seen[uid] && !j.finished
	j.finished = j.finished || over
	w.mu.Unlock()
	if !over {
		return // it was evicted at the same moment
	}
	background := metav1.DeletePropagationBackground
	err := w.client.AppsV1().ReplicaSets(namespace).Delete(ctx, setName(i), metav1.DeleteOptions{PropagationPolicy: &background})
	if err != nil && !apierrors.IsNotFound(err) && ctx.Err() == nil {
		w.mu.Lock()
		w.errs = append(w.errs, err)
		w.mu.Unlock()
	}
}

// result sums up. The pods that are there when the window begins count as evicted and as finished, and their waiting does not count.
func (w *workload) result() result {
	w.mu.Lock()
	defer w.mu.Unlock()
	var r result
	var waits []time.Duration
	for i, j := range w.jobs {
		if j.end != nil {
			j.end.Stop()
		}
		r.Evicted += j.evicted
		r.Lost += j.lost
		if j.finished {
			r.Finished++
		}
		switch {
		case !j.placed:
			r.Waiting++
		case w.scene.pods[i].Created > 0:
			r.Placed++
			waits = append(waits, time.Duration(float64(j.waited)*w.scene.speed))
		}
	}
	slices.Sort(waits)
	r.P50, r.P99 = percentile(waits, 0.5), percentile(waits, 0.99)
	return r
}

// percentile is the smallest of sorted times that at least this share is not above.
func percentile(sorted []time.Duration, share float64) time.Duration {
	if len(sorted) == 0 {
		return 0
	}
	return sorted[max(int(math.Ceil(share*float64(len(sorted)))), 1)-1]
}
