package partition

// deliveryInput is something that has happened.
type deliveryInput interface{ deliveryInput() }

type (
	// heldInput: the slot is this worker's, or has a later fence.
	heldInput struct {
		place
		fence  Fence
		handed bool      // by its old owner, which has settled what it had begun
		state  stateMove // from that owner
	}
	// handOffInput: the slot is to end with the message that it has.
	handOffInput struct{ releaseEffect }
	// forcedInput: the slot ends although its handler has not returned in time.
	forcedInput struct{ place }
	// droppedInput: the slot is another worker's.
	droppedInput struct{ place }
	// validityInput: the lease became invalid, or is valid again.
	validityInput struct{ valid bool }
	// rolledBackInput: a stream is not the one that it was. It is the stream of a slot.
	rolledBackInput struct{ slot int }
	// mailInput: the server has answered a pull of the slot's consumer.
	mailInput struct {
		place
		mail *mail
	}
	// handledInput: a handler of a run has returned.
	handledInput struct {
		run, call uint64
		err       error
	}
	// answerInput answers the question of that number.
	answerInput struct {
		run, question uint64
		answer
	}
	// confirmedInput: the server knows a message of a run as settled.
	confirmedInput struct {
		run uint64
		original
	}
	// unsentInput: a pull could not be sent.
	unsentInput struct {
		run        uint64
		pullNumber int
	}
	// requestInput: a caller has sent a request.
	requestInput struct{ request *request }
	// servedInput: the handler that worked on a request has returned.
	servedInput struct {
		run, call uint64
		data      []byte
		err       error
	}
	// loadedInput: the load of a run has ended. complete: the handler has the state of the slot.
	loadedInput struct {
		run      uint64
		complete bool
	}
	// expiredInput: the time of an expiryEffect has come.
	expiredInput struct{ number uint64 }
	// wakeInput: the time of a wakeEffect has come.
	wakeInput struct{ run uint64 }
	// progressInput: it is time to tell the server of messages that are worked on.
	progressInput struct{}
	// closeInput: every slot ends.
	closeInput struct{}
)

func (heldInput) deliveryInput()       {}
func (handOffInput) deliveryInput()    {}
func (forcedInput) deliveryInput()     {}
func (droppedInput) deliveryInput()    {}
func (validityInput) deliveryInput()   {}
func (rolledBackInput) deliveryInput() {}
func (mailInput) deliveryInput()       {}
func (handledInput) deliveryInput()    {}
func (answerInput) deliveryInput()     {}
func (confirmedInput) deliveryInput()  {}
func (unsentInput) deliveryInput()     {}
func (requestInput) deliveryInput()    {}
func (servedInput) deliveryInput()     {}
func (loadedInput) deliveryInput()     {}
func (expiredInput) deliveryInput()    {}
func (wakeInput) deliveryInput()       {}
func (progressInput) deliveryInput()   {}
func (closeInput) deliveryInput()      {}
