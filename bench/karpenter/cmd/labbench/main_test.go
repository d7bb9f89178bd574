package main

import (
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"

	"github.com/muster-dev/muster/nodes"
	"github.com/muster-dev/muster/nodes/backtest"
)

func TestLedgerBillsInTimesOfTheTrace(t *testing.T) {
	begin := time.Unix(1e9, 0)
	s := scene{speed: 10, types: []instanceType{{"big", 2, nodes.Resources{}}, {"small", 1, nodes.Resources{}}}}
	l := ledger{}
	l.launched("one", "big", begin)
	l.launched("one", "small", begin.Add(time.Minute)) // only the first counts
	l.ended("one", begin.Add(6*time.Minute))
	l.ended("one", begin.Add(9*time.Minute))
	l.launched("two", "small", begin.Add(6*time.Minute))
	usd, hours, err := l.bill(s, begin.Add(12*time.Minute))
	if err != nil || usd != 3 || hours != 2 {
		t.Errorf("got USD %v and %v hours, %v; want 3 and 2", usd, hours, err)
	}

	l.launched("three", "unknown", begin)
	if _, _, err := l.bill(s, begin); err == nil || !strings.Contains(err.Error(), `"unknown"`) {
		t.Errorf("a type that is not offered is billed: %v", err)
	}
}

func TestCounterCountsByVerbAndAuthenticates(t *testing.T) {
	var tokens []string
	api := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { tokens = append(tokens, r.Header.Get("Authorization")) }))
	defer api.Close()
	c, err := newCounter(&rest.Config{Host: api.URL}, "secret")
	if err != nil {
		t.Fatal(err)
	}
	defer c.close()
	for _, r := range []struct{ method, path string }{
		{"GET", "/api/v1/pods"}, {"GET", "/api/v1/pods?watch=true"}, {"POST", "/api/v1/nodes"},
		{"POST", "/api/v1/namespaces/x/pods/y/eviction"}, {"PUT", "/api/v1/nodes/n"}, {"DELETE", "/api/v1/nodes/n"},
	} {
		req, err := http.NewRequestWithContext(t.Context(), r.method, c.url+r.path, http.NoBody)
		if err != nil {
			t.Fatal(err)
		}
		res, err := http.DefaultClient.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		_ = res.Body.Close()
	}
	const want = "create 1, delete 1, evict 1, get 1, update 1, watch 1"
	if got, sum := c.counts(); got != want || sum != 6 {
		t.Errorf("counted %q, %d in all; want %q, 6", got, sum, want)
	}
	if len(tokens) != 6 || tokens[0] != "Bearer secret" {
		t.Errorf("the server saw the tokens %q", tokens)
	}
}

// pod is one of the trace's first job.
func pod(uid, node string, conditions ...corev1.PodCondition) *corev1.Pod {
	return &corev1.Pod{ObjectMeta: metav1.ObjectMeta{UID: types.UID(uid), Labels: map[string]string{indexLabel: "0"}},
		Spec: corev1.PodSpec{NodeName: node}, Status: corev1.PodStatus{Conditions: conditions}}
}

func TestWorkloadCountsEachEvictionOnce(t *testing.T) {
	w := newWorkload(scene{speed: 1, pods: []backtest.Pod{{Created: time.Second, Runs: time.Hour}}}, nil)
	w.jobs[0].created, w.jobs[0].seen = time.Now(), map[string]bool{}
	evicted := corev1.PodCondition{Type: corev1.DisruptionTarget, Reason: "EvictionByEvictionAPI"}

	w.changed(t.Context(), pod("first", ""), false)
	if w.jobs[0].placed {
		t.Error("a pod without a node counts as placed")
	}
	w.changed(t.Context(), pod("first", "n1"), false)
	w.changed(t.Context(), pod("first", "n1", evicted), true)
	w.changed(t.Context(), pod("first", "n1", evicted), true)
	w.changed(t.Context(), pod("second", "n2"), false)
	w.changed(t.Context(), pod("second", "n2"), true) // its node went without a drain
	if r := w.result(); r.Evicted != 1 || r.Lost != 1 || r.Placed != 1 || r.Waiting != 0 {
		t.Errorf("got %+v", r)
	}
}

func TestPercentile(t *testing.T) {
	times := []time.Duration{1, 2, 3, 4}
	for share, want := range map[float64]time.Duration{0.5: 2, 0.51: 3, 0.99: 4, 0: 1} {
		if got := percentile(times, share); got != want {
			t.Errorf("%v: got %d, want %d", share, got, want)
		}
	}
	if got := percentile(nil, 0.5); got != 0 {
		t.Errorf("of nothing: %v", got)
	}
}

// TestSceneOffersBothTheSame: what Karpenter's provider takes off every type is added to it.
func TestSceneOffersBothTheSame(t *testing.T) {
	file := filepath.Join(t.TempDir(), "trace.csv")
	text := "name,cpu_milli,memory_mib,creation_time,deletion_time,scheduled_time\na,1000,1024,0,600,0\nhuge,9000000,1024,5,600,5\nnever,1000,1024,6,600,\n"
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	s, err := readScene(options{trace: file, window: time.Hour, speed: 10})
	if err != nil {
		t.Fatal(err)
	}
	if len(s.pods) != 1 || s.pods[0].Name != "a" || s.out != 2 {
		t.Errorf("%d pods are played and %d left out", len(s.pods), s.out)
	}
	if err := s.bound(t.Context()); err != nil || s.least <= 0 {
		t.Errorf("the lower bound is %v, %v", s.least, err)
	}
	if s.types[0].allocatable.MilliCPU%1000 != 0 {
		t.Fatalf("%+v", s.types[0])
	}
	types, err := s.kwokTypes()
	if err != nil || !strings.Contains(string(types), `"cpu":"16100m"`) {
		t.Errorf("no type has 16 cores and what the provider takes off: %s %v", types, err)
	}
}

func TestOptionsSayWhatIsWrong(t *testing.T) {
	for want, o := range map[string]options{
		"--trace":  {window: time.Hour, speed: 1},
		"--window": {trace: "t", speed: 1},
		"--speed":  {trace: "t", window: time.Hour},
		"--only":   {trace: "t", window: time.Hour, speed: 1, only: "both"},
	} {
		if err := o.check(); err == nil || !strings.HasPrefix(err.Error(), want) {
			t.Errorf("got %v, want an error about %s", err, want)
		}
	}
}
