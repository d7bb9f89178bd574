package partition

import (
	"testing"
	"time"

	"github.com/muster-dev/muster/partition/internal/record"
)

// TestANewLeaderBalancesOnceARestartIsOver: a leader that takes over looks whether the former
// one left the slots unbalanced. A worker that restarts then is no measure.
func TestANewLeaderBalancesOnceARestartIsOver(t *testing.T) {
	t.Parallel()
	m := leadingMachine(t)
	m.expect = 2 // so a worker that stops restarts
	uneven := m.cur.Clone()
	uneven.Owner, uneven.Planned = []int32{0, 1, 1, 1}, m.now
	m.cur = uneven

	rev := uint64(100)
	var step func(in input) (plans int)
	step = func(in input) (plans int) {
		for _, e := range m.step(m.now, in) {
			switch e := e.(type) {
			case planEffect:
				plans++
			case kvEffect:
				if e.purpose == forMapWrite {
					rev++
					plans += step(kvInput{kvEffect: e, gotRev: rev})
				}
			}
		}
		return plans
	}
	lease := func(leaving bool) (plans int) {
		rev++
		value := record.Heartbeat{Schema: record.Schema, ID: "sim-1", Claim: 8, Weight: 1, Version: 4, Leaving: leaving}
		return step(leaseInput{id: "sim-1", value: value, rev: rev, at: m.now, watch: m.lead.roster.watches})
	}

	plans := lease(true)
	for range 3 { // until it is known that it restarts, and doesn't leave for good
		m.now = m.now.Add(100 * time.Millisecond)
		plans += step(tickInput{})
	}
	if c := m.lead.rebalance.changes(); plans > 0 || m.lead.roster.peers.count(markGoing) != 1 || !c.none() {
		t.Fatalf("%d plans, and it is not seen to restart: %+v", plans, c)
	}

	if n := lease(false); n != 1 {
		t.Errorf("%d plans when it is back, although it has three of four slots", n)
	}
}
