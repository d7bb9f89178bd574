package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/muster-dev/muster/internal/listen"
	"github.com/muster-dev/muster/nodes"
	"github.com/muster-dev/muster/nodes/connect"
	"github.com/muster-dev/muster/nodes/daemon"
	"github.com/muster-dev/muster/nodes/explain"
	"github.com/muster-dev/muster/setting"
)

// ---- settings of the daemon

// daemonSettings are those of the process; they are not part of what decisions depend on.
type daemonSettings struct {
	Interval    time.Duration
	StopTimeout time.Duration
	HTTP        string
	LogFormat   string
	LogLevel    slog.Level
}

var daemonList = []setting.Setting[daemonSettings]{
	setting.New("TICK_SEC", "60", "from the start of one tick to that of the next, give or take a tenth", setting.Seconds(func(d *daemonSettings) *time.Duration { return &d.Interval })),
	setting.New("STOP_TIMEOUT_SEC", "20", "what a running tick is given to come to an end when the daemon is stopped", setting.Seconds(func(d *daemonSettings) *time.Duration { return &d.StopTimeout })),
	setting.New("HTTP", "127.0.0.1:9808", "address of the console, /metrics, /healthz and /readyz; off for none", setting.Text(func(d *daemonSettings) *string { return &d.HTTP })),
	setting.New("LOG_FORMAT", "text", "text or json", setting.Text(func(d *daemonSettings) *string { return &d.LogFormat })),
	setting.New("LOG_LEVEL", "info", "debug, info, warn or error", func(d *daemonSettings, v string) error {
		if err := d.LogLevel.UnmarshalText([]byte(v)); err != nil {
			return errors.New("write debug, info, warn or error")
		}
		return nil
	}),
}

func daemonGroup() connect.Group {
	return connect.Group{Name: "Daemon", Settings: setting.Describe(daemonList)}
}

func parseDaemon(lookup setting.Lookup) (daemonSettings, error) {
	var d daemonSettings
	err := setting.Parse(&d, daemonList, lookup, func(d daemonSettings) []setting.Problem {
		var out []setting.Problem
		check := func(ok bool, name string, value any, fix string) {
			if !ok {
				out = append(out, setting.Problem{Setting: name, Value: fmt.Sprint(value), Fix: fix})
			}
		}
		check(d.Interval >= time.Second, "TICK_SEC", int64(d.Interval/time.Second), "use 1 or more seconds")
		check(d.StopTimeout >= time.Second && d.StopTimeout <= 10*time.Minute, "STOP_TIMEOUT_SEC", int64(d.StopTimeout/time.Second), "use 1 to 600 seconds")
		check(d.LogFormat == "text" || d.LogFormat == "json", "LOG_FORMAT", d.LogFormat, "write text or json")
		if d.HTTP != "off" {
			_, _, err := net.SplitHostPort(d.HTTP)
			check(err == nil, "HTTP", d.HTTP, "write HOST:PORT, for example 127.0.0.1:9808, :9808 for every interface, or off")
		}
		return out
	})
	return d, err
}

func (d daemonSettings) logger(w io.Writer) *slog.Logger {
	opts := &slog.HandlerOptions{Level: d.LogLevel}
	if d.LogFormat == "json" {
		return slog.New(slog.NewJSONHandler(w, opts))
	}
	return slog.New(slog.NewTextHandler(w, opts))
}

// holder names this daemon so that the one that is started after a crash takes its predecessor's claims at once. Only one process can
// listen on an address, and serve listens before the daemon runs, so no other process has the name. Without a fixed address there is
// no such name.
func (d daemonSettings) holder() string {
	_, port, err := net.SplitHostPort(d.HTTP)
	if err != nil || port == "" || port == "0" {
		return ""
	}
	host, err := os.Hostname()
	if err != nil {
		return ""
	}
	return host + "/" + d.HTTP
}

// ---- run

func newNodesRun() *cobra.Command {
	var n *nodesCommand
	var o simulateOptions
	var simulated bool
	cmd := &cobra.Command{
		Use:   "run",
		Short: "Run the node plane until it is interrupted",
		Long: "Run ticks every TICK_SEC, handles interruption events from INTERRUPTION_QUEUE, and\n" +
			"serves the console, /metrics, /healthz and /readyz. On SIGTERM it begins nothing\n" +
			"new, lets what is under way come to a point at which it can be left, gives the lease\n" +
			"back and exits with 0; whoever runs next goes on from there.\n\n" +
			"With --simulate the cloud, the cluster and its Prometheus are simulated on this\n" +
			"machine, behind the protocols of the real ones: no account is needed, and load comes\n" +
			"and goes by itself. Times are shortened unless they are set.",
		Example: "  muster nodes run --config /etc/muster/muster.yaml --log-format json\n" +
			"  muster nodes run --simulate\n" +
			"  muster nodes run --simulate --speed 5 --pending-source phase",
		Args: usage(cobra.NoArgs),
		RunE: func(cmd *cobra.Command, _ []string) error {
			if !simulated {
				for _, name := range []string{"speed", "for", "seed", "no-load"} {
					if cmd.Flags().Changed(name) {
						return usageError(cmd, fmt.Errorf("--%s goes with --simulate", name))
					}
				}
				return n.run(cmd.Context())
			}
			if !(o.speed >= 1 && o.speed <= 20) {
				return usageError(cmd, fmt.Errorf("--speed is %v: use 1 to 20", o.speed))
			}
			return n.runSimulated(cmd.Context(), o)
		},
	}
	n = newNodesCommand(cmd, nil, daemonGroup())
	f := cmd.Flags()
	f.Lookup("output").Hidden = true // it writes a log, whose form is LOG_FORMAT
	f.BoolVar(&simulated, "simulate", false, "simulate cloud, cluster and Prometheus on this machine")
	f.Float64Var(&o.speed, "speed", 1, "with --simulate: how many times faster than real time passes there, 1 to 20")
	f.DurationVar(&o.lasts, "for", 0, "with --simulate: end after this long; 0 goes on until interrupted")
	f.Uint64Var(&o.seed, "seed", 1, "with --simulate: seed of what is drawn by lot")
	f.BoolVar(&o.quiet, "no-load", false, "with --simulate: let no load come by itself")
	return cmd
}

func (n *nodesCommand) run(ctx context.Context) error {
	src, err := n.sources()
	if err != nil {
		return err
	}
	clock, err := n.clock()
	if err != nil {
		return err
	}
	plane, d, log, err := n.openDaemon(ctx, src, clock)
	if err != nil {
		return err
	}
	defer func() { _ = plane.close() }()
	return n.serve(ctx, plane, d, log)
}

// openDaemon opens everything that a daemon works with. A wrong setting of any part is an error of usage that lists all of them.
func (n *nodesCommand) openDaemon(ctx context.Context, src connect.Sources, clock nodes.Clock) (*plane, daemonSettings, *slog.Logger, error) {
	d, daemonErr := parseDaemon(src.Lookup)
	log := d.logger(n.ErrOrStderr())
	plane, err := openPlane(ctx, src.Lookup, connect.Options{Clock: clock, Log: log})
	if err == nil && daemonErr != nil {
		_ = plane.close()
	}
	return plane, d, log, n.wrongSettings(setting.Join(err, daemonErr))
}

// wrongSettings makes an error of settings one of usage.
func (n *nodesCommand) wrongSettings(err error) error {
	var wrong *setting.Error
	if errors.As(err, &wrong) {
		return usageError(n.Command, err)
	}
	return err
}

// serve runs a daemon and its pages until ctx ends.
func (n *nodesCommand) serve(ctx context.Context, plane *plane, d daemonSettings, log *slog.Logger) error {
	show, err := newNodesConsole(ctx, plane)
	if err != nil {
		return err
	}
	plane.Config.Holder = d.holder()
	dm, err := daemon.New(plane.Config, daemon.Options{Interval: d.Interval, StopTimeout: d.StopTimeout, Log: log,
		Poll: plane.Poll, Follow: plane.follow, Price: plane.Price, TokenExpires: plane.TokenExpires})
	if err != nil {
		return err
	}
	at := "off"
	if d.HTTP != "off" {
		if at, err = listen.HTTP(context.WithoutCancel(ctx), d.HTTP, pages(dm.Handler(), show)); err != nil {
			return usageError(n.Command, err)
		}
		go show.Run(ctx)
	}
	p := plane.Config.Policy
	log.Info("running", "cluster", nodes.RecordKey(p.Cluster), "store", plane.Where, "http", at, "interval", d.Interval,
		"minWorkers", p.MinWorkers, "maxWorkers", p.MaxWorkers, "interruptions", plane.Poll != nil)
	return dm.Run(ctx)
}

// ---- tick

func newNodesTick() *cobra.Command {
	var n *nodesCommand
	var dryRun bool
	cmd := &cobra.Command{
		Use:   "tick",
		Short: "Do one tick, or show what it would decide",
		Long: "Tick does one round of what the daemon does every minute: it goes on with what is\n" +
			"open, sweeps, decides, and begins at most one action. With --dry-run it reads\n" +
			"everything, decides, and writes, launches and removes nothing.",
		Example: "  muster nodes tick --dry-run --config muster.yaml\n" +
			"  muster nodes tick",
		Args: usage(cobra.NoArgs),
		RunE: func(cmd *cobra.Command, _ []string) error {
			if dryRun {
				return n.dryRun(cmd.Context())
			}
			return n.tick(cmd.Context())
		},
	}
	n = newNodesCommand(cmd, nil)
	cmd.Flags().BoolVar(&dryRun, "dry-run", false, "change nothing; show what a tick would decide and why")
	return cmd
}

// open opens everything that the settings name.
func (n *nodesCommand) open(ctx context.Context, clock nodes.Clock) (*plane, error) {
	src, err := n.sources()
	if err != nil {
		return nil, err
	}
	p, err := openPlane(ctx, src.Lookup, connect.Options{Clock: clock})
	return p, n.wrongSettings(err)
}

// plan looks at everything now and decides, without changing anything.
func (n *nodesCommand) plan(ctx context.Context) (nodes.Snapshot, error) {
	clock, err := n.clock()
	if err != nil {
		return nodes.Snapshot{}, err
	}
	plane, err := n.open(ctx, unhurried(clock))
	if err != nil {
		return nodes.Snapshot{}, err
	}
	defer func() { _ = plane.close() }()
	r, err := nodes.New(plane.Config)
	if err != nil {
		return nodes.Snapshot{}, err
	}
	return r.Plan(ctx)
}

// planned is what a dry run found.
type planned struct {
	At          time.Time         `json:"at"`
	Decision    nodes.Decision    `json:"decision"`
	Outlook     explain.Outlook   `json:"outlook"`
	Observation nodes.Observation `json:"observation"`
}

func (n *nodesCommand) dryRun(ctx context.Context) error {
	s, err := n.plan(ctx)
	if err != nil {
		return err
	}
	d, err := new(connect.Deciders).For(s.Policy)
	if err != nil {
		return err
	}
	out := planned{At: s.Now, Decision: s.Decision, Outlook: explain.Ahead(d, s), Observation: s.Observation}
	return n.write(out, func(w io.Writer, style explain.Style) error {
		if _, err := fmt.Fprintln(w, "Dry run: nothing was written, launched or removed."); err != nil {
			return err
		}
		return explain.WriteSnapshot(w, style, s, out.Outlook)
	})
}

func (n *nodesCommand) tick(ctx context.Context) error {
	clock, err := n.clock()
	if err != nil {
		return err
	}
	plane, err := n.open(ctx, clock)
	if err != nil {
		return err
	}
	defer func() { _ = plane.close() }()
	// A signal must not keep the lease from being given back: like the daemon's, a tick that is under way comes to a point at which
	// it can be left, and is cut off only if that takes too long.
	plane.Config.Stopping = func() bool { return ctx.Err() != nil }
	r, err := nodes.New(plane.Config)
	if err != nil {
		return err
	}
	work, cut := context.WithCancel(context.WithoutCancel(ctx))
	defer cut()
	defer context.AfterFunc(ctx, func() { time.AfterFunc(20*time.Second, cut) })()
	report, tickErr := r.Tick(work)
	t := explain.Tick{ID: report.Tick, At: clock.Now(), Decision: report.Decision, Events: report.Events}
	if len(t.Events) > 0 {
		t.At = t.Events[0].At
		if t, err = explain.About(new(connect.Deciders).For, report.Events); err != nil {
			return err
		}
	}
	if err := n.write(t, func(w io.Writer, style explain.Style) error { return explain.WriteTick(w, style, t, clock.Now()) }); err != nil {
		return err
	}
	if tickErr != nil {
		return fmt.Errorf("the tick met %s", strings.ReplaceAll(nodes.Redact(tickErr.Error()), "\n", "; "))
	}
	return nil
}

// ---- doctor

func newNodesDoctor() *cobra.Command {
	var n *nodesCommand
	var create bool
	cmd := &cobra.Command{
		Use:   "doctor",
		Short: "Check that everything the node plane needs is there, and say what to fix",
		Long: "Doctor checks credentials, permissions (by dry-run calls and access reviews), subnets,\n" +
			"image and join settings, every query, the tables, critical pods on workers, and the\n" +
			"clocks. It changes nothing, unless --create-tables asks for the tables of the record\n" +
			"and the journal where there are none. It exits with 1 if a check fails.",
		Example: "  muster nodes doctor --config muster.yaml\n" +
			"  muster nodes doctor --create-tables --config muster.yaml\n" +
			"  muster nodes doctor --output json | jq '.[] | select(.ok | not)'",
		Args: usage(cobra.NoArgs),
		RunE: func(cmd *cobra.Command, _ []string) error { return n.doctor(cmd.Context(), create) },
	}
	n = newNodesCommand(cmd, nil)
	cmd.Flags().BoolVar(&create, "create-tables", false, "first create the DynamoDB tables STATE_TABLE and LOGS_TABLE if they are not there; needs permission to")
	return cmd
}

func (n *nodesCommand) doctor(ctx context.Context, create bool) error {
	src, err := n.sources()
	if err != nil {
		return err
	}
	s, err := connect.Parse(src.Lookup)
	if err != nil {
		return usageError(n.Command, err)
	}
	if create {
		if s.Policy.StateTable == "" {
			return usageError(n.Command, errors.New("--create-tables: name the tables by STATE_TABLE and LOGS_TABLE"))
		}
		if err := connect.CreateTables(ctx, s); err != nil {
			return fmt.Errorf("creating the tables, %w", err)
		}
	}
	clock, err := n.clock()
	if err != nil {
		return err
	}
	checks := append(connect.Check(ctx, s, connect.Options{Clock: unhurried(clock), Local: localStore{}}), s.Policy.Advice()...)
	if err := n.write(checks, func(w io.Writer, style explain.Style) error { return explain.WriteChecks(w, style, checks) }); err != nil {
		return err
	}
	failed := 0
	for _, c := range checks {
		if !c.OK {
			failed++
		}
	}
	if failed > 0 {
		return fmt.Errorf("%d of %d checks failed", failed, len(checks))
	}
	return nil
}
