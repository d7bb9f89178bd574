package kube

import (
	"context"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
)

const (
	// watchTime is after how long the server ends a watch, so that one whose connection has died unnoticed is begun again.
	watchTime = 5 * time.Minute
	// watchGrace is what the server is given beyond that.
	watchGrace = 30 * time.Second
)

// unplaced selects the pods that have no node and have not finished.
const unplaced = "spec.nodeName=," + running

// WatchPending calls found for each pod that waits for a node, with the time since when by its own condition, until ctx or the watch
// ends; then it is to be called again. It asks for no resource version, so it begins with the pods that wait already: what became
// unschedulable between two watches is found by the second one. A pod is found once in a watch unless it stops waiting meanwhile: the
// scheduler writes its condition again with every try.
func (c *Cluster) WatchPending(ctx context.Context, found func(since time.Time)) error {
	limited, cancel := context.WithTimeout(ctx, watchTime+watchGrace)
	defer cancel()

	limit := int64(watchTime / time.Second)
	o := metav1.ListOptions{FieldSelector: unplaced, Watch: true, TimeoutSeconds: &limit}
	w, err := c.core.Get().Resource("pods").VersionedParams(&o, c.api.parameters).MaxRetries(0).Watch(limited)
	if err != nil {
		return fmt.Errorf("watching pods: %w%s", err, hint(err))
	}
	defer w.Stop()

	p := pendingWatch{rules: c.opts.Drain, waiting: map[types.UID]bool{}, found: found}
	for e := range w.ResultChan() {
		if e.Type == watch.Error {
			if ctx.Err() != nil { // told as an event that can't be decoded
				return nil
			}
			return fmt.Errorf("watching pods: %w", apierrors.FromObject(e.Object))
		}
		if pod, ok := e.Object.(*corev1.Pod); ok {
			p.see(e.Type, pod)
		}
	}
	return nil
}

// pendingWatch follows which pods wait for a node. A pod that gets one leaves the selection, which the server tells as its deletion.
type pendingWatch struct {
	rules   Rules
	waiting map[types.UID]bool
	found   func(since time.Time)
}

func (w *pendingWatch) see(what watch.EventType, p *corev1.Pod) {
	since, yes := waits(p)
	role, _ := w.rules.judge(p)
	counts := role == moving || role == blocking // as in a view
	switch {
	case what == watch.Deleted || !yes || !counts:
		delete(w.waiting, p.UID)
	case !w.waiting[p.UID]:
		w.waiting[p.UID] = true
		w.found(since)
	}
}
