package main

import (
	"context"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"net/http/httptest"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/aws/aws-lambda-go/events"
	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/credentials"

	"github.com/muster-dev/muster/internal/component"
	"github.com/muster-dev/muster/internal/linktest"
	"github.com/muster-dev/muster/nodes"
	"github.com/muster-dev/muster/nodes/dynamo"
	"github.com/muster-dev/muster/nodes/sim"
	"github.com/muster-dev/muster/nodes/sim/awsapi"
	"github.com/muster-dev/muster/nodes/sim/kubeapi"
	"github.com/muster-dev/muster/nodes/sim/promapi"
)

const scheduled = `{"version":"0","id":"s","detail-type":"Scheduled Event","source":"aws.events","account":"123456789012","time":"2026-01-01T00:00:00Z","region":"local","resources":["arn:aws:events:local:123456789012:rule/muster"],"detail":{}}`

// document is the settings that the function reads from SSM. The last two are the daemon's.
const document = `
PROMETHEUS_STEP_SEC: 1
PROMETHEUS_RATE_SEC: 10
CPU_UP_SEC: 5
PENDING_UP_SEC: 4
COOLDOWN_UP_SEC: 5
MAX_WORKERS: 20
PODS_PER_NODE: 1
LAMBDA_MARGIN_SEC: 2
CLUSTER: prod
TICK_SEC: 30
WORKERS_GROUP: defender
`

// region is everything that a function has around it, over the wire: AWS, the Kubernetes API with its CA and token in SSM, Prometheus,
// DynamoDB tables. Its time runs as ours does.
type region struct {
	w      *sim.Simulator
	aws    *awsapi.API
	kube   *kubeapi.Server
	tables *dynamo.DB
	env    map[string]string
}

func open(t *testing.T) *region {
	t.Helper()
	db := component.Dynalite().Start(t)
	const history = 10 * time.Minute
	policy := nodes.DefaultPolicy()
	policy.Cluster = "prod"
	r := &region{}
	r.w = sim.New(sim.Options{
		Policy: policy, Start: time.Now().Add(-history), Zones: []string{"x-1a", "x-1b"}, Workers: []string{"x-1a", "x-1b", "x-1a", "x-1b", "x-1a"},
		Boot: 6 * time.Second, Visible: time.Second,
	})
	prometheus := promapi.New(promapi.Options{Interval: time.Second})
	t.Cleanup(prometheus.Watch(r.w))
	r.w.Advance(history)

	r.kube = kubeapi.New(r.w.Client("kube", nil))
	r.kube.RequireToken("api-token")
	kube := httptest.NewTLSServer(r.kube)
	prom := httptest.NewServer(prometheus)
	ca := string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: kube.Certificate().Raw}))
	r.aws = awsapi.New(r.w, awsapi.Options{Parameters: map[string]string{
		"/muster/kube-token": "api-token", "/muster/kube-ca": ca, "/muster/settings:3": document,
	}})
	api := httptest.NewServer(r.aws)
	for _, s := range []*httptest.Server{kube, prom, api} {
		t.Cleanup(s.Close)
	}

	endpoint := "http://" + db.Addr
	var err error
	r.tables, err = dynamo.New(aws.Config{Region: "x-1", BaseEndpoint: &endpoint, Credentials: credentials.NewStaticCredentialsProvider("local", "local", "")},
		dynamo.Config{Cluster: "prod", StateTable: "state", LogsTable: "logs", KeepDays: 30})
	if err != nil {
		t.Fatal(err)
	}
	if err := r.tables.CreateTables(t.Context()); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	t.Cleanup(cancel)
	go sim.RealTime(ctx, r.w, 1)

	r.env = map[string]string{
		"CLUSTER": "prod", "STATE_TABLE": "state", "LOGS_TABLE": "logs", "AWS_REGION": "x-1", "AWS_ACCESS_KEY_ID": "local", "AWS_SECRET_ACCESS_KEY": "local",
		"AWS_ENDPOINT_URL": api.URL, "AWS_ENDPOINT_URL_DYNAMODB": endpoint,
		"LAUNCH_TEMPLATE": "lt-0a1b", "LAUNCH_TEMPLATE_VERSION": "7", "K3S_URL": "https://10.0.0.10:6443", "K3S_TOKEN_REF": "ssm:/muster/agent-token",
		"KUBE_API_URL": kube.URL, "KUBE_CA_REF": "ssm:/muster/kube-ca", "KUBE_TOKEN_REF": "ssm:/muster/kube-token", "PROMETHEUS_URL": prom.URL,
		"SETTINGS": "ssm:/muster/settings:3",
	}
	return r
}

// ledger returns the entries of a kind for an instance, "" for all.
func (r *region) ledger(kind sim.Kind, instance string) []sim.Entry {
	return slices.DeleteFunc(slices.Clone(r.w.Ledger()), func(e sim.Entry) bool {
		return e.Kind != kind || instance != "" && e.Instance != instance
	})
}

// launchedFor returns the instances that were launched to replace another.
func (r *region) launchedFor(instance string) []sim.Entry {
	return slices.DeleteFunc(r.ledger(sim.Launched, ""), func(e sim.Entry) bool { return e.Request.ActionID != "int-"+instance })
}

// announce announces an interruption and returns EventBridge's event.
func (r *region) announce(kind nodes.InterruptionKind, instance string) string {
	e := r.w.Announce(kind, instance)
	e.ID = string(kind) + "-" + instance
	if kind == nodes.Health {
		e.Start = e.At.Add(time.Hour)
	}
	return awsapi.Event(e)
}

func batch(bodies ...string) string {
	var e events.SQSEvent
	for i, b := range bodies {
		e.Records = append(e.Records, events.SQSMessage{MessageId: fmt.Sprint("m", i), EventSource: "aws:sqs", Body: b})
	}
	out, _ := json.Marshal(e)
	return string(out)
}

// until invokes the function by its schedule, once a second instead of once a minute, until what is waited for has happened.
func until(t *testing.T, f *function, what string, happened func() bool) {
	t.Helper()
	schedule := time.NewTicker(time.Second)
	defer schedule.Stop()
	for range 60 {
		if happened() {
			return
		}
		if a := f.invoke(t, scheduled); a.failed {
			t.Fatalf("a tick failed, waiting for %s: %s", what, a.body)
		}
		<-schedule.C
	}
	if !happened() {
		t.Fatalf("after 60 ticks not yet: %s", what)
	}
}

// The function as it is deployed, driven as Lambda drives it. What each event did is read from the region's ledger.
func TestTheFunctionHandlesEveryEventEndToEnd(t *testing.T) {
	r := open(t)
	f := start(t, bootstrap(t), r.env)

	// Scheduled events: pods wait, nodes are launched and verified.
	r.w.AddPods(12, sim.PodSpec{Name: "default/load", MilliCPU: 900})
	until(t, f, "a completed scale-up", func() bool {
		rec, err := r.tables.Store().Load(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		return len(r.ledger(sim.Launched, "")) > 0 && rec.ActionID() == "" && r.w.Fleet().Pending == 0
	})
	for _, e := range r.ledger(sim.Launched, "") {
		if len(e.Request.Token) != 64 || e.Request.ActionID == "" || e.Request.Cluster != "prod" || e.Request.Template.Version != "7" {
			t.Errorf("launched by %+v", e.Request)
		}
	}

	// A rebalance recommendation and a scheduled change: replaced first, drained after, then removed.
	for id, kind := range map[string]nodes.InterruptionKind{"i-002": nodes.Rebalance, "i-003": nodes.Health} {
		if a := f.invoke(t, r.announce(kind, id)); a.failed {
			t.Fatal(a.body)
		}
	}
	for _, id := range []string{"i-002", "i-003"} {
		until(t, f, "the replacement of "+id, func() bool { return len(r.ledger(sim.NodeRemoved, id)) == 1 })
		replaced, evicted, ended := r.launchedFor(id), r.ledger(sim.Evicted, id), r.ledger(sim.Terminated, id)
		if len(replaced) != 1 || len(evicted) == 0 || len(ended) != 1 || !ended[0].Facts.Cordoned || ended[0].Facts.Pods != 0 {
			t.Fatalf("%s: replaced %+v, evicted %+v, ended %+v", id, replaced, evicted, ended)
		}
		if ready := r.ledger(sim.BecameReady, replaced[0].Instance); len(ready) != 1 || ready[0].Seq > evicted[0].Seq {
			t.Errorf("%s was drained before %s was Ready", id, replaced[0].Instance)
		}
	}

	// Spot warnings of two instances, in one batch from SQS: cordoned and replaced at once, drained well before their end. We don't
	// terminate what AWS takes.
	if a := f.invoke(t, batch(r.announce(nodes.Warning, "i-004"), r.announce(nodes.Warning, "i-005"))); a.failed || a.body != `{"batchItemFailures":[]}` {
		t.Fatal(a.body)
	}
	for _, id := range []string{"i-004", "i-005"} {
		warned, cordoned, evicted := r.ledger(sim.Warned, id), r.ledger(sim.Cordoned, id), r.ledger(sim.Evicted, id)
		if len(r.launchedFor(id)) != 1 || len(cordoned) == 0 || len(evicted) == 0 || len(r.ledger(sim.Terminated, id)) != 0 {
			t.Fatalf("%s: replaced %d, cordoned %d, evicted %d", id, len(r.launchedFor(id)), len(cordoned), len(evicted))
		}
		if d := evicted[len(evicted)-1].At.Sub(warned[0].At); d > 60*time.Second {
			t.Errorf("the last pod of %s was evicted %s after the warning", id, d)
		}
	}

	// A state change: logged, and the next tick deletes the Node object that K3s would keep.
	r.w.TakeAway("i-006")
	if a := f.invoke(t, awsapi.Event(nodes.InterruptionEvent{ID: "state", Kind: nodes.StateChange, InstanceID: "i-006", At: time.Now(), State: nodes.StateShuttingDown})); a.failed {
		t.Fatal(a.body)
	}
	logged := 0
	for e, err := range r.tables.EventLog().Read(t.Context(), nodes.Query{Kind: "interruption.stateChange"}) {
		if err != nil || e.Instance != "i-006" {
			t.Fatalf("%+v, %v", e, err)
		}
		logged++
	}
	if logged != 1 {
		t.Errorf("logged %d times", logged)
	}
	until(t, f, "the end of i-006's node", func() bool { return len(r.ledger(sim.NodeRemoved, "i-006")) == 1 })

	// What has no owner is refused, said, and changes nothing.
	before := len(r.w.Ledger())
	for _, event := range []string{
		`{"id":"1","detail-type":"Object Created","source":"aws.s3","time":"2026-01-01T00:00:00Z","detail":{}}`, `{}`,
		awsapi.Event(nodes.InterruptionEvent{ID: "1", Kind: nodes.Warning, InstanceID: "vol-1", At: time.Now()}),
	} {
		if a := f.invoke(t, event); !a.failed {
			t.Errorf("%s was answered by %s", event, a.body)
		}
	}
	if a := f.invoke(t, awsapi.Event(nodes.InterruptionEvent{ID: "old", Kind: nodes.Warning, InstanceID: "i-007", At: time.Now().Add(-3 * time.Minute)})); a.failed {
		t.Error(a.body)
	}
	for _, e := range r.w.Ledger()[before:] {
		if e.Actor != "" {
			t.Errorf("%+v", e)
		}
	}
	// It made no call of AWS that its policy is not tested against.
	golden, err := os.ReadFile("../../nodes/ec2/testdata/calls.golden")
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range r.aws.Permissions() {
		if !strings.Contains(string(golden), "\nrun "+p+"\n") && !strings.Contains(string(golden), "\nreferences "+p+"\n") {
			t.Errorf("%s is not in the list of calls that are really made", p)
		}
	}

	memory := f.stop()
	for _, want := range []string{"event refused", "event dropped: it is too old", `"msg":"interruption"`, "scaleUp.completed", "tick done"} {
		if !strings.Contains(f.output.String(), want) {
			t.Errorf("the log has no %q", want)
		}
	}
	t.Logf("bootstrap: initialised in %d ms (%d ms of CPU time), budget 100 ms; peak memory %.1f MB, budget 64 MB", f.init.Milliseconds(), f.initCPU.Milliseconds(), float64(memory)/1e6)
	if memory > 2*64<<20 {
		t.Errorf("it needed %.1f MB", float64(memory)/1e6)
	}
}

func TestWrongSettingsEndTheFunctionBeforeItsFirstInvocation(t *testing.T) {
	f := start(t, bootstrap(t), map[string]string{"AWS_REGION": "x-1", "CPU_UP": "high", "MAX_WORKERS": "0", "MUSTER_FUNCTION": "all", "LAUNCH_TEMPLATE_VERSION": "$Latest", "PROMETHEUS_URL": "prometheus"})
	err := <-f.ended
	f.ended <- err
	if code := f.cmd.ProcessState.ExitCode(); code != 2 || f.init != 0 {
		t.Errorf("%v, exit code %d, init %v", err, code, f.init)
	}
	for _, name := range []string{"CPU_UP", "MAX_WORKERS", "MUSTER_FUNCTION", "STATE_TABLE", "LAUNCH_TEMPLATE_VERSION", "K3S_URL", "PROMETHEUS_URL", "CLUSTER_TAG"} {
		if !strings.Contains(f.output.String(), "\n  "+name+"=") {
			t.Errorf("%s is not complained about in\n%s", name, f.output)
		}
	}
	if n := strings.Count(f.output.String(), "wrong setting"); n != 1 {
		t.Errorf("%d messages:\n%s", n, f.output)
	}
}

// TestBinary: the function carries the node plane and nothing of the worker plane: neither a
// client of NATS nor a file of its own.
func TestBinary(t *testing.T) {
	linktest.Binary{
		Tags: buildTags,
		Own: []string{
			"nodes", "nodes/connect", "nodes/explain", "nodes/fit", "nodes/lambda",
			"nodes/ec2", "nodes/ec2/event", "nodes/kube", "nodes/prom", "nodes/dynamo",
			"setting", "internal/awsbody", "internal/quantity", "internal/secret",
		},
		Modules: slices.Concat(linktest.PromQL, linktest.AWS, linktest.Kubernetes, []string{
			"github.com/aws/aws-lambda-go",
			"github.com/prometheus/client_golang", "github.com/prometheus/client_model", // which the queries' parser imports
			"github.com/prometheus/common", "github.com/prometheus/procfs",
			"github.com/beorn7/perks", "github.com/cespare/xxhash/v2",
			"github.com/klauspost/compress",
		}),
		MaxMB: 30,
	}.Test(t)
}
