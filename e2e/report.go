package e2e

import (
	"encoding/json"
	"fmt"
	"io"
	"os"
	"text/tabwriter"

	"github.com/muster-dev/muster/local"
)

// Report is the outcome of a scenario.
type Report struct {
	Scenario     string         `json:"scenario"`
	Case         string         `json:"case,omitempty"`
	Checks       []Check        `json:"checks"`
	Timeline     []local.Moment `json:"timeline"`
	Measurements map[string]any `json:"measurements"`
}

// Check compares what was expected with what was measured.
type Check struct {
	Name string `json:"name"`
	Want string `json:"want"`
	Got  string `json:"got"`
	OK   bool   `json:"ok"`
	// Timed marks a bound on wall time, or on how much came together in it, which a
	// slow or busy machine can break while everything that was promised held.
	Timed bool `json:"timed,omitempty"`
}

func newReport(name, variant string) *Report {
	return &Report{Scenario: name, Case: variant, Measurements: map[string]any{}}
}

// check enters a comparison.
func (r *Report) check(name, want string, ok bool, got string, args ...any) {
	r.Checks = append(r.Checks, Check{Name: name, Want: want, Got: fmt.Sprintf(got, args...), OK: ok})
}

// timed enters a check of a bound on wall time, or on what came together in it.
func (r *Report) timed(name, want string, ok bool, got string, args ...any) {
	r.check(name, want, ok, got, args...)
	r.Checks[len(r.Checks)-1].Timed = true
}

// equal enters a check that two values are the same.
func equal[T comparable](r *Report, name string, want, got T) {
	r.check(name, fmt.Sprint(want), want == got, "%v", got)
}

func (r *Report) measure(name string, v any) { r.Measurements[name] = v }

// OK reports whether every check holds. A report without checks is not OK.
func (r *Report) OK() bool { return r.holds(func(Check) bool { return false }) }

// Kept reports whether every check holds but those of bounds that a busy machine
// can break.
func (r *Report) Kept() bool { return r.holds(func(c Check) bool { return c.Timed }) }

func (r *Report) holds(leaveOut func(Check) bool) bool {
	for _, c := range r.Checks {
		if !c.OK && !leaveOut(c) {
			return false
		}
	}
	return len(r.Checks) > 0
}

// WriteTable writes expected against measured for a person.
func (r *Report) WriteTable(w io.Writer) {
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	_, _ = fmt.Fprintln(t, "CHECK\tEXPECTED\tMEASURED\t")
	for _, c := range r.Checks {
		mark := "ok"
		switch {
		case c.OK:
		case c.Timed:
			mark = "SLOW"
		default:
			mark = "FAILED"
		}
		_, _ = fmt.Fprintf(t, "%s\t%s\t%s\t%s\n", c.Name, c.Want, c.Got, mark)
	}
	_ = t.Flush()
}

// WriteFile writes the report as JSON.
func (r *Report) WriteFile(path string) error {
	data, err := json.MarshalIndent(r, "", "  ")
	if err != nil {
		return fmt.Errorf("encoding the report: %w", err)
	}
	if err := os.WriteFile(path, append(data, '\n'), 0o644); err != nil {
		return fmt.Errorf("writing the report: %w", err)
	}
	return nil
}
