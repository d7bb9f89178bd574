package defender

import (
	"fmt"
	"slices"

	"github.com/muster-dev/muster/defender/classify"
	"github.com/muster-dev/muster/defender/uchart"
)

// AlarmEvent is what a context means for the alarm of its chamber and recipe.
type AlarmEvent string

// The events of an alarm's life. An alarm stands from the context that opens it
// until a number of contexts in a row that are found normal clears it; flagged ones
// meanwhile repeat it. The first of the process itself during an alarm of bad data, of a
// dead sensor, say, escalates it. Webhooks are told of opening, escalation and clearing.
const (
	AlarmOpened    AlarmEvent = "opened"
	AlarmRepeated  AlarmEvent = "repeated"
	AlarmEscalated AlarmEvent = "escalated"
	AlarmCleared   AlarmEvent = "cleared"
)

// AlarmDrifted is the event of a context that raises no alarm, but is the first of those the
// history has whose levels are far from Phase I; see [uchart.Drift]. Webhooks are told of it.
// It opens nothing and is not cleared.
const AlarmDrifted AlarmEvent = "drifted"

// AlarmNotice is the message that is published for an alarm, as JSON: one for each
// flagged context, and one for the context that clears the alarm.
type AlarmNotice struct {
	Alarm
	Event    AlarmEvent `json:"event"`
	Opened   string     `json:"opened"`           // context that opened the alarm; with the chamber it identifies it; empty for AlarmDrifted
	Count    int        `json:"count"`            // flagged contexts of it up to now, at least 1; 0 for AlarmDrifted
	Strategy string     `json:"strategy"`         // name@version
	Recipe   string     `json:"recipe,omitempty"` // of the alarm
	// Drift tells, in a line, how far levels have moved since Phase I.
	Drift string `json:"drift,omitempty"`
	// Trend tells, in a line, that the chamber alarms more often or worse than it did,
	// by the charts of its alarms; see ChartAlarms.
	Trend string `json:"trend,omitempty"`
	// Classification names the fault by the labels there were when the notice was
	// published; nil without labels, or if the context has no signature.
	Classification *classify.Match `json:"classification,omitempty"`
}

// NoticeOf returns the notice that a context calls for, and false if it is none. It
// depends on nothing but the contexts of the same chamber and recipe before it,
// oldest first, so that a context that is processed again calls for the same.
func NoticeOf(history []UChart, u UChart, clearAfter int) (AlarmNotice, bool) {
	before := standing(history, clearAfter)
	quiet, opened, count := 0, "", 0
	if before != nil {
		quiet, opened, count = before.Quiet, before.Opened, before.Count
	}
	n := AlarmNotice{Alarm: Alarm{Context: u.Context, State: u.Verdict.State, Reason: u.Verdict.Reason()},
		Opened: opened, Count: count, Strategy: u.Verdict.Strategy, Recipe: u.Context.Recipe}
	switch {
	case u.Verdict.Flagged() && before != nil:
		n.Event, n.Count = AlarmRepeated, count+1
		if before.Data && u.Verdict.State == uchart.Alarm {
			n.Event = AlarmEscalated
		}
	case u.Verdict.Flagged():
		n.Event, n.Opened, n.Count = AlarmOpened, u.Context.ID, 1
	case before != nil && u.Verdict.State == uchart.Maintenance:
		n.Event, n.Reason = AlarmCleared, "maintenance"
	case before != nil && u.Verdict.State != uchart.Learning && quiet+1 >= max(clearAfter, 1):
		n.Event, n.Reason = AlarmCleared, fmt.Sprintf("%d contexts in a row are normal", clearAfter)
	case before == nil && startsDrift(history, u):
		n.Event, n.Opened, n.Count, n.Reason = AlarmDrifted, "", 0, u.Verdict.DriftReason()
	default:
		return AlarmNotice{}, false
	}
	n.Drift = u.Verdict.DriftReason()
	if u.Verdict.Flagged() {
		n.Trend = trend(history, u)
	}
	return n, true
}

// startsDrift reports whether a context has drifted and none since the last maintenance had,
// as far as the history tells.
func startsDrift(history []UChart, u UChart) bool {
	if len(u.Verdict.Drift) == 0 {
		return false
	}
	for _, earlier := range slices.Backward(history) {
		if earlier.Verdict.State == uchart.Maintenance {
			return true
		}
		if len(earlier.Verdict.Drift) > 0 {
			return false
		}
	}
	return true
}

// standing returns the alarm that stands after the history, nil if none does. A row
// tells which stands after it, however long ago that was opened; rows of earlier
// versions don't, and are followed from the oldest there.
func standing(history []UChart, clearAfter int) *uchart.Standing {
	var s *uchart.Standing
	from := 0
	for i := len(history) - 1; i >= 0; i-- { // the newest that tells
		if told := history[i].Verdict.Standing; told != nil {
			copied := *told
			s, from = &copied, i+1
			break
		}
	}
	for i := from; i < len(history); i++ {
		s = s.After(history[i].Context.ID, &history[i].Verdict, clearAfter)
	}
	return s
}

// standingAfter returns the alarm that stands after a context.
func standingAfter(history []UChart, id string, v uchart.Verdict, clearAfter int) *uchart.Standing {
	return standing(history, clearAfter).After(id, &v, clearAfter)
}

// AlarmSubject is where the notices of a chamber's context are published.
func AlarmSubject(c Chamber, contextID string) string {
	return "dc-alarm." + c.Tool + "." + c.Name + "." + contextID
}
