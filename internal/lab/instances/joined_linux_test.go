package instances_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/muster-dev/muster/console"
	"github.com/muster-dev/muster/internal/lab"
	"github.com/muster-dev/muster/internal/lab/labtest"
	"github.com/muster-dev/muster/nodes"
)

// smallDisk gives a machine's kubelet a disk of its own, and has it evict pods when that is
// nearly full.
const smallDisk = `mkdir -p /var/lib/kubelet /etc/rancher/k3s/config.yaml.d
mount -t tmpfs -o size=200m disk /var/lib/kubelet
cat >/etc/rancher/k3s/config.yaml.d/60-test.yaml <<END
kubelet-arg+:
  - eviction-hard=memory.available<100Mi,nodefs.available<20%
  - eviction-pressure-transition-period=5s
END
`

// anotherVersion changes the version that a machine's kubelet reports, which is one text in
// its program. The program is otherwise the same.
var anotherVersion = `LC_ALL=C sed 's/` + strings.ReplaceAll(lab.Kubernetes, ".", `\.`) + `/` + newerVersion + `/g' /opt/lab/lab >/run/lab
chmod 755 /run/lab
mount --bind /run/lab /opt/lab/lab
`

const newerVersion = "v1.37.3"

// TestRealNodes_faultsJoined breaks nodes that have joined, in ways that don't end them.
func TestRealNodes_faultsJoined(t *testing.T) {
	const begin = "set -euo pipefail\n"
	handed := func(more string) func(*lab.Machine) {
		return func(m *lab.Machine) {
			edit(begin, begin+more)(m)
			m.UserData = hand + m.UserData
		}
	}
	stubborn := &fault{what: "a container ignores SIGTERM in a drain, with a grace of 40 s", want: nodes.FaultEnding}
	full := &fault{what: "disk used up, and the node drained then", want: nodes.FaultPressure, boot: handed(smallDisk)}
	newer := &fault{what: "the node joins with a newer version than the server's", want: nodes.FaultVersion, boot: edit(begin, begin+anotherVersion)}
	dead := &fault{what: "kubelet killed, and not started again", want: nodes.FaultKubelet, boot: handed("")}
	r := newFaultRig(t, 4, stubborn, full, newer, dead)

	p := faultPolicy(4)
	p.JoinTimeout = 3 * time.Minute // all are to join, also on a busy machine
	r.keep(t, p)

	r.launched(t)
	r.names(t, newer)
	r.joinedAll(t, 4)
	r.pressed(t, full, fillDisk, "rm /var/lib/kubelet/fill\n")
	stays := &fault{what: "disk full for DISK_PRESSURE_TIMEOUT_SEC=60", want: nodes.FaultPressure, instance: full.instance}
	r.staysBroken(t, p, stays, dead)
	r.ignored(t, stubborn)

	all := []*fault{stubborn, full, stays, dead, newer}
	r.nothingLeft(t)
	told(t, all)
	if *faultTable != "" {
		writeFaults(t, *faultTable, joinedTable, all)
	}
}

// fillDisk uses up the disk that smallDisk has made.
const fillDisk = "dd if=/dev/zero of=/var/lib/kubelet/fill bs=1M count=190\n"

// killKubelet ends the kubelet of a machine and what would start it again.
const killKubelet = "pkill -f k3s-install.sh\npkill -9 -f 'lab kubelet'\n"

// staysBroken uses up the disk of one node and kills the kubelet of another, and lets the node plane replace both: a node that still
// works has to wait for its replacement.
func (r *faultRig) staysBroken(t *testing.T, p nodes.Policy, full, dead *fault) {
	t.Helper()
	p.DiskPressureFor = time.Minute // the least that the policy allows
	r.keep(t, p)
	r.tick(t, "the end of an earlier pressure", func(_ string, page console.NodePlane) error {
		for _, n := range page.Nodes {
			if n.Instance == full.instance && n.Fault != "" {
				return fmt.Errorf("%s: %s", n.Instance, n.Fault)
			}
		}
		return nil
	})
	full.since, dead.since = time.Now(), time.Now()
	r.run(t, full.instance, fillDisk)
	r.run(t, dead.instance, killKubelet)
	r.names(t, full, dead)
	least := p.MinWorkers
	r.tick(t, "replacing the node with the full disk and the one without a kubelet", func(string, console.NodePlane) error {
		ready := r.machines.Fleet().Ready
		fullThere, deadThere := r.region.Simulator.Instance(full.instance).Alive(), r.region.Simulator.Instance(dead.instance).Alive()
		if fullThere {
			least = min(least, ready)
		}
		if fullThere || deadThere {
			return fmt.Errorf("%s is alive: %t; %s: %t", full.instance, fullThere, dead.instance, deadThere)
		}
		return nil
	})
	if least < p.MinWorkers-1 { // the dead one is not Ready from the begin
		t.Errorf("%d nodes were Ready at a time", least)
	}
	if ready := r.machines.Fleet().Ready; ready < p.MinWorkers {
		t.Errorf("%d nodes are Ready when both have gone: one was removed before another had joined", ready)
	}
	r.repairs(t, p.MinWorkers, full, dead)
}

// joinedAll waits until that many workers take pods.
func (r *faultRig) joinedAll(t *testing.T, workers int) {
	t.Helper()
	r.tick(t, "joining", func(string, console.NodePlane) error {
		if f := r.machines.Fleet(); f.Available < workers {
			return fmt.Errorf("the fleet is %+v", f)
		}
		return nil
	})
}

// ignored has the node plane remove a worker on which a container ignores SIGTERM.
func (r *faultRig) ignored(t *testing.T, f *fault) {
	t.Helper()
	nodesOf := r.kube.CoreV1().Nodes()
	list, err := nodesOf.List(t.Context(), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	for _, n := range list.Items { // the others are not to be chosen
		if n.Name == f.instance {
			continue
		}
		if _, err := nodesOf.Patch(t.Context(), n.Name, types.MergePatchType, []byte(`{"metadata":{"annotations":{"muster.dev/keep":"true"}}}`), metav1.PatchOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	grace, one, labels := int64(40), int32(1), map[string]string{"app": "deaf"}
	labtest.Create(t, r.kube.AppsV1().Deployments("default").Create, &appsv1.Deployment{
		ObjectMeta: metav1.ObjectMeta{Name: "deaf"},
		Spec: appsv1.DeploymentSpec{Replicas: &one, Selector: &metav1.LabelSelector{MatchLabels: labels}, Template: corev1.PodTemplateSpec{
			ObjectMeta: metav1.ObjectMeta{Labels: labels},
			Spec: corev1.PodSpec{
				TerminationGracePeriodSeconds: &grace,
				Affinity:                      preferred(f.instance),
				Containers:                    []corev1.Container{{Name: "pod", Image: lab.PodImage, ImagePullPolicy: corev1.PullNever, Command: []string{"/pod", "serve", "1h"}}},
			},
		}},
	})
	pod := func() (p corev1.Pod, err error) {
		pods, err := r.kube.CoreV1().Pods("default").List(t.Context(), metav1.ListOptions{LabelSelector: "app=deaf", FieldSelector: "spec.nodeName=" + f.instance})
		if err == nil && len(pods.Items) != 1 {
			return p, fmt.Errorf("there are %d pods on %s", len(pods.Items), f.instance)
		}
		if err != nil {
			return p, err
		}
		return pods.Items[0], nil
	}
	labtest.Eventually(t, "the pod", func() error {
		p, err := pod()
		if err == nil && p.Status.Phase != corev1.PodRunning {
			err = errors.New("it does not run")
		}
		return err
	})

	r.machines.SetLoad(0.02)
	r.shrink(t, 3)
	r.tick(t, "draining", func(string, console.NodePlane) error {
		p, err := pod()
		if err == nil && p.DeletionTimestamp == nil {
			return errors.New("its deletion has not begun")
		}
		if err == nil { // the deletion has the time at which the grace ends; a tick may have lasted since it began
			f.since = p.DeletionTimestamp.Add(-time.Duration(grace) * time.Second)
		}
		return err
	})
	r.names(t, f)
	r.repairs(t, 3, f)
}

// preferred has a pod placed on a node while that takes pods.
func preferred(node string) *corev1.Affinity {
	return &corev1.Affinity{NodeAffinity: &corev1.NodeAffinity{PreferredDuringSchedulingIgnoredDuringExecution: []corev1.PreferredSchedulingTerm{{
		Weight: 100, Preference: corev1.NodeSelectorTerm{MatchExpressions: []corev1.NodeSelectorRequirement{
			{Key: corev1.LabelHostname, Operator: corev1.NodeSelectorOpIn, Values: []string{node}}}},
	}}}}
}

// shrink has the node plane keep fewer workers, and remove one soon.
func (r *faultRig) shrink(t *testing.T, workers int) {
	t.Helper()
	p := faultPolicy(workers)
	p.CooldownDown, p.IdleDownFor = time.Second, 5*time.Second
	p.DrainTimeout, p.ScaleDownStuck = 2*time.Minute, 3*time.Minute
	r.config.TickBudget = 3 * time.Second // so that what is seen during the drain is looked at here, too
	r.keep(t, p)
}
