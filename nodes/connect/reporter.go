package connect

import (
	"context"
	"errors"

	"github.com/muster-dev/muster/nodes"
	"github.com/muster-dev/muster/nodes/explain"
	"github.com/muster-dev/muster/nodes/kube"
)

// Reporter shows decisions in a Kubernetes cluster: as events on the pods that wait and on nodes, and as the status of pools and
// capacity buffers.
type Reporter struct {
	Cluster *kube.Cluster
	Decider nodes.Decider // that decides
}

var _ nodes.Reporter = Reporter{}

// Report implements nodes.Reporter.
func (r Reporter) Report(ctx context.Context, s nodes.Snapshot) error {
	return errors.Join(
		r.Cluster.TellPods(ctx, explain.Waiting(r.Decider, s)),
		r.Cluster.TellNodes(ctx, explain.Blocked(s)),
		r.Cluster.ShowPools(ctx, explain.PoolStatuses(r.Decider, s)),
		r.Cluster.ShowBuffers(ctx, s.Decision.Headroom, s.Decision.Action == nodes.ScaleUp && s.Decision.Reason == nodes.ReasonHeadroom),
	)
}

// TellNodes implements nodes.Reporter.
func (r Reporter) TellNodes(ctx context.Context, notices []nodes.NodeNotice) error {
	return r.Cluster.TellNodes(ctx, notices)
}
