package defender

import (
	"slices"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/muster-dev/muster/partition/servertest/natstest"
)

// TestOutbox is about the stream of alarms, which collectors and defenders provision, in any order and with different knowledge of the replicas.
func TestOutbox(t *testing.T) {
	t.Parallel()
	t.Run("raises replicas and never lowers them", func(t *testing.T) {
		t.Parallel()
		const replicas = 3
		servers := natstest.StartCluster(t, replicas)
		js := natstest.JetStream(t, natstest.Connect(t, natstest.URLs(servers)))
		for _, step := range []struct{ given, want int }{{0, 1}, {3, 3}, {0, 3}, {1, 3}, {3, 3}} {
			if err := (&outbox{js: js, replicas: step.given}).provision(t.Context()); err != nil {
				t.Fatalf("with %d replicas: %v", step.given, err)
			}
			if got := config(t, js, AlarmStream).Replicas; got != step.want {
				t.Errorf("given %d, the stream has %d replicas, want %d", step.given, got, step.want)
			}
		}
	})
	t.Run("adds subjects and keeps an operator's settings", func(t *testing.T) {
		t.Parallel()
		srv := natstest.Start(t)
		nc := natstest.Connect(t, srv.URL())
		js := natstest.JetStream(t, nc)
		early := jetstream.StreamConfig{Name: AlarmStream, Subjects: []string{"dc-alarm.*.*.>"}, MaxAge: 42 * time.Hour, MaxBytes: 1 << 20}
		if _, err := js.CreateStream(t.Context(), early); err != nil {
			t.Fatal(err)
		}
		for range 2 {
			if err := (&outbox{js: js}).provision(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
		got := config(t, js, AlarmStream)
		if got.MaxAge != early.MaxAge || got.MaxBytes != early.MaxBytes || !slices.Contains(got.Subjects, "dc-alarm-ack.*.*.>") || len(got.Subjects) != 2 {
			t.Errorf("the stream is now %+v", got)
		}
	})
	t.Run("re-creates a lost stream whose subjects others follow", func(t *testing.T) {
		t.Parallel()
		srv := natstest.Start(t)
		nc := natstest.Connect(t, srv.URL())
		js := natstest.JetStream(t, nc)
		if _, err := nc.Subscribe("dc-alarm.>", func(*nats.Msg) {}); err != nil { // as a console does
			t.Fatal(err)
		}
		o := &outbox{js: js}
		if err := o.publish(t.Context(), &nats.Msg{Subject: "dc-alarm.tool001.chamber1.run1", Data: []byte("{}")}); err != nil {
			t.Fatalf("publishing an alarm to a stream that is gone: %v", err)
		}
		if s, err := js.Stream(t.Context(), AlarmStream); err != nil || s.CachedInfo().State.Msgs != 1 {
			t.Errorf("the alarm is not in its stream: %v", err)
		}
	})
}

func config(t *testing.T, js jetstream.JetStream, stream string) jetstream.StreamConfig {
	t.Helper()
	s, err := js.Stream(t.Context(), stream)
	if err != nil {
		t.Fatal(err)
	}
	return s.CachedInfo().Config
}
