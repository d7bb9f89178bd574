package partition

import (
	"time"

	"github.com/muster-dev/muster/partition/internal/record"
)

// ownClaimWithin is how long a connected worker may stand by beside its own claim.
const ownClaimWithin = 4 * time.Second

// simStandby is since when a connected worker stands by although it has claimed a stable ID;
// 0: it doesn't.
type simStandby struct{ since time.Duration }

// standsBy: own-claim, a worker that has claimed a stable ID joins under it. One that takes its own
// claim for another worker's stands by instead, as long as that worker's slots are waited for.
func (c *simChecker) standsBy(w *simWorker) {
	connected := w.link.client && w.link.server && !w.link.cut && !w.link.deaf && c.s.srv.up && !w.stopped
	standing := w.m.identity.standby && w.m.stage == stageClaiming && connected
	if c.forgotten || !standing || c.claimOf(w) == "" {
		w.standby.since = 0
		return
	}
	if w.standby.since == 0 {
		w.standby.since = c.s.now
	}
	if waited := c.s.now - w.standby.since; waited > ownClaimWithin {
		c.fail("own-claim", "%v has stood by for %v, and %s is its own", w, waited, c.claimOf(w))
	}
}

// claimOf returns the stable ID that the server has as a worker's, "" for none.
func (c *simChecker) claimOf(w *simWorker) string {
	for id, kv := range c.s.srv.buckets[c.s.cfg.bucketIDs()].last {
		there := !kv.deleted && (kv.expires == 0 || kv.expires > c.s.now)
		claim, err := record.DecodeClaim(kv.value)
		if there && err == nil && claim.Instance == w.m.instance {
			return id
		}
	}
	return ""
}

// forgetUnseenClaim has a worker look for another stable ID after a claim whose outcome is unknown,
// and take its own among those of the dead for another's.
func forgetUnseenClaim(w *simWorker, in input) input {
	w.m.identity.unseen = ""
	if read, is := in.(kvInput); is && read.purpose == forDeadName {
		read.gotValue = nil
		return read
	}
	return in
}
