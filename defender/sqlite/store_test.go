package sqlite_test

import (
	"path/filepath"
	"testing"

	"github.com/muster-dev/muster/defender"
	"github.com/muster-dev/muster/defender/sqlite"
	"github.com/muster-dev/muster/defender/storetest"
)

func TestStore(t *testing.T) {
	t.Parallel()
	storetest.Run(t, func(t *testing.T) defender.Store {
		return open(t, filepath.Join(t.TempDir(), "muster.db"))
	})
}

func open(t testing.TB, path string) *sqlite.Store {
	t.Helper()
	s, err := sqlite.Open(t.Context(), sqlite.Config{Path: path})
	if err != nil {
		t.Fatal(err)
	}
	return s
}
