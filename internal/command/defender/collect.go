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

// NewCollect returns the command that replays traces as a data collector.
func NewCollect() *cobra.Command {
	var o replay.Options
	cmd := &cobra.Command{
		Use:   "collect",
		Short: "Replay traces as a data collector: T-charts into the store, completion messages to the stream",
		Long: "Collect replays recorded traces, or generated ones with known faults, as many\n" +
			"tools and chambers at a given rate. Each T-chart is durable before its message\n" +
			"is published; a message's ID is its context, so that it is stored once.",
		Example: "  muster collect --nats nats://127.0.0.1:4222 --store fdc.db --data traces/ --rate 200\n" +
			"  muster collect --count 1000",
		Args: command.Args(cobra.NoArgs),
		RunE: func(cmd *cobra.Command, _ []string) error {
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
	return command.WithUsageErrors(cmd)
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
