// Package broker has the commands of the embedded NATS server.
package broker

import (
	"context"
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/spf13/cobra"

	"github.com/muster-dev/muster/broker"
	"github.com/muster-dev/muster/internal/command"
	"github.com/muster-dev/muster/internal/misuse"
)

// SyncHelp is the help of --sync.
const SyncHelp = "when the server syncs to the disk what it acknowledges: always (a power cut loses nothing), " +
	"default (every two minutes; a power cut loses what is younger), or an interval such as 1s"

// New returns the commands of the embedded NATS server.
func New() *cobra.Command {
	cmd := &cobra.Command{Use: "broker", Short: "The NATS server that is part of Muster"}
	cmd.AddCommand(NewRun(), newAccounts())
	return cmd
}

// NewRun returns the command that runs one NATS server.
func NewRun() *cobra.Command {
	o := broker.Options{Sync: broker.SyncAlways}
	var accounts string
	cmd := &cobra.Command{
		Use:   "run",
		Short: "Run one NATS server with JetStream on 127.0.0.1 until it is interrupted",
		Long: "Run runs the embedded NATS server alone, or with --cluster-port and --routes as\n" +
			"one of a cluster on this machine. A cluster needs three or five of them; their\n" +
			"streams can then have as many replicas.",
		Example: "  muster broker run --dir /var/lib/muster/nats --port 4222\n" +
			"  muster broker run --name nats-1 --dir n1 --port 4222 --cluster-port 6222 --routes 127.0.0.1:6222,127.0.0.1:6223,127.0.0.1:6224",
		Args: command.Args(cobra.NoArgs),
		RunE: func(cmd *cobra.Command, _ []string) error {
			var err error
			if o.Accounts, err = readAccounts(accounts); err != nil {
				return err
			}
			return runBroker(cmd.Context(), o, cmd.OutOrStdout())
		},
	}
	f := cmd.Flags()
	f.StringVar(&o.Dir, "dir", "nats", "directory of the streams")
	f.IntVar(&o.Port, "port", 4222, "TCP port for clients, 0 for a free one")
	f.StringVar(&o.Name, "name", "", "name of the server, another for each of a cluster; \"muster\" without it")
	f.IntVar(&o.ClusterPort, "cluster-port", 0, "TCP port for the other servers of the cluster; 0: the server is alone")
	f.StringSliceVar(&o.Routes, "routes", nil, "host:port of the cluster ports of all servers")
	f.StringToStringVar(&o.Mappings, "map", nil, "SUBJECT=SUBJECT: change the subject of what is published, once for each mapping, as partitions mapping shows them")
	f.BoolVar(&o.NoAdvertise, "no-advertise", false, "don't tell clients the addresses of the cluster's other servers, as behind a proxy")
	f.StringVar(&accounts, "accounts", "", "file with the accounts and their users, as broker accounts writes it; without it every client may do everything")
	f.Var(&o.Sync, "sync", SyncHelp)
	f.StringVar(&o.LogFile, "log-file", "", "file of the server's log; none without it")
	return command.WithUsageErrors(cmd)
}

// readAccounts reads a file of accounts; without one the server has none.
func readAccounts(file string) (string, error) {
	if file == "" {
		return "", nil
	}
	text, err := os.ReadFile(file)
	if err != nil {
		return "", misuse.Errorf("reading --accounts: %w: name a file with what muster broker accounts writes", err)
	}
	if strings.TrimSpace(string(text)) == "" {
		return "", misuse.Errorf("reading --accounts: %s is empty: name a file with what muster broker accounts writes", file)
	}
	return string(text), nil
}

// runBroker runs a server until ctx ends, and writes where it is when clients can connect.
func runBroker(ctx context.Context, o broker.Options, out io.Writer) error {
	s, err := broker.Start(o)
	if err != nil {
		return &misuse.Error{Err: err}
	}
	_, _ = fmt.Fprintln(out, "NATS server at", s.URL())

	<-ctx.Done()
	s.Stop()
	return nil
}
