package kube

import (
	"context"
	"encoding/json"
	"fmt"
	"reflect"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/muster-dev/muster/internal/quantity"
	"github.com/muster-dev/muster/nodes"
)

// The conditions of a CapacityBuffer that Cluster Autoscaler and Karpenter write as well.
const (
	readyForProvisioning = "ReadyForProvisioning" // what the buffer asks for is known
	provisioning         = "Provisioning"         // there is room for it, or nodes with room are on their way
)

// ShowBuffers writes the status of each buffer that is not as it stands now. launching says that nodes for buffers are launched now.
//
// The status is compared with the one that the last view read, so nothing is written twice, also by another process. A write carries the
// resource version of that view: if somebody has changed the buffer since, the server refuses it, and the next tick writes what is then
// true. What was written is forgotten, because only the next view has its version.
func (c *Cluster) ShowBuffers(ctx context.Context, stand []nodes.Headroom, launching bool) error {
	now := c.opts.Clock.Now()
	seen := c.buffers.take(now)
	for _, h := range stand {
		was, there := seen[h.Buffer]
		if !there {
			continue
		}
		next, err := was.with(h, launching, metav1.NewTime(now))
		if err != nil {
			return fmt.Errorf("showing capacity buffer %s: %w", h.Buffer, err)
		}
		if next == nil {
			continue
		}
		err = c.writeBuffer(ctx, h.Buffer, next)
		switch {
		case apierrors.IsConflict(err), isAbsent(err): // changed or deleted since
			continue
		case apierrors.IsForbidden(err):
			c.buffers.refuse(now.Add(refusedFor))
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// take returns what was seen by the last view, once; nothing while writes are refused. It does not hold the lock while a status is written:
// a view waits for no write.
func (b *bufferBoard) take(now time.Time) map[string]bufferSeen {
	b.mu.Lock()
	defer b.mu.Unlock()
	if now.Before(b.refused) {
		return nil
	}
	seen := b.seen
	b.seen = nil
	return seen
}

func (b *bufferBoard) refuse(until time.Time) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.refused = until
}

func (c *Cluster) writeBuffer(ctx context.Context, name string, object map[string]any) error {
	what := "showing capacity buffer " + name
	body, err := json.Marshal(object)
	if err != nil {
		return fmt.Errorf("%s: %w", what, err)
	}
	namespace, own, _ := strings.Cut(name, "/")
	q := c.core.Put().AbsPath(bufferAPI, "namespaces", namespace, bufferResource, own, "status").Param("fieldManager", "muster")
	return c.get(ctx, what, q.SetHeader("Content-Type", "application/json").Body(body), &struct{}{})
}

// with returns the object with the status of a buffer that stands so, nil if it has that already. Conditions of others stay, and so does
// every field that is not known here.
//
// status.replicas is what the buffer asks for, as Cluster Autoscaler and Karpenter write it; how much of it there is room for is in the
// condition.
func (s bufferSeen) with(h nodes.Headroom, launching bool, now metav1.Time) (map[string]any, error) {
	before, _ := s.object["status"].(map[string]any)
	var known struct {
		Conditions []metav1.Condition `json:"conditions"`
	}
	if err := recode(before, &known); err != nil {
		return nil, err
	}
	generation := generationOf(s.object)
	changed := false
	for _, is := range s.found.conditions(h, launching) {
		is.ObservedGeneration, is.LastTransitionTime = generation, now
		changed = meta.SetStatusCondition(&known.Conditions, is) || changed
	}

	next := map[string]any{}
	for k, v := range before {
		next[k] = v
	}
	next["provisioningStrategy"] = s.found.strategy
	delete(next, "podTemplateRef")
	delete(next, "podTemplateGeneration")
	delete(next, "replicas")
	if h.Ignored == "" {
		next["replicas"] = number(int64(h.Replicas))
	}
	if s.found.template != "" {
		next["podTemplateRef"] = map[string]any{"name": s.found.template}
		next["podTemplateGeneration"] = number(s.found.generation)
	}
	if !changed && reflect.DeepEqual(before, next) {
		return nil, nil
	}
	next["conditions"] = known.Conditions
	object := map[string]any{}
	for k, v := range s.object {
		object[k] = v
	}
	object["status"] = next
	return object, nil
}

// number is an integer as whole decodes it.
func number(n int64) json.Number { return json.Number(fmt.Sprint(n)) }

func generationOf(object map[string]any) int64 {
	metadata, _ := object["metadata"].(map[string]any)
	n, _ := metadata["generation"].(json.Number)
	g, _ := n.Int64() // 0 for an object without one
	return g
}

// recode brings what was decoded without a type into one.
func recode(from, to any) error {
	data, err := json.Marshal(from)
	if err != nil {
		return err
	}
	return json.Unmarshal(data, to)
}

// conditions are those of a buffer that stands so. Their texts change only with what they say, or each tick would write.
func (r resolved) conditions(h nodes.Headroom, launching bool) []metav1.Condition {
	is := func(kind string, ok bool, reason, text string, args ...any) metav1.Condition {
		out := metav1.Condition{Type: kind, Status: metav1.ConditionFalse, Reason: reason, Message: fmt.Sprintf(text, args...)}
		if ok {
			out.Status = metav1.ConditionTrue
		}
		return out
	}
	if h.Ignored != "" {
		return []metav1.Condition{
			is(readyForProvisioning, false, h.Cause, "%s", h.Ignored),
			is(provisioning, false, h.Cause, "the buffer is ignored: %s", h.Ignored),
		}
	}
	kept := "room is kept for " + quantity.Of(h.Replicas, "pod")
	if r.asked > mostReplicas {
		kept += fmt.Sprintf(" of the %d that it asks for: the most that one buffer may have; divide it into several", r.asked)
	}
	out := []metav1.Condition{is(readyForProvisioning, true, "Resolved", "%s", kept)}
	ready := fmt.Sprintf("there is room for %d of %s", h.Ready, quantity.Of(h.Replicas, "pod"))
	switch {
	case h.Short() == 0 && h.Coming == 0:
		return append(out, is(provisioning, true, "Provisioned", "%s", ready))
	case h.NeverFit != "":
		return append(out, is(provisioning, false, "NeverFits", "no node that can be launched would run its pods: %s", h.NeverFit))
	case h.Short() == 0 || launching:
		return append(out, is(provisioning, true, "NodesOnTheirWay", "%s, and nodes are on their way", ready))
	}
	return append(out, is(provisioning, false, "NoRoom", "%s and no node is launched now; muster nodes explain says why", ready))
}
