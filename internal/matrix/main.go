// Command matrix plays every scenario in every way it can be run: defenders as
// goroutines and as processes, on one NATS server and on three with three
// replicas, and each case once.
//
//	go run ./internal/matrix --list                 # what it would play
//	go run ./internal/matrix --dir DIR              # all of it, an hour on two cores; reports are kept in DIR
//	go run ./internal/matrix --only 'resharding|crash'  # some of it
//	go run ./internal/matrix --dir DIR --pages docs/results/scenarios
//
// It exits with 1 if a run did not exit with 0. With --pages it plays nothing: it
// writes the runs of DIR into the pages, between their marks.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"regexp"
	"strings"
	"text/tabwriter"
	"time"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if err := run(ctx, os.Args[1:], os.Stdout); err != nil {
		if !errors.Is(err, flag.ErrHelp) {
			_, _ = fmt.Fprintln(os.Stderr, "matrix:", err)
		}
		os.Exit(1)
	}
}

// options are what the flags say.
type options struct {
	dir, pages string
	only       *regexp.Regexp
	busy, list bool
}

func parse(args []string) (options, error) {
	o := options{only: regexp.MustCompile("")}
	flags := flag.NewFlagSet("matrix", flag.ContinueOnError)
	flags.StringVar(&o.dir, "dir", "", "keep the reports, and what the runs printed, in this directory; those that passed are not played again")
	flags.StringVar(&o.pages, "pages", "", "play nothing, write the runs kept in --dir into the pages in this directory")
	flags.BoolVar(&o.busy, "busy", false, "give every run --busy: the machine does other things, too")
	flags.BoolVar(&o.list, "list", false, "only list the runs")
	flags.Func("only", "play the runs whose flags match this regular expression", func(s string) (err error) {
		o.only, err = regexp.Compile(s)
		return err
	})
	if err := flags.Parse(args); err != nil {
		return o, err
	}
	switch {
	case flags.NArg() > 0:
		return o, fmt.Errorf("%q is no flag: give --only, --dir, --pages, --busy or --list", flags.Arg(0))
	case o.pages != "" && o.dir == "":
		return o, errors.New("--pages needs --dir, the directory with the reports")
	}
	return o, nil
}

func run(ctx context.Context, args []string, out io.Writer) error {
	o, err := parse(args)
	if err != nil {
		return err
	}
	var todo []playing
	for _, p := range playings() {
		if o.only.MatchString(p.String()) {
			todo = append(todo, p)
		}
	}
	switch {
	case len(todo) == 0:
		return fmt.Errorf("--only %s matches no run: see --list", o.only)
	case o.list:
		for _, p := range todo {
			_, _ = fmt.Fprintln(out, "muster up", p)
		}
		return nil
	case o.pages != "":
		return writePages(o.pages, o.dir, todo)
	}
	if o.dir == "" {
		if o.dir, err = os.MkdirTemp("", "muster-matrix-"); err != nil {
			return err
		}
	}
	if err := os.MkdirAll(o.dir, 0o755); err != nil {
		return err
	}
	muster := filepath.Join(o.dir, "muster")
	if msg, err := exec.CommandContext(ctx, "go", "build", "-o", muster, "./cmd/muster").CombinedOutput(); err != nil {
		return fmt.Errorf("building muster: %w\n%s", err, msg)
	}
	defer func() { _ = os.Remove(muster) }()
	failed, err := playAll(ctx, muster, o, todo, out)
	if err != nil {
		return err
	}
	_, _ = fmt.Fprintf(out, "\n%d runs, %d failed; reports in %s\n\n", len(todo), failed, o.dir)
	if err := writeTable(out, o.dir, todo); err != nil {
		return err
	}
	if failed > 0 {
		return fmt.Errorf("%d runs of %d failed", failed, len(todo))
	}
	return nil
}

func playAll(ctx context.Context, muster string, o options, todo []playing, out io.Writer) (failed int, err error) {
	for i, p := range todo {
		if have, err := readOutcome(o.dir, p); err == nil && have.Exit == 0 {
			continue
		}
		at := time.Now()
		got, err := play(ctx, muster, o.dir, p, o.busy)
		if err != nil {
			return failed, err
		}
		verdict := "ok"
		if got.Exit != 0 {
			verdict = fmt.Sprintf("EXIT %d, see %s", got.Exit, p.file(o.dir, ".log"))
			failed++
		}
		_, _ = fmt.Fprintf(out, "%3d/%d  %5.1f s  %-12s %s\n", i+1, len(todo), time.Since(at).Seconds(), verdict, p)
	}
	return failed, nil
}

// play plays one run and keeps what it printed and its report.
func play(ctx context.Context, muster, dir string, p playing, busy bool) (outcome, error) {
	args := append([]string{"up", "--report", p.file(dir, ".report")}, p...)
	if busy {
		args = append(args, "--busy")
	}
	log, err := os.Create(p.file(dir, ".log"))
	if err != nil {
		return outcome{}, err
	}
	defer func() { _ = log.Close() }()
	cmd := exec.CommandContext(ctx, muster, args...)
	cmd.Stdout, cmd.Stderr = log, log
	cmd.Cancel = func() error { return cmd.Process.Signal(os.Interrupt) }
	at := time.Now()
	err = cmd.Run()
	if ctx.Err() != nil {
		return outcome{}, ctx.Err()
	}
	got := outcome{Flags: p.String(), Busy: busy, Seconds: time.Since(at).Seconds()}
	var exit *exec.ExitError
	switch {
	case errors.As(err, &exit):
		got.Exit = exit.ExitCode()
	case err != nil:
		return outcome{}, fmt.Errorf("playing %s: %w", p, err)
	}
	return got, got.write(dir, p)
}

// writeTable writes a line for each run that is kept.
func writeTable(out io.Writer, dir string, all []playing) error {
	t := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	_, _ = fmt.Fprintln(t, strings.Join(columns, "\t"))
	for _, p := range all {
		got, err := readOutcome(dir, p)
		if errors.Is(err, os.ErrNotExist) {
			continue
		}
		if err != nil {
			return err
		}
		_, _ = fmt.Fprintln(t, strings.Join(got.row(), "\t"))
	}
	return t.Flush()
}
