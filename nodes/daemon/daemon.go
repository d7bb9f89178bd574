package daemon

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/muster-dev/muster/internal/secret"
	"github.com/muster-dev/muster/nodes"
)

// Options change how a Daemon runs. The zero value is right except for Log, without which nothing is said.
type Options struct {
	Interval    time.Duration // from the start of one tick to that of the next; 0: 60 s
	Jitter      float64       // share of the interval by which each differs at random, 0 to 0.5, so that several daemons spread; 0: 0.1
	StopTimeout time.Duration // what a running tick is given to come to an end when the daemon is stopped; 0: 20 s
	Log         *slog.Logger
	// Poll brings interruption events until ctx ends, from a queue for instance, and calls handle for each; an event for which
	// handle returns an error is to be brought again. nil: there is no such queue, and what is interrupted is noticed when it has
	// gone.
	Poll func(ctx context.Context, handle func(context.Context, nodes.InterruptionEvent) error) error
	// Watch calls found for each pod that becomes unschedulable, with the time since when, until ctx or the watch ends; then it is called
	// again. A tick begins when such a pod has waited for PENDING_UP_SEC, within a second or two. nil: ticks go by the schedule alone.
	Watch func(ctx context.Context, found func(since time.Time)) error
	// Ticked is called when a tick has ended, with its error. nil: nobody is told.
	Ticked func(ctx context.Context, err error)
	// Follow keeps the workers informed until ctx ends. nil: there is nothing to tell them.
	Follow func(ctx context.Context) error
	// Price returns what an instance costs an hour, in US dollars; false if that is not known. nil: it never is.
	Price func(instanceType string, market nodes.Market, zone string) (float64, bool)
	// TokenExpires returns when the token of the Kubernetes API expires, zero if it never does. nil: it is not known.
	TokenExpires func(ctx context.Context) (time.Time, error)
}

// Daemon runs ticks until it is stopped. Use New.
type Daemon struct {
	o       Options
	clock   nodes.Clock
	store   nodes.Store
	r       *nodes.Reconciler
	Metrics *Metrics

	stopping   atomic.Bool
	alarm      *alarm
	pendingFor time.Duration // PENDING_UP_SEC

	mu     sync.Mutex
	health health
}

// health is what the two health pages tell.
type health struct {
	began     time.Time // the daemon
	tickBegan time.Time // the tick that ended last
	tickEnded time.Time // zero: none yet
	storeOK   bool      // whether that tick reached the record
	last      error
}

// New returns a daemon that works with c. Errors are nodes.New's.
func New(c nodes.Config, o Options) (*Daemon, error) {
	if o.Interval == 0 {
		o.Interval = time.Minute
	}
	if o.Jitter == 0 {
		o.Jitter = 0.1
	}
	if o.StopTimeout == 0 {
		o.StopTimeout = 20 * time.Second
	}
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	if c.Clock == nil {
		c.Clock = nodes.SystemClock{}
	}
	d := &Daemon{o: o, clock: c.Clock, store: c.Store, Metrics: newMetrics(c, o.Price), alarm: newAlarm(), pendingFor: c.Policy.PendingUpFor}
	c = watched(c, d.Metrics, d.happened)
	c.Stopping = d.stopping.Load
	var err error
	if d.r, err = nodes.New(c); err != nil {
		return nil, err
	}
	d.health.began = d.clock.Now()
	return d, nil
}

// Run ticks, and handles events, until ctx ends. Then it begins nothing new: what is under way comes to a point at which it can be
// left, the lease is given back, and Run returns nil; what takes longer than StopTimeout is cut off, and the next daemon takes it up.
// Run may be called once.
func (d *Daemon) Run(ctx context.Context) error {
	// Work outlives ctx by the time that it has to come to an end.
	work, cut := context.WithCancel(context.WithoutCancel(ctx))
	defer cut()
	stopped := context.AfterFunc(ctx, func() {
		d.stopping.Store(true)
		d.o.Log.Info("stopping", "timeout", d.o.StopTimeout)
		time.AfterFunc(d.o.StopTimeout, cut)
	})
	defer stopped()

	var wg sync.WaitGroup
	if d.o.Poll != nil {
		wg.Go(func() { d.poll(ctx, work) })
	}
	if d.o.Follow != nil {
		wg.Go(func() {
			if err := d.o.Follow(ctx); err != nil {
				d.o.Log.Error("keeping the workers informed", "error", redacted(err))
			}
		})
	}
	if d.o.Watch != nil {
		wg.Go(func() { d.watch(ctx) })
	}
	for ctx.Err() == nil {
		began := d.clock.Now()
		next := began.Add(d.interval())
		d.alarm.pass(began)
		d.tick(work)
		d.wait(ctx, next, began, d.clock.Now())
	}
	d.stopping.Store(true) // what AfterFunc runs may come later than the end of that sleep
	wg.Wait()
	d.o.Log.Info("stopped")
	return nil
}

func (d *Daemon) interval() time.Duration {
	return time.Duration(float64(d.o.Interval) * (1 + d.o.Jitter*(2*rand.Float64()-1)))
}

// poll brings events for as long as ctx lasts. A queue that can't be read is tried again.
func (d *Daemon) poll(ctx, work context.Context) {
	handle := func(_ context.Context, e nodes.InterruptionEvent) error {
		d.o.Log.Info("interruption", given("kind", string(e.Kind), "instance", e.InstanceID, "event", e.ID, "state", string(e.State))...)
		err := d.r.Interrupt(work, e)
		if err != nil {
			d.o.Log.Error("handling an interruption", "instance", e.InstanceID, "event", e.ID, "error", redacted(err))
		}
		d.Metrics.counts.interrupted(err)
		return err
	}
	for ctx.Err() == nil {
		if err := d.o.Poll(ctx, handle); err != nil && ctx.Err() == nil {
			d.Metrics.counts.failed("queue.Poll")
			d.o.Log.Error("reading interruption events", "error", redacted(err))
		}
		_ = d.clock.Sleep(ctx, 5*time.Second)
	}
}

// tick does one tick and tells of it.
func (d *Daemon) tick(ctx context.Context) {
	began := d.clock.Now()
	report, err := d.r.Tick(ctx)
	took := d.clock.Now().Sub(began)
	if ctx.Err() != nil {
		d.release(ctx, report)
	}
	d.Metrics.ticked(report, err, took)
	d.log(report, err, took)
	if d.o.TokenExpires != nil {
		d.checkToken(ctx)
	}
	d.ticked(began, err)
	if d.o.Ticked != nil {
		d.o.Ticked(ctx, err)
	}
}

// ticked notes for the health pages how a tick ended.
func (d *Daemon) ticked(began time.Time, err error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.health.tickBegan, d.health.tickEnded, d.health.last = began, d.clock.Now(), err
	d.health.storeOK = !d.Metrics.seen.storeReached().Before(began)
}

// release gives back the lease of a tick that was cut off and could not do so itself.
func (d *Daemon) release(ctx context.Context, report nodes.Report) {
	ctx, cancel := d.clock.WithDeadline(context.WithoutCancel(ctx), d.clock.Now().Add(2*time.Second))
	defer cancel()
	r, err := d.store.Load(ctx)
	if err == nil && r.LeaseOwner == report.Tick {
		_, err = d.store.Apply(ctx, nodes.ReleaseLease{Owner: report.Tick, Fence: r.LeaseFence})
	}
	if err != nil {
		d.o.Log.Warn("giving the lease back; it will expire", "tick", report.Tick, "error", redacted(err))
	}
}

func (d *Daemon) checkToken(ctx context.Context) {
	ctx, cancel := d.clock.WithDeadline(ctx, d.clock.Now().Add(5*time.Second))
	defer cancel()
	at, err := d.o.TokenExpires(ctx)
	if err != nil {
		d.Metrics.counts.failed("token.Expires")
		d.o.Log.Warn("reading when the Kubernetes token expires", "error", redacted(err))
		return
	}
	d.Metrics.seen.tokenExpires(at)
	if left := at.Sub(d.clock.Now()); !at.IsZero() && left < 24*time.Hour {
		d.o.Log.Warn("the Kubernetes token expires soon: rotate it", "at", at, "left", left.Truncate(time.Second))
	}
}

// log writes a line for the tick.
func (d *Daemon) log(report nodes.Report, err error, took time.Duration) {
	args := []any{"tick", report.Tick, "result", result(report, err), "took", took.Round(time.Millisecond)}
	if dec := report.Decision; dec != nil {
		args = append(args, given("decision", string(dec.Action), "reason", string(dec.Reason), "detail", secret.Redact(dec.Detail))...)
	}
	if err != nil {
		d.o.Log.Error("tick", append(args, "error", redacted(err))...)
		return
	}
	d.o.Log.Info("tick", args...)
}

// happened writes a line for an event as it is logged; what merely goes on as before is for debugging.
func (d *Daemon) happened(e nodes.Event) {
	level := slog.LevelInfo
	switch e.Kind {
	case "decision", "error":
		return // the tick's line tells it
	case "scaleUp.waiting", "lease.held":
		level = slog.LevelDebug
	case "template.differs", "repair.begun", "repair.held", "report.failed":
		level = slog.LevelWarn
	}
	d.o.Log.Log(context.Background(), level, e.Kind, given("tick", e.Tick, "action", e.ActionID, "instance", e.Instance, "message", secret.Redact(e.Message))...)
}

// given returns those pairs of key and value that say something.
func given(pairs ...string) []any {
	var out []any
	for i := 0; i+1 < len(pairs); i += 2 {
		if v := strings.TrimSpace(pairs[i+1]); v != "" {
			out = append(out, pairs[i], v)
		}
	}
	return out
}

func redacted(err error) string { return secret.Redact(err.Error()) }

// Alive returns nil while ticks come to an end. A tick that works on a Spot warning may last some minutes.
func (d *Daemon) Alive() error {
	h, now := d.look()
	since := h.began
	if h.tickEnded.After(since) {
		since = h.tickEnded
	}
	if quiet := now.Sub(since); quiet > 3*d.o.Interval+5*time.Minute {
		return fmt.Errorf("no tick has ended for %s", quiet.Truncate(time.Second))
	}
	return nil
}

// Ready returns nil if the last tick reached the record and is not long ago, and the daemon is not being stopped.
func (d *Daemon) Ready() error {
	h, now := d.look()
	switch {
	case d.stopping.Load():
		return errors.New("stopping")
	case h.tickEnded.IsZero():
		return errors.New("the first tick has not ended yet")
	case !h.storeOK && h.last != nil:
		return fmt.Errorf("the last tick did not reach the record: %s", redacted(h.last))
	case now.Sub(h.tickEnded) > 3*d.o.Interval+time.Minute:
		return fmt.Errorf("the last tick ended %s ago", now.Sub(h.tickEnded).Truncate(time.Second))
	}
	return nil
}

func (d *Daemon) look() (health, time.Time) {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.health, d.clock.Now()
}

// Handler serves /metrics, /healthz (200 while ticks come to an end) and /readyz (200 while they reach the record), the latter two
// with a line that says what is wrong.
func (d *Daemon) Handler() http.Handler {
	reg := prometheus.NewRegistry()
	reg.MustRegister(d.Metrics, collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	mux := http.NewServeMux()
	mux.Handle("GET /metrics", promhttp.HandlerFor(reg, promhttp.HandlerOpts{}))
	page := func(check func() error) http.HandlerFunc {
		return func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", "text/plain; charset=utf-8")
			if err := check(); err != nil {
				w.WriteHeader(http.StatusServiceUnavailable)
				_, _ = w.Write([]byte(err.Error() + "\n"))
				return
			}
			_, _ = w.Write([]byte("ok\n"))
		}
	}
	mux.Handle("GET /healthz", page(d.Alive))
	mux.Handle("GET /readyz", page(d.Ready))
	return mux
}
