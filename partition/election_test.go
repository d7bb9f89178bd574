package partition

import (
	"testing"
	"time"

	"github.com/muster-dev/muster/partition/internal/record"
)

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
