// Package replay publishes recorded or generated traces as a data collector does, at a
// steady rate and as those of many chambers.
package replay

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/muster-dev/muster/broker/access"
	"github.com/muster-dev/muster/defender"
	"github.com/muster-dev/muster/defender/collect"
	"github.com/muster-dev/muster/defender/connect"
	"github.com/muster-dev/muster/internal/misuse"
	"github.com/muster-dev/muster/partition"
	"github.com/muster-dev/muster/tchart"
)

// Options say what is replayed, and where to.
type Options struct {
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

// Run replays traces: it makes each T-chart durable, and then publishes its message.
func Run(ctx context.Context, o Options) error {
	source, err := Open(o.Data, o.Seed)
	if err != nil {
		return &misuse.Error{Err: err}
	}
	conn, err := access.Connect(o.NATS, "muster collect")
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
	if err := Register(ctx, store, chambers); err != nil {
		return err
	}
	group, err := Group(ctx, conn, o.Slots, o.Shards)
	if err != nil {
		return err
	}
	c, err := collect.New(store, conn)
	if err != nil {
		return err
	}
	c.For(group)
	r := &replayer{collector: c, source: source, chambers: chambers, next: make([]int, len(chambers)),
		// Contexts of an earlier run may be there: their names must differ.
		name: fmt.Sprintf("t%d-", time.Now().Unix())}
	return r.run(ctx, o)
}

// Group returns the defenders' group as it is provisioned, for these numbers of slots and streams.
// A collector provisions only where there is none: it may not be allowed to, and where there
// is one it need not.
func Group(ctx context.Context, conn *nats.Conn, slots, shards int) (partition.Config, error) {
	p := defender.Partition(slots)
	p.Shards = max(shards, 1)
	have, err := partition.Open(conn, defender.Group).Config(ctx)
	if err == nil && have.Shards == p.Shards && have.Subject == p.Subject && have.Stream == p.Stream && divides(have.Slots, slots) {
		return have, nil
	}
	if err == nil {
		// The rest is the defenders' business: the slots and shards are compared.
		have.Slots, have.Shards = p.Slots, p.Shards
		p = have
	}
	return p, defender.Provision(ctx, conn, p)
}

// divides reports whether keys of a group that began with first slots may be divided in
// others: see partition.Group.Reshard.
func divides(first, slots int) bool {
	return slices.Contains([]int{first, 2 * first, 4 * first, 8 * first}, slots)
}

// lanes is how many contexts are published at a time. A chamber is always in the same
// lane, so its contexts are published in order.
const lanes = 8

// replayer publishes contexts.
type replayer struct {
	collector *collect.Collector
	source    Source
	chambers  []defender.Chamber
	name      string // stands before the number in a context's name
	next      []int  // by chamber, number of its next context; each is its lane's alone

	published, refused atomic.Int64

	mu   sync.Mutex
	full error // of the latest publication that was refused for lack of room
}

// run publishes for one chamber after the other at the rate, and reports each second.
func (r *replayer) run(ctx context.Context, o Options) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	var publishing sync.WaitGroup
	defer publishing.Wait()
	var lane [lanes]chan int
	for i := range lane {
		lane[i] = make(chan int, o.Rate/lanes+1)
		publishing.Go(func() {
			if err := r.publish(ctx, lane[i]); err != nil {
				cancel(err)
			}
		})
	}
	publishing.Go(func() { r.feed(ctx, o, &lane) })

	tick := time.NewTicker(time.Second)
	defer tick.Stop()
	told := int64(0) // refusals
	for {
		select {
		case <-ctx.Done():
			if err := context.Cause(ctx); !errors.Is(err, context.Canceled) {
				return err
			}
			return nil
		case <-tick.C:
		}
		told = r.report(o.Out, told)
		if o.Count > 0 && r.published.Load() >= int64(o.Count) {
			cancel(nil)
			return nil
		}
	}
}

// report writes how many contexts are published, and what refused others.
func (r *replayer) report(out io.Writer, told int64) int64 {
	refused := r.refused.Load()
	if refused == told {
		_, _ = fmt.Fprintf(out, "%d contexts published\n", r.published.Load())
		return told
	}
	r.mu.Lock()
	why := r.full
	r.mu.Unlock()
	_, _ = fmt.Fprintf(out, "%d contexts published; the servers have no room for more, and the next wait here to be published again: %v\n", r.published.Load(), why)
	return refused
}

// feed puts chambers into the lanes at the rate. It waits where a lane is full, and owes
// at most one context of each chamber then.
func (r *replayer) feed(ctx context.Context, o Options, lane *[lanes]chan int) {
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	owed, last := 0.0, time.Now()
	for fed, at := 0, 0; ; {
		select {
		case <-ctx.Done():
			return
		case now := <-tick.C:
			owed = min(owed+now.Sub(last).Seconds()*float64(o.Rate), float64(len(r.chambers)))
			last = now
		}
		for ; owed >= 1; owed-- {
			if o.Count > 0 && fed == o.Count {
				return
			}
			select {
			case lane[at%lanes] <- at:
			case <-ctx.Done():
				return
			}
			fed++
			at = (at + 1) % len(r.chambers)
		}
	}
}

// publish publishes the next contexts of the chambers that come, until ctx ends.
func (r *replayer) publish(ctx context.Context, chambers <-chan int) error {
	var enc tchart.Encoder
	for {
		select {
		case <-ctx.Done():
			return nil
		case at := <-chambers:
			if err := r.publishNext(ctx, &enc, at); err != nil {
				return err
			}
		}
	}
}

func (r *replayer) publishNext(ctx context.Context, enc *tchart.Encoder, at int) error {
	n := r.next[at]
	r.next[at]++
	ref, t := Context(r.chambers[at], fmt.Sprintf("%s%06d", r.name, n), r.source.Sample(at, n).Trace, time.Now())
	blob, err := enc.Append(nil, &t)
	if err != nil {
		return fmt.Errorf("encoding the T-chart of %s: %w", ref.TChart(), err)
	}
	if err := r.collector.MakeDurable(ctx, ref, blob); err != nil {
		return unlessEnded(ctx, err)
	}
	_, err = Announce(ctx, r.collector, ref, nil, func(err error) {
		r.refused.Add(1)
		r.mu.Lock()
		r.full = err
		r.mu.Unlock()
	})
	if err != nil {
		return unlessEnded(ctx, err)
	}
	r.published.Add(1)
	return nil
}

// unlessEnded returns err while ctx lasts: what its end broke off is no error.
func unlessEnded(ctx context.Context, err error) error {
	if ctx.Err() == nil {
		return err
	}
	return nil
}

// announcePatience is how long Announce tries while the servers don't answer.
const announcePatience = 90 * time.Second

// Announce publishes a context's message until the server has it, and returns its
// sequence: while the servers are away, or have no room, nothing is lost at the
// publisher's end. A message that the server has already it knows by its ID. refused is
// told of each time that there was no room. It gives up when ctx ends, or after 90 s
// without an answer.
func Announce(ctx context.Context, c *collect.Collector, ref defender.ContextRef, header nats.Header, refused func(error)) (uint64, error) {
	for began := time.Now(); ; {
		try, cancel := context.WithTimeout(ctx, 2*time.Second)
		seq, err := c.Announce(try, ref, header)
		cancel()
		if err == nil || time.Since(began) > announcePatience {
			return seq, err
		}
		if partition.IsFull(err) {
			began = time.Now() // it is not lost while this waits, and there is no better place for it
			refused(err)
		}
		select {
		case <-ctx.Done():
			return 0, err
		case <-time.After(100 * time.Millisecond):
		}
	}
}
