package audit_test

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/muster-dev/muster/e2e/audit"
	"github.com/muster-dev/muster/partition/servertest/natstest"
)

// TestLossAuditor: a worker acknowledges one message that it has processed and one that it
// has not, one is dead-lettered, and both streams are gone after a cut.
func TestLossAuditor(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	dir := t.TempDir()
	srv := natstest.Start(t)
	nc := natstest.Connect(t, srv.URL())
	js := natstest.JetStream(t, nc)
	create := func() {
		t.Helper()
		if _, err := js.CreateStream(ctx, jetstream.StreamConfig{Name: "jobs", Subjects: []string{"jobs.>"}, Retention: jetstream.WorkQueuePolicy}); err != nil {
			t.Fatal(err)
		}
	}
	create()
	if _, err := js.CreateStream(ctx, jetstream.StreamConfig{Name: "dead", Subjects: []string{"dead.>"}}); err != nil {
		t.Fatal(err)
	}
	results := filepath.Join(dir, "fdc.db")
	db := table(t, results)
	records := filepath.Join(dir, "record")
	if err := os.Mkdir(records, 0o755); err != nil {
		t.Fatal(err)
	}
	a, err := audit.BeginLoss(ctx, nc, audit.Config{Streams: []string{"jobs"}, Dead: "dead", Letters: "dead.>", Results: results, Records: records})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := a.Close(); err != nil {
			t.Error(err)
		}
	})
	var published []audit.Published
	for i, context := range []string{"one", "two", "three", "four"} {
		publish(ctx, t, js, context, fmt.Sprint("id", i), nil)
		published = append(published, audit.Published{Sequence: uint64(i + 1), Key: "t:c", Context: context, Acked: time.Now()})
	}
	c, err := js.CreateConsumer(ctx, "jobs", jetstream.ConsumerConfig{Durable: "w", AckPolicy: jetstream.AckExplicitPolicy})
	if err != nil {
		t.Fatal(err)
	}
	batch, err := c.Fetch(3)
	if err != nil {
		t.Fatal(err)
	}
	record := ""
	for m := range batch.Messages() {
		meta, err := m.Metadata()
		if err != nil {
			t.Fatal(err)
		}
		switch meta.Sequence.Stream {
		case 1:
			now := time.Now().UnixNano()
			record = fmt.Sprintf("s %[1]d w-0 1 t:c 0 false false %[2]d one\ne %[1]d w-0 1 t:c 0 true true %[2]d one\n", now, meta.Timestamp.UnixNano())
			err = m.DoubleAck(ctx)
		case 2:
			err = m.DoubleAck(ctx)
		case 3:
			err = m.InProgress()
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	if err := os.WriteFile(filepath.Join(records, "w-0"), []byte(record), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := db.ExecContext(ctx, `INSERT INTO fences VALUES ('t:c', 3, 9); INSERT INTO ucharts (chamber, context) VALUES ('t:c', 'one')`); err != nil {
		t.Fatal(err)
	}
	dead := nats.Header{"Muster-Sequence": []string{"4"}}
	if _, err := js.PublishMsg(ctx, &nats.Msg{Subject: "dead.t.c", Header: dead}); err != nil {
		t.Fatal(err)
	}
	if err := js.DeleteStream(ctx, "dead"); err != nil {
		t.Fatal(err)
	}
	look := func(want int) {
		t.Helper()
		now := time.Now()
		if n, err := a.Cut(ctx, audit.Cut{Killed: now, Back: now}); err != nil || n != want {
			t.Errorf("the stream has %d messages, %v; want %d", n, err, want)
		}
	}
	look(2)
	if err := js.DeleteStream(ctx, "jobs"); err != nil {
		t.Fatal(err)
	}
	look(0)
	create()
	got, err := a.Account(ctx, published, nil)
	if err != nil {
		t.Fatal(err)
	}
	if got.Messages != 4 || got.Stored != 1 || got.Lost != 3 || fmt.Sprint(got.LostByCut) != "[1 2]" || got.Acks != 2 || got.SilentAcks != 1 || got.DeadLetters != 1 || got.LostOtherwise != 0 {
		t.Errorf("%+v", got)
	}
}
