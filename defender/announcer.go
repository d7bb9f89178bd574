package defender

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/muster-dev/muster/partition"
)

// announcer publishes the notices of alarms.
type announcer struct {
	out        *outbox
	metrics    *Metrics
	clearAfter func(ContextRef) int // contexts in a row that aren't flagged
	labels     *labels
}

// notify publishes the notice that a stored context calls for. The subject is the
// context's own and takes one message only, so that a context that is processed
// again, however late, doesn't alarm twice.
func (a *announcer) notify(ctx context.Context, history []UChart, u UChart) error {
	n, ok := NoticeOf(history, u, a.clearAfter(u.Context))
	if !ok {
		return nil
	}
	if u.Verdict.Flagged() {
		n.Classification = a.labels.classify(ctx, u.Verdict)
	}
	data, err := json.Marshal(n)
	if err != nil {
		return fmt.Errorf("encoding the alarm of %s: %w", u.Context.TChart(), err)
	}
	msg := &nats.Msg{Subject: AlarmSubject(u.Context.Chamber, u.Context.ID), Data: data, Header: nats.Header{}}
	msg.Header.Set(nats.MsgIdHdr, "alarm-"+u.Context.TChart().String())
	err = a.out.publish(ctx, msg, jetstream.WithExpectLastSequencePerSubject(0))
	if taken := new(jetstream.APIError); errors.As(err, &taken) && taken.ErrorCode == errTaken {
		return nil
	}
	if err != nil {
		err = fmt.Errorf("publishing the alarm of %s: %w", u.Context.TChart(), err)
		if errors.Is(err, nats.ErrMaxPayload) {
			return err
		}
		return partition.Unavailable(err) // the servers are to blame, not the context
	}
	if u.Verdict.Flagged() {
		a.metrics.alarms.Inc()
	}
	return nil
}

// errTaken is the server's code for a subject that has a message already.
const errTaken jetstream.ErrorCode = 10071
