package defender

import (
	"errors"
	"fmt"
	"time"

	"github.com/muster-dev/muster/defender/classify"
	"github.com/muster-dev/muster/defender/uchart"
)

// FaultLabel is the fault that a context had, as a person found out. Chamber and context
// identify it. Alarms of later contexts, of any chamber, are compared with it.
type FaultLabel struct {
	Chamber Chamber `json:"chamber"`
	Context string  `json:"context"`
	Recipe  string  `json:"recipe,omitempty"`
	Fault   string  `json:"fault"`
	// Opposite names the same fault in the other direction, as "pressure low" is for
	// "pressure high"; empty if it has no name.
	Opposite string    `json:"opposite,omitempty"`
	By       string    `json:"by"` // who says so
	Note     string    `json:"note,omitempty"`
	At       time.Time `json:"at"`
	// Signature is that of the context's verdict, which may expire before the label.
	Signature []uchart.Level `json:"signature"`
}

// ErrNoSignature says that a context can't be labelled, since nothing could be compared with it.
var ErrNoSignature = errors.New("the run has no signature")

// NewFaultLabel returns the label of a context that raised an alarm. A context without a
// signature is [ErrNoSignature].
func NewFaultLabel(u UChart, fault string) (FaultLabel, error) {
	l := FaultLabel{Chamber: u.Context.Chamber, Context: u.Context.ID, Recipe: u.Context.Recipe, Fault: fault}
	m := u.Verdict.Multivariate
	if m == nil || len(m.Signature) == 0 {
		return l, fmt.Errorf("labelling %s, which is %s: %w: label a run that is an alarm and was judged by T² and Q", u.Context.TChart(), u.Verdict.State, ErrNoSignature)
	}
	l.Signature = m.Signature
	return l, nil
}

// Limits of a label, in bytes.
const (
	maxFaultBytes = 128
	maxNoteBytes  = 1024
)

// Validate reports every fault of l.
func (l FaultLabel) Validate() error {
	key := TChartKey{Chamber: l.Chamber, Context: l.Context}
	errs := []error{key.Validate()}
	if l.Fault == "" || l.Fault == l.Opposite {
		errs = append(errs, fmt.Errorf("fault is %q and its opposite %q: give two names, or a fault alone", l.Fault, l.Opposite))
	}
	for _, text := range []struct {
		field, value string
		most         int
	}{{"fault", l.Fault, maxFaultBytes}, {"opposite", l.Opposite, maxFaultBytes}, {"by", l.By, maxTextBytes}, {"note", l.Note, maxNoteBytes}, {"recipe", l.Recipe, maxTextBytes}} {
		if len(text.value) > text.most {
			errs = append(errs, fmt.Errorf("%s has %d bytes: give at most %d", text.field, len(text.value), text.most))
		}
	}
	if classify.New([]classify.Case{l.asCase()}).Size() == 0 {
		errs = append(errs, errors.New("signature has no level but 0: take the one of an alarm's verdict"))
	}
	return errors.Join(errs...)
}

// asCase is the label in the form in which package classify compares with it.
func (l FaultLabel) asCase() classify.Case {
	return classify.Case{Run: TChartKey{Chamber: l.Chamber, Context: l.Context}.String(), Fault: l.Fault, Opposite: l.Opposite, Signature: l.Signature}
}

// FaultLibrary returns the library of some labels.
func FaultLibrary(labels []FaultLabel) *classify.Library {
	cases := make([]classify.Case, len(labels))
	for i, l := range labels {
		cases[i] = l.asCase()
	}
	return classify.New(cases)
}
