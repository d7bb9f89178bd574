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
func Up(ctx context.Context, o Options) error {
	return up(ctx, o, process)
}

// process tells how processing goes until ctx ends.
func process(ctx context.Context, t *Cluster) error {
	t.stack.Say("Processing at %d messages/s; interrupt (Ctrl-C) to stop", t.stack.o.Rate)
	t.stack.tellWhatNext(ctx)
	t.stack.Progress(ctx)
	return nil
}

// up starts everything, does what is to be done then and stops everything.
func up(ctx context.Context, o Options, then func(context.Context, *Cluster) error) error {
	if err := o.Validate(); err != nil {
		return &misuse.Error{Err: err}
	}
	SetOnNodes(&o)
	c, err := Start(ctx, o, Hooks{})
	if err != nil {
		return err
	}
	c.unsure.hint = true
	told, stop := context.WithCancel(ctx)
	defer stop()
	go c.TellPauses(told)
	err = ignoreEnd(ctx, c.onNodes(ctx, then))
	stop()
	c.Say("Stopping")
	err = errors.Join(err, c.CloseCluster(), c.Close())
	c.Say("All stopped")
	return err
}

// tellWhatNext says what a person can do with a running up, with what they need for it.
func (c *Stack) tellWhatNext(ctx context.Context) {
	lines := fmt.Sprintf("           Look from another terminal: muster partitions status --nats %[1]s\n           Follow what happens:        muster partitions events --follow --nats %[1]s\n", c.Brokers.URL)
	if list, err := partition.Open(c.Conn, defender.Group).Members(ctx); err == nil {
		pids := c.processIDs()
		for _, m := range slices.Backward(list) {
			if pid := pids[m.Pod]; pid > 0 {
				lines += fmt.Sprintf("           Kill a defender:            kill -9 %-5d                  (%s; the console tells the others' processes)\n", pid, m.ID)
				break
			}
		}
	}
	_, _ = io.WriteString(c.Timeline, lines)
}

func (c *Stack) onNodes(ctx context.Context, then func(context.Context, *Cluster) error) error {
	c.Say("Broker at %s, everything kept in %s", c.Brokers.URL, c.Dir)
	t, err := OpenCluster(ctx, c, ZonesFor(c.o.Defenders), true, cmp.Or(c.o.pendingUp, 2*BootTime))
	if err != nil {
		return err
	}
	if _, err := t.Start(ctx, c.o.Defenders); err != nil {
		return err
	}
	return then(ctx, t)
}

// CloseCluster stops the cluster, if there is one.
func (c *Stack) CloseCluster() error {
	if t := c.Cluster.Load(); t != nil {
		return t.close()
	}
	return nil
}

func ignoreEnd(ctx context.Context, err error) error {
	if errors.Is(err, ctx.Err()) {
		return nil
	}
	return err
}
