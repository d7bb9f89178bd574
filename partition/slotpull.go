package partition

import (
	"strconv"
	"time"

	"github.com/muster-dev/muster/partition/event"
)

// This file is how a slotRun keeps one pull waiting at the server, and how it fixes a
// consumer that does not deliver.

// slotPull is the pull of a slot.
type slotPull struct {
	pin    string
	asked  string // the pin that the pull was made with
	left   int    // messages that the pull may still bring
	serie  int
	at     time.Time // when it is made again, whatever comes
	renew  bool      // the server may have forgotten it
	fails  int
	quiet  bool // nothing came since the last look at the silence
	stale  bool // and there was something to come
	looks  int  // when nothing was
	stored uint64
	// quietAt is when the silence is looked at.
	quietAt time.Time
}

// fetch pulls again.
func (r *slotRun) fetch() {
	p := &r.pull
	p.serie++
	p.renew = false
	p.left, p.asked = pullBatch, p.pin
	// If neither message nor status comes, the pull is lost.
	p.at = r.d.now.Add(pullExpiry + 2*time.Second)
	r.d.do(fetchEffect{r.place, r.number, p.serie, p.pin})
}

// got takes in that a message came.
func (r *slotRun) got(m *mail) {
	p := &r.pull
	if m.pin != "" {
		p.pin = m.pin
	}
	p.fails = 0
	p.quiet, p.stale = false, false
	if p.left--; p.left == 0 {
		r.fetch()
	} else {
		p.at = r.d.now.Add(pullExpiry + 2*time.Second)
	}
}

// status handles the end of a pull. Ends of earlier pulls are ignored, unless one may
// have been what the pin was for: then the one that waits gets nothing, since it was
// asked for without that.
func (r *slotRun) status(m *mail) {
	p := &r.pull
	if m.serie != p.serie {
		if (m.status == "408" || m.status == "404") && p.pin != "" && p.asked != p.pin {
			r.fetch()
		}
		return
	}
	switch m.status {
	case "408", "404": // expired
		r.fetch()
	case "423": // the pin is not ours any more
		p.pin = ""
		r.fetch()
	default: // 409: leadership change, consumer deleted …; 503: nobody there
		p.pin = ""
		p.fails++
		if m.status == "409" || m.status == "503" {
			// The consumer may have gone with its stream, and another worker, or a
			// publisher, may have created both again before this one asks for them.
			r.d.do(lookEffect{})
		}
		again := func(answer) { p.at = r.d.now.Add(pullRetry * time.Duration(min(p.fails, 10))) }
		again(answer{})
		// A worker that can't rely on its lease may hold what is replaced by now.
		if p.fails%5 == 0 && r.d.valid() {
			r.d.do(warnEffect{"Pulls are refused; creating the consumer again if it is gone.", []any{"slot", r.slot, "status", m.status, "description", m.description}})
			r.ask(askCreate{}, again)
		}
	}
}

// lookAtSilence fixes a stale pin. An unpinned pull of an earlier owner may get a
// message, and with it the pin, and its process may die before it gives both back; then
// nothing is delivered until the pin has expired. When there are messages and none has
// come between two looks, the pin is taken off and what is in flight delivered again.
func (r *slotRun) lookAtSilence() {
	p := &r.pull
	silent := p.quiet
	p.quiet = true
	if !silent || !r.d.valid() {
		return
	}
	r.ask(askWaiting{}, func(a answer) {
		if len(r.box) > 0 { // a message came while the question was open
			p.stale = false
			return
		}
		if a.err != nil || !a.yes {
			p.stale = false
			if a.err == nil {
				r.lookForLeftover()
			}
			return
		}
		p.stored = 0
		if !p.stale {
			p.stale = true
			return
		}
		p.stale = false
		if !r.d.valid() {
			return // meanwhile; another worker may hold the slot
		}
		r.ask(askTake{}, func(a answer) { r.fixed(a.err, "") })
	})
}

// fixed follows a repair of the slot's consumer.
func (r *slotRun) fixed(err error, reason string) {
	if err != nil {
		return
	}
	r.d.note(event.Event{Kind: event.StalePinFreed, Slot: r.slot, Reason: reason})
	r.pull.pin = ""
	r.fetch()
}

// lookForLeftover is called when the consumer has nothing to deliver; leftover.go says
// what for.
func (r *slotRun) lookForLeftover() {
	p := &r.pull
	if p.looks++; p.looks%leftoverLooks != 0 {
		return
	}
	r.ask(askFirst{}, func(a answer) {
		if a.err != nil {
			return
		}
		stays := a.sequence != 0 && a.sequence == p.stored
		p.stored = a.sequence
		if !stays || !r.d.valid() {
			return
		}
		p.stored = 0
		r.d.do(warnEffect{"Messages stay in the stream that their consumer knows nothing of; creating it again.", []any{"slot", r.slot, "sequence", a.sequence}})
		r.ask(askRenew{}, func(a answer) {
			if a.err != nil {
				r.d.do(warnEffect{"The consumer could not be created again.", []any{"slot", r.slot, "err", a.err}})
			}
			r.fixed(a.err, "messages left behind")
		})
	})
}

// pullOf returns the serial number of the pull with a reply subject, which ends in it.
func pullOf(serie string) int {
	n, err := strconv.Atoi(serie)
	if err != nil {
		return -1
	}
	return n
}
