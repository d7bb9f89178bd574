package main

import (
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strings"
	"text/tabwriter"
	"time"
)

// result is what became of one mutant.
type result struct {
	mutant
	Verdict verdict
	Seconds float64 // with its compilation
	Detail  string  `json:"-"` // the output of the test, or why there is none
}

// table is the results of a run.
type table struct {
	Date    time.Time
	Command string
	Rows    []result
}

// count returns how many mutants a verdict is of.
func (t table) count(v verdict) int {
	n := 0
	for _, r := range t.Rows {
		if r.Verdict == v {
			n++
		}
	}
	return n
}

// with returns the table with what is known from before of mutants that are yet to be
// tried, so that an interruption loses nothing.
func (t table) with(before map[string]result, todo []mutant) table {
	t.Rows = slices.Clone(t.Rows)
	for _, m := range todo {
		if r := before[m.Name]; r.Sum == m.Sum {
			t.Rows = append(t.Rows, r)
		}
	}
	return t
}

// summary is the table in a line.
func (t table) summary() string {
	s := fmt.Sprintf("%d mutants: %d caught", len(t.Rows), t.count(caught))
	for _, v := range []verdict{survived, late, broken} {
		if n := t.count(v); n > 0 {
			s += fmt.Sprintf(", %d %s", n, v)
		}
	}
	return s
}

func (t table) err() error {
	if t.count(caught) == len(t.Rows) {
		return nil
	}
	return fmt.Errorf("not every mutant is caught: %s", t.summary())
}

func (t table) text(out io.Writer) error {
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	_, _ = fmt.Fprintln(w, "mutant\trule\ttest\tverdict\tseconds")
	for _, r := range t.Rows {
		_, _ = fmt.Fprintf(w, "%s\t%s\t%s %s\t%s\t%.1f\n", r.Name, r.Rule, r.Package, r.Test, r.Verdict, r.Seconds)
	}
	if err := w.Flush(); err != nil {
		return err
	}
	_, err := fmt.Fprintf(out, "\n%s.\n", t.summary())
	return err
}

func (t table) json() ([]byte, error) {
	data, err := json.MarshalIndent(t, "", "  ")
	return append(data, '\n'), err
}

func (t table) markdown() ([]byte, error) {
	var b strings.Builder
	fmt.Fprintf(&b, "# Mutants\n\n%s. Each is a file of [%s](../../%s) that breaks one rule, and the named test must fail.\n\n", t.summary(), patches, patches)
	fmt.Fprintf(&b, "Written on %s by `%s`. The seconds are wall time with the compilation, on a machine that did other work, too.\n\n", t.Date.Format(time.DateOnly), t.Command)
	b.WriteString("| mutant | rule that it breaks | test | verdict | seconds |\n| --- | --- | --- | --- | ---: |\n")
	cell := strings.NewReplacer("|", `\|`)
	for _, r := range t.Rows {
		fmt.Fprintf(&b, "| %s | %s | `%s` %s | %s | %.1f |\n", r.Name, cell.Replace(r.Rule), strings.TrimPrefix(r.Package, "./"), cell.Replace(r.Test), r.Verdict, r.Seconds)
	}
	return []byte(b.String()), nil
}

// writeList lists mutants.
func writeList(out io.Writer, all []mutant) error {
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	_, _ = fmt.Fprintln(w, "mutant\trule\ttest")
	for _, m := range all {
		_, _ = fmt.Fprintf(w, "%s\t%s\t%s %s\n", m.Name, m.Rule, m.Package, m.Test)
	}
	return w.Flush()
}

// indent is the end of a text, set in.
func indent(text string) string {
	lines := strings.Split(strings.TrimSpace(text), "\n")
	lines = lines[max(0, len(lines)-20):]
	return "      " + strings.Join(lines, "\n      ")
}
