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

	"github.com/muster-dev/muster/defender"
	"github.com/muster-dev/muster/defender/connect"
	"github.com/muster-dev/muster/defender/gem"
	"github.com/muster-dev/muster/defender/ingest"
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
	in, err := openIntake(ctx, o.nats, "muster collect", o.store)
	if err != nil {
		return err
	}
	defer in.close()
	ledger, err := gem.OpenLedger(cmp.Or(o.ledger, o.plan+".ledger"))
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, ledger.Close()) }()

	taker := ingest.New(ingest.Config{Store: in.store, Publisher: ingest.Through(in.collector)})
	host := gem.New(gem.Config{
		Plan: plan, Taker: taker, Store: in.store, Ledger: ledger, Logger: slog.New(slog.NewTextHandler(o.log, nil)),
		Report: func(r gem.Report) { _, _ = fmt.Fprintln(o.out, r) },
	})
	if plan.Responds() {
		stop, err := respond(ctx, in.nc, host)
		if err != nil {
			return err
		}
		defer stop()
	}
	return host.Run(ctx)
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
