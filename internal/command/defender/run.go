package defender

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"os"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/muster-dev/muster/broker/access"
	"github.com/muster-dev/muster/defender"
	"github.com/muster-dev/muster/defender/connect"
	"github.com/muster-dev/muster/defender/responder"
	"github.com/muster-dev/muster/defender/service"
	"github.com/muster-dev/muster/defender/strategy"
	"github.com/muster-dev/muster/defender/webhook"
	"github.com/muster-dev/muster/internal/command"
	"github.com/muster-dev/muster/internal/listen"
	"github.com/muster-dev/muster/internal/misuse"
)

// Runner is how `muster defender run` was asked to run.
type Runner struct {
	service.Options
	http       string // address; empty: nothing is served
	strategies string // file; empty: the default strategy
	evictions  bool   // it responds to those of its pod
	podUID     string
}

func newRun() *cobra.Command {
	var o Runner
	cmd := &cobra.Command{
		Use:   "run",
		Short: "Run one defender until it is interrupted",
		Long: "Run joins the defenders of a NATS server, takes its share of the chambers and\n" +
			"processes their messages. On SIGTERM it hands over what it has and exits with 0." + cassandraHelp(),
		Example: "  muster defender run --nats nats://127.0.0.1:4222 --store /var/lib/muster/fdc.db --http 127.0.0.1:8081\n" +
			"  CASSANDRA_HOSTS=10.0.0.7,10.0.0.8 muster defender run --store cassandra",
		Args: command.Args(cobra.NoArgs),
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := o.Check(); err != nil {
				return command.UsageError(cmd, err)
			}
			return o.Run(cmd.Context(), cmd, openDefender, func(string) error { return nil })
		},
	}
	o.Flags(cmd.Flags())
	return command.WithUsageErrors(cmd)
}

// Flags adds the flags that say how it runs.
func (o *Runner) Flags(f *pflag.FlagSet) {
	command.NATSFlag(f, &o.NATS)
	f.StringVar(&o.Store, "store", "fdc.db", storeUsage)
	f.IntVar(&o.Slots, "slots", 1280, "slots that the chambers are divided in, the same for all defenders")
	f.IntVar(&o.Shards, "shards", 1, "streams that the slots are spread over, a number that divides them, up to 64; the same for all defenders, permanently")
	f.IntVar(&o.Replicas, "replicas", 1, "replicas of streams, consumers and buckets: 1, or 3 or 5 on a cluster; the same for all defenders")
	f.StringVar(&o.Pod, "pod", hostname(), "name that the stable ID is claimed for")
	f.StringVar(&o.Node, "node", "", "node that it runs on, so that it can be asked to hand off before the node goes")
	f.BoolVar(&o.evictions, "respond-to-evictions", false, "hand off when Kubernetes asks for the eviction of the pod (EvictionRequest, 1.37 or later), before it is evicted; the pod names the responder "+responder.Name)
	f.StringVar(&o.podUID, "pod-uid", "", "with --respond-to-evictions, the pod's UID")
	f.StringVar(&o.LogFile, "log-file", "", "file of the log; standard error without it")
	f.BoolVar(&o.Verbose, "verbose", false, "log debug lines, too")
	f.StringVar(&o.http, "http", "", "address of /health/live, /health/ready, /metrics and /api/v1/{status,assignments,cache/stats,alarms,chambers}; none without it")
	f.StringVar(&o.strategies, "strategies", "", "YAML file of defense strategies, taken over again when it changes; without it the default")
	f.Int64Var(&o.CacheMiB, "cache-mib", 512, "memory for the histories of chambers, in MiB")
	f.DurationVar(&o.LeaveTimeout, "leave-timeout", 22*time.Second, "longest time for the handoff when it stops; less than what its supervisor allows")
	f.IntVar(&o.RetryAttempts, "retry-attempts", defender.RetryAttempts, "dead-letter a message after N failed attempts; until then it is queued for retry, and other chambers continue. With 0 it is tried without end, and holds up its slot; the same for all defenders")
}

func hostname() string {
	h, err := os.Hostname()
	if err != nil {
		return "defender"
	}
	return h
}

// Check returns everything that is wrong with the options, by the flags' names.
func (o *Runner) Check() error {
	return errors.Join(
		command.Unless(o.CacheMiB >= 1, fmt.Errorf("--cache-mib is %d: give at least 1", o.CacheMiB)),
		command.Unless(o.LeaveTimeout > 0, fmt.Errorf("--leave-timeout is %v: give more than 0s", o.LeaveTimeout)),
		command.Unless(o.Slots >= 1, fmt.Errorf("--slots is %d: give at least 1", o.Slots)),
		misuse.Shards(o.Shards, o.Slots),
		command.Unless(!o.evictions || o.podUID != "", errors.New("--respond-to-evictions needs --pod-uid: give the pod's metadata.uid")),
		command.Unless(o.RetryAttempts >= 0, fmt.Errorf("--retry-attempts is %d: give 0 or more", o.RetryAttempts)),
		connect.Check(o.Store, os.LookupEnv))
}

// Running is a defender that is ready to run, with a rig around it or without.
type Running interface {
	Provision(ctx context.Context) error
	Run(ctx context.Context) error
}

// openDefender connects a defender to everything it needs.
func openDefender(ctx context.Context, o service.Options) (Running, *service.Defender, error) {
	d, err := service.Open(ctx, o, nil)
	return d, d, err
}

// Run runs the defender that open returns until ctx ends. Serving is told where its pages
// are, if it has any.
func (o Runner) Run(ctx context.Context, cmd *cobra.Command, open func(context.Context, service.Options) (Running, *service.Defender, error), serving func(address string) error) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	watcher, err := watchStrategies(cmd, o.strategies, &o.Options)
	if err != nil {
		return err
	}
	r, d, err := open(ctx, o.Options)
	if err != nil {
		return err
	}
	if o.http != "" {
		at, err := listen.HTTP(context.WithoutCancel(ctx), o.http, defenderHTTP(d))
		if err != nil {
			return err
		}
		if err := serving(at); err != nil {
			return err
		}
	}
	// Before webhooks follow the alarms, and before the worker takes a message whose alarm
	// needs this stream.
	if err := r.Provision(ctx); err != nil {
		return err
	}
	stopped, err := o.respond(ctx, d)
	if err != nil {
		return err
	}
	defer stopped()
	if watcher != nil {
		go watcher.Run(ctx, reloadInterval)
		posting := make(chan struct{})
		defer func() { <-posting }()
		go func() {
			defer close(posting)
			postAlarms(ctx, o.NATS, watcher)
		}()
	}
	return r.Run(ctx)
}

// respond responds to the evictions of the pod, if that is asked for, until ctx ends; the result waits for it.
func (o Runner) respond(ctx context.Context, d *service.Defender) (stopped func(), err error) {
	if !o.evictions {
		return func() {}, nil
	}
	api, err := responder.InCluster()
	if err != nil {
		return nil, fmt.Errorf("--respond-to-evictions: %w", err)
	}
	r := responder.New(responder.Config{API: api, Pod: o.Pod, PodUID: o.podUID, Worker: d.Worker})
	done := make(chan struct{})
	go func() {
		defer close(done)
		r.Run(ctx)
	}()
	return func() { <-done }, nil
}

// defenderHTTP serves a defender's state and what its store knows.
func defenderHTTP(d *service.Defender) http.Handler {
	mux, api := http.NewServeMux(), defender.API(d.Store)
	mux.Handle("/", defender.HTTP(d.Worker, d.Registry))
	mux.Handle("/api/v1/alarms", api)
	mux.Handle("/api/v1/chambers", api)
	mux.Handle("/api/v1/chambers/", api)
	live := defender.Live(d.Handler, d.Worker)
	for _, path := range []string{"/api/v1/assignments", "/api/v1/cache/stats", "/api/v1/alarms/standing", "/api/v1/alarms/ack"} {
		mux.Handle(path, live)
	}
	return mux
}

// reloadInterval is how often the file of strategies is looked at.
const reloadInterval = 5 * time.Second

// watchStrategies loads a file of strategies and has the defender judge by it; a
// nil watcher stands for no file, and for the default strategy.
func watchStrategies(cmd *cobra.Command, name string, o *service.Options) (*strategy.Watcher, error) {
	if name == "" {
		set := strategy.Default()
		o.Configure = func(c *defender.Config) { c.Strategies = set }
		return nil, nil
	}
	w, err := strategy.Watch(name, slog.Default())
	if faults := new(strategy.Faults); errors.As(err, &faults) {
		return nil, command.UsageError(cmd, err)
	}
	if err != nil {
		return nil, err
	}
	o.Configure = func(c *defender.Config) {
		c.Strategies = w
		c.ClearAfter = func(ref defender.ContextRef) int {
			s, _ := w.Set().Of(ref)
			return s.ClearAfter()
		}
	}
	return w, nil
}

// postAlarms posts alarms to the webhooks of the strategies until ctx ends. What
// goes wrong with it doesn't end the defender.
func postAlarms(ctx context.Context, url string, w *strategy.Watcher) {
	nc, err := access.Connect(url, "muster defender webhooks")
	if err != nil {
		slog.Error("Alarms are not posted to webhooks.", "err", err)
		return
	}
	defer nc.Close()
	if err := webhook.New(webhook.Config{Conn: nc, Strategies: w.Set, Secret: os.Getenv, Logger: slog.Default()}).Run(ctx); err != nil {
		slog.Error("Alarms are not posted to webhooks.", "err", err)
	}
}
