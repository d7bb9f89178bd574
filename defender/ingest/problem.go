package ingest

import (
	"fmt"
	"strings"
)

// maxProblems is how many problems of an input are reported at once.
const maxProblems = 20

// Problem is one thing wrong with what was sent.
type Problem struct {
	Field string `json:"field,omitempty"` // name of the parameter or column
	Row   int    `json:"row,omitempty"`   // from 1, a line with names not counted; 0 if it is no row
	What  string `json:"problem"`         // what is wrong and how to put it right
}

func (p Problem) Error() string {
	var where []string
	if p.Row > 0 {
		where = append(where, fmt.Sprintf("row %d", p.Row))
	}
	if p.Field != "" {
		where = append(where, fmt.Sprintf("%q", p.Field))
	}
	if len(where) == 0 {
		return p.What
	}
	return strings.Join(where, ", ") + ": " + p.What
}

// Problems is the error of an input that is wrong. It lists at most 20 problems; More says
// that there are others.
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

// add notes a problem. It reports whether there is room for another.
func (p *Problems) add(field string, row int, format string, args ...any) bool {
	if len(p.List) == maxProblems {
		p.More = true
		return false
	}
	p.List = append(p.List, Problem{Field: field, Row: row, What: fmt.Sprintf(format, args...)})
	return true
}

// err returns the problems as an error, nil if there are none.
func (p *Problems) err() error {
	if len(p.List) == 0 {
		return nil
	}
	return p
}

// problem returns the error of an input with one problem.
func problem(field, format string, args ...any) error {
	p := &Problems{}
	p.add(field, 0, format, args...)
	return p
}

// quoted returns what a cell holds, for a message.
func quoted(text string) string {
	const most = 40
	if len(text) > most {
		return fmt.Sprintf("%.*q...", most, text)
	}
	return fmt.Sprintf("%q", text)
}
