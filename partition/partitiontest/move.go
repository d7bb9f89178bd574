package partitiontest

import (
	"slices"
	"time"

	"github.com/muster-dev/muster/partition"
)

// moveSoon lets the slot go where the plan has it.
func (s *slot) moveSoon() {
	if s.moving || s.owner == s.want && s.open {
		return
	}
	s.moving = true
	go func() {
		s.g.mu.Lock()
		defer s.g.mu.Unlock()
		for s.owner != s.want && !s.g.stopped {
			s.move()
		}
		s.moving = false
		if s.owner != nil && !s.open { // the plan has it stay, after a handoff had begun
			s.open = true
			s.dispatch()
		}
		s.g.changed.Broadcast()
	}()
}

// move takes one step: it gives the slot to the worker that shall have it, or waits.
func (s *slot) move() {
	from, to, since := s.owner, s.want, s.since
	s.next = to
	defer func() { s.next = nil }()
	switch {
	case from == nil || from.gone:
		s.takeOver(to, since)
	case from.silent():
		s.g.changed.Wait() // until it is gone, or goes on
	default:
		s.handOff(from, to, since)
	}
}

// takeOver gives the slot of a worker that is gone, or of none, to another. What the former owner has
// in work comes again.
func (s *slot) takeOver(to *worker, since uint64) {
	s.open = false
	if s.owner != nil {
		s.lose()
		s.owner.lost = append(s.owner.lost, s.number)
		slices.Sort(s.owner.lost)
	}
	if to != nil {
		if _, moves := find[partition.StateMover](to.handler); moves {
			s.g.unlocked(func() { prepare(to.handler, s.g.theSlots(s.number)) })
		}
	}
	for _, m := range s.queue[:min(s.g.opts.InFlight, len(s.queue))] {
		m.suspect = true
	}
	s.give(to, since)
}

// handOff moves the slot between two workers that work.
func (s *slot) handOff(from, to *worker, since uint64) {
	slots := s.g.theSlots(s.number)
	if to != nil {
		if _, moves := find[partition.StateMover](to.handler); !moves {
			s.g.unlocked(func() { prepare(to.handler, slots) })
		}
	}

	s.open = false
	limit := time.Now().Add(handoffTimeout)
	timer := s.g.wakeAt(limit)
	defer timer.Stop()
	for len(s.work) > 0 && !from.silent() && !s.g.stopped && time.Now().Before(limit) {
		s.g.changed.Wait()
	}
	switch {
	case from.silent() || s.g.stopped:
		return // it has failed meanwhile, so its slots are taken over
	case s.want != to:
		return // the plan has changed meanwhile
	case len(s.work) > 0:
		s.lose()
	}
	s.g.unlocked(func() { moveState(from.handler, handlerOf(to), slots) })
	s.give(to, since)
}

// give makes a worker the owner, since a version of the plan. A later one may have the slot go
// elsewhere by now: the next owner's fence is of that.
func (s *slot) give(to *worker, since uint64) {
	s.owner = to
	s.head, s.pauses = time.Time{}, 0
	for _, m := range s.queue {
		m.delivered = 0
	}
	if to == nil {
		return
	}
	s.fence = partition.Fence{Version: since, Claim: to.claim}
	s.open = true
	s.dispatch()
	s.g.changed.Broadcast()
}

// lose lets what is in work count no more. A handler of a paused worker learns of it when the pause
// ends. An attempt that was interrupted doesn't count, nor does one of a failed worker that it had not
// recorded.
func (s *slot) lose() {
	for key, w := range s.work {
		w.lost = true
		if !w.owner.paused {
			w.cancel()
		}
		counts := w.owner.silent() && w.m != nil && w.m.recorded()
		if w.m != nil && !counts {
			w.m.attempts--
		}
		delete(s.work, key)
	}
}
