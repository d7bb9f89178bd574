package labtest_test

import (
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/muster-dev/muster/internal/lab/labtest"
)

// settings are those of the kernel that a kubelet would change.
var settings = []string{
	"vm/overcommit_memory", "vm/panic_on_oom", "kernel/panic", "kernel/panic_on_oops",
	"kernel/keys/root_maxkeys", "kernel/keys/root_maxbytes", "net/ipv4/ip_forward",
}

// machine is what a test's machines could change of this one.
type machine map[string]string

// look returns the settings and network interfaces of this machine.
func look(t *testing.T) machine {
	t.Helper()
	m := machine{}
	for _, name := range settings {
		value, err := os.ReadFile("/proc/sys/" + name)
		if err != nil {
			t.Fatal(err)
		}
		m["setting "+name] = strings.TrimSpace(string(value))
	}
	interfaces, err := os.ReadDir("/sys/class/net")
	if err != nil {
		t.Fatal(err)
	}
	for _, i := range interfaces {
		m["network interface "+i.Name()] = "there"
	}
	return m
}

// unchanged fails the test unless this machine is as before, and nothing is left of the
// machines of a laboratory's process. What the kernel removes by itself takes a moment.
func (m machine) unchanged(t *testing.T, pid int) {
	t.Helper()
	labtest.Eventually(t, "everything to be as before", func() error {
		var errs []error
		if now := look(t); !maps.Equal(m, now) {
			errs = append(errs, fmt.Errorf("this machine had %v, and has %v", m, now))
		}
		for _, found := range tracesOf(t, pid) {
			for what := range found {
				errs = append(errs, errors.New("left: "+what))
			}
		}
		return errors.Join(errs...)
	})
}

// tracesOf returns what there is of the machines of a laboratory's process, by kind. Other
// tests may have machines and mounts at the same time.
func tracesOf(t *testing.T, pid int) map[string]map[string]bool {
	t.Helper()
	name := fmt.Sprintf("muster-machines-%d-", pid)
	found := map[string]map[string]bool{"process": {}, "namespace": {}, "cgroup": {}, "folder": {}, "mount": {}}
	processes, err := filepath.Glob("/proc/[0-9]*")
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range processes {
		cgroup, _ := os.ReadFile(filepath.Join(p, "cgroup")) // it may have ended
		if !strings.Contains(string(cgroup), name) {
			continue
		}
		comm, _ := os.ReadFile(filepath.Join(p, "comm"))
		found["process"][filepath.Base(p)+" "+strings.TrimSpace(string(comm))] = true
		for _, kind := range []string{"mnt", "pid", "net", "uts", "ipc", "cgroup"} {
			namespace, _ := os.Readlink(filepath.Join(p, "ns", kind))
			found["namespace"][namespace] = true
		}
	}
	err = filepath.WalkDir("/sys/fs/cgroup", func(path string, d fs.DirEntry, err error) error {
		if err == nil && d.IsDir() && strings.Contains(path, name) {
			found["cgroup"][path] = true
		}
		return nil // one may go while it is looked at
	})
	if err != nil {
		t.Fatal(err)
	}
	folders, err := filepath.Glob(filepath.Join(os.TempDir(), name+"*"))
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range folders {
		found["folder"][f] = true
	}
	mounts, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(mounts)) {
		if strings.Contains(line, name) {
			found["mount"][line] = true
		}
	}
	return found
}
