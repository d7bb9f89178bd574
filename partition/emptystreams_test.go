package partition

import (
	"context"
	"errors"
	"sync"
	"testing"
	"time"
)

// fakeStreams answers how many messages streams have, and counts how often it is asked.
type fakeStreams struct {
	now      time.Time
	messages uint64
	err      error
	asked    map[string]int
}

func (f *fakeStreams) stored(_ context.Context, stream string) (uint64, error) {
	f.asked[stream]++
	return f.messages, f.err
}

func TestEmptyStreams(t *testing.T) {
	const fresh = 2 * time.Second
	begin := func() (*fakeStreams, *emptyStreams) {
		f := &fakeStreams{now: time.Unix(1000, 0), asked: make(map[string]int)}
		return f, newEmptyStreams(f.stored, func() time.Time { return f.now }, fresh)
	}
	expect := func(t *testing.T, e *emptyStreams, stream string, empty bool) {
		t.Helper()
		if got := e.empty(t.Context(), stream); got != empty {
			t.Errorf("%s: empty %v, want %v", stream, got, empty)
		}
	}
	t.Run("the slots of a stream share an answer while it is fresh", func(t *testing.T) {
		f, e := begin()
		expect(t, e, "a", true)
		f.messages = 1
		f.now = f.now.Add(fresh - 1)
		expect(t, e, "a", true)
		f.now = f.now.Add(1)
		expect(t, e, "a", false)
		if f.asked["a"] != 2 {
			t.Errorf("asked %d times, want 2", f.asked["a"])
		}
	})
	t.Run("a stream with messages is not asked for by each slot", func(t *testing.T) {
		f, e := begin()
		f.messages = 1
		expect(t, e, "a", false)
		f.messages = 0
		expect(t, e, "a", false)
		if f.asked["a"] != 1 {
			t.Errorf("asked %d times, want 1", f.asked["a"])
		}
	})
	t.Run("streams are told apart", func(t *testing.T) {
		f, e := begin()
		expect(t, e, "a", true)
		f.messages = 1
		expect(t, e, "b", false)
	})
	t.Run("a server that does not answer says nothing", func(t *testing.T) {
		f, e := begin()
		f.err = errors.New("no answer")
		expect(t, e, "a", false)
	})
	t.Run("many slots at once ask once", func(t *testing.T) {
		f, e := begin()
		var wg sync.WaitGroup
		for range 20 {
			wg.Go(func() { expect(t, e, "a", true) })
		}
		wg.Wait()
		if f.asked["a"] != 1 {
			t.Errorf("asked %d times, want 1", f.asked["a"])
		}
	})
}
