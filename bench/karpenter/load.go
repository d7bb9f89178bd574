package main

import (
	"fmt"
	"math/rand/v2"
	"os"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/muster-dev/muster/nodes/backtest"
)

// load is a number of pods to place.
type load struct {
	name string
	pods []*corev1.Pod
}

// makeLoads returns the two loads: "trace", whose pods ask for what those of a real cluster do and have no other constraint, and
// "mixed", the mix of Karpenter's own scheduling benchmark: a fifth each of plain pods, pods spread over zones, pods spread over nodes,
// pods with affinity to their like by zone and pods with anti-affinity to their like by node.
func makeLoads(n int, trace string) ([]load, error) {
	r := rand.New(rand.NewPCG(42, uint64(n)))
	plain := load{name: "trace"}
	requests := func() (int64, int64) {
		return []int64{4000, 8000, 12000, 16000, 32000}[r.IntN(5)], []int64{8, 16, 32, 64}[r.IntN(4)] << 10
	}
	if trace != "" {
		f, err := os.Open(trace)
		if err != nil {
			return nil, err
		}
		defer func() { _ = f.Close() }()
		t, err := backtest.ReadTrace(trace, f)
		if err != nil {
			return nil, err
		}
		var pods []backtest.Pod
		for _, p := range t.Pods {
			if p.MilliCPU <= 60000 && p.Memory <= 400<<30 { // what the largest of the types runs
				pods = append(pods, p)
			}
		}
		requests = func() (int64, int64) {
			p := pods[r.IntN(len(pods))]
			return p.MilliCPU, p.Memory >> 20
		}
	}
	for i := range n {
		cpu, mem := requests()
		plain.pods = append(plain.pods, makePod(fmt.Sprintf("trace-%d", i), cpu, mem, nil))
	}
	mixed := load{name: "mixed"}
	for i := range n {
		cpu := []int64{100, 250, 500, 1000, 1500}[r.IntN(5)]
		mem := []int64{100, 256, 512, 1024, 2048, 4096}[r.IntN(6)]
		p := makePod(fmt.Sprintf("mixed-%d", i), cpu, mem, nil)
		constrain(p, i*5/n, r)
		mixed.pods = append(mixed.pods, p)
	}
	return []load{plain, mixed}, nil
}

func makePod(name string, milliCPU, mib int64, labels map[string]string) *corev1.Pod {
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name, UID: types.UID(name), Labels: labels},
		Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "c", Image: "i", Resources: corev1.ResourceRequirements{Requests: corev1.ResourceList{
			corev1.ResourceCPU: *resource.NewMilliQuantity(milliCPU, resource.DecimalSI), corev1.ResourceMemory: *resource.NewQuantity(mib<<20, resource.BinarySI),
		}}}}},
	}
}

// constrain gives a pod the constraint of one of the five kinds of the mix.
func constrain(p *corev1.Pod, kind int, r *rand.Rand) {
	letter := string(rune('a' + r.IntN(7)))
	switch kind {
	case 1, 2:
		p.Labels = map[string]string{"my-label": letter}
		key := corev1.LabelTopologyZone
		if kind == 2 {
			key = corev1.LabelHostname
		}
		p.Spec.TopologySpreadConstraints = []corev1.TopologySpreadConstraint{{MaxSkew: 1, TopologyKey: key, WhenUnsatisfiable: corev1.DoNotSchedule,
			LabelSelector: &metav1.LabelSelector{MatchLabels: map[string]string{"my-label": string(rune('a' + r.IntN(7)))}}}}
	case 3:
		p.Labels = map[string]string{"my-affininity": letter}
		p.Spec.Affinity = &corev1.Affinity{PodAffinity: &corev1.PodAffinity{RequiredDuringSchedulingIgnoredDuringExecution: []corev1.PodAffinityTerm{
			{TopologyKey: corev1.LabelTopologyZone, LabelSelector: &metav1.LabelSelector{MatchLabels: p.Labels}}}}}
	case 4:
		p.Labels = map[string]string{"app": "nginx"}
		p.Spec.Affinity = &corev1.Affinity{PodAntiAffinity: &corev1.PodAntiAffinity{RequiredDuringSchedulingIgnoredDuringExecution: []corev1.PodAffinityTerm{
			{TopologyKey: corev1.LabelHostname, LabelSelector: &metav1.LabelSelector{MatchLabels: p.Labels}}}}}
	}
}
