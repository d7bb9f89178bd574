package defender

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/muster-dev/muster/defender/uchart"
)

// TestRowsThatWereHandedOutStay: the newest rows are handed out without a copy, so
// what is added later must not show in them, and what they take is counted right.
func TestRowsThatWereHandedOutStay(t *testing.T) {
	t.Parallel()
	const limit = 20
	c := newCache(nil, limit, 1<<30)
	e := c.entry(Chamber{Tool: "tool1", Name: "chamber1"})
	e.loaded, e.complete, e.recipes = true, true, map[string][]UChart{}
	row := func(recipe string, n int) UChart {
		end := time.Unix(int64(1000+n), 0)
		u := UChart{Context: ContextRef{ID: fmt.Sprintf("run%03d", n), Recipe: recipe, End: end}, Chart: &uchart.Chart{SVIDs: make([]string, n%7)}}
		u.Verdict.Faults = make([]string, n%3)
		return u
	}
	names := func(rows []UChart) []string {
		var ids []string
		for i := range rows {
			ids = append(ids, rows[i].Context.ID)
		}
		return ids
	}
	type taken struct {
		rows []UChart
		ids  []string
	}
	var out []taken
	for n := range 5 * limit {
		c.append(e, row("etch", n))
		if n%4 == 0 {
			c.append(e, row("clean", n))
		}
		rows := slices.Clip(e.recipes["etch"])
		out = append(out, taken{rows, names(rows)})
		if want := min(n+1, limit); len(rows) != want || rows[len(rows)-1].Context.ID != fmt.Sprintf("run%03d", n) {
			t.Fatalf("after run %d there are %v, want the newest %d", n, names(rows), want)
		}
		counted := e.size
		if e.weigh(); e.size != counted {
			t.Fatalf("after run %d %d bytes are counted, want %d", n, counted, e.size)
		}
	}
	for i, x := range out {
		if !slices.Equal(names(x.rows), x.ids) {
			t.Errorf("what was handed out after run %d has changed: %v, was %v", i, names(x.rows), x.ids)
		}
	}
}
