package nodes

import (
	"context"
	"time"
)

// Impairment is a failed status check of an instance. The zero value is an instance of which none is known to have failed.
type Impairment struct {
	Check string    `json:"check"`          // what failed, for people: "system" (the cloud's host), "instance" (its system) or both
	Since time.Time `json:"since,omitzero"` // when it failed first; zero: the cloud does not say
}

// Failed reports whether a check has failed.
func (i Impairment) Failed() bool { return i.Check != "" }

// since is when the check failed. A failure of unknown age is one of now, so that it never lasts.
func (i Impairment) since(now time.Time) time.Time {
	if i.Since.IsZero() {
		return now
	}
	return i.Since
}

// And adds the failure of another check. The two have lasted since the first of them.
func (i Impairment) And(other Impairment) Impairment {
	switch {
	case !i.Failed():
		return other
	case !other.Failed():
		return i
	}
	return Impairment{Check: i.Check + " and " + other.Check, Since: firstOf(i.Since, other.Since)}
}

// StatusReader reads what the cloud finds out about its instances by status checks of its own. It is optional: what it
// finds brings a worker's repair, and nothing else depends on it.
type StatusReader interface {
	// Impaired returns the failed checks of those instances that fail one, by ID. It answers for all of them, or the
	// error is not nil and nothing is known.
	Impaired(ctx context.Context, instanceIDs []string) (map[string]Impairment, error)
}

// readStatuses adds the status checks of the joined workers to a survey. It comes after the survey: a new instance, of which the
// cloud's second API may not know yet, has not joined.
//
// A failure stops nothing but the repair of impaired workers. The survey then has no impairments: those of an earlier one
// may be over, and nothing is removed by what was true a minute ago.
func (v surveyor) readStatuses(ctx context.Context, s *survey) {
	if v.config.Statuses == nil || v.config.Policy.ImpairedFor == 0 || s.fleetErr() != nil {
		return
	}
	var ids []string
	for _, w := range s.workers {
		if w.Node != nil && w.Instance.State == StateRunning {
			ids = append(ids, w.Instance.ID)
		}
	}
	if len(ids) == 0 {
		return
	}
	var found map[string]Impairment
	s.statusErr = v.calls.do(ctx, "reading status checks", func(ctx context.Context) (err error) {
		found, err = v.config.Statuses.Impaired(ctx, ids)
		return err
	})
	if s.statusErr != nil {
		v.log.collect(s.statusErr)
		return
	}
	for i, w := range s.workers {
		s.workers[i].Instance.Impairment = found[w.Instance.ID]
	}
}
