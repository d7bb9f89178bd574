package servertest

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/muster-dev/muster/partition/servertest/natstest"
)

// TestAMarkerRemovesARenewal shows what the simulated server does, too, and what a worker must
// not be deceived by: with replicas the server may acknowledge the renewal of a lease and then
// remove it, by the delete marker of the lease before, which ran out while the renewal was under
// way. Who watches sees the marker alone, and the next renewal fails.
func TestAMarkerRemovesARenewal(t *testing.T) {
	t.Parallel()
	servers := natstest.StartProcesses(t, 3)
	urls := make([]string, len(servers))
	for i, s := range servers {
		urls[i] = s.URL
	}
	nc := natstest.Connect(t, strings.Join(urls, ","))
	leases := jetstream.KeyValueConfig{Bucket: "leases", LimitMarkerTTL: time.Minute, Replicas: 3}

	for try := 1; ; try++ {
		err := removedRenewal(t, servers, nc, leases, fmt.Sprintf("worker-%d", try))
		if err == nil {
			return
		}
		if t.Logf("try %d: %v", try, err); try == 5 {
			t.Fatal("no renewal was removed by a marker: if the servers do that no longer, leaseValidity.ranOut may go")
		}
	}
}

// removedRenewal has a lease run out while its renewal waits for the followers. The error says
// that it didn't come to that, for example since the machine was slow.
func removedRenewal(t *testing.T, servers []*natstest.Process, nc *nats.Conn, leases jetstream.KeyValueConfig, key string) error {
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	js, err := jetstream.New(nc)
	if err != nil {
		return err
	}
	kv, err := js.CreateOrUpdateKeyValue(ctx, leases)
	if err != nil {
		return err
	}
	stream, err := js.Stream(ctx, "KV_"+leases.Bucket)
	if err != nil {
		return err
	}
	var url string
	var followers []*natstest.Process
	for _, s := range servers {
		if s.Name == stream.CachedInfo().Cluster.Leader {
			url = s.URL
		} else {
			followers = append(followers, s)
		}
	}

	direct, err := jetstream.New(natstest.Connect(t, url)) // the others are about to pause
	if err != nil {
		return err
	}
	rev, err := kv.Create(ctx, key, []byte("first"), jetstream.KeyTTL(2*time.Second))
	if err != nil {
		return err
	}
	time.Sleep(1700 * time.Millisecond)
	for _, f := range followers {
		f.Pause()
	}
	time.AfterFunc(1500*time.Millisecond, func() {
		for _, f := range followers {
			f.Resume()
		}
	})

	renew := func(js jetstream.JetStream, rev uint64) (*jetstream.PubAck, error) {
		return js.PublishMsg(ctx, &nats.Msg{Subject: "$KV." + leases.Bucket + "." + key, Data: []byte("renewed")},
			jetstream.WithExpectLastSequencePerSubject(rev), jetstream.WithMsgTTL(10*time.Second))
	}
	ack, err := renew(direct, rev)
	if err != nil {
		return fmt.Errorf("renewing: %w", err)
	}
	time.Sleep(200 * time.Millisecond)
	switch there, err := kv.Get(ctx, key); {
	case err == nil:
		return fmt.Errorf("revision %d, which was acknowledged, is still there", there.Revision())
	case !errors.Is(err, jetstream.ErrKeyNotFound):
		return err
	}

	var refused *jetstream.APIError
	if _, err := renew(js, ack.Sequence); !errors.As(err, &refused) || refused.ErrorCode != jetstream.JSErrCodeStreamWrongLastSequence {
		t.Errorf("the next renewal: %v, want it to be refused", err)
	}
	return nil
}
