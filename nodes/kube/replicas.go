package kube

import (
	"context"
	"fmt"

	autoscalingv1 "k8s.io/api/autoscaling/v1"
)

// Replicas returns how many pods a Deployment is to have, by its spec: the number that a person, an HPA or a rollout asked for, not how
// many there are.
func (c *Cluster) Replicas(ctx context.Context, namespace, deployment string) (int, error) {
	var s autoscalingv1.Scale
	what := fmt.Sprintf("reading the scale of deployment %s/%s", namespace, deployment)
	if err := c.do(ctx, what, c.apps.Get().Namespace(namespace).Resource("deployments").Name(deployment).SubResource("scale"), &s); err != nil {
		return 0, err
	}
	return int(s.Spec.Replicas), nil
}
