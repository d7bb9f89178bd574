package defender

import (
	"fmt"
	"io"
	"time"

	"github.com/muster-dev/muster/defender/analyze"
)

// progressEvery is how often a long analysis says how far it is.
const progressEvery = 5 * time.Second

// progress says on the standard error how far an analysis is.
type progress struct {
	out io.Writer
	now func() time.Time
	due time.Time
}

func newProgress(out io.Writer, now func() time.Time) *progress {
	return &progress{out: out, now: now, due: now().Add(progressEvery)}
}

func (p *progress) show(at analyze.Progress) {
	now := p.now()
	if now.Before(p.due) {
		return
	}
	p.due = now.Add(progressEvery)

	const megabyte = 1e6
	_, _ = fmt.Fprintf(p.out, "… %.0f of %.0f MB read, %d runs, %d alarms\n", float64(at.Read)/megabyte, float64(at.Size)/megabyte, at.Runs, at.Alarms)
}
