package partition

import "errors"

// taking takes a slot from an owner that failed, or whose slot is divided otherwise now:
// the consumers of the former division are deleted, so that the server lets the slot
// have one; then the pin comes off, and what was delivered and not settled is delivered
// again, so that nothing waits for AckWait. It has no I/O: next says what to do, did
// takes in what came of it. The simulator runs it, too.
type taking struct {
	at     place
	former []place // consumers yet to be deleted
	stage  takingStage
	err    error
}

type takingStage uint8

const (
	takeRetire takingStage = iota // delete a consumer of the former division
	takeUnpin
	takeReset
	takeCreate // a consumer that is missing
	takeDone
)

func newTaking(at place, former []place) *taking {
	t := &taking{at: at, former: former}
	t.advance()
	return t
}

// next returns what is to be done, and to the consumer of which place.
func (t *taking) next() (takingStage, place) {
	if t.stage == takeRetire {
		return t.stage, t.former[0]
	}
	return t.stage, t.at
}

func (t *taking) advance() {
	if len(t.former) == 0 {
		t.stage = takeUnpin
	}
}

// did takes in what came of the step that next said.
func (t *taking) did(err error) {
	switch {
	case errors.Is(err, errNoConsumer) && (t.stage == takeUnpin || t.stage == takeReset):
		t.stage = takeCreate
	case err != nil:
		t.stage, t.err = takeDone, err
	case t.stage == takeRetire:
		t.former = t.former[1:]
		t.advance()
	case t.stage == takeUnpin:
		t.stage = takeReset
	default:
		t.stage = takeDone
	}
}
