package analyze_test

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/muster-dev/muster/defender/analyze"
	"github.com/muster-dev/muster/defender/strategy"
	"github.com/muster-dev/muster/defender/uchart"
	"github.com/muster-dev/muster/internal/realdata"
)

// TestKeepFigures: what is left out is not in the report.
func TestKeepFigures(t *testing.T) {
	t.Parallel()
	names := []string{file(t, 25, "a")}
	var pages [2]bytes.Buffer
	var kept [2]int
	for i, keep := range []analyze.Keep{analyze.KeepFigures, analyze.KeepAll} {
		r, err := (&analyze.Analysis{Strategies: strategy.Default(), Keep: keep}).Files(t.Context(), names)
		if err != nil {
			t.Fatal(err)
		}
		if err := r.WriteHTML(&pages[i]); err != nil {
			t.Fatal(err)
		}
		for _, run := range r.Groups[0].Runs {
			if m := run.Verdict.Multivariate; m != nil {
				kept[i] += len(m.By)
			}
		}
	}
	if !bytes.Equal(pages[0].Bytes(), pages[1].Bytes()) {
		t.Error("the pages differ")
	}
	if kept[0] >= kept[1] {
		t.Errorf("%d contributions are kept with figures, %d with everything", kept[0], kept[1])
	}
}

// TestFilesOfOneGroup: a second file of a group adds to its runs and changes no verdict before.
func TestFilesOfOneGroup(t *testing.T) {
	t.Parallel()
	one, two := file(t, 25, "a"), file(t, 25, "a")
	together, err := files(t.Context(), strategy.Default(), []string{one, two})
	if err != nil {
		t.Fatal(err)
	}
	alone, err := files(t.Context(), strategy.Default(), []string{one})
	if err != nil {
		t.Fatal(err)
	}
	reasons := func(g *analyze.Group) (all []string) {
		for _, run := range g.Runs {
			all = append(all, run.Context+" "+run.Verdict.State.String()+" "+run.Reason)
		}
		return all
	}
	// Files of one name are one group, in which the runs of the second follow those of the first.
	if got, want := reasons(together.Groups[0])[:26], reasons(alone.Groups[0]); !slices.Equal(got, want) {
		t.Errorf("judged %v, want %v", got, want)
	}
	if len(together.Groups) != 1 || together.Total.Runs != 52 {
		t.Errorf("%d groups, %+v", len(together.Groups), together.Total)
	}
}

// TestAFileThatChangesMeanwhile: a report never shows traces of other runs than were judged.
func TestAFileThatChangesMeanwhile(t *testing.T) {
	t.Parallel()
	name := file(t, 25, "a")
	text, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	for what, now := range map[string]string{
		"was not there before":   strings.ReplaceAll(string(text), "wafer07", "wafer77"),
		"is not there any more":  string(text[:bytes.Index(text, []byte("s,1,x-faulty"))]),
		"wafer78 was not there ": string(text) + strings.ReplaceAll(string(text[bytes.Index(text, []byte("s,1,x-faulty")):]), "x-faulty", "wafer78"),
	} {
		t.Run(what, func(t *testing.T) {
			r, err := files(t.Context(), strategy.Default(), []string{name})
			if err == nil {
				err = os.WriteFile(name, []byte(now), 0o644)
			}
			if err != nil {
				t.Fatal(err)
			}
			if err := r.WriteHTML(new(bytes.Buffer)); err == nil || !strings.Contains(err.Error(), what) || !strings.Contains(err.Error(), "analyze it again") {
				t.Errorf("error %v, want one with %q", err, what)
			}
			if err := os.WriteFile(name, text, 0o644); err != nil {
				t.Fatal(err)
			}
		})
	}
}

// TestKeepReasons: what a table shows is the same whatever a report keeps, and normal runs,
// of which there may be hundreds of thousands, have no verdict of their own.
func TestKeepReasons(t *testing.T) {
	t.Parallel()
	names := []string{wanderingFile(t, 160), realdata.Path(t, "etch/lam9600_machine.csv")}
	var reports [2]*analyze.Report
	for i, keep := range []analyze.Keep{analyze.KeepReasons, analyze.KeepAll} {
		r, err := (&analyze.Analysis{Strategies: strategy.Default(), Keep: keep}).Files(t.Context(), names)
		if err != nil {
			t.Fatal(err)
		}
		r.Classify(nil)
		reports[i] = r
	}
	little, all := reports[0], reports[1]
	if little.Total != all.Total || !little.Classified || !reflect.DeepEqual(little.Labels(), all.Labels()) {
		t.Errorf("totals are %+v and %+v", little.Total, all.Total)
	}

	drifts := 0
	for i, g := range little.Groups {
		told := driftOf(g)
		if whole := driftOf(all.Groups[i]); told != whole || g.Note != all.Groups[i].Note {
			t.Errorf("group %s has %q, with everything kept %q", g.Name, told, whole)
		}
		if told != "" {
			drifts++
		}
		for j, run := range g.Runs {
			whole := all.Groups[i].Runs[j]
			if run.Verdict.State != whole.Verdict.State || run.Reason != whole.Reason || !reflect.DeepEqual(run.Classification, whole.Classification) {
				t.Errorf("run %s is %s, %s; with everything kept %s, %s", run.Context, run.Verdict.State, run.Reason, whole.Verdict.State, whole.Reason)
			}
			if run.Verdict.State == uchart.Normal && len(run.Verdict.Drift) == 0 && len(run.Verdict.Suspended) == 0 && run.Verdict != little.Groups[0].Runs[20].Verdict {
				t.Fatalf("normal run %s has a verdict of its own", run.Context)
			}
		}
	}
	if drifts == 0 {
		t.Error("no group drifted: the test shows nothing of drift")
	}
}

// wanderingFile writes runs of sensors whose level wanders.
func wanderingFile(t *testing.T, runs int) string {
	t.Helper()
	rng := rand.New(rand.NewPCG(3, 3))
	var b strings.Builder
	b.WriteString(plainNames + ",A,B,C,D,E,F,G,H,I,J,K,L\n")
	var level, own [12]float64
	for run := range runs {
		for k := range level {
			level[k] += 0.2 * rng.NormFloat64()
			own[k] = 500 + level[k] + rng.NormFloat64()
		}
		for i := range 40 {
			b.WriteString(plain(run, i))
			for _, x := range own {
				fmt.Fprintf(&b, ",%.2f", x+rng.NormFloat64())
			}
			b.WriteString("\n")
		}
	}
	name := filepath.Join(t.TempDir(), "wandering.csv")
	if err := os.WriteFile(name, []byte(b.String()), 0o644); err != nil {
		t.Fatal(err)
	}
	return name
}

// driftOf is what the newest run of a group that tells of drift says.
func driftOf(g *analyze.Group) string {
	for _, run := range slices.Backward(g.Runs) {
		if drift := run.Verdict.DriftReason(); drift != "" {
			return run.Context + ": " + drift
		}
	}
	return ""
}
