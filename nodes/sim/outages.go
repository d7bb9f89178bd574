package sim

import (
	"errors"
	"time"

	"github.com/muster-dev/muster/nodes"
)

// Part is a part of the simulator that can be unreachable.
type Part string

// The parts.
const (
	CloudPart    Part = "cloud"
	ClusterPart  Part = "cluster"
	SignalsPart  Part = "signals"
	StorePart    Part = "store"
	EventLogPart Part = "event log"
	WorkersPart  Part = "workers"

	TerminatePart Part = "terminate" // terminations alone, as when the permission for them is missing
	RequestsPart  Part = "requests"  // requests for evictions alone, likewise
	StatusesPart  Part = "statuses"  // the status checks of instances alone, likewise
)

// ErrUnreachable is what every call of a part returns during its outage.
var ErrUnreachable = errors.New("unreachable")

// outage is a time during which a part fails.
type outage struct {
	part    Part
	from    time.Time
	until   time.Time
	partial bool // lists come back half, with an *nodes.IncompleteError
}

// outages are the times during which parts fail.
type outages struct {
	time *timeline
	all  []outage
}

// add plans an outage from now+after for a while.
func (o *outages) add(part Part, after, d time.Duration, partial bool) {
	now := o.time.now
	o.all = append(o.all, outage{part: part, from: now.Add(after), until: now.Add(after + d), partial: partial})
}

// of reports whether a part is unreachable now, or answers only in part. The first of overlapping outages counts.
func (o *outages) of(part Part) (down, partial bool) {
	now := o.time.now
	for _, one := range o.all {
		if one.part == part && !now.Before(one.from) && now.Before(one.until) {
			return !one.partial, one.partial
		}
	}
	return false, false
}

// half returns the first half of a list with an error, while a part answers with half its lists.
func half[T any](o *outages, part Part, list []T) ([]T, error) {
	if _, partial := o.of(part); partial {
		return list[:len(list)/2], &nodes.IncompleteError{What: string(part), Err: errors.New("the second page could not be read")}
	}
	return list, nil
}
