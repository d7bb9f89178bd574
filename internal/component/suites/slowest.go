package main

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"text/tabwriter"
)

// slowestShown is how many of the slowest tests the report lists.
const slowestShown = 15

// timed is a test with how long it took, in seconds. A test that ran in parallel with others
// took the time of those, too, which the cores gave them meanwhile.
type timed struct {
	pkg, name string
	seconds   float64
}

// slowest returns the tests that took longest, without subtests, whose time their parents have.
func (t *tally) slowest(most int) []timed {
	var all []timed
	for pkg, s := range t.packages {
		for name, x := range s.tests {
			if !strings.Contains(name, "/") {
				all = append(all, timed{pkg, name, x.seconds})
			}
		}
	}

	slices.SortFunc(all, func(a, b timed) int {
		return cmp.Or(cmp.Compare(b.seconds, a.seconds), cmp.Compare(a.pkg, b.pkg), cmp.Compare(a.name, b.name))
	})
	return all[:min(most, len(all))]
}

// reportSlowest lists the slowest tests: they are where a run that takes too long is shortened.
func (t *tally) reportSlowest() error {
	w := tabwriter.NewWriter(t.out, 0, 8, 2, ' ', 0)
	_, _ = fmt.Fprintln(w, "\nslowest tests\tpackage\tseconds")
	for _, x := range t.slowest(slowestShown) {
		_, _ = fmt.Fprintf(w, "%s\t%s\t%.1f\n", x.name, x.pkg, x.seconds)
	}
	return w.Flush()
}
