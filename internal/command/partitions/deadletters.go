package partitions

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strconv"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/spf13/cobra"

	"github.com/muster-dev/muster/internal/command"
	"github.com/muster-dev/muster/partition"
)

func newDeadLetters() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "dead-letters",
		Short: "List, show and requeue the messages that workers gave up",
		Long: "Dead letters are messages whose handler failed as often as the group's configuration\n" +
			"allows (Retry.Attempts), and those that it gave up at once. A defender gives up what it\n" +
			"can't read and contexts whose trace is missing or corrupt. Dead letters are kept until\n" +
			"they are requeued.",
	}
	cmd.AddCommand(newLetterList(), newLetterShow(), newLetterRequeue())
	return cmd
}

// letterRow is a dead letter as it is listed.
type letterRow struct {
	Number    uint64    `json:"number"`
	Time      time.Time `json:"time"`
	Key       string    `json:"key"`
	Subject   string    `json:"subject"`
	Sequence  uint64    `json:"sequence"`
	Published time.Time `json:"published"`
	Attempts  int       `json:"attempts"`
	Worker    string    `json:"worker"`
	Err       string    `json:"error"`
}

// letterDetail is one with all that is known.
type letterDetail struct {
	letterRow
	Stack  string      `json:"stack,omitempty"`
	Header nats.Header `json:"header,omitempty"`
	Data   []byte      `json:"data"`
}

func rowOf(l partition.DeadLetter) letterRow {
	return letterRow{Number: l.Number, Time: l.Time, Key: l.Key, Subject: l.Subject, Sequence: l.Sequence,
		Published: l.Published, Attempts: l.Attempts, Worker: l.Worker, Err: l.Err}
}

func newLetterList() *cobra.Command {
	var from uint64
	var limit int
	cmd := &cobra.Command{
		Use:     "list",
		Short:   "List dead letters, oldest first",
		Example: "  muster partitions dead-letters list --group orders",
		Args:    command.Args(cobra.NoArgs),
	}
	p := newGroupCommand(cmd)
	f := cmd.Flags()
	f.Uint64Var(&from, "from", 0, "number to begin with")
	f.IntVar(&limit, "limit", 100, "most dead letters to list")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		nc, err := p.connect(command.Unless(limit > 0, fmt.Errorf("--limit is %d: give at least 1", limit)))
		if err != nil {
			return err
		}
		defer nc.Close()
		letters, err := partition.Open(nc, p.group).DeadLetters(cmd.Context(), from, limit)
		if err != nil {
			return err
		}
		rows := make([]letterRow, len(letters))
		for i, l := range letters {
			rows[i] = rowOf(l)
		}
		return p.write(rows, func(out io.Writer) {
			lines := []string{"NUMBER\tTIME\tKEY\tATTEMPTS\tERROR"}
			for _, r := range rows {
				lines = append(lines, fmt.Sprintf("%d\t%s\t%s\t%d\t%q", r.Number, r.Time.UTC().Format(time.RFC3339), r.Key, r.Attempts, r.Err))
			}
			columns(out, lines...)
		})
	}
	return cmd
}

func newLetterShow() *cobra.Command {
	cmd := &cobra.Command{
		Use:     "show NUMBER",
		Short:   "Show a dead letter with its error, stack, headers and data",
		Example: "  muster partitions dead-letters show 12 --group orders",
		Args:    command.Args(cobra.ExactArgs(1)),
	}
	p := newGroupCommand(cmd)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		numbers, bad := letterNumbers(args)
		nc, err := p.connect(bad)
		if err != nil {
			return err
		}
		defer nc.Close()
		letters, err := partition.Open(nc, p.group).DeadLetters(cmd.Context(), numbers[0], 1)
		if err != nil {
			return err
		}
		if len(letters) == 0 || letters[0].Number != numbers[0] {
			return noLetter(numbers[0])
		}
		l := letters[0]
		return p.write(letterDetail{rowOf(l), l.Stack, l.Header, l.Data}, func(out io.Writer) { describeLetter(out, l) })
	}
	return cmd
}

func describeLetter(out io.Writer, l partition.DeadLetter) {
	columns(out,
		fmt.Sprintf("number\t%d, since %s", l.Number, l.Time.UTC().Format(time.RFC3339)),
		fmt.Sprintf("key\t%s", l.Key),
		fmt.Sprintf("message\t%d of %s, published %s", l.Sequence, l.Subject, l.Published.UTC().Format(time.RFC3339)),
		fmt.Sprintf("attempts\t%d, the last by %s", l.Attempts, l.Worker),
		fmt.Sprintf("error\t%s", l.Err),
		fmt.Sprintf("headers\t%v", map[string][]string(l.Header)),
		fmt.Sprintf("data\t%q", l.Data))
	if l.Stack != "" {
		_, _ = fmt.Fprintf(out, "\n%s\n", l.Stack)
	}
}

func newLetterRequeue() *cobra.Command {
	var all bool
	cmd := &cobra.Command{
		Use:   "requeue [NUMBER...]",
		Short: "Publish the messages of dead letters again",
		Long: "Requeue publishes messages again, behind the later ones of their keys, and removes\n" +
			"their dead letters. Correct first what made them fail.",
		Example: "  muster partitions dead-letters requeue 12 15 --group orders\n  muster partitions dead-letters requeue --all --group orders",
	}
	p := newGroupCommand(cmd)
	cmd.Flags().BoolVar(&all, "all", false, "requeue all that there are now")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		numbers, bad := letterNumbers(args)
		nc, err := p.connect(bad, command.Unless(all != (len(args) > 0), errors.New("give numbers of dead letters, or --all")))
		if err != nil {
			return err
		}
		defer nc.Close()
		group := partition.Open(nc, p.group)
		if all {
			if numbers, err = everyLetter(cmd.Context(), group); err != nil {
				return err
			}
		}
		return p.requeue(cmd.Context(), group, numbers)
	}
	return cmd
}

// everyLetter returns the numbers of all dead letters.
func everyLetter(ctx context.Context, group *partition.Group) ([]uint64, error) {
	const page = 1000
	var numbers []uint64
	for from := uint64(0); ; {
		letters, err := group.DeadLetters(ctx, from, page)
		if err != nil {
			return nil, err
		}
		for _, l := range letters {
			numbers = append(numbers, l.Number)
			from = l.Number + 1
		}
		if len(letters) < page {
			return numbers, nil
		}
	}
}

// requeue requeues dead letters; those that can't be are in its error.
func (p *groupCommand) requeue(ctx context.Context, group *partition.Group, numbers []uint64) error {
	var errs []error
	sent := []letterRow{}
	for _, n := range numbers {
		l, err := group.Requeue(ctx, n)
		if errors.Is(err, jetstream.ErrMsgNotFound) {
			err = noLetter(n)
		}
		if err != nil {
			errs = append(errs, err)
			continue
		}
		sent = append(sent, rowOf(l))
	}
	err := p.write(sent, func(out io.Writer) {
		for _, r := range sent {
			_, _ = fmt.Fprintf(out, "requeued %d to %s\n", r.Number, r.Subject)
		}
	})
	return errors.Join(append(errs, err)...)
}

func noLetter(number uint64) error {
	return fmt.Errorf("there is no dead letter %d: muster partitions dead-letters list shows those there are", number)
}

func letterNumbers(args []string) ([]uint64, error) {
	numbers := make([]uint64, len(args))
	var errs []error
	for i, a := range args {
		n, err := strconv.ParseUint(a, 10, 64)
		if err != nil || n == 0 {
			errs = append(errs, fmt.Errorf("%q is not the number of a dead letter: give one from the list", a))
		}
		numbers[i] = n
	}
	return numbers, errors.Join(errs...)
}
