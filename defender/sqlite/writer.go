package sqlite

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/muster-dev/muster/defender"
	"github.com/muster-dev/muster/internal/sqlitefile"
)

const (
	maxBatch   = 256             // writes in one transaction
	closeGrace = 5 * time.Second // how long Close lets queued writes wait for the lock
)

// A writer is the one goroutine of this process that writes to a file. It takes
// all writes that have gathered and commits them together.
type writer struct {
	path       string
	db         *sql.DB
	conn       *sql.Conn
	statements map[string]*sql.Stmt
	queue      chan *write

	mu      sync.RWMutex // held for reading while sending to queue
	closed  bool
	done    chan struct{}
	closing context.Context // ends closeGrace after close
	abandon context.CancelFunc
}

// A write is one change. It is run inside a transaction, perhaps several times
// when transactions are rolled back, and so has to set its results again each
// time. An error that it returns undoes it.
type write struct {
	ctx  context.Context
	run  func(tx *transaction) error
	done chan error // buffered
}

func newWriter(path string, db *sql.DB, conn *sql.Conn) *writer {
	w := &writer{
		path: path, db: db, conn: conn, statements: map[string]*sql.Stmt{},
		queue: make(chan *write, maxBatch), done: make(chan struct{}),
	}
	w.closing, w.abandon = context.WithCancel(context.Background())
	go w.loop()
	return w
}

// do has run executed in a transaction and returns once that is committed.
func (w *writer) do(ctx context.Context, run func(tx *transaction) error) error {
	if w == nil {
		return ErrReadOnly
	}
	op := &write{ctx: ctx, run: run, done: make(chan error, 1)}
	if err := w.enqueue(ctx, op); err != nil {
		return err
	}
	select {
	case err := <-op.done:
		return err
	case <-ctx.Done():
		return fmt.Errorf("waiting for %s to commit, %w", w.path, ctx.Err())
	}
}

func (w *writer) enqueue(ctx context.Context, op *write) error {
	w.mu.RLock()
	defer w.mu.RUnlock()
	if w.closed {
		return defender.ErrClosed
	}
	select {
	case w.queue <- op:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("waiting for %s to be free, %w", w.path, ctx.Err())
	}
}

// close commits what is queued and closes the connection.
func (w *writer) close() error {
	// Before taking mu, which senders to a full queue hold until it moves.
	defer time.AfterFunc(closeGrace, w.abandon).Stop()
	w.mu.Lock()
	w.closed = true
	w.mu.Unlock()
	close(w.queue) // nobody sends any more: senders hold mu and look at closed
	<-w.done
	w.abandon()
	for _, s := range w.statements {
		_ = s.Close()
	}
	return errors.Join(w.conn.Close(), w.db.Close())
}

func (w *writer) loop() {
	defer close(w.done)
	var batch []*write
	for op := range w.queue {
		batch = w.gather(append(batch[:0], op))
		w.commit(batch)
		clear(batch)
	}
}

// gather adds the writes that are waiting now.
func (w *writer) gather(batch []*write) []*write {
	for len(batch) < maxBatch {
		select {
		case op, ok := <-w.queue:
			if !ok {
				return batch
			}
			batch = append(batch, op)
		default:
			return batch
		}
	}
	return batch
}

// commit answers every write of the batch.
func (w *writer) commit(batch []*write) {
	for pause := sqlitefile.MinPause; ; pause = sqlitefile.Longer(pause) {
		batch = dropEnded(batch)
		if len(batch) == 0 {
			return
		}
		err := w.try(batch)
		switch {
		case err == nil:
			answer(batch, nil)
			return
		case sqlitefile.Busy(err):
			if sqlitefile.Wait(w.closing, pause) != nil {
				answer(batch, fmt.Errorf("%w: %w", defender.ErrClosed, sqlitefile.Explain(w.path, err)))
				return
			}
			batch = w.gather(batch)
		case len(batch) == 1:
			answer(batch, sqlitefile.Explain(w.path, err))
			return
		default:
			// One of them can't be done. Find out which by doing each alone.
			for i := range batch {
				w.commit(batch[i : i+1 : i+1])
			}
			return
		}
	}
}

// try commits the batch or nothing of it. It isn't bound to any write's
// context, because one caller's impatience is no reason to fail the others.
func (w *writer) try(batch []*write) error {
	ctx := context.Background()
	tx := &transaction{w: w}
	if err := tx.exec("BEGIN IMMEDIATE"); err != nil {
		return err
	}
	err := func() error {
		for _, op := range batch {
			if err := op.run(tx); err != nil {
				return err
			}
		}
		return tx.exec("COMMIT")
	}()
	if err != nil {
		// SQLite has already rolled back after some errors, and then says that
		// there is no transaction. Either way none is left open.
		_, _ = w.conn.ExecContext(ctx, "ROLLBACK")
	}
	return err
}

func answer(batch []*write, err error) {
	for _, op := range batch {
		op.done <- err
	}
}

// dropEnded answers the writes whose callers have gone.
func dropEnded(batch []*write) []*write {
	kept := batch[:0]
	for _, op := range batch {
		if err := op.ctx.Err(); err != nil {
			op.done <- err
			continue
		}
		kept = append(kept, op)
	}
	return kept
}

// A transaction runs prepared statements on the writer's connection.
type transaction struct{ w *writer }

func (tx *transaction) statement(query string) (*sql.Stmt, error) {
	if s, ok := tx.w.statements[query]; ok {
		return s, nil
	}
	s, err := tx.w.conn.PrepareContext(context.Background(), query)
	if err == nil {
		tx.w.statements[query] = s
	}
	return s, err
}

func (tx *transaction) exec(query string, args ...any) error {
	_, err := tx.changes(query, args...)
	return err
}

// changes runs a statement and returns how many rows it changed.
func (tx *transaction) changes(query string, args ...any) (int, error) {
	s, err := tx.statement(query)
	if err != nil {
		return 0, err
	}
	r, err := s.ExecContext(context.Background(), args...)
	if err != nil {
		return 0, err
	}
	n, err := r.RowsAffected()
	return int(n), err
}

// row runs a query and scans its one row; without a row it is sql.ErrNoRows.
func (tx *transaction) row(query string, args []any, dest ...any) error {
	s, err := tx.statement(query)
	if err != nil {
		return err
	}
	return s.QueryRowContext(context.Background(), args...).Scan(dest...)
}
