package powercut

import (
	"bufio"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/muster-dev/muster/internal/component"
)

func open(t *testing.T, n int) *Rack { return openWith(t, n, OrderedData) }

func openWith(t *testing.T, n int, j Journal) *Rack {
	t.Helper()
	component.Need(t, Supported())
	r, err := New(n, j)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := r.Close(); err != nil {
			t.Error(err)
		}
		if left := mounts(t, r.dir); left != nil {
			t.Errorf("still mounted: %q", left)
		}
	})
	return r
}

// mounts returns what is mounted below a directory.
func mounts(t *testing.T, dir string) (below []string) {
	t.Helper()
	b, err := os.ReadFile("/proc/self/mounts")
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(b)) {
		if at := strings.Fields(line)[1]; strings.HasPrefix(at, dir+"/") {
			below = append(below, at)
		}
	}
	return below
}

func write(t *testing.T, path, text string, sync bool) {
	t.Helper()
	f, err := os.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := f.WriteString(text); err != nil {
		t.Fatal(err)
	}
	if sync {
		if err := f.Sync(); err != nil {
			t.Fatal(err)
		}
	}
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
}

func names(t *testing.T, dir string) string {
	t.Helper()
	all, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	var list []string
	for _, e := range all {
		if e.Name() != "lost+found" {
			list = append(list, e.Name())
		}
	}
	return strings.Join(list, " ")
}

func TestRack(t *testing.T) {
	t.Run("a cut loses what was not synced", func(t *testing.T) {
		r := open(t, 1)
		write(t, filepath.Join(r.Dir(0), "synced"), "kept", true)
		write(t, filepath.Join(r.Dir(0), "unsynced"), "lost", false)
		if err := r.Cut(0); err != nil {
			t.Fatal(err)
		}
		if got := names(t, r.Dir(0)); got != "synced" {
			t.Errorf("the disk has %q, want only what was synced", got)
		}
		if b, err := os.ReadFile(filepath.Join(r.Dir(0), "synced")); err != nil || string(b) != "kept" {
			t.Errorf("the synced file has %q, %v", b, err)
		}
	})
	t.Run("a synced disk loses nothing, again and again", func(t *testing.T) {
		r := open(t, 1)
		want := ""
		for i := range 3 {
			name := fmt.Sprint("file", i)
			write(t, filepath.Join(r.Dir(0), name), "kept", false)
			if err := r.Sync(0); err != nil {
				t.Fatal(err)
			}
			write(t, filepath.Join(r.Dir(0), "unsynced"), "lost", false)
			if err := r.Cut(0); err != nil {
				t.Fatal(err)
			}
			want = strings.TrimSpace(want + " " + name)
			if got := names(t, r.Dir(0)); got != want {
				t.Errorf("after cut %d the disk has %q, want %q", i+1, got, want)
			}
		}
	})
	t.Run("disks without a cut keep everything", func(t *testing.T) {
		r := open(t, 3)
		for i := range 3 {
			write(t, filepath.Join(r.Dir(i), "unsynced"), "?", false)
		}
		if err := r.Cut(0, 2); err != nil {
			t.Fatal(err)
		}
		if got := names(t, r.Dir(0)) + names(t, r.Dir(2)); got != "" {
			t.Errorf("disks 0 and 2 have %q", got)
		}
		if got := names(t, r.Dir(1)); got != "unsynced" {
			t.Errorf("disk 1 has %q", got)
		}
	})
}

// TestKeep has a file with a synced part, two unsynced pages and a rest, and one that a
// rename has replaced.
func TestKeep(t *testing.T) {
	const synced, unsynced = 5000, 3*pageBytes + 100
	old, now := strings.Repeat("o", synced), strings.Repeat("n", unsynced)
	for _, keep := range []Keep{KeepNothing, KeepPrefix, KeepTorn} {
		t.Run(keep.String(), func(t *testing.T) {
			r := open(t, 1)
			rng := rand.New(rand.NewPCG(1, uint64(keep)))
			sizes := map[int]bool{}
			for range 30 {
				path, other := filepath.Join(r.Dir(0), "log"), filepath.Join(r.Dir(0), "state")
				write(t, path, old, true)
				write(t, other, "old", true)
				f, err := os.OpenFile(path, os.O_WRONLY|os.O_APPEND, 0)
				if err != nil {
					t.Fatal(err)
				}
				if _, err := f.WriteString(now); err != nil {
					t.Fatal(err)
				}
				if err := f.Close(); err != nil {
					t.Fatal(err)
				}
				write(t, other+".new", "new and longer", false)
				if err := os.Rename(other+".new", other); err != nil {
					t.Fatal(err)
				}
				if err := r.CutKeeping(keep, rng, 0); err != nil {
					t.Fatal(err)
				}
				got, err := os.ReadFile(path)
				if err != nil {
					t.Fatal(err)
				}
				if len(got) < synced || !strings.HasPrefix(old+now, string(got)) {
					t.Fatalf("%d bytes are left, and not the first of those written", len(got))
				}
				if at := len(got); at != synced && at != synced+unsynced && at%sectorBytes != 0 {
					t.Errorf("%d bytes are left: part of a sector", at)
				}
				sizes[len(got)] = true
				if b, err := os.ReadFile(other); err != nil || string(b) != "old" {
					t.Errorf("the replaced file has %q, %v", b, err)
				}
			}
			switch torn := slices.ContainsFunc(slices.Collect(maps.Keys(sizes)), func(n int) bool { return n != synced && n != synced+unsynced && n%pageBytes != 0 }); {
			case keep == KeepNothing && len(sizes) != 1, keep != KeepNothing && len(sizes) < 3:
				t.Errorf("%d different sizes", len(sizes))
			case torn != (keep == KeepTorn):
				t.Errorf("a torn page: %t", torn)
			}
		})
	}
}

// child is the variable that makes this test's process one that makes a disk and waits.
const child = "POWERCUT_CHILD"

// TestRackLeftBehind kills a process that has a disk.
func TestRackLeftBehind(t *testing.T) {
	component.Need(t, Supported())
	if os.Getenv(child) != "" {
		r, err := New(1, OrderedData)
		if err != nil {
			t.Fatal(err)
		}
		fmt.Println("disk", r.dir)
		_, _ = bufio.NewReader(os.Stdin).ReadString('\n')
		return
	}
	cmd := exec.Command(os.Args[0], "-test.run=^TestRackLeftBehind$")
	cmd.Env = append(os.Environ(), child+"=1")
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	defer in.Close()
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	dir := ""
	for lines := bufio.NewScanner(out); dir == "" && lines.Scan(); {
		dir, _ = strings.CutPrefix(lines.Text(), "disk ")
		if !strings.HasPrefix(lines.Text(), "disk ") {
			dir = ""
		}
	}
	t.Run("a living process keeps its disk", func(t *testing.T) {
		open(t, 1)
		if len(mounts(t, dir)) != 1 {
			t.Errorf("the disk in %q is gone", dir)
		}
	})
	if err := cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = cmd.Wait()
	if len(mounts(t, dir)) != 1 {
		t.Fatalf("the killed process has left no disk in %q", dir)
	}
	t.Run("a killed process's disk is removed by the next", func(t *testing.T) {
		open(t, 1)
		if left := mounts(t, dir); left != nil {
			t.Errorf("still mounted: %q", left)
		}
		if _, err := os.Stat(dir); !os.IsNotExist(err) {
			t.Errorf("its directory: %v", err)
		}
	})
}

// TestOrder: a file is written and not synced, then another one is removed, as
// nats-server does with a stream's blocks. A sync of a third file takes ext4's journal to
// the disk, and the removal with it.
func TestOrder(t *testing.T) {
	for _, tt := range []struct {
		journal Journal
		kept    string // of the file that was not synced
	}{{OrderedData, ""}, {JournaledData, "newer"}} {
		t.Run(string(tt.journal), func(t *testing.T) {
			r := openWith(t, 1, tt.journal)
			in := func(name string) string { return filepath.Join(r.Dir(0), name) }
			write(t, in("older"), "older", true)
			write(t, in("newer"), "newer", false)
			if err := os.Remove(in("older")); err != nil {
				t.Fatal(err)
			}
			write(t, in("log"), "log", true)
			if err := r.Cut(0); err != nil {
				t.Fatal(err)
			}
			if got := names(t, r.Dir(0)); got != "log newer" {
				t.Errorf("after the cut there are %q, want log and newer", got)
			}
			if b, err := os.ReadFile(in("newer")); err != nil || string(b) != tt.kept {
				t.Errorf("the file that was not synced holds %q (%v), want %q", b, err, tt.kept)
			}
		})
	}
}
