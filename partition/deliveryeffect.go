package partition

import (
	"time"

	"github.com/muster-dev/muster/partition/internal/record"
)

// deliveryEffect is something to do. Effects are carried out in their order, and
// before the next step; what takes time continues elsewhere and comes back as an input.
type deliveryEffect interface{ deliveryEffect() }

type (
	// beganEffect: a run was made. Whatever else names it comes later.
	beganEffect struct {
		place
		run uint64
	}
	// fetchEffect sends a pull, with the pin that the run has.
	fetchEffect struct {
		place
		run        uint64
		pullNumber int
		pin        string
		batch      int // messages that it asks for
	}
	// handleEffect calls the handler, and handledInput says what came of it.
	handleEffect struct {
		place
		run     uint64
		call    uint64         // its number in the run
		mail    *mail          // of the main stream
		queued  *queuedMessage // or from the retry queue
		message Message
		abandon bool  // it goes to the dead letters instead
		failure error // with this
	}
	// serveEffect has the handler work on a request, and servedInput says what came of it.
	serveEffect struct {
		place
		run     uint64
		call    uint64 // its number in the run
		request *request
		fence   Fence
	}
	// replyEffect answers a request: with data if it was served, and with an error if that failed.
	replyEffect struct {
		request *request
		outcome record.CallOutcome
		data    []byte
		err     error
	}
	// expiryEffect has an expiredInput come at a moment.
	expiryEffect struct {
		number uint64 // of the request
		at     time.Time
	}
	// interruptEffect ends the context of one of a run's handlers.
	interruptEffect struct{ run, call uint64 }
	// settleEffect answers a message: it is acknowledged, terminated or goes back.
	settleEffect struct {
		place
		mail *mail
		how  settlement
	}
	// confirmEffect acknowledges or terminates a message of a run, and confirmedInput says
	// that the server has done so.
	confirmEffect struct {
		place
		run  uint64
		mail *mail
		how  settlement
	}
	// returnEffect returns a message for a slot that is not held: the pin first, or
	// the server would deliver it here again.
	returnEffect struct {
		place
		mail *mail
	}
	// workingEffect tells the server that a message is worked on.
	workingEffect struct {
		place
		mail *mail
	}
	// askEffect asks a question.
	askEffect struct {
		place
		run, number uint64
		question    question
	}
	// lookEffect has all streams looked at.
	lookEffect struct{}
	// rolledBackEffect reports that the stream of a slot is not the one that it was.
	rolledBackEffect struct {
		slot      int
		what      string
		forgotten int
	}
	// releasedEffect tells a Releaser.
	releasedEffect struct{ slots Slots }
	// loadEffect has the handler get the state of a run's slot, and loadedInput says when that has
	// ended: from the old owner if one is named, or else by Prepare.
	loadEffect struct {
		place
		run   uint64
		state stateMove
	}
	// stopLoadEffect ends the context of a run's load.
	stopLoadEffect struct{ run uint64 }
	// exportEffect offers the state of a slot to its next owner. A Releaser is told afterwards.
	exportEffect struct {
		place
		state stateMove
		leave Slots
	}
	// reportEffect gives the machine an input.
	reportEffect struct{ input input }
	// forcedEffect takes the pin off a slot that was forced, and then reports.
	forcedEffect struct {
		place
		report slotReleasedInput
	}
	// warnEffect logs.
	warnEffect struct {
		text string
		args []any
	}
	// wakeEffect has a run woken, with a wakeInput, at a moment.
	wakeEffect struct {
		run uint64
		at  time.Time
	}
	// endedEffect: nothing of a run is left.
	endedEffect struct{ run uint64 }
)

func (beganEffect) deliveryEffect()      {}
func (fetchEffect) deliveryEffect()      {}
func (handleEffect) deliveryEffect()     {}
func (serveEffect) deliveryEffect()      {}
func (replyEffect) deliveryEffect()      {}
func (expiryEffect) deliveryEffect()     {}
func (interruptEffect) deliveryEffect()  {}
func (settleEffect) deliveryEffect()     {}
func (confirmEffect) deliveryEffect()    {}
func (returnEffect) deliveryEffect()     {}
func (workingEffect) deliveryEffect()    {}
func (askEffect) deliveryEffect()        {}
func (lookEffect) deliveryEffect()       {}
func (rolledBackEffect) deliveryEffect() {}
func (releasedEffect) deliveryEffect()   {}
func (loadEffect) deliveryEffect()       {}
func (stopLoadEffect) deliveryEffect()   {}
func (exportEffect) deliveryEffect()     {}
func (reportEffect) deliveryEffect()     {}
func (forcedEffect) deliveryEffect()     {}
func (warnEffect) deliveryEffect()       {}
func (wakeEffect) deliveryEffect()       {}
func (endedEffect) deliveryEffect()      {}

// settlement is what the server is told of a message.
type settlement uint8

const (
	settleAck settlement = iota
	settleTerm
	settleNak
)
