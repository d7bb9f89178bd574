package partition

import (
	"slices"
	"strconv"
	"time"
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

	silence silence
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

// connected has the run pull again, after this worker may have been disconnected: the server
// forgets the pulls of a client without a word.
func (p *slotPull) connected() {
	p.renew = true
	p.silence.lookSoon(p.now.Add(p.cfg.secondLook() + p.cfg.spreadOverSlots(p.slot, p.cfg.silenceCheck()/2)))
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
	p.silence.broken()
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

// pullOf returns the number of the pull with a reply subject that ends in text, -1 if text is
// no number.
func pullOf(text string) int {
	n, err := strconv.Atoi(text)
	if err != nil {
		return -1
	}
	return n
}
