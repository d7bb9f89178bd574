package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/muster-dev/muster/defender"
	"github.com/muster-dev/muster/defender/strategy"
	"github.com/muster-dev/muster/defender/trace"
	"github.com/muster-dev/muster/defender/uchart"
	"github.com/muster-dev/muster/tchart"
)

// course is what one plant did: undisturbed runs one after another, and disturbed ones that
// branch off after some of them.
type course struct {
	name        string
	undisturbed []run
	onset       int           // undisturbed runs before the disturbances
	disturbed   map[int][]run // by number of the disturbance
}

// run is one run with what is judged of it.
type run struct {
	name  string
	trace *tchart.Trace
	chart *uchart.Chart
}

// learning is how many runs a plain model is trained on: as many as Phase I of the default
// strategy has.
const learning = 50

// read reads a file of generate.py.
func read(name string) (course, error) {
	c := course{name: name, disturbed: map[int][]run{}}
	f, err := os.Open(name)
	if err != nil {
		return c, fmt.Errorf("reading the plant's traces: %w", err)
	}
	defer func() { _ = f.Close() }()
	reader, err := trace.NewColumnReader(f, filepath.Base(name), trace.Columns{Step: trace.NoStep, Chamber: "chamber"})
	if err != nil {
		return c, err
	}
	var calc uchart.Calculator
	for w, err := range reader.All() {
		if err != nil {
			return c, err
		}
		chart, err := calc.Compute(&w.Trace)
		if err != nil {
			return c, fmt.Errorf("%s, run %s: %w", name, w.Trace.Context, err)
		}
		r := run{w.Trace.Context, &w.Trace, chart}
		if w.Normal() {
			c.undisturbed = append(c.undisturbed, r)
			continue
		}
		number, err := strconv.Atoi(strings.TrimPrefix(w.Fault, "IDV "))
		if err != nil {
			return c, fmt.Errorf("%s, run %s: the disturbance is %q: give a file of generate.py", name, r.name, w.Fault)
		}
		if len(c.disturbed) == 0 {
			c.onset = len(c.undisturbed)
		}
		c.disturbed[number] = append(c.disturbed[number], r)
	}
	if len(c.disturbed) == 0 || c.onset <= learning {
		return c, fmt.Errorf("%s has %d undisturbed runs before the first disturbance and %d disturbances: give a file of generate.py", name, c.onset, len(c.disturbed))
	}
	return c, nil
}

// length is that of a run, in seconds.
func (c *course) length() float64 {
	times := c.undisturbed[0].trace.Time
	between := (times[len(times)-1] - times[0]) / float64(len(times)-1)
	return between * float64(len(times))
}

// history is a defender in the middle of a course.
type history struct {
	set    *strategy.Set
	past   uchart.History
	judged []uchart.Verdict
	runs   []run
}

func newHistory() *history {
	set := strategy.Default()
	st, _ := set.Of(refOf(0, ""))
	return &history{set: set, past: uchart.History{ClearAfter: st.ClearAfter()}}
}

func refOf(number int, name string) defender.ContextRef {
	at := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC).Add(time.Duration(number) * 3 * time.Hour)
	return defender.ContextRef{Chamber: defender.Chamber{Tool: "tep", Name: "plant"}, ID: name, Recipe: "mode1", Start: at, End: at.Add(time.Hour)}
}

// judge concludes on the next run.
func (h *history) judge(r run) uchart.Verdict {
	v := h.set.Judge(refOf(len(h.runs), r.name), h.past.Points(), r.chart)
	h.add(r, v)
	return v
}

func (h *history) add(r run, v uchart.Verdict) {
	h.past.Add(r.name, r.chart, v)
	h.runs, h.judged = append(h.runs, r), append(h.judged, v)
}

// after returns a defender that has seen the first runs only.
func (h *history) after(runs int) *history {
	earlier := newHistory()
	for i := range runs {
		earlier.add(h.runs[i], h.judged[i])
	}
	return earlier
}
