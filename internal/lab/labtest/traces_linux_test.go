package labtest_test

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/muster-dev/muster/internal/lab/labtest"
)

// machine is what a test's machines could change of this one.
type machine map[string]string

// look returns the kernel's settings and the network interfaces of this machine.
func look(t *testing.T) machine {
	t.Helper()
	m := machine{}
	err := filepath.WalkDir("/proc/sys", func(path string, d fs.DirEntry, err error) error {
		name := strings.TrimPrefix(path, "/proc/sys/")
		if err != nil || d.IsDir() || counts(name) {
			return nil //nolint:nilerr // one may go while it is looked at
		}
		if value, err := os.ReadFile(path); err == nil { // some can only be written
			m["setting "+name] = strings.TrimSpace(string(value))
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
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

// counts reports whether a file below /proc/sys changes by itself, or comes and goes with a
// network interface.
func counts(name string) bool {
	switch name {
	case "fs/aio-nr", "fs/dentry-state", "fs/file-nr", "fs/inode-nr", "fs/inode-state", "kernel/hung_task_detect_count", "kernel/ns_last_pid",
		"kernel/perf_event_max_sample_rate", "kernel/pty/nr", "net/netfilter/nf_conntrack_count":
		return true
	}
	ofInterface := strings.Contains(name, "/conf/") || strings.Contains(name, "/neigh/")
	ofAll := strings.Contains(name, "/all/") || strings.Contains(name, "/default/")
	return strings.HasPrefix(name, "kernel/random/") || strings.HasPrefix(name, "fs/quota/") || ofInterface && !ofAll
}

// changes returns what differs now. A setting that was not there came with a kernel module.
func (m machine) changes(now machine) (errs []error) {
	for what, before := range m {
		if after, there := now[what]; after != before {
			errs = append(errs, fmt.Errorf("%s was %q and is %q (there: %v)", what, before, after, there))
		}
	}
	for what := range now {
		if _, there := m[what]; !there && strings.HasPrefix(what, "network interface ") {
			errs = append(errs, errors.New("left: "+what))
		}
	}
	return errs
}

// unchanged fails the test unless this machine is as before, and nothing is left of the
// machines of a laboratory's process. What the kernel removes by itself takes a moment.
func (m machine) unchanged(t *testing.T, pid int) {
	t.Helper()
	labtest.Eventually(t, "everything to be as before", func() error {
		errs := m.changes(look(t))
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
