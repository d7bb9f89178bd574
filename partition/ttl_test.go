package partition

import (
	"fmt"
	"reflect"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/muster-dev/muster/partition/internal/natstest"
)

// ttlServer is a server of buckets, real or simulated. lifetime writes a value with a
// TTL to a new bucket, through what carries out a machine's operations, and returns how
// long the server keeps it, by the server's own clock.
type ttlServer interface {
	lifetime(t *testing.T, bucket jetstream.KeyValueConfig, op op, ttl time.Duration) time.Duration
}

// TestServerModel runs one body against the simulated server and the real one.
func TestServerModel(t *testing.T) {
	t.Parallel()
	t.Run("simulated", func(t *testing.T) {
		t.Parallel()
		ttlsHold(t, simTTLs{})
	})
	t.Run("real", func(t *testing.T) {
		t.Parallel()
		ttlsHold(t, startTTLs(t))
	})
}

// ttlsHold compares how long a value lives with what the model of the server says. The
// cases are a second or more apart from what they would be by another rule.
func ttlsHold(t *testing.T, srv ttlServer) {
	for name, tt := range map[string]struct {
		bucket jetstream.KeyValueConfig
		ttl    time.Duration
		want   time.Duration
	}{
		"one value per key, short markers":              {jetstream.KeyValueConfig{LimitMarkerTTL: time.Second}, 2 * time.Second, 2 * time.Second},
		"one value per key, long markers":               {jetstream.KeyValueConfig{LimitMarkerTTL: 6 * time.Second}, 2 * time.Second, 2 * time.Second},
		"several values per key, short markers":         {jetstream.KeyValueConfig{History: mapHistoryDepth, LimitMarkerTTL: time.Second}, 2 * time.Second, 2 * time.Second},
		"several values per key, long markers":          {jetstream.KeyValueConfig{History: mapHistoryDepth, LimitMarkerTTL: 6 * time.Second}, 2 * time.Second, 6 * time.Second},
		"a TTL that is no whole number of seconds":      {jetstream.KeyValueConfig{LimitMarkerTTL: time.Second}, 1900 * time.Millisecond, 2 * time.Second},
		"a TTL just beyond a whole number of seconds":   {jetstream.KeyValueConfig{LimitMarkerTTL: time.Second}, 2100 * time.Millisecond, 3 * time.Second},
		"the same where several values are kept of one": {jetstream.KeyValueConfig{History: mapHistoryDepth, LimitMarkerTTL: time.Second}, 1900 * time.Millisecond, 2 * time.Second},
	} {
		for by, op := range map[string]op{"created": opCreate, "updated": opUpdate} {
			t.Run(name+", "+by, func(t *testing.T) {
				t.Parallel()
				// A server looks for what has expired when it can.
				if got := srv.lifetime(t, tt.bucket, op, tt.ttl); got < tt.want || got > tt.want+3*time.Second {
					t.Errorf("a value with a TTL of %v lived for %v, want %v", tt.ttl, got, tt.want)
				}
			})
		}
	}
}

// TestBucketSettings: where a lease's TTL would be raised by how its bucket is
// provisioned, a leader or worker that has died would be waited for that long.
func TestBucketSettings(t *testing.T) {
	t.Parallel()
	cfg := Config{Name: "sim", Stream: "sim", Subject: "sim.*"}.resolve()
	srv := startTTLs(t)
	for _, b := range bucketConfigs(cfg) {
		for _, op := range []op{opCreate, opUpdate} {
			t.Run(fmt.Sprintf("a TTL holds in %s, operation %d", b.Bucket, op), func(t *testing.T) {
				t.Parallel()
				if got := srv.lifetime(t, b, op, 2*time.Second); got < 2*time.Second || got > 8*time.Second {
					t.Errorf("a value with a TTL of 2s lived for %v", got)
				}
			})
		}
	}
}

type simTTLs struct{}

func (simTTLs) lifetime(t *testing.T, c jetstream.KeyValueConfig, op op, ttl time.Duration) time.Duration {
	s := newSim(1, false)
	c.Bucket = "b"
	b := newSimBucket(c)
	s.srv.buckets[c.Bucket] = b
	e := kvEffect{op: opCreate, bucket: c.Bucket, key: "k", value: []byte("1"), ttl: ttlOf(ttl)}
	w := &simWorker{s: s}
	if op == opUpdate {
		first := s.srv.apply(w, e)
		e.op, e.rev, e.value = opUpdate, first.gotRev, []byte("2")
	}
	if out := s.srv.apply(w, e); out.err != nil {
		t.Fatal(out.err)
	}
	s.run(time.Hour, func() bool { return b.last["k"].deleted })
	return b.last["k"].at
}

type realTTLs struct{ js jetstream.JetStream }

func startTTLs(t *testing.T) realTTLs {
	t.Helper()
	return realTTLs{startServer(t, natstest.Options{})}
}

// startServer starts a server with a store of its own, and returns a client.
func startServer(t testing.TB, o natstest.Options) jetstream.JetStream {
	t.Helper()
	js, err := jetstream.New(connect(t, natstest.Start(t, o)))
	if err != nil {
		t.Fatal(err)
	}
	return js
}

func connect(t testing.TB, url string) *nats.Conn {
	t.Helper()
	nc, err := nats.Connect(url, nats.MaxReconnects(-1))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(nc.Close)
	return nc
}

func (r realTTLs) lifetime(t *testing.T, c jetstream.KeyValueConfig, op op, ttl time.Duration) time.Duration {
	c.Bucket = fmt.Sprintf("b%d", time.Now().UnixNano())
	kv, err := r.js.CreateKeyValue(t.Context(), c)
	if err != nil {
		t.Fatal(err)
	}
	w, err := kv.Watch(t.Context(), "k", jetstream.UpdatesOnly())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = w.Stop() }()
	b := &buckets{js: r.js, kvs: map[string]jetstream.KeyValue{c.Bucket: kv}}
	e := kvEffect{op: opCreate, bucket: c.Bucket, key: "k", value: []byte("1"), ttl: ttlOf(ttl)}
	var written kvInput
	if written = b.run(t.Context(), e, 10*time.Second); written.err == nil && op == opUpdate {
		e.op, e.rev, e.value = opUpdate, written.gotRev, []byte("2")
		written = b.run(t.Context(), e, 10*time.Second)
	}
	if written.err != nil {
		t.Fatal(written.err)
	}
	// The leader's own word: a watch may have been overtaken by a second write.
	var begun time.Time
	for {
		select {
		case u := <-w.Updates():
			switch {
			case u == nil:
			case u.Operation() == jetstream.KeyValuePut:
				if u.Revision() == written.gotRev {
					begun = u.Created()
				}
			default:
				return u.Created().Sub(begun)
			}
		case <-time.After(90 * time.Second):
			t.Fatal("it does not expire")
		}
	}
}

// TestProvisionedBuckets: the buckets are what the client makes of their settings, and
// those of an earlier version, with markers of a minute, are changed to the same.
func TestProvisionedBuckets(t *testing.T) {
	t.Parallel()
	srv := startTTLs(t)
	cfg := Config{Name: "sim", Stream: "sim", Subject: "sim.*"}
	for _, b := range bucketConfigs(cfg.resolve()) {
		b.LimitMarkerTTL = markerTTL
		if _, err := srv.js.CreateKeyValue(t.Context(), b); err != nil {
			t.Fatal(err)
		}
	}
	if err := Open(srv.js.Conn(), cfg.Name).Provision(t.Context(), cfg); err != nil {
		t.Fatal(err)
	}
	for _, b := range bucketConfigs(cfg.resolve()) {
		s, err := srv.js.Stream(t.Context(), bucketPrefix+b.Bucket)
		if err != nil {
			t.Fatal(err)
		}
		changed := s.CachedInfo().Config
		if err := srv.js.DeleteStream(t.Context(), changed.Name); err != nil {
			t.Fatal(err)
		}
		if s, err = srv.js.CreateStream(t.Context(), bucketStream(b, -1)); err != nil {
			t.Fatal(err)
		}
		if made := s.CachedInfo().Config; !reflect.DeepEqual(made, changed) {
			t.Errorf("%s is\n%+v, and is created again as\n%+v", b.Bucket, changed, made)
		}
	}
}
