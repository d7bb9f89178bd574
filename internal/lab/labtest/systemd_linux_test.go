package labtest_test

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/muster-dev/muster/internal/lab"
	"github.com/muster-dev/muster/internal/lab/labtest"
)

// bootSystemd boots a machine whose first process is systemd, and waits until its node is Ready.
func bootSystemd(t *testing.T, id string) *cluster {
	t.Helper()
	c := startClusterOf(t, lab.Options{RealNodes: true, Systemd: true})
	m := lab.Machine{ID: id, Memory: memory, UserData: "#!/bin/bash\n" + c.userData(id, c.JoinToken), Zone: "eu-1a", Region: "eu-1", Type: "t3.medium", Systemd: true}
	if _, err := c.Boot(t.Context(), m); err != nil {
		t.Fatal(err)
	}
	c.becomes(t, id, corev1.ConditionTrue)
	return c
}

// ofMachine returns what there is of one machine, as tracesOf does.
func (c *cluster) ofMachine(t *testing.T, id string) (found []string) {
	t.Helper()
	for kind, all := range tracesOf(t, c.PID()) {
		for what := range all {
			if kind != "namespace" && kind != "process" && strings.Contains(what+"/", "/"+id+"/") {
				found = append(found, what)
			}
		}
	}
	return found
}

// TestRealNodes_systemdLeaves boots by systemd. Whether its power is cut, the laboratory ends,
// or is killed: nothing is left, and nothing has changed on this machine.
func TestRealNodes_systemdLeaves(t *testing.T) {
	for name, end := range map[string]func(*cluster){"ends": func(*cluster) {}, "is killed": func(c *cluster) { c.Kill() }} {
		t.Run("when the laboratory "+name, func(t *testing.T) {
			before := look(t)
			cgroups := cgroupsOfAll(t)
			c := bootSystemd(t, "i-1")
			s, err := c.Inspect(t.Context(), "i-1")
			if err != nil {
				t.Fatal(err)
			}
			if first, err := os.ReadFile(filepath.Join("/proc", strconv.Itoa(s.PID), "comm")); err != nil || string(first) != "systemd\n" {
				t.Errorf("its first process is %q, %v", first, err)
			}
			end(c)
			c.Stop()
			before.unchanged(t, c.PID())
			if now := cgroupsOfAll(t); !slices.Equal(now, cgroups) {
				t.Errorf("the cgroups of this machine were %q and are %q", cgroups, now)
			}
		})
	}
}

// TestRealNodes_systemdCut cuts the power of one machine.
func TestRealNodes_systemdCut(t *testing.T) {
	c := bootSystemd(t, "i-1")
	if len(c.ofMachine(t, "i-1")) == 0 {
		t.Error("no trace of a running machine is seen, so none would be seen that is left")
	}
	if err := c.CutPower(t.Context(), "i-1"); err != nil {
		t.Fatal(err)
	}
	labtest.Eventually(t, "everything of the machine to be gone", func() error {
		var errs []error
		for _, what := range c.ofMachine(t, "i-1") {
			errs = append(errs, errors.New("left: "+what))
		}
		return errors.Join(errs...)
	})
}

// cgroupsOfAll returns the cgroups at the top of each hierarchy but those of laboratories, and
// what the kernel runs when one becomes empty: systemd makes and sets both where it may.
func cgroupsOfAll(t *testing.T) (all []string) {
	t.Helper()
	found, err := filepath.Glob("/sys/fs/cgroup/*/*")
	if err != nil {
		t.Fatal(err)
	}
	for _, path := range found {
		info, err := os.Stat(path)
		switch {
		case filepath.Base(path) == "release_agent":
			agent, _ := os.ReadFile(path) // some can only be written
			all = append(all, path+"="+strings.TrimSpace(string(agent)))
		case err == nil && info.IsDir() && !strings.HasPrefix(filepath.Base(path), "muster-machines-"):
			all = append(all, path)
		}
	}
	return all
}
