package nodes

import (
	"context"
	"encoding/json"
	"fmt"
	"iter"
	"time"
)

// EventLog keeps what happened and why.
type EventLog interface {
	// Append adds an event. Events are told apart by Key: appending one that is there already is no error and
	// adds nothing.
	Append(ctx context.Context, e Event) error
	// Read yields the events that match, oldest first, and stops at the first error.
	Read(ctx context.Context, q Query) iter.Seq2[Event, error]
}

// Event is one thing that was seen, decided, done or failed.
type Event struct {
	At       time.Time       `json:"at"`
	Tick     string          `json:"tick"`               // the run that wrote it
	Seq      int             `json:"seq"`                // unique within its run
	Kind     string          `json:"kind"`               // for example scaleUp.launched
	ActionID string          `json:"actionId,omitempty"` // the action it belongs to
	Instance string          `json:"instance,omitempty"`
	Message  string          `json:"message,omitempty"`
	Data     json.RawMessage `json:"data,omitempty"` // a Snapshot for decisions
}

// Key orders events by time and makes them unique, even within one run.
func (e Event) Key() string {
	return fmt.Sprintf("%013d#%s#%04d", e.At.UnixMilli(), e.Tick, e.Seq)
}

// Query selects events. Zero fields select everything.
type Query struct {
	Since    time.Time // at or after
	Until    time.Time // before
	Tick     string
	Kind     string
	ActionID string
	Limit    int // at most this many, the newest of those that match
}

// Matches reports whether q selects e, Limit aside.
func (q Query) Matches(e Event) bool {
	return (q.Since.IsZero() || !e.At.Before(q.Since)) && (q.Until.IsZero() || e.At.Before(q.Until)) &&
		(q.Tick == "" || q.Tick == e.Tick) && (q.Kind == "" || q.Kind == e.Kind) && (q.ActionID == "" || q.ActionID == e.ActionID)
}
