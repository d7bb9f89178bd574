package explain

import (
	"fmt"
	"io"
	"reflect"
	"regexp"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/muster-dev/muster/internal/secret"
)

// Duration writes a duration as people do: 42s, 3m12s, 2h05m, 3d4h. It is cut to whole seconds and never negative.
func Duration(d time.Duration) string {
	s := int64(max(d, 0) / time.Second)
	switch {
	case s < 60:
		return fmt.Sprintf("%ds", s)
	case s < 3600:
		return fmt.Sprintf("%dm%02ds", s/60, s%60)
	case s < 24*3600:
		return fmt.Sprintf("%dh%02dm", s/3600, s/60%60)
	}
	return fmt.Sprintf("%dd%dh", s/86400, s/3600%24)
}

// Percent writes a ratio as a percentage with at most one decimal.
func Percent(r float64) string {
	return strings.TrimSuffix(strconv.FormatFloat(100*r, 'f', 1, 64), ".0") + "%"
}

// clock writes a time as seen beside another one: without the date on the same day. Times are in UTC, as the logs of cloud and
// cluster are.
func clock(t, beside time.Time) string {
	t, beside = t.UTC(), beside.UTC()
	if t.Year() == beside.Year() && t.YearDay() == beside.YearDay() {
		return t.Format("15:04:05")
	}
	return t.Format("2006-01-02 15:04:05")
}

// split returns the path of a gate's name, "" for one of every action, and the rest.
func split(gate string) (path, name string) {
	if path, name, ok := strings.Cut(gate, "."); ok {
		return path, name
	}
	return "", gate
}

// Style is how text is written.
type Style struct {
	Color bool // with ANSI colours, for a terminal
}

// The colours, which are hints only: everything can be read without them.
const (
	plain  = ""
	bold   = "1"
	dim    = "2"
	red    = "31"
	green  = "32"
	yellow = "33"
	cyan   = "36"
)

// styled is text that is safe to write as it is.
type styled string

func (s Style) paint(color, text string) styled {
	text = clean(text)
	if !s.Color || color == plain || text == "" {
		return styled(text)
	}
	return styled("\x1b[" + color + "m" + text + "\x1b[0m")
}

// page collects what is to be written. Whatever comes from outside is cleaned on its way in.
type page struct {
	Style
	b strings.Builder
}

func (p *page) line(format string, args ...any) {
	for i, a := range args {
		if _, safe := a.(styled); safe {
			continue
		}
		if err, ok := a.(error); ok {
			args[i] = clean(err.Error())
		} else if reflect.ValueOf(a).Kind() == reflect.String {
			args[i] = clean(fmt.Sprint(a))
		}
	}
	p.b.WriteString(strings.TrimRight(fmt.Sprintf(format, args...), " ") + "\n")
}

// title begins a section.
func (p *page) title(text string) {
	if p.b.Len() > 0 {
		p.b.WriteByte('\n')
	}
	p.line("%s", p.paint(bold, text))
}

func (p *page) writeTo(w io.Writer) error {
	_, err := io.WriteString(w, p.b.String())
	return err
}

// cell is one field of a table.
type cell struct {
	text  string
	color string
}

func c(text string) cell              { return cell{text: text} }
func colored(color, text string) cell { return cell{text: text, color: color} }
func num[T int | int64](n T) cell     { return cell{text: fmt.Sprint(n)} }
func ifThen(ok bool, a, b string) string {
	if ok {
		return a
	}
	return b
}

// table writes rows in aligned columns under their headings, two spaces apart. The last column is not padded, and wrapped only by
// the terminal.
func (p *page) table(indent string, headings []string, rows [][]cell) {
	head := make([]cell, len(headings))
	for i, h := range headings {
		head[i] = colored(dim, h)
	}
	p.columns(indent, nil, append([][]cell{head}, rows...))
}

// columns writes rows in aligned columns, each at least as wide as least says.
func (p *page) columns(indent string, least []int, rows [][]cell) {
	widths := map[int]int{}
	for i, w := range least {
		widths[i] = w
	}
	for _, row := range rows {
		for i := range row {
			row[i].text = clean(row[i].text)
			widths[i] = max(widths[i], utf8.RuneCountInString(row[i].text))
		}
	}
	for _, row := range rows {
		var line strings.Builder
		line.WriteString(indent)
		for i, f := range row {
			line.WriteString(string(p.paint(f.color, f.text)))
			if i < len(row)-1 {
				line.WriteString(strings.Repeat(" ", widths[i]-utf8.RuneCountInString(f.text)+2))
			}
		}
		p.b.WriteString(strings.TrimRight(line.String(), " ") + "\n")
	}
}

// WriteTable writes rows in aligned columns under their headings.
func WriteTable(w io.Writer, style Style, headings []string, rows [][]string) error {
	p := &page{Style: style}
	cells := make([][]cell, len(rows))
	for i, row := range rows {
		for _, text := range row {
			cells[i] = append(cells[i], c(text))
		}
	}
	p.table("", headings, cells)
	return p.writeTo(w)
}

// control matches what could confuse a terminal: messages carry text of others, for instance of a console.
var control = regexp.MustCompile(`\x1b\[[0-9;?]*[A-Za-z]|[\x00-\x1f\x7f]`)

// clean makes text of others fit to be written: without secrets, without control characters, on one line.
func clean(s string) string {
	s = secret.Redact(strings.TrimSpace(s))
	s = strings.ReplaceAll(s, "\n", " | ")
	return control.ReplaceAllString(strings.ReplaceAll(s, "\t", " "), "")
}

// inWords makes seconds readable; everything else stays as it was found.
func inWords(v string) string {
	if n, ok := strings.CutSuffix(v, "s"); ok && n != "" && strings.Trim(n, "0123456789") == "" {
		if d, err := time.ParseDuration(v); err == nil {
			return Duration(d)
		}
	}
	return v
}
