package kube_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	authenticationv1 "k8s.io/api/authentication/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"
	"sigs.k8s.io/yaml"

	"github.com/muster-dev/muster/internal/lab"
	"github.com/muster-dev/muster/internal/lab/labtest"
	"github.com/muster-dev/muster/nodes"
	"github.com/muster-dev/muster/nodes/kube"
)

// laboratory is a real Kubernetes control plane and what a test needs of it.
type laboratory struct {
	*lab.Lab
	admin  *kubernetes.Clientset
	config kube.Config // of Muster's own service account, which may do what the documented role allows and no more
}

// TestOnARealControlPlane holds the adapter to a real API server, scheduler and controllers. Each case has nodes of its own and pins its
// pods to them, so that cases don't disturb each other.
func TestOnARealControlPlane(t *testing.T) {
	l := newLaboratory(t, lab.Options{})
	for name, f := range map[string]func(*testing.T, *laboratory){
		"a budget holds a drain up until it is released":                       budgetHoldsADrain,
		"two budgets over one pod block a drain":                               twoBudgetsBlock,
		"what belongs to the node or has finished doesn't hold a drain up":     restIsLeftAlone,
		"critical and kube-system pods block and are passed over on a warning": criticalPodsBlock,
		"bare pods and local storage follow the settings":                      settingsDecide,
		"a crash in the middle of a drain is followed by its continuation":     crashIsFollowedByContinuation,
		"a pod that a finalizer holds is waited for until the end":             finalizerHolds,
		"an ending pod's grace can be shortened":                               graceIsShortened,
		"kubectl drain evicts the same pods where our rules don't differ":      sameAsKubectl,
		"a cordon keeps what others did and said":                              cordonKeepsOthers,
		"a node that is drained is marked, and gets no pods of DaemonSets":     drainedNodeIsMarked,
		"a pod that tolerates everything comes back and blocks the drain":      tolerantPodComesBack,
		"a node that was replaced under its old name is left alone":            replacedNodeIsLeftAlone,
		"pods that the scheduler can't place are pending, with their reasons":  unschedulablePodsArePending,
		"what Muster's role may do is enough and no more":                      roleIsEnough,
		"the replicas that a Deployment is to have are read":                   replicasAreRead,
		"a node of ours is verified by its provider ID":                        func(t *testing.T, l *laboratory) { verification(t, l, ours) },
		"a stock K3s node is verified by its address":                          func(t *testing.T, l *laboratory) { verification(t, l, stock) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f(t, l)
		})
	}
}

func newLaboratory(t *testing.T, o lab.Options) *laboratory {
	l := &laboratory{Lab: labtest.Start(t, o)}
	rc, err := clientcmd.BuildConfigFromFlags("", l.Kubeconfig)
	if err != nil {
		t.Fatal(err)
	}
	rc.QPS = -1
	if l.admin, err = kubernetes.NewForConfig(rc); err != nil {
		t.Fatal(err)
	}
	role := documentedRole(t)
	account := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "muster"}}
	binding := &rbacv1.ClusterRoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: "muster"},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: role.Name},
		Subjects:   []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Namespace: "default", Name: "muster"}},
	}
	labtest.Create(t, l.admin.RbacV1().ClusterRoles().Create, &role)
	labtest.Create(t, l.admin.CoreV1().ServiceAccounts("default").Create, account)
	labtest.Create(t, l.admin.RbacV1().ClusterRoleBindings().Create, binding)
	hour := int64(3600)
	token, err := l.admin.CoreV1().ServiceAccounts("default").CreateToken(t.Context(), "muster",
		&authenticationv1.TokenRequest{Spec: authenticationv1.TokenRequestSpec{ExpirationSeconds: &hour}}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	write(t, filepath.Join(dir, "ca.crt"), string(rc.CAData))
	write(t, filepath.Join(dir, "token"), token.Status.Token)
	l.config = kube.Config{APIURL: rc.Host, CARef: "file:" + filepath.Join(dir, "ca.crt"), TokenRef: "file:" + filepath.Join(dir, "token"), Timeout: 30 * time.Second}
	return l
}

// documentedRole returns the role that the documentation tells people to apply.
func documentedRole(t *testing.T) rbacv1.ClusterRole {
	t.Helper()
	text, err := os.ReadFile("../../docs/nodes/deploy.md")
	if err != nil {
		t.Fatal(err)
	}
	_, block, _ := strings.Cut(string(text), "```yaml\n")
	block, _, _ = strings.Cut(block, "```")
	var role rbacv1.ClusterRole
	if err := yaml.UnmarshalStrict([]byte(block), &role); err != nil {
		t.Fatal(err)
	}
	return role
}

// cluster returns the adapter, as Muster's service account.
func (l *laboratory) cluster(t *testing.T, rules kube.Rules) *kube.Cluster {
	t.Helper()
	c := l.config
	c.Drain = rules
	return open(t, c)
}

// machine is a node to be.
type machine struct {
	name, zone, ip, provider string
	kubelet                  string
}

func (l *laboratory) register(t *testing.T, m machine) *corev1.Node {
	t.Helper()
	resources := corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("4"), corev1.ResourceMemory: resource.MustParse("8Gi"), corev1.ResourcePods: resource.MustParse("110")}
	n := &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: m.name, Labels: map[string]string{lab.KubeletLabel: m.kubelet, corev1.LabelHostname: m.name, corev1.LabelOSStable: "linux"}},
		Spec:       corev1.NodeSpec{ProviderID: m.provider},
		Status: corev1.NodeStatus{Capacity: resources, Allocatable: resources,
			Addresses: []corev1.NodeAddress{{Type: corev1.NodeInternalIP, Address: m.ip}, {Type: corev1.NodeHostName, Address: m.name}}},
	}
	if m.zone != "" {
		n.Labels[corev1.LabelTopologyZone] = m.zone
	}
	return labtest.Create(t, l.admin.CoreV1().Nodes().Create, n)
}

// worker registers a node and waits until pods can be placed on it.
func (l *laboratory) worker(t *testing.T, c nodes.Cluster, name string) nodes.NodeRef {
	t.Helper()
	n := l.register(t, machine{name: name, zone: "a", ip: "10.9.0.1", provider: "aws:///a/" + name, kubelet: lab.KubeletUp})
	labtest.Eventually(t, name+" is Ready", func() error {
		if got := seen(t, c, name); !got.Ready || len(got.Taints) > 0 {
			return fmt.Errorf("%+v", got)
		}
		return nil
	})
	return nodes.NodeRef{Name: name, UID: string(n.UID)}
}

// seen returns a node as the adapter shows it; the zero Node if it shows none.
func seen(t *testing.T, c nodes.Cluster, name string) nodes.Node {
	t.Helper()
	for _, n := range view(t, c).Nodes {
		if n.Name == name {
			return n
		}
	}
	return nodes.Node{}
}

// template is the pod of a workload that runs on one node only.
func template(app, node string, change ...func(*corev1.PodTemplateSpec)) corev1.PodTemplateSpec {
	second := int64(1)
	p := corev1.PodTemplateSpec{
		ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{"app": app}},
		Spec: corev1.PodSpec{
			NodeSelector: map[string]string{corev1.LabelHostname: node}, TerminationGracePeriodSeconds: &second,
			Containers: []corev1.Container{{Name: "main", Image: "app", Resources: corev1.ResourceRequirements{Requests: corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("10m")}}}},
		},
	}
	for _, f := range change {
		f(&p)
	}
	return p
}

func priority(class string) func(*corev1.PodTemplateSpec) {
	return func(p *corev1.PodTemplateSpec) { p.Spec.PriorityClassName = class }
}

func grace(d time.Duration) func(*corev1.PodTemplateSpec) {
	return func(p *corev1.PodTemplateSpec) {
		s := int64(d / time.Second)
		p.Spec.TerminationGracePeriodSeconds = &s
	}
}

func scratch(p *corev1.PodTemplateSpec) {
	p.Spec.Volumes = []corev1.Volume{{Name: "scratch", VolumeSource: corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{}}}}
}

func finalized(p *corev1.PodTemplateSpec) { p.Finalizers = []string{"lab.muster.dev/stays"} }

func selecting(app string) *metav1.LabelSelector {
	return &metav1.LabelSelector{MatchLabels: map[string]string{"app": app}}
}

// deploy makes a Deployment whose name is its app's, and waits until its pods run.
func (l *laboratory) deploy(t *testing.T, namespace string, replicas int32, p corev1.PodTemplateSpec) {
	t.Helper()
	app := p.Labels["app"]
	labtest.Create(t, l.admin.AppsV1().Deployments(namespace).Create, &appsv1.Deployment{
		ObjectMeta: metav1.ObjectMeta{Name: app}, Spec: appsv1.DeploymentSpec{Replicas: &replicas, Selector: selecting(app), Template: p}})
	l.phase(t, namespace, app, corev1.PodRunning, int(replicas))
}

// daemon makes a DaemonSet and waits until its pod runs.
func (l *laboratory) daemon(t *testing.T, namespace string, p corev1.PodTemplateSpec) {
	t.Helper()
	app := p.Labels["app"]
	labtest.Create(t, l.admin.AppsV1().DaemonSets(namespace).Create, &appsv1.DaemonSet{
		ObjectMeta: metav1.ObjectMeta{Name: app}, Spec: appsv1.DaemonSetSpec{Selector: selecting(app), Template: p}})
	l.phase(t, namespace, app, corev1.PodRunning, 1)
}

// job makes a Job, as the K3s helm controller does, and waits until its pod has finished.
func (l *laboratory) job(t *testing.T, namespace string, p corev1.PodTemplateSpec) {
	t.Helper()
	app := p.Labels["app"]
	p.Spec.RestartPolicy = corev1.RestartPolicyNever
	labtest.Create(t, l.admin.BatchV1().Jobs(namespace).Create, &batchv1.Job{ObjectMeta: metav1.ObjectMeta{Name: app}, Spec: batchv1.JobSpec{Template: p}})
	l.phase(t, namespace, app, corev1.PodSucceeded, 1)
}

// bare makes a pod without a controller, and waits until it runs.
func (l *laboratory) bare(t *testing.T, namespace string, p corev1.PodTemplateSpec) {
	t.Helper()
	app := p.Labels["app"]
	labtest.Create(t, l.admin.CoreV1().Pods(namespace).Create, &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: app, Labels: p.Labels, Annotations: p.Annotations}, Spec: p.Spec})
	l.phase(t, namespace, app, corev1.PodRunning, 1)
}

// static makes the mirror pod of a static pod, as a kubelet does.
func (l *laboratory) static(t *testing.T, namespace, app, node string) {
	t.Helper()
	n, err := l.admin.CoreV1().Nodes().Get(t.Context(), node, metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	p := template(app, node)
	p.Annotations = map[string]string{corev1.MirrorPodAnnotationKey: "checksum"}
	p.Spec.NodeName = node
	p.Spec.NodeSelector = nil
	no, yes := false, true
	p.Spec.AutomountServiceAccountToken, p.Spec.EnableServiceLinks = &no, &no
	labtest.Create(t, l.admin.CoreV1().Pods(namespace).Create, &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: app, Labels: p.Labels, Annotations: p.Annotations,
		OwnerReferences: []metav1.OwnerReference{{APIVersion: "v1", Kind: "Node", Name: node, UID: n.UID, Controller: &yes}}}, Spec: p.Spec})
	l.phase(t, namespace, app, corev1.PodRunning, 1)
}

func (l *laboratory) phase(t *testing.T, namespace, app string, phase corev1.PodPhase, want int) {
	t.Helper()
	labtest.Eventually(t, fmt.Sprintf("%d pods of %s are %s", want, app, phase), func() error {
		list, err := l.admin.CoreV1().Pods(namespace).List(t.Context(), metav1.ListOptions{LabelSelector: "app=" + app})
		if err != nil {
			return err
		}
		n := 0
		for _, p := range list.Items {
			if p.Status.Phase == phase {
				n++
			}
		}
		if n != want {
			return fmt.Errorf("%d of %d", n, len(list.Items))
		}
		return nil
	})
}

// budget makes a disruption budget over an app and waits until its controller has counted.
func (l *laboratory) budget(t *testing.T, namespace, name, app string, least int) {
	t.Helper()
	m := intstr.FromInt(least)
	labtest.Create(t, l.admin.PolicyV1().PodDisruptionBudgets(namespace).Create, &policyv1.PodDisruptionBudget{
		ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: policyv1.PodDisruptionBudgetSpec{MinAvailable: &m, Selector: selecting(app)}})
	labtest.Eventually(t, "budget "+name+" is counted", func() error {
		b, err := l.admin.PolicyV1().PodDisruptionBudgets(namespace).Get(t.Context(), name, metav1.GetOptions{})
		if err == nil && (b.Status.ObservedGeneration != b.Generation || b.Status.ExpectedPods == 0) {
			err = fmt.Errorf("%+v", b.Status)
		}
		return err
	})
}

// on returns the pods that are on a node, finished ones too: app by UID.
func (l *laboratory) on(t *testing.T, node string) map[types.UID]string {
	t.Helper()
	list, err := l.admin.CoreV1().Pods("").List(t.Context(), metav1.ListOptions{FieldSelector: "spec.nodeName=" + node})
	if err != nil {
		t.Fatal(err)
	}
	out := map[types.UID]string{}
	for _, p := range list.Items {
		out[p.UID] = p.Labels["app"]
	}
	return out
}

// apps returns the apps of pods, sorted.
func apps(pods map[types.UID]string) []string { return slices.Sorted(maps.Values(pods)) }

// gone returns the apps of the pods that were there before and are no more.
func gone(before, after map[types.UID]string) []string {
	left := maps.Clone(before)
	for uid := range after {
		delete(left, uid)
	}
	return apps(left)
}

// try drains for some time.
func try(t *testing.T, c nodes.Cluster, n nodes.NodeRef, d time.Duration) nodes.DrainProgress {
	t.Helper()
	p, err := c.Drain(t.Context(), nodes.DrainRequest{Node: n, Until: time.Now().Add(d)})
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// finish drains to the end.
func finish(t *testing.T, c nodes.Cluster, n nodes.NodeRef) {
	t.Helper()
	if p := try(t, c, n, 2*time.Minute); !p.Done {
		t.Fatalf("%+v", p)
	}
}

// blocked asks for a drain that must be blocked, and returns why.
func blocked(t *testing.T, c nodes.Cluster, n nodes.NodeRef) string {
	t.Helper()
	p, err := c.Drain(t.Context(), nodes.DrainRequest{Node: n, Until: time.Now().Add(2 * time.Minute)})
	why, ok := nodes.IsDrainBlocked(err)
	if !ok {
		t.Fatalf("%+v, %v", p, err)
	}
	return why
}

func claim(t *testing.T, c nodes.Cluster, n nodes.NodeRef) {
	t.Helper()
	if err := c.Cordon(t.Context(), n, "test"); err != nil {
		t.Fatal(err)
	}
}

func contains(t *testing.T, got, want string) {
	t.Helper()
	if !strings.Contains(got, want) {
		t.Errorf("%q says nothing of %q", got, want)
	}
}

// ---- the drain

func budgetHoldsADrain(t *testing.T, l *laboratory) {
	c := l.cluster(t, kube.Rules{})
	n := l.worker(t, c, "i-budget")
	l.deploy(t, "default", 2, template("budgeted", n.Name))
	l.deploy(t, "default", 1, template("budgeted-not", n.Name))
	l.budget(t, "default", "budgeted", "budgeted", 2)
	labtest.Eventually(t, "the view tells of the budget", func() error {
		if got := seen(t, c, n.Name).Blocker; !strings.Contains(got, "disruption budget budgeted allows none") {
			return fmt.Errorf("it says %q", got)
		}
		return nil
	})
	claim(t, c, n)
	p := try(t, c, n, 6*time.Second)
	if p.Done || p.Left != 2 {
		t.Errorf("%+v", p)
	}
	contains(t, p.Why, "The disruption budget budgeted needs 2 healthy pods and has 2 currently")
	if got := apps(l.on(t, n.Name)); !slices.Equal(got, []string{"budgeted", "budgeted"}) {
		t.Errorf("left %v", got)
	}
	if err := l.admin.PolicyV1().PodDisruptionBudgets("default").Delete(t.Context(), "budgeted", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	finish(t, c, n)
	if got := l.on(t, n.Name); len(got) != 0 {
		t.Errorf("left %v", got)
	}
}

func twoBudgetsBlock(t *testing.T, l *laboratory) {
	c := l.cluster(t, kube.Rules{})
	n := l.worker(t, c, "i-two-budgets")
	l.deploy(t, "default", 1, template("twice", n.Name))
	l.deploy(t, "default", 1, template("once", n.Name))
	l.budget(t, "default", "twice-a", "twice", 0)
	l.budget(t, "default", "twice-b", "twice", 0)
	contains(t, seen(t, c, n.Name).Blocker, "twice-a and twice-b")
	claim(t, c, n)
	contains(t, blocked(t, c, n), "more than one PodDisruptionBudget")
	p, err := c.Drain(t.Context(), nodes.DrainRequest{Node: n, Until: time.Now().Add(2 * time.Minute), SkipCritical: true})
	if err != nil || !p.Done {
		t.Errorf("on a warning: %+v, %v", p, err)
	}
	if got := apps(l.on(t, n.Name)); !slices.Equal(got, []string{"twice"}) {
		t.Errorf("left %v", got)
	}
}

func restIsLeftAlone(t *testing.T, l *laboratory) {
	c := l.cluster(t, kube.Rules{})
	n := l.worker(t, c, "i-rest")
	l.daemon(t, "kube-system", template("svclb", n.Name, priority("system-node-critical")))
	l.static(t, "kube-system", "static", n.Name)
	l.job(t, "kube-system", template("helm-install-traefik", n.Name))
	l.deploy(t, "default", 1, template("moves", n.Name))
	if got := seen(t, c, n.Name); got.Blocker != "" || got.Daemon.Pods != 2 || len(got.Pods) != 1 {
		t.Errorf("the view shows %+v", got)
	}
	claim(t, c, n)
	finish(t, c, n)
	if got := apps(l.on(t, n.Name)); !slices.Equal(got, []string{"helm-install-traefik", "static", "svclb"}) {
		t.Errorf("left %v", got)
	}
}

func criticalPodsBlock(t *testing.T, l *laboratory) {
	c := l.cluster(t, kube.Rules{})
	for app, p := range map[string]struct{ namespace, class, why string }{
		"coredns":         {"kube-system", "system-cluster-critical", "critical priority system-cluster-critical"},
		"traefik":         {"kube-system", "", "in namespace kube-system"},
		"storage-plugin":  {"default", "system-cluster-critical", "critical priority system-cluster-critical"},
		"network-plugins": {"default", "system-node-critical", "critical priority system-node-critical"},
	} {
		n := l.worker(t, c, "i-"+app)
		l.deploy(t, p.namespace, 1, template(app, n.Name, priority(p.class)))
		l.deploy(t, "default", 1, template("beside-"+app, n.Name))
		contains(t, seen(t, c, n.Name).Blocker, p.why)
		claim(t, c, n)
		contains(t, blocked(t, c, n), "pod "+p.namespace+"/"+app)
		if got := l.on(t, n.Name); len(got) != 2 {
			t.Errorf("something was evicted before the block was seen: %v left", got)
		}
		progress, err := c.Drain(t.Context(), nodes.DrainRequest{Node: n, Until: time.Now().Add(2 * time.Minute), SkipCritical: true})
		if err != nil || !progress.Done {
			t.Errorf("on a warning: %+v, %v", progress, err)
		}
		if got := apps(l.on(t, n.Name)); !slices.Equal(got, []string{app}) {
			t.Errorf("left %v", got)
		}
	}
}

func settingsDecide(t *testing.T, l *laboratory) {
	strict := l.cluster(t, kube.Rules{BarePods: kube.Abort, LocalStorage: kube.Abort})
	lax := l.cluster(t, kube.Rules{BarePods: kube.Evict, LocalStorage: kube.Evict})
	n := l.worker(t, strict, "i-settings")
	claim(t, strict, n)
	if err := strict.Uncordon(t.Context(), n, "test"); err != nil {
		t.Fatal(err)
	}
	l.bare(t, "default", template("bare", n.Name))
	contains(t, blocked(t, strict, n), "pod default/bare: no controller")
	if err := l.admin.CoreV1().Pods("default").Delete(t.Context(), "bare", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	l.deploy(t, "default", 1, template("with-scratch", n.Name, scratch))
	contains(t, blocked(t, strict, n), "volume scratch")
	l.bare(t, "default", template("bare-again", n.Name))
	claim(t, lax, n)
	finish(t, lax, n)
	if got := l.on(t, n.Name); len(got) != 0 {
		t.Errorf("left %v", got)
	}
}

func crashIsFollowedByContinuation(t *testing.T, l *laboratory) {
	c := l.cluster(t, kube.Rules{})
	n := l.worker(t, c, "i-crash")
	l.deploy(t, "default", 3, template("slow", n.Name, grace(5*time.Second)))
	claim(t, c, n)
	// The process dies while pods end: its context is gone, and what it knew with it.
	ctx, cancel := context.WithCancel(t.Context())
	go func() {
		defer cancel()
		labtest.Eventually(t, "pods are ending", func() error {
			list, err := l.admin.CoreV1().Pods("default").List(t.Context(), metav1.ListOptions{LabelSelector: "app=slow", FieldSelector: "spec.nodeName=" + n.Name})
			for _, p := range list.Items {
				if p.DeletionTimestamp != nil {
					return nil
				}
			}
			return fmt.Errorf("none is: %w", err)
		})
	}()
	if p, err := c.Drain(ctx, nodes.DrainRequest{Node: n, Until: time.Now().Add(2 * time.Minute)}); err == nil || p.Done {
		t.Fatalf("it was to be interrupted: %+v, %v", p, err)
	}
	again := l.cluster(t, kube.Rules{})
	if got := seen(t, again, n.Name); !got.Unschedulable || !slices.Equal(got.Claims, []string{"test"}) {
		t.Errorf("what the next process finds: %+v", got)
	}
	finish(t, again, n)
	if got := l.on(t, n.Name); len(got) != 0 {
		t.Errorf("left %v", got)
	}
}

func finalizerHolds(t *testing.T, l *laboratory) {
	c := l.cluster(t, kube.Rules{})
	n := l.worker(t, c, "i-finalizer")
	l.deploy(t, "default", 1, template("held", n.Name, finalized))
	claim(t, c, n)
	labtest.Eventually(t, "the pod is ending", func() error {
		p := try(t, c, n, 3*time.Second)
		if p.Done {
			t.Fatalf("%+v", p)
		}
		if !strings.Contains(p.Why, "finalizer lab.muster.dev/stays") {
			return fmt.Errorf("%+v", p)
		}
		return nil
	})
	if got := apps(l.on(t, n.Name)); !slices.Equal(got, []string{"held"}) {
		t.Errorf("left %v", got)
	}
	if err := c.Uncordon(t.Context(), n, "test"); err != nil {
		t.Fatal(err)
	}
	if got := seen(t, c, n.Name); !got.Available() || len(got.Claims) != 0 {
		t.Errorf("given back: %+v", got)
	}
}

func graceIsShortened(t *testing.T, l *laboratory) {
	c := l.cluster(t, kube.Rules{})
	n := l.worker(t, c, "i-grace")
	l.deploy(t, "default", 1, template("takes-long", n.Name, grace(time.Hour)))
	claim(t, c, n)
	if p := try(t, c, n, 3*time.Second); p.Done || p.Left != 1 {
		t.Fatalf("%+v", p)
	}
	p, err := c.Drain(t.Context(), nodes.DrainRequest{Node: n, Until: time.Now().Add(2 * time.Minute), MaxGrace: 2 * time.Second})
	if err != nil || !p.Done {
		t.Errorf("%+v, %v", p, err)
	}
}

// sameAsKubectl makes two nodes alike and drains one with each.
func sameAsKubectl(t *testing.T, l *laboratory) {
	c := l.cluster(t, kube.Rules{BarePods: kube.Evict, LocalStorage: kube.Evict})
	drained := map[string][]string{}
	for _, name := range []string{"i-by-us", "i-by-kubectl"} {
		n := l.worker(t, c, name)
		app := func(kind string) string { return kind + name }
		l.deploy(t, "default", 2, template(app("web-"), name))
		l.deploy(t, "default", 1, template(app("scratch-"), name, scratch))
		l.bare(t, "default", template(app("bare-"), name))
		l.daemon(t, "kube-system", template(app("daemon-"), name, priority("system-node-critical")))
		l.static(t, "default", app("static-"), name)
		l.job(t, "default", template(app("job-"), name))
		labtest.Create(t, l.admin.AppsV1().StatefulSets("default").Create, &appsv1.StatefulSet{ObjectMeta: metav1.ObjectMeta{Name: app("db-")},
			Spec: appsv1.StatefulSetSpec{Selector: selecting(app("db-")), Template: template(app("db-"), name)}})
		l.phase(t, "default", app("db-"), corev1.PodRunning, 1)
		before := l.on(t, name)
		if name == "i-by-us" {
			claim(t, c, n)
			finish(t, c, n)
		} else if out, err := l.Kubectl(t.Context(), "drain", name, "--ignore-daemonsets", "--force", "--delete-emptydir-data", "--timeout=2m"); err != nil {
			t.Fatalf("%s\n%v", out, err)
		}
		for _, a := range gone(before, l.on(t, name)) {
			drained[name] = append(drained[name], strings.TrimSuffix(a, name))
		}
	}
	if want := []string{"bare-", "db-", "scratch-", "web-", "web-"}; !slices.Equal(drained["i-by-us"], want) {
		t.Errorf("we evicted %v, want %v", drained["i-by-us"], want)
	}
	// On purpose: what has finished goes with the node and isn't deleted one by one.
	if want := []string{"bare-", "db-", "job-", "scratch-", "web-", "web-"}; !slices.Equal(drained["i-by-kubectl"], want) {
		t.Errorf("kubectl evicted %v, want %v", drained["i-by-kubectl"], want)
	}
}

// ---- cordons and nodes

func cordonKeepsOthers(t *testing.T, l *laboratory) {
	c := l.cluster(t, kube.Rules{})
	n := l.worker(t, c, "i-cordon")
	kubectl := func(args ...string) {
		t.Helper()
		if _, err := l.Kubectl(t.Context(), args...); err != nil {
			t.Fatal(err)
		}
	}
	kubectl("annotate", "node", n.Name, "someone=else", kube.KeepAnnotation+"=true")
	claim(t, c, n)
	if err := c.Cordon(t.Context(), n, "another"); err != nil {
		t.Fatal(err)
	}
	got := seen(t, c, n.Name)
	if !got.Unschedulable || !got.Keep || !slices.Equal(got.Claims, []string{"test", "another"}) {
		t.Errorf("%+v", got)
	}
	for _, claim := range []string{"test", "another"} {
		if err := c.Uncordon(t.Context(), n, claim); err != nil {
			t.Fatal(err)
		}
	}
	if got := seen(t, c, n.Name); got.Unschedulable || len(got.Claims) != 0 || !got.Keep {
		t.Errorf("%+v", got)
	}
	kubectl("cordon", n.Name)
	claim(t, c, n)
	if err := c.Uncordon(t.Context(), n, "test"); err != nil {
		t.Fatal(err)
	}
	object, err := l.admin.CoreV1().Nodes().Get(t.Context(), n.Name, metav1.GetOptions{})
	if err != nil || !object.Spec.Unschedulable || object.Annotations["someone"] != "else" || object.Annotations[kube.ClaimsAnnotation] != "" || object.Annotations[kube.BeforeAnnotation] != "" {
		t.Errorf("cordoned by a person before: %+v %+v, %v", object.Spec, object.Annotations, err)
	}
}

// drainedNodeIsMarked looks at the taint and the label by which schedulers and load balancers know that a node goes. Muster's label and
// taint come and go beside a person's.
func drainedNodeIsMarked(t *testing.T, l *laboratory) {
	c := l.cluster(t, kube.Rules{})
	n := l.worker(t, c, "i-marked")
	if _, err := l.Kubectl(t.Context(), "taint", "node", n.Name, "dedicated=lab:PreferNoSchedule"); err != nil {
		t.Fatal(err)
	}
	l.daemon(t, "default", template("marked-old", n.Name))
	claim(t, c, n)
	if got := l.marks(t, n.Name); got != "dedicated "+kube.ToBeDeletedTaint+" label muster" {
		t.Errorf("marked: %s", got)
	}
	if got := seen(t, c, n.Name); !got.ToBeDeleted || got.Available() {
		t.Errorf("%+v", got)
	}

	// A DaemonSet's controller gives its pods a toleration of a cordon. None must start where everything ends.
	late := template("marked-late", n.Name)
	labtest.Create(t, l.admin.AppsV1().DaemonSets("default").Create, &appsv1.DaemonSet{ObjectMeta: metav1.ObjectMeta{Name: "marked-late"},
		Spec: appsv1.DaemonSetSpec{Selector: selecting("marked-late"), Template: late}})
	labtest.Eventually(t, "the controller has seen the DaemonSet", func() error {
		d, err := l.admin.AppsV1().DaemonSets("default").Get(t.Context(), "marked-late", metav1.GetOptions{})
		if err == nil && d.Status.ObservedGeneration == 0 {
			err = errors.New("not yet")
		}
		return err
	})
	if got := apps(l.on(t, n.Name)); !slices.Equal(got, []string{"marked-old"}) {
		t.Errorf("it runs %v", got)
	}

	if err := c.Uncordon(t.Context(), n, "test"); err != nil {
		t.Fatal(err)
	}
	labtest.Eventually(t, "the marks are off", func() error {
		if got := l.marks(t, n.Name); got != "dedicated label " {
			return errors.New(got)
		}
		return nil
	})
	l.phase(t, "default", "marked-late", corev1.PodRunning, 1) // once the node stays, its pod comes
}

// marks tells the taints of a node, but for the one that a controller gives a cordoned node some time later, and what its label for load
// balancers says.
func (l *laboratory) marks(t *testing.T, node string) string {
	t.Helper()
	n, err := l.admin.CoreV1().Nodes().Get(t.Context(), node, metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	var keys []string
	for _, taint := range n.Spec.Taints {
		if taint.Key != corev1.TaintNodeUnschedulable {
			keys = append(keys, taint.Key)
		}
	}
	slices.Sort(keys)
	return strings.Join(keys, " ") + " label " + n.Labels[corev1.LabelNodeExcludeBalancers]
}

// tolerantPodComesBack: no taint keeps such a pod away, so the drain must not evict it until its time is over.
func tolerantPodComesBack(t *testing.T, l *laboratory) {
	c := l.cluster(t, kube.Rules{})
	n := l.worker(t, c, "i-tolerant")
	l.deploy(t, "default", 1, template("tolerant", n.Name, func(p *corev1.PodTemplateSpec) {
		p.Spec.Tolerations = []corev1.Toleration{{Operator: corev1.TolerationOpExists}}
	}))
	claim(t, c, n)
	p, err := c.Drain(t.Context(), nodes.DrainRequest{Node: n, Until: time.Now().Add(2 * time.Minute), Since: time.Now()})
	why, ok := nodes.IsDrainBlocked(err)
	if !ok {
		t.Fatalf("%+v, %v", p, err)
	}
	contains(t, why, "pod default/tolerant-")
	contains(t, why, "let it tolerate less")
}

func replacedNodeIsLeftAlone(t *testing.T, l *laboratory) {
	c := l.cluster(t, kube.Rules{})
	old := l.worker(t, c, "i-replaced")
	if err := c.Remove(t.Context(), old); err != nil {
		t.Fatal(err)
	}
	if got := seen(t, c, old.Name); got.Name != "" {
		t.Fatalf("still there: %+v", got)
	}
	now := l.worker(t, c, "i-replaced")
	l.deploy(t, "default", 1, template("on-the-new-one", now.Name))
	if err := c.Remove(t.Context(), old); err != nil {
		t.Errorf("removing the old one again: %v", err)
	}
	if err := c.Cordon(t.Context(), old, "test"); err == nil {
		t.Error("the old one was cordoned")
	}
	if p, err := c.Drain(t.Context(), nodes.DrainRequest{Node: old, Until: time.Now().Add(time.Minute)}); err != nil || !p.Done {
		t.Errorf("the old one's drain: %+v, %v", p, err)
	}
	if got := seen(t, c, now.Name); got.UID != now.UID || !got.Available() || len(got.Pods) != 1 {
		t.Errorf("the new one: %+v", got)
	}
}

func unschedulablePodsArePending(t *testing.T, l *laboratory) {
	c := l.cluster(t, kube.Rules{})
	waits := template("waits", "no-such-node")
	gated := template("gated", "no-such-node", func(p *corev1.PodTemplateSpec) {
		p.Spec.SchedulingGates = []corev1.PodSchedulingGate{{Name: "lab.muster.dev/gate"}}
	})
	found := make(chan time.Time, 1000) // also pods of other cases
	ctx, stop := context.WithCancel(t.Context())
	watching := make(chan error, 1)
	go func() { watching <- c.WatchPending(ctx, func(since time.Time) { found <- since.UTC() }) }()
	for _, p := range []corev1.PodTemplateSpec{waits, gated} {
		labtest.Create(t, l.admin.CoreV1().Pods("default").Create, &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: p.Labels["app"], Labels: p.Labels}, Spec: p.Spec})
	}
	var since time.Time
	labtest.Eventually(t, "the scheduler has said that it can't place the pod", func() error {
		for _, p := range view(t, c).Pending {
			if p.Name == "default/gated" {
				t.Fatal("a pod behind a gate is no pending pod")
			}
			if p.Name == "default/waits" && p.Requests.MilliCPU == 10 && strings.Contains(p.Scheduling, "no-such-node") {
				since = p.Since.UTC()
				return nil
			}
		}
		return fmt.Errorf("not among the pending ones")
	})
	var seen []time.Time
	labtest.Eventually(t, "the watch has found it, too", func() error {
		for len(found) > 0 {
			seen = append(seen, <-found)
		}
		if since.IsZero() || !slices.Contains(seen, since) {
			return fmt.Errorf("pending since %s; found: %v", since, seen)
		}
		return nil
	})
	stop()
	if err := <-watching; err != nil {
		t.Errorf("the end of the watch: %v", err)
	}
}

func replicasAreRead(t *testing.T, l *laboratory) {
	c := l.cluster(t, kube.Rules{})
	// A paused one makes no pods that other cases would meet.
	labtest.Create(t, l.admin.AppsV1().Deployments("default").Create, &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Name: "wanted"},
		Spec: appsv1.DeploymentSpec{Paused: true, Selector: selecting("wanted"), Template: template("wanted", "nowhere")}})
	for _, want := range []int{3, 5} {
		if _, err := l.Kubectl(t.Context(), "scale", "deployment", "wanted", fmt.Sprint("--replicas=", want)); err != nil {
			t.Fatal(err)
		}
		if n, err := c.Replicas(t.Context(), "default", "wanted"); err != nil || n != want {
			t.Errorf("%d replicas, want %d: %v", n, want, err)
		}
	}
}

func roleIsEnough(t *testing.T, l *laboratory) {
	c := l.cluster(t, kube.Rules{})
	for _, check := range slices.Concat(c.Check(t.Context()), c.CheckWatch(t.Context())) {
		if strings.HasPrefix(check.Name, "kubernetes: drainable") || strings.HasPrefix(check.Name, "kubernetes: nodes name") {
			continue // of the other cases' nodes
		}
		// The token was made for an hour, which is where the doctor begins to complain.
		if check.OK == (check.Name == "kubernetes: token") {
			t.Errorf("%+v", check)
		}
	}
	at, err := c.TokenExpires(t.Context())
	if left := time.Until(at); err != nil || left <= 0 || left > time.Hour+time.Minute {
		t.Errorf("expires %s, %v", at, err)
	}
	out, err := l.Kubectl(t.Context(), "auth", "can-i", "--list", "--as=system:serviceaccount:default:muster", "--no-headers")
	if err != nil {
		t.Fatal(err)
	}
	for _, never := range []string{"secrets", "daemonsets", "pods/exec", "configmaps", "*.*"} {
		if strings.Contains(out, never) {
			t.Errorf("the role allows %s:\n%s", never, out)
		}
	}
}
