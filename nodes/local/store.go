package local

import (
	"database/sql"
	"errors"
	"time"

	"github.com/klauspost/compress/zstd"

	"github.com/muster-dev/muster/nodes"
)

// Options changes what Open does. The zero value is right.
type Options struct {
	// Cluster is the cluster's name; "" for the only one of the directory.
	Cluster string
	// Keep is how long events are kept after they were appended; 0 means 30 days.
	Keep time.Duration
	// Now is the clock by which interruptions and events expire; nil means time.Now.
	Now func() time.Time
}

// Store keeps one cluster's record, interruptions and event log. It implements nodes.Store and nodes.EventLog
// and may be used by several goroutines.
type Store struct {
	path string
	opts Options
	key  string // of the record

	writer *writer
	reader *sql.DB

	enc *zstd.Encoder
	dec *zstd.Decoder
}

var (
	_ nodes.Store    = (*Store)(nil)
	_ nodes.EventLog = (*Store)(nil)
)

// Close closes the file. The readers end first: the writer is then the last connection and moves the log into
// the file.
func (s *Store) Close() error {
	return errors.Join(s.reader.Close(), s.writer.close())
}
