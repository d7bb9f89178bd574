package defender_test

import (
	"fmt"
	"math"
	"math/rand/v2"
	"testing"

	"gonum.org/v1/gonum/stat"

	"github.com/muster-dev/muster/defender/trace"
	"github.com/muster-dev/muster/defender/uchart"
)

// byDefault is the default strategy but for a shorter Phase I, so that fewer wafers do.
const byDefault = `schema: 1
version: 1
strategies: [{name: default, univariate: {phase1: {runs: 36}}}]
`

// TestDependentRuns has wafers that depend on those before them: a verdict then rests on
// what was expected by the newest of these. Every defender has to expect the same, whether it
// has judged all of them, took over in the middle, or reads each history from the store.
func TestDependentRuns(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		name string
		lot  int     // wafers of a lot, 0 for none
		phi  float64 // of levels from wafer to wafer
		kind uchart.CourseKind
	}{
		{name: "in_lots_are_judged_alike_by_every_defender", lot: 12, kind: uchart.InLots},
		{name: "that_are_autocorrelated_are_judged_alike_by_every_defender", phi: 0.7, kind: uchart.Autoregressive},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			g := trace.Generator{Seed: 9}
			const wafers = 90
			offsets := dependent(test.lot, test.phi, wafers, len(g.Wafer(0).Trace.SVIDs))
			one, _ := everyWay(t, byDefault, wafers, wafers, func(i int) *trace.Wafer {
				w := g.Wafer(i)
				for s, column := range w.Trace.Values {
					by := 2 * offsets[i][s] * stat.StdDev(column, nil)
					for k := range column {
						column[k] += by
					}
				}
				w.Trace.Lot = ""
				if test.lot > 0 {
					w.Trace.Lot = fmt.Sprint("lot ", i/test.lot)
				}
				return w
			})
			list, err := one.store.UCharts(t.Context(), etcher, 1000)
			if err != nil {
				t.Fatal(err)
			}
			single, together := 0, 0
			for _, u := range list {
				single += kinds(u.Verdict.Courses, test.kind)
				if m := u.Verdict.Multivariate; m != nil {
					together += kinds(m.Courses, test.kind)
				}
			}
			if single < 40 || together < 30 {
				t.Errorf("%d verdicts by single charts and %d by all together have the course %q: the comparison says little; the last is %+v, %+v", single, together, test.kind, list[0].Verdict.Courses, list[0].Verdict.State)
			}
		})
	}
}

// dependent returns offsets of sensors in wafers, in standard deviations.
func dependent(lot int, phi float64, wafers, sensors int) [][]float64 {
	rng := rand.New(rand.NewPCG(4, 4))
	out := make([][]float64, wafers)
	for i := range out {
		out[i] = make([]float64, sensors)
		for s := range sensors {
			switch z := rng.NormFloat64(); {
			case i == 0 || lot > 0 && i%lot == 0:
				out[i][s] = z
			case lot > 0:
				out[i][s] = out[i-1][s]
			default:
				out[i][s] = phi*out[i-1][s] + math.Sqrt(1-phi*phi)*z
			}
		}
	}
	return out
}

// kinds returns 1 if a course of the kind is there, else 0.
func kinds(courses []uchart.Course, kind uchart.CourseKind) int {
	for _, c := range courses {
		if c.Kind == kind {
			return 1
		}
	}
	return 0
}
