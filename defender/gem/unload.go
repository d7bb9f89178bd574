package gem

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/muster-dev/muster/defender/hsms"
	"github.com/muster-dev/muster/defender/secs"
)

// unloadInterval is the time in which spooled messages come, before more are asked for.
const unloadInterval = 300 * time.Millisecond

// Each answer of the equipment to S6F23 may have the host ask again, so that equipment could
// keep it from ever defining anything.
const (
	maxIdle   = 100   // requests in a row that bring no message, after which the host goes on without: half a minute
	longSpool = 2_000 // requests after which people are told that the spool isn't empty yet: ten minutes
)

// unload asks for spooled messages until there are none, or none come.
func (s *session) unload(ctx context.Context, conn *hsms.Conn) error {
	asking := unloading{received: s.received.Load()}
	for s.spools {
		more, err := s.askSpool(ctx, conn)
		if err != nil {
			return err
		}
		if !more {
			s.barren = false
			return nil
		}
		s.listen() // a trace may have to wait for its turn
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(s.host.unloadInterval):
		}

		switch asking.answered(s.received.Load(), s.taking.Load()) {
		case spoolLong:
			s.notice("the equipment has sent spooled messages for %d requests and says that there are more: they are taken, and nothing is defined before they end: "+
				"empty the spool at the equipment if they don't", asking.requests)
		case spoolBarren:
			if !s.barren {
				s.barren = true
				s.notice("asking for spooled messages: the equipment has accepted S6F23, or said that it is busy, %d times and sent nothing: "+
					"what it may have spooled is not collected, and the host continues without it: look at the spool at the equipment, "+
					"or write spool: false into the plan if it has none", asking.requests)
			}
			return nil
		}
	}
	return nil
}

// askSpool asks for spooled messages once, and reports whether to ask for more.
func (s *session) askSpool(ctx context.Context, conn *hsms.Conn) (more bool, err error) {
	reply, err := conn.Request(ctx, secs.New(6, 23, secs.Byte(0)))
	switch {
	case errors.Is(err, hsms.ErrAborted):
		s.notice("the equipment has no spool: a run during which the link fails may be incomplete; write spool: false into the plan if this is known")
		s.spools = false
		return false, nil
	case err != nil:
		return false, fmt.Errorf("asking for spooled messages: %w", err)
	}
	// 0: they come. 1: it is busy, as with those that it sends already. 2: there are none.
	code, ok := reply.Body().Code()
	return ok && code <= 1, nil
}

// unloading decides how long spooled messages are asked for.
type unloading struct {
	requests int
	idle     int   // of the last ones, those that brought no message
	received int64 // messages by the last request
}

// spool is what an answer says of the spool, with what came since.
type spool int

const (
	spoolComes  spool = iota
	spoolLong         // it comes for long: people are to be told, this once
	spoolBarren       // it doesn't come: the host is to go on without it
)

// answered notes an answer that says that there is more, how many messages have come by then,
// and whether one of them is still being taken: those behind it wait for this host, as while
// runs can't be stored.
func (u *unloading) answered(received int64, taking bool) spool {
	u.requests++
	u.idle++
	if received != u.received || taking {
		u.idle, u.received = 0, received
	}
	switch {
	case u.idle >= maxIdle:
		return spoolBarren
	case u.requests == longSpool:
		return spoolLong
	}
	return spoolComes
}
