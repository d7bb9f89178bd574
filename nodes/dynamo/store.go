package dynamo

import (
	"context"
	"fmt"
	"maps"
	"math/rand/v2"
	"reflect"
	"slices"
	"strings"
	"time"

	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"

	"github.com/muster-dev/muster/nodes"
)

// Names of attributes that this package itself looks at.
const (
	keyAttribute      = "pk"
	revisionAttribute = "revision"
	schemaAttribute   = "schemaVersion"
	expiryAttribute   = "expiresEpoch" // of the time to live, in both tables
)

// Store keeps one cluster's record and interruptions; it implements nodes.Store.
type Store struct{ *DB }

var _ nodes.Store = (*Store)(nil)

// Load returns the record, a new one if there is none. One of a newer schema is an error that wraps nodes.ErrSchemaTooNew.
func (s *Store) Load(ctx context.Context) (nodes.Record, error) {
	r, _, err := s.record(ctx)
	return r, err
}

// Apply makes one transition.
func (s *Store) Apply(ctx context.Context, t nodes.Transition) (nodes.Record, error) {
	for try := 0; ; try++ {
		r, raw, err := s.record(ctx)
		if isTooNew(raw) {
			return r, &nodes.RefusedError{Transition: t.Name(), Condition: nodes.ErrSchemaTooNew, Detail: err.Error()}
		}
		if err != nil {
			return r, err
		}
		next, changed, err := nodes.Applied(r, t)
		if err != nil || !changed {
			return next, err
		}
		done, err := s.write(ctx, "writing the record", nodes.RecordKey(s.cfg.Cluster), raw, r, next)
		if err != nil || done {
			return next, err
		}
		if err := backOff(ctx, try); err != nil {
			return r, fmt.Errorf("writing the record in table %s: %w", s.cfg.StateTable, err)
		}
	}
}

// record returns the record and the item that it was read from, nil if there is none.
func (s *Store) record(ctx context.Context) (nodes.Record, item, error) {
	r := nodes.NewRecord(s.cfg.Cluster)
	raw, err := s.get(ctx, "reading the record", r.PK)
	if err != nil || raw == nil {
		return r, raw, err
	}
	if isTooNew(raw) {
		v, _ := countOf(raw, schemaAttribute)
		return r, raw, fmt.Errorf("item %s of table %s: %w: version %d, this program knows %d", r.PK, s.cfg.StateTable, nodes.ErrSchemaTooNew, v, nodes.SchemaVersion)
	}
	if err := decode(raw, &r); err != nil {
		return r, raw, &ItemError{Table: s.cfg.StateTable, Key: r.PK, Why: err.Error()}
	}
	return r, raw, nil
}

// isTooNew is asked before the record is decoded: a newer one may have attributes of other types.
func isTooNew(raw item) bool {
	v, ok := countOf(raw, schemaAttribute)
	return ok && v > nodes.SchemaVersion
}

// get reads an item, nil if there is none.
func (s *Store) get(ctx context.Context, doing, key string) (item, error) {
	yes := true
	out, err := s.api.GetItem(ctx, &dynamodb.GetItemInput{
		TableName: &s.cfg.StateTable, Key: item{keyAttribute: text(key)}, ConsistentRead: &yes,
	})
	if err != nil {
		return nil, s.explain(doing, s.cfg.StateTable, "GetItem", err)
	}
	if len(out.Item) == 0 {
		return nil, nil
	}
	return out.Item, nil
}

// write turns the item raw, which was read as before, into after, if nobody has written it since; done is false if somebody has.
// What raw has beyond them stays.
func (s *Store) write(ctx context.Context, doing, key string, raw item, before, after any) (done bool, err error) {
	was, err := encode(before)
	if err != nil {
		return false, fmt.Errorf("%s: %w", doing, err)
	}
	is, err := encode(after)
	if err != nil {
		return false, fmt.Errorf("%s: %w", doing, err)
	}
	if raw == nil {
		was = nil // a new item gets every attribute, also those that say nothing yet
	}
	u, whole := change(raw, was, is)
	whole[keyAttribute] = text(key)
	if n, largest := size(whole); n > maxItem {
		return false, &ItemTooLargeError{Key: key, Bytes: n, Attribute: largest}
	}
	_, err = s.api.UpdateItem(ctx, &dynamodb.UpdateItemInput{
		TableName: &s.cfg.StateTable, Key: item{keyAttribute: text(key)},
		UpdateExpression: u.expression(), ConditionExpression: u.condition(),
		ExpressionAttributeNames: u.names, ExpressionAttributeValues: u.attributeValues(),
	})
	switch {
	case err == nil:
		return true, nil
	case conditionFailed(err):
		return false, nil
	case tooLarge(err):
		return false, &ItemTooLargeError{Key: key}
	}
	return false, s.explain(doing, s.cfg.StateTable, "UpdateItem", err)
}

// change returns the update from was to is with its condition, and the item that it makes of raw. The condition is the revision; an
// item that another program wrote has none, so there every attribute that changes has to be what was read.
func change(raw, was, is item) (*update, item) {
	u, whole := newUpdate(), maps.Clone(raw)
	if whole == nil {
		whole = item{}
		u.expect(keyAttribute, nil)
	} else {
		u.expect(revisionAttribute, raw[revisionAttribute])
	}
	names := slices.Sorted(maps.Keys(is))
	for name := range was {
		if is[name] == nil {
			names = append(names, name)
		}
	}
	for _, name := range names {
		if name == keyAttribute || reflect.DeepEqual(was[name], is[name]) {
			continue
		}
		if raw != nil && raw[revisionAttribute] == nil && name != revisionAttribute {
			u.expect(name, raw[name])
		}
		u.change(name, is[name])
		if is[name] == nil {
			delete(whole, name)
		} else {
			whole[name] = is[name]
		}
	}
	return u, whole
}

// backOff waits a moment after a lost race, longer the more were lost: the winner is likely to write again.
func backOff(ctx context.Context, try int) error {
	t := time.NewTimer(time.Duration(rand.Int64N(int64(time.Millisecond) << min(try, 6))))
	defer t.Stop()
	select {
	case <-t.C:
		return ctx.Err()
	case <-ctx.Done():
		return ctx.Err()
	}
}

// ---- interruptions

// openPrefix begins the names of the attributes that say which interruptions may be open.
const openPrefix = "open:"

// staleAfter is the age at which a mention of an interruption that is not open is taken for a leftover and not for one that is
// about to be opened. Being wrong costs the opener a second try, nothing else.
const staleAfter = 10 * time.Minute

// OpenInterruptions returns every interruption that is not closed, by instance ID. It reads the index and the items that the index
// mentions, nothing else.
func (s *Store) OpenInterruptions(ctx context.Context) ([]nodes.Interruption, error) {
	index, err := s.get(ctx, "listing the open interruptions", s.indexKey())
	if err != nil {
		return nil, err
	}
	var keys []string
	tokens := map[string]string{} // by item
	for name := range index {
		if id, ok := strings.CutPrefix(name, openPrefix); ok {
			keys = append(keys, s.interruptionKey(id))
			tokens[s.interruptionKey(id)] = textOf(index, name)
		}
	}
	items, err := s.getAll(ctx, keys)
	if err != nil {
		return nil, err
	}
	var out []nodes.Interruption
	for _, key := range keys {
		i, err := s.interruption(key, items[key])
		if err != nil {
			return nil, err
		}
		if items[key] != nil && !i.Closed {
			out = append(out, i)
			continue
		}
		s.tidy(ctx, key, tokens[key], items[key], i)
	}
	slices.SortFunc(out, func(a, b nodes.Interruption) int { return strings.Compare(a.InstanceID, b.InstanceID) })
	return out, nil
}

// getAll reads items of the state table by key, as many at a time as DynamoDB takes.
func (s *Store) getAll(ctx context.Context, keys []string) (map[string]item, error) {
	const doing, most = "reading the open interruptions", 100
	out := map[string]item{}
	yes := true
	for chunk := range slices.Chunk(keys, most) {
		var ask []item
		for _, k := range chunk {
			ask = append(ask, item{keyAttribute: text(k)})
		}
		for try := 0; len(ask) > 0; try++ {
			if try > 0 { // DynamoDB hands back what it had no capacity for
				if err := backOff(ctx, try+4); err != nil {
					return nil, fmt.Errorf("%s in table %s: %w", doing, s.cfg.StateTable, err)
				}
			}
			res, err := s.api.BatchGetItem(ctx, &dynamodb.BatchGetItemInput{
				RequestItems: map[string]types.KeysAndAttributes{s.cfg.StateTable: {Keys: ask, ConsistentRead: &yes}},
			})
			if err != nil {
				return nil, s.explain(doing, s.cfg.StateTable, "BatchGetItem", err)
			}
			for _, it := range res.Responses[s.cfg.StateTable] {
				out[textOf(it, keyAttribute)] = it
			}
			ask = res.UnprocessedKeys[s.cfg.StateTable].Keys
		}
	}
	return out, nil
}

// ApplyInterruption makes one transition of an interruption.
//
// The index must mention every open interruption, always, although two items can't be written at once. So an interruption is
// mentioned before it is opened, under a token of that very attempt, and the mention is removed after it was closed, only if the
// token is still the one that was read before it was closed. Suppose somebody opens it again meanwhile: its write is conditional on
// a revision, so it has read the item after the closing write, and mentioned it after that, under a new token, which keeps the
// mention in place. A crash in between leaves a mention of what is not open, and tidy removes it by the same rule.
func (s *Store) ApplyInterruption(ctx context.Context, instanceID string, t nodes.InterruptionTransition) (nodes.Interruption, error) {
	const doing = "writing an interruption"
	key := s.interruptionKey(instanceID)
	for try := 0; ; try++ {
		raw, err := s.get(ctx, "reading an interruption", key)
		if err != nil {
			return nodes.Interruption{}, err
		}
		i, err := s.interruption(key, raw)
		if err != nil {
			return i, err
		}
		next, changed, err := nodes.AppliedInterruption(i, t)
		if err != nil || !changed {
			return next, err
		}
		was, is := raw != nil && !i.Closed, !next.Closed
		token := ""
		switch {
		case is && !was:
			err = s.mention(ctx, instanceID)
		case was && !is:
			token, err = s.mentioned(ctx, instanceID)
		}
		if err != nil {
			return i, err
		}
		done, err := s.write(ctx, doing, key, raw, i, next)
		if err != nil {
			return next, err
		}
		if done {
			s.forget(ctx, instanceID, token)
			return next, nil
		}
		if err := backOff(ctx, try); err != nil {
			return i, fmt.Errorf("%s in table %s: %w", doing, s.cfg.StateTable, err)
		}
	}
}

// interruption decodes an item; no item is a zero Interruption.
func (s *Store) interruption(key string, raw item) (nodes.Interruption, error) {
	var i nodes.Interruption
	if raw == nil {
		return i, nil
	}
	if err := decode(raw, &i); err != nil {
		return nodes.Interruption{}, &ItemError{Table: s.cfg.StateTable, Key: key, Why: err.Error()}
	}
	return i, nil
}

// mention notes in the index that the interruption is about to be opened.
func (s *Store) mention(ctx context.Context, instanceID string) error {
	u := newUpdate()
	u.change(openPrefix+instanceID, text(fmt.Sprintf("%d-%016x", s.cfg.Now().Unix(), rand.Uint64())))
	_, err := s.api.UpdateItem(ctx, &dynamodb.UpdateItemInput{
		TableName: &s.cfg.StateTable, Key: item{keyAttribute: text(s.indexKey())},
		UpdateExpression: u.expression(), ExpressionAttributeNames: u.names, ExpressionAttributeValues: u.attributeValues(),
	})
	if err != nil {
		return s.explain("noting an interruption as open", s.cfg.StateTable, "UpdateItem", err)
	}
	return nil
}

// mentioned returns the token under which the index has the interruption, "" if it has not.
func (s *Store) mentioned(ctx context.Context, instanceID string) (string, error) {
	index, err := s.get(ctx, "reading the open interruptions", s.indexKey())
	return textOf(index, openPrefix+instanceID), err
}

// forget removes a mention if it still has the token. One that stays does no harm and is tidied up later, so errors are not reported.
func (s *Store) forget(ctx context.Context, instanceID, token string) {
	if token == "" {
		return
	}
	u := newUpdate()
	u.change(openPrefix+instanceID, nil)
	u.expect(openPrefix+instanceID, text(token))
	_, _ = s.api.UpdateItem(ctx, &dynamodb.UpdateItemInput{
		TableName: &s.cfg.StateTable, Key: item{keyAttribute: text(s.indexKey())},
		UpdateExpression: u.expression(), ConditionExpression: u.condition(),
		ExpressionAttributeNames: u.names, ExpressionAttributeValues: u.attributeValues(),
	})
}

// tidy removes an old mention of an interruption that is not open. It first writes the item, so that a process that read it before and is
// still about to open it has to read it again.
func (s *Store) tidy(ctx context.Context, key, token string, raw item, i nodes.Interruption) {
	var at int64
	if _, err := fmt.Sscanf(token, "%d-", &at); err != nil || s.cfg.Now().Sub(time.Unix(at, 0)) < staleAfter {
		return
	}
	next := i
	next.Revision++
	if raw == nil {
		next.Closed, next.ExpiresEpoch = true, s.cfg.Now().Add(24*time.Hour).Unix()
	}
	if done, err := s.write(ctx, "tidying up", key, raw, i, next); err == nil && done {
		s.forget(ctx, strings.TrimPrefix(key, s.interruptionKey("")), token)
	}
}

func (s *Store) interruptionKey(instanceID string) string {
	if s.cfg.Cluster == "" {
		return "interruption#" + instanceID
	}
	return "interruption#" + s.cfg.Cluster + "#" + instanceID
}

func (s *Store) indexKey() string {
	if s.cfg.Cluster == "" {
		return "interruptions"
	}
	return "interruptions#" + s.cfg.Cluster
}

// Store returns the record and the interruptions.
func (d *DB) Store() *Store { return &Store{d} }
