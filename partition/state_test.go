package partition

import (
	"testing"
	"time"

	"github.com/muster-dev/muster/partition/state"
)

// TestMoreWorkersThanSlots: where there are more workers than slots some have nothing to
// hold. Each of them has what the map gives it, the leader included.
func TestMoreWorkersThanSlots(t *testing.T) {
	t.Parallel()
	self, other := Member{ID: "w-0", Claim: 1}, Member{ID: "w-1", Claim: 2}
	settled := &Assignment{Version: 1, Epoch: 1, Leader: self, Slots: 1, Workers: []Member{self, other}, Owner: ownerColumn{1}, Since: versionColumn{1}}
	moving := settled.clone()
	moving.Taking[0] = true
	for name, tt := range map[string]struct {
		leads  bool
		leader Member
		a      *Assignment
		want   state.State
	}{
		"the leader":                     {true, self, settled, state.Stable},
		"the leader, without a map":      {true, self, nil, state.Leader},
		"a follower":                     {false, other, settled, state.Stable},
		"a follower, without a map":      {false, other, nil, state.Follower},
		"a follower, while slots move":   {false, other, moving, state.Follower},
		"a follower of nobody":           {false, Member{}, settled, state.Election},
		"the leader, while it takes one": {true, self, moving, state.Emergency},
	} {
		t.Run(name, func(t *testing.T) {
			m := newMachine(Config{Name: "w", Stream: "s", Subject: "s.*", Slots: 1}.resolve(), "instance")
			m.now = time.Now()
			m.stage, m.lease.valid, m.self, m.cur = stageJoined, true, self, tt.a
			m.leaderLease.held, m.leader, m.leaderLease.start, m.election.seenAt = tt.leads, tt.leader, m.now, m.now
			if got := m.deriveState(); got != tt.want {
				t.Errorf("it is %s, want %s", got, tt.want)
			}
		})
	}
}
