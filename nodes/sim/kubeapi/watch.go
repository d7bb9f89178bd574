package kubeapi

import (
	"encoding/json"
	"net/http"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes/scheme"

	"github.com/muster-dev/muster/nodes/sim"
)

// watchStep is how often a watch looks for what has changed. It is meant for a simulator in real time: in virtual time each look takes
// the latency of a request.
const watchStep = 20 * time.Millisecond

// watch tells of pods as JSON, first of those that are there, until the client goes or its time is over. A pod that a field selector no
// longer selects is told as deleted, as a real server does.
func (s *Server) watch(w http.ResponseWriter, q *request) {
	selector, err := fields.ParseSelector(q.FormValue("fieldSelector"))
	if err != nil {
		s.fail(w, q, apierrors.NewBadRequest(err.Error()))
		return
	}
	over := make(<-chan time.Time)
	if d, err := time.ParseDuration(q.FormValue("timeoutSeconds") + "s"); err == nil && d > 0 {
		t := time.NewTimer(d)
		defer t.Stop()
		over = t.C
	}
	w.Header().Set("Content-Type", runtime.ContentTypeJSON)
	w.WriteHeader(http.StatusOK)
	tell := teller{w: w, told: map[string]*corev1.Pod{}}
	look := time.NewTicker(watchStep)
	defer look.Stop()
	for {
		var pods []runtime.Object
		err := s.client.Kube(q.Context(), q.use.String(), func(k *sim.Kube) error { pods = podObjects(k); return nil })
		if err != nil || tell.changes(pods, selector) != nil {
			return // an outage breaks it off
		}
		select {
		case <-q.Context().Done():
			return
		case <-over:
			return
		case <-look.C:
		}
	}
}

// teller writes the events of one watch.
type teller struct {
	w    http.ResponseWriter
	told map[string]*corev1.Pod // by UID
}

// changes tells how the selected pods differ from those that were told.
func (t teller) changes(pods []runtime.Object, selector fields.Selector) error {
	selected := map[string]bool{}
	for _, o := range pods {
		p := o.(*corev1.Pod)
		if !selector.Matches(fieldsOf(p)) {
			continue
		}
		id := string(p.UID)
		selected[id] = true
		if t.told[id] == nil {
			t.told[id] = p
			if err := t.event(watch.Added, p); err != nil {
				return err
			}
		}
	}
	for id, p := range t.told {
		if !selected[id] {
			delete(t.told, id)
			if err := t.event(watch.Deleted, p); err != nil {
				return err
			}
		}
	}
	return nil
}

func (t teller) event(what watch.EventType, p *corev1.Pod) error {
	info, _ := runtime.SerializerInfoForMediaType(scheme.Codecs.SupportedMediaTypes(), runtime.ContentTypeJSON)
	body, err := runtime.Encode(scheme.Codecs.EncoderForVersion(info.Serializer, corev1.SchemeGroupVersion), p)
	if err != nil {
		return err
	}
	if err := json.NewEncoder(t.w).Encode(metav1.WatchEvent{Type: string(what), Object: runtime.RawExtension{Raw: body}}); err != nil {
		return err
	}
	return http.NewResponseController(t.w).Flush()
}
