package machines

import (
	"context"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/tools/cache"
)

// watch calls f with each object of a resource of the core group and each change of it, and with nil when it is gone, until ctx ends.
func (m *Machines) watch(ctx context.Context, kind runtime.Object, resource, namespace string, f func(name string, o any)) {
	tell := func(o any, there bool) {
		if last, ok := o.(cache.DeletedFinalStateUnknown); ok {
			o = last.Obj
		}
		a, err := meta.Accessor(o)
		if err != nil {
			return // no object of the API
		}
		if !there {
			o = nil
		}
		f(a.GetName(), o)
	}
	source := cache.NewListWatchFromClient(m.core.RESTClient(), resource, namespace, fields.Everything())
	_, informer := cache.NewInformerWithOptions(cache.InformerOptions{ListerWatcher: source, ObjectType: kind, Handler: cache.ResourceEventHandlerFuncs{
		AddFunc:    func(o any) { tell(o, true) },
		UpdateFunc: func(_, o any) { tell(o, true) },
		DeleteFunc: func(o any) { tell(o, false) },
	}})
	informer.RunWithContext(ctx)
}
