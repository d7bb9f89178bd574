package analyze

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"

	"github.com/muster-dev/muster/defender"
	"github.com/muster-dev/muster/defender/strategy"
	"github.com/muster-dev/muster/defender/trace"
	"github.com/muster-dev/muster/defender/uchart"
)

// Group is the runs of one chamber and recipe, in the order of the files: each is
// judged by those before it. Files that tell experiments apart give a group each.
type Group struct {
	Name string `json:"name"`
	Runs []*Run `json:"runs"`
}

// Run is one run with its verdict.
type Run struct {
	File    string         `json:"file"`
	Context string         `json:"context"`
	Fault   string         `json:"fault,omitempty"` // that was induced, where the file tells
	Set     string         `json:"set,omitempty"`
	Points  int            `json:"points"`
	Verdict uchart.Verdict `json:"verdict"`
	Reason  string         `json:"reason,omitempty"`

	wafer *trace.Wafer
	chart *uchart.Chart
}

// Counts sums up a group or all.
type Counts struct {
	Runs     int `json:"runs"`
	Learning int `json:"learning"`
	Normal   int `json:"normal"`
	Alarms   int `json:"alarms"`
	BadData  int `json:"bad_data"`
	Faults   int `json:"known_faults"`   // judged runs with a known fault
	Detected int `json:"known_detected"` // of them alarms
	False    int `json:"known_false"`    // alarms of runs known to be normal
}

// Report is the outcome of an analysis.
type Report struct {
	Files    []string `json:"files"`
	Version  int      `json:"strategies_version"`
	Groups   []*Group `json:"groups"`
	Total    Counts   `json:"total"`
	Labelled bool     `json:"labelled"` // some run has a known fault
}

// Limits of what is analyzed at once, since all of it is in memory.
const (
	maxRuns   = 20_000
	maxPoints = 200_000_000
	history   = 100 // earlier runs a verdict may rest on, as the defender's
)

// Files reads trace files (see package trace for their form) and judges their
// runs. Errors name the file, line and column of what is wrong, all of a file at
// once.
func Files(ctx context.Context, set *strategy.Set, names []string) (*Report, error) {
	r := &Report{Files: names, Version: set.Version()}
	var errs []error
	runs, points := 0, 0
	for _, name := range names {
		err := r.read(name, func(w *trace.Wafer) error {
			runs++
			points += w.Trace.Points()
			if runs > maxRuns || points > maxPoints {
				return fmt.Errorf("more than %d runs or %d values: analyze fewer files at once", maxRuns, maxPoints)
			}
			return ctx.Err()
		})
		if err != nil {
			errs = append(errs, err)
		}
	}
	if err := errors.Join(errs...); err != nil {
		return nil, err
	}
	if runs == 0 {
		return nil, errors.New("the files have no runs")
	}
	for _, g := range r.Groups {
		if err := r.judge(ctx, set, g); err != nil {
			return nil, err
		}
	}
	return r, nil
}

func (r *Report) read(name string, allowed func(*trace.Wafer) error) error {
	f, err := os.Open(name)
	if err != nil {
		return err
	}
	defer func() { _ = f.Close() }()
	reader, err := trace.NewReader(f, filepath.Base(name))
	if err != nil {
		return err
	}
	for w, err := range reader.All() {
		if err != nil {
			return err
		}
		if err := allowed(w); err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
		group := strings.TrimSuffix(filepath.Base(name), filepath.Ext(name))
		if w.Experiment != "" {
			group += ", experiment " + w.Experiment
		}
		g := r.group(group)
		g.Runs = append(g.Runs, &Run{File: name, Context: w.Trace.Context, Fault: w.Fault, Set: w.Set, Points: w.Trace.Points(), wafer: w})
		r.Labelled = r.Labelled || w.Fault != ""
	}
	return nil
}

func (r *Report) group(name string) *Group {
	for _, g := range r.Groups {
		if g.Name == name {
			return g
		}
	}
	g := &Group{Name: name}
	r.Groups = append(r.Groups, g)
	return g
}

var notInNames = regexp.MustCompile(`[^A-Za-z0-9_-]+`)

func (r *Report) judge(ctx context.Context, set *strategy.Set, g *Group) error {
	var calc uchart.Calculator
	var points []uchart.Point
	var frozen *uchart.Baseline
	for _, run := range g.Runs {
		if err := ctx.Err(); err != nil {
			return err
		}
		chart, err := calc.Compute(&run.wafer.Trace)
		if err != nil {
			return fmt.Errorf("%s, run %s: %w", run.File, run.Context, err)
		}
		run.chart = chart
		ref := defender.ContextRef{Chamber: defender.Chamber{Tool: "file", Name: notInNames.ReplaceAllString(g.Name, "-")}, ID: run.Context, Recipe: run.wafer.Trace.Recipe}
		run.Verdict = set.Judge(ref, points[max(0, len(points)-history):], chart)
		run.Reason = run.Verdict.Reason()
		point := uchart.NewPoint(run.Context, chart, run.Verdict)
		switch {
		case point.Baseline != nil:
			frozen = point.Baseline
		case run.Verdict.Limits.At != "":
			point.Baseline = frozen // its own context may lie before the history
		}
		points = append(points, point)
		r.Total.add(run)
	}
	return nil
}

// Counts sums a group up.
func (g *Group) Counts() Counts {
	var c Counts
	for _, run := range g.Runs {
		c.add(run)
	}
	return c
}

func (c *Counts) add(run *Run) {
	c.Runs++
	switch run.Verdict.State {
	case uchart.Learning:
		c.Learning++
		return
	case uchart.BadData:
		c.BadData++
		return
	case uchart.Alarm:
		c.Alarms++
		if run.Fault == "" {
			c.False++
		}
	default:
		c.Normal++
	}
	if run.Fault != "" {
		c.Faults++
		if run.Verdict.State == uchart.Alarm {
			c.Detected++
		}
	}
}
