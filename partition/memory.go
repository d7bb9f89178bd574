package partition

import (
	"sync"
	"time"
)

// memory is what a worker remembers of the streams: for each shard, what was settled.
// Several goroutines may use it.
type memory struct {
	mu     sync.Mutex
	shards []watermarks
}

// newMemory remembers each of the last settled messages of a slot, recent of them; only the
// last one if recent is 0.
func newMemory(shards, recent int) *memory {
	m := &memory{shards: make([]watermarks, shards)}
	for i := range m.shards {
		m.shards[i].keep = recent
	}
	return m
}

// newMemoryFor returns the memory of a worker with a configuration.
func newMemoryFor(cfg Config, shards int) *memory {
	if cfg.Delivery.InFlight == 1 {
		return newMemory(shards, 0)
	}
	return newMemory(shards, recentPerInFlight*cfg.Delivery.InFlight)
}

// recentPerInFlight is how many settled messages of a slot are remembered for each that may be in
// flight. Of as many as may be in flight a slot may miss some, and be wrong about their order.
const recentPerInFlight = 4

// of returns what is remembered of the stream of a slot; mu is held.
func (m *memory) of(slot int) *watermarks { return &m.shards[slot%len(m.shards)] }

// sameStream reports whether two slots have their messages in the same stream.
func (m *memory) sameStream(a, b int) bool { return a%len(m.shards) == b%len(m.shards) }

// recall returns what is remembered of a message of a slot, and how often all had
// been forgotten, to settle it with.
func (m *memory) recall(slot, finest int, o original) (recollection, uint64) {
	m.mu.Lock()
	defer m.mu.Unlock()
	w := m.of(slot)
	return w.recall(finest, o), w.forgets
}

// settle is watermarks.settle.
func (m *memory) settle(slot, finest int, o original, forgets uint64, by Fence) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.of(slot).settle(finest, o, forgets, by)
}

// taken is watermarks.taken.
func (m *memory) taken(slot, finest int, o original) (replaces bool, forgets uint64) {
	m.mu.Lock()
	defer m.mu.Unlock()
	w := m.of(slot)
	return w.taken(finest, o), w.forgets
}

// inHand is watermarks.holds.
func (m *memory) inHand(slot, finest int, o original) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.of(slot).holds(finest, o)
}

// atRest is watermarks.atRest.
func (m *memory) atRest(slot, finest int) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.of(slot).atRest(finest)
}

// refence is watermarks.refence.
func (m *memory) refence(at place, before, later Fence) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.of(at.slot).refence(at, before, later)
}

// queue is watermarks.queue.
func (m *memory) queue(slot int, o original, copied uint64) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.of(slot).queue(o, copied)
}

// erase is watermarks.erase.
func (m *memory) erase(slot int, o original) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.of(slot).erase(o)
}

// copied returns the sequence of a message's copy in the retry queue, 0 if it is not known.
func (m *memory) copied(slot int, o original) uint64 {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.of(slot).queued[o]
}

// dequeue forgets the copy of a message: the message was processed, or the copy is gone.
func (m *memory) dequeue(slot int, o original) {
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.of(slot).queued, o)
}

func (m *memory) forgets(slot int) uint64 {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.of(slot).forgets
}

// known returns what a look at the stream of a slot is to be compared with.
func (m *memory) known(slot int) (forgets, last uint64) {
	m.mu.Lock()
	defer m.mu.Unlock()
	w := m.of(slot)
	return w.forgets, w.last
}

// saw takes in what a stream was seen to be after known, and returns how that
// contradicts what is remembered, "" if it does not.
func (m *memory) saw(slot int, forgets, last uint64, created time.Time, seen uint64) string {
	m.mu.Lock()
	defer m.mu.Unlock()
	w := m.of(slot)
	if w.forgets != forgets {
		return "" // what is remembered by now may be of a later stream than the answer
	}
	return w.saw(created, seen, last)
}

// forget drops what is remembered of the stream of a slot, and returns of how many
// slots, unless that was done since then.
func (m *memory) forget(slot int, forgets uint64) (forgotten int, was bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	w := m.of(slot)
	if w.forgets != forgets {
		return 0, false
	}
	return w.forget(), true
}
