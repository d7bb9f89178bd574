package sqlite

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

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
	read, err := sql.Open("sqlite", sqlitefile.DSN(path, "query_only(1)", "busy_timeout(5000)", "cache_size(-8192)"))
	if err != nil {
		_ = conn.Close()
		_ = db.Close()
		return nil, sqlitefile.Explain(path, err)
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
