package defender

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/muster-dev/muster/partition"
)

// Headers of dead letters.
const (
	headerError   = "Muster-Error"
	headerSubject = "Muster-Subject"
)

// DeadLetter is a message that can't be processed and was moved to the dead-letter stream.
type DeadLetter struct {
	Sequence uint64     `json:"sequence"` // in the stream of dead letters
	Time     time.Time  `json:"time"`     // when it was dead-lettered
	Subject  string     `json:"subject"`  // of the message
	Error    string     `json:"error"`
	Context  *TChartKey `json:"-"` // nil when the message doesn't tell
	Chamber  string     `json:"chamber,omitempty"`
	ID       string     `json:"context,omitempty"`
	Data     []byte     `json:"data"` // the message as it came
}

// DeadLetters returns up to limit dead letters, oldest first, beginning with the
// sequence from.
func DeadLetters(ctx context.Context, nc *nats.Conn, from uint64, limit int) ([]DeadLetter, error) {
	stream, err := deadStream(ctx, nc)
	if err != nil {
		return nil, err
	}
	info, err := stream.Info(ctx)
	if err != nil {
		return nil, fmt.Errorf("reading stream %s: %w", DeadStream, err)
	}
	var list []DeadLetter
	for seq := max(from, info.State.FirstSeq, 1); seq <= info.State.LastSeq && len(list) < limit; {
		msg, err := stream.GetMsg(ctx, seq, jetstream.WithGetMsgSubject("dc-dead.>"))
		if errors.Is(err, jetstream.ErrMsgNotFound) {
			break
		}
		if err != nil {
			return nil, fmt.Errorf("reading dead letter %d: %w", seq, err)
		}
		list = append(list, letterOf(msg))
		seq = msg.Sequence + 1
	}
	return list, nil
}

func deadStream(ctx context.Context, nc *nats.Conn) (jetstream.Stream, error) {
	js, err := jetstream.New(nc)
	if err != nil {
		return nil, err
	}
	stream, err := js.Stream(ctx, DeadStream)
	if errors.Is(err, jetstream.ErrStreamNotFound) {
		return nil, fmt.Errorf("there is no stream %s on this server: has a defender or collector run on it?", DeadStream)
	}
	if err != nil {
		return nil, fmt.Errorf("reading stream %s: %w", DeadStream, err)
	}
	return stream, nil
}

func letterOf(msg *jetstream.RawStreamMsg) DeadLetter {
	l := DeadLetter{Sequence: msg.Sequence, Time: msg.Time, Subject: msg.Header.Get(headerSubject), Error: msg.Header.Get(headerError), Data: msg.Data}
	if c, err := ParseCompletion(msg.Data); err == nil {
		key := c.Ref().TChart()
		l.Context, l.Chamber, l.ID = &key, key.Chamber.String(), key.Context
	}
	return l
}

// Requeue sends a dead letter again, with its attempts forgotten, and removes it
// from the dead letters. Doing it twice, or dying in between, sends the message
// again at most; its result is stored once.
func Requeue(ctx context.Context, nc *nats.Conn, store Store, sequence uint64) (DeadLetter, error) {
	stream, err := deadStream(ctx, nc)
	if err != nil {
		return DeadLetter{}, err
	}
	msg, err := stream.GetMsg(ctx, sequence)
	if errors.Is(err, jetstream.ErrMsgNotFound) {
		return DeadLetter{}, fmt.Errorf("there is no dead letter %d: see the list for those there are", sequence)
	}
	if err != nil {
		return DeadLetter{}, fmt.Errorf("reading dead letter %d: %w", sequence, err)
	}
	l := letterOf(msg)
	if l.Subject == "" {
		return l, fmt.Errorf("dead letter %d doesn't tell its subject: it wasn't dead-lettered by a defender", sequence)
	}
	if l.Context != nil {
		if err := store.ForgetAttempts(ctx, l.Context.Chamber, l.Context.Context); err != nil {
			return l, fmt.Errorf("forgetting the attempts of dead letter %d: %w", sequence, err)
		}
	}
	js, err := jetstream.New(nc)
	if err != nil {
		return l, err
	}
	group, err := partition.Open(nc, Group).Config(ctx)
	if err != nil {
		return l, fmt.Errorf("sending dead letter %d again: %w", sequence, err)
	}
	subject, err := group.PublishSubject(l.Subject)
	if err != nil {
		return l, fmt.Errorf("sending dead letter %d again: %w", sequence, err)
	}
	again := &nats.Msg{Subject: subject, Data: l.Data, Header: nats.Header{}}
	if _, err := js.PublishMsg(ctx, again, jetstream.WithMsgID(fmt.Sprintf("requeue-%d-%d", sequence, msg.Time.UnixNano()))); err != nil {
		return l, fmt.Errorf("sending dead letter %d again: %w", sequence, err)
	}
	if err := stream.DeleteMsg(ctx, sequence); err != nil && !errors.Is(err, jetstream.ErrMsgNotFound) {
		return l, fmt.Errorf("removing dead letter %d, which was sent again: %w", sequence, err)
	}
	return l, nil
}
