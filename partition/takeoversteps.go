package partition

import "errors"

// takeoverSteps takes a slot from an owner that failed, or whose slot is divided otherwise now:
// the consumers of the old generation are deleted, so that the server lets the slot
// have one; then the pin comes off, and what was delivered and not settled is delivered
// again, so that nothing waits for AckWait. It has no I/O: next says what to do, did
// takes in what came of it. The simulator runs it, too.
type takeoverSteps struct {
	at     place
	former []place // consumers yet to be deleted
	stage  takeoverStep
	err    error
}

type takeoverStep uint8

const (
	stepRetire takeoverStep = iota // delete a consumer of the old generation
	stepUnpin
	stepReset
	stepCreate // a consumer that is missing
	stepDone
)

func newTakeoverSteps(at place, former []place) *takeoverSteps {
	t := &takeoverSteps{at: at, former: former}
	t.advance()
	return t
}

// next returns what is to be done, and to the consumer of which place.
func (t *takeoverSteps) next() (takeoverStep, place) {
	if t.stage == stepRetire {
		return t.stage, t.former[0]
	}
	return t.stage, t.at
}

func (t *takeoverSteps) advance() {
	if len(t.former) == 0 {
		t.stage = stepUnpin
	}
}

// did takes in what came of the step that next said.
func (t *takeoverSteps) did(err error) {
	switch {
	case errors.Is(err, errNoConsumer) && (t.stage == stepUnpin || t.stage == stepReset):
		t.stage = stepCreate
	case err != nil:
		t.stage, t.err = stepDone, err
	case t.stage == stepRetire:
		t.former = t.former[1:]
		t.advance()
	case t.stage == stepUnpin:
		t.stage = stepReset
	default:
		t.stage = stepDone
	}
}
