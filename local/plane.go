package local

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/muster-dev/muster/defender"
	"github.com/muster-dev/muster/defender/collect"
	"github.com/muster-dev/muster/defender/replay"
	"github.com/muster-dev/muster/defender/service"
	"github.com/muster-dev/muster/defender/sqlite"
	"github.com/muster-dev/muster/partition"
	"github.com/muster-dev/muster/partition/role"
	"github.com/muster-dev/muster/partition/state"
)

// WorkerPlane is the worker plane on one machine: NATS servers, the results' store, the
// collector that publishes, and the defenders.
type WorkerPlane struct {
	o     Options
	hooks Hooks

	Timeline *Timeline
	Chambers []defender.Chamber
	Source   replay.Source

	Dir       string // where everything is kept
	temporary bool   // it is removed at the end
	StorePath string

	Servers   *Servers
	Conn      *nats.Conn // may do everything: for what a caller does to Muster, not for Muster
	Store     *sqlite.Store
	View      *View
	Traffic   *Traffic
	Defenders *Defenders

	users   *users       // of the servers; nil: they have none
	roles   *connections // of all parts but the defenders
	backlog *backlog
	tally   tally // of processed messages; Progress has it
	pauses  pauseTeller
	told    func(SeenEvent) // called for each event of a defender, if set
	viewed  atomic.Bool     // View is there
}

func newWorkerPlane(o Options, h Hooks) *WorkerPlane {
	return &WorkerPlane{o: o, hooks: h, Timeline: newTimeline(o.Out), Chambers: replay.Chambers(o.Chambers), pauses: pauseTeller{pauses: pauses{every: pausesEvery}}}
}

// startPlane starts everything but the defenders.
func (w *WorkerPlane) startPlane(ctx context.Context) error {
	var err error
	if w.Source, err = replay.Open(w.o.Data, w.o.Seed); err != nil {
		return err
	}
	if err := w.makeDir(); err != nil {
		return err
	}
	if err := w.startServers(ctx); err != nil {
		return err
	}
	if err := w.openStore(ctx); err != nil {
		return err
	}
	if err := w.provision(ctx); err != nil {
		return err
	}
	w.Defenders = &Defenders{settings: w.settings(), store: w.Store, logs: filepath.Join(w.Dir, "log"), processes: w.o.Processes, hooks: w.hooks}
	if err := w.openView(ctx); err != nil {
		return err
	}
	if err := w.openTraffic(); err != nil {
		return err
	}
	// A directory that was used before may have messages that wait.
	w.tally.atStart, err = w.backlog.left(ctx)
	return err
}

func (w *WorkerPlane) makeDir() error {
	w.Dir = w.o.Dir
	if w.Dir == "" {
		d, err := os.MkdirTemp("", "muster-")
		if err != nil {
			return fmt.Errorf("making a temporary directory: %w: name another with --dir", err)
		}
		w.Dir, w.temporary = d, true
	}
	if w.o.RealNodes != NoRealNodes { // which have it at the same path
		var err error
		if w.Dir, err = filepath.Abs(w.Dir); err != nil {
			return fmt.Errorf("making the directory for what is kept: %w", err)
		}
	}
	if err := os.MkdirAll(filepath.Join(w.Dir, "log"), 0o755); err != nil {
		return fmt.Errorf("making the directory for what is kept: %w: name one that can be written to with --dir", err)
	}
	return nil
}

// startServers starts the NATS servers and waits until they keep replicas.
func (w *WorkerPlane) startServers(ctx context.Context) error {
	if w.o.Accounts {
		w.users = newUsers(w.Partition())
		if err := w.users.write(w.Dir); err != nil {
			return err
		}
	}
	var err error
	if w.Servers, err = startServers(ctx, w.o, w.Dir, w.users, w.hooks.Server); err != nil {
		return err
	}
	if w.roles, err = connect(w.Servers.URL, w.users); err != nil {
		return err
	}
	w.Conn = w.roles.all
	w.backlog = &backlog{conn: w.Conn, streams: w.Partition().Streams(), retries: w.o.RetryAttempts > 0}
	return w.Servers.ready(ctx, w.Conn, w.o.Replicas)
}

// openStore opens the results' store, and registers the chambers in it.
func (w *WorkerPlane) openStore(ctx context.Context) error {
	w.StorePath = filepath.Join(w.Dir, "fdc.db")
	var err error
	if w.Store, err = sqlite.Open(ctx, sqlite.Config{Path: w.StorePath}); err != nil {
		return err
	}
	return replay.Register(ctx, w.Store, w.Chambers)
}

func (w *WorkerPlane) provision(ctx context.Context) error {
	if w.hooks.Provision != nil {
		return w.hooks.Provision(ctx, w.settings(), w.Store)
	}
	operator, err := w.As(role.Operator)
	if err != nil {
		return err
	}
	return defender.Provision(ctx, operator, w.Partition())
}

// openView begins to look at what the defenders do.
func (w *WorkerPlane) openView(ctx context.Context) error {
	viewer, err := w.As(role.Viewer)
	if err != nil {
		return err
	}
	if w.View, err = newView(ctx, viewer, w.event); err != nil {
		return err
	}
	w.viewed.Store(true)
	return nil
}

// seen returns the view of the defenders, nil before everything is started.
func (w *WorkerPlane) seen() *View {
	if !w.viewed.Load() {
		return nil
	}
	return w.View
}

// openTraffic begins to publish, at a rate of zero.
func (w *WorkerPlane) openTraffic() error {
	publishes, err := w.As(role.Collector)
	if err != nil {
		return err
	}
	collector, err := collect.New(w.Store, publishes)
	if err != nil {
		return err
	}
	collector.For(w.Partition())
	w.Traffic = newTraffic(collector, w.Source, w.Chambers, w.hooks.Announce)
	return nil
}

// event takes in an event of a defender.
func (w *WorkerPlane) event(e SeenEvent) {
	w.pauses.event(e)
	narrate(w.Timeline, e)
	if w.told != nil {
		w.told(e)
	}
}

// Partition returns the configuration of the defenders' group.
func (w *WorkerPlane) Partition() partition.Config {
	p := defender.Partition(w.o.Slots)
	p.Shards, p.Storage.Replicas = w.o.Shards, w.o.Replicas
	p.Retry = service.Retry(w.o.RetryAttempts)
	p.Identity.PoolSize = w.o.PoolSize
	return p
}

// settings returns how each defender is run, without its own names.
func (w *WorkerPlane) settings() service.Options {
	return service.Options{NATS: w.Servers.URL, User: w.users.of(role.Worker), Store: w.StorePath, Slots: w.o.Slots, Shards: w.o.Shards, Replicas: w.o.Replicas,
		RetryAttempts: w.o.RetryAttempts, Verbose: w.o.Verbose}
}

// As returns the connection of a role.
func (w *WorkerPlane) As(r role.Role) (*nats.Conn, error) { return w.roles.as(r) }

// ConnectAs returns a new connection of a role.
func (w *WorkerPlane) ConnectAs(r role.Role, name string) (*nats.Conn, error) {
	return w.roles.own(r, name)
}

// ConnectAll returns a new connection that may do everything.
func (w *WorkerPlane) ConnectAll(name string) (*nats.Conn, error) { return w.roles.unlimited(name) }

// Streams returns the streams of the messages.
func (w *WorkerPlane) Streams(ctx context.Context) ([]jetstream.Stream, error) {
	return w.backlog.open(ctx)
}

// Pending returns a function that counts the messages that are not processed.
func (w *WorkerPlane) Pending(ctx context.Context) (func() (uint64, error), error) {
	return w.backlog.counter(ctx)
}

// SetExpected tells the defenders how many they should be.
func (w *WorkerPlane) SetExpected(ctx context.Context, n int) error {
	nc, err := w.As(role.Operator)
	if err != nil {
		return err
	}
	return partition.Open(nc, defender.Group).Expect(ctx, n)
}

// Say prints an event and keeps it on the timeline.
func (w *WorkerPlane) Say(format string, args ...any) { w.Timeline.Say(format, args...) }

// TellPauses tells of defenders that pause until ctx ends. hint adds what to do on a machine
// that is too slow.
func (w *WorkerPlane) TellPauses(ctx context.Context, hint bool) {
	w.pauses.run(ctx, hint, w.Defenders, w.Timeline)
}

// Progress tells every few seconds how things are.
func (w *WorkerPlane) Progress(ctx context.Context) {
	const every = 5 * time.Second
	t := time.NewTicker(every)
	defer t.Stop()
	var before int64
	for {
		select {
		case <-ctx.Done():
			return
		case <-t.C:
		}
		now := w.tally.read(ctx, w.Traffic, w.backlog)
		w.Timeline.print(now.line(w.View.count(state.Stable), float64(now.published-before)/every.Seconds()))
		before = now.published
	}
}

// patienceWhenBusy is by how much more is waited for what must come on a busy machine.
const patienceWhenBusy = 4

// Patience is how long is waited for what comes in a time on a machine that does
// nothing else.
func (w *WorkerPlane) Patience(within time.Duration) time.Duration {
	if w.o.Busy {
		return patienceWhenBusy * within
	}
	return within
}

// Wait polls until ok, an error of a defender, or the deadline.
func (w *WorkerPlane) Wait(ctx context.Context, within time.Duration, what string, ok func() bool) error {
	within = w.Patience(within)
	ctx, cancel := context.WithTimeout(ctx, within)
	defer cancel()
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for !ok() {
		select {
		case <-ctx.Done():
			if errors.Is(ctx.Err(), context.DeadlineExceeded) {
				return fmt.Errorf("not within %v: %s", within, what)
			}
			return ctx.Err()
		case <-tick.C:
			if err := w.Defenders.Failed(); err != nil {
				return err
			}
		}
	}
	return nil
}

// running returns the defenders that have not ended.
func (w *WorkerPlane) running() []*Process {
	if w.seen() == nil {
		return nil
	}
	return w.Defenders.Running()
}

// stopDefenders stops the traffic and lets all defenders leave.
func (w *WorkerPlane) stopDefenders() error {
	if w.Traffic != nil {
		w.Traffic.close()
	}
	if w.Defenders == nil {
		return nil
	}
	return w.Defenders.stop(w.Patience(40 * time.Second))
}

// closePlane closes everything but the defenders, and removes what is temporary.
func (w *WorkerPlane) closePlane() error {
	var errs []error
	if w.View != nil {
		w.View.close()
	}
	if w.roles != nil {
		w.roles.close()
	}
	if w.Store != nil {
		errs = append(errs, w.Store.Close())
	}
	if w.Servers != nil {
		errs = append(errs, w.Servers.Stop())
	}
	if w.temporary {
		errs = append(errs, os.RemoveAll(w.Dir))
	}
	return errors.Join(errs...)
}
