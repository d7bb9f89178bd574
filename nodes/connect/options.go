package connect

import (
	"context"
	"io"
	"log/slog"
	"time"

	"github.com/muster-dev/muster/nodes"
)

// Options change what Open does. The zero value is right.
type Options struct {
	Clock nodes.Clock  // nil: nodes.SystemClock
	Log   *slog.Logger // of the queue's poller; nil: slog's default
	Local LocalStore   // nil: only tables can be opened
}

// A LocalStore is a kind of store that is kept on this machine. Programs that have one give it to this package by
// [Options]. So the Lambda function, which keeps nothing on its disk, links no database.
type LocalStore interface {
	// Holds reports whether a directory holds a store.
	Holds(dir string) bool
	// Open opens a cluster's store in a directory, which it creates if need be. now is nil for the machine's clock.
	Open(ctx context.Context, dir, cluster string, now func() time.Time) (RecordAndEventLog, error)
}

// RecordAndEventLog is an opened LocalStore.
type RecordAndEventLog interface {
	nodes.Store
	nodes.EventLog
	io.Closer
}
