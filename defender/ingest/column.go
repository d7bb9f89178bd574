package ingest

import (
	"fmt"
	"math"

	"github.com/muster-dev/muster/defender/internal/cells"
	"github.com/muster-dev/muster/tchart"
)

// sink takes the cells of a column in their order. What is wrong with a cell it returns as
// text, with how to put it right; then the cell isn't kept.
type sink interface {
	add(c cells.Cell) (wrong string)
}

// constants takes a column that says the same in every row.
type constants struct {
	value string
	begun bool
	told  bool // of a second value
}

func (s *constants) add(c cells.Cell) string {
	value := c.String()
	if !s.begun {
		s.value, s.begun = value, true
		return ""
	}
	if value == s.value || s.told {
		return ""
	}
	s.told = true
	return fmt.Sprintf("is %s, and was %s before: send one run at a time", quoted(value), quoted(s.value))
}

// numbers takes the values of a sensor.
type numbers struct{ values []float64 }

func (s *numbers) add(c cells.Cell) string {
	v, ok := c.AsNumber()
	if !ok {
		return quoted(c.String()) + " is not a number: write one as 12.5, leave it empty if missing, or name the column in ignore-columns if it is no sensor"
	}
	s.values = append(s.values, v)
	return ""
}

// steps takes recipe steps.
type steps struct{ values []int32 }

func (s *steps) add(c cells.Cell) string {
	v, ok := c.AsWhole()
	if !ok || v < math.MinInt32 || v > math.MaxInt32 {
		return quoted(c.String()) + " is not a recipe step: write an integer, or step-column=- if there are none"
	}
	s.values = append(s.values, int32(v))
	return ""
}

// names takes the names of sensors in the long form.
type names struct {
	list  []string
	index map[string]int32
	rows  []int32 // index of each row's name
}

func (s *names) add(c cells.Cell) string {
	name := c.String()
	at, known := s.index[name]
	switch {
	case known:
	case name == "" || len(name) > tchart.MaxTextBytes:
		return fmt.Sprintf("%s is no name of a sensor: write 1 to %d bytes", quoted(name), tchart.MaxTextBytes)
	case len(s.list) == tchart.MaxSVIDs:
		return fmt.Sprintf("%s is one sensor too many: a trace has at most %d", quoted(name), tchart.MaxSVIDs)
	default:
		if s.index == nil {
			s.index = map[string]int32{}
		}
		at = int32(len(s.list))
		s.index[name] = at
		s.list = append(s.list, name)
	}
	s.rows = append(s.rows, at)
	return ""
}
