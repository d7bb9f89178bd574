package main

import (
	"path/filepath"
	"strings"
	"testing"

	"github.com/muster-dev/muster/internal/command"
	"github.com/muster-dev/muster/internal/component"
)

// TestMixedVersion has the binary of the previous schema, built from the history, and
// this one share a group, in both directions and in a rolling update.
func TestMixedVersion(t *testing.T) {
	previous := filepath.Join(component.PreviousMuster().Fetch(t), "muster")
	t.Setenv(asMuster, "1")
	for name, args := range map[string][]string{
		"one of this version joins, then a rolling update": nil,
		"one of the previous version joins":                {"--case", "previous-joins"},
	} {
		t.Run(name, func(t *testing.T) {
			r := hold(t, append([]string{"up", "--scenario", "mixed-version", "--previous", previous, "--defenders", "4", "--chambers", "48", "--slots", "24"}, args...)...)
			seen := map[string]string{}
			for _, c := range r.Checks {
				seen[c.Name] = c.Got
			}
			for _, want := range []string{"slots that are stuck", "lost", "applied twice, changed, or of nothing published", "out of order"} {
				if _, ok := seen[want]; !ok {
					t.Errorf("the report lacks check %q", want)
				}
			}
			if got := seen["the other version's worker"]; args == nil && got != "joined" || args != nil && !strings.Contains(got, "it was written by a newer version") {
				t.Errorf("the other version's worker: %s", got)
			}
		})
	}
}

func TestPreviousIsAskedFor(t *testing.T) {
	t.Parallel()
	for _, args := range [][]string{{"up", "--scenario", "mixed-version"}, {"up", "--scenario", "scale-up", "--previous", "x"},
		{"up", "--scenario", "mixed-version", "--previous", "/nowhere/muster"}} {
		code, _, stderr := muster(args...)
		if code != command.ExitUsage || !strings.Contains(stderr, "--previous") {
			t.Errorf("%v: exit code %d: %s", args, code, stderr)
		}
	}
}
