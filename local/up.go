package local

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"slices"

	"github.com/muster-dev/muster/defender"
	"github.com/muster-dev/muster/internal/misuse"
	"github.com/muster-dev/muster/partition"
)

// Up runs everything until ctx ends.
func Up(ctx context.Context, o Options, h Hooks) error {
	return up(ctx, o, h, process)
}

// process tells how processing goes until ctx ends.
func process(ctx context.Context, t *Cluster) error {
	t.workers.Say("Processing at %d messages/s; interrupt (Ctrl-C) to stop", t.workers.o.Rate)
	tellWhatNext(ctx, t.workers)
	t.workers.Progress(ctx)
	return nil
}

// up starts everything, does what is to be done then and stops everything.
func up(ctx context.Context, o Options, h Hooks, then func(context.Context, *Cluster) error) error {
	if err := o.Validate(); err != nil {
		return &misuse.Error{Err: err}
	}
	SetOnNodes(&o)
	s, err := Start(ctx, o, h)
	if err != nil {
		return err
	}
	told, stop := context.WithCancel(ctx)
	defer stop()
	go s.TellPauses(told, true)
	err = ignoreEnd(ctx, onNodes(ctx, s, then))
	stop()
	s.Say("Stopping")
	err = errors.Join(err, s.CloseCluster(), s.Close())
	s.Say("All stopped")
	return err
}

// tellWhatNext says what a person can do with a running up, with what they need for it.
func tellWhatNext(ctx context.Context, w *WorkerPlane) {
	lines := fmt.Sprintf("           Look from another terminal: muster partitions status --nats %[1]s\n           Follow what happens:        muster partitions events --follow --nats %[1]s\n", w.Servers.URL)
	if list, err := partition.Open(w.Conn, defender.Group).Members(ctx); err == nil {
		pids := w.Defenders.processIDs()
		for _, m := range slices.Backward(list) {
			if pid := pids[m.Pod]; pid > 0 {
				lines += fmt.Sprintf("           Kill a defender:            kill -9 %-5d                  (%s; the console tells the others' processes)\n", pid, m.ID)
				break
			}
		}
	}
	_, _ = io.WriteString(w.Timeline, lines)
}

func onNodes(ctx context.Context, s *Stack, then func(context.Context, *Cluster) error) error {
	s.Say("Broker at %s, everything kept in %s", s.Servers.URL, s.Dir)
	t, err := s.OpenCluster(ctx, ZonesFor(s.o.Defenders), true, cmp.Or(s.o.pendingUp, 2*BootTime))
	if err != nil {
		return err
	}
	if _, err := t.Start(ctx, s.o.Defenders); err != nil {
		return err
	}
	return then(ctx, t)
}

func ignoreEnd(ctx context.Context, err error) error {
	if errors.Is(err, ctx.Err()) {
		return nil
	}
	return err
}
