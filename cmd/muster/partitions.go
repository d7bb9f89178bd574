package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/spf13/cobra"

	"github.com/muster-dev/muster/broker/access"
	"github.com/muster-dev/muster/defender"
	"github.com/muster-dev/muster/partition"
)

func newPartitions() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "partitions",
		Short: "See and steer which worker has which keys",
		Long: "Partitions shows who owns which slots of a group's keys, foretells what the leader\n" +
			"would move and why, has workers hand over what they have, pins slots to workers,\n" +
			"and lists what happened. It asks the NATS server only; nothing but drain needs the\n" +
			"workers themselves.",
		Example: "  muster partitions status\n" +
			"  muster partitions plan --add 15\n" +
			"  muster partitions drain defender-7\n" +
			"  muster partitions pin tool001:chamber1 defender-3\n" +
			"  muster partitions layout --slots 512\n" +
			"  muster partitions mapping --shards 4\n" +
			"  muster partitions events --follow",
	}
	cmd.AddCommand(newPartitionsStatus(), newPartitionsPlan(), newPartitionsDrain(), newPartitionsPin(), newPartitionsLayout(), newPartitionsMapping(), newPartitionsEvents())
	return withUsageErrors(cmd)
}

// partitionsCommand is what the commands on a group share.
type partitionsCommand struct {
	cmd                *cobra.Command
	url, group, output string
}

func newPartitionsCommand(cmd *cobra.Command) *partitionsCommand {
	p := &partitionsCommand{cmd: cmd}
	f := withUsageErrors(cmd).Flags()
	natsFlag(f, &p.url)
	f.StringVar(&p.group, "group", defender.Group, "group of workers: the name that their stable IDs begin with")
	f.StringVar(&p.output, "output", "table", "table or json")
	return p
}

// connect checks what is wrong with the command's use, which comes on top of
// more, and connects.
func (p *partitionsCommand) connect(more ...error) (*nats.Conn, error) {
	if err := errors.Join(append([]error{checkOutput(p.output), unless(p.group != "", errors.New("--group is empty: name a group"))}, more...)...); err != nil {
		return nil, usageError(p.cmd, err)
	}
	nc, err := access.Connect(p.url, p.cmd.CommandPath())
	if err != nil {
		return nil, fmt.Errorf("%w: is it running, and is --nats its URL?", err)
	}
	return nc, nil
}

func (p *partitionsCommand) look(ctx context.Context) (*partition.View, error) {
	nc, err := p.connect()
	if err != nil {
		return nil, err
	}
	defer nc.Close()
	return partition.Look(ctx, nc, p.group)
}

// write writes v as JSON or as what table writes, as the command was asked to.
func (p *partitionsCommand) write(v any, table func(io.Writer)) error {
	out := p.cmd.OutOrStdout()
	if p.output == "json" {
		return writeIndented(out, v)
	}
	var b strings.Builder
	table(&b)
	_, err := io.WriteString(out, b.String())
	return err
}

// columns writes rows of tab-separated cells below each other.
func columns(out io.Writer, rows ...string) {
	w := tabwriter.NewWriter(out, 0, 8, 2, ' ', 0)
	for _, r := range rows {
		_, _ = fmt.Fprintln(w, r)
	}
	_ = w.Flush()
}

// seconds writes a duration for people: 0.4s, 12s, 3m20s.
func seconds(s float64) string {
	d := time.Duration(s * float64(time.Second))
	if d < 10*time.Second {
		return d.Round(100 * time.Millisecond).String()
	}
	return d.Round(time.Second).String()
}

func ratio(r float64) string {
	if r == 0 {
		return "-"
	}
	return fmt.Sprintf("%.3f", r)
}
