package labtest_test

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/muster-dev/muster/internal/lab/labtest"
)

// traces is what machines could leave behind.
type traces map[string]bool

// settings are those of the kernel that a kubelet would change.
var settings = []string{
	"vm/overcommit_memory", "vm/panic_on_oom", "kernel/panic", "kernel/panic_on_oops",
	"kernel/keys/root_maxkeys", "kernel/keys/root_maxbytes", "net/ipv4/ip_forward",
}

// look returns the mounts, settings and network interfaces of this machine, and those of its
// processes, namespaces, cgroups and folders that are of machines.
func look(t *testing.T) traces {
	t.Helper()
	all := traces{}
	add := func(format string, args ...any) { all[fmt.Sprintf(format, args...)] = true }
	mounts, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(mounts)) {
		add("mount %s", strings.Fields(line)[4])
	}
	for _, name := range settings {
		value, err := os.ReadFile("/proc/sys/" + name)
		if err != nil {
			t.Fatal(err)
		}
		add("setting %s=%s", name, strings.TrimSpace(string(value)))
	}
	interfaces, err := os.ReadDir("/sys/class/net")
	if err != nil {
		t.Fatal(err)
	}
	for _, i := range interfaces {
		add("network interface %s", i.Name())
	}
	lookAtProcesses(t, add)
	lookAtCgroups(t, add)
	folders, err := filepath.Glob(filepath.Join(os.TempDir(), "muster-machines-*"))
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range folders {
		add("folder %s", f)
	}
	return all
}

// lookAtProcesses adds the processes in cgroups of machines, and all namespaces that a
// process of a lab has. Other tests may run at the same time, in namespaces of their own.
func lookAtProcesses(t *testing.T, add func(string, ...any)) {
	t.Helper()
	processes, err := filepath.Glob("/proc/[0-9]*")
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range processes {
		cgroup, _ := os.ReadFile(filepath.Join(p, "cgroup")) // it may have ended
		if !strings.Contains(string(cgroup), "muster-machines-") {
			continue
		}
		name, _ := os.ReadFile(filepath.Join(p, "comm"))
		add("process %s (%s)", filepath.Base(p), strings.TrimSpace(string(name)))
		for _, kind := range []string{"mnt", "pid", "net", "uts", "ipc", "cgroup"} {
			namespace, _ := os.Readlink(filepath.Join(p, "ns", kind))
			add("namespace %s", namespace)
		}
	}
}

func lookAtCgroups(t *testing.T, add func(string, ...any)) {
	t.Helper()
	err := filepath.WalkDir("/sys/fs/cgroup", func(path string, d fs.DirEntry, err error) error {
		if err == nil && d.IsDir() && strings.Contains(path, "muster-machines-") {
			add("cgroup %s", path)
		}
		return nil // one may go while it is looked at
	})
	if err != nil {
		t.Fatal(err)
	}
}

// compare fails the test if anything is there now that was not there before, or the
// other way round. What the kernel removes by itself takes a moment.
func (before traces) compare(t *testing.T) {
	t.Helper()
	labtest.Eventually(t, "everything to be as before", func() error {
		var errs []error
		now := look(t)
		for what := range now {
			if !before[what] {
				errs = append(errs, errors.New("left: "+what))
			}
		}
		for what := range before {
			if !now[what] {
				errs = append(errs, errors.New("lost: "+what))
			}
		}
		slices.SortFunc(errs, func(a, b error) int { return strings.Compare(a.Error(), b.Error()) })
		return errors.Join(errs...)
	})
}
