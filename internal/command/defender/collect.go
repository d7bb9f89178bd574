package defender

import (
	"errors"
	"os"

	"github.com/muster-dev/muster/defender/connect"
	"github.com/muster-dev/muster/defender/replay"
	"github.com/muster-dev/muster/internal/command"
	"github.com/muster-dev/muster/internal/misuse"
	"github.com/spf13/cobra"
)

// NewCollect returns the command that is a data collector: of equipment, or of traces that it
// replays.
func NewCollect() *cobra.Command {
	var o replay.Options
	var host gemHost
	cmd := &cobra.Command{
		Use:   "collect",
		Short: "Collect traces from equipment, or replay them: T-charts into the store, completion messages to the stream",
		Long: "Collect replays recorded traces, or generated ones with known faults, as many\n" +
			"tools and chambers at a given rate. Each T-chart is durable before its message\n" +
			"is published; a message's ID is its context, so that it is stored once.\n" +
			"\n" +
			"With --secs-gem it is a GEM host (SEMI E30, E37): it connects to the tools of a\n" +
			"plan, traces their variables, and makes a T-chart of each run. A run with samples\n" +
			"missing is reported as incomplete and not judged. It ends when it is interrupted.",
		Example: "  muster collect --nats nats://127.0.0.1:4222 --store fdc.db --data traces/ --rate 200\n" +
			"  muster collect --count 1000\n" +
			"  muster collect --secs-gem plan.yaml --store fdc.db",
		Args: command.Args(cobra.NoArgs),
		RunE: func(cmd *cobra.Command, _ []string) error {
			if host.plan != "" || host.ledger != "" {
				return collectGEM(cmd, &host, o)
			}
			if err := checkCollect(o); err != nil {
				return command.UsageError(cmd, err)
			}
			o.Out = cmd.OutOrStdout()
			return replay.Run(cmd.Context(), o)
		},
	}
	f := cmd.Flags()
	command.NATSFlag(f, &o.NATS)
	f.StringVar(&o.Store, "store", "fdc.db", storeUsage)
	f.IntVar(&o.Slots, "slots", 1280, "slots that the chambers are divided in")
	f.IntVar(&o.Shards, "shards", 1, "streams that the slots are spread over, as the defenders have it")
	f.StringVar(&o.Data, "data", "", "directory of trace CSV files; without it traces are generated")
	f.Uint64Var(&o.Seed, "seed", 1, "seed of generated traces")
	f.IntVar(&o.Chambers, "chambers", 2400, "chambers to replay as")
	f.IntVar(&o.Rate, "rate", 100, "contexts a second")
	f.IntVar(&o.Count, "count", 0, "stop after N contexts; 0 continues until interrupted")
	host.flags(cmd)
	return command.WithUsageErrors(cmd)
}

// collectGEM collects from equipment, with the options that replaying has as well.
func collectGEM(cmd *cobra.Command, host *gemHost, o replay.Options) error {
	host.nats, host.store, host.out, host.log = o.NATS, o.Store, cmd.OutOrStdout(), cmd.ErrOrStderr()
	plan, err := host.check(cmd.Flags())
	if err != nil {
		return command.UsageError(cmd, err)
	}
	return host.run(cmd.Context(), plan)
}

// checkCollect returns everything that is wrong with the options, by the flags' names.
func checkCollect(o replay.Options) error {
	return errors.Join(
		misuse.Within("chambers", o.Chambers, 1, 100_000),
		misuse.Within("slots", o.Slots, 1, 4096),
		misuse.Shards(o.Shards, o.Slots),
		misuse.Within("rate", o.Rate, 1, 100_000),
		misuse.Within("count", o.Count, 0, 1<<31),
		connect.Check(o.Store, os.LookupEnv))
}
