package defender

import (
	"errors"
	"fmt"
	"os"
	"strconv"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"github.com/muster-dev/muster/broker/access"
	"github.com/muster-dev/muster/defender"
	"github.com/muster-dev/muster/defender/connect"
	"github.com/muster-dev/muster/internal/command"
)

func newDead() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "dead",
		Short: "Look at the messages that can't be processed, and send them again",
		Long: "Dead letters are messages that can't be processed: unreadable ones, ones whose trace\n" +
			"is missing or corrupt, and ones that failed, panicked or killed their defender three times.",
	}
	cmd.AddCommand(newDeadList(), newDeadRequeue())
	return cmd
}

func newDeadList() *cobra.Command {
	var url, output string
	var from uint64
	var limit int
	cmd := &cobra.Command{
		Use:     "list",
		Short:   "List dead letters, oldest first",
		Example: "  muster defender dead list --nats nats://127.0.0.1:4222\n  muster defender dead list --output json",
		Args:    command.Args(cobra.NoArgs),
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := errors.Join(command.CheckOutput(output), command.Unless(limit > 0, fmt.Errorf("--limit is %d: give at least 1", limit))); err != nil {
				return command.UsageError(cmd, err)
			}
			nc, err := access.Connect(url, "muster defender dead")
			if err != nil {
				return err
			}
			defer nc.Close()
			letters, err := defender.DeadLetters(cmd.Context(), nc, from, limit)
			if err != nil {
				return err
			}
			if output == "json" {
				if letters == nil {
					letters = []defender.DeadLetter{}
				}
				return command.WriteJSON(cmd.OutOrStdout(), letters)
			}
			w := tabwriter.NewWriter(cmd.OutOrStdout(), 0, 8, 2, ' ', 0)
			_, _ = fmt.Fprintln(w, "SEQUENCE\tSINCE\tCHAMBER\tCONTEXT\tERROR")
			for _, l := range letters {
				_, _ = fmt.Fprintf(w, "%d\t%s\t%s\t%s\t%s\n", l.Sequence, l.Time.UTC().Format(time.RFC3339), command.OrDash(l.Chamber), command.OrDash(l.ID), l.Error)
			}
			return w.Flush()
		},
	}
	f := cmd.Flags()
	command.NATSFlag(f, &url)
	f.Uint64Var(&from, "from", 0, "first sequence to list")
	f.IntVar(&limit, "limit", 100, "most letters to list")
	f.StringVar(&output, "output", "table", "table or json")
	return command.WithUsageErrors(cmd)
}

func newDeadRequeue() *cobra.Command {
	var url, store string
	var all bool
	cmd := &cobra.Command{
		Use:   "requeue [SEQUENCE...]",
		Short: "Send dead letters again, with their attempts forgotten",
		Long: "Requeue sends messages again and takes them off the dead letters. What a message\n" +
			"led to is stored once, however often it is sent.",
		Example: "  muster defender dead requeue 12 15 --store fdc.db\n  muster defender dead requeue --all\n  CASSANDRA_HOSTS=10.0.0.7 muster defender dead requeue --all --store cassandra",
		RunE: func(cmd *cobra.Command, args []string) error {
			sequences, err := parseSequences(args, all)
			if err := errors.Join(err, connect.Check(store, os.LookupEnv)); err != nil {
				return command.UsageError(cmd, err)
			}
			st, err := connect.Open(cmd.Context(), store, os.LookupEnv)
			if err != nil {
				return err
			}
			defer func() { _ = st.Close() }()
			nc, err := access.Connect(url, "muster defender dead")
			if err != nil {
				return err
			}
			defer nc.Close()
			if all {
				letters, err := defender.DeadLetters(cmd.Context(), nc, 0, 1<<20)
				if err != nil {
					return err
				}
				for _, l := range letters {
					sequences = append(sequences, l.Sequence)
				}
			}
			var errs []error
			for _, seq := range sequences {
				l, err := defender.Requeue(cmd.Context(), nc, st, seq)
				if err != nil {
					errs = append(errs, err)
					continue
				}
				_, _ = fmt.Fprintf(cmd.OutOrStdout(), "sent %d again to %s\n", seq, l.Subject)
			}
			return errors.Join(errs...)
		},
	}
	f := cmd.Flags()
	command.NATSFlag(f, &url)
	f.StringVar(&store, "store", "fdc.db", storeUsage)
	f.BoolVar(&all, "all", false, "send all dead letters again")
	return command.WithUsageErrors(cmd)
}

func parseSequences(args []string, all bool) ([]uint64, error) {
	if all == (len(args) > 0) {
		return nil, errors.New("give sequences of dead letters, or --all")
	}
	var sequences []uint64
	var errs []error
	for _, a := range args {
		n, err := strconv.ParseUint(a, 10, 64)
		if err != nil || n == 0 {
			errs = append(errs, fmt.Errorf("%q is no sequence of a dead letter: give a number from the list", a))
			continue
		}
		sequences = append(sequences, n)
	}
	return sequences, errors.Join(errs...)
}
