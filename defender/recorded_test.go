package defender_test

import (
	"math"
	"os"
	"path/filepath"
	"sort"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/muster-dev/muster/defender"
	"github.com/muster-dev/muster/defender/sqlite"
	"github.com/muster-dev/muster/defender/trace"
	"github.com/muster-dev/muster/defender/uchart"
	"github.com/muster-dev/muster/internal/realdata"
	"github.com/muster-dev/muster/tchart"
)

// TestRecordedWafersThroughTheWholePath takes each recorded wafer from CSV
// through T-chart, store, U-chart and store, and compares what is read back with
// statistics computed from the text of the CSV by the textbook's formulas.
func TestRecordedWafersThroughTheWholePath(t *testing.T) {
	t.Parallel()
	path := realdata.Path(t, "etch/lam9600_machine.csv")
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	s, err := sqlite.Open(t.Context(), sqlite.Config{Path: filepath.Join(t.TempDir(), "m.db")})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	refs := processAll(t, s, string(text))

	naive := readNaively(string(text))
	if len(naive) != len(refs) || len(refs) != 86 {
		t.Fatalf("%d wafers processed, %d read naively, want 86", len(refs), len(naive))
	}
	compared := 0
	for _, ref := range refs {
		u, err := s.UChart(t.Context(), ref.Chamber, ref.ID)
		if err != nil {
			t.Fatal(err)
		}
		compared += compare(t, ref.ID, u.Chart, naive[ref.ID])
	}
	t.Logf("%d wafers, %d statistics agree", len(refs), compared)
}

// processAll does what a worker does, in the order of the wafers' names.
func processAll(t *testing.T, s defender.Store, text string) []defender.ContextRef {
	t.Helper()
	r, err := trace.NewReader(strings.NewReader(text), "lam9600_machine.csv")
	if err != nil {
		t.Fatal(err)
	}
	wafers := map[string]*trace.Wafer{}
	var names []string
	for w, err := range r.All() {
		if err != nil {
			t.Fatal(err)
		}
		wafers[w.Trace.Context] = w
		names = append(names, w.Trace.Context)
	}
	sort.Strings(names)
	start := time.Date(1995, 1, 1, 0, 0, 0, 0, time.UTC)
	fence := defender.Fence{MapVersion: 1, ClaimRevision: 1}
	var refs []defender.ContextRef
	for i, name := range names {
		w := wafers[name]
		ref := defender.ContextRef{
			Chamber: defender.Chamber{Tool: "lam9600", Name: "experiment" + w.Experiment}, ID: name, Recipe: w.Trace.Recipe, Wafer: w.Trace.Wafer,
			Start: start.Add(time.Duration(i) * 5 * time.Minute), End: start.Add(time.Duration(i)*5*time.Minute + 2*time.Minute),
		}
		refs = append(refs, ref)
		blob, err := tchart.Encode(&w.Trace)
		if err != nil {
			t.Fatal(err)
		}
		expires := ref.End.Add(1 << 60)
		if err := s.PutTChart(t.Context(), ref.TChart(), blob, expires); err != nil {
			t.Fatal(err)
		}
		for _, stored := range []bool{true, false} { // and once more, as after a lost ack
			out, err := s.Commit(t.Context(), fence, process(t, s, ref, expires))
			if err != nil || out != (defender.CommitOutcome{Stored: stored, Identical: true}) {
				t.Fatalf("%s: Commit = %+v, %v, want stored %t and identical", name, out, err, stored)
			}
		}
	}
	return refs
}

func process(t *testing.T, s defender.Store, ref defender.ContextRef, expires time.Time) defender.Result {
	t.Helper()
	history, err := s.History(t.Context(), defender.HistoryQuery{Chamber: ref.Chamber, Recipe: ref.Recipe, Before: ref.Position(), Limit: 50})
	if err != nil {
		t.Fatal(err)
	}
	blob, err := s.TChart(t.Context(), ref.TChart())
	if err != nil {
		t.Fatal(err)
	}
	tr, err := tchart.Decode(blob)
	if err != nil {
		t.Fatal(err)
	}
	chart, err := uchart.Compute(tr)
	if err != nil {
		t.Fatal(err)
	}
	return defender.NewResult(ref, chart, uchart.Judge(defender.Points(history), chart, uchart.Policy{}), expires)
}

// naiveSamples are the times and values of one SVID in one step.
type naiveSamples struct{ t, x []float64 }

// readNaively returns samples by wafer, SVID and step. A row before the one
// above it, which is the first of the next wafer, is left out.
func readNaively(text string) map[string]map[string]map[int]*naiveSamples {
	lines := strings.Split(strings.TrimSpace(text), "\n")
	names := strings.Split(strings.TrimSpace(lines[0]), ",")
	wafers := map[string]map[string]map[int]*naiveSamples{}
	latest := map[string]float64{}
	for _, line := range lines[1:] {
		f := strings.Split(strings.TrimSpace(line), ",")
		wafer := f[2]
		now, _ := strconv.ParseFloat(f[4], 64)
		step, _ := strconv.Atoi(f[5])
		if wafers[wafer] == nil {
			wafers[wafer] = map[string]map[int]*naiveSamples{}
			latest[wafer] = now
		}
		if now < latest[wafer] {
			continue
		}
		latest[wafer] = now
		for i := 6; i < len(f); i++ {
			if wafers[wafer][names[i]] == nil {
				wafers[wafer][names[i]] = map[int]*naiveSamples{}
			}
			if wafers[wafer][names[i]][step] == nil {
				wafers[wafer][names[i]][step] = &naiveSamples{}
			}
			s := wafers[wafer][names[i]][step]
			v, _ := strconv.ParseFloat(f[i], 64)
			s.t, s.x = append(s.t, now), append(s.x, v)
		}
	}
	return wafers
}

// statistics are the textbook's, in two passes; NaN where there is none.
func (s *naiveSamples) statistics() [uchart.NumStatistics]float64 {
	n := float64(len(s.x))
	meanX, meanT := 0.0, 0.0
	low, high := math.Inf(1), math.Inf(-1)
	for i := range s.x {
		meanX += s.x[i] / n
		meanT += s.t[i] / n
		low, high = math.Min(low, s.x[i]), math.Max(high, s.x[i])
	}
	sxx, stt, sxt, area := 0.0, 0.0, 0.0, 0.0
	for i := range s.x {
		sxx += (s.x[i] - meanX) * (s.x[i] - meanX)
		stt += (s.t[i] - meanT) * (s.t[i] - meanT)
		sxt += (s.x[i] - meanX) * (s.t[i] - meanT)
		if i > 0 {
			area += (s.t[i] - s.t[i-1]) * (s.x[i] + s.x[i-1]) / 2
		}
	}
	sd, slope := math.Sqrt(sxx/(n-1)), sxt/stt
	if n < 2 {
		sd, slope, area = math.NaN(), math.NaN(), math.NaN()
	}
	return [...]float64{n, meanX, sd, low, high, high - low, slope, area}
}

func compare(t *testing.T, wafer string, chart *uchart.Chart, naive map[string]map[int]*naiveSamples) int {
	t.Helper()
	compared := 0
	for svid, name := range chart.SVIDs {
		if len(chart.Steps) != len(naive[name]) {
			t.Fatalf("%s: steps are %v, naively there are %d", wafer, chart.Steps, len(naive[name]))
		}
		for step, number := range chart.Steps {
			want := naive[name][int(number)].statistics()
			for s := range uchart.Statistic(uchart.NumStatistics) {
				got, ok := chart.Value(svid, step, s)
				switch {
				case ok == math.IsNaN(want[s]):
					t.Errorf("%s, %s, step %d: %s is valid: %t, naively %v", wafer, name, number, s, ok, want[s])
				case ok && math.Abs(got-want[s]) > tolerance(s, want):
					t.Errorf("%s, %s, step %d: %s is %v, naively %v", wafer, name, number, s, got, want[s])
				}
				compared++
			}
		}
	}
	return compared
}

// tolerance is 1e-9 of the value. The deviation and slope of a constant are
// nothing but the naive mean's rounding, so for those there is a little more.
func tolerance(s uchart.Statistic, want [uchart.NumStatistics]float64) float64 {
	tolerance := 1e-9 * math.Abs(want[s])
	if want[uchart.Range] == 0 && (s == uchart.StdDev || s == uchart.Slope) {
		tolerance += 1e-12 * math.Abs(want[uchart.Mean])
	}
	return tolerance
}
