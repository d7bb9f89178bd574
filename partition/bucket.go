package partition

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/muster-dev/muster/partition/internal/record"
)

// buckets carries out the machine's operations on the group's buckets.
type buckets struct {
	js  jetstream.JetStream
	kvs map[string]jetstream.KeyValue
	saw func(bucket string, rev uint64, err error) // the outcome of each operation; nil: not asked for
}

func openBuckets(ctx context.Context, js jetstream.JetStream, cfg Config) (*buckets, error) {
	b := &buckets{js: js, kvs: make(map[string]jetstream.KeyValue)}
	for _, name := range []string{cfg.bucketIDs(), cfg.bucketLeases(), cfg.bucketMap()} {
		kv, err := js.KeyValue(ctx, name)
		if err != nil {
			return nil, fmt.Errorf("opening bucket %s: %w", name, err)
		}
		b.kvs[name] = kv
	}
	return b, nil
}

// Error codes of the server for a write whose expected last sequence is not the
// last one, and for one that it did not compare with anything, since another of the
// same key is under way among the replicas.
const (
	codeWrongLastSequence     jetstream.ErrorCode = 10071
	codeWrongLastSequenceRace jetstream.ErrorCode = 10164
)

// run carries out one operation. Its error is errConflict or errNotFound when
// the server said so; anything else leaves the outcome unknown, after a read
// back that could not tell either.
func (b *buckets) run(ctx context.Context, e kvEffect, timeout time.Duration) kvInput {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	out := kvInput{kvEffect: e}
	switch kv := b.kvs[e.bucket]; e.op {
	case opList:
		out.keys, out.err = listKeys(ctx, kv)
	case opGet:
		there, err := b.latest(ctx, e.bucket, e.key)
		switch {
		case err != nil:
			out.err = err
		case there.rev == 0 || there.deleted:
			out.err = errNotFound
		default:
			out.gotValue, out.gotRev = there.value, there.rev
		}
	case opHistory:
		out.history, out.err = history(ctx, kv, e.key)
	case opCreate, opUpdate:
		out.gotRev, out.err = b.write(ctx, kv, e)
		if out.err != nil {
			b.readBack(&out, timeout)
		}
	case opDelete:
		if e.rev == 0 {
			b.proveAbsent(ctx, &out)
			break
		}
		// A purge: it leaves no history, and a marker that goes by itself.
		out.err = classify(kv.Purge(ctx, e.key, jetstream.LastRevision(e.rev), jetstream.PurgeTTL(markerTTL)))
		if errors.Is(out.err, errConflict) {
			b.lookWhetherGone(&out, timeout)
		}
	}
	if b.saw != nil {
		b.saw(e.bucket, out.gotRev, out.err)
	}
	return out
}

// history returns what is there of a key, oldest first; nothing is no error.
func history(ctx context.Context, kv jetstream.KeyValue, key string) ([]kvVersion, error) {
	entries, err := kv.History(ctx, key)
	if err = classify(err); errors.Is(err, errNotFound) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	all := make([]kvVersion, len(entries))
	for i, e := range entries {
		all[i] = kvVersion{value: e.Value(), rev: e.Revision(), deleted: e.Operation() != jetstream.KeyValuePut}
	}
	return all, nil
}

func listKeys(ctx context.Context, kv jetstream.KeyValue) ([]string, error) {
	l, err := kv.ListKeys(ctx)
	if err != nil {
		return nil, err
	}
	defer func() { _ = l.Stop() }()
	var keys []string
	for k := range l.Keys() {
		keys = append(keys, k)
	}
	// A channel closed by the context's end would look like an empty bucket.
	return keys, ctx.Err()
}

func (b *buckets) write(ctx context.Context, kv jetstream.KeyValue, e kvEffect) (uint64, error) {
	if e.op == opCreate {
		var opts []jetstream.KVCreateOpt
		if e.ttl > 0 {
			opts = append(opts, jetstream.KeyTTL(e.ttl))
		}
		rev, err := kv.Create(ctx, e.key, e.value, opts...)
		return rev, classify(err)
	}
	// KeyValue.Update would drop the key's TTL.
	msg := &nats.Msg{Subject: "$KV." + e.bucket + "." + e.key, Data: e.value}
	opts := []jetstream.PublishOpt{jetstream.WithExpectLastSequencePerSubject(e.rev), jetstream.WithRetryAttempts(0)}
	if e.ttl > 0 {
		opts = append(opts, jetstream.WithMsgTTL(e.ttl))
	}
	ack, err := b.js.PublishMsg(ctx, msg, opts...)
	if err != nil {
		return 0, classify(err)
	}
	return ack.Sequence, nil
}

// readBack settles a write that was refused or whose reply was lost.
func (b *buckets) readBack(out *kvInput, timeout time.Duration) {
	ctx, cancel := context.WithTimeout(context.Background(), timeout)
	defer cancel()
	there, err := b.latest(ctx, out.bucket, out.key)
	if err != nil {
		out.unread(err)
		return
	}
	out.settle(there)
}

// latest returns what is there of a key, and nothing at revision 0. It asks the
// leader of the bucket's stream: any replica may answer a KeyValue's Get, with what
// was there before the write that is to be settled, or that an election followed.
func (b *buckets) latest(ctx context.Context, bucket, key string) (kvVersion, error) {
	request := record.Encode(map[string]string{"last_by_subj": "$KV." + bucket + "." + key})
	msg, err := b.js.Conn().RequestWithContext(ctx, "$JS.API.STREAM.MSG.GET.KV_"+bucket, request)
	if err != nil {
		return kvVersion{}, err
	}
	var answer struct {
		apiError
		Message struct {
			Sequence uint64 `json:"seq"`
			Header   []byte `json:"hdrs"`
			Data     []byte `json:"data"`
		} `json:"message"`
	}
	if err := json.Unmarshal(msg.Data, &answer); err != nil {
		return kvVersion{}, err
	}
	switch e := answer.Error; {
	case e != nil && jetstream.ErrorCode(e.ErrCode) == codeNoMessage:
		return kvVersion{}, nil
	case e != nil:
		return kvVersion{}, fmt.Errorf("%s (%d)", e.Description, e.ErrCode)
	}
	v := kvVersion{value: answer.Message.Data, rev: answer.Message.Sequence}
	if len(answer.Message.Header) > 0 {
		h, err := nats.DecodeHeadersMsg(answer.Message.Header)
		if err != nil {
			return kvVersion{}, err
		}
		v.deleted = h.Get("KV-Operation") != "" || h.Get(jetstream.MarkerReasonHeader) != ""
	}
	return v, nil
}

// proveAbsent writes a key's delete marker on the condition that no value of it is there. It
// succeeds only if the replicas have agreed on that, so its success is a proof, whereas a
// read may be answered by a server that has just lost its place as the stream's leader.
func (b *buckets) proveAbsent(ctx context.Context, out *kvInput) {
	there, err := b.latest(ctx, out.bucket, out.key)
	switch {
	case err != nil:
		out.err = err
		return
	case there.rev > 0 && !there.deleted:
		out.gotValue, out.gotRev = there.value, there.rev
		out.err = fmt.Errorf("%w: revision %d is there", errConflict, there.rev)
		return
	}

	// As KeyValue.Purge, which takes revision 0 for no condition.
	msg := nats.NewMsg("$KV." + out.bucket + "." + out.key)
	msg.Header.Set("KV-Operation", "PURGE")
	msg.Header.Set(jetstream.MsgRollup, jetstream.MsgRollupSubject)
	_, err = b.js.PublishMsg(ctx, msg, jetstream.WithExpectLastSequencePerSubject(there.rev),
		jetstream.WithMsgTTL(markerTTL), jetstream.WithRetryAttempts(0))
	out.err = classify(err)
}

// age returns how long ago a bucket was created again, by the server's clock, and 0 for
// one that was not: those that are begin at a sequence of their own.
func (b *buckets) age(ctx context.Context, bucket string) (time.Duration, error) {
	ctx, cancel := context.WithTimeout(ctx, apiTimeout)
	defer cancel()
	s, err := b.js.Stream(ctx, bucketPrefix+bucket)
	if err != nil {
		return 0, fmt.Errorf("reading when bucket %s was created: %w", bucket, err)
	}
	info := s.CachedInfo()
	if info.Config.FirstSeq <= 1 {
		return 0, nil
	}
	return max(1, info.TimeStamp.Sub(info.Created)), nil
}

// codeNoMessage is the server's for a message that is not there.
const codeNoMessage jetstream.ErrorCode = 10037

// lookWhetherGone tells a key that is not there any more from one that has
// another value, whatever a replica shows that was restarted: one has been seen to
// keep permanently, and show to those who watch, what the others have let expire.
func (b *buckets) lookWhetherGone(out *kvInput, timeout time.Duration) {
	ctx, cancel := context.WithTimeout(context.Background(), timeout)
	defer cancel()
	if there, err := b.latest(ctx, out.bucket, out.key); err == nil && (there.rev == 0 || there.deleted) {
		out.err = errNotFound
	}
}

func classify(err error) error {
	var api *jetstream.APIError
	switch {
	case err == nil:
		return nil
	case errors.Is(err, jetstream.ErrKeyExists):
		return fmt.Errorf("%w: %w", errConflict, err)
	case errors.Is(err, jetstream.ErrKeyNotFound), errors.Is(err, jetstream.ErrKeyDeleted):
		return fmt.Errorf("%w: %w", errNotFound, err)
	case errors.As(err, &api) && api.ErrorCode == codeWrongLastSequenceRace:
		return fmt.Errorf("%w: %w", errUnderWay, err)
	case errors.As(err, &api) && api.ErrorCode == codeWrongLastSequence:
		return fmt.Errorf("%w: %w", errConflict, err)
	}
	return err
}

// ttlOf is a TTL as it is sent to the server, which counts whole seconds and ignores
// the rest: rounded up, or a lease would expire while its holder still relies on it.
func ttlOf(d time.Duration) time.Duration {
	return (d + time.Second - 1).Truncate(time.Second)
}

// mapBucket opens the bucket that has a group's map.
func mapBucket(ctx context.Context, nc *nats.Conn, group string) (jetstream.KeyValue, error) {
	js, err := jetstream.New(nc)
	if err != nil {
		return nil, err
	}
	kv, err := js.KeyValue(ctx, Config{Name: group}.bucketMap())
	if errors.Is(err, jetstream.ErrBucketNotFound) {
		return nil, fmt.Errorf("%w: is there a group of this name?", err)
	}
	if err != nil {
		return nil, err
	}
	return patientBucket{kv}, nil
}

// patientBucket is a bucket whose reads wait while its servers elect a leader, when nobody
// answers. An operator's command that meets that moment is a little slower, and does not fail.
type patientBucket struct{ jetstream.KeyValue }

const (
	electionPatience = 5 * time.Second
	electionPause    = 100 * time.Millisecond
)

// Get implements jetstream.KeyValue.
func (b patientBucket) Get(ctx context.Context, key string) (jetstream.KeyValueEntry, error) {
	patience, cancel := context.WithTimeout(ctx, electionPatience)
	defer cancel()
	for {
		e, err := b.KeyValue.Get(ctx, key)
		if !errors.Is(err, nats.ErrNoResponders) {
			return e, err
		}
		select {
		case <-patience.Done():
			return nil, err
		case <-time.After(electionPause):
		}
	}
}
