package nodes

import (
	"context"
	"errors"
	"log/slog"
	"strings"

	"github.com/spf13/cobra"

	"github.com/muster-dev/muster/internal/command"
	"github.com/muster-dev/muster/internal/listen"
	"github.com/muster-dev/muster/nodes"
	"github.com/muster-dev/muster/nodes/connect"
	"github.com/muster-dev/muster/nodes/daemon"
	"github.com/muster-dev/muster/setting"
)

func newRun(o Options) *cobra.Command {
	var n *Command
	cmd := &cobra.Command{
		Use:   "run",
		Short: "Run the node plane until it is interrupted",
		Long: "Run ticks every TICK_SEC, handles interruption events from INTERRUPTION_QUEUE, and\n" +
			"serves the console, /metrics, /healthz and /readyz. On SIGTERM it begins nothing\n" +
			"new, lets what is under way come to a point at which it can be left, gives the lease\n" +
			"back and exits with 0; the next process continues from there.",
		Example: "  muster nodes run --config /etc/muster/muster.yaml --log-format json",
		Args:    command.Args(cobra.NoArgs),
		RunE:    func(cmd *cobra.Command, _ []string) error { return n.run(cmd.Context()) },
	}
	n = NewCommand(o, cmd, nil, DaemonSettings())
	cmd.Flags().Lookup("output").Hidden = true // it writes a log, whose form is LOG_FORMAT
	if o.ExtendRun != nil {
		o.ExtendRun(n)
	}
	return cmd
}

func (n *Command) run(ctx context.Context) error {
	src, err := n.Sources()
	if err != nil {
		return err
	}
	clock, err := n.clock()
	if err != nil {
		return err
	}
	d, err := n.OpenDaemon(ctx, src, clock)
	if err != nil {
		return err
	}
	defer func() { _ = d.Close() }()
	return d.Serve(ctx)
}

// Daemon is a node plane that is opened to be run.
type Daemon struct {
	Log *slog.Logger

	command  *Command
	plane    *plane
	settings daemonSettings
}

// OpenDaemon opens everything that a daemon works with. A wrong setting of any part is an error of usage that lists all of them.
func (n *Command) OpenDaemon(ctx context.Context, src connect.Sources, clock nodes.Clock) (*Daemon, error) {
	settings, settingsErr := parseDaemon(src.Lookup)
	log := settings.logger(n.ErrOrStderr())

	plane, err := openPlane(ctx, src.Lookup, connect.Options{Clock: clock, Log: log})
	if err == nil && settingsErr != nil {
		_ = plane.close()
	}
	if err := setting.Join(err, settingsErr); err != nil {
		return nil, n.wrongSettings(err)
	}
	return &Daemon{Log: log, command: n, plane: plane, settings: settings}, nil
}

// wrongSettings makes an error of settings one of usage.
func (n *Command) wrongSettings(err error) error {
	var wrong *setting.Error
	if errors.As(err, &wrong) {
		return command.UsageError(n.Command, err)
	}
	return err
}

// Policy returns the policy that the daemon decides by.
func (d *Daemon) Policy() nodes.Policy { return d.plane.Config.Policy }

// Close closes what OpenDaemon has opened, after Serve has returned.
func (d *Daemon) Close() error { return d.plane.close() }

// Serve runs the daemon and its pages until ctx ends.
func (d *Daemon) Serve(ctx context.Context) error {
	plane := d.plane
	show, err := newPlaneConsole(ctx, plane)
	if err != nil {
		return err
	}
	plane.Config.Holder = d.settings.holder()
	dm, err := daemon.New(plane.Config, daemon.Options{
		Interval: d.settings.Interval, StopTimeout: d.settings.StopTimeout, Log: d.Log,
		Poll: plane.Poll, Watch: plane.Watch, Follow: plane.follow, Price: plane.Price, TokenExpires: plane.TokenExpires,
	})
	if err != nil {
		return err
	}

	// It listens before it runs: the address is what no other process can have, so that
	// the holder's name is its own.
	at := "off"
	if d.settings.HTTP != "off" {
		if at, err = listen.HTTP(context.WithoutCancel(ctx), d.settings.HTTP, pages(dm.Handler(), show)); err != nil {
			return command.UsageError(d.command.Command, err)
		}
		go show.Run(ctx)
	}
	p := plane.Config.Policy
	if len(plane.WithoutEffect) > 0 {
		d.Log.Warn("settings without effect with SIGNALS=kubernetes", "settings", strings.Join(plane.WithoutEffect, ","))
	}
	d.Log.Info("running", "cluster", nodes.RecordKey(p.Cluster), "store", plane.Where, "http", at, "interval", d.settings.Interval,
		"minWorkers", p.MinWorkers, "maxWorkers", p.MaxWorkers, "interruptions", plane.Poll != nil, "watch", plane.Watch != nil)
	return dm.Run(ctx)
}
