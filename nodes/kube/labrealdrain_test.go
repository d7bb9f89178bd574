package kube_test

import (
	"bytes"
	"context"
	"flag"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"

	"github.com/muster-dev/muster/internal/lab"
	"github.com/muster-dev/muster/internal/lab/labtest"
	"github.com/muster-dev/muster/nodes"
	"github.com/muster-dev/muster/nodes/kube"
)

var drainTable = flag.String("table.drains", "", "write the table of drains of real nodes to this file")

// What becomes of a pod whose node is drained.
const (
	isEvicted = "evicted"
	isLeft    = "left alone"
	isRefused = "the drain is refused"
	isAwaited = "waited for until the limit"
)

// drainers drain a real node each.
var drainers = []struct {
	name, title string
	drain       func(*testing.T, *laboratory, nodes.NodeRef) (done, refused bool)
}{
	{"muster", "Muster", drainByMuster(kube.Rules{})},
	{"muster-evict", "with both settings `evict`", drainByMuster(kube.Rules{BarePods: kube.Evict, LocalStorage: kube.Evict})},
	{"kubectl", "kubectl drain --ignore-daemonsets", drainByKubectl()},
	{"kubectl-force", "with --force --delete-emptydir-data", drainByKubectl("--force", "--delete-emptydir-data")},
}

// drainLimit is how long a drain may take that waits for something.
const drainLimit = 12 * time.Second

func drainByMuster(rules kube.Rules) func(*testing.T, *laboratory, nodes.NodeRef) (bool, bool) {
	return func(t *testing.T, l *laboratory, n nodes.NodeRef) (done, refused bool) {
		c := l.cluster(t, rules)
		claim(t, c, n)
		p, err := c.Drain(t.Context(), nodes.DrainRequest{Node: n, Until: time.Now().Add(drainLimit)})
		why, refused := nodes.IsDrainBlocked(err)
		if err != nil && !refused {
			t.Fatal(err)
		}
		t.Logf("%+v %s", p, why)
		if err := c.Uncordon(t.Context(), n, "test"); err != nil {
			t.Fatal(err)
		}
		return p.Done, refused
	}
}

func drainByKubectl(switches ...string) func(*testing.T, *laboratory, nodes.NodeRef) (bool, bool) {
	return func(t *testing.T, l *laboratory, n nodes.NodeRef) (done, refused bool) {
		out, err := l.Kubectl(t.Context(), append([]string{"drain", n.Name, "--ignore-daemonsets", "--timeout=" + drainLimit.String()}, switches...)...)
		t.Logf("%s %v", out, err)
		if _, err := l.Kubectl(t.Context(), "uncordon", n.Name); err != nil {
			t.Fatal(err)
		}
		late := err != nil && strings.Contains(err.Error(), "global timeout reached")
		return err == nil, err != nil && !late
	}
}

// drained is a kind of pod.
type drained struct {
	pod     string // in the table
	make    func(t *testing.T, l *laboratory, namespace, app, node string) corev1.PodPhase
	system  bool // it is in kube-system
	lasts   time.Duration
	fates   [4]string // by drainer
	wrote   string    // its container, once it was told to end
	differs string    // why Muster's rule differs from kubectl's
}

var everyone = func(fate string) [4]string { return [4]string{fate, fate, fate, fate} }

func drainedPods() []drained {
	const (
		endsItself = "SIGTERM\ndone\n"
		isKilled   = "SIGTERM\n"
		notBack    = "the node that kubectl drains comes back, Muster's does not"
	)
	workload := func(change ...func(*corev1.PodTemplateSpec)) func(*testing.T, *laboratory, string, string, string) corev1.PodPhase {
		return func(t *testing.T, l *laboratory, namespace, app, node string) corev1.PodPhase {
			one := int32(1)
			labtest.Create(t, l.admin.AppsV1().Deployments(namespace).Create, &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Name: app},
				Spec: appsv1.DeploymentSpec{Replicas: &one, Selector: selecting(app), Template: serving(app, node, change...)}})
			return corev1.PodRunning
		}
	}
	settings := [4]string{isRefused, isEvicted, isRefused, isEvicted}
	strict := [4]string{isRefused, isRefused, isEvicted, isEvicted}
	return []drained{
		{pod: "of a Deployment", make: workload(), fates: everyone(isEvicted), wrote: endsItself},
		{pod: "of a DaemonSet", make: realDaemon, fates: everyone(isLeft)},
		{pod: "static (its mirror pod)", make: nil, fates: everyone(isLeft)},
		{pod: "finished, of a Job", make: realJob, fates: [4]string{isLeft, isLeft, isEvicted, isEvicted},
			differs: "it holds nothing, and goes with its node"},
		{pod: "without a controller", make: realBare, fates: settings, wrote: endsItself},
		{pod: "protected by a disruption budget", make: budgeted(workload()), fates: everyone(isAwaited)},
		{pod: "critical priority", make: workload(priority("system-cluster-critical")), fates: strict, wrote: endsItself,
			differs: "the rule: such pods abort a scale-down"},
		{pod: "in kube-system", make: workload(), system: true, fates: strict, wrote: endsItself,
			differs: "the same rule"},
		{pod: "emptyDir", make: workload(scratch), fates: settings, wrote: endsItself},
		{pod: "hostPath", make: workload(hostPath), fates: [4]string{isRefused, isEvicted, isEvicted, isEvicted}, wrote: endsItself, differs: notBack},
		{pod: "local PersistentVolume", make: claiming, fates: [4]string{isRefused, isEvicted, isEvicted, isEvicted}, wrote: endsItself, differs: notBack},
		{pod: "ignores SIGTERM, grace 4 s", make: workload(grace(4*time.Second), stubborn), lasts: 4 * time.Second, fates: everyone(isEvicted), wrote: isKilled},
		{pod: "its preStop hook outlasts its grace of 4 s", make: workload(grace(4*time.Second), slowHook), lasts: 4 * time.Second, fates: everyone(isEvicted), wrote: endsItself},
		{pod: "a finalizer holds it", make: workload(held), fates: [4]string{isEvicted, isEvicted, isAwaited, isAwaited}, wrote: endsItself,
			differs: "the kubelet has deleted it and unmounted its volumes: the rest needs no node"},
	}
}

// serving is a pod of our image that runs on one real node only, and ends when it is told.
func serving(app, node string, change ...func(*corev1.PodTemplateSpec)) corev1.PodTemplateSpec {
	p := template(app, node, grace(20*time.Second))
	c := &p.Spec.Containers[0]
	c.Image, c.ImagePullPolicy, c.Command = lab.PodImage, corev1.PullNever, []string{"/pod", "serve", "100ms"}
	for _, f := range change {
		f(&p)
	}
	return p
}

func stubborn(p *corev1.PodTemplateSpec) {
	p.Spec.Containers[0].Command = []string{"/pod", "serve", "1h"}
}

func slowHook(p *corev1.PodTemplateSpec) {
	p.Spec.Containers[0].Lifecycle = &corev1.Lifecycle{PreStop: &corev1.LifecycleHandler{Exec: &corev1.ExecAction{Command: []string{"/pod", "serve", "1h"}}}}
}

func held(p *corev1.PodTemplateSpec) { p.Finalizers = []string{"lab.muster.dev/held"} }

func hostPath(p *corev1.PodTemplateSpec) {
	p.Spec.Volumes = []corev1.Volume{{Name: "local", VolumeSource: corev1.VolumeSource{HostPath: &corev1.HostPathVolumeSource{Path: localFolder}}}}
}

func realDaemon(t *testing.T, l *laboratory, namespace, app, node string) corev1.PodPhase {
	labtest.Create(t, l.admin.AppsV1().DaemonSets(namespace).Create, &appsv1.DaemonSet{ObjectMeta: metav1.ObjectMeta{Name: app},
		Spec: appsv1.DaemonSetSpec{Selector: selecting(app), Template: serving(app, node)}})
	return corev1.PodRunning
}

// realJob makes a Job whose pod has finished: it knows no such argument.
func realJob(t *testing.T, l *laboratory, namespace, app, node string) corev1.PodPhase {
	p, once := serving(app, node), int32(0)
	p.Spec.Containers[0].Command, p.Spec.RestartPolicy = []string{"/pod", "finish"}, corev1.RestartPolicyNever
	labtest.Create(t, l.admin.BatchV1().Jobs(namespace).Create, &batchv1.Job{ObjectMeta: metav1.ObjectMeta{Name: app},
		Spec: batchv1.JobSpec{BackoffLimit: &once, Template: p}})
	return corev1.PodFailed
}

func realBare(t *testing.T, l *laboratory, namespace, app, node string) corev1.PodPhase {
	p := serving(app, node)
	labtest.Create(t, l.admin.CoreV1().Pods(namespace).Create, &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: app, Labels: p.Labels}, Spec: p.Spec})
	return corev1.PodRunning
}

// budgeted adds a disruption budget that allows none.
func budgeted(workload func(*testing.T, *laboratory, string, string, string) corev1.PodPhase) func(*testing.T, *laboratory, string, string, string) corev1.PodPhase {
	return func(t *testing.T, l *laboratory, namespace, app, node string) corev1.PodPhase {
		phase := workload(t, l, namespace, app, node)
		l.phase(t, namespace, app, phase, 1)
		l.budget(t, namespace, app, app, 1)
		return phase
	}
}

const localFolder = "/var/lib/local"

// claiming makes a workload whose data is on a volume of its node, as K3s' own provisioner
// of volumes has it.
func claiming(t *testing.T, l *laboratory, namespace, app, node string) corev1.PodPhase {
	gigabyte := corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("1Gi")}
	once := []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce}
	labtest.Create(t, l.admin.CoreV1().PersistentVolumes().Create, &corev1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Name: app}, Spec: corev1.PersistentVolumeSpec{
		Capacity: gigabyte, AccessModes: once, StorageClassName: app,
		PersistentVolumeSource: corev1.PersistentVolumeSource{Local: &corev1.LocalVolumeSource{Path: localFolder}},
		NodeAffinity: &corev1.VolumeNodeAffinity{Required: &corev1.NodeSelector{NodeSelectorTerms: []corev1.NodeSelectorTerm{{
			MatchExpressions: []corev1.NodeSelectorRequirement{{Key: corev1.LabelHostname, Operator: corev1.NodeSelectorOpIn, Values: []string{node}}}}}}},
	}})
	labtest.Create(t, l.admin.CoreV1().PersistentVolumeClaims(namespace).Create, &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Name: app},
		Spec: corev1.PersistentVolumeClaimSpec{AccessModes: once, StorageClassName: &app, VolumeName: app, Resources: corev1.VolumeResourceRequirements{Requests: gigabyte}}})
	one := int32(1)
	p := serving(app, node)
	p.Spec.Volumes = []corev1.Volume{{Name: "data", VolumeSource: corev1.VolumeSource{PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: app}}}}
	p.Spec.Containers[0].VolumeMounts = []corev1.VolumeMount{{Name: "data", MountPath: "/data"}}
	labtest.Create(t, l.admin.AppsV1().Deployments(namespace).Create, &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Name: app},
		Spec: appsv1.DeploymentSpec{Replicas: &one, Selector: selecting(app), Template: p}})
	return corev1.PodRunning
}

// joinWithStatic is the user data of a machine that joins and has a static pod.
const joinWithStatic = `set -e
mkdir -p /etc/rancher/k3s/config.yaml.d /etc/rancher/static %[4]s
echo %[2]s >/etc/rancher/k3s/token
cat >/etc/rancher/static/static.yaml <<END
apiVersion: v1
kind: Pod
metadata: {name: static, namespace: default, labels: {app: static-%[1]s}}
spec:
  containers:
  - {name: main, image: "%[5]s", imagePullPolicy: Never, command: [/pod, serve, 0s]}
END
cat >/etc/rancher/k3s/config.yaml.d/50-test.yaml <<END
server: %[3]s
token-file: /etc/rancher/k3s/token
node-name: %[1]s
kubelet-arg+:
  - pod-manifest-path=/etc/rancher/static
  - provider-id=aws:///a/%[1]s
END
INSTALL_K3S_EXEC=agent sh /usr/local/bin/k3s-install.sh
`

// TestRealNodes_drain drains real nodes by Muster and by kubectl, with the same pods on each:
// their containers run, and are told to end by real kubelets.
func TestRealNodes_drain(t *testing.T) {
	l := newLaboratory(t, lab.Options{RealNodes: true})
	refs := map[string]nodes.NodeRef{}
	for _, d := range drainers {
		id := "i-" + d.name
		if _, err := l.Boot(t.Context(), lab.Machine{ID: id, Memory: 1 << 30, UserData: fmt.Sprintf(joinWithStatic, id, l.JoinToken, l.Server, localFolder, lab.PodImage)}); err != nil {
			t.Fatal(err)
		}
	}
	c := l.cluster(t, kube.Rules{})
	for _, d := range drainers {
		labtest.Eventually(t, d.name+" is Ready", func() error {
			n := seen(t, c, "i-"+d.name)
			if !n.Ready || len(n.Taints) > 0 {
				s, _ := l.Inspect(t.Context(), "i-"+d.name)
				return fmt.Errorf("%+v; its console: %s", n, s.Console)
			}
			refs[d.name] = n.NodeRef
			return nil
		})
		l.phase(t, "default", "static-i-"+d.name, corev1.PodRunning, 1)
	}

	all := drainedPods()
	for i, p := range all {
		t.Run(p.pod, func(t *testing.T) {
			for j, d := range drainers {
				t.Run(d.name, func(t *testing.T) {
					t.Parallel()
					drainOne(t, l, fmt.Sprintf("case-%d-%s", i, d.name), p, p.fates[j], refs[d.name], d.drain)
				})
			}
		})
	}
	if *drainTable != "" && !t.Failed() {
		writeDrains(t, *drainTable, all)
	}
}

// drainOne makes the pod on a node, has that drained, and compares what becomes of the pod.
func drainOne(t *testing.T, l *laboratory, app string, p drained, want string, n nodes.NodeRef, drain func(*testing.T, *laboratory, nodes.NodeRef) (bool, bool)) {
	namespace := "default"
	if p.system {
		namespace = "kube-system"
	}
	if p.make == nil {
		app = "static-" + n.Name // it is there
	} else {
		l.phase(t, namespace, app, p.make(t, l, namespace, app, n.Name), 1)
		t.Cleanup(func() { l.remove(t, namespace, app) })
	}
	pod, err := l.podOf(t, namespace, app)
	if err != nil {
		t.Fatal(err)
	}
	written := l.written(t, pod)

	began := time.Now()
	done, refused := drain(t, l, n)
	took := time.Since(began)
	there, mounted := l.stays(t, pod)
	if done && mounted {
		t.Error("the drain has ended before the kubelet has unmounted the pod's volumes")
	}
	fate := isAwaited
	switch {
	case refused && there:
		fate = isRefused
	case done && there:
		fate = isLeft
	case done:
		fate = isEvicted
	}
	if fate != want {
		t.Errorf("it is %s, want %s", fate, want)
	}
	if fate != isEvicted || p.wrote == "" {
		return
	}
	if got := <-written; got != "up\n"+p.wrote {
		t.Errorf("its container wrote %q, want %q", got, p.wrote)
	}
	if took < p.lasts {
		t.Errorf("the drain took %s: it did not wait for the %s that the pod has", took, p.lasts)
	}
}

// podOf returns the only pod of an app.
func (l *laboratory) podOf(t *testing.T, namespace, app string) (*corev1.Pod, error) {
	list, err := l.admin.CoreV1().Pods(namespace).List(t.Context(), metav1.ListOptions{LabelSelector: "app=" + app})
	if err != nil || len(list.Items) != 1 {
		return nil, fmt.Errorf("%s has %d pods: %w", app, len(list.Items), err)
	}
	return &list.Items[0], nil
}

// stays reports whether a pod is there and not being deleted, and whether it is being deleted
// and its kubelet has not unmounted its volumes yet. It deletes the pod by a grace of 0 when it
// has: a pod that is there after that is held by a finalizer.
func (l *laboratory) stays(t *testing.T, p *corev1.Pod) (there, mounted bool) {
	now, err := l.admin.CoreV1().Pods(p.Namespace).Get(t.Context(), p.Name, metav1.GetOptions{})
	if err != nil && !apierrors.IsNotFound(err) {
		t.Fatal(err)
	}
	if err != nil || now.UID != p.UID || now.DeletionTimestamp == nil {
		return err == nil && now.UID == p.UID, false
	}
	return false, *now.DeletionGracePeriodSeconds > 0
}

// written returns everything that a pod writes, once it has ended.
func (l *laboratory) written(t *testing.T, p *corev1.Pod) <-chan string {
	stream, err := l.admin.CoreV1().Pods(p.Namespace).GetLogs(p.Name, &corev1.PodLogOptions{Follow: true}).Stream(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	out := make(chan string, 1)
	go func() {
		defer func() { _ = stream.Close() }()
		var all bytes.Buffer
		if _, err := all.ReadFrom(stream); err != nil {
			all.WriteString(err.Error())
		}
		out <- all.String()
	}()
	return out
}

// remove removes everything of an app, and waits until its pods are gone.
func (l *laboratory) remove(t *testing.T, namespace, app string) {
	ctx, o := context.WithoutCancel(t.Context()), metav1.DeleteOptions{}
	background := metav1.DeletePropagationBackground
	o.PropagationPolicy = &background
	for _, err := range []error{
		l.admin.PolicyV1().PodDisruptionBudgets(namespace).Delete(ctx, app, o),
		l.admin.AppsV1().Deployments(namespace).Delete(ctx, app, o),
		l.admin.AppsV1().DaemonSets(namespace).Delete(ctx, app, o),
		l.admin.BatchV1().Jobs(namespace).Delete(ctx, app, o),
		l.admin.CoreV1().Pods(namespace).Delete(ctx, app, o),
		l.admin.CoreV1().PersistentVolumeClaims(namespace).Delete(ctx, app, o),
		l.admin.CoreV1().PersistentVolumes().Delete(ctx, app, o),
	} {
		if err != nil && !apierrors.IsNotFound(err) {
			t.Error(err)
		}
	}

	// The pods go after their controller has. Until then kubectl refuses to drain their node,
	// for a DaemonSet's pod whose DaemonSet is gone.
	gone := func(ctx context.Context) (bool, error) {
		left, err := l.release(ctx, namespace, app)
		return left == 0, err
	}
	if err := wait.PollUntilContextTimeout(ctx, 50*time.Millisecond, time.Minute, true, gone); err != nil {
		t.Errorf("waiting until the pods of %s are gone: %v", app, err)
	}
}

// release removes the finalizers of an app's pods, and returns how many pods there are.
func (l *laboratory) release(ctx context.Context, namespace, app string) (left int, err error) {
	none := []byte(`{"metadata":{"finalizers":null}}`)
	list, err := l.admin.CoreV1().Pods(namespace).List(ctx, metav1.ListOptions{LabelSelector: "app=" + app})
	if err != nil {
		return 0, err
	}
	for _, p := range list.Items {
		if len(p.Finalizers) == 0 {
			continue
		}
		if _, err := l.admin.CoreV1().Pods(namespace).Patch(ctx, p.Name, types.MergePatchType, none, metav1.PatchOptions{}); err != nil && !apierrors.IsNotFound(err) {
			return 0, err
		}
	}
	return len(list.Items), nil
}

// writeDrains writes the table for people.
func writeDrains(t *testing.T, path string, all []drained) {
	t.Helper()
	var b strings.Builder
	b.WriteString("# Drains of real nodes\n\nWritten by `go test ./nodes/kube -run RealNodes_drain -table.drains $PWD/docs/results/node-drain.md`, " +
		"which fails if a pod's fate is another: real kubelets and containers, the same pod on four nodes.\n\n| pod |")
	for _, d := range drainers {
		fmt.Fprintf(&b, " %s |", d.title)
	}
	b.WriteString(" in its container | why they differ |\n| --- |" + strings.Repeat(" --- |", len(drainers)+2) + "\n")
	for _, p := range all {
		fmt.Fprintf(&b, "| %s | %s | %s | %s |\n", p.pod, strings.Join(p.fates[:], " | "), told(p), p.differs)
	}
	b.WriteString("\nA drain by Muster ends when the kubelet has deleted the pod, after it has unmounted its volumes; one by kubectl when the Pod object is gone.\n")
	if err := os.WriteFile(path, []byte(b.String()), 0o644); err != nil { //nolint:gosec // for everybody to read
		t.Fatal(err)
	}
}

// told says how a container that is evicted ends.
func told(p drained) string {
	switch {
	case p.wrote == "":
		return ""
	case p.lasts == 0:
		return "SIGTERM, ends by itself"
	case strings.Contains(p.wrote, "done"):
		return "SIGTERM at the end of the grace"
	}
	return "SIGTERM, killed at the end of the grace"
}
