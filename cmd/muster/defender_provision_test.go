package main

import (
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/muster-dev/muster/defender"
	"github.com/muster-dev/muster/defender/sqlite"
	"github.com/muster-dev/muster/defender/trace"
	"github.com/muster-dev/muster/internal/command"
	"github.com/muster-dev/muster/partition"
	"github.com/muster-dev/muster/partition/servertest/natstest"
	"github.com/muster-dev/muster/tchart"
)

// plant is a broker on which nothing but "muster defender run" has run, with a
// data collector of its own: a plain NATS client that writes completions by hand.
type plant struct {
	*defending
	t     *testing.T
	nc    *nats.Conn
	js    jetstream.JetStream
	store *sqlite.Store
	began time.Time
}

// chamber of the plant, and where its completions are published.
var plantChamber = defender.Chamber{Tool: "tool015", Name: "chamber1"}

const plantSubject = "dc.tool015.chamber1.completion"

func newPlant(t *testing.T) *plant {
	t.Helper()
	dir := t.TempDir()
	srv := natstest.Start(t)
	nc := natstest.Connect(t, srv.URL())
	js := natstest.JetStream(t, nc)
	path := filepath.Join(dir, "fdc.db")
	store, err := sqlite.Open(t.Context(), sqlite.Config{Path: path})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = store.Close() })
	if err := store.RegisterChambers(t.Context(), []defender.ChamberInfo{{Chamber: plantChamber, Weight: 1}}); err != nil {
		t.Fatal(err)
	}
	p := &plant{t: t, nc: nc, js: js, store: store, began: time.Now().UTC().Add(-time.Hour)}
	p.defending = beginDefender(t, "--nats", srv.URL(), "--store", path, "--slots", "4", "--pod", "only")
	// One defender is all there is: it need not wait for others.
	waitFor(t, time.Minute, "the group is provisioned", func() bool {
		return partition.Open(nc, defender.Group).Expect(t.Context(), 1) == nil
	}, &p.out)
	waitFor(t, 2*time.Minute, "the defender has its slots", func() bool { return len(p.slots(t).Slots) == 4 }, &p.out)
	return p
}

// publish stores a T-chart and publishes its completion, a line of JSON.
func (p *plant) publish(n int, w *trace.Wafer) (id string) {
	p.t.Helper()
	id = fmt.Sprintf("r%06d", n)
	start := p.began.Add(time.Duration(n) * time.Minute)
	blob, err := tchart.Encode(&w.Trace)
	if err != nil {
		p.t.Fatal(err)
	}
	if err := p.store.PutTChart(p.t.Context(), defender.TChartKey{Chamber: plantChamber, Context: id}, blob, time.Now().Add(time.Hour)); err != nil {
		p.t.Fatal(err)
	}
	p.send(fmt.Sprintf(`{"schema":1,"tool":"tool015","chamber":"chamber1","context":%q,"tchart":"tool015:chamber1/%s","start":%q,"end":%q,"recipe":"etch"}`,
		id, id, start.Format(time.RFC3339Nano), start.Add(time.Minute).Format(time.RFC3339Nano)))
	return id
}

func (p *plant) send(data string) {
	p.t.Helper()
	if _, err := p.js.Publish(p.t.Context(), plantSubject, []byte(data)); err != nil {
		p.t.Fatal(err)
	}
}

// processed waits until a context's result is stored.
func (p *plant) processed(id string) {
	p.t.Helper()
	waitFor(p.t, 45*time.Second, "the slot continues: "+id+" is processed", func() bool {
		_, err := p.store.UChart(p.t.Context(), plantChamber, id)
		return err == nil
	}, &p.out)
}

// last returns the newest message of a subject in a stream.
func (p *plant) last(stream, subject string) string {
	p.t.Helper()
	s, err := p.js.Stream(p.t.Context(), stream)
	if err != nil {
		p.t.Fatalf("reading stream %s: %v", stream, err)
	}
	m, err := s.GetLastMsgForSubject(p.t.Context(), subject)
	if err != nil {
		p.t.Fatalf("reading the last message of %s in stream %s: %v", subject, stream, err)
	}
	return string(m.Data)
}

// TestDefenderRun: a plant that publishes its own completions needs no command of
// Muster but "defender run".
func TestDefenderRun(t *testing.T) {
	t.Parallel()
	t.Run("provisions all that it publishes to", func(t *testing.T) {
		t.Parallel()
		p := newPlant(t)
		p.send("no completion")
		p.processed(p.publish(0, new(trace.Generator).Wafer(0)))
		if got := p.last(defender.DeadStream, defender.DeadSubject); got != "no completion" {
			t.Errorf("the dead letter is %q", got)
		}
		p.alarms(1)
	})
	t.Run("re-creates streams that are deleted while it runs", func(t *testing.T) {
		t.Parallel()
		p := newPlant(t)
		for _, stream := range []string{defender.AlarmStream, defender.DeadStream} {
			if err := p.js.DeleteStream(t.Context(), stream); err != nil && !errors.Is(err, jetstream.ErrStreamNotFound) {
				t.Fatal(err)
			}
		}
		p.send("no completion")
		p.processed(p.publish(0, new(trace.Generator).Wafer(0)))
		if got := p.last(defender.DeadStream, defender.DeadSubject); got != "no completion" {
			t.Errorf("the dead letter is %q", got)
		}
		p.alarms(1)
	})
}

// TestDefenderRunRejected: what the server rejects is said at once, with what it was for.
func TestDefenderRunRejected(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	srv := natstest.Start(t)
	code, _, stderr := muster("defender", "run", "--nats", srv.URL(), "--store", filepath.Join(dir, "fdc.db"), "--slots", "4", "--replicas", "3")
	if code != command.ExitFailed || !strings.Contains(stderr, "provisioning stream dc-alarms: nats: API error") {
		t.Errorf("exit code %d, it said %q", code, stderr)
	}
}

// alarms publishes normal wafers, of which the first has number n, then one with a
// fault and a normal one, and expects the alarm.
func (p *plant) alarms(n int) {
	p.t.Helper()
	g := trace.Generator{Seed: 1}
	for i := range 15 {
		p.publish(n+i, g.Wafer(i))
	}
	faulty, err := g.FaultyWafer(16, trace.Faults()[0])
	if err != nil {
		p.t.Fatal(err)
	}
	id := p.publish(n+15, faulty)
	p.processed(p.publish(n+16, g.Wafer(17)))
	if got := p.last("dc-alarms", "dc-alarm.tool015.chamber1."+id); !strings.Contains(got, `"event":"opened"`) {
		p.t.Errorf("the alarm is %s", got)
	}
}

// TestCompletionInTheDocumentation: a program of any language may go by the example.
func TestCompletionInTheDocumentation(t *testing.T) {
	t.Parallel()
	_, section, ok := strings.Cut(readFile(t, "docs/defender/data.md"), "## Completion messages")
	_, example, ok2 := strings.Cut(section, "```json\n")
	example, _, ok3 := strings.Cut(example, "```")
	if !ok || !ok2 || !ok3 {
		t.Fatal("docs/defender/data.md has no example of a completion message")
	}
	c, err := defender.ParseCompletion([]byte(example))
	if err != nil {
		t.Fatal(err)
	}
	for field := range strings.FieldsSeq("schema kind tool chamber context tchart start end recipe product lot wafer") {
		if !strings.Contains(section, "`"+field+"`") {
			t.Errorf("the table doesn't name the field %s", field)
		}
	}
	if want := (defender.Chamber{Tool: "tool015", Name: "chamber1"}); c.Ref().Chamber != want {
		t.Errorf("the example is of %s", c.Ref().Chamber)
	}
}
