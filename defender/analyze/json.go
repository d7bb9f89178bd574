package analyze

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"sync"

	"github.com/muster-dev/muster/defender/classify"
	"github.com/muster-dev/muster/defender/uchart"
)

// Verdicts is a file of whole verdicts, which take some kilobytes each: those of a large analysis
// don't fit into memory. It is safe for concurrent use.
type Verdicts struct {
	file *os.File

	mu  sync.Mutex
	out *bufio.Writer
	end int64
}

// place is where a verdict is in the file.
type place struct {
	at     int64
	length int
}

// NewVerdicts makes an empty file in the folder for temporary ones.
func NewVerdicts() (*Verdicts, error) {
	file, err := os.CreateTemp("", "muster-verdicts-*")
	if err != nil {
		return nil, fmt.Errorf("making a file for verdicts: %w", err)
	}
	return &Verdicts{file: file, out: bufio.NewWriterSize(file, 1<<20)}, nil
}

// Close removes the file.
func (v *Verdicts) Close() error {
	return errors.Join(v.file.Close(), os.Remove(v.file.Name()))
}

func (v *Verdicts) add(verdict *uchart.Verdict) (place, error) {
	text, err := json.Marshal(verdict)
	if err != nil {
		return place{}, err
	}
	v.mu.Lock()
	defer v.mu.Unlock()
	p := place{v.end, len(text)}
	if _, err := v.out.Write(text); err != nil {
		return place{}, fmt.Errorf("keeping a verdict: %w: make room there, or set TMPDIR to another folder", err)
	}
	v.end += int64(len(text))
	return p, nil
}

// flush writes what is still in memory.
func (v *Verdicts) flush() error {
	v.mu.Lock()
	defer v.mu.Unlock()
	if err := v.out.Flush(); err != nil {
		return fmt.Errorf("keeping verdicts: %w: make room there, or set TMPDIR to another folder", err)
	}
	return nil
}

func (v *Verdicts) read(p place) (json.RawMessage, error) {
	text := make([]byte, p.length)
	_, err := v.file.ReadAt(text, p.at)
	return text, err
}

// WriteJSON writes the report as an indented [json.Encoder] would, run by run, with the whole
// verdicts that [Analysis.Whole] has, or else as much of them as was kept.
func (r *Report) WriteJSON(out io.Writer) error {
	if r.whole != nil {
		if err := r.whole.flush(); err != nil {
			return err
		}
	}
	w := &jsonWriter{out: bufio.NewWriter(out)}
	w.text("{\n")
	w.field("  ", "files", r.Files, ",\n")
	w.field("  ", "strategies_version", r.Version, ",\n")
	w.text(`  "groups": [`)
	for i, g := range r.Groups {
		w.between(i, "\n")
		w.group(g, r.whole)
	}
	w.text("\n  ],\n")
	w.field("  ", "total", r.Total, ",\n")
	w.field("  ", "labelled", r.Labelled, ",\n")
	w.field("  ", "classified", r.Classified, "\n")
	w.text("}\n")
	return errors.Join(w.err, w.out.Flush())
}

// jsonWriter writes JSON until the first error.
type jsonWriter struct {
	out *bufio.Writer
	err error
}

func (w *jsonWriter) text(s string) {
	if w.err == nil {
		_, w.err = w.out.WriteString(s)
	}
}

// between writes what is before an element of a list.
func (w *jsonWriter) between(i int, before string) {
	if i > 0 {
		w.text(",")
	}
	w.text(before)
}

func (w *jsonWriter) value(indent string, v any) {
	text, err := json.MarshalIndent(v, indent, "  ")
	if w.err == nil {
		w.err = err
	}
	w.text(string(text))
}

func (w *jsonWriter) field(indent, name string, v any, after string) {
	w.text(indent + `"` + name + `": `)
	w.value(indent, v)
	w.text(after)
}

func (w *jsonWriter) group(g *Group, whole *Verdicts) {
	const indent = "      "
	w.text("    {\n")
	w.field(indent, "name", g.Name, ",\n")
	w.text(indent + `"runs": [`)
	for i, run := range g.Runs {
		w.between(i, "\n"+indent+"  ")
		w.value(indent+"  ", whole.of(run, &w.err))
	}
	w.text("\n" + indent + "]")
	if g.Note != "" {
		w.text(",\n")
		w.field(indent, "note", g.Note, "")
	}
	w.text("\n    }")
}

// of returns a run with its whole verdict, if there are such.
func (v *Verdicts) of(run *Run, failed *error) any {
	if v == nil || *failed != nil {
		return run
	}
	verdict, err := v.read(run.place)
	if err != nil {
		*failed = fmt.Errorf("reading the verdict on run %s: %w", run.Context, err)
	}
	return struct { // as Run
		File           string          `json:"file"`
		Context        string          `json:"context"`
		Fault          string          `json:"fault,omitempty"`
		Set            string          `json:"set,omitempty"`
		Points         int             `json:"points"`
		Verdict        json.RawMessage `json:"verdict"`
		Reason         string          `json:"reason,omitempty"`
		Classification *classify.Match `json:"classification,omitempty"`
	}{run.File, run.Context, run.Fault, run.Set, run.Points, verdict, run.Reason, run.Classification}
}
