package labtest_test

import (
	"bytes"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/muster-dev/muster/internal/lab/labtest"
)

var (
	runs     = flag.Int("runs", 1, "how often a scenario runs on real nodes")
	scenario = flag.String("runs.scenario", "node-pressure", "which: node-pressure or spot-interruption")
)

// marker is in the environment of everything that a run starts outside of its machines.
const marker = "MUSTER_TEST_RUN"

// TestRealNodes_runs runs a scenario on real nodes to its end, -runs times. It holds each
// time, and leaves nothing on this machine.
func TestRealNodes_runs(t *testing.T) {
	muster := buildMuster(t)
	for i := range *runs {
		t.Run(fmt.Sprintf("%s %d", *scenario, i+1), func(t *testing.T) { runOnce(t, muster, *scenario) })
	}
}

func runOnce(t *testing.T, muster, name string) {
	before, began := look(t), time.Now()
	dir, err := os.MkdirTemp("", "m-") // short: sockets are below it
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	temporary := filepath.Join(dir, "t")
	if err := os.Mkdir(temporary, 0o700); err != nil {
		t.Fatal(err)
	}

	u := startUp(t, muster, []string{"TMPDIR=" + temporary, marker + "=" + dir}, "--scenario", name, "--busy", "--dir", filepath.Join(dir, "d"))
	serves, folder := theLab(t, u.cmd.Process.Pid, u.ended)
	<-u.ended
	t.Logf("it took %.0f s", time.Since(began).Seconds())
	if code := u.cmd.ProcessState.ExitCode(); code != 0 {
		t.Errorf("muster up ended with %d", code)
	}

	before.unchanged(t, serves)
	labtest.Eventually(t, "the end of all that it started", func() error {
		errs := marked(t, marker+"="+dir)
		for _, path := range []string{folder, fmt.Sprintf("/proc/%d", serves)} {
			if _, err := os.Stat(path); err == nil {
				errs = append(errs, errors.New("left: "+path))
			}
		}
		left, err := os.ReadDir(temporary)
		for _, l := range left {
			errs = append(errs, errors.New("left: temporary "+l.Name()))
		}
		return errors.Join(append(errs, err)...)
	})
}

// marked returns an error for each process that has a variable in its environment.
func marked(t *testing.T, variable string) (errs []error) {
	t.Helper()
	all, err := filepath.Glob("/proc/[0-9]*/environ")
	if err != nil {
		t.Fatal(err)
	}
	for _, path := range all {
		environment, _ := os.ReadFile(path) // it may have ended
		if bytes.Contains(environment, []byte(variable+"\x00")) {
			name, _ := os.ReadFile(filepath.Join(filepath.Dir(path), "comm"))
			errs = append(errs, fmt.Errorf("left: process %s %s", filepath.Base(filepath.Dir(path)), strings.TrimSpace(string(name))))
		}
	}
	return errs
}

// up is a `muster up` on real nodes.
type up struct {
	cmd    *exec.Cmd
	output *bytes.Buffer // complete once it has ended
	ended  chan struct{}
}

// startUp starts one, small enough for this machine, with more in its environment.
func startUp(t *testing.T, muster string, env []string, args ...string) *up {
	t.Helper()
	u := &up{output: &bytes.Buffer{}, ended: make(chan struct{})}
	small := []string{"up", "--lab", "--real-nodes", "--defenders", "14", "--chambers", "280", "--slots", "140", "--rate", "30", "--work", "50ms"}
	u.cmd = exec.Command(muster, append(small, args...)...) //nolint:noctx // it ends by itself, or is killed
	u.cmd.Env = append(os.Environ(), env...)
	u.cmd.Stdout, u.cmd.Stderr = u.output, u.output
	if err := u.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	go func() {
		_ = u.cmd.Wait() // the test looks at how it ended
		close(u.ended)
	}()
	t.Cleanup(func() {
		_ = u.cmd.Process.Kill() // it may have ended
		<-u.ended
		if t.Failed() {
			t.Logf("muster up wrote:\n%s", u.output.String())
		}
	})
	return u
}
