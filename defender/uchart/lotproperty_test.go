package uchart_test

import (
	"fmt"
	"math/rand/v2"
	"regexp"
	"testing"

	"github.com/muster-dev/muster/defender/uchart"
)

// inLots judges charts as runs of lots, by a judger that may have judged others.
func inLots(t *testing.T, j *uchart.Judger, charts []*uchart.Chart, lot func(run int) string) []string {
	t.Helper()
	var out []string
	s := stream{name: numbered}
	for run, chart := range charts {
		v := s.next(func(h []uchart.Point, c *uchart.Chart) uchart.Verdict { return j.JudgeLot(h, lot(run), c) }, chart)
		out = append(out, text(t, v))
	}
	return out
}

// TestVerdictOfLots judges runs that depend on each other by wafer lots.
func TestVerdictOfLots(t *testing.T) {
	t.Parallel()
	rng := rand.New(rand.NewPCG(8, 8))
	var offsets []float64
	for range 20 {
		offsets = append(offsets, 4*rng.NormFloat64())
	}
	charts := sampled(21, 120, func(run int) float64 { return offsets[run/10] })
	tens := func(run int) string { return fmt.Sprint("lot ", run/10) }
	lotName := regexp.MustCompile(`"lot":"[^"]*",`)

	for name, policy := range propertyPolicies() {
		want := inLots(t, &uchart.Judger{Policy: policy}, charts, tens)
		t.Run("does_not_depend_on_names_of_lots/"+name, func(t *testing.T) {
			t.Parallel()
			got := inLots(t, &uchart.Judger{Policy: policy}, charts, func(run int) string { return fmt.Sprintf("%x", 99-run/10) })
			for run := range got {
				if a, b := lotName.ReplaceAllString(got[run], ""), lotName.ReplaceAllString(want[run], ""); a != b {
					t.Fatalf("run %d: with other names of lots it is\n%.300s\nwas\n%.300s", run, a, b)
				}
			}
		})
		t.Run("does_not_depend_on_lots_of_other_chambers/"+name, func(t *testing.T) {
			t.Parallel()
			shared := &uchart.Judger{Policy: policy}
			// Another chamber has the same values in other lots.
			inLots(t, shared, charts, func(run int) string { return fmt.Sprint("lot ", (run+3)/14) })
			got := inLots(t, shared, charts, tens)
			for run := range got {
				if got[run] != want[run] {
					t.Fatalf("run %d: beside a chamber with other lots it is\n%.400s\nalone\n%.400s", run, got[run], want[run])
				}
			}
		})
	}
}
