package partitions

import (
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/muster-dev/muster/internal/command"
	"github.com/muster-dev/muster/partition"
	"github.com/muster-dev/muster/partition/report"
	"github.com/muster-dev/muster/partition/state"
)

func newStatus() *cobra.Command {
	var p *groupCommand
	var keys []string
	var all bool
	cmd := &cobra.Command{
		Use:   "status",
		Short: "Show the assignment: workers with their slots, keys and load, what moves, overrides and drains",
		Long: "Status shows the assignment map as it stands: the group's state, version and leader,\n" +
			"every worker with the slots, keys and load that it owns and the age of its lease,\n" +
			"slots that are changing hands, standbys, drains and overrides. With --key it tells where\n" +
			"keys are instead.",
		Example: "  muster partitions status\n" +
			"  muster partitions status --key tool001:chamber1 --key tool001:chamber2\n" +
			"  muster partitions status --output json | jq '.workers[] | {id, slots}'",
		Args: command.Args(cobra.NoArgs),
		RunE: func(cmd *cobra.Command, _ []string) error {
			v, err := p.look(cmd.Context())
			if err != nil {
				return err
			}
			if keys != nil {
				return p.keys(v, keys)
			}
			r := v.Report()
			return p.write(r, func(w io.Writer) { writeStatus(w, r, all) })
		},
	}
	p = newGroupCommand(cmd)
	cmd.Flags().StringArrayVar(&keys, "key", nil, "tell where this key is; may be repeated")
	cmd.Flags().BoolVar(&all, "all", false, "list every slot that is changing hands, not only the first few")
	return cmd
}

func (p *groupCommand) keys(v *partition.View, keys []string) error {
	var faults error
	for _, k := range keys {
		faults = errors.Join(faults, checkKey(v, k))
	}
	if faults != nil {
		return command.UsageError(p.cmd, faults)
	}
	var found []report.Key
	rows := []string{"KEY\tSLOT\tOWNER\tNEXT"}
	for _, k := range keys {
		r := v.Key(k)
		found = append(found, r)
		rows = append(rows, fmt.Sprintf("%s\t%d\t%s\t%s", r.Key, r.Slot, command.OrDash(r.Owner), command.OrDash(r.Next)))
	}
	return p.write(found, func(w io.Writer) { columns(w, rows...) })
}

// checkKey reports why no message of a group can have this key.
func checkKey(v *partition.View, key string) error {
	return partition.Config{Subject: v.Subject}.CheckKey(key)
}

func ofStreams(shards int) string {
	if shards <= 1 {
		return ""
	}
	return fmt.Sprintf(", in %d streams", shards)
}

// fewMoves is how many handoffs a table shows unless all are asked for.
const fewMoves = 10

func writeStatus(w io.Writer, r report.Group, all bool) {
	line := func(format string, args ...any) { _, _ = fmt.Fprintf(w, format+"\n", args...) }
	if liveWorkers(r) == 0 && r.Leader != "" {
		// Its lease outlives it by some seconds.
		line("Group %s is %s: no worker is alive. The last leader was %s (epoch %d).", r.Group, r.State, r.Leader, r.Epoch)
	} else if r.Why != "" && r.Leader != "" {
		line("Group %s is %s: %s. The last leader was %s (epoch %d), whose lease was renewed %s ago.", r.Group, r.State, r.Why, r.Leader, r.Epoch, seconds(r.LeaderAge))
	} else {
		line("Group %s is %s, led by %s (epoch %d).", r.Group, r.State, orNobody(r.Leader), r.Epoch)
	}
	if r.Version > 0 {
		line("Map version %d, planned %s ago; %d slots, generation %d%s%s; load skew (max/mean): %s.", r.Version,
			seconds(r.At.Sub(r.Planned).Seconds()), r.Slots, r.Layout, ofStreams(r.Shards), ofKeys(r.Keys), ratio(r.WorstOverMean))
	} else {
		line("There is no map yet; %d slots, generation %d%s.", r.Slots, r.Layout, ofStreams(r.Shards))
	}
	line("%s; %s.", workersOf(r), pendingText(r))
	writeWorkers(w, r)
	writeMoves(w, r.Moves, all)
	writeQueued(w, r, all)
	if len(r.Standbys) > 0 {
		rows := []string{"STANDBY\tNODE\tZONE\tWAITS"}
		for _, s := range r.Standbys {
			rows = append(rows, fmt.Sprintf("%s\t%s\t%s\t%s", s.Pod, command.OrDash(s.Node), command.OrDash(s.Zone), seconds(r.At.Sub(s.Since).Seconds())))
		}
		line("")
		columns(w, rows...)
	}
	if len(r.Drains) > 0 {
		rows := []string{"DRAIN\tSLOTS LEFT\tUNTIL"}
		for _, d := range r.Drains {
			rows = append(rows, fmt.Sprintf("%s\t%d\t%s", d.Worker, d.Slots, untilText(d.Until)))
		}
		line("")
		columns(w, rows...)
	}
	if len(r.Overrides) > 0 {
		line("")
		columns(w, overrideRows(r.Overrides)...)
	}
}

func untilText(t time.Time) string {
	if t.IsZero() {
		return "-"
	}
	return t.UTC().Format(time.RFC3339)
}

func orNobody(id string) string {
	if id == "" {
		return "nobody"
	}
	return id
}

func ofKeys(n int) string {
	if n == 0 {
		return ""
	}
	return fmt.Sprintf(" for %d keys", n)
}

func liveWorkers(r report.Group) (live int) {
	for _, w := range r.Workers {
		if w.State != state.Gone {
			live++
		}
	}
	return live
}

func workersOf(r report.Group) string {
	live := liveWorkers(r)
	if r.Expected == 0 {
		return fmt.Sprintf("%d workers", live)
	}
	return fmt.Sprintf("%d workers of %d expected", live, r.Expected)
}

func pendingText(r report.Group) string {
	text := "no message waits"
	if r.Pending > 0 {
		text = fmt.Sprintf("%d messages wait, the oldest for %s", r.Pending, seconds(r.OldestPending))
	}
	if r.NotCopied > 0 {
		text += fmt.Sprintf(", %d of them in stream %s", r.NotCopied, r.Source)
	}
	if r.SourceFault != "" {
		text += fmt.Sprintf("; none are copied from stream %s: %s", r.Source, r.SourceFault)
	}
	if r.Fill >= 0.8 {
		text += fmt.Sprintf("; the stream holds %.0f %% of its limit", 100*r.Fill)
	}
	if r.RetryQueue.Messages > 0 {
		text += fmt.Sprintf("; %d of %d keys have messages queued for retry, the oldest for %s", r.RetryQueue.Messages, len(r.RetryQueue.Keys), seconds(r.RetryQueue.Oldest))
	}
	return text
}

// writeQueued shows the keys that have messages queued for retry, those with most first.
func writeQueued(w io.Writer, r report.Group, all bool) {
	if len(r.RetryQueue.Keys) == 0 {
		return
	}
	rows := []string{"QUEUED KEY\tMESSAGES\tSLOT\tOWNER"}
	for i, k := range r.RetryQueue.Keys {
		if i == fewMoves && !all {
			rows = append(rows, fmt.Sprintf("and %d more; see --all", len(r.RetryQueue.Keys)-i))
			break
		}
		rows = append(rows, fmt.Sprintf("%s\t%d\t%d\t%s", k.Key, k.Messages, k.Slot, command.OrDash(k.Owner)))
	}
	_, _ = fmt.Fprintln(w)
	columns(w, rows...)
}

func writeWorkers(w io.Writer, r report.Group) {
	rows := []string{"WORKER\tSTATE\tSLOTS\tIN\tOUT\tKEYS\tLOAD\tOVER MEAN\tLEASE\tMAP\tNODE\tZONE\tPOD\tNOTE"}
	for _, x := range r.Workers {
		keys := "-"
		if r.Keys > 0 {
			keys = fmt.Sprint(x.Keys)
		}
		lease := "none"
		if x.LeaseAge >= 0 {
			lease = seconds(x.LeaseAge)
		}
		rows = append(rows, fmt.Sprintf("%s\t%s\t%d\t%d\t%d\t%s\t%d\t%s\t%s\t%d\t%s\t%s\t%s\t%s", x.ID, x.State, x.Slots, x.Incoming, x.Outgoing,
			keys, x.Load, ratio(x.OverMean), lease, x.Version, command.OrDash(x.Node), command.OrDash(x.Zone), command.OrDash(x.Pod), command.OrDash(strings.Join(notes(x), ", "))))
	}
	_, _ = fmt.Fprintln(w)
	columns(w, dropEmpty(rows)...)
}

func notes(x report.Worker) []string {
	var out []string
	for _, n := range []struct {
		is   bool
		text string
	}{{x.Leading, "leads"}, {x.New && !x.Draining && !x.Outdated, "new"}, {x.Leaving, "leaves"}, {x.Draining, "drains"}, {x.Restarting, "restarts"},
		{x.Outdated, "earlier version: replace it"}} {
		if n.is {
			out = append(out, n.text)
		}
	}
	return out
}

// dropEmpty leaves out the columns in which no row says anything.
func dropEmpty(rows []string) []string {
	var cells [][]string
	for _, r := range rows {
		cells = append(cells, strings.Split(r, "\t"))
	}
	out := make([][]string, len(cells))
	for c := range cells[0] {
		if !slices.ContainsFunc(cells[1:], func(r []string) bool { return r[c] != "-" }) {
			continue
		}
		for i := range cells {
			out[i] = append(out[i], cells[i][c])
		}
	}
	lines := make([]string, len(out))
	for i := range out {
		lines[i] = strings.Join(out[i], "\t")
	}
	return lines
}

func writeMoves(w io.Writer, moves []report.Move, all bool) {
	if len(moves) == 0 {
		return
	}
	rows := []string{"SLOT\tFROM\tTO\tSINCE VERSION"}
	for i, m := range moves {
		if i == fewMoves && !all {
			rows = append(rows, fmt.Sprintf("and %d more; see --all", len(moves)-i))
			break
		}
		from := m.From
		if from == "" {
			from = "(taken from the dead)"
		}
		rows = append(rows, fmt.Sprintf("%d\t%s\t%s\t%d", m.Slot, from, m.To, m.Version))
	}
	_, _ = fmt.Fprintf(w, "\n%d slots are changing hands:\n", len(moves))
	columns(w, rows...)
}
