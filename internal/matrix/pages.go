package main

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
)

// The part of a page between these marks is written by this command.
const (
	firstMark = "<!-- runs: written by go run ./internal/matrix --pages -->"
	lastMark  = "<!-- end of runs -->"
)

// mostLines is how many lines of a timeline a page shows.
const mostLines = 48

// writePages writes the runs that are kept into the page of their scenario.
func writePages(pages, dir string, all []playing) error {
	byScenario := map[string][]outcome{}
	for _, p := range all {
		got, err := readOutcome(dir, p)
		if errors.Is(err, os.ErrNotExist) {
			continue
		}
		if err != nil {
			return err
		}
		byScenario[p.scenario()] = append(byScenario[p.scenario()], got)
	}
	var errs []error
	for name, runs := range byScenario {
		errs = append(errs, fill(filepath.Join(pages, name+".md"), describe(runs)))
	}
	return errors.Join(errs...)
}

// fill puts text between a page's marks.
func fill(page string, text string) error {
	b, err := os.ReadFile(page)
	if err != nil {
		return err
	}
	before, rest, found := bytes.Cut(b, []byte(firstMark))
	_, after, ended := bytes.Cut(rest, []byte(lastMark))
	if !found || !ended {
		return fmt.Errorf("%s has no line %q with %q after it: the runs go between them", page, firstMark, lastMark)
	}
	return os.WriteFile(page, fmt.Appendf(nil, "%s%s\n\n%s\n%s%s", before, firstMark, text, lastMark, after), 0o644)
}

// describe shows all runs of a scenario in a table; the first of them, and those on
// a real control plane, as a whole.
func describe(runs []outcome) string {
	var b strings.Builder
	b.WriteString("| " + strings.Join(columns, " | ") + " |\n" + strings.Repeat("| --- ", len(columns)) + "|\n")
	busy := 0
	for _, r := range runs {
		row := r.row()
		row[0] = "`" + row[0] + "`"
		b.WriteString("| " + strings.Join(row, " | ") + " |\n")
		if r.Busy {
			busy++
		}
	}
	switch busy {
	case 0:
	case len(runs):
		b.WriteString("\nRun with `--busy` on a machine that did other things, too, so that times are longer than they need to be.\n")
	default:
		fmt.Fprintf(&b, "\n%d of them ran with `--busy` on a machine that did other things, too, so that their times are longer than they need to be.\n", busy)
	}
	for i, r := range runs {
		if i == 0 || strings.Contains(r.Flags, "--lab") {
			show(&b, r)
		}
	}
	return b.String()
}

// show writes what happened in a run, and what was checked.
func show(b *strings.Builder, r outcome) {
	_, _ = fmt.Fprintf(b, "\n`muster up %s`:\n\n```\n", r.Flags)
	lines := timeline(r)
	if cut := len(lines) - mostLines; cut > 0 {
		head := mostLines * 2 / 3
		lines = append(append(lines[:head:head], fmt.Sprintf("… %d lines", cut)), lines[head+cut:]...)
	}
	b.WriteString(strings.Join(lines, "\n") + "\n\n")
	r.Report.WriteTable(b)
	b.WriteString("```\n")
}

// place is where something was on the machine of the run.
var place = regexp.MustCompile(`, everything kept in \S+| \(?https?://127\.0\.0\.1:\d+\)?|KUBECONFIG=\S+`)

func timeline(o outcome) []string {
	var out []string
	for _, m := range o.Report.Timeline {
		out = append(out, fmt.Sprintf("%8.3fs  %s", m.T, place.ReplaceAllString(m.Event, "")))
	}
	return out
}
