package handoff

import (
	"strings"
	"time"
)

// Turns are what the program measures: the seed's move of 30 workers to 45 with every
// contender, and a smaller one in which workers leave, so that those who stay get more. only
// selects contenders by a part of their name.
//
// Three replicas have less load, as three servers share the machine, and so has the sync of
// every write, which a disk does some hundreds or thousands of times a second.
func Turns(runs int, quick bool, only string) []Turn {
	load := Load{Rate: 500, Press: 1000, Work: 20 * time.Millisecond, WorkSpread: 20 * time.Millisecond, Backlog: 50_000, Crash: 6 * time.Second, Quiet: ackWait + 2*time.Second}
	large := Case{Keys: 2400, Slots: 512, Before: 30, After: 45}
	small := Case{Keys: 240, Slots: 64, Before: 9, After: 6}
	if quick {
		load.Rate, load.Press, load.Backlog = 200, 300, 4000
		all := turn(nil, small, 1, load, only, func(c Contender) bool { return c.in(1, defaultSync) && !c.slow() })
		return turn(all, small, 1, load, only, func(c Contender) bool { return c.in(1, alwaysSync) })
	}

	synced := load
	synced.Rate, synced.Press, synced.Backlog = 100, 200, 25_000
	replicated := load
	replicated.Rate, replicated.Press, replicated.Backlog = 150, 300, 25_000
	both := replicated
	both.Rate, both.Press, both.Backlog = 50, 100, 25_000
	fewer := max(1, runs-1)

	all := turn(nil, large, runs, load, only, func(c Contender) bool { return c.in(1, defaultSync) })
	// A stream of few slots has nothing to gain from being divided.
	all = turn(all, small, runs, load, only, func(c Contender) bool { return c.in(1, defaultSync) && !c.static && c.shards == 0 && c.inFlight == 0 })
	all = turn(all, large, fewer, synced, only, func(c Contender) bool { return c.in(1, alwaysSync) })
	all = turn(all, large, fewer, replicated, only, func(c Contender) bool { return c.in(3, defaultSync) })
	return turn(all, large, fewer, both, only, func(c Contender) bool { return c.in(3, alwaysSync) })
}

// in reports whether a contender has these replicas and this sync.
func (c Contender) in(replicas int, sync string) bool {
	return c.Replicas == replicas && c.Sync == sync
}

// slow reports whether a contender takes long to find out that a worker has failed.
func (c Contender) slow() bool { return c.detects() > fastSession }

// turn appends a turn of the contenders that are meant, if there are any.
func turn(turns []Turn, k Case, runs int, load Load, only string, meant func(Contender) bool) []Turn {
	t := Turn{Case: k, Repetitions: runs, Load: load}
	for _, c := range Contenders() {
		if meant(c) && strings.Contains(c.Name, only) {
			t.Contenders = append(t.Contenders, c)
		}
	}
	if t.Contenders == nil {
		return turns
	}
	return append(turns, t)
}
