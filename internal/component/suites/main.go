// Command suites runs the suites that talk to real components, and says at the end which component ran in which version under how many
// tests:
//
//	go run ./internal/component/suites            # the packages whose tests use package browser, component or labtest
//	go run ./internal/component/suites ./nodes/kube
//
// It needs the toolchains that the components come by (Go, Java with Maven, Node.js, Python) and a Chromium, and gets everything else,
// the lab's build among it, at pinned versions into the user's cache. It sets MUSTER_REQUIRE=all: what can't be had fails. A failed or
// skipped test makes it exit with 1.
//
// With --read it runs nothing and reads a run from standard input, which it shows as go test would have:
//
//	go test -json work | go run ./internal/component/suites --read
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
	"slices"
	"strings"
	"time"

	"github.com/muster-dev/muster/internal/lab"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if err := run(ctx, os.Args[1:]); err != nil {
		if !errors.Is(err, flag.ErrHelp) {
			_, _ = fmt.Fprintln(os.Stderr, "suites:", err)
		}
		os.Exit(1)
	}
}

func run(ctx context.Context, args []string) error {
	flags := flag.NewFlagSet("suites", flag.ContinueOnError)
	read := flags.Bool("read", false, "read the output of `go test -json` from standard input instead of running the suites")
	race := flags.Bool("race", false, "run them with the race detector")
	timeout := flags.Duration("timeout", 30*time.Minute, "most time for the tests of one package")
	if err := flags.Parse(args); err != nil {
		return err
	}
	if *read {
		t := newTally(os.Stdout)
		if err := t.read(os.Stdin); err != nil {
			return err
		}
		return t.report()
	}
	packages := flags.Args()
	if len(packages) == 0 {
		var err error
		if packages, err = withComponents(ctx); err != nil {
			return err
		}
	}
	fmt.Println("suites with real components:", strings.Join(packages, " "))
	fmt.Println("building the labs, unless that has been done")
	for _, r := range lab.Releases() {
		if _, err := lab.Build(ctx, r, os.Stderr); err != nil {
			return err
		}
	}
	// One after another: a component that starts beside others looks slow.
	cmd := exec.CommandContext(ctx, "go", slices.Concat([]string{"test", "-json", "-count=1", "-p=1", fmt.Sprint("-race=", *race), fmt.Sprint("-timeout=", *timeout)}, packages)...)
	cmd.Env = append(os.Environ(), "MUSTER_REQUIRE=all")
	return follow(cmd)
}

// follow runs go test and tells what it did.
func follow(cmd *exec.Cmd) error {
	cmd.Stderr = os.Stderr
	out, err := cmd.StdoutPipe()
	if err != nil {
		return err
	}
	if err := cmd.Start(); err != nil {
		return fmt.Errorf("running go test: %w", err)
	}
	t := newTally(os.Stdout)
	err = t.read(out)
	_, _ = io.Copy(io.Discard, out) // or it would wait for us
	ended := cmd.Wait()
	if err := errors.Join(err, t.report()); err != nil {
		return err
	}
	if ended != nil {
		return fmt.Errorf("go test: %w", ended)
	}
	return nil
}

// withComponents returns the packages whose tests use real components: those that import what starts them.
func withComponents(ctx context.Context) ([]string, error) {
	const format = `{{.ImportPath}}{{range .TestImports}} {{.}}{{end}}{{range .XTestImports}} {{.}}{{end}}`
	cmd := exec.CommandContext(ctx, "go", "list", "-f", format, "github.com/muster-dev/muster/...")
	cmd.Stderr = os.Stderr
	out, err := cmd.Output()
	if err != nil {
		return nil, fmt.Errorf("listing the packages: %w", err)
	}
	var packages []string
	for line := range strings.Lines(string(out)) {
		name, imports, _ := strings.Cut(strings.TrimSpace(line), " ")
		for _, i := range strings.Fields(imports) {
			path, ours := strings.CutPrefix(i, "github.com/muster-dev/muster/")
			if ours && slices.Contains([]string{"internal/browser", "internal/component", "internal/lab/labtest", "partition/internal/natstest", "partition/servertest/natstest"}, path) {
				packages = append(packages, name)
				break
			}
		}
	}
	// The package's own tests are among them, whatever they import.
	if own := "github.com/muster-dev/muster/internal/component"; !slices.Contains(packages, own) {
		packages = append(packages, own)
	}
	return packages, nil
}
