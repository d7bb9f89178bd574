package export_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"testing"
	"time"

	"github.com/muster-dev/muster/defender"
	"github.com/muster-dev/muster/defender/export"
	"github.com/muster-dev/muster/defender/sqlite"
	"github.com/muster-dev/muster/defender/uchart"
	"github.com/muster-dev/muster/internal/component"
	"github.com/muster-dev/muster/tchart"
)

var (
	chamber = defender.Chamber{Tool: "etch1", Name: "a"}
	begin   = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
)

// store returns a store with n runs, of which the T-chart of the first has expired.
func store(t *testing.T, n int) defender.Store {
	t.Helper()
	s, err := sqlite.Open(t.Context(), sqlite.Config{Path: filepath.Join(t.TempDir(), "fdc.db")})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close() })
	if err := s.RegisterChambers(t.Context(), []defender.ChamberInfo{{Chamber: chamber, Weight: 1}}); err != nil {
		t.Fatal(err)
	}
	var history []uchart.Point
	for i := range n {
		put(t, s, i, &history)
	}
	return s
}

func put(t *testing.T, s defender.Store, i int, history *[]uchart.Point) {
	t.Helper()
	start := begin.Add(time.Duration(i) * time.Hour)
	ref := defender.ContextRef{Chamber: chamber, ID: fmt.Sprintf("r%02d", i), Recipe: "etch", Lot: "L1", Start: start, End: start.Add(time.Minute)}
	trace := &tchart.Trace{Tool: chamber.Tool, Chamber: chamber.Name, Context: ref.ID, Recipe: ref.Recipe, Lot: ref.Lot,
		SVIDs: []string{"Pressure", "Power"}, Values: make([][]float64, 2)}
	for row := range 60 {
		trace.Time = append(trace.Time, float64(row))
		trace.Step = append(trace.Step, int32(1+row/30))
		trace.Values[0] = append(trace.Values[0], 1200+math.Sin(float64(row*7+i*3)))
		trace.Values[1] = append(trace.Values[1], 350+math.Cos(float64(row*5+i))+float64(i/19)*100) // the last run is a fault
	}
	trace.Values[0][5] = math.NaN()
	blob, err := tchart.Encode(trace)
	if err != nil {
		t.Fatal(err)
	}
	chart, err := uchart.Compute(trace)
	if err != nil {
		t.Fatal(err)
	}
	verdict := uchart.Judge(*history, chart, uchart.Policy{})
	if i > 0 {
		err = s.PutTChart(t.Context(), ref.TChart(), blob, time.Now().Add(time.Hour))
	}
	r := defender.NewResult(ref, chart, verdict, time.Now().Add(time.Hour))
	if _, commit := s.Commit(t.Context(), defender.Fence{}, r); errors.Join(err, commit) != nil {
		t.Fatal(err, commit)
	}
	*history = append(*history, uchart.NewPoint(ref.ID, chart, verdict))
}

// found is what testdata/read.py prints.
type found struct {
	Samples, Statistics, Missing, Alarms int
	Furthest                             float64
	Runs, States, Lots                   []string
	First                                string
}

// TestPandasAndDuckDBReadTheTables: what is exported is what is stored, read by programs that aren't ours.
func TestPandasAndDuckDBReadTheTables(t *testing.T) {
	t.Parallel()
	python := filepath.Join(component.Tables().Fetch(t), "python", "bin", "python")
	const runs = 20
	s, dir := store(t, runs), t.TempDir()
	written, expired, err := export.Run(t.Context(), s, export.Options{Runs: 100, Tables: export.Names(), Dir: dir})
	if err != nil || expired != 1 || len(written) != 4 {
		t.Fatalf("%+v, %d expired, %v", written, expired, err)
	}

	out, err := exec.CommandContext(t.Context(), python, filepath.Join("testdata", "read.py"), dir).Output()
	if failed := new(exec.ExitError); errors.As(err, &failed) {
		t.Fatalf("%v\n%s", err, failed.Stderr)
	}
	var got struct{ Pandas, DuckDB found }
	if err == nil {
		err = json.Unmarshal(out, &got)
	}
	if err != nil {
		t.Fatal(err)
	}

	charts, err := s.UCharts(t.Context(), chamber, runs)
	if err != nil {
		t.Fatal(err)
	}
	want := found{Samples: (runs - 1) * 120, Statistics: runs * 4, Missing: runs - 1, Lots: []string{"L1"}, First: "2026-03-01T12:00:00+00:00"}
	for i := range charts {
		u := charts[len(charts)-1-i]
		want.Runs = append(want.Runs, u.Context.ID)
		want.States = append(want.States, u.Verdict.State.String())
		if u.Verdict.Flagged() {
			want.Alarms++
		}
	}
	if want.Alarms == 0 {
		t.Fatal("no run is flagged: the test has no alarm to look for")
	}
	for _, f := range []found{got.Pandas, got.DuckDB} {
		if f.Furthest > 1e-9 {
			t.Errorf("means of statistics and of traces differ by up to %v", f.Furthest)
		}
	}
	got.Pandas.Furthest, got.DuckDB.Furthest = 0, 0
	if !reflect.DeepEqual(got.Pandas, want) {
		t.Errorf("pandas reads\n%+v, want\n%+v", got.Pandas, want)
	}
	duck := found{Samples: want.Samples, Missing: want.Missing, Alarms: want.Alarms}
	if !reflect.DeepEqual(got.DuckDB, duck) {
		t.Errorf("DuckDB reads\n%+v, want\n%+v", got.DuckDB, duck)
	}
}

// TestAFailedExportLeavesNothing: neither a part of a file nor its remains.
func TestAFailedExportLeavesNothing(t *testing.T) {
	t.Parallel()
	s, dir := store(t, 3), t.TempDir()
	key := defender.TChartKey{Chamber: chamber, Context: "r01"}
	if err := s.PutTChart(t.Context(), key, []byte("no T-chart"), time.Now().Add(time.Hour)); err != nil {
		t.Fatal(err)
	}
	if _, _, err := export.Run(t.Context(), s, export.Options{Runs: 100, Tables: []string{"traces"}, Dir: dir}); !errors.Is(err, tchart.ErrCorrupt) {
		t.Errorf("the error is %v", err)
	}
	if files, err := os.ReadDir(dir); err != nil || len(files) != 0 {
		t.Errorf("it has left %v, %v", files, err)
	}
}
