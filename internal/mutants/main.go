// Command mutants proves the tests of the worker plane and of the node plane: each file in
// patches breaks one rule of the code, and names the test that must fail then.
//
//	go run ./internal/mutants                        # all of them
//	go run ./internal/mutants --list                 # what there is
//	go run ./internal/mutants --run 'pin|lease'      # those with such names
//	go run ./internal/mutants --sample 8             # eight, others each day; --seed repeats a draw
//	go run ./internal/mutants --markdown docs/results/mutants.md
//
// All of them take about twenty minutes on two cores; --json FILE --resume continues.
//
// The checkout stays as it is: the go command is told to read a changed copy of the
// files that a patch touches. First the named tests run without a mutant, and must pass.
//
// A mutant is caught if it compiles and the named test fails. It exits with 1 if one is
// not caught, and with 2 if a flag or a patch's header is wrong.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"time"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	root, err := moduleRoot()
	if err == nil {
		err = run(ctx, root, os.Args[1:], time.Now(), os.Stdout)
	}
	code := exitCode(err)
	if err != nil && !errors.Is(err, flag.ErrHelp) {
		_, _ = fmt.Fprintln(os.Stderr, "mutants:", err)
	}
	os.Exit(code)
}

func exitCode(err error) int {
	var usage usageError
	switch {
	case err == nil, errors.Is(err, flag.ErrHelp):
		return 0
	case errors.As(err, &usage):
		return 2
	default:
		return 1
	}
}

func run(ctx context.Context, root string, args []string, now time.Time, out io.Writer) error {
	o, err := parse(args, now)
	if err != nil {
		return err
	}
	all, err := readMutants(os.DirFS(filepath.Join(root, patches)))
	if err != nil {
		return usageError{err}
	}
	todo, err := o.choose(all)
	if err != nil {
		return usageError{err}
	}
	if o.list {
		return writeList(out, todo)
	}
	if o.sample > 0 {
		_, _ = fmt.Fprintf(out, "%d of %d mutants, drawn with --seed %d\n", len(todo), len(all), o.seed)
	}
	before, err := o.before()
	if err != nil {
		return err
	}
	l, err := newLab(root)
	if err != nil {
		return err
	}
	defer l.close()
	t := table{Date: now.UTC(), Command: o.command()}
	untried := slices.DeleteFunc(slices.Clone(todo), func(m mutant) bool { return before[m.Name].Sum == m.Sum })
	if err := l.passesWithout(ctx, untried); err != nil {
		return err
	}
	for i, m := range todo {
		if r := before[m.Name]; r.Sum == m.Sum {
			t.Rows = append(t.Rows, r)
			continue
		}
		r := l.try(ctx, m)
		if ctx.Err() != nil {
			return ctx.Err()
		}
		t.Rows = append(t.Rows, r)
		if err := o.keep(t.with(before, todo[i+1:])); err != nil {
			return err
		}
		_, _ = fmt.Fprintf(out, "%3d/%d  %5.1f s  %-9s  %s\n", i+1, len(todo), r.Seconds, r.Verdict, m.Name)
		if r.Verdict != caught {
			_, _ = fmt.Fprintln(out, indent(r.Detail))
		}
	}
	_, _ = fmt.Fprintln(out)
	if err := errors.Join(t.text(out), o.keep(t)); err != nil {
		return err
	}
	return t.err()
}

// moduleRoot returns the directory of the go.mod above the working directory.
func moduleRoot() (string, error) {
	at, err := os.Getwd()
	if err != nil {
		return "", err
	}
	for dir := at; ; dir = filepath.Dir(dir) {
		if _, err := os.Stat(filepath.Join(dir, "go.mod")); err == nil {
			return dir, nil
		}
		if dir == filepath.Dir(dir) {
			return "", fmt.Errorf("no go.mod in %s or above: run it inside the checkout", at)
		}
	}
}
