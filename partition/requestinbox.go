package partition

import (
	"maps"
	"slices"
	"time"

	"github.com/muster-dev/muster/partition/internal/record"
)

// Bounds of the requests that a worker has in memory, those being served included. More are
// refused.
const (
	mostRequests     = 4096
	mostRequestBytes = 64 << 20
)

// request is a call of a key that a caller has sent to this worker.
type request struct {
	place
	number  uint64 // in the worker
	key     string
	known   Fence // of the slot's owner by the caller's map; zero: it knows none
	data    []byte
	waits   time.Time // until when it may wait for the slot
	expires time.Time // when its caller stops waiting for the answer
	from    any       // what is answered

	stage requestStage
}

type requestStage uint8

const (
	requestForSlot  requestStage = iota // waits until this worker holds its slot
	requestQueued                       // waits for its turn in the run of its slot
	requestServing                      // the handler works on it
	requestAnswered                     // served or refused
)

// requestInbox has the requests that are neither served nor refused yet. It decides whether a
// request goes to the run of its slot, waits for the slot, or is refused; the run has it served.
//
// What waits for a slot is decided on again whenever the slot's standing changes: settle and leave
// are called then.
type requestInbox struct {
	*deliveryCore

	last    uint64
	open    map[uint64]*request
	bytes   int
	waiting map[place][]*request
	ended   map[place]Fence // with which slots were held last that are not held now
	queued  []*request      // in this step, by a run
	closed  bool            // the worker ends
}

func newRequestInbox(d *deliveryCore) *requestInbox {
	return &requestInbox{deliveryCore: d, open: make(map[uint64]*request), waiting: make(map[place][]*request), ended: make(map[place]Fence)}
}

// arrive takes in a request. r is the run that holds its slot, nil if there is none.
func (b *requestInbox) arrive(m *request, r *slotRun) {
	b.last++
	m.number = b.last
	full := len(b.open) >= mostRequests || b.bytes+len(m.data) > mostRequestBytes
	b.open[m.number] = m
	b.bytes += len(m.data)
	if full {
		b.refuse(m, record.CallBusy)
		return
	}
	b.decide(m, r)
}

// decide decides on a request by the standing of its slot.
func (b *requestInbox) decide(m *request, r *slotRun) {
	switch b.standing(m.place, r).decide(m.known) {
	case serveRequest:
		r.requests.add(m)
		b.queued = append(b.queued, m)
	case requestWaits:
		b.wait(m)
	case requestMoved:
		b.refuse(m, record.CallMoved)
	case requestUnsure:
		b.refuse(m, record.CallNoLease)
	}
}

func (b *requestInbox) standing(at place, r *slotRun) slotStanding {
	s := slotStanding{valid: b.valid() && !b.closed, fence: b.ended[at]}
	if r == nil {
		return s
	}
	s.held, s.started, s.handsOff, s.fence = true, r.stage != runWaiting, r.releasing, r.fence
	if (r.later != Fence{}) {
		s.fence = r.later
	}
	return s
}

// wait has a request wait until its slot comes, or time is over.
func (b *requestInbox) wait(m *request) {
	m.stage = requestForSlot
	b.waiting[m.place] = append(b.waiting[m.place], m)
	b.do(expiryEffect{m.number, earlier(m.waits, m.expires)})
}

// expired refuses a request whose time is over.
func (b *requestInbox) expired(number uint64) {
	m := b.open[number]
	if m == nil || m.stage == requestServing {
		return
	}
	over := m.expires
	if m.stage == requestForSlot {
		over = earlier(m.waits, m.expires)
	}
	if b.now.Before(over) {
		b.do(expiryEffect{m.number, over})
		return
	}
	b.refuse(m, record.CallNotYet)
	b.waiting[m.place] = slices.DeleteFunc(b.waiting[m.place], (*request).answered)
	if len(b.waiting[m.place]) == 0 {
		delete(b.waiting, m.place)
	}
}

// stepped has what was queued in this step and waits for its turn refused when its caller waits
// no longer.
func (b *requestInbox) stepped() {
	for _, m := range b.queued {
		if m.stage == requestQueued {
			b.do(expiryEffect{m.number, m.expires})
		}
	}
	b.queued = b.queued[:0]
}

// settle decides again on what waits for a slot that is held now, or has a later fence.
func (b *requestInbox) settle(r *slotRun) {
	delete(b.ended, r.place)
	waiting := b.waiting[r.place]
	delete(b.waiting, r.place)
	for _, m := range waiting {
		if !m.answered() {
			b.decide(m, r)
		}
	}
}

// leave refuses what is queued for a slot that is not held any more.
func (b *requestInbox) leave(r *slotRun) {
	b.ended[r.place] = r.fence
	r.requests.refuseQueued(record.CallMoved)
}

// refuseAll refuses everything that no handler works on: the lease is not valid.
func (b *requestInbox) refuseAll() {
	for _, number := range slices.Sorted(maps.Keys(b.open)) {
		if m := b.open[number]; m.stage != requestServing {
			b.refuse(m, record.CallNoLease)
		}
	}
	clear(b.waiting)
}

// close refuses everything, and whatever comes later.
func (b *requestInbox) close() {
	b.closed = true
	b.refuseAll()
}

func (b *requestInbox) refuse(m *request, why record.CallOutcome) {
	b.answer(m, replyEffect{request: m, outcome: why})
}

// answer has a request answered, which ends it.
func (b *requestInbox) answer(m *request, e replyEffect) {
	m.stage = requestAnswered
	delete(b.open, m.number)
	b.bytes -= len(m.data)
	b.do(e)
}

func (m *request) answered() bool { return m.stage == requestAnswered }
