package defender

import (
	"fmt"
	"time"

	"github.com/muster-dev/muster/defender/uchart"
)

// UChart is the stored U-chart of one context: its statistics, all SVIDs, steps
// and statistics packed into one row, and what was concluded from them.
type UChart struct {
	Context ContextRef
	Chart   *uchart.Chart
	Verdict uchart.Verdict
}

// Alarm is raised by a context whose verdict is [uchart.Alarm] or
// [uchart.BadData].
type Alarm struct {
	Context ContextRef   `json:"context"`
	State   uchart.State `json:"state"`
	Reason  string       `json:"reason"` // one line for a person
}

// Result is all that processing one context yields. It depends on nothing but
// the T-chart and the chamber's earlier contexts, so computing it again gives
// the same bits.
type Result struct {
	UChart  UChart
	Alarm   *Alarm    // nil when there is none
	Expires time.Time // when the rows may be deleted
}

// NewResult puts together what is stored for a context, with its alarm if the
// verdict calls for one.
func NewResult(ref ContextRef, chart *uchart.Chart, verdict uchart.Verdict, expires time.Time) Result {
	r := Result{UChart: UChart{Context: ref, Chart: chart, Verdict: verdict}, Expires: expires}
	if verdict.Flagged() {
		r.Alarm = &Alarm{Context: ref, State: verdict.State, Reason: verdict.Reason()}
	}
	return r
}

// Points returns history in the form in which package uchart judges by it. Frozen
// limits that are kept in a row before the history are left out.
func Points(history []UChart) []uchart.Point {
	points := make([]uchart.Point, len(history))
	for i := range history {
		u := &history[i]
		points[i] = uchart.NewPoint(u.Context.ID, u.Chart, u.Verdict)
	}
	return points
}

// Validate reports what makes r unfit for storing.
func (r Result) Validate() error {
	if err := r.UChart.Context.Validate(); err != nil {
		return err
	}
	if r.UChart.Chart == nil {
		return fmt.Errorf("context %s has no chart", r.UChart.Context.ID)
	}
	if err := r.UChart.Chart.Validate(); err != nil {
		return fmt.Errorf("context %s: %w", r.UChart.Context.ID, err)
	}
	return nil
}
