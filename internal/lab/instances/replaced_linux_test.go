package instances_test

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/muster-dev/muster/console"
	"github.com/muster-dev/muster/internal/lab"
	"github.com/muster-dev/muster/internal/lab/labtest"
	"github.com/muster-dev/muster/nodes"
	"github.com/muster-dev/muster/nodes/connect"
	"github.com/muster-dev/muster/nodes/ec2"
	"github.com/muster-dev/muster/nodes/kube"
)

const batchPods = 2

// poolPolicy is a policy with one pool, whose nodes have a label and a taint.
func poolPolicy() nodes.Policy {
	p := faultPolicy(2)
	p.Sizing, p.MaxWorkers, p.ConsolidatePerHour, p.JoinTimeout = nodes.SizingFit, 3, 20, 2*time.Minute
	p.CPUDown, p.CooldownDown, p.IdleDownFor = 0.1, time.Second, 3*time.Second
	p.Pools = []nodes.Pool{{Name: "batch", InstanceTypes: []string{"t3.medium", "t3a.medium"}, Labels: map[string]string{"team": "batch"},
		Taints: []nodes.Taint{{Key: "batch", Value: "true", Effect: "NoSchedule"}}}}
	return p
}

// decide has the node plane go on by a policy with pools, from a version of the launch template.
func (r *faultRig) decide(t *testing.T, p nodes.Policy, version string) {
	t.Helper()
	var err error
	r.config.Cloud, _, err = r.region.CloudWith(func(o *ec2.Config) {
		o.InstanceTypes, o.LaunchTemplateVersion = p.InstanceTypes, version
		o.UserData, o.Join = ec2.UserDataK3s, ec2.Join{Server: r.lab.Server, TokenRef: "ssm:" + tokenName}
		o.Pools = p.Pools
		r.config.Templates = o.Templates()
	})
	if err != nil {
		t.Fatal(err)
	}
	if r.config.Signals, err = r.machines.Signals(t.Context(), p); err != nil { // whose windows are the policy's
		t.Fatal(err)
	}
	d, err := new(connect.Deciders).For(p)
	if err != nil {
		t.Fatal(err)
	}
	r.config.Policy, r.config.Sizer, r.config.Fitter, r.config.Appraiser = p, d.Sizer, d.Fitter, d.Appraiser
	r.config.Screener = d.Sizer.(nodes.Screener)
	if r.config.Reporter == nil { // it remembers what it has shown
		r.config.Reporter = connect.Reporter{Cluster: r.config.Cluster.(*kube.Cluster), Decider: d}
	}
	if r.plane, err = nodes.New(r.config); err != nil {
		t.Fatal(err)
	}
}

// fleet is the cluster as the Kubernetes API shows it.
type fleet struct {
	nodes   []corev1.Node // of workers
	ready   int
	running map[string]int // pods of the deployment that run, by node
}

// look reads the cluster again.
func (f *fleet) look(t *testing.T, r *faultRig) error {
	t.Helper()
	list, err := r.kube.CoreV1().Nodes().List(t.Context(), metav1.ListOptions{})
	if err != nil {
		return err
	}
	f.nodes = slices.DeleteFunc(list.Items, func(n corev1.Node) bool {
		_, controlPlane := n.Labels["node-role.kubernetes.io/control-plane"]
		return controlPlane
	})
	f.ready, f.running = 0, map[string]int{}
	for _, n := range f.nodes {
		if slices.ContainsFunc(n.Status.Conditions, func(c corev1.NodeCondition) bool {
			return c.Type == corev1.NodeReady && c.Status == corev1.ConditionTrue
		}) {
			f.ready++
		}
	}

	pods, err := r.kube.CoreV1().Pods("default").List(t.Context(), metav1.ListOptions{LabelSelector: "app=batch"})
	if err != nil {
		return err
	}
	for _, p := range pods.Items {
		if p.Status.Phase == corev1.PodRunning && p.DeletionTimestamp == nil {
			f.running[p.Spec.NodeName]++
		}
	}
	return nil
}

// names lists the nodes.
func (f *fleet) names() []string {
	var out []string
	for _, n := range f.nodes {
		out = append(out, n.Name)
	}
	slices.Sort(out)
	return out
}

// holds says what is not as it should be once the node plane has nothing more to do: as many Ready nodes as wanted, and no other.
func (f *fleet) holds(r *faultRig, workers int) error {
	alive := r.machines.Fleet().Alive
	if len(f.nodes) != workers || f.ready != workers || alive != workers {
		return fmt.Errorf("%d instances, %d nodes, %d Ready, want %d", alive, len(f.nodes), f.ready, workers)
	}
	return nil
}

// rests is holds, and that every pod runs.
func (f *fleet) rests(r *faultRig, workers int) error {
	pods := 0
	for _, n := range f.running {
		pods += n
	}
	if err := f.holds(r, workers); err != nil {
		return err
	}
	if pods != batchPods {
		return fmt.Errorf("%d pods run", pods)
	}
	return nil
}

// deployBatch deploys pods that run on nodes of the pool alone, and take a moment to end.
func (r *faultRig) deployBatch(t *testing.T) {
	t.Helper()
	replicas, grace, labels := int32(batchPods), int64(20), map[string]string{"app": "batch"}
	labtest.Create(t, r.kube.AppsV1().Deployments("default").Create, &appsv1.Deployment{
		ObjectMeta: metav1.ObjectMeta{Name: "batch"},
		Spec: appsv1.DeploymentSpec{Replicas: &replicas, Selector: &metav1.LabelSelector{MatchLabels: labels}, Template: corev1.PodTemplateSpec{
			ObjectMeta: metav1.ObjectMeta{Labels: labels},
			Spec: corev1.PodSpec{NodeSelector: map[string]string{"team": "batch"}, TerminationGracePeriodSeconds: &grace,
				TopologySpreadConstraints: []corev1.TopologySpreadConstraint{{
					MaxSkew: 1, TopologyKey: corev1.LabelHostname, WhenUnsatisfiable: corev1.ScheduleAnyway, LabelSelector: &metav1.LabelSelector{MatchLabels: labels},
				}},
				Tolerations: []corev1.Toleration{{Key: "batch", Operator: corev1.TolerationOpEqual, Value: "true", Effect: corev1.TaintEffectNoSchedule}},
				Containers: []corev1.Container{{Name: "pod", Image: lab.PodImage, ImagePullPolicy: corev1.PullNever, Command: []string{"/pod", "serve", "3s"},
					Resources: corev1.ResourceRequirements{Requests: corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("100m")}}}}},
		}},
	})
}

// TestRealNodes_replaced has real nodes join with the label and the taint of their pool, be replaced after a change of the launch template,
// the new one first, and be emptied by a consolidation.
func TestRealNodes_replaced(t *testing.T) {
	r := newFaultRig(t, 2)
	r.machines.SetLoad(0.2)
	h := r.follow(t)
	f := &fleet{}
	p := poolPolicy()
	r.decide(t, p, "1")
	resting := func(workers int, more func() error) func(string, console.NodePlane) error {
		return func(string, console.NodePlane) error {
			return errors.Join(f.look(t, r), f.rests(r, workers), more())
		}
	}
	none := func() error { return nil }

	r.tick(t, "the first nodes", func(string, console.NodePlane) error { return errors.Join(f.look(t, r), f.holds(r, 2)) })
	// Only now: the scheduler would give all pods to the node that is Ready first, and the other one would have none to move.
	r.deployBatch(t)
	r.tick(t, "the pods", resting(2, none))
	before := f.names()
	r.strangerWaits(t)

	p.Drift = true
	r.decide(t, p, "2")
	told := ""
	r.tick(t, "replacing drifted nodes", func(text string, page console.NodePlane) error {
		if strings.Contains(text, "because of DRIFT") {
			told = text
		}
		return resting(2, func() error {
			for _, id := range before {
				if slices.Contains(f.names(), id) {
					return fmt.Errorf("%s is still there", id)
				}
			}
			return nil
		})(text, page)
	})
	if !strings.Contains(told, "drifted worker") {
		t.Errorf("explain does not tell of drift: %s", told)
	}
	for _, id := range before {
		h.replacedFirst(t, id, p.MinWorkers)
	}

	p.Consolidation, p.MinWorkers = nodes.ConsolidationRemove, 1
	after := f.names()
	r.decide(t, p, "2")
	r.tick(t, "consolidating", resting(1, none))
	emptied := slices.DeleteFunc(after, func(id string) bool { return id == f.nodes[0].Name })
	gone := slices.Concat(before, emptied)
	h.labelled(t, "team", "batch", corev1.Taint{Key: "batch", Value: "true", Effect: corev1.TaintEffectNoSchedule})
	h.emptied(t, gone...)
	r.nothingLeft(t)
	r.terminated(t, gone...)
}
