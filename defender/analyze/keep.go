package analyze

import "github.com/muster-dev/muster/defender/uchart"

// Keep is how much of verdicts a report keeps. An analysis may have hundreds of thousands of
// runs, and all about one takes some kilobytes.
type Keep uint8

const (
	// KeepReasons keeps states, the reasons of flagged runs and what alarms are classified by,
	// and how far each group has drifted.
	KeepReasons Keep = iota
	// KeepFigures keeps what [Report.WriteHTML] draws besides: figures of each run, and all
	// about flagged ones.
	KeepFigures
	// KeepAll keeps whole verdicts.
	KeepAll
)

// of returns what is kept of a verdict. The group's history may hold the same parts, so that
// they are copied, never changed.
func (k Keep) of(v *uchart.Verdict) *uchart.Verdict {
	switch {
	case k == KeepAll, k == KeepFigures && v.Flagged():
		return v
	case k == KeepFigures:
		return figures(v)
	}
	return reasons(v.State, v.Suspended, v.Drift, signature(v))
}

// figures is a verdict without what only explains it.
func figures(v *uchart.Verdict) *uchart.Verdict {
	less := *v
	less.Courses, less.Frozen = nil, nil
	if v.Multivariate != nil {
		m := *v.Multivariate
		m.By, m.Courses = nil, nil
		less.Multivariate = &m
	}
	return &less
}

// signature is what an alarm is classified by.
func signature(v *uchart.Verdict) *uchart.Multivariate {
	if v.Multivariate == nil || len(v.Multivariate.Signature) == 0 {
		return nil
	}
	return &uchart.Multivariate{Signature: v.Multivariate.Signature}
}

// plain are the verdicts that say nothing but a state, which most runs have.
var plain = [...]uchart.Verdict{
	uchart.Learning: {State: uchart.Learning},
	uchart.Normal:   {State: uchart.Normal},
	uchart.Alarm:    {State: uchart.Alarm},
	uchart.BadData:  {State: uchart.BadData},
}

// reasons returns the verdict of a state with what else is kept of it where reasons are.
func reasons(state uchart.State, suspended []string, drift []uchart.Drift, m *uchart.Multivariate) *uchart.Verdict {
	if len(suspended) == 0 && len(drift) == 0 && m == nil {
		return &plain[state]
	}
	return &uchart.Verdict{State: state, Suspended: suspended, Drift: drift, Multivariate: m}
}
