package kube

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"

	"github.com/muster-dev/muster/nodes"
)

// This file holds EvictionRequests, which Kubernetes has from 1.37 on as an alpha feature. Four objects take part:
//
//  1. A pod names its responders in spec.evictionResponders. A server without the feature drops that field.
//  2. The node plane creates an EvictionRequest for the pod.
//  3. Kubernetes' evictionrequest-controller makes an Eviction of it. It activates one responder after the other, by their priority.
//  4. The active responder reports its progress and its end in the Eviction's status. The last one is Kubernetes' own, which evicts.
//
// A controller manager need not have that controller: the one of 1.37 has none. Then nothing makes an Eviction, and the request counts
// as unanswered.
//
// The types are ours, with the fields that are used: those of k8s.io/api come with version 0.37 of all client modules.

// Requester is the name by which the node plane requests evictions. It is a label of the Evictions that come of it.
const Requester = "muster.dev/nodes"

const (
	lifecycle = "/apis/lifecycle.k8s.io/v1alpha1" // where the API is

	unanswered = 5 * time.Second // after which a request that no controller has taken up counts as unanswered
	silence    = time.Minute     // after which a responder that reports nothing counts as gone; it should report every 20 s
	stillTrue  = time.Minute     // for how long it is remembered whether the server has the API
)

var _ nodes.EvictionRequester = (*Cluster)(nil)

// served remembers whether the server has an API.
type served struct {
	mu    sync.Mutex
	is    bool
	until time.Time
}

// servesEvictionRequests reports whether the server has the API. One without it is not asked for pods that couldn't name responders.
func (c *Cluster) servesEvictionRequests(ctx context.Context) (bool, error) {
	s := &c.evictionRequests
	s.mu.Lock()
	defer s.mu.Unlock()
	if now := c.opts.Clock.Now(); now.Before(s.until) {
		return s.is, nil
	}
	err := c.get(ctx, "asking for the API of eviction requests", c.core.Get().AbsPath(lifecycle), &struct{}{})
	if err != nil && !isAbsent(err) {
		return false, err
	}
	s.is, s.until = err == nil, c.opts.Clock.Now().Add(stillTrue)
	return s.is, nil
}

// respondingPod is a pod that names responders.
type respondingPod struct {
	namespace, name string
	uid             types.UID
}

func (p respondingPod) request() string { return "muster-" + string(p.uid) }

// evictionRequest is an EvictionRequest.
type evictionRequest struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata"`
	Spec              evictionRequestSpec `json:"spec"`
}

type evictionRequestSpec struct {
	Target    evictionTarget `json:"target"`
	Requester string         `json:"requester"`
	Intent    string         `json:"intent"`
}

type evictionTarget struct {
	Pod *evictionPod `json:"pod,omitempty"`
}

type evictionPod struct {
	Name string    `json:"name"`
	UID  types.UID `json:"uid"`
}

// eviction is an Eviction of the same API, which is not that of the group policy.
type eviction struct {
	Spec struct {
		Target evictionTarget `json:"target"`
	} `json:"spec"`
	Status struct {
		TargetResponders []struct {
			Name  string `json:"name"`
			State string `json:"state"`
		} `json:"targetResponders"`
		Responders []struct {
			Name          string       `json:"name"`
			StartTime     *metav1.Time `json:"startTime"`
			HeartbeatTime *metav1.Time `json:"heartbeatTime"`
		} `json:"responders"`
	} `json:"status"`
}

// RequestEvictions requests the eviction of every pod on a node that names responders and that a drain would evict, unless that has been
// done, and counts those whose responder is at work.
func (c *Cluster) RequestEvictions(ctx context.Context, n nodes.NodeRef) (responding int, err error) {
	pods, err := c.respondingPods(ctx, n)
	if err != nil {
		return 0, err
	}
	byNamespace := map[string]map[types.UID]eviction{}
	for _, p := range pods {
		if _, known := byNamespace[p.namespace]; known {
			continue
		}
		byNamespace[p.namespace], err = c.evictions(ctx, p.namespace)
		switch {
		case isAbsent(err): // it has been turned off since the pod was created
			return 0, nil
		case err != nil:
			return 0, err
		}
	}

	for _, p := range pods {
		if e, ok := byNamespace[p.namespace][p.uid]; ok {
			if e.responding(c.opts.Clock.Now()) {
				responding++
			}
			continue
		}
		since, err := c.requestEviction(ctx, p)
		if err != nil {
			return 0, err
		}
		if c.opts.Clock.Now().Sub(since) < unanswered {
			responding++
		}
	}
	return responding, nil
}

// WithdrawEvictions deletes the requests for the pods on a node, which withdraws them: a responder then stops.
func (c *Cluster) WithdrawEvictions(ctx context.Context, n nodes.NodeRef) error {
	pods, err := c.respondingPods(ctx, n)
	if err != nil {
		return err
	}
	var errs []error
	for _, p := range pods {
		q := c.core.Delete().AbsPath(lifecycle, "namespaces", p.namespace, "evictionrequests", p.request())
		err := c.do(ctx, "withdrawing the request for the eviction of pod "+p.namespace+"/"+p.name, q, nil)
		if !apierrors.IsNotFound(err) {
			errs = append(errs, err)
		}
	}
	return errors.Join(errs...)
}

// respondingPods lists the pods on a node that name responders, of those that a drain would evict. The answer is asked for as JSON: our
// protobuf types don't know the field.
func (c *Cluster) respondingPods(ctx context.Context, n nodes.NodeRef) ([]respondingPod, error) {
	if is, err := c.servesEvictionRequests(ctx); err != nil || !is {
		return nil, err
	}
	what := "listing the pods of node " + n.Name + " that respond to evictions"
	var list struct {
		Items []json.RawMessage `json:"items"`
	}
	// From the server's cache: that a pod is missing in it does no harm, it hands off when it is evicted.
	o := metav1.ListOptions{ResourceVersion: "0", FieldSelector: fields.OneTermEqualSelector("spec.nodeName", n.Name).String()}
	if err := c.get(ctx, what, c.core.Get().Resource("pods").VersionedParams(&o, c.api.parameters), &list); err != nil {
		return nil, err
	}
	var out []respondingPod
	for _, item := range list.Items {
		var named struct {
			Spec struct {
				EvictionResponders []struct{} `json:"evictionResponders"`
			} `json:"spec"`
		}
		var p corev1.Pod
		if err := errors.Join(json.Unmarshal(item, &named), json.Unmarshal(item, &p)); err != nil {
			return nil, fmt.Errorf("%s: reading a pod: %w", what, err)
		}
		role, _ := c.opts.Drain.judge(&p)
		if role == moving && len(named.Spec.EvictionResponders) > 0 {
			out = append(out, respondingPod{p.Namespace, p.Name, p.UID})
		}
	}
	return out, nil
}

// evictions lists the Evictions of a namespace that our requests led to, by the UID of their pod.
func (c *Cluster) evictions(ctx context.Context, namespace string) (map[types.UID]eviction, error) {
	var list struct {
		Items []eviction `json:"items"`
	}
	q := c.core.Get().AbsPath(lifecycle, "namespaces", namespace, "evictions").Param("labelSelector", Requester)
	if err := c.get(ctx, "listing the evictions of namespace "+namespace, q, &list); err != nil {
		return nil, err
	}
	out := map[types.UID]eviction{}
	for _, e := range list.Items {
		if e.Spec.Target.Pod != nil {
			out[e.Spec.Target.Pod.UID] = e
		}
	}
	return out, nil
}

// requestEviction requests the eviction of a pod and returns since when it has been requested. The name of the request is the pod's UID,
// so that a second one, also of another process, is the first.
func (c *Cluster) requestEviction(ctx context.Context, p respondingPod) (since time.Time, err error) {
	path := []string{lifecycle, "namespaces", p.namespace, "evictionrequests"}
	what := "requesting the eviction of pod " + p.namespace + "/" + p.name
	wanted := evictionRequest{
		TypeMeta: metav1.TypeMeta{APIVersion: "lifecycle.k8s.io/v1alpha1", Kind: "EvictionRequest"},
		ObjectMeta: metav1.ObjectMeta{Name: p.request(), Namespace: p.namespace,
			// Kubernetes deletes the request with its pod.
			OwnerReferences: []metav1.OwnerReference{{APIVersion: "v1", Kind: "Pod", Name: p.name, UID: p.uid}}},
		Spec: evictionRequestSpec{Target: evictionTarget{&evictionPod{p.name, p.uid}}, Requester: Requester, Intent: "Eviction"},
	}
	body, err := json.Marshal(wanted)
	if err != nil {
		return since, fmt.Errorf("%s: %w", what, err)
	}
	var made evictionRequest
	err = c.get(ctx, what, c.core.Post().AbsPath(path...).SetHeader("Content-Type", "application/json").Body(body), &made)
	if apierrors.IsAlreadyExists(err) {
		err = c.get(ctx, what, c.core.Get().AbsPath(append(path, p.request())...), &made)
	}
	return made.CreationTimestamp.Time, err
}

// responding reports whether a responder of the pod is at work, or one is still to come. Kubernetes' own, which evicts, doesn't count:
// the drain evicts by itself.
func (e eviction) responding(now time.Time) bool {
	for _, r := range e.Status.TargetResponders {
		domain, _, _ := strings.Cut(r.Name, "/")
		if domain == "k8s.io" || strings.HasSuffix(domain, ".k8s.io") {
			continue
		}
		if r.State == "Inactive" || r.State == "Active" && now.Sub(e.heard(r.Name)) < silence {
			return true
		}
	}
	return len(e.Status.TargetResponders) == 0 // the controller has not listed them yet
}

// heard returns when a responder has last reported, or was begun.
func (e eviction) heard(name string) (at time.Time) {
	for _, r := range e.Status.Responders {
		if r.Name != name {
			continue
		}
		for _, t := range []*metav1.Time{r.StartTime, r.HeartbeatTime} {
			if t != nil && t.After(at) {
				at = t.Time
			}
		}
	}
	return at
}

// get makes one request whose answer is JSON.
func (c *Cluster) get(ctx context.Context, what string, q *rest.Request, into any) error {
	r, cancel, err := c.request(ctx)
	if err != nil {
		return fmt.Errorf("%s: %w", what, err)
	}
	defer cancel()
	body, err := q.SetHeader("Accept", "application/json").MaxRetries(0).DoRaw(r)
	if err == nil {
		err = json.Unmarshal(body, into)
	}
	if err == nil {
		return nil
	}
	if over := ctx.Err(); over != nil {
		err = over
	}
	return fmt.Errorf("%s: %w%s", what, err, hint(err))
}

// isAbsent reports whether the server doesn't know what was asked for.
func isAbsent(err error) bool {
	var s apierrors.APIStatus
	return errors.As(err, &s) && s.Status().Code == http.StatusNotFound
}
