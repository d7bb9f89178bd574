package partition

// stateLoad is how a run comes to the state that its handler has of the slot, and gives it away. It
// does nothing unless the handler is a StateMover.
//
// The order is what keeps the state exact: the old owner offers it after its last handler has
// returned and the server delivers to it no more, and before it says that the slot is released. The
// new owner hears that, and loads. Until the load has ended, the run stays in runWaiting, where no
// message and no call begins. A run that is dropped meanwhile does not end before its load has
// returned, so a later run of the slot never begins beside an Import.
type stateLoad struct {
	from stateMove // whom to ask; zero: nobody has the state
	to   stateMove // who asks for it afterwards; zero: nobody

	stage    loadStage
	stopped  bool
	complete bool  // the handler has the state
	leave    Slots // that a Releaser is told of after a dropped run's load
}

type loadStage uint8

const (
	loadDue loadStage = iota
	loadOpen
	loadDone
)

// beginLoad reports whether the run has to wait for a load, which it begins. A run that hands the
// slot off already begins nothing, so it needs no state.
func (r *slotRun) beginLoad() bool {
	if !r.loads || r.load.stage != loadDue || r.releasing {
		return r.load.stage == loadOpen
	}
	r.load.stage = loadOpen
	r.do(loadEffect{r.place, r.number, r.load.from})
	return true
}

// stopLoad ends the context of a load whose state is of no use any more.
func (r *slotRun) stopLoad() {
	if r.load.stage == loadOpen && !r.load.stopped {
		r.load.stopped = true
		r.do(stopLoadEffect{r.number})
	}
}

// loaded follows the end of the load.
func (r *slotRun) loaded(complete bool) {
	r.load.stage, r.load.complete = loadDone, complete
	if r.stage == runDropped {
		if len(r.load.leave.Slots) > 0 {
			r.tellReleased(r.load.leave)
		}
		r.forgetReturned()
		return
	}
	r.start()
}

// tellReleased tells a Releaser of slots, but not beside a load.
func (r *slotRun) tellReleased(slots Slots) {
	if r.load.stage == loadOpen {
		r.load.leave = slots
		return
	}
	r.do(releasedEffect{slots})
}

// giveState offers the state of a slot that was handed off to its next owner. Without one that can
// have it, or with a state that was never complete, a Releaser is told at once.
func (r *slotRun) giveState() {
	if r.load.complete && r.load.to != (stateMove{}) {
		r.do(exportEffect{r.place, r.load.to, r.leave})
		return
	}
	r.do(releasedEffect{r.leave})
}
