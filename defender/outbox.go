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

// Provision makes the streams of the defenders as far as they are missing: those of their group,
// and that of alarms.
func Provision(ctx context.Context, nc *nats.Conn, p partition.Config) error {
	if err := partition.Open(nc, p.Name).Provision(ctx, p); err != nil {
		return err
	}
	js, err := jetstream.New(nc)
	if err != nil {
		return fmt.Errorf("provisioning the stream of alarms: %w", err)
	}
	return (&outbox{js: js, replicas: p.Storage.Replicas}).provision(ctx)
}

// outbox publishes alarms. It owns their stream: a message whose alarm has nowhere to go can't
// be settled, and its slot stands still behind it.
type outbox struct {
	js       jetstream.JetStream
	replicas int          // of the streams; 0 is 1
	logger   *slog.Logger // nil: nothing is logged

	creating sync.Mutex // held while a missing stream is re-created
}

// outboxMaxBytes is the largest default limit of the stream; see package reserve for why it has
// one.
const outboxMaxBytes = 1 << 30

// What is published to the stream of alarms.
const (
	alarms           = "dc-alarm.*.*.>"
	acknowledgements = "dc-alarm-ack.*.*.>"
)

var alarmSubjects = []string{alarms, acknowledgements}

// provision creates the stream if it is missing. In one that exists it adds missing subjects (an
// earlier version had fewer), replicas and a limit if there is none, and leaves the rest as an
// operator set it. In particular it never lowers the number of replicas: the caller may not know
// it, as a collector doesn't. Alarms are a history, so the oldest go first.
func (o *outbox) provision(ctx context.Context) error {
	if err := o.provisionAlarms(ctx); err != nil {
		return fmt.Errorf("provisioning stream %s: %w", AlarmStream, err)
	}
	return nil
}

func (o *outbox) provisionAlarms(ctx context.Context) error {
	have, err := o.js.Stream(ctx, AlarmStream)
	if errors.Is(err, jetstream.ErrStreamNotFound) {
		_, err = reserve.Stream(ctx, o.js, jetstream.StreamConfig{Name: AlarmStream, Subjects: alarmSubjects, Storage: jetstream.FileStorage, Discard: jetstream.DiscardOld,
			MaxAge: 30 * 24 * time.Hour, Replicas: max(o.replicas, 1), Duplicates: 2 * time.Minute}, outboxMaxBytes, 1)
		if !errors.Is(err, jetstream.ErrStreamNameAlreadyInUse) {
			return err
		}
		// Another defender, with other replicas, created it in between.
		have, err = o.js.Stream(ctx, AlarmStream)
	}
	if err != nil {
		return err
	}
	c := have.CachedInfo().Config
	want := c
	want.Replicas = max(c.Replicas, o.replicas)
	for _, subject := range alarmSubjects {
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
	want.Discard = jetstream.DiscardOld
	if _, err = reserve.Limit(ctx, o.js, want, outboxMaxBytes, 1); errors.Is(err, reserve.ErrNoRoom) {
		// It works as it did before there were limits.
		if o.logger != nil {
			o.logger.Warn("A stream stays without a limit.", "stream", AlarmStream, "err", err)
		}
		return nil
	}
	return err
}

// publish publishes a message and waits until it is stored. If no stream takes it,
// the stream was never made or somebody deleted it: publish re-creates it and tries
// once more. Otherwise the caller would retry the message
// permanently, and its slot would stand still.
//
// The server says that no stream takes it only if nobody subscribes to the subject. A
// console follows the alarms, so the answer that doesn't come within the client's own
// timeout may mean the same. That an alarm was stored nonetheless does no harm: it is told from
// its repetitions.
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

// recreate provisions the stream. Handlers of many slots may miss it at the same time: they take
// turns, and those after the first find it there.
func (o *outbox) recreate(ctx context.Context) error {
	o.creating.Lock()
	defer o.creating.Unlock()
	if err := o.provision(ctx); err != nil {
		return err
	}
	if o.logger != nil {
		o.logger.Warn("No stream took an alarm; the stream of alarms was looked for and created again if it was missing.", "stream", AlarmStream)
	}
	return nil
}
