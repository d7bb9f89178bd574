package kube

import (
	"context"
	"encoding/json"
	"fmt"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"

	"github.com/muster-dev/muster/nodes"
)

// This file shows pools as objects, which `kubectl get pools` lists. The resource is defined by deploy/kubernetes/nodes/pools.yaml. Its
// objects have a status and nothing else: pools are configured in Muster's settings. So there is no status subresource, which would keep
// the two apart and cost a second request. Where the resource is not defined nothing is shown.

// poolsAPI is where the API is.
const poolsAPI = "/apis/muster.dev/v1alpha1"

// poolBoard remembers what was shown, so that a tick writes only what has changed.
type poolBoard struct {
	mu      sync.Mutex
	shown   map[string]nodes.PoolStatus
	tidied  bool      // pools that are not configured any more have been deleted
	refused time.Time // until when nothing is written
}

// poolObject is a pool as it is written.
type poolObject struct {
	APIVersion string            `json:"apiVersion"`
	Kind       string            `json:"kind"`
	Metadata   map[string]string `json:"metadata"`
	Status     nodes.PoolStatus  `json:"status"`
}

// ShowPools writes the status of each pool that has changed since the last call, and deletes the objects of pools that are not among
// them.
func (c *Cluster) ShowPools(ctx context.Context, pools []nodes.PoolStatus) error {
	b := &c.pools
	b.mu.Lock()
	defer b.mu.Unlock()
	now := c.opts.Clock.Now()
	if now.Before(b.refused) {
		return nil
	}
	if b.shown == nil {
		b.shown = map[string]nodes.PoolStatus{}
	}

	err := c.showPools(ctx, b, pools)
	switch {
	case isAbsent(err): // the resource is not defined
		b.refused = now.Add(refusedFor)
		return nil
	case apierrors.IsForbidden(err):
		b.refused = now.Add(refusedFor)
	}
	return err
}

func (c *Cluster) showPools(ctx context.Context, b *poolBoard, pools []nodes.PoolStatus) error {
	if !b.tidied {
		if err := c.deletePoolsBut(ctx, pools); err != nil {
			return err
		}
		b.tidied = true
	}
	for _, p := range pools {
		if was, ok := b.shown[p.Name]; ok && was == p {
			continue
		}
		if err := c.showPool(ctx, p); err != nil {
			return err
		}
		b.shown[p.Name] = p
	}
	return nil
}

// showPool creates the object of a pool or brings it up to date.
func (c *Cluster) showPool(ctx context.Context, p nodes.PoolStatus) error {
	what := "showing pool " + p.Name
	body, err := json.Marshal(poolObject{APIVersion: "muster.dev/v1alpha1", Kind: "Pool", Metadata: map[string]string{"name": p.Name}, Status: p})
	if err != nil {
		return fmt.Errorf("%s: %w", what, err)
	}
	q := c.core.Patch(types.ApplyPatchType).AbsPath(poolsAPI, "pools", p.Name).Param("fieldManager", "muster").Param("force", "true")
	return c.get(ctx, what, q.Body(body), &struct{}{})
}

// deletePoolsBut deletes the objects of all other pools.
func (c *Cluster) deletePoolsBut(ctx context.Context, pools []nodes.PoolStatus) error {
	var list struct {
		Items []struct {
			Metadata struct {
				Name string `json:"name"`
			} `json:"metadata"`
		} `json:"items"`
	}
	if err := c.get(ctx, "listing pools", c.core.Get().AbsPath(poolsAPI, "pools"), &list); err != nil {
		return err
	}
	configured := map[string]bool{}
	for _, p := range pools {
		configured[p.Name] = true
	}
	for _, item := range list.Items {
		name := item.Metadata.Name
		if configured[name] {
			continue
		}
		err := c.get(ctx, "deleting pool "+name, c.core.Delete().AbsPath(poolsAPI, "pools", name), &struct{}{})
		if err != nil && !apierrors.IsNotFound(err) {
			return err
		}
	}
	return nil
}
