package partition

import (
	"errors"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/muster-dev/muster/broker"
)

// TestDeletingALeaseThatIsGoneSaysSo: a leader that ends a lease by its revision
// must tell one that was renewed from one that is there no more, whatever a watch
// showed it: a replica may show for ever what has expired.
func TestDeletingALeaseThatIsGoneSaysSo(t *testing.T) {
	t.Parallel()
	srv, err := broker.Start(broker.Options{Dir: t.TempDir()})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(srv.Stop)
	nc, err := broker.Connect(srv.URL(), "test")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(nc.Close)
	js, err := jetstream.New(nc)
	if err != nil {
		t.Fatal(err)
	}
	kv, err := js.CreateKeyValue(t.Context(), jetstream.KeyValueConfig{Bucket: "leases", LimitMarkerTTL: time.Minute})
	if err != nil {
		t.Fatal(err)
	}
	b := &buckets{js: js, kvs: map[string]jetstream.KeyValue{"leases": kv}}
	put := func(key string) uint64 {
		rev, err := kv.Put(t.Context(), key, []byte(key))
		if err != nil {
			t.Fatal(err)
		}
		return rev
	}
	end := func(key string, rev uint64) error {
		return b.run(t.Context(), kvEffect{op: opDelete, bucket: "leases", key: key, rev: rev}, 10*time.Second).err
	}
	alive := put("w-0")
	renewed := put("w-0")
	if err := end("w-0", alive); !errors.Is(err, errConflict) {
		t.Errorf("ending a lease that was renewed: %v", err)
	}
	if err := end("w-0", renewed); err != nil {
		t.Errorf("ending a lease: %v", err)
	}
	if err := end("w-0", renewed); !errors.Is(err, errNotFound) {
		t.Errorf("ending it again: %v", err)
	}
	if err := end("w-1", 12345); !errors.Is(err, errNotFound) {
		t.Errorf("ending one that there is no trace of: %v", err)
	}
	if _, err := kv.Create(t.Context(), "w-2", []byte("x"), jetstream.KeyTTL(time.Second)); err != nil {
		t.Fatal(err)
	}
	e, err := kv.Get(t.Context(), "w-2")
	if err != nil {
		t.Fatal(err)
	}
	for !errors.Is(err, jetstream.ErrKeyNotFound) {
		if _, err = kv.Get(t.Context(), "w-2"); t.Context().Err() != nil {
			t.Fatal(err)
		}
		time.Sleep(10 * time.Millisecond)
	}
	if err := end("w-2", e.Revision()); !errors.Is(err, errNotFound) {
		t.Errorf("ending one that has expired: %v", err)
	}
}
