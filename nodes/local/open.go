package local

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/muster-dev/muster/internal/sqlitefile"
	"github.com/muster-dev/muster/nodes"
)

// Open opens the store in a directory, which it creates if need be.
func Open(ctx context.Context, dir string, opts Options) (*Store, error) {
	if opts.Keep == 0 {
		opts.Keep = 30 * 24 * time.Hour
	}
	if opts.Now == nil {
		opts.Now = time.Now
	}

	path, err := place(dir)
	if err != nil {
		return nil, err
	}
	s := &Store{path: path, opts: opts, key: nodes.RecordKey(opts.Cluster)}
	if s.enc, s.dec, err = codecs(); err != nil {
		return nil, err
	}

	if s.writer, err = openWriter(ctx, path); err != nil {
		return nil, sqlitefile.Explain(path, err)
	}
	if s.reader, err = openReader(path); err != nil {
		return nil, errors.Join(sqlitefile.Explain(path, err), s.writer.close())
	}
	if err := s.check(ctx); err != nil {
		return nil, errors.Join(err, s.Close())
	}
	return s, nil
}

// place prepares the directory and an empty file, and returns the file's path.
func place(dir string) (path string, err error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return "", fmt.Errorf("creating the store's directory: %w: set DIR to a directory that can be written", err)
	}
	if former := formerFile(dir); former != "" {
		return "", fmt.Errorf("%s is of the format before SQLite, which was never released and is not read: "+
			"move it and the files beside it away, or set DIR to another directory, to begin a new record", former)
	}

	path, err = filepath.Abs(filepath.Join(dir, fileName))
	if err != nil {
		return "", fmt.Errorf("finding %s: %w", dir, err)
	}
	if err := sqlitefile.CheckPlace(path); err != nil {
		return "", err
	}
	return path, create(path)
}

// formerFile returns a file of the format before SQLite, "" if there is none.
func formerFile(dir string) string {
	for _, pattern := range []string{"state.snap", "state-*.log", "journal-*.log"} {
		found, err := filepath.Glob(filepath.Join(dir, pattern))
		if err == nil && len(found) > 0 {
			return found[0]
		}
	}
	return ""
}

// create makes an empty file that only its owner may read, unless there is one. SQLite would give it the
// process's default mode.
//
// The file is made under another name and then linked. Closing any descriptor of a file releases all POSIX
// locks that the process has on it, and another goroutine could have opened, and locked, the file meanwhile.
func create(path string) error {
	if _, err := os.Stat(path); err == nil {
		return nil
	}
	f, err := os.CreateTemp(filepath.Dir(path), ".muster-new-*")
	if err != nil {
		return fmt.Errorf("creating %s: %w", path, err)
	}
	defer func() { _ = os.Remove(f.Name()) }()

	if err := f.Close(); err != nil {
		return fmt.Errorf("creating %s: %w", path, err)
	}
	if err := os.Link(f.Name(), path); err != nil && !errors.Is(err, os.ErrExist) {
		return fmt.Errorf("creating %s: %w", path, err)
	}
	return nil
}

func openReader(path string) (*sql.DB, error) {
	return sql.Open("sqlite", sqlitefile.DSN(path, "query_only(1)", "busy_timeout(5000)"))
}

// fileName is the database's name in its directory.
const fileName = "nodes.db"

// Holds reports whether a directory holds a store, also one that Open refuses for its format.
func Holds(dir string) bool {
	_, err := os.Stat(filepath.Join(dir, fileName))
	return err == nil || formerFile(dir) != ""
}
