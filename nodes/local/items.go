package local

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/cespare/xxhash/v2"

	"github.com/muster-dev/muster/internal/sqlitefile"
	"github.com/muster-dev/muster/nodes"
)

// CorruptError says that what a file holds is not what was written.
type CorruptError struct {
	File string
	What string // is damaged
}

// Error names the file and what is damaged in it, and what can be done.
func (e *CorruptError) Error() string {
	return fmt.Sprintf("%s: %s is damaged: "+
		"restore the file from a backup, or move it away to begin a new record", e.File, e.What)
}

// checksum is of a row's content. SQLite has integers of 64 bits with a sign.
func checksum(content []byte) int64 { return int64(xxhash.Sum64(content)) } //nolint:gosec // all bits are kept

// Load returns the record, a new one if there is none.
func (s *Store) Load(ctx context.Context) (nodes.Record, error) {
	r := nodes.NewRecord(s.opts.Cluster)
	err := s.get(ctx, s.reader, "", &r)
	return r, s.explain("reading the record", err)
}

// Apply makes one transition.
func (s *Store) Apply(ctx context.Context, t nodes.Transition) (nodes.Record, error) {
	var out nodes.Record
	err := s.writer.do(ctx, func(conn *sql.Conn) error {
		r := nodes.NewRecord(s.opts.Cluster)
		if err := s.get(ctx, conn, "", &r); err != nil {
			return err
		}
		next, changed, err := nodes.Applied(r, t)
		out = next
		if err != nil || !changed {
			return err
		}
		return s.put(ctx, conn, row{item: next})
	})
	return out, s.explain("writing the record", err)
}

// OpenInterruptions returns every interruption that is not closed, by instance ID.
func (s *Store) OpenInterruptions(ctx context.Context) ([]nodes.Interruption, error) {
	const query = `SELECT instance, item, checksum FROM items
		WHERE record = ? AND instance <> '' AND NOT closed ORDER BY instance`
	out, err := s.interruptions(ctx, query)
	return out, s.explain("listing the open interruptions", err)
}

func (s *Store) interruptions(ctx context.Context, query string) ([]nodes.Interruption, error) {
	rows, err := s.reader.QueryContext(ctx, query, s.key)
	if err != nil {
		return nil, err
	}
	defer func() { _ = rows.Close() }()

	var out []nodes.Interruption
	for rows.Next() {
		var instance string
		var item []byte
		var sum int64
		if err := rows.Scan(&instance, &item, &sum); err != nil {
			return nil, err
		}
		var i nodes.Interruption
		if err := s.decode(instance, item, sum, &i); err != nil {
			return nil, err
		}
		out = append(out, i)
	}
	return out, rows.Err()
}

// ApplyInterruption makes one transition of an interruption.
func (s *Store) ApplyInterruption(
	ctx context.Context, instanceID string, t nodes.InterruptionTransition,
) (nodes.Interruption, error) {
	var out nodes.Interruption
	err := s.writer.do(ctx, func(conn *sql.Conn) error {
		var i nodes.Interruption
		if err := s.get(ctx, conn, instanceID, &i); err != nil {
			return err
		}
		next, changed, err := nodes.AppliedInterruption(i, t)
		out = next
		if err != nil || !changed {
			return err
		}
		return s.put(ctx, conn, row{instance: instanceID, closed: next.Closed, expires: next.ExpiresEpoch, item: next})
	})
	return out, s.explain("writing an interruption", err)
}

// querier is what an item can be read from: a reader, or the writer's connection.
type querier interface {
	QueryRowContext(ctx context.Context, query string, args ...any) *sql.Row
}

// get reads the record, or the interruption of an instance, into v. It leaves v as it is if there is none.
func (s *Store) get(ctx context.Context, from querier, instance string, v any) error {
	var item []byte
	var sum int64
	const query = `SELECT item, checksum FROM items WHERE record = ? AND instance = ?`
	err := from.QueryRowContext(ctx, query, s.key, instance).Scan(&item, &sum)
	if errors.Is(err, sql.ErrNoRows) {
		return nil
	}
	if err != nil {
		return err
	}
	return s.decode(instance, item, sum, v)
}

func (s *Store) decode(instance string, item []byte, sum int64, v any) error {
	if checksum(item) != sum {
		return s.corrupt(s.key, instance)
	}
	if err := json.Unmarshal(item, v); err != nil {
		return fmt.Errorf("reading %s: %w", what(s.key, instance), err)
	}
	return nil
}

// row is what put writes.
type row struct {
	instance string // "": the record itself
	closed   bool
	expires  int64
	item     any
}

// put writes an item, and removes closed interruptions that have expired.
func (s *Store) put(ctx context.Context, conn *sql.Conn, r row) error {
	item, err := json.Marshal(r.item)
	if err != nil {
		return fmt.Errorf("encoding %s: %w", what(s.key, r.instance), err)
	}
	_, err = conn.ExecContext(ctx, `INSERT OR REPLACE INTO items (record, instance, closed, expires_epoch, item, checksum)
		VALUES (?, ?, ?, ?, ?, ?)`, s.key, r.instance, r.closed, r.expires, item, checksum(item))
	if err != nil {
		return err
	}
	_, err = conn.ExecContext(ctx, `DELETE FROM items WHERE closed AND expires_epoch <> 0 AND expires_epoch < ?`,
		s.opts.Now().Unix())
	return err
}

// check reads every item of the file.
func (s *Store) check(ctx context.Context) error {
	return s.explain("reading the record", s.checkItems(ctx))
}

func (s *Store) checkItems(ctx context.Context) error {
	rows, err := s.reader.QueryContext(ctx, `SELECT record, instance, item, checksum FROM items`)
	if err != nil {
		return err
	}
	defer func() { _ = rows.Close() }()

	for rows.Next() {
		var record, instance string
		var item []byte
		var sum int64
		if err := rows.Scan(&record, &instance, &item, &sum); err != nil {
			return err
		}
		if checksum(item) != sum {
			return s.corrupt(record, instance)
		}
	}
	return rows.Err()
}

func (s *Store) corrupt(record, instance string) error {
	return &CorruptError{File: s.path, What: what(record, instance)}
}

// what names an item in messages.
func what(record, instance string) string {
	if instance == "" {
		return "the record " + record
	}
	return "the interruption of " + instance + " of " + record
}

// explain says what was attempted and names the file. A refusal and a CorruptError say all that there is to
// say.
func (s *Store) explain(doing string, err error) error {
	var damage *CorruptError
	switch {
	case err == nil, nodes.IsRefused(err), errors.As(err, &damage):
		return err
	default:
		return fmt.Errorf("%s: %w", doing, sqlitefile.Explain(s.path, err))
	}
}
