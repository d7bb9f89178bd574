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

	"github.com/muster-dev/muster/partition/internal/record"
	"github.com/muster-dev/muster/partition/report"
)

// View is a group at one moment, as its buckets and its stream show it. Report
// and Forecast tell what it means.
//
// It is read key by key, without any worker's help, so what changed meanwhile may be of two
// moments: a worker may be in Leases and not yet in the map. Times of leases are the servers',
// to be compared with ServerTime and not with this process's clock.
type View struct {
	At      time.Time // when it was taken, by this process's clock
	Group   string
	Stream  string // or what the streams' names begin with
	Shards  int    // how many streams there are, from 1
	Subject string
	// Generation and Slots are the slot count and how often it was changed, from 1.
	Generation, Slots int
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
	Leases    []report.Lease   // by ascending ID
	Standbys  []report.Standby // by pod
	Overrides []Override       // by ascending slot
	Pending   uint64           // messages that are not processed, including those not yet copied from the source
	Oldest    time.Time        // when the oldest of them was published; zero if there is none
	// Fill is how full the fullest of the streams with messages is, from 0 to 1 of its
	// limit; 0 where they have none. At 1 publishers are refused.
	Fill       float64
	RetryQueue RetryQueue // messages queued for retry

	Source      string // the stream that messages are copied from; may be empty
	NotCopied   uint64 // messages of it that are not copied yet, and up to 4,096 that the server has just copied
	SourceFault string // why the server copies none; empty: it does

	assignment *record.Assignment // nil before the first
	// overridesRevision is what the assignment names when it rests on Overrides.
	overridesRevision uint64
	load              *slotLoad // nil if the leader has no weights of keys
}

// Map returns the assignment map, nil before the first.
func (v *View) Map() *report.Map {
	if v.assignment == nil {
		return nil
	}
	return mapReport(v.assignment)
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
	v.Generation, v.Slots, v.Stream, v.Shards, v.Subject = 1, lay.Slots, rec.Stream, max(rec.Shards, 1), rec.Subject
	var faults []error
	if err := current(ctx, kv, func(e jetstream.KeyValueEntry) { faults = append(faults, v.read(e)) }); err != nil {
		return nil, err
	}
	if err := errors.Join(faults...); err != nil {
		return nil, err
	}
	if v.assignment != nil {
		if v.assignment.Slots != v.Slots {
			return look(ctx, nc, group) // it has just been changed
		}
		v.Generation = v.assignment.Layout
	}
	if v.Leases, err = leasesOf(ctx, nc, group); err != nil {
		return nil, err
	}
	if v.Standbys, err = standbys(ctx, nc, group); err != nil {
		return nil, err
	}
	js, err := jetstream.New(nc)
	if err != nil {
		return nil, err
	}
	waiting, err := pendingOf(ctx, js, layout{group: group, stream: v.Stream, shards: v.Shards, source: rec.Source})
	if err != nil {
		return nil, err
	}
	v.Pending, v.Oldest, v.Fill = waiting.messages, waiting.oldest, waiting.fill
	v.Source, v.NotCopied, v.SourceFault = rec.Source, waiting.source.waiting, waiting.source.fault
	v.LeaseTTL = 6 * time.Second // of groups that have not recorded it
	if rec.Settings != nil {
		v.LeaseTTL = time.Duration(rec.Settings.LeaseTTL)
	}
	leases, err := js.Stream(ctx, bucketPrefix+Config{Name: group}.bucketLeases())
	if err != nil {
		return nil, fmt.Errorf("reading the servers' time: %w", err)
	}
	v.ServerTime = leases.CachedInfo().TimeStamp
	if n, _ := v.staleLeases(); n > 0 || !v.leaderValid() && len(v.Leases) == 0 {
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
	case record.AssignmentKey:
		v.assignment, err = record.DecodeAssignment(e.Value())
	case overridesKey:
		v.Overrides, err = decodeOverrides(e.Value())
		v.overridesRevision = e.Revision()
		for i := range v.Overrides {
			v.Overrides[i].Slot = v.Overrides[i].slot(v.Slots)
		}
		slices.SortStableFunc(v.Overrides, func(a, b Override) int { return cmp.Compare(a.Slot, b.Slot) })
	case expectedKey:
		var x record.Expected
		if err = json.Unmarshal(e.Value(), &x); err == nil {
			v.Expected = x.N
		}
	case leaderKey:
		var x record.Leader
		if err = json.Unmarshal(e.Value(), &x); err == nil {
			v.Leader, v.LeaderRenewed = x.ID, e.Created()
		}
	case loadKey:
		v.load, err = decodeLoad(e.Value(), v.Slots)
		if v.load != nil {
			v.load.At = e.Created()
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
	source   sourceState
}

func pendingOf(ctx context.Context, js jetstream.JetStream, lay layout) (out waitingMessages, err error) {
	streams := lay.streams()
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
	if lay.sourced() {
		if out.source, err = readSourceState(ctx, js, lay, infos[0]); err != nil {
			return out, err
		}
		out.messages += out.source.waiting
	}
	return out, nil
}

// The load of the slots, as the leader tells it whenever it has changed.

const loadKey = "load"

// decodeLoad reads the load of that number of slots; nil if it is of a number that isn't a
// multiple of it.
func decodeLoad(data []byte, slots int) (*slotLoad, error) {
	v, err := record.DecodeLoad(data)
	if err != nil {
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

// now is the servers' time of the view, by which renewals are told.
func (v *View) now() time.Time {
	if v.ServerTime.IsZero() {
		return v.At
	}
	return v.ServerTime
}

// stale reports whether a lease that was renewed at a time must have ended.
func (v *View) stale(renewed time.Time) bool {
	return v.LeaseTTL > 0 && !renewed.IsZero() && v.now().Sub(renewed) > staleAge(v.LeaseTTL)
}

// leaderValid reports whether a worker leads by a lease that has not ended.
func (v *View) leaderValid() bool { return v.Leader != "" && !v.stale(v.LeaderRenewed) }

// staleLeases counts the leases that have ended, and returns the age of the newest lease
// of all.
func (v *View) staleLeases() (n int, newest time.Duration) {
	for i, m := range v.Leases {
		if v.stale(m.Renewed) {
			n++
		}
		if age := v.now().Sub(m.Renewed); i == 0 || age < newest {
			newest = age
		}
	}
	return n, newest
}

// trouble returns why the group can't be STABLE, as far as leases tell; "" for nothing.
func (v *View) trouble() string {
	n, newest := v.staleLeases()
	var text string
	switch {
	case n > 0 && n == len(v.Leases):
		text = fmt.Sprintf("no lease was written for %v", newest.Round(time.Second))
	case n > 0:
		text = fmt.Sprintf("%d of %d leases have ended", n, len(v.Leases))
	case v.assignment != nil && !v.leaderValid():
		text = "no worker leads"
	default:
		return ""
	}
	if v.Refused != "" {
		text += ": " + v.Refused
	}
	return text
}

// staleAge is how old a lease can be at most: the server counts whole seconds, and
// removes what has expired a moment later. An older one could not be removed either,
// which a server without room for anything does not do.
func staleAge(ttl time.Duration) time.Duration { return ttlOf(ttl) + 2*time.Second }
