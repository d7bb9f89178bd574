package partition

import (
	"testing"
	"time"

	"github.com/muster-dev/muster/partition/internal/record"
)

func TestNameTable(t *testing.T) {
	t.Parallel()
	start := time.Unix(1000, 0)
	after := func(string) time.Duration { return time.Second }

	t.Run("a name without a lease is its holder's for a while", func(t *testing.T) {
		t.Parallel()
		var n nameTable
		n.list([]string{"w-0", "w-1"})
		n.listLeases([]string{"w-0"}, start)
		n.list([]string{"w-0", "w-1"})
		if n.abandoned("w-1", after) {
			t.Error("abandoned by an old list of leases")
		}
		n.listLeases([]string{"w-0"}, start.Add(999*time.Millisecond))
		if n.abandoned("w-1", after) || n.live(after) != 2 {
			t.Error("abandoned too soon")
		}
		n.listLeases([]string{"w-0"}, start.Add(time.Second))
		if !n.abandoned("w-1", after) || n.live(after) != 1 {
			t.Error("its holder is not taken for dead by a list a second after the first one without its lease")
		}
	})
	t.Run("a name that another worker has just claimed is not abandoned", func(t *testing.T) {
		t.Parallel()
		var n nameTable
		for _, at := range []time.Time{start, start.Add(time.Second)} {
			n.list([]string{"w-0", "w-1"})
			n.listLeases([]string{"w-0"}, at)
		}
		n.read("w-1", false)
		n.takenBefore("w-1")
		if n.abandoned("w-1", after) || n.live(after) != 2 {
			t.Error("it is taken for abandoned, since it was before")
		}
	})
	t.Run("a name that seems to be free is read first, the lowest before others", func(t *testing.T) {
		t.Parallel()
		n := nameTable{released: map[string]bool{"w-10": true, "w-9": true}}
		n.list([]string{"w-8", "w-9", "w-10"})
		if got := n.unsure(after); got != "w-9" {
			t.Fatalf("%q is read first, want w-9", got)
		}
		n.read("w-9", true)
		if got := n.unsure(after); got != "w-10" {
			t.Fatalf("%q is read next, want w-10", got)
		}
		n.read("w-10", false)
		if got := n.unsure(after); got != "" || n.taken["w-10"] || !n.taken["w-9"] {
			t.Errorf("at the end %q is to be read; held: %v", got, n.taken)
		}
	})
	t.Run("of the names with slots that nobody holds, one that restarts is taken first", func(t *testing.T) {
		t.Parallel()
		a := &record.Assignment{Workers: []record.Process{{ID: "w-0", Claim: 1}, {ID: "w-1", Claim: 2}, {ID: "w-2", Claim: 3}, {ID: "w-3", Claim: 4}}, Owner: record.OwnerColumn{0, 1, 2}, Since: record.VersionColumn{1, 1, 1}, Restarting: map[int]bool{2: true}}
		var n nameTable
		n.list(nil)
		if got := n.vacancy(a); got != "w-2" {
			t.Errorf("%q, want w-2, which restarts", got)
		}
		n.list([]string{"w-2"})
		if got := n.vacancy(a); got != "w-0" {
			t.Errorf("%q, want w-0, the lowest", got)
		}
		n.list([]string{"w-0", "w-1", "w-2"})
		if got := n.vacancy(a); got != "" {
			t.Errorf("%q, want none: w-3 has no slots", got)
		}
	})
}
