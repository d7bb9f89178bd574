package audit

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

// LossAuditor accounts for the messages of a run whose servers lose power. What they
// have copied, and the sequences that they have given out, prove nothing then: both go
// back with the disk. So a message is known by its key and context, and three witnesses
// are outside of the servers: what the publisher was acknowledged, what the processes
// have recorded, and every acknowledgement and dead letter of a worker, as it passes.
type LossAuditor struct {
	*Auditor
	nc   *nats.Conn
	subs []*nats.Subscription

	mu    sync.Mutex
	acked map[delivery]bool
	dead  map[uint64][]time.Time // by sequence, when a message was dead-lettered; the stream of dead letters may be lost
	cuts  []Cut
}

// delivery is a message as a server has numbered it. A sequence alone is given out again
// after a loss.
type delivery struct {
	seq uint64
	at  int64 // ns, when the server stored it
}

// Cut is one loss of power.
type Cut struct {
	Killed time.Time // when the servers were dead
	Back   time.Time // when they were started again; what was acknowledged until then, was before the cut

	holds map[contextKey]bool // messages that the streams had afterwards
}

// BeginLoss begins the audit. Nothing may have been published or stored.
func BeginLoss(ctx context.Context, nc *nats.Conn, c Config) (*LossAuditor, error) {
	js, err := jetstream.New(nc)
	if err != nil {
		return nil, fmt.Errorf("beginning the audit: %w", err)
	}
	a := &LossAuditor{Auditor: &Auditor{c: c, js: js}, nc: nc, acked: map[delivery]bool{}, dead: map[uint64][]time.Time{}}
	for subject, witness := range map[string]nats.MsgHandler{"$JS.ACK.>": a.acknowledged, c.Letters: a.deadLettered} {
		sub, err := nc.Subscribe(subject, witness)
		if err == nil {
			a.subs = append(a.subs, sub)
			err = sub.SetPendingLimits(-1, -1)
		}
		if err != nil {
			return nil, errors.Join(fmt.Errorf("beginning the audit of %s: %w", subject, err), a.Close())
		}
	}
	if err := nc.FlushTimeout(10 * time.Second); err != nil {
		return nil, errors.Join(fmt.Errorf("beginning the audit: %w", err), a.Close())
	}
	if err := a.watchResults(ctx); err != nil {
		return nil, errors.Join(fmt.Errorf("beginning the audit of %s: %w", c.Results, err), a.Close())
	}
	return a, nil
}

// Close ends the audit.
func (a *LossAuditor) Close() error {
	var errs []error
	for _, sub := range a.subs {
		errs = append(errs, sub.Unsubscribe())
	}
	return errors.Join(append(errs, a.Auditor.Close())...)
}

// deadLettered notes a dead letter.
func (a *LossAuditor) deadLettered(msg *nats.Msg) {
	if seq, err := deadOf(msg.Header); err == nil {
		a.mu.Lock()
		defer a.mu.Unlock()
		a.dead[seq] = []time.Time{time.Now()}
	}
}

// acknowledged notes a worker's acknowledgement of a message.
func (a *LossAuditor) acknowledged(msg *nats.Msg) {
	if len(msg.Data) > 0 && !strings.HasPrefix(string(msg.Data), "+ACK") {
		return // in progress, or to be delivered again
	}
	// $JS.ACK.[domain.account.]stream.consumer.delivered.sequence.sequence of the consumer.time.pending
	w := strings.Split(msg.Subject, ".")
	first := 2
	if len(w) >= 11 {
		first = 4
	}
	if len(w) < first+6 {
		return
	}
	inStream, err1 := strconv.ParseUint(w[first+3], 10, 64)
	at, err2 := strconv.ParseInt(w[first+5], 10, 64)
	seq, err3 := a.c.number(w[first], inStream)
	if errors.Join(err1, err2, err3) != nil {
		return // of another stream
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	a.acked[delivery{seq, at}] = true
}

// lookPatience is how long the servers may take to answer after a cut.
const lookPatience = time.Minute

// Cut notes that servers have lost power, and what the streams have since. No worker may
// have taken a message from them, unless the other servers of a cluster have kept their
// power. It returns how many messages there are.
func (a *LossAuditor) Cut(ctx context.Context, c Cut) (int, error) {
	ctx, cancel := context.WithTimeout(ctx, lookPatience)
	defer cancel()
	c.holds = map[contextKey]bool{}
	for _, stream := range a.c.Streams {
		if err := a.look(ctx, stream, c.holds); err != nil {
			return 0, fmt.Errorf("looking at stream %s after a power cut: %w", stream, err)
		}
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	a.cuts = append(a.cuts, c)
	return len(c.holds), nil
}

// look reads what a stream has. A stream that is gone has nothing. Its leader is asked,
// since a follower may have been left behind. What is published meanwhile isn't read: it
// would never end.
func (a *LossAuditor) look(ctx context.Context, stream string, holds map[contextKey]bool) error {
	last, err := a.lastOf(ctx, stream)
	if err != nil || last == 0 {
		return err
	}
	for next := uint64(1); next <= last; {
		var got struct {
			Message struct {
				Seq  uint64 `json:"seq"`
				Data []byte `json:"data"`
			} `json:"message"`
		}
		found, err := a.ask(ctx, "STREAM.MSG.GET."+stream, fmt.Appendf(nil, `{"seq":%d,"next_by_subj":">"}`, next), &got)
		if err != nil || !found {
			return err
		}
		var v struct{ Tool, Chamber, Context string }
		if err := json.Unmarshal(got.Message.Data, &v); err != nil {
			return fmt.Errorf("message %d is not JSON: %w", got.Message.Seq, err)
		}
		holds[contextKey{v.Tool + ":" + v.Chamber, v.Context}] = true
		next = got.Message.Seq + 1
	}
	return nil
}

// lastOf returns the last sequence of a stream, 0 if it is gone.
func (a *LossAuditor) lastOf(ctx context.Context, stream string) (uint64, error) {
	var info struct {
		State struct {
			Last uint64 `json:"last_seq"`
		} `json:"state"`
	}
	_, err := a.ask(ctx, "STREAM.INFO."+stream, nil, &info)
	return info.State.Last, err
}

// ask asks the server's API until there is an answer; found is false if what is asked for
// is not there.
func (a *LossAuditor) ask(ctx context.Context, what string, request []byte, answer any) (found bool, err error) {
	for {
		try, cancel := context.WithTimeout(ctx, 500*time.Millisecond)
		msg, err := a.nc.RequestWithContext(try, "$JS.API."+what, request)
		cancel()
		var failure struct {
			Error *jetstream.APIError `json:"error"`
		}
		if err == nil {
			err = json.Unmarshal(msg.Data, &failure)
		}
		switch {
		case err != nil:
		case failure.Error == nil:
			return true, json.Unmarshal(msg.Data, answer)
		case failure.Error.ErrorCode == jetstream.JSErrCodeMessageNotFound, failure.Error.ErrorCode == jetstream.JSErrCodeStreamNotFound:
			return false, nil
		default:
			err = failure.Error
		}
		if ctx.Err() != nil {
			return false, fmt.Errorf("it does not answer: %w", err)
		}
		pause(ctx, 50*time.Millisecond) // it has no leader yet
	}
}

func pause(ctx context.Context, d time.Duration) {
	select {
	case <-ctx.Done():
	case <-time.After(d):
	}
}

// LossAccount is what became of the messages that servers have acknowledged to their
// publisher. What the fields count from LostOtherwise on is a fault.
type LossAccount struct {
	Messages  int   // acknowledged to the publisher
	Stored    int   // of them, such as have their result
	Lost      int   // of them, such as were not processed and are gone from the streams with a cut
	LostByCut []int // by cut
	OldestMS  int64 // how long before its cut the oldest lost one was acknowledged
	Acks      int   // acknowledgements of workers that were seen
	Again     int   // processings of a message beyond its first, which had no effect

	LostOtherwise   int // neither stored nor lost with a cut
	SilentAcks      int // acknowledged by a worker, and never processed to the end
	DeadLetters     int // dead-lettered: nothing is wrong with any
	AppliedTwice    int // results stored twice, changed or deleted
	FromNowhere     int // results of what the publisher was not acknowledged
	EffectsDisorder int // results stored in another order than that of publishing
	FenceBack       int // results stored under a lower fence than one before of the key
	OutOfOrder      int // begun before the one before of the key was done
	Concurrent      int // begun while another of the key was under way
	Left            int // still in the streams

	Faults []string // the first few, for a person
}

// Clean reports whether nothing went wrong beyond what the cuts have lost.
func (a LossAccount) Clean() bool { return len(a.Faults) == 0 }

func (a *LossAccount) fault(n *int, format string, args ...any) {
	*n++
	if len(a.Faults) < maxFaults {
		a.Faults = append(a.Faults, fmt.Sprintf(format, args...))
	}
}

// Account tells what became of every message that was acknowledged to the publisher, in
// the order of publishing.
func (a *LossAuditor) Account(ctx context.Context, published []Published, deaths map[string]time.Time) (LossAccount, error) {
	e, err := a.gather(ctx)
	if err != nil {
		return LossAccount{}, err
	}
	e.published, e.deaths = published, deaths
	a.mu.Lock()
	defer a.mu.Unlock()
	maps.Copy(e.dead, a.dead)
	return lossAccount(e, a.cuts, a.acked), nil
}

func lossAccount(e evidence, cuts []Cut, acked map[delivery]bool) LossAccount {
	a := LossAccount{Messages: len(e.published), Acks: len(acked), LostByCut: make([]int, len(cuts)), DeadLetters: len(e.dead), Left: int(e.left)}
	if a.DeadLetters > 0 {
		a.Faults = append(a.Faults, fmt.Sprintf("%d messages were dead-lettered", a.DeadLetters))
	}
	if a.Left > 0 {
		a.Faults = append(a.Faults, fmt.Sprintf("%d messages are still in the streams", a.Left))
	}
	stored := a.results(e)
	lost := a.fates(e, cuts, stored)
	a.silence(e, acked)
	a.order(e, lost)
	return a
}

// results checks what is stored: once, unchanged, in order. It returns what has a result.
func (a *LossAccount) results(e evidence) map[contextKey]bool {
	place := map[contextKey]int{} // in the order of publishing
	for i, p := range e.published {
		place[contextKey{p.Key, p.Context}] = i
	}
	stored := map[contextKey]bool{}
	latest := map[string]effect{}
	for _, x := range e.effects {
		c := contextKey{x.key, x.context}
		switch _, known := place[c]; {
		case x.kind != "stored":
			a.fault(&a.AppliedTwice, "%s/%s: its result was %s", x.key, x.context, x.kind)
			continue
		case stored[c]:
			a.fault(&a.AppliedTwice, "%s/%s: its result was stored again", x.key, x.context)
		case !known:
			a.fault(&a.FromNowhere, "%s/%s: a result of what was not acknowledged to the publisher", x.key, x.context)
			continue
		}
		stored[c] = true
		if b, ok := latest[x.key]; ok {
			if place[c] < place[contextKey{b.key, b.context}] {
				a.fault(&a.EffectsDisorder, "%s: %s was stored after %s, which was published later", x.key, x.context, b.context)
			}
			if x.under(b) {
				a.fault(&a.FenceBack, "%s: %s was stored under fence %d.%d, after %d.%d", x.key, x.context, x.version, x.claim, b.version, b.claim)
			}
		}
		latest[x.key] = x
	}
	return stored
}

// fates tells which messages are lost, and with which cut.
func (a *LossAccount) fates(e evidence, cuts []Cut, stored map[contextKey]bool) (lost map[contextKey]bool) {
	lost = map[contextKey]bool{}
	for _, p := range e.published {
		c := contextKey{p.Key, p.Context}
		if stored[c] {
			a.Stored++
			continue
		}
		lost[c] = true
		with := slices.IndexFunc(cuts, func(cut Cut) bool { return p.Acked.Before(cut.Back) && !cut.holds[c] })
		if with < 0 {
			a.fault(&a.LostOtherwise, "%s/%s: acknowledged to the publisher at %s, has no result, and no cut explains it", p.Key, p.Context, stamp(p.Acked))
			continue
		}
		a.Lost++
		a.LostByCut[with]++
		a.OldestMS = max(a.OldestMS, cuts[with].Killed.Sub(p.Acked).Milliseconds())
	}
	return lost
}

// silence looks for acknowledgements of messages that no worker has processed.
func (a *LossAccount) silence(e evidence, acked map[delivery]bool) {
	done := map[delivery]int{}
	for _, r := range e.runs {
		if r.ok {
			done[delivery{r.seq, r.stored}]++
		}
	}
	for _, n := range done {
		a.Again += n - 1
	}
	for _, d := range slices.SortedFunc(maps.Keys(acked), func(x, y delivery) int { return int(x.at - y.at) }) {
		if done[d] == 0 && len(e.dead[d.seq]) == 0 {
			a.fault(&a.SilentAcks, "message %d, stored at %s, was acknowledged by a worker without being processed", d.seq, stamp(time.Unix(0, d.at)))
		}
	}
}

// order checks that no two messages of a key were worked on at a time, and that each
// began when the one before was done, unless that is lost.
func (a *LossAccount) order(e evidence, lost map[contextKey]bool) {
	runs := map[string][]run{}
	for _, r := range e.runs {
		runs[r.key] = append(runs[r.key], r)
	}
	queue := map[string][]string{}
	for _, p := range e.published {
		if c := (contextKey{p.Key, p.Context}); !lost[c] {
			queue[p.Key] = append(queue[p.Key], p.Context)
		}
	}
	effects := map[contextKey]time.Time{}
	for _, x := range e.effects {
		if c := (contextKey{x.key, x.context}); x.kind == "stored" && effects[c].IsZero() {
			effects[c] = x.at
		}
	}
	for _, key := range slices.Sorted(maps.Keys(runs)) {
		rs := runs[key]
		slices.SortFunc(rs, func(x, y run) int { return x.start.Compare(y.start) })
		var both Account
		both.overlaps(rs, e)
		a.Concurrent += both.Concurrent
		a.Faults = append(a.Faults, both.Faults[:min(len(both.Faults), maxFaults-min(maxFaults, len(a.Faults)))]...)
		a.begun(key, queue[key], rs, effects)
	}
}

// begun checks that each message of a key was begun when the one before was done: when
// its processing ended, or its result was stored. A cut may come between the two, and
// lose the message, so that its processing never ends.
func (a *LossAccount) begun(key string, queue []string, runs []run, effects map[contextKey]time.Time) {
	begun, done := map[string]time.Time{}, map[string]time.Time{}
	for _, context := range queue {
		if at, ok := effects[contextKey{key, context}]; ok {
			done[context] = at
		}
	}
	for _, r := range runs {
		if _, ok := begun[r.context]; !ok {
			begun[r.context] = r.start
		}
		if r.ok && (done[r.context].IsZero() || r.end.Before(done[r.context])) {
			done[r.context] = r.end
		}
	}
	for i := 1; i < len(queue); i++ {
		start, started := begun[queue[i]]
		end, isDone := done[queue[i-1]]
		if started && (!isDone || start.Before(end)) {
			a.fault(&a.OutOfOrder, "%s: %s was begun before %s was done", key, queue[i], queue[i-1])
		}
	}
}
