package sqlite

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"io/fs"
	"net/url"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	driver "modernc.org/sqlite"
	sqlite3 "modernc.org/sqlite/lib"
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

func openFile(ctx context.Context, path string, s schema, c Config) (*file, error) {
	path, err := filepath.Abs(path)
	if err != nil {
		return nil, fmt.Errorf("finding %s, %w", path, err)
	}
	if err := checkPlace(path); err != nil {
		return nil, err
	}
	db, err := sql.Open("sqlite", dsn(path, "journal_mode(WAL)", "synchronous("+c.Durability.pragma()+")",
		"busy_timeout(0)", "cache_size(-16384)", "journal_size_limit(67108864)", "wal_autocheckpoint("+strconv.Itoa(checkpointPages)+")"))
	if err != nil {
		return nil, explain(path, err)
	}
	db.SetMaxOpenConns(1)
	conn, err := prepareFile(ctx, db, s)
	if err != nil {
		_ = db.Close()
		return nil, explain(path, err)
	}
	read, err := sql.Open("sqlite", dsn(path, "query_only(1)", "busy_timeout(5000)", "cache_size(-8192)"))
	if err != nil {
		_ = conn.Close()
		_ = db.Close()
		return nil, explain(path, err)
	}
	read.SetMaxOpenConns(c.Readers)
	read.SetMaxIdleConns(c.Readers)
	return &file{path: path, write: newWriter(path, db, conn), read: read}, nil
}

// close ends the readers first, so that the writer, which is then the last
// connection, can move the log into the file.
func (f *file) close() error {
	if f.closed.Swap(true) {
		return nil
	}
	return errors.Join(f.read.Close(), f.write.close())
}

// prepareFile connects and brings the schema up to date. Processes that start
// together on a new file get in each other's way here, hence the retries.
func prepareFile(ctx context.Context, db *sql.DB, s schema) (*sql.Conn, error) {
	for pause := minPause; ; pause = longer(pause) {
		conn, err := db.Conn(ctx)
		if err == nil {
			if err = migrate(ctx, conn, s); err == nil {
				return conn, nil
			}
			_ = conn.Close()
		}
		if !busy(err) {
			return nil, err
		}
		if waitErr := wait(ctx, pause); waitErr != nil {
			return nil, fmt.Errorf("%w: %w", waitErr, err)
		}
	}
}

func migrate(ctx context.Context, conn *sql.Conn, s schema) error {
	version, err := checkKind(ctx, conn, s)
	if err != nil || version == len(s.versions) {
		return err
	}
	if _, err := conn.ExecContext(ctx, "BEGIN IMMEDIATE"); err != nil {
		return err
	}
	if err := migrateLocked(ctx, conn, s); err != nil {
		// The context may be over, and the transaction must not stay open.
		_, rollbackErr := conn.ExecContext(context.WithoutCancel(ctx), "ROLLBACK")
		return errors.Join(err, rollbackErr)
	}
	return nil
}

func migrateLocked(ctx context.Context, conn *sql.Conn, s schema) error {
	version, err := checkKind(ctx, conn, s) // again: another process may have been here first
	if err != nil {
		return err
	}
	for _, step := range s.versions[version:] {
		if _, err := conn.ExecContext(ctx, step); err != nil {
			return fmt.Errorf("creating tables, %w", err)
		}
	}
	_, err = conn.ExecContext(ctx, fmt.Sprintf("PRAGMA application_id = %d; PRAGMA user_version = %d; COMMIT", s.application, len(s.versions)))
	return err
}

// checkKind returns the schema version of the file, 0 for an empty one.
func checkKind(ctx context.Context, conn *sql.Conn, s schema) (int, error) {
	var application, version, tables int
	err := conn.QueryRowContext(ctx, `SELECT
		(SELECT application_id FROM pragma_application_id),
		(SELECT user_version FROM pragma_user_version),
		(SELECT count(*) FROM sqlite_schema)`).Scan(&application, &version, &tables)
	switch {
	case err != nil:
		return 0, err
	case application == 0 && version == 0 && tables == 0:
		return 0, nil
	case application != s.application:
		return 0, fmt.Errorf("it is a database of something else than %s: choose another path", s.content)
	case version > len(s.versions):
		return 0, fmt.Errorf("its schema has version %d and this program knows versions up to %d: run a newer program, or choose another path", version, len(s.versions))
	}
	return version, nil
}

func dsn(path string, pragmas ...string) string {
	q := url.Values{"_pragma": pragmas}
	return (&url.URL{Scheme: "file", Path: filepath.ToSlash(path), RawQuery: q.Encode()}).String()
}

// checkPlace finds the ordinary mistakes in a path before SQLite answers them
// with "unable to open database file".
func checkPlace(path string) error {
	dir := filepath.Dir(path)
	info, err := os.Stat(dir)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return fmt.Errorf("opening %s: the directory %s doesn't exist: create it", path, dir)
	case err != nil:
		return fmt.Errorf("opening %s, %w", path, err)
	case !info.IsDir():
		return fmt.Errorf("opening %s: %s is not a directory", path, dir)
	}
	if info, err := os.Stat(path); err == nil && info.IsDir() {
		return fmt.Errorf("opening %s: it is a directory: name a file in it", path)
	}
	// The log and its index are created beside the file, so the directory has to
	// be writable even when the file is.
	probe, err := os.CreateTemp(dir, ".muster-probe-*")
	if err != nil {
		return fmt.Errorf("opening %s: the directory %s isn't writable for this user (%w): change its owner or mode, or choose another path", path, dir, errorCause(err))
	}
	_ = probe.Close()
	if err := os.Remove(probe.Name()); err != nil {
		return fmt.Errorf("opening %s, %w", path, err)
	}
	return nil
}

func errorCause(err error) error {
	var errno syscall.Errno
	if errors.As(err, &errno) {
		return errno
	}
	return err
}

// explain names the file in an error of SQLite and says what to do about it.
func explain(path string, err error) error {
	if err == nil {
		return nil
	}
	hint := ""
	switch code(err) {
	case sqlite3.SQLITE_NOTADB:
		hint = "it is not a SQLite database: choose another path, or move the file away"
	case sqlite3.SQLITE_CANTOPEN, sqlite3.SQLITE_PERM, sqlite3.SQLITE_READONLY, sqlite3.SQLITE_AUTH:
		hint = "this user can't write to it: change the owner or mode of the file and of its -wal and -shm companions"
	case sqlite3.SQLITE_FULL:
		hint = "the disk is full: free space on it"
	case sqlite3.SQLITE_IOERR:
		hint = "the disk or file system failed: see the system's log; network file systems are not supported"
	case sqlite3.SQLITE_CORRUPT:
		hint = "the file is damaged: restore it from a copy, or move it away to start afresh"
	case sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED:
		hint = "another process holds its lock"
	}
	if hint == "" {
		return fmt.Errorf("%s: %w", path, err)
	}
	return fmt.Errorf("%s: %s (%w)", path, hint, err)
}

// code returns the primary result code of SQLite, 0 if err isn't its error.
func code(err error) int {
	var e *driver.Error
	if errors.As(err, &e) {
		return e.Code() & 0xff
	}
	return 0
}

func busy(err error) bool {
	c := code(err)
	return c == sqlite3.SQLITE_BUSY || c == sqlite3.SQLITE_LOCKED
}

// Durability says what a committed write survives.
type Durability int

const (
	// Normal writes survive the death of the process at any point, but perhaps
	// not a power failure. The zero value.
	Normal Durability = iota
	// Full writes survive a power failure too; each commit waits for the disk.
	Full
)

func (d Durability) pragma() string {
	if d == Full {
		return "FULL"
	}
	return "NORMAL"
}

// String returns "normal" or "full".
func (d Durability) String() string {
	switch d {
	case Normal, Full:
		return strings.ToLower(d.pragma())
	}
	return "durability(" + strconv.Itoa(int(d)) + ")"
}

func unixTime(ns int64) time.Time { return time.Unix(0, ns).UTC() }
