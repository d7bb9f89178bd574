package partition

import "slices"

// settledRing remembers the last messages of a slot that were settled. The zero value remembers none.
type settledRing struct {
	ring []original // once it is full, the earliest one is at next
	next int
	// highest is the highest sequence in the ring. A message that comes for the first time has a
	// higher one, so the ring is searched only for those that come again.
	highest uint64
}

// has reports whether a message is among those that are remembered.
func (s *settledRing) has(o original) bool {
	return s != nil && o.sequence <= s.highest && slices.Contains(s.ring, o)
}

// add remembers a message, and not the earliest one any more if that makes them more than keep. It
// returns the sequence of that, 0 if there is none.
func (s *settledRing) add(o original, keep int) (former uint64) {
	if len(s.ring) < keep {
		s.ring = append(s.ring, o)
		s.highest = max(s.highest, o.sequence)
		return 0
	}

	former = s.ring[s.next].sequence
	s.ring[s.next] = o
	s.next = (s.next + 1) % keep
	s.highest = max(s.highest, o.sequence)
	if former == s.highest && former != o.sequence { // the stream went back, and has come no further since
		s.highest = 0
		for _, of := range s.ring {
			s.highest = max(s.highest, of.sequence)
		}
	}
	return former
}

// heldMessages are the messages of a slot that were taken in hand and not settled. The zero value has
// none.
type heldMessages struct {
	messages map[original]struct{}
	// highest is the highest sequence that was taken in hand. A message that comes for the first
	// time has a higher one, and is not looked for.
	highest uint64
}

func (h *heldMessages) has(o original) bool {
	if h == nil || o.sequence > h.highest {
		return false
	}
	_, held := h.messages[o]
	return held
}

func (h *heldMessages) add(o original) {
	if h.messages == nil {
		h.messages = make(map[original]struct{})
	}
	h.messages[o] = struct{}{}
	h.highest = max(h.highest, o.sequence)
}

func (h *heldMessages) letGo(o original) {
	if h != nil {
		delete(h.messages, o)
	}
}

// clear lets go of all messages.
func (h *heldMessages) clear() {
	if h != nil {
		clear(h.messages)
		h.highest = 0
	}
}
