package partition

import "time"

// takeoverTable has the slots that a leader is taking from workers whose leases have ended. For
// each slot one is under way at a time, for the owner that the map gives it.
type takeoverTable struct {
	of    map[int]*takeover // by slot
	begun uint64
}

// takeover is one of them.
type takeover struct {
	Fence          // of the owner that the slot is taken for
	run     uint64 // tells its result from that of an earlier one
	done    bool
	retryAt time.Time // zero: it is under way, or done
}

// isDone reports whether a slot was taken for the owner of a fence.
func (t *takeoverTable) isDone(slot int, f Fence) bool {
	o := t.of[slot]
	return o != nil && o.done && o.Fence == f
}

// isDue reports whether to begin a takeover: none is under way for this owner, nor done, or
// the last one failed a while ago.
func (t *takeoverTable) isDue(slot int, f Fence, now time.Time) bool {
	o := t.of[slot]
	if o == nil || o.Fence != f {
		return true
	}
	failed := !o.done && !o.retryAt.IsZero()
	return failed && !now.Before(o.retryAt)
}

// begin begins one, and returns its number.
func (t *takeoverTable) begin(slot int, f Fence) (run uint64) {
	if t.of == nil {
		t.of = make(map[int]*takeover)
	}
	t.begun++
	t.of[slot] = &takeover{Fence: f, run: t.begun}
	return t.begun
}

// running returns the takeover of a slot with this number, nil if a later one has begun.
func (t *takeoverTable) running(slot int, run uint64) *takeover {
	if o := t.of[slot]; o != nil && o.run == run {
		return o
	}
	return nil
}

func (t *takeoverTable) forget(slot int) { delete(t.of, slot) }

// wake tells when those that failed are due again.
func (t *takeoverTable) wake(sooner func(time.Time)) {
	for _, o := range t.of {
		if !o.done {
			sooner(o.retryAt)
		}
	}
}
