package kube

import (
	"context"
	"fmt"
	"strings"
	"time"

	authv1 "k8s.io/api/authorization/v1"

	"github.com/muster-dev/muster/nodes"
)

// Permission is something that the API must allow.
type Permission struct {
	Verb        string // get, list, ...
	Group       string // API group, "" for core
	Resource    string // plural
	Subresource string // "" for the resource itself
}

// String returns the permission as `kubectl auth can-i` takes it.
func (p Permission) String() string {
	s := p.Verb + " " + p.Resource
	if p.Group != "" {
		s += "." + p.Group
	}
	if p.Subresource != "" {
		s += "/" + p.Subresource
	}
	return s
}

// Permissions lists everything that this package asks of the API besides what every authenticated client may (creating access
// reviews of itself). A role needs these and no more.
func Permissions() []Permission {
	return []Permission{
		{Verb: "get", Resource: "nodes"},
		{Verb: "list", Resource: "nodes"},
		{Verb: "patch", Resource: "nodes"},
		{Verb: "delete", Resource: "nodes"},
		{Verb: "list", Resource: "pods"},
		{Verb: "create", Resource: "pods", Subresource: "eviction"},
		{Verb: "list", Group: "policy", Resource: "poddisruptionbudgets"},
		{Verb: "list", Resource: "persistentvolumeclaims"},
		{Verb: "list", Resource: "persistentvolumes"},
		{Verb: "list", Group: "storage.k8s.io", Resource: "storageclasses"},
		{Verb: "get", Group: "apps", Resource: "deployments", Subresource: "scale"},
	}
}

// EvictionRequestPermissions lists what this package asks of the API besides where pods name responders for their eviction.
func EvictionRequestPermissions() []Permission {
	return []Permission{
		{Verb: "create", Group: "lifecycle.k8s.io", Resource: "evictionrequests"},
		{Verb: "get", Group: "lifecycle.k8s.io", Resource: "evictionrequests"},
		{Verb: "delete", Group: "lifecycle.k8s.io", Resource: "evictionrequests"},
		{Verb: "list", Group: "lifecycle.k8s.io", Resource: "evictions"},
	}
}

// ReportPermissions lists what this package asks of the API besides to show people what is decided. Without them nothing is shown.
func ReportPermissions() []Permission {
	return []Permission{
		{Verb: "create", Resource: "events"},
		{Verb: "patch", Resource: "events"},
		{Verb: "list", Group: "muster.dev", Resource: "pools"},
		{Verb: "create", Group: "muster.dev", Resource: "pools"}, // a patch that applies creates what is not there
		{Verb: "patch", Group: "muster.dev", Resource: "pools"},
		{Verb: "delete", Group: "muster.dev", Resource: "pools"},
	}
}

// WatchPermissions lists what WatchPending asks of the API besides. Without them pods are seen at the next tick of the schedule.
func WatchPermissions() []Permission { return []Permission{{Verb: "watch", Resource: "pods"}} }

// CheckWatch looks at what WatchPending needs.
func (c *Cluster) CheckWatch(ctx context.Context) []nodes.Check {
	var out []nodes.Check
	for _, p := range WatchPermissions() {
		out = append(out, c.checkPermission(ctx, p))
	}
	return out
}

// tokenMargin is how long before its expiry a token is complained about.
const tokenMargin = time.Hour

// Check looks at everything that a tick will need of the cluster and says what to do about what is missing. It changes nothing.
func (c *Cluster) Check(ctx context.Context) []nodes.Check {
	out := []nodes.Check{c.checkToken(ctx)}
	for _, p := range Permissions() {
		out = append(out, c.checkPermission(ctx, p))
	}
	v, err := c.View(ctx)
	if err != nil {
		return append(out, nodes.Check{Name: "kubernetes: view", Detail: err.Error(), Fix: "see to the failed checks above first"})
	}
	workers := 0
	for _, n := range v.Nodes {
		if !n.ControlPlane {
			workers++
		}
	}
	out = append(out, nodes.Check{Name: "kubernetes: view", OK: true, Detail: fmt.Sprintf("%d nodes, %d of them workers, %d pods pending", len(v.Nodes), workers, len(v.Pending))})
	return append(out, checkBlockers(v), checkShapes(v))
}

func (c *Cluster) checkToken(ctx context.Context) nodes.Check {
	out := nodes.Check{Name: "kubernetes: token", Fix: "renew it: create a token for Muster's service account and put it where KUBE_TOKEN_REF points"}
	at, err := c.TokenExpires(ctx)
	left := at.Sub(c.opts.Clock.Now())
	switch {
	case err != nil:
		out.Detail = err.Error()
	case at.IsZero():
		out.OK, out.Fix, out.Detail = true, "", "does not expire, or does not say"
	case left <= 0:
		out.Detail = "expired " + at.UTC().Format(time.RFC3339)
	default:
		out.Detail = "expires " + at.UTC().Format(time.RFC3339)
		if left > tokenMargin {
			out.OK, out.Fix = true, ""
		}
	}
	return out
}

func (c *Cluster) checkPermission(ctx context.Context, p Permission) nodes.Check {
	out := nodes.Check{Name: "kubernetes: " + p.String()}
	review := &authv1.SelfSubjectAccessReview{Spec: authv1.SelfSubjectAccessReviewSpec{ResourceAttributes: &authv1.ResourceAttributes{
		Verb: p.Verb, Group: p.Group, Resource: p.Resource, Subresource: p.Subresource,
	}}}
	err := c.do(ctx, "asking whether "+p.String()+" is allowed", c.reviews.Post().Resource("selfsubjectaccessreviews").Body(review), review)
	switch {
	case err != nil:
		out.Detail, out.Fix = err.Error(), "see whether the API can be reached from here with this token"
	case !review.Status.Allowed:
		out.Detail, out.Fix = "not allowed "+review.Status.Reason, "add it to Muster's ClusterRole; docs/nodes/deploy.md has the whole role"
	default:
		out.OK = true
	}
	return out
}

// checkBlockers tells which workers could not be drained now. Some always can't for a moment; one that never can keeps its node for
// ever.
func checkBlockers(v nodes.View) nodes.Check {
	out := nodes.Check{Name: "kubernetes: drainable workers", OK: true}
	var blocked []string
	for _, n := range v.Nodes {
		if n.Blocker != "" && !n.ControlPlane {
			blocked = append(blocked, n.Name+" ("+n.Blocker+")")
		}
	}
	if len(blocked) > 0 {
		out.OK = false
		out.Detail = fmt.Sprintf("%d can't be drained now: %s", len(blocked), strings.Join(firstOf(blocked, 10), "; "))
		out.Fix = "such nodes are never removed: move critical pods to servers by a node selector, give budgets room, or see DRAIN_BARE_PODS and DRAIN_LOCAL_STORAGE"
	}
	return out
}

// checkShapes tells which workers say nothing about the instance they run on.
func checkShapes(v nodes.View) nodes.Check {
	out := nodes.Check{Name: "kubernetes: nodes name their instances", OK: true}
	var stock []string
	for _, n := range v.Nodes {
		if !n.ControlPlane && n.InstanceID() == "" {
			stock = append(stock, n.Name)
		}
	}
	if len(stock) > 0 {
		out.OK = false
		out.Detail = fmt.Sprintf("%d are tied to their instance by internal IP only: %s", len(stock), strings.Join(firstOf(stock, 10), ", "))
		out.Fix = "works while the instance lives, but their Node objects can't be cleaned up after it: join nodes with --node-name=INSTANCE_ID and --kubelet-arg=provider-id=aws:///ZONE/INSTANCE_ID"
	}
	return out
}

// firstOf returns the first n of a list, and how many are left out.
func firstOf(list []string, n int) []string {
	if len(list) <= n {
		return list
	}
	return append(list[:n:n], fmt.Sprintf("and %d more", len(list)-n))
}
