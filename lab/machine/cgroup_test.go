package machine

import (
	"strings"
	"testing"
)

const someMounts = `29 1 0:26 / /sys/fs/cgroup rw,relatime - tmpfs tmpfs rw,mode=755
30 29 0:27 / /sys/fs/cgroup/cpu,cpuacct rw,relatime shared:9 - cgroup cgroup rw,cpu,cpuacct
31 29 0:28 / /sys/fs/cgroup/memory rw,relatime - cgroup cgroup rw,memory
32 29 0:29 / /sys/fs/cgroup/systemd rw,relatime - cgroup cgroup rw,xattr,release_agent=/lib/x,name=systemd
33 29 0:30 / /sys/fs/cgroup/unified rw,relatime - cgroup2 cgroup2 rw
34 29 0:28 / /mnt/again rw,relatime - cgroup cgroup rw,memory
`

func TestHierarchies(t *testing.T) {
	groups := "4:cpu,cpuacct:/job\n3:memory:/docker/abc\n1:name=systemd:/\n0::/job\n"
	visible := func(path string) bool { return !strings.Contains(path, "docker") }
	got, err := parseHierarchies(someMounts, groups, visible)
	if err != nil {
		t.Fatal(err)
	}
	want := []hierarchy{
		{"/sys/fs/cgroup/cpu,cpuacct", "cpu,cpuacct", "/sys/fs/cgroup/cpu,cpuacct/job"},
		{"/sys/fs/cgroup/memory", "memory", "/sys/fs/cgroup/memory"},
		{"/sys/fs/cgroup/systemd", "none,name=systemd", "/sys/fs/cgroup/systemd"},
	}
	if len(got) != len(want) {
		t.Fatalf("got %+v", got)
	}
	for i := range want {
		if got[i] != want[i] {
			t.Errorf("got %+v, want %+v", got[i], want[i])
		}
	}

	t.Run("version 2 alone is an error", func(t *testing.T) {
		_, err := parseHierarchies("30 1 0:27 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw\n", "0::/\n", visible)
		if err == nil || !strings.Contains(err.Error(), "version 1") {
			t.Errorf("got %v", err)
		}
	})
}
