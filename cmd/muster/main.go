// Command muster is all of Muster in one binary.
package main

import (
	"github.com/spf13/cobra"

	"github.com/muster-dev/muster/internal/command"
	"github.com/muster-dev/muster/internal/command/broker"
	"github.com/muster-dev/muster/internal/command/console"
	"github.com/muster-dev/muster/internal/command/defender"
	"github.com/muster-dev/muster/internal/command/doctor"
	"github.com/muster-dev/muster/internal/command/nodes/backtest"
	"github.com/muster-dev/muster/internal/command/nodes/simulate"
	"github.com/muster-dev/muster/internal/command/partitions"
	"github.com/muster-dev/muster/internal/command/up"
)

func main() { command.Main(newRoot()) }

func newRoot() *cobra.Command {
	root := &cobra.Command{
		Use:   "muster",
		Short: "Capacity that is verified, keys that are handed off",
		Long: "Muster keeps elastic clusters honest: capacity counts only once it is verified,\n" +
			"and every change of it is a transaction that survives a crash at any point.",
	}
	nodes := simulate.New()
	nodes.AddCommand(backtest.New())
	root.AddCommand(up.New(), nodes, partitions.New(), defender.New(), defender.NewCollect(), broker.New(), console.New(), doctor.New(), up.NewRig())
	return root
}
