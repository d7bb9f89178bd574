// Package service assembles one defender as it runs in production: its store, its connection
// to the NATS servers, its worker, its metrics and its log.
package service

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"os"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/muster-dev/muster/broker/access"
	"github.com/muster-dev/muster/defender"
	"github.com/muster-dev/muster/defender/connect"
	"github.com/muster-dev/muster/defender/uchart"
	"github.com/muster-dev/muster/partition"
	"github.com/muster-dev/muster/partition/partitionprom"
)

// Options say how one defender runs.
type Options struct {
	NATS     string      // URL of the server, or several with commas between
	User     access.User // of the server; the zero one: what the environment says
	Store    string      // of the results, by the names of package connect
	Slots    int         // as provisioned
	Shards   int         // as provisioned; 0 is 1
	Replicas int         // as provisioned; 0 is 1
	Pod      string      // what holds the stable ID, for people
	Node     string      // where it runs; empty: nobody takes that away
	LogFile  string      // empty: standard error
	Verbose  bool        // debug lines, too
	CacheMiB int64       // for histories; 0 is the default of package defender

	// LeaveTimeout bounds a graceful leave; 0 is the default of package partition.
	LeaveTimeout time.Duration
	// RetryAttempts is after how many failed attempts a message is dead-lettered; until then
	// it waits in the retry queue, and others of its slot go on. 0: there are no retry queue
	// and no dead letters, and it is tried without end.
	RetryAttempts int

	// Configure, if set, changes the defender's configuration before it starts.
	Configure func(*defender.Config)
	// Wrap, if set, returns what handles messages in the defender's place.
	Wrap func(*defender.Defender) partition.Handler
}

// Defender is a defender that is ready to run.
type Defender struct {
	Worker   *partition.Worker
	Handler  *defender.Defender
	Store    defender.Store
	Registry *prometheus.Registry

	conn      *nats.Conn
	ownsStore bool // the store is closed with the defender
	log       *slog.Logger
	file      io.Closer // of the log; nil for standard error
}

// Open connects a defender to everything it needs. A nil store is opened from the
// options, and closed with the defender.
func Open(ctx context.Context, o Options, store defender.Store) (*Defender, error) {
	d := &Defender{Store: store, Registry: prometheus.NewRegistry()}
	if err := d.open(ctx, o); err != nil {
		return nil, errors.Join(err, d.Close())
	}
	return d, nil
}

func (d *Defender) open(ctx context.Context, o Options) error {
	var err error
	if d.log, err = d.openLog(o); err != nil {
		return err
	}
	if d.Store == nil {
		d.ownsStore = true
		if d.Store, err = connect.Open(ctx, o.Store, os.LookupEnv); err != nil {
			return err
		}
	}
	if d.conn, err = access.ConnectAs(o.NATS, "defender "+o.Pod, o.User); err != nil {
		return err
	}

	metrics := defender.NewMetrics(nil)
	c := defender.Config{Store: d.Store, Conn: d.conn, Judge: new(uchart.Judger).Judge, Logger: d.log, Metrics: metrics, CacheBytes: o.CacheMiB << 20, Replicas: o.Replicas}
	if o.Configure != nil {
		o.Configure(&c)
	}
	if d.Handler, err = defender.New(c); err != nil {
		return err
	}

	var handler partition.Handler = d.Handler
	if o.Wrap != nil {
		handler = o.Wrap(d.Handler)
	}
	if d.Worker, err = partition.New(d.conn, d.group(o), handler); err != nil {
		return err
	}

	for _, m := range metrics.Collectors() {
		d.Registry.MustRegister(m)
	}
	d.Registry.MustRegister(partitionprom.NewCollector(d.Worker, defender.WorkerMetrics(d.Handler.AssignedChambers)))
	return nil
}

// group returns the configuration of the defender's worker.
func (d *Defender) group(o Options) partition.Config {
	p := defender.Partition(o.Slots)
	p.Shards, p.Storage.Replicas = o.Shards, o.Replicas
	p.Identity.Pod, p.Identity.Node = o.Pod, o.Node
	p.Rebalance.LeaveTimeout = o.LeaveTimeout
	p.Retry = Retry(o.RetryAttempts)
	p.Rebalance.Weights, p.Logger = d.Handler.Weights, d.log
	return p
}

// Retry returns the settings of the retry queue that a number of attempts stands for: 0, that
// there is no queue.
func Retry(attempts int) partition.Retry {
	return partition.Retry{Disabled: attempts == 0, Attempts: attempts}
}

func (d *Defender) openLog(o Options) (*slog.Logger, error) {
	level := slog.LevelInfo
	if o.Verbose {
		level = slog.LevelDebug
	}
	out := io.Writer(os.Stderr)
	if o.LogFile != "" {
		f, err := os.OpenFile(o.LogFile, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
		if err != nil {
			return nil, fmt.Errorf("opening the log: %w", err)
		}
		d.file, out = f, f
	}
	return slog.New(slog.NewTextHandler(out, &slog.HandlerOptions{Level: level})), nil
}

// provisionPatience is how long Provision tries while the servers don't answer.
const provisionPatience = 30 * time.Second

// Provision creates the stream of alarms if it is missing; the worker creates the rest when
// it runs. What the server rejects is an error. If it
// doesn't answer for 30 s, or ctx ends, Provision returns nil: the defender creates a
// missing stream when it first needs it, and a defender that is restarted while the
// servers are in trouble must not stay away for that.
func (d *Defender) Provision(ctx context.Context) error {
	for end := time.Now().Add(provisionPatience); ; {
		err := d.Handler.Provision(ctx)
		if err == nil || ctx.Err() != nil {
			return nil //nolint:nilerr // Run ends in order when ctx has
		}
		var rejected *jetstream.APIError
		if errors.As(err, &rejected) && rejected.Code != http.StatusServiceUnavailable {
			return err
		}
		if time.Now().After(end) {
			d.log.Warn("The stream of alarms can't be made yet; a defender that needs it tries again.", "err", err)
			return nil
		}
		select {
		case <-ctx.Done():
		case <-time.After(time.Second):
		}
	}
}

// Run works until ctx ends, leaves gracefully and closes everything.
func (d *Defender) Run(ctx context.Context) error {
	err := d.Worker.Run(ctx)
	return errors.Join(err, d.Close())
}

// Disconnect ends the connection to the NATS servers for good: nothing that the defender
// still does reaches anybody.
func (d *Defender) Disconnect() { d.conn.Close() }

// Close closes everything that Open opened. Run does so itself.
func (d *Defender) Close() error {
	var errs []error
	if d.conn != nil {
		_ = d.conn.FlushTimeout(time.Second)
		d.conn.Close()
	}
	if d.ownsStore && d.Store != nil {
		errs = append(errs, d.Store.Close())
	}
	if d.file != nil {
		errs = append(errs, d.file.Close())
	}
	return errors.Join(errs...)
}
