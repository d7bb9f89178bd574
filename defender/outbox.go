package defender

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/muster-dev/muster/partition"
	"github.com/muster-dev/muster/partition/reserve"
)

// Provision makes the streams of the defenders as far as they are missing:
// messages, alarms and dead letters.
func Provision(ctx context.Context, nc *nats.Conn, p partition.Config) error {
	if err := partition.Open(nc, p.Name).Provision(ctx, p); err != nil {
		return err
	}
	js, err := jetstream.New(nc)
	if err != nil {
		return fmt.Errorf("provisioning the alarm streams: %w", err)
	}
	return (&outbox{js: js, replicas: p.Storage.Replicas}).provision(ctx)
}

// outbox publishes alarms and dead letters. It owns their streams: a message whose
// alarm or dead letter has nowhere to go can't be settled, and its slot stands
// still behind it.
type outbox struct {
	js       jetstream.JetStream
	replicas int          // of the streams; 0 is 1
	logger   *slog.Logger // nil: nothing is logged

	creating sync.Mutex // held while a missing stream is re-created
}

// outboxMaxBytes is the largest default limit of each of the streams; see package
// reserve for why they have one.
const outboxMaxBytes = 1 << 30

// What is published to the streams of alarms and dead letters.
const (
	alarms           = "dc-alarm.*.*.>"
	acknowledgements = "dc-alarm-ack.*.*.>"
	deadLetters      = "dc-dead.*.*"
)

// outboxStreams are the streams of an outbox and their subjects. Alarms are a history,
// so the oldest go first. A dead letter is the only copy of its message: at the limit a
// new one is refused, and its message waits in its slot.
var outboxStreams = []struct {
	name     string
	subjects []string
	discard  jetstream.DiscardPolicy
}{
	{AlarmStream, []string{alarms, acknowledgements}, jetstream.DiscardOld},
	{DeadStream, []string{deadLetters}, jetstream.DiscardNew},
}

// provision creates the streams that are missing. In those that exist it adds
// missing subjects (an earlier version had fewer), replicas and a limit if there is
// none, and leaves the rest as an operator set it. In particular it never lowers the number of replicas: the
// caller may not know it, as a collector doesn't.
func (o *outbox) provision(ctx context.Context) error {
	for _, s := range outboxStreams {
		if err := o.provisionStream(ctx, s.name, s.subjects, s.discard); err != nil {
			return fmt.Errorf("provisioning stream %s: %w", s.name, err)
		}
	}
	return nil
}

func (o *outbox) provisionStream(ctx context.Context, name string, subjects []string, discard jetstream.DiscardPolicy) error {
	have, err := o.js.Stream(ctx, name)
	if errors.Is(err, jetstream.ErrStreamNotFound) {
		_, err = reserve.Stream(ctx, o.js, jetstream.StreamConfig{Name: name, Subjects: subjects, Storage: jetstream.FileStorage, Discard: discard,
			MaxAge: 30 * 24 * time.Hour, Replicas: max(o.replicas, 1), Duplicates: 2 * time.Minute}, outboxMaxBytes, 1)
		if !errors.Is(err, jetstream.ErrStreamNameAlreadyInUse) {
			return err
		}
		// Another defender, with other replicas, created it in between.
		have, err = o.js.Stream(ctx, name)
	}
	if err != nil {
		return err
	}
	c := have.CachedInfo().Config
	want := c
	want.Replicas = max(c.Replicas, o.replicas)
	for _, subject := range subjects {
		if !slices.Contains(want.Subjects, subject) {
			want.Subjects = append(slices.Clip(want.Subjects), subject)
		}
	}
	if want.Replicas != c.Replicas || len(want.Subjects) != len(c.Subjects) {
		if have, err = o.js.UpdateStream(ctx, want); err != nil {
			return err
		}
		want = have.CachedInfo().Config
	}
	if !reserve.Unlimited(want) {
		return nil
	}
	want.Discard = discard
	if _, err = reserve.Limit(ctx, o.js, want, outboxMaxBytes, 1); errors.Is(err, reserve.ErrNoRoom) {
		// It works as it did before there were limits.
		if o.logger != nil {
			o.logger.Warn("A stream stays without a limit.", "stream", name, "err", err)
		}
		return nil
	}
	return err
}

// publish publishes a message and waits until it is stored. If no stream takes it,
// the stream was never made or somebody deleted it: publish re-creates what is
// missing and tries once more. Otherwise the caller would retry the message
// permanently, and its slot would stand still.
//
// The server says that no stream takes it only if nobody subscribes to the subject. A
// console follows the alarms, so the answer that doesn't come within the client's own
// timeout may mean the same. That a message was stored nonetheless does no harm: both
// kinds of messages are told from their repetitions.
func (o *outbox) publish(ctx context.Context, msg *nats.Msg, opts ...jetstream.PublishOpt) error {
	_, err := o.js.PublishMsg(ctx, msg, opts...)
	silent := errors.Is(err, context.DeadlineExceeded) && ctx.Err() == nil
	if !errors.Is(err, jetstream.ErrNoStreamResponse) && !silent {
		return err
	}
	if again := o.recreate(ctx); again != nil {
		return fmt.Errorf("%w; creating its stream again: %w", err, again)
	}
	_, err = o.js.PublishMsg(ctx, msg, opts...)
	return err
}

// recreate provisions the streams. Handlers of many slots may miss a stream at the
// same time: they take turns, and those after the first find it there.
func (o *outbox) recreate(ctx context.Context) error {
	o.creating.Lock()
	defer o.creating.Unlock()
	if err := o.provision(ctx); err != nil {
		return err
	}
	if o.logger != nil {
		o.logger.Warn("No stream took an alarm or dead letter; missing streams were looked for and created again.", "streams", []string{AlarmStream, DeadStream})
	}
	return nil
}
