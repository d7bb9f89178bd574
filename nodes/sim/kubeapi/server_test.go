package kubeapi_test

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	corev1client "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/rest"

	"github.com/muster-dev/muster/nodes"
	"github.com/muster-dev/muster/nodes/sim"
	"github.com/muster-dev/muster/nodes/sim/kubeapi"
)

// start returns a simulator with a worker (i-002) and a typed client of its API, in one of the two encodings.
func start(t *testing.T, encoding string) (*sim.Simulator, *kubeapi.Server, *corev1client.CoreV1Client, string) {
	t.Helper()
	w := sim.New(sim.Options{Policy: nodes.DefaultPolicy(), Workers: []string{"a"}})
	api := kubeapi.New(w.Client("kube", nil))
	server := httptest.NewServer(api)
	t.Cleanup(server.Close)
	c, err := corev1client.NewForConfig(&rest.Config{Host: server.URL, QPS: -1, ContentConfig: rest.ContentConfig{ContentType: encoding, AcceptContentTypes: encoding}})
	if err != nil {
		t.Fatal(err)
	}
	return w, api, c, server.URL
}

func TestTheTypedClientUnderstandsBothEncodings(t *testing.T) {
	for _, encoding := range []string{runtime.ContentTypeJSON, runtime.ContentTypeProtobuf} {
		t.Run(encoding, func(t *testing.T) {
			w, _, c, _ := start(t, encoding)
			w.AddPodOn("i-002", sim.PodSpec{Name: "default/web", MilliCPU: 250, Memory: 1 << 20, Kube: sim.KubeTraits{Labels: map[string]string{"app": "web"}}})
			p, err := c.Pods("").List(t.Context(), metav1.ListOptions{FieldSelector: "spec.nodeName=i-002"})
			if err != nil || len(p.Items) != 1 || p.Items[0].Labels["app"] != "web" || p.Items[0].Spec.Containers[0].Resources.Requests.Cpu().MilliValue() != 250 {
				t.Fatalf("%+v, %v", p, err)
			}
			if p, err = c.Pods("").List(t.Context(), metav1.ListOptions{FieldSelector: "spec.nodeName=another"}); err != nil || len(p.Items) != 0 {
				t.Errorf("of another node: %+v, %v", p, err)
			}
			if _, err := c.Nodes().Get(t.Context(), "i-999", metav1.GetOptions{}); !apierrors.IsNotFound(err) {
				t.Errorf("a node that isn't there: %v", err)
			}
		})
	}
}

func TestAPatchAppliesToTheVersionAndTheUIDThatItNames(t *testing.T) {
	w, _, c, _ := start(t, runtime.ContentTypeJSON)
	n, err := c.Nodes().Get(t.Context(), "i-002", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	patch := func(kind types.PatchType, format string, args ...any) error {
		_, err := c.Nodes().Patch(t.Context(), "i-002", kind, fmt.Appendf(nil, format, args...), metav1.PatchOptions{})
		return err
	}
	if err := patch(types.MergePatchType, `{"metadata":{"uid":"another"},"spec":{"unschedulable":true}}`); !apierrors.IsConflict(err) {
		t.Errorf("another UID: %v", err)
	}
	if err := patch(types.MergePatchType, `{"metadata":{"uid":%q,"resourceVersion":%q,"annotations":{"a":"b"}},"spec":{"unschedulable":true}}`, n.UID, n.ResourceVersion); err != nil {
		t.Fatal(err)
	}
	if err := patch(types.MergePatchType, `{"metadata":{"resourceVersion":%q},"spec":{"unschedulable":false}}`, n.ResourceVersion); !apierrors.IsConflict(err) {
		t.Errorf("an old version: %v", err)
	}
	if err := patch(types.MergePatchType, `{"metadata":{"labels":{"a":"b"}}}`); !apierrors.IsBadRequest(err) {
		t.Errorf("a field that would be ignored: %v", err)
	}
	if err := patch(types.StrategicMergePatchType, `{}`); !apierrors.IsUnsupportedMediaType(err) {
		t.Errorf("another kind of patch: %v", err)
	}
	if err := patch(types.MergePatchType, `{"metadata":{"annotations":{"a":null}}}`); err != nil {
		t.Error(err)
	}
	n, err = c.Nodes().Get(t.Context(), "i-002", metav1.GetOptions{})
	if err != nil || !n.Spec.Unschedulable || len(n.Annotations) != 0 || len(n.Spec.Taints) != 1 {
		t.Errorf("%+v, %v", n, err)
	}
	if f := w.Fleet(); f.Cordoned != 1 {
		t.Errorf("%+v", f)
	}
}

func TestAnEvictionHasTheAnswersOfTheRealOne(t *testing.T) {
	w, _, c, _ := start(t, runtime.ContentTypeJSON)
	for _, p := range []sim.PodSpec{
		{Name: "default/free"}, {Name: "default/held"}, {Name: "default/twice"}, {Name: "default/sick", Kube: sim.KubeTraits{NotReady: true}},
		{Name: "default/done", Kube: sim.KubeTraits{Phase: "Succeeded"}},
	} {
		w.AddPodOn("i-002", p)
	}
	w.SetBudgets(sim.Budget{Namespace: "default", Name: "held", Prefix: "held", MinAvailable: 1}, sim.Budget{Namespace: "default", Name: "one", Prefix: "twice"},
		sim.Budget{Namespace: "default", Name: "two", Prefix: "twi"}, sim.Budget{Namespace: "default", Name: "done", Prefix: "done", MinAvailable: 1},
		sim.Budget{Namespace: "default", Name: "sick", Prefix: "sick", MinAvailable: 1})
	uid := types.UID("another")
	for name, c2 := range map[string]struct {
		pod  string
		o    *metav1.DeleteOptions
		want func(error) bool
	}{
		"no budget": {"free", nil, func(err error) bool { return err == nil }},
		"a budget that allows none": {"held", nil, func(err error) bool {
			return apierrors.IsTooManyRequests(err) && apierrors.HasStatusCause(err, policyv1.DisruptionBudgetCause)
		}},
		"two budgets":             {"twice", nil, apierrors.IsInternalError},
		"a pod that has finished": {"done", nil, func(err error) bool { return err == nil }},
		"unready with too few":    {"sick", nil, apierrors.IsTooManyRequests},
		"another UID":             {"held", &metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &uid}}, apierrors.IsConflict},
		"no such pod":             {"none", nil, apierrors.IsNotFound},
	} {
		err := c.Pods("default").EvictV1(t.Context(), &policyv1.Eviction{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: c2.pod}, DeleteOptions: c2.o})
		if !c2.want(err) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestAContinuedListIsOfItsFirstMoment(t *testing.T) {
	w, _, c, _ := start(t, runtime.ContentTypeProtobuf)
	w.AddPods(5, sim.PodSpec{Name: "default/web"})
	first, err := c.Pods("").List(t.Context(), metav1.ListOptions{Limit: 2})
	if err != nil || len(first.Items) != 2 || *first.RemainingItemCount != 3 {
		t.Fatalf("%+v, %v", first, err)
	}
	w.RemovePods("default/web")
	rest, err := c.Pods("").List(t.Context(), metav1.ListOptions{Continue: first.Continue})
	if err != nil || len(rest.Items) != 3 || rest.Continue != "" {
		t.Errorf("%+v, %v", rest, err)
	}
	if _, err := c.Pods("").List(t.Context(), metav1.ListOptions{Continue: "made-up"}); !apierrors.IsBadRequest(err) {
		t.Errorf("got %v", err)
	}
}

func TestWhatIsNotServedIsNotFound(t *testing.T) {
	_, api, c, url := start(t, runtime.ContentTypeJSON)
	for _, path := range []string{"/", "/api/v1/secrets", "/api/v1/namespaces/default/pods/web/log", "/apis/apps/v1/daemonsets", "/healthz"} {
		resp, err := http.Get(url + path)
		if err != nil {
			t.Fatal(err)
		}
		resp.Body.Close()
		if resp.StatusCode != http.StatusNotFound {
			t.Errorf("%s: %d", path, resp.StatusCode)
		}
	}
	if _, err := c.Pods("default").Create(t.Context(), &corev1.Pod{}, metav1.CreateOptions{}); !apierrors.IsNotFound(err) {
		t.Errorf("creating a pod: %v", err)
	}
	if len(api.Used()) != 0 {
		t.Errorf("noted %v", api.Used())
	}
	resp, err := http.Get(url + "/version")
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	if b, _ := io.ReadAll(resp.Body); !strings.Contains(string(b), "k3s") {
		t.Errorf("version: %s", b)
	}
}

func TestAFaultFailsAsManyRequestsAsItSays(t *testing.T) {
	_, api, c, _ := start(t, runtime.ContentTypeJSON)
	api.Fail(kubeapi.Fault{Use: kubeapi.Use{Resource: "nodes"}, Skip: 1, Times: 2, Status: http.StatusInternalServerError})
	var got []bool
	for range 4 {
		_, err := c.Nodes().List(t.Context(), metav1.ListOptions{})
		got = append(got, err == nil)
	}
	if fmt.Sprint(got) != "[true false false true]" {
		t.Errorf("%v", got)
	}
	api.Fail(kubeapi.Fault{Stall: true})
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	if _, err := c.Nodes().List(ctx, metav1.ListOptions{}); err == nil {
		t.Error("it answered")
	}
	api.Heal()
	if _, err := c.Nodes().List(t.Context(), metav1.ListOptions{}); err != nil {
		t.Error(err)
	}
}

func Example() {
	w := sim.New(sim.Options{Policy: nodes.DefaultPolicy(), Workers: []string{"a", "b"}})
	server := httptest.NewServer(kubeapi.New(w.Client("kube", nil)))
	defer server.Close()
	c, err := corev1client.NewForConfig(&rest.Config{Host: server.URL})
	if err != nil {
		panic(err)
	}
	list, err := c.Nodes().List(context.Background(), metav1.ListOptions{})
	if err != nil {
		panic(err)
	}
	for _, n := range list.Items {
		fmt.Println(n.Name, n.Spec.ProviderID)
	}
	// Output:
	// i-001 aws:///a/i-001
	// i-002 aws:///a/i-002
	// i-003 aws:///b/i-003
}
