package sim

import (
	"cmp"
	"slices"

	"github.com/muster-dev/muster/nodes"
)

// store is the state record and the interruptions.
type store struct {
	record nodes.Record
	items  map[string]nodes.Interruption
}

// open returns the interruptions that are not closed, by instance.
func (s *store) open() []nodes.Interruption {
	var out []nodes.Interruption
	for _, i := range s.items {
		if !i.Closed {
			out = append(out, i)
		}
	}
	slices.SortFunc(out, func(a, b nodes.Interruption) int { return cmp.Compare(a.InstanceID, b.InstanceID) })
	return out
}

// eventLog is the events that were appended, each key once.
type eventLog struct {
	events []nodes.Event
	keys   map[string]bool
}

func (l *eventLog) append(e nodes.Event) {
	if !l.keys[e.Key()] {
		l.keys[e.Key()] = true
		l.events = append(l.events, e)
	}
}

// read returns the events that match, the last ones if there are more than the query's limit.
func (l *eventLog) read(q nodes.Query) []nodes.Event {
	var out []nodes.Event
	for _, e := range l.events {
		if q.Matches(e) {
			out = append(out, e)
		}
	}
	if q.Limit > 0 && len(out) > q.Limit {
		out = out[len(out)-q.Limit:]
	}
	return out
}
