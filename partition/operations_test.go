package partition

import (
	"errors"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/muster-dev/muster/partition/internal/record"
)

// TestBucketOperations runs one body of conditional writes against the simulated server
// and the real one.
func TestBucketOperations(t *testing.T) {
	t.Parallel()
	bucket := jetstream.KeyValueConfig{Bucket: "operations", LimitMarkerTTL: markerTTL}

	t.Run("simulated", func(t *testing.T) {
		t.Parallel()
		s := newSim(1, false)
		s.srv.buckets[bucket.Bucket] = newSimBucket(bucket)
		w := &simWorker{s: s}
		operationsHold(t, func(e kvEffect) kvInput { return s.srv.apply(w, e) })
	})
	t.Run("real", func(t *testing.T) {
		t.Parallel()
		srv := startTTLs(t)
		kv, err := srv.js.CreateKeyValue(t.Context(), bucket)
		if err != nil {
			t.Fatal(err)
		}
		b := &buckets{js: srv.js, kvs: map[string]jetstream.KeyValue{bucket.Bucket: kv}}
		operationsHold(t, func(e kvEffect) kvInput { return b.run(t.Context(), e, 10*time.Second) })
	})
}

// operationsHold goes through the life of a key. Each step expects an error, or a new
// revision, and what the key holds afterwards.
func operationsHold(t *testing.T, run func(kvEffect) kvInput) {
	const unseen = 0 // the revision of what was never seen
	var rev, former uint64
	attempt := 0
	for _, step := range []struct {
		name  string
		op    op
		rev   func() uint64
		err   error
		holds bool
	}{
		{"the absence of a key that never was is proven", opDelete, func() uint64 { return unseen }, nil, false},
		{"and once more, over its delete marker", opDelete, func() uint64 { return unseen }, nil, false},
		{"a key is created over a delete marker", opCreate, func() uint64 { return 0 }, nil, true},
		{"it is not created twice", opCreate, func() uint64 { return 0 }, errConflict, true},
		{"its absence is not proven while it is there", opDelete, func() uint64 { return unseen }, errConflict, true},
		{"it is updated", opUpdate, func() uint64 { return rev }, nil, true},
		{"it is not updated from an earlier revision", opUpdate, func() uint64 { return former }, errConflict, true},
		{"it is not deleted under an earlier revision", opDelete, func() uint64 { return former }, errConflict, true},
		{"it is deleted under its revision", opDelete, func() uint64 { return rev }, nil, false},
		{"it is not deleted twice", opDelete, func() uint64 { return rev }, errNotFound, false},
		{"it is not updated after its deletion", opUpdate, func() uint64 { return rev }, errConflict, false},
		{"its absence is proven", opDelete, func() uint64 { return unseen }, nil, false},
		{"another holder creates it", opCreate, func() uint64 { return 0 }, nil, true},
	} {
		attempt++
		out := run(kvEffect{op: step.op, bucket: "operations", key: "k", value: record.Encode(attempt), rev: step.rev()})
		if !errors.Is(out.err, step.err) || step.err == nil && out.err != nil {
			t.Fatalf("%s: %v, want %v", step.name, out.err, step.err)
		}
		if out.err == nil && step.op != opDelete {
			former, rev = rev, out.gotRev
		}

		got := run(kvEffect{op: opGet, bucket: "operations", key: "k"})
		if there := got.err == nil; there != step.holds || got.err != nil && !errors.Is(got.err, errNotFound) {
			t.Fatalf("%s: reading it: %v, there should be a value: %v", step.name, got.err, step.holds)
		}
		if step.holds && got.gotRev != rev {
			t.Fatalf("%s: it is at revision %d, want %d", step.name, got.gotRev, rev)
		}
		if step.op == opDelete && errors.Is(out.err, errConflict) && step.rev() == unseen && out.gotRev != rev {
			t.Fatalf("%s: revision %d is there by the answer, want %d", step.name, out.gotRev, rev)
		}
	}
}
