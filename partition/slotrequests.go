package partition

import (
	"errors"
	"slices"

	"github.com/muster-dev/muster/partition/internal/record"
)

// slotRequests has the requests of a slot that its owner may serve, in the order in which they
// came. A handler works on one message or request of a key at a time, so a request waits for the
// handler of its key, and a message for the request. Where a key has both they take turns. Requests
// of different keys are served side by side, also with one message in flight: they are not
// delivered by the slot's consumer, so nothing depends on their order.
type slotRequests struct {
	*lanes

	queue []*request
	// owed are keys of which a request was begun last, so that a message of the key is next if
	// one is ready.
	owed map[string]bool
	// messageNext: a request was begun last, so a message gets the next permit if one is ready.
	messageNext bool
}

// service is a request that the handler works on.
type service struct {
	request     *request
	call        uint64 // its number among the run's calls
	interrupted bool
}

// errLateAnswer is why an answer is withheld: another worker may have served the key by now.
var errLateAnswer = errors.New("the worker lost the key, or its lease, while it served the call")

func newSlotRequests(l *lanes) *slotRequests {
	return &slotRequests{lanes: l, owed: make(map[string]bool)}
}

func (s *slotRequests) add(m *request) {
	m.stage = requestQueued
	s.queue = append(s.queue, m)
}

// unavailable reports whether a request of a key has to wait.
func (s *slotRequests) unavailable(key string) bool {
	return s.busy(key) || s.owed[key] && s.waits(key)
}

// next begins the first request whose key is free. It returns false if there is none, or if it
// waits for a permit.
func (s *slotRequests) next(retried *retriedKey) bool {
	if len(s.queue) == 0 || s.question != 0 {
		return false
	}
	s.queue = slices.DeleteFunc(s.queue, (*request).answered)
	at := slices.IndexFunc(s.queue, func(m *request) bool { return !s.unavailable(m.key) && !retried.is(m.key) })
	if at < 0 || s.refuseStale(s.queue[at]) {
		return at >= 0
	}
	if !s.admitted() {
		return false
	}

	m := s.queue[at]
	s.queue = slices.Delete(s.queue, at, at+1)
	s.begin(m)
	return true
}

// refuseStale refuses a request that must not begin: the lease has ended, or its caller waits no
// longer.
func (s *slotRequests) refuseStale(m *request) bool {
	switch {
	case !s.valid():
		s.inbox.refuse(m, record.CallNoLease)
	case !s.now.Before(m.expires):
		s.inbox.refuse(m, record.CallNotYet)
	default:
		return false
	}
	return true
}

// begin has the handler work on a request, with the run's permit.
func (s *slotRequests) begin(m *request) {
	s.handlers.begun(&s.permit)
	s.called++
	s.serving[m.key] = &service{request: m, call: s.called}
	s.owed[m.key], s.messageNext = true, true
	m.stage = requestServing
	s.do(serveEffect{place: s.place, run: s.number, call: s.called, request: m, fence: s.fence})
}

// messageBegins notes that a message of a key is begun.
func (s *slotRequests) messageBegins(key string) {
	delete(s.owed, key)
	s.messageNext = false
}

// served follows the return of the handler that worked on a request. owns: the worker owns the
// slot, and its lease is valid. An answer of another worker's key is withheld.
func (s *slotRequests) served(in servedInput, owns bool) {
	for key, of := range s.serving {
		if of.call != in.call {
			continue
		}
		delete(s.serving, key)
		s.handlers.returned()
		if !s.queued(key) {
			delete(s.owed, key)
		}

		reply := replyEffect{request: of.request, outcome: record.CallServed, data: in.data}
		switch {
		case !owns:
			reply = replyEffect{request: of.request, outcome: record.CallFailed, err: errLateAnswer}
		case in.err != nil:
			reply = replyEffect{request: of.request, outcome: record.CallFailed, err: in.err}
		}
		s.inbox.answer(of.request, reply)
		return
	}
}

// queued reports whether a request of a key waits for its turn.
func (s *slotRequests) queued(key string) bool {
	return slices.ContainsFunc(s.queue, func(m *request) bool { return m.key == key })
}

// refuseQueued refuses what no handler works on.
func (s *slotRequests) refuseQueued(why record.CallOutcome) {
	for _, m := range s.queue {
		if !m.answered() {
			s.inbox.refuse(m, why)
		}
	}
	s.queue = nil
}
