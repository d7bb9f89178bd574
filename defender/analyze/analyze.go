package analyze

import (
	"fmt"
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

	judging *judging // until all are judged
}

// Run is one run with its verdict.
type Run struct {
	File    string          `json:"file"`
	Context string          `json:"context"`
	Fault   string          `json:"fault,omitempty"` // that was induced, where the file tells
	Set     string          `json:"set,omitempty"`
	Points  int             `json:"points"`
	Verdict *uchart.Verdict `json:"verdict"` // as much of it as Analysis.Keep says
	Reason  string          `json:"reason,omitempty"`
	// Classification names the fault of an alarm; see Report.Classify.
	Classification *classify.Match `json:"classification,omitempty"`

	place  place  // of its whole verdict, if those are in a file
	id     string // unique in its group
	sensor string // the first of its file
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

	whole   *Verdicts // nil unless whole verdicts are in a file
	columns trace.Columns
	byName  map[string]*Group
}

// history is how many earlier runs a verdict may rest on, as the defender's.
const history = 100

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

// unjudged says why no run was judged, and nothing if some were.
func (g *Group) unjudged(set *strategy.Set) string {
	for _, run := range g.Runs {
		if v := run.Verdict; v.State == uchart.Normal || v.State == uchart.Alarm || len(v.Suspended) > 0 {
			return ""
		}
	}

	st, _ := set.Of(g.ref(g.Runs[0]))
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
