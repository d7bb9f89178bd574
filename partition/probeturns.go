package partition

import (
	"time"

	"github.com/muster-dev/muster/partition/internal/record"
)

// probesAtOnce bounds how many workers the leader probes at once. In a group of up to this many
// other workers each is probed every time, and a failure is noticed within the interval. In a
// larger one only those are probed whose renewal is late: a failure is noticed within
// Lease.Heartbeat and the interval, and a group at rest is hardly probed.
const probesAtOnce = 100

// probeTurns chooses whom the leader probes, so that everyone has a turn.
type probeTurns struct {
	from string // the last worker of the turn before; "": there was none
}

// next returns the workers to probe now, of all that are there, by ascending ID: those that
// follow the last turn, and after the last worker the first again.
//
// Where one turn isn't enough for all, a worker whose renewal was seen after since is left
// out: the renewal tells as much as a probe does.
func (t *probeTurns) next(all []*peerView, since time.Time) []record.Process {
	several := len(all)-1 > probesAtOnce
	begin := 0
	if several {
		for begin < len(all) && t.from != "" && compareIDs(all[begin].ID, t.from) <= 0 {
			begin++
		}
	}

	var to []record.Process
	for i := range all {
		p := all[(begin+i)%len(all)]
		if p.self || several && p.seenAt.After(since) {
			continue
		}
		to = append(to, p.Process)
		if t.from = p.ID; len(to) == probesAtOnce {
			break
		}
	}
	return to
}
