package labtest_test

import (
	"errors"
	"flag"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/muster-dev/muster/internal/lab"
)

var (
	sizes      = flag.Int("sizes", 1, "how many real nodes are started to measure what they cost: they are doubled until this, or until some are not Ready in time")
	sizesRest  = flag.Duration("sizes.rest", time.Second, "how long nodes are at rest while their CPU is measured")
	sizesTable = flag.String("sizes.table", "", "write what real nodes cost to this file")
)

// sizesReady is how long new nodes may take until all are Ready.
const sizesReady = time.Minute

// size is what a number of real nodes cost.
type size struct {
	nodes     int
	fresh     int           // of them, started at once
	ready     time.Duration // from the start of the new ones until the last is Ready
	memory    int64         // bytes per node that no file backs
	cache     int64         // bytes per node of files that the kernel keeps
	milliCPU  int64         // per node, at rest
	available string        // of the machine's memory
	load      string        // average of the machine in the minute before, by what else it does
}

// TestRealNodes_sizes measures the start of a lab, and what a real node costs.
func TestRealNodes_sizes(t *testing.T) {
	before := look(t)
	var cold float64
	if *sizesTable != "" {
		t.Run("cold", func(t *testing.T) {
			forget(t)
			cold = startCluster(t).Seconds
		})
	}
	c := startCluster(t)
	var all []size
	for n := 1; n <= *sizes; n *= 2 {
		s, err := c.grow(t, n)
		if err != nil {
			if n == 1 {
				t.Fatal(err)
			}
			t.Logf("%d nodes are too many: %v", n, err)
			break
		}
		t.Logf("%+v", s)
		if s.memory < 1<<20 || s.milliCPU < 1 {
			t.Errorf("a kubelet and containerd take more than %d bytes and %d millicores: something is not measured", s.memory, s.milliCPU)
		}
		all = append(all, s)
	}
	c.Stop()
	before.unchanged(t, c.PID())
	if *sizesTable != "" {
		writeSizes(t, *sizesTable, cold, c.Seconds, all)
	}
}

// grow boots nodes until there are n, and measures them.
func (c *cluster) grow(t *testing.T, n int) (s size, err error) {
	t.Helper()
	name := func(i int) string { return fmt.Sprintf("i-%d", i) }
	began := time.Now()
	load, err := os.ReadFile("/proc/loadavg")
	if err != nil {
		return s, err
	}
	s = size{nodes: n, fresh: n - n/2, load: strings.Fields(string(load))[0]}
	for i := n / 2; i < n; i++ {
		m := lab.Machine{ID: name(i), Memory: memory, UserData: c.userData(name(i), c.JoinToken)}
		if _, err := c.Boot(t.Context(), m); err != nil {
			return s, err
		}
	}
	for {
		ready, err := c.ready(t)
		if err == nil && ready == n {
			break
		}
		if time.Since(began) > sizesReady {
			return s, errors.Join(err, fmt.Errorf("%d are Ready after %s", ready, sizesReady))
		}
		time.Sleep(20 * time.Millisecond)
	}
	s.ready = time.Since(began)

	time.Sleep(2 * *sizesRest) // what the start has begun is over
	used, at := c.sum(t, "cpuacct", "cpuacct.usage", ""), time.Now()
	time.Sleep(*sizesRest)
	used = c.sum(t, "cpuacct", "cpuacct.usage", "") - used
	s.milliCPU = used / int64(n) / (time.Since(at).Microseconds() + 1)
	s.memory = c.sum(t, "memory", "memory.stat", "total_rss") / int64(n)
	s.cache = c.sum(t, "memory", "memory.stat", "total_cache") / int64(n)
	s.available = available(t)
	if ready, err := c.ready(t); err != nil || ready != n {
		return s, errors.Join(err, fmt.Errorf("%d have stayed Ready", ready))
	}
	return s, nil
}

// ready returns the number of nodes that are Ready.
func (c *cluster) ready(t *testing.T) (n int, err error) {
	t.Helper()
	list, err := c.client.CoreV1().Nodes().List(t.Context(), metav1.ListOptions{})
	if err != nil {
		return 0, err
	}
	for _, node := range list.Items {
		for _, condition := range node.Status.Conditions {
			if condition.Type == corev1.NodeReady && condition.Status == corev1.ConditionTrue {
				n++
			}
		}
	}
	return n, nil
}

// sum adds up what the machines' cgroups say: a file of one number, or the line of a key.
func (c *cluster) sum(t *testing.T, controller, file, key string) (total int64) {
	t.Helper()
	name := fmt.Sprintf("muster-machines-%d-", c.PID())
	err := filepath.WalkDir(filepath.Join("/sys/fs/cgroup", controller), func(path string, d fs.DirEntry, err error) error {
		if err != nil || !d.IsDir() || !strings.HasPrefix(filepath.Base(filepath.Dir(path)), name) {
			return nil //nolint:nilerr // one may go while it is looked at
		}
		text, err := os.ReadFile(filepath.Join(path, file))
		if err != nil {
			return err
		}
		for line := range strings.Lines(string(text)) {
			value := strings.TrimSpace(strings.TrimPrefix(line, key))
			if number, err := strconv.ParseInt(value, 10, 64); err == nil && strings.HasPrefix(line, key) {
				total += number
			}
		}
		return fs.SkipDir // its containers are counted in it
	})
	if err != nil {
		t.Fatal(err)
	}
	return total
}

// available returns how much memory this machine has left.
func available(t *testing.T) string {
	t.Helper()
	text, err := os.ReadFile("/proc/meminfo")
	if err != nil {
		t.Fatal(err)
	}
	_, after, _ := strings.Cut(string(text), "MemAvailable:")
	line, _, _ := strings.Cut(after, "\n")
	var kilobytes int64
	if _, err := fmt.Sscan(line, &kilobytes); err != nil {
		t.Fatal(err)
	}
	return fmt.Sprintf("%.1f GiB", float64(kilobytes)/(1<<20))
}

// forget has the kernel drop what it keeps of the lab's program and of the nodes' packages.
func forget(t *testing.T) {
	t.Helper()
	binary, _ := lab.Built(lab.Releases()[0])
	cache := filepath.Dir(filepath.Dir(binary))
	packages, err := filepath.Glob(filepath.Join(cache, "node-packages-*"))
	if err != nil {
		t.Fatal(err)
	}
	for _, dir := range append(packages, filepath.Dir(binary)) {
		err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
			if err != nil || !d.Type().IsRegular() {
				return err
			}
			f, err := os.Open(path)
			if err != nil {
				return err
			}
			defer func() { _ = f.Close() }()
			const dontNeed = 4
			if _, _, e := syscall.Syscall6(syscall.SYS_FADVISE64, f.Fd(), 0, 0, dontNeed, 0, 0); e != 0 {
				return e
			}
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
	}
}

// writeSizes writes the table for people.
func writeSizes(t *testing.T, path string, cold, warm float64, all []size) {
	t.Helper()
	var b strings.Builder
	fmt.Fprintf(&b, `# What real nodes cost

Written by `+"`go test ./internal/lab/labtest -run RealNodes_sizes -sizes %d -sizes.rest %s -sizes.table $PWD/docs/results/real-nodes.md`"+` on %d cores, one run. A node is a machine in namespaces with kubelet and containerd, without pods.

The test cluster is up after %.1f s, and after %.1f s if its program is not in memory yet.

| nodes | started at once | all Ready after | memory per node | and cached files | CPU per node | memory left on the machine | its load before |
| ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: |
`, *sizes, *sizesRest, runtime.NumCPU(), warm, cold)
	for _, s := range all {
		fmt.Fprintf(&b, "| %d | %d | %.1f s | %d MiB | %d MiB | %d millicores | %s | %s |\n",
			s.nodes, s.fresh, s.ready.Seconds(), s.memory>>20, s.cache>>20, s.milliCPU, s.available, s.load)
	}
	allowed, err := os.ReadFile("/proc/sys/fs/inotify/max_user_instances")
	if err != nil {
		t.Fatal(err)
	}
	if last := all[len(all)-1].nodes; last*2 <= *sizes {
		fmt.Fprintf(&b, "\nOf %d nodes not all were Ready within %s.", last*2, sizesReady)
	}
	fmt.Fprintf(&b, "\nA node needs 6 inotify instances. This machine allows %s (fs.inotify.max_user_instances); the kernel's default of 128 is enough for about 18 nodes.\n",
		strings.TrimSpace(string(allowed)))
	if err := os.WriteFile(path, []byte(b.String()), 0o644); err != nil { //nolint:gosec // for everybody to read
		t.Fatal(err)
	}
}
