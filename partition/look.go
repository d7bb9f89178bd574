package partition

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/muster-dev/muster/partition/report"
)

// View is a group at one moment, as its buckets and its stream show it. Report
// and Forecast tell what it means.
type View struct {
	At      time.Time // when it was taken, by this process's clock
	Group   string
	Stream  string // or what the streams' names begin with
	Shards  int    // how many streams there are, from 1
	Subject string
	Layout  int // generation of the division
	Slots   int // of it
	// Expected is how many workers there should be, by Group.Expect; 0: unknown.
	Expected int
	Leader   string // stable ID of the last one that was elected, "" for none
	// LeaderRenewed is when the server had the last renewal of the leader's lease.
	LeaderRenewed time.Time
	// ServerTime is the servers' time of the view, for the ages of leases; zero: At.
	ServerTime time.Time
	LeaseTTL   time.Duration // of the group; 0: not known
	// Refused is why workers can't write their leases, if any has ended and one says so.
	Refused   string
	Map       *Assignment      // nil before the first
	Members   []MemberInfo     // by ascending ID
	Standbys  []report.Standby // by pod
	Overrides []Override       // by ascending slot
	// OverridesRevision is what Assignment.Overrides is when the map rests on these Overrides.
	OverridesRevision uint64
	Load              *slotLoad // nil if the leader has no weights of keys
	Pending           uint64    // messages that are not processed
	Oldest            time.Time // when the oldest of them was published; zero if there is none
	// Fill is how full the fullest of the streams with messages is, from 0 to 1 of its
	// limit; 0 where they have none. At 1 publishers are refused.
	Fill       float64
	RetryQueue RetryQueue // messages queued for retry, with Config.Retry
}

// slotLoad is what the leader last knew of the keys in the slots.
type slotLoad struct {
	Weights []uint64 // by slot: the sum of its keys' weights
	Keys    []int    // by slot: how many keys it has
	At      time.Time
}

// look takes a view of a group.
func look(ctx context.Context, nc *nats.Conn, group string) (*View, error) {
	v := &View{Group: group}
	kv, err := mapBucket(ctx, nc, group)
	if err != nil {
		return nil, err
	}
	rec, err := recordedLayout(ctx, kv)
	if err != nil {
		return nil, err
	}
	lay, err := readLayout(ctx, kv, rec)
	if err != nil {
		return nil, err
	}
	v.Layout, v.Slots, v.Stream, v.Shards, v.Subject = 1, lay.Slots, rec.Stream, max(rec.Shards, 1), rec.Subject
	var faults []error
	if err := current(ctx, kv, func(e jetstream.KeyValueEntry) { faults = append(faults, v.read(e)) }); err != nil {
		return nil, err
	}
	if err := errors.Join(faults...); err != nil {
		return nil, err
	}
	if v.Map != nil {
		if v.Map.Slots != v.Slots {
			return look(ctx, nc, group) // it has just been changed
		}
		v.Layout = v.Map.Layout
	}
	if v.Members, err = members(ctx, nc, group); err != nil {
		return nil, err
	}
	if v.Standbys, err = standbys(ctx, nc, group); err != nil {
		return nil, err
	}
	js, err := jetstream.New(nc)
	if err != nil {
		return nil, err
	}
	waiting, err := pendingOf(ctx, js, v.Streams())
	if err != nil {
		return nil, err
	}
	v.Pending, v.Oldest, v.Fill = waiting.messages, waiting.oldest, waiting.fill
	v.LeaseTTL = 6 * time.Second // of groups that have not recorded it
	if rec.Settings != nil {
		v.LeaseTTL = time.Duration(rec.Settings.LeaseTTL)
	}
	leases, err := js.Stream(ctx, bucketPrefix+Config{Name: group}.bucketLeases())
	if err != nil {
		return nil, fmt.Errorf("reading the servers' time: %w", err)
	}
	v.ServerTime = leases.CachedInfo().TimeStamp
	if n, _ := v.staleLeases(); n > 0 || !v.leaderValid() && len(v.Members) == 0 {
		v.Refused = askRefused(ctx, nc, group)
	}
	if rec.Retry {
		if v.RetryQueue, err = readRetryQueue(ctx, nc, group); err != nil {
			return nil, err
		}
	}
	v.At = time.Now()
	return v, nil
}

// read takes in one record of the map's bucket.
func (v *View) read(e jetstream.KeyValueEntry) (err error) {
	switch e.Key() {
	case AssignmentKey:
		v.Map, err = DecodeAssignment(e.Value())
	case overridesKey:
		v.Overrides, err = decodeOverrides(e.Value())
		v.OverridesRevision = e.Revision()
		for i := range v.Overrides {
			v.Overrides[i].Slot = v.Overrides[i].slot(v.Slots)
		}
		slices.SortStableFunc(v.Overrides, func(a, b Override) int { return cmp.Compare(a.Slot, b.Slot) })
	case expectedKey:
		var x expectedValue
		if err = json.Unmarshal(e.Value(), &x); err == nil {
			v.Expected = x.N
		}
	case leaderKey:
		var x leaderValue
		if err = json.Unmarshal(e.Value(), &x); err == nil {
			v.Leader, v.LeaderRenewed = x.ID, e.Created()
		}
	case loadKey:
		v.Load, err = decodeLoad(e.Value(), v.Slots)
		if v.Load != nil {
			v.Load.At = e.Created()
		}
	}
	if err != nil {
		return fmt.Errorf("key %s of bucket %s: %w", e.Key(), e.Bucket(), err)
	}
	return nil
}

// Streams returns the names of the streams with the group's messages, by shard.
func (v *View) Streams() []string { return Config{Stream: v.Stream, Shards: v.Shards}.Streams() }

// waitingMessages are those that work-queue streams hold.
type waitingMessages struct {
	messages uint64
	oldest   time.Time // zero if there is none
	fill     float64   // of the fullest stream, of its limit
}

func pendingOf(ctx context.Context, js jetstream.JetStream, streams []string) (out waitingMessages, err error) {
	infos := make([]*jetstream.StreamInfo, len(streams))
	err = concurrently(ctx, len(streams), len(streams), func(ctx context.Context, i int) error {
		s, err := js.Stream(ctx, streams[i])
		if err != nil {
			return fmt.Errorf("reading the state of stream %s: %w", streams[i], err)
		}
		infos[i] = s.CachedInfo()
		return nil
	})
	if err != nil {
		return out, err
	}
	for _, info := range infos {
		s, limit := info.State, info.Config.MaxBytes
		out.messages += s.Msgs
		if s.Msgs > 0 && (out.oldest.IsZero() || s.FirstTime.Before(out.oldest)) {
			out.oldest = s.FirstTime
		}
		if limit > 0 {
			out.fill = max(out.fill, float64(s.Bytes)/float64(limit))
		}
	}
	return out, nil
}

// The load of the slots, as the leader tells it whenever it has changed.

const loadKey = "load"

// loadValue is what loadKey holds.
type loadValue struct {
	Schema  int           `json:"schema"`
	Weights versionColumn `json:"weights"` // a column, by slot of the finest division
	Keys    versionColumn `json:"keys"`    // the same
}

// decodeLoad reads the load of that number of slots; nil if it is of a number that isn't a
// multiple of it.
func decodeLoad(data []byte, slots int) (*slotLoad, error) {
	var v loadValue
	if err := decodeRecord(data, maxMapBytes, &v); err != nil {
		return nil, fmt.Errorf("reading the load of the slots: %w", err)
	}
	if n := len(v.Weights); n == 0 || n%slots != 0 || len(v.Keys) != n {
		return nil, nil
	}
	load := &slotLoad{Weights: folded(v.Weights, slots), Keys: make([]int, slots)}
	for s, n := range folded(v.Keys, slots) {
		load.Keys[s] = int(n)
	}
	return load, nil
}
