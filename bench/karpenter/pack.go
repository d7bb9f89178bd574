package main

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/record"
	"k8s.io/utils/clock"
	fakeclient "sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/log"
	v1 "sigs.k8s.io/karpenter/pkg/apis/v1"
	"sigs.k8s.io/karpenter/pkg/cloudprovider"
	"sigs.k8s.io/karpenter/pkg/cloudprovider/fake"
	"sigs.k8s.io/karpenter/pkg/controllers/provisioning/scheduling"
	"sigs.k8s.io/karpenter/pkg/controllers/state"
	"sigs.k8s.io/karpenter/pkg/events"
	"sigs.k8s.io/karpenter/pkg/operator/options"
	requirements "sigs.k8s.io/karpenter/pkg/scheduling"

	"github.com/muster-dev/muster/nodes"
	"github.com/muster-dev/muster/nodes/fit"
)

// zones are those in which both may launch, named as AWS names them.
func zones() []string { return []string{"us-east-1a", "us-east-1b", "us-east-1c"} }

// offered are the instance types that both may launch, at their On-Demand price: c6i, m6i and r6i from 2 to 64 vCPUs.
func offered() []string {
	var out []string
	for _, family := range []string{"c6i", "m6i", "r6i"} {
		for _, size := range []string{"large", "xlarge", "2xlarge", "4xlarge", "8xlarge", "12xlarge", "16xlarge"} {
			out = append(out, family+"."+size)
		}
	}
	return out
}

func newFit() *fit.Fit { return fit.New(fit.Config{Zones: zones()}) }

// question turns pods of the Kubernetes API into what package fit is asked, as the node plane does: encoded and counted by class.
func question(pods []*corev1.Pod) nodes.Question {
	e := fit.NewEncoder(slices.Values(pods), nil)
	pending := make([]nodes.Pod, len(pods))
	for i, p := range pods {
		pending[i] = nodes.Pod{Name: p.Namespace + "/" + p.Name, Requests: fit.Requests(p), Scheduling: e.Encode(p)}
	}
	policy := nodes.DefaultPolicy()
	policy.InstanceTypes, policy.Spot = offered(), false
	return nodes.Question{Policy: policy, Observation: nodes.Observation{Pending: nodes.Classes(pending), FleetKnown: true}, Now: time.Unix(1730000000, 0), Pending: len(pods), Room: 1 << 30}
}

func packMuster(pods []*corev1.Pod) (packing, error) {
	p := newFit().Pack(question(pods))
	out := packing{cost: p.Cost}
	for _, g := range p.New {
		out.nodes += g.Count
	}
	for _, u := range p.Unplaced {
		out.unplaced += u.Count
	}
	return out, nil
}

// instanceTypes are those that are offered, as Karpenter has them, with exactly the allocatable resources that package fit counts on.
func instanceTypes() ([]*cloudprovider.InstanceType, error) {
	types, err := fit.Shipped().Only(offered())
	if err != nil {
		return nil, err
	}
	var out []*cloudprovider.InstanceType
	for _, t := range types {
		room := newFit().Allocatable(t)
		it := &cloudprovider.InstanceType{
			Name: t.Name,
			Requirements: requirements.NewRequirements(
				requirements.NewRequirement(corev1.LabelInstanceTypeStable, corev1.NodeSelectorOpIn, t.Name),
				requirements.NewRequirement(corev1.LabelArchStable, corev1.NodeSelectorOpIn, t.Arch),
				requirements.NewRequirement(corev1.LabelOSStable, corev1.NodeSelectorOpIn, string(corev1.Linux)),
				requirements.NewRequirement(corev1.LabelTopologyZone, corev1.NodeSelectorOpIn, zones()...),
				requirements.NewRequirement(v1.CapacityTypeLabelKey, corev1.NodeSelectorOpIn, v1.CapacityTypeOnDemand),
			),
			Capacity: corev1.ResourceList{
				corev1.ResourceCPU:    *resource.NewMilliQuantity(room.MilliCPU, resource.DecimalSI),
				corev1.ResourceMemory: *resource.NewQuantity(room.Memory, resource.BinarySI),
				corev1.ResourcePods:   *resource.NewQuantity(int64(room.Pods), resource.DecimalSI),
			},
			Overhead: &cloudprovider.InstanceTypeOverhead{},
		}
		for _, z := range zones() {
			it.Offerings = append(it.Offerings, &cloudprovider.Offering{Available: true, Price: t.OnDemand,
				Requirements: requirements.NewLabelRequirements(map[string]string{v1.CapacityTypeLabelKey: v1.CapacityTypeOnDemand, corev1.LabelTopologyZone: z})})
		}
		out = append(out, it)
	}
	return out, nil
}

func packKarpenter(pods []*corev1.Pod) (packing, error) {
	results, err := solve(pods)
	if err != nil {
		return packing{}, err
	}
	out := packing{nodes: len(results.NewNodeClaims), unplaced: len(results.PodErrors)}
	for _, n := range results.NewNodeClaims {
		// Of the types that hold a node's pods the cheapest is launched.
		cheapest := n.InstanceTypeOptions.OrderByPrice(n.Requirements)[0]
		out.cost += cheapest.Offerings.Available().Compatible(n.Requirements).Cheapest().Price
	}
	return out, nil
}

// solve runs Karpenter's scheduler the way its own benchmark does.
func solve(pods []*corev1.Pod) (scheduling.Results, error) {
	log.SetLogger(logr.Discard())
	ctx := options.ToContext(context.Background(), &options.Options{
		CPURequests: 1000, MemoryLimit: -1, PreferencePolicy: options.PreferencePolicyRespect, MinValuesPolicy: options.MinValuesPolicyStrict, IgnoreDRARequests: true,
	})
	pool := &v1.NodePool{ObjectMeta: metav1.ObjectMeta{Name: "default", UID: "default"}}
	pool.Spec.Limits = v1.Limits{corev1.ResourceCPU: resource.MustParse("10000000"), corev1.ResourceMemory: resource.MustParse("10000000Gi")}
	pool.Spec.Template.Spec.NodeClassRef = &v1.NodeClassReference{Group: "karpenter.test.sh", Kind: "TestNodeClass", Name: "default"}
	pool.Spec.Template.Spec.Requirements = []v1.NodeSelectorRequirementWithMinValues{}
	types, err := instanceTypes()
	if err != nil {
		return scheduling.Results{}, err
	}
	provider := fake.NewCloudProvider()
	provider.InstanceTypes = types
	client := fakeclient.NewFakeClient()
	cluster := state.NewCluster(clock.RealClock{}, client, provider)
	byPool := map[string][]*cloudprovider.InstanceType{pool.Name: types}
	opts := scheduling.NumConcurrentReconciles(2) // as many as there are cores
	topology, err := scheduling.NewTopology(ctx, client, cluster, nil, []*v1.NodePool{pool}, byPool, pods, opts)
	if err != nil {
		return scheduling.Results{}, fmt.Errorf("building the topology, %w", err)
	}
	s := scheduling.NewScheduler(ctx, client, []*v1.NodePool{pool}, cluster, nil, topology, byPool, nil, events.NewRecorder(&record.FakeRecorder{}), clock.RealClock{}, nil, opts)
	results, err := s.Solve(ctx, pods)
	if err != nil {
		return scheduling.Results{}, fmt.Errorf("solving, %w", err)
	}
	return results, nil
}

// packing is what a contender answers.
type packing struct {
	nodes, unplaced int
	cost            float64
}
