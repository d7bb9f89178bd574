package connect

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/muster-dev/muster/nodes"
	"github.com/muster-dev/muster/setting"
)

func env(kv map[string]string) setting.Lookup {
	return func(k string) (string, bool) { v, ok := kv[k]; return v, ok }
}

func TestNoTwoPartsHaveASettingOfTheSameName(t *testing.T) {
	seen := map[string]string{}
	for _, g := range Groups() {
		for _, i := range g.Settings {
			if other := seen[i.Env]; other != "" {
				t.Errorf("%s and %s both have %s", other, g.Name, i.Env)
			}
			seen[i.Env] = g.Name
			if i.Env == "" || i.Meaning == "" || strings.ToUpper(i.Env) != i.Env {
				t.Errorf("%s: %+v has no proper name or meaning", g.Name, i)
			}
		}
	}
	for _, name := range StoreNames() {
		if seen[name] == "" {
			t.Errorf("there is no setting %s", name)
		}
	}
}

// complete is a configuration that is right.
func complete(t *testing.T) map[string]string {
	return map[string]string{
		"CLUSTER": "blue", "DIR": t.TempDir(), "AWS_REGION": "eu-central-1", "AWS_ENDPOINT_URL": "http://127.0.0.1:1",
		"LAUNCH_TEMPLATE": "lt-0123456789abcdef0", "LAUNCH_TEMPLATE_VERSION": "3", "K3S_URL": "https://k3s:6443", "K3S_TOKEN_REF": "ssm:/blue/token",
		"KUBECONFIG": filepath.Join(t.TempDir(), "nothing"), "PROMETHEUS_URL": "http://127.0.0.1:1",
	}
}

func TestEverySettingOfEveryPartWrongAtOnceIsOneMessageThatListsAll(t *testing.T) {
	kv := complete(t)
	wrong := map[string]string{
		"CPU_UP": "70%", "MIN_WORKERS": "20", "SIZING": "guess", "LOGS_TABLE": "l", "LOGS_KEEP_DAYS": "0",
		"LAUNCH_TEMPLATE_VERSION": "$Latest", "SUBNET_IDS": "here", "K3S_TOKEN_REF": "K10secret::server:hunter2", "INTERRUPTION_QUEUE": "queue",
		"KUBE_TIMEOUT_SEC": "0", "DRAIN_BARE_PODS": "maybe", "KUBE_TOKEN_REF": "file:/x",
		"PROMETHEUS_URL": "prometheus:9090", "PROMETHEUS_STEP_SEC": "-1", "QUERY_CPU": "avg(", "AWS_ENDPOINT_URL_DYNAMODB": "here",
	}
	for k, v := range wrong {
		kv[k] = v
	}
	_, err := Parse(env(kv))
	var e *setting.Error
	if !errors.As(err, &e) {
		t.Fatalf("got %v", err)
	}
	for name := range wrong {
		if !slices.ContainsFunc(e.Problems, func(p setting.Problem) bool { return p.Setting == name && p.Fix != "" }) {
			t.Errorf("%s is not complained about in\n%v", name, err)
		}
	}
	if strings.Contains(err.Error(), "hunter2") {
		t.Errorf("it shows a token that was given in place of its reference:\n%v", err)
	}
}

func TestWhatOnlyLooksAtTheStoreNeedsNoOtherSettings(t *testing.T) {
	s, err := ParseStore(env(map[string]string{"DIR": "/x"}))
	if err != nil || s.Local.Dir != "/x" || s.Policy.MaxWorkers != 10 {
		t.Errorf("got %+v, %v", s, err)
	}
	t.Setenv("XDG_STATE_HOME", "/state")
	if s, _ = ParseStore(env(nil)); s.Local.Dir != "/state/muster/nodes" {
		t.Errorf("by default the store is in %s", s.Local.Dir)
	}
	if _, err = ParseStore(env(map[string]string{"STATE_TABLE": "same", "LOGS_TABLE": "same"})); err == nil {
		t.Error("one table for both is accepted")
	}
}

// TestOpeningMakesNoRequest opens a plane of which no part can be reached.
func TestOpeningMakesNoRequest(t *testing.T) {
	asked := make(chan string, 100)
	server := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { asked <- r.URL.String() }))
	defer server.Close()
	for name, tables := range map[string]map[string]string{"directory": nil, "tables": {"STATE_TABLE": "state", "LOGS_TABLE": "logs"}} {
		t.Run(name, func(t *testing.T) {
			kv := complete(t)
			kv["KUBECONFIG"] = filepath.Join(t.TempDir(), "kubeconfig")
			writeFile(t, kv["KUBECONFIG"], "apiVersion: v1\nkind: Config\ncurrent-context: x\nclusters: [{name: x, cluster: {server: "+server.URL+"}}]\ncontexts: [{name: x, context: {cluster: x, user: x}}]\nusers: [{name: x, user: {}}]\n")
			kv["AWS_ENDPOINT_URL"], kv["PROMETHEUS_URL"], kv["INTERRUPTION_QUEUE"] = server.URL, server.URL, server.URL+"/1/q"
			for k, v := range tables {
				kv[k] = v
			}
			s, err := Parse(env(kv))
			if err != nil {
				t.Fatal(err)
			}
			p, err := Open(t.Context(), s, Options{Local: sqliteFile{}})
			if err != nil {
				t.Fatal(err)
			}
			if p.Config.Cloud == nil || p.Config.Cluster == nil || p.Config.Signals == nil || p.Config.Store == nil || p.Config.EventLog == nil ||
				p.Poll == nil || p.TokenExpires == nil || p.Config.Template.ID != "lt-0123456789abcdef0" {
				t.Errorf("something is missing in %+v", p)
			}
			if err := p.Close(); err != nil {
				t.Error(err)
			}
			if len(asked) > 0 {
				t.Errorf("it asked for %s", <-asked)
			}
		})
	}
}

// TestWithoutPrometheus: with SIGNALS=kubernetes no setting of Prometheus is needed, and what is set of it is told.
func TestWithoutPrometheus(t *testing.T) {
	without := func(t *testing.T, more map[string]string) Settings {
		t.Helper()
		kv := complete(t)
		delete(kv, "PROMETHEUS_URL")
		kv["SIGNALS"] = "kubernetes"
		for k, v := range more {
			kv[k] = v
		}
		s, err := Parse(env(kv))
		if err != nil {
			t.Fatal(err)
		}
		return s
	}
	t.Run("it is opened with a watch and without Signals", func(t *testing.T) {
		file := filepath.Join(t.TempDir(), "kubeconfig")
		writeFile(t, file, "apiVersion: v1\nkind: Config\ncurrent-context: x\nclusters: [{name: x, cluster: {server: 'http://127.0.0.1:1'}}]\ncontexts: [{name: x, context: {cluster: x, user: x}}]\nusers: [{name: x, user: {}}]\n")
		p, err := Open(t.Context(), without(t, map[string]string{"KUBECONFIG": file}), Options{Local: sqliteFile{}})
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = p.Close() }()
		if p.Config.Signals != nil || p.Watch == nil || len(p.WithoutEffect) > 0 {
			t.Errorf("%+v", p)
		}
	})
	t.Run("doctor asks nothing of Prometheus", func(t *testing.T) {
		asked := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { t.Errorf("Prometheus was asked for %s", r.URL) }))
		defer asked.Close()
		checks := Check(t.Context(), without(t, map[string]string{"PROMETHEUS_URL": asked.URL, "CPU_UP": "0.8", "QUERY_CPU": ""}), Options{Local: sqliteFile{}})
		found := 0
		for _, c := range checks {
			if strings.HasPrefix(c.Name, "prometheus") {
				t.Errorf("%+v", c)
			}
			if strings.HasPrefix(c.Name, "signals") {
				found++
				if !c.OK || !strings.HasSuffix(c.Detail, "without effect: CPU_UP, PROMETHEUS_URL") {
					t.Errorf("%+v", c)
				}
			}
		}
		if found != 1 {
			t.Errorf("%d checks of the signals", found)
		}
	})
	t.Run("doctor says that nothing shrinks", func(t *testing.T) {
		if c := checkSignals(without(t, map[string]string{"CONSOLIDATION": "off"})); c.OK || c.Fix == "" {
			t.Errorf("%+v", c)
		}
	})
}

// settingsOf returns complete settings by which AWS and Prometheus are a server.
func settingsOf(t *testing.T, server *httptest.Server) Settings {
	t.Helper()
	kv := complete(t)
	kv["AWS_ENDPOINT_URL"], kv["PROMETHEUS_URL"] = server.URL, server.URL
	t.Setenv("AWS_ACCESS_KEY_ID", "x")
	t.Setenv("AWS_SECRET_ACCESS_KEY", "x")
	s, err := Parse(env(kv))
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func TestAPartThatCantBeOpenedIsOneFailedCheckAndKeepsNoOtherFromBeingChecked(t *testing.T) {
	server := httptest.NewServer(http.NotFoundHandler())
	defer server.Close()
	s := settingsOf(t, server)
	checks := Check(t.Context(), s, Options{Local: sqliteFile{}})
	found := map[string]bool{}
	for _, c := range checks {
		part, _, _ := strings.Cut(c.Name, ":")
		found[part] = true
		if !c.OK && c.Fix == "" {
			t.Errorf("%s failed (%s) and says nothing about what to do", c.Name, c.Detail)
		}
		if part == "kubernetes" && (c.OK || c.Name != "kubernetes: open" || !strings.Contains(c.Detail, "nothing")) {
			t.Errorf("without its kubeconfig: %+v", c)
		}
	}
	for _, part := range []string{"store", "ec2", "kubernetes", "prometheus", "clock"} {
		if !found[part] {
			t.Errorf("nothing was checked of %s: %+v", part, checks)
		}
	}
}

func TestAClockThatIsOffIsFound(t *testing.T) {
	server := httptest.NewServer(http.NotFoundHandler())
	defer server.Close()
	s := Settings{}
	s.Prom.URL = server.URL
	for off, ok := range map[time.Duration]bool{0: true, 4 * time.Second: true, -4 * time.Second: true, 9 * time.Second: false, -9 * time.Second: false} {
		got := checkClocks(t.Context(), s, func() time.Time { return time.Now().Add(off) })
		if len(got) != 1 || got[0].OK != ok || ok != (got[0].Fix == "") {
			t.Errorf("%v off: %+v", off, got)
		}
	}
	s.Prom.URL = "http://127.0.0.1:1"
	if got := checkClocks(t.Context(), s, time.Now); len(got) != 0 {
		t.Errorf("of a server that can't be reached: %+v", got)
	}
}

func TestReferencesAreReadThroughAWS(t *testing.T) {
	if _, err := fetcher(nil)(context.Background(), "ssm:/x"); err == nil {
		t.Error("without EC2 a parameter was read")
	}
}

// TestItLinksNoServer keeps the Lambda function small.
func TestItLinksNoServer(t *testing.T) {
	out, err := exec.CommandContext(t.Context(), "go", "list", "-deps", ".").Output()
	if err != nil {
		t.Skip("no go command here: ", err)
	}
	for _, pkg := range strings.Fields(string(out)) {
		for _, server := range []string{"github.com/nats-io/", "modernc.org/sqlite", "gonum.org/", "gocql", "/nodes/sim", "muster/e2e", "muster/partition"} {
			if strings.Contains(pkg, server) {
				t.Errorf("it links %s", pkg)
			}
		}
		if pkg == "github.com/prometheus/prometheus/promql" || pkg == "github.com/prometheus/prometheus/tsdb" { // the parser is not the engine
			t.Errorf("it links %s", pkg)
		}
	}
}

func FuzzParseFile(f *testing.F) {
	known := Known(Groups())
	f.Add([]byte("cpu-up: 0.5\nINSTANCE_TYPES: [a, b]\n"))
	f.Add([]byte("CPU_UP: {a: 1}\ncpu_up: ~\n"))
	f.Add([]byte("- 1\n"))
	f.Add([]byte("a: &a [*a]\n"))
	f.Fuzz(func(t *testing.T, data []byte) {
		got, err := parseFile(data, known)
		for name := range got {
			if !slices.Contains(known, name) {
				t.Errorf("took %q for a setting", name)
			}
		}
		if err != nil && err.Error() == "" {
			t.Error("an error that says nothing")
		}
	})
}

func TestASettingThatWasMisspeltIsGuessed(t *testing.T) {
	known := Known(Groups())
	for got, want := range map[string]string{"MAX_WORKER": "MAX_WORKERS", "CPUUP": "CPU_UP", "PROMETEUS_URL": "PROMETHEUS_URL", "COOLDOWN_UP_SECS": "COOLDOWN_UP_SEC"} {
		if fix := unknown(got, known); !strings.Contains(fix, "did you mean "+want+"?") {
			t.Errorf("%s: %s", got, fix)
		}
	}
	if fix := unknown("SOMETHING_ELSE_ENTIRELY", known); strings.Contains(fix, "did you mean") {
		t.Errorf("a wild guess: %s", fix)
	}
}

func writeFile(t *testing.T, name, text string) {
	t.Helper()
	if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

// ahead is the clock of a simulation that runs faster than the machine's.
type ahead struct{ nodes.SystemClock }

func (ahead) Now() time.Time { return time.Now().Add(time.Hour) }

// TestChecksGoByTheClockOfTheParts: a deadline by another clock would be over before the first request.
func TestChecksGoByTheClockOfTheParts(t *testing.T) {
	var asked atomic.Int64
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if strings.HasPrefix(r.URL.Path, "/api/v1/") {
			asked.Add(1)
		}
		http.NotFound(w, r)
	}))
	defer server.Close()
	s := settingsOf(t, server)
	Check(t.Context(), s, Options{Clock: ahead{}, Local: sqliteFile{}})
	if asked.Load() == 0 {
		t.Error("Prometheus was not asked")
	}
}
