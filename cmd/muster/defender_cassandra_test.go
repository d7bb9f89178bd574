package main

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/muster-dev/muster/defender"
	collector "github.com/muster-dev/muster/defender/collect"
	"github.com/muster-dev/muster/defender/connect"
	"github.com/muster-dev/muster/defender/trace"
	"github.com/muster-dev/muster/internal/component"
	"github.com/muster-dev/muster/internal/output"
	"github.com/muster-dev/muster/internal/realdata"
	"github.com/muster-dev/muster/partition"
	"github.com/muster-dev/muster/partition/servertest/natstest"
	"github.com/muster-dev/muster/tchart"
)

// TestDefendersOnCassandraStoreWhatThoseOnSQLiteDo lets two defender processes judge the recorded etch traces, on Cassandra and on SQLite,
// and kills one of them in the middle on Cassandra. What is stored in the end is the same to the bit, and nothing is missing.
func TestDefendersOnCassandraStoreWhatThoseOnSQLiteDo(t *testing.T) {
	wafers := recordedWafers(t, realdata.Path(t, "etch/lam9600_machine.csv"))
	server := component.Cassandra().Start(t)
	env := []string{"CASSANDRA_HOSTS=" + server.Addr, "CASSANDRA_KEYSPACE=fab", "CASSANDRA_TIMEOUT_SEC=60"}

	out, err := runMuster(t, env, "defender", "run", "--store", "cassandra")
	if err == nil || !strings.Contains(out, "keyspace fab") || !strings.Contains(out, "muster defender create-schema") {
		t.Errorf("without a schema: %v, %s", err, out)
	}
	for range 2 { // the second time there is nothing to do
		if out, err := runMuster(t, env, "defender", "create-schema", "--replicas", "1"); err != nil {
			t.Fatalf("%v: %s", err, out)
		}
	}
	start := time.Now().UTC().Truncate(time.Hour)
	want := runFab(t, &fab{store: filepath.Join(t.TempDir(), "fdc.db"), start: start}, wafers)
	got := runFab(t, &fab{store: connect.Cassandra, env: env, start: start, kill: true}, wafers)
	for i := range min(len(got.alarms), len(want.alarms)) {
		if !reflect.DeepEqual(got.alarms[i], want.alarms[i]) {
			t.Errorf("alarm %d: on Cassandra %+v, on SQLite %+v", i, got.alarms[i], want.alarms[i])
		}
	}
	if len(got.alarms) != len(want.alarms) || len(want.alarms) == 0 {
		t.Errorf("%d alarms on Cassandra, %d on SQLite", len(got.alarms), len(want.alarms))
	}
	for chamber, charts := range want.charts {
		have := got.charts[chamber]
		for i := range min(len(have), len(charts)) { // newest first
			if !reflect.DeepEqual(have[i], charts[i]) {
				t.Errorf("%s: on Cassandra %+v, %+v; on SQLite %+v, %+v; the same chart: %t", chamber, have[i].Context, have[i].Verdict, charts[i].Context, charts[i].Verdict,
					reflect.DeepEqual(have[i].Chart, charts[i].Chart))
			}
		}
		if len(have) != len(charts) {
			t.Errorf("%s: %d U-charts on Cassandra, %d on SQLite", chamber, len(have), len(charts))
		}
	}
	t.Logf("%d U-charts of %d chambers and %d alarms are the same", want.total, len(want.charts), len(want.alarms))
}

// recordedWafers returns the wafers by experiment, in the order of the file.
func recordedWafers(t *testing.T, path string) (series [][]*trace.Wafer) {
	t.Helper()
	f, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	r, err := trace.NewReader(f, path)
	if err != nil {
		t.Fatal(err)
	}
	at := map[string]int{}
	for w, err := range r.All() {
		if err != nil {
			t.Fatal(err)
		}
		i, known := at[w.Experiment]
		if !known {
			i = len(series)
			at[w.Experiment] = i
			series = append(series, nil)
		}
		series[i] = append(series[i], w)
	}
	return series
}

// fab is a broker, a store and two defender processes.
type fab struct {
	store string    // as --store has it
	env   []string  // that store needs
	start time.Time // of the first wafer
	kill  bool      // one defender in the middle

	url       string
	nc        *nats.Conn
	stream    jetstream.Stream
	opened    defender.Store
	collector *collector.Collector
	published int
}

// stored is what is in a store in the end.
type stored struct {
	charts map[defender.Chamber][]defender.UChart
	alarms []defender.Alarm
	total  int
}

const (
	fabSlots    = 64
	perSeries   = 4 // chambers that process each experiment
	fabPatience = 10 * time.Minute
)

func runFab(t *testing.T, f *fab, wafers [][]*trace.Wafer) stored {
	t.Helper()
	f.open(t)
	one, two := f.defender(t, "one"), f.defender(t, "two")
	f.until(t, "both defenders have slots", func() bool { return one.slots(t) > 0 && two.slots(t) > 0 && one.slots(t)+two.slots(t) == fabSlots })
	chambers := f.publish(t, wafers)
	if f.kill {
		f.until(t, "a quarter is processed", func() bool { return f.waiting(t) < f.published*3/4 })
		one.signal(t, syscall.SIGKILL)
		<-one.done
		left := f.waiting(t)
		if left == 0 {
			t.Error("nothing was left when one defender was killed: the kill met nothing")
		}
		t.Logf("%d of %d messages were left when one defender was killed", left, f.published)
		f.until(t, "the other has all slots", func() bool { return two.slots(t) == fabSlots })
	}
	f.until(t, "everything is processed", func() bool { return f.waiting(t) == 0 })
	chambers = append(chambers, f.requeue(t, wafers[0][0]))

	out := stored{charts: map[defender.Chamber][]defender.UChart{}}
	for _, c := range chambers {
		charts, err := f.opened.UCharts(t.Context(), c, 1<<20)
		if err != nil {
			t.Fatal(err)
		}
		out.charts[c] = charts
		out.total += len(charts)
	}
	var err error
	if out.alarms, err = f.opened.Alarms(t.Context(), defender.AlarmQuery{Limit: 1 << 20}); err != nil {
		t.Fatal(err)
	}
	if out.total != f.published {
		t.Errorf("%d U-charts on %s of %d contexts", out.total, f.store, f.published)
	}
	two.signal(t, syscall.SIGTERM)
	<-two.done
	if two.err != nil {
		t.Errorf("a defender on %s left with %v; see\n%s", f.store, two.err, two.logged())
	}
	return out
}

// open starts the broker and opens the store as a data collector has it.
func (f *fab) open(t *testing.T) {
	t.Helper()
	server := natstest.Start(t)
	f.url = server.URL()
	f.nc = natstest.Connect(t, f.url)
	if err := defender.Provision(t.Context(), f.nc, defender.Partition(fabSlots)); err != nil {
		t.Fatal(err)
	}
	if err := partition.Open(f.nc, defender.Group).Expect(t.Context(), 2); err != nil {
		t.Fatal(err)
	}
	js := natstest.JetStream(t, f.nc)
	var err error
	if f.stream, err = js.Stream(t.Context(), defender.Stream); err != nil {
		t.Fatal(err)
	}
	lookup := func(name string) (string, bool) {
		for _, kv := range f.env {
			if v, ok := strings.CutPrefix(kv, name+"="); ok {
				return v, true
			}
		}
		return "", false
	}
	if f.opened, err = connect.Open(t.Context(), f.store, lookup); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = f.opened.Close() })
	if f.collector, err = collector.New(f.opened, f.nc); err != nil {
		t.Fatal(err)
	}
}

// publish has several chambers process each experiment, and returns them. All T-charts are there before the first message, so that
// messages come faster than they can be processed.
func (f *fab) publish(t *testing.T, series [][]*trace.Wafer) (chambers []defender.Chamber) {
	t.Helper()
	var refs []defender.ContextRef
	for i, wafers := range series {
		for k := range perSeries {
			chambers = append(chambers, defender.Chamber{Tool: fmt.Sprintf("etch%02d", i), Name: fmt.Sprintf("chamber%d", k)})
			for n, w := range wafers {
				refs = append(refs, f.ref(chambers[len(chambers)-1], n, w))
				if err := f.collector.MakeDurable(t.Context(), refs[len(refs)-1], encoded(t, w)); err != nil {
					t.Fatal(err)
				}
			}
		}
	}
	for _, ref := range refs {
		if _, err := f.collector.Announce(t.Context(), ref, nil); err != nil {
			t.Fatal(err)
		}
		f.published++
	}
	return chambers
}

func (f *fab) ref(c defender.Chamber, n int, w *trace.Wafer) defender.ContextRef {
	begin := f.start.Add(time.Duration(n) * 5 * time.Minute)
	return defender.ContextRef{Chamber: c, ID: fmt.Sprintf("run%04d", n), Recipe: "experiment" + w.Experiment, Wafer: w.Trace.Wafer, Start: begin, End: begin.Add(2 * time.Minute)}
}

func encoded(t *testing.T, w *trace.Wafer) []byte {
	t.Helper()
	blob, err := tchart.Encode(&w.Trace)
	if err != nil {
		t.Fatal(err)
	}
	return blob
}

// requeue announces a wafer whose T-chart is missing, so that it becomes a dead letter, brings the T-chart and has it sent again by the
// command.
func (f *fab) requeue(t *testing.T, w *trace.Wafer) defender.Chamber {
	t.Helper()
	late := defender.Chamber{Tool: "late", Name: "chamber0"}
	ref := f.ref(late, 0, w)
	if _, err := f.collector.Announce(t.Context(), ref, nil); err != nil {
		t.Fatal(err)
	}
	f.until(t, "the message without a T-chart is a dead letter", func() bool {
		letters, err := partition.Open(f.nc, defender.Group).DeadLetters(t.Context(), 0, 10)
		for _, l := range letters {
			if l.Key != late.String() {
				t.Fatalf("on %s, a message of %s was dead-lettered: %s", f.store, l.Key, l.Err)
			}
		}
		return err == nil && len(letters) == 1 && f.waiting(t) == 0
	})
	if err := f.collector.MakeDurable(t.Context(), ref, encoded(t, w)); err != nil {
		t.Fatal(err)
	}
	f.published++
	if out, err := runMuster(t, f.env, "partitions", "dead-letters", "requeue", "--all", "--nats", f.url); err != nil || !strings.Contains(out, "requeued 1 to "+defender.CompletionSubject(late)) {
		t.Fatalf("%v: %s", err, out)
	}
	f.until(t, "the message that was sent again is processed", func() bool {
		_, err := f.opened.UChart(t.Context(), late, ref.ID)
		return err == nil && f.waiting(t) == 0
	})
	return late
}

// waiting returns how many messages are not done yet.
func (f *fab) waiting(t *testing.T) int {
	t.Helper()
	info, err := f.stream.Info(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return int(info.State.Msgs)
}

func (f *fab) until(t *testing.T, what string, ok func() bool) {
	t.Helper()
	for end := time.Now().Add(fabPatience); !ok(); time.Sleep(20 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("on %s, not within %v: %s", f.store, fabPatience, what)
		}
	}
}

// defenderProcess is a defender as a process of its own.
type defenderProcess struct {
	cmd  *exec.Cmd
	http string
	log  string
	done chan struct{} // closed when it has ended
	err  error         // valid after done
}

func (f *fab) defender(t *testing.T, pod string) *defenderProcess {
	t.Helper()
	p := &defenderProcess{log: filepath.Join(t.TempDir(), pod+".log"), done: make(chan struct{})}
	p.cmd = processOf(context.Background(), t, f.env, "rig", "defender", "--nats", f.url, "--store", f.store, "--slots", fmt.Sprint(fabSlots), "--pod", pod,
		"--work", "50ms", "--log-file", p.log, "--http", "127.0.0.1:0", "--verbose", "--child")
	stdin, err := p.cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	stdout, err := p.cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	var stderr output.Buffer
	p.cmd.Stderr = &stderr
	if err := p.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_, _ = p.cmd.Process.Kill(), stdin.Close()
		<-p.done
		if t.Failed() {
			t.Logf("defender %s on %s:\n%s", pod, f.store, p.logged())
		}
	})
	line, _ := bufio.NewReader(stdout).ReadBytes('\n')
	go func() {
		defer close(p.done)
		p.err = p.cmd.Wait()
	}()
	var ready struct{ HTTP string }
	if err := json.Unmarshal(line, &ready); err != nil {
		t.Fatalf("a defender on %s did not start: %s\n%s", f.store, stderr.String(), p.logged())
	}
	p.http = ready.HTTP
	return p
}

// slots returns how many slots it says that it has.
func (p *defenderProcess) slots(t *testing.T) int {
	t.Helper()
	r, err := http.Get("http://" + p.http + "/api/v1/status")
	if err != nil {
		t.Fatalf("%v; its log:\n%s", err, p.logged())
	}
	defer r.Body.Close()
	var s partition.Status
	if err := json.NewDecoder(r.Body).Decode(&s); err != nil {
		t.Fatal(err)
	}
	return len(s.Slots)
}

func (p *defenderProcess) signal(t *testing.T, s syscall.Signal) {
	t.Helper()
	if err := p.cmd.Process.Signal(s); err != nil {
		t.Fatal(err)
	}
}

func (p *defenderProcess) logged() string {
	b, _ := os.ReadFile(p.log)
	return string(b)
}

// processOf returns this binary as the command muster, with more in its environment.
func processOf(ctx context.Context, t *testing.T, env []string, args ...string) *exec.Cmd {
	t.Helper()
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(ctx, exe, args...)
	cmd.Env = slices.Concat(os.Environ(), []string{asMuster + "=1"}, env)
	return cmd
}

// runMuster runs the command to its end and returns all that it printed.
func runMuster(t *testing.T, env []string, args ...string) (string, error) {
	t.Helper()
	var out output.Buffer
	cmd := processOf(t.Context(), t, env, args...)
	cmd.Stdout, cmd.Stderr = &out, &out
	err := cmd.Run()
	return out.String(), err
}
