package kube_test

import (
	"context"
	"encoding/base64"
	"encoding/pem"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/muster-dev/muster/nodes"
	"github.com/muster-dev/muster/nodes/kube"
	"github.com/muster-dev/muster/nodes/sim"
	"github.com/muster-dev/muster/nodes/sim/kubeapi"
	"github.com/muster-dev/muster/setting"
)

func TestTheSimulatorKnowsTheAnnotationAndTheTaintByTheirNames(t *testing.T) {
	if sim.ClaimsAnnotation != kube.ClaimsAnnotation || sim.ToBeDeletedTaint != kube.ToBeDeletedTaint {
		t.Errorf("%s and %s, %s and %s", sim.ClaimsAnnotation, kube.ClaimsAnnotation, sim.ToBeDeletedTaint, kube.ToBeDeletedTaint)
	}
}

// meddling changes a node between the adapter's read and its write.
type meddling struct {
	w     *sim.Simulator
	times int
}

func (m *meddling) Before(call string) error {
	if call == "kube.patch nodes" && m.times > 0 {
		m.times--
		m.w.AnnotateNode(first, "someone", fmt.Sprint("else ", m.times))
	}
	return nil
}

func (m *meddling) After(_ string, err error) error { return err }

func TestACordonIsRepeatedWhenSomebodyElseWroteToTheNode(t *testing.T) {
	w := sim.New(sim.Options{Policy: nodes.DefaultPolicy(), Workers: []string{"a", "b"}})
	m := &meddling{w: w, times: 2}
	c := over(t, kubeapi.New(w.Client("kube", m)), kube.Options{Clock: w.Clock()})
	cordon(t, c, first, "me")
	if n := node(t, c, first); !n.Unschedulable || m.times != 0 {
		t.Errorf("%+v", n)
	}
	m.times = 1000
	if err := c.Cordon(t.Context(), node(t, c, first).NodeRef, "you"); err == nil {
		t.Error("it never gave up")
	}
}

func TestAClaimThatWouldReadAsTwoIsRefused(t *testing.T) {
	_, _, c := start(t, kube.Rules{}, "a")
	for _, claim := range []string{"", "a,b", "a b"} {
		if err := c.Cordon(t.Context(), node(t, c, first).NodeRef, claim); err == nil {
			t.Errorf("%q was taken", claim)
		}
	}
}

func TestAViewIsReadInPagesOfOneMoment(t *testing.T) {
	w := sim.New(sim.Options{Policy: nodes.DefaultPolicy(), Workers: []string{"a", "b"}})
	api := kubeapi.New(w.Client("kube", nil))
	c := over(t, api, kube.Options{Clock: w.Clock(), Page: 3})
	w.AddPods(10, sim.PodSpec{Name: "default/web"})
	calls := func() int {
		n := 0
		for _, times := range api.Used() {
			n += times
		}
		return n
	}
	before := calls()
	v := view(t, c)
	if n := len(v.Nodes[1].Pods) + len(v.Nodes[2].Pods); n != 10 {
		t.Errorf("%d pods", n)
	}
	if got := calls() - before; got != 1+1+4 { // nodes, budgets, pods in pages of 3
		t.Errorf("%d requests", got)
	}
}

func TestAListWhoseContinuationExpiredBeginsAgain(t *testing.T) {
	w := sim.New(sim.Options{Policy: nodes.DefaultPolicy(), Workers: []string{"a", "b"}})
	api := kubeapi.New(w.Client("kube", nil))
	c := over(t, api, kube.Options{Clock: w.Clock(), Page: 4})
	w.AddPods(10, sim.PodSpec{Name: "default/web"})
	api.Fail(kubeapi.Fault{Use: kubeapi.Use{Resource: "pods"}, Expire: true, Skip: 1, Times: 1})
	v := view(t, c)
	if n := len(v.Nodes[1].Pods) + len(v.Nodes[2].Pods); n != 10 {
		t.Errorf("%d pods: some were counted twice or lost", n)
	}
	api.Fail(kubeapi.Fault{Use: kubeapi.Use{Resource: "pods"}, Expire: true})
	if v, err := c.View(t.Context()); err == nil || len(v.Nodes) > 0 {
		t.Errorf("a list that always breaks off: %+v, %v", v, err)
	}
}

func TestAViewIsCompleteOrAnError(t *testing.T) {
	for name, f := range map[string]kubeapi.Fault{
		"nodes fail":   {Use: kubeapi.Use{Resource: "nodes"}, Status: http.StatusInternalServerError},
		"pods fail":    {Use: kubeapi.Use{Resource: "pods"}, Status: http.StatusServiceUnavailable},
		"budgets fail": {Use: kubeapi.Use{Resource: "poddisruptionbudgets"}, Status: http.StatusTooManyRequests},
		"hanging up":   {Use: kubeapi.Use{Resource: "pods"}},
		"stalling":     {Use: kubeapi.Use{Resource: "pods"}, Stall: true},
	} {
		t.Run(name, func(t *testing.T) {
			w := sim.New(sim.Options{Policy: nodes.DefaultPolicy(), Workers: []string{"a", "b"}})
			api := kubeapi.New(w.Client("kube", nil))
			c := over(t, api, kube.Options{Clock: w.Clock(), Timeout: 200 * time.Millisecond})
			api.Fail(f)
			if v, err := c.View(t.Context()); err == nil || len(v.Nodes)+len(v.Pending) > 0 {
				t.Errorf("%+v, %v", v, err)
			}
		})
	}
}

func TestAPermissionThatIsMissingIsNamedWithWhatHelps(t *testing.T) {
	_, api, c := start(t, kube.Rules{}, "a")
	api.Forbid(kubeapi.Use{Verb: "list", Group: "policy", Resource: "poddisruptionbudgets"})
	if _, err := c.View(t.Context()); err == nil || !strings.Contains(err.Error(), "poddisruptionbudgets") || !strings.Contains(err.Error(), "docs/nodes/deploy.md") {
		t.Errorf("got %v", err)
	}
}

func TestOnlyPodsThatANodeWouldHelpArePending(t *testing.T) {
	w, _, c := start(t, kube.Rules{}, "a")
	w.AddPods(1, sim.PodSpec{Name: "default/big", MilliCPU: 1 << 20})
	w.AddPods(1, sim.PodSpec{Name: "default/gated", MilliCPU: 1 << 20, Kube: sim.KubeTraits{Gated: true}})
	w.AddPods(1, sim.PodSpec{Name: "default/agent", MilliCPU: 1 << 20, Daemon: true})
	v := view(t, c)
	if len(v.Pending) != 1 || v.Pending[0].Name != "default/big-0" {
		t.Errorf("%+v", v.Pending)
	}
}

func TestANodeIsKeptByAnnotation(t *testing.T) {
	w, _, c := start(t, kube.Rules{}, "a", "a", "a", "a")
	for i, key := range []string{kube.KeepAnnotation, "cluster-autoscaler.kubernetes.io/scale-down-disabled", "karpenter.sh/do-not-disrupt"} {
		w.AnnotateNode(fmt.Sprintf("i-%03d", i+2), key, "true")
	}
	var kept []string
	for _, n := range view(t, c).Nodes {
		if n.Keep {
			kept = append(kept, n.Name)
		}
	}
	if !slices.Equal(kept, []string{"i-002", "i-003", "i-004"}) {
		t.Errorf("kept %v", kept)
	}
}

func TestAStockNodeIsMatchedByItsAddress(t *testing.T) {
	w, _, c := start(t, kube.Rules{}, "a", "b")
	w.MakeStock(first)
	instances, err := w.Client("cloud", nil).Workers(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	fleet := nodes.Match(instances, view(t, c).Nodes)
	if len(fleet) != 2 || fleet[0].Node == nil || fleet[0].Node.Name != "ip-10-0-0-3" || fleet[0].Node.ProviderID != "k3s://ip-10-0-0-3" {
		t.Fatalf("%+v", fleet)
	}
}

// TestTheRoleIsEnoughAndNoMore derives the permissions from what the code asks of the API and compares both ways.
func TestTheRoleIsEnoughAndNoMore(t *testing.T) {
	w, api, c := start(t, kube.Rules{}, "a", "b")
	w.AddPodOn(first, sim.PodSpec{Name: "default/web", Kube: sim.KubeTraits{VolumeZone: "a"}})
	cordon(t, c, first, "me")
	drain(t, w, c, first, time.Minute)
	uncordon(t, c, first, "me")
	if err := c.Remove(t.Context(), node(t, c, first).NodeRef); err != nil {
		t.Fatal(err)
	}
	w.Deploy(sim.PodSpec{Name: "fdc/defender"}, nil).Scale(7)
	if n, err := c.Replicas(t.Context(), "fdc", "defender"); err != nil || n != 7 {
		t.Errorf("%d replicas, %v", n, err)
	}
	if n, err := c.Replicas(t.Context(), "fdc", "nobody"); err == nil || !strings.Contains(err.Error(), "fdc/nobody") {
		t.Errorf("%d replicas of a deployment that there isn't, %v", n, err)
	}
	var used, listed []string
	for use := range api.Used() {
		used = append(used, use.String())
	}
	for _, p := range kube.Permissions() {
		listed = append(listed, p.String())
	}
	slices.Sort(used)
	slices.Sort(listed)
	if !slices.Equal(used, listed) {
		t.Errorf("used   %v\nlisted %v", used, listed)
	}
}

func TestTheDocumentedRoleIsTheOneThatIsNeeded(t *testing.T) {
	role := documentedRole(t)
	var documented, listed []string
	for _, rule := range role.Rules {
		for _, resource := range rule.Resources {
			for _, verb := range rule.Verbs {
				resource, sub, _ := strings.Cut(resource, "/")
				documented = append(documented, kube.Permission{Verb: verb, Group: rule.APIGroups[0], Resource: resource, Subresource: sub}.String())
			}
		}
	}
	for _, p := range slices.Concat(kube.Permissions(), kube.WatchPermissions(), kube.EvictionRequestPermissions(), kube.ReportPermissions(), kube.BufferPermissions()) {
		listed = append(listed, p.String())
	}
	slices.Sort(documented)
	slices.Sort(listed)
	if !slices.Equal(documented, listed) {
		t.Errorf("documented %v\nlisted     %v", documented, listed)
	}
}

func find(t *testing.T, checks []nodes.Check, name string) nodes.Check {
	t.Helper()
	for _, c := range checks {
		if c.Name == "kubernetes: "+name {
			return c
		}
	}
	t.Fatalf("no check %q in %+v", name, checks)
	return nodes.Check{}
}

func TestTheDoctorFindsNothingWrongWithAGoodCluster(t *testing.T) {
	_, _, c := start(t, kube.Rules{}, "a", "b")
	checks := c.Check(t.Context())
	if len(checks) < len(kube.Permissions())+3 {
		t.Errorf("only %d checks", len(checks))
	}
	for _, check := range checks {
		if !check.OK || check.Fix != "" {
			t.Errorf("%+v", check)
		}
	}
}

func TestTheDoctorSaysWhatIsWrongAndWhatToDo(t *testing.T) {
	w, api, c := start(t, kube.Rules{}, "a", "b")
	api.Forbid(kubeapi.Use{Verb: "delete", Resource: "nodes"})
	w.AddPodOn(second, sim.PodSpec{Name: "kube-system/coredns"})
	w.MakeStock(first)
	checks := c.Check(t.Context())
	for name, want := range map[string]string{
		"delete nodes": "not allowed", "drainable workers": "kube-system/coredns", "nodes name their instances": "ip-10-0-0-3",
	} {
		if check := find(t, checks, name); check.OK || !strings.Contains(check.Detail, want) || check.Fix == "" {
			t.Errorf("%+v", check)
		}
	}
	if check := find(t, checks, "list nodes"); !check.OK {
		t.Errorf("%+v", check)
	}
	w.Outage(sim.ClusterPart, 0, time.Hour)
	for _, check := range c.Check(t.Context()) {
		if check.OK != (check.Name == "kubernetes: token") {
			t.Errorf("unreachable: %+v", check)
		}
	}
}

// jwt returns a token that expires at a time.
func jwt(at time.Time) string {
	enc := base64.RawURLEncoding.EncodeToString
	return enc([]byte(`{"alg":"none"}`)) + "." + enc(fmt.Appendf(nil, `{"exp":%d}`, at.Unix())) + "." + enc([]byte("signature"))
}

// secured returns an API behind TLS that wants a token, and a configuration that has its CA and a token file.
func secured(t *testing.T, token string) (*kubeapi.Server, kube.Config, string) {
	t.Helper()
	w := sim.New(sim.Options{Policy: nodes.DefaultPolicy(), Workers: []string{"a"}})
	api := kubeapi.New(w.Client("kube", nil))
	api.RequireToken(token)
	server := httptest.NewTLSServer(api)
	t.Cleanup(server.Close)
	dir := t.TempDir()
	ca, file := filepath.Join(dir, "ca.crt"), filepath.Join(dir, "token")
	write(t, ca, string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw})))
	write(t, file, token+"\n")
	return api, kube.Config{APIURL: server.URL, CARef: "file:" + ca, TokenRef: "file:" + file, Timeout: 10 * time.Second}, file
}

func write(t *testing.T, path, text string) {
	t.Helper()
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

func open(t *testing.T, c kube.Config) *kube.Cluster {
	t.Helper()
	cluster, err := kube.Open(t.Context(), c)
	if err != nil {
		t.Fatal(err)
	}
	return cluster
}

func TestATokenThatWasReplacedIsTakenUpWhenTheAPIRefusesTheOldOne(t *testing.T) {
	old, fresh := jwt(time.Now().Add(time.Minute)), jwt(time.Now().Add(24*time.Hour))
	api, cfg, file := secured(t, old)
	c := open(t, cfg)
	view(t, c)
	if check := find(t, c.Check(t.Context()), "token"); check.OK || !strings.Contains(check.Detail, "expires") {
		t.Errorf("%+v", check)
	}
	api.RequireToken(fresh)
	if _, err := c.View(t.Context()); err == nil || !strings.Contains(err.Error(), "KUBE_TOKEN_REF") || strings.Contains(err.Error(), old) {
		t.Errorf("the old token: %v", err)
	}
	write(t, file, fresh)
	cordon(t, c, first, "me") // a request with a body is sent again, too
	view(t, c)
	if check := find(t, c.Check(t.Context()), "token"); !check.OK {
		t.Errorf("%+v", check)
	}
}

func TestAnExpiredTokenIsReportedWithItsTime(t *testing.T) {
	at := time.Now().Add(-time.Hour)
	_, cfg, _ := secured(t, jwt(at))
	c := open(t, cfg)
	if got, err := c.TokenExpires(t.Context()); err != nil || !got.Equal(at.Truncate(time.Second)) {
		t.Errorf("%s, %v", got, err)
	}
	if check := find(t, c.Check(t.Context()), "token"); check.OK || !strings.Contains(check.Detail, "expired") || check.Fix == "" {
		t.Errorf("%+v", check)
	}
}

func TestATokenCanComeFromElsewhere(t *testing.T) {
	_, cfg, _ := secured(t, "from-the-parameter-store")
	cfg.TokenRef = "ssm:/muster/token"
	if _, err := open(t, cfg).View(t.Context()); err == nil || !strings.Contains(err.Error(), "file:PATH") {
		t.Errorf("nobody can read it: %v", err)
	}
	cfg.Fetch = func(_ context.Context, ref string) (string, error) {
		if ref != "ssm:/muster/token" {
			return "", errors.New("no such parameter")
		}
		return "from-the-parameter-store", nil
	}
	view(t, open(t, cfg))
}

func TestACertificateOfAnotherCAIsRefused(t *testing.T) {
	_, cfg, _ := secured(t, "t")
	_, other, _ := secured(t, "t")
	otherCA := filepath.Join(t.TempDir(), "other.crt")
	write(t, otherCA, selfSigned(t))
	cfg.CARef = "file:" + otherCA
	if _, err := open(t, cfg).View(t.Context()); err == nil || !strings.Contains(err.Error(), "KUBE_CA_REF") {
		t.Errorf("got %v", err)
	}
	other.CARef = other.TokenRef
	if _, err := kube.Open(t.Context(), other); err == nil || !strings.Contains(err.Error(), "no PEM certificate") {
		t.Errorf("got %v", err)
	}
}

func TestAKubeconfigThatDoesntVerifyIsRefused(t *testing.T) {
	path := filepath.Join(t.TempDir(), "config")
	write(t, path, `{"apiVersion":"v1","kind":"Config","current-context":"x","contexts":[{"name":"x","context":{"cluster":"x","user":"x"}}],
"clusters":[{"name":"x","cluster":{"server":"https://127.0.0.1:1","insecure-skip-tls-verify":true}}],"users":[{"name":"x","user":{"token":"t"}}]}`)
	if _, err := kube.Open(t.Context(), kube.Config{Kubeconfig: path}); err == nil || !strings.Contains(err.Error(), "insecure-skip-tls-verify") {
		t.Errorf("got %v", err)
	}
	if _, err := kube.Open(t.Context(), kube.Config{Kubeconfig: path + "-not"}); err == nil {
		t.Error("a file that isn't there")
	}
}

func TestEveryWrongSettingIsReportedAtOnce(t *testing.T) {
	_, err := kube.ConfigFromEnv(lookup(map[string]string{
		"KUBECONFIG": "/k", "KUBE_API_URL": "http://api:6443", "KUBE_TOKEN_REF": "eyJhbGciOi.very.secret", "KUBE_TIMEOUT_SEC": "0",
		"DRAIN_BARE_PODS": "maybe", "DRAIN_LOCAL_STORAGE": "Evict",
	}))
	var e *setting.Error
	if !errors.As(err, &e) {
		t.Fatalf("got %v", err)
	}
	var names []string
	for _, p := range e.Problems {
		names = append(names, p.Setting)
		if p.Fix == "" || strings.Contains(p.Value, "secret") {
			t.Errorf("%+v", p)
		}
	}
	if want := []string{"KUBECONFIG", "KUBE_API_URL", "KUBE_CA_REF", "KUBE_TOKEN_REF", "KUBE_TIMEOUT_SEC", "DRAIN_BARE_PODS", "DRAIN_LOCAL_STORAGE"}; !slices.Equal(names, want) {
		t.Errorf("got %v, want %v", names, want)
	}
	c, err := kube.ConfigFromEnv(lookup(nil))
	if err != nil || c.Drain != (kube.Rules{BarePods: kube.Abort, LocalStorage: kube.Abort}) || c.Timeout != 30*time.Second {
		t.Errorf("defaults: %+v, %v", c, err)
	}
	if _, err := kube.ConfigFromEnv(lookup(map[string]string{"KUBE_CA_REF": "file:/ca"})); err == nil {
		t.Error("a CA without an API")
	}
}

func lookup(env map[string]string) setting.Lookup {
	return func(name string) (string, bool) { v, ok := env[name]; return v, ok }
}

func TestVersionsAreThoseOfServerAndNodes(t *testing.T) {
	_, _, c := start(t, kube.Rules{}, "a", "b")
	v, err := c.Versions(t.Context())
	if err != nil || v.Server != "v1.36.0+k3s1" {
		t.Errorf("%+v, %v", v, err)
	}
	if _, there := v.Nodes[first]; !there || len(v.Nodes) != len(view(t, c).Nodes) {
		t.Errorf("nodes %v", v.Nodes)
	}
	for kubelet, tooNew := range map[string]bool{"v1.36.9+k3s1": false, "v1.35.0": false, "v1.37.0+k3s1": true, "v2.0.0": true, "": false, "unknown": false} {
		if kube.TooNew(kubelet, v.Server) != tooNew {
			t.Errorf("%q beside %s: too new is not %t", kubelet, v.Server, tooNew)
		}
	}
}
