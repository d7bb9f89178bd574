package partition

import (
	"fmt"
	"testing"
	"time"

	"github.com/muster-dev/muster/partition/internal/record"
)

// TestProbeTurns: few workers are all probed each time, and of many each within as many turns
// as it takes, also while others come and go.
func TestProbeTurns(t *testing.T) {
	t.Parallel()
	now := time.Unix(1000, 0)
	workers := func(n int) *peerTable {
		var table peerTable
		for i := range n {
			table.put(&peerView{Process: record.Process{ID: fmt.Sprintf("w-%d", i), Claim: 1}, self: i == 3})
		}
		return &table
	}

	for _, n := range []int{1, 2, 30, probesAtOnce + 1} {
		var turns probeTurns
		for range 3 {
			to := turns.next(workers(n).all(), now, time.Second)
			for i, w := range to {
				if i > 0 && compareIDs(to[i-1].ID, w.ID) >= 0 {
					t.Errorf("%d workers: %s follows %s", n, w.ID, to[i-1].ID)
				}
			}
			if want := n - 1; n > 3 && len(to) != want {
				t.Errorf("%d workers: %d are probed, want %d", n, len(to), want)
			}
		}
	}

	const many = 1000
	var turns probeTurns
	table := workers(many)
	probed := make(map[string]int)
	for turn := range many / probesAtOnce {
		to := turns.next(table.all(), now, time.Second)
		if len(to) > probesAtOnce {
			t.Errorf("%d are probed at once", len(to))
		}
		for _, w := range to {
			probed[w.ID]++
		}
		table.remove(to[len(to)-1].ID) // the next turn begins behind it all the same
		table.put(&peerView{Process: record.Process{ID: fmt.Sprintf("v-%d", turn), Claim: 1}})
	}
	for i := range many {
		if id := fmt.Sprintf("w-%d", i); probed[id] == 0 && i != 3 {
			t.Errorf("%s has had no turn", id)
		}
	}
	if n := probed["w-3"]; n > 0 {
		t.Errorf("the leader probes itself %d times", n)
	}
}

// TestProbeTurnsLeaveOutTheRenewed: in a large group who has renewed the lease a moment ago is not
// probed, and is later. In a small one everyone is probed each time.
func TestProbeTurnsLeaveOutTheRenewed(t *testing.T) {
	t.Parallel()
	now := time.Unix(1000, 0)
	for _, tt := range []struct{ n, want int }{{50, 50}, {probesAtOnce + 50, 75}} {
		var table peerTable
		for i := range tt.n {
			p := &peerView{Process: record.Process{ID: fmt.Sprintf("w-%d", i), Claim: 1}, seenAt: now}
			if i%2 == 0 {
				p.seenAt = now.Add(-time.Second)
			}
			table.put(p)
		}

		var turns probeTurns
		if got := len(turns.next(table.all(), now, time.Second)); got != tt.want {
			t.Errorf("%d workers, half of them renewed: %d are probed, want %d", tt.n, got, tt.want)
		}
		turns = probeTurns{}
		if got := len(turns.next(table.all(), now.Add(time.Second), time.Second)); got != min(tt.n, probesAtOnce) {
			t.Errorf("%d workers, none renewed since: %d are probed", tt.n, got)
		}
	}
}

// TestAllAreProbedOnceAWorkerIsGone: in a large group all workers are probed at once that have not
// renewed since one of them was found gone, and not again within a heartbeat.
func TestAllAreProbedOnceAWorkerIsGone(t *testing.T) {
	t.Parallel()
	const workers, heartbeat = 1000, 2 * time.Second
	at := time.Unix(1000, 0)
	var table peerTable
	for i := range workers {
		table.put(&peerView{Process: record.Process{ID: fmt.Sprintf("w-%d", i), Claim: 1}, self: i == 3, seenAt: at})
	}
	table.get("w-7").seenAt = at.Add(150 * time.Millisecond) // after the first was found gone
	var turns probeTurns
	probed := func(after time.Duration) int {
		return len(turns.next(table.all(), at.Add(after), heartbeat))
	}

	if n := probed(50 * time.Millisecond); n != 0 {
		t.Errorf("%d are probed that have just renewed, want 0", n)
	}
	turns.found(at.Add(100 * time.Millisecond))
	turns.found(at.Add(120 * time.Millisecond))
	if n := probed(200 * time.Millisecond); n != workers-2 {
		t.Errorf("%d are probed after one was found gone, want %d: all but the leader and the one that has renewed since", n, workers-2)
	}
	if n := probed(400 * time.Millisecond); n != 0 {
		t.Errorf("%d are probed again though all were a moment ago, want 0", n)
	}

	turns.found(at.Add(500 * time.Millisecond))
	if n := probed(600 * time.Millisecond); n != 0 {
		t.Errorf("%d are probed within a heartbeat of the last time, want 0", n)
	}
	if n := probed(200*time.Millisecond + heartbeat); n != workers-1 {
		t.Errorf("%d are probed a heartbeat later, want %d: all but the leader", n, workers-1)
	}
}
