package sqlite

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/muster-dev/muster/defender"
	"github.com/muster-dev/muster/internal/sqlitefile"
)

// file is one database file with its single writer and its pool of readers.
type file struct {
	path  string
	write *writer
	read  *sql.DB

	statements sync.Map    // query -> *sql.Stmt of read
	closed     atomic.Bool // set before read is closed
}

// checkpointPages is after how many pages in the log they are moved into the file:
// pages of indexes are written again and again, and are moved once.
const checkpointPages = 4000

func openFile(ctx context.Context, path string, s sqlitefile.Schema, c Config) (*file, error) {
	path, err := filepath.Abs(path)
	if err != nil {
		return nil, fmt.Errorf("finding %s, %w", path, err)
	}
	if err := sqlitefile.CheckPlace(path); err != nil {
		return nil, err
	}
	if c.ReadOnly {
		return openReader(ctx, path, s, c)
	}
	db, err := sql.Open("sqlite", sqlitefile.DSN(path, "journal_mode(WAL)", "synchronous("+c.Durability.pragma()+")",
		"busy_timeout(0)", "cache_size(-16384)", "journal_size_limit(67108864)", "wal_autocheckpoint("+strconv.Itoa(checkpointPages)+")"))
	if err != nil {
		return nil, sqlitefile.Explain(path, err)
	}
	db.SetMaxOpenConns(1)
	conn, err := sqlitefile.Prepare(ctx, db, s)
	if err != nil {
		_ = db.Close()
		return nil, sqlitefile.Explain(path, err)
	}
	read, err := openPool(path, c)
	if err != nil {
		_ = conn.Close()
		_ = db.Close()
		return nil, sqlitefile.Explain(path, err)
	}
	return &file{path: path, write: newWriter(path, db, conn), read: read}, nil
}

// openPool opens the readers of a file.
func openPool(path string, c Config) (*sql.DB, error) {
	read, err := sql.Open("sqlite", sqlitefile.DSN(path, "query_only(1)", "busy_timeout(5000)", "cache_size(-8192)"))
	if err != nil {
		return nil, err
	}
	read.SetMaxOpenConns(c.Readers)
	read.SetMaxIdleConns(c.Readers)
	return read, nil
}

// openReader opens a file that is there, without a writer.
func openReader(ctx context.Context, path string, s sqlitefile.Schema, c Config) (*file, error) {
	if _, err := os.Stat(path); err != nil { // SQLite would create it
		return nil, fmt.Errorf("opening %s: %w: it is created by the first defender that runs with it", path, err)
	}
	read, err := openPool(path, c)
	if err != nil {
		return nil, sqlitefile.Explain(path, err)
	}
	if err := sqlitefile.Check(ctx, read, s); err != nil {
		_ = read.Close()
		return nil, sqlitefile.Explain(path, err)
	}
	return &file{path: path, read: read}, nil
}

// close ends the readers first, so that the writer, which is then the last
// connection, can move the log into the file.
func (f *file) close() error {
	if f.closed.Swap(true) {
		return nil
	}
	if f.write == nil {
		return f.read.Close()
	}
	return errors.Join(f.read.Close(), f.write.close())
}

func unixTime(ns int64) time.Time { return time.Unix(0, ns).UTC() }

// row reads one row; without one the error matches ErrNotFound.
func (f *file) row(ctx context.Context, query string, args []any, dest ...any) error {
	found := false
	err := f.rows(ctx, query, args, func(scan func(...any) error) error {
		found = true
		return scan(dest...)
	})
	if err == nil && !found {
		return defender.ErrNotFound
	}
	return err
}

// rows calls each for every row of a query.
func (f *file) rows(ctx context.Context, query string, args []any, each func(scan func(...any) error) error) error {
	s, err := f.statement(ctx, query)
	if err != nil {
		return err
	}
	r, err := s.QueryContext(ctx, args...)
	if err != nil {
		return f.readError(ctx, err)
	}
	defer func() { _ = r.Close() }()
	for r.Next() {
		if err := each(r.Scan); err != nil {
			return err
		}
	}
	if err := r.Err(); err != nil {
		return f.readError(ctx, err)
	}
	return nil
}

// statement prepares each query once; the number of different queries is small.
func (f *file) statement(ctx context.Context, query string) (*sql.Stmt, error) {
	if s, ok := f.statements.Load(query); ok {
		return s.(*sql.Stmt), nil
	}
	s, err := f.read.PrepareContext(ctx, query)
	if err != nil {
		return nil, f.readError(ctx, err)
	}
	if first, loaded := f.statements.LoadOrStore(query, s); loaded {
		_ = s.Close()
		return first.(*sql.Stmt), nil
	}
	return s, nil
}

// readError tells the end of the caller's patience and a closed store apart
// from an error of the file.
func (f *file) readError(ctx context.Context, err error) error {
	switch {
	case ctx.Err() != nil:
		return fmt.Errorf("reading %s, %w", f.path, ctx.Err())
	case f.closed.Load() || errors.Is(err, sql.ErrConnDone):
		return defender.ErrClosed
	}
	return sqlitefile.Explain(f.path, err)
}

// deleteAll deletes in small portions, so that writers get their turn.
func (f *file) deleteAll(ctx context.Context, query string, now time.Time) (int, error) {
	const portion = 500
	for total := 0; ; {
		var n int
		err := f.write.do(ctx, func(tx *transaction) (err error) {
			n, err = tx.changes(query, now.UnixNano(), portion)
			return err
		})
		if err != nil {
			return total, err
		}
		total += n
		if n < portion {
			return total, nil
		}
	}
}
