package scenario

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/muster-dev/muster/broker"
	"github.com/muster-dev/muster/defender"
	"github.com/muster-dev/muster/defender/collect"
	"github.com/muster-dev/muster/defender/connect"
	"github.com/muster-dev/muster/internal/misuse"
	"github.com/muster-dev/muster/partition"
)

// CollectOptions say what Collect replays, and where to.
type CollectOptions struct {
	NATS     string // URL of the server
	Store    string // that the defenders use, too, by the names of package connect
	Slots    int    // as provisioned, or to provision
	Shards   int    // the same; 0 is 1
	Data     string // directory of trace CSV files; empty: generated traces
	Seed     uint64 // of generated traces
	Chambers int    // how many the traces are replayed as
	Rate     int    // contexts a second
	Count    int    // contexts in all; 0: until ctx ends
	Out      io.Writer
}

// Validate returns every fault of the options, by the flags' names.
func (o CollectOptions) Validate() error {
	return errors.Join(
		within("chambers", o.Chambers, 1, maxChambers),
		within("slots", o.Slots, 1, maxSlots),
		CheckShards(o.Shards, o.Slots),
		within("rate", o.Rate, 1, maxRate),
		within("count", o.Count, 0, 1<<31))
}

// Collect replays traces as many chambers: blobs first, then the messages.
func Collect(ctx context.Context, o CollectOptions) error {
	defaulted(&o.Shards, 1)
	if err := errors.Join(o.Validate(), connect.Check(o.Store, os.LookupEnv)); err != nil {
		return &misuse.Error{Err: err}
	}
	source, err := openSource(Options{Data: o.Data, Seed: o.Seed})
	if err != nil {
		return &misuse.Error{Err: err}
	}
	conn, err := broker.Connect(o.NATS, "muster collect")
	if err != nil {
		return fmt.Errorf("%w: start the server or give another URL with --nats", err)
	}
	defer conn.Close()
	store, err := connect.Open(ctx, o.Store, os.LookupEnv)
	if err != nil {
		return &misuse.Error{Err: err}
	}
	defer func() { _ = store.Close() }()
	chambers := Chambers(o.Chambers)
	if err := store.RegisterChambers(ctx, chamberInfos(chambers)); err != nil {
		return err
	}
	p, err := o.group(ctx, conn)
	if err != nil {
		return err
	}
	c, err := collect.New(store, conn)
	if err != nil {
		return err
	}
	c.For(p)
	t := newTraffic(c, source, chambers)
	defer t.close()
	return t.replay(ctx, o)
}

// group returns the defenders' group as it is provisioned. A collector provisions only
// where there is none: it may not be allowed to, and where there is one it need not.
func (o CollectOptions) group(ctx context.Context, conn *nats.Conn) (partition.Config, error) {
	p := defender.Partition(o.Slots)
	p.Shards = o.Shards
	have, err := partition.Provisioned(ctx, conn, defender.Group)
	if err == nil && have.Shards == o.Shards && have.Subject == p.Subject && have.Stream == p.Stream && divides(have.Slots, o.Slots) {
		return have, nil
	}
	if err == nil {
		// The rest is the defenders' business: the slots and shards are compared.
		have.Slots, have.Shards = p.Slots, p.Shards
		p = have
	}
	return p, defender.Provision(ctx, conn, p)
}

// divides reports whether keys of a group with so many slots at first may be divided in
// others: see partition.SetLayout.
func divides(first, slots int) bool {
	return slices.Contains([]int{first, 2 * first, 4 * first, 8 * first}, slots)
}

func chamberInfos(chambers []defender.Chamber) []defender.ChamberInfo {
	infos := make([]defender.ChamberInfo, len(chambers))
	for i, c := range chambers {
		infos[i] = defender.ChamberInfo{Chamber: c, Weight: 1}
	}
	return infos
}

// replay publishes at a steady rate and tells of it.
func (t *traffic) replay(ctx context.Context, o CollectOptions) error {
	// Contexts of an earlier run may be there: their names must differ.
	t.run = fmt.Sprintf("t%d-", time.Now().Unix())
	tick := time.NewTicker(time.Second)
	defer tick.Stop()
	t.limit.Store(int64(o.Count))
	t.rate.Store(int64(o.Rate))
	told := int64(0) // refusals
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
		t.mu.Lock()
		err := errors.Join(t.faults...)
		t.mu.Unlock()
		if err != nil {
			return err
		}
		if refused := t.refused.Load(); refused > told {
			told = refused
			t.mu.Lock()
			why := t.full
			t.mu.Unlock()
			_, _ = fmt.Fprintf(o.Out, "%d contexts published; the servers have no room for more, and %d wait here to be published again: %v\n", t.total.Load(), t.waiting.Load(), why)
		} else {
			_, _ = fmt.Fprintf(o.Out, "%d contexts published\n", t.total.Load())
		}
		if o.Count > 0 && t.total.Load() >= int64(o.Count) {
			return nil
		}
	}
}
