package nodes_test

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/muster-dev/muster/nodes"
	"github.com/muster-dev/muster/nodes/sim"
)

var update = flag.Bool("update", false, "write the stories under testdata again")

// TestStories compares what happens in some scenarios, in order, with a text that reads like a story. A change of order is a change
// of what a crash can do, so it should be seen in a review.
func TestStories(t *testing.T) {
	all := scenarios()
	for _, name := range []string{"scale-up", "scale-up, Spot short", "partial join", "scale-down", "a drain that fails", "warning",
		"rebalance", "rebalance then warning", "orphans", "below the minimum"} {
		t.Run(name, func(t *testing.T) {
			sc := &all[slices.IndexFunc(all, func(sc scenario) bool { return sc.name == name })]
			got := story(perform(sc, schedule{}, nil, nil).stage)
			file := filepath.Join("testdata", "stories", strings.NewReplacer(" ", "-", ",", "").Replace(name)+".txt")
			if *update {
				if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
					t.Fatal(err)
				}
				if err := os.WriteFile(file, []byte(got), 0o644); err != nil {
					t.Fatal(err)
				}
			}
			want, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			if got != string(want) {
				t.Errorf("the story has changed; look at it, and run with -update if it is right:\n%s", got)
			}
		})
	}
}

// story tells a ledger, without the leases, claims and observations that every tick has.
func story(s *stage) string {
	var b strings.Builder
	b.WriteString("# " + s.sc.name + "\n")
	for _, e := range s.Ledger() {
		what := line(e)
		if what == "" {
			continue
		}
		fmt.Fprintf(&b, "%7.1fs  %s\n", e.At.Sub(start).Seconds(), what)
	}
	f := s.Fleet()
	fmt.Fprintf(&b, "   end    %d workers, %d available, %d pods pending\n", f.Alive, f.Available, f.Pending)
	return b.String()
}

func line(e sim.Entry) string {
	switch e.Kind {
	case sim.Written:
		return writtenLine(e)
	case sim.WrittenItem:
		if strings.Contains(e.Detail, "laim") {
			return ""
		}
		return fmt.Sprintf("  item %s: %s", e.Instance, e.Detail)
	case sim.Launched, sim.LaunchRefused:
		o := e.Request.Offering
		return strings.TrimSpace(fmt.Sprintf("%s %s in %s, %s, ordinal %d %s", e.Kind, o.Type, o.Zone, o.Market, e.Request.Ordinal, e.Instance))
	case sim.Evicted, sim.Warned:
		return fmt.Sprintf("%s %s: %s", e.Kind, e.Instance, e.Detail)
	case sim.RefusedWrite:
		return ""
	}
	return fmt.Sprintf("%s %s", e.Kind, e.Instance)
}

func writtenLine(e sim.Entry) string {
	r := e.After
	switch e.Detail {
	case "acquireLease", "releaseLease", "renewLease", "noteObservation":
		return ""
	case "beginScaleUp":
		return fmt.Sprintf("  record: beginScaleUp of %d", r.ScaleUpRequested)
	case "beginScaleDown":
		return fmt.Sprintf("  record: beginScaleDown of %v", r.ScaleDownTargetInstanceIDs)
	case "recordScaleUpInstances":
		return fmt.Sprintf("  record: recordScaleUpInstances, now %v", r.ScaleUpInstanceIDs)
	case "markTerminating":
		var marked []string
		for _, m := range r.Removals {
			if m.Phase == nodes.PhaseTerminating {
				marked = append(marked, m.InstanceID)
			}
		}
		return fmt.Sprintf("  record: markTerminating %v", marked)
	}
	return "  record: " + e.Detail
}
