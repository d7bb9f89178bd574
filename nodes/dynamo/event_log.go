package dynamo

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"iter"
	"slices"
	"strings"
	"sync"
	"time"
	"unicode/utf8"

	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"
	"github.com/klauspost/compress/zstd"

	"github.com/muster-dev/muster/nodes"
)

const (
	sortAttribute = "sk"

	plainEvent = 4 << 10   // bytes of JSON up to which an event is kept as attributes that people can read
	partSize   = 380 << 10 // bytes of a compressed event in one item; leaves room for its keys and names
	preview    = 256       // bytes of a packed event's message that people see all the same
	maxEvent   = 256 << 20 // bytes of an event's JSON; bounds what a damaged item can make a reader allocate

	partsLinger = 24 * time.Hour // an event's parts outlive it, so that no reader finds it without them
	daysLinger  = 48 * time.Hour // the mention of a day outlives its events
	daysAgain   = 12 * time.Hour // a day is mentioned again after this, while events of it are still written
)

// EventLog keeps a cluster's events; it implements nodes.EventLog.
//
// An event is an item in the partition of its day (in UTC), under its Key. A small one is kept as attributes; a larger one is
// compressed, split if it passes DynamoDB's limit, and put together again by Read. Its parts are written before the item that names
// them, so that an event that can be seen is whole.
type EventLog struct {
	*DB
	enc *zstd.Encoder
	dec *zstd.Decoder

	mu   sync.Mutex
	days map[string]time.Time // when this process mentioned a day
}

var _ nodes.EventLog = (*EventLog)(nil)

func newEventLog(d *DB) *EventLog {
	// Neither fails with options that are in range; one goroutine each suffices for a few events a minute.
	enc, err := zstd.NewWriter(nil, zstd.WithEncoderConcurrency(1))
	if err != nil {
		panic(err)
	}
	dec, err := zstd.NewReader(nil, zstd.WithDecoderConcurrency(1), zstd.WithDecoderMaxMemory(maxEvent))
	if err != nil {
		panic(err)
	}
	return &EventLog{DB: d, enc: enc, dec: dec, days: map[string]time.Time{}}
}

// CorruptError says that an event in the event log is not what was written.
type CorruptError struct {
	Table string
	Key   string // the event's
	Why   string
}

// Error names the table and the event.
func (e *CorruptError) Error() string {
	return fmt.Sprintf("event %s in table %s is damaged: %s", e.Key, e.Table, e.Why)
}

// Append adds an event. One that is there already is not added again.
func (j *EventLog) Append(ctx context.Context, e nodes.Event) error {
	payload, err := json.Marshal(e)
	if err != nil {
		return fmt.Errorf("encoding event %s: %w", e.Key(), err)
	}
	if len(payload) > maxEvent {
		return fmt.Errorf("event %s has %d bytes, the event log takes %d", e.Key(), len(payload), maxEvent)
	}
	if err := j.mentionDay(ctx, e.At); err != nil {
		return err
	}
	expires := j.cfg.Now().AddDate(0, 0, j.cfg.KeepDays)
	it := item{
		keyAttribute: text(j.dayKey(day(e.At))), sortAttribute: text(e.Key()), expiryAttribute: count(expires.Unix()),
		"at": text(e.At.Format(time.RFC3339Nano)), "tick": text(e.Tick), "seq": count(int64(e.Seq)), "kind": text(e.Kind),
	}
	for name, v := range map[string]string{"actionId": e.ActionID, "instance": e.Instance} {
		if v != "" {
			it[name] = text(v)
		}
	}
	if len(payload) <= plainEvent {
		err = inline(it, payload)
	} else {
		err = j.pack(ctx, it, e, payload, expires.Add(partsLinger))
	}
	if err != nil {
		return err
	}
	if n, largest := size(it); n > maxItem {
		return &ItemTooLargeError{Key: e.Key(), Bytes: n, Attribute: largest}
	}
	absent := "attribute_not_exists(" + keyAttribute + ")"
	_, err = j.api.PutItem(ctx, &dynamodb.PutItemInput{TableName: &j.cfg.LogsTable, Item: it, ConditionExpression: &absent})
	if err != nil && !conditionFailed(err) {
		return j.explain("appending event "+e.Key(), j.cfg.LogsTable, "PutItem", err)
	}
	return nil
}

// inline adds what is left of a small event. Data is taken from its JSON, where it is compact and known to be valid.
func inline(it item, payload []byte) error {
	var e nodes.Event
	if err := json.Unmarshal(payload, &e); err != nil {
		return err
	}
	if e.Message != "" {
		it["message"] = text(e.Message)
	}
	if len(e.Data) > 0 {
		it["data"] = text(string(e.Data))
	}
	return nil
}

// pack adds a large event's compressed JSON, or writes it to items of its own and adds where they are. Their key has the hash of
// their content: two different events under one key, of which only the first counts, don't mix.
func (j *EventLog) pack(ctx context.Context, it item, e nodes.Event, payload []byte, expires time.Time) error {
	if e.Message != "" {
		it["message"] = text(shorten(e.Message, preview))
	}
	packed := j.enc.EncodeAll(payload, nil)
	sum := sha256.Sum256(packed)
	it["sha256"] = text(hex.EncodeToString(sum[:]))
	rest := 0
	for _, name := range []string{"actionId", "instance", "tick", "kind", "message"} {
		rest += len(textOf(it, name))
	}
	if len(packed)+rest <= partSize {
		it["packed"] = &types.AttributeValueMemberB{Value: packed}
		return nil
	}
	parts := 0
	for chunk := range slices.Chunk(packed, partSize) {
		part := item{
			keyAttribute: text(j.partsKey(e.Key(), textOf(it, "sha256"))), sortAttribute: text(fmt.Sprintf("%06d", parts)),
			"packed": &types.AttributeValueMemberB{Value: chunk}, expiryAttribute: count(expires.Unix()),
		}
		if _, err := j.api.PutItem(ctx, &dynamodb.PutItemInput{TableName: &j.cfg.LogsTable, Item: part}); err != nil {
			return j.explain("appending event "+e.Key(), j.cfg.LogsTable, "PutItem", err)
		}
		parts++
	}
	it["parts"] = count(int64(parts))
	return nil
}

func shorten(s string, most int) string {
	if len(s) <= most {
		return s
	}
	for most > 0 && !utf8.RuneStart(s[most]) {
		most--
	}
	return s[:most] + "..."
}

// mentionDay notes that a day has events, before the first is written, so that a reader finds them without knowing when they began.
func (j *EventLog) mentionDay(ctx context.Context, at time.Time) error {
	d, now := day(at), j.cfg.Now()
	j.mu.Lock()
	last, ok := j.days[d]
	j.mu.Unlock()
	if ok && now.Sub(last) < daysAgain {
		return nil
	}
	it := item{
		keyAttribute: text(j.daysKey()), sortAttribute: text(d),
		expiryAttribute: count(now.AddDate(0, 0, j.cfg.KeepDays).Add(daysLinger).Unix()),
	}
	if _, err := j.api.PutItem(ctx, &dynamodb.PutItemInput{TableName: &j.cfg.LogsTable, Item: it}); err != nil {
		return j.explain("noting that "+d+" has events", j.cfg.LogsTable, "PutItem", err)
	}
	j.mu.Lock()
	defer j.mu.Unlock()
	for old, at := range j.days {
		if now.Sub(at) >= daysAgain {
			delete(j.days, old)
		}
	}
	j.days[d] = now
	return nil
}

var errStop = errors.New("the reader has enough")

// Read yields the matching events, oldest first. With a limit it reads backwards from the newest, so that asking for the last few
// is cheap however long the event log is. Expired events are gone, whether DynamoDB has removed them yet or not. A damaged event is
// a *CorruptError.
func (j *EventLog) Read(ctx context.Context, q nodes.Query) iter.Seq2[nodes.Event, error] {
	return func(yield func(nodes.Event, error) bool) {
		var newest []nodes.Event
		err := j.scan(ctx, q, func(e nodes.Event) error {
			if q.Limit > 0 {
				if newest = append(newest, e); len(newest) == q.Limit {
					return errStop
				}
			} else if !yield(e, nil) {
				return errStop
			}
			return nil
		})
		if err != nil && !errors.Is(err, errStop) {
			yield(nodes.Event{}, err)
			return
		}
		for _, e := range slices.Backward(newest) {
			if !yield(e, nil) {
				return
			}
		}
	}
}

// scan calls f with the matching events, newest first if q has a limit, else oldest first, until f returns an error.
func (j *EventLog) scan(ctx context.Context, q nodes.Query, f func(nodes.Event) error) error {
	days, err := j.listDays(ctx, q)
	if err != nil {
		return err
	}
	if q.Limit > 0 {
		slices.Reverse(days)
	}
	for _, d := range days {
		in := j.dayQuery(d, q)
		err := j.pages(ctx, "reading the event log", in, func(it item) error {
			e, err := j.event(ctx, it)
			if err != nil || !q.Matches(e) {
				return err
			}
			return f(e)
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// listDays returns the days that may have matching events, oldest first.
func (j *EventLog) listDays(ctx context.Context, q nodes.Query) ([]string, error) {
	var out []string
	in := j.query(text(j.daysKey()))
	err := j.pages(ctx, "reading the event log's days", in, func(it item) error {
		d := textOf(it, sortAttribute)
		if (q.Since.IsZero() || d >= day(q.Since)) && (q.Until.IsZero() || d <= day(q.Until)) {
			out = append(out, d)
		}
		return nil
	})
	return out, err
}

// dayQuery asks for the events of a day that q selects, as far as DynamoDB can tell; Query.Matches has the last word.
func (j *EventLog) dayQuery(d string, q nodes.Query) *dynamodb.QueryInput {
	in := j.query(text(j.dayKey(d)))
	// Keys begin with the event's milliseconds, '#' follows; '$' is the character after it.
	low, high := "!", "~"
	if !q.Since.IsZero() {
		low = millis(q.Since)
	}
	if !q.Until.IsZero() {
		high = millis(q.Until) + "$"
	}
	*in.KeyConditionExpression += " AND #sk BETWEEN :low AND :high"
	in.ExpressionAttributeNames["#sk"] = sortAttribute
	in.ExpressionAttributeValues[":low"], in.ExpressionAttributeValues[":high"] = text(low), text(high)
	for name, want := range map[string]string{"tick": q.Tick, "kind": q.Kind, "actionId": q.ActionID} {
		if want != "" {
			*in.FilterExpression += " AND #" + name + " = :" + name
			in.ExpressionAttributeNames["#"+name], in.ExpressionAttributeValues[":"+name] = name, text(want)
		}
	}
	if q.Limit > 0 {
		backwards := false
		in.ScanIndexForward = &backwards
		if q.Tick == "" && q.Kind == "" && q.ActionID == "" && q.Limit < 1000 {
			most := int32(q.Limit)
			in.Limit = &most
		}
	}
	return in
}

// query asks for the items of a partition that have not expired.
func (j *EventLog) query(partition types.AttributeValue) *dynamodb.QueryInput {
	yes, key, filter := true, "#pk = :pk", "(attribute_not_exists(#expires) OR #expires > :now)"
	return &dynamodb.QueryInput{
		TableName: &j.cfg.LogsTable, ConsistentRead: &yes, KeyConditionExpression: &key, FilterExpression: &filter,
		ExpressionAttributeNames:  map[string]string{"#pk": keyAttribute, "#expires": expiryAttribute},
		ExpressionAttributeValues: item{":pk": partition, ":now": count(j.cfg.Now().Unix())},
	}
}

// pages calls f with every item of a query, page by page, until f returns an error.
func (j *EventLog) pages(ctx context.Context, doing string, in *dynamodb.QueryInput, f func(item) error) error {
	for {
		out, err := j.api.Query(ctx, in)
		if err != nil {
			return j.explain(doing, j.cfg.LogsTable, "Query", err)
		}
		for _, it := range out.Items {
			if err := f(it); err != nil {
				return err
			}
		}
		if in.ExclusiveStartKey = out.LastEvaluatedKey; len(in.ExclusiveStartKey) == 0 {
			return nil
		}
	}
}

// event puts an event together.
func (j *EventLog) event(ctx context.Context, it item) (nodes.Event, error) {
	key := textOf(it, sortAttribute)
	corrupt := func(why string, args ...any) (nodes.Event, error) {
		return nodes.Event{}, &CorruptError{Table: j.cfg.LogsTable, Key: key, Why: fmt.Sprintf(why, args...)}
	}
	var e nodes.Event
	if textOf(it, "sha256") == "" {
		at, err := time.Parse(time.RFC3339Nano, textOf(it, "at"))
		if err != nil {
			return corrupt("its time %q can't be read", textOf(it, "at"))
		}
		seq, ok := countOf(it, "seq")
		if !ok {
			return corrupt("it has no seq")
		}
		e = nodes.Event{At: at, Tick: textOf(it, "tick"), Seq: int(seq), Kind: textOf(it, "kind"), ActionID: textOf(it, "actionId"),
			Instance: textOf(it, "instance"), Message: textOf(it, "message")}
		if data := textOf(it, "data"); data != "" {
			if e.Data = json.RawMessage(data); !json.Valid(e.Data) {
				return corrupt("its data is no JSON")
			}
		}
	} else {
		packed, err := j.unpacked(ctx, it, key)
		if err != nil {
			return e, err
		}
		if sum := sha256.Sum256(packed); hex.EncodeToString(sum[:]) != textOf(it, "sha256") {
			return corrupt("its content does not match its checksum")
		}
		payload, err := j.dec.DecodeAll(packed, nil)
		if err != nil {
			return corrupt("it can't be decompressed: %v", err)
		}
		if err := json.Unmarshal(payload, &e); err != nil {
			return corrupt("its JSON can't be read: %v", err)
		}
	}
	if e.Key() != key {
		return corrupt("it holds event %s", e.Key())
	}
	return e, nil
}

// unpacked returns a large event's compressed bytes, from its item or from its parts.
func (j *EventLog) unpacked(ctx context.Context, it item, key string) ([]byte, error) {
	if b, ok := it["packed"].(*types.AttributeValueMemberB); ok {
		return b.Value, nil
	}
	want, _ := countOf(it, "parts")
	var packed []byte
	n := int64(0)
	err := j.pages(ctx, "reading event "+key, j.query(text(j.partsKey(key, textOf(it, "sha256")))), func(part item) error {
		b, ok := part["packed"].(*types.AttributeValueMemberB)
		if !ok || textOf(part, sortAttribute) != fmt.Sprintf("%06d", n) {
			return &CorruptError{Table: j.cfg.LogsTable, Key: key, Why: fmt.Sprintf("part %d of %d is missing or damaged", n, want)}
		}
		packed = append(packed, b.Value...)
		n++
		return nil
	})
	if err == nil && (n != want || n == 0) {
		err = &CorruptError{Table: j.cfg.LogsTable, Key: key, Why: fmt.Sprintf("it has %d of its %d parts", n, want)}
	}
	return packed, err
}

func day(t time.Time) string { return t.UTC().Format(time.DateOnly) }

func millis(t time.Time) string { return strings.SplitN(nodes.Event{At: t}.Key(), "#", 2)[0] }

func (j *EventLog) dayKey(d string) string {
	return "journal#" + nodes.RecordKey(j.cfg.Cluster) + "#" + d
}

func (j *EventLog) daysKey() string { return "days#" + nodes.RecordKey(j.cfg.Cluster) }

func (j *EventLog) partsKey(key, sum string) string {
	return "parts#" + nodes.RecordKey(j.cfg.Cluster) + "#" + key + "#" + sum[:min(16, len(sum))]
}

// EventLog returns the cluster's event log.
func (d *DB) EventLog() *EventLog { return newEventLog(d) }
