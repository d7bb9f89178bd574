package gem

import (
	"context"
	"errors"
	"fmt"

	"github.com/muster-dev/muster/defender/hsms"
	"github.com/muster-dev/muster/defender/secs"
)

// definition is one step of telling the equipment what to send.
type definition struct {
	does, fix string
	message   secs.Message
	optional  bool // an equipment may not be able to
}

// define tells the equipment what to send, unless it knows.
func (s *session) define(ctx context.Context, conn *hsms.Conn) error {
	if s.defined {
		return nil
	}
	for _, step := range s.definitions() {
		err := step.send(ctx, conn)
		refused := new(refusedError)
		if step.optional && (errors.Is(err, hsms.ErrAborted) || errors.As(err, &refused)) {
			s.noticeOnce("%v", err) // everything may be defined again soon
			continue
		}
		if err != nil {
			return err
		}
	}
	s.defined = true
	s.listen()
	return nil
}

// refusedError is the error of a step that the equipment doesn't accept.
type refusedError struct{ text string }

func (e *refusedError) Error() string { return e.text }

func (d definition) send(ctx context.Context, conn *hsms.Conn) error {
	reply, err := conn.Request(ctx, d.message)
	if err != nil {
		return fmt.Errorf("%s: %w", d.does, err)
	}
	if codeOf(reply.Body()) != 0 {
		return &refusedError{fmt.Sprintf("%s: the equipment refuses %s with %v: %s", d.does, d.message.Name(), reply, d.fix)}
	}
	return nil
}

func (s *session) definitions() []definition {
	reports, links, events := secs.L(), secs.L(), secs.L()
	for _, c := range s.chambers {
		reports.Items = append(reports.Items, secs.L(secs.Uint(c.report), uints(c.reportIDs)))
		for _, id := range []uint32{c.plan.Start, c.plan.End} {
			links.Items = append(links.Items, secs.L(secs.Uint(id), secs.L(secs.Uint(c.report))))
			events.Items = append(events.Items, secs.Uint(id))
		}
	}
	const (
		id      = 1 // DATAID, which tells definitions in parts apart
		allowIt = "allow it in the equipment's settings"
		compare = "compare start and end with the equipment's list of events"
	)
	steps := []definition{
		{does: "disabling events", message: secs.New(2, 37, secs.L(secs.Bool(false), secs.L())), fix: allowIt, optional: true},
		{does: "deleting reports", message: secs.New(2, 33, secs.L(secs.Uint(id), secs.L())), fix: allowIt},
		{does: "defining reports", message: secs.New(2, 33, secs.L(secs.Uint(id), reports)),
			fix: "compare clock, run, recipe, product, lot and wafer with the equipment's list of variables"},
		{does: "linking events", message: secs.New(2, 35, secs.L(secs.Uint(id), links)), fix: compare},
		{does: "enabling events", message: secs.New(2, 37, secs.L(secs.Bool(true), events)), fix: compare},
	}
	if s.spools {
		streams := secs.L(secs.L(secs.Byte(5), secs.L()), secs.L(secs.Byte(6), secs.L()))
		steps = append(steps, definition{does: "choosing what is spooled", message: secs.New(2, 43, streams),
			fix: "enable the spool in the equipment's settings", optional: true})
	}
	for _, alarm := range s.alarms() {
		steps = append(steps, definition{does: "enabling alarms", message: secs.New(5, 3, secs.L(secs.B(0x80), alarm)),
			fix: "compare alarms with the equipment's list", optional: true})
	}
	for _, c := range s.chambers {
		steps = append(steps, definition{does: "starting the trace of chamber " + c.cutter.chamber.Name, message: c.startTrace(),
			fix: "compare sensors, step, period and group with what the equipment can trace"})
	}
	return steps
}

// alarms returns the alarm IDs to enable; an empty one stands for all.
func (s *session) alarms() []secs.Item {
	if s.kind.Alarms.All {
		return []secs.Item{{Format: secs.U4}}
	}
	var ids []secs.Item
	for _, id := range s.kind.Alarms.IDs {
		ids = append(ids, secs.Uint(id))
	}
	return ids
}
