// Package nodes has the commands of the node plane: run, tick, status, explain, events, pause,
// resume, replay, doctor and settings. They link neither a simulated cluster nor a NATS server.
package nodes

import (
	"github.com/spf13/cobra"

	"github.com/muster-dev/muster/internal/command"
)

// New returns the commands of the node plane.
func New(o Options) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "nodes",
		Short: "Scale a K3s cluster on EC2, and see what the scaling does and why",
		Long: "Nodes is the node plane: it launches instances when pods wait or CPU is high,\n" +
			"counts them only once their nodes are Ready, and drains workers before it\n" +
			"terminates them. Every change is a transaction that survives a crash.",
		Example: "  muster nodes status\n" +
			"  muster nodes explain last",
	}
	cmd.AddCommand(newRun(o), newTick(o), newStatus(o), newExplain(o), newEvents(o), newPause(o), newResume(o), newReplay(o),
		newDoctor(o), newSettings(o))
	return cmd
}

// Binary returns the root command of muster-nodes, in which the commands need no first word.
func Binary() *cobra.Command {
	root := New(Options{})
	root.Use = "muster-nodes"
	command.Rename(root, "muster nodes", root.Use)
	return root
}
