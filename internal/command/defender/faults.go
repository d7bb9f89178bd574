package defender

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"github.com/muster-dev/muster/defender"
	"github.com/muster-dev/muster/defender/connect"
	"github.com/muster-dev/muster/internal/command"
)

func newFaults() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "faults",
		Short: "Label runs with the fault they had, so that it is recognized",
		Long: "A label says which fault a run had. Alarms of any chamber are compared with the\n" +
			"labelled runs: how far each sensor was off. Notices of alarms, and the list of them,\n" +
			"then name the fault of the most similar run, with a confidence, or say that it is\n" +
			"unknown. Defenders take a new label into account within 30 s.",
	}
	cmd.AddCommand(newFaultsLabel(), newFaultsList(), newFaultsRemove(), newFaultsImport())
	return cmd
}

// withStore calls f with the store that a flag names, which it opens and closes. One that
// isn't there is an error: a command about runs has nothing to say of a new store.
func withStore(cmd *cobra.Command, name string, f func(context.Context, defender.Store) error) (err error) {
	if name != connect.Cassandra {
		if _, err := os.Stat(name); err != nil {
			return fmt.Errorf("opening the store: %w: name the one of the defenders with --store", err)
		}
	}
	s, err := connect.Open(cmd.Context(), name, os.LookupEnv)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, s.Close()) }()
	return f(cmd.Context(), s)
}

func newFaultsLabel() *cobra.Command {
	var store, opposite, by, note string
	cmd := &cobra.Command{
		Use:   "label CHAMBER RUN FAULT",
		Short: "Say which fault a run had; a second label replaces the first",
		Example: "  muster defender faults label etch01:chamber2 lot7.wafer-12 'Cl2 flow high' --opposite 'Cl2 flow low'\n" +
			"  muster defender faults label etch01:chamber2 lot8.wafer-3 'chuck leak' --note 'o-ring replaced' --store cassandra",
		Args: command.Args(cobra.ExactArgs(3)),
		RunE: func(cmd *cobra.Command, args []string) error {
			chamber, err := defender.ParseChamber(args[0])
			if err := errors.Join(err, connect.Check(store, os.LookupEnv), command.Unless(args[2] != "", errors.New("the fault has no name: give one"))); err != nil {
				return command.UsageError(cmd, err)
			}
			return withStore(cmd, store, func(ctx context.Context, s defender.Store) error {
				u, err := s.UChart(ctx, chamber, args[1])
				if err != nil {
					return err
				}
				l, err := defender.NewFaultLabel(u, args[2])
				if err != nil {
					return err
				}
				l.Opposite, l.By, l.Note, l.At = opposite, by, note, time.Now().UTC()
				if err := l.Validate(); err != nil {
					return command.UsageError(cmd, err)
				}
				if err := s.PutLabel(ctx, l); err != nil {
					return err
				}
				_, err = fmt.Fprintf(cmd.OutOrStdout(), "labelled run %s of %s: %s\n", l.Context, l.Chamber, l.Fault)
				return err
			})
		},
	}
	f := cmd.Flags()
	f.StringVar(&store, "store", "fdc.db", storeUsage)
	f.StringVar(&opposite, "opposite", "", "name of the same fault in the other direction, if it has one")
	f.StringVar(&by, "by", command.UserName(), "who says so")
	f.StringVar(&note, "note", "", "what was found, and what was done about it")
	return command.WithUsageErrors(cmd)
}

func newFaultsList() *cobra.Command {
	var store, output string
	cmd := &cobra.Command{
		Use:   "list",
		Short: "List the labelled runs",
		Example: "  muster defender faults list\n" +
			"  muster defender faults list --output json > faults.json     # for analyze --faults, or another store",
		Args: command.Args(cobra.NoArgs),
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := errors.Join(command.CheckOutput(output), connect.Check(store, os.LookupEnv)); err != nil {
				return command.UsageError(cmd, err)
			}
			return withStore(cmd, store, func(ctx context.Context, s defender.Store) error {
				list, err := s.Labels(ctx)
				if err != nil {
					return err
				}
				if output == "json" {
					return command.WriteJSON(cmd.OutOrStdout(), append([]defender.FaultLabel{}, list...))
				}
				return writeLabels(cmd.OutOrStdout(), list)
			})
		},
	}
	f := cmd.Flags()
	f.StringVar(&store, "store", "fdc.db", storeUsage)
	f.StringVar(&output, "output", "table", "table or json")
	return command.WithUsageErrors(cmd)
}

func writeLabels(out io.Writer, list []defender.FaultLabel) error {
	w := tabwriter.NewWriter(out, 0, 8, 2, ' ', 0)
	_, _ = fmt.Fprintln(w, "CHAMBER\tRUN\tFAULT\tOPPOSITE\tBY\tAT\tMOST OFF\tNOTE")
	for _, l := range list {
		var off []string
		for _, level := range l.Signature[:min(len(l.Signature), 3)] {
			off = append(off, fmt.Sprintf("%s %+.1f", level.SVID, level.Sigmas))
		}
		_, _ = fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%s\t%s\t%s\t%s\n", l.Chamber, l.Context, l.Fault, command.OrDash(l.Opposite), command.OrDash(l.By),
			l.At.UTC().Format(time.RFC3339), strings.Join(off, ", "), command.OrDash(l.Note))
	}
	return w.Flush()
}

func newFaultsRemove() *cobra.Command {
	var store string
	cmd := &cobra.Command{
		Use:     "remove CHAMBER RUN",
		Short:   "Remove the label of a run",
		Example: "  muster defender faults remove etch01:chamber2 lot7.wafer-12",
		Args:    command.Args(cobra.ExactArgs(2)),
		RunE: func(cmd *cobra.Command, args []string) error {
			chamber, err := defender.ParseChamber(args[0])
			if err := errors.Join(err, connect.Check(store, os.LookupEnv)); err != nil {
				return command.UsageError(cmd, err)
			}
			return withStore(cmd, store, func(ctx context.Context, s defender.Store) error {
				list, err := s.Labels(ctx)
				if err != nil {
					return err
				}
				at := slices.IndexFunc(list, func(l defender.FaultLabel) bool { return l.Chamber == chamber && l.Context == args[1] })
				if at < 0 {
					return fmt.Errorf("run %s of %s has no label: see the list for those there are", args[1], chamber)
				}
				if err := s.DeleteLabel(ctx, defender.TChartKey{Chamber: chamber, Context: args[1]}); err != nil {
					return err
				}
				_, err = fmt.Fprintf(cmd.OutOrStdout(), "removed the label of run %s of %s: %s\n", args[1], chamber, list[at].Fault)
				return err
			})
		},
	}
	cmd.Flags().StringVar(&store, "store", "fdc.db", storeUsage)
	return command.WithUsageErrors(cmd)
}

func newFaultsImport() *cobra.Command {
	var store string
	cmd := &cobra.Command{
		Use:   "import FILE",
		Short: "Add the labels of a file to a store",
		Long: "Import adds labels that list --output json of another store wrote, or analyze with\n" +
			"--write-faults. Labels of the same runs are replaced. A file with faults changes nothing.",
		Example: "  muster defender faults import faults.json --store fdc.db",
		Args:    command.Args(cobra.ExactArgs(1)),
		RunE: func(cmd *cobra.Command, args []string) error {
			list, err := readLabels(args[0])
			if err := errors.Join(err, connect.Check(store, os.LookupEnv)); err != nil {
				return command.UsageError(cmd, err)
			}
			return withStore(cmd, store, func(ctx context.Context, s defender.Store) error {
				for _, l := range list {
					if err := s.PutLabel(ctx, l); err != nil {
						return err
					}
				}
				_, err = fmt.Fprintf(cmd.OutOrStdout(), "imported %d labels\n", len(list))
				return err
			})
		},
	}
	cmd.Flags().StringVar(&store, "store", "fdc.db", storeUsage)
	return command.WithUsageErrors(cmd)
}

// readLabels reads a file of labels, and returns all that is wrong with it.
func readLabels(name string) ([]defender.FaultLabel, error) {
	f, err := os.Open(name)
	if err != nil {
		return nil, fmt.Errorf("reading labels of faults: %w", err)
	}
	defer func() { _ = f.Close() }()
	dec := json.NewDecoder(f)
	dec.DisallowUnknownFields()
	var list []defender.FaultLabel
	if err := dec.Decode(&list); err != nil {
		return nil, fmt.Errorf("reading labels of faults from %s: %w: give what muster defender faults list --output json writes", name, err)
	}
	var errs []error
	for i, l := range list {
		if err := l.Validate(); err != nil {
			errs = append(errs, fmt.Errorf("%s: label %d, run %s of %s: %w", name, i+1, l.Context, l.Chamber, err))
		}
	}
	return list, errors.Join(errs...)
}
