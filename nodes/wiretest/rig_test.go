package wiretest

import (
	"bytes"
	"cmp"
	"context"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/aws/retry"
	"github.com/aws/aws-sdk-go-v2/credentials"
	awsec2 "github.com/aws/aws-sdk-go-v2/service/ec2"
	"k8s.io/client-go/rest"

	"github.com/muster-dev/muster/nodes"
	"github.com/muster-dev/muster/nodes/ec2"
	"github.com/muster-dev/muster/nodes/fit"
	"github.com/muster-dev/muster/nodes/kube"
	"github.com/muster-dev/muster/nodes/local"
	"github.com/muster-dev/muster/nodes/prom"
	"github.com/muster-dev/muster/nodes/sim"
	"github.com/muster-dev/muster/nodes/sim/awsapi"
	"github.com/muster-dev/muster/nodes/sim/kubeapi"
	"github.com/muster-dev/muster/nodes/sim/promapi"
)

// rig is a simulated region behind its four protocols, and a Reconciler whose adapters talk to them.
type rig struct {
	*sim.Simulator
	t        testing.TB
	policy   nodes.Policy
	aws      *awsapi.API
	kube     *kubeapi.Server
	cluster  *kube.Cluster
	prom     *promapi.Server
	store    nodes.Store
	eventLog nodes.EventLog
	r        *nodes.Reconciler
	calls    [4]atomic.Int64 // by protocol
	grace    time.Duration
	frozen   atomic.Bool // every request is answered as it was the first time
	answers  sync.Map    // of frozen servers, by request
	heard    transcript
}

// The protocols.
const (
	toAWS = iota
	toKubernetes
	toPrometheus
	toStore
)

// set is what a test may change of a rig before it is built.
type set struct {
	policy nodes.Policy
	sim    sim.Options
	store  func(*rig) (nodes.Store, nodes.EventLog) // nil: on this machine
	page   int64                                    // of Kubernetes lists
	wait   time.Duration                            // for Prometheus; 0: 5 s
	grace  time.Duration                            // of pods that are evicted; 0: 20 s
	direct bool                                     // the metrics come from the region itself, without Prometheus
}

// quick is a policy with short times, so that a story takes few ticks.
func quick() nodes.Policy {
	p := nodes.DefaultPolicy()
	p.Cluster = "prod"
	p.CPUUpFor, p.PendingUpFor, p.IdleDownFor = 60*time.Second, 60*time.Second, 120*time.Second
	p.CooldownUp, p.CooldownDown = 60*time.Second, 60*time.Second
	p.PodsPerNode, p.MaxWorkers, p.MinWorkers = 2, 6, 2
	p.InstanceTypes = []string{"t3.large", "m5.large"}
	return p
}

func build(t testing.TB, change ...func(*set)) *rig {
	t.Helper()
	s := set{policy: quick(), sim: sim.Options{Workers: []string{"a", "b"}, Boot: 70 * time.Second, Visible: 3 * time.Second}}
	for _, f := range change {
		f(&s)
	}
	s.sim.Policy = s.policy
	g := &rig{t: t, policy: s.policy, grace: cmp.Or(s.grace, 20*time.Second), Simulator: sim.New(s.sim)}
	g.aws = awsapi.New(g.Simulator, awsapi.Options{})
	g.kube = kubeapi.New(g.Client("kube", nil))
	g.prom = promapi.New(promapi.Options{})
	if !s.direct {
		t.Cleanup(g.prom.Watch(g.Simulator))
	}

	ec2Config := ec2.Config{
		Cluster: s.policy.Cluster, LaunchTemplate: "lt-0a1b", LaunchTemplateVersion: "7", UserData: ec2.UserDataTemplate,
		InstanceTypes: s.policy.InstanceTypes, Spot: s.policy.Spot,
	}
	if len(s.policy.Pools) > 0 { // by Muster's user data, whose labels and taints the region's machines take
		ec2Config.Pools, ec2Config.UserData = s.policy.Pools, ec2.UserDataK3s
		ec2Config.Join = ec2.Join{Server: "https://10.0.0.10:6443", TokenRef: "ssm:/muster/prod/agent-token"}
	}
	url := g.serve(toAWS, g.aws)
	cloud, err := ec2.New(ec2.API{EC2: awsec2.NewFromConfig(aws.Config{
		Region: "local", BaseEndpoint: &url, Credentials: credentials.NewStaticCredentialsProvider("AKID", "SECRET", ""),
		Retryer: func() aws.Retryer {
			return retry.NewStandard(func(o *retry.StandardOptions) { o.MaxBackoff = time.Millisecond })
		},
	}, ec2.Options)}, ec2Config)
	g.must(err)
	cluster, err := kube.New(&rest.Config{Host: g.serve(toKubernetes, g.kube)}, kube.Options{Clock: g.Clock(), Page: s.page, Buffers: s.policy.Signals == nodes.SignalsKubernetes})
	g.must(err)
	g.cluster = cluster
	promConfig := prom.DefaultConfig()
	promConfig.URL, promConfig.Clock, promConfig.Timeout = g.serve(toPrometheus, g.prom), g.Clock(), cmp.Or(s.wait, 5*time.Second)
	var signals nodes.Signals = g.Client("metrics", nil)
	if !s.direct {
		signals, err = prom.Open(context.Background(), promConfig, s.policy)
		g.must(err)
	}
	if s.store == nil {
		s.store = localStore
	}
	g.store, g.eventLog = s.store(g)

	ids := 0
	config := nodes.Config{Policy: s.policy, Signals: signals, Cloud: cloud, Statuses: cloud, Cluster: cluster, Store: g.store, EventLog: g.eventLog,
		Clock: g.Clock(), Template: ec2Config.Template(), NewID: func() string { ids++; return fmt.Sprintf("x%d", ids) }}
	if len(s.policy.Pools) > 0 {
		config.Templates = ec2Config.Templates()
	}
	if len(s.policy.Pools) > 0 || s.policy.Sizing == nodes.SizingFit {
		f := fit.New(fit.Config{})
		config.Sizer, config.Fitter, config.Screener, config.Appraiser = f, f, f, f
	}
	g.r, err = nodes.New(config)
	g.must(err)
	return g
}

func localStore(g *rig) (nodes.Store, nodes.EventLog) {
	store, err := local.Open(context.Background(), g.t.TempDir(), local.Options{Cluster: g.policy.Cluster})
	g.must(err)
	g.t.Cleanup(func() { _ = store.Close() })
	return store, store
}

// serve puts a handler on the wire and counts what it is asked.
func (g *rig) serve(protocol int, h http.Handler) string {
	web := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		// The SDK repeats a request whose reply breaks off. It does so now and then by itself: it closes the request's body when the
		// reply begins, which net/http may still be looking at for its end, if the server is as quick as one in the same process.
		if again := r.Header.Get("Amz-Sdk-Request"); again == "" || strings.HasPrefix(again, "attempt=1;") {
			g.calls[protocol].Add(1)
			g.heard.note(protocol, r)
		}
		if g.frozen.Load() {
			g.replay(w, r, h)
		} else {
			h.ServeHTTP(w, r)
		}
	}))
	g.t.Cleanup(web.Close)
	return web.URL
}

// replay answers as the handler answered the same request before. It is for benchmarks: what a simulated server takes for its answer
// says nothing about the program that asks. The simulator's time stands still meanwhile.
func (g *rig) replay(w http.ResponseWriter, r *http.Request, h http.Handler) {
	body, _ := io.ReadAll(r.Body)
	key := r.Method + r.Host + r.URL.String() + string(body)
	known, ok := g.answers.Load(key)
	if !ok {
		rec := httptest.NewRecorder()
		r.Body = io.NopCloser(bytes.NewReader(body))
		h.ServeHTTP(rec, r)
		known, _ = g.answers.LoadOrStore(key, rec)
	}
	rec := known.(*httptest.ResponseRecorder)
	maps.Copy(w.Header(), rec.Header())
	w.WriteHeader(rec.Code)
	_, _ = w.Write(rec.Body.Bytes())
}

func (g *rig) must(err error) {
	g.t.Helper()
	if err != nil {
		g.t.Fatal(err)
	}
}

// tick does a tick at the next full minute of the simulator and returns what it decided.
func (g *rig) tick() (nodes.Report, error) {
	now := g.Clock().Now()
	g.Advance(now.Truncate(time.Minute).Add(time.Minute).Sub(now))
	g.heard.tick()
	return g.r.Tick(context.Background())
}

// ticks does ticks that must not fail, until done, at most n.
func (g *rig) ticks(most int, done func(nodes.Report) bool) {
	g.t.Helper()
	for range most {
		rep, err := g.tick()
		if err != nil {
			g.t.Fatalf("at %s: %v", g.Clock().Now().Format(time.TimeOnly), err)
		}
		if done(rep) {
			return
		}
	}
	g.show()
	g.t.Fatalf("not done after %d ticks: %+v", most, g.Fleet())
}

// count counts entries of the ledger.
func (g *rig) count(kinds ...sim.Kind) int {
	n := 0
	for _, e := range g.Ledger() {
		for _, k := range kinds {
			if e.Kind == k {
				n++
			}
		}
	}
	return n
}

// show logs the ledger.
func (g *rig) show() {
	for _, e := range g.Ledger() {
		g.t.Logf("%s %-8s %-15s %s %s", e.At.Format(time.TimeOnly), e.Actor, e.Kind, e.Instance, e.Detail)
	}
}

// decided wants a NOOP for a reason, with a detail that says more.
func (g *rig) decided(rep nodes.Report, why nodes.Reason, detail string) {
	g.t.Helper()
	switch d := rep.Decision; {
	case d == nil:
		g.t.Errorf("no decision, want %s: %+v", why, rep.Events)
	case d.Action != nodes.Noop || d.Reason != why || !contains(d.Detail, detail):
		g.t.Errorf("decided %s %s %q, want NOOP %s with %q", d.Action, d.Reason, d.Detail, why, detail)
	}
}
