package kubeapi

import (
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"

	authv1 "k8s.io/api/authorization/v1"
	autoscalingv1 "k8s.io/api/autoscaling/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/version"
	"k8s.io/client-go/kubernetes/scheme"

	"github.com/muster-dev/muster/nodes/sim"
)

// Server is the API of one simulated cluster. Its methods may be called while it serves.
type Server struct {
	client *sim.Client

	mu        sync.Mutex
	token     string
	forbidden map[Use]bool
	faults    []*Fault
	used      map[Use]int
	snapshots map[string][]runtime.Object
	lists     int
}

// Fault is a way to fail. It applies to requests of its use; empty fields of the use match all.
type Fault struct {
	Use    Use
	Skip   int  // matching requests that are served first
	Times  int  // requests that then fail; 0: all
	Status int  // HTTP status to answer with; 0 hangs up without an answer
	Stall  bool // never answer
	After  bool // the request takes effect and its answer is lost
	Expire bool // the continuation of a list has expired: 410
	// Message is the message of the status that goes with Status.
	Message string
}

// New returns a server that acts as client on its cluster.
func New(client *sim.Client) *Server {
	return &Server{client: client, forbidden: map[Use]bool{}, used: map[Use]int{}, snapshots: map[string][]runtime.Object{}}
}

// RequireToken makes the server answer 401 to requests without this bearer token.
func (s *Server) RequireToken(token string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.token = token
}

// Forbid takes permissions away.
func (s *Server) Forbid(uses ...Use) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, u := range uses {
		s.forbidden[u] = true
	}
}

// Fail adds a fault. Of several that match a request the first one counts.
func (s *Server) Fail(f Fault) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.faults = append(s.faults, &f)
}

// Heal takes all faults away.
func (s *Server) Heal() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.faults = nil
}

// Used returns how often each kind of request was made.
func (s *Server) Used() map[Use]int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return maps.Clone(s.used)
}

// ServeHTTP answers one request.
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	q, ok := parse(r)
	if !ok {
		http.NotFound(w, r)
		return
	}
	var err error
	if q.body, err = io.ReadAll(r.Body); err != nil {
		panic(http.ErrAbortHandler)
	}
	fault, refusal := s.admit(q)
	if refusal != nil {
		s.fail(w, q, refusal)
		return
	}
	switch {
	case fault == nil, fault.After:
	case fault.Stall:
		<-r.Context().Done()
		panic(http.ErrAbortHandler)
	case fault.Expire && r.FormValue("continue") != "":
		s.fail(w, q, apierrors.NewResourceExpired("The provided continue parameter is too old"))
		return
	case fault.Expire:
	case fault.Status != 0:
		s.fail(w, q, &apierrors.StatusError{ErrStatus: metav1.Status{Status: metav1.StatusFailure, Code: int32(fault.Status), Message: fault.Message, Reason: reasonOf(fault.Status)}})
		return
	default:
		panic(http.ErrAbortHandler)
	}
	if q.use.Verb == "watch" {
		s.watch(w, q)
		return
	}
	var out runtime.Object
	err = s.client.Kube(r.Context(), q.use.String(), func(k *sim.Kube) (err error) {
		out, err = s.serve(k, q)
		return err
	})
	if fault != nil && fault.After || errors.Is(err, sim.ErrUnreachable) || r.Context().Err() != nil {
		panic(http.ErrAbortHandler)
	}
	if err != nil {
		s.fail(w, q, err)
		return
	}
	status := http.StatusOK
	if r.Method == http.MethodPost {
		status = http.StatusCreated
	}
	s.write(w, q, status, out)
}

// admit notes a request, checks who makes it, and finds the fault that it meets.
func (s *Server) admit(q *request) (*Fault, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.token != "" && q.Header.Get("Authorization") != "Bearer "+s.token {
		return nil, apierrors.NewUnauthorized("Unauthorized")
	}
	s.used[q.use]++
	if s.forbidden[q.use] {
		resource := strings.TrimSuffix(q.use.Resource+"/"+q.use.Subresource, "/")
		return nil, apierrors.NewForbidden(schema.GroupResource{Group: q.use.Group, Resource: resource}, q.name,
			said(fmt.Sprintf("User %q cannot %s resource %q in API group %q", "muster", q.use.Verb, resource, q.use.Group)))
	}
	for _, f := range s.faults {
		if !f.matches(q.use) || f.Times < 0 {
			continue
		}
		if f.Expire && q.FormValue("continue") == "" {
			continue
		}
		if f.Skip > 0 {
			f.Skip--
			continue
		}
		if f.Times == 1 {
			f.Times = -1
		} else if f.Times > 1 {
			f.Times--
		}
		return f, nil
	}
	return nil, nil
}

func (f *Fault) matches(u Use) bool {
	m := func(want, got string) bool { return want == "" || want == got }
	return m(f.Use.Verb, u.Verb) && m(f.Use.Group, u.Group) && m(f.Use.Resource, u.Resource) && m(f.Use.Subresource, u.Subresource)
}

func reasonOf(status int) metav1.StatusReason {
	switch status {
	case http.StatusInternalServerError:
		return metav1.StatusReasonInternalError
	case http.StatusServiceUnavailable:
		return metav1.StatusReasonServiceUnavailable
	case http.StatusTooManyRequests:
		return metav1.StatusReasonTooManyRequests
	case http.StatusForbidden:
		return metav1.StatusReasonForbidden
	}
	return metav1.StatusReasonUnknown
}

func (s *Server) serve(k *sim.Kube, q *request) (runtime.Object, error) {
	if o, is, err := serveBuffers(k, q); is {
		return o, err
	}
	switch q.use {
	case Use{"list", "", "nodes", ""}:
		l := &corev1.NodeList{}
		return l, s.page(k, q, &l.ListMeta, func() []runtime.Object { return nodeObjects(k) },
			func(o runtime.Object) { l.Items = append(l.Items, *o.(*corev1.Node)) })
	case Use{"list", "", "pods", ""}:
		l := &corev1.PodList{}
		return l, s.page(k, q, &l.ListMeta, func() []runtime.Object { return podObjects(k) },
			func(o runtime.Object) { l.Items = append(l.Items, *o.(*corev1.Pod)) })
	case Use{"list", "policy", "poddisruptionbudgets", ""}:
		l := &policyv1.PodDisruptionBudgetList{}
		return l, s.page(k, q, &l.ListMeta, func() []runtime.Object { return budgetObjects(k) },
			func(o runtime.Object) { l.Items = append(l.Items, *o.(*policyv1.PodDisruptionBudget)) })
	case Use{"list", "", "persistentvolumeclaims", ""}:
		l := &corev1.PersistentVolumeClaimList{}
		return l, s.page(k, q, &l.ListMeta, func() []runtime.Object { return claimObjects(k) },
			func(o runtime.Object) { l.Items = append(l.Items, *o.(*corev1.PersistentVolumeClaim)) })
	case Use{"list", "", "persistentvolumes", ""}:
		l := &corev1.PersistentVolumeList{}
		return l, s.page(k, q, &l.ListMeta, func() []runtime.Object { return volumeObjects(k) },
			func(o runtime.Object) { l.Items = append(l.Items, *o.(*corev1.PersistentVolume)) })
	case Use{"list", "storage.k8s.io", "storageclasses", ""}:
		l := &storagev1.StorageClassList{}
		return l, s.page(k, q, &l.ListMeta, func() []runtime.Object { return nil }, func(runtime.Object) {})
	case Use{"create", "", "pods", "eviction"}:
		return evict(k, q)
	case Use{"create", "authorization.k8s.io", "selfsubjectaccessreviews", ""}:
		return s.review(q)
	case Use{"get", "apps", "deployments", "scale"}:
		return scaleOf(k, q)
	}
	if q.use.Resource == "version" {
		return &metav1.Status{}, nil // write knows better
	}
	return onNode(k, q)
}

// page fills a list. The first page takes the whole list as it is at that moment, the others continue it.
func (s *Server) page(k *sim.Kube, q *request, meta *metav1.ListMeta, all func() []runtime.Object, add func(runtime.Object)) error {
	selector, err := fields.ParseSelector(q.FormValue("fieldSelector"))
	if err != nil {
		return apierrors.NewBadRequest(err.Error())
	}
	limit, _ := strconv.Atoi(q.FormValue("limit"))
	s.mu.Lock()
	defer s.mu.Unlock()
	token := q.FormValue("continue")
	var rest []runtime.Object
	if token == "" {
		for _, o := range all() {
			if selector.Matches(fieldsOf(o)) {
				rest = append(rest, o)
			}
		}
	} else {
		if k.Halved() {
			return apierrors.NewResourceExpired("The provided continue parameter is too old")
		}
		var ok bool
		if rest, ok = s.snapshots[token]; !ok {
			return apierrors.NewBadRequest("continue key is not valid")
		}
	}
	meta.ResourceVersion = strconv.FormatInt(k.Now().UnixMilli(), 10)
	n := len(rest)
	if limit > 0 {
		n = min(n, limit)
	}
	if token == "" && k.Halved() && n == len(rest) && n > 1 {
		n /= 2
	}
	for _, o := range rest[:n] {
		add(o)
	}
	if n < len(rest) {
		s.lists++
		meta.Continue = base64.RawURLEncoding.EncodeToString(fmt.Appendf(nil, "list-%d", s.lists))
		left := int64(len(rest) - n)
		meta.RemainingItemCount = &left
		s.snapshots[meta.Continue] = rest[n:]
	}
	delete(s.snapshots, token)
	return nil
}

func (s *Server) review(q *request) (runtime.Object, error) {
	r, err := decode[*authv1.SelfSubjectAccessReview](q)
	if err != nil {
		return nil, err
	}
	a := r.Spec.ResourceAttributes
	if a == nil {
		return nil, apierrors.NewBadRequest("resourceAttributes is missing")
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	use := Use{a.Verb, a.Group, a.Resource, a.Subresource}
	r.Status.Allowed = (slices.Contains(served, use) || slices.Contains(servedWithBuffers, use)) && !s.forbidden[use]
	return r, nil
}

// fail answers with an error's status.
func (s *Server) fail(w http.ResponseWriter, q *request, err error) {
	var status *apierrors.StatusError
	if !errors.As(err, &status) {
		status = apierrors.NewInternalError(err)
	}
	st := status.Status()
	if st.Details != nil && st.Details.RetryAfterSeconds > 0 {
		w.Header().Set("Retry-After", strconv.Itoa(int(st.Details.RetryAfterSeconds)))
	}
	s.write(w, q, int(st.Code), &st)
}

// write answers with an object in the form that the client prefers.
func (s *Server) write(w http.ResponseWriter, q *request, status int, o runtime.Object) {
	if q.use.Resource == "version" && status == http.StatusOK {
		w.Header().Set("Content-Type", runtime.ContentTypeJSON)
		_ = json.NewEncoder(w).Encode(version.Info{Major: "1", Minor: "36", GitVersion: "v1.36.0+k3s1"}) // a client that has gone needs no answer
		return
	}
	if d, ok := o.(document); ok {
		writeDocument(w, status, d)
		return
	}
	media := runtime.ContentTypeJSON
	if strings.Contains(q.Header.Get("Accept"), runtime.ContentTypeProtobuf) {
		media = runtime.ContentTypeProtobuf
	}
	info, _ := runtime.SerializerInfoForMediaType(scheme.Codecs.SupportedMediaTypes(), media)
	gv := schema.GroupVersion{Group: q.use.Group, Version: "v1"}
	switch o.(type) {
	case *metav1.Status:
		gv = schema.GroupVersion{Version: "v1"}
	case *autoscalingv1.Scale: // of whatever group it is the scale
		gv = autoscalingv1.SchemeGroupVersion
	}
	body, err := runtime.Encode(scheme.Codecs.EncoderForVersion(info.Serializer, gv), o)
	if err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	w.Header().Set("Content-Type", media)
	w.WriteHeader(status)
	_, _ = w.Write(body) // as above
}
