package labtest_test

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/muster-dev/muster/internal/component"
	"github.com/muster-dev/muster/internal/lab"
	"github.com/muster-dev/muster/internal/lab/labtest"
)

// TestRealNodes_upKilled kills `muster up` by SIGKILL while its real nodes run pods. The test
// cluster notices that, and ends with all that it has.
func TestRealNodes_upKilled(t *testing.T) {
	muster := buildMuster(t)
	before := look(t)
	u := startUp(t, muster, nil, "--scenario", "node-pressure", "--dir", t.TempDir())
	serves, dir := theLab(t, u.cmd.Process.Pid, u.ended)
	labtest.EventuallyWithin(t, 4*time.Minute, "containers on its nodes", func() error {
		select {
		case <-u.ended:
			t.Fatal("muster up has ended")
		default:
		}
		for process := range tracesOf(t, serves)["process"] {
			if strings.HasSuffix(process, " muster") {
				return nil
			}
		}
		return errors.New("there are none")
	})
	_ = u.cmd.Process.Kill()
	<-u.ended

	before.unchanged(t, serves)
	labtest.Eventually(t, "the end of the test cluster", func() error {
		if err := syscall.Kill(serves, 0); err == nil {
			return fmt.Errorf("process %d is there", serves)
		}
		if _, err := os.Stat(dir); err == nil {
			return fmt.Errorf("%s is there", dir)
		}
		return nil
	})
}

// buildMuster builds the command, or skips the test where there can be no real nodes.
func buildMuster(t *testing.T) string {
	t.Helper()
	component.Need(t, lab.RealNodes(t.Context()))
	if _, reason := lab.Built(lab.Releases()[0]); reason != "" {
		component.Need(t, errors.New(reason))
	}
	muster := filepath.Join(t.TempDir(), "muster")
	if out, err := exec.CommandContext(t.Context(), "go", "build", "-o", muster, "github.com/muster-dev/muster/cmd/muster").CombinedOutput(); err != nil {
		t.Fatalf("building muster: %v: %s", err, out)
	}
	return muster
}

// theLab waits until a process has started a test cluster, and returns its process and its
// folder.
func theLab(t *testing.T, parent int, ended <-chan struct{}) (pid int, dir string) {
	t.Helper()
	labtest.EventuallyWithin(t, 8*time.Minute, "the test cluster", func() error { // it may be built first, and the image of defenders
		select {
		case <-ended:
			t.Fatal("muster up has ended")
		default:
		}
		threads, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/children", parent)) // each has those that it started
		if err != nil {
			return err
		}
		var children strings.Builder
		for _, path := range threads {
			some, _ := os.ReadFile(path) // the thread may have ended
			children.Write(some)
		}
		for child := range strings.FieldsSeq(children.String()) {
			args, _ := os.ReadFile(filepath.Join("/proc", child, "cmdline")) // it may have ended
			f := strings.Split(string(args), "\x00")
			if len(f) > 3 && f[1] == "serve" && f[2] == "--dir" {
				_, err := fmt.Sscan(child, &pid)
				dir = f[3]
				return err
			}
		}
		return errors.New("there is none")
	})
	return pid, dir
}
