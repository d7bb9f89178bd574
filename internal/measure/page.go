package main

import (
	_ "embed"
	"fmt"
	"io"
	"strings"
	"time"
)

// notes say how each figure is counted.
//
//go:embed notes.md
var notes string

// page is the Markdown page with the table.
type page struct {
	date    time.Time
	command string
	columns []figures
	parts   []figures // directories of the trees that have some
}

// add measures a tree and its parts.
func (p *page) add(t *tree, c *checked) {
	p.columns = append(p.columns, measure(t, c))
	for _, dir := range t.profile.parts {
		part := t.part(dir, dir+", "+t.name)
		if len(part.measured(product)) > 0 {
			p.parts = append(p.parts, measure(part, c))
		}
	}
}

func (p *page) write(out io.Writer) {
	_, _ = fmt.Fprintf(out, `# The code, measured

Written on %s by `+"`%s`"+`.

`, p.date.Format(time.DateOnly), p.command)
	writeTable(out, p.columns)
	if len(p.parts) > 0 {
		_, _ = fmt.Fprint(out, "\n## Parts\n\n")
		writeTable(out, p.parts)
	}
	_, _ = fmt.Fprint(out, "\n", notes)
}

// writeTable writes a line for each figure and a column for each tree.
func writeTable(out io.Writer, columns []figures) {
	head := []string{""}
	rule := []string{"---"}
	for _, c := range columns {
		head = append(head, c.subject.title())
		rule = append(rule, "---:")
	}
	writeRow(out, head)
	writeRow(out, rule)

	for _, r := range rows() {
		cells := []string{r.title}
		for _, c := range columns {
			cell := ""
			if r.value != nil {
				cell = r.value(c)
			}
			cells = append(cells, cell)
		}
		writeRow(out, cells)
	}
}

func writeRow(out io.Writer, cells []string) {
	_, _ = fmt.Fprintf(out, "| %s |\n", strings.Join(cells, " | "))
}
