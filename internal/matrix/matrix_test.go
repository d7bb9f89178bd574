package main

import (
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/muster-dev/muster/e2e"
	"github.com/muster-dev/muster/local"
)

func TestEveryScenarioAndCaseIsPlayedInEveryWay(t *testing.T) {
	all := playings()
	has := func(flags ...string) bool {
		return slices.ContainsFunc(all, func(p playing) bool { return slices.Equal(p, flags) })
	}
	for _, name := range e2e.Names() {
		if name == "mixed-version" { // needs the binary of another version
			continue
		}
		for _, c := range e2e.Cases(name) {
			if !slices.ContainsFunc(all, func(p playing) bool { return p.scenario() == name && slices.Contains(p, c) }) {
				t.Errorf("case %s of %s is not played", c, name)
			}
		}
		if name == "chaos" || name == "crowd" || name == "load" || name == "power-cut" || name == "broker-wiped" || slices.Contains(alwaysProcesses, name) || slices.Contains(e2e.OnNodes(), name) {
			continue
		}
		slots := fewer
		if name == "resharding" {
			slots = nil
		}
		if !has("--scenario", name) || !has("--scenario", name, "--processes") ||
			!has(slices.Concat([]string{"--scenario", name}, three, slots)...) || !has(slices.Concat([]string{"--scenario", name}, processes, three, slots)...) {
			t.Errorf("%s is not played in all four ways", name)
		}
	}
	seen := map[string]bool{}
	for _, p := range all {
		f := p.file("", ".json")
		if seen[f] {
			t.Errorf("two runs are kept as %s", f)
		}
		seen[f] = true
	}
}

func TestFlagsThatMakeNoSense(t *testing.T) {
	for want, args := range map[string][]string{
		"matches no run":    {"--only", "nonsense"},
		"missing closing":   {"--only", "("},
		"--pages needs":     {"--pages", "docs"},
		`"chaos" is no fla`: {"chaos"},
	} {
		if err := run(t.Context(), args, t.Output()); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v: %v, want %q", args, err, want)
		}
	}
}

func TestRunsAreWrittenIntoAPage(t *testing.T) {
	dir, pages := t.TempDir(), t.TempDir()
	p := playing{"--scenario", "scale-up"}
	if err := (outcome{Flags: p.String(), Seconds: 21.3}).write(dir, p); err != nil {
		t.Fatal(err)
	}
	r := e2e.Report{
		Scenario:     "scale-up",
		Checks:       []e2e.Check{{Name: "lost", Want: "0", Got: "0", OK: true}, {Name: "plan", Want: "1", Got: "2"}},
		Timeline:     []local.Moment{{T: 1.5, Event: "Broker at x, everything kept in /tmp/y"}},
		Measurements: map[string]any{"lost": 0, "handoff_pause_ms": map[string]any{"p50": 3.2, "p99": 9.8}},
	}
	b, err := json.Marshal(r)
	if err != nil {
		t.Fatal(err)
	}
	page := filepath.Join(pages, "scale-up.md")
	for file, text := range map[string]string{p.file(dir, ".report"): string(b), page: "before\n" + firstMark + "\nold\n" + lastMark + "\nafter\n"} {
		if err := os.WriteFile(file, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	for range 2 { // again, it is the same
		if err := run(t.Context(), []string{"--dir", dir, "--pages", pages}, t.Output()); err != nil {
			t.Fatal(err)
		}
		got, err := os.ReadFile(page)
		if err != nil {
			t.Fatal(err)
		}
		for _, want := range []string{"before\n" + firstMark, "| `--scenario scale-up` | 0 | 21 | 1 of 2 |  | 0 |  |  | p50 3, p99 10 |", "   1.500s  Broker at x\n", lastMark + "\nafter\n"} {
			if !strings.Contains(string(got), want) {
				t.Errorf("no %q in:\n%s", want, got)
			}
		}
		if strings.Contains(string(got), "old") || strings.Count(string(got), "Broker") != 1 {
			t.Errorf("what was there is not replaced:\n%s", got)
		}
	}
	if err := os.WriteFile(page, []byte("no marks"), 0o644); err != nil {
		t.Fatal(err)
	}
	if err := run(t.Context(), []string{"--dir", dir, "--pages", pages}, t.Output()); err == nil || !strings.Contains(err.Error(), "go between") {
		t.Errorf("a page without marks: %v", err)
	}
}
