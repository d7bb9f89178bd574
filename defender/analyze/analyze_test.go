package analyze_test

import (
	"bytes"
	"context"
	"encoding/xml"
	"errors"
	"fmt"
	"io"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"github.com/muster-dev/muster/defender/analyze"
	"github.com/muster-dev/muster/defender/strategy"
	"github.com/muster-dev/muster/defender/trace"
	"github.com/muster-dev/muster/defender/uchart"
	"github.com/muster-dev/muster/internal/realdata"
)

// file writes generated wafers, the last of them faulty, as a trace file.
func file(t *testing.T, normal int, svid string) string {
	t.Helper()
	g := trace.Generator{Seed: 3}
	var b strings.Builder
	write := func(w *trace.Wafer, name string) {
		if b.Len() == 0 {
			fmt.Fprintf(&b, "set,wafer,name,fault,Time,Step Number,%s,%s\n", svid, strings.Join(w.Trace.SVIDs[1:], ","))
		}
		for i := range w.Trace.Time {
			fmt.Fprintf(&b, "s,1,%s,%s,%v,%d", name, w.Fault, w.Trace.Time[i], w.Trace.Step[i])
			for _, column := range w.Trace.Values {
				if math.IsNaN(column[i]) {
					b.WriteString(",")
				} else {
					fmt.Fprintf(&b, ",%v", column[i])
				}
			}
			b.WriteString("\n")
		}
	}
	for i := range normal {
		write(g.Wafer(i), fmt.Sprintf("wafer%02d", i))
	}
	faulty, err := g.FaultyWafer(normal, trace.Faults()[0])
	if err != nil {
		t.Fatal(err)
	}
	write(faulty, "x-faulty")
	name := filepath.Join(t.TempDir(), "gen.csv")
	if err := os.WriteFile(name, []byte(b.String()), 0o644); err != nil {
		t.Fatal(err)
	}
	return name
}

func TestAFaultyRunIsFoundAndShown(t *testing.T) {
	t.Parallel()
	r, err := files(t.Context(), strategy.Default(), []string{file(t, 25, `"<script>alert(1)</script>"`)})
	if err != nil {
		t.Fatal(err)
	}
	if c := r.Total; c.Runs != 26 || c.Faults != 1 || c.Detected != 1 || c.Learning != 10 || c.False > 1 {
		t.Errorf("counts are %+v", c)
	}
	var page bytes.Buffer
	if err := r.WriteHTML(&page); err != nil {
		t.Fatal(err)
	}
	text := page.String()
	for _, want := range []string{"x-faulty", "Hotelling", "<svg", "prefers-color-scheme: dark", "Contributions to"} {
		if !strings.Contains(text, want) {
			t.Errorf("the report has no %q", want)
		}
	}
	for _, bad := range []string{"<script", "src=", "href=", "url(", "NaN", "ZgotmplZ"} {
		if strings.Contains(text, bad) {
			t.Errorf("the report has %q", bad)
		}
	}
	if n := strings.Count(text, "http"); n != strings.Count(text, `xmlns="http://www.w3.org/2000/svg"`) {
		t.Error("the report refers to other places")
	}
	// Each drawing is well-formed by itself.
	for _, part := range strings.Split(text, "<svg")[1:] {
		d := xml.NewDecoder(strings.NewReader("<svg" + part[:strings.Index(part, "</svg>")+6]))
		for {
			if _, err := d.Token(); errors.Is(err, io.EOF) {
				break
			} else if err != nil {
				t.Fatalf("a drawing is not well-formed: %v", err)
			}
		}
	}
}

func TestWhatIsWrongWithFilesIsToldAtOnce(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	bad, empty := filepath.Join(dir, "bad.csv"), filepath.Join(dir, "empty.csv")
	if err := errors.Join(os.WriteFile(bad, []byte("set,wafer,name,fault,Time,Step Number,a\ns,1,w,,x,1,y\n"), 0o644), os.WriteFile(empty, nil, 0o644)); err != nil {
		t.Fatal(err)
	}
	_, err := files(t.Context(), strategy.Default(), []string{bad, empty, filepath.Join(dir, "missing.csv")})
	for _, want := range []string{"bad.csv:2", "empty.csv", "missing.csv"} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("the error doesn't tell of %s: %v", want, err)
		}
	}
}

// TestRecordedFaultsByADefenderThatSawNormalWafersFirst analyzes the recorded
// etches in the order of their file: normal wafers, then those with faults, each
// judged by the ones before it with the default strategy.
func TestRecordedFaultsByADefenderThatSawNormalWafersFirst(t *testing.T) {
	t.Parallel()
	r, err := files(t.Context(), strategy.Default(), []string{realdata.Path(t, "etch/lam9600_machine.csv")})
	if err != nil {
		t.Fatal(err)
	}
	c := r.Total
	t.Logf("%d of %d faults found, %d false alarms of %d judged normal wafers, %d learning, %d truncated", c.Detected, c.Faults, c.False, c.Normal+c.Alarms-c.Faults, c.Learning, c.BadData)
	if c.Detected < 14 || c.Faults != 14 || c.False > 1 || c.BadData != 2 {
		t.Errorf("counts are %+v, want 14 of 14 faults, at most 1 false alarm, 2 truncated", c)
	}
}

// csvOf is a file with runs of 40 samples and five sensors, of which A rests and C is 30
// sigma out in the last run. The columns before the sensors are what head returns for a run and sample,
// under the names.
func csvOf(t *testing.T, file, names string, seed uint64, runs int, head func(run, i int) string) string {
	t.Helper()
	rng := rand.New(rand.NewPCG(seed, 9))
	var b strings.Builder
	b.WriteString(names + ",A,B,C,D,E\n")
	var level [5]float64
	for k := range level {
		level[k] = 500 + 50*rng.NormFloat64()
	}
	for run := range runs {
		var own [5]float64
		for k := range own {
			own[k] = level[k] + rng.NormFloat64()
		}
		if run == runs-1 {
			own[2] += 30
		}
		for i := range 40 {
			b.WriteString(head(run, i))
			b.WriteString(",751")
			for _, x := range own[1:] {
				fmt.Fprintf(&b, ",%.2f", x+2*rng.NormFloat64())
			}
			b.WriteString("\n")
		}
	}
	name := filepath.Join(t.TempDir(), file)
	if err := os.WriteFile(name, []byte(b.String()), 0o644); err != nil {
		t.Fatal(err)
	}
	return name
}

const plainNames = "name,Time,Step Number"

func plain(run, i int) string { return fmt.Sprintf("W%02d,%d,%d", run+1, i, 1+i/20) }

// TestGroups: runs are judged whatever they are called, and when none is, that is told.
func TestGroups(t *testing.T) {
	t.Parallel()
	last := func(g *analyze.Group) *analyze.Run { return g.Runs[len(g.Runs)-1] }
	t.Run("are-files-whatever-runs-are-called", func(t *testing.T) {
		t.Parallel()
		r, err := files(t.Context(), strategy.Default(), []string{csvOf(t, "a.csv", plainNames, 1, 40, plain)})
		if err != nil {
			t.Fatal(err)
		}
		if c := r.Total; len(r.Groups) != 1 || c.Learning != 10 || c.Runs != 40 || last(r.Groups[0]).Verdict.State != uchart.Alarm || r.Groups[0].Note != "" {
			t.Errorf("%d groups with %+v, the first %+v", len(r.Groups), c, r.Groups[0])
		}
	})
	t.Run("are-what-columns-say-over-all-files", func(t *testing.T) {
		t.Parallel()
		const names = "ts,tool,recipe,run,step,lot"
		of := func(tool string, offset int) func(run, i int) string {
			return func(run, i int) string {
				return fmt.Sprintf("2026-11-01T10:00:%02dZ,%s,ox,run%d,%d,lot%d", i, tool, run+offset, 1+i/20, run)
			}
		}
		files := []string{csvOf(t, "1.csv", names, 3, 30, of("etch1:a", 0)), csvOf(t, "2.csv", names, 4, 30, of("etch1:b", 0)), csvOf(t, "3.csv", names, 4, 30, of("etch1:b", 0))}
		c := trace.Columns{Run: "run", Time: "ts", Step: "step", Chamber: "tool", Recipe: "recipe", Ignore: []string{"lot"}}
		set, err := strategy.Parse([]byte("schema: 1\nversion: 1\nstrategies: [{name: ours, match: {chamber: \"etch1:*\", recipe: ox}}]\n"), "x")
		if err != nil {
			t.Fatal(err)
		}
		r, err := (&analyze.Analysis{Strategies: set, Columns: c, Keep: analyze.KeepAll}).Files(t.Context(), files)
		if err != nil {
			t.Fatal(err)
		}
		if len(r.Groups) != 2 || len(r.Groups[0].Runs) != 30 || len(r.Groups[1].Runs) != 60 {
			t.Fatalf("there are %d groups: %+v", len(r.Groups), r.Groups)
		}
		for _, g := range r.Groups {
			if run := last(g); run.Verdict.State != uchart.Alarm || run.Verdict.Strategy != "ours@1" {
				t.Errorf("the last run of %s is %+v", g.Name, run.Verdict)
			}
		}
	})
	t.Run("without-a-judged-run-say-why", func(t *testing.T) {
		t.Parallel()
		r, err := files(t.Context(), strategy.Default(), []string{csvOf(t, "few.csv", plainNames, 1, 7, plain)})
		if err != nil {
			t.Fatal(err)
		}
		if note := r.Groups[0].Note; !strings.Contains(note, "7 runs") || !strings.Contains(note, "at least 10") || !strings.Contains(note, "default") {
			t.Errorf("the note is %q", note)
		}
		var page bytes.Buffer
		if err := r.WriteHTML(&page); err != nil || !strings.Contains(page.String(), "at least 10") {
			t.Errorf("the report doesn't say so: %v", err)
		}
	})
	t.Run("are-judged-alone-whatever-else-is-analyzed", func(t *testing.T) {
		t.Parallel()
		a, b := csvOf(t, "chamberA.csv", plainNames, 5, 60, plain), csvOf(t, "chamberB.csv", plainNames, 6, 60, plain)
		both, err := files(t.Context(), strategy.Default(), []string{a, b})
		if err != nil {
			t.Fatal(err)
		}
		alone, err := files(t.Context(), strategy.Default(), []string{b})
		if err != nil {
			t.Fatal(err)
		}
		for i, run := range alone.Groups[0].Runs {
			if got := both.Groups[1].Runs[i].Verdict; !reflect.DeepEqual(got, run.Verdict) {
				t.Fatalf("run %s of B is beside A\n%+v\nalone\n%+v", run.Context, got, run.Verdict)
			}
		}
	})
}

// files analyzes trace files whose columns have their default names.
func files(ctx context.Context, set *strategy.Set, names []string) (*analyze.Report, error) {
	return (&analyze.Analysis{Strategies: set, Keep: analyze.KeepAll}).Files(ctx, names)
}
