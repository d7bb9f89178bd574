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

	"github.com/muster-dev/muster/partition/state"
)

// This file holds draining: a worker that stays gives all its slots away and
// takes none for a while, because where it runs will go away. It says so in its
// lease, the leader moves its slots as those of a worker that leaves, and takes
// it out of the map when it has none; when it stops draining it joins like a new worker.
// The time is bounded by the one who asks, so that a worker whose asker died works
// again by itself.

// MemberInfo is what a worker's lease says of it.
type MemberInfo struct {
	Member
	Pod      string // it was started as; "" if it did not say
	Node     string // it runs on; "" if it did not say
	Zone     string
	State    state.State
	Version  uint64 // of the map it has
	Leaving  bool
	Draining bool // gives its slots away and takes none
	// Outdated: it is of an earlier version, which can't read the map of this one. It keeps
	// its slots and gets no others.
	Outdated bool
	// DrainEnd is when it stops draining by itself; zero if it does not drain.
	DrainEnd time.Time
	Capacity float64   // Config.Identity.Capacity
	Renewed  time.Time // when the server had the last renewal of its lease
}

// members returns the workers of a group that have a lease, by ascending ID.
func members(ctx context.Context, nc *nats.Conn, group string) ([]MemberInfo, error) {
	js, err := jetstream.New(nc)
	if err != nil {
		return nil, fmt.Errorf("listing the workers of %s: %w", group, err)
	}
	kv, err := js.KeyValue(ctx, Config{Name: group}.bucketLeases())
	if err != nil {
		return nil, fmt.Errorf("listing the workers of %s: %w: is there a group of this name?", group, err)
	}
	var out []MemberInfo
	err = current(ctx, kv, func(e jetstream.KeyValueEntry) {
		v, err := decodeLease(e.Key(), e.Value())
		if err != nil {
			return // the leader tells why
		}
		m := MemberInfo{Member: Member{v.ID, v.Claim}, Pod: v.Pod, Node: v.Node, Zone: v.Zone, State: v.State, Version: v.Version,
			Leaving: v.Leaving, Draining: v.Draining, Outdated: v.mapSchemaRead() < mapSchema, Capacity: v.Weight, Renewed: e.Created()}
		if v.Draining && v.DrainEnd > 0 {
			m.DrainEnd = time.UnixMilli(v.DrainEnd)
		}
		out = append(out, m)
	})
	if err != nil {
		return nil, fmt.Errorf("listing the workers of %s: %w", group, err)
	}
	slices.SortFunc(out, func(a, b MemberInfo) int { return compareIDs(a.ID, b.ID) })
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
func drain(ctx context.Context, nc *nats.Conn, group string, who func(MemberInfo) bool, until time.Time) (map[string]int, error) {
	members, err := members(ctx, nc, group)
	if err != nil {
		return nil, err
	}
	request := drainRequest{Schema: valueSchema}
	if !until.IsZero() {
		request.Until = until.UnixMilli()
	}
	data := mustJSON(request)
	held := map[string]int{}
	var mu sync.Mutex
	var wg sync.WaitGroup
	var silent []string
	for _, m := range members {
		if !who(m) {
			continue
		}
		wg.Go(func() {
			ctx, cancel := context.WithTimeout(ctx, drainTimeout)
			defer cancel()
			var reply drainReply
			msg, err := nc.RequestWithContext(ctx, drainSubject(group, m.Member), data)
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

// drainSuffix follows the subject of a worker in that of requests to hand off.
const drainSuffix = ".drain"

func drainSubject(group string, m Member) string { return peerSubject(group, m) + drainSuffix }
