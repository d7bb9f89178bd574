package trace

import (
	"encoding/csv"
	"errors"
	"fmt"
	"io"
	"iter"
	"math"
	"slices"
	"strconv"
	"strings"

	"github.com/muster-dev/muster/tchart"
)

// The most that a trace holds.
const (
	maxText    = tchart.MaxTextBytes
	maxSensors = tchart.MaxSVIDs
)

// MaxProblems is how many problems of a file are reported at once.
const MaxProblems = 20

// Problem is one thing wrong with a file.
type Problem struct {
	File   string
	Line   int    // from 1; 0 if it is the file as a whole
	Column string // name of the column, empty if it is the row as a whole
	What   string // what is wrong and how to put it right
}

func (p Problem) Error() string {
	where := p.File
	if p.Line > 0 {
		where = fmt.Sprintf("%s:%d", p.File, p.Line)
	}
	if p.Column != "" {
		where += ": column " + strconv.Quote(p.Column)
	}
	return where + ": " + p.What
}

// Problems is the error of a file with problems. It holds at most MaxProblems;
// More says that there are others.
type Problems struct {
	List []Problem
	More bool
}

func (p *Problems) Error() string {
	lines := make([]string, 0, len(p.List)+1)
	for _, problem := range p.List {
		lines = append(lines, problem.Error())
	}
	if p.More {
		lines = append(lines, "and more")
	}
	return strings.Join(lines, "\n")
}

// Unwrap returns each [Problem].
func (p *Problems) Unwrap() []error {
	errs := make([]error, len(p.List))
	for i, problem := range p.List {
		errs[i] = problem
	}
	return errs
}

// Reader reads wafers from CSV or Parquet, one at a time. The first line of CSV names the columns,
// which [Columns] says the meaning of: by default name (of the run), Time, Step Number, and if
// they are there fault, set and wafer; the others are sensors. The rows of a wafer follow
// one another. A sensor's field that is empty or "NaN" is a missing sample.
//
// Rows are given as they stand. In the recordings of the LAM 9600 etcher the
// last row of most wafers is the first row of the next, with a time before its
// own wafer's; package uchart leaves such rows out.
type Reader struct {
	file    string
	rows    rows
	columns [roles]int    // field numbers, -1 where there is no such column
	names   [roles]string // of columns
	grouped bool          // columns tell which runs belong together
	sensors []int         // field numbers
	svids   []string

	// The numbers of the row that was read last.
	time   float64
	step   int32
	values []float64 // of each sensor

	stretches stretches

	seen     map[[6]string]int // line at which each wafer begins
	told     map[string]int    // problems by what they have in common
	next     *Wafer            // begun, as its first row ended the wafer before
	problems Problems
	hidden   int   // problems that aren't told, as others like them are
	err      error // of all further calls
}

// NewReader reads the first line of r, whose columns have their default names. The name
// is that of the file, for messages. The error is a [*Problems] or that of r.
func NewReader(r io.Reader, name string) (*Reader, error) {
	return NewColumnReader(r, name, Columns{})
}

// NewColumnReader is NewReader for a file whose columns have other names.
func NewColumnReader(r io.Reader, name string, columns Columns) (*Reader, error) {
	table := newCSVRows(r, csvBuffer)
	reader := newReader(name)
	start, _ := table.in.Peek(8) // as much as there is
	if what := foreignStart(start); what != "" {
		reader.problem(0, "", what)
		return nil, &reader.problems
	}
	header, err := table.readHeader()
	if errors.Is(err, io.EOF) {
		reader.problem(1, "", "the file is empty: its first line has to name the columns")
		return nil, &reader.problems
	}
	if err != nil {
		return nil, reader.readError(err)
	}
	if what := foreignHeader(header); what != "" {
		reader.problem(0, "", what)
		return nil, &reader.problems
	}
	reader.header(header, columns)
	return reader.begins(table)
}

func newReader(name string) *Reader {
	return &Reader{file: name, seen: map[[6]string]int{}, told: map[string]int{}}
}

// begins has the reader read rows, unless the columns have problems.
func (r *Reader) begins(table rows) (*Reader, error) {
	if len(r.problems.List) > 0 {
		return nil, &r.problems
	}
	r.rows, r.values = table, make([]float64, len(r.sensors))
	r.stretches = newStretches(table, r.columns)
	return r, nil
}

// used returns the fields that are read.
func (r *Reader) used() []int {
	fields := slices.Clone(r.sensors)
	for _, at := range r.columns {
		if at >= 0 {
			fields = append(fields, at)
		}
	}
	slices.Sort(fields)
	return slices.Compact(fields)
}

// Read returns the next wafer, or [io.EOF] after the last. At the first problem
// it reads on to find others and returns all as [*Problems]; no wafer follows.
func (r *Reader) Read() (*Wafer, error) {
	if r.err != nil {
		return nil, r.err
	}
	w, err := r.read()
	r.err = err
	return w, err
}

// All yields the wafers, and at the end the error if there is one.
func (r *Reader) All() iter.Seq2[*Wafer, error] {
	return func(yield func(*Wafer, error) bool) {
		for {
			w, err := r.Read()
			if errors.Is(err, io.EOF) || !yield(w, err) || err != nil {
				return
			}
		}
	}
}

func (r *Reader) read() (*Wafer, error) {
	for {
		r.stretch()
		err := r.rows.next()
		var bad *badRow
		switch {
		case errors.Is(err, io.EOF):
			return r.last()
		case errors.As(err, &bad):
			r.problem(bad.line, "", bad.what)
		case err != nil:
			return nil, r.readError(err)
		default:
			if done := r.row(); done != nil && len(r.problems.List) == 0 {
				return done, nil
			}
		}
		if r.problems.More {
			return nil, &r.problems
		}
	}
}

// last returns the wafer at the end of the file.
func (r *Reader) last() (*Wafer, error) {
	w := r.next
	r.next = nil
	switch {
	case len(r.problems.List) > 0:
		return nil, &r.problems
	case w == nil:
		return nil, io.EOF
	}
	return w, nil
}

// row adds a row and returns the wafer that it ended, if any.
func (r *Reader) row() *Wafer {
	var done *Wafer
	if w := r.next; w == nil || !r.belongs(w) {
		done = w
		r.begin()
	}
	if len(r.problems.List) > 0 {
		r.check()
		return nil
	}
	if !r.check() {
		return nil
	}
	t := &r.next.Trace
	if (len(t.Time)+1)*len(t.SVIDs) > tchart.MaxPoints || len(t.Time) == tchart.MaxRows {
		r.problem(r.line(), "", fmt.Sprintf("wafer %s has more than %d rows or %d points: split it", t.Context, tchart.MaxRows, tchart.MaxPoints))
		return nil
	}
	t.Time, t.Step = append(t.Time, r.time), append(t.Step, r.step)
	for i, v := range r.values {
		t.Values[i] = append(t.Values[i], v)
	}
	return done
}

func (r *Reader) belongs(w *Wafer) bool {
	if !r.is(faultRole, w.Fault) {
		return false
	}
	for i, role := range keyRoles {
		if !r.is(role, w.key[i]) {
			return false
		}
	}
	return true
}

// is reports whether a row has a text in a column: none where there is no such column.
func (r *Reader) is(role role, text string) bool {
	if at := r.columns[role]; at >= 0 {
		return r.rows.is(at, text)
	}
	return text == ""
}

// field returns what a row has in a column, and nothing where there is none.
func (r *Reader) field(role role) string {
	if at := r.columns[role]; at >= 0 {
		return r.rows.text(at)
	}
	return ""
}

// keyRoles are those of the columns that tell wafers apart.
var keyRoles = [...]role{runRole, setRole, waferRole, chamberRole, recipeRole, groupRole}

// key tells wafers apart.
func (r *Reader) key() (key [6]string) {
	for i, role := range keyRoles {
		key[i] = r.field(role)
	}
	return key
}

func (r *Reader) begin() {
	w := &Wafer{Fault: strings.Clone(r.field(faultRole)), key: r.key()}
	for i := range w.key {
		w.key[i] = strings.Clone(w.key[i])
	}
	w.Trace.Context, w.Set, w.Trace.Wafer, w.Chamber, w.Trace.Recipe, w.Group = w.key[0], w.key[1], w.key[2], w.key[3], w.key[4], w.key[5]
	if !r.grouped {
		w.Experiment = experimentOf(w.Trace.Context)
	}
	if w.Experiment != "" {
		w.Trace.Recipe = "experiment-" + w.Experiment
	}
	w.Trace.SVIDs = slices.Clone(r.svids)
	w.Trace.Values = make([][]float64, len(r.svids))
	if r.next != nil { // it most likely has about as many rows as the one before
		rows := len(r.next.Trace.Time) * 9 / 8
		w.Trace.Step = make([]int32, 0, rows)
		room := make([]float64, (len(r.svids)+1)*rows)
		part := func(i int) []float64 { return room[i*rows : i*rows : (i+1)*rows] }
		w.Trace.Time = part(len(r.svids))
		for i := range w.Trace.Values {
			w.Trace.Values[i] = part(i)
		}
	}
	r.next = w
	if w.Trace.Context == "" {
		r.problem(r.line(), r.names[runRole], "is empty: give the wafer a name")
	}
	for role := range roles {
		if role != timeRole && role != stepRole && len(r.field(role)) > maxText {
			r.problem(r.line(), r.names[role], fmt.Sprintf("is longer than %d bytes", maxText))
		}
	}
	if line, ok := r.seen[w.key]; ok {
		r.repeated("again", r.line(), r.names[runRole], fmt.Sprintf("run %q was there before, at line %d: sort the rows by run and time, and keep its fault the same", w.Trace.Context, line))
		return
	}
	r.seen[w.key] = r.line()
}

// check reads a row's numbers, and reports every problem of them.
func (r *Reader) check() bool {
	before := len(r.problems.List)
	var ok bool
	if r.time, ok = r.rows.seconds(r.columns[timeRole]); !ok || math.IsNaN(r.time) || math.IsInf(r.time, 0) {
		r.fieldProblem(r.columns[timeRole], r.names[timeRole], "is not a time: write seconds, as 12.5, or a timestamp, as 2026-03-01T12:00:00Z")
	}
	r.step = 1
	if at := r.columns[stepRole]; at >= 0 {
		step, ok := r.rows.whole(at)
		if !ok || step != int64(int32(step)) {
			r.fieldProblem(at, r.names[stepRole], "is not a recipe step: write an integer")
		}
		r.step = int32(step)
	}
	for i, at := range r.sensors {
		if r.values[i], ok = r.rows.number(at); !ok {
			r.fieldProblem(at, r.svids[i], "is not a number: write one as 12.5, leave it empty if missing, or ignore the column if it is no sensor")
		}
	}
	return len(r.problems.List) == before && !r.problems.More
}

func (r *Reader) fieldProblem(at int, column, what string) {
	text := r.rows.text(at)
	if len(text) > 40 {
		text = text[:40] + "..."
	}
	r.repeated("column "+column, r.rows.line(at), column, strconv.Quote(text)+" "+what)
}

// maxAlike is how many problems that have something in common are told.
const maxAlike = 2

// repeated is problem for what may be wrong in each row, such as a column that is no sensor: the
// first ones are told, so that others have room, and all count.
func (r *Reader) repeated(common string, line int, column, what string) {
	r.told[common]++
	if r.told[common] <= maxAlike {
		r.problem(line, column, what)
		return
	}
	if r.hidden++; len(r.problems.List)+r.hidden > MaxProblems {
		r.problems.More = true
	}
}

func (r *Reader) line() int { return r.rows.line(0) }

func (r *Reader) problem(line int, column, what string) {
	if len(r.problems.List) == MaxProblems {
		r.problems.More = true
		return
	}
	r.problems.List = append(r.problems.List, Problem{File: r.file, Line: line, Column: column, What: what})
}

func (r *Reader) readError(err error) error {
	var syntax *csv.ParseError
	var broken *brokenFile
	switch {
	case errors.As(err, &syntax):
		r.problem(syntax.Line, "", syntax.Err.Error())
		return &r.problems
	case errors.As(err, &broken):
		r.problem(broken.row, "", broken.Error()+": write the file again")
		return &r.problems
	}
	return fmt.Errorf("reading %s, %w", r.file, err)
}

// header finds the columns.
func (r *Reader) header(header []string, c Columns) {
	names, required := c.names()
	for i := range r.columns {
		r.columns[i] = -1
	}
	r.names, r.grouped = names, c.grouped()
	first := map[string]int{}
	for i, name := range header {
		name = strings.TrimSpace(name)
		if before, ok := first[name]; ok {
			r.problem(1, name, fmt.Sprintf("names both field %d and field %d: give each its own name", before+1, i+1))
			continue
		}
		first[name] = i
		used := slices.Contains(c.Ignore, name)
		for role, wanted := range names {
			if name == wanted && name != "" { // one column may have several
				r.columns[role], used = i, true
			}
		}
		switch {
		case used:
		case name == "" || len(name) > maxText:
			r.problem(1, name, fmt.Sprintf("field %d needs a name of 1 to %d bytes", i+1, maxText))
		default:
			r.sensors = append(r.sensors, i)
			r.svids = append(r.svids, name)
		}
	}
	missing := false
	for role, at := range r.columns {
		if at < 0 && required[role] {
			missing = true
			r.problem(1, names[role], fmt.Sprintf("is missing: add it to the first line and to every row, or say which column holds the %s", roleNames[role]))
		}
	}
	for _, name := range c.Ignore {
		if _, ok := first[name]; !ok {
			missing = true
			r.problem(1, name, "is missing: it was to be ignored")
		}
	}
	if len(r.sensors) == 0 {
		missing = true
		r.problem(1, "", "there is no sensor column beside those for names, time and step: add at least one")
	}
	if missing {
		r.problem(1, "", "the file has the columns "+quoted(header))
	}
	if len(r.sensors) > maxSensors {
		r.problem(1, "", fmt.Sprintf("there are %d sensor columns, at most %d are allowed", len(r.sensors), maxSensors))
	}
}
