package defender

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/muster-dev/muster/defender/uchart"
)

// AlarmEvent is what a context means for the alarm of its chamber and recipe.
type AlarmEvent string

// The events of an alarm's life. An alarm stands from the context that opens it
// until so many unflagged contexts in a row clear it; flagged ones meanwhile
// repeat it. A person is told of the first and the last only.
const (
	AlarmOpened   AlarmEvent = "opened"
	AlarmRepeated AlarmEvent = "repeated"
	AlarmCleared  AlarmEvent = "cleared"
)

// AlarmNotice is the message that is published for an alarm, as JSON: one for each
// flagged context, and one for the context that clears the alarm.
type AlarmNotice struct {
	Alarm
	Event    AlarmEvent `json:"event"`
	Opened   string     `json:"opened"`           // context that opened the alarm; with the chamber it identifies it
	Count    int        `json:"count"`            // flagged contexts of it up to now, at least 1
	Strategy string     `json:"strategy"`         // name@version
	Recipe   string     `json:"recipe,omitempty"` // of the alarm
}

// NoticeOf returns the notice that a context calls for, and false if it is none. It
// depends on nothing but the contexts of the same chamber and recipe before it,
// oldest first, so that a context that is processed again calls for the same. An
// alarm that began before the history did is identified by its oldest context
// there.
func NoticeOf(history []UChart, u UChart, clearAfter int) (AlarmNotice, bool) {
	if clearAfter < 1 {
		clearAfter = 1
	}
	standing, opened, count, quiet := false, "", 0, 0
	for _, h := range history {
		switch {
		case h.Verdict.State == uchart.Maintenance:
			standing, count, quiet = false, 0, 0
		case h.Verdict.Flagged():
			if !standing {
				standing, opened, count = true, h.Context.ID, 0
			}
			count++
			quiet = 0
		case standing:
			if quiet++; quiet == clearAfter {
				standing = false
			}
		}
	}
	n := AlarmNotice{Alarm: Alarm{Context: u.Context, State: u.Verdict.State, Reason: u.Verdict.Reason()},
		Opened: opened, Count: count, Strategy: u.Verdict.Strategy, Recipe: u.Context.Recipe}
	switch {
	case u.Verdict.Flagged() && standing:
		n.Event, n.Count = AlarmRepeated, count+1
	case u.Verdict.Flagged():
		n.Event, n.Opened, n.Count = AlarmOpened, u.Context.ID, 1
	case standing && u.Verdict.State == uchart.Maintenance:
		n.Event, n.Reason = AlarmCleared, "maintenance"
	case standing && quiet+1 == clearAfter:
		n.Event, n.Reason = AlarmCleared, fmt.Sprintf("%d contexts in a row are not flagged", clearAfter)
	default:
		return AlarmNotice{}, false
	}
	return n, true
}

// AlarmSubject is where the notices of a chamber's context are published.
func AlarmSubject(c Chamber, contextID string) string {
	return "dc-alarm." + c.Tool + "." + c.Name + "." + contextID
}

// errTaken is the server's code for a subject that has a message already.
const errTaken jetstream.ErrorCode = 10071

// notify publishes the notice that a stored context calls for. The subject is the
// context's own and takes one message only, so that a context that is processed
// again, however late, doesn't alarm twice.
func (d *Defender) notify(ctx context.Context, history []UChart, u UChart) error {
	n, ok := NoticeOf(history, u, d.clearAfter(u.Context))
	if !ok {
		return nil
	}
	data, err := json.Marshal(n)
	if err != nil {
		return fmt.Errorf("encoding the alarm of %s: %w", u.Context.TChart(), err)
	}
	js, err := jetstream.New(d.c.Conn)
	if err != nil {
		return err
	}
	msg := &nats.Msg{Subject: AlarmSubject(u.Context.Chamber, u.Context.ID), Data: data, Header: nats.Header{}}
	msg.Header.Set(nats.MsgIdHdr, "alarm-"+u.Context.TChart().String())
	_, err = js.PublishMsg(ctx, msg, jetstream.WithExpectLastSequencePerSubject(0))
	if taken := new(jetstream.APIError); errors.As(err, &taken) && taken.ErrorCode == errTaken {
		return nil
	}
	if err != nil {
		return fmt.Errorf("publishing the alarm of %s: %w", u.Context.TChart(), err)
	}
	if n.Event != AlarmCleared {
		d.c.Metrics.alarms.Inc()
	}
	return nil
}

// clearAfter returns how many contexts clear an alarm.
func (d *Defender) clearAfter(ref ContextRef) int {
	if d.c.ClearAfter != nil {
		return d.c.ClearAfter(ref)
	}
	return 3
}
