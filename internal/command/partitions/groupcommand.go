package partitions

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
	"github.com/muster-dev/muster/internal/command"
	"github.com/muster-dev/muster/partition"
)

// groupCommand is what the commands on a group share.
type groupCommand struct {
	cmd                *cobra.Command
	url, group, output string
}

func newGroupCommand(cmd *cobra.Command) *groupCommand {
	p := &groupCommand{cmd: cmd}
	f := command.WithUsageErrors(cmd).Flags()
	command.NATSFlag(f, &p.url)
	f.StringVar(&p.group, "group", defender.Group, "group of workers: the name that their stable IDs begin with")
	f.StringVar(&p.output, "output", "table", "table or json")
	return p
}

// connect checks what is wrong with the command's use, which comes on top of
// more, and connects.
func (p *groupCommand) connect(more ...error) (*nats.Conn, error) {
	if err := errors.Join(append([]error{command.CheckOutput(p.output), command.Unless(p.group != "", errors.New("--group is empty: name a group"))}, more...)...); err != nil {
		return nil, command.UsageError(p.cmd, err)
	}
	nc, err := access.Connect(p.url, p.cmd.CommandPath())
	if err != nil {
		return nil, fmt.Errorf("%w: is it running, and is --nats its URL?", err)
	}
	return nc, nil
}

func (p *groupCommand) look(ctx context.Context) (*partition.View, error) {
	nc, err := p.connect()
	if err != nil {
		return nil, err
	}
	defer nc.Close()
	return partition.Open(nc, p.group).Inspect(ctx)
}

// write writes v as JSON or as what table writes, as the command was asked to.
func (p *groupCommand) write(v any, table func(io.Writer)) error {
	out := p.cmd.OutOrStdout()
	if p.output == "json" {
		return command.WriteJSON(out, v)
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
