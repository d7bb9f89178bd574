// Package sqlitefile opens SQLite files: where a file may lie, which kind and
// schema version it has, and what an error of SQLite means to an operator. The
// stores that use it know what is in their files.
package sqlitefile

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"net/url"
	"os"
	"path/filepath"
	"syscall"
	"time"

	driver "modernc.org/sqlite"
	sqlite3 "modernc.org/sqlite/lib"
)

// A Schema is what a kind of file contains. Its version is kept in PRAGMA
// user_version and its kind in PRAGMA application_id.
type Schema struct {
	Application int      // identifies the kind of file
	Content     string   // for messages
	Versions    []string // Versions[i] takes a file from version i to i+1
}

// Prepare connects and brings the schema up to date. Processes that start
// together on a new file get in each other's way here, hence the retries.
func Prepare(ctx context.Context, db *sql.DB, s Schema) (conn *sql.Conn, err error) {
	err = Retry(ctx, func() error {
		if conn, err = db.Conn(ctx); err != nil {
			return err
		}
		if err := migrate(ctx, conn, s); err != nil {
			_ = conn.Close()
			conn = nil
			return err
		}
		return nil
	})
	return conn, err
}

// Check reports what keeps a file from being read as it is: that it is of another kind, or has not this schema.
func Check(ctx context.Context, db *sql.DB, s Schema) error {
	conn, err := db.Conn(ctx)
	if err != nil {
		return err
	}
	version, err := checkKind(ctx, conn, s)
	if err == nil && version < len(s.Versions) {
		err = fmt.Errorf("its schema has version %d and this program needs version %d: it is brought up to date by a program of this "+
			"version that writes it", version, len(s.Versions))
	}
	return errors.Join(err, conn.Close())
}

func migrate(ctx context.Context, conn *sql.Conn, s Schema) error {
	version, err := checkKind(ctx, conn, s)
	if err != nil || version == len(s.Versions) {
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

func migrateLocked(ctx context.Context, conn *sql.Conn, s Schema) error {
	version, err := checkKind(ctx, conn, s) // again: another process may have been here first
	if err != nil {
		return err
	}
	for _, step := range s.Versions[version:] {
		if _, err := conn.ExecContext(ctx, step); err != nil {
			return fmt.Errorf("creating tables, %w", err)
		}
	}
	_, err = conn.ExecContext(ctx, fmt.Sprintf("PRAGMA application_id = %d; PRAGMA user_version = %d; COMMIT",
		s.Application, len(s.Versions)))
	return err
}

// checkKind returns the schema version of the file, 0 for an empty one.
func checkKind(ctx context.Context, conn *sql.Conn, s Schema) (int, error) {
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
	case application != s.Application:
		return 0, fmt.Errorf("it is a database of something else than %s: choose another path", s.Content)
	case version > len(s.Versions):
		return 0, fmt.Errorf("its schema has version %d and this program knows versions up to %d: "+
			"run a newer program, or choose another path", version, len(s.Versions))
	}
	return version, nil
}

// DSN returns the data source name of a file whose connections run these pragmas
// first.
func DSN(path string, pragmas ...string) string {
	q := url.Values{"_pragma": pragmas}
	return (&url.URL{Scheme: "file", Path: filepath.ToSlash(path), RawQuery: q.Encode()}).String()
}

// CheckPlace finds the ordinary mistakes in a path before SQLite answers them
// with "unable to open database file".
func CheckPlace(path string) error {
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
		return fmt.Errorf("opening %s: the directory %s isn't writable for this user (%w): "+
			"change its owner or mode, or choose another path", path, dir, errorCause(err))
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

// Explain names the file in an error of SQLite and says what to do about it.
func Explain(path string, err error) error {
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

// Busy reports whether another process holds the file's lock.
func Busy(err error) bool {
	c := code(err)
	return c == sqlite3.SQLITE_BUSY || c == sqlite3.SQLITE_LOCKED
}

// Pauses before another try while another process holds the lock.
const (
	MinPause = 500 * time.Microsecond // the first
	maxPause = 20 * time.Millisecond
)

// Retry calls f again as long as another process holds the file's lock, until ctx
// ends.
func Retry(ctx context.Context, f func() error) error {
	var busy error // what SQLite answered while the lock was held
	for pause := MinPause; ; pause = Longer(pause) {
		err := f()
		switch {
		case Busy(err):
			busy = err
		case busy != nil && err != nil && ctx.Err() != nil:
			// The context ended during the last try, whose error says nothing of the lock.
			return fmt.Errorf("%w: %w", err, busy)
		default:
			return err
		}
		if waitErr := Wait(ctx, pause); waitErr != nil {
			return fmt.Errorf("%w: %w", waitErr, busy)
		}
	}
}

// Longer returns the pause after this one.
func Longer(pause time.Duration) time.Duration { return min(2*pause, maxPause) }

// Wait sleeps for a random time up to pause, so that processes that collided
// don't collide again, or until ctx ends.
func Wait(ctx context.Context, pause time.Duration) error {
	t := time.NewTimer(pause/4 + rand.N(pause))
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
