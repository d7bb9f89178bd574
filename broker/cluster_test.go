package broker_test

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/muster-dev/muster/broker"
	"github.com/muster-dev/muster/broker/access"
)

func TestAClusterOfThreeKeepsWhatWasStoredWhenOneServerIsGone(t *testing.T) {
	t.Parallel()
	all, err := broker.ClusterOptions(3, 0, t.TempDir(), "")
	if err != nil {
		t.Fatal(err)
	}
	servers, err := broker.StartCluster(all)
	if err != nil {
		t.Fatal(err)
	}
	for _, s := range servers {
		t.Cleanup(s.Stop)
	}
	nc, err := access.Connect(broker.URLs(all), "test")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(nc.Close)
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	if err := broker.WaitReplicated(ctx, nc, 3); err != nil {
		t.Fatal(err)
	}
	js, err := jetstream.New(nc)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := js.CreateStream(ctx, jetstream.StreamConfig{Name: "kept", Subjects: []string{"kept"}, Replicas: 3}); err != nil {
		t.Fatal(err)
	}
	if _, err := js.Publish(ctx, "kept", []byte("1")); err != nil {
		t.Fatal(err)
	}
	servers[0].Stop()
	for {
		// While the others elect a leader there is no answer.
		try, stop := context.WithTimeout(ctx, 2*time.Second)
		_, err := js.Publish(try, "kept", []byte("2"), jetstream.WithMsgID("2"))
		stop()
		if err == nil {
			break
		}
		if ctx.Err() != nil {
			t.Fatal(err)
		}
	}
	s, err := js.Stream(ctx, "kept")
	if err != nil {
		t.Fatal(err)
	}
	if n := s.CachedInfo().State.Msgs; n != 2 {
		t.Errorf("%d messages, want 2", n)
	}
}

func TestLayingOutAClusterNamesWhatIsWrong(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		servers, port int
		want          string
	}{{2, 0, "odd number"}, {0, 0, "odd number"}, {3, 4222, "port 4222"}} {
		_, err := broker.ClusterOptions(c.servers, c.port, t.TempDir(), "")
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%d servers, port %d: %v, want an error that says %q", c.servers, c.port, err, c.want)
		}
	}
	_, err := broker.Start(broker.Options{Dir: t.TempDir(), ClusterPort: 1})
	if err == nil || !strings.Contains(err.Error(), "routes") {
		t.Errorf("a cluster port without routes: %v", err)
	}
}
