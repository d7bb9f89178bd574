package handoff

import (
	"strings"
	"time"
)

// Turns are what the program measures: the seed's move of 30 workers to 45, and a
// smaller one in which workers leave, so that those who stay get more. Three
// replicas have turns of their own, with less load, as three servers share the
// machine. only selects contenders by a part of their name. A stream of few slots
// has nothing to gain from being divided, so Muster's shards are in the large case
// only, and in the quick one to see that they work.
func Turns(runs int, quick bool, only string) []Turn {
	load := Load{Rate: 500, Press: 1000, Work: 20 * time.Millisecond, WorkSpread: 20 * time.Millisecond, Backlog: 10_000, Quiet: ackWait + 2*time.Second}
	large := Case{Keys: 2400, Slots: 512, Before: 30, After: 45}
	small := Case{Keys: 240, Slots: 64, Before: 9, After: 6}
	if quick {
		load.Rate, load.Press, load.Backlog = 200, 300, 2000
		return turn(nil, small, 1, 1, load, only, true)
	}
	turns := turn(nil, large, 1, runs, load, only, true)
	turns = turn(turns, small, 1, runs, load, only, false)
	less := load
	less.Rate, less.Press, less.Backlog = 150, 300, 3000
	return turn(turns, large, 3, max(1, runs-1), less, only, true)
}

// turn appends a turn of the contenders with this number of replicas, if there are any.
func turn(turns []Turn, c Case, replicas, runs int, load Load, only string, sharded bool) []Turn {
	t := Turn{Case: c, Repetitions: runs, Load: load}
	for _, x := range Contenders() {
		if x.Replicas == replicas && (sharded || x.shards <= 1) && strings.Contains(x.Name, only) {
			t.Contenders = append(t.Contenders, x)
		}
	}
	if t.Contenders == nil {
		return turns
	}
	return append(turns, t)
}
