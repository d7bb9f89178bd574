package main

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/klog/v2"
)

// evictionController does what the documentation of lifecycle.k8s.io/v1alpha1 says of Kubernetes' evictionrequest-controller: 1.37 serves
// the API, and its controller manager doesn't have the controller yet. It makes an Eviction of the EvictionRequests for a pod, activates
// one responder after the other, and evicts when it is the turn of Kubernetes' own. The API server holds it to the order of the states.
//
// Left out: silent responders are not interrupted, for which the API demands 20 minutes. The types are this program's, because it is
// made of releases without them, too.
type evictionController struct {
	objects dynamic.Interface
	core    kubernetes.Interface
}

const (
	evictionLook = 100 * time.Millisecond               // between two looks at everything
	imperative   = "imperative-eviction.k8s.io/evictor" // Kubernetes' own responder, the last
)

var (
	lifecycleGroup   = schema.GroupVersion{Group: "lifecycle.k8s.io", Version: "v1alpha1"}
	requestsResource = lifecycleGroup.WithResource("evictionrequests")
	evictionResource = lifecycleGroup.WithResource("evictions")
)

// The states of a responder and the intent of a request, as the API has them.
const (
	inactive  = "Inactive"
	active    = "Active"
	canceled  = "Canceled"
	completed = "Completed"
	wanted    = "Eviction"
)

// lifecycleObject is an EvictionRequest or an Eviction, as far as it is read.
type lifecycleObject struct {
	Metadata metav1.ObjectMeta `json:"metadata"`
	Spec     struct {
		Target    evictionTarget `json:"target"`
		Requester string         `json:"requester"`
		Intent    string         `json:"intent"`
	} `json:"spec"`
	Status evictionStatus `json:"status"`
}

type evictionTarget struct {
	Pod evictionPod `json:"pod"`
}

type evictionPod struct {
	Name string    `json:"name"`
	UID  types.UID `json:"uid"`
}

type evictionStatus struct {
	ObservedGeneration *int64              `json:"observedGeneration,omitempty"`
	Conditions         []metav1.Condition  `json:"conditions,omitempty"`
	Requesters         []evictionRequester `json:"requesters,omitempty"`
	TargetResponders   []targetResponder   `json:"targetResponders,omitempty"`
	Responders         []responderStatus   `json:"responders,omitempty"`
}

type evictionRequester struct {
	Name   string `json:"name"`
	Intent string `json:"intent"`
}

type targetResponder struct {
	Name     string `json:"name"`
	Priority int64  `json:"priority"`
	State    string `json:"state"`
}

type responderStatus struct {
	Name                   string       `json:"name"`
	StartTime              *metav1.Time `json:"startTime,omitempty"`
	HeartbeatTime          *metav1.Time `json:"heartbeatTime,omitempty"`
	ExpectedCompletionTime *metav1.Time `json:"expectedCompletionTime,omitempty"`
	CompletionTime         *metav1.Time `json:"completionTime,omitempty"`
	Message                *string      `json:"message,omitempty"`
}

// podToEvict is what requests and Evictions have in common.
type podToEvict struct {
	namespace string
	evictionPod
}

func (o *lifecycleObject) pod() podToEvict {
	return podToEvict{o.Metadata.Namespace, o.Spec.Target.Pod}
}

// startEvictions runs the controller until ctx ends.
func startEvictions(ctx context.Context, rc *rest.Config) error {
	objects, err := dynamic.NewForConfig(rc)
	if err != nil {
		return err
	}
	core, err := kubernetes.NewForConfig(rc)
	if err != nil {
		return err
	}
	c := &evictionController{objects, core}
	go func() {
		for ctx.Err() == nil {
			if err := c.round(ctx); err != nil && ctx.Err() == nil {
				klog.ErrorS(err, "the controller of eviction requests")
			}
			select {
			case <-ctx.Done():
			case <-time.After(evictionLook):
			}
		}
	}()
	return nil
}

// round brings every Eviction one step further.
func (c *evictionController) round(ctx context.Context) error {
	requests, err := c.list(ctx, requestsResource)
	if err != nil {
		return err
	}
	evictions, err := c.list(ctx, evictionResource)
	if err != nil {
		return err
	}
	asked := map[podToEvict][]*lifecycleObject{}
	for _, r := range requests {
		asked[r.pod()] = append(asked[r.pod()], r)
	}

	var errs []error
	made := map[podToEvict]bool{}
	for _, e := range evictions {
		made[e.pod()] = true
		if by := asked[e.pod()]; len(by) > 0 {
			errs = append(errs, c.advance(ctx, e, by))
			continue
		}
		err := c.objects.Resource(evictionResource).Namespace(e.Metadata.Namespace).Delete(ctx, e.Metadata.Name, metav1.DeleteOptions{})
		if !apierrors.IsNotFound(err) {
			errs = append(errs, err)
		}
	}
	for pod, by := range asked {
		if !made[pod] && wants(by) {
			errs = append(errs, c.create(ctx, pod, by))
		}
	}
	return errors.Join(errs...)
}

func (c *evictionController) list(ctx context.Context, of schema.GroupVersionResource) (out []*lifecycleObject, err error) {
	l, err := c.objects.Resource(of).List(ctx, metav1.ListOptions{})
	if err != nil {
		return nil, err
	}
	for i := range l.Items {
		o := &lifecycleObject{}
		if err := runtime.DefaultUnstructuredConverter.FromUnstructured(l.Items[i].Object, o); err != nil {
			return nil, err
		}
		out = append(out, o)
	}
	return out, nil
}

func wants(by []*lifecycleObject) bool {
	return slices.ContainsFunc(by, func(r *lifecycleObject) bool { return r.Spec.Intent == wanted })
}

// create makes the Eviction of a pod. A pod that is gone needs none.
func (c *evictionController) create(ctx context.Context, pod podToEvict, by []*lifecycleObject) error {
	responders, err := c.responders(ctx, pod)
	if err != nil || responders == nil {
		return err
	}
	labels := map[string]any{}
	for _, r := range by {
		labels[r.Spec.Requester] = "requester"
	}
	for _, r := range responders {
		role := "responder"
		if labels[r.Name] != nil {
			role = "requester-responder"
		}
		labels[r.Name] = role
	}
	_, err = c.objects.Resource(evictionResource).Namespace(pod.namespace).Create(ctx, &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": lifecycleGroup.String(), "kind": "Eviction",
		"metadata": map[string]any{"name": string(pod.UID), "labels": labels},
		"spec":     map[string]any{"target": map[string]any{"pod": map[string]any{"name": pod.Name, "uid": string(pod.UID)}}},
	}}, metav1.CreateOptions{})
	return err
}

// responders returns those that a pod names, and Kubernetes' own, in the order of their turns; nil: the pod is gone.
func (c *evictionController) responders(ctx context.Context, pod podToEvict) ([]targetResponder, error) {
	p, err := c.objects.Resource(corev1.SchemeGroupVersion.WithResource("pods")).Namespace(pod.namespace).Get(ctx, pod.Name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) || err == nil && p.GetUID() != pod.UID {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	var spec struct {
		Spec struct {
			EvictionResponders []targetResponder `json:"evictionResponders"`
		} `json:"spec"`
	}
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(p.Object, &spec); err != nil {
		return nil, err
	}
	out := append(spec.Spec.EvictionResponders, targetResponder{Name: imperative, Priority: 100})
	slices.SortStableFunc(out, func(a, b targetResponder) int {
		return cmp.Or(cmp.Compare(b.Priority, a.Priority), strings.Compare(a.Name, b.Name))
	})
	for i := range out {
		out[i].State = inactive
	}
	return out, nil
}

// advance writes what has changed for an Eviction, and evicts when that is due.
func (c *evictionController) advance(ctx context.Context, e *lifecycleObject, by []*lifecycleObject) error {
	responders, err := c.responders(ctx, e.pod())
	if err != nil {
		return err
	}
	before, err := json.Marshal(e.Status)
	if err != nil {
		return err
	}
	if len(e.Status.TargetResponders) == 0 && responders != nil {
		e.Status.TargetResponders = responders
		for _, r := range responders {
			e.Status.Responders = append(e.Status.Responders, responderStatus{Name: r.Name})
		}
		e.Status.activate(0)
	}
	e.Status.ObservedGeneration, e.Status.Requesters = &e.Metadata.Generation, nil
	for _, r := range by {
		e.Status.Requesters = append(e.Status.Requesters, evictionRequester{r.Spec.Requester, r.Spec.Intent})
	}
	switch {
	case responders == nil:
		e.Status.end("TargetEvicted", "PodDeleted")
	case !wants(by):
		e.Status.end("Failed", "CanceledDueToNoRequesters")
	default:
		e.Status.turn()
	}
	after, err := json.Marshal(e.Status)
	if err != nil {
		return err
	}
	if !bytes.Equal(before, after) {
		if err := c.write(ctx, e); err != nil {
			return err
		}
	}
	if i := e.Status.active(); i >= 0 && e.Status.TargetResponders[i].Name == imperative {
		return c.evict(ctx, e.pod())
	}
	return nil
}

// active returns whose turn it is, -1 for nobody.
func (s *evictionStatus) active() int {
	return slices.IndexFunc(s.TargetResponders, func(t targetResponder) bool { return t.State == active })
}

// statusOf returns what a responder says of itself.
func (s *evictionStatus) statusOf(name string) *responderStatus {
	i := slices.IndexFunc(s.Responders, func(r responderStatus) bool { return r.Name == name })
	return &s.Responders[i]
}

// activate gives the turn to a responder.
func (s *evictionStatus) activate(i int) {
	now := metav1.Now().Rfc3339Copy()
	s.TargetResponders[i].State = active
	s.statusOf(s.TargetResponders[i].Name).StartTime = &now
}

// turn gives the turn to the next responder once the one before has completed.
func (s *evictionStatus) turn() {
	i := s.active()
	if i < 0 || s.statusOf(s.TargetResponders[i].Name).CompletionTime == nil {
		return
	}
	s.TargetResponders[i].State = completed
	if i+1 < len(s.TargetResponders) {
		s.activate(i + 1)
	}
}

// end ends an Eviction by a condition, for good.
func (s *evictionStatus) end(condition, reason string) {
	if i := s.active(); i >= 0 {
		s.TargetResponders[i].State = canceled
		if s.statusOf(s.TargetResponders[i].Name).CompletionTime != nil {
			s.TargetResponders[i].State = completed
		}
	}
	if len(s.Conditions) == 0 {
		meta.SetStatusCondition(&s.Conditions, metav1.Condition{Type: condition, Status: metav1.ConditionTrue, Reason: reason, Message: "by the lab's controller"})
	}
}

func (c *evictionController) write(ctx context.Context, e *lifecycleObject) error {
	status, err := runtime.DefaultUnstructuredConverter.ToUnstructured(&e.Status)
	if err != nil {
		return err
	}
	u := &unstructured.Unstructured{Object: map[string]any{"apiVersion": lifecycleGroup.String(), "kind": "Eviction",
		"spec":   map[string]any{"target": map[string]any{"pod": map[string]any{"name": e.Spec.Target.Pod.Name, "uid": string(e.Spec.Target.Pod.UID)}}},
		"status": status}}
	u.SetName(e.Metadata.Name)
	u.SetNamespace(e.Metadata.Namespace)
	u.SetResourceVersion(e.Metadata.ResourceVersion)
	_, err = c.objects.Resource(evictionResource).Namespace(e.Metadata.Namespace).UpdateStatus(ctx, u, metav1.UpdateOptions{})
	if apierrors.IsConflict(err) || apierrors.IsNotFound(err) { // the next round reads again
		return nil
	}
	return err
}

// evict asks for the eviction that kubectl drain asks for, again each round while a disruption budget refuses it.
func (c *evictionController) evict(ctx context.Context, pod podToEvict) error {
	err := c.core.CoreV1().Pods(pod.namespace).EvictV1(ctx, &policyv1.Eviction{ObjectMeta: metav1.ObjectMeta{Name: pod.Name, Namespace: pod.namespace},
		DeleteOptions: &metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &pod.UID}}})
	if apierrors.IsNotFound(err) || apierrors.IsConflict(err) || apierrors.IsTooManyRequests(err) {
		return nil
	}
	return err
}
