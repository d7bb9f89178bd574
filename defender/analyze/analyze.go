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
	"github.com/muster-dev/muster/defender/classify"
	"github.com/muster-dev/muster/defender/strategy"
	"github.com/muster-dev/muster/defender/trace"
	"github.com/muster-dev/muster/defender/uchart"
)

// Group is the runs of one chamber and recipe, in the order of the files: each is
// judged by those before it. Where columns say what belongs together, they make the
// groups; else each file is one, or each experiment of the recorded etches.
type Group struct {
	Name string `json:"name"`
	Runs []*Run `json:"runs"`
	// Note says why no run of the group was judged, and is empty if some were.
	Note string `json:"note,omitempty"`

	chamber, recipe string
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
	// Classification names the fault of an alarm; see Report.Classify.
	Classification *classify.Match `json:"classification,omitempty"`

	id    string // unique in its group
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
	// Classified says that some alarm was compared with labelled runs.
	Classified bool `json:"classified"`

	byName map[string]*Group
}

// Limits of what is analyzed at once, since all of it is in memory.
const (
	maxRuns   = 20_000
	maxPoints = 200_000_000
	history   = 100 // earlier runs a verdict may rest on, as the defender's
)

// Columns reads trace files (see package trace for their form) and judges their runs.
// Errors name the file, line and column
// of what is wrong, all of a file at once.
func Columns(ctx context.Context, set *strategy.Set, names []string, columns trace.Columns) (*Report, error) {
	r := &Report{Files: names, Version: set.Version()}
	var errs []error
	runs, points := 0, 0
	for _, name := range names {
		err := r.read(name, columns, func(w *trace.Wafer) error {
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

func (r *Report) read(name string, columns trace.Columns, allowed func(*trace.Wafer) error) error {
	f, err := os.Open(name)
	if err != nil {
		return err
	}
	defer func() { _ = f.Close() }()
	reader, err := trace.NewColumnReader(f, filepath.Base(name), columns)
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
		g := r.group(name, columns, w)
		g.Runs = append(g.Runs, &Run{File: name, Context: w.Trace.Context, Fault: w.Fault, Set: w.Set, Points: w.Trace.Points(), wafer: w})
		r.Labelled = r.Labelled || w.Fault != ""
	}
	return nil
}

// group returns the group of a run. Columns that group runs do so over all files.
func (r *Report) group(file string, c trace.Columns, w *trace.Wafer) *Group {
	var parts []string
	for _, part := range []struct{ column, value string }{{c.Chamber, w.Chamber}, {c.Recipe, w.Trace.Recipe}, {c.Group, w.Group}} {
		if part.column != "" {
			parts = append(parts, part.column+" "+part.value)
		}
	}
	if len(parts) == 0 {
		parts = append(parts, strings.TrimSuffix(filepath.Base(file), filepath.Ext(file)))
		if w.Experiment != "" {
			parts = append(parts, "experiment "+w.Experiment)
		}
	}
	name := strings.Join(parts, ", ")
	if g := r.byName[name]; g != nil {
		return g
	}
	g := &Group{Name: name, chamber: w.Chamber, recipe: w.Trace.Recipe}
	if r.byName == nil {
		r.byName = map[string]*Group{}
	}
	r.byName[name] = g
	r.Groups = append(r.Groups, g)
	return g
}

var notInNames = regexp.MustCompile(`[^A-Za-z0-9_-]+`)

// ref is a run as strategies match it. A chamber that isn't written as tool:chamber is
// one of the tool "file".
func (g *Group) ref(run *Run) defender.ContextRef {
	chamber, err := defender.ParseChamber(g.chamber)
	if err != nil {
		name := g.chamber
		if name == "" {
			name = g.Name
		}
		chamber = defender.Chamber{Tool: "file", Name: notInNames.ReplaceAllString(name, "-")}
	}
	return defender.ContextRef{Chamber: chamber, ID: run.Context, Recipe: g.recipe}
}

func (r *Report) judge(ctx context.Context, set *strategy.Set, g *Group) error {
	var calc uchart.Calculator
	st, _ := set.Of(g.ref(g.Runs[0]))
	past := uchart.History{Limit: history, ClearAfter: st.ClearAfter()}
	seen, judged := map[string]bool{}, 0
	for i, run := range g.Runs {
		if err := ctx.Err(); err != nil {
			return err
		}
		chart, err := calc.Compute(&run.wafer.Trace)
		if err != nil {
			return fmt.Errorf("%s, run %s: %w", run.File, run.Context, err)
		}
		run.chart = chart
		id := run.Context
		if seen[id] { // in several files, or of another wafer
			id = fmt.Sprintf("%s#%d", id, i+1)
		}
		seen[id] = true
		run.id = id
		run.Verdict = past.Add(id, chart, set.Judge(g.ref(run), past.Points(), chart))
		run.Reason = run.Verdict.Reason()
		if v := run.Verdict; v.State == uchart.Normal || v.State == uchart.Alarm || len(v.Suspended) > 0 {
			judged++
		}
		r.Total.add(run)
	}
	if judged == 0 {
		g.Note = g.unjudged(st)
	}
	return nil
}

// unjudged says why no run could be judged.
func (g *Group) unjudged(st strategy.Strategy) string {
	note := fmt.Sprintf("none of its %d runs was judged", len(g.Runs))
	if bad := g.Counts().BadData; bad > 0 {
		note += fmt.Sprintf(", %d of them bad data", bad)
	}
	if st.Name == "" {
		return fmt.Sprintf("%s: no strategy matches chamber %s and recipe %q", note, g.ref(g.Runs[0]).Chamber, g.recipe)
	}
	return fmt.Sprintf("%s: a run is judged by at least %d unflagged ones before it in its group (strategy %s)", note, st.Enough(), st.Name)
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
