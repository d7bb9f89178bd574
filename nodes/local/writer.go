package local

import (
	"context"
	"database/sql"
	"errors"

	"github.com/muster-dev/muster/internal/sqlitefile"
)

// writer is the one connection of a Store that writes.
type writer struct {
	db   *sql.DB
	conn *sql.Conn
	turn chan struct{} // holds a token while a goroutine writes
}

func openWriter(ctx context.Context, path string) (*writer, error) {
	// 16 MiB of log are kept for reuse: a large event makes the log longer than that.
	db, err := sql.Open("sqlite", sqlitefile.DSN(path, "journal_mode(WAL)", "synchronous(FULL)", "busy_timeout(0)",
		"journal_size_limit(16777216)"))
	if err != nil {
		return nil, err
	}
	db.SetMaxOpenConns(1)

	conn, err := sqlitefile.Prepare(ctx, db, schema)
	if err != nil {
		return nil, errors.Join(err, db.Close())
	}
	return &writer{db: db, conn: conn, turn: make(chan struct{}, 1)}, nil
}

func (w *writer) close() error { return errors.Join(w.conn.Close(), w.db.Close()) }

// do calls f within a transaction that has the write lock from its beginning, and commits what f has done if
// its error is nil. It waits for goroutines and processes that write until ctx ends. f may be called several
// times.
func (w *writer) do(ctx context.Context, f func(conn *sql.Conn) error) error {
	select {
	case w.turn <- struct{}{}:
	case <-ctx.Done():
		return ctx.Err()
	}
	defer func() { <-w.turn }()

	return sqlitefile.Retry(ctx, func() error { return w.try(ctx, f) })
}

func (w *writer) try(ctx context.Context, f func(conn *sql.Conn) error) error {
	if _, err := w.conn.ExecContext(ctx, "BEGIN IMMEDIATE"); err != nil {
		w.rollback(ctx) // the context may have ended when the transaction had begun
		return err
	}
	err := f(w.conn)
	if err == nil {
		_, err = w.conn.ExecContext(ctx, "COMMIT")
	}
	if err != nil {
		w.rollback(ctx)
	}
	return err
}

// rollback leaves no transaction open, also if ctx has ended. After some errors SQLite has rolled back
// already, and says that there is no transaction.
func (w *writer) rollback(ctx context.Context) {
	_, _ = w.conn.ExecContext(context.WithoutCancel(ctx), "ROLLBACK")
}
