package partition

import (
	"reflect"
	"testing"
	"time"

	"github.com/muster-dev/muster/partition/event"
	"github.com/muster-dev/muster/partition/internal/record"
)

// electionCalls counts how often the election tells of a change.
type electionCalls struct{ elections, losses, others, preparations int }

func (c *electionCalls) elected(suspicion) { c.elections++ }
func (c *electionCalls) leadershipLost()   { c.losses++ }
func (c *electionCalls) led()              { c.others++ }
func (c *electionCalls) prepare()          { c.preparations++ }

func TestElection(t *testing.T) {
	t.Parallel()
	now := time.Unix(1000, 0)
	leader, self := record.Process{ID: "w-0", Claim: 1}, record.Process{ID: "w-1", Claim: 2}

	t.Run("only a newer record is a sign of life", func(t *testing.T) {
		t.Parallel()
		e := election{core: &core{leader: leader}, revision: 5, seenAt: now, suspect: suspicion{who: leader}}
		if e.see(5, now.Add(time.Second)) || e.seenAt != now || e.suspect.who != leader {
			t.Errorf("the record of before, told again: %+v", e)
		}
		e.overwriteAt = now
		if !e.see(6, now.Add(time.Second)) || e.seenAt != now.Add(time.Second) || e.suspect != (suspicion{}) || !e.overwriteAt.IsZero() {
			t.Errorf("a newer record: %+v", e)
		}
	})
	t.Run("a worker that wins leads by that record, and suspects nobody yet", func(t *testing.T) {
		t.Parallel()
		c := &core{leader: leader, quietUntil: now}
		e := election{core: c, revision: 5, campaigning: true, retryAt: now, suspect: suspicion{who: leader}}
		e.won(self, 7)
		if e != (election{core: c, revision: 7}) || c.leader != self || c.quietUntil != now {
			t.Errorf("won: %+v", e)
		}
		e.renewed(9)
		e.renewed(8)
		if e.revision != 9 {
			t.Errorf("the revision is %d, want 9", e.revision)
		}
	})
	for name, tt := range map[string]struct{ watchFirst bool }{"by the answer": {}, "by the watch, before the answer": {watchFirst: true}} {
		t.Run("a worker that wins is elected once: it sees so "+name, func(t *testing.T) {
			t.Parallel()
			c := &core{stage: stageJoined, self: self, now: now}
			user := &electionCalls{}
			e := election{core: c, up: user, campaigning: true}
			if tt.watchFirst {
				e.seeLeader(self, 7)
			}
			e.elected(kvInput{kvEffect: kvEffect{purpose: forElection, op: opCreate, start: now}, gotRev: 7})
			if !tt.watchFirst {
				e.seeLeader(self, 7)
			}
			var told []event.Event
			for _, x := range c.effects {
				if emitted, ok := x.(emitEffect); ok {
					told = append(told, emitted.event)
				}
			}
			if want := []event.Event{{Kind: event.Elected, Time: now, Worker: self.ID, Peer: self.ID, Epoch: 7}}; !reflect.DeepEqual(told, want) {
				t.Errorf("it tells %+v, want %+v", told, want)
			}
			if user.elections != 1 || !c.leaderLease.held {
				t.Errorf("it began %d times to lead, its lease is held: %t", user.elections, c.leaderLease.held)
			}
		})
	}
	t.Run("a leader that loses the office counts its successor's time from then", func(t *testing.T) {
		t.Parallel()
		c := &core{leader: self, quietUntil: now}
		e := election{core: c, revision: 7, probeDue: now, overwriteAt: now}
		later := now.Add(time.Second)
		e.lost(later)
		if e != (election{core: c, revision: 7, overwriteAt: now, seenAt: later}) || c.leader != self || c.quietUntil != now {
			t.Errorf("lost: %+v", e)
		}
	})
}
