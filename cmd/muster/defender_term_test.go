package main

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/muster-dev/muster/defender"
	"github.com/muster-dev/muster/defender/sqlite"
	"github.com/muster-dev/muster/defender/trace"
	"github.com/muster-dev/muster/partition"
	"github.com/muster-dev/muster/partition/servertest/natstest"
	"github.com/muster-dev/muster/tchart"
)

// defending is a defender process.
type defending struct {
	*process
	http string
}

func beginDefender(t *testing.T, args ...string) *defending {
	t.Helper()
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	p := &process{cmd: exec.Command(exe, append([]string{"rig", "defender", "--child", "--http", "127.0.0.1:0"}, args...)...)}
	p.cmd.Env = append(os.Environ(), asMuster+"=1")
	p.cmd.Stderr = &p.out
	stdin, err := p.cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	stdout, err := p.cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := p.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = stdin.Close(); _ = p.cmd.Process.Kill(); _, _ = p.cmd.Process.Wait() })
	line, err := bufio.NewReader(stdout).ReadBytes('\n')
	var ready struct{ HTTP string }
	if err := errors.Join(err, json.Unmarshal(line, &ready)); err != nil {
		t.Fatalf("the defender doesn't say where it is: %v; %s", err, p.out.String())
	}
	return &defending{p, ready.HTTP}
}

// slots asks a defender which slots and chambers it has.
func (d *defending) slots(t *testing.T) defender.Assignments {
	t.Helper()
	var a defender.Assignments
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://"+d.http+"/api/v1/assignments", nil)
	if err != nil {
		t.Fatal(err)
	}
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		return a
	}
	defer func() { _ = res.Body.Close() }()
	text, err := io.ReadAll(res.Body)
	if err != nil || json.Unmarshal(text, &a) != nil {
		return defender.Assignments{}
	}
	return a
}

// TestADefenderThatIsTerminatedInTheMiddleOfLongWorkHandsOver has two defenders, of
// which one is in the middle of messages that take ten minutes. Told to end, it ends
// in order, within what it was allowed, and the other does what it had begun.
func TestADefenderThatIsTerminatedInTheMiddleOfLongWorkHandsOver(t *testing.T) {
	t.Parallel()
	const slots = 8
	dir := t.TempDir()
	srv := natstest.Start(t)
	nc := natstest.Connect(t, srv.URL())
	if err := defender.Provision(t.Context(), nc, defender.Partition(slots)); err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(dir, "fdc.db")
	store, err := sqlite.Open(t.Context(), sqlite.Config{Path: path})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = store.Close() })
	var chambers []defender.ChamberInfo
	for i := range 16 {
		chambers = append(chambers, defender.ChamberInfo{Chamber: defender.Chamber{Tool: fmt.Sprintf("tool%03d", i), Name: "chamber1"}, Weight: 1})
	}
	if err := store.RegisterChambers(t.Context(), chambers); err != nil {
		t.Fatal(err)
	}
	if err := partition.Open(nc, defender.Group).Expect(t.Context(), 2); err != nil {
		t.Fatal(err)
	}
	common := []string{"--nats", srv.URL(), "--store", path, "--slots", fmt.Sprint(slots), "--leave-timeout", "4s"}
	slow := beginDefender(t, append(common, "--pod", "slow", "--work", "10m")...)
	quick := beginDefender(t, append(common, "--pod", "quick")...)
	waitFor(t, 2*time.Minute, "both have their share", func() bool {
		return len(slow.slots(t).Slots) == slots/2 && len(quick.slots(t).Slots) == slots/2
	}, &slow.out)
	held := slow.slots(t).Chambers
	if len(held) == 0 {
		t.Fatal("the slow defender has no chamber")
	}
	js := natstest.JetStream(t, nc)
	end := time.Now().UTC()
	for _, c := range held {
		ref := defender.ContextRef{Chamber: c, ID: "long", Recipe: "etch", Start: end.Add(-time.Minute), End: end}
		blob, err := tchart.Encode(&new(trace.Generator).Wafer(0).Trace)
		if err != nil {
			t.Fatal(err)
		}
		if err := store.PutTChart(t.Context(), ref.TChart(), blob, end.Add(time.Hour)); err != nil {
			t.Fatal(err)
		}
		data, err := defender.MarshalCompletion(defender.NewCompletion(ref))
		if err != nil {
			t.Fatal(err)
		}
		if _, err := js.PublishMsg(t.Context(), &nats.Msg{Subject: defender.CompletionSubject(c), Data: data}); err != nil {
			t.Fatal(err)
		}
	}
	waitFor(t, time.Minute, "the slow defender works", func() bool { return slow.metric(t, "defender_messages_received_total") > 0 }, &slow.out)
	if err := slow.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	if err := slow.cmd.Wait(); err != nil {
		t.Errorf("the slow defender ended with %v; it said %s", err, slow.out.String())
	}
	waitFor(t, time.Minute, "the other has all slots", func() bool { return len(quick.slots(t).Slots) == slots }, &quick.out)
	waitFor(t, time.Minute, "what was begun is done", func() bool {
		for _, c := range held {
			if _, err := store.UChart(t.Context(), c, "long"); err != nil {
				return false
			}
		}
		return true
	}, &quick.out)
	if letters, err := partition.Open(nc, defender.Group).DeadLetters(t.Context(), 0, 10); err != nil || len(letters) != 0 {
		t.Errorf("dead letters are %+v, %v", letters, err)
	}
	if err := quick.stop(); err != nil {
		t.Errorf("the last defender ended with %v; it said %s", err, quick.out.String())
	}
}

// TestACollectorGoesWithDefendersThatRetry: whether failing messages are queued for retry is the
// defenders' business, and a collector need not know.
func TestACollectorGoesWithDefendersThatRetry(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	srv := natstest.Start(t)
	common := []string{"--nats", srv.URL(), "--store", filepath.Join(dir, "fdc.db"), "--slots", "8"}
	d := beginDefender(t, append(common, "--pod", "retries", "--retry-attempts", "5")...)
	waitFor(t, 2*time.Minute, "the defender has its slots", func() bool { return len(d.slots(t).Slots) == 8 }, &d.out)
	if code, _, stderr := muster(append([]string{"collect", "--chambers", "8", "--rate", "100", "--count", "16"}, common...)...); code != 0 {
		t.Fatalf("the collector exits with %d: %s", code, stderr)
	}
	waitFor(t, time.Minute, "what was collected is processed", func() bool { return d.metric(t, "defender_messages_received_total") == 16 }, &d.out)
	if err := d.stop(); err != nil {
		t.Errorf("the defender ended with %v; it said %s", err, d.out.String())
	}
}

// metric reads one metric of a defender.
func (d *defending) metric(t *testing.T, name string) float64 {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://"+d.http+"/metrics", nil)
	if err != nil {
		t.Fatal(err)
	}
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		return 0
	}
	defer func() { _ = res.Body.Close() }()
	lines := bufio.NewScanner(res.Body)
	for lines.Scan() {
		var v float64
		if _, err := fmt.Sscanf(lines.Text(), name+" %g", &v); err == nil {
			return v
		}
	}
	return 0
}
