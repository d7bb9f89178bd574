package sqlitefile

import (
	"context"
	"database/sql"
	"errors"
	"path/filepath"
	"testing"

	_ "modernc.org/sqlite"
)

// lockedError returns what SQLite answers a writer while another one is in a transaction.
func lockedError(t *testing.T) error {
	t.Helper()
	path := filepath.Join(t.TempDir(), "file.db")
	var conns []*sql.DB
	for range 2 {
		db, err := sql.Open("sqlite", DSN(path, "busy_timeout(0)"))
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = db.Close() })
		db.SetMaxOpenConns(1)
		conns = append(conns, db)
	}
	if _, err := conns[0].ExecContext(t.Context(), "BEGIN IMMEDIATE"); err != nil {
		t.Fatal(err)
	}
	_, err := conns[1].ExecContext(t.Context(), "BEGIN IMMEDIATE")
	if !Busy(err) {
		t.Fatalf("a locked file answers %v", err)
	}
	return err
}

// TestRetryNamesTheLockWhateverEndsTheWait has the context end between two tries and during a try, which then
// answers the context's own error.
func TestRetryNamesTheLockWhateverEndsTheWait(t *testing.T) {
	locked := lockedError(t)
	for name, last := range map[string]func(context.Context) error{
		"between two tries": func(context.Context) error { return locked },
		"during a try":      func(ctx context.Context) error { return ctx.Err() },
	} {
		t.Run(name, func(t *testing.T) {
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			tries := 0
			err := Retry(ctx, func() error {
				if tries++; tries == 1 {
					return locked
				}
				cancel()
				return last(ctx)
			})
			if !errors.Is(err, context.Canceled) || !Busy(err) {
				t.Errorf("error is %v, want Canceled and that the file is locked", err)
			}
		})
	}
}

// TestRetryReturnsAnErrorOfItsOwn checks that a try that fails for another reason says nothing of the lock.
func TestRetryReturnsAnErrorOfItsOwn(t *testing.T) {
	locked, other := lockedError(t), errors.New("the disk is full")
	tries := 0
	err := Retry(t.Context(), func() error {
		if tries++; tries == 1 {
			return locked
		}
		return other
	})
	if !errors.Is(err, other) || Busy(err) {
		t.Errorf("error is %v, want %v alone", err, other)
	}
}
