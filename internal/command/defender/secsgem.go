package defender

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"

	"github.com/nats-io/nats.go"
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/muster-dev/muster/broker/access"
	"github.com/muster-dev/muster/defender"
	"github.com/muster-dev/muster/defender/collect"
	"github.com/muster-dev/muster/defender/connect"
	"github.com/muster-dev/muster/defender/gem"
	"github.com/muster-dev/muster/defender/ingest"
	"github.com/muster-dev/muster/internal/misuse"
	"github.com/muster-dev/muster/partition"
)

// gemHost is how `muster collect --secs-gem` was asked to run.
type gemHost struct {
	nats, store  string
	plan, ledger string
	out, log     io.Writer
}

// check returns everything that is wrong with the options and the plan, by the flags' and
// the plan's names.
func (o *gemHost) check(f *pflag.FlagSet) (*gem.Plan, error) {
	var errs []error
	for _, name := range []string{"slots", "shards", "data", "seed", "chambers", "rate", "count"} {
		if f.Changed(name) {
			errs = append(errs, fmt.Errorf("--%s is of replayed traces: leave it out with --secs-gem", name))
		}
	}
	if o.plan == "" {
		return nil, errors.Join(append(errs, errors.New("--ledger is of --secs-gem: give that as well, or leave it out"))...)
	}
	plan, err := gem.LoadPlan(o.plan)
	if err != nil {
		err = fmt.Errorf("--secs-gem: %w", err)
	}
	return plan, errors.Join(append(errs, err, connect.Check(o.store, os.LookupEnv))...)
}

// run collects until ctx ends.
func (o *gemHost) run(ctx context.Context, plan *gem.Plan) (err error) {
	nc, err := access.Connect(o.nats, "muster collect")
	if err != nil {
		return fmt.Errorf("%w: start the server or give another URL with --nats", err)
	}
	defer nc.Close()
	store, err := connect.Open(ctx, o.store, os.LookupEnv)
	if err != nil {
		return &misuse.Error{Err: err}
	}
	defer func() { _ = store.Close() }()
	c, err := collectorFor(ctx, nc, store)
	if err != nil {
		return err
	}
	ledger, err := gem.OpenLedger(cmp.Or(o.ledger, o.plan+".ledger"))
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, ledger.Close()) }()

	taker := ingest.New(ingest.Config{Store: store, Publisher: ingest.Through(c)})
	host := gem.New(gem.Config{
		Plan: plan, Taker: taker, Store: store, Ledger: ledger, Logger: slog.New(slog.NewTextHandler(o.log, nil)),
		Report: func(r gem.Report) { _, _ = fmt.Fprintln(o.out, r) },
	})
	if plan.Responds() {
		stop, err := respond(ctx, nc, host)
		if err != nil {
			return err
		}
		defer stop()
	}
	return host.Run(ctx)
}

// collectorFor returns a collector that publishes to the streams that the defenders have.
func collectorFor(ctx context.Context, nc *nats.Conn, store defender.Store) (*collect.Collector, error) {
	group, err := partition.Open(nc, defender.Group).Config(ctx)
	if err != nil {
		return nil, fmt.Errorf("looking for the defenders' streams: %w: start a defender first, which creates them", err)
	}
	c, err := collect.New(store, nc)
	if err != nil {
		return nil, err
	}
	c.For(group)
	return c, nil
}

// respond has the host tell equipment of its alarms. An alarm that is raised while nothing
// listens is not told of later: what it asks for would come when the chamber is at something else.
func respond(ctx context.Context, nc *nats.Conn, host *gem.Host) (stop func(), err error) {
	sub, err := nc.Subscribe(defender.AlarmSubjects(">")[0], func(m *nats.Msg) {
		var notice defender.AlarmNotice
		if json.Unmarshal(m.Data, &notice) == nil {
			host.Respond(ctx, notice)
		}
	})
	if err == nil {
		err = nc.FlushWithContext(ctx) // what the server refuses, it has said by then
	}
	if err == nil && errors.Is(nc.LastError(), nats.ErrPermissionViolation) {
		err = fmt.Errorf("%w: give the user the permissions of role collector", nc.LastError())
	}
	if err != nil {
		return nil, fmt.Errorf("listening for alarms, to which the plan responds: %w", err)
	}
	return func() { _ = sub.Unsubscribe() }, nil
}

// flags adds those of the host.
func (o *gemHost) flags(cmd *cobra.Command) {
	f := cmd.Flags()
	f.StringVar(&o.plan, "secs-gem", "", "collect from equipment by this collection plan, in YAML or JSON, instead of replaying")
	f.StringVar(&o.ledger, "ledger", "", "file of the runs that are open, with --secs-gem (default: the plan's name with .ledger)")
}
