package partition

import (
	"fmt"
	"testing"
)

// claimRace lets workers that have seen no ID taken claim one each, in turns, and returns how
// many writes that took, and which IDs they have.
func claimRace(t *testing.T, workers, expected int) (writes int, taken map[string]bool) {
	t.Helper()
	cfg := Config{Name: "sim", Stream: "sim", Subject: "sim.*", Slots: 16, Identity: Identity{PoolSize: 5000}, Rebalance: Rebalance{Expected: func() int { return expected }}}.resolve()
	taken = make(map[string]bool)
	var machines []*machine
	var claims []kvEffect
	for i := range workers {
		m := newMachine(cfg, fmt.Sprintf("instance-%d", i))
		m.step(simEpoch, startInput{})
		machines = append(machines, m)
		claims = append(claims, claimOf(t, m.step(simEpoch, kvInput{kvEffect: kvEffect{purpose: forNames}})))
	}

	for len(machines) > 0 {
		var still []*machine
		var next []kvEffect
		for i, m := range machines {
			writes++
			id := claims[i].key
			if !taken[id] {
				taken[id] = true
				continue
			}
			still = append(still, m)
			next = append(next, claimOf(t, m.step(simEpoch, kvInput{kvEffect: claims[i], err: errConflict})))
		}
		machines, claims = still, next
	}
	return writes, taken
}

func claimOf(t *testing.T, effects []effect) kvEffect {
	t.Helper()
	for _, e := range effects {
		if kv, is := e.(kvEffect); is && kv.purpose == forClaim {
			return kv
		}
	}
	t.Fatalf("no claim among %v", effects)
	return kvEffect{}
}

// TestClaimRace: a thousand workers that start together have IDs in sequence after some
// thousands of writes, not half a million.
func TestClaimRace(t *testing.T) {
	t.Parallel()
	for _, workers := range []int{1, 6, 100, 1000} {
		writes, taken := claimRace(t, workers, workers)
		t.Logf("%d workers: %d writes", workers, writes)
		if most := 20 * workers; writes > most {
			t.Errorf("%d workers made %d writes, want %d or fewer", workers, writes, most)
		}
		for n := range workers {
			if id := fmt.Sprintf("sim-%d", n); !taken[id] {
				t.Errorf("of %d workers none has %s", workers, id)
			}
		}
	}
}
