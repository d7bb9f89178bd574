package main

import (
	"context"
	"encoding/json"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/muster-dev/muster/internal/command"
	"github.com/muster-dev/muster/partition"
	"github.com/muster-dev/muster/partition/event"
	"github.com/muster-dev/muster/partition/report"
	"github.com/muster-dev/muster/partition/servertest/natstest"
	"github.com/muster-dev/muster/partition/state"
)

// startWorkers runs a group of n workers, "jobs", and returns the URL of
// its server when all have slots.
func startWorkers(t *testing.T, n int) string {
	t.Helper()
	return startWorkersOn(t, natstest.Start(t), n, 1)
}

// startWorkersOn runs them on a server, with a number of streams.
func startWorkersOn(t *testing.T, srv *natstest.Server, n, shards int) string {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, n)
	for i := range n {
		nc := natstest.Connect(t, srv.URL())
		cfg := partition.Config{Name: "jobs", Stream: "jobs", Subject: "jobs.*.*", Slots: 32, Shards: shards, Rebalance: partition.Rebalance{ColdWindow: time.Minute, PlannedWindow: 200 * time.Millisecond, Expected: func() int { return n }, LeaveTimeout: 2 * time.Second},
			Identity: partition.Identity{Node: "node-" + string(rune('a'+i))}}
		w, err := partition.New(nc, cfg, partition.HandlerFunc(func(context.Context, partition.Message) error { return nil }))
		if err != nil {
			t.Fatal(err)
		}
		go func() { ended <- w.Run(ctx) }()
	}
	t.Cleanup(func() { // before the connections are closed
		cancel()
		for range n {
			if err := <-ended; err != nil {
				t.Error(err)
			}
		}
	})
	await(t, "all have slots", func() bool {
		code, out, _ := muster("partitions", "status", "--nats", srv.URL(), "--group", "jobs", "--output", "json")
		var r report.Group
		return code == command.ExitOK && json.Unmarshal([]byte(out), &r) == nil && r.State == state.Stable && len(r.Workers) == n &&
			!slices.ContainsFunc(r.Workers, func(w report.Worker) bool { return w.Slots == 0 || w.State != state.Stable })
	})
	return srv.URL()
}

func await(t *testing.T, what string, ok func() bool) {
	t.Helper()
	for end := time.Now().Add(20 * time.Second); time.Now().Before(end); time.Sleep(20 * time.Millisecond) {
		if ok() {
			return
		}
	}
	t.Fatalf("not in time: %s", what)
}

func TestPartitionsCommandsSteerAGroup(t *testing.T) {
	t.Parallel()
	url := startWorkers(t, 3)
	do := func(args ...string) string {
		t.Helper()
		code, out, errs := muster(append([]string{"partitions"}, append(args, "--nats", url, "--group", "jobs")...)...)
		if code != command.ExitOK {
			t.Fatalf("%v: exit code %d: %s%s", args, code, out, errs)
		}
		return out
	}
	holds := func(text string, wants ...string) {
		t.Helper()
		for _, want := range wants {
			if !strings.Contains(text, want) {
				t.Errorf("it does not say %q:\n%s", want, text)
			}
		}
	}
	holds(do("status"), "Group jobs is STABLE, led by jobs-", "32 slots, generation 1", "node-a", "node-c", "leads", "no message waits")
	holds(do("status", "--key", "a:b"), "a:b", "jobs-")

	holds(do("plan"), "The leader would change nothing.")
	holds(do("plan", "--add", "1"), "scale-up", "jobs-3", "balance", "had more than its share")
	holds(do("plan", "--without", "jobs-1"), "crash", "its owner is gone")

	pinned := do("override", "7", "jobs-2")
	holds(pinned, "jobs-2")
	await(t, "the override is kept", func() bool { return strings.Contains(do("override", "--list"), "yes") })
	holds(do("plan", "--drain", "jobs-2", "--limit", "0"), "scale-down", `worker "jobs-2" is draining`)

	holds(do("drain", "jobs-2", "--for", "10m"), "jobs-2 has no slots, and takes none until")
	await(t, "the drain is told", func() bool {
		out := do("status")
		return strings.Contains(out, "DRAIN") && strings.Contains(out, "no: the worker is draining")
	})
	holds(do("drain", "--node", "node-a", "--for", "10m", "--wait", "0s"), "jobs-")
	holds(do("drain", "--node", "node-a", "--undo"), "takes slots again")
	holds(do("drain", "jobs-2", "--undo"), "takes slots again")
	await(t, "it has slots again, its pinned one too", func() bool { return strings.Contains(do("override", "--list"), "yes") })
	holds(do("override", "--remove", "7"), "No slot is overridden.")

	events := do("events")
	holds(events, "worker-joined", "planned", "worker-draining", "rebalanced")
	if strings.Contains(events, "slot-acquired") {
		t.Error("events of single slots are listed unasked")
	}
	holds(do("events", "--slot", "7"), "slot-acquired", "slot 7")
	if lines := strings.Count(do("events", "--kind", "planned", "--limit", "2"), "\n"); lines != 2 {
		t.Errorf("--limit 2 lists %d", lines)
	}
	for line := range strings.Lines(do("events", "--output", "json")) {
		var e event.Event
		if err := json.Unmarshal([]byte(line), &e); err != nil || e.Kind == "" {
			t.Fatalf("%q is no event: %v", line, err)
		}
	}
}

func TestPartitionsTellWhatIsNotThere(t *testing.T) {
	t.Parallel()
	url := startWorkers(t, 2)
	for _, c := range []struct {
		name string
		args []string
		code int
		want []string
	}{
		{"a group", []string{"status", "--group", "nobody"}, command.ExitFailed, []string{"nobody", "is there a group of this name"}},
		{"a worker to drain", []string{"drain", "jobs-7", "jobs-8", "--group", "jobs"}, command.ExitFailed, []string{"jobs-7", "jobs-8", "partitions status"}},
		{"a node", []string{"drain", "--node", "x", "--group", "jobs"}, command.ExitFailed, []string{`"x"`, "NODE"}},
		{"a worker to plan without", []string{"plan", "--without", "jobs-7", "--group", "jobs"}, command.ExitUsage, []string{"jobs-7", "jobs-0, jobs-1"}},
		{"a slot", []string{"override", "99", "jobs-0", "--group", "jobs"}, command.ExitUsage, []string{"slot 99", "0 to 31"}},
		{"an override", []string{"override", "--remove", "3", "--group", "jobs"}, command.ExitFailed, []string{"slot 3", "not overridden"}},
		{"a server", []string{"status", "--nats", "nats://127.0.0.1:1"}, command.ExitFailed, []string{"127.0.0.1:1", "--nats"}},
		{"events of a group", []string{"events", "--group", "nobody"}, command.ExitFailed, []string{"nobody-events"}},
	} {
		code, _, stderr := muster(append([]string{"partitions"}, append([]string{c.args[0], "--nats", url}, c.args[1:]...)...)...)
		if code != c.code {
			t.Errorf("%s: exit code %d, want %d: %s", c.name, code, c.code, stderr)
		}
		for _, w := range c.want {
			if !strings.Contains(stderr, w) {
				t.Errorf("%s: the message does not say %q: %s", c.name, w, stderr)
			}
		}
	}
	// The last worker keeps what it has, and drain says so.
	code, _, stderr := muster("partitions", "drain", "jobs-0", "jobs-1", "--group", "jobs", "--nats", url, "--wait", "1s")
	if code != command.ExitFailed || !strings.Contains(stderr, "no worker may be able to take them") {
		t.Errorf("draining everybody: exit code %d: %s", code, stderr)
	}
}
