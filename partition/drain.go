package partition

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/muster-dev/muster/partition/internal/record"
	"github.com/muster-dev/muster/partition/report"
)

// This file holds draining: a worker that stays gives all its slots away and
// takes none for a while, because where it runs will go away. It says so in its
// lease, the leader moves its slots as those of a worker that leaves, and takes
// it out of the map when it has none; when it stops draining it joins like a new worker.
// The time is bounded by the one who asks, so that a worker whose asker died works
// again by itself.

// leasesOf returns the workers of a group that have a lease, by ascending ID.
func leasesOf(ctx context.Context, nc *nats.Conn, group string) ([]report.Lease, error) {
	js, err := jetstream.New(nc)
	if err != nil {
		return nil, fmt.Errorf("listing the workers of %s: %w", group, err)
	}
	kv, err := js.KeyValue(ctx, Config{Name: group}.bucketLeases())
	if err != nil {
		return nil, fmt.Errorf("listing the workers of %s: %w: is there a group of this name?", group, err)
	}
	var out []report.Lease
	err = current(ctx, kv, func(e jetstream.KeyValueEntry) {
		v, err := record.DecodeHeartbeat(e.Key(), e.Value())
		if err != nil {
			return // the leader tells why
		}
		m := report.Lease{Process: report.Process{ID: v.ID, Claim: v.Claim}, Pod: v.Pod, Node: v.Node, Zone: v.Zone, State: v.State, Version: v.Version,
			Leaving: v.Leaving, Draining: v.Draining, Outdated: v.MapSchemaRead() < record.MapSchema, Capacity: v.Weight, Renewed: e.Created()}
		if v.Draining && v.DrainEnd > 0 {
			m.DrainEnd = time.UnixMilli(v.DrainEnd)
		}
		out = append(out, m)
	})
	if err != nil {
		return nil, fmt.Errorf("listing the workers of %s: %w", group, err)
	}
	slices.SortFunc(out, func(a, b report.Lease) int { return compareIDs(a.ID, b.ID) })
	return out, nil
}

// current tells of everything that is in a bucket now.
func current(ctx context.Context, kv jetstream.KeyValue, tell func(jetstream.KeyValueEntry)) error {
	watch, err := kv.WatchAll(ctx, jetstream.IgnoreDeletes())
	if err != nil {
		return err
	}
	defer func() { _ = watch.Stop() }()
	for {
		select {
		case e, ok := <-watch.Updates():
			switch {
			case !ok:
				return errors.New("the watch ended")
			case e == nil:
				return nil
			}
			tell(e)
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// drain asks the workers of a group that who selects to give their slots away
// and to take none until a time; the zero time ends that. It returns how many
// slots each of them still holds, by stable ID; called again it tells how far
// they are. The error names those that did not answer; they are not in the
// result.
func drain(ctx context.Context, nc *nats.Conn, group string, who func(report.Lease) bool, until time.Time) (map[string]int, error) {
	workers, err := leasesOf(ctx, nc, group)
	if err != nil {
		return nil, err
	}
	request := record.DrainRequest{Schema: record.Schema}
	if !until.IsZero() {
		request.Until = until.UnixMilli()
	}
	data := record.Encode(request)
	held := map[string]int{}
	var mu sync.Mutex
	var wg sync.WaitGroup
	var silent []string
	for _, m := range workers {
		if !who(m) {
			continue
		}
		wg.Go(func() {
			ctx, cancel := context.WithTimeout(ctx, drainTimeout)
			defer cancel()
			var reply record.DrainReply
			msg, err := nc.RequestWithContext(ctx, drainSubject(group, record.Process(m.Process)), data)
			if err == nil {
				err = json.Unmarshal(msg.Data, &reply)
			}
			mu.Lock()
			defer mu.Unlock()
			if err != nil {
				silent = append(silent, fmt.Sprintf("%s (%v)", m.ID, err))
				return
			}
			held[m.ID] = reply.Slots
		})
	}
	wg.Wait()
	if len(silent) > 0 {
		slices.SortFunc(silent, func(a, b string) int { return cmp.Compare(a, b) })
		return held, fmt.Errorf("%w: %s", ErrSilent, strings.Join(silent, ", "))
	}
	return held, nil
}

// ErrSilent says that workers did not answer a request to drain.
var ErrSilent = errors.New("workers that did not answer the request to drain")

// drainTimeout is how long one worker's answer is waited for.
const drainTimeout = 2 * time.Second
