package partition

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/muster-dev/muster/partition/internal/natstest"
)

// This file has the simulated server's storage fill up. What lies in it can be read, and
// messages are delivered and acknowledged, but nothing is written: no lease, no map, no
// message, and no delete marker, so that what has expired stays until there is room.

// errSimFull is what a server answers that has no room.
var errSimFull = &jetstream.APIError{Code: 503, ErrorCode: 10023, Description: "insufficient resources"}

// fill has the storage full for a while.
func (srv *simServer) fill(d time.Duration) {
	srv.s.logf("server: the storage is full for %v", d)
	srv.fullUntil = max(srv.fullUntil, srv.s.now+d)
}

func (srv *simServer) full() bool { return srv.s.now < srv.fullUntil }

// fullStorage has the storage fill up in some of the runs, by numbers of its own.
func (s *sim) fullStorage(end time.Duration) {
	rng := rand.New(rand.NewPCG(s.seed, 0xf011))
	if rng.Float64() < 0.75 {
		return
	}
	for range 1 + rng.IntN(2) {
		long := time.Duration(rng.Int64N(int64(4 * s.cfg.Lease.TTL)))
		s.after(time.Duration(rng.Int64N(int64(end))), func() { s.srv.fill(min(long, end-s.now)) })
	}
}

// TestFullServerModel runs one body against the simulated and the real server.
func TestFullServerModel(t *testing.T) {
	t.Parallel()
	bucket := jetstream.KeyValueConfig{Bucket: "full", LimitMarkerTTL: markerTTL}

	t.Run("simulated", func(t *testing.T) {
		t.Parallel()
		s := newSim(1, false)
		s.srv.buckets[bucket.Bucket] = newSimBucket(bucket)
		w := &simWorker{s: s}
		fullStorageHolds(t, fullServer{
			run:  func(e kvEffect) kvInput { return s.srv.apply(w, e) },
			fill: func() { s.srv.fill(time.Hour) },
			free: func() { s.srv.fullUntil = s.now },
			wait: func(d time.Duration) { s.run(s.now+d, nil) },
		})
	})
	t.Run("real", func(t *testing.T) {
		t.Parallel()
		js := startServer(t, natstest.Options{MaxStore: 8 << 20})
		kv, err := js.CreateKeyValue(t.Context(), bucket)
		if err != nil {
			t.Fatal(err)
		}
		foreign, err := js.CreateStream(t.Context(), jetstream.StreamConfig{Name: "foreign", Subjects: []string{"foreign"}})
		if err != nil {
			t.Fatal(err)
		}
		b := &buckets{js: js, kvs: map[string]jetstream.KeyValue{bucket.Bucket: kv}}
		fullStorageHolds(t, fullServer{
			run: func(e kvEffect) kvInput { return b.run(t.Context(), e, 10*time.Second) },
			fill: func() {
				for size := 256 << 10; size > 0; {
					switch _, err := js.Publish(t.Context(), "foreign", make([]byte, size)); {
					case IsFull(err):
						size /= 2
					case err != nil:
						t.Fatal(err)
					}
				}
			},
			free: func() {
				if err := foreign.Purge(t.Context()); err != nil {
					t.Fatal(err)
				}
			},
			wait: time.Sleep,
		})
	})
}

// fullServer is a server whose storage can be filled.
type fullServer struct {
	run        func(kvEffect) kvInput
	fill, free func()
	wait       func(time.Duration)
}

func fullStorageHolds(t *testing.T, srv fullServer) {
	writes := 0
	on := func(op op, key string, rev uint64, ttl time.Duration) kvInput {
		writes++ // a worker that finds the value it wrote takes the write for done
		return srv.run(kvEffect{op: op, bucket: "full", key: key, rev: rev, value: fmt.Append(nil, writes), ttl: ttl})
	}
	const ttl = time.Second
	lasting, brief := on(opCreate, "lasting", 0, 0), on(opCreate, "brief", 0, ttl)
	if lasting.err != nil || brief.err != nil {
		t.Fatal(lasting.err, brief.err)
	}
	srv.fill()
	for name, in := range map[string]kvInput{
		"creating": on(opCreate, "new", 0, 0),
		"updating": on(opUpdate, "lasting", lasting.gotRev, 0),
		"deleting": on(opDelete, "lasting", lasting.gotRev, 0),
	} {
		if !IsFull(in.err) {
			t.Errorf("%s in a full storage: %v, want that it is full", name, in.err)
		}
	}
	srv.wait(ttl + 4*time.Second)
	for _, key := range []string{"lasting", "brief"} {
		if in := on(opGet, key, 0, 0); in.err != nil {
			t.Errorf("reading %s from a full storage: %v", key, in.err)
		}
	}
	srv.free()
	if in := on(opUpdate, "lasting", lasting.gotRev, 0); in.err != nil {
		t.Errorf("updating when there is room again: %v", in.err)
	}
	srv.wait(ttl + 4*time.Second)
	if in := on(opGet, "brief", 0, 0); in.err == nil {
		t.Error("a value is still there whose time was up while the storage was full")
	}
}
