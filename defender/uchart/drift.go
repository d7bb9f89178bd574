package uchart

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strings"
)

// Drift is how far the level of a wandering chart has moved since Phase I. Limits follow such
// a level ([Wandering]), so that it is no alarm; where it has got to is told nonetheless.
type Drift struct {
	SVID      string    `json:"svid"`
	Step      int32     `json:"step"`
	Statistic Statistic `json:"statistic"`
	Center    float64   `json:"center"` // mean of Phase I
	Level     float64   `json:"level"`  // of the newest contexts
	Sigmas    float64   `json:"sigmas"` // distance, signed, in sigmas of single values about the level
}

const (
	// leastDrift is in sigmas. The level of runs that don't drift has a standard deviation of a
	// third of a sigma (wanderWeight), so that hundreds of charts stay far below.
	leastDrift = 3
	maxDrifts  = 10 // that a verdict lists
)

// String describes the drift in one line.
func (d Drift) String() string {
	return fmt.Sprintf("%s, step %d, %s is at %.6g, %.6g in Phase I (%+.1f sigma)", d.SVID, d.Step, d.Statistic, d.Level, d.Center, d.Sigmas)
}

// DriftReason says in one line how far levels have drifted, and is empty if they haven't.
func (v Verdict) DriftReason() string {
	if len(v.Drift) == 0 {
		return ""
	}
	var list []string
	for _, d := range v.Drift[:min(len(v.Drift), 3)] {
		list = append(list, d.String())
	}
	if more := len(v.Drift) - len(list); more > 0 {
		list = append(list, fmt.Sprintf("and %d more", more))
	}
	return "drifted since Phase I: " + strings.Join(list, "; ")
}

// drift returns the means that have drifted, the farthest first, of tracks whose centers are
// what is expected of them.
func (b *Baseline) drift(expected []track) []Drift {
	if b.course(Mean).Kind != Wandering {
		return nil
	}
	var drifts []Drift
	for _, t := range expected {
		if t.Statistic != Mean || !(t.estimate.Sigma > 0) {
			continue
		}
		if far := sigmas(t.Center-t.estimate.Center, t.estimate.Sigma*t.course.marginal()); math.Abs(far) >= leastDrift {
			drifts = append(drifts, Drift{SVID: t.SVID, Step: t.Step, Statistic: Mean, Center: t.estimate.Center, Level: t.Center, Sigmas: far})
		}
	}
	slices.SortStableFunc(drifts, func(a, b Drift) int { return cmp.Compare(math.Abs(b.Sigmas), math.Abs(a.Sigmas)) })
	return slices.Clip(drifts[:min(len(drifts), maxDrifts)])
}
