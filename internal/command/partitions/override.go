package partitions

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/spf13/cobra"

	"github.com/muster-dev/muster/internal/command"
	"github.com/muster-dev/muster/partition"
	"github.com/muster-dev/muster/partition/report"
)

func newOverride() *cobra.Command {
	var p *groupCommand
	var remove, list bool
	cmd := &cobra.Command{
		Use:   "override KEY|SLOT WORKER",
		Short: "Keep the slot of a key on a worker, remove that, or list the overrides",
		Long: "Override keeps a slot on a worker, whatever the balance, while that worker is there\n" +
			"and takes slots; otherwise the slot is planned like any other. A key stands for its\n" +
			"slot, and the other keys in the slot move along. The leader acts at once. An override\n" +
			"stays until it is removed, under every leader. Removing one moves only what balance\n" +
			"asks for.",
		Example: "  muster partitions override tool001:chamber1 defender-3\n" +
			"  muster partitions override 417 defender-3\n" +
			"  muster partitions override --remove tool001:chamber1\n" +
			"  muster partitions override --list",
		RunE: func(cmd *cobra.Command, args []string) error {
			nc, err := p.connect(p.overrideFaults(args, remove, list))
			if err != nil {
				return err
			}
			defer nc.Close()
			switch {
			case list:
				return p.listOverrides(cmd.Context(), nc)
			case remove:
				return p.removeOverrides(cmd.Context(), nc, args)
			}
			return p.addOverride(cmd.Context(), nc, args[0], args[1])
		},
	}
	p = newGroupCommand(cmd)
	cmd.Flags().BoolVar(&remove, "remove", false, "remove the overrides of the keys or slots that are named")
	cmd.Flags().BoolVar(&list, "list", false, "list the overrides, and whether they are kept")
	return cmd
}

func (p *groupCommand) overrideFaults(args []string, remove, list bool) error {
	var errs []error
	switch {
	case remove && list:
		errs = append(errs, errors.New("--remove and --list don't go together"))
	case list && len(args) > 0:
		errs = append(errs, fmt.Errorf("--list goes without %q", args[0]))
	case remove && len(args) == 0:
		errs = append(errs, errors.New("--remove needs the keys or slots that are overridden"))
	case !remove && !list && len(args) != 2:
		errs = append(errs, fmt.Errorf("%d arguments: name a key or a slot, and a worker", len(args)))
	}
	if !remove && !list && len(args) == 2 {
		number, ok := strings.CutPrefix(args[1], p.group+"-")
		if _, err := strconv.ParseUint(number, 10, 31); !ok || err != nil {
			errs = append(errs, fmt.Errorf("%q is no worker of group %s: their names are %s-0, %s-1 and so on", args[1], p.group, p.group, p.group))
		}
	}
	for i, a := range args {
		if remove || i == 0 {
			_, err := parseOverride(a + "=x")
			errs = append(errs, err)
		}
	}
	return errors.Join(errs...)
}

// parseOverride reads "tool001:chamber1=defender-3" or "417=defender-3".
func parseOverride(text string) (partition.Override, error) {
	what, worker, ok := strings.Cut(text, "=")
	if !ok || what == "" || worker == "" {
		return partition.Override{}, fmt.Errorf("%q is no override: write KEY=WORKER or SLOT=WORKER", text)
	}
	slot, err := strconv.Atoi(what)
	switch {
	case err == nil && slot < 0:
		return partition.Override{}, fmt.Errorf("slot %d is negative", slot)
	case err == nil:
		return partition.Override{Slot: slot, Worker: worker}, nil
	case strings.ContainsAny(what, ".*> \t"):
		return partition.Override{}, fmt.Errorf("%q is no key: write its parts with %q between them, as in tool001:chamber1", what, partition.KeySeparator)
	}
	return partition.Override{Key: what, Worker: worker}, nil
}

func (p *groupCommand) addOverride(ctx context.Context, nc *nats.Conn, what, worker string) error {
	override, err := parseOverride(what + "=" + worker)
	if err != nil {
		return err
	}
	if err := partition.Open(nc, p.group).Override(ctx, override); err != nil {
		if errors.Is(err, partition.ErrNoSuchSlot) {
			return command.UsageError(p.cmd, err)
		}
		return err
	}
	return p.listOverrides(ctx, nc)
}

func (p *groupCommand) removeOverrides(ctx context.Context, nc *nats.Conn, args []string) error {
	v, err := partition.Open(nc, p.group).Inspect(ctx)
	if err != nil {
		return err
	}
	var slots []int
	for _, a := range args {
		override, err := parseOverride(a + "=x")
		if err != nil {
			return err
		}
		if override.Key != "" {
			override.Slot = v.Key(override.Key).Slot
		}
		slots = append(slots, override.Slot)
	}
	if err := partition.Open(nc, p.group).RemoveOverrides(ctx, slots...); err != nil {
		return err
	}
	return p.listOverrides(ctx, nc)
}

func (p *groupCommand) listOverrides(ctx context.Context, nc *nats.Conn) error {
	v, err := partition.Open(nc, p.group).Inspect(ctx)
	if err != nil {
		return err
	}
	overrides := v.Report().Overrides
	return p.write(overrides, func(w io.Writer) {
		if len(overrides) == 0 {
			_, _ = fmt.Fprintln(w, "No slot is overridden.")
			return
		}
		columns(w, overrideRows(overrides)...)
	})
}

func overrideRows(overrides []report.Override) []string {
	rows := []string{"SLOT\tKEY\tWORKER\tSINCE\tNOW WITH\tKEPT"}
	for _, x := range overrides {
		kept := "yes"
		if !x.Kept {
			kept = "no: " + x.Why
		}
		rows = append(rows, fmt.Sprintf("%d\t%s\t%s\t%s\t%s\t%s", x.Slot, command.OrDash(x.Key), x.Worker, x.At.UTC().Format(time.RFC3339), command.OrDash(x.Owner), kept))
	}
	return rows
}
