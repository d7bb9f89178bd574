package kube

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/muster-dev/muster/nodes"
	"github.com/muster-dev/muster/nodes/fit"
)

// This file reads CapacityBuffers of autoscaling.x-k8s.io/v1beta1, the newest version that both Cluster Autoscaler and Karpenter know
// (2026-11). A buffer names pods by a template or by what runs them already, and asks for room for some more of them. Its status is
// written by buffer_status.go.
//
// The types are ours, with the fields that are used: the API's own module brings Cluster Autoscaler's dependencies with it.

const (
	bufferVersion  = "autoscaling.x-k8s.io/v1beta1"
	bufferAPI      = "/apis/" + bufferVersion
	bufferResource = "capacitybuffers"

	// activeCapacity is the strategy that is supported, and the default: there is room on nodes that are Ready.
	activeCapacity = "buffer.x-k8s.io/active-capacity"

	// mostReplicas bounds the pods of a buffer. Those with affinity or spread are placed one by one, with each decision.
	mostReplicas = 5000
)

// bufferBoard is what is remembered of buffers between requests.
type bufferBoard struct {
	mu      sync.Mutex
	is      bool // whether the server has the API
	until   time.Time
	seen    map[string]bufferSeen // by namespace/name, by the last view; nil once it was shown
	refused time.Time             // until when no status is written
}

// bufferSeen is a buffer as the server has it, and what was found out about it.
type bufferSeen struct {
	object map[string]any // all of it, so that a write changes nothing but the status
	found  resolved
}

// buffer is a CapacityBuffer.
type buffer struct {
	Metadata metav1.ObjectMeta `json:"metadata"`
	Spec     bufferSpec        `json:"spec"`
}

type bufferSpec struct {
	Strategy *string `json:"provisioningStrategy"`
	Template *struct {
		Name string `json:"name"`
	} `json:"podTemplateRef"`
	Scalable   *scalable                    `json:"scalableRef"`
	Replicas   *int32                       `json:"replicas"`
	Percentage *int32                       `json:"percentage"` // of the scalable's replicas
	Limits     map[string]resource.Quantity `json:"limits"`     // of all pods of the buffer together
}

// scalable names what runs the pods of a buffer already.
type scalable struct {
	Group string `json:"apiGroup"`
	Kind  string `json:"kind"`
	Name  string `json:"name"`
}

// scalables are the resources of the group apps that a buffer may name, by kind.
var scalables = map[string]string{"Deployment": "deployments", "StatefulSet": "statefulsets", "ReplicaSet": "replicasets"}

// resolved is what a buffer turned out to ask for.
type resolved struct {
	pod        *corev1.Pod // one of its pods; nil if it is ignored
	asked      int64       // pods that it asks room for
	replicas   int         // of asked: pods that room is kept for
	runs       int32       // replicas of what it names by scalableRef
	template   string      // name of its pod template, "" if it has none
	generation int64       // of the template
	strategy   string

	ignored, cause string
}

// servesBuffers reports whether the server has the API. The answer is remembered for a while. The group alone says nothing: Cluster
// Autoscaler's ProvisioningRequests are of the same one.
func (c *Cluster) servesBuffers(ctx context.Context) (bool, error) {
	b := &c.buffers
	b.mu.Lock()
	defer b.mu.Unlock()
	if c.opts.Clock.Now().Before(b.until) {
		return b.is, nil
	}
	var list struct {
		Resources []struct {
			Name string `json:"name"`
		} `json:"resources"`
	}
	err := c.get(ctx, "asking for the API of capacity buffers", c.core.Get().AbsPath(bufferAPI), &list)
	if err != nil && !isAbsent(err) {
		return false, err
	}
	b.is = false
	for _, r := range list.Resources {
		b.is = b.is || r.Name == bufferResource
	}
	b.until = c.opts.Clock.Now().Add(stillTrue)
	return b.is, nil
}

// listBuffers reads the buffers into a view, with what they ask for. That they can't be read is no failure of the view: pods that wait
// must get their nodes all the same. The view says so, and nothing is taken away meanwhile.
func (c *Cluster) listBuffers(ctx context.Context, v *view) {
	if !c.opts.Buffers {
		return
	}
	err := c.readBuffers(ctx, v)
	if err != nil {
		v.Buffers, v.templates, v.BuffersWhy = nil, nil, err.Error()
	}
}

func (c *Cluster) readBuffers(ctx context.Context, v *view) error {
	if is, err := c.servesBuffers(ctx); err != nil || !is {
		return err
	}
	var list struct {
		Items []json.RawMessage `json:"items"`
	}
	err := c.get(ctx, "listing capacity buffers", c.core.Get().AbsPath(bufferAPI, bufferResource), &list)
	if isAbsent(err) { // its definition has been deleted since
		return nil
	}
	if err != nil {
		return err
	}

	seen := map[string]bufferSeen{}
	for _, item := range list.Items {
		var b buffer
		if err := json.Unmarshal(item, &b); err != nil {
			return fmt.Errorf("reading a capacity buffer: %w", err)
		}
		object, err := whole(item)
		if err != nil {
			return fmt.Errorf("reading capacity buffer %s: %w", b.name(), err)
		}
		found, err := c.resolve(ctx, b)
		if err != nil {
			return err
		}
		seen[b.name()] = bufferSeen{object, found}
		v.Buffers = append(v.Buffers, found.shown(b.name()))
		v.templates = append(v.templates, found.pod)
	}
	c.buffers.mu.Lock()
	c.buffers.seen = seen
	c.buffers.mu.Unlock()
	return nil
}

// whole decodes an object without knowing its type. Numbers stay as they are written.
func whole(data []byte) (out map[string]any, err error) {
	d := json.NewDecoder(bytes.NewReader(data))
	d.UseNumber()
	return out, d.Decode(&out)
}

func (b buffer) name() string { return b.Metadata.Namespace + "/" + b.Metadata.Name }

// resolve finds out what a buffer asks for. An error is one that may pass; what a person has to fix is in the answer.
func (c *Cluster) resolve(ctx context.Context, b buffer) (resolved, error) {
	out := resolved{strategy: activeCapacity}
	if s := b.Spec.Strategy; s != nil && *s != "" {
		out.strategy = *s
	}
	var of corev1.PodTemplateSpec
	var err error
	switch {
	case out.strategy != activeCapacity:
		out.ignore("UnsupportedStrategy", "provisioning strategy %s is not supported; use %s", out.strategy, activeCapacity)
		return out, nil
	case b.Spec.Template != nil:
		of, err = c.podTemplate(ctx, b, &out)
	case b.Spec.Scalable != nil:
		of, err = c.scalableTemplate(ctx, b, &out)
	default:
		out.ignore("ResolutionFailed", "neither podTemplateRef nor scalableRef is set; set one of them")
	}
	if err != nil || out.ignored != "" {
		return out, err
	}
	out.pod = podOf(b, of)
	out.asked = b.Spec.count(out.runs, out.pod)
	out.replicas = int(min(out.asked, mostReplicas))
	return out, nil
}

func (r *resolved) ignore(cause, why string, args ...any) {
	r.cause, r.ignored = cause, fmt.Sprintf(why, args...)
}

// podTemplate reads the pod template of a buffer.
func (c *Cluster) podTemplate(ctx context.Context, b buffer, out *resolved) (corev1.PodTemplateSpec, error) {
	name := b.Spec.Template.Name
	t := &corev1.PodTemplate{}
	what := fmt.Sprintf("reading pod template %s of capacity buffer %s", name, b.name())
	err := c.do(ctx, what, c.core.Get().Namespace(b.Metadata.Namespace).Resource("podtemplates").Name(name), t)
	if apierrors.IsNotFound(err) {
		out.ignore("PodTemplateNotFound", "pod template %s is not there; create it in namespace %s", name, b.Metadata.Namespace)
		return t.Template, nil
	}
	out.template, out.generation = name, t.Generation
	return t.Template, err
}

// scalableTemplate reads the template of what runs the pods of a buffer already, and how many of them it runs.
func (c *Cluster) scalableTemplate(ctx context.Context, b buffer, out *resolved) (of corev1.PodTemplateSpec, err error) {
	ref := b.Spec.Scalable
	kind, known := scalables[ref.Kind]
	if !known || ref.Group != "apps" {
		out.ignore("UnsupportedScalable", "scalableRef %s of group %q is not supported; name a Deployment, StatefulSet or ReplicaSet of group apps", ref.Kind, ref.Group)
		return of, nil
	}
	var object struct {
		Spec struct {
			Replicas *int32                 `json:"replicas"`
			Template corev1.PodTemplateSpec `json:"template"`
		} `json:"spec"`
	}
	what := fmt.Sprintf("reading %s %s of capacity buffer %s", ref.Kind, ref.Name, b.name())
	err = c.get(ctx, what, c.apps.Get().Namespace(b.Metadata.Namespace).Resource(kind).Name(ref.Name), &object)
	if apierrors.IsNotFound(err) {
		out.ignore("ScalableRefNotFound", "%s %s is not there; create it in namespace %s", ref.Kind, ref.Name, b.Metadata.Namespace)
		return of, nil
	}
	out.runs = 1
	if n := object.Spec.Replicas; n != nil {
		out.runs = *n
	}
	return object.Spec.Template, err
}

// podOf returns one of the pods of a buffer. A pod gets its requests from its limits where it has none, which a template does not. Volumes
// are left out: those of pods that are not there can't be bound, and to wait for them would keep the buffer empty.
func podOf(b buffer, of corev1.PodTemplateSpec) *corev1.Pod {
	p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: b.Metadata.Namespace, Name: "buffer-" + b.Metadata.Name, Labels: of.Labels}, Spec: of.Spec}
	p.Spec.Volumes = nil
	for _, list := range [][]corev1.Container{p.Spec.Containers, p.Spec.InitContainers} {
		for i := range list {
			for name, limit := range list[i].Resources.Limits {
				if _, asked := list[i].Resources.Requests[name]; asked {
					continue
				}
				if list[i].Resources.Requests == nil {
					list[i].Resources.Requests = corev1.ResourceList{}
				}
				list[i].Resources.Requests[name] = limit
			}
		}
	}
	return p
}

// count returns how many pods a buffer asks room for: the greater of replicas and percentage, at most what the limits allow; without
// both as many as these allow.
func (s bufferSpec) count(runs int32, p *corev1.Pod) int64 {
	n, sized := int64(0), false
	if s.Replicas != nil {
		n, sized = int64(*s.Replicas), true
	}
	if s.Percentage != nil && s.Scalable != nil {
		share := (int64(runs)*int64(*s.Percentage) + 99) / 100 // rounded up, so it is at least 1 of what runs
		n, sized = max(n, share), true
	}
	if most, limited := withinLimits(s.Limits, p); limited && (!sized || most < n) {
		n = most
	}
	return max(n, 0)
}

// withinLimits returns how many pods the limits allow; false if they name nothing that the pods ask for.
func withinLimits(limits map[string]resource.Quantity, p *corev1.Pod) (most int64, limited bool) {
	for name, asked := range fit.AllRequests(p) {
		limit, has := limits[string(name)]
		if !has || asked.MilliValue() <= 0 {
			continue
		}
		n := limit.MilliValue() / asked.MilliValue()
		if !limited || n < most {
			most, limited = n, true
		}
	}
	return most, limited
}

// shown is what a view shows of a buffer. What its pods' placement depends on is known once all pods have been seen.
func (r resolved) shown(name string) nodes.Buffer {
	out := nodes.Buffer{Name: name, Replicas: r.replicas, Ignored: r.ignored, Cause: r.cause}
	if r.pod != nil {
		out.Pod.Requests = fit.Requests(r.pod)
	}
	return out
}

// BufferPermissions lists what this package asks of the API besides where capacity buffers are heeded.
func BufferPermissions() []Permission {
	return []Permission{
		{Verb: "list", Group: "autoscaling.x-k8s.io", Resource: bufferResource},
		{Verb: "update", Group: "autoscaling.x-k8s.io", Resource: bufferResource, Subresource: "status"},
		{Verb: "get", Resource: "podtemplates"},
		{Verb: "get", Group: "apps", Resource: "deployments"},
		{Verb: "get", Group: "apps", Resource: "statefulsets"},
		{Verb: "get", Group: "apps", Resource: "replicasets"},
	}
}

// CheckBuffers looks at what capacity buffers need. Where the cluster has none there is nothing to say.
func (c *Cluster) CheckBuffers(ctx context.Context) []nodes.Check {
	is, err := c.servesBuffers(ctx)
	switch {
	case err != nil:
		return []nodes.Check{{Name: "kubernetes: capacity buffers", Detail: err.Error(), Fix: "see whether the API can be reached from here with this token"}}
	case !is:
		return nil
	case !c.opts.Buffers:
		return []nodes.Check{{Name: "kubernetes: capacity buffers", OK: true, Detail: "ignored: they need SIGNALS=kubernetes and SIZING=fit"}}
	}
	var out []nodes.Check
	for _, p := range BufferPermissions() {
		out = append(out, c.checkPermission(ctx, p))
	}
	return out
}
