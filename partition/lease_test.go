package partition

import (
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/muster-dev/muster/partition/internal/record"
)

// TestALeaseInTheWayIsLeftUntilItMustHaveEnded: a worker that has claimed a name finds
// the lease of an earlier holder. That one may live, and rely on it.
func TestALeaseInTheWayIsLeftUntilItMustHaveEnded(t *testing.T) {
	t.Parallel()
	m := newMachine(Config{Name: "sim", Stream: "sim", Subject: "sim.*", Slots: 4}.resolve(), "p1")
	now := simEpoch
	m.step(now, startInput{})
	m.step(now, kvInput{kvEffect: kvEffect{purpose: forNames}})
	m.step(now, kvInput{kvEffect: kvEffect{purpose: forClaim, key: "sim-0"}, gotRev: 7})
	theirs := record.Encode(record.Heartbeat{Schema: record.Schema, ID: "sim-0", Claim: 3, Instance: "p0", N: 1, Weight: 1})
	// meets reports whether the worker writes over the lease when it meets it at a time.
	meets := func(at time.Time, rev uint64) bool {
		for _, e := range m.step(at, kvInput{kvEffect: kvEffect{purpose: forJoin, op: opCreate, key: "sim-0", start: at}, err: errConflict, gotRev: rev, gotValue: theirs}) {
			if kv, is := e.(kvEffect); is && kv.purpose == forJoin && kv.op == opUpdate {
				return true
			}
		}
		return false
	}
	end := m.cfg.Lease.TTL + time.Second
	if meets(now, 5) || meets(now.Add(end-time.Millisecond), 5) {
		t.Fatal("a lease that may be valid is written over")
	}
	renewed := now.Add(end - time.Millisecond)
	if meets(renewed, 6) || meets(renewed.Add(end-time.Millisecond), 6) {
		t.Error("a lease that was renewed meanwhile is written over")
	}
	if !meets(renewed.Add(end), 6) {
		t.Error("a lease that the server keeps although it has ended is never written over")
	}
}

// TestAnExpiredLeaseNeedsARenewal: when a worker may rely on its lease.
func TestAnExpiredLeaseNeedsARenewal(t *testing.T) {
	t.Parallel()
	// answers has the servers answer pings, so that only the lease's own time counts.
	answers := func(m *machine, until time.Time) {
		for at := m.now; at.Before(until); at = at.Add(100 * time.Millisecond) {
			m.step(at, pongInput{start: at})
		}
	}
	renew := func(m *machine, at, begun time.Time) {
		m.step(at, kvInput{kvEffect: kvEffect{purpose: forLeaseRenewal, op: opUpdate, key: m.self.ID, start: begun}, gotRev: m.membership.rev + 1})
	}
	t.Run("it ends a margin before the server lets it expire", func(t *testing.T) {
		t.Parallel()
		m, _ := joinedMachine(t)
		end := m.lease.renewed.Add(m.cfg.Lease.TTL - m.cfg.Lease.Margin)
		answers(m, end)
		if !m.lease.valid {
			t.Fatal("it is invalid before its time")
		}
		m.step(end, pongInput{start: end})
		if m.lease.valid {
			t.Error("it is valid after its time")
		}
	})
	t.Run("it is invalid without an answer of the servers", func(t *testing.T) {
		t.Parallel()
		m, _ := joinedMachine(t)
		m.step(m.now.Add(m.cfg.Lease.SuspicionGrace), tickInput{})
		if m.lease.valid {
			t.Error("it is valid")
		}
	})
	t.Run("it is invalid as soon as the connection is gone", func(t *testing.T) {
		t.Parallel()
		m, _ := joinedMachine(t)
		m.step(m.now, connectionInput{up: false})
		if m.lease.valid {
			t.Error("it is valid")
		}
	})
	t.Run("a renewal that began before does not bring it back", func(t *testing.T) {
		t.Parallel()
		m, _ := joinedMachine(t)
		begun := m.now.Add(-time.Millisecond)
		m.step(m.now, connectionInput{up: false})
		at := m.now.Add(time.Millisecond)
		m.step(at, connectionInput{up: true})
		m.step(at, pongInput{start: at})
		renew(m, at, begun)
		if m.lease.valid {
			t.Error("it is valid, although the slots may have been taken since")
		}
		renew(m, at, at)
		if !m.lease.valid {
			t.Error("it is invalid after a renewal that began later")
		}
	})
	t.Run("after an end the first renewal brings it back", func(t *testing.T) {
		t.Parallel()
		m, _ := joinedMachine(t)
		lost := m.now.Add(m.cfg.Lease.SuspicionGrace)
		for _, at := range []time.Time{lost, lost.Add(shortestSleep)} {
			for _, e := range m.step(at, tickInput{}) {
				if kv, is := e.(kvEffect); is && kv.purpose == forLeaseRenewal {
					renew(m, at.Add(time.Millisecond), kv.start)
				}
			}
		}
		if !m.lease.valid {
			t.Errorf("it is invalid after a renewal, and the next one begins at %v", m.membership.due)
		}
	})
	t.Run("after a renewal that began before, the next one begins at once", func(t *testing.T) {
		t.Parallel()
		m, _ := joinedMachine(t)
		var renewals []time.Time
		step := func(at time.Time, in input) {
			for _, e := range m.step(at, in) {
				if kv, is := e.(kvEffect); is && kv.purpose == forLeaseRenewal {
					renewals = append(renewals, at)
				}
			}
		}

		// The servers answer nothing for a moment longer than the grace, the renewal that is
		// under way meanwhile included.
		due := m.membership.due
		answers(m, due)
		step(due, tickInput{})
		lost := due.Add(m.cfg.Lease.SuspicionGrace)
		step(lost, tickInput{})
		if len(renewals) != 1 || m.lease.valid {
			t.Fatalf("%d renewals have begun and the lease is valid: %t", len(renewals), m.lease.valid)
		}

		back := lost.Add(time.Millisecond)
		step(back, kvInput{kvEffect: kvEffect{purpose: forLeaseRenewal, op: opUpdate, key: m.self.ID, start: due}, gotRev: m.membership.rev + 1})
		if len(renewals) != 2 || !renewals[1].Equal(back) {
			t.Errorf("renewals began at %v: the worker stands still until %v although the servers answered at %v", renewals, m.membership.due, back)
		}
	})
}

// TestALeaseOfAnEarlierClaimIsIgnored: a replica that is behind may show a leader the
// lease of an earlier holder of a name, whose worker was replaced.
func TestALeaseOfAnEarlierClaimIsIgnored(t *testing.T) {
	t.Parallel()
	m := leadingMachine(t)
	m.step(m.now, leaseInput{id: "sim-1", value: record.Heartbeat{Schema: record.Schema, ID: "sim-1", Claim: 5, Weight: 1}, rev: 20, at: m.now, watch: m.lead.roster.watches})
	if p := m.lead.roster.peers.get("sim-1"); p == nil || p.Claim != 8 {
		t.Errorf("the worker of the map is replaced: %+v", p)
	}
}

// TestANewLeaderRewritesTheMap with its own epoch, before it does anything else: then the
// next write of the former leader, which expects the revision before, fails.
func TestANewLeaderRewritesTheMap(t *testing.T) {
	t.Parallel()
	m, a := joinedMachine(t)
	m.step(m.now, leaderInput{rev: 9})
	m.step(m.now, kvInput{kvEffect: kvEffect{purpose: forElection, op: opCreate, start: m.now}, gotRev: 10})
	written := mapWrites(t, m.step(m.now, kvInput{kvEffect: kvEffect{purpose: forMapRead, op: opGet}, gotValue: a.Encode(), gotRev: m.curRev}))
	if len(written) != 1 || written[0].Epoch != 10 || written[0].Version != a.Version || written[0].Leader != m.self {
		t.Fatalf("it writes %d maps, want one with epoch 10 and the same version", len(written))
	}
}

// TestAMapThatWentBackIsReadTwice: one read may be answered by a replica that is behind.
func TestAMapThatWentBackIsReadTwice(t *testing.T) {
	t.Parallel()
	m := leadingMachine(t)
	read := kvInput{kvEffect: kvEffect{purpose: forMapRead, op: opGet}, gotRev: m.curRev - 1}
	old := m.cur.Clone()
	old.Version = 3
	read.gotValue = old.Encode()
	if written := mapWrites(t, m.step(m.now, read)); len(written) != 0 {
		t.Fatal("it writes a map after the first read")
	}
	m.leaderLease.start, m.lease.renewed, m.lease.confirmed = m.now.Add(retryInterval), m.now.Add(retryInterval), m.now.Add(retryInterval)
	if written := mapWrites(t, m.step(m.now.Add(retryInterval), read)); len(written) != 1 {
		t.Errorf("it writes %d maps after the second", len(written))
	}
}

// TestSlotsOfALostMapWaitForItsWorkers: a live worker may hold a slot by a map that was
// lost, until it has seen the next one.
func TestSlotsOfALostMapWaitForItsWorkers(t *testing.T) {
	t.Parallel()
	m := leadingMachine(t)
	m.lossVersion = 50
	for version, waits := range map[uint64]bool{4: true, 49: true, 50: false} {
		m.lossVersion = 50
		m.lead.roster.peers.get("sim-1").lease.Version = version
		if got := m.lead.roster.lostMapUnseen(); got != waits {
			t.Errorf("with a worker that has map %d after the loss before 50, it waits: %t", version, got)
		}
	}
}

// TestAStreamThatIsCreatedAgainBeginsHigher than all that was seen, whatever the clock says.
func TestAStreamThatIsCreatedAgainBeginsHigher(t *testing.T) {
	t.Parallel()
	for _, now := range []time.Time{{}, record.SequenceEpoch, simEpoch} {
		for _, seen := range []uint64{0, 7, 1 << 60} {
			if got := firstSequence(now, seen); got <= seen {
				t.Errorf("at %v, after %d: it begins at %d", now, seen, got)
			}
		}
	}
	if a, b := firstSequence(simEpoch, 0), firstSequence(simEpoch.Add(time.Hour), 0); b <= a {
		t.Errorf("an hour later it begins at %d, after %d", b, a)
	}
}

// TestALeaseIsNotShorterAtTheServer than its holder believes: the server counts whole
// seconds and ignores the rest.
func TestALeaseIsNotShorterAtTheServer(t *testing.T) {
	t.Parallel()
	for _, d := range []time.Duration{time.Second, 1500 * time.Millisecond, 6*time.Second + 1} {
		if got := ttlOf(d); got < d || got%time.Second != 0 {
			t.Errorf("a TTL of %v is %v at the server", d, got)
		}
	}
}

// TestAConsumerKeepsTheOrder: what the server must do for a slot: one message in flight,
// to the one worker that has the pin, until it is acknowledged, however often.
func TestAConsumerKeepsTheOrder(t *testing.T) {
	t.Parallel()
	cfg := Config{Name: "sim", Stream: "sim", Subject: "sim.*", Slots: 4}.resolve()
	lay, err := cfg.validate()
	if err != nil {
		t.Fatal(err)
	}
	c := slotConsumer(cfg, lay, lay.firstGeneration().place(1))
	if c.MaxAckPending != 1 || c.MaxDeliver != -1 || c.AckWait != cfg.Delivery.AckWait {
		t.Errorf("%d in flight, delivered %d times, each %v", c.MaxAckPending, c.MaxDeliver, c.AckWait)
	}
	if c.PriorityPolicy != jetstream.PriorityPolicyPinned || len(c.PriorityGroups) != 1 || c.AckPolicy != jetstream.AckExplicitPolicy {
		t.Errorf("priority policy %v of %v, acknowledgement policy %v", c.PriorityPolicy, c.PriorityGroups, c.AckPolicy)
	}
	if c.PinnedTTL <= pullExpiry {
		t.Errorf("a pin of %v ends before its pull", c.PinnedTTL)
	}
}
