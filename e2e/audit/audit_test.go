package audit_test

import (
	"context"
	"database/sql"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	_ "modernc.org/sqlite"

	"github.com/muster-dev/muster/e2e/audit"
	"github.com/muster-dev/muster/partition/servertest/natstest"
)

// TestTheAuditReadsWhatTheBrokerAndTheStoreKeep: messages are taken, one of them
// twice, a result is stored, one is dead-lettered, and one is left.
func TestTheAuditReadsWhatTheBrokerAndTheStoreKeep(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	dir := t.TempDir()
	srv := natstest.Start(t)
	nc := natstest.Connect(t, srv.URL())
	js := natstest.JetStream(t, nc)
	for name, subject := range map[string]string{"jobs": "jobs.>", "dead": "dead.>"} {
		if _, err := js.CreateStream(ctx, jetstream.StreamConfig{Name: name, Subjects: []string{subject}, Retention: jetstream.LimitsPolicy}); err != nil {
			t.Fatal(err)
		}
	}
	results := filepath.Join(dir, "fdc.db")
	db := table(t, results)
	if err := os.Mkdir(filepath.Join(dir, "record"), 0o755); err != nil {
		t.Fatal(err)
	}
	a, err := audit.Begin(ctx, nc, audit.Config{Streams: []string{"jobs"}, Dead: "dead", Results: results, Records: filepath.Join(dir, "record")})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := a.Close(); err != nil {
			t.Error(err)
		}
	})
	var published []audit.Published
	for i, context := range []string{"one", "two", "three"} {
		publish(ctx, t, js, context, fmt.Sprint("id", i), nil)
		published = append(published, audit.Published{Sequence: uint64(i + 1), Key: "t:c", Context: context})
	}
	publish(ctx, t, js, "one", "id0", nil) // known
	dead := nats.Header{"Muster-Sequence": []string{"2"}}
	if _, err := js.PublishMsg(ctx, &nats.Msg{Subject: "dead.t.c", Header: dead}); err != nil {
		t.Fatal(err)
	}
	if _, err := db.ExecContext(ctx, `INSERT INTO fences VALUES ('t:c', 3, 9); INSERT INTO ucharts (chamber, context) VALUES ('t:c', 'one')`); err != nil {
		t.Fatal(err)
	}
	now := time.Now().UnixNano()
	record := fmt.Sprintf("s %d w-0 1 t:c 0 false false 0\ne %d w-0 1 t:c 0 true true 0\ns %d w-0 2 t:c 0 false false 0\ne %d w-0 2 t:c 0 false false 0\ns %d w-", now, now+1, now+2, now+3, now+4)
	if err := os.WriteFile(filepath.Join(dir, "record", "pod-0"), []byte(record), 0o600); err != nil {
		t.Fatal(err)
	}
	got, err := a.Account(ctx, published[:2], nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	if got.Messages != 3 || got.Unconfirmed != 1 || got.Unknown != 0 || got.Stored != 1 || got.DeadLetters != 1 || got.WronglyDead != 1 || got.Lost != 1 || got.Left != 3 {
		t.Errorf("%+v", got)
	}
}

func publish(ctx context.Context, t *testing.T, js jetstream.JetStream, context, id string, h nats.Header) {
	t.Helper()
	data := fmt.Appendf(nil, `{"tool":"t","chamber":"c","context":%q}`, context)
	if _, err := js.PublishMsg(ctx, &nats.Msg{Subject: "jobs.t.c", Data: data, Header: h}, jetstream.WithMsgID(id)); err != nil {
		t.Fatal(err)
	}
}

// table makes the part of the results' database that the audit looks at.
func table(t *testing.T, path string) *sql.DB {
	t.Helper()
	db, err := sql.Open("sqlite", "file:"+path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = db.Close() })
	if _, err := db.ExecContext(t.Context(), `CREATE TABLE ucharts (chamber TEXT, context TEXT);
		CREATE TABLE fences (chamber TEXT PRIMARY KEY, map_version INTEGER, claim_revision INTEGER)`); err != nil {
		t.Fatal(err)
	}
	return db
}
