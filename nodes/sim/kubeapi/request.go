package kubeapi

import (
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/scheme"
)

// Use is a kind of request, as roles name it.
type Use struct{ Verb, Group, Resource, Subresource string }

// String returns the use as `kubectl auth can-i` takes it.
func (u Use) String() string {
	s := u.Verb + " " + u.Resource
	if u.Group != "" {
		s += "." + u.Group
	}
	if u.Subresource != "" {
		s += "/" + u.Subresource
	}
	return s
}

// request is one request, taken apart.
type request struct {
	*http.Request
	use       Use
	namespace string
	name      string
	body      []byte
}

// parse reads what a request wants; false if that is nothing that is served.
func parse(r *http.Request) (*request, bool) {
	q := &request{Request: r}
	if r.URL.Path == "/version" {
		q.use = Use{Verb: "get", Resource: "version"}
		return q, r.Method == http.MethodGet
	}
	p := strings.Split(strings.Trim(r.URL.Path, "/"), "/")
	rest, ofBuffers := bufferPath(q, p)
	switch {
	case ofBuffers:
		p = rest
	case len(p) > 2 && p[0] == "api" && p[1] == "v1":
		p = p[2:]
	case len(p) > 3 && p[0] == "apis" && p[2] == "v1":
		q.use.Group, p = p[1], p[3:]
	default:
		return nil, false
	}
	if len(p) > 2 && p[0] == "namespaces" {
		q.namespace, p = p[1], p[2:]
	}
	q.use.Resource = p[0]
	if len(p) > 1 {
		q.name = p[1]
	}
	if len(p) > 2 {
		q.use.Subresource = p[2]
	}
	verbs := map[string]string{http.MethodGet: "get", http.MethodPost: "create", http.MethodPatch: "patch", http.MethodDelete: "delete", http.MethodPut: "update"}
	q.use.Verb = verbs[r.Method]
	if q.use.Verb == "get" && q.name == "" {
		q.use.Verb = "list"
		if r.FormValue("watch") == "true" || r.FormValue("watch") == "1" {
			q.use.Verb = "watch"
		}
	}
	return q, q.use.Verb != "" && (slices.Contains(served, q.use) || slices.Contains(servedWithBuffers, q.use))
}

// served is everything there is.
var served = []Use{
	{"list", "", "nodes", ""}, {"get", "", "nodes", ""}, {"patch", "", "nodes", ""}, {"delete", "", "nodes", ""},
	{"list", "", "pods", ""}, {"watch", "", "pods", ""}, {"create", "", "pods", "eviction"},
	{"list", "policy", "poddisruptionbudgets", ""},
	{"list", "", "persistentvolumeclaims", ""}, {"list", "", "persistentvolumes", ""}, {"list", "storage.k8s.io", "storageclasses", ""},
	{"create", "authorization.k8s.io", "selfsubjectaccessreviews", ""}, {"get", "apps", "deployments", "scale"},
}

// decode reads the object in the body of a request.
func decode[T runtime.Object](q *request) (T, error) {
	var zero T
	o, _, err := scheme.Codecs.UniversalDeserializer().Decode(q.body, nil, nil)
	if err != nil {
		return zero, apierrors.NewBadRequest(err.Error())
	}
	t, ok := o.(T)
	if !ok {
		return zero, apierrors.NewBadRequest(fmt.Sprintf("%T is not what belongs here", o))
	}
	return t, nil
}

// graceOf returns the grace period that a deletion asks for; 0 for none of its own.
func graceOf(o *metav1.DeleteOptions) time.Duration {
	if o == nil || o.GracePeriodSeconds == nil {
		return 0
	}
	return time.Duration(*o.GracePeriodSeconds) * time.Second
}
