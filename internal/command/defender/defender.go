// Package defender has the commands of the fault detection: defender with run, ingest, export, analyze, alarms, faults,
// reset, check, schema and create-schema, and collect. They link no NATS server.
package defender

import (
	"github.com/spf13/cobra"

	"github.com/muster-dev/muster/internal/command"
	"github.com/muster-dev/muster/internal/command/doctor"
	"github.com/muster-dev/muster/internal/command/partitions"
)

// New returns the commands of defenders.
func New() *cobra.Command {
	cmd := &cobra.Command{Use: "defender", Short: "Fault detection for process chambers"}
	cmd.AddCommand(newRun(), newIngest(), newExport(), newAnalyze(), newCheck(), newSchema(), newReset(), newAlarms(), newFaults(), newCreateSchema())
	return cmd
}

// Binary returns the root command of muster-defender: the commands of defenders, which need
// no first word there, and what else is needed where defenders run. The alerts on them send
// people to partitions and doctor, which only ask the NATS servers.
func Binary() *cobra.Command {
	root := New()
	root.Use = "muster-defender"
	root.Example = "  muster defender run --nats nats://127.0.0.1:4222 --store /var/lib/muster/fdc.db\n" +
		"  muster defender alarms list\n" +
		"  muster partitions status"
	root.AddCommand(NewCollect(), partitions.New(), doctor.New())
	command.Rename(root,
		"muster defender", root.Use,
		"muster collect", root.Use+" collect",
		"muster partitions", root.Use+" partitions",
		"muster doctor", root.Use+" doctor")
	return root
}
