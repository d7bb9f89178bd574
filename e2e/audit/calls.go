package audit

import (
	"errors"
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"time"
)

// Call is a call of a key, as its caller has it.
type Call struct {
	Number  uint64 // from 1; no two calls of a run have the same
	Key     string
	Slot    int
	Work    time.Duration // for how long its handler works on it
	Due     time.Time     // when it was to be sent
	Ended   time.Time
	Outcome CallOutcome
	By      Server // that the answer names; the zero one without an answer
}

// CallOutcome is what the caller is told of a call.
type CallOutcome uint8

// The outcomes.
const (
	CallAnswered  CallOutcome = iota + 1
	CallNoOwner               // not served: no worker took it
	CallRejected              // not served: a worker rejected it
	CallUncertain             // it may have been served
)

// refused reports whether a caller is told that the call was not served.
func (o CallOutcome) refused() bool { return o == CallNoOwner || o == CallRejected }

// Server is a process that serves a call, and the fence that it owns the key with.
type Server struct {
	Record         string // file of the process
	Version, Claim uint64
}

// CallAccount is what became of the calls.
type CallAccount struct {
	Made      int
	Answered  int
	NoOwner   int // not served: no worker took them
	Rejected  int // not served: a worker rejected them
	Uncertain int // failed, and may have been served
	Served    int // begun by a worker
	// Moving are calls that were under way after a slot's owner had begun its last message or
	// call, and before the next owner had begun its first. MovingRefused and MovingUncertain are
	// those without an answer.
	Moving, MovingRefused, MovingUncertain int
	// Waited are answered calls that had to wait for a message or another call of the key.
	Waited int

	WithoutLease  int // begun by a worker that had been replaced
	Concurrent    int // begun while a message or call of the key was processed, or the reverse
	ServedTwice   int
	ServedRefused int // served, and the caller was told that they were not
	Misanswered   int // answered, and not served to the end by the worker that the answer names
	Unasked       int // served, and never made

	// Took is how long the answered calls took beyond their work, from when they were due.
	// Quiet are those of them that were neither under way while their slot moved nor waited.
	Took, Quiet []time.Duration `json:"-"`

	Faults []string // the first few, for a person
}

// Clean reports whether there is no fault.
func (a CallAccount) Clean() bool { return len(a.Faults) == 0 }

func (a *CallAccount) fault(n *int, format string, args ...any) {
	*n++
	a.Faults = tell(a.Faults, format, args...)
}

// AccountCalls tells what became of the calls of a run, by the records of the workers.
// records is the directory of those. deaths gives, by record file, when a killed process was
// gone. freezes are the times in which processes were stopped.
func AccountCalls(records string, calls []Call, deaths map[string]time.Time, freezes []Freeze) (CallAccount, error) {
	files, err := filepath.Glob(filepath.Join(records, "*"))
	if err != nil {
		return CallAccount{}, err
	}
	e := evidence{calls: calls, deaths: deaths, freezes: freezes}
	var errs []error
	for _, f := range files {
		runs, served, err := readRecord(f)
		errs = append(errs, err)
		e.runs, e.served = append(e.runs, runs...), append(e.served, served...)
	}
	if err := errors.Join(errs...); err != nil {
		return CallAccount{}, fmt.Errorf("reading which calls were served: %w", err)
	}
	return accountCalls(e), nil
}

func accountCalls(e evidence) CallAccount {
	a := CallAccount{Made: len(e.calls), Served: len(e.served)}
	a.fates(e)

	all := slices.Concat(e.runs, e.served)
	slices.SortStableFunc(all, func(x, y run) int { return x.start.Compare(y.start) })
	byKey, bySlot := map[string][]run{}, map[int][]run{}
	for _, r := range all {
		byKey[r.key] = append(byKey[r.key], r)
		bySlot[r.slot] = append(bySlot[r.slot], r)
	}
	for _, key := range slices.Sorted(maps.Keys(byKey)) {
		a.overlaps(byKey[key], e)
	}
	for _, slot := range slices.Sorted(maps.Keys(bySlot)) {
		a.replaced(bySlot[slot], e)
	}

	a.latencies(e, byKey, bySlot)
	return a
}

// fates checks that each call was served as its caller was told.
func (a *CallAccount) fates(e evidence) {
	served, asked := map[uint64][]run{}, map[uint64]string{}
	for _, r := range e.served {
		served[r.call] = append(served[r.call], r)
	}
	for _, c := range e.calls {
		asked[c.Number] = c.Key
		a.fate(c, served[c.Number])
	}
	for _, r := range e.served {
		if key, made := asked[r.call]; !made || key != r.key {
			a.fault(&a.Unasked, "%s: call %d was served in %s, and made for %q", r.key, r.call, r.record, key)
		}
	}
}

func (a *CallAccount) fate(c Call, served []run) {
	switch c.Outcome {
	case CallAnswered:
		a.Answered++
	case CallNoOwner:
		a.NoOwner++
	case CallRejected:
		a.Rejected++
	case CallUncertain:
		a.Uncertain++
	}

	switch {
	case len(served) > 1:
		a.fault(&a.ServedTwice, "%s: call %d was served %d times, in %s and %s", c.Key, c.Number, len(served), served[0].record, served[1].record)
	case c.Outcome.refused() && len(served) > 0:
		a.fault(&a.ServedRefused, "%s: call %d was served in %s, and its caller was told that it was not", c.Key, c.Number, served[0].record)
	case c.Outcome == CallAnswered && !answeredBy(c.By, served):
		a.fault(&a.Misanswered, "%s: call %d was answered by %s under fence %d.%d, which has not served it to its end", c.Key, c.Number, c.By.Record, c.By.Version, c.By.Claim)
	}
}

// answeredBy reports whether a server has served a call to its end.
func answeredBy(s Server, served []run) bool {
	return len(served) == 1 && served[0].ok && s == served[0].server()
}

func (r run) server() Server { return Server{r.record, r.version, r.claim} }

// overlaps checks that no call of a key was served beside a message or another call of it.
// Messages beside messages are judged with the messages. runs are in the order of their start.
func (a *CallAccount) overlaps(runs []run, e evidence) {
	var until time.Time
	var by run
	for _, r := range runs {
		if r.start.Before(until) && (r.call != 0 || by.call != 0) {
			a.fault(&a.Concurrent, "%s: %s begun in %s at %s, while %s was processed in %s until %s",
				r.key, r.what(), r.record, stamp(r.start), by.what(), by.record, stamp(until))
		}
		if at, _, _ := ended(r, e); at.After(until) {
			until, by = at, r
		}
	}
}

// replaced checks that no worker began a call of a slot after its successor had begun a message or
// a call of it, and none in a process that was declared failed while it was stopped: its lease had
// expired. runs are in the order of their start.
func (a *CallAccount) replaced(runs []run, e evidence) {
	var highest run
	for _, r := range runs {
		switch {
		case r.call != 0 && r.under(highest):
			a.fault(&a.WithoutLease, "%s: call %d begun in %s at %s under fence %d.%d, after %s in %s under %d.%d",
				r.key, r.call, r.record, stamp(r.start), r.version, r.claim, highest.what(), highest.record, highest.version, highest.claim)
		case r.call != 0 && e.stale(r):
			a.fault(&a.WithoutLease, "%s: call %d begun in %s at %s, which was declared failed while it was stopped", r.key, r.call, r.record, stamp(r.start))
		}
		if highest.under(r) {
			highest = r
		}
	}
}

// stale reports whether a process began a run after it was replaced while it was stopped.
func (e evidence) stale(r run) bool {
	return slices.ContainsFunc(e.freezes, func(f Freeze) bool {
		return f.Replaced && f.Record == r.record && f.Claim == r.claim && r.start.After(f.Resumed)
	})
}

// span is a time from one moment to another.
type span struct{ from, to time.Time }

func (s span) meets(from, to time.Time) bool { return !to.Before(s.from) && !from.After(s.to) }

// latencies says how long calls took, and which of them a move held up.
func (a *CallAccount) latencies(e evidence, byKey map[string][]run, bySlot map[int][]run) {
	moves := map[int][]span{}
	for slot, runs := range bySlot {
		moves[slot] = movesOf(runs)
	}
	for _, c := range e.calls {
		moving := slices.ContainsFunc(moves[c.Slot], func(s span) bool { return s.meets(c.Due, c.Ended) })
		if moving {
			a.Moving++
		}
		switch {
		case c.Outcome == CallAnswered:
			took := max(c.Ended.Sub(c.Due)-c.Work, 0)
			a.Took = append(a.Took, took)
			waited := waits(byKey[c.Key], c, e)
			if waited {
				a.Waited++
			}
			if !moving && !waited {
				a.Quiet = append(a.Quiet, took)
			}
		case moving && c.Outcome.refused():
			a.MovingRefused++
		case moving:
			a.MovingUncertain++
		}
	}
}

// movesOf returns the times in which a slot went from one owner to another: from the beginning of
// the last message or call of the one, during which it may have refused others already, to the
// beginning of the first of the next. runs are in the order of their start.
func movesOf(runs []run) []span {
	var moves []span
	for i := 1; i < len(runs); i++ {
		if runs[i-1].claim != runs[i].claim {
			moves = append(moves, span{runs[i-1].start, runs[i].start})
		}
	}
	return moves
}

// waits reports whether a message or another call of the key was processed when a call was made
// or before it was begun. runs are in the order of their start.
func waits(runs []run, c Call, e evidence) bool {
	for _, r := range runs {
		if r.call == c.Number || r.start.After(c.Ended) {
			return false
		}
		if at, _, _ := ended(r, e); at.After(c.Due) {
			return true
		}
	}
	return false
}
