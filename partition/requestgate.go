package partition

// slotStanding is where a slot stands at a worker that was sent a request for one of its keys.
type slotStanding struct {
	// valid: the worker may rely on its lease at this moment, as for the beginning of a message.
	valid bool
	// held: the worker has the slot. The takeover from a failed owner is done, and a former owner
	// that lives has released it.
	held bool
	// started: handlers of an earlier holding of the same keys by this worker have returned.
	started bool
	// handsOff: nothing new is begun, since the slot goes to another worker.
	handsOff bool
	// fence is the one that the slot is held with, or was last; zero: it was never held.
	fence Fence
}

// requestVerdict is what becomes of a request.
type requestVerdict uint8

const (
	serveRequest  requestVerdict = iota // as soon as no handler works on its key
	requestWaits                        // the slot may be about to come, or to get a later fence
	requestMoved                        // another worker has the slot, or is to have it
	requestUnsure                       // the lease may have ended, so another worker may have the slot
)

// decide decides on a request whose caller knows the slot's owner by a fence, zero if it knows
// none. A caller that knows a later fence than this worker has a newer map, by which this worker
// is the owner, so its own map will say so soon. One that knows an earlier fence is served all the
// same: this worker owns the slot now.
func (s slotStanding) decide(known Fence) requestVerdict {
	behind := s.fence.Compare(known) < 0
	switch {
	case !s.valid:
		return requestUnsure
	case behind:
		return requestWaits
	case !s.held || s.handsOff:
		return requestMoved
	case !s.started:
		return requestWaits
	}
	return serveRequest
}
