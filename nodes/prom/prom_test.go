package prom_test

import (
	"context"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/muster-dev/muster/nodes"
	"github.com/muster-dev/muster/nodes/prom"
	"github.com/muster-dev/muster/nodes/sim"
	"github.com/muster-dev/muster/nodes/sim/promapi"
	"github.com/muster-dev/muster/setting"
)

var start = time.Unix(1730001600, 0).UTC()

// bench is a simulator with a Prometheus that scrapes it and signals that read that, over HTTP.
type bench struct {
	*sim.Simulator
	t       *testing.T
	server  *promapi.Server
	web     *httptest.Server
	config  prom.Config
	policy  nodes.Policy
	signals *prom.Signals
}

func newBench(t *testing.T, change ...func(*bench)) *bench {
	t.Helper()
	b := &bench{t: t, policy: nodes.DefaultPolicy(), config: prom.DefaultConfig()}
	b.Simulator = sim.New(sim.Options{Start: start, Workers: []string{"a", "b", "a"}})
	b.server = promapi.New(promapi.Options{})
	b.web = httptest.NewServer(b.server)
	t.Cleanup(b.web.Close)
	b.config.URL, b.config.Clock = b.web.URL, b.Clock()
	for _, c := range change {
		c(b)
	}
	var err error
	if b.signals, err = prom.Open(context.Background(), b.config, b.policy); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(b.server.Watch(b.Simulator))
	return b
}

func (b *bench) observe() nodes.Readings {
	b.t.Helper()
	r, err := b.signals.Observe(context.Background())
	if err != nil {
		b.t.Fatal(err)
	}
	return r
}

func (b *bench) want(name string, r nodes.Reading, low, high float64) {
	b.t.Helper()
	if !r.Known || r.Value < low || r.Value > high {
		b.t.Errorf("%s: %+v, want %v to %v", name, r, low, high)
	}
}

func (b *bench) missing(name string, r nodes.Reading, why string) {
	b.t.Helper()
	if r.Known || !strings.Contains(r.Why, why) {
		b.t.Errorf("%s: %+v, want it missing with %q", name, r, why)
	}
}

// all lists the readings that decisions need.
func all(r nodes.Readings) map[string]nodes.Reading {
	return map[string]nodes.Reading{"cpu": r.CPU, "cpuMin": r.CPUMin, "cpuMax": r.CPUMax, "pending": r.Pending, "pendingMin": r.PendingMin, "pendingMax": r.PendingMax, "pendingOther": r.PendingOther}
}

func TestUtilisationIsThatOfTheWorkers(t *testing.T) {
	for _, c := range []struct{ load, low, high float64 }{{1, 0.95, 1}, {0, 0, 0.05}, {0.7, 0.69, 0.71}} {
		b := newBench(t)
		b.SetLoad(c.load)
		b.Advance(20 * time.Minute)
		r := b.observe()
		b.want("cpu", r.CPU, c.low, c.high)
		b.want("cpuMin", r.CPUMin, c.low, c.high)
		b.want("cpuMax", r.CPUMax, c.low, c.high)
		if !r.ReadyIPsKnown || len(r.ReadyIPs) != 4 || !r.At.Equal(b.Clock().Now()) {
			t.Errorf("Ready addresses %v %v at %v", r.ReadyIPs, r.ReadyIPsKnown, r.At)
		}
	}
}

// TestNewIdleMachineReadsIdle is why the CPU query divides by all time: 1 - avg(rate(idle)) reads 0.8 for an idle machine that has
// been scraped for a minute, and would ask for more nodes because there are new ones.
func TestNewIdleMachineReadsIdle(t *testing.T) {
	b := newBench(t)
	b.SetLoad(0.1)
	b.Advance(20 * time.Minute)
	b.AddWorker("a", b.Clock().Now())
	b.AddWorker("b", b.Clock().Now())
	b.AddWorker("b", b.Clock().Now())
	for range 20 {
		b.Advance(30 * time.Second)
		r := b.observe()
		b.want("cpu", r.CPU, 0.09, 0.11)
		b.want("cpuMin", r.CPUMin, 0.09, 0.11)
		b.want("cpuMax", r.CPUMax, 0.09, 0.11)
	}
	plain := newBench(t, func(b *bench) {
		b.config.Queries.CPU = `1 - avg(rate(node_cpu_seconds_total{mode="idle",$workers}[$rate]))`
	})
	plain.SetLoad(0.1)
	plain.Advance(time.Minute)
	plain.want("cpu by the rate of idle time alone, after a minute", plain.observe().CPU, 0.75, 0.85)
}

func TestCountersThatBeginAgainDontShow(t *testing.T) {
	b := newBench(t)
	b.SetLoad(0.4)
	b.Advance(20 * time.Minute)
	b.server.ResetCounters("10.0.0.3:9100")
	b.Advance(time.Minute)
	r := b.observe()
	b.want("cpu", r.CPU, 0.38, 0.44)
	b.want("cpuMax", r.CPUMax, 0.38, 0.44)
}

func TestSustainedReadingsAtTheirEdges(t *testing.T) {
	b := newBench(t, func(b *bench) { b.config.Rate = time.Minute })
	b.SetLoad(0.2)
	b.Advance(20 * time.Minute)
	b.SetLoad(0.9)
	b.AddPods(4, sim.PodSpec{Name: "shop/huge", MilliCPU: 99000})
	// The load is seen by the next scrape at the earliest, then the rate's window has to fill.
	b.Advance(150 * time.Second)
	r := b.observe()
	b.want("cpu after 150 s", r.CPU, 0.89, 0.91)
	b.want("minimum of 180 s after 150 s", r.CPUMin, 0.19, 0.21)
	b.want("pending after 150 s", r.Pending, 4, 4)
	b.want("minimum of pending of 180 s after 150 s", r.PendingMin, 0, 0)
	b.want("maximum of pending", r.PendingMax, 4, 4)
	b.Advance(30 * time.Second)
	r = b.observe()
	b.want("minimum of pending of 180 s after 180 s", r.PendingMin, 4, 4)
	b.Advance(75 * time.Second)
	r = b.observe()
	b.want("minimum of 180 s after 255 s", r.CPUMin, 0.89, 0.91)

	b.SetLoad(0.1)
	b.RemovePods("shop/")
	b.Advance(9 * time.Minute)
	r = b.observe()
	b.want("cpu", r.CPU, 0.09, 0.11)
	b.want("maximum of 600 s after 540 s", r.CPUMax, 0.89, 0.91)
	b.want("maximum of pending of 600 s after 540 s", r.PendingMax, 4, 4)
	b.Advance(60 * time.Second)
	b.want("maximum of pending of 600 s after 600 s", b.observe().PendingMax, 0, 0)
	b.Advance(75 * time.Second)
	b.want("maximum of 600 s after 675 s", b.observe().CPUMax, 0.09, 0.11)
}

func TestRightAfterStartUpSustainedReadingsAreMissing(t *testing.T) {
	b := newBench(t)
	r := b.observe()
	b.missing("cpu at the first scrape", r.CPU, "no CPU series")
	b.want("pending at the first scrape", r.Pending, 0, 0)
	b.missing("pendingMin at the first scrape", r.PendingMin, "not all 12 points of the last 3m0s")
	b.Advance(time.Minute)
	r = b.observe()
	b.want("cpu after a minute", r.CPU, 0, 0.05)
	b.missing("cpuMin after a minute", r.CPUMin, "not all 12 points of the last 3m0s")
	b.missing("cpuMax after a minute", r.CPUMax, "not all 40 points of the last 10m0s")
	b.Advance(3 * time.Minute)
	r = b.observe()
	b.want("cpuMin after 4 minutes", r.CPUMin, 0, 0.05)
	b.want("pendingMin after 4 minutes", r.PendingMin, 0, 0)
	b.missing("pendingMax after 4 minutes", r.PendingMax, "not all 40 points")
	b.Advance(7 * time.Minute)
	for n, r := range all(b.observe()) {
		b.want(n+" after 11 minutes", r, 0, 0.05)
	}
}

func TestAGapMakesSustainedReadingsMissing(t *testing.T) {
	b := newBench(t)
	b.Advance(20 * time.Minute)
	b.server.MissScrapes("", true)
	b.Advance(8 * time.Minute)
	r := b.observe()
	for n, r := range all(r) {
		b.missing(n+" while nothing is scraped", r, "kube-state-metrics is not up")
	}
	if r.ReadyIPsKnown {
		t.Error("Ready addresses are known while nothing is scraped")
	}
	b.server.MissScrapes("", false)
	b.Advance(time.Minute)
	r = b.observe()
	b.want("cpu after the gap", r.CPU, 0, 0.05)
	b.want("pending after the gap", r.Pending, 0, 0)
	b.missing("cpuMin after the gap", r.CPUMin, "points")
	b.missing("pendingMax after the gap", r.PendingMax, "points")
	b.Advance(10 * time.Minute)
	for n, r := range all(b.observe()) {
		b.want(n+" ten minutes after the gap", r, 0, 0.05)
	}
}

// TestAGapThatTheLookbackBridgesIsOneAllTheSame: a server that was down for some minutes shows what it had before for five, and nothing
// is known of what was meanwhile.
func TestAGapThatTheLookbackBridgesIsOneAllTheSame(t *testing.T) {
	b := newBench(t)
	b.SetLoad(0.1)
	fleet := nodes.Match(b.Instances(), nodesOf(t, b))
	decide := func(when string, want nodes.Action) {
		t.Helper()
		now := b.Clock().Now()
		r := nodes.NewRecord("")
		r.IdleSinceEpoch = nodes.Num(now.Add(-time.Hour).Unix())
		if d := nodes.Decide(b.policy, nodes.Observation{Readings: b.observe(), Fleet: fleet, FleetKnown: true}, r, now); d.Action != want {
			t.Errorf("%s: %s %s %s, want %s", when, d.Action, d.Reason, d.Detail, want)
		}
	}
	away := func(d time.Duration) {
		b.server.MissScrapes("", true)
		b.Advance(d)
		b.server.MissScrapes("", false)
		b.Advance(time.Minute)
	}
	b.Advance(20 * time.Minute)
	decide("at first", nodes.ScaleDown)

	away(100 * time.Second) // less than PROMETHEUS_MAX_AGE_SEC
	for n, r := range all(b.observe()) {
		b.want(n+" after some scrapes were missed", r, 0, 0.11)
	}
	decide("after some scrapes were missed", nodes.ScaleDown)

	away(4 * time.Minute)
	r := b.observe()
	b.want("cpu after the gap", r.CPU, 0.09, 0.11)
	b.want("pending after the gap", r.Pending, 0, 0)
	b.missing("cpuMin after the gap", r.CPUMin, "points")
	b.missing("cpuMax after the gap", r.CPUMax, "points")
	b.missing("pendingMin after the gap", r.PendingMin, "points")
	b.missing("pendingMax after the gap", r.PendingMax, "points")
	decide("after the gap", nodes.Noop)

	b.Advance(3 * time.Minute) // a scale-up needs no more
	r = b.observe()
	b.want("cpuMin four minutes after the gap", r.CPUMin, 0.09, 0.11)
	b.want("pendingMin four minutes after the gap", r.PendingMin, 0, 0)
	b.missing("pendingMax four minutes after the gap", r.PendingMax, "points")
	decide("four minutes after the gap", nodes.Noop)

	b.Advance(7 * time.Minute)
	decide("when the gap is behind", nodes.ScaleDown)
}

func nodesOf(t *testing.T, b *bench) []nodes.Node {
	t.Helper()
	v, err := b.Client("test", nil).View(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return v.Nodes
}

func TestStaleSamplesAreMissing(t *testing.T) {
	b := newBench(t)
	b.Advance(20 * time.Minute)
	b.server.MissScrapes("", true)
	b.Advance(110 * time.Second)
	b.want("pending after 110 s without a scrape", b.observe().Pending, 0, 0)
	b.Advance(20 * time.Second)
	for n, r := range all(b.observe()) { // Prometheus itself would show them for five minutes
		b.missing(n, r, "kube-state-metrics is stale: last scraped 2m10s ago")
	}
	b.server.MissScrapes("", false)
	b.Advance(5 * time.Minute)
	b.server.MissScrapes("10.0.0.4:9100", true)
	b.Advance(4 * time.Minute)
	r := b.observe()
	b.missing("cpu", r.CPU, "1 of 3 Ready workers have stale CPU series: i-003")
	b.want("pending", r.Pending, 0, 0)
}

func TestAMissingMachineIsMissing(t *testing.T) {
	b := newBench(t)
	b.Advance(20 * time.Minute)
	b.server.FailTarget("10.0.0.3:9100", true)
	b.Advance(30 * time.Second) // its rate could be computed for five minutes still
	r := b.observe()
	for n, r := range map[string]nodes.Reading{"cpu": r.CPU, "cpuMin": r.CPUMin, "cpuMax": r.CPUMax} {
		b.missing(n, r, "1 of 3 Ready workers have no CPU series: i-002")
	}
	b.want("pending", r.Pending, 0, 0)
	b.server.FailTarget("10.0.0.3:9100", false)
	b.Advance(30 * time.Second)
	b.want("cpu", b.observe().CPU, 0, 0.05)
}

func TestHalfTheSeriesAreMissing(t *testing.T) {
	b := newBench(t)
	b.SetLoad(0.9)
	b.Advance(20 * time.Minute)
	b.server.SetFault(promapi.Fault{Half: true})
	b.missing("cpu", b.observe().CPU, "of 3 Ready workers have no CPU series")
}

func TestPendingPods(t *testing.T) {
	for _, source := range []nodes.PendingSource{nodes.PendingUnschedulable, nodes.PendingPhase} {
		t.Run(string(source), func(t *testing.T) {
			b := newBench(t, func(b *bench) { b.policy.Pending = source })
			b.Advance(20 * time.Minute)
			r := b.observe()
			b.want("without pending pods", r.Pending, 0, 0)
			b.want("without pending pods, the other", r.PendingOther, 0, 0)
			b.AddPods(7, sim.PodSpec{Name: "shop/huge", MilliCPU: 99000})
			b.Advance(15 * time.Second)
			b.want("with seven", b.observe().Pending, 7, 7)
			b.server.FailTarget(promapi.StateMetrics, true)
			b.Advance(15 * time.Second)
			for n, r := range all(b.observe()) {
				b.missing(n+" without kube-state-metrics", r, "kube-state-metrics is not up: it has no series")
			}
			b.server.FailTarget(promapi.StateMetrics, false)
			b.RemovePods("shop/")
			b.Advance(15 * time.Second)
			b.want("when they are gone", b.observe().Pending, 0, 0)
		})
	}
}

// exported is a cluster of a server and two workers, all idle but the workers.
func exported() sim.Exporters {
	return sim.Exporters{Nodes: []sim.ExportedNode{
		{Name: "server", InternalIP: "10.0.0.1", Up: true, Ready: true, ControlPlane: true, CPUs: 2},
		{Name: "w1", InternalIP: "10.0.0.2", Up: true, Ready: true, CPUs: 2, Load: 0.9},
		{Name: "w2", InternalIP: "10.0.0.21", Up: true, Ready: true, CPUs: 2, Load: 0.9}}}
}

// readExported returns what is read after a quarter of an hour of such exporters.
func readExported(t *testing.T, e sim.Exporters, o promapi.Options, change func(*prom.Config)) nodes.Readings {
	t.Helper()
	server := promapi.New(o)
	web := httptest.NewServer(server)
	defer web.Close()
	for i := range 61 {
		e.At = start.Add(time.Duration(i) * 15 * time.Second)
		server.Ingest(e)
	}
	c := prom.DefaultConfig()
	c.URL, c.Clock = web.URL, fixed(e.At)
	change(&c)
	s, err := prom.Open(context.Background(), c, nodes.DefaultPolicy())
	if err != nil {
		t.Fatal(err)
	}
	r, err := s.Observe(context.Background())
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func TestMachinesMayBeNamedByAddressOrNode(t *testing.T) {
	for name, instance := range map[string]func(sim.ExportedNode) string{
		"address and port":   nil,
		"address":            func(n sim.ExportedNode) string { return n.InternalIP },
		"node name":          func(n sim.ExportedNode) string { return n.Name },
		"node name and port": func(n sim.ExportedNode) string { return n.Name + ":9100" },
	} {
		if r := readExported(t, exported(), promapi.Options{Instance: instance}, func(*prom.Config) {}); !r.CPU.Known || r.CPU.Value < 0.89 {
			t.Errorf("%s: %+v, want 0.9 of the workers alone", name, r.CPU)
		}
	}
}

func TestMachinesThatAreNoWorkersAreNotedOrLeftOut(t *testing.T) {
	e := exported()
	e.Nodes = append(e.Nodes, sim.ExportedNode{Name: "database", InternalIP: "10.9.9.9", Foreign: true, Up: true, CPUs: 64})
	r := readExported(t, e, promapi.Options{}, func(*prom.Config) {})
	if r.CPU.Known || !strings.Contains(r.CPU.Why, "CPU series of 1 machines that are no workers of this cluster are among those asked for: 10.9.9.9") {
		t.Errorf("%+v", r.CPU)
	}
	if !r.Pending.Known {
		t.Errorf("pending: %+v", r.Pending)
	}
	r = readExported(t, e, promapi.Options{}, func(c *prom.Config) { c.WorkerSelector = `instance!~"10[.]9[.].*"` })
	if !r.CPU.Known || r.CPU.Value < 0.89 {
		t.Errorf("with WORKER_SELECTOR: %+v", r.CPU)
	}
}

func TestWhatOneOfSeveralClustersShowsIsSelected(t *testing.T) {
	e := exported()
	e.Pods = []sim.ExportedPod{{Namespace: "shop", Name: "waiting"}}
	r := readExported(t, e, promapi.Options{}, func(c *prom.Config) { c.StateSelector = `job="kube-state-metrics"` })
	if r.Pending != nodes.Read(1) || !r.CPU.Known {
		t.Errorf("with a selector that fits: %+v %+v", r.Pending, r.CPU)
	}
	r = readExported(t, e, promapi.Options{}, func(c *prom.Config) { c.StateSelector = `job="another cluster's"` })
	if r.Pending.Known || r.CPU.Known || r.ReadyIPsKnown {
		t.Errorf("with a selector of another cluster: %+v %+v", r.Pending, r.CPU)
	}
}

func TestGatedPodsDontCount(t *testing.T) {
	e := exported()
	for i := range 5 {
		e.Pods = append(e.Pods, sim.ExportedPod{Namespace: "shop", Name: fmt.Sprint("gated-", i), Gated: true})
	}
	e.Pods = append(e.Pods, sim.ExportedPod{Namespace: "shop", Name: "waiting"})
	r := readExported(t, e, promapi.Options{}, func(*prom.Config) {})
	for name, r := range map[string]nodes.Reading{"pending": r.Pending, "minimum": r.PendingMin, "maximum": r.PendingMax, "the other": r.PendingOther} {
		if r != nodes.Read(1) {
			t.Errorf("%s: %+v, want the one pod that has no gate", name, r)
		}
	}
}

// fixed is a clock that stands still.
type fixed time.Time

func (f fixed) Now() time.Time                                   { return time.Time(f) }
func (f fixed) Sleep(ctx context.Context, _ time.Duration) error { return ctx.Err() }
func (f fixed) WithDeadline(ctx context.Context, _ time.Time) (context.Context, context.CancelFunc) {
	return ctx, func() {}
}

func TestWrongAnswersGiveMissingReadings(t *testing.T) {
	for _, c := range []struct {
		name  string
		fault promapi.Fault
		why   string
	}{
		{"not a number", promapi.Fault{NaN: true}, "not a number"},
		{"garbage", promapi.Fault{Body: "<html>\x00Welcome</html>"}, "answers with an error"},
		{"half a JSON document", promapi.Fault{Body: `{"status":"success","data":{"resultType":"vector","result":[{"metric":{},"value":[17300`}, "answers with an error"},
		{"null", promapi.Fault{Body: "null"}, "with nothing"},
		{"a string", promapi.Fault{Body: `{"status":"success","data":{"resultType":"string","result":[1730001600,"12"]}}`}, "answers with an error"},
		{"a matrix", promapi.Fault{Body: `{"status":"success","data":{"resultType":"matrix","result":[]}}`}, "instead of a vector"},
		{"nothing", promapi.Fault{Body: `{"status":"success","data":{"resultType":"vector","result":[]}}`}, "not up"},
		{"503", promapi.Fault{Status: 503, Body: `{"status":"error","errorType":"timeout","error":"query timed out in expression evaluation"}`}, "503: "},
		{"422", promapi.Fault{Status: 422, Body: `{"status":"error","errorType":"execution","error":"multiple matches for labels"}`}, "refuses QUERY_"},
		{"401", promapi.Fault{Status: 401, Body: "Unauthorized"}, "refuses access"},
		{"a redirect", promapi.Fault{Status: 302}, "302"},
		{"a warning", promapi.Fault{Warnings: []string{"no StoreAPIs matched"}}, "partial: no StoreAPIs matched"},
	} {
		t.Run(c.name, func(t *testing.T) {
			b := newBench(t)
			b.Advance(20 * time.Minute)
			b.server.SetFault(c.fault)
			r := b.observe()
			for n, r := range all(r) {
				b.missing(n, r, c.why)
			}
			if r.ReadyIPsKnown {
				t.Error("Ready addresses are known")
			}
			b.server.SetFault(promapi.Fault{})
			for n, r := range all(b.observe()) {
				b.want(n+" afterwards", r, 0, 0.05)
			}
		})
	}
}

func TestOneWrongQueryLeavesTheOthers(t *testing.T) {
	b := newBench(t)
	b.Advance(20 * time.Minute)
	b.server.SetFault(promapi.Fault{Only: "min_over_time((1 - avg", NaN: true})
	r := b.observe()
	b.missing("cpuMin", r.CPUMin, "QUERY_CPU_MIN gives something that is not a number")
	b.want("cpuMax", r.CPUMax, 0, 0.05)
	b.want("pendingMin", r.PendingMin, 0, 0)
}

func TestAServerThatCantBeAskedIsAnError(t *testing.T) {
	b := newBench(t, func(b *bench) { b.config.Timeout = 200 * time.Millisecond })
	b.server.SetFault(promapi.Fault{Hang: true})
	if _, err := b.signals.Observe(context.Background()); err == nil || !strings.Contains(err.Error(), "no answer within 200ms") {
		t.Errorf("a hanging server gives %v", err)
	}
	b = newBench(t) // in whose time to answer a busy machine comes to it
	b.server.SetFault(promapi.Fault{Drop: true})
	if _, err := b.signals.Observe(context.Background()); err == nil || !strings.Contains(err.Error(), "can't be reached") {
		t.Errorf("a server that closes its connections gives %v", err)
	}
	b.server.SetFault(promapi.Fault{})
	b.web.Close()
	if _, err := b.signals.Observe(context.Background()); err == nil || !strings.Contains(err.Error(), "can't be reached") {
		t.Errorf("a server that is gone gives %v", err)
	}
}

func TestADeadlineIsKeptByTheClockThatSetIt(t *testing.T) {
	b := newBench(t)
	b.Advance(20 * time.Minute)
	ctx, cancel := b.Clock().WithDeadline(context.Background(), b.Clock().Now().Add(15*time.Second))
	defer cancel()
	if r, err := b.signals.Observe(ctx); err != nil || !r.CPU.Known { // by the machine's clock it passed long ago
		t.Errorf("before the deadline: %+v %v", r.CPU, err)
	}
	b.Advance(20 * time.Second)
	before := b.server.Queries()
	if _, err := b.signals.Observe(ctx); err == nil || b.server.Queries() != before {
		t.Errorf("after the deadline: %v, %d queries", err, b.server.Queries()-before)
	}
}

func TestAnEmptyClusterUsesNothing(t *testing.T) {
	b := newBench(t)
	for _, id := range []string{"i-002", "i-003", "i-004"} {
		b.TakeAway(id)
	}
	b.Advance(20 * time.Minute)
	b.missing("cpu while nodes are there that are not Ready", b.observe().CPU, "none of 3 workers is Ready")
	for _, id := range []string{"i-002", "i-003", "i-004"} {
		b.DeleteNode(id)
	}
	b.Advance(30 * time.Second)
	b.want("cpu without a worker", b.observe().CPU, 0, 0) // or a cluster of no workers could never grow
}

func TestOverriddenQueries(t *testing.T) {
	b := newBench(t, func(b *bench) {
		b.config.Queries.CPU = `vector(0.5)`
		b.config.Queries.Unschedulable = `sum(kube_pod_status_phase{phase="Pending",namespace="shop"}) or on () 0 * ($state)`
		b.config.Queries.PendingMax = `max_over_time(($pending)[$window:$step])`
	})
	b.AddPods(2, sim.PodSpec{Name: "shop/huge", MilliCPU: 99000})
	b.AddPods(3, sim.PodSpec{Name: "lab/huge", MilliCPU: 99000})
	b.Advance(20 * time.Minute)
	r := b.observe()
	b.want("cpu", r.CPU, 0.5, 0.5)
	b.want("cpuMin", r.CPUMin, 0.5, 0.5)
	b.want("pending", r.Pending, 2, 2)
	b.want("pendingMax", r.PendingMax, 2, 2)
	b.want("the other", r.PendingOther, 5, 5)
}

func TestAQueryThatGivesSeveralSeriesIsRefused(t *testing.T) {
	b := newBench(t, func(b *bench) { b.config.Queries.Unschedulable = `kube_node_spec_unschedulable` })
	b.Advance(20 * time.Minute)
	r := b.observe()
	b.missing("pending", r.Pending, "QUERY_PENDING_UNSCHEDULABLE gives 4 series instead of one")
	b.missing("pendingMin", r.PendingMin, "QUERY_PENDING_MIN gives 4 series instead of one")
	b.want("the other", r.PendingOther, 0, 0)
}

func TestAPointOfAWindowThatIsNotANumberIsMissing(t *testing.T) {
	// 0/0 in the second half of every minute; what is now is a number, and so is every other point of the window.
	b := newBench(t, func(b *bench) {
		b.config.Queries.CPU = `vector(0.5) * (time() % 60 < bool 30) / (time() % 60 < bool 30)`
	})
	b.Advance(20 * time.Minute)
	r := b.observe()
	b.want("cpu", r.CPU, 0.5, 0.5)
	b.missing("cpuMin", r.CPUMin, "not all 12 points of the last 3m0s are there")
	b.missing("cpuMax", r.CPUMax, "not all 40 points of the last 10m0s are there")
}

func TestWhatIsNoUtilisationIsRefused(t *testing.T) {
	b := newBench(t, func(b *bench) { b.config.Queries.CPU = `vector(35)` })
	b.Advance(20 * time.Minute)
	r := b.observe()
	b.missing("percent", r.CPU, "QUERY_CPU is 35: a utilisation is between 0 and 1")
	b.missing("percent", r.CPUMin, "QUERY_CPU_MIN is 35")
}

func TestEverySettingWrongAtOnceGivesOneMessage(t *testing.T) {
	wrong := map[string]string{
		"PROMETHEUS_URL": "localhost:9090", "PROMETHEUS_TOKEN_REF": "eyJhbGciOi", "PROMETHEUS_BASIC_AUTH_REF": "muster:secret", "PROMETHEUS_CA_REF": "-----BEGIN",
		"PROMETHEUS_TIMEOUT_SEC": "10s", "PROMETHEUS_MAX_AGE_SEC": "-1", "PROMETHEUS_STEP_SEC": "0", "PROMETHEUS_RATE_SEC": "x",
		"WORKER_SELECTOR": "{role=worker", "STATE_METRICS_SELECTOR": "cluster", "INSTANCE_LABEL": "a-b",
		"QUERY_STATE_METRICS": "up{", "QUERY_NODES": "", "QUERY_CONTROL_PLANE": "$cpu", "QUERY_CPU_WORKERS": "node_cpu[5m]", "QUERY_CPU": "1", "QUERY_CPU_MIN": "$cpuu",
		"QUERY_CPU_MAX": "max_over_time($cpu)", "QUERY_PENDING_UNSCHEDULABLE": "sum(", "QUERY_PENDING_PHASE": `"x"`, "QUERY_PENDING_MIN": "$window", "QUERY_PENDING_MAX": ")",
	}
	_, err := prom.ConfigFromEnv(func(k string) (string, bool) { v, ok := wrong[k]; return v, ok })
	var e *setting.Error
	if !errors.As(err, &e) {
		t.Fatalf("got %v", err)
	}
	count := map[string]int{}
	for _, p := range e.Problems {
		count[p.Setting]++
		if p.Fix == "" {
			t.Errorf("%s has no fix", p.Setting)
		}
	}
	for _, s := range prom.Settings() {
		if count[s.Env] == 0 && wrong[s.Env] != "" || s.Env == "QUERY_NODES" && count[s.Env] == 0 {
			t.Errorf("%s=%q is not complained about", s.Env, wrong[s.Env])
		}
		if _, ok := wrong[s.Env]; !ok {
			t.Errorf("%s is not tried", s.Env)
		}
	}
	if strings.Contains(err.Error(), "secret") || strings.Contains(err.Error(), "eyJ") {
		t.Errorf("the message shows a secret:\n%v", err)
	}
	if _, err := prom.ConfigFromEnv(func(k string) (string, bool) { return "http://prometheus:9090", k == "PROMETHEUS_URL" }); err != nil {
		t.Errorf("the defaults are refused: %v", err)
	}
}

func TestCredentials(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, "secret")
	write := func(s string) {
		if err := os.WriteFile(file, []byte(s), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	var valid string
	guarded := func(b *bench) {
		next := b.web.Config.Handler
		b.web.Config.Handler = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if r.Header.Get("Authorization") != valid {
				w.WriteHeader(http.StatusUnauthorized)
				return
			}
			next.ServeHTTP(w, r)
		})
	}
	write("first\n")
	valid = "Bearer first"
	b := newBench(t, guarded, func(b *bench) { b.config.TokenRef = "file:" + file })
	b.Advance(20 * time.Minute)
	b.want("cpu", b.observe().CPU, 0, 0.05)
	write("second\n")
	valid = "Bearer second" // the first is refused once, then the reference is read again
	b.missing("cpu", b.observe().CPU, "refuses access")
	b.want("cpu with the new token", b.observe().CPU, 0, 0.05)

	write("muster:pass:word\n")
	valid = "Basic bXVzdGVyOnBhc3M6d29yZA=="
	b = newBench(t, guarded, func(b *bench) { b.config.BasicRef = "file:" + file })
	b.Advance(20 * time.Minute)
	b.want("cpu", b.observe().CPU, 0, 0.05)

	b = newBench(t, func(b *bench) { b.config.TokenRef = "file:" + filepath.Join(dir, "absent") })
	if _, err := b.signals.Observe(context.Background()); err == nil || !strings.Contains(err.Error(), "PROMETHEUS_TOKEN_REF") {
		t.Errorf("an absent token gives %v", err)
	}
}

func TestARedirectIsNotFollowedWithTheCredentials(t *testing.T) {
	asked := make(chan string, 100)
	elsewhere := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { asked <- r.Header.Get("Authorization") }))
	defer elsewhere.Close()
	file := filepath.Join(t.TempDir(), "token")
	if err := os.WriteFile(file, []byte("secret"), 0o600); err != nil {
		t.Fatal(err)
	}
	b := newBench(t, func(b *bench) {
		b.config.TokenRef = "file:" + file
		b.web.Config.Handler = http.RedirectHandler(elsewhere.URL, http.StatusTemporaryRedirect)
	})
	b.missing("cpu", b.observe().CPU, "307")
	if len(asked) > 0 {
		t.Errorf("another server was asked with %q", <-asked)
	}
}

func TestAnAnswerWithoutEndIsGivenUp(t *testing.T) {
	b := newBench(t, func(b *bench) {
		b.web.Config.Handler = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			for r.Context().Err() == nil { // until the client has had enough
				if _, err := w.Write(make([]byte, 1<<20)); err != nil {
					return
				}
			}
		})
	})
	if _, err := b.signals.Observe(context.Background()); err == nil || !strings.Contains(err.Error(), "larger than 4 MiB") {
		t.Errorf("got %v", err)
	}
}

func TestTLSNeedsTheCA(t *testing.T) {
	b := newBench(t)
	b.Advance(20 * time.Minute)
	web := httptest.NewUnstartedServer(b.server)
	web.Config.ErrorLog = log.New(io.Discard, "", 0)
	web.StartTLS()
	defer web.Close()
	ca := filepath.Join(t.TempDir(), "ca.pem")
	if err := os.WriteFile(ca, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: web.Certificate().Raw}), 0o600); err != nil {
		t.Fatal(err)
	}
	c := b.config
	c.URL = web.URL
	s, err := prom.Open(context.Background(), c, b.policy)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := s.Observe(context.Background()); err == nil || !strings.Contains(err.Error(), "certificate") {
		t.Errorf("without the CA: %v", err)
	}
	c.CARef = "file:" + ca
	if s, err = prom.Open(context.Background(), c, b.policy); err != nil {
		t.Fatal(err)
	}
	if r, err := s.Observe(context.Background()); err != nil || !r.CPU.Known {
		t.Errorf("with the CA: %+v %v", r.CPU, err)
	}
}

func TestCheckTellsWhatEachQueryReturnsAndHowToFixIt(t *testing.T) {
	b := newBench(t)
	b.Advance(20 * time.Minute)
	for _, c := range b.signals.Check(context.Background()) {
		if !c.OK || c.Fix != "" {
			t.Errorf("%+v", c)
		}
	}
	b.server.FailTarget(promapi.StateMetrics, true)
	b.Advance(15 * time.Second)
	failed := map[string]nodes.Check{}
	for _, c := range b.signals.Check(context.Background()) {
		if !c.OK {
			failed[c.Name] = c
			if c.Detail == "" || c.Fix == "" {
				t.Errorf("%+v says too little", c)
			}
		}
	}
	for _, want := range []string{"prometheus: QUERY_STATE_METRICS", "prometheus: kube-state-metrics is up and fresh", "prometheus: reading cpu", "prometheus: reading pending"} {
		if _, ok := failed[want]; !ok {
			t.Errorf("%s did not fail; failed: %v", want, failed)
		}
	}
	b.web.Close()
	if cs := b.signals.Check(context.Background()); len(cs) != 1 || cs[0].OK || cs[0].Fix == "" {
		t.Errorf("without a server: %+v", cs)
	}
}

func TestTheNumberOfRequestsDependsOnNothing(t *testing.T) {
	count := func(pods int) int64 {
		b := newBench(t)
		b.AddPods(pods, sim.PodSpec{Name: "shop/web", MilliCPU: 1})
		b.Advance(20 * time.Minute)
		before := b.server.Queries()
		b.observe()
		return b.server.Queries() - before
	}
	if few, many := count(1), count(200); few != many || few != 11 {
		t.Errorf("%d queries for a pod, %d for 200", few, many)
	}
}
