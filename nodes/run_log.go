package nodes

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
)

// runLog keeps what a run did and what went wrong: the events, which also go to the EventLog, and the errors
// that its caller gets.
type runLog struct {
	clock    Clock
	eventLog EventLog
	calls    calls
	state    *runState // names the open action in events

	id     string // of the run, by which its events are found
	seq    int    // of the next event
	events []Event
	errs   []error
}

// append adds an event. An EventLog that can't be written delays nothing: the error is collected and the work continues.
func (l *runLog) append(ctx context.Context, e Event) {
	e.At, e.Tick, e.Seq = l.clock.Now(), l.id, l.seq
	l.seq++
	l.events = append(l.events, e)
	err := l.calls.doSafe(ctx, "logging "+e.Kind, func(ctx context.Context) error {
		return l.eventLog.Append(ctx, e)
	})
	if err != nil {
		l.collect(err)
	}
}

// appendData adds an event that carries data.
func (l *runLog) appendData(ctx context.Context, e Event, data any) {
	b, err := json.Marshal(data)
	if err != nil {
		l.collect(fmt.Errorf("encoding %s: %w", e.Kind, err))
	}
	e.Data = b
	l.append(ctx, e)
}

// report adds an event about the action that is worked on, or the only one that is open, and about an instance
// unless that is "".
func (l *runLog) report(ctx context.Context, kind, instance, message string, args ...any) {
	action := l.state.record.ActionID()
	if l.state.actionID == "" && len(l.state.record.OtherActions) > 0 {
		action = ""
	}
	l.append(ctx, Event{
		Kind:     kind,
		ActionID: action,
		Instance: instance,
		Message:  fmt.Sprintf(message, args...),
	})
}

// fail collects an error and adds an event about it, unless the lease is lost: then its new holder is authoritative.
func (l *runLog) fail(ctx context.Context, what string, err error) {
	err = fmt.Errorf("%s: %w", what, err)
	l.collect(err)
	if !lost(err) {
		l.append(ctx, Event{Kind: "error", Message: err.Error()})
	}
}

// collect keeps an error that stops nothing.
func (l *runLog) collect(err error) { l.errs = append(l.errs, err) }

// err joins the collected errors.
func (l *runLog) err() error { return errors.Join(l.errs...) }

// include takes over the events and errors of another run.
func (l *runLog) include(other *runLog) {
	l.errs = append(l.errs, other.errs...)
	l.events = append(l.events, other.events...)
}
