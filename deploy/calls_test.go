package deploy

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/credentials"
	awsec2 "github.com/aws/aws-sdk-go-v2/service/ec2"
	"github.com/aws/aws-sdk-go-v2/service/pricing"
	"github.com/aws/aws-sdk-go-v2/service/secretsmanager"
	"github.com/aws/aws-sdk-go-v2/service/sqs"
	"github.com/aws/aws-sdk-go-v2/service/ssm"
	"github.com/aws/aws-sdk-go-v2/service/sts"
	"k8s.io/client-go/rest"

	"github.com/muster-dev/muster/internal/component"
	"github.com/muster-dev/muster/nodes"
	"github.com/muster-dev/muster/nodes/connect"
	"github.com/muster-dev/muster/nodes/dynamo"
	"github.com/muster-dev/muster/nodes/ec2"
	"github.com/muster-dev/muster/nodes/kube"
	"github.com/muster-dev/muster/nodes/sim"
	"github.com/muster-dev/muster/nodes/sim/awsapi"
	"github.com/muster-dev/muster/nodes/sim/kubeapi"
	"github.com/muster-dev/muster/setting"
)

// calls is what was asked for, by who asked.
type calls struct {
	mu sync.Mutex
	by map[string]map[string]bool
}

func (c *calls) note(who, what string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.by == nil {
		c.by = map[string]map[string]bool{}
	}
	if c.by[who] == nil {
		c.by[who] = map[string]bool{}
	}
	c.by[who][what] = true
}

// of returns what any of those who are named asked for, sorted.
func (c *calls) of(who ...string) []string {
	c.mu.Lock()
	defer c.mu.Unlock()
	var out []string
	for _, w := range who {
		for what := range c.by[w] {
			out = append(out, what)
		}
	}
	slices.Sort(out)
	return slices.Compact(out)
}

// plane is the node plane with its real adapters, over the wire: EC2 and what goes with it and Kubernetes over one simulator,
// DynamoDB by Amazon's own server.
type plane struct {
	w     *sim.Simulator
	aws   *awsapi.API
	cloud *ec2.Cloud
	sqs   *sqs.Client
	db    *dynamo.DB
	kube  *kube.Cluster
	rec   *nodes.Reconciler

	mu   sync.Mutex
	who  string
	used calls // of AWS
	verb calls // of Kubernetes
	api  *kubeapi.Server

	environment setting.Lookup // by which settings are read from SSM
}

// as makes f's calls those of who.
func (p *plane) as(who string, f func()) {
	p.mu.Lock()
	p.who = who
	p.mu.Unlock()
	before := p.api.Used()
	f()
	for use, n := range p.api.Used() {
		if n > before[use] {
			p.verb.note(who, use.String())
		}
	}
}

func (p *plane) asker() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.who
}

// RoundTrip records DynamoDB's actions with their tables.
func (p *plane) RoundTrip(r *http.Request) (*http.Response, error) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return nil, err
	}
	r.Body = io.NopCloser(bytes.NewReader(body))
	var in struct {
		TableName    string
		RequestItems map[string]json.RawMessage
	}
	if err := json.Unmarshal(body, &in); err != nil {
		return nil, err
	}
	for t := range in.RequestItems {
		in.TableName = t
	}
	action := r.Header.Get("X-Amz-Target")[len("DynamoDB_20120810."):]
	p.used.note(p.asker(), "dynamodb:"+action+" "+in.TableName)
	return http.DefaultTransport.RoundTrip(r)
}

func newPlane(t *testing.T) *plane {
	t.Helper()
	pol := nodes.DefaultPolicy()
	pol.Cluster, pol.StateTable, pol.LogsTable = "prod", "calls-state", "calls-logs"
	pol.CooldownUp, pol.CooldownDown, pol.PendingUpFor, pol.IdleDownFor = time.Minute, time.Minute, time.Minute, 2*time.Minute
	p := &plane{w: sim.New(sim.Options{Policy: pol, Workers: []string{"a", "b", "a"}, Visible: 5 * time.Second, Boot: time.Minute}), who: "nobody"}
	p.aws = awsapi.New(p.w, awsapi.Options{PollUnit: 10 * time.Millisecond, Parameters: map[string]string{"/muster/prod/user-data:1": "#!", "/muster/prod/settings": "CPU_UP: 0.8"}, Secrets: map[string]string{"muster/prod/user-data": "#!"}})
	p.aws.OnCall(func(c awsapi.Call) { p.used.note(p.asker(), c.Permission()) })
	region := httptest.NewServer(p.aws)
	t.Cleanup(region.Close)
	t.Setenv("AWS_ACCESS_KEY_ID", "AKID")
	t.Setenv("AWS_SECRET_ACCESS_KEY", "SECRET")
	p.environment = func(name string) (string, bool) {
		v, ok := map[string]string{"AWS_REGION": "eu-central-1", "AWS_ENDPOINT_URL_SSM": region.URL}[name]
		return v, ok
	}
	cfg := aws.Config{Region: "eu-central-1", BaseEndpoint: &region.URL, Credentials: credentials.NewStaticCredentialsProvider("AKID", "SECRET", "")}
	p.sqs = sqs.NewFromConfig(cfg)
	ec := ec2.Config{
		Cluster: "prod", LaunchTemplate: "lt-0a1b", LaunchTemplateVersion: "7", UserData: ec2.UserDataK3s, InstanceTypes: pol.InstanceTypes, Spot: true, Prices: ec2.PricesAWS,
		Join: ec2.Join{Server: "https://10.0.0.10:6443", TokenRef: "ssm:/muster/prod/agent-token"},
	}
	var err error
	p.cloud, err = ec2.New(ec2.API{
		EC2: awsec2.NewFromConfig(cfg, ec2.Options), Parameters: ssm.NewFromConfig(cfg), Secrets: secretsmanager.NewFromConfig(cfg), Identity: sts.NewFromConfig(cfg),
		Pricing: pricing.NewFromConfig(cfg), Region: cfg.Region,
	}, ec)
	if err != nil {
		t.Fatal(err)
	}
	table := "http://" + component.DynamoDBLocal().Start(t).Addr
	p.db, err = dynamo.New(aws.Config{Region: cfg.Region, BaseEndpoint: &table, Credentials: cfg.Credentials, HTTPClient: &http.Client{Transport: p}},
		dynamo.Config{KeepDays: 3650, Now: p.w.Clock().Now}.For(pol))
	if err != nil {
		t.Fatal(err)
	}
	if err := p.db.CreateTables(t.Context()); err != nil {
		t.Fatal(err)
	}
	p.api = kubeapi.New(p.w.Client("kube", nil))
	k8s := httptest.NewServer(p.api)
	t.Cleanup(k8s.Close)
	p.kube, err = kube.New(&rest.Config{Host: k8s.URL}, kube.Options{Clock: p.w.Clock()})
	if err != nil {
		t.Fatal(err)
	}
	p.rec, err = nodes.New(nodes.Config{
		Policy: pol, Signals: p.w.Client("signals", nil), Cloud: p.cloud, Statuses: p.cloud, Pricer: p.cloud, Cluster: p.kube, Store: p.db.Store(), EventLog: p.db.EventLog(),
		Clock: p.w.Clock(), Template: ec.Template(),
	})
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// live lets a cluster live: launches, an instance that never joins, a scale-down, interruptions of each kind, large event log entries,
// a look at the event log; and everything that is asked for once in a while.
func live(t *testing.T) *plane {
	t.Helper()
	p := newPlane(t)
	ticks := func(n int) {
		p.as("tick", func() {
			for range n {
				if _, err := p.rec.Tick(t.Context()); err != nil {
					t.Fatal(err)
				}
				p.w.Advance(time.Minute)
			}
		})
	}
	p.w.SetBoots(sim.Boot{}, sim.Boot{NeverJoins: true})
	p.w.AddPods(20, sim.PodSpec{Name: "load", MilliCPU: 500})
	p.w.AddPods(1, sim.PodSpec{Name: "bound", MilliCPU: 100, Kube: sim.KubeTraits{VolumeZone: "a"}})
	ticks(16)
	for i, kind := range []nodes.InterruptionKind{nodes.Rebalance, nodes.Warning, nodes.Health} {
		e := p.w.Announce(kind, fmt.Sprintf("i-%03d", 2+i))
		p.as("interruptions", func() {
			if err := p.rec.Interrupt(t.Context(), e); err != nil {
				t.Fatal(err)
			}
		})
		ticks(3)
	}
	// An event that is delivered again finds what there is to go on with, to the instance's end.
	instances, err := p.w.Client("look", nil).Workers(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	alive := slices.DeleteFunc(instances, func(i nodes.Instance) bool { return !i.Alive() || i.ControlPlane })
	again := p.w.Announce(nodes.Rebalance, alive[len(alive)-1].ID)
	for range 8 {
		p.as("interruptions", func() {
			if err := p.rec.Interrupt(t.Context(), again); err != nil {
				t.Fatal(err)
			}
		})
		p.w.Advance(time.Minute)
	}
	p.w.RemovePods("load")
	ticks(20)
	large := nodes.Event{At: p.w.Clock().Now(), Tick: "large", Data: json.RawMessage(`"` + noise(1_500_000) + `"`)}
	for _, who := range []string{"tick", "interruptions"} { // snapshots of large clusters are split
		p.as(who, func() {
			if err := p.db.EventLog().Append(t.Context(), large); err != nil {
				t.Fatal(err)
			}
		})
	}
	p.as("reader", func() {
		for _, err := range p.db.EventLog().Read(t.Context(), nodes.Query{}) {
			if err != nil {
				t.Fatal(err)
			}
		}
	})
	for _, text := range []string{"ssm:/muster/prod/user-data:1", "secretsmanager:muster/prod/user-data#1"} {
		ref, err := ec2.ParseRef(text)
		if err != nil {
			t.Fatal(err)
		}
		p.as("references", func() {
			if _, err := p.cloud.Fetch(t.Context(), ref); err != nil {
				t.Fatal(err)
			}
		})
	}
	p.as("document", func() {
		if d, err := connect.ReadDocument(t.Context(), "ssm:/muster/prod/settings", connect.Known(connect.Groups()), p.environment); err != nil || d.Values["CPU_UP"] != "0.8" {
			t.Fatal(d, err)
		}
	})
	p.as("queue", func() { p.poll(t) })
	p.w.Deploy(sim.PodSpec{Name: "fdc-system/defender"}, nil).Scale(3)
	p.as("following", func() {
		if n, err := p.kube.Replicas(t.Context(), "fdc-system", "defender"); err != nil || n != 3 {
			t.Fatal(n, err)
		}
	})
	p.as("watching", func() {
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if err := p.kube.WatchPending(ctx, func(time.Time) { cancel() }); err != nil {
			t.Fatal(err)
		}
	})
	p.as("doctor", func() {
		p.cloud.Check(t.Context())
		p.db.Check(t.Context())
		p.kube.Check(t.Context())
	})
	p.as("setup", func() {
		if err := p.db.CreateTables(t.Context()); err != nil {
			t.Fatal(err)
		}
	})
	return p
}

// poll lets the daemon's queue take one event.
func (p *plane) poll(t *testing.T) {
	t.Helper()
	const url = "https://sqs.eu-central-1.amazonaws.com/123456789012/muster"
	body, err := json.Marshal(map[string]any{"id": "e1", "source": "aws.ec2", "detail-type": "EC2 Instance Rebalance Recommendation",
		"time": p.w.Clock().Now().UTC().Format(time.RFC3339), "detail": map[string]string{"instance-id": "i-002"}})
	if err != nil {
		t.Fatal(err)
	}
	p.aws.Send(url, string(body))
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	p.aws.OnCall(func(c awsapi.Call) {
		who := p.asker()
		if c.Action == "ReceiveMessage" {
			who = "queue" // a poll that was cancelled may arrive when others ask already
		}
		p.used.note(who, c.Permission())
		if c.Action == "DeleteMessage" {
			cancel()
		}
	})
	q := &ec2.Queue{API: p.sqs, URL: url, Clock: p.w.Clock(), Wait: time.Second, Log: slog.New(slog.DiscardHandler),
		Handle: func(context.Context, nodes.InterruptionEvent) error { return nil }}
	if err := q.Run(ctx); err != nil {
		t.Fatal(err)
	}
}

// noise is text that can't be compressed much.
func noise(n int) string {
	const letters = "0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ-_"
	b, x := make([]byte, n), uint64(1)
	for i := range b {
		x ^= x << 13
		x ^= x >> 7
		x ^= x << 17
		b[i] = letters[x%64]
	}
	return string(b)
}
