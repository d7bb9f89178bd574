package defender

import (
	"context"
	"fmt"

	"github.com/nats-io/nats.go"

	"github.com/muster-dev/muster/partition"
)

// letterbox dead-letters messages that can't be processed.
type letterbox struct {
	out     *outbox
	metrics *Metrics
	log     *logger
}

// discard dead-letters a message that can't be processed, and only then removes it
// from the stream.
func (l *letterbox) discard(ctx context.Context, m partition.Message, why error) error {
	if err := l.write(ctx, m, why); err != nil {
		return err
	}
	return partition.Discard(why)
}

// write dead-letters a message.
func (l *letterbox) write(ctx context.Context, m partition.Message, why error) error {
	chamber, err := ParseChamber(m.Key)
	if err != nil {
		chamber = Chamber{Tool: "unknown", Name: "unknown"}
	}
	msg := &nats.Msg{Subject: deadSubject(chamber), Data: m.Data, Header: nats.Header{}}
	msg.Header.Set(headerError, oneLine(why.Error()))
	msg.Header.Set(headerSubject, m.Subject)
	msg.Header.Set(nats.MsgIdHdr, deadID(m))
	if err := l.out.publish(ctx, msg); err != nil {
		return fmt.Errorf("dead-lettering message %d (%w): %w", m.Sequence, why, err)
	}
	l.metrics.dead.Inc()
	l.log.line().Error(fmt.Sprintf("A message for chamber %s can't be processed and was dead-lettered at %s.", m.Key, msg.Subject), "sequence", m.Sequence, "err", why)
	return nil
}

// deadSubject is where messages go that can't be processed.
func deadSubject(c Chamber) string { return "dc-dead." + c.Tool + "." + c.Name }

// deadID tells a dead letter from all others, so that one that is written twice is
// stored once. The sequence alone is not enough: a stream that was made again gives it
// to another message.
func deadID(m partition.Message) string {
	return fmt.Sprintf("dead-%d-%d", m.Sequence, m.Published.UnixNano())
}
