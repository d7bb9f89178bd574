package local

import (
	"bytes"
	"context"
	"database/sql"
	"encoding/json"
	"fmt"
	"iter"
	"slices"
	"strings"
	"time"

	"github.com/muster-dev/muster/nodes"
)

const (
	plainEvent  = 4 << 10            // bytes of JSON up to which an event is kept as it is
	maxEvent    = 256 << 20          // bytes of an event's JSON; bounds what a damaged file can make a reader allocate
	maxContent  = 16 << 20           // bytes of an event as it is kept
	zstdMagic   = "\x28\xb5\x2f\xfd" // with which a compressed event begins; JSON begins with a brace
	expireBatch = 64                 // events that one append looks at, so that no append takes long
)

// Append adds an event and waits until it is on disk. An event that is there already is not added again.
func (s *Store) Append(ctx context.Context, e nodes.Event) error {
	content, err := s.pack(e)
	if err != nil {
		return fmt.Errorf("appending event %s: %w", e.Key(), err)
	}
	err = s.writer.do(ctx, func(conn *sql.Conn) error {
		now := s.opts.Now()
		_, err := conn.ExecContext(ctx, `INSERT INTO events (key, tick, kind, action_id, appended_epoch, checksum, content)
			VALUES (?, ?, ?, ?, ?, ?, ?) ON CONFLICT (key) DO NOTHING`,
			e.Key(), e.Tick, e.Kind, e.ActionID, now.Unix(), checksum(content), content)
		if err != nil {
			return err
		}
		_, err = conn.ExecContext(ctx, `DELETE FROM events
			WHERE id IN (SELECT id FROM events ORDER BY id LIMIT ?) AND appended_epoch < ?`,
			expireBatch, now.Add(-s.opts.Keep).Unix())
		return err
	})
	return s.explain("appending event "+e.Key(), err)
}

// pack returns what is kept of an event: its JSON, compressed if it is large, as snapshots of large clusters
// are.
func (s *Store) pack(e nodes.Event) ([]byte, error) {
	payload, err := json.Marshal(e)
	if err != nil {
		return nil, err
	}
	if len(payload) <= plainEvent {
		return payload, nil
	}
	if len(payload) > maxEvent {
		return nil, fmt.Errorf("it has %d bytes, the event log takes %d", len(payload), maxEvent)
	}
	packed := s.enc.EncodeAll(payload, nil)
	if len(packed) > maxContent {
		return nil, fmt.Errorf("it has %d bytes compressed, the event log takes %d", len(packed), maxContent)
	}
	return packed, nil
}

// unpack reads what is kept of an event.
func (s *Store) unpack(content []byte) (nodes.Event, error) {
	var e nodes.Event
	if bytes.HasPrefix(content, []byte(zstdMagic)) {
		var err error
		if content, err = s.dec.DecodeAll(content, nil); err != nil {
			return e, fmt.Errorf("decompressing it: %w", err)
		}
	}
	err := json.Unmarshal(content, &e)
	return e, err
}

// Read yields the matching events, oldest first, as they are when it begins.
func (s *Store) Read(ctx context.Context, q nodes.Query) iter.Seq2[nodes.Event, error] {
	return func(yield func(nodes.Event, error) bool) {
		var newest []nodes.Event // with a limit, the last events that matched, newest first
		err := s.scan(ctx, q, func(e nodes.Event) (more bool) {
			if q.Limit == 0 {
				return yield(e, nil)
			}
			newest = append(newest, e)
			return len(newest) < q.Limit
		})
		if err != nil {
			yield(nodes.Event{}, s.explain("reading the event log", err))
			return
		}

		for _, e := range slices.Backward(newest) {
			if !yield(e, nil) {
				return
			}
		}
	}
}

// scan calls f with the matching events until f returns false: oldest first, or newest first if there is a
// limit.
func (s *Store) scan(ctx context.Context, q nodes.Query, f func(nodes.Event) (more bool)) error {
	query, args := selection(q)
	rows, err := s.reader.QueryContext(ctx, query, args...)
	if err != nil {
		return err
	}
	defer func() { _ = rows.Close() }()

	for rows.Next() {
		var key string
		var content []byte
		var sum int64
		if err := rows.Scan(&key, &content, &sum); err != nil {
			return err
		}
		if checksum(content) != sum {
			return &CorruptError{File: s.path, What: "event " + key}
		}
		e, err := s.unpack(content)
		if err != nil {
			return fmt.Errorf("reading event %s: %w", key, err)
		}
		if q.Matches(e) && !f(e) {
			return nil
		}
	}
	return rows.Err()
}

// selection is the query for all events that may match. Keys begin with milliseconds, so times are compared
// to the millisecond here, and exactly by [nodes.Query.Matches].
func selection(q nodes.Query) (query string, args []any) {
	var conditions []string
	where := func(condition string, arg any) {
		conditions = append(conditions, condition)
		args = append(args, arg)
	}
	if !q.Since.IsZero() {
		where("key >= ?", millis(q.Since))
	}
	if !q.Until.IsZero() {
		where("key < ?", millis(q.Until.Add(time.Millisecond)))
	}
	if q.Tick != "" {
		where("tick = ?", q.Tick)
	}
	if q.Kind != "" {
		where("kind = ?", q.Kind)
	}
	if q.ActionID != "" {
		where("action_id = ?", q.ActionID)
	}

	query = "SELECT key, content, checksum FROM events"
	if len(conditions) > 0 {
		query += " WHERE " + strings.Join(conditions, " AND ")
	}
	query += " ORDER BY key"
	if q.Limit > 0 {
		query += " DESC"
	}
	return query, args
}

// millis is how the key of an event of this time begins.
func millis(t time.Time) string {
	before, _, _ := strings.Cut(nodes.Event{At: t}.Key(), "#")
	return before
}
