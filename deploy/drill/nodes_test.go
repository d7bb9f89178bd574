//go:build !race

package drill

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"

	"github.com/muster-dev/muster/nodes"
	"github.com/muster-dev/muster/nodes/daemon"
	"github.com/muster-dev/muster/nodes/sim"
)

// plane is a node plane's daemon on a simulated region and cluster, with the bubble's time, and a Prometheus that scrapes it.
type plane struct {
	t         *testing.T
	simulator *sim.Simulator
	config    nodes.Config
	options   daemon.Options
	prom      *prometheus
	queue     chan nodes.InterruptionEvent // as the cloud's queue brings them
	daemon    atomic.Pointer[daemon.Daemon]
	end       func() // of the daemon
	fault     time.Time
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

// start begins a drill within a bubble: two workers in two zones, half used, and a daemon that ticks every minute.
func start(t *testing.T, change func(*plane)) *plane {
	t.Helper()
	policy := nodes.DefaultPolicy()
	p := &plane{t: t, prom: newPrometheus(t, "nodes"), queue: make(chan nodes.InterruptionEvent, 100)}
	p.simulator = sim.New(sim.Options{Policy: policy, Workers: []string{"a", "b"}, Start: time.Now(), Latency: time.Nanosecond})
	c := p.simulator.Client("daemon", nil)
	p.config = nodes.Config{Policy: policy, Signals: c, Cloud: c, Cluster: patient{c}, Store: c, EventLog: c}
	p.options = daemon.Options{Jitter: 1e-9, Poll: p.poll, TokenExpires: func(context.Context) (time.Time, error) { return time.Now().Add(30 * 24 * time.Hour), nil }}
	p.simulator.AddPods(4, sim.PodSpec{Name: "base", MilliCPU: 500, Memory: 512 << 20})
	if change != nil {
		change(p)
	}
	ctx, stop := context.WithCancel(t.Context())
	t.Cleanup(func() { stop(); p.stop(); synctest.Wait() })
	go func() { // the simulator's time passes with the bubble's
		for (nodes.SystemClock{}).Sleep(ctx, time.Second) == nil {
			p.simulator.Advance(time.Second)
		}
	}()
	p.run()
	p.prom.watch(t, 7*time.Second, 30*time.Second, p.scrape) // not at the moment of a tick
	time.Sleep(20 * time.Minute)                             // so that there is something that the fault changes
	p.fault = time.Now()
	return p
}

// poll brings events as a queue does: what could not be handled comes again.
func (p *plane) poll(ctx context.Context, handle func(context.Context, nodes.InterruptionEvent) error) error {
	for {
		select {
		case e := <-p.queue:
			if handle(ctx, e) != nil {
				p.queue <- e
				_ = nodes.SystemClock{}.Sleep(ctx, 30*time.Second)
			}
		case <-ctx.Done():
			return nil
		}
	}
}

// run starts a daemon, as a Deployment does after the one before has ended.
func (p *plane) run() {
	d, err := daemon.New(p.config, p.options)
	if err != nil {
		p.t.Fatal(err)
	}
	ctx, stop := context.WithCancel(p.t.Context())
	ended := make(chan struct{})
	go func() { defer close(ended); _ = d.Run(ctx) }()
	p.daemon.Store(d)
	p.end = func() { stop(); <-ended }
}

// stop ends the daemon; from then on there is nothing to scrape.
func (p *plane) stop() {
	p.daemon.Store(nil)
	if p.end != nil {
		p.end()
		p.end = nil
	}
}

// scrape reads the daemon's page.
func (p *plane) scrape() map[string][]*dto.MetricFamily {
	d := p.daemon.Load()
	if d == nil {
		return nil
	}
	w := httptest.NewRecorder()
	d.Handler().ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/metrics", nil))
	parser := expfmt.NewTextParser(model.LegacyValidation)
	families, err := parser.TextToMetricFamilies(strings.NewReader(w.Body.String()))
	if err != nil {
		p.t.Errorf("the page can't be read: %v", err)
	}
	var out []*dto.MetricFamily
	for _, f := range families {
		out = append(out, f)
	}
	return map[string][]*dto.MetricFamily{"daemon": out}
}

func (p *plane) launched() (ids []string) {
	for _, in := range p.simulator.Instances() {
		if !in.ControlPlane && in.Alive() {
			ids = append(ids, in.ID)
		}
	}
	return ids
}

func (p *plane) apply(change nodes.Transition) {
	if _, err := p.simulator.Client("person", nil).Apply(p.t.Context(), change); err != nil {
		p.t.Error(err)
	}
}

// wedged is a cloud one of whose calls does not come back, not even when its deadline is over.
type wedged struct {
	nodes.Cloud
	until *atomic.Int64 // Unix seconds
}

func (w wedged) Workers(ctx context.Context) ([]nodes.Instance, error) {
	if left := time.Until(time.Unix(w.until.Load(), 0)); left > 0 {
		time.Sleep(left)
	}
	return w.Cloud.Workers(ctx)
}

// slow is a cloud that takes its time to list instances.
type slow struct{ nodes.Cloud }

func (s slow) Workers(ctx context.Context) ([]nodes.Instance, error) {
	if err := (nodes.SystemClock{}).Sleep(ctx, 8*time.Second); err != nil {
		return nil, err
	}
	return s.Cloud.Workers(ctx)
}

// ahead is a clock that goes before the others.
type ahead struct {
	nodes.SystemClock
	by time.Duration
}

func (a ahead) Now() time.Time { return time.Now().Add(a.by) }

func (a ahead) WithDeadline(ctx context.Context, t time.Time) (context.Context, context.CancelFunc) {
	return context.WithDeadline(ctx, t.Add(-a.by))
}

// nodeDrills fire the alerts of the node plane, by the names under which docs/alerts.md has them.
var nodeDrills = map[string]struct {
	fires []string
	begin func(*plane) // before the daemon starts; nil: nothing
	play  func(*plane)
}{
	"quiet": {play: quietNodes},
	"call-hangs": {fires: []string{"NodesNoTick"}, begin: func(p *plane) {
		p.config.Cloud = wedged{p.config.Cloud, &hangsUntil}
		hangsUntil.Store(0)
	}, play: func(p *plane) {
		hangsUntil.Store(time.Now().Add(12 * time.Minute).Unix())
		time.Sleep(30 * time.Minute)
	}},
	"daemon-stopped": {fires: []string{"NodesDaemonGone"}, play: func(p *plane) {
		p.stop()
		time.Sleep(15 * time.Minute)
	}},
	"store-away": {fires: []string{"NodesTicksFail"}, play: func(p *plane) {
		p.simulator.Outage(sim.StorePart, 0, 15*time.Minute)
		time.Sleep(30 * time.Minute)
	}},
	"prometheus-away": {fires: []string{"NodesBlind", "NodesTicksFail"}, play: func(p *plane) {
		p.simulator.Outage(sim.SignalsPart, 0, 20*time.Minute)
		time.Sleep(40 * time.Minute)
	}},
	"store-away-in-action": {fires: []string{"NodesActionStuck", "NodesTicksFail"}, play: func(p *plane) {
		p.simulator.SetBoots(sim.Boot{After: 5 * time.Minute})
		p.simulator.SetLoad(0.9)
		time.Sleep(7 * time.Minute)
		p.fault = time.Now()
		p.simulator.Outage(sim.StorePart, 0, 50*time.Minute)
		p.simulator.SetLoad(0.5)
		time.Sleep(time.Hour)
	}},
	"nodes-never-join": {fires: []string{"NodesScaleUpsFail"}, play: func(p *plane) {
		p.simulator.SetBoots(sim.Boot{NeverJoins: true}, sim.Boot{NeverJoins: true}, sim.Boot{NeverJoins: true})
		p.simulator.SetLoad(0.9)
		time.Sleep(2 * time.Hour)
	}},
	"launches-refused": {fires: []string{"NodesLaunchesRefused", "NodesScaleUpsFail"}, play: func(p *plane) {
		p.simulator.AddShortage(sim.Shortage{Kind: nodes.FailCapacity, Until: time.Now().Add(3 * time.Hour)})
		p.simulator.SetLoad(0.9)
		time.Sleep(4 * time.Hour)
	}},
	"drains-hang": {fires: []string{"NodesDrainsFail"}, begin: func(p *plane) {
		p.simulator.AddWorker("a", time.Now().Add(-time.Hour))
		p.simulator.AddWorker("b", time.Now().Add(-time.Hour))
		for _, id := range p.launched() {
			p.simulator.AddPodOn(id, sim.PodSpec{Name: "stuck", MilliCPU: 10, Stuck: true})
		}
		p.simulator.SetLoad(0.5)
	}, play: func(p *plane) {
		p.simulator.SetLoad(0.1)
		time.Sleep(3 * time.Hour)
	}},
	"kubelet-dead": {fires: []string{"NodesWorkerNotReady"}, play: func(p *plane) {
		p.simulator.Flap("i-002", 0, 1000*time.Hour) // removed after NOT_READY_TIMEOUT_SEC, and replaced
		time.Sleep(40 * time.Minute)
		if f := p.simulator.Fleet(); p.simulator.Instance("i-002").Alive() || f.Available != 2 {
			p.t.Errorf("i-002 alive %t, %+v", p.simulator.Instance("i-002").Alive(), f)
		}
	}},
	"interruption-blocked": {fires: []string{"NodesInterruptionLate"}, play: func(p *plane) {
		p.simulator.AddPodOn("i-002", sim.PodSpec{Name: "blocked", Blocked: true})
		p.queue <- p.simulator.Announce(nodes.Warning, "i-002")
		time.Sleep(20 * time.Minute)
	}},
	"interruption-not-noted": {fires: []string{"NodesInterruptionsUnhandled"}, play: func(p *plane) {
		p.simulator.Outage(sim.StorePart, 0, 90*time.Second)
		time.Sleep(time.Second)
		p.queue <- p.simulator.Announce(nodes.Rebalance, "i-002")
		time.Sleep(40 * time.Minute)
	}},
	"pods-beyond-the-limit": {fires: []string{"NodesPodsWait"}, play: func(p *plane) {
		p.simulator.AddPods(80, sim.PodSpec{Name: "many", MilliCPU: 900, Memory: 256 << 20}) // ten workers have room for 20
		time.Sleep(2 * time.Hour)
	}},
	"paused": {fires: []string{"NodesPausedLong"}, play: func(p *plane) {
		p.apply(nodes.PauseScaling{Now: time.Now(), By: "drill", Reason: "to see whether it is noticed"})
		time.Sleep(4*time.Hour + 10*time.Minute)
		p.apply(nodes.ResumeScaling{})
		time.Sleep(10 * time.Minute)
	}},
	"token-expires": {fires: []string{"NodesTokenExpires"}, begin: func(p *plane) {
		at := time.Now().Add(20*time.Minute + 25*time.Hour)
		p.options.TokenExpires = func(context.Context) (time.Time, error) { return at, nil }
	}, play: func(*plane) {
		time.Sleep(2 * time.Hour)
	}},
	"clocks-differ": {fires: []string{"NodesLeaseLost", "NodesTicksFail"}, begin: func(p *plane) { p.config.Cloud = slow{p.config.Cloud} }, play: clocksDiffer},
}

var hangsUntil atomic.Int64

// clocksDiffer runs a second daemon whose clock is two minutes ahead, so that every lease has ended for it, beside ticks that take long.
func clocksDiffer(p *plane) {
	other := p.simulator.Client("other", nil)
	c := p.config
	c.Signals, c.Cloud, c.Cluster, c.Store, c.EventLog, c.Clock = other, slow{other}, patient{other}, other, other, ahead{by: 2 * time.Minute}
	d, err := daemon.New(c, daemon.Options{Jitter: 1e-9})
	if err != nil {
		p.t.Fatal(err)
	}
	ctx, stop := context.WithCancel(p.t.Context())
	ended := make(chan struct{})
	time.Sleep(5 * time.Second)
	go func() { defer close(ended); _ = d.Run(ctx) }()
	time.Sleep(90 * time.Minute)
	stop()
	<-ended
}

// quietNodes is an ordinary day: load comes and goes, instances are warned, a zone is short for a while, the daemon is replaced, somebody
// pauses scaling for an hour.
func quietNodes(p *plane) {
	p.simulator.AddPods(9, sim.PodSpec{Name: "noon", MilliCPU: 500, Memory: 512 << 20})
	time.Sleep(time.Hour)
	p.simulator.AddShortage(sim.Shortage{Zone: "a", Kind: nodes.FailCapacity, Until: time.Now().Add(30 * time.Minute)})
	p.simulator.AddPods(6, sim.PodSpec{Name: "peak", MilliCPU: 500, Memory: 512 << 20})
	time.Sleep(time.Hour)
	ids := p.launched()
	p.queue <- p.simulator.Announce(nodes.Warning, ids[len(ids)-1])
	time.Sleep(30 * time.Minute)
	p.queue <- p.simulator.Announce(nodes.Rebalance, p.launched()[0])
	time.Sleep(time.Hour)
	p.stop()
	time.Sleep(90 * time.Second)
	p.run()
	p.simulator.RemovePods("peak")
	p.simulator.RemovePods("noon")
	time.Sleep(2 * time.Hour)
	p.apply(nodes.PauseScaling{Now: time.Now(), By: "drill", Reason: "maintenance"})
	time.Sleep(time.Hour)
	p.apply(nodes.ResumeScaling{})
	p.simulator.Outage(sim.SignalsPart, 0, 2*time.Minute)
	p.simulator.Outage(sim.StorePart, 20*time.Minute, 2*time.Minute)
	p.simulator.Outage(sim.ClusterPart, 40*time.Minute, 2*time.Minute)
	time.Sleep(time.Hour)
	f := p.simulator.Fleet()
	p.t.Logf("at the end %+v after %d instances", f, len(p.simulator.Instances()))
	if f.Pending > 0 || len(p.simulator.Instances()) < 6 {
		p.t.Error(errors.New("too little happened"))
	}
}

func TestNodeAlerts(t *testing.T) {
	t.Parallel()
	for name, d := range nodeDrills {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				p := start(t, d.begin)
				d.play(p)
				p.prom.check(t, name, p.fault, d.fires...)
			})
		})
	}
}
