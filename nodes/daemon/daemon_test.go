package daemon_test

import (
	"context"
	"errors"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	dto "github.com/prometheus/client_model/go"

	"github.com/muster-dev/muster/internal/output"
	"github.com/muster-dev/muster/nodes"
	"github.com/muster-dev/muster/nodes/daemon"
	"github.com/muster-dev/muster/nodes/sim"
)

// stage is a daemon on a simulated cluster whose time is the bubble's.
type stage struct {
	simulator *sim.Simulator
	d         *daemon.Daemon
	log       *output.Buffer
	stop      context.CancelFunc
	done      chan error
}

// start runs a daemon within a synctest bubble.
func start(t *testing.T, o daemon.Options, change func(*nodes.Config)) *stage {
	t.Helper()
	p := nodes.DefaultPolicy()
	s := &stage{log: &output.Buffer{}, done: make(chan error, 1)}
	s.simulator = sim.New(sim.Options{Policy: p, Workers: []string{"a", "b"}, Start: time.Now(), Latency: time.Nanosecond})
	c := s.simulator.Client("A", nil)
	config := nodes.Config{Policy: p, Signals: c, Cloud: c, Cluster: patient{c}, Store: c, EventLog: c}
	if change != nil {
		change(&config)
	}
	o.Jitter = 1e-9 // what happens when is part of what is tested
	o.Log = slog.New(slog.NewTextHandler(s.log, nil))
	var err error
	if s.d, err = daemon.New(config, o); err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	s.stop = stop
	go func() { // the simulator's time passes with the bubble's
		for (nodes.SystemClock{}).Sleep(ctx, time.Second) == nil {
			s.simulator.Advance(time.Second)
		}
	}()
	go func() { s.done <- s.d.Run(ctx) }()
	return s
}

// patient drains in the bubble's time: a sim.Client would let the simulator's time jump instead of waiting.
type patient struct{ nodes.Cluster }

func (p patient) Drain(ctx context.Context, req nodes.DrainRequest) (nodes.DrainProgress, error) {
	for {
		now := req
		now.Until = time.Time{} // evict and tell, without waiting
		progress, err := p.Cluster.Drain(ctx, now)
		if err != nil || progress.Done || !time.Now().Before(req.Until) {
			return progress, err
		}
		if err := (nodes.SystemClock{}).Sleep(ctx, time.Second); err != nil {
			return progress, err
		}
	}
}

// end stops the daemon and returns how long that took.
func (s *stage) end(t *testing.T) time.Duration {
	t.Helper()
	began := time.Now()
	s.stop()
	if err := <-s.done; err != nil {
		t.Errorf("it ended with %v", err)
	}
	return time.Since(began)
}

func (s *stage) page(path string) (int, string) {
	w := httptest.NewRecorder()
	s.d.Handler().ServeHTTP(w, httptest.NewRequest(http.MethodGet, path, nil))
	return w.Code, w.Body.String()
}

// TestAPauseHidesNoMissingMetrics: the alert NodesBlind goes by the readings' absence, and what is counted names what is missing.
func TestAPauseHidesNoMissingMetrics(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := start(t, daemon.Options{}, nil)
		if _, err := s.simulator.Client("alice", nil).Apply(t.Context(), nodes.PauseScaling{Now: time.Now(), By: "alice", Reason: "inventory"}); err != nil {
			t.Fatal(err)
		}
		time.Sleep(2*time.Minute + 30*time.Second)
		if _, body := s.page("/metrics"); !strings.Contains(body, "muster_nodes_cpu_ratio") || !strings.Contains(body, `reason="PAUSED"`) {
			t.Errorf("while the metrics are there:\n%s", body)
		}
		s.simulator.Outage(sim.SignalsPart, 0, time.Hour)
		time.Sleep(3 * time.Minute)
		_, body := s.page("/metrics")
		if strings.Contains(body, "muster_nodes_cpu_ratio") || !strings.Contains(body, `muster_nodes_decisions_total{action="NOOP",reason="METRICS_UNAVAILABLE"}`) || strings.Contains(body, "muster_nodes_paused_seconds 0") {
			t.Errorf("while they are not:\n%s", body)
		}
		s.end(t)
	})
}

// spotPricer is a cloud in which Spot costs the same everywhere, and which tells no On-Demand price.
type spotPricer float64

func (spotPricer) OnDemandPrices(context.Context, []string) (map[string]float64, error) {
	return nil, errors.New("denied")
}

func (p spotPricer) SpotPrices(_ context.Context, types, zones []string) (map[string]map[string]float64, error) {
	out := map[string]map[string]float64{}
	for _, z := range zones {
		out[z] = map[string]float64{}
		for _, name := range types {
			out[z][name] = float64(p)
		}
	}
	return out, nil
}

func TestTheCostIsThatOfCurrentPrices(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		table := func(string, nodes.Market, string) (float64, bool) { return 0.1, true }
		s := start(t, daemon.Options{Price: table}, func(c *nodes.Config) { c.Pricer = spotPricer(0.25) })
		s.simulator.SetLoad(0.5)
		time.Sleep(90 * time.Second)
		if _, body := s.page("/metrics"); !strings.Contains(body, `muster_nodes_cost_dollars_per_hour{market="spot"} 0.5`) {
			t.Errorf("two workers at 0.25 USD each:\n%s", body)
		}
		s.end(t)
	})
}

func TestADaemonTicksEveryIntervalAndTellsOfIt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		prices := func(_ string, m nodes.Market, _ string) (float64, bool) { return 0.1, m == nodes.Spot }
		s := start(t, daemon.Options{Price: prices, TokenExpires: func(context.Context) (time.Time, error) { return time.Now().Add(time.Hour), nil }}, nil)
		s.simulator.SetLoad(0.9)
		time.Sleep(7 * time.Minute)
		s.simulator.SetLoad(0.5) // or there would soon be another scale-up
		time.Sleep(3*time.Minute + 30*time.Second)
		if n := testutil.CollectAndCount(s.d.Metrics, "muster_nodes_tick_duration_seconds"); n != 1 {
			t.Errorf("%d series of durations", n)
		}
		code, body := s.page("/metrics")
		for _, want := range []string{
			`muster_nodes_ticks_total{result="decided"}`, `muster_nodes_ticks_total{result="carried-on"} 2`,
			`muster_nodes_decisions_total{action="SCALE_UP",reason="TRIGGERED"} 1`,
			`muster_nodes_decisions_total{action="NOOP",reason="CPU_HIGH_TOO_SHORT"}`,
			`muster_nodes_launches_total{market="spot",result="launched",zone="a"} 1`,
			`muster_nodes_action_duration_seconds_count{kind="scale-up",result="completed"} 1`,
			`muster_nodes_events_total{kind="scaleUp.completed"} 1`,
			`muster_nodes_workers{market="spot",state="ready",zone="a"} 2`, `muster_nodes_workers{market="spot",state="ready",zone="b"} 1`,
			`muster_nodes_cost_dollars_per_hour{market="spot"} 0.3`, `muster_nodes_workers_without_price 0`,
			`muster_nodes_max_workers 10`, `muster_nodes_cpu_ratio 0.5`, `muster_nodes_action_age_seconds 0`,
			`muster_nodes_cooldown_seconds_left{of="scale-up"}`, `muster_nodes_kubernetes_token_expires_timestamp_seconds`,
			`muster_nodes_call_duration_seconds_count{call="cloud.Launch"} 1`,
			// What has not happened is 0, so that its first time is an increase.
			`muster_nodes_ticks_total{result="failed"} 0`, `muster_nodes_interruption_events_total{result="failed"} 0`,
			`muster_nodes_launches_total{market="on-demand",result="capacity",zone="b"} 0`, `muster_nodes_drains_total{result="blocked"} 0`, `muster_nodes_errors_total{call="cloud.Launch"} 0`,
			`muster_nodes_action_duration_seconds_count{kind="scale-down",result="failed"} 0`,
		} {
			if code != 200 || !strings.Contains(body, want) {
				t.Errorf("status %d, the metrics lack %s", code, want)
			}
		}
		if n := strings.Count(s.log.String(), "msg=tick "); n < 10 || n > 12 {
			t.Errorf("%d ticks in ten and a half minutes", n)
		}
		if !strings.Contains(s.log.String(), "token expires soon") {
			t.Error("it does not warn of a token that expires in an hour")
		}
		for _, path := range []string{"/healthz", "/readyz"} {
			if code, body := s.page(path); code != 200 {
				t.Errorf("%s: %d %s", path, code, body)
			}
		}
		if problems, err := testutil.GatherAndLint(gatherer{s.d}); err != nil || len(problems) > 0 {
			t.Errorf("the metrics' names: %v, %v", problems, err)
		}
		doc, err := os.ReadFile("../../docs/nodes/reference.md")
		if err != nil {
			t.Fatal(err)
		}
		families, err := gatherer{s.d}.Gather()
		if err != nil || len(families) < 25 {
			t.Errorf("%d metrics, %v", len(families), err)
		}
		for _, f := range families {
			if !strings.Contains(string(doc), strings.TrimPrefix(f.GetName(), "muster_nodes")) {
				t.Errorf("docs/nodes/reference.md says nothing of %s", f.GetName())
			}
		}
		s.end(t)
		if r := s.simulator.Record(); r.LeaseOwner != "" {
			t.Errorf("the lease is still held by %s", r.LeaseOwner)
		}
	})
}

func TestTheAgeOfAnActionThatHangsGrows(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := start(t, daemon.Options{}, nil)
		s.simulator.SetBoots(sim.Boot{NeverJoins: true})
		s.simulator.SetLoad(0.9)
		time.Sleep(8 * time.Minute)
		_, body := s.page("/metrics")
		if !strings.Contains(body, `muster_nodes_action_phase{kind="scale-up",phase="verifying"} 1`) || !strings.Contains(body, `phase="draining"} 0`) {
			t.Errorf("no phase in\n%s", grep(body, "action_"))
		}
		if age := grep(body, "action_age_seconds "); !strings.Contains(age, "seconds 2") && !strings.Contains(age, "seconds 3") { // two hundred and something
			t.Errorf("%s", age)
		}
		s.end(t)
	})
}

func grep(body, what string) string {
	var out []string
	for _, l := range strings.Split(body, "\n") {
		if strings.Contains(l, what) && !strings.HasPrefix(l, "#") {
			out = append(out, l)
		}
	}
	return strings.Join(out, "\n")
}

// slowCloud takes its time to launch, by the real clock, as a cloud does.
type slowCloud struct {
	nodes.Cloud
	takes   time.Duration
	begun   chan struct{}
	ignores bool // its context's end
}

func (c slowCloud) Launch(ctx context.Context, req nodes.LaunchRequest) (nodes.Instance, error) {
	c.begun <- struct{}{}
	wait := ctx
	if c.ignores {
		wait = context.WithoutCancel(ctx)
	}
	if err := (nodes.SystemClock{}).Sleep(wait, c.takes); err != nil {
		return nodes.Instance{}, err
	}
	return c.Cloud.Launch(ctx, req)
}

func TestADaemonThatIsStoppedInTheMiddleOfALaunchRecordsItAndGivesTheLeaseBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		begun := make(chan struct{}, 10)
		s := start(t, daemon.Options{}, func(c *nodes.Config) { c.Cloud = slowCloud{Cloud: c.Cloud, takes: 8 * time.Second, begun: begun} })
		s.simulator.AddPods(60, sim.PodSpec{Name: "p", MilliCPU: 500, Memory: 1 << 20}) // wants several nodes
		<-begun
		if took := s.end(t); took < 7*time.Second || took > 20*time.Second {
			t.Errorf("it took %v to stop", took)
		}
		r := s.simulator.Record()
		if r.LeaseOwner != "" || !r.ScalingUp() || len(r.ScaleUpInstanceIDs) != 1 || r.ScaleUpIntent != nil {
			t.Errorf("it left %+v", r)
		}
		if len(begun) > 0 {
			t.Error("it began another launch after it was stopped")
		}
	})
}

func TestATickThatDoesNotEndIsCutOffAndItsLeaseGivenBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		hang := &hanging{hangs: make(chan struct{}, 10)}
		s := start(t, daemon.Options{StopTimeout: 10 * time.Second}, func(c *nodes.Config) { hang.Cluster = c.Cluster; c.Cluster = hang })
		time.Sleep(30 * time.Second)
		hang.on.Store(true)
		<-hang.hangs // the second tick, in its look at the nodes
		if s.simulator.Record().LeaseOwner == "" {
			t.Fatal("the tick that hangs holds no lease")
		}
		if took := s.end(t); took > 13*time.Second {
			t.Errorf("it took %v to stop", took)
		}
		if r := s.simulator.Record(); r.LeaseOwner != "" {
			t.Errorf("the lease is still held by %s", r.LeaseOwner)
		}
	})
}

// hanging does not answer View, if it is told to, until its context ends.
type hanging struct {
	nodes.Cluster
	on    atomic.Bool
	hangs chan struct{}
}

func (h *hanging) View(ctx context.Context) (nodes.View, error) {
	if !h.on.Load() {
		return h.Cluster.View(ctx)
	}
	h.hangs <- struct{}{}
	<-ctx.Done()
	return nodes.View{}, ctx.Err()
}

func TestHealthTellsWhatIsWrong(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		first := make(chan struct{})
		s := start(t, daemon.Options{}, func(c *nodes.Config) { c.Signals = waitingSignals{c.Signals, first} })
		synctest.Wait()
		if code, body := s.page("/readyz"); code != 503 || !strings.Contains(body, "first tick") {
			t.Errorf("before the first tick: %d %s", code, body)
		}
		close(first)
		time.Sleep(time.Minute)
		if code, body := s.page("/readyz"); code != 200 {
			t.Errorf("after it: %d %s", code, body)
		}
		s.simulator.Outage(sim.StorePart, 0, 20*time.Minute)
		time.Sleep(4 * time.Minute)
		if code, body := s.page("/readyz"); code != 503 || !strings.Contains(body, "did not reach the record") {
			t.Errorf("without its store: %d %s", code, body)
		}
		if code, _ := s.page("/healthz"); code != 200 { // a restart would not help
			t.Errorf("it calls itself dead without its store: %d", code)
		}
		_, body := s.page("/metrics")
		if !strings.Contains(body, `muster_nodes_ticks_total{result="failed"}`) || !strings.Contains(body, `muster_nodes_errors_total{call="store.Apply"}`) {
			t.Errorf("no failures in %s", grep(body, "_total"))
		}
		time.Sleep(20 * time.Minute)
		if code, body := s.page("/readyz"); code != 200 {
			t.Errorf("after the outage: %d %s", code, body)
		}
		s.end(t)
		if code, body := s.page("/readyz"); code != 503 || !strings.Contains(body, "stopping") {
			t.Errorf("when it is stopped: %d %s", code, body)
		}
	})
}

type waitingSignals struct {
	nodes.Signals
	until chan struct{}
}

func (w waitingSignals) Observe(ctx context.Context) (nodes.Readings, error) {
	<-w.until
	return w.Signals.Observe(ctx)
}

func TestInterruptionsFromAQueueAreWorkedAndShownWithTheirTimeLeft(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		events := make(chan nodes.InterruptionEvent)
		results := make(chan error, 4)
		polls := 0
		poll := func(ctx context.Context, handle func(context.Context, nodes.InterruptionEvent) error) error {
			if polls++; polls == 1 {
				return errors.New("queue not there yet")
			}
			for {
				select {
				case e := <-events:
					results <- handle(ctx, e)
				case <-ctx.Done():
					return nil
				}
			}
		}
		s := start(t, daemon.Options{Poll: poll}, nil)
		time.Sleep(30 * time.Second)
		s.simulator.AddPodOn("i-002", sim.PodSpec{Name: "stuck", Blocked: true})
		go func() { events <- s.simulator.Announce(nodes.Warning, "i-002") }()
		time.Sleep(25 * time.Second)
		_, body := s.page("/metrics")
		if !strings.Contains(body, `muster_nodes_interruptions_open{kind="warning"} 1`) || !strings.Contains(body, `muster_nodes_interruption_seconds_left{drained="false",instance="i-002",kind="warning"} 8`) {
			t.Errorf("soon after the warning:\n%s", grep(body, "interruption"))
		}
		time.Sleep(5 * time.Minute)
		_, body = s.page("/metrics")
		if !strings.Contains(body, `muster_nodes_interruptions_open{kind="warning"} 0`) || !strings.Contains(body, `interruption_events_total{result="noted"} 1`) {
			t.Errorf("after it:\n%s", grep(body, "interruption"))
		}
		if !strings.Contains(body, `muster_nodes_errors_total{call="queue.Poll"} 1`) {
			t.Errorf("the failed poll is not counted: %s", grep(body, "errors"))
		}
		if err := <-results; err != nil {
			t.Errorf("the handler returned %v", err)
		}
		if f := s.simulator.Fleet(); f.Available != 2 {
			t.Errorf("the interrupted worker was not replaced: %+v", f)
		}
		s.end(t)
	})
}

type gatherer struct{ d *daemon.Daemon }

// Gather returns the daemon's own metrics.
func (g gatherer) Gather() ([]*dto.MetricFamily, error) {
	reg := prometheus.NewPedanticRegistry()
	if err := reg.Register(g.d.Metrics); err != nil {
		return nil, err
	}
	return reg.Gather()
}

// TestTicked: a listener that shows the state is told of every tick, and of the error of one that failed.
func TestTicked(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var ticks, failed atomic.Int32
		s := start(t, daemon.Options{Ticked: func(_ context.Context, err error) {
			ticks.Add(1)
			if err != nil {
				failed.Add(1)
			}
		}}, nil)
		time.Sleep(150 * time.Second)
		if ticks.Load() != 3 || failed.Load() != 0 {
			t.Errorf("after 150 s: %d ticks, %d failed, want 3 and 0", ticks.Load(), failed.Load())
		}
		s.simulator.Outage(sim.StorePart, 0, time.Hour)
		time.Sleep(time.Minute)
		if failed.Load() != 1 {
			t.Errorf("of the tick without a store: %d failed, want 1", failed.Load())
		}
		s.end(t)
	})
}
