package gem

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/muster-dev/muster/defender"
	"github.com/muster-dev/muster/defender/hsms"
	"github.com/muster-dev/muster/defender/secs"
)

const (
	watchInterval = 2 * time.Second  // between looks for silent traces
	maxPatience   = 10 * time.Minute // with a trace that stays silent, before everything is defined again
)

// session is what the host knows of one tool, over all its connections. Two goroutines use
// it while there is a connection: one takes the equipment's messages, and alone touches the
// cutters; the other asks the equipment for things and waits for its replies.
type session struct {
	host     *Host
	tool     Tool
	kind     *Type
	fail     func(error) // ends the host
	courier  *courier
	chambers []*chamberState
	events   map[uint32]*chamberState // by start and end events
	traces   map[uint32]*chamberState
	notices  notices

	conn atomic.Pointer[hsms.Conn] // over which the equipment is told of alarms; nil if there is none

	spools  bool          // the equipment is asked for spooled messages
	barren  bool          // no spooled messages came when they were asked for, which has been reported
	defined bool          // the equipment was told what to send
	reason  string        // why there is no connection, as it was reported last
	again   chan struct{} // the equipment has established communications again, and may have spooled

	received atomic.Int64 // messages of the equipment that may have been spooled
	taking   atomic.Bool  // one is being taken at this moment
}

// chamberState is one chamber of a tool.
type chamberState struct {
	collection
	cutter cutter
	heard  atomic.Int64 // when there was a message of the trace, in nanoseconds since 1970
	vain   atomic.Int32 // how often everything was defined again since then
}

func (s *session) add(name string, plan Chamber) {
	c := &chamberState{collection: newCollection(s.kind, plan)}
	c.cutter = cutter{chamber: defender.Chamber{Tool: s.tool.Name, Name: name}, plan: plan}
	s.chambers = append(s.chambers, c)
	s.events[plan.Start], s.events[plan.End] = c, c
	s.traces[c.trace] = c
}

func (s *session) report(what, format string, args ...any) {
	s.host.config.Report(Report{What: what, Tool: s.tool.Name, Text: fmt.Sprintf(format, args...)})
}

// down reports why there is no connection, unless it was reported already.
func (s *session) down(err error) {
	if text := err.Error(); text != s.reason {
		s.reason = text
		s.report(Disconnected, "%s", text)
	}
}

// linkFailed notes that there is no connection. Equipment that spools sends later what it could
// not send now; of other equipment, events may be lost. No goroutine touches the cutters by now.
func (s *session) linkFailed() {
	if s.spools && !s.barren {
		return
	}
	for _, c := range s.chambers {
		c.cutter.linkFailed()
	}
}

// serve collects over one connection until that or ctx ends. It returns why.
func (s *session) serve(ctx context.Context, conn *hsms.Conn) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	taken := make(chan struct{})
	go func() {
		defer close(taken)
		// Also what arrived before the connection ended: the equipment may not send it again.
		for p := range conn.Primaries() {
			if err := s.take(conn, p); err != nil {
				s.fail(err)
				break
			}
		}
		// The other goroutine may wait for something else than a reply.
		cancel(conn.Err())
	}()

	err := s.converse(ctx, conn)
	s.conn.Store(nil)
	if cause := context.Cause(ctx); cause != nil {
		err = cause
	}
	conn.Close()
	<-taken
	return err
}

// converse has the equipment send what the plan says, and watches that it does.
func (s *session) converse(ctx context.Context, conn *hsms.Conn) error {
	model, err := establish(ctx, conn)
	if err != nil {
		return err
	}
	s.listen()
	for connected := false; ; {
		// Before anything is defined: a definition may empty the spool, and the reports in it
		// are those of before.
		if err := s.unload(ctx, conn); err != nil {
			return err
		}
		if err := s.define(ctx, conn); err != nil {
			return err
		}
		if !connected {
			connected, s.reason = true, ""
			s.conn.Store(conn)
			s.report(Connected, "%s", model)
		}
		if err := s.watch(ctx); err != nil {
			return err
		}
	}
}

// listen has all traces be heard now.
func (s *session) listen() {
	now := time.Now().UnixNano()
	for _, c := range s.chambers {
		c.heard.Store(now)
	}
}

// watch waits until the equipment has to be asked or told something.
func (s *session) watch(ctx context.Context) error {
	tick := time.NewTicker(watchInterval)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-s.again:
			return nil
		case <-tick.C:
		}
		if silent := s.silent(); silent != nil {
			s.redefine(silent)
			return nil
		}
	}
}

// redefine has everything be defined again for a chamber that is silent. It is reported once
// until the chamber is heard again.
func (s *session) redefine(silent *chamberState) {
	patience := silent.patience()
	if silent.vain.Add(1) == 1 {
		s.notice("chamber %s has sent no sample for %v: everything is defined again, and again later if it stays silent: "+
			"compare its sensors and period with what the equipment can trace", silent.cutter.chamber.Name, patience)
	}
	s.defined = false
}

// patience is how long a trace may be silent. It doubles with each time that everything was
// defined again in vain: that restarts the traces of the tool's other chambers, too.
func (c *chamberState) patience() time.Duration {
	first := max(5*time.Duration(c.plan.Group)*time.Duration(c.plan.Period), 10*time.Second)
	patience := first
	for range c.vain.Load() {
		if patience >= maxPatience {
			break
		}
		patience = min(2*patience, max(maxPatience, first))
	}
	return patience
}

// silent returns a chamber whose trace isn't heard any more. Equipment that was started again
// has forgotten its traces, and perhaps more.
func (s *session) silent() *chamberState {
	for _, c := range s.chambers {
		if time.Since(time.Unix(0, c.heard.Load())) > c.patience() {
			return c
		}
	}
	return nil
}

// establish establishes communications, and returns the equipment's model and software.
func establish(ctx context.Context, conn *hsms.Conn) (string, error) {
	const attempt = "establishing communications"
	reply, err := conn.Request(ctx, secs.New(1, 13, secs.L()))
	if err != nil {
		return "", fmt.Errorf("%s: %w", attempt, err)
	}
	fields, err := fieldsOf(reply.Body(), 2)
	if err != nil {
		return "", fmt.Errorf("%s: S1F14: %w", attempt, err)
	}
	if code, ok := fields[0].Code(); !ok || code != 0 {
		return "", fmt.Errorf("%s: the equipment refuses with COMMACK %v: enable communication there", attempt, fields[0])
	}
	if err := online(ctx, conn); err != nil {
		return "", fmt.Errorf("%s: %w", attempt, err)
	}

	text := ""
	for i, item := range fields[1].Items {
		part, _ := item.Text()
		if i > 0 {
			text += " "
		}
		text += part
	}
	return text, nil
}

// online has equipment that is offline, where it aborts all but S1F13 and S1F17, go online.
func online(ctx context.Context, conn *hsms.Conn) error {
	_, err := conn.Request(ctx, secs.Message{Stream: 1, Function: 1})
	if !errors.Is(err, hsms.ErrAborted) {
		return err
	}
	reply, err := conn.Request(ctx, secs.Message{Stream: 1, Function: 17})
	if err != nil {
		return fmt.Errorf("the equipment is offline: %w: put it online there", err)
	}
	// 2: it is online by now.
	if code, ok := reply.Body().Code(); !ok || code != 0 && code != 2 {
		return fmt.Errorf("the equipment is offline and answers with ONLACK %v: put it online there", reply.Body())
	}
	return nil
}
