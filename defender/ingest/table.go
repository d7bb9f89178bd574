package ingest

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/muster-dev/muster/defender/internal/cells"
	"github.com/muster-dev/muster/tchart"
)

// MaxNumbers is how large a trace may be, in rows times sensors plus two for time and step: as much as
// defenders take without being told otherwise.
const MaxNumbers = 1 << 23

// errTooLarge is the error of a table with more than MaxNumbers.
var errTooLarge = fmt.Errorf("the trace has more than %d numbers (rows times sensors plus two) or %d rows: split the run, or send fewer sensors", MaxNumbers, tchart.MaxRows)

// errEnough ends reading: no further problem would be reported.
var errEnough = errors.New("enough problems were found")

// table takes the cells of one run from a reader, column by column or row by row.
type table struct {
	request *Request
	columns []*column
	index   map[string]int // of columns by name

	identity [identities]*constants // nil where no column says it
	times    *times                 // nil until there is such a column
	steps    *steps
	names    *names
	values   *numbers

	stored   int // numbers of sensors that were taken
	problems Problems
}

// column is one of a table.
type column struct {
	name   string
	sinks  []sink // none if it is ignored
	sensor *numbers
	rows   int
}

func newTable(r *Request) *table { return &table{request: r, index: map[string]int{}} }

// column returns the number of the column with a name, which is added if there is none.
func (t *table) column(name string) (int, error) {
	name = strings.TrimSpace(name)
	if at, ok := t.index[name]; ok {
		return at, nil
	}
	if len(t.columns) == tchart.MaxSVIDs {
		return 0, problem("", "the table has more than %d columns: send fewer sensors", tchart.MaxSVIDs)
	}
	c := &column{name: name}
	held, ignored := t.request.rolesOf(name)
	for _, r := range held {
		c.sinks = append(c.sinks, t.sinkOf(r))
	}
	isSensor := len(held) == 0 && !ignored && !t.request.long()
	if isSensor {
		if name == "" || len(name) > tchart.MaxTextBytes {
			t.problems.add(name, 0, "column %d needs a name of 1 to %d bytes", len(t.columns)+1, tchart.MaxTextBytes)
		}
		c.sensor = &numbers{}
		c.sinks = append(c.sinks, c.sensor)
	}
	t.index[name] = len(t.columns)
	t.columns = append(t.columns, c)
	return t.index[name], nil
}

// header adds columns of which no two may have one name.
func (t *table) header(names []string) error {
	for i, name := range names {
		at, err := t.column(name)
		if err != nil {
			return err
		}
		if at != i {
			return problem(strings.TrimSpace(name), "names both column %d and column %d: give each its own name", at+1, i+1)
		}
	}
	return nil
}

func (t *table) sinkOf(r role) sink {
	switch r {
	case timeRole:
		t.times = &times{unit: t.request.unit}
		return t.times
	case stepRole:
		t.steps = &steps{}
		return t.steps
	case sensorRole:
		t.names = &names{}
		return t.names
	case valueRole:
		t.values = &numbers{}
		return t.values
	default:
		t.identity[r] = &constants{}
		return t.identity[r]
	}
}

// used reports whether a column's cells are wanted at all.
func (t *table) used(at int) bool { return len(t.columns[at].sinks) > 0 }

// add gives a column its next cell. The error ends reading.
func (t *table) add(at int, c cells.Cell) error {
	col := t.columns[at]
	if col.rows == MaxNumbers {
		return errTooLarge
	}
	col.rows++
	if col.sensor != nil {
		if t.stored == MaxNumbers {
			return errTooLarge
		}
		t.stored++
	}
	for _, s := range col.sinks {
		if wrong := s.add(c); wrong != "" && !t.problems.add(col.name, col.rows, "%s", wrong) {
			return errEnough
		}
	}
	return nil
}

// fill adds missing cells to a column until it has rows of them.
func (t *table) fill(at, rows int) error {
	for t.columns[at].rows < rows {
		if err := t.add(at, cells.Cell{}); err != nil {
			return err
		}
	}
	return nil
}

// finish returns what is wrong with the table as a whole, once all its cells are there.
func (t *table) finish() error {
	if len(t.problems.List) > 0 {
		return &t.problems
	}
	if err := t.missing(); err != nil {
		return err
	}
	rows := 0
	for at, c := range t.columns {
		switch {
		case !t.used(at): // readers may skip it
		case rows == 0:
			rows = c.rows
		case c.rows != rows:
			t.problems.add(c.name, 0, "has %d rows, and another column has %d: give all the same number", c.rows, rows)
		}
	}
	return t.problems.err()
}

// missing returns which columns ought to be there and are not.
func (t *table) missing() error {
	for r, name := range t.request.columns {
		// What a parameter says needs no column.
		said := role(r) < identities && t.request.identity[r] != ""
		if _, ok := t.index[name]; name != "" && !ok && !said {
			t.problems.add(name, 0, "is missing: it was to hold the %s; say which column does with %s%s", roleNames[r], roleNames[r], columnSuffix)
		}
	}
	for _, name := range t.request.ignored {
		if _, ok := t.index[name]; !ok {
			t.problems.add(name, 0, "is missing: it was to be ignored")
		}
	}
	sensor := func(c *column) bool { return c.sensor != nil }
	if !t.request.long() && len(t.problems.List) == 0 && !slices.ContainsFunc(t.columns, sensor) {
		t.problems.add("", 0, "there is no sensor column beside those with a meaning: add at least one")
	}
	if len(t.problems.List) > 0 {
		t.problems.add("", 0, "the table has the columns %s", t.list())
	}
	return t.problems.err()
}

// list names the columns, for a message.
func (t *table) list() string {
	const most = 40
	var list []string
	for _, c := range t.columns[:min(len(t.columns), most)] {
		list = append(list, quoted(c.name))
	}
	if more := len(t.columns) - len(list); more > 0 {
		list = append(list, fmt.Sprintf("and %d more", more))
	}
	return strings.Join(list, ", ")
}
