package gem

import (
	"fmt"
	"slices"
	"time"

	"github.com/muster-dev/muster/defender/hsms"
	"github.com/muster-dev/muster/defender/secs"
)

// take handles a message of the equipment and answers it. An error is fatal: what was taken
// can't be noted.
func (s *session) take(conn *hsms.Conn, p hsms.Primary) error {
	answer, err := s.answer(p.Message)
	switch {
	case err != nil:
		return err
	case p.Stream == 9:
		return nil
	case answer == nil:
		_ = conn.Abort(p) // a connection that fails ends by itself
		return nil
	}
	// What the answer says is durable in the ledger. An answer that is lost has the message
	// come again.
	_ = conn.Reply(p, *answer)
	return nil
}

// answer handles a message and returns the answer; nil if there is none.
func (s *session) answer(m secs.Message) (*secs.Item, error) {
	s.taking.Store(true)
	defer s.taking.Store(false)
	if m.Stream != 1 && m.Stream != 9 {
		s.received.Add(1)
	}
	accepted, err := secs.B(0), error(nil)
	switch {
	case m.Is(1, 1):
		accepted = secs.L()
	case m.Is(1, 13):
		accepted = secs.L(secs.B(0), secs.L())
		select {
		case s.again <- struct{}{}:
		default:
		}
	case m.Is(5, 1):
		s.takeAlarm(m)
	case m.Is(6, 1):
		err = s.takeTrace(m)
	case m.Is(6, 11):
		err = s.takeEvent(m)
	case m.Is(6, 5), m.Is(10, 1): // a wish to send much; a message of an operator
	case m.Stream == 9:
		s.notice("the equipment reports an error: %v", m)
		return nil, nil
	default:
		s.host.config.Logger.Debug("message of no interest", "tool", s.tool.Name, "message", m.Name())
		return nil, nil
	}
	return &accepted, err
}

// takeAlarm reports an alarm of the equipment.
func (s *session) takeAlarm(m secs.Message) {
	fields, err := fieldsOf(m.Body(), 3)
	if err != nil {
		s.notice("alarm not read: %v", err)
		return
	}
	code, _ := fields[0].Int(0)
	id, _ := fields[1].Text()
	text, _ := fields[2].Text()
	state := "cleared"
	if code&0x80 != 0 {
		state = "set"
	}
	s.report(Alarm, "%s %s (category %d): %s", id, state, code&0x7f, text)
}

// takeTrace gives samples to the cutter of their chamber.
func (s *session) takeTrace(m secs.Message) error {
	fields, err := fieldsOf(m.Body(), 4)
	if err != nil {
		s.notice("samples not read: %v", err)
		for _, c := range s.chambers { // of which it is one
			c.cutter.lost("samples could not be read: " + err.Error()) // which is reported above
			if err := s.settle(c); err != nil {
				return err
			}
		}
		return nil
	}
	c := s.traces[idOf(fields[0])]
	if c == nil {
		s.strange("trace", fields[0])
		return nil
	}
	c.heard.Store(time.Now().UnixNano())
	c.vain.Store(0)
	samples, err := c.readTrace(fields[1], fields[2], fields[3])
	if err != nil {
		lost := "samples could not be read: " + err.Error()
		if !c.cutter.lost(lost) {
			s.notice("chamber %s: %s", c.cutter.chamber.Name, lost)
		}
	} else {
		c.cutter.message(samples)
	}
	return s.settle(c)
}

// takeEvent gives the start or the end of a run to the cutter of its chamber.
func (s *session) takeEvent(m secs.Message) error {
	fields, err := fieldsOf(m.Body(), 3)
	if err != nil {
		s.report(Notice, "event not read: %v", err) // each may be that of a run
		return nil
	}
	id := idOf(fields[1])
	c := s.events[id]
	if c == nil {
		return nil // one of those that equipment enables by default
	}
	at := slices.IndexFunc(fields[2].Items, func(r secs.Item) bool {
		parts, err := fieldsOf(r, 2)
		return err == nil && idOf(parts[0]) == c.report
	})
	if at < 0 {
		s.strange("event", fields[1])
		s.loseEvent(c, fmt.Sprintf("event %d came without its report", id))
		return s.settle(c)
	}
	e, err := c.readEvent(id == c.plan.Start, fields[2].Items[at].Items[1])
	if err == nil {
		err = c.cutter.event(e)
	}
	if err != nil {
		s.loseEvent(c, fmt.Sprintf("event %d could not be read: %v", id, err))
	}
	return s.settle(c)
}

// loseEvent notes an event that says nothing. Unlike samples, each is reported: it may be the
// only sign of a run.
func (s *session) loseEvent(c *chamberState, reason string) {
	if !c.cutter.lost(reason) {
		s.report(Notice, "chamber %s: %s", c.cutter.chamber.Name, reason)
	}
}

// strange reports what was not asked for, once.
func (s *session) strange(what string, id secs.Item) {
	s.noticeOnce("%s %v is not of this plan: data of another plan or host is not taken", what, id)
}

// settle notes what a cutter has found out. Runs that started are in the ledger when it
// returns; finished ones are on their way.
func (s *session) settle(c *chamberState) error {
	started, outcomes, notices := c.cutter.take()
	for _, ref := range started {
		if err := s.host.config.Ledger.write(entry{State: stateOpen, Ref: ref}); err != nil {
			return err
		}
	}
	for _, text := range notices { // of holes, in each of which a run may be
		s.report(Notice, "chamber %s: %s", c.cutter.chamber.Name, text)
	}
	for _, o := range outcomes {
		s.courier.queue <- o
	}
	return nil
}
