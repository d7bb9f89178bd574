package partitions

import (
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"

	"github.com/muster-dev/muster/internal/command"
	"github.com/muster-dev/muster/partition"
	"github.com/muster-dev/muster/partition/plan"
	"github.com/muster-dev/muster/partition/report"
)

func newPlan() *cobra.Command {
	var p *groupCommand
	var w partition.WhatIf
	var strategy string
	var overrides []string
	var limit int
	cmd := &cobra.Command{
		Use:   "plan",
		Short: "Preview what the leader would move and why, as things are or with what-if changes",
		Long: "Plan shows what the leader would do now, and changes nothing. Plans depend on nothing\n" +
			"but what is given to them, so this is what the leader's would be. --without, --drain,\n" +
			"--add and --override change the group for this preview only. Where the leader would\n" +
			"act twice, on a crash at once and on joining workers when their window is over, the\n" +
			"plan shows both as one.",
		Example: "  muster partitions plan\n" +
			"  muster partitions plan --add 15\n" +
			"  muster partitions plan --without defender-7 --limit 0\n" +
			"  muster partitions plan --drain defender-3 --override tool001:chamber1=defender-4\n" +
			"  muster partitions plan --balance --output json | jq .worst_over_mean",
		Args: command.Args(cobra.NoArgs),
		RunE: func(cmd *cobra.Command, _ []string) error {
			var err error
			w.Strategy, err = strategyOf(strategy)
			err = errors.Join(err, command.Unless(limit >= 0, fmt.Errorf("--limit is %d: give 0 for all, or more", limit)))
			for _, text := range overrides {
				override, perr := parseOverride(text)
				err = errors.Join(err, perr)
				w.Overrides = append(w.Overrides, override)
			}
			nc, err := p.connect(err)
			if err != nil {
				return err
			}
			defer nc.Close()
			v, err := partition.Open(nc, p.group).Inspect(cmd.Context())
			if err != nil {
				return err
			}
			for _, override := range w.Overrides {
				if override.Key != "" {
					err = errors.Join(err, checkKey(v, override.Key))
				}
			}
			if err != nil {
				return command.UsageError(cmd, err)
			}
			f, err := v.Forecast(w)
			if err != nil {
				return command.UsageError(cmd, err)
			}
			return p.write(f, func(w io.Writer) { writeForecast(w, f, limit) })
		},
	}
	p = newGroupCommand(cmd)
	f := cmd.Flags()
	f.StringArrayVar(&w.Without, "without", nil, "as if this worker had failed; may be repeated")
	f.StringArrayVar(&w.Drain, "drain", nil, "as if this worker were drained; may be repeated")
	f.IntVar(&w.Add, "add", 0, "as if N workers had joined")
	f.StringArrayVar(&overrides, "override", nil, "as if this were overridden: KEY=WORKER or SLOT=WORKER; may be repeated")
	f.BoolVar(&w.Balance, "balance", false, "plan even if nothing would have the leader plan")
	f.StringVar(&strategy, "strategy", "sticky", "what the workers plan by: sticky or ring")
	f.IntVar(&limit, "limit", 20, "list at most N moves, 0 for all")
	return cmd
}

func strategyOf(name string) (plan.Strategy, error) {
	switch name {
	case "sticky":
		return plan.Sticky(), nil
	case "ring":
		return plan.Ring(0), nil
	}
	return nil, fmt.Errorf("--strategy is %q: give sticky or ring", name)
}

func writeForecast(w io.Writer, f report.Forecast, limit int) {
	line := func(format string, args ...any) { _, _ = fmt.Fprintf(w, format+"\n", args...) }
	switch {
	case len(f.Reasons) > 0:
		line("The leader would plan version %d: %s.", f.Version, strings.Join(f.Reasons, ", "))
	case len(f.Moves) > 0:
		line("The leader would not plan now. If it did, that would be version %d.", f.Version)
	default:
		line("The leader would change nothing.")
	}
	line("%d of %d slots move (no balanced plan could do with fewer than %d); load skew (max/mean): %s, after %s.",
		len(f.Moves), f.Slots, f.LowerBound, ratio(f.WorstOverMeanBefore), ratio(f.WorstOverMean))
	if f.InMotion > 0 {
		line("%d slots are changing hands already and arrive first.", f.InMotion)
	}
	for _, n := range f.Notes {
		line("Note: %s.", n)
	}
	rows := []string{"WORKER\tSLOTS\tAFTER\tCHANGE\tLOAD\tAFTER\tZONE\tNOTE"}
	for _, x := range f.Workers {
		rows = append(rows, fmt.Sprintf("%s\t%d\t%d\t%+d\t%d\t%d\t%s\t%s", x.ID, x.Before, x.After, x.After-x.Before, x.LoadBefore, x.Load, command.OrDash(x.Zone), command.OrDash(x.What)))
	}
	line("")
	columns(w, dropEmpty(rows)...)
	if len(f.Moves) == 0 {
		return
	}
	rows = []string{"SLOT\tFROM\tTO\tLOAD\tREASON\tWHY"}
	for i, m := range f.Moves {
		if i == limit && limit > 0 {
			rows = append(rows, fmt.Sprintf("and %d more; see --limit 0", len(f.Moves)-i))
			break
		}
		rows = append(rows, fmt.Sprintf("%d\t%s\t%s\t%d\t%s\t%s", m.Slot, command.OrDash(m.From), m.To, m.Load, m.Reason, m.Why))
	}
	line("")
	columns(w, rows...)
}
