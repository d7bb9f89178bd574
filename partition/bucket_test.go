package partition

import (
	"context"
	"errors"
	"math"
	"testing"
	"testing/synctest"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/muster-dev/muster/partition/internal/natstest"
)

// TestDeletingALeaseThatIsGoneSaysSo: a leader that ends a lease by its revision
// must tell one that was renewed from one that is there no more, whatever a watch
// showed it: a replica may show permanently what has expired.
func TestDeletingALeaseThatIsGoneSaysSo(t *testing.T) {
	t.Parallel()
	js := startServer(t, natstest.Options{})
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

// TestWhatIsThereSettlesAWrite: a write that was refused, or whose reply was lost,
// has failed only if something newer is there.
func TestWhatIsThereSettlesAWrite(t *testing.T) {
	t.Parallel()
	lost := errors.New("timeout")
	mine, theirs := []byte("mine"), []byte("theirs")
	for _, tt := range []struct {
		name    string
		op      op
		err     error
		there   kvVersion
		want    error // nil: it succeeded
		rev     uint64
		hasSeen bool // what is there comes with it
	}{
		{"it was carried out, and its reply lost", opUpdate, lost, kvVersion{value: mine, rev: 8}, nil, 8, false},
		{"it was carried out, and the client sent it again", opUpdate, errConflict, kvVersion{value: mine, rev: 8}, nil, 8, false},
		{"its reply is lost, and nothing newer is there", opUpdate, lost, kvVersion{value: theirs, rev: 7}, lost, 0, false},
		{"its reply is lost, and something newer is there", opUpdate, lost, kvVersion{value: theirs, rev: 9}, errConflict, 9, true},
		{"another came first", opUpdate, errConflict, kvVersion{value: theirs, rev: 9}, errConflict, 9, true},
		{"another is under way", opUpdate, errUnderWay, kvVersion{value: theirs, rev: 7}, errUnderWay, 0, false},
		{"another was under way", opUpdate, errUnderWay, kvVersion{value: theirs, rev: 9}, errConflict, 9, true},
		{"a conflict with what nobody can see yet", opUpdate, errConflict, kvVersion{value: theirs, rev: 7}, errUnderWay, 0, false},
		{"the key has gone", opUpdate, errConflict, kvVersion{rev: 9, deleted: true}, errConflict, 0, false},
		{"nothing is left of the key", opUpdate, errConflict, kvVersion{}, errConflict, 0, false},
		{"a key is there already", opCreate, errConflict, kvVersion{value: theirs, rev: 3}, errConflict, 3, true},
		{"a creation was carried out", opCreate, lost, kvVersion{value: mine, rev: 3}, nil, 3, false},
		{"a creation is under way", opCreate, errUnderWay, kvVersion{}, errUnderWay, 0, false},
	} {
		in := kvInput{kvEffect: kvEffect{op: tt.op, value: mine, rev: 7}, err: tt.err}
		if tt.op == opCreate {
			in.rev = 0
		}
		in.settle(tt.there)
		if !errors.Is(in.err, tt.want) || errors.Is(in.err, errConflict) != errors.Is(tt.want, errConflict) || in.gotRev != tt.rev || (in.gotValue != nil) != tt.hasSeen {
			t.Errorf("%s: it ends with revision %d, %q and %v", tt.name, in.gotRev, in.gotValue, in.err)
		}
	}
}

// electing is a bucket that nobody answers for, at first.
type electing struct {
	jetstream.KeyValue

	silent int
}

func (e *electing) Get(context.Context, string) (jetstream.KeyValueEntry, error) {
	if e.silent > 0 {
		e.silent--
		return nil, nats.ErrNoResponders
	}
	return nil, jetstream.ErrKeyNotFound
}

// TestReadsWaitForAnElection: a read succeeds when the bucket's servers have a leader again, and
// ends with its context.
func TestReadsWaitForAnElection(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		if _, err := (patientBucket{&electing{silent: 3}}).Get(t.Context(), "layout"); !errors.Is(err, jetstream.ErrKeyNotFound) {
			t.Errorf("the read ended with %v", err)
		}
		began := time.Now()
		if _, err := (patientBucket{&electing{silent: math.MaxInt}}).Get(t.Context(), "layout"); !errors.Is(err, nats.ErrNoResponders) || time.Since(began) > electionPatience {
			t.Errorf("a read that nobody answers ended with %v, after %v", err, time.Since(began))
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		began = time.Now()
		if _, err := (patientBucket{&electing{silent: math.MaxInt}}).Get(ctx, "layout"); err == nil || time.Since(began) > time.Second {
			t.Errorf("a read with a second of time ended with %v, after %v", err, time.Since(began))
		}
	})
}
