package ingest

import (
	"cmp"
	"errors"
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/muster-dev/muster/defender"
	"github.com/muster-dev/muster/tchart"
)

// Run is one run as it goes to the defenders.
type Run struct {
	Ref   defender.ContextRef
	Trace tchart.Trace
}

// Parse reads a table in a format and returns the run that it holds. What is wrong with the
// input is a [*Problems]; a trace that is too large, or a format that there is not, is a [*Refusal].
func Parse(format Format, data []byte, r Request) (*Run, error) {
	read, ok := readers[format]
	if !ok {
		return nil, unknownFormat(string(format))
	}
	t := newTable(&r)
	if err := read(data, t); err != nil && !errors.Is(err, errEnough) {
		return nil, refusalOf(err)
	}
	if err := t.finish(); err != nil {
		return nil, err
	}
	run, err := t.run()
	if err != nil {
		return nil, refusalOf(err)
	}
	return run, nil
}

// run returns the run that a finished table holds.
func (t *table) run() (*Run, error) {
	when, err := t.times.clock(t.request.columns[timeRole], t.request.start)
	if err != nil {
		return nil, err
	}
	run := &Run{}
	if t.request.long() {
		err = t.pivot(when.seconds, &run.Trace)
	} else {
		err = t.wide(when.seconds, &run.Trace)
	}
	if err != nil {
		return nil, err
	}

	says := func(r role) string {
		if text := t.request.identity[r]; text != "" || t.identity[r] == nil {
			return text
		}
		return t.identity[r].value
	}
	chamber, err := chamberOf(says(toolRole), says(chamberRole))
	run.Ref = defender.ContextRef{
		Chamber: chamber, ID: says(runRole), Recipe: says(recipeRole), Product: says(productRole),
		Lot: says(lotRole), Wafer: says(waferRole), Start: when.start, End: when.end,
	}
	if err == nil {
		err = run.Ref.Validate()
	}
	if err != nil {
		return nil, problem("", "which run it is: %v", err)
	}
	run.label()
	return run, nil
}

// chamberOf returns the chamber of a tool, or, without a tool, the one that is written as tool:chamber.
func chamberOf(tool, name string) (defender.Chamber, error) {
	if tool == "" {
		return defender.ParseChamber(name)
	}
	c := defender.Chamber{Tool: tool, Name: name}
	return c, c.Validate()
}

// label writes into the trace which run it is.
func (r *Run) label() {
	t := &r.Trace
	t.Tool, t.Chamber, t.Context = r.Ref.Chamber.Tool, r.Ref.Chamber.Name, r.Ref.ID
	t.Recipe, t.Product, t.Lot, t.Wafer = r.Ref.Recipe, r.Ref.Product, r.Ref.Lot, r.Ref.Wafer
}

// checkSize returns an error for a trace that defenders would not take.
func checkSize(rows, sensors int) error {
	if rows > tchart.MaxRows || rows > MaxNumbers/(sensors+2) {
		return errTooLarge
	}
	return nil
}

// wide fills a trace from a table with a column for each sensor.
func (t *table) wide(seconds []float64, trace *tchart.Trace) error {
	for _, c := range t.columns {
		if c.sensor != nil {
			trace.SVIDs = append(trace.SVIDs, c.name)
			trace.Values = append(trace.Values, c.sensor.values)
		}
	}
	if err := checkSize(len(seconds), len(trace.SVIDs)); err != nil {
		return err
	}
	trace.Time = seconds
	trace.Step = t.stepsOf(len(seconds))
	return nil
}

// stepsOf returns the steps of rows, which are all 1 without a column for them.
func (t *table) stepsOf(rows int) []int32 {
	if t.steps != nil {
		return t.steps.values
	}
	all := make([]int32, rows)
	for i := range all {
		all[i] = 1
	}
	return all
}

// pivot fills a trace from a table in the long form. Its rows are the different times in
// their order; a sensor without a value at one of them misses it.
func (t *table) pivot(seconds []float64, trace *tchart.Trace) error {
	order := make([]int, len(seconds))
	for i := range order {
		order[i] = i
	}
	slices.SortStableFunc(order, func(a, b int) int { return cmp.Compare(seconds[a], seconds[b]) })
	rows := 0
	for i, at := range order {
		if i == 0 || seconds[at] != seconds[order[i-1]] {
			rows++
		}
	}
	// Every row of the table may have its own time and sensor: the grid has to be looked at
	// before there is memory for it.
	sensors := len(t.names.list)
	if err := checkSize(rows, sensors); err != nil {
		return err
	}

	p := &pivot{table: t, trace: trace, steps: t.stepsOf(len(seconds)), seen: make([]bool, rows*sensors)}
	trace.SVIDs = slices.Clone(t.names.list)
	trace.Values = make([][]float64, sensors)
	for i := range trace.Values {
		trace.Values[i] = make([]float64, rows)
		for j := range trace.Values[i] {
			trace.Values[i][j] = math.NaN()
		}
	}
	for _, at := range order {
		if !p.add(at, seconds[at]) {
			break
		}
	}
	return p.problems.err()
}

// pivot is a trace that is filled from a table in the long form.
type pivot struct {
	table    *table
	trace    *tchart.Trace
	steps    []int32
	seen     []bool // by row of the trace and sensor
	problems Problems
}

// add puts a row of the table in its place. Rows come in the order of their times. It reports
// whether to go on.
func (p *pivot) add(at int, seconds float64) bool {
	trace := p.trace
	row := len(trace.Time) - 1
	if row < 0 || trace.Time[row] != seconds {
		trace.Time = append(trace.Time, seconds)
		trace.Step = append(trace.Step, p.steps[at])
		row++
	}
	if trace.Step[row] != p.steps[at] {
		return p.problems.add(p.table.request.columns[stepRole], at+1, "is %d, and another row of the same time has %d: give a time one step", p.steps[at], trace.Step[row])
	}
	sensor := p.table.names.rows[at]
	if place := row*len(trace.SVIDs) + int(sensor); p.seen[place] {
		return p.problems.add(p.table.request.columns[sensorRole], at+1, "%s has a value at this time already: give it one", quoted(trace.SVIDs[sensor]))
	} else {
		p.seen[place] = true
	}
	trace.Values[sensor][row] = p.table.values.values[at]
	return true
}

// Refusal is an input or a moment at which nothing was taken.
type Refusal struct {
	Status     int           // of HTTP
	RetryAfter time.Duration // when to send the same again; 0 if that would not help
	Err        error
}

func (r *Refusal) Error() string { return r.Err.Error() }

// Unwrap returns why.
func (r *Refusal) Unwrap() error { return r.Err }

func refuse(status int, format string, args ...any) *Refusal {
	return &Refusal{Status: status, Err: fmt.Errorf(format, args...)}
}
