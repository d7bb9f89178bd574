package partition

import (
	"time"

	"github.com/muster-dev/muster/partition/event"
)

// silence is what a slot knows of its consumer while nothing comes.
type silence struct {
	at     time.Time // when it is looked at
	quiet  bool      // nothing came since the last look
	stale  bool      // and there was something to come
	looks  int       // at which there was nothing to come
	stored uint64    // the first message in the stream at the last of these; 0: none, or not known
}

// broken: a message has come.
func (s *silence) broken() { s.quiet, s.stale = false, false }

// lookSoon follows a reconnect. A message that was lost with the connection may have given the
// pin to a pull that is no more, and nothing comes until two looks have shown that.
func (s *silence) lookSoon(at time.Time) {
	s.quiet, s.stale = true, false
	s.at = at
}

// lookAtSilence fixes a stale pin. An unpinned pull of an earlier owner may get a
// message, and with it the pin, and its process may die before it gives both back; then
// nothing is delivered until the pin has expired. When there are messages and none has
// come between two looks, the pin is taken off and what is in flight delivered again. The
// looks of a slot that messages come to begin when none has come for a while; those of one
// that has no pin begin at once.
//
// A slot is also silent when its stream was deleted and made again and its pull was lost
// with the former one. So the first look has the streams looked at: if that is what
// happened, the slot pulls again, and its consumer is not touched.
func (p *slotPull) lookAtSilence() {
	silent := p.silence.quiet || p.pin == ""
	p.silence.quiet = true
	if !silent || !p.valid() {
		return
	}
	p.ask(askWaiting{silent: true}, func(a answer) {
		if len(p.box) > 0 { // a message came while the question was open
			p.silence.stale = false
			return
		}
		if p.several() && a.err == nil && !a.empty && a.sequence != p.order.came {
			p.order.lost = true
			return
		}
		if a.err != nil || !a.yes {
			p.silence.stale = false
			switch {
			case a.err != nil:
			case a.empty:
				p.silence.stored = 0
			default:
				p.lookForLeftover()
			}
			return
		}
		p.silence.stored = 0
		if !p.silence.stale {
			p.silence.stale = true
			p.silence.at = p.now.Add(p.cfg.secondLook())
			p.do(lookEffect{})
			return
		}
		p.silence.stale = false
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
	if p.silence.looks++; p.silence.looks%leftoverLooks != 0 {
		return
	}
	p.ask(askFirst{}, func(a answer) {
		if a.err != nil {
			return
		}
		stays := a.sequence != 0 && a.sequence == p.silence.stored
		p.silence.stored = a.sequence
		if !stays || !p.valid() {
			return
		}
		p.silence.stored = 0
		p.do(warnEffect{"Messages stay in the stream that their consumer knows nothing of; creating it again.", []any{"slot", p.slot, "sequence", a.sequence}})
		p.ask(askRenew{}, func(a answer) {
			if a.err != nil {
				p.do(warnEffect{"The consumer could not be created again.", []any{"slot", p.slot, "err", a.err}})
			}
			p.fixed(a.err, "messages left behind")
		})
	})
}
