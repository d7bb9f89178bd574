package analyze

import (
	"fmt"
	"strings"

	"github.com/muster-dev/muster/defender"
	"github.com/muster-dev/muster/defender/classify"
	"github.com/muster-dev/muster/defender/uchart"
)

// Classify names the faults of alarms by labelled runs: those given, and the alarms of the
// files themselves whose fault is known. A run isn't compared with itself.
func (r *Report) Classify(labels []defender.FaultLabel) {
	cases := make([]classify.Case, 0, len(labels))
	for _, l := range labels {
		run := defender.TChartKey{Chamber: l.Chamber, Context: l.Context}.String()
		cases = append(cases, classify.Case{Run: run, Fault: l.Fault, Opposite: l.Opposite, Signature: l.Signature})
	}
	r.eachAlarm(func(g *Group, run *Run) {
		if run.Fault != "" {
			cases = append(cases, classify.Case{Run: g.inFiles(run), Fault: run.Fault, Signature: run.Verdict.Multivariate.Signature})
		}
	})

	library := classify.New(cases)
	r.eachAlarm(func(g *Group, run *Run) {
		others := library
		if run.Fault != "" {
			others = library.Without(g.inFiles(run))
		}
		run.Classification = others.Classify(run.Verdict.Multivariate.Signature)
		r.Classified = r.Classified || run.Classification != nil
	})
}

// Labels returns the alarms of the files whose fault is known as labels for other runs to be
// compared with. What isn't known of them is who says so, and when.
func (r *Report) Labels() []defender.FaultLabel {
	var list []defender.FaultLabel
	r.eachAlarm(func(g *Group, run *Run) {
		if run.Fault == "" {
			return
		}
		ref := g.ref(run)
		list = append(list, defender.FaultLabel{Chamber: ref.Chamber, Context: run.id, Recipe: ref.Recipe, Fault: run.Fault, Signature: run.Verdict.Multivariate.Signature})
	})
	return list
}

// eachAlarm calls f with each run whose verdict has a signature.
func (r *Report) eachAlarm(f func(*Group, *Run)) {
	for _, g := range r.Groups {
		for _, run := range g.Runs {
			if v := run.Verdict; v.State == uchart.Alarm && v.Multivariate != nil && len(v.Multivariate.Signature) > 0 {
				f(g, run)
			}
		}
	}
}

// inFiles names a run among those of all files.
func (g *Group) inFiles(run *Run) string { return run.id + " (" + g.Name + ")" }

// Named says in one line what labels say of the run, and which runs that rests on; empty if
// it was compared with none.
func (run *Run) Named() string {
	m := run.Classification
	if m == nil {
		return ""
	}
	var like []string
	for _, n := range m.Nearest {
		like = append(like, fmt.Sprintf("%s %.2f of %s", n, n.Similarity, n.Run))
	}
	return fmt.Sprintf("%s (%.0f %%); most similar: %s", m, 100*m.Confidence, strings.Join(like, ", "))
}
