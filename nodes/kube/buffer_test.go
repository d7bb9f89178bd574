package kube_test

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"

	"github.com/muster-dev/muster/nodes"
	"github.com/muster-dev/muster/nodes/kube"
	"github.com/muster-dev/muster/nodes/sim"
	"github.com/muster-dev/muster/nodes/sim/kubeapi"
)

const bufferGroup = "autoscaling.x-k8s.io"

// discovered is the request by which it is found out whether the server has buffers.
var discovered = kubeapi.Use{Verb: "get", Group: bufferGroup, Resource: "resources"}

// withBuffers returns a cluster that has the API of buffers, and whose views show them.
func withBuffers(t *testing.T, bs ...sim.Buffer) (*sim.Simulator, *kubeapi.Server, *kube.Cluster) {
	t.Helper()
	w := sim.New(sim.Options{Policy: nodes.DefaultPolicy(), Workers: []string{"a"}})
	w.ServeBuffers(true)
	w.SetBuffers(bs...)
	api := kubeapi.New(w.Client("kube", nil))
	return w, api, over(t, api, kube.Options{Clock: w.Clock(), Buffers: true})
}

func web(replicas int) sim.Buffer {
	return sim.Buffer{Name: "default/web", Replicas: replicas, Pod: sim.PodSpec{MilliCPU: 500, Memory: 1 << 30}}
}

// bufferStatus is the status of a buffer as the server has it.
type bufferStatus struct {
	Replicas           *int32             `json:"replicas"`
	PodTemplateRef     map[string]string  `json:"podTemplateRef"`
	Conditions         []metav1.Condition `json:"conditions"`
	PodTemplateVersion *int64             `json:"podTemplateGeneration"`
}

// statusOf reads the status of the first buffer, and its conditions as TYPE=STATUS/REASON.
func statusOf(t *testing.T, w *sim.Simulator) (version int, s bufferStatus, conditions []string) {
	t.Helper()
	err := w.Client("look", nil).Kube(t.Context(), "look", func(k *sim.Kube) error {
		b := k.Buffers()[0]
		version = b.Version
		if b.Status == nil {
			return nil
		}
		return json.Unmarshal(b.Status, &s)
	})
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range s.Conditions {
		conditions = append(conditions, c.Type+"="+string(c.Status)+"/"+c.Reason)
	}
	return version, s, conditions
}

func TestBuffers(t *testing.T) {
	t.Run("a view shows what they ask for", func(t *testing.T) {
		other := sim.Buffer{Name: "jobs/other", Strategy: "example.com/standby"}
		lost := sim.Buffer{Name: "jobs/lost", Lost: true, Replicas: 2}
		w, api, c := withBuffers(t, web(3), other, lost)
		got, want := view(t, c).Buffers, view(t, w.Client("A", nil)).Buffers
		for i := range got { // the simulated one says why in fewer words
			if (got[i].Ignored == "") != (want[i].Ignored == "") {
				t.Errorf("%s: %q over the wire, %q simulated", got[i].Name, got[i].Ignored, want[i].Ignored)
			}
			got[i].Ignored, want[i].Ignored = "", ""
		}
		if !reflect.DeepEqual(got, want) || len(got) != 3 {
			t.Errorf("over the wire %+v\nsimulated     %+v", got, want)
		}
		if api.Used()[kubeapi.Use{Verb: "get", Resource: "podtemplates"}] != 2 {
			t.Errorf("used %v, want the templates of two buffers", api.Used())
		}
	})

	t.Run("a server without them is asked once in a while whether it has them", func(t *testing.T) {
		w, api, c := withBuffers(t)
		w.ServeBuffers(false)
		for range 5 {
			if v := view(t, c); v.BuffersWhy != "" || v.Buffers != nil {
				t.Errorf("%+v", v)
			}
			w.Advance(time.Second)
		}
		if n := api.Used()[discovered]; n != 1 {
			t.Errorf("asked %d times, want once", n)
		}
		w.ServeBuffers(true)
		w.SetBuffers(web(1))
		w.Advance(2 * time.Minute)
		if v := view(t, c); len(v.Buffers) != 1 {
			t.Errorf("its API is there now, and it shows %+v", v.Buffers)
		}
	})

	t.Run("not asked for unless they are heeded", func(t *testing.T) {
		w, api, _ := withBuffers(t, web(1))
		c := over(t, api, kube.Options{Clock: w.Clock()})
		if v := view(t, c); len(v.Buffers) > 0 || api.Used()[discovered] > 0 {
			t.Errorf("%+v, used %v", v.Buffers, api.Used())
		}
		checks := c.CheckBuffers(t.Context())
		if len(checks) != 1 || !checks[0].OK || !strings.Contains(checks[0].Detail, "SIZING=fit") {
			t.Errorf("the doctor says %+v", checks)
		}
	})

	t.Run("a view without permission says so and shows the rest", func(t *testing.T) {
		_, api, c := withBuffers(t, web(1))
		api.Forbid(kubeapi.Use{Verb: "list", Group: bufferGroup, Resource: "capacitybuffers"})
		if v := view(t, c); !strings.Contains(v.BuffersWhy, "docs/nodes/deploy.md") || len(v.Nodes) != 2 {
			t.Errorf("%+v", v)
		}
		if i := slices.IndexFunc(c.CheckBuffers(t.Context()), func(x nodes.Check) bool { return !x.OK }); i < 0 {
			t.Error("the doctor finds nothing wrong")
		}
	})
}

func TestBufferStatus(t *testing.T) {
	full := []nodes.Headroom{{Buffer: "default/web", Replicas: 3, Ready: 3}}
	show := func(t *testing.T, c *kube.Cluster, stand []nodes.Headroom) {
		t.Helper()
		view(t, c)
		if err := c.ShowBuffers(t.Context(), stand, false); err != nil {
			t.Fatal(err)
		}
	}

	t.Run("is written when it changes", func(t *testing.T) {
		w, _, c := withBuffers(t, web(3))
		show(t, c, []nodes.Headroom{{Buffer: "default/web", Replicas: 3, Ready: 1}})
		_, s, conditions := statusOf(t, w)
		if !slices.Equal(conditions, []string{"ReadyForProvisioning=True/Resolved", "Provisioning=False/NoRoom"}) {
			t.Errorf("conditions %v", conditions)
		}
		if s.Replicas == nil || *s.Replicas != 3 || s.PodTemplateRef["name"] != "web" || s.PodTemplateVersion == nil || *s.PodTemplateVersion != 1 {
			t.Errorf("status %+v", s)
		}
		began := s.Conditions[0].LastTransitionTime

		w.Advance(time.Minute)
		show(t, c, full)
		before, s, conditions := statusOf(t, w)
		if !slices.Equal(conditions, []string{"ReadyForProvisioning=True/Resolved", "Provisioning=True/Provisioned"}) {
			t.Errorf("conditions %v", conditions)
		}
		if !s.Conditions[0].LastTransitionTime.Equal(&began) || s.Conditions[1].LastTransitionTime.Equal(&began) {
			t.Errorf("a condition has its own time of change: %+v", s.Conditions)
		}
		for range 3 {
			w.Advance(time.Minute)
			show(t, c, full)
		}
		if after, _, _ := statusOf(t, w); after != before {
			t.Errorf("written %d times more, although nothing changed", after-before)
		}
	})

	t.Run("says why a buffer is ignored", func(t *testing.T) {
		w, _, c := withBuffers(t, sim.Buffer{Name: "default/web", Lost: true})
		show(t, c, []nodes.Headroom{{Buffer: "default/web", Ignored: "no template", Cause: "PodTemplateNotFound"}})
		_, s, conditions := statusOf(t, w)
		if !slices.Equal(conditions, []string{"ReadyForProvisioning=False/PodTemplateNotFound", "Provisioning=False/PodTemplateNotFound"}) || s.Replicas != nil {
			t.Errorf("%v, %+v", conditions, s)
		}
	})

	t.Run("says that a buffer asks for more than one may have", func(t *testing.T) {
		w, _, c := withBuffers(t, web(7000))
		show(t, c, []nodes.Headroom{{Buffer: "default/web", Replicas: 5000, Ready: 5000}})
		_, s, _ := statusOf(t, w)
		if text := s.Conditions[0].Message; !strings.Contains(text, "room is kept for 5000 pods of the 7000 that it asks for") {
			t.Errorf("the condition says %q", text)
		}
	})

	t.Run("is not written over a newer object", func(t *testing.T) {
		w, _, c := withBuffers(t, web(3))
		view(t, c)
		w.SetBuffers(web(4))
		if err := c.ShowBuffers(t.Context(), full, false); err != nil {
			t.Fatal(err)
		}
		if _, _, conditions := statusOf(t, w); conditions != nil {
			t.Errorf("written: %v", conditions)
		}
	})

	t.Run("leaves the conditions of others", func(t *testing.T) {
		w, _, c := withBuffers(t, web(3))
		other := `{"conditions":[{"type":"LimitedByQuotas","status":"True","reason":"X","message":"","lastTransitionTime":"2026-01-01T00:00:00Z"}],"later":7}`
		err := w.Client("other", nil).Kube(t.Context(), "write", func(k *sim.Kube) error {
			k.SetBufferStatus("default/web", 1, []byte(other))
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
		show(t, c, full)
		if _, _, conditions := statusOf(t, w); len(conditions) != 3 || conditions[0] != "LimitedByQuotas=True/X" {
			t.Errorf("conditions %v", conditions)
		}
	})

	t.Run("without permission is told once", func(t *testing.T) {
		_, api, c := withBuffers(t, web(3))
		api.Forbid(kubeapi.Use{Verb: "update", Group: bufferGroup, Resource: "capacitybuffers", Subresource: "status"})
		view(t, c)
		if err := c.ShowBuffers(t.Context(), full, false); err == nil || !strings.Contains(err.Error(), "default/web") {
			t.Errorf("got %v", err)
		}
		show(t, c, full)
	})
}

// TestBufferSizes: how many pods a buffer asks for, by what it refers to.
func TestBufferSizes(t *testing.T) {
	for name, c := range map[string]struct {
		spec     string
		replicas int
		cause    string
	}{
		"replicas":                    {`"podTemplateRef":{"name":"web"},"replicas":4`, 4, ""},
		"replicas within limits":      {`"podTemplateRef":{"name":"web"},"replicas":4,"limits":{"cpu":"1500m","memory":"100Gi"}`, 3, ""},
		"limits alone":                {`"podTemplateRef":{"name":"web"},"limits":{"memory":"5Gi"}`, 5, ""},
		"limits of something else":    {`"podTemplateRef":{"name":"web"},"replicas":4,"limits":{"nvidia.com/gpu":"1"}`, 4, ""},
		"of none":                     {`"podTemplateRef":{"name":"web"},"replicas":0`, 0, ""},
		"a percentage, rounded up":    {`"scalableRef":{"apiGroup":"apps","kind":"Deployment","name":"web"},"percentage":15`, 2, ""},
		"at least one":                {`"scalableRef":{"apiGroup":"apps","kind":"Deployment","name":"web"},"percentage":1`, 1, ""},
		"the greater of both":         {`"scalableRef":{"apiGroup":"apps","kind":"Deployment","name":"web"},"percentage":20,"replicas":5`, 5, ""},
		"a target that is not there":  {`"scalableRef":{"apiGroup":"apps","kind":"StatefulSet","name":"web"},"percentage":20`, 0, "ScalableRefNotFound"},
		"a target of another kind":    {`"scalableRef":{"apiGroup":"batch","kind":"Job","name":"web"},"replicas":1`, 0, "UnsupportedScalable"},
		"nothing that it refers to":   {`"replicas":4`, 0, "ResolutionFailed"},
		"another strategy":            {`"provisioningStrategy":"example.com/standby","podTemplateRef":{"name":"web"},"replicas":4`, 0, "UnsupportedStrategy"},
		"more than can be worked out": {`"podTemplateRef":{"name":"web"},"replicas":1000000`, 5000, ""},
	} {
		t.Run(name, func(t *testing.T) {
			w, api, _ := withBuffers(t, web(1))
			mux := http.NewServeMux()
			mux.Handle("/", api)
			mux.HandleFunc("GET /apis/autoscaling.x-k8s.io/v1beta1/capacitybuffers", func(w http.ResponseWriter, _ *http.Request) {
				_, _ = w.Write([]byte(`{"items":[{"metadata":{"namespace":"default","name":"b","resourceVersion":"1"},"spec":{` + c.spec + `}}]}`))
			})
			mux.HandleFunc("GET /apis/apps/v1/namespaces/default/deployments/web", func(w http.ResponseWriter, _ *http.Request) {
				_, _ = w.Write([]byte(`{"spec":{"replicas":10,"template":{"metadata":{"labels":{"app":"web"}},"spec":{"nodeSelector":{"team":"a"},
					"containers":[{"name":"c","resources":{"limits":{"cpu":"1","memory":"2Gi"},"requests":{"memory":"1Gi"}}}]}}}}`))
			})
			web := httptest.NewServer(mux)
			t.Cleanup(web.Close)
			cluster, err := kube.New(&rest.Config{Host: web.URL}, kube.Options{Clock: w.Clock(), Buffers: true})
			if err != nil {
				t.Fatal(err)
			}
			got := view(t, cluster)
			if len(got.Buffers) != 1 {
				t.Fatalf("%+v, %s", got.Buffers, got.BuffersWhy)
			}
			b := got.Buffers[0]
			if b.Replicas != c.replicas || b.Cause != c.cause || (b.Ignored == "") != (c.cause == "") {
				t.Errorf("%+v, want %d pods, cause %q", b, c.replicas, c.cause)
			}
			if strings.Contains(c.spec, "Deployment") && (b.Pod.Requests != nodes.Resources{MilliCPU: 1000, Memory: 1 << 30} || !strings.Contains(b.Pod.Scheduling, `"team":"a"`)) {
				t.Errorf("its pod is %+v", b.Pod)
			}
		})
	}
}
