package kube

import (
	"context"
	"encoding/json"
	"fmt"
	"hash/fnv"
	"iter"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/muster-dev/muster/nodes"
)

// The reasons of the events on pods. They are those of Kubernetes' Cluster Autoscaler, which people and dashboards know; see nodeReasons.
const (
	ReasonLaunch   = "TriggeredScaleUp"  // a node for the pod is launched, or on its way
	ReasonNoLaunch = "NotTriggerScaleUp" // none is
)

// EventSource is the component that the events name.
const EventSource = "muster-nodes"

const (
	// noticeLasts is after how long an event is written again that says the same: Kubernetes deletes events after an hour.
	noticeLasts = 20 * time.Minute
	// noticeSettles is how long an event stays as it is, so that a text that changes with every tick costs few requests.
	noticeSettles = time.Minute
	// mostNotices bounds the requests of one tick. The pods that are left are told by the next ones.
	mostNotices = 100
	// refusedFor is how long nothing is tried again that the server did not permit or does not have.
	refusedFor = 10 * time.Minute
	// mostText is how long an event's message may be.
	mostText = 1024
)

// noticeBoard remembers which events were written, so that a tick writes only what is new. It is not durable: after a restart, the
// names of the events, which follow from their pod and cause, keep one from being there twice.
type noticeBoard struct {
	mu      sync.Mutex
	told    map[types.NamespacedName]told // by the event's name
	refused time.Time                     // until when nothing is written
}

// told is an event that was written.
type told struct {
	text string
	at   time.Time
}

// due reports whether an event has to be written.
func (b *noticeBoard) due(name types.NamespacedName, text string, now time.Time) bool {
	was, ok := b.told[name]
	age := now.Sub(was.at)
	return !ok || age >= noticeLasts || was.text != text && age >= noticeSettles
}

// forget drops what is too old to matter, so that pods that are gone leave nothing behind.
func (b *noticeBoard) forget(now time.Time) {
	for name, was := range b.told {
		if now.Sub(was.at) > 3*noticeLasts {
			delete(b.told, name)
		}
	}
}

// take reports whether an event has to be written, and whether one of its name was. Of those that are told once it is only the first.
func (b *noticeBoard) take(e *corev1.Event, once bool, now time.Time) (due, known bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if now.Before(b.refused) {
		return false, false
	}
	name := types.NamespacedName{Namespace: e.Namespace, Name: e.Name}
	_, known = b.told[name]
	return b.due(name, e.Message, now) && (!once || !known), known
}

// wrote notes that an event was written, or could not be.
func (b *noticeBoard) wrote(e *corev1.Event, err error, now time.Time) {
	b.mu.Lock()
	defer b.mu.Unlock()
	switch {
	case apierrors.IsForbidden(err):
		b.refused = now.Add(refusedFor)
	case err == nil:
		if b.told == nil {
			b.told = map[types.NamespacedName]told{}
		}
		b.told[types.NamespacedName{Namespace: e.Namespace, Name: e.Name}] = told{e.Message, now}
	}
}

// TellPods writes an event on each pod, which `kubectl describe pod` shows. An event with the cause of an earlier one replaces it. What
// was written lately is not written again, and what is too much for one call is left for the next.
func (c *Cluster) TellPods(ctx context.Context, notices []nodes.PodNotice) error {
	now := c.opts.Clock.Now()
	return c.post(ctx, now, func(yield func(*corev1.Event, bool) bool) {
		for _, n := range notices {
			for _, pod := range n.Pods {
				if !yield(podEvent(pod, n, now), false) {
					return
				}
			}
		}
	})
}

// post writes the events that are due; each comes with whether it is told once. The board is not locked during requests: a notice about a
// node that is taken away does not wait for a hundred about pods.
func (c *Cluster) post(ctx context.Context, now time.Time, events iter.Seq2[*corev1.Event, bool]) error {
	b := &c.notices
	b.mu.Lock()
	b.forget(now)
	b.mu.Unlock()

	written := 0
	for e, once := range events {
		due, known := b.take(e, once, now)
		if !due {
			continue
		}
		if written++; written > mostNotices {
			return nil
		}
		err := c.write(ctx, e, known, once)
		b.wrote(e, err, now)
		if err != nil {
			return err
		}
	}
	return nil
}

// podEvent returns what is written on a pod. Its name follows from the pod, the cause and what follows, also in another process.
func podEvent(pod nodes.PodRef, n nodes.PodNotice, now time.Time) *corev1.Event {
	on := corev1.ObjectReference{APIVersion: "v1", Kind: "Pod", Namespace: pod.Namespace, Name: pod.Name, UID: types.UID(pod.UID)}
	e := eventOn(on, fmt.Sprint(n.Cause, "/", n.Launch, "/", n.Forever), n.Text, now)
	e.Namespace, e.Reason = pod.Namespace, ReasonNoLaunch
	if n.Launch {
		e.Reason = ReasonLaunch
	}
	if n.Forever {
		e.Type = corev1.EventTypeWarning
	}
	return e
}

// eventOn returns an event on an object, whose name follows from the object and what tells its events apart.
func eventOn(o corev1.ObjectReference, key, text string, now time.Time) *corev1.Event {
	h := fnv.New64a()
	_, _ = fmt.Fprint(h, string(o.UID), "/", key)
	prefix := o.Name[:min(len(o.Name), 230)]
	return &corev1.Event{
		ObjectMeta:          metav1.ObjectMeta{Name: fmt.Sprintf("%s.%016x", strings.TrimRight(prefix, ".-"), h.Sum64())},
		InvolvedObject:      o,
		Message:             strings.ToValidUTF8(text[:min(len(text), mostText)], ""),
		Type:                corev1.EventTypeNormal,
		Source:              corev1.EventSource{Component: EventSource},
		FirstTimestamp:      metav1.NewTime(now),
		LastTimestamp:       metav1.NewTime(now),
		Count:               1,
		ReportingController: EventSource,
	}
}

// write creates an event, or brings the one of its name up to date unless it is told once. One of a namespace that is gone, or on its way,
// is not written.
func (c *Cluster) write(ctx context.Context, e *corev1.Event, known, once bool) error {
	what := fmt.Sprintf("writing an event on %s %s", strings.ToLower(e.InvolvedObject.Kind),
		strings.TrimPrefix(e.InvolvedObject.Namespace+"/"+e.InvolvedObject.Name, "/"))
	create := func() error {
		return c.do(ctx, what, c.core.Post().Namespace(e.Namespace).Resource("events").Body(e), nil)
	}
	update := func() error {
		body, err := json.Marshal(map[string]any{"message": e.Message, "type": e.Type, "lastTimestamp": e.LastTimestamp})
		if err != nil {
			return fmt.Errorf("%s: %w", what, err)
		}
		return c.do(ctx, what, c.core.Patch(types.MergePatchType).Namespace(e.Namespace).Resource("events").Name(e.Name).Body(body), nil)
	}

	var err error
	if known {
		if err = update(); apierrors.IsNotFound(err) { // Kubernetes has deleted it
			err = create()
		}
	} else if err = create(); apierrors.IsAlreadyExists(err) { // another process wrote it
		if err = nil; !once {
			err = update()
		}
	}
	if apierrors.IsNotFound(err) || apierrors.HasStatusCause(err, corev1.NamespaceTerminatingCause) {
		return nil
	}
	return err
}
