package partition

// suspects are the messages of a slot that the owner before may have failed with. An owner that
// took the slot over does not know which these are, so it records an attempt on each of them before
// it begins, and that is a write. They are at most as many as may be in flight, and each of them was
// in the stream at the takeover: what is published since can't have made anybody fail.
type suspects struct {
	// left is how many of the next messages to begin may still be suspect. One that turns out to be
	// settled doesn't begin, so it is none of them.
	left int

	// The first message that comes says how many its consumer has behind it. What comes after
	// those is later than the takeover. A server confirms a message before its consumers have
	// counted it, so one published a moment before may not be suspect until the next takeover.
	counted bool
	older   uint64 // how many of them have yet to come
	until   uint64 // the last sequence of those that came
}

// came takes in a message that was delivered. Those of the stream come in its order; one that comes
// again, or late, has an earlier sequence.
func (s *suspects) came(m *mail) {
	if s.left == 0 {
		return
	}
	if !s.counted {
		s.counted, s.older = true, m.behind+1
	}
	if s.older > 0 && m.sequence > s.until {
		s.older--
		s.until = m.sequence
	}
}

// has reports whether a message is suspect if it begins now.
func (s *suspects) has(m *mail) bool { return s.left > 0 && m.sequence <= s.until }

// begins notes that a message begins for the first time, and reports whether it is suspect.
func (s *suspects) begins(m *mail) bool {
	if !s.has(m) {
		return false
	}
	s.left--
	return true
}
