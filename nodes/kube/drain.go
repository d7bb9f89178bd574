package kube

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/types"

	"github.com/muster-dev/muster/nodes"
)

const (
	lookAgain  = time.Second     // between two looks at the node
	evictAgain = 3 * time.Second // between two attempts at a pod that was refused
	atOnce     = 8               // evictions under way, so that a slow webhook doesn't use up the time of all
)

// Drain evicts what the rules let it evict from a node and waits until that is gone, at most until req.Until. Every call looks at
// the node as it is, so calling it again goes on: pods whose deletion has begun are waited for, not deleted once more, unless
// MaxGrace has become shorter than the grace they were given.
//
// A pod that must not be evicted ends the drain with a *nodes.DrainBlockedError before any pod is touched; with SkipCritical it is
// left alone instead. A pod that a disruption budget protects is asked for again and again. A node that is gone or has been
// replaced is drained.
func (c *Cluster) Drain(ctx context.Context, req nodes.DrainRequest) (nodes.DrainProgress, error) {
	d := &drain{c: c, req: req, refused: map[types.UID]refusal{}}
	d.progress.Why = "there was no time to look"
	bounded, cancel := c.opts.Clock.WithDeadline(ctx, req.Until)
	defer cancel()
	for {
		err := d.round(bounded)
		if err == nil && !d.progress.Done {
			err = c.opts.Clock.Sleep(bounded, min(lookAgain, req.Until.Sub(c.opts.Clock.Now())))
		}
		switch {
		case err == nil && d.progress.Done:
			return d.progress, nil
		case err == nil && c.opts.Clock.Now().Before(req.Until):
			continue
		case ctx.Err() != nil: // the caller's own time is over
			return d.progress, ctx.Err()
		case err == nil, bounded.Err() != nil, errors.Is(err, context.DeadlineExceeded) && !c.opts.Clock.Now().Before(req.Until):
			return d.progress, nil
		}
		return d.progress, err
	}
}

// drain is one call of Drain.
type drain struct {
	c        *Cluster
	req      nodes.DrainRequest
	seen     string   // resource version of the newest list
	volumes  *volumes // behind claims; nil: not asked for
	progress nodes.DrainProgress

	mu      sync.Mutex
	refused map[types.UID]refusal
}

// refusal is why a pod could not be evicted, and when to try again.
type refusal struct {
	why   string
	again time.Time
	final bool // the API will never do it
}

// round looks at the node and evicts what there is to evict.
//
// The first look, and the one on whose word the drain is done, read the newest state. Those in between may be answered from the
// API server's cache as long as it is not behind the first: on stores without an index (K3s' kine) each would otherwise make the
// server read every pod of the cluster. A stale answer does no harm, evictions name the UID.
func (d *drain) round(ctx context.Context) error {
	n, err := d.c.node(ctx, "draining node "+d.req.Node.Name, d.req.Node)
	if err != nil {
		return err
	}
	if n == nil { // the client that deleted it took its pods with it
		d.progress = nodes.DrainProgress{Done: true}
		return nil
	}
	newest := d.seen == ""
	pods, err := d.look(ctx, newest)
	if err != nil {
		return err
	}
	left, err := d.sort(pods)
	if err != nil {
		return err
	}
	if len(left) == 0 && !newest {
		if pods, err = d.look(ctx, true); err != nil {
			return err
		}
		if left, err = d.sort(pods); err != nil {
			return err
		}
	}
	d.tell(left)
	if d.progress.Done {
		return nil
	}
	err = d.evictAll(ctx, left)
	d.tell(left)
	return err
}

// look lists what runs on the node, and the volumes if they matter.
func (d *drain) look(ctx context.Context, newest bool) ([]corev1.Pod, error) {
	o := metav1.ListOptions{FieldSelector: fields.OneTermEqualSelector("spec.nodeName", d.req.Node.Name).String()}
	if !newest {
		o.ResourceVersion, o.ResourceVersionMatch = d.seen, metav1.ResourceVersionMatchNotOlderThan
	}
	var pods []corev1.Pod
	err := d.c.pods("listing the pods of node "+d.req.Node.Name, func() { pods = nil }, func(l *corev1.PodList) error {
		pods = append(pods, l.Items...)
		if newest {
			d.seen = l.ResourceVersion
		}
		return nil
	}).run(ctx, o, newPodList)
	if err != nil && !newest && ctx.Err() == nil { // a cache that lags is no reason to stop
		return d.look(ctx, true)
	}
	if err != nil {
		return nil, err
	}
	return pods, d.findVolumes(ctx, pods)
}

// sort returns the pods that a drain moves, in the order of their names, or an error that names the first of those that block it.
func (d *drain) sort(pods []corev1.Pod) ([]*corev1.Pod, error) {
	var left []*corev1.Pod
	blocked := ""
	slices.SortFunc(pods, func(a, b corev1.Pod) int {
		return cmp.Or(cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Name, b.Name))
	})
	for i := range pods {
		p := &pods[i]
		role, why := d.judge(p)
		if r := d.refused[p.UID]; r.final && role == moving {
			role, why = blocking, r.why
		}
		switch role {
		case moving, ending:
			left = append(left, p)
		case blocking:
			blocked = cmp.Or(blocked, why)
		}
	}
	if blocked != "" && !d.req.SkipCritical {
		return nil, d.blocked(blocked)
	}
	return left, nil
}

// judge tells what a pod is to this drain, and of one that blocks why.
func (d *drain) judge(p *corev1.Pod) (role, string) {
	role, why := d.c.opts.Drain.judge(p)
	if role == moving && d.volumes != nil {
		if local := d.volumes.localOf(p.Namespace, p.Name, p.Spec.Volumes); local != "" {
			return blocking, isLocal(nameOf(p), local)
		}
	}
	if role == moving && cameBack(p, d.req.Since) {
		return blocking, fmt.Sprintf("pod %s: made during the drain, it was placed on the node again, because it tolerates the taints %s and %s: let it tolerate less",
			nameOf(p), drained[0].Key, drained[1].Key)
	}
	return role, why
}

// findVolumes asks for the volumes behind claims, once, if that decides about a pod: a bound claim stays bound.
func (d *drain) findVolumes(ctx context.Context, pods []corev1.Pod) (err error) {
	matters := func(p corev1.Pod) bool {
		role, _ := d.c.opts.Drain.judge(&p)
		return role == moving && hasClaim(&p)
	}
	if d.volumes == nil && d.c.opts.Drain.LocalStorage != Evict && slices.ContainsFunc(pods, matters) {
		d.volumes, err = d.c.listVolumes(ctx)
	}
	return err
}

func (d *drain) blocked(why string) error {
	return &nodes.DrainBlockedError{Node: d.req.Node.Name, Why: why}
}

// tell sets the progress: what is left, and of that what it waits for, a refusal before an end that takes its time.
func (d *drain) tell(left []*corev1.Pod) {
	d.progress = nodes.DrainProgress{Done: len(left) == 0, Left: len(left)}
	for _, p := range left {
		if r, ok := d.refused[p.UID]; ok && p.DeletionTimestamp == nil {
			d.progress.Why = r.why
			return
		}
	}
	for _, p := range left {
		switch {
		case len(p.Finalizers) > 0:
			d.progress.Why = fmt.Sprintf("pod %s: its finalizer %s", nameOf(p), p.Finalizers[0])
			return
		case d.progress.Why == "":
			d.progress.Why = fmt.Sprintf("pod %s: its end%s", nameOf(p), d.toldAgo(p))
		}
	}
}

// toldAgo says since when a pod is to end, which tells one that ignores SIGTERM from one that has just got it.
func (d *drain) toldAgo(p *corev1.Pod) string {
	if p.DeletionTimestamp == nil {
		return ""
	}
	e := sooner(nodes.Ending{}, p)
	grace := time.Duration(e.Grace) * time.Second
	ago := d.c.opts.Clock.Now().Sub(e.Until.Add(-grace)).Round(time.Second)
	return fmt.Sprintf(", told %s ago with a grace of %s", ago, grace)
}

// evictAll asks for the eviction of every pod whose turn it is. It returns an error for what no other pod would meet differently,
// and one that blocks the drain for a pod that the API will never evict.
func (d *drain) evictAll(ctx context.Context, left []*corev1.Pod) error {
	type turn struct {
		pod   *corev1.Pod
		grace *int64
	}
	var turns []turn // collected first: from then on the refusals are written to
	now := d.c.opts.Clock.Now()
	for _, p := range left {
		if grace, wanted := d.grace(p); wanted && !now.Before(d.refused[p.UID].again) {
			turns = append(turns, turn{p, grace})
		}
	}
	var g errgroup.Group
	g.SetLimit(atOnce)
	for _, t := range turns {
		g.Go(func() error { return d.evict(ctx, t.pod, t.grace) })
	}
	if err := g.Wait(); err != nil {
		return err
	}
	for _, p := range left {
		if r := d.refused[p.UID]; r.final && !d.req.SkipCritical {
			return d.blocked(r.why)
		}
	}
	return nil
}

// grace returns the grace period to ask for, nil for the pod's own, and whether the pod is to be asked for at all: one whose deletion
// has begun only to shorten its grace. It is at least a second: none at all would take the pod out of the API while it still runs.
func (d *drain) grace(p *corev1.Pod) (*int64, bool) {
	own := int64(corev1.DefaultTerminationGracePeriodSeconds)
	if p.Spec.TerminationGracePeriodSeconds != nil {
		own = *p.Spec.TerminationGracePeriodSeconds
	}
	if p.DeletionTimestamp != nil {
		own = 0
		if p.DeletionGracePeriodSeconds != nil {
			own = *p.DeletionGracePeriodSeconds
		}
	}
	if most := max(1, int64(d.req.MaxGrace/time.Second)); d.req.MaxGrace > 0 && own > most {
		return &most, true
	}
	return nil, p.DeletionTimestamp == nil
}

// evict asks for one eviction and notes a refusal.
func (d *drain) evict(ctx context.Context, p *corev1.Pod, grace *int64) error {
	eviction := &policyv1.Eviction{
		ObjectMeta: metav1.ObjectMeta{Name: p.Name, Namespace: p.Namespace},
		// Without the UID the StatefulSet pod that has meanwhile come up elsewhere under the same name would be evicted.
		DeleteOptions: &metav1.DeleteOptions{GracePeriodSeconds: grace, Preconditions: &metav1.Preconditions{UID: &p.UID}},
	}
	q := d.c.core.Post().Namespace(p.Namespace).Resource("pods").Name(p.Name).SubResource("eviction").Body(eviction)
	err := d.c.do(ctx, "evicting pod "+nameOf(p), q, nil)
	switch {
	case err == nil, apierrors.IsNotFound(err), apierrors.IsConflict(err):
		d.note(p, nil)
		return nil
	case ctx.Err() != nil:
		return ctx.Err()
	case apierrors.IsUnauthorized(err), isDenied(err):
		return err
	}
	d.note(p, err)
	return nil
}

// isDenied reports whether the API denies evictions to us altogether, rather than this one: a webhook's denial or a namespace that is
// being deleted is about the pod.
func isDenied(err error) bool {
	return apierrors.IsForbidden(err) && strings.Contains(err.Error(), "cannot create resource")
}

func (d *drain) note(p *corev1.Pod, err error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if err == nil {
		delete(d.refused, p.UID)
		return
	}
	d.refused[p.UID] = refusal{why: refusalText(p, err), again: d.c.opts.Clock.Now().Add(evictAgain), final: isFinal(err)}
}

// isFinal reports whether the API will never evict the pod: it answers 500 if two disruption budgets cover it.
func isFinal(err error) bool {
	var s apierrors.APIStatus
	return errors.As(err, &s) && s.Status().Code == http.StatusInternalServerError &&
		strings.Contains(s.Status().Message, "more than one PodDisruptionBudget")
}

func refusalText(p *corev1.Pod, err error) string {
	why := ""
	var s apierrors.APIStatus
	if errors.As(err, &s) {
		why = s.Status().Message
		if details := s.Status().Details; details != nil {
			for _, cause := range details.Causes {
				if cause.Type == policyv1.DisruptionBudgetCause {
					why = cmp.Or(cause.Message, why)
				}
			}
		}
	}
	return fmt.Sprintf("pod %s: %s", nameOf(p), cmp.Or(why, err.Error()))
}
