package uchart

import (
	"fmt"
	"strings"
)

// State is the conclusion about one context.
type State uint8

// The states of a [Verdict].
const (
	Learning    State = iota + 1 // too few earlier contexts to judge by; no alarm
	Normal                       // nothing unusual
	Alarm                        // the process deviates from the chamber's history
	BadData                      // the trace is truncated or broken; the process isn't judged
	Maintenance                  // no context but a mark: what lies before it doesn't count
)

var stateNames = [...]string{Learning: "learning", Normal: "normal", Alarm: "alarm", BadData: "bad-data", Maintenance: "maintenance"}

// String returns the lower-case name, such as "bad-data".
func (s State) String() string {
	if s >= Learning && s <= Maintenance {
		return stateNames[s]
	}
	return fmt.Sprintf("state(%d)", uint8(s))
}

// MarshalText implements [encoding.TextMarshaler].
func (s State) MarshalText() ([]byte, error) {
	if s < Learning || s > Maintenance {
		return nil, fmt.Errorf("unknown state %d", uint8(s))
	}
	return []byte(stateNames[s]), nil
}

// UnmarshalText implements [encoding.TextUnmarshaler].
func (s *State) UnmarshalText(text []byte) error {
	for i, name := range stateNames {
		if name == string(text) && name != "" {
			*s = State(i)
			return nil
		}
	}
	return fmt.Errorf("unknown state %q", text)
}

// Verdict is the conclusion about one context with its reasons. It holds finite
// numbers only and travels as JSON.
type Verdict struct {
	State  State    `json:"state"`
	Limits LimitsID `json:"limits"`
	// Run is one more than the number of unflagged contexts before it since the last
	// maintenance; 0 in verdicts of versions that didn't count them.
	Run int `json:"run,omitempty"`
	// Lot is the wafer lot of the context, as far as it was told.
	Lot string `json:"lot,omitempty"`
	// Courses are those by which single charts were judged; a statistic whose runs are
	// independent has none.
	Courses []Course `json:"courses,omitempty"`
	// Content is a hash of the chart that was judged; see [Chart.Content].
	Content uint64 `json:"content,string,omitempty"`
	// Charts is how many single charts (SVID x step x statistic) were judged.
	Charts int `json:"charts"`
	// Score is the context's score and ScoreLimit the one from which on it is an
	// alarm; see Judge for what they are.
	Score      float64 `json:"score"`
	ScoreLimit float64 `json:"score_limit"`
	// Violated is how many charts are outside their limits, and Violations the
	// worst of them, worst first, at most maxViolations.
	Violated   int         `json:"violated"`
	Violations []Violation `json:"violations,omitempty"`
	// Signaled is how often a chart's course is unusual by run rules, EWMA or CUSUM,
	// and Signals the worst of them, at most maxViolations.
	Signaled int      `json:"signaled,omitempty"`
	Signals  []Signal `json:"signals,omitempty"`
	// Drift is the means that have moved far from Phase I, the farthest first, at most
	// maxDrifts. It is no alarm.
	Drift []Drift `json:"drift,omitempty"`
	// Frozen is the limits that were frozen for this context and those after it,
	// which refer to it by Limits.At.
	Frozen *Baseline `json:"frozen,omitempty"`
	// Standing is the alarm that stands after the context; nil if none does.
	Standing *Standing `json:"standing,omitempty"`
	// Multivariate is set when the context was judged by principal components.
	Multivariate *Multivariate `json:"multivariate,omitempty"`
	// Strategy names the strategy and its version that the context was judged by,
	// as "name@version"; empty for a bare [Policy].
	Strategy string `json:"strategy,omitempty"`
	// Faults are what is wrong with the data, for a person.
	Faults []string `json:"faults,omitempty"`
	// Counters are the SVIDs that count, such as hours of RF, and so have no charts.
	Counters []string `json:"counters,omitempty"`
	// Suspended are the SVIDs that weren't judged since their data can't be used; the
	// others were.
	Suspended []string `json:"suspended,omitempty"`
}

// maxViolations is how many violations a [Verdict] lists.
const maxViolations = 20

// Multivariate is what a principal component model says of a context.
type Multivariate struct {
	Model      LimitsID `json:"model"` // contexts it was trained on
	Components int      `json:"components"`
	Variables  int      `json:"variables"`
	T2         float64  `json:"t2"` // Hotelling's T²
	T2Limit    float64  `json:"t2_limit"`
	Q          float64  `json:"q"` // squared prediction error
	QLimit     float64  `json:"q_limit"`
	// Courses are those that variables were judged by; a statistic whose runs are independent
	// has none.
	Courses []Course `json:"courses,omitempty"`
	// By lists what contributes most to the statistic that is further out, relative
	// to its limit; at most maxContributions, the largest first.
	By []Contribution `json:"by,omitempty"`
	// Signature is how far the level of each SVID is off, by which labelled faults are
	// recognized; the largest first, at most maxLevels, and only of an alarm.
	Signature []Level `json:"signature,omitempty"`
}

// maxContributions is how many contributions a [Multivariate] lists.
const maxContributions = 10

// Contribution is the part that one variable has in T² or Q.
type Contribution struct {
	SVID      string    `json:"svid"`
	Step      int32     `json:"step"`
	Statistic Statistic `json:"statistic"`
	Share     float64   `json:"share"` // of the statistic; negative where it lowers T², or lies low in Q
}

// Out reports whether T² or Q is over its limit.
func (m *Multivariate) Out() bool { return m.T2 > m.T2Limit || m.Q > m.QLimit }

// String describes it in one line.
func (m *Multivariate) String() string {
	s := fmt.Sprintf("T² %.4g (limit %.4g), Q %.4g (limit %.4g) of %d components", m.T2, m.T2Limit, m.Q, m.QLimit, m.Components)
	if len(m.By) > 0 {
		b := m.By[0]
		s += fmt.Sprintf("; most by %s, step %d, %s (%.0f %%)", b.SVID, b.Step, b.Statistic, 100*b.Share)
	}
	return s
}

// LimitsID tells which control limits a context was judged by.
type LimitsID struct {
	Version uint64 `json:"version,string"` // hash of the rules and of the contexts used; 0 is none
	N       int    `json:"n"`              // contexts used
	First   string `json:"first,omitempty"`
	Last    string `json:"last,omitempty"`
	// At is the context in whose verdict frozen limits are kept; empty for limits that
	// follow the newest contexts, and in that verdict itself.
	At string `json:"at,omitempty"`
}

// Violation is one chart outside its control limits.
type Violation struct {
	SVID      string    `json:"svid"`
	Step      int32     `json:"step"`
	Statistic Statistic `json:"statistic"`
	Value     float64   `json:"value"`
	Center    float64   `json:"center"`
	Lower     float64   `json:"lower"`
	Upper     float64   `json:"upper"`
	Sigmas    float64   `json:"sigmas"` // distance from Center, signed
}

// String describes the violation in one line.
func (v Violation) String() string {
	return fmt.Sprintf("%s, step %d, %s = %.6g outside %.6g..%.6g (%+.1f sigma)", v.SVID, v.Step, v.Statistic, v.Value, v.Lower, v.Upper, v.Sigmas)
}

// Flagged reports whether the context raises an alarm and is kept out of the
// limits of later ones.
func (v Verdict) Flagged() bool { return v.State == Alarm || v.State == BadData }

// Quiet reports whether limits may rest on the context however far back it lies: it isn't
// flagged and no alarm stood after it.
func (v Verdict) Quiet() bool {
	return (v.State == Normal || v.State == Learning) && v.Standing == nil
}

// Reason says in one line why the context is flagged, and is empty if it isn't.
func (v Verdict) Reason() string {
	var reasons []string
	if v.State == Alarm {
		if v.Violated > 0 || len(v.Signals) == 0 && v.Multivariate == nil {
			reasons = append(reasons, fmt.Sprintf("score %.4g over %.4g, %d of %d charts outside", v.Score, v.ScoreLimit, v.Violated, v.Charts))
			if len(v.Violations) > 0 {
				reasons = append(reasons, "worst "+v.Violations[0].String())
			}
		}
		if len(v.Signals) > 0 {
			reasons = append(reasons, fmt.Sprintf("%d signals, first %s", v.Signaled, v.Signals[0]))
		}
		if v.Multivariate != nil && v.Multivariate.Out() {
			reasons = append(reasons, v.Multivariate.String())
		}
	}
	if v.Flagged() && len(v.Faults) > 0 || v.State == BadData {
		reasons = append(reasons, "bad data: "+strings.Join(v.Faults, "; "))
		if len(v.Suspended) > 0 {
			reasons = append(reasons, "other sensors are judged")
		}
	}
	return strings.Join(reasons, "; ")
}

// Point is an earlier context as [Judge] sees it.
type Point struct {
	Context string
	Chart   *Chart
	Run     int    // as its verdict has it; 0 if unknown
	Content uint64 // that of Chart, as its verdict has it; 0 if unknown
	Lot     string // as its verdict has it; empty if unknown
	Flagged bool   // not used for limits
	Reset   bool   // a mark of maintenance: neither it nor what lies before is used
	Bad     bool   // it had bad data as a whole: not used for the course of charts either
	// Suspended are the SVIDs that aren't used for the course of charts.
	Suspended []string
	// Standing reports whether an alarm stands after it; Older that it lies before the
	// newest contexts and is there for limits only, not for the course of charts.
	Standing, Older bool
	// Baseline is the frozen limits that its verdict holds or refers to; nil if none.
	// It may be left out where a newer context of the history has the same.
	Baseline *Baseline
}

// NewPoint returns an earlier context with its verdict as [Judge] sees it. A verdict
// that refers to frozen limits kept elsewhere leaves Baseline nil.
func NewPoint(context string, chart *Chart, v Verdict) Point {
	p := Point{Context: context, Chart: chart, Run: v.Run, Lot: v.Lot, Content: v.Content, Flagged: v.Flagged(), Reset: v.State == Maintenance,
		Bad: v.State == BadData && len(v.Suspended) == 0, Suspended: v.Suspended, Standing: v.Standing != nil}
	if v.Frozen != nil {
		b := *v.Frozen
		b.Context = context
		p.Baseline = &b
	}
	return p
}
