package analyze_test

import (
	"bytes"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/muster-dev/muster/defender/analyze"
	"github.com/muster-dev/muster/defender/strategy"
)

// TestDetailsChangeNoReport: what is left out without details is not shown.
func TestDetailsChangeNoReport(t *testing.T) {
	t.Parallel()
	names := []string{file(t, 25, "a")}
	var pages [2]bytes.Buffer
	var kept [2]int
	for i, details := range []bool{false, true} {
		r, err := (&analyze.Analysis{Strategies: strategy.Default(), Details: details}).Files(t.Context(), names)
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
		t.Errorf("%d contributions are kept without details, %d with them", kept[0], kept[1])
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
