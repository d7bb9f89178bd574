package kube

import (
	"cmp"
	"context"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"

	"github.com/muster-dev/muster/nodes"
)

// Cluster is a Kubernetes cluster as the node plane sees it. Its methods may be called by several goroutines.
type Cluster struct {
	api     api
	apps    rest.Interface
	core    rest.Interface
	policy  rest.Interface
	storage rest.Interface
	reviews rest.Interface
	token   func(context.Context) (string, error) // nil: no token is known here
	opts    Options

	evictionRequests served
	notices          noticeBoard
	pools            poolBoard
	buffers          bufferBoard
}

var _ nodes.Cluster = (*Cluster)(nil)

// Options are what New needs besides the way to the API. The zero value works.
type Options struct {
	Drain   Rules         // empty actions are Abort
	Clock   nodes.Clock   // nil: nodes.SystemClock
	Timeout time.Duration // of one request, whatever time its context leaves; 0: 30 s
	Page    int64         // objects per page of a list; 0: 1,000
	Buffers bool          // views show capacity buffers, if the server has them
}

// New returns a cluster that is reached as rc says; rc is not changed. It does no I/O. Answers are asked for as protobuf, which
// costs about a third of JSON to read, and nothing limits the rate: what a tick asks is bounded by what it does.
func New(rc *rest.Config, o Options) (*Cluster, error) {
	o.Drain.BarePods = cmp.Or(o.Drain.BarePods, Abort)
	o.Drain.LocalStorage = cmp.Or(o.Drain.LocalStorage, Abort)
	o.Timeout = cmp.Or(o.Timeout, 30*time.Second)
	o.Page = cmp.Or(o.Page, 1000)
	if o.Clock == nil {
		o.Clock = nodes.SystemClock{}
	}
	rc = rest.CopyConfig(rc)
	rc.QPS = -1
	rc.ContentType = runtime.ContentTypeProtobuf
	rc.AcceptContentTypes = runtime.ContentTypeProtobuf + "," + runtime.ContentTypeJSON
	rc.UserAgent = cmp.Or(rc.UserAgent, "muster")
	rc.WarningHandler = rest.NoWarnings{}
	client, err := rest.HTTPClientFor(rc) // one for all, so that they share connections
	if err != nil {
		return nil, fmt.Errorf("preparing the way to the Kubernetes API: %w", err)
	}
	api, err := newAPI()
	if err != nil {
		return nil, fmt.Errorf("preparing the way to the Kubernetes API: %w", err)
	}
	apps, err0 := api.client(rc, client, "apps")
	core, err1 := api.client(rc, client, "")
	policy, err2 := api.client(rc, client, "policy")
	storage, err3 := api.client(rc, client, "storage.k8s.io")
	reviews, err4 := api.client(rc, client, "authorization.k8s.io")
	if err := errors.Join(err0, err1, err2, err3, err4); err != nil {
		return nil, fmt.Errorf("preparing the way to the Kubernetes API: %w", err)
	}
	return &Cluster{api: api, apps: apps, core: core, policy: policy, storage: storage, reviews: reviews, opts: o}, nil
}

// request returns the context for one request. A deadline is kept by the clock that set it: what it leaves, by that clock, is what
// the request may take in real time, at most Options.Timeout. A request whose time is over is not sent.
func (c *Cluster) request(ctx context.Context) (context.Context, context.CancelFunc, error) {
	if err := ctx.Err(); err != nil {
		return nil, nil, err
	}
	limit := c.opts.Timeout
	if d, ok := ctx.Deadline(); ok {
		limit = min(limit, d.Sub(c.opts.Clock.Now()))
	}
	if limit <= 0 {
		return nil, nil, context.DeadlineExceeded
	}
	out, cancel := context.WithTimeout(context.WithoutCancel(ctx), limit)
	stop := context.AfterFunc(ctx, cancel)
	return out, func() { stop(); cancel() }, nil
}

// do makes one request and says of its failure what was being done and, where that is known, what helps.
//
// The client would by itself try up to ten times, with a second or what the server asks for between, when a connection breaks or the
// server is busy. A drain that has seconds left, and a tick that is to tell what it saw, want to know at once.
func (c *Cluster) do(ctx context.Context, what string, q *rest.Request, into runtime.Object) error {
	r, cancel, err := c.request(ctx)
	if err != nil {
		return fmt.Errorf("%s: %w", what, err)
	}
	defer cancel()
	result := q.MaxRetries(0).Do(r)
	if into == nil {
		err = result.Error()
	} else {
		err = result.Into(into)
	}
	if err != nil {
		if over := ctx.Err(); over != nil { // the caller's time is over: that is the cause, not how the transport puts it
			err = over
		}
		return fmt.Errorf("%s: %w%s", what, err, hint(err))
	}
	return nil
}

// hint says what helps against an error whose cause is in the set-up.
func hint(err error) string {
	var authority x509.UnknownAuthorityError
	switch {
	case apierrors.IsUnauthorized(err):
		return "; the token is missing, expired or of another cluster: renew what KUBE_TOKEN_REF names, `muster nodes doctor` tells when it expires"
	case apierrors.IsForbidden(err):
		return "; give Muster's role the permissions listed in docs/nodes/deploy.md"
	case errors.As(err, &authority):
		return "; KUBE_CA_REF must name this cluster's CA, on a K3s server /var/lib/rancher/k3s/server/tls/server-ca.crt"
	}
	return ""
}

// Cordon makes a node unschedulable, adds claim to its annotation and marks the node as to be deleted, in one write. A node that had been
// cordoned by somebody else is noted, so that Uncordon leaves it so. A node that is gone or has been replaced is an error.
func (c *Cluster) Cordon(ctx context.Context, ref nodes.NodeRef, claim string) error {
	if claim == "" || strings.ContainsAny(claim, ", \n") {
		return fmt.Errorf("cordoning node %s: claim %q must be a word without commas", ref.Name, claim)
	}
	return c.change(ctx, "cordoning", ref, func(n *cordon) {
		if !n.on {
			n.before = false // the person or program that had cordoned it has undone it
		} else if len(n.claims) == 0 {
			n.before = true
		}
		n.on = true
		n.leaves.begin()
		if !slices.Contains(n.claims, claim) {
			n.claims = append(n.claims, claim)
		}
	})
}

// Uncordon takes claim away. If no claim is left, the node is not to be deleted any more, and is made schedulable if a claim was there and
// nobody else had cordoned it before. A node that is gone or has been replaced is an error.
func (c *Cluster) Uncordon(ctx context.Context, ref nodes.NodeRef, claim string) error {
	return c.change(ctx, "uncordoning", ref, func(n *cordon) {
		was := len(n.claims)
		n.claims = slices.DeleteFunc(n.claims, func(s string) bool { return s == claim })
		if len(n.claims) > 0 {
			return
		}
		n.leaves.end()
		if was > 0 {
			n.on, n.before = n.on && n.before, false
		}
	})
}

// cordon is what a node says about its being cordoned.
type cordon struct {
	on     bool
	before bool // by somebody else, before the first claim
	claims []string
	leaves departure
}

func cordonOf(n *corev1.Node) *cordon {
	return &cordon{on: n.Spec.Unschedulable, before: isOn(n.Annotations, BeforeAnnotation), claims: claimsOf(n), leaves: departureOf(n)}
}

func claimsOf(n *corev1.Node) []string {
	return strings.FieldsFunc(n.Annotations[ClaimsAnnotation], func(r rune) bool { return r == ',' || r == ' ' })
}

func (c *cordon) equal(o *cordon) bool {
	return c.on == o.on && c.before == o.before && c.leaves == o.leaves && slices.Equal(c.claims, o.claims)
}

// patch is a merge patch that applies to nothing but the very object that was read: the API refuses it as a conflict if the
// resource version or the UID has changed.
func (c *cordon) patch(n *corev1.Node) ([]byte, error) {
	annotation := func(set bool, v string) any {
		if !set {
			return nil
		}
		return v
	}
	metadata := map[string]any{
		"uid":             n.UID,
		"resourceVersion": n.ResourceVersion,
		"annotations": map[string]any{
			ClaimsAnnotation: annotation(len(c.claims) > 0, strings.Join(c.claims, ",")),
			BeforeAnnotation: annotation(c.before, "true"),
		},
	}
	spec := map[string]any{"unschedulable": c.on}
	was := departureOf(n)
	if c.leaves.own != was.own {
		metadata["labels"] = map[string]any{corev1.LabelNodeExcludeBalancers: c.leaves.label()}
	}
	if c.leaves.tainted != was.tainted {
		spec["taints"] = c.leaves.taints(n)
	}
	return json.Marshal(map[string]any{"metadata": metadata, "spec": spec})
}

// conflicts is how often a change is tried that somebody else's writes get in the way of.
const conflicts = 6

// change reads a node and writes what edit makes of its cordon, if that is something else. Kubelets and controllers write to nodes
// all the time; who comes second reads again. (client-go's own RetryOnConflict takes a deadline that has passed for success.)
func (c *Cluster) change(ctx context.Context, doing string, ref nodes.NodeRef, edit func(*cordon)) error {
	for attempt := 1; ; attempt++ {
		err := c.changeOnce(ctx, doing+" node "+ref.Name, ref, edit)
		if !apierrors.IsConflict(err) || attempt == conflicts {
			return err
		}
		if err := c.opts.Clock.Sleep(ctx, time.Duration(attempt)*20*time.Millisecond); err != nil {
			return err
		}
	}
}

func (c *Cluster) changeOnce(ctx context.Context, what string, ref nodes.NodeRef, edit func(*cordon)) error {
	n, err := c.node(ctx, what, ref)
	if err != nil {
		return err
	}
	if n == nil {
		return fmt.Errorf("%s: no node of that name has UID %s", what, ref.UID)
	}
	next := cordonOf(n)
	edit(next)
	if next.equal(cordonOf(n)) {
		return nil
	}
	body, err := next.patch(n)
	if err != nil {
		return fmt.Errorf("%s: %w", what, err)
	}
	return c.do(ctx, what, c.core.Patch(types.MergePatchType).Resource("nodes").Name(ref.Name).Param("fieldManager", "muster").Body(body), nil)
}

// node returns a node, nil if it is gone or another one has its name.
func (c *Cluster) node(ctx context.Context, what string, ref nodes.NodeRef) (*corev1.Node, error) {
	n := &corev1.Node{}
	err := c.do(ctx, what, c.core.Get().Resource("nodes").Name(ref.Name), n)
	switch {
	case apierrors.IsNotFound(err):
		return nil, nil
	case err != nil:
		return nil, err
	case string(n.UID) != ref.UID:
		return nil, nil
	}
	return n, nil
}

// Remove deletes a Node object, with its UID as a precondition. One that is gone or has been replaced is left, without an error.
func (c *Cluster) Remove(ctx context.Context, ref nodes.NodeRef) error {
	uid := types.UID(ref.UID)
	o := &metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &uid}}
	err := c.do(ctx, "deleting node "+ref.Name, c.core.Delete().Resource("nodes").Name(ref.Name).Body(o), nil)
	if apierrors.IsNotFound(err) || apierrors.IsConflict(err) {
		return nil
	}
	return err
}
