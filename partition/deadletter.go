package partition

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strconv"
	"strings"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/muster-dev/muster/partition/reserve"
)

// This file holds the dead-letter stream. A worker moves a message there that it gives up:
// first it stores the dead letter, and only then is the message removed from the retry queue
// or acknowledged. A worker that dies in between leaves the message where it was, and the next
// owner gives it up again. The server takes the second dead letter for the first one within
// deadLetterWindow; after that there may be two of the same message.

// DeadLetter is a message that a worker has given up; see Retry.
//
// Subject, Key, Data and Header are those of the message as it was published, so that
// Group.Requeue can publish it again. Sequence and Published tell which message it was, and the
// rest why it was given up. A message may have two dead letters, since the worker that stored
// the first may fail before it has removed the message.
type DeadLetter struct {
	Number uint64    // in the dead-letter stream; what Group.Requeue wants
	Time   time.Time // when it was moved there

	Subject string // as it was published
	Key     string
	Data    []byte
	Header  nats.Header // without those that are for a JetStream server

	Sequence  uint64    // of the message, as Message.Sequence
	Published time.Time // as Message.Published

	// Source is the stream that the message was copied from, and SourceSequence its sequence there;
	// see Config.Source. Empty and 0 where the group has none.
	Source         string
	SourceSequence uint64

	Attempts int    // how often it was tried; see Retry.Attempts
	Err      string // of the last attempt, at most 4 KiB of it
	Stack    string // of a handler that has panicked, at most 8 KiB of it; else empty
	Worker   string // the stable ID of the worker that has given it up
}

// Headers of dead letters, beside those of queued messages.
const (
	headerSubject = "Muster-Subject"
	headerKey     = "Muster-Key"
	headerError   = "Muster-Error"
	headerStack   = "Muster-Stack"
	headerWorker  = "Muster-Worker"
	headerOrigin  = "Muster-Origin" // "<stream> <sequence>" of the source
)

// The bounds of a dead letter's own headers, in bytes.
const (
	maxLetterError = 4 << 10
	maxLetterStack = 8 << 10
)

const (
	deadLetterMaxBytes = 1 << 30 // of the stream, if the servers have that much to reserve
	deadLetterWindow   = 2 * time.Minute
)

// deadLetterStream returns the settings of the stream. It keeps a dead letter until somebody
// removes or requeues it. When it is full it takes no more, and messages are tried again
// instead of given up: an acknowledged message must not be dropped to make room. Its subject has
// a wildcard since the server delivers a push consumer's messages where somebody subscribes to the
// very subject, and would take a stream for that: a user who may create a consumer could write
// dead letters.
func deadLetterStream(cfg Config, lay layout) jetstream.StreamConfig {
	return jetstream.StreamConfig{
		Name:        lay.deadLetterStream(),
		Description: fmt.Sprintf("Messages of %s that were given up.", cfg.Name),
		Subjects:    []string{lay.deadLetterPrefix() + "*"},
		Storage:     jetstream.FileStorage,
		Replicas:    cfg.Storage.Replicas,
		Discard:     jetstream.DiscardNew,
		Duplicates:  deadLetterWindow,
	}
}

func provisionDeadLetters(ctx context.Context, js jetstream.JetStream, cfg Config, lay layout) error {
	want := deadLetterStream(cfg, lay)
	s, err := reserve.Stream(ctx, js, want, deadLetterMaxBytes, besideParts)
	if errors.Is(err, jetstream.ErrStreamNameAlreadyInUse) {
		s, err = js.Stream(ctx, want.Name)
	}
	if err != nil {
		return fmt.Errorf("provisioning stream %s: %w", want.Name, err)
	}
	have := s.CachedInfo().Config
	if have.Retention != jetstream.LimitsPolicy || len(have.Subjects) != 1 || have.Subjects[0] != want.Subjects[0] {
		return fmt.Errorf("stream %s exists and is not for dead letters: it needs the subject %s and limits retention; give another Stream", want.Name, want.Subjects[0])
	}
	return nil
}

// letterbox stores dead letters. Several goroutines may use it.
type letterbox struct {
	cfg Config
	lay layout
	nc  *nats.Conn
	js  jetstream.JetStream
	id  func() string // the worker's stable ID
}

// store stores a message that has failed with err for the last time.
func (b *letterbox) store(ctx context.Context, m Message, failure error) error {
	letter := b.letter(m, failure)
	_, err := b.js.PublishMsg(ctx, letter, jetstream.WithMsgID(b.lay.letterID(m)))
	if goneError(err) {
		b.cfg.Logger.Warn("The dead-letter stream is not there; it is created.", slog.String("stream", b.lay.deadLetterStream()))
		if err := b.create(ctx); err != nil {
			return fmt.Errorf("moving message %d of key %s to the dead letters: %w", m.Sequence, m.Key, err)
		}
		_, err = b.js.PublishMsg(ctx, letter, jetstream.WithMsgID(b.lay.letterID(m)))
	}
	if err != nil {
		return fmt.Errorf("moving message %d of key %s to the dead letters: %w", m.Sequence, m.Key, err)
	}
	b.cfg.Logger.Error("A message was moved to the dead letters.", "key", m.Key, "slot", m.Slot, "sequence", m.Sequence, "attempts", m.Attempt, "err", failure)
	return nil
}

// create creates the stream of a group that has lost it, or that has begun to keep dead
// letters since it was provisioned. Numbers of an earlier stream are not given again.
func (b *letterbox) create(ctx context.Context) error {
	want := deadLetterStream(b.cfg, b.lay)
	want.FirstSeq = firstSequence(time.Now(), 0)
	_, err := reserve.Stream(ctx, b.js, want, deadLetterMaxBytes, besideParts)
	if errors.Is(err, jetstream.ErrStreamNameAlreadyInUse) {
		return nil // another worker was faster
	}
	return err
}

// letter returns the dead letter of a message. The stack is left out where the server would
// reject the whole as too large.
func (b *letterbox) letter(m Message, failure error) *nats.Msg {
	h := nats.Header{}
	for k, v := range m.Header {
		if !strings.HasPrefix(k, serverHeaders) { // they are for the stream that it came from
			h[k] = v
		}
	}
	h.Set(headerSubject, m.Subject)
	h.Set(headerKey, m.Key)
	h.Set(headerSequence, strconv.FormatUint(m.Sequence, 10))
	h.Set(headerPublished, strconv.FormatInt(m.Published.UnixNano(), 10))
	h.Set(headerAttempts, strconv.Itoa(m.Attempt))
	h.Set(headerWorker, b.id())
	if stream, sequence, found := m.Origin(); found {
		h.Set(headerOrigin, fmt.Sprintf("%s %d", stream, sequence))
	}
	h.Set(headerError, headerText(failure.Error(), maxLetterError))

	letter := &nats.Msg{Subject: b.lay.deadLetterSubject(), Header: h, Data: m.Data}
	var panicked *PanicError
	if errors.As(failure, &panicked) {
		h.Set(headerStack, headerText(string(panicked.Stack), maxLetterStack))
		if int64(letter.Size()) > b.nc.MaxPayload() {
			h.Del(headerStack)
		}
	}
	return letter
}

// lineBreaks stand for those of a text in a header, whose value is one line.
var lineBreaks = strings.NewReplacer("\r\n", "\u2028", "\n", "\u2028", "\r", "\u2028")

// headerText makes a text fit to be the value of a header, at most limit bytes of it. A break
// of a line becomes U+2028.
func headerText(text string, limit int) string {
	if len(text) > limit {
		text = text[:limit]
	}
	return strings.ToValidUTF8(lineBreaks.Replace(text), "�")
}

func fromHeader(text string) string { return strings.ReplaceAll(text, "\u2028", "\n") }

// letterOf reads a dead letter.
func letterOf(msg *jetstream.RawStreamMsg, stream string) (DeadLetter, error) {
	l := DeadLetter{Number: msg.Sequence, Time: msg.Time, Data: msg.Data, Header: nats.Header{},
		Subject: msg.Header.Get(headerSubject), Key: msg.Header.Get(headerKey), Worker: msg.Header.Get(headerWorker),
		Err: fromHeader(msg.Header.Get(headerError)), Stack: fromHeader(msg.Header.Get(headerStack))}
	sequence, err1 := strconv.ParseUint(msg.Header.Get(headerSequence), 10, 64)
	published, err2 := strconv.ParseInt(msg.Header.Get(headerPublished), 10, 64)
	attempts, err3 := strconv.Atoi(msg.Header.Get(headerAttempts))
	if err := errors.Join(err1, err2, err3); err != nil {
		return l, fmt.Errorf("dead letter %d was not written by a worker, remove it from stream %s: %w", msg.Sequence, stream, err)
	}
	l.Source, l.SourceSequence, _ = originIn(msg.Header.Get(headerOrigin))
	l.Sequence, l.Published, l.Attempts = sequence, time.Unix(0, published), attempts
	for k, v := range msg.Header {
		switch k {
		case headerSubject, headerKey, headerSequence, headerPublished, headerAttempts, headerWorker, headerOrigin, headerError, headerStack:
		default:
			if !strings.HasPrefix(k, serverHeaders) {
				l.Header[k] = v
			}
		}
	}
	return l, nil
}

// letters is the dead-letter stream of a group as its handle sees it.
type letters struct {
	js     jetstream.JetStream
	stream jetstream.Stream // nil: there is none
	cfg    Config
	lay    layout
}

func openLetters(ctx context.Context, nc *nats.Conn, group string) (letters, error) {
	cfg, err := provisionedConfig(ctx, nc, group)
	if err != nil {
		return letters{}, err
	}
	lay, err := cfg.resolve().validate()
	if err != nil {
		return letters{}, err
	}
	js, err := jetstream.New(nc)
	if err != nil {
		return letters{}, err
	}
	s, err := js.Stream(ctx, lay.deadLetterStream())
	if errors.Is(err, jetstream.ErrStreamNotFound) {
		s, err = nil, nil
	}
	return letters{js: js, stream: s, cfg: cfg, lay: lay}, err
}

// list returns up to limit dead letters from a number on.
func (l letters) list(ctx context.Context, from uint64, limit int) ([]DeadLetter, error) {
	if l.stream == nil {
		return nil, nil
	}
	var out []DeadLetter
	for number := max(from, 1); len(out) < limit; {
		msg, err := l.stream.GetMsg(ctx, number, jetstream.WithGetMsgSubject(l.lay.deadLetterSubject()))
		if errors.Is(err, jetstream.ErrMsgNotFound) {
			return out, nil
		}
		if err != nil {
			return out, fmt.Errorf("reading the dead letters from number %d on: %w", number, err)
		}
		letter, err := letterOf(msg, l.lay.deadLetterStream())
		if err != nil { // one that somebody else has written must not hide the others
			letter.Err = err.Error()
		}
		out = append(out, letter)
		number = msg.Sequence + 1
	}
	return out, nil
}

// requeue publishes a dead letter's message again, and then removes the dead letter. Done
// twice, or ended in between, it publishes the message at most once within the stream's window for
// duplicates.
func (l letters) requeue(ctx context.Context, number uint64) (DeadLetter, error) {
	if l.stream == nil {
		return DeadLetter{}, fmt.Errorf("the group has no dead letters: %w", jetstream.ErrMsgNotFound)
	}
	msg, err := l.stream.GetMsg(ctx, number)
	if err != nil {
		return DeadLetter{}, fmt.Errorf("reading dead letter %d: %w", number, err)
	}
	letter, err := letterOf(msg, l.lay.deadLetterStream())
	if err != nil {
		return letter, err
	}
	subject, err := l.lay.direct(letter.Subject)
	if err != nil {
		return letter, fmt.Errorf("publishing dead letter %d again: %w", number, err)
	}
	again := &nats.Msg{Subject: subject, Header: letter.Header, Data: letter.Data}
	if _, err := l.js.PublishMsg(ctx, again, jetstream.WithMsgID(l.lay.requeueID(number))); err != nil {
		return letter, fmt.Errorf("publishing dead letter %d again: %w", number, err)
	}
	if err := l.stream.DeleteMsg(ctx, number); err != nil && !errors.Is(err, jetstream.ErrMsgNotFound) {
		return letter, fmt.Errorf("removing dead letter %d, which was published again: %w", number, err)
	}
	return letter, nil
}
