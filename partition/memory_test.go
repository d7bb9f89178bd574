package partition

import (
	"testing"
)

// TestForgettingIsDoneOnce: several looks may find at once that a stream is another one,
// and what is remembered by then of the new one must stay.
func TestForgettingIsDoneOnce(t *testing.T) {
	t.Parallel()
	remember := func() *memory {
		m := newMemory(1, 0)
		m.settle(3, 3, original{9, simEpoch.UnixNano()}, 0, Fence{1, 1})
		return m
	}
	t.Run("by two that saw the same", func(t *testing.T) {
		t.Parallel()
		m := remember()
		if n, was := m.forget(3, 0); !was || n != 1 {
			t.Fatalf("the first forgets %d slots, %t", n, was)
		}
		m.settle(3, 3, original{1, simEpoch.UnixNano()}, 1, Fence{1, 1})
		if n, was := m.forget(3, 0); was {
			t.Errorf("the second forgets %d slots", n)
		}
	})
	t.Run("an answer from before is no contradiction", func(t *testing.T) {
		t.Parallel()
		m := remember()
		forgets, last := m.known(3)
		m.forget(3, forgets)
		if what := m.saw(3, forgets, last, simEpoch, 4); what != "" {
			t.Errorf("the new stream is contradicted: %s", what)
		}
	})
}
