package partition

import (
	"errors"
	"testing"

	"github.com/muster-dev/muster/partition/internal/record"
)

// claimingMachine returns a worker of a group of two expected workers that claims sim-1, the
// only ID that is free.
func claimingMachine(t *testing.T) (m *machine, claim kvEffect) {
	t.Helper()
	expected := func() int { return 2 }
	cfg := Config{Name: "sim", Stream: "sim", Subject: "sim.*", Slots: 4, Rebalance: Rebalance{Expected: expected}}.resolve()
	m = newMachine(cfg, "p1")
	m.step(simEpoch, startInput{})
	return m, claimOf(t, m.step(simEpoch, kvInput{kvEffect: kvEffect{purpose: forNames}, keys: []string{"sim-0"}}))
}

// TestAClaimThatWasCarriedOutUnseen: the server carries out a claim, and neither its reply nor
// a read of the ID arrives. The worker must find out that it has the ID. If it took its own
// claim for another worker's, it would stand by beside an ID that no one uses until its slots
// have moved.
func TestAClaimThatWasCarriedOutUnseen(t *testing.T) {
	t.Parallel()
	lost := errors.New("timeout")
	reclaimed := func(t *testing.T, m *machine, effects []effect) {
		t.Helper()
		again := claimOf(t, effects)
		if again.op != opUpdate || again.key != "sim-1" || again.rev != 9 {
			t.Fatalf("the worker writes %+v, want sim-1 over its revision 9", again)
		}
		m.step(m.now, kvInput{kvEffect: again, gotRev: 10})
		if want := (record.Process{ID: "sim-1", Claim: 10}); m.self != want {
			t.Errorf("the worker is %v, want %v", m.self, want)
		}
	}

	t.Run("it reads the ID when it tries again", func(t *testing.T) {
		t.Parallel()
		m, claim := claimingMachine(t)
		m.step(m.now, kvInput{kvEffect: claim, err: lost})
		read := readOf(t, m.step(m.now.Add(retryInterval), tickInput{}))
		if read.key != "sim-1" {
			t.Fatalf("the worker reads %s, want sim-1", read.key)
		}
		reclaimed(t, m, m.step(m.now, kvInput{kvEffect: read, gotValue: claim.value, gotRev: 9}))
	})

	t.Run("a standby reads it each time: it may be carried out after it was read", func(t *testing.T) {
		t.Parallel()
		m, claim := claimingMachine(t)
		m.step(m.now, kvInput{kvEffect: claim, err: lost})
		read := readOf(t, m.step(m.now.Add(retryInterval), tickInput{}))
		m.step(m.now, kvInput{kvEffect: read, err: errNotFound})
		m.identity.stand()
		read = readOf(t, m.step(m.now.Add(standbyPoll), tickInput{}))
		reclaimed(t, m, m.step(m.now, kvInput{kvEffect: read, gotValue: claim.value, gotRev: 9}))
	})

	t.Run("its next claim finds the earlier one", func(t *testing.T) {
		t.Parallel()
		m, claim := claimingMachine(t)
		reclaimed(t, m, m.step(m.now, kvInput{kvEffect: claim, err: errConflict, gotValue: claim.value, gotRev: 9}))
	})

	t.Run("a standby finds it among the IDs that seem to be of the dead", func(t *testing.T) {
		t.Parallel()
		m, claim := claimingMachine(t)
		m.identity.stand()
		m.identity.unseen = ""
		dead := kvEffect{purpose: forDeadName, op: opGet, bucket: m.cfg.bucketIDs(), key: "sim-1"}
		reclaimed(t, m, m.step(m.now, kvInput{kvEffect: dead, gotValue: claim.value, gotRev: 9}))
	})
}

// TestAClaimThatWasNotCarriedOut: the worker looks for an ID again, whether the one it wanted
// is still free or another worker has it now.
func TestAClaimThatWasNotCarriedOut(t *testing.T) {
	t.Parallel()
	other := record.Encode(record.Claim{Schema: record.Schema, Instance: "p2", N: 1})
	for name, found := range map[string]kvInput{
		"free":              {err: errNotFound},
		"another worker's":  {gotValue: other, gotRev: 9},
		"not to be decoded": {gotValue: []byte("{"), gotRev: 9},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			m, claim := claimingMachine(t)
			m.step(m.now, kvInput{kvEffect: claim, err: errors.New("timeout")})
			found.kvEffect = readOf(t, m.step(m.now.Add(retryInterval), tickInput{}))
			var listed bool
			for _, e := range m.step(m.now, found) {
				kv, is := e.(kvEffect)
				listed = listed || is && kv.purpose == forNames
			}
			if !listed {
				t.Error("the worker does not look for another ID")
			}
		})
	}
}

// readOf returns the read of a claim whose outcome is unknown.
func readOf(t *testing.T, effects []effect) kvEffect {
	t.Helper()
	for _, e := range effects {
		if kv, is := e.(kvEffect); is && kv.op == opGet && kv.purpose == forUnseenClaim {
			return kv
		}
	}
	t.Fatalf("no read of the claim among %v", effects)
	return kvEffect{}
}
