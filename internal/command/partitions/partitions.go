// Package partitions has the commands that show and steer which worker has which keys.
package partitions

import (
	"github.com/spf13/cobra"

	"github.com/muster-dev/muster/internal/command"
)

// New returns the commands on a group of workers.
func New() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "partitions",
		Short: "See and steer which worker has which keys",
		Long: "Partitions shows who owns which slots of a group's keys, previews what the\n" +
			"leader would move and why, drains workers, overrides the owners of slots, reshards,\n" +
			"and lists what happened. It asks the NATS server only; nothing but drain needs the\n" +
			"workers themselves.",
		Example: "  muster partitions status\n" +
			"  muster partitions plan --add 15\n" +
			"  muster partitions drain defender-7\n" +
			"  muster partitions override tool001:chamber1 defender-3\n" +
			"  muster partitions reshard --slots 512\n" +
			"  muster partitions mapping --shards 4\n" +
			"  muster partitions events --follow",
	}
	cmd.AddCommand(newStatus(), newPlan(), newDrain(), newOverride(), newReshard(), newMapping(), newDeadLetters(), newEvents())
	return command.WithUsageErrors(cmd)
}
