package defender

import (
	"errors"
	"fmt"
	"os"
	"strings"

	"github.com/spf13/cobra"

	"github.com/muster-dev/muster/defender/cassandra"
	"github.com/muster-dev/muster/defender/connect"
	"github.com/muster-dev/muster/internal/command"
)

// storeUsage describes the flag --store of every command that has one.
const storeUsage = "SQLite file of the results, beside which that of the T-charts lies; or \"cassandra\", which the environment describes"

// cassandraHelp lists the settings of Cassandra for a command's help.
func cassandraHelp() string {
	var b strings.Builder
	b.WriteString("\n\nWith --store cassandra, the environment says where that is:\n")
	for _, i := range cassandra.Settings() {
		fmt.Fprintf(&b, "  %-24s %s", i.Env, i.Meaning)
		if i.Default != "" {
			fmt.Fprintf(&b, " (%s)", i.Default)
		}
		b.WriteByte('\n')
	}
	return strings.TrimRight(b.String(), "\n")
}

func newCreateSchema() *cobra.Command {
	var replicas int
	var replication string
	var show bool
	cmd := &cobra.Command{
		Use:   "create-schema",
		Short: "Create the keyspace and the tables of the defenders in Cassandra",
		Long: "Create-schema creates what is missing, once, with a role that may create. Defenders\n" +
			"need a role that may read and write only. It needs no flag --store: SQLite files\n" +
			"are created by those who open them." + cassandraHelp(),
		Example: "  CASSANDRA_HOSTS=10.0.0.7 CASSANDRA_DATACENTER=fab1 muster defender create-schema --replicas 3\n" +
			"  muster defender create-schema --print > schema.cql",
		Args: command.Args(cobra.NoArgs),
		RunE: func(cmd *cobra.Command, _ []string) error {
			c, err := schemaConfig(show)
			both := cmd.Flags().Changed("replicas") && cmd.Flags().Changed("replication")
			if err := errors.Join(command.Unless(replicas > 0, fmt.Errorf("--replicas is %d: give at least 1", replicas)),
				command.Unless(!both, errors.New("--replication says it all: leave --replicas out")), err); err != nil {
				return command.UsageError(cmd, err)
			}
			if replication == "" {
				replication = cassandra.Replication(c.Datacenter, replicas)
			}
			if show {
				_, err := fmt.Fprintln(cmd.OutOrStdout(), strings.Join(cassandra.Schema(c.Keyspace, replication), ";\n\n")+";")
				return err
			}
			if err := cassandra.CreateSchema(cmd.Context(), c, replication); err != nil {
				return err
			}
			_, err = fmt.Fprintf(cmd.OutOrStdout(), "keyspace %s and its tables are there\n", c.Keyspace)
			return err
		},
	}
	f := cmd.Flags()
	f.IntVar(&replicas, "replicas", 3, "copies of everything in the datacenter; what is lost with a node is what has one copy")
	f.StringVar(&replication, "replication", "", "replication of the keyspace in CQL, instead of --replicas")
	f.BoolVar(&show, "print", false, "print the statements instead")
	return command.WithUsageErrors(cmd)
}

// schemaConfig reads the settings; who wants to print only needs no hosts.
func schemaConfig(show bool) (cassandra.Config, error) {
	if show {
		c, _, err := cassandra.ConfigFromEnv(os.LookupEnv)
		return c, err
	}
	return connect.Config(os.LookupEnv)
}
