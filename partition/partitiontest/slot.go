package partitiontest

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/muster-dev/muster/partition"
)

// message is a message that is not done.
type message struct {
	partition.Outgoing
	subject   string
	sequence  uint64
	published time.Time
	attempts  int // that have begun and count
	delivered uint64
	suspect   bool      // a former owner may have failed with it
	queued    bool      // for retry
	due       time.Time // not before
}

// slot is one slot, with the messages that are stored for it.
type slot struct {
	g      *Group
	number int
	want   *worker // by the plan
	since  uint64  // the version of the plan since which it is wanted there
	next   *worker // that it is moving to
	owner  *worker
	fence  partition.Fence
	open   bool // messages and calls may begin
	moving bool // a goroutine changes the owner

	queue  []*message       // in the order of the stream
	work   map[string]*work // that is running, by key
	head   time.Time        // no message begins before
	pauses int              // errors in a row that say nothing of the message
}

// work is a call of the owner's handler.
type work struct {
	m      *message // nil: a call
	owner  *worker
	cancel context.CancelFunc
	lost   bool  // the slot went elsewhere meanwhile, so the result doesn't count
	held   bool  // it has ended while the worker was paused
	err    error // its result then
}

// recorded reports whether the attempt that is running was recorded before it began, so that it counts
// if its worker fails. The first attempt of a message isn't, unless an owner may have failed with it.
func (m *message) recorded() bool { return m.suspect || m.attempts > 1 }

// dispatch begins what may begin.
func (s *slot) dispatch() {
	now := time.Now()
	waiting := make(map[string]bool) // keys whose first message is not due: later ones wait behind it
	for _, m := range slices.Clone(s.queue) {
		if !s.open || s.owner.silent() || s.g.stopped || len(s.work) >= s.g.opts.InFlight {
			return
		}
		switch {
		case now.Before(s.head):
			return
		case s.work[m.Key] != nil || waiting[m.Key]:
		case now.Before(m.due):
			waiting[m.Key] = true
		case m.attempts >= s.g.opts.Attempts: // its workers have failed
			s.remove(m)
			s.g.addDeadLetter(m, s.owner, errUnfinished)
		default:
			s.begin(m)
		}
	}
}

// dispatchAt dispatches later.
func (s *slot) dispatchAt(at time.Time) {
	time.AfterFunc(time.Until(at), func() {
		s.g.mu.Lock()
		defer s.g.mu.Unlock()
		s.dispatch()
	})
}

func (s *slot) begin(m *message) {
	m.attempts++
	m.delivered++
	w := &work{m: m, owner: s.owner}
	ctx := s.start(s.owner.ctx, w, m.Key)
	given := partition.Message{
		Subject: m.subject, Key: m.Key, Slot: s.number, Data: m.Data, Header: headerOf(m),
		Sequence: m.sequence, Published: m.published, Delivered: m.delivered, Attempt: m.attempts, Fence: s.fence, Queued: m.queued,
	}
	go func() {
		err := guarded("Handle", func() error { return w.owner.handler.Handle(ctx, given) })
		s.g.mu.Lock()
		defer s.g.mu.Unlock()
		w.cancel()
		s.ended(w, err)
	}()
}

func headerOf(m *message) nats.Header {
	if m.Header == nil {
		return nats.Header{}
	}
	return m.Header
}

// start adds work for a key and returns its context, which ends with its parent.
func (s *slot) start(parent context.Context, w *work, key string) context.Context {
	s.work[key] = w
	var ctx context.Context
	if d := s.g.opts.HandlerTimeout; d > 0 {
		ctx, w.cancel = context.WithTimeout(parent, d)
	} else {
		ctx, w.cancel = context.WithCancel(parent)
	}
	return ctx
}

// ended takes in what a handler has returned for a message.
func (s *slot) ended(w *work, err error) {
	defer s.g.changed.Broadcast()
	switch {
	case w.lost:
		return
	case w.owner.silent(): // nobody hears of it before the pause ends
		w.held, w.err = true, err
		return
	}
	delete(s.work, w.m.Key)
	s.settle(w.m, w.owner, err)
	s.dispatch()
}

// settleHeld takes in what handlers have returned during a pause that the group hasn't noticed.
func (s *slot) settleHeld() {
	for key, w := range s.work {
		if w.held && !w.owner.silent() {
			delete(s.work, key)
			s.settle(w.m, w.owner, w.err)
		}
	}
}

// settle decides what becomes of a message after an attempt.
func (s *slot) settle(m *message, by *worker, err error) {
	now := time.Now()
	switch {
	case err == nil, isDiscarded(err):
		s.pauses = 0
		s.remove(m)
	case isUncounted(err):
		m.attempts--
		s.pauses++
		s.head = now.Add(pause(s.pauses))
		s.dispatchAt(s.head)
	case isGivenUp(err) || m.attempts >= s.g.opts.Attempts:
		s.pauses = 0
		s.remove(m)
		s.g.addDeadLetter(m, by, err)
	default:
		s.pauses = 0
		m.queued = true
		m.due = now.Add(doubled(s.g.opts.RetryDelay, m.attempts-1, longestRetry))
		s.dispatchAt(m.due)
	}
}

func (s *slot) remove(m *message) {
	s.queue = slices.DeleteFunc(s.queue, func(other *message) bool { return other == m })
}

// addDeadLetter makes a message a dead letter.
func (g *Group) addDeadLetter(m *message, by *worker, err error) {
	letter := partition.DeadLetter{
		Number: uint64(len(g.dead)) + 1, Time: time.Now(),
		Subject: m.subject, Key: m.Key, Data: m.Data, Header: headerOf(m),
		Sequence: m.sequence, Published: m.published, Attempts: m.attempts, Err: err.Error(), Worker: by.name,
	}
	if p := (*partition.PanicError)(nil); errors.As(err, &p) {
		letter.Stack = string(p.Stack)
	}
	g.dead = append(g.dead, letter)
	g.changed.Broadcast()
}

// errUnfinished is the error of a message whose last attempt has not ended.
var errUnfinished = errors.New("the last attempt did not end: its worker failed, or lost its lease, while it handled the message")

// isDiscarded reports whether an error was made with partition.Discard.
func isDiscarded(err error) bool {
	var d interface{ Discarded() bool }
	return errors.As(err, &d) && d.Discarded()
}

// isGivenUp reports whether an error was made with partition.GiveUp.
func isGivenUp(err error) bool {
	var g interface{ GivenUp() bool }
	return errors.As(err, &g) && g.GivenUp()
}

// isUncounted reports whether an attempt that ended with an error is none that failed.
func isUncounted(err error) bool {
	var u interface{ Unavailable() bool }
	return errors.Is(err, partition.ErrFenced) || errors.As(err, &u) && u.Unavailable()
}
