package kube

import (
	"context"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/rest"
)

// relists is how often a list is restarted after its continuation had expired.
const relists = 2

// pager reads a list page by page. No resource version is asked for, so the first page is of the newest state and the others are of
// the same: the list is of one moment. If the server no longer has that moment the list restarts; half of it is never returned.
type pager[L metav1.ListInterface] struct {
	c     *Cluster
	what  string // for errors, for example "listing nodes"
	of    rest.Interface
	name  string        // of the resource
	begin func()        // forgets what was read
	add   func(L) error // takes a page
}

func (p pager[L]) run(ctx context.Context, o metav1.ListOptions, empty func() L) error {
	for attempt := 0; ; attempt++ {
		p.begin()
		err := p.once(ctx, o, empty)
		if !apierrors.IsResourceExpired(err) || attempt == relists {
			return err
		}
	}
}

func (p pager[L]) once(ctx context.Context, o metav1.ListOptions, empty func() L) error {
	o.Limit = p.c.opts.Page
	for {
		page := empty()
		q := p.of.Get().Resource(p.name).VersionedParams(&o, p.c.api.parameters)
		if err := p.c.do(ctx, p.what, q, any(page).(runtime.Object)); err != nil {
			return err
		}
		if err := p.add(page); err != nil {
			return err
		}
		if o.Continue = page.GetContinue(); o.Continue == "" {
			return nil
		}
		o.ResourceVersion, o.ResourceVersionMatch = "", "" // the continuation carries the version
	}
}
