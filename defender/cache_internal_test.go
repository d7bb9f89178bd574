package defender

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/muster-dev/muster/defender/uchart"
)

// TestHistoriesHoldNoReasons: what a verdict rests on stays in memory, and why it came
// out so does not; its caller still has the row.
func TestHistoriesHoldNoReasons(t *testing.T) {
	t.Parallel()
	c := newCache(nil, 10, 1<<30)
	e := c.entry(Chamber{Tool: "tool1", Name: "chamber1"})
	e.loaded, e.complete, e.recipes = true, true, map[string][]UChart{}
	u := UChart{Context: ContextRef{ID: "run1", Recipe: "etch", End: time.Unix(1, 0)}, Verdict: uchart.Verdict{State: uchart.Alarm, Charts: 9, Violated: 1,
		Limits: uchart.LimitsID{At: "run0"}, Standing: &uchart.Standing{Opened: "run1", Count: 1}, Frozen: &uchart.Baseline{Context: "run1"},
		Violations: make([]uchart.Violation, 1), Signals: make([]uchart.Signal, 1), Multivariate: &uchart.Multivariate{}, Faults: []string{"x"}}}
	c.append(e, u)
	v := e.recipes["etch"][0].Verdict
	if v.Violations != nil || v.Signals != nil || v.Multivariate != nil || v.Faults != nil {
		t.Errorf("reasons are held: %+v", v)
	}
	if !v.Flagged() || v.Charts != 9 || v.Violated != 1 || v.Limits.At != "run0" || v.Standing == nil || v.Frozen == nil {
		t.Errorf("what later verdicts rest on is missing: %+v", v)
	}
	if len(u.Verdict.Violations) != 1 || len(u.Verdict.Signals) != 1 || u.Verdict.Multivariate == nil || len(u.Verdict.Faults) != 1 {
		t.Errorf("who added it has lost it: %+v", u.Verdict)
	}
}

func TestChartsShareTheNamesThatAreTheSame(t *testing.T) {
	t.Parallel()
	c := newCache(nil, 10, 1<<30)
	e := c.entry(Chamber{Tool: "tool1", Name: "chamber1"})
	e.loaded, e.complete, e.recipes = true, true, map[string][]UChart{}
	for i, names := range [][]string{{"A", "B"}, {"A", "B"}, {"A", "C"}, {"A", "C"}} {
		c.append(e, UChart{Context: ContextRef{ID: fmt.Sprint(i), Recipe: "etch", End: time.Unix(int64(i), 0)}, Chart: &uchart.Chart{SVIDs: slices.Clone(names)}})
	}
	rows := e.recipes["etch"]
	for i, want := range []bool{true, false, true} {
		if same := &rows[i].Chart.SVIDs[0] == &rows[i+1].Chart.SVIDs[0]; same != want {
			t.Errorf("rows %d and %d share their names: %t, want %t", i, i+1, same, want)
		}
	}
	if got := rows[2].Chart.SVIDs; !slices.Equal(got, []string{"A", "C"}) {
		t.Errorf("names are %q", got)
	}
}

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
