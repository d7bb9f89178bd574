package main

import (
	"fmt"
	"os"
	"slices"
	"strings"

	"github.com/muster-dev/muster/defender"
	"github.com/muster-dev/muster/defender/classify"
	"github.com/muster-dev/muster/defender/strategy"
	"github.com/muster-dev/muster/defender/trace"
	"github.com/muster-dev/muster/defender/uchart"
)

// experiment is the wafers of one experiment.
type experiment struct {
	name           string
	normal, faulty []wafer
	unjudged       int // faulty wafers with bad data
}

// wafer is one run with what is compared of it.
type wafer struct {
	experiment, name, label string // label is empty for a normal one
	signature               []uchart.Level
	features                []float64 // means and standard deviations as they are
	deviations              []float64 // of features from the experiment's normal wafers, in their standard deviations; faulty ones only
	missed                  bool      // faulty, and no alarm
}

// read judges the wafers of a file by the default strategy.
func read(name string) ([]experiment, error) {
	f, err := os.Open(name)
	if err != nil {
		return nil, fmt.Errorf("reading the etches: %w", err)
	}
	defer func() { _ = f.Close() }()
	reader, err := trace.NewReader(f, name)
	if err != nil {
		return nil, err
	}
	byName := map[string][]*trace.Wafer{}
	for w, err := range reader.All() {
		if err != nil {
			return nil, err
		}
		byName[w.Experiment] = append(byName[w.Experiment], w)
	}

	var experiments []experiment
	for name, wafers := range byName {
		e, err := judge(name, wafers)
		if err != nil {
			return nil, err
		}
		experiments = append(experiments, e)
	}
	slices.SortFunc(experiments, func(a, b experiment) int { return strings.Compare(a.name, b.name) })
	if len(experiments) != 2 {
		return nil, fmt.Errorf("%s has %d experiments, want 2: give lam9600_machine.csv", name, len(experiments))
	}
	return experiments, nil
}

// judge has a defender see the wafers of an experiment, the normal ones first.
func judge(name string, wafers []*trace.Wafer) (experiment, error) {
	slices.SortFunc(wafers, func(a, b *trace.Wafer) int {
		switch {
		case a.Normal() == b.Normal():
			return strings.Compare(a.Trace.Context, b.Trace.Context)
		case a.Normal():
			return -1
		}
		return 1
	})
	e, set := experiment{name: name}, strategy.Default()
	ref := defender.ContextRef{Chamber: defender.Chamber{Tool: "lam9600", Name: "experiment" + name}}
	st, _ := set.Of(ref)
	history := uchart.History{ClearAfter: st.ClearAfter()}
	var calc uchart.Calculator
	for _, w := range wafers {
		chart, err := calc.Compute(&w.Trace)
		if err != nil {
			return e, fmt.Errorf("wafer %s: %w", w.Trace.Context, err)
		}
		ref.ID = w.Trace.Context
		v := history.Add(ref.ID, chart, set.Judge(ref, history.Points(), chart))
		out := wafer{experiment: name, name: strings.TrimSuffix(ref.ID, ".txm"), label: w.Fault, features: featuresOf(chart)}
		switch {
		case v.State == uchart.BadData:
			if !w.Normal() {
				e.unjudged++
			}
			continue
		case w.Normal():
			e.normal = append(e.normal, out)
			continue
		}
		out.missed = v.State != uchart.Alarm
		if v.Multivariate != nil {
			out.signature = v.Multivariate.Signature
		}
		e.faulty = append(e.faulty, out)
	}
	mean, deviation := scales(e.normal)
	for i := range e.faulty {
		w := &e.faulty[i]
		w.deviations = make([]float64, len(w.features))
		for f, x := range w.features {
			w.deviations[f] = (x - mean[f]) / deviation[f]
		}
	}
	return e, nil
}

// featuresOf are the means and standard deviations of all sensors and steps.
func featuresOf(c *uchart.Chart) []float64 {
	var features []float64
	for svid := range c.SVIDs {
		for step := range c.Steps {
			for _, s := range []uchart.Statistic{uchart.Mean, uchart.StdDev} {
				x, _ := c.Value(svid, step, s) // wafers without it are bad data
				features = append(features, x)
			}
		}
	}
	return features
}

// fault is what an engineer would call a label of the file, such as "TCP +50".
func (w *wafer) fault() string {
	actuator, amount, _ := strings.Cut(w.label, " ")
	switch amount[0] {
	case '+':
		return actuator + " high"
	case '-':
		return actuator + " low"
	}
	return w.label
}

// opposite is what the same fault is called in the other direction; empty if there is none.
func (w *wafer) opposite() string {
	if s, found := strings.CutSuffix(w.fault(), " high"); found {
		return s + " low"
	}
	if s, found := strings.CutSuffix(w.fault(), " low"); found {
		return s + " high"
	}
	return ""
}

// asCase is the wafer as an engineer labels it.
func (w *wafer) asCase() classify.Case {
	return classify.Case{Run: w.name, Fault: w.fault(), Opposite: w.opposite(), Signature: w.signature}
}
