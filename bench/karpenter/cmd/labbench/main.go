// Command labbench plays a recorded trace on a real Kubernetes control plane with simulated nodes, once under Karpenter with its KWOK provider
// and once under Muster's node plane, and writes what both cost, evicted, kept waiting and used, in one table.
//
//	go run ./cmd/labbench --trace FILE [--window 2h] [--speed 18] [--only karpenter|muster] [--report FILE]
//
// Karpenter is built by `go install` once.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"
	"time"

	"github.com/muster-dev/muster/nodes/backtest"
)

func main() {
	var o options
	flag.StringVar(&o.trace, "trace", "", "pod trace, in the format of `muster nodes backtest`")
	flag.DurationVar(&o.window, "window", 2*time.Hour, "length of the part that is played: the one in which most pods are created")
	flag.Float64Var(&o.speed, "speed", 18, "seconds of the trace for each second; both contenders' times are divided by it where they are settings")
	flag.StringVar(&o.only, "only", "", "karpenter or muster; both by default")
	flag.StringVar(&o.report, "report", "", "also write the table, as Markdown, into this file")
	flag.Parse()
	if err := o.check(); err != nil {
		fmt.Fprintln(os.Stderr, "labbench:", err)
		os.Exit(2)
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, o); err != nil {
		fmt.Fprintln(os.Stderr, "labbench:", err)
		os.Exit(1) //nolint:gocritic // nothing is left to be stopped
	}
}

type options struct {
	trace, only, report string
	window              time.Duration
	speed               float64
}

func (o options) check() error {
	switch {
	case o.trace == "":
		return errors.New("--trace is missing: name a file of pods")
	case o.window < time.Minute:
		return fmt.Errorf("--window %v: use a minute or more", o.window)
	case o.speed < 1 || o.speed > 60:
		return fmt.Errorf("--speed %v: use 1 to 60", o.speed)
	case o.only != "" && o.only != "karpenter" && o.only != "muster":
		return fmt.Errorf("--only %q: use karpenter or muster", o.only)
	}
	return nil
}

func run(ctx context.Context, o options) error {
	s, err := readScene(o)
	if err != nil {
		return err
	}
	dir, err := os.MkdirTemp("", "labbench-")
	if err != nil {
		return err
	}
	defer func() { _ = os.RemoveAll(dir) }()
	if err := s.bound(ctx); err != nil {
		return fmt.Errorf("working out the lower bound: %w", err)
	}
	builds := []func(context.Context, scene) (contender, error){newKarpenter, newMuster}
	var rows []result
	for i, name := range []string{"karpenter", "muster"} {
		if o.only != "" && o.only != name {
			continue
		}
		c, err := builds[i](ctx, s)
		if err != nil {
			return fmt.Errorf("preparing %s: %w", name, err)
		}
		place := filepath.Join(dir, name)
		if err := os.Mkdir(place, 0o755); err != nil {
			return err
		}
		r, err := play(ctx, s, c, place)
		if err != nil {
			return fmt.Errorf("playing the trace under %s: %w", name, err)
		}
		rows = append(rows, r)
		fmt.Fprintf(os.Stderr, "%+v\n", r)
	}
	text := s.report(rows)
	fmt.Print(text)
	if o.report == "" {
		return nil
	}
	return os.WriteFile(o.report, []byte(text), 0o644)
}

// scene is what both contenders are given.
type scene struct {
	trace  backtest.Trace
	window backtest.Window
	pods   []backtest.Pod
	speed  float64
	types  []instanceType
	least  float64 // lower bound of the cost, in USD
	out    int     // pods that never fit a type and are left out
}

// short divides a time of the trace by the speed.
func (s scene) short(d time.Duration) time.Duration { return time.Duration(float64(d) / s.speed) }

// whole is short in whole seconds, for settings that are no finer.
func (s scene) whole(d time.Duration) time.Duration {
	return max(s.short(d).Round(time.Second), time.Second)
}
