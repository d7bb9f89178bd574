package local

import (
	"fmt"
	"io"
	"slices"
	"sync"
	"time"
)

// Moment is something that happened T seconds after a timeline began.
type Moment struct {
	T     float64 `json:"t"`
	Event string  `json:"event"`
}

// Timeline prints what happens, with the time since it began, and keeps it.
type Timeline struct {
	Began time.Time

	mu      sync.Mutex
	out     io.Writer
	moments []Moment
}

// newTimeline returns a timeline that begins now.
func newTimeline(out io.Writer) *Timeline { return &Timeline{Began: time.Now(), out: out} }

// Say prints an event and keeps it.
func (l *Timeline) Say(format string, args ...any) {
	t := time.Since(l.Began).Seconds()
	text := fmt.Sprintf(format, args...)
	l.mu.Lock()
	defer l.mu.Unlock()
	l.moments = append(l.moments, Moment{T: t, Event: text})
	_, _ = fmt.Fprintf(l.out, "%8.3fs  %s\n", t, text)
}

// print writes a line that is not kept.
func (l *Timeline) print(line string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	_, _ = fmt.Fprintf(l.out, "%8.3fs  %s\n", time.Since(l.Began).Seconds(), line)
}

// Write implements io.Writer: what is written has no time and is not kept.
func (l *Timeline) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.out.Write(p)
}

// Kept returns the events so far.
func (l *Timeline) Kept() []Moment {
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.Clone(l.moments)
}
