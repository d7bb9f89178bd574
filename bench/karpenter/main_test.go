package main

import (
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/muster-dev/muster/nodes/fit"
)

// Both place every pod of the mix of constraints, and Muster's nodes cost no more.
func TestMusterAsksForNoDearerNodesThanKarpenter(t *testing.T) {
	loads, err := makeLoads(300, "")
	if err != nil {
		t.Fatal(err)
	}
	for _, l := range loads {
		ours, err := packMuster(l.pods)
		if err != nil {
			t.Fatal(err)
		}
		theirs, err := packKarpenter(l.pods)
		if err != nil {
			t.Fatal(err)
		}
		if ours.unplaced+theirs.unplaced > 0 || ours.cost > theirs.cost {
			t.Errorf("%s: Muster leaves %d and pays %.2f, Karpenter leaves %d and pays %.2f", l.name, ours.unplaced, ours.cost, theirs.unplaced, theirs.cost)
		}
	}
}

// Muster's packing of the mix keeps the constraints, judged from the pods themselves: at most one pod with anti-affinity on a node, pods
// with affinity in one zone by label, each type big enough.
func TestMustersPackingKeepsTheConstraints(t *testing.T) {
	loads, err := makeLoads(500, "")
	if err != nil {
		t.Fatal(err)
	}
	pods := loads[1].pods
	byName := map[string]*corev1.Pod{}
	for _, p := range pods {
		byName[p.Namespace+"/"+p.Name] = p
	}
	zone := map[string]string{}
	for _, g := range newFit().Pack(question(pods)).New {
		shy := 0
		var cpu, mem int64
		for _, s := range g.Pods {
			p := byName[s.Pod]
			r := fit.Requests(p)
			cpu, mem = cpu+r.MilliCPU*int64(s.Count), mem+r.Memory*int64(s.Count)
			if a := p.Spec.Affinity; a != nil && a.PodAntiAffinity != nil {
				shy += s.Count
			}
			if label, ok := p.Labels["my-affininity"]; ok {
				if len(g.Zones) != 1 || zone[label] != "" && zone[label] != g.Zones[0] {
					t.Errorf("pods with affinity to their like by zone are in %v and in %s", g.Zones, zone[label])
				} else {
					zone[label] = g.Zones[0]
				}
			}
		}
		if shy > 1 {
			t.Errorf("%d pods with anti-affinity share a node", shy)
		}
		if room := newFit().Allocatable(fit.Shipped()[g.Types[0]]); cpu > room.MilliCPU || mem > room.Memory {
			t.Errorf("%dm and %d MiB on a %s", cpu, mem>>20, g.Types[0])
		}
	}
	if len(zone) == 0 || !slices.Contains([]int{1, 2, 3, 4, 5, 6, 7}, len(zone)) {
		t.Errorf("%d groups with affinity", len(zone))
	}
}
