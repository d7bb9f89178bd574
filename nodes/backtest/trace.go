package backtest

import (
	"cmp"
	"encoding/csv"
	"errors"
	"fmt"
	"io"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"
)

// Pod is a pod of a trace. All times count from the beginning of the trace.
type Pod struct {
	Name     string
	MilliCPU int64
	Memory   int64         // bytes
	GPUs     int           // asked for, and ignored
	Created  time.Duration // when it asked to run
	// Runs is how long it runs once it is on a node: as long as it did when it was recorded.
	Runs time.Duration
	// Withdrawn is when its owner took it away, for a pod that never ran when it was recorded. How long it would have run nobody
	// knows; here too it is gone by then. 0: it ran.
	Withdrawn time.Duration
	Pool      string // that it is for; "": it says nothing

	carried bool // was there before the window
}

// end is when the pod would be gone had it never waited.
func (p Pod) end() time.Duration {
	if p.Withdrawn > 0 {
		return p.Withdrawn
	}
	return p.Created + p.Runs
}

// Trace is a list of pods in the order of their creation.
type Trace struct {
	Name string
	Pods []Pod
}

// TraceError says what is wrong with a trace file.
type TraceError struct {
	File  string
	Line  int    // 0: the file as a whole
	Field string // "" if it is not about one
	Why   string // with the fix
}

// Error names the file, the line and the field.
func (e *TraceError) Error() string {
	where := e.File
	if e.Line > 0 {
		where += fmt.Sprintf(", line %d", e.Line)
	}
	if e.Field != "" {
		where += ", field " + e.Field
	}
	return where + ": " + e.Why
}

// traceColumns are those that are read; others may be there.
var traceColumns = []string{"name", "cpu_milli", "memory_mib", "num_gpu", "creation_time", "deletion_time", "scheduled_time"}

// ReadTrace reads a trace in the format of Alibaba's cluster-trace-gpu-v2023: comma-separated values whose first line names the
// columns, one pod per line; times in seconds, scheduled_time empty if the pod never ran; num_gpu may be absent. A column pool, which is
// ours, names the pool of POOLS whose labels a pod selects and whose taints it tolerates. The error is
// a *TraceError for the first thing that is wrong.
func ReadTrace(name string, r io.Reader) (Trace, error) {
	in := csv.NewReader(r)
	in.ReuseRecord = true
	head, err := in.Read()
	if errors.Is(err, io.EOF) {
		return Trace{}, &TraceError{File: name, Why: "it is empty: give a trace whose first line names the columns " + strings.Join(traceColumns, ", ")}
	}
	if err != nil {
		return Trace{}, csvError(name, err)
	}
	at := map[string]int{}
	for i, h := range head {
		at[strings.TrimSpace(strings.TrimPrefix(h, "\ufeff"))] = i
	}
	for _, c := range traceColumns {
		if _, ok := at[c]; !ok && c != "num_gpu" {
			return Trace{}, &TraceError{File: name, Line: 1, Field: c, Why: "the column is missing: the first line names the columns " + strings.Join(traceColumns, ", ")}
		}
	}
	out := Trace{Name: name}
	for {
		row, err := in.Read()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return Trace{}, csvError(name, err)
		}
		line, _ := in.FieldPos(0)
		p, err := readPod(name, line, row, at)
		if err != nil {
			return Trace{}, err
		}
		out.Pods = append(out.Pods, p)
	}
	if len(out.Pods) == 0 {
		return Trace{}, &TraceError{File: name, Why: "it has no pod: give at least one line below the names of the columns"}
	}
	slices.SortStableFunc(out.Pods, func(a, b Pod) int { return cmp.Compare(a.Created, b.Created) })
	return out, nil
}

func csvError(name string, err error) error {
	var pe *csv.ParseError
	if errors.As(err, &pe) {
		return &TraceError{File: name, Line: pe.Line, Why: pe.Err.Error() + ": each line has as many fields as the first"}
	}
	return fmt.Errorf("reading %s: %w", name, err)
}

func readPod(name string, line int, row []string, at map[string]int) (Pod, error) {
	var first error
	bad := func(field, why string, args ...any) {
		if first == nil {
			first = &TraceError{File: name, Line: line, Field: field, Why: fmt.Sprintf(why, args...)}
		}
	}
	number := func(field string, most int64) int64 {
		i, ok := at[field]
		if !ok {
			return 0
		}
		text := strings.TrimSpace(row[i])
		v, err := strconv.ParseFloat(text, 64) // some tools write 10.0
		switch {
		case err != nil || math.IsNaN(v) || math.IsInf(v, 0) || v != math.Trunc(v):
			bad(field, "%q is not a whole number", text)
		case v < 0:
			bad(field, "%s is negative: use 0 or more", text)
		case v > float64(most):
			bad(field, "%s is more than %d", text, most)
		}
		return int64(v)
	}
	const longest = 1 << 32 // seconds; 136 years
	seconds := func(field string) time.Duration { return time.Duration(number(field, longest)) * time.Second }
	p := Pod{
		Name:     strings.TrimSpace(row[at["name"]]),
		MilliCPU: number("cpu_milli", 1e9),
		Memory:   number("memory_mib", 1<<30) << 20,
		GPUs:     int(number("num_gpu", 1e6)),
		Created:  seconds("creation_time"),
	}
	if p.Name == "" {
		bad("name", "it is empty")
	}
	if i, ok := at["pool"]; ok {
		p.Pool = strings.TrimSpace(row[i])
	}
	deleted := seconds("deletion_time")
	if strings.TrimSpace(row[at["scheduled_time"]]) == "" {
		p.Withdrawn = max(deleted, p.Created+time.Second)
		if deleted < p.Created {
			bad("deletion_time", "%d is before creation_time", deleted/time.Second)
		}
		return p, first
	}
	scheduled := seconds("scheduled_time")
	if scheduled < p.Created {
		bad("scheduled_time", "%d is before creation_time", scheduled/time.Second)
	}
	if deleted < scheduled {
		bad("deletion_time", "%d is before scheduled_time", deleted/time.Second)
	}
	p.Runs = max(deleted-scheduled, time.Second) // the clock of the trace is no finer
	return p, first
}

// Window is a part of a trace's time.
type Window struct{ From, To time.Duration }

// Length returns how long it is.
func (w Window) Length() time.Duration { return w.To - w.From }

// Whole returns the window from the first creation to the last end of a pod.
func (t Trace) Whole() Window {
	w := Window{From: t.Pods[0].Created}
	for _, p := range t.Pods {
		w.To = max(w.To, p.end())
	}
	return w
}

// Busiest returns the window of a length in which most pods are created; it begins with the creation of one.
func (t Trace) Busiest(length time.Duration) Window {
	best, most := 0, 0
	for first, last := 0, 0; first < len(t.Pods); first++ {
		for last < len(t.Pods) && t.Pods[last].Created < t.Pods[first].Created+length {
			last++
		}
		if last-first > most {
			best, most = first, last-first
		}
	}
	from := t.Pods[best].Created
	return Window{from, min(from+length, t.Whole().To)}
}

// Cut returns the pods that are created in a window, and of those that were created before those that would still be there when it
// begins, with what is left of them. Times count from the window's beginning.
func (t Trace) Cut(w Window) (pods []Pod, carried int) {
	for _, p := range t.Pods {
		switch {
		case p.Created >= w.To || p.end() <= w.From:
			continue
		case p.Created < w.From:
			carried++
			p.carried = true
			p.Runs -= w.From - p.Created
			p.Created = w.From
		}
		p.Created -= w.From
		if p.Withdrawn > 0 {
			p.Withdrawn -= w.From
		}
		pods = append(pods, p)
	}
	slices.SortStableFunc(pods, func(a, b Pod) int { return cmp.Compare(a.Created, b.Created) })
	return pods, carried
}
