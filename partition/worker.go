package partition

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"os"
	"slices"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nuid"

	"github.com/muster-dev/muster/partition/report"
	"github.com/muster-dev/muster/partition/state"
)

// Worker owns a share of a group's keys and handles their messages. New makes it, and
// Run runs it.
//
// Run's loop is the only goroutine that steps the machine, which makes all decisions. The
// effectRunner carries the machine's effects out, and their results come back through the
// queue of inputs. The other methods may be called at any time, from any goroutine: they
// read the last status, or post an input.
type Worker struct {
	cfg     Config
	layout  layout
	nc      *nats.Conn
	handler Handler
	guard   guard // of what is the user's

	machine *machine
	inputs  inputQueue
	effects *effectRunner  // from when the group is open
	keeper  *keeper        // likewise
	setting *settingsWatch // likewise

	ran     atomic.Bool   // Run was called
	ended   chan struct{} // closed when Run has returned
	status  atomic.Pointer[Status]
	ready   readyWatch
	events  eventCounts
	pending pendingWatch
	pulling atomic.Pointer[puller] // nil before the group is open
}

// New checks a configuration and returns a worker that has not begun. Errors
// name every fault.
func New(nc *nats.Conn, cfg Config, h Handler) (*Worker, error) {
	cfg = cfg.resolve()
	lay, err := cfg.validate()
	if nc == nil {
		err = errors.Join(err, errors.New("partition: the connection is nil"))
	}
	if h == nil {
		err = errors.Join(err, errors.New("partition: the handler is nil"))
	}
	if err != nil {
		return nil, err
	}
	instance := nuid.Next()
	if cfg.Identity.Pod == "" {
		cfg.Identity.Pod, _ = os.Hostname()
	}
	if cfg.Identity.PodUID == "" {
		cfg.Identity.PodUID = instance
	}

	w := &Worker{layout: lay, nc: nc, handler: h, inputs: newInputQueue(), ended: make(chan struct{})}
	w.guard = newGuard(cfg, w.inputs.post)
	cfg.Rebalance.Expected = w.guard.expected(cfg.Rebalance.Expected)
	w.cfg, w.machine = cfg, newMachine(cfg, instance)
	_, w.machine.movesState = find[StateMover](h)
	w.status.Store(&Status{State: state.Init})
	return w, nil
}

// Status returns the worker's state. It may be called at any time.
func (w *Worker) Status() Status { return *w.status.Load() }

// queueStatus returns what this worker knows of the retry queue; see Config.Retry. It
// may be called while Run works.
func (w *Worker) queueStatus() queueStatus {
	if p := w.pulling.Load(); p != nil {
		return p.queueStatus()
	}
	return queueStatus{}
}

// ErrRunTwice says that Run was called before on this worker.
var ErrRunTwice = errors.New("it was run before: a worker runs once, make another with New")

// Run joins the group and handles the messages of its keys until ctx ends. Then it hands its
// slots off, waits for running handlers, and returns nil. Leaving takes at most
// Config.Rebalance.LeaveTimeout, and with a StateMover up to Config.State.Timeout more, until
// the next owners have fetched their states. Run creates the group's streams and buckets if
// Provision hasn't. A worker runs once: the second call returns ErrRunTwice.
//
// While the connection is lost Run keeps trying. It returns an error only if it can't begin,
// after 30 s of trying where the cause may pass, or if the connection was closed by its owner.
func (w *Worker) Run(ctx context.Context) error {
	if w.ran.Swap(true) {
		return fmt.Errorf("running worker of %s: %w", w.cfg.Name, ErrRunTwice)
	}
	defer close(w.ended)
	defer w.inputs.close()
	if err := w.open(ctx); err != nil {
		return fmt.Errorf("starting worker of %s: %w", w.cfg.Name, err)
	}
	defer w.effects.close()
	w.effects.watches.watchMap()

	background, stop := context.WithCancel(context.Background())
	defer stop()
	connection := newConnectionWatch(background, w.nc, &w.effects.pull.interrupts, func() {
		w.effects.watches.watchMap()
		w.keeper.poke() // a server that was away may have lost something
	})
	go w.pending.run(background, w.effects.buckets.js, w.layout, w.leading)
	go w.keeper.run(background)
	refusals, err := answerRefusals(w.nc, w.cfg.Name, func() (time.Time, string) {
		s := w.Status()
		return s.RefusedSince, s.Refused
	})
	if err != nil {
		return fmt.Errorf("running worker of %s: subscribing for questions: %w", w.cfg.Name, err)
	}
	defer func() { _ = refusals.Unsubscribe() }()

	progress := time.NewTicker(w.cfg.Delivery.AckWait / 3)
	defer progress.Stop()
	if err := w.loop(ctx, connection, progress.C); err != nil {
		return err
	}
	return w.setting.err()
}

// open finds or provisions the group, and makes the parts that work with it.
func (w *Worker) open(ctx context.Context) error {
	g, err := opening{cfg: w.cfg, layout: w.layout, nc: w.nc, post: w.inputs.post}.run(ctx)
	if err != nil {
		return err
	}
	// Metrics may read the rest of the configuration at this moment.
	slots := g.cfg.Slots
	w.cfg.Slots, w.layout.base, w.machine.cfg.Slots = slots, slots, slots

	post := w.inputs.post
	w.keeper = newKeeper(w.cfg, w.layout, w.nc, g.js, w.leading, post)
	g.buckets.saw = w.keeper.saw
	pull, err := newPuller(w.cfg, w.layout, w.nc, g.js, w.handler, post)
	if err != nil {
		return err
	}
	if g.retry != nil {
		pull.retry = &retryStore{nc: w.nc, stream: g.retry, name: retryStreamName(w.cfg.Stream), lay: w.layout, room: newRoom()}
	}
	if w.cfg.Retry.givesUp() {
		box := &letterbox{cfg: w.cfg, lay: w.layout, nc: w.nc, js: g.js, id: func() string { return w.Status().ID }}
		pull.abandon = box.store
	}
	w.pulling.Store(pull)
	peers, err := newPeerLink(w.cfg, w.nc, post)
	if err != nil {
		return err
	}
	if pull.server != nil {
		peers.called = pull.server.arrived
	}

	rejected := rejections{w.cfg.Logger, post}
	w.setting = &settingsWatch{cfg: w.cfg, rejected: rejected, post: post}
	w.effects = &effectRunner{
		cfg:     w.cfg,
		buckets: g.buckets,
		pull:    pull,
		peers:   peers,
		watches: &watches{
			cfg: w.cfg, nc: w.nc, buckets: g.buckets, keeper: w.keeper, settings: w.setting,
			standby: &standbyAnswer{cfg: w.cfg, nc: w.nc}, rejected: rejected, post: post,
		},
		callbacks: &callbacks{cfg: w.cfg, layout: w.layout, nc: w.nc, handler: w.handler, guard: w.guard, events: &w.events, post: post},
		machine:   w.machine,
		post:      post,
		takeovers: make(chan struct{}, mostTakeovers),
	}
	return nil
}

func (w *Worker) leading() bool { return w.Status().Leading }

// loop steps the machine until it has left, or the connection was closed by its owner.
func (w *Worker) loop(ctx context.Context, connection connectionWatch, progress <-chan time.Time) error {
	m := w.machine
	timer := time.NewTimer(0)
	defer timer.Stop()
	leave := ctx.Done()
	// Nothing is reported of a connection that was closed before the watch began.
	if w.nc.IsClosed() {
		return fmt.Errorf("worker %s: the connection was closed", m.self.ID)
	}

	next := []input{startInput{}}
	for {
		for _, in := range next {
			w.step(in)
		}
		w.effects.stepped()
		status := statusOf(m)
		w.status.Store(status)
		w.ready.note(status.notReady(time.Now()) == nil) // after it can be read
		if m.stage == stageGone {
			return nil
		}

		sleepUntil(timer, m.wake())
		next = next[:0]
		var reported []nats.Status
		select {
		case in := <-w.inputs.inputs:
			w.watchAgain(in)
			// An answer that came after a reconnect must not be seen before the
			// disconnect: it would prove a connection that was gone meanwhile.
			reported, next = connection.pending(), append(next, in)
		case <-timer.C:
			reported, next = connection.pending(), append(next, tickInput{})
		case <-progress:
			w.effects.pull.inProgress()
			next = append(next, tickInput{})
		case s := <-connection.status:
			reported = connection.pending(s)
		case <-leave:
			leave = nil
			next = append(next, leaveInput{})
		}
		if connection.follow(reported, w.step) {
			return fmt.Errorf("worker %s: the connection was closed", m.self.ID)
		}
	}
}

// step gives the machine one input and carries its effects out.
func (w *Worker) step(in input) {
	for _, e := range w.machine.step(time.Now(), in) {
		w.effects.execute(e)
	}
}

// watchAgain watches the bucket of the map again when it was created again: the watch is
// of the bucket that is gone.
func (w *Worker) watchAgain(in input) {
	if lost, is := in.(recreatedInput); is && lost.name == resourceName(bucketPrefix+w.cfg.bucketMap()) {
		w.effects.watches.watchMap()
	}
}

func sleepUntil(t *time.Timer, at time.Time) {
	if at.IsZero() {
		t.Reset(time.Hour)
		return
	}
	t.Reset(max(time.Until(at), shortestSleep))
}

// Drain makes the worker give all its slots away and take none until a time;
// the zero time ends that at once. It returns immediately; Status tells how far
// the worker is.
func (w *Worker) Drain(until time.Time) { w.inputs.post(drainInput{until: until}) }

// Metrics returns the worker's figures. It may be called at any time, by several
// goroutines. The caller may keep and change what it gets.
func (w *Worker) Metrics() report.Metrics {
	s, now := w.Status(), time.Now()
	m := report.Metrics{
		Group: w.cfg.Name,
		State: s.State,
		// A leader that can't be sure of its lease decides nothing, and another may lead by now.
		Leading:       s.Leading && now.Before(s.TrustedUntil),
		StableID:      ordinal(s.ID),
		MapVersion:    s.Version,
		Slots:         slices.Clone(s.Slots),
		ActiveWorkers: s.ActiveWorkers,
		Standby:       s.Standby,
		Draining:      s.Draining,
		WritesRefused: since(s.refused, now),
	}
	if p := w.pending.get(); p != nil {
		m.Pending = &report.PendingMetrics{Messages: p.messages, Oldest: since(p.oldest, now), StreamFill: p.fill}
	}
	m.Counters, m.HandoffPause, m.Detection = w.events.snapshot()
	if p := w.pulling.Load(); p != nil {
		m.Handlers = p.calls.metrics()
	}

	queue := w.queueStatus()
	m.Retry = report.RetryMetrics{Messages: queue.Messages, Keys: queue.Keys, Oldest: since(queue.Oldest, now)}
	m.Counters.Queued, m.Counters.Retried, m.Counters.DeadLettered = queue.Queued, queue.Retries, queue.Abandoned
	return m
}

// CountKeys returns what count returns for the slots that the worker pulls for: how many
// keys lie in them. Like every callback, count may panic: that is logged, reported as an
// event and counted in Counters.HandlerPanics, and the result is the number of slots.
func (w *Worker) CountKeys(count func(Slots) int) int {
	s := w.Status()
	return w.guard.assigned(count)(Slots{s.SlotsOf, s.Slots})
}

// Ready waits until the worker takes part in its group: until it has a valid lease, or is one
// of more workers than stable IDs are wanted and stands by. It returns nil at once if it does
// already. Slots may come later: the leader waits for more workers for a moment before it plans.
//
// The error wraps ctx's, with what the worker waits for, or is ErrEnded. Ready may be called
// before Run, and by several goroutines.
func (w *Worker) Ready(ctx context.Context) error {
	for {
		changed := w.ready.watch()
		why := w.notReady()
		switch {
		case why == nil:
			return nil
		case why.ended:
			return fmt.Errorf("waiting for worker of %s: %w", w.cfg.Name, ErrEnded)
		}

		select {
		case <-changed:
		case <-w.ended:
		case <-ctx.Done():
			return fmt.Errorf("waiting for worker of %s, which is %s: %w", w.cfg.Name, why, ctx.Err())
		}
	}
}

// ReadyHandler answers whether the worker takes part in its group, as Ready means it, in the
// form of a Kubernetes readiness probe: 200, or 503 with the reason. The answer is JSON:
// {"status": "STABLE"}, or {"status": "DEGRADED", "reason": "…", "since": "2026-11-24T01:02:03Z"}
// if the servers refuse the worker's writes.
func (w *Worker) ReadyHandler() http.Handler {
	return http.HandlerFunc(func(rw http.ResponseWriter, _ *http.Request) {
		var answer struct {
			Status state.State `json:"status"`
			Reason string      `json:"reason,omitempty"`
			Since  string      `json:"since,omitempty"`
		}
		code := http.StatusOK
		answer.Status = w.Status().State
		if why := w.notReady(); why != nil {
			code = http.StatusServiceUnavailable
			answer.Status, answer.Reason = why.state, why.refused
			if !why.since.IsZero() {
				answer.Since = why.since.UTC().Format(time.RFC3339)
			}
		}

		rw.Header().Set("Content-Type", "application/json")
		rw.WriteHeader(code)
		_ = json.NewEncoder(rw).Encode(answer)
	})
}

// notReady returns why the worker doesn't take part in its group, nil if it does. A worker
// whose connection was closed ends in whatever state it was in.
func (w *Worker) notReady() *unreadiness {
	select {
	case <-w.ended:
		return &unreadiness{state: state.Shutdown, ended: true}
	default:
		return w.Status().notReady(time.Now())
	}
}
