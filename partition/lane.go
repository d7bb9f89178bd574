package partition

import (
	"cmp"
	"slices"
)

// lane is what a slot has in hand of one key: the key's messages in the order of the stream. Only
// the first may be begun.
type lane struct {
	key    string
	turn   uint64 // lanes that wait are looked at in this order
	first  *slotMessage
	behind []*mail

	// Where lanes finds it.
	inTurn  turnNode  // in lanes.turns
	ready   turnNode  // in lanes.due or lanes.overdue: something may be done with its first message
	resting restIndex // in lanes.rests or lanes.ended: its first message rests, or has rested
}

func newLane(key string) *lane {
	of := &lane{key: key}
	of.inTurn.of, of.ready.of = of, of
	return of
}

// insert puts a message among the others of its key, in the order of the stream. One that
// was begun stays the first.
func (of *lane) insert(m *mail) {
	if first := of.first; m.sequence < first.mail.sequence && !first.begun() {
		of.first = newSlotMessage(first.lanes, of, m)
		of.first.changed()
		m = first.mail
	}
	at := len(of.behind)
	for at > 0 && of.behind[at-1].sequence > m.sequence { // nearly always it is the last
		at--
	}
	of.behind = slices.Insert(of.behind, at, m)
}

// comesAgain takes in a message of the key that is in hand already, and reports whether it is.
func (of *lane) comesAgain(m *mail) bool {
	if of.first.mail.original == m.original {
		of.first.cameAgain(m)
		return true
	}
	at, _ := slices.BinarySearchFunc(of.behind, m.sequence, func(o *mail, sequence uint64) int {
		return cmp.Compare(o.sequence, sequence)
	})
	for ; at < len(of.behind) && of.behind[at].sequence == m.sequence; at++ {
		if of.behind[at].original == m.original {
			of.behind[at] = m
			return true
		}
	}
	return false
}

// advance makes the next message of the key the first one. It returns false if there is none.
func (of *lane) advance(l *lanes) bool {
	if len(of.behind) == 0 {
		of.first = nil
		return false
	}
	of.first = newSlotMessage(l, of, of.behind[0])
	of.behind[0] = nil
	of.behind = of.behind[1:]
	return true
}

// leaveIndexes takes the lane out of wherever its first message has put it.
func (of *lane) leaveIndexes() {
	of.ready.leave()
	of.leaveRests()
}
