package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/muster-dev/muster/internal/command"
	"github.com/muster-dev/muster/internal/output"
	"github.com/muster-dev/muster/nodes"
	"github.com/muster-dev/muster/nodes/explain"
	"github.com/muster-dev/muster/nodes/local"
	"github.com/muster-dev/muster/nodes/sim"
)

// logged is a directory in which a reconciler has kept its record and event log while it scaled a simulated cluster.
type logged struct {
	dir       string
	simulator *sim.Simulator
	tick      func() nodes.Report
}

// newJournaled begins a cluster of two workers whose simulated time is about now.
func newJournaled(t *testing.T) *logged {
	t.Helper()
	j := &logged{dir: t.TempDir()}
	p := nodes.DefaultPolicy()
	p.IdleDownFor, p.CooldownDown = 2*time.Minute, 2*time.Minute
	j.simulator = sim.New(sim.Options{Policy: p, Workers: []string{"a", "b"}, Start: time.Now().Add(-time.Hour).Truncate(time.Second)})
	c := j.simulator.Client("A", nil)
	store, err := local.Open(t.Context(), j.dir, local.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = store.Close() })
	n := 0
	r, err := nodes.New(nodes.Config{Policy: p, Signals: c, Cloud: c, Cluster: c, Store: store, EventLog: store, Clock: j.simulator.Clock(),
		NewID: func() string { n++; return fmt.Sprintf("T%04d", n) }})
	if err != nil {
		t.Fatal(err)
	}
	j.tick = func() nodes.Report {
		j.simulator.Advance(time.Minute)
		report, _ := r.Tick(context.Background())
		return report
	}
	return j
}

// scaled is a cluster that has been scaled up and is about to be scaled down.
func scaled(t *testing.T) *logged {
	j := newJournaled(t)
	j.simulator.SetLoad(0.9)
	for range 9 {
		j.tick()
	}
	j.simulator.SetLoad(0.1)
	for range 2 {
		j.tick()
	}
	return j
}

func nodesJSON[T any](t *testing.T, args ...string) T {
	t.Helper()
	code, out, errs := muster(append(append([]string{"nodes"}, args...), "--output", "json")...)
	if code != command.ExitOK {
		t.Fatalf("%v: exit code %d: %s", args, code, errs)
	}
	var v T
	if err := json.Unmarshal([]byte(out), &v); err != nil {
		t.Fatalf("%v: %v in %s", args, err, out)
	}
	return v
}

func TestNodesStatusShowsTheActionInProgress(t *testing.T) {
	t.Parallel()
	j := newJournaled(t)
	j.simulator.SetLoad(0.9)
	for range 4 {
		j.tick()
	}
	s := nodesJSON[explain.Status](t, "status", "--dir", j.dir)
	if s.Action == nil || s.Action.Kind != "scale-up" || s.Action.Phase != "verifying" || s.Action.Age < 3000 {
		t.Errorf("the action is %+v", s.Action)
	}
	code, out, _ := muster("nodes", "status", "--dir", j.dir)
	for _, want := range []string{"scale-up", "verifying for", "1 of 1 launched", "lease     free", "ZONE", "t3.large", "Workers, seen"} {
		if code != command.ExitOK || !strings.Contains(out, want) {
			t.Errorf("exit code %d, it does not say %q:\n%s", code, want, out)
		}
	}
	if strings.Contains(out, "\x1b") {
		t.Error("colours although it is no terminal")
	}
}

func TestNodesExplainNamesEveryGateAndWhatComesNext(t *testing.T) {
	t.Parallel()
	j := scaled(t)
	code, out, errs := muster("nodes", "explain", "--dir", j.dir)
	if code != command.ExitOK {
		t.Fatalf("exit code %d: %s", code, errs)
	}
	for _, want := range []string{"NOOP because of", "cooldown", "any action", "scale up to MIN_WORKERS", "no-interruption", "What next", "If everything stays as it was seen", "What it did"} {
		if !strings.Contains(out, want) {
			t.Errorf("it does not say %q:\n%s", want, out)
		}
	}
	last := nodesJSON[explain.Tick](t, "explain", "last", "--dir", j.dir)
	if last.Decision == nil || len(last.Decision.Gates) < 20 || last.Outlook == nil {
		t.Errorf("as JSON %+v", last)
	}
	// A tick that went on with an action says what it saw, and that it decided nothing new.
	_, waiting, _ := muster("nodes", "events", "--dir", j.dir, "--kind", "scaleUp.waiting", "--limit", "1", "--output", "json")
	var e nodes.Event
	if err := json.Unmarshal([]byte(waiting), &e); err != nil {
		t.Fatalf("%v in %s", err, waiting)
	}
	code, out, _ = muster("nodes", "explain", e.Tick, "--dir", j.dir)
	if code != command.ExitOK || !strings.Contains(out, "NOOP because of IN_PROGRESS") || !strings.Contains(out, "Gates") || !strings.Contains(out, "The action goes on.") {
		t.Errorf("exit code %d:\n%s", code, out)
	}
	// What the tick did about an interruption belongs to it.
	eventLog, err := local.Open(t.Context(), j.dir, local.Options{})
	if err != nil {
		t.Fatal(err)
	}
	about := nodes.Event{At: e.At.Add(-time.Minute), Tick: e.Tick + "/i-007", Kind: "interruption.closed", ActionID: "other", Instance: "i-007"}
	if err := eventLog.Append(t.Context(), about); err != nil {
		t.Fatal(err)
	}
	_ = eventLog.Close()
	_, out, _ = muster("nodes", "explain", e.Tick, "--dir", j.dir)
	if !strings.Contains(out, "interruption.closed") || !strings.Contains(out, "Tick "+e.Tick+" at") || strings.Contains(out, "went on with other") {
		t.Errorf("with an interruption:\n%s", out)
	}
	if code, _, errs := muster("nodes", "explain", "NEVER", "--dir", j.dir); code != command.ExitFailed || !strings.Contains(errs, "muster nodes events") {
		t.Errorf("an unknown tick: exit code %d, %s", code, errs)
	}
}

func TestNodesEventsAreFiltered(t *testing.T) {
	t.Parallel()
	j := scaled(t)
	count := func(args ...string) int {
		code, out, errs := muster(append([]string{"nodes", "events", "--dir", j.dir, "--output", "json"}, args...)...)
		if code != command.ExitOK {
			t.Fatalf("%v: exit code %d: %s", args, code, errs)
		}
		return strings.Count(out, "\n")
	}
	all := count("--since", "1d")
	var action string
	_, out, _ := muster("nodes", "events", "--dir", j.dir, "--output", "json", "--kind", "scaleUp.begun", "--since", "2h")
	var e nodes.Event
	if err := json.Unmarshal([]byte(out), &e); err != nil {
		t.Fatalf("%v in %s", err, out)
	}
	action = e.ActionID
	for _, c := range []struct {
		args      []string
		low, high int
	}{
		{[]string{"--limit", "0", "--since", "1d"}, all, all},
		{[]string{"--kind", "decision", "--since", "1d"}, 5, all - 4},
		{[]string{"--action", action, "--since", "1d"}, 3, all - 5},
		{[]string{"--tick", "T0001"}, 1, 1},
		{[]string{"--limit", "3"}, 3, 3},
		{[]string{"--since", "1s"}, 0, 0},
		{[]string{"--since", "1d", "--until", "23h"}, 0, 0},
	} {
		if n := count(c.args...); n < c.low || n > c.high {
			t.Errorf("%v: %d events of %d, want %d to %d", c.args, n, all, c.low, c.high)
		}
	}
	if strings.Contains(out, "observation") {
		t.Error("the data of a decision although --data was not given")
	}
}

func TestNodesEventsFollowsWhatIsAdded(t *testing.T) {
	t.Parallel()
	j := newJournaled(t)
	j.simulator.Advance(58 * time.Minute) // up to about now: a follower looks at what is new
	j.tick()
	p := begin(t, "nodes", "events", "--follow", "--dir", j.dir, "--output", "json")
	waitFor(t, 30*time.Second, "the first event is there", func() bool { return strings.Contains(p.out.String(), `"tick":"T0001"`) }, &p.out)
	j.tick()
	waitFor(t, 30*time.Second, "the added event is there", func() bool { return strings.Contains(p.out.String(), `"tick":"T0002"`) }, &p.out)
	if err := p.stop(); err != nil {
		t.Errorf("interrupted it ended with %v: %s", err, p.out.String())
	}
	if n := strings.Count(p.out.String(), `"tick":"T0001"`); n != 1 {
		t.Errorf("the first event is there %d times", n)
	}
}

func TestNodesReplayFindsNoDifferenceWithTheSameSettingsAndSomeWithOthers(t *testing.T) {
	t.Parallel()
	j := scaled(t)
	code, out, errs := muster("nodes", "replay", "--dir", j.dir)
	if code != command.ExitOK || !strings.Contains(out, "0 different") {
		t.Errorf("exit code %d: %s%s", code, out, errs)
	}
	r := nodesJSON[explain.Replayed](t, "replay", "--dir", j.dir, "--cpu-up", "0.95")
	if len(r.Differences) == 0 || r.Same+len(r.Differences) != r.Decisions {
		t.Errorf("with another CPU_UP %+v", r)
	}
	code, _, errs = muster("nodes", "replay", "--dir", j.dir, "--cpu-down", "0.99")
	if code != command.ExitUsage || !strings.Contains(errs, "CPU_UP") {
		t.Errorf("a contradiction with the recorded settings: exit code %d, %s", code, errs)
	}
}

func TestNodesReplayExitsWith1IfARecordedDecisionComesOutDifferently(t *testing.T) {
	t.Parallel()
	j := newJournaled(t)
	report := j.tick()
	var snap nodes.Snapshot
	for _, e := range report.Events {
		if e.Kind == "decision" {
			if err := json.Unmarshal(e.Data, &snap); err != nil {
				t.Fatal(err)
			}
		}
	}
	snap.Decision.Action, snap.Decision.Nodes = nodes.ScaleUp, 4
	data, err := json.Marshal(snap)
	if err != nil {
		t.Fatal(err)
	}
	eventLog, err := local.Open(t.Context(), j.dir, local.Options{})
	if err != nil {
		t.Fatal(err)
	}
	if err := eventLog.Append(t.Context(), nodes.Event{At: snap.Now, Tick: "FORGED", Kind: "decision", Data: data}); err != nil {
		t.Fatal(err)
	}
	_ = eventLog.Close()
	code, out, errs := muster("nodes", "replay", "--dir", j.dir)
	if code != command.ExitFailed || !strings.Contains(out, "FORGED") || !strings.Contains(out, "SCALE_UP +4") || !strings.Contains(errs, "come out differently") {
		t.Errorf("exit code %d: %s%s", code, out, errs)
	}
}

func TestNodesSettingsGoByFlagThenEnvironmentThenFile(t *testing.T) {
	file := filepath.Join(t.TempDir(), "muster.yaml")
	write(t, file, "cpu-up: 0.61\nMAX_WORKERS: 21\nmax_batch_up: 3\ninstance_types: [m5.large, m5.xlarge]\nSPOT: false\n")
	t.Setenv("MAX_WORKERS", "22")
	t.Setenv("MAX_BATCH_UP", "4")
	_, out, _ := muster("nodes", "settings", "--config", file, "--max-batch-up", "6", "--output", "json")
	var list []struct{ Name, Value, Source string }
	if err := json.Unmarshal([]byte(out), &list); err != nil {
		t.Fatalf("%v in %s", err, out)
	}
	got := map[string][2]string{}
	for _, s := range list {
		got[s.Name] = [2]string{s.Value, s.Source}
	}
	for name, want := range map[string][2]string{
		"CPU_UP": {"0.61", file}, "MAX_WORKERS": {"22", "environment"}, "MAX_BATCH_UP": {"6", "flag"}, "CPU_DOWN": {"0.30", "default"},
		"INSTANCE_TYPES": {"m5.large,m5.xlarge", file}, "SPOT": {"false", file}, "TICK_SEC": {"60", "default"},
	} {
		if got[name] != want {
			t.Errorf("%s is %v, want %v", name, got[name], want)
		}
	}
}

func TestWrongNodesSettingsAreAllReportedAtOnce(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	file := func(name, text string) string {
		path := filepath.Join(dir, name)
		write(t, path, text)
		return path
	}
	for _, c := range []struct {
		name string
		args []string
		want []string
	}{
		{"values that can't be read and contradict", []string{"status", "--cpu-up", "70%", "--max-workers", "x", "--min-workers", "-1", "--sizing", "guess"},
			[]string{"4 wrong settings", "CPU_UP", "MAX_WORKERS", "MIN_WORKERS", "SIZING"}},
		{"unknown names in a file", []string{"status", "--config", file("a.yaml", "CPU_UPP: 0.5\nmax-worker: 4\nK3S_SECRET: hunter2\nCPU_DOWN: {a: 1}\n")},
			[]string{"4 wrong settings", "did you mean CPU_UP?", "did you mean MAX_WORKERS?", "muster nodes settings", "one value"}},
		{"a name that is there twice", []string{"status", "--config", file("b.yaml", "cpu-up: 0.5\nCPU_UP: 0.6\n")}, []string{"twice"}},
		{"a file that is no YAML", []string{"status", "--config", file("c.yaml", "CPU_UP: [\n")}, []string{"c.yaml", "one setting a line"}},
		{"a file that is not there", []string{"status", "--config", filepath.Join(dir, "nothing.yaml")}, []string{"nothing.yaml"}},
		{"an output that is none", []string{"status", "--output", "xml"}, []string{`"xml"`, "table or json"}},
		{"a time that is none", []string{"events", "--since", "yesterday"}, []string{"--since", "30m, 2h or 3d"}},
		{"a limit below nothing", []string{"events", "--limit", "-1"}, []string{"--limit is -1"}},
		{"to follow up to an end", []string{"events", "--follow", "--until", "1h"}, []string{"--follow", "--until"}},
		{"simulation's flags without it", []string{"run", "--speed", "3"}, []string{"--speed", "--simulate"}},
		{"a speed that is none", []string{"run", "--simulate", "--speed", "0"}, []string{"--speed is 0"}},
		{"an argument too many", []string{"explain", "a", "b"}, []string{"--help"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			code, _, errs := muster(append([]string{"nodes"}, c.args...)...)
			if code != command.ExitUsage {
				t.Errorf("exit code %d, want %d; it said %q", code, command.ExitUsage, errs)
			}
			for _, w := range c.want {
				if !strings.Contains(errs, w) {
					t.Errorf("the message does not say %q: %s", w, errs)
				}
			}
			if strings.Contains(errs, "hunter2") {
				t.Errorf("it shows what may be a secret: %s", errs)
			}
		})
	}
}

func TestCommandsThatOnlyLookMakeNoStore(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "nothing")
	for _, args := range [][]string{{"status"}, {"explain"}, {"events"}, {"replay"}, {"pause", "--reason", "x"}, {"resume"}} {
		code, _, errs := muster(append([]string{"nodes", "--dir", dir}[:1], append(args, "--dir", dir)...)...)
		if code != command.ExitFailed || !strings.Contains(errs, dir) || !strings.Contains(errs, "muster nodes run") {
			t.Errorf("%v: exit code %d, %s", args, code, errs)
		}
	}
	if _, err := os.Stat(dir); err == nil {
		t.Error("the directory was made")
	}
}

func TestSecretsAreNotPrinted(t *testing.T) {
	t.Parallel()
	j := newJournaled(t)
	report := j.tick()
	eventLog, err := local.Open(t.Context(), j.dir, local.Options{})
	if err != nil {
		t.Fatal(err)
	}
	for i, m := range []string{`boot said "token: hunter2"`, "GET http://u:hunter2@prom:9090 failed", "\x1b[2Jpassword=hunter2\nnext line"} {
		e := nodes.Event{At: time.Now(), Tick: report.Tick, Seq: 100 + i, Kind: "error", Message: m}
		if err := eventLog.Append(t.Context(), e); err != nil {
			t.Fatal(err)
		}
	}
	_ = eventLog.Close()
	for _, args := range [][]string{{"events"}, {"events", "--output", "json"}, {"explain", report.Tick}, {"explain", "--output", "json", report.Tick}} {
		code, out, errs := muster(append(append([]string{"nodes"}, args...), "--dir", j.dir)...)
		if code != command.ExitOK || strings.Contains(out+errs, "hunter2") || strings.Contains(out, "\x1b") || !strings.Contains(out, "[redacted]") {
			t.Errorf("%v: exit code %d: %q %s", args, code, out, errs)
		}
	}
}

func write(t *testing.T, path, text string) {
	t.Helper()
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

// process is a command that runs as a process of its own.
type process struct {
	cmd *exec.Cmd
	out output.Buffer
}

func begin(t *testing.T, args ...string) *process {
	t.Helper()
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	p := &process{cmd: exec.Command(exe, args...)}
	p.cmd.Env = append(os.Environ(), asMuster+"=1")
	p.cmd.Stdout, p.cmd.Stderr = &p.out, &p.out
	if err := p.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = p.cmd.Process.Kill(); _, _ = p.cmd.Process.Wait() })
	return p
}

// stop interrupts the process and waits for its end.
func (p *process) stop() error {
	if err := p.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		return err
	}
	return p.cmd.Wait()
}

// TestASimulatedClusterIsScaledAndEveryCommandFindsIt runs the daemon as a new user would and looks at it with every command, each a
// process of its own that knows only what the simulation wrote down.
func TestASimulatedClusterIsScaledAndEveryCommandFindsIt(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "simulated")
	daemon := begin(t, "nodes", "run", "--simulate", "--speed", "8", "--http", "127.0.0.1:0", "--log-format", "json", "--dir", dir)
	happened := func(kind string) bool {
		code, out, _ := muster("nodes", "events", "--dir", dir, "--kind", kind, "--output", "json", "--limit", "1", "--cluster", "simulated")
		return code == command.ExitOK && strings.Contains(out, kind)
	}
	waitFor(t, 90*time.Second, "a scale-up is complete", func() bool { return happened("scaleUp.completed") }, &daemon.out)

	env := shellEnv(t, filepath.Join(dir, "env"))
	// A node that has just joined has no series of its CPU yet, and another may join at any
	// time: what counts is one report without a failure.
	var report string
	waitFor(t, 90*time.Second, "every node has metrics", func() bool {
		var err error
		report, err = asProcess(env, "nodes", "doctor")
		return err == nil
	}, &daemon.out)
	says := func(command, out string, want ...string) {
		t.Helper()
		for _, w := range want {
			if !strings.Contains(out, w) {
				t.Errorf("%s does not say %q:\n%s", command, w, out)
			}
		}
		if strings.Contains(out, "K10simulated") {
			t.Errorf("%s shows the token", command)
		}
	}
	says("doctor", report, "ec2:RunInstances", "kubernetes: view", "prometheus: reading cpu", "store: ", "clock: ", ", 0 failed")
	for _, c := range []struct {
		args []string
		want []string
	}{
		{[]string{"tick", "--dry-run"}, []string{"Dry run", "any action", "What next"}},
		{[]string{"status", "--live"}, []string{"cluster#simulated", "Workers, seen now", "sim-1a", "t3.large"}},
		{[]string{"explain"}, []string{"Gates", "What it did"}},
		{[]string{"replay"}, []string{", 0 different"}},
		{[]string{"settings"}, []string{"PROMETHEUS_URL", "environment", "simulated"}},
	} {
		out, err := asProcess(env, append([]string{"nodes"}, c.args...)...)
		if err != nil {
			t.Errorf("%v: %v: %s", c.args, err, out)
		}
		says(c.args[0], out, c.want...)
	}
	theSameTime(t, dir, env)
	if _, err := asProcess(append(env, "LAUNCH_TEMPLATE_VERSION=", "KUBE_TIMEOUT_SEC=0"), "nodes", "tick"); err == nil || !strings.Contains(err.Error(), "status 2") {
		t.Errorf("wrong settings: %v", err)
	}
	out, err := asProcess(append(env, "PROMETHEUS_URL=http://127.0.0.1:1"), "nodes", "doctor")
	if err == nil || !strings.Contains(err.Error(), "status 1") || !strings.Contains(out, "What to do") {
		t.Errorf("without Prometheus doctor says %v: %s", err, out)
	}

	var running struct{ HTTP string }
	for line := range strings.Lines(daemon.out.String()) {
		if strings.Contains(line, `"msg":"running"`) {
			if err := json.Unmarshal([]byte(line), &running); err != nil {
				t.Fatal(err)
			}
		}
	}
	for path, want := range map[string]string{"/healthz": "ok", "/readyz": "ok", "/metrics": `muster_nodes_launches_total{market="spot",result="launched"`, "/": "/metrics", "/api/state": "scaleUp.completed"} {
		if body := get(t, "http://"+running.HTTP+path); !strings.Contains(body, want) {
			t.Errorf("%s does not say %q: %s", path, want, body)
		}
	}
	if err := daemon.stop(); err != nil {
		t.Errorf("it ended with %v: %s", err, daemon.out.String())
	}
	if s := nodesJSON[explain.Status](t, "status", "--dir", dir, "--cluster", "simulated"); s.Lease.Owner != "" {
		t.Errorf("the lease is still held: %+v", s.Lease)
	}
}

// theSameTime has commands look at a simulation that runs faster: theirs is its time, or leases, windows and waiting times would be told
// by a clock that is minutes behind.
func theSameTime(t *testing.T, dir string, env []string) {
	t.Helper()
	last := nodesJSON[nodes.Event](t, "events", "--dir", dir, "--cluster", "simulated", "--limit", "1").At
	if last.Before(time.Now().Add(20 * time.Second)) {
		t.Fatalf("the simulation, whose last event is of %s, is not ahead of this machine's clock", last)
	}
	last = last.Add(-2 * time.Second) // the simulation's time goes by steps
	var dry struct {
		At          time.Time
		Observation nodes.Observation
	}
	waitFor(t, 90*time.Second, "a dry run reads the CPU of every node", func() bool {
		out, err := asProcess(env, "nodes", "tick", "--dry-run", "--output", "json")
		if err != nil || json.Unmarshal([]byte(out), &dry) != nil {
			t.Fatalf("%v: %s", err, out)
		}
		return dry.Observation.Readings.CPU.Known
	}, new(strings.Builder))
	if dry.At.Before(last) || dry.Observation.Readings.At.Before(last) || !dry.Observation.Readings.CPU.Known {
		t.Errorf("the dry run is of %s, its readings %+v of %s; the event log is at %s", dry.At, dry.Observation.Readings.CPU, dry.Observation.Readings.At, last)
	}
	out, err := asProcess(env, "nodes", "status", "--output", "json")
	var st explain.Status
	if err != nil || json.Unmarshal([]byte(out), &st) != nil || st.At.Before(last) {
		t.Errorf("%v: the status is of %s: %s", err, st.At, out)
	}
	if out, err := asProcess(append(env, "MUSTER_SIMULATED_CLOCK=soon"), "nodes", "status"); err == nil || !strings.Contains(err.Error(), "status 2") || !strings.Contains(out, "unset it") {
		t.Errorf("with a clock that is none: %v: %s", err, out)
	}
}

// shellEnv reads a file of exports.
func shellEnv(t *testing.T, name string) []string {
	t.Helper()
	data, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	env := append(os.Environ(), asMuster+"=1")
	for line := range strings.Lines(string(data)) {
		k, v, ok := strings.Cut(strings.TrimSpace(strings.TrimPrefix(line, "export ")), "=")
		if !ok {
			t.Fatalf("not an export: %q", line)
		}
		env = append(env, k+"="+strings.ReplaceAll(strings.Trim(v, "'"), `'\''`, "'"))
	}
	return env
}

func asProcess(env []string, args ...string) (string, error) {
	exe, err := os.Executable()
	if err != nil {
		return "", err
	}
	cmd := exec.Command(exe, args...)
	cmd.Env = env
	out, err := cmd.CombinedOutput()
	return string(out), err
}

func get(t *testing.T, url string) string {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url, nil)
	if err != nil {
		t.Fatal(err)
	}
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = res.Body.Close() }()
	body, err := io.ReadAll(res.Body)
	if err != nil {
		t.Fatal(err)
	}
	return string(body)
}

func TestASimulationTouchesNothingReal(t *testing.T) {
	for _, args := range [][]string{{"--kubeconfig", "/x"}, {"--prometheus-url", "http://x"}, {"--state-table", "s"}} {
		code, _, errs := muster(append([]string{"nodes", "run", "--simulate"}, args...)...)
		if code != command.ExitUsage || !strings.Contains(errs, "leave it out") {
			t.Errorf("%v: exit code %d, %s", args, code, errs)
		}
	}
	dir := newJournaled(t).dir
	if code, _, errs := muster("nodes", "run", "--simulate", "--dir", dir); code != command.ExitUsage || !strings.Contains(errs, "another run") {
		t.Errorf("over the store of something else: exit code %d, %s", code, errs)
	}
}
