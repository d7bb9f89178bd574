package main

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/muster-dev/muster/e2e"
	"github.com/muster-dev/muster/internal/command"
	"github.com/muster-dev/muster/internal/component"
	"github.com/muster-dev/muster/internal/output"
	"github.com/muster-dev/muster/internal/powercut"
)

// TestScenariosHold plays each scenario on a small stage, and reads from the
// report that something was seen of what it is about.
func TestScenariosHold(t *testing.T) {
	t.Setenv(asMuster, "1")
	for _, c := range []struct {
		args   string
		checks []string
	}{
		{"cold-start --case restart", []string{"slots moved", "map version"}},
		{"scale-down --case leader-leaves", []string{"defenders that left after they had handed off", "maps of a former leader"}},
		{"leader-crash --case mid-rebalance", []string{"leaders elected", "the dead leader's slots that resumed elsewhere"}},
		{"leader-and-candidates-crash --kills 1 --defenders 7", []string{"killed to led again, ms", "slots of the killed that another worker processed",
			"applied twice, changed, or of nothing published", "dead letters"}},
		{"rolling-update --processes", []string{"slots moved", "map version", "plans", "defenders replaced under their names"}},
		{"rolling-update --case surge --shards 2", []string{"new defenders that waited as standbys", "map version"}},
		{"broker-outage --processes", []string{"slots moved", "map version", "defenders that went on"}},
		{"resharding --case back --slots 32", []string{"slots", "consumers of the stream", "32 to 64 slots: slots that changed with a handler in flight", "64 to 32 slots: pause of a slot, ms"}},
		{"resharding --case leader-crash --processes --slots 32 --shards 4", []string{"slots", "consumers of the stream", "the change went on under another leader"}},
		{"node-pressure --processes --defenders 14", []string{"pods evicted by drains", "defenders that were not processes of their own",
			"evicted defenders that ended by themselves within their grace", "... all together, s", "node-hours", "... as nodes were drained"}},
		{"crowd --defenders 20", []string{"20 workers STABLE, s", "cores at rest", "2 more STABLE, s", "2 left, s", "every slot owned after 1 were killed, s", "slots with an owner", "slots each"}},
		{"scale-up --servers 3 --replicas 3 --slots 64", []string{"chambers moved", "handoffs with a handler in flight"}},
	} {
		t.Run(c.args, func(t *testing.T) {
			r := hold(t, append(small("--scenario"), strings.Fields(c.args)...)...)
			have := map[string]bool{}
			for _, x := range r.Checks {
				have[x.Name] = true
			}
			for _, name := range append(c.checks, "lost", "concurrent", "out of order") {
				if !have[name] {
					t.Errorf("the report lacks check %q", name)
				}
			}
		})
	}
}

func TestScenarioPowerCut(t *testing.T) {
	component.Need(t, powercut.Supported())
	t.Run("nothing is lost that is synced", func(t *testing.T) {
		t.Setenv(asMuster, "1")
		r := hold(t, "up", "--scenario", "power-cut", "--kills", "2")
		for _, name := range []string{"acknowledged messages lost", "acknowledged by a worker without being processed", "messages dead-lettered"} {
			if !slices.ContainsFunc(r.Checks, func(c e2e.Check) bool { return c.Name == name }) {
				t.Errorf("the report lacks check %q", name)
			}
		}
	})
	t.Run("an interrupt removes its disks", func(t *testing.T) {
		exe, err := os.Executable()
		if err != nil {
			t.Fatal(err)
		}
		dir := t.TempDir()
		cmd := exec.Command(exe, "up", "--scenario", "power-cut", "--dir", dir)
		cmd.Env = append(os.Environ(), asMuster+"=1")
		var out output.Buffer
		cmd.Stdout, cmd.Stderr = &out, &out
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = cmd.Process.Kill() })
		waitFor(t, 2*time.Minute, "the power is cut", func() bool { return strings.Contains(out.String(), "Power cut 1 of") }, &out)
		disks := disksOf(t, cmd.Process.Pid)
		if len(disks) != 1 {
			t.Errorf("it has the disks %q, want one", disks)
		}
		if err := cmd.Process.Signal(syscall.SIGTERM); err != nil {
			t.Fatal(err)
		}
		_ = cmd.Wait() // with 1: the scenario was not played to its end
		for _, d := range disks {
			if _, err := os.Stat(d); !os.IsNotExist(err) {
				t.Errorf("disk %s is left: %v", d, err)
			}
		}
	})
}

// disksOf returns where the disks of a process are mounted: those whose lock it holds.
func disksOf(t *testing.T, pid int) (dirs []string) {
	t.Helper()
	b, err := os.ReadFile("/proc/self/mounts")
	if err != nil {
		t.Fatal(err)
	}
	open, err := filepath.Glob(fmt.Sprintf("/proc/%d/fd/*", pid))
	if err != nil {
		t.Fatal(err)
	}
	for _, fd := range open {
		file, _ := os.Readlink(fd)
		for line := range strings.Lines(string(b)) {
			at := strings.Fields(line)[1]
			if filepath.Base(file) == "lock" && strings.HasPrefix(at, filepath.Dir(file)+"/") {
				dirs = append(dirs, at)
			}
		}
	}
	return dirs
}

func TestATokenIsReadFromAFileOfSomeLength(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	write := func(name, text string) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	good := write("good", "0123456789abcdef\n")
	for name, args := range map[string][]string{
		"make one with":                          {"--token-file", filepath.Join(dir, "absent")},
		"holds no token":                         {"--token-file", write("short", "secret")},
		"one word":                               {"--token-file", write("two", "0123456789 abcdefgh")},
		"there is none without --http":           {"--token-file", good, "--scenario", "cold-start"},
		"and there is none without --http":       {"--token-file", good, "--http", ""},
		"--report and --case go with --scenario": {"--token-file", good, "--report", "r.json"},
	} {
		code, _, errs := muster(append([]string{"up"}, args...)...)
		if code != command.ExitUsage || !strings.Contains(errs, name) {
			t.Errorf("%v: exit code %d, %q lacks %q", args, code, errs, name)
		}
		if strings.Contains(errs, "0123456789") {
			t.Errorf("%v: the message shows the token: %s", args, errs)
		}
	}
}

func TestAClustersOptionsAreChecked(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		args string
		want []string
	}{
		{"--servers 2", []string{"--servers is 2", "1, 3 or 5"}},
		{"--replicas 3", []string{"--replicas is 3 for 1 --servers"}},
		{"--servers 3 --nats-port 4222", []string{"--nats-port is 4222 for 3 --servers"}},
		{"--lab --lab-kubernetes 1.5", []string{"--lab-kubernetes", "write 1.36 or 1.37"}},
		{"--lab-kubernetes 1.37", []string{"--lab-kubernetes", "give --lab"}},
		{"--scenario broker-outage --case one-server", []string{"one-server", "--servers 3"}},
	} {
		code, _, stderr := muster(append([]string{"up"}, strings.Fields(c.args)...)...)
		if code != command.ExitUsage {
			t.Errorf("%s: exit code %d, want %d", c.args, code, command.ExitUsage)
		}
		for _, w := range c.want {
			if !strings.Contains(stderr, w) {
				t.Errorf("%s: the message does not say %q: %s", c.args, w, stderr)
			}
		}
	}
}
