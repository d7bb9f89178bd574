package audit

// Key is a key of the group's messages, numbered from 1 in the order of publishing.
type Key[W comparable, F Fence[F]] struct {
	slot     *Slot[W, F]
	name     string
	messages []message
	next     int // no message before it has yet to be processed
	last     int // the highest number that was processed, 0 for none
	replayed int // the broker may deliver again what is not above this
}

// message is what is known of a message.
type message byte

const (
	acknowledged message = 1 << iota // to its publisher
	done                             // processed, or dead-lettered
	taken                            // by a fault
)

// Publish returns the number of the key's next message.
func (k *Key[W, F]) Publish() int {
	k.messages = append(k.messages, 0)
	return len(k.messages)
}

// Acknowledge notes that the broker has acknowledged a message to its publisher. One without
// that may be stored or not.
func (k *Key[W, F]) Acknowledge(n int) {
	k.messages[n-1] |= acknowledged
	k.next = min(k.next, n)
}

// Take notes that a fault has taken a message from the broker. A worker may still have it.
func (k *Key[W, F]) Take(n int) { k.messages[n-1] |= taken }

// Published returns how many messages were published.
func (k *Key[W, F]) Published() int { return len(k.messages) }

// Waits reports whether a message has yet to be processed.
func (k *Key[W, F]) Waits(n int) bool {
	return k.messages[n-1]&(acknowledged|done|taken) == acknowledged
}

// Done reports whether a message was processed, or dead-lettered.
func (k *Key[W, F]) Done(n int) bool { return k.messages[n-1]&done != 0 }

// Taken reports whether a fault has taken a message.
func (k *Key[W, F]) Taken(n int) bool { return k.messages[n-1]&taken != 0 }

// Next returns the lowest number that has yet to be processed; one more than there are if none
// has.
func (k *Key[W, F]) Next() int {
	for k.next <= len(k.messages) && !k.Waits(k.next) {
		k.next++
	}
	return k.next
}

// Exempt reports whether a message counts for nothing: a fault has taken it, or it was processed
// before the broker went back.
func (k *Key[W, F]) Exempt(n int) bool {
	return k.Taken(n) || n <= k.replayed && (k.Done(n) || n < k.last)
}

// known reports whether a message was published.
func (k *Key[W, F]) known(w W, n int) bool {
	if n < 1 || n > len(k.messages) {
		k.slot.verdicts.violate(Unpublished, "%v has message %d of %s, which was not published", w, n, k.name)
		return false
	}
	return true
}

// Begin notes that a handler begins.
func (k *Key[W, F]) Begin(h *Handling[W, F]) {
	if !k.known(h.Worker, h.Number) {
		return
	}
	k.slot.begin(k.name, h)
	k.inOrder(h, "begins")
}

// inOrder checks that a message comes after the one before, and not again after a later one.
func (k *Key[W, F]) inOrder(h *Handling[W, F], does string) {
	if k.Exempt(h.Number) {
		return
	}
	switch next := k.Next(); {
	case h.Number > next:
		k.slot.verdicts.violate(Order, "%v %s %s %d before %d is processed", h.Worker, does, k.name, h.Number, next)
	case h.Number < k.last:
		k.slot.verdicts.violate(Order, "%v %s %s %d after %d is processed", h.Worker, does, k.name, h.Number, k.last)
	}
}

// Outcome is what became of a write.
type Outcome int

const (
	// Applied is the first write of a message.
	Applied Outcome = iota
	// Repeated is a write of a message that was written before, which changes nothing.
	Repeated
	// Rejected is a write with a lower fence than one before.
	Rejected
)

// Write is a handler's write to a store that knows fences and what was written, and is this
// auditor.
func (k *Key[W, F]) Write(h *Handling[W, F]) Outcome {
	if !k.known(h.Worker, h.Number) {
		return Repeated
	}
	if !k.slot.admit(k.name, h) {
		return Rejected
	}
	if again := k.Done(h.Number); again {
		k.inOrder(h, "writes")
		return Repeated
	}
	k.end(h)
	return Applied
}

// Store notes that a store of the environment has a new result, which is none that it had.
func (k *Key[W, F]) Store(h *Handling[W, F]) {
	if !k.known(h.Worker, h.Number) {
		return
	}
	if s := k.slot; s.stored.known && h.Fence.Compare(s.stored.fence) < 0 {
		s.verdicts.violate(FenceGrows, "%s: %v has stored %s %d with fence %v after %v", s.name, h.Worker, k.name, h.Number, h.Fence, s.stored.fence)
	} else {
		s.admit(k.name, h)
	}
	if k.Done(h.Number) {
		k.Changed(h.Number)
		return
	}
	k.end(h)
}

// Changed notes that the result of a message has changed, or was stored again.
func (k *Key[W, F]) Changed(n int) {
	k.slot.verdicts.violate(Twice, "the result of %s %d was stored again, or changed", k.name, n)
}

// Finish notes that a handler has processed its message, where no fence was shown.
func (k *Key[W, F]) Finish(h *Handling[W, F]) {
	if k.known(h.Worker, h.Number) && !k.Done(h.Number) {
		k.end(h)
	}
}

func (k *Key[W, F]) end(h *Handling[W, F]) {
	k.inOrder(h, "processes")
	k.messages[h.Number-1] |= done
	k.last = max(k.last, h.Number)
}

// Remove notes that a message leaves the broker, because a worker has acknowledged it.
func (k *Key[W, F]) Remove(n int) {
	if !k.Done(n) && !k.Taken(n) {
		k.slot.verdicts.violate(Lost, "%s %d is acknowledged and was not processed", k.name, n)
	}
}

// DeadLetter notes that a worker has dead-lettered a message. poison is whether it should.
func (k *Key[W, F]) DeadLetter(w W, n int, poison bool) {
	if !k.known(w, n) {
		return
	}
	if !poison {
		k.slot.verdicts.violate(DeadLetter, "%v dead-letters %s %d", w, k.name, n)
	}
	k.messages[n-1] |= done
	k.last = max(k.last, n)
}
