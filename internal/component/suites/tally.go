package main

import (
	"bufio"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"text/tabwriter"

	"github.com/muster-dev/muster/internal/component"
)

// event is a line of `go test -json`; see `go doc test2json`.
type event struct {
	Action      string
	Package     string
	ImportPath  string // of what was built, for the actions about builds
	Test        string
	Elapsed     float64 // s
	Output      string
	FailedBuild string
}

// tally follows a run of `go test -json`: it shows what go test would show without -json, and counts what ran on which component.
type tally struct {
	out      io.Writer
	packages map[string]*suite
	builds   map[string]*strings.Builder // output, by what was built
	ends     []string                    // go test's line about each package
}

func newTally(out io.Writer) *tally {
	return &tally{out: out, packages: map[string]*suite{}, builds: map[string]*strings.Builder{}}
}

// suite is the tests of a package.
type suite struct {
	result string // "pass", "fail" or "skip" at its end
	output strings.Builder
	tests  map[string]*test // by name, subtests among them
}

type test struct {
	result  string // "" as long as it runs
	seconds float64
	output  strings.Builder
	parent  bool             // it has subtests
	uses    map[product]bool // what it said that it runs on
}

// product is a component in one version.
type product struct{ name, version string }

func (t *tally) add(e event) {
	switch e.Action {
	case "build-output":
		b := t.builds[e.ImportPath]
		if b == nil {
			b = &strings.Builder{}
			t.builds[e.ImportPath] = b
		}
		b.WriteString(e.Output)
		return
	case "build-fail":
		t.show(t.builds[e.ImportPath].String())
		return
	}
	s := t.packages[e.Package]
	if s == nil {
		s = &suite{tests: map[string]*test{}}
		t.packages[e.Package] = s
	}
	if e.Test != "" {
		t.addTest(s.test(e.Test), e)
		return
	}
	switch e.Action {
	case "output":
		s.output.WriteString(e.Output)
	case "pass", "fail", "skip":
		s.result = e.Action
		t.end(s)
	}
}

// test returns a test, which it makes known to its parents.
func (s *suite) test(name string) *test {
	x := s.tests[name]
	if x == nil {
		x = &test{uses: map[product]bool{}}
		s.tests[name] = x
		if i := strings.LastIndexByte(name, '/'); i >= 0 {
			s.test(name[:i]).parent = true
		}
	}
	return x
}

func (t *tally) addTest(x *test, e event) {
	switch e.Action {
	case "output":
		if !strings.HasPrefix(e.Output, "=== ") { // what a run without -v has none of
			x.output.WriteString(e.Output)
		}
		if name, version, ok := component.Used(e.Output); ok {
			x.uses[product{name, version}] = true
		}
	case "pass", "fail", "skip":
		x.result, x.seconds = e.Action, e.Elapsed
		if e.Action != "pass" { // go test shows no skip; here one is as bad as a failure
			t.show(x.output.String())
		}
		x.output = strings.Builder{}
	}
}

// end shows of a package what go test would: its last line or, if it failed, all that it printed and what its tests did that never
// ended. Where a package passed, a test whose end is missing has passed.
func (t *tally) end(s *suite) {
	text := s.output.String()
	for line := range strings.Lines(text) {
		if strings.HasPrefix(line, "ok ") || strings.HasPrefix(line, "? ") || strings.HasPrefix(line, "FAIL\t") || strings.Contains(line, "[no test files]") {
			t.ends = append(t.ends, line)
			if s.result != "fail" {
				t.show(line)
			}
		}
	}
	for _, name := range slices.Sorted(maps.Keys(s.tests)) {
		switch x := s.tests[name]; {
		case x.result != "":
		case s.result == "fail":
			x.result = "fail"
			t.show(x.output.String())
		default:
			// Something that a test or a process of its wrote stood on the line
			// that tells its end. The package's result is from the exit code.
			x.result = "pass"
			t.show(fmt.Sprintf("(the end of %s is not to be found in what its package printed; the package passed)\n", name))
		}
	}
	if s.result == "fail" {
		t.show(text)
	}
}

func (t *tally) show(s string) { _, _ = io.WriteString(t.out, s) } // who doesn't read any more needs nothing

// counts are numbers of tests that have no subtests.
type counts struct {
	passed, failed, skipped int
	seconds                 float64
}

func (c *counts) count(result string) {
	switch result {
	case "pass":
		c.passed++
	case "skip":
		c.skipped++
	default:
		c.failed++
	}
}

// byProduct returns what ran on each component, and everything that ran.
func (t *tally) byProduct() (on map[product]*counts, all counts) {
	on = map[product]*counts{}
	for _, s := range t.packages {
		for name, x := range s.tests {
			inherited := s.inherited(name)
			for p := range x.uses {
				if on[p] == nil {
					on[p] = &counts{}
				}
				if !inherited[p] { // its time has that of its subtests in it
					on[p].seconds += x.seconds
				}
				inherited[p] = true
			}
			if !s.counts(name) {
				continue
			}
			all.count(x.result)
			for p := range inherited {
				if on[p] == nil {
					on[p] = &counts{}
				}
				on[p].count(x.result)
			}
		}
	}
	return on, all
}

// inherited returns what the tests around a subtest run on.
func (s *suite) inherited(name string) map[product]bool {
	out := map[product]bool{}
	for i := strings.LastIndexByte(name, '/'); i >= 0; i = strings.LastIndexByte(name, '/') {
		name = name[:i]
		maps.Copy(out, s.tests[name].uses)
	}
	return out
}

// counts reports whether a test is counted: all that have no subtests, and those around them that failed or were skipped by themselves.
func (s *suite) counts(name string) bool {
	x := s.tests[name]
	if !x.parent || x.result == "skip" {
		return true
	}
	if x.result == "pass" {
		return false
	}
	for sub, y := range s.tests {
		if strings.HasPrefix(sub, name+"/") && y.result != "pass" {
			return false
		}
	}
	return true
}

// report writes the table and, once more, go test's line about each package. It returns nil if everything ran and passed.
func (t *tally) report() error {
	on, all := t.byProduct()
	w := tabwriter.NewWriter(t.out, 0, 8, 2, ' ', 0)
	_, _ = fmt.Fprintln(w, "\ncomponent\tversion\ttests passed\tfailed\tskipped\tseconds")
	rows := slices.SortedFunc(maps.Keys(on), func(a, b product) int {
		return cmp.Or(cmp.Compare(strings.ToLower(a.name), strings.ToLower(b.name)), cmp.Compare(a.version, b.version))
	})
	for _, p := range rows {
		c := on[p]
		_, _ = fmt.Fprintf(w, "%s\t%s\t%d\t%d\t%d\t%.0f\n", p.name, p.version, c.passed, c.failed, c.skipped, c.seconds)
	}
	if err := w.Flush(); err != nil {
		return err
	}
	if err := t.reportSlowest(); err != nil {
		return err
	}

	var failed, unfinished []string
	for name, s := range t.packages {
		switch s.result {
		case "fail":
			failed = append(failed, name)
		case "":
			unfinished = append(unfinished, name)
		}
	}
	slices.Sort(failed)
	slices.Sort(unfinished)
	_, err := fmt.Fprintf(t.out, "%d tests of %d packages passed, %d failed, %d were skipped\n\n%s", all.passed, len(t.packages), all.failed, all.skipped,
		strings.Join(t.ends, ""))
	switch {
	case err != nil:
		return err
	case len(failed) > 0:
		return fmt.Errorf("failed: %s", strings.Join(failed, ", "))
	case len(unfinished) > 0:
		return fmt.Errorf("the run ended before these did: %s", strings.Join(unfinished, ", "))
	case all.failed > 0: // never without a failed package, unless go test changes
		return fmt.Errorf("%d tests failed", all.failed)
	case all.skipped > 0:
		return fmt.Errorf("%d tests were skipped; the lines above say why", all.skipped)
	case all.passed == 0:
		return fmt.Errorf("no test ran")
	}
	return nil
}

// read follows a run until its output ends. What is no event, such as what go itself says, is shown as it is.
func (t *tally) read(r io.Reader) error {
	in := bufio.NewReader(r)
	for {
		line, err := in.ReadBytes('\n')
		var e event
		if json.Unmarshal(line, &e) == nil && e.Action != "" {
			t.add(e)
		} else {
			t.show(string(line))
		}
		switch {
		case errors.Is(err, io.EOF):
			return nil
		case err != nil:
			return fmt.Errorf("reading the run: %w", err)
		}
	}
}
