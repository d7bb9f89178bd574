package partition

import (
	"math/rand/v2"
	"slices"
	"testing"
)

// TestSettledRing compares what is remembered with a list, in a stream that goes back now and then.
func TestSettledRing(t *testing.T) {
	t.Parallel()
	for seed := range uint64(50) {
		rng := rand.New(rand.NewPCG(seed, 7))
		keep := 1 + rng.IntN(8)
		var s settledRing
		var want []original
		next := uint64(1)
		for range 300 {
			if next += rng.Uint64N(3); rng.IntN(40) == 0 {
				next = 1 + rng.Uint64N(next)
			}
			o := original{next, rng.Int64N(2)}
			wantFormer := uint64(0)
			if want = append(want, o); len(want) > keep {
				wantFormer, want = want[0].sequence, want[1:]
			}
			if former := s.add(o, keep); former != wantFormer {
				t.Fatalf("seed %d: message %d is not remembered any more, want %d", seed, former, wantFormer)
			}
			asked := original{1 + rng.Uint64N(next+3), rng.Int64N(2)}
			if got := s.has(asked); got != slices.Contains(want, asked) {
				t.Fatalf("seed %d: message %v: remembered %t of %v", seed, asked, got, want)
			}
		}
	}
}

// TestHeldMessages: a message is held until it is let go of, or all are.
func TestHeldMessages(t *testing.T) {
	t.Parallel()
	var h heldMessages
	var none *heldMessages
	none.letGo(original{1, 1})
	none.clear()
	h.add(original{5, 1})
	h.add(original{3, 1})
	h.letGo(original{5, 1})
	for o, want := range map[original]bool{{3, 1}: true, {3, 2}: false, {5, 1}: false, {6, 1}: false} {
		if got := h.has(o); got != want {
			t.Errorf("message %v is held: %t, want %t", o, got, want)
		}
	}
	if h.clear(); h.has(original{3, 1}) || none.has(original{3, 1}) {
		t.Error("message 3 is held after all were let go of")
	}
}
