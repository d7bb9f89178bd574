package strategy_test

import (
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"github.com/muster-dev/muster/defender"
	"github.com/muster-dev/muster/defender/spc"
	"github.com/muster-dev/muster/defender/strategy"
	"github.com/muster-dev/muster/defender/uchart"
	"github.com/muster-dev/muster/tchart"
)

const good = `
schema: 1
version: 7
strategies:
- name: etch-metal
  match: {chamber: "etch*:*", recipe: "metal/*"}
  univariate: {false_alarms: 0.01, window: 30, statistics: [mean, range]}
  multivariate: {enabled: false}
  alarm: {clear_after: 5, webhooks: [shift]}
- name: everything
webhooks:
- {name: shift, url: "https://fab.example/alarms", secret_env: SHIFT_KEY}
`

func ref(chamber, recipe string) defender.ContextRef {
	c, _ := defender.ParseChamber(chamber)
	return defender.ContextRef{Chamber: c, Recipe: recipe}
}

func TestTheFirstStrategyThatMatchesApplies(t *testing.T) {
	t.Parallel()
	set, err := strategy.Parse([]byte(good), "x.yaml")
	if err != nil {
		t.Fatal(err)
	}
	for _, test := range []struct{ chamber, recipe, want string }{
		{"etch01:a", "metal/7", "etch-metal"}, {"etch01:a", "oxide", "everything"}, {"cvd1:a", "metal/7", "everything"},
	} {
		s, ok := set.Of(ref(test.chamber, test.recipe))
		if !ok || s.Name != test.want {
			t.Errorf("%s %s: strategy is %q, want %q", test.chamber, test.recipe, s.Name, test.want)
		}
		v := set.Judge(ref(test.chamber, test.recipe), nil, &uchart.Chart{Quality: uchart.Quality{Rows: 3, Duration: 2}})
		if v.Strategy != test.want+"@7" || v.State != uchart.Learning {
			t.Errorf("verdict is %+v", v)
		}
	}
	s, _ := set.Of(ref("etch01:a", "metal/7"))
	if p := s.Policy(); p.Window != 30 || p.FalseAlarms != 0.01 || p.Multivariate.FalseAlarms != 0 || len(p.Statistics) != 2 || s.ClearAfter() != 5 {
		t.Errorf("policy is %+v", p)
	}
}

func TestAllFaultsAreReportedAtOnce(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		text string
		want []string
	}{
		"by the schema": {`
schema: 2
version: 0
extra: 1
strategies:
- match: {vessel: x}
- name: "bad name"
  univariate: {false_alarms: 3, statistics: [count, mean]}
  alarm: {clear_after: 0}
webhooks: [{name: a, url: "ftp://x"}]
`, []string{"/schema:", "/version:", "unknown field extra", "missing property 'name'", "unknown field vessel", "/strategies/1/name:", "/strategies/1/univariate/false_alarms:",
			"/strategies/1/univariate/statistics/0:", "/strategies/1/alarm/clear_after:", "/webhooks/0/url:"}},
		"by sense": {`
schema: 1
version: 1
strategies:
- name: all
- name: all
  match: {chamber: "[x"}
  univariate: {enabled: false, window: 5}
  multivariate: {enabled: false, window: 10, reference: 1}
  alarm: {webhooks: [nobody]}
- name: wide
  match: {chamber: "a*"}
  multivariate: {window: 90, reference: 20}
webhooks: [{name: a, url: "http://x"}, {name: a, url: "http://y"}]
`, []string{`/webhooks/1/name: "a" is there twice`, `/strategies/1/name: "all" is there twice`, "is no pattern", "/strategies/1/univariate/window", "/strategies/1/multivariate/window",
			"neither univariate nor multivariate", `no webhook "nobody"`, "it never applies", "/strategies/2/multivariate/reference: window and reference are 110"}},
		"what watches charts, by the schema": {`
schema: 1
version: 1
strategies:
- name: a
  univariate: {limits: loose, phase1: {runs: 51}, ewma: {lambda: 2}, cusum: {h: 4}, rules: {names: [nelson-9]}}
`, []string{"/univariate/limits:", "/univariate/phase1/runs:", "/univariate/ewma/lambda:", "/univariate/cusum:", "/univariate/rules/names/0:"}},
		"what watches charts, by sense": {`
schema: 1
version: 1
strategies:
- name: a
  exclude: ["ok *", "[y"]
  univariate: {limits: moving, ewma: {lambda: 0.2}, phase1: {runs: 12}, cusum: {k: 0.5, svids: ["[x"]}}
- name: b
  univariate: {min_history: 20, phase1: {runs: 12}}
`, []string{"/strategies/0/univariate/ewma: it needs frozen limits", "/strategies/0/univariate/phase1: it needs", "/strategies/0/univariate/cusum/svids/0: \"[x\" is no pattern", "/strategies/0/exclude/1: \"[y\" is no pattern: use letters", "/strategies/1/univariate/phase1/runs: 12 runs are fewer"}},
		"syntax":         {"schema: [", []string{"line 1"}},
		"a key twice":    {"schema: 1\nschema: 1\n", []string{`key "schema" already set`}},
		"nothing at all": {"", []string{"/:"}},
	} {
		_, err := strategy.Parse([]byte(test.text), "x.yaml")
		var faults *strategy.Faults
		if !errors.As(err, &faults) {
			t.Errorf("%s: error is %v", name, err)
			continue
		}
		for _, want := range test.want {
			if !strings.Contains(err.Error(), want) {
				t.Errorf("%s: the error doesn't tell of %q:\n%v", name, want, err)
			}
		}
	}
}

func TestWhatWatchesChartsIsChosenByTheStrategy(t *testing.T) {
	t.Parallel()
	set, err := strategy.Parse([]byte(`
schema: 1
version: 2
strategies:
- name: all
  match: {recipe: all}
  univariate:
    phase1: {runs: 30, outliers: 4}
    ewma: {lambda: 0.1, l: 2.8, svids: ["RF *"]}
    cusum: {k: 0.5, statistics: [mean, stddev]}
    rules: {names: [western-electric, nelson-3], statistics: [max]}
- name: moving
  match: {recipe: moving}
  univariate: {limits: moving}
- name: default
`), "x.yaml")
	if err != nil {
		t.Fatal(err)
	}
	only := func(recipe string) uchart.FrozenPolicy {
		s, _ := set.Of(ref("a:b", recipe))
		return s.Policy().Frozen
	}
	want := uchart.FrozenPolicy{Contexts: 30, Outliers: 4,
		EWMA:  uchart.EWMAPolicy{Lambda: 0.1, L: 2.8, ChartSelection: uchart.ChartSelection{SVIDs: []string{"RF *"}}},
		CUSUM: uchart.CUSUMPolicy{K: 0.5, ChartSelection: uchart.ChartSelection{Statistics: []uchart.Statistic{uchart.Mean, uchart.StdDev}}},
		Rules: uchart.RulesPolicy{Rules: spc.WesternElectric | spc.Nelson3, ChartSelection: uchart.ChartSelection{Statistics: []uchart.Statistic{uchart.Max}}}}
	if got := only("all"); !reflect.DeepEqual(got, want) {
		t.Errorf("the policy is %+v, want %+v", got, want)
	}
	if got := only("moving"); !reflect.DeepEqual(got, uchart.FrozenPolicy{}) {
		t.Errorf("moving limits have the policy %+v", got)
	}
	if got := only("else"); got.Contexts != 50 || got.EWMA.Lambda != 0 || got.CUSUM.K != 0 || got.Rules.Rules != 0 {
		t.Errorf("the default policy is %+v", got)
	}
	// The schema knows the names that package spc does.
	names := []string{"nelson", "western-electric"}
	for i := range 8 {
		names = append(names, fmt.Sprintf("nelson-%d", i+1))
	}
	for i := range 4 {
		names = append(names, fmt.Sprintf("western-electric-%d", i+1))
	}
	for _, name := range names {
		text := fmt.Sprintf("schema: 1\nversion: 1\nstrategies: [{name: a, univariate: {rules: {names: [%s]}}}]", name)
		if _, err := strategy.Parse([]byte(text), "x.yaml"); err != nil {
			t.Errorf("rule %s: %v", name, err)
		}
	}
}

func TestTheDefaultIsValid(t *testing.T) {
	t.Parallel()
	if s, ok := strategy.Default().Of(ref("a:b", "")); !ok || s.Policy().Multivariate.FalseAlarms != 0.005 {
		t.Errorf("the default is %+v", s)
	}
}

func TestChangesAreTakenOverAndFaultsAreNot(t *testing.T) {
	t.Parallel()
	name := filepath.Join(t.TempDir(), "s.yaml")
	write := func(version int, extra string) {
		t.Helper()
		if err := os.WriteFile(name, fmt.Appendf(nil, "schema: 1\nversion: %d\nstrategies: [{name: a%s}]\n", version, extra), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	write(1, "")
	var log strings.Builder
	w, err := strategy.Watch(name, slog.New(slog.NewTextHandler(&log, nil)))
	if err != nil {
		t.Fatal(err)
	}
	for _, step := range []struct {
		version int
		extra   string
		taken   bool
		log     string
		now     int
	}{
		{1, "", false, "", 1},
		{2, "", true, "Took over", 2},
		{2, "b", false, "raise it", 2},
		{2, "b", false, "", 2}, // told once
		{3, ", wrong: 1", false, "unknown field wrong", 2},
		{3, "", true, "Took over", 3},
	} {
		log.Reset()
		write(step.version, step.extra)
		if taken := w.Reload(); taken != step.taken || w.Set().Version() != step.now || !strings.Contains(log.String(), step.log) || (step.log == "") != (log.String() == "") {
			t.Errorf("version %d%s: taken %t, version %d, log %q; want %+v", step.version, step.extra, taken, w.Set().Version(), log.String(), step)
		}
	}
	if err := os.Remove(name); err != nil {
		t.Fatal(err)
	}
	if w.Reload() || w.Set().Version() != 3 {
		t.Error("a missing file changes the strategies")
	}
	if _, err := strategy.Watch(name, slog.New(slog.DiscardHandler)); err == nil {
		t.Error("a missing file is accepted at the start")
	}
}

func FuzzParse(f *testing.F) {
	f.Add(good)
	f.Add("schema: 1\nversion: 1\nstrategies: [{name: a, match: {chamber: '[', recipe: '*'}}]")
	f.Fuzz(func(t *testing.T, text string) {
		set, err := strategy.Parse([]byte(text), "fuzz")
		if err != nil {
			return
		}
		tr := &tchart.Trace{Time: []float64{0, 1}, Step: []int32{1, 1}, SVIDs: []string{"a"}, Values: [][]float64{{1, 2}}}
		c, err := uchart.Compute(tr)
		if err != nil {
			t.Fatal(err)
		}
		set.Judge(ref("etch1:a", "metal/1"), nil, c)
	})
}
