package defender

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"time"
	"unicode/utf8"
)

// CompletionSchema is the version of [Completion] that this package writes and
// the highest that it reads.
const CompletionSchema = 1

// KindMaintenance marks a [Completion] that announces maintenance of a chamber: its
// limits start again with the contexts after it, and its alarms are cleared.
const KindMaintenance = "maintenance"

// ContextRef describes one context: which run of which chamber it was.
type ContextRef struct {
	Chamber Chamber   `json:"chamber"`
	ID      string    `json:"context"` // unique within the chamber
	Recipe  string    `json:"recipe"`  // charts of one chamber are kept apart by recipe
	Product string    `json:"product,omitempty"`
	Lot     string    `json:"lot,omitempty"`
	Wafer   string    `json:"wafer,omitempty"`
	Start   time.Time `json:"start"` // of the run
	End     time.Time `json:"end"`   // of the run; with ID it orders the chamber's history
}

// Position returns the place of the context in its chamber's history.
func (r ContextRef) Position() Position { return Position{End: r.End, Context: r.ID} }

// TChart returns the key of the context's T-chart.
func (r ContextRef) TChart() TChartKey { return TChartKey{Chamber: r.Chamber, Context: r.ID} }

// Validate reports every fault of r.
func (r ContextRef) Validate() error {
	errs := []error{
		r.Chamber.Validate(),
		checkContext(r.ID),
		checkText("recipe", r.Recipe),
		checkText("product", r.Product),
		checkText("lot", r.Lot),
		checkText("wafer", r.Wafer),
		checkTime("start", r.Start),
		checkTime("end", r.End),
	}
	if r.End.Before(r.Start) {
		errs = append(errs, fmt.Errorf("end %s is before start %s", r.End.Format(time.RFC3339Nano), r.Start.Format(time.RFC3339Nano)))
	}
	return errors.Join(errs...)
}

// Position is a place in a chamber's history, which is ordered by the end of
// the context and then by its ID. The zero Position is before everything.
type Position struct {
	End     time.Time
	Context string
}

// Compare returns -1, 0 or +1 when p is before, at or after q.
func (p Position) Compare(q Position) int {
	return cmp.Or(p.End.Compare(q.End), cmp.Compare(p.Context, q.Context))
}

// Completion is the message that a data collector publishes once the T-chart of
// a context is durable. It travels as JSON.
type Completion struct {
	Schema  int       `json:"schema"`         // CompletionSchema
	Kind    string    `json:"kind,omitempty"` // empty, or KindMaintenance
	Tool    string    `json:"tool"`
	Chamber string    `json:"chamber"` // name within the tool
	Context string    `json:"context"`
	TChart  string    `json:"tchart"` // TChartKey.String
	Start   time.Time `json:"start"`
	End     time.Time `json:"end"`
	Recipe  string    `json:"recipe"`
	Product string    `json:"product,omitempty"`
	Lot     string    `json:"lot,omitempty"`
	Wafer   string    `json:"wafer,omitempty"`
}

// NewCompletion returns the message for a context.
func NewCompletion(r ContextRef) Completion {
	return Completion{
		Schema: CompletionSchema, Tool: r.Chamber.Tool, Chamber: r.Chamber.Name,
		Context: r.ID, TChart: r.TChart().String(), Start: r.Start, End: r.End,
		Recipe: r.Recipe, Product: r.Product, Lot: r.Lot, Wafer: r.Wafer,
	}
}

// ParseCompletion reads and validates a message. Fields it doesn't know are
// ignored, so that a collector may be upgraded first.
func ParseCompletion(data []byte) (Completion, error) {
	var c Completion
	if err := json.Unmarshal(data, &c); err != nil {
		return Completion{}, fmt.Errorf("reading completion message: %w", err)
	}
	if err := c.Validate(); err != nil {
		return Completion{}, fmt.Errorf("completion message: %w", err)
	}
	return c, nil
}

// Ref returns the context that the message announces.
func (c Completion) Ref() ContextRef {
	return ContextRef{
		Chamber: Chamber{Tool: c.Tool, Name: c.Chamber}, ID: c.Context,
		Recipe: c.Recipe, Product: c.Product, Lot: c.Lot, Wafer: c.Wafer,
		Start: c.Start.UTC(), End: c.End.UTC(),
	}
}

// Validate reports every fault of the message at once.
func (c Completion) Validate() error {
	var errs []error
	switch {
	case c.Schema < 1:
		errs = append(errs, fmt.Errorf("schema %d is not a version: the first is 1", c.Schema))
	case c.Schema > CompletionSchema:
		errs = append(errs, fmt.Errorf("schema %d is newer than %d, the newest known here: upgrade the reader first", c.Schema, CompletionSchema))
	}
	if c.Kind != "" && c.Kind != KindMaintenance {
		errs = append(errs, fmt.Errorf("kind %q is not known here, only none and %q: upgrade the reader first", c.Kind, KindMaintenance))
	}
	ref := c.Ref()
	if err := ref.Validate(); err != nil {
		errs = append(errs, err)
	}
	key, err := ParseTChartKey(c.TChart)
	switch {
	case err != nil:
		errs = append(errs, err)
	case key != ref.TChart():
		errs = append(errs, fmt.Errorf("key %q is not that of the T-chart of the context, %q", c.TChart, ref.TChart()))
	}
	return errors.Join(errs...)
}

func checkText(what, s string) error {
	switch {
	case len(s) > maxTextBytes:
		return fmt.Errorf("%s has %d bytes, at most %d are allowed", what, len(s), maxTextBytes)
	case !utf8.ValidString(s):
		return fmt.Errorf("%s is not UTF-8", what)
	}
	return nil
}

// Times are stored as nanoseconds in 64 bits, which end in 2262.
var earliest, latest = time.Unix(0, 0), time.Unix(1<<33, 0)

func checkTime(what string, t time.Time) error {
	if t.Before(earliest) || t.After(latest) {
		return fmt.Errorf("%s %s is outside 1970 to 2242", what, t.Format(time.RFC3339))
	}
	return nil
}

// MarshalCompletion returns the message as it travels, or all its faults.
func MarshalCompletion(c Completion) ([]byte, error) {
	if err := c.Validate(); err != nil {
		return nil, err
	}
	data, err := json.Marshal(c)
	if err != nil {
		return nil, errors.Join(errors.New("encoding a completion message"), err)
	}
	return data, nil
}
