package partition

import (
	"slices"
	"strconv"
	"time"

	"github.com/muster-dev/muster/partition/event"
)

// slotPull keeps one pull of a slot waiting at the server, holds what it brings until the
// run takes it, and fixes a consumer that does not deliver. Its run calls it, between two
// messages.
type slotPull struct {
	*runCore

	box []*mail // what came and was not looked at

	// The pull that waits at the server.
	pullNumber int       // one more than that of the pull before
	asked      string    // the pin that it was made with
	alone      bool      // this worker has made no other for the slot before
	left       int       // messages that it may still bring
	at         time.Time // when it is made again, whatever comes
	renew      bool      // the server may have forgotten it
	fails      int       // pulls that were refused in a row
	pin        string    // that the server gives this worker; "" while it has none

	// How the consumer does while nothing comes.
	quietAt time.Time // when the silence is looked at
	quiet   bool      // nothing came since the last look
	stale   bool      // and there was something to come
	looks   int       // at which there was nothing to come
	stored  uint64    // the first message in the stream at the last of these; 0: none, or not known
}

// fetch pulls again.
func (p *slotPull) fetch() {
	p.pullNumber++
	p.renew = false
	p.left, p.asked = p.batch, p.pin
	p.alone = !p.pulled[p.place]
	p.pulled[p.place] = true
	// If neither message nor status comes, the pull is lost.
	p.at = p.now.Add(pullExpiry + 2*time.Second)
	p.do(fetchEffect{p.place, p.number, p.pullNumber, p.pin, p.batch})
}

// unsent: a pull could not be sent. It is made again, unless a later one was.
func (p *slotPull) unsent(pullNumber int) {
	if pullNumber == p.pullNumber {
		p.at = p.now.Add(pullRetry)
	}
}

// next takes the next message or status out of the box.
func (p *slotPull) next() *mail {
	m := p.box[0]
	p.box[0] = nil
	if len(p.box) > 1 {
		p.box = p.box[1:]
	} else {
		p.box = p.box[:0] // the next one that comes has its place, so that nothing is allocated
	}
	return m
}

// dropMessages lets go of what came before a reset of the consumer is asked for.
func (p *slotPull) dropMessages() {
	p.box = slices.DeleteFunc(p.box, func(m *mail) bool { return m.status == "" })
}

// forget follows the reset, and lets go of what came before it, and of the pin that was taken
// off. A pull that waited without a pin may have got the first messages since, which are numbered
// from 1.
//
// It may also have got a new pin before the reset, with a message that is let go of here, and may
// have ended with that. So the next pull is made with the new pin, since the server skips all
// others.
func (p *slotPull) forget() {
	first, taken := len(p.box), p.pin
	p.pin = ""
	for i, m := range p.box {
		if m.status == "" && m.number == 1 {
			first = i
		}
		if m.pin != "" && m.pin != taken {
			p.pin = m.pin
		}
	}
	p.box = p.box[first:]
}

// sendBack returns what came and was not begun: the server delivers it again.
func (p *slotPull) sendBack() {
	p.box = slices.DeleteFunc(p.box, func(m *mail) bool {
		if m.status != "" {
			return false
		}
		p.do(settleEffect{p.place, m, settleNak})
		return true
	})
}

// got takes in that a message came.
func (p *slotPull) got(m *mail) {
	news := m.pin != "" && m.pin != p.pin
	if news {
		p.pin = m.pin
	}
	p.fails = 0
	p.quiet, p.stale = false, false
	p.left--

	// The server gives the pin to one pull, and others that were made without it bring nothing.
	// An earlier pull may have got it, also one of an earlier run, and nobody is told when that
	// has brought all. So a pull is made with the pin.
	unpinned := news && p.asked != p.pin && !p.alone
	if p.left == 0 || unpinned {
		p.fetch()
	} else {
		p.at = p.now.Add(pullExpiry + 2*time.Second)
	}
}

// status handles the end of a pull. Ends of earlier pulls are ignored, unless one may
// have been what the pin was for: then the one that waits gets nothing, since it was
// asked for without that.
func (p *slotPull) status(m *mail) {
	if m.pullNumber != p.pullNumber {
		if (m.status == "408" || m.status == "404") && p.pin != "" && p.asked != p.pin {
			p.fetch()
		}
		return
	}
	switch m.status {
	case "408", "404": // expired
		p.fetch()
	case "423": // the pin is not ours any more
		p.pin = ""
		p.fetch()
	default: // 409: leadership change, consumer deleted …; 503: nobody there
		p.pin = ""
		p.fails++
		if m.status == "409" || m.status == "503" {
			// The consumer may have gone with its stream, and another worker, or a
			// publisher, may have created both again before this one asks for them.
			p.do(lookEffect{})
		}
		again := func(answer) { p.at = p.now.Add(pullRetry * time.Duration(min(p.fails, 10))) }
		again(answer{})
		// A worker that can't rely on its lease may hold what is replaced by now.
		if p.fails%5 == 0 && p.valid() {
			p.do(warnEffect{"Pulls are refused; creating the consumer again if it is gone.", []any{"slot", p.slot, "status", m.status, "description", m.description}})
			p.ask(askCreate{}, again)
		}
	}
}

// lookAtSilence fixes a stale pin. An unpinned pull of an earlier owner may get a
// message, and with it the pin, and its process may die before it gives both back; then
// nothing is delivered until the pin has expired. When there are messages and none has
// come between two looks, the pin is taken off and what is in flight delivered again.
//
// A slot is also silent when its stream was deleted and made again and its pull was lost
// with the former one. So the first look has the streams looked at: if that is what
// happened, the slot pulls again, and its consumer is not touched.
func (p *slotPull) lookAtSilence() {
	silent := p.quiet
	p.quiet = true
	if !silent || !p.valid() {
		return
	}
	p.ask(askWaiting{silent: true}, func(a answer) {
		if len(p.box) > 0 { // a message came while the question was open
			p.stale = false
			return
		}
		if p.several() && a.err == nil && !a.empty && a.sequence != p.order.came {
			p.order.lost = true
			return
		}
		if a.err != nil || !a.yes {
			p.stale = false
			switch {
			case a.err != nil:
			case a.empty:
				p.stored = 0
			default:
				p.lookForLeftover()
			}
			return
		}
		p.stored = 0
		if !p.stale {
			p.stale = true
			p.do(lookEffect{})
			return
		}
		p.stale = false
		if !p.valid() {
			return // meanwhile; another worker may hold the slot
		}
		p.ask(askTake{}, func(a answer) { p.fixed(a.err, "") })
	})
}

// fixed follows a repair of the slot's consumer.
func (p *slotPull) fixed(err error, reason string) {
	if err != nil {
		return
	}
	p.note(event.Event{Kind: event.StalePinFreed, Slot: p.slot, Reason: reason})
	if p.several() {
		p.order.reset(p.now)
		p.forget()
	} else {
		p.pin = ""
	}
	p.fetch()
}

// leftoverLooks is after how many looks at a silent slot the stream is looked at,
// too.
const leftoverLooks = 6

// lookForLeftover is called when the consumer has nothing to deliver.
//
// The server removes a message from the stream when its slot's consumer has the
// acknowledgement. With replicas and under far too much load it has been seen not
// to (nats-server 2.15.2, three replicas, after resets that other entries of the
// consumer's log came in between): the consumer had nothing more to deliver, and
// what it had delivered stayed in the stream for good. Nothing is lost by that,
// but such a message looks like one that waits, it takes up space, and a consumer
// that is created again later delivers it again, long after the messages behind it.
//
// So the owner of a slot that is silent looks now and then whether its consumer
// says that nothing waits while the first message that is stored stays the same.
// Then it creates the consumer again, which delivers what is left: what this worker
// has settled is acknowledged again without its handler, and the rest handled,
// maybe once more.
func (p *slotPull) lookForLeftover() {
	if p.looks++; p.looks%leftoverLooks != 0 {
		return
	}
	p.ask(askFirst{}, func(a answer) {
		if a.err != nil {
			return
		}
		stays := a.sequence != 0 && a.sequence == p.stored
		p.stored = a.sequence
		if !stays || !p.valid() {
			return
		}
		p.stored = 0
		p.do(warnEffect{"Messages stay in the stream that their consumer knows nothing of; creating it again.", []any{"slot", p.slot, "sequence", a.sequence}})
		p.ask(askRenew{}, func(a answer) {
			if a.err != nil {
				p.do(warnEffect{"The consumer could not be created again.", []any{"slot", p.slot, "err", a.err}})
			}
			p.fixed(a.err, "messages left behind")
		})
	})
}

// pullOf returns the number of the pull with a reply subject that ends in text, -1 if text is
// no number.
func pullOf(text string) int {
	n, err := strconv.Atoi(text)
	if err != nil {
		return -1
	}
	return n
}
