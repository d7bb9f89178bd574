package partition

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/muster-dev/muster/partition/internal/record"
	"github.com/muster-dev/muster/partition/reserve"
)

// Headers of queued messages. The server's own headers of the message as it was
// published stand behind headerKept, since they are for another stream.
const (
	headerSequence  = "Muster-Sequence"
	headerPublished = "Muster-Published" // nanoseconds since 1970
	headerAttempts  = "Muster-Attempts"
	headerKept      = "Muster-Was-"
	serverHeaders   = "Nats-"
)

func provisionRetry(ctx context.Context, js jetstream.JetStream, cfg Config, lay layout) (jetstream.Stream, error) {
	want := retryStream(cfg, lay)
	s, err := reserve.Stream(ctx, js, want, retryMaxBytes, besideParts)
	if errors.Is(err, jetstream.ErrStreamNameAlreadyInUse) {
		s, err = js.Stream(ctx, want.Name)
	}
	if err != nil {
		return nil, fmt.Errorf("provisioning stream %s: %w", want.Name, err)
	}
	have := s.CachedInfo().Config
	if have.AllowDirect || !have.AllowRollup || have.Retention != jetstream.LimitsPolicy || have.MaxAge > 0 || len(have.Subjects) != 1 || have.Subjects[0] != want.Subjects[0] {
		return nil, fmt.Errorf("stream %s exists and is not for queued messages: it needs the subjects %s, limits retention without an age, rollups and no direct reads; give another Stream", want.Name, want.Subjects[0])
	}
	return s, nil
}

// retryStore carries a retryQueue's operations out.
type retryStore struct {
	nc     *nats.Conn
	stream jetstream.Stream
	name   string // of the stream
	lay    layout
	room   *room
}

// answer finds the answer to a question about the retry queue.
func (s *retryStore) answer(ctx context.Context, at place, q question, a *answer) {
	switch q := q.(type) {
	case askSpace:
		a.sequence, a.claims, a.err = s.readSpace(ctx, at)
	case askClaim:
		a.sequence, a.outcome, a.err = s.claim(ctx, at, q.fence, q.expect)
	case askCount:
		a.counts, a.recorded, a.err = s.count(ctx, at)
	case askTail:
		a.queued, a.err = s.tail(ctx, at, q.key)
	case askHead:
		a.queued, a.err = s.head(ctx, at, q.key, q.from)
	case askAttempts:
		a.sequence, a.attempts, a.err = s.readAttempts(ctx, at, q.key)
	case askStoreAttempts:
		a.sequence, a.outcome, a.err = s.storeAttempts(ctx, at, q.key, q.attempts, q.expect)
	case askErase:
		a.yes, a.err = s.erase(ctx, at, q.original)
	case askRemove:
		a.yes, a.err = s.remove(ctx, q.sequence)
	case askStoreCopy:
		a.sequence, a.outcome, a.err = s.store(ctx, at, q.mail.body.(*nats.Msg), q.message, q.attempts, q.expect)
	}
}

// readSpace returns what retryQueue.read wants: the last sequence first.
//
// None of its requests makes the server search the stream, which holds a claim for each slot.
func (s *retryStore) readSpace(ctx context.Context, at place) (last uint64, claims []record.QueueClaim, err error) {
	newest, err := s.lastOf(ctx, s.lay.retrySpace(at.slot)+">")
	if err != nil || newest == nil {
		return 0, nil, err
	}
	last = newest.Sequence

	if newest.Subject != s.lay.claimSubject(at) {
		newest, err = s.lastOf(ctx, s.lay.claimPrefix(at.slot)+">")
		if err != nil || newest == nil {
			return last, nil, err
		}
	}
	if newest.Subject == s.lay.claimSubject(at) {
		// The owner that wrote it had read the others, and none was later than its own. So none
		// is later than this one.
		c, err := s.claimIn(newest)
		return last, []record.QueueClaim{c}, err
	}
	claims, err = s.claims(ctx, at)
	return last, claims, err
}

// claims returns all claims of a space. There are several only in a group whose slot count was
// changed.
func (s *retryStore) claims(ctx context.Context, at place) (claims []record.QueueClaim, err error) {
	info, err := s.stream.Info(ctx, jetstream.WithSubjectFilter(s.lay.claimPrefix(at.slot)+">"))
	if err != nil {
		return nil, fmt.Errorf("reading who claims the queued messages: %w", err)
	}
	for subject := range info.State.Subjects {
		msg, err := s.lastOf(ctx, subject)
		if err != nil {
			return nil, err
		}
		if msg == nil {
			continue // it was just removed
		}
		c, err := s.claimIn(msg)
		if err != nil {
			return nil, err
		}
		claims = append(claims, c)
	}
	return claims, nil
}

// lastOf returns the last message of the retry stream that a filter selects, nil for none.
func (s *retryStore) lastOf(ctx context.Context, filter string) (*jetstream.RawStreamMsg, error) {
	msg, err := s.stream.GetLastMsgForSubject(ctx, filter)
	switch {
	case errors.Is(err, jetstream.ErrMsgNotFound):
		return nil, nil
	case err != nil:
		return nil, fmt.Errorf("reading the last message of %s: %w", filter, err)
	}
	return msg, nil
}

func (s *retryStore) claimIn(msg *jetstream.RawStreamMsg) (c record.QueueClaim, err error) {
	if err := json.Unmarshal(msg.Data, &c); err != nil || c.Slots < 1 {
		return c, fmt.Errorf("message %d of stream %s is no claim: %.100q; remove it", msg.Sequence, s.name, msg.Data)
	}
	return c, nil
}

// claim writes the claim of a slot's owner in place of the one before.
func (s *retryStore) claim(ctx context.Context, at place, f Fence, expect uint64) (uint64, outcome, error) {
	msg := nats.NewMsg(s.lay.claimSubject(at))
	msg.Data = record.Encode(record.QueueClaim{Slots: at.slots, Slot: at.slot, Fence: record.Fence(f)})
	msg.Header.Set(nats.MsgRollup, nats.MsgRollupSubject)
	return s.write(ctx, at, msg, expect)
}

// count is countSpace for one slot. Nearly always nothing is queued, and the server finds that out
// with less work than a count takes it.
func (s *retryStore) count(ctx context.Context, at place) (queued map[string]int, recorded []string, err error) {
	filter := s.lay.countFilter(at)
	last, err := s.lastOf(ctx, filter)
	if err != nil || last == nil {
		return nil, nil, err
	}
	return countSpace(ctx, s.stream, s.lay, filter)
}

// countSpace returns how many messages of each key are queued, and which keys have a record of
// attempts.
func countSpace(ctx context.Context, stream jetstream.Stream, lay layout, filter string) (queued map[string]int, recorded []string, err error) {
	info, err := stream.Info(ctx, jetstream.WithSubjectFilter(filter))
	if err != nil {
		return nil, nil, fmt.Errorf("counting the queued messages: %w", err)
	}
	queued = make(map[string]int, len(info.State.Subjects))
	for subject, n := range info.State.Subjects {
		kind, _, key, _, err := lay.parseSpace(subject)
		if err != nil {
			return nil, nil, fmt.Errorf("counting the queued messages: %w", err)
		}
		if kind+"." == attemptsToken {
			recorded = append(recorded, JoinKey(key...))
			continue
		}
		queued[JoinKey(key...)] = int(n)
	}
	return queued, recorded, nil
}

// readAttempts reads the record of attempts of a key; sequence 0: it has none. One that can't be
// read is of no message, and the next one replaces it.
func (s *retryStore) readAttempts(ctx context.Context, at place, key string) (sequence uint64, a record.Attempts, err error) {
	msg, err := s.lastOf(ctx, s.lay.attemptsSubject(at, key))
	if err != nil || msg == nil {
		return 0, record.Attempts{}, err
	}
	valid := json.Unmarshal(msg.Data, &a) == nil && a.Attempts >= 0
	if !valid {
		a = record.Attempts{}
	}
	return msg.Sequence, a, nil
}

// storeAttempts writes the record of attempts of a key in place of the one before.
func (s *retryStore) storeAttempts(ctx context.Context, at place, key string, a record.Attempts, expect uint64) (uint64, outcome, error) {
	msg := nats.NewMsg(s.lay.attemptsSubject(at, key))
	msg.Data = record.Encode(a)
	msg.Header.Set(nats.MsgRollup, nats.MsgRollupSubject)
	return s.write(ctx, at, msg, expect)
}

// store queues a message of the main stream.
func (s *retryStore) store(ctx context.Context, at place, msg *nats.Msg, m Message, attempts int, expect uint64) (uint64, outcome, error) {
	switch left, err := s.room.ask(ctx, s.stream); {
	case err != nil:
		return 0, outcomeRefused, err
	case !left:
		return 0, outcomeRefused, fmt.Errorf("writing to stream %s: half of its max bytes are used, and the rest is for claims: raise them, or find out why messages fail", s.name)
	}
	copied := nats.NewMsg(s.lay.queuedSubject(at.slot, msg.Subject))
	copied.Data = msg.Data
	for k, v := range msg.Header {
		if strings.HasPrefix(k, serverHeaders) {
			k = headerKept + k
		}
		copied.Header[k] = v
	}
	copied.Header.Set(headerSequence, strconv.FormatUint(m.Sequence, 10))
	copied.Header.Set(headerPublished, strconv.FormatInt(m.Published.UnixNano(), 10))
	copied.Header.Set(headerAttempts, strconv.Itoa(attempts))
	return s.write(ctx, at, copied, expect)
}

// write writes to a space where the last sequence is the expected one.
func (s *retryStore) write(ctx context.Context, at place, msg *nats.Msg, expect uint64) (uint64, outcome, error) {
	msg.Header.Set(jetstream.ExpectedStreamHeader, s.name)
	msg.Header.Set(jetstream.ExpectedLastSubjSeqHeader, strconv.FormatUint(expect, 10))
	msg.Header.Set(jetstream.ExpectedLastSubjSeqSubjHeader, s.lay.retrySpace(at.slot)+">")
	answer, err := askServer(ctx, s.nc, msg)
	if err != nil {
		return 0, outcomeUnknown, fmt.Errorf("writing to stream %s: %w", s.name, err)
	}
	var ack struct {
		apiError
		Seq uint64 `json:"seq"`
	}
	switch err := json.Unmarshal(answer.Data, &ack); {
	case err != nil:
		return 0, outcomeUnknown, fmt.Errorf("writing to stream %s: %w", s.name, err)
	case ack.Error == nil:
		return ack.Seq, outcomeDone, nil
	}
	err = fmt.Errorf("writing to stream %s: %s (%d)", s.name, ack.Error.Description, ack.Error.ErrCode)
	switch jetstream.ErrorCode(ack.Error.ErrCode) {
	case codeWrongLastSequence, codeWrongLastSequenceRace:
		return 0, outcomeConflict, err
	}
	return 0, outcomeRefused, err
}

// head returns a key's first queued message, nil for none.
func (s *retryStore) head(ctx context.Context, at place, key string, from uint64) (*queuedMessage, error) {
	return s.decode(s.stream.GetMsg(ctx, from, jetstream.WithGetMsgSubject(s.lay.queuedKeySubject(at, key))))
}

// tail returns a key's last queued message, nil for none.
func (s *retryStore) tail(ctx context.Context, at place, key string) (*queuedMessage, error) {
	return s.decode(s.stream.GetLastMsgForSubject(ctx, s.lay.queuedKeySubject(at, key)))
}

func (s *retryStore) decode(msg *jetstream.RawStreamMsg, err error) (*queuedMessage, error) {
	if errors.Is(err, jetstream.ErrMsgNotFound) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("reading a queued message: %w", err)
	}
	_, finest, key, published, err := s.lay.parseSpace(msg.Subject)
	if err != nil {
		return nil, fmt.Errorf("reading a queued message: %w", err)
	}
	p := &queuedMessage{seq: msg.Sequence, finest: finest, stored: msg.Time,
		Message: Message{Subject: published, Key: JoinKey(key...), Data: msg.Data, Header: nats.Header{}, Queued: true}}
	sequence, err1 := strconv.ParseUint(msg.Header.Get(headerSequence), 10, 64)
	at, err2 := strconv.ParseInt(msg.Header.Get(headerPublished), 10, 64)
	attempts, err3 := strconv.Atoi(msg.Header.Get(headerAttempts))
	if err := errors.Join(err1, err2, err3); err != nil {
		return nil, fmt.Errorf("message %d of stream %s was not queued by a worker: %w; remove it", msg.Sequence, s.name, err)
	}
	p.Sequence, p.Published, p.attempts = sequence, time.Unix(0, at), attempts
	for k, v := range msg.Header {
		switch {
		case k == headerSequence, k == headerPublished, k == headerAttempts, strings.HasPrefix(k, serverHeaders):
		default:
			p.Header[strings.TrimPrefix(k, headerKept)] = v
		}
	}
	return p, nil
}

// erase removes the original of a queued message of a slot from the main stream,
// and reports whether it was there: who has queued it may have died before its
// acknowledgement was booked.
func (s *retryStore) erase(ctx context.Context, at place, o original) (bool, error) {
	main := s.lay.streamOf(at.slot)
	body := record.Encode(struct {
		Seq uint64 `json:"seq"`
	}{o.sequence})
	answer, err := askServer(ctx, s.nc, &nats.Msg{Subject: "$JS.API.STREAM.MSG.GET." + main, Data: body})
	if err != nil {
		return false, fmt.Errorf("looking for the original of a queued message: %w", err)
	}
	var got struct {
		apiError
		Message struct {
			Time time.Time `json:"time"`
		} `json:"message"`
	}
	if err := json.Unmarshal(answer.Data, &got); err != nil {
		return false, fmt.Errorf("looking for the original of a queued message: %w", err)
	}
	switch e := got.Error; {
	case e != nil && jetstream.ErrorCode(e.ErrCode) == codeNoMessage:
		return false, nil
	case e != nil:
		return false, fmt.Errorf("looking for the original of a queued message: %s (%d)", e.Description, e.ErrCode)
	case got.Message.Time.UnixNano() != o.published:
		return false, nil // of another stream of that name
	}
	return true, s.deleteFrom(ctx, main, o.sequence)
}

// remove removes a queued message, and reports whether it was gone before.
func (s *retryStore) remove(ctx context.Context, seq uint64) (before bool, err error) {
	err = s.deleteFrom(ctx, s.name, seq)
	if err == nil {
		return false, nil
	}
	if _, look := s.stream.GetMsg(ctx, seq); errors.Is(look, jetstream.ErrMsgNotFound) {
		return true, nil
	}
	return false, err
}

func (s *retryStore) deleteFrom(ctx context.Context, stream string, seq uint64) error {
	body := record.Encode(struct {
		Seq     uint64 `json:"seq"`
		NoErase bool   `json:"no_erase"`
	}{seq, true})
	msg, err := askServer(ctx, s.nc, &nats.Msg{Subject: "$JS.API.STREAM.MSG.DELETE." + stream, Data: body})
	if err != nil {
		return fmt.Errorf("removing message %d of stream %s: %w", seq, stream, err)
	}
	var answer struct {
		apiError
		Success bool `json:"success"`
	}
	if err := json.Unmarshal(msg.Data, &answer); err != nil {
		return fmt.Errorf("removing message %d of stream %s: %w", seq, stream, err)
	}
	if !answer.Success {
		description := "not done"
		if answer.Error != nil {
			description = answer.Error.Description
		}
		return fmt.Errorf("removing message %d of stream %s: %s", seq, stream, description)
	}
	return nil
}

// RetryQueue is what is in the retry queue of a group.
type RetryQueue struct {
	Messages int
	Keys     map[string]int // messages by key
	Oldest   time.Time      // when the first of them was queued; zero for none
}

// readRetryQueue returns what is queued of a group; nothing if it has no retry stream.
func readRetryQueue(ctx context.Context, nc *nats.Conn, group string) (RetryQueue, error) {
	queue, err := lookAtRetryQueue(ctx, nc, group)
	if err != nil {
		return RetryQueue{}, fmt.Errorf("reading the queued messages of %s: %w", group, err)
	}
	return queue, nil
}

func lookAtRetryQueue(ctx context.Context, nc *nats.Conn, group string) (RetryQueue, error) {
	kv, err := mapBucket(ctx, nc, group)
	if err != nil {
		return RetryQueue{}, err
	}
	rec, err := recordedLayout(ctx, kv)
	if err != nil {
		return RetryQueue{}, err
	}
	lay, err := layoutOf(rec, group)
	if err != nil {
		return RetryQueue{}, err
	}
	js, err := jetstream.New(nc)
	if err != nil {
		return RetryQueue{}, err
	}
	stream, err := js.Stream(ctx, retryStreamName(rec.Stream))
	if errors.Is(err, jetstream.ErrStreamNotFound) {
		return RetryQueue{}, nil
	}
	if err != nil {
		return RetryQueue{}, err
	}
	every := lay.retryPrefix() + "*.key.>"
	out := RetryQueue{}
	if out.Keys, _, err = countSpace(ctx, stream, lay, every); err != nil {
		return RetryQueue{}, err
	}
	for _, n := range out.Keys {
		out.Messages += n
	}
	first, err := stream.GetMsg(ctx, 1, jetstream.WithGetMsgSubject(every))
	switch {
	case err == nil:
		out.Oldest = first.Time
	case !errors.Is(err, jetstream.ErrMsgNotFound):
		return RetryQueue{}, err
	}
	return out, nil
}
