package sqlite_test

import (
	"context"
	"database/sql"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/muster-dev/muster/defender"
	"github.com/muster-dev/muster/defender/sqlite"
	"github.com/muster-dev/muster/defender/storetest"
	"github.com/muster-dev/muster/defender/uchart"
)

var chamber = defender.Chamber{Tool: "tool001", Name: "chamber1"}

func result(i int) defender.Result {
	return storetest.NewResult(chamber, "etch", i, uchart.Normal)
}

func fence(version uint64) defender.Fence {
	return defender.Fence{MapVersion: version, ClaimRevision: 1}
}

// execute runs SQL on a file, as another program would.
func execute(t *testing.T, path, query string) {
	t.Helper()
	db, err := sql.Open("sqlite", path)
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	if _, err := db.Exec(query); err != nil {
		t.Fatal(err)
	}
}

func TestWrongPlacesAreNamedWithTheFix(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		behaviour string
		prepare   func(t *testing.T, dir string) (path string)
		want      []string
	}{
		{"no path", func(t *testing.T, dir string) string { return "" }, []string{"no path"}},
		{"a directory that doesn't exist", func(t *testing.T, dir string) string { return filepath.Join(dir, "none", "m.db") }, []string{"none", "create it"}},
		{"a path that is a directory", func(t *testing.T, dir string) string { return dir }, []string{"it is a directory"}},
		{"a directory that is a file", func(t *testing.T, dir string) string {
			path := filepath.Join(dir, "file")
			write(t, path, "x")
			return filepath.Join(path, "m.db")
		}, []string{"not a directory"}},
		{"a directory without permission", func(t *testing.T, dir string) string {
			if os.Getuid() == 0 {
				return "/sys/kernel/m.db" // where not even root may
			}
			if err := os.Chmod(dir, 0o500); err != nil {
				t.Fatal(err)
			}
			return filepath.Join(dir, "m.db")
		}, []string{"isn't writable", "change its owner or mode"}},
		{"a file that isn't a database", func(t *testing.T, dir string) string {
			path := filepath.Join(dir, "m.db")
			write(t, path, strings.Repeat("not a database at all\n", 1000))
			return path
		}, []string{"m.db", "not a SQLite database", "choose another path"}},
		{"a T-chart file that isn't a database", func(t *testing.T, dir string) string {
			write(t, filepath.Join(dir, "m-tcharts.db"), strings.Repeat("not a database at all\n", 1000))
			return filepath.Join(dir, "m.db")
		}, []string{"m-tcharts.db", "not a SQLite database"}},
		{"another program's database", func(t *testing.T, dir string) string {
			path := filepath.Join(dir, "m.db")
			execute(t, path, `CREATE TABLE songs (title TEXT)`)
			return path
		}, []string{"m.db", "something else than U-charts"}},
		{"a newer schema", func(t *testing.T, dir string) string {
			path := filepath.Join(dir, "m.db")
			open(t, path).Close()
			execute(t, path, `PRAGMA user_version = 99`)
			return path
		}, []string{"m.db", "version 99", "run a newer program"}},
	} {
		t.Run(test.behaviour, func(t *testing.T) {
			t.Parallel()
			s, err := sqlite.Open(t.Context(), sqlite.Config{Path: test.prepare(t, t.TempDir())})
			if err == nil {
				s.Close()
				t.Fatal("opened, want an error")
			}
			for _, want := range test.want {
				if !strings.Contains(err.Error(), want) {
					t.Errorf("error is %q, want it to contain %q", err, want)
				}
			}
		})
	}
}

func write(t *testing.T, path, content string) {
	t.Helper()
	if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
}

func TestOddNamesAreNoProblem(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "a b?c#d%20é")
	if err := os.Mkdir(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	s := open(t, filepath.Join(dir, "m&x=1.db"))
	defer s.Close()
	if _, err := s.Commit(t.Context(), fence(1), result(1)); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(filepath.Join(dir, "m&x=1.db")); err != nil {
		t.Error(err)
	}
}

func TestContentOutlivesTheProcess(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "m.db")
	for i := range 3 {
		s := open(t, path)
		if out, err := s.Commit(t.Context(), fence(uint64(i)), result(i)); err != nil || !out.Stored {
			t.Fatal(out, err)
		}
		found, err := s.UCharts(t.Context(), chamber, 10)
		if err != nil || len(found) != i+1 {
			t.Fatalf("%d contexts, %v, want %d", len(found), err, i+1)
		}
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
	}
	for _, leftover := range []string{path + "-wal", path + "-shm"} {
		if _, err := os.Stat(leftover); err == nil {
			t.Errorf("%s is left after closing", leftover)
		}
	}
}

func TestBothDurabilitiesStore(t *testing.T) {
	t.Parallel()
	for _, d := range []sqlite.Durability{sqlite.Normal, sqlite.Full} {
		s, err := sqlite.Open(t.Context(), sqlite.Config{Path: filepath.Join(t.TempDir(), "m.db"), Durability: d})
		if err != nil {
			t.Fatal(err)
		}
		if out, err := s.Commit(t.Context(), fence(1), result(1)); err != nil || !out.Stored {
			t.Errorf("%s: %+v, %v", d, out, err)
		}
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	}
}

// locked returns a store on whose file another program holds the write lock,
// and what ends that.
func locked(t *testing.T) (*sqlite.Store, func()) {
	t.Helper()
	path := filepath.Join(t.TempDir(), "m.db")
	s := open(t, path)
	t.Cleanup(func() { s.Close() })
	db, err := sql.Open("sqlite", path)
	if err != nil {
		t.Fatal(err)
	}
	db.SetMaxOpenConns(1)
	t.Cleanup(func() { db.Close() })
	if _, err := db.Exec("BEGIN IMMEDIATE"); err != nil {
		t.Fatal(err)
	}
	return s, func() {
		if _, err := db.Exec("ROLLBACK"); err != nil {
			t.Error(err)
		}
	}
}

func TestALockedFileIsWaitedFor(t *testing.T) {
	t.Parallel()
	s, unlock := locked(t)
	time.AfterFunc(100*time.Millisecond, unlock)
	if out, err := s.Commit(t.Context(), fence(1), result(1)); err != nil || !out.Stored {
		t.Errorf("Commit = %+v, %v", out, err)
	}
}

func TestALockedFileIsWaitedForOnlyUntilTheContextEnds(t *testing.T) {
	t.Parallel()
	s, unlock := locked(t)
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	if _, err := s.Commit(ctx, fence(1), result(1)); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("error is %v, want DeadlineExceeded", err)
	}
	unlock()
	// Patience of others is not affected, and what was given up isn't done later.
	if out, err := s.Commit(t.Context(), fence(1), result(2)); err != nil || !out.Stored {
		t.Errorf("Commit = %+v, %v", out, err)
	}
	found, err := s.UCharts(t.Context(), chamber, 10)
	if err != nil || len(found) != 1 {
		t.Errorf("%d contexts are stored, %v, want 1", len(found), err)
	}
}

func TestReadersDontWaitForWriters(t *testing.T) {
	t.Parallel()
	s, unlock := locked(t)
	defer unlock()
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
	defer cancel()
	if _, err := s.UCharts(ctx, chamber, 10); err != nil {
		t.Error(err)
	}
}
