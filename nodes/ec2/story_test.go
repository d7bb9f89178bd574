package ec2_test

import (
	"context"
	"flag"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/muster-dev/muster/nodes"
	"github.com/muster-dev/muster/nodes/ec2"
	"github.com/muster-dev/muster/nodes/sim"
	"github.com/muster-dev/muster/nodes/sim/awsapi"
)

// A whole life of a cluster, by the reconciler over the wire and directly: launches with fallbacks, an instance that never joins, a
// scale-down, a rebalance and a warning. The simulated region must have seen the same of both.
func TestAClustersLifeIsTheSameOverTheWire(t *testing.T) {
	direct, _ := live(t, false, awsapi.Fault{})
	wire, _ := live(t, true, awsapi.Fault{})
	compare(t, direct, wire)
}

// live returns what the simulated region saw, and the region. With a fault ticks may fail.
func live(t *testing.T, wire bool, fault awsapi.Fault) ([]string, *region) {
	t.Helper()
	r := open(t, func(s *setup) { s.sim.Workers = []string{"a", "b", "a"} })
	faulty := fault != awsapi.Fault{}
	if faulty {
		r.api.Fault(fault)
	}
	c := r.w.Client("A", nil)
	cloud, statuses := nodes.Cloud(c), nodes.StatusReader(c)
	if wire {
		cloud, statuses = r.cloud, r.cloud
	}
	p := policy()
	p.CooldownUp, p.CooldownDown, p.PendingUpFor, p.IdleDownFor = time.Minute, time.Minute, time.Minute, 2*time.Minute
	p.InstanceTypes = config().InstanceTypes
	n := 0
	rec, err := nodes.New(nodes.Config{
		Policy: p, Signals: c, Cloud: cloud, Statuses: statuses, Cluster: c, Store: c, EventLog: c, Clock: r.w.Clock(), Template: config().Template(),
		NewID: func() string { n++; return fmt.Sprintf("id%d", n) },
	})
	if err != nil {
		t.Fatal(err)
	}
	ticks := func(n int) {
		for range n {
			if _, err := rec.Tick(t.Context()); err != nil && !faulty {
				t.Fatal(err)
			}
			r.w.Advance(time.Minute)
		}
	}
	r.w.AddShortage(sim.Shortage{Zone: "b", Market: nodes.Spot})
	r.w.AddShortage(sim.Shortage{Type: "t3.large", Market: nodes.OnDemand, Kind: nodes.FailQuota})
	r.w.SetBoots(sim.Boot{}, sim.Boot{NeverJoins: true})
	r.w.AddPods(20, sim.PodSpec{Name: "load", MilliCPU: 500})
	ticks(16)
	for i, kind := range []nodes.InterruptionKind{nodes.Rebalance, nodes.Warning} {
		if err := rec.Interrupt(t.Context(), r.w.Announce(kind, fmt.Sprintf("i-%03d", 2+i))); err != nil && !faulty {
			t.Fatal(err)
		}
		ticks(3)
	}
	r.w.RemovePods("load")
	ticks(20)
	var out []string
	tokens := numbered{}
	for _, e := range r.w.Ledger() {
		if e.Kind != sim.Written && e.Kind != sim.WrittenItem { // the record is not the cloud's business, and has times in it
			out = append(out, fmt.Sprint(e.Kind, " ", e.Instance, " ", e.Zone, " ", e.Request.Offering, " ", tokens.name(e.Request.Token), " ", e.Refusal))
		}
	}
	return out, r
}

// numbered gives client tokens numbers in the order in which they appear. A token comes from the second in which its
// action begins, and that differs by as much as a diagnosis takes: one call directly, two requests over the wire.
type numbered map[string]int

func (n numbered) name(token string) string {
	if token == "" {
		return ""
	}
	if n[token] == 0 {
		n[token] = len(n) + 1
	}
	return fmt.Sprint("token-", n[token])
}

func compare(t *testing.T, direct, wire []string) {
	t.Helper()
	if !slices.Equal(direct, wire) {
		for i := range max(len(direct), len(wire)) {
			at := func(s []string) string {
				if i < len(s) {
					return s[i]
				}
				return "-"
			}
			if at(direct) != at(wire) {
				t.Fatalf("entry %d of %d and %d:\ndirectly %s\nby wire  %s", i, len(direct), len(wire), at(direct), at(wire))
			}
		}
	}
	for _, kind := range []sim.Kind{sim.Launched, sim.LaunchRefused, sim.Terminated, sim.Drained, sim.NodeRemoved, sim.TakenAway} {
		if !slices.ContainsFunc(wire, func(s string) bool { return len(s) > len(kind) && s[:len(kind)] == string(kind) }) {
			t.Errorf("nothing was %s: this life is not worth comparing", kind)
		}
	}
}

// The same life with one reply lost, cut off, or garbled, or one request throttled or refused by a fault of the service: wherever it
// strikes, no token starts two instances, nobody is ended with pods on it, nothing is left over.
func TestALifeWithOneFaultOnTheWireComesToRest(t *testing.T) {
	_, r := live(t, true, awsapi.Fault{})
	calls := len(r.api.Calls())
	kinds := []awsapi.Fault{
		{Drop: true}, {Cut: 200}, {Garbage: true, Body: "<html/>"}, {}, {Code: "InternalError", Status: 500}, {Garbage: true},
	}
	const runs = 36
	for i := range runs {
		fault := kinds[i%len(kinds)]
		fault.After, fault.Times = i*calls/runs, 1
		_, r := live(t, true, fault)
		byToken := map[string]string{}
		for _, e := range r.w.Ledger() {
			switch e.Kind {
			case sim.Launched:
				if before := byToken[e.Request.Token]; before != "" {
					t.Errorf("%+v: one token started %s and %s", fault, before, e.Instance)
				}
				byToken[e.Request.Token] = e.Instance
			case sim.TokenMismatch:
				t.Errorf("%+v: a token came with another request", fault)
			case sim.Terminated:
				if e.Facts.Pods > 0 {
					t.Errorf("%+v: %s was ended with %d pods on it", fault, e.Instance, e.Facts.Pods)
				}
			}
		}
		rec := r.w.Record()
		if f := r.w.Fleet(); f.Nodeless > 0 || f.StaleNodes > 0 || f.Cordoned > 0 || rec.ActionID() != "" || r.w.OpenItems() > 0 {
			t.Errorf("%+v: at the end %+v, action %q, %d open", fault, f, rec.ActionID(), r.w.OpenItems())
		}
	}
	t.Logf("%d lives of %d requests, one fault in each, spread evenly", runs, calls)
}

// The calls that are really made, by who makes them. A policy that allows these and no others is what deployment is tested against.
func TestTheCallsThatAreReallyMade(t *testing.T) {
	_, r := live(t, true, awsapi.Fault{})
	var b strings.Builder
	b.WriteString("# Written by `go test ./nodes/ec2 -run TheCallsThatAreReallyMade -update`. Who makes which call of AWS:\n")
	b.WriteString("# run: ticks and interruptions; references: settings of which the value is ssm:... or secretsmanager:... (USER_DATA, KUBE_*_REF,\n")
	b.WriteString("# PROMETHEUS_*_REF); queue: the daemon with INTERRUPTION_QUEUE; doctor: muster nodes doctor;\n# prices: ticks and the doctor with PRICES=aws. DynamoDB is package dynamo's.\n")
	say := func(who string, permissions []string) {
		for _, p := range permissions {
			fmt.Fprintln(&b, who, p)
		}
	}
	say("run", r.api.Permissions())

	r = open(t, func(s *setup) {
		s.api.Parameters, s.api.Secrets = map[string]string{"a:1": "#!"}, map[string]string{"a": "#!"}
	})
	for _, ref := range []string{"ssm:a:1", "secretsmanager:a#1"} {
		parsed, err := ec2.ParseRef(ref)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := r.cloud.Fetch(t.Context(), parsed); err != nil {
			t.Fatal(err)
		}
	}
	say("references", r.api.Permissions())

	p := startPolling(t, func(context.Context, nodes.InterruptionEvent) error { return nil })
	p.api.Send(queueURL, p.event("e", nodes.Rebalance, 0))
	p.deleted(t, 1)
	p.stop()
	say("queue", p.api.Permissions())

	r = open(t, func(s *setup) { s.sim.Workers = []string{"a"}; s.config.UserData = ec2.UserDataTemplate })
	r.cloud.Check(t.Context())
	say("doctor", r.api.Permissions())

	r = open(t, selling(0, map[string]float64{"m5.large": 0.115}))
	if _, err := r.cloud.OnDemandPrices(t.Context(), []string{"m5.large"}); err != nil {
		t.Fatal(err)
	}
	if _, err := r.cloud.SpotPrices(t.Context(), []string{"m5.large"}, []string{"a"}); err != nil {
		t.Fatal(err)
	}
	say("prices", r.api.Permissions())

	const golden = "testdata/calls.golden"
	if *update {
		if err := os.WriteFile(golden, []byte(b.String()), 0o644); err != nil { //nolint:gosec // a file of the repository
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(golden)
	if err != nil {
		t.Fatal(err)
	}
	if b.String() != string(want) {
		t.Errorf("the calls are\n%s\n%s says\n%s", b.String(), golden, want)
	}
}

var update = flag.Bool("update", false, "rewrite golden files")
