package local

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/muster-dev/muster/console"
	"github.com/muster-dev/muster/defender"
	"github.com/muster-dev/muster/internal/lab/instances"
	"github.com/muster-dev/muster/internal/lab/machines"
	"github.com/muster-dev/muster/nodes"
	"github.com/muster-dev/muster/nodes/daemon"
	"github.com/muster-dev/muster/nodes/explain"
	"github.com/muster-dev/muster/nodes/fit"
	"github.com/muster-dev/muster/nodes/kube"
	"github.com/muster-dev/muster/nodes/sim"
	"github.com/muster-dev/muster/nodes/sim/region"
	"github.com/muster-dev/muster/nodes/workers"
	"github.com/muster-dev/muster/partition/report"
	"github.com/muster-dev/muster/partition/role"
)

const (
	BootTime     = 18 * time.Second // of a node, from launch to Ready
	tickInterval = 500 * time.Millisecond
	stopTimeout  = 5 * time.Second // for a tick to end when the cluster is closed
)

// Cluster is a region whose nodes the defenders run on, with the node plane that scales it: a pod that becomes Running is a real
// defender that is started, and one that is evicted is a real defender that is told to stop.
type Cluster struct {
	workers  *WorkerPlane
	shown    shown
	Region   *region.Region
	platform platform
	deploy   deployment
	plane    nodes.Config
	api      *kube.Cluster
	view     *nodes.Reconciler // reads and decides for the console, and does nothing
	metrics  *daemon.Metrics
	queue    chan queued // of interruption events

	stop    context.CancelFunc
	closing atomic.Bool
	running sync.WaitGroup
	errs    chan error
	price   console.Pricer
	Asks    bool // the node plane asks the defenders to hand off, and tells them how many they should be

	mu     sync.Mutex
	pods   map[string]*podProcess
	latest nodes.Snapshot
	// foreseen is what would have to happen after the decision of foreseenAt.
	foreseen   explain.Outlook
	foreseenAt time.Time
	tickEr     error
	spent      float64 // US dollars
}

// shown is what shows the node plane to a person.
type shown interface {
	Changed()
	Say(console.Moment)
}

// unseen stands for no console.
type unseen struct{}

func (unseen) Changed()           {}
func (unseen) Say(console.Moment) {}

// podProcess is the defender in a pod.
type podProcess struct {
	*Process
	node string
	once sync.Once // of Stop
	end  sync.Once // of Kill
}

// Stop is the pod's SIGTERM.
func (p *podProcess) Stop() { p.once.Do(p.Process.Stop) }

// Kill ends the defender as its machine ends.
func (p *podProcess) Kill() {
	p.once.Do(func() {}) // too late for a SIGTERM
	p.end.Do(func() { p.Process.Kill() })
}

// Done implements sim.Process.
func (p *podProcess) Done() <-chan struct{} { return p.Process.Done }

// clusterPolicy has times short enough to be waited for.
func clusterPolicy(workers int, pendingUp time.Duration) nodes.Policy {
	p := nodes.DefaultPolicy()
	p.Cluster = "fab"
	p.PendingUpFor, p.CPUUpFor, p.IdleDownFor = pendingUp, 10*time.Second, 4*time.Second
	p.CooldownUp, p.CooldownDown = 2*time.Second, 2*time.Second
	p.CPUUp, p.CPUDown = 0.95, 0.30
	p.MinWorkers, p.MaxWorkers, p.PodsPerNode = min(workers, 3), workers+5, DefendersPerNode
	p.JoinTimeout, p.DrainTimeout, p.ScaleDownStuck = 2*time.Minute, 90*time.Second, 200*time.Second
	return p
}

// openCluster starts the region, the deployment and the node plane; see [Stack.OpenCluster].
func openCluster(ctx context.Context, w *WorkerPlane, s shown, zones []string, asks bool, pendingUp time.Duration) (*Cluster, error) {
	simulated := sim.Options{Policy: clusterPolicy(len(zones), pendingUp), Workers: zones, Boot: cmp.Or(w.o.boot, BootTime), Visible: time.Second}
	o := region.Options{Sim: simulated, Dir: w.Dir, Scrape: time.Second}
	var booted *instances.Instances
	if w.o.RealNodes != NoRealNodes {
		// The first workers are launched like all others, once there is what they join.
		booted = newInstances(w.o.RealNodes)
		o.Machines, o.Sim.Workers = booted, nil
	}
	r, err := region.Start(o)
	if err != nil {
		return nil, err
	}
	t := &Cluster{workers: w, shown: s, Region: r, price: pricesOf(fit.Shipped()), Asks: asks, stop: func() {}, pods: map[string]*podProcess{},
		errs: make(chan error, 3), queue: make(chan queued)}
	if booted != nil {
		t.platform, err = openRealNodes(ctx, w, r, booted, zones)
	} else {
		t.platform, err = openPlatform(ctx, w.o, w.Dir, w.Timeline, r)
	}
	if err != nil {
		return nil, errors.Join(err, r.Close())
	}
	if err := t.open(ctx); err != nil {
		return nil, errors.Join(err, t.close())
	}
	return t, nil
}

// pricesOf tells prices by the table of instance types that comes with Muster.
func pricesOf(c fit.Catalog) console.Pricer {
	return func(instanceType string, market nodes.Market) (float64, bool) {
		p := c[instanceType].Price(market)
		return p, p > 0
	}
}

func (t *Cluster) open(ctx context.Context) (err error) {
	if t.plane, err = t.platform.plane(ctx); err != nil {
		return err
	}
	var ok bool
	if t.api, ok = t.plane.Cluster.(*kube.Cluster); !ok {
		return errors.New("the local cluster is not reached by the Kubernetes API")
	}
	t.plane.Cloud = slow{t.plane.Cloud, t.workers.o.launch}
	t.plane.EventLog = told{t.plane.EventLog, t.logged}
	t.plane.Store = timed{t.plane.Store, t.wrote, t.recorded}
	nc, err := t.workers.As(role.Nodes)
	if err != nil {
		return err
	}
	nodePlane, err := t.newDaemon(workers.New(nc, defender.Group))
	if err != nil {
		return err
	}
	t.platform.setLoad(0.6)
	if t.deploy, err = t.platform.deploy(ctx, t); err != nil {
		return err
	}
	running, cancel := context.WithCancel(context.Background())
	t.stop = cancel
	t.running.Go(func() {
		if err := t.deploy.Run(running); err != nil {
			t.errs <- err
		}
	})
	t.running.Go(func() {
		if err := nodePlane.Run(running); err != nil {
			t.errs <- err
		}
	})
	return nil
}

// newDaemon returns the daemon that muster nodes run runs, with ticks that follow each other sooner.
func (t *Cluster) newDaemon(defenders *workers.Plane) (*daemon.Daemon, error) {
	o := daemon.Options{Interval: tickInterval, StopTimeout: stopTimeout, Poll: t.poll, Ticked: t.ticked,
		Price: func(instanceType string, market nodes.Market, _ string) (float64, bool) {
			return t.price(instanceType, market)
		}}
	if t.Asks {
		t.plane.WorkerPlane = defenders
		quiet := slog.New(slog.DiscardHandler) // the defenders' windows show it
		o.Follow = func(ctx context.Context) error {
			return defenders.Follow(ctx, nil, quiet, func(ctx context.Context) (int, error) { return t.api.Replicas(ctx, deployedIn, deployedAs) })
		}
	}
	d, err := daemon.New(t.plane, o)
	if err != nil {
		return nil, err
	}
	t.metrics = d.Metrics
	t.view, err = nodes.New(t.plane)
	return d, err
}

func (t *Cluster) close() error {
	t.closing.Store(true)
	t.stop()
	t.running.Wait()
	return errors.Join(t.platform.close(), t.Region.Close())
}

// slow is a cloud that takes its time to launch an instance, as EC2 does.
type slow struct {
	nodes.Cloud
	launch time.Duration
}

func (s slow) Launch(ctx context.Context, req nodes.LaunchRequest) (nodes.Instance, error) {
	if err := (nodes.SystemClock{}).Sleep(ctx, s.launch); err != nil {
		return nodes.Instance{}, err
	}
	return s.Cloud.Launch(ctx, req)
}

// told passes events on when they are logged.
type told struct {
	nodes.EventLog
	tell func(nodes.Event)
}

func (j told) Append(ctx context.Context, e nodes.Event) error {
	err := j.EventLog.Append(ctx, e)
	j.tell(e)
	return err
}

// timed passes the record and interruptions, with the steps, on when they are written down.
type timed struct {
	nodes.Store
	tell   func(step string, i nodes.Interruption)
	record func(nodes.Record)
}

func (s timed) Apply(ctx context.Context, tr nodes.Transition) (nodes.Record, error) {
	r, err := s.Store.Apply(ctx, tr)
	if err == nil {
		s.record(r)
	}
	return r, err
}

func (s timed) ApplyInterruption(ctx context.Context, id string, tr nodes.InterruptionTransition) (nodes.Interruption, error) {
	i, err := s.Store.ApplyInterruption(ctx, id, tr)
	if err == nil {
		s.tell(tr.Name(), i)
	}
	return i, err
}

// wrote shows at once what a step of an interruption has written down, as recorded does.
func (t *Cluster) wrote(step string, i nodes.Interruption) {
	if t.workers.hooks.Interruption != nil {
		t.workers.hooks.Interruption(step)
	}
	t.mu.Lock()
	all := slices.DeleteFunc(slices.Clone(t.latest.Observation.Interruptions), func(o nodes.Interruption) bool { return o.InstanceID == i.InstanceID })
	t.latest.Observation.Interruptions = append(all, i)
	t.mu.Unlock()
	t.shown.Changed()
}

// recorded shows what is durable at once: a tick that launches or drains takes a while.
func (t *Cluster) recorded(r nodes.Record) {
	t.mu.Lock()
	t.latest.Record = r
	t.mu.Unlock()
	t.shown.Changed()
}

// ticked shows the state that a tick has left.
func (t *Cluster) ticked(ctx context.Context, err error) {
	snap, planErr := t.view.Plan(ctx)
	t.mu.Lock()
	if planErr == nil {
		t.look(snap)
	}
	t.tickEr = err
	t.mu.Unlock()
	t.shown.Changed()
}

// queued is an interruption event in the daemon's queue.
type queued struct {
	event   nodes.InterruptionEvent
	handled chan error
}

// poll is the daemon's queue of interruption events.
func (t *Cluster) poll(ctx context.Context, handle func(context.Context, nodes.InterruptionEvent) error) error {
	var handling sync.WaitGroup
	defer handling.Wait()
	for {
		select {
		case q := <-t.queue:
			handling.Go(func() { q.handled <- handle(ctx, q.event) })
		case <-ctx.Done():
			return nil
		}
	}
}

// Interrupt has the node plane handle an interruption, and returns when it has.
func (t *Cluster) Interrupt(ctx context.Context, e nodes.InterruptionEvent) {
	q := queued{e, make(chan error, 1)}
	select {
	case t.queue <- q:
	case <-ctx.Done():
		return
	}
	select {
	case err := <-q.handled:
		if err != nil {
			t.workers.Say("node plane: %v", err)
		}
	case <-ctx.Done():
	}
}

// decided shows a decision before it is carried out.
func (t *Cluster) decided(data []byte) {
	var snap nodes.Snapshot
	if json.Unmarshal(data, &snap) != nil {
		return // the next tick shows it
	}
	t.mu.Lock()
	t.look(snap)
	t.mu.Unlock()
	t.shown.Changed()
}

// look takes in a newer snapshot, and adds what the nodes have cost since the one before.
func (t *Cluster) look(s nodes.Snapshot) {
	if c := console.NodePlaneOf(t.latest, t.price).CostPerHour; c != nil && !t.latest.Now.IsZero() {
		t.spent += *c * max(0, s.Now.Sub(t.latest.Now).Hours())
	}
	t.latest = s
}

// logged tells what the node plane did as it does it.
func (t *Cluster) logged(e nodes.Event) {
	switch e.Kind {
	case "decision":
		t.decided(e.Data)
		return
	case "lease.held", "scaleUp.waiting":
		return
	case "error":
		if t.closing.Load() {
			return // a tick that was broken off
		}
		t.workers.Say("node plane: %s", e.Message)
	default:
		t.workers.Say("node plane: %s %s %s", e.Kind, e.Instance, e.Message)
	}
	t.shown.Say(console.MomentOf(e))
}

// startPod starts the defender of a pod.
func (t *Cluster) startPod(run sim.PodRun) (sim.Process, error) {
	p, err := t.workers.Defenders.launch(context.Background(), run.Pod, run.Node)
	if err != nil {
		return nil, err
	}
	return t.enter(p, run), nil
}

// adoptPod enters the defender of a pod that a real node's kubelet has started.
func (t *Cluster) adoptPod(c *machines.Container) sim.Process {
	return t.enter(t.workers.Defenders.adopt(c), c.PodRun)
}

// enter enters the defender of a pod, and returns what ends it.
func (t *Cluster) enter(p *Process, run sim.PodRun) sim.Process {
	pod := t.attend(p, run)
	if t.workers.hooks.Pod != nil {
		return t.workers.hooks.Pod(run, p, pod)
	}
	return pod
}

// attend enters the defender of a pod, and follows it to its end.
func (t *Cluster) attend(p *Process, run sim.PodRun) *podProcess {
	p.startsAgain()
	pod := &podProcess{Process: p, node: run.Node}
	t.mu.Lock()
	t.pods[run.Pod] = pod
	t.mu.Unlock()
	go func() {
		<-p.Done
		if p.Err != nil && !t.closing.Load() {
			t.workers.Say("%v; its pod starts it again soon", p.Err)
		}
	}()
	return pod
}

// Wait waits for something of the cluster and fails early if a pod can't be started.
func (t *Cluster) Wait(ctx context.Context, within time.Duration, what string, ok func() bool) error {
	select {
	case err := <-t.errs:
		return err
	default:
	}
	if err := t.workers.Wait(ctx, within, what, ok); err != nil {
		t.mu.Lock()
		defer t.mu.Unlock()
		d := t.latest.Decision
		return fmt.Errorf("%w; fleet %+v, last decision %s %s %s, last tick's error: %s", err, t.platform.fleet(), d.Action, d.Reason, d.Detail, fmt.Sprint(t.tickEr))
	}
	return nil
}

// Scale sets the number of defenders that the cluster is to run.
func (t *Cluster) Scale(ctx context.Context, n int) error { return t.deploy.scale(ctx, n) }

// SetLoad sets the load that the metrics show of every node, 1 at most.
func (t *Cluster) SetLoad(load float64) { t.platform.setLoad(load) }

// Fleet counts the nodes.
func (t *Cluster) Fleet() sim.Fleet { return t.platform.fleet() }

// Policy returns the node plane's policy.
func (t *Cluster) Policy() nodes.Policy { return t.plane.Policy }

// Phases counts the pods that run and that are pending.
func (t *Cluster) Phases() (running, pending int) {
	for _, p := range t.deploy.Pods() {
		switch p.Phase {
		case sim.PodRunning:
			running++
		case sim.PodPending:
			pending++
		case sim.PodTerminating:
		}
	}
	return running, pending
}

// Ledger returns the entries of a kind since a time.
func (t *Cluster) Ledger(kind sim.Kind, since time.Time) []sim.Entry {
	var out []sim.Entry
	for _, e := range t.platform.ledger() {
		if e.Kind == kind && !e.At.Before(since) {
			out = append(out, e)
		}
	}
	return out
}

// NodeHours adds up how long instances lived, the control plane aside.
func (t *Cluster) NodeHours() float64 {
	return t.Region.Simulator.NodeTime().Hours()
}

// scaling is what pauses and resumes the node plane.
func (t *Cluster) scaling() nodes.Switch {
	return nodes.Switch{Store: t.plane.Store, EventLog: t.plane.EventLog, Clock: t.plane.Clock}
}

// outlook works out what would have to happen for an action, once for each decision. The caller has the lock.
func (t *Cluster) outlook() explain.Outlook {
	if t.foreseenAt.Equal(t.latest.Now) {
		return t.foreseen
	}
	d := nodes.Decider{Policy: t.latest.Policy, Sizer: t.plane.Sizer, Fitter: t.plane.Fitter}
	t.foreseenAt, t.foreseen = t.latest.Now, explain.Ahead(d, t.latest)
	return t.foreseen
}

// nodePlane is the node plane as the console shows it.
func (t *Cluster) nodePlane(context.Context) (console.NodePlane, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	v := console.NodePlaneOf(t.latest, t.price)
	v.Foresee(t.outlook())
	if v.CostPerHour != nil {
		spent := t.spent
		v.CostSoFar = &spent
	}
	for i := range v.Nodes {
		for _, p := range t.pods {
			if !p.Ended() && p.node == v.Nodes[i].Name {
				v.Nodes[i].Workers = append(v.Nodes[i].Workers, p.Name)
			}
		}
	}
	return v, t.tickEr
}

// ZonesFor returns the zones of as many nodes as hold n defenders, in turn.
func ZonesFor(defenders int) []string {
	var zones []string
	for i := 0; i*DefendersPerNode < defenders; i++ {
		zones = append(zones, string("ab"[i%2]))
	}
	return zones
}

// Start lets the first defenders start as pods, and then the traffic.
func (t *Cluster) Start(ctx context.Context, n int) (*report.Map, error) {
	c := t.workers
	c.Say("%s; %d nodes", t.platform.describe(), t.platform.fleet().Available)
	kind := ""
	if c.o.Processes {
		kind = ", each a process of its own"
	}
	if c.o.RealNodes != NoRealNodes {
		kind = ", each in a container"
	}
	c.Say("Starting %d defenders as pods%s, %d chambers in %d slots", n, kind, c.o.Chambers, c.o.Slots)
	// The first window must not wait for those that come later, whether or not the case lets the number be known then.
	if err := c.SetExpected(ctx, n); err != nil {
		return nil, err
	}
	if err := t.deploy.scale(ctx, n); err != nil {
		return nil, err
	}
	if err := t.Wait(ctx, 2*time.Minute, "all defenders STABLE", func() bool { return c.View.Stable(n) }); err != nil {
		return nil, err
	}
	if !t.Asks {
		if err := c.SetExpected(ctx, 0); err != nil {
			return nil, err
		}
	}
	c.Traffic.Rate.Store(int64(c.o.Rate))
	a := c.View.Latest()
	c.Say("%d defenders STABLE, assignment map version %d", n, a.Version)
	return a, nil
}
