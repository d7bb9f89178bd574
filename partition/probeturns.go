package partition

import (
	"time"

	"github.com/muster-dev/muster/partition/internal/record"
)

// probesAtOnce bounds how many workers the leader probes at once. In a group of up to this many
// other workers each is probed every time, and a failure is noticed within the interval. In a
// larger one only those are probed whose renewal is late: a failure is noticed within
// Lease.Heartbeat and the interval, and a group at rest is hardly probed.
//
// Workers often fail together, with their node. So once a worker is found gone, all others are
// probed at once that haven't renewed since, whatever their number, but at most once in a
// Lease.Heartbeat. Then one plan is enough for all that have failed.
const probesAtOnce = 100

// probeTurns chooses whom the leader probes, so that everyone has a turn.
type probeTurns struct {
	from    string    // the last worker of the turn before; "": there was none
	foundAt time.Time // when a worker was found gone and not all others probed since; zero: none
	allAt   time.Time // when all others were last probed
}

// found takes in that a worker's connection is gone.
func (t *probeTurns) found(now time.Time) {
	if t.foundAt.IsZero() {
		t.foundAt = now
	}
}

// next returns the workers to probe now, of all that are there, by ascending ID: those that
// follow the last turn, and after the last worker the first again.
//
// Where one turn isn't enough for all, a worker whose renewal was seen within the last heartbeat
// is left out: the renewal tells as much as a probe does.
func (t *probeTurns) next(all []*peerView, now time.Time, heartbeat time.Duration) []record.Process {
	if len(all)-1 <= probesAtOnce {
		return t.turn(all, time.Time{}, probesAtOnce)
	}

	probeAll := !t.foundAt.IsZero() && now.Sub(t.allAt) >= heartbeat
	if !probeAll {
		return t.turn(all, now.Add(-heartbeat), probesAtOnce)
	}
	since := t.foundAt
	t.foundAt, t.allAt = time.Time{}, now
	return t.turn(all, since, len(all))
}

// turn returns at most n workers, those of which no renewal was seen after since; zero: all.
func (t *probeTurns) turn(all []*peerView, since time.Time, n int) []record.Process {
	begin := 0
	if len(all)-1 > n {
		for begin < len(all) && t.from != "" && compareIDs(all[begin].ID, t.from) <= 0 {
			begin++
		}
	}

	var to []record.Process
	for i := range all {
		p := all[(begin+i)%len(all)]
		if p.self || !since.IsZero() && p.seenAt.After(since) {
			continue
		}
		to = append(to, p.Process)
		if t.from = p.ID; len(to) == n {
			break
		}
	}
	return to
}
