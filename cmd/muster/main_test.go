package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/spf13/cobra"

	"github.com/muster-dev/muster/e2e"
	"github.com/muster-dev/muster/internal/command"
	"github.com/muster-dev/muster/internal/output"
)

// asMuster lets the test binary be the command, for the processes that it
// starts of itself.
const asMuster = "MUSTER_TEST_AS_COMMAND"

func TestMain(m *testing.M) {
	if os.Getenv(asMuster) != "" {
		main()
		return
	}
	os.Exit(m.Run())
}

// completeRoot returns all commands, with those that cobra adds.
func completeRoot() *cobra.Command {
	root := newRoot()
	command.Complete(root, io.Discard)
	return root
}

func muster(args ...string) (code int, stdout, stderr string) {
	var out, errs bytes.Buffer
	code = command.Run(newRoot(), args, &out, &errs)
	return code, out.String(), errs.String()
}

func TestWrongUsageExitsWith2AndNamesTheFaultAndTheFix(t *testing.T) {
	t.Parallel()
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = taken.Close() })
	port := fmt.Sprint(taken.Addr().(*net.TCPAddr).Port)
	dir := t.TempDir()
	write := func(name, text string) string {
		d := filepath.Join(dir, name)
		if err := os.MkdirAll(d, 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(d, "traces.csv"), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return d
	}
	header := "set,wafer,name,fault,Time,Step Number,Pressure\n"
	noTime := write("no-time", "set,wafer,name,fault,Step Number,Pressure\ncalibration,1,l2901,,4,1200\n")
	broken := write("broken", header+"calibration,1,l2901,,1.0,4,1200\ncalibration,1,l2901,,soon,4,1200\ncalibration,1,l2901,,3.0,4\n")
	file := filepath.Join(broken, "traces.csv")
	for _, c := range []struct {
		name string
		args []string
		want []string
	}{
		{"a port in use", []string{"up", "--scenario", "scale-up", "--nats-port", port}, []string{port, "in use", "another port"}},
		{"an address in use", []string{"up", "--http", "127.0.0.1:" + port}, []string{port, "in use", "--http"}},
		{"a directory that is a file", []string{"up", "--scenario", "scale-up", "--dir", file}, []string{file, "not a directory", "--dir"}},
		{"a directory that can't be made", []string{"up", "--dir", "/proc/muster/x", "--http", ""}, []string{"/proc/muster", "--dir"}},
		{"a CSV without a column", []string{"up", "--scenario", "scale-up", "--data", noTime}, []string{`"Time"`, "traces.csv:1", "add it"}},
		{"a CSV with broken rows", []string{"up", "--scenario", "scale-up", "--data", broken}, []string{"traces.csv:3", "soon", "traces.csv:4"}},
		{"a directory without traces", []string{"up", "--scenario", "scale-up", "--data", filepath.Join(dir, "nothing")}, []string{"nothing", "--data"}},
		{"several wrong numbers", []string{"up", "--defenders", "0", "--chambers", "-1", "--slots", "9999999", "--rate", "-5", "--work", "-1s"},
			[]string{"--defenders is 0", "--chambers is -1", "--slots is 9999999", "--rate is -5", "--work is -1s"}},
		{"an unknown scenario", []string{"up", "--scenario", "nonsense"}, []string{`"nonsense"`, "scale-up"}},
		{"an unknown case", []string{"up", "--scenario", "scale-up", "--case", "nonsense"}, []string{`"nonsense"`, "joining-crash"}},
		{"a case of a scenario without any", []string{"up", "--scenario", "crash", "--case", "partial"}, []string{"no cases"}},
		{"power cuts of another scenario", []string{"up", "--scenario", "crash", "--power-cuts"}, []string{"--power-cuts", "chaos", "power-cut"}},
		{"power cuts that the auditor's copies don't survive", []string{"up", "--scenario", "chaos", "--power-cuts", "--sync", "1s"}, []string{"--power-cuts", "--sync 1s", "--sync always"}},
		{"file systems of no power cut", []string{"up", "--ext4-data", "journal"}, []string{"--ext4-data", "power-cut"}},
		{"file systems of another scenario", []string{"up", "--scenario", "crash", "--ext4-data", "journal"}, []string{"--ext4-data", "crash", "power-cut"}},
		{"an unknown kind of file system", []string{"up", "--scenario", "power-cut", "--ext4-data", "writeback"}, []string{"--ext4-data", "writeback", "ordered"}},
		{"a crowd without its scenario", []string{"up", "--defenders", "151"}, []string{"--defenders is 151", "--scenario crowd"}},
		{"power cuts of nothing", []string{"up", "--power-cuts"}, []string{"--power-cuts", "--scenario chaos"}},
		{"the power of one server of one", []string{"up", "--scenario", "power-cut", "--case", "one-server"}, []string{"--servers 3"}},
		{"a report that can't be written", []string{"up", "--scenario", "scale-up", "--report", filepath.Join(dir, "no", "r.json")}, []string{"--report", "r.json"}},
		{"a report without a scenario", []string{"up", "--report", "r.json"}, []string{"--scenario"}},
		{"an unknown flag", []string{"up", "--nonsense"}, []string{"--nonsense", "--help"}},
		{"an argument too many", []string{"up", "now"}, []string{`"now"`, "--help"}},
		{"an unknown command", []string{"nonsense"}, []string{`"nonsense"`}},
		{"too many streams", []string{"up", "--shards", "65"}, []string{"--shards is 65"}},
		{"streams that don't divide the slots", []string{"defender", "run", "--slots", "512", "--shards", "3"}, []string{"--shards is 3 for 512 --slots"}},
		{"streams to collect for that don't divide the slots", []string{"collect", "--slots", "9", "--shards", "2"}, []string{"--shards is 2 for 9 --slots"}},
		{"a mapping for one stream", []string{"partitions", "mapping", "--shards", "1"}, []string{"--shards is 1"}},
		{"a mapping of a subject without a key", []string{"partitions", "mapping", "--shards", "2", "--subject", "dc.>"}, []string{"--subject is"}},
		{"a defender with wrong numbers", []string{"defender", "run", "--slots", "0", "--cache-mib", "0"}, []string{"--slots is 0", "--cache-mib is 0"}},
		{"a drain of nobody, for no time", []string{"partitions", "drain", "--for", "0s", "--wait", "-1s"}, []string{"name workers", "--for is 0s", "--wait is -1s", "--help"}},
		{"an override that is none", []string{"partitions", "override", "-1", "x", "--output", "xml"}, []string{"-1"}},
		{"an override with all wrong", []string{"partitions", "override", "a.b", "x", "--output", "xml"}, []string{"--output", "a.b", `"x" is no worker`}},
		{"a plan with wrong settings", []string{"partitions", "plan", "--strategy", "x", "--limit", "-1", "--override", "y"}, []string{"--strategy", "--limit is -1", `"y"`}},
		{"events of no kind", []string{"partitions", "events", "--kind", "x", "--slot", "-1", "--follow", "--limit", "3"}, []string{"worker-gone", "--slot is -1", "--follow"}},
		{"a collector with wrong numbers", []string{"collect", "--rate", "0", "--chambers", "0"}, []string{"--rate is 0", "--chambers is 0"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			code, _, stderr := muster(c.args...)
			if code != command.ExitUsage {
				t.Errorf("exit code %d, want %d; it said %q", code, command.ExitUsage, stderr)
			}
			for _, w := range c.want {
				if !strings.Contains(stderr, w) {
					t.Errorf("the message does not say %q: %s", w, stderr)
				}
			}
		})
	}
}

func TestEveryCommandHasHelpWithAnExample(t *testing.T) {
	t.Parallel()
	for _, args := range [][]string{{"up"}, {"doctor"}, {"defender", "run"}, {"defender", "create-schema"}, {"defender", "reset"}, {"collect"}, {"broker", "run"}, {"partitions"}, {"partitions", "status"}, {"partitions", "plan"},
		{"partitions", "drain"}, {"partitions", "override"}, {"partitions", "events"}, {"nodes"}, {"nodes", "run"}, {"nodes", "tick"}, {"nodes", "status"},
		{"nodes", "explain"}, {"nodes", "events"}, {"nodes", "pause"}, {"nodes", "resume"}, {"nodes", "replay"}, {"nodes", "backtest"}, {"nodes", "doctor"}, {"nodes", "settings"}} {
		code, stdout, _ := muster(append(args, "--help")...)
		if code != command.ExitOK || !strings.Contains(stdout, "Examples:") {
			t.Errorf("%v --help: exit code %d, said %q", args, code, stdout)
		}
	}
}

// small is a stage on which a scenario takes a few seconds.
func small(args ...string) []string {
	return append([]string{"up", "--defenders", "6", "--chambers", "60", "--slots", "64", "--rate", "20", "--work", "50ms"}, args...)
}

func TestScenarioScaleUpHolds(t *testing.T) {
	t.Setenv(asMuster, "1")
	for _, c := range []struct {
		name string
		args []string
	}{
		{"goroutines", nil},
		{"processes", []string{"--processes"}},
		{"expected number unknown", []string{"--expect=false"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := hold(t, small(append([]string{"--scenario", "scale-up"}, c.args...)...)...)
			for _, name := range []string{"ids_unique", "chambers_covered", "moved_chambers", "min_chambers", "max_chambers", "published", "lost", "concurrent", "out_of_order",
				"duplicates", "handoffs_in_flight", "handoff_pause_ms", "last_joined_to_all_processing_ms", "plan_ms", "version_increments", "rebalances", "cache_hit_first_after_move"} {
				if _, ok := r.Measurements[name]; !ok {
					t.Errorf("the report lacks measurement %q", name)
				}
			}
			if r.Scenario != "scale-up" || len(r.Checks) == 0 || len(r.Timeline) == 0 {
				t.Errorf("the report lacks scenario, checks or timeline: %+v", r)
			}
		})
	}
}

func TestScenarioCrashHolds(t *testing.T) {
	t.Setenv(asMuster, "1")
	hold(t, small("--scenario", "crash", "--kills", "3")...)
}

// hold runs a scenario whose promises must hold. How fast they were kept is told,
// not judged: a bound on wall time is for a machine that does nothing else.
func hold(t *testing.T, args ...string) e2e.Report {
	t.Helper()
	file := filepath.Join(t.TempDir(), "r.json")
	code, stdout, stderr := muster(append(args, "--busy", "--report", file)...)
	var r e2e.Report
	data, err := os.ReadFile(file)
	if err == nil {
		err = json.Unmarshal(data, &r)
	}
	if err != nil {
		t.Fatalf("exit code %d, %v: %s\n%s", code, err, stderr, stdout)
	}
	broken := len(r.Checks) == 0
	for _, c := range r.Checks {
		switch {
		case c.OK:
		case c.Timed:
			t.Logf("slow: %s, want %s, got %s", c.Name, c.Want, c.Got)
		default:
			broken = true
			t.Errorf("%s: want %s, got %s", c.Name, c.Want, c.Got)
		}
	}
	if broken || code != command.ExitOK {
		t.Fatalf("exit code %d: %s\n%s", code, stderr, stdout)
	}
	return r
}

func TestUpStopsCleanlyWhenItIsInterrupted(t *testing.T) {
	t.Parallel()
	for _, processes := range []bool{false, true} {
		t.Run(fmt.Sprintf("processes %t", processes), func(t *testing.T) {
			t.Parallel()
			exe, err := os.Executable()
			if err != nil {
				t.Fatal(err)
			}
			tmp := t.TempDir()
			cmd := exec.Command(exe, small("--http", "127.0.0.1:0", fmt.Sprintf("--processes=%t", processes))...)
			cmd.Env = append(os.Environ(), asMuster+"=1", "TMPDIR="+tmp)
			var out output.Buffer
			cmd.Stdout, cmd.Stderr = &out, &out
			if err := cmd.Start(); err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { _ = cmd.Process.Kill() })
			waitFor(t, 60*time.Second, "it processes", func() bool { return strings.Contains(out.String(), "Processing at ") }, &out)
			time.Sleep(500 * time.Millisecond)
			if err := cmd.Process.Signal(syscall.SIGINT); err != nil {
				t.Fatal(err)
			}
			done := make(chan error, 1)
			go func() { done <- cmd.Wait() }()
			select {
			case err := <-done:
				if err != nil {
					t.Errorf("it ended with %v: %s", err, out.String())
				}
			case <-time.After(40 * time.Second):
				t.Fatalf("it does not end: %s", out.String())
			}
			if left, _ := filepath.Glob(filepath.Join(tmp, "muster-*")); len(left) > 0 {
				t.Errorf("it left %v behind", left)
			}
		})
	}
}

func waitFor(t *testing.T, within time.Duration, what string, ok func() bool, out fmt.Stringer) {
	t.Helper()
	for end := time.Now().Add(within); !ok(); time.Sleep(20 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("not within %v: %s; it said %s", within, what, out)
		}
	}
}
