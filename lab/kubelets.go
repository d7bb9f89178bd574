package main

import (
	"context"
	_ "embed"
	"io"
	"strings"
	"time"

	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/utils/clock"
	"sigs.k8s.io/kwok/kustomize/stage/node/fast"
	podfast "sigs.k8s.io/kwok/kustomize/stage/pod/fast"
	"sigs.k8s.io/kwok/pkg/apis/internalversion"
	kwokconfig "sigs.k8s.io/kwok/pkg/config"
	"sigs.k8s.io/kwok/pkg/kwok/controllers"
	kwoklog "sigs.k8s.io/kwok/pkg/log"
	kwokclient "sigs.k8s.io/kwok/pkg/utils/client"
)

const (
	lease   = 4 * time.Second // kubelets renew it each quarter of that
	silence = 8 * time.Second // after which a kubelet that says nothing counts as gone
)

// kubeletLabel says what a node's kubelet does; see the documentation of this command.
const kubeletLabel = "lab.muster.dev/kubelet"

//go:embed stages.yaml
var ownStages string

// stages are the rules by which KWOK plays kubelets: its own for what is ordinary, ours for nodes that report NotReady and for pods
// that take their grace period to end. KWOK's heartbeat of node status is left out: leases keep nodes alive, and its stage would compete
// with ours.
func stages() (map[internalversion.StageResourceRef][]*internalversion.Stage, error) {
	initial := strings.Replace(fast.DefaultNodeInit, "matchExpressions:", `matchExpressions:
    - key: '.metadata.labels["`+kubeletLabel+`"]'
      operator: 'In'
      values: ['up']`, 1)
	docs := append(strings.Split(ownStages, "\n---\n"), initial, podfast.DefaultPodReady, podfast.DefaultPodComplete)
	out := map[internalversion.StageResourceRef][]*internalversion.Stage{}
	for _, d := range docs {
		s, err := kwokconfig.UnmarshalWithType[*internalversion.Stage](d)
		if err != nil {
			return nil, err
		}
		out[s.Spec.ResourceRef] = append(out[s.Spec.ResourceRef], s)
	}
	return out, nil
}

// startKubelets starts the simulated kubelets of a cluster.
func startKubelets(ctx context.Context, kubeconfig string) error {
	all, err := stages()
	if err != nil {
		return err
	}
	set, err := kwokclient.NewClientset("", kubeconfig)
	if err != nil {
		return err
	}
	dynamic, err := set.ToDynamicClient()
	if err != nil {
		return err
	}
	config, err := set.ToRESTConfig()
	if err != nil {
		return err
	}
	config.QPS = -1
	client, err := rest.RESTClientFor(config)
	if err != nil {
		return err
	}
	mapper, err := set.ToRESTMapper()
	if err != nil {
		return err
	}
	typed, err := kubernetes.NewForConfig(config)
	if err != nil {
		return err
	}
	k, err := controllers.NewController(controllers.Config{
		Clock:                        clock.RealClock{},
		DynamicClient:                dynamic,
		RESTClient:                   client,
		RESTMapper:                   mapper,
		ImpersonatingDynamicClient:   set.ToImpersonatingDynamicClient(),
		ImpersonatingTypedClient:     set.ToImpersonatingTypedClient(),
		TypedClient:                  typed,
		ManageNodesWithLabelSelector: kubeletLabel + " in (up, not-ready)",
		CIDR:                         "10.0.0.1/24",
		NodeIP:                       "127.0.0.1",
		LocalStages:                  all,
		PodPlayStageParallelism:      8,
		NodePlayStageParallelism:     8,
		NodeLeaseParallelism:         8,
		NodeLeaseDurationSeconds:     uint(lease / time.Second),
		PodsOnNodeSyncParallelism:    4,
		ID:                           "lab",
	})
	if err != nil {
		return err
	}
	return k.Start(kwoklog.NewContext(ctx, kwoklog.NewLogger(io.Discard, kwoklog.LevelError)))
}
