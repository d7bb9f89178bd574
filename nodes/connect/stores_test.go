package connect

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/muster-dev/muster/nodes/local"
)

// sqliteFile is the store on this machine, as cmd/muster gives it.
type sqliteFile struct{}

func (sqliteFile) Holds(dir string) bool { return local.Holds(dir) }

func (sqliteFile) Open(ctx context.Context, dir, cluster string, now func() time.Time) (RecordAndEventLog, error) {
	s, err := local.Open(ctx, dir, local.Options{Cluster: cluster, Now: now})
	if err != nil {
		return nil, err
	}
	return s, nil
}

func TestAStoreIsFoundOnlyWhereOneIs(t *testing.T) {
	s := Settings{Local: Local{Dir: filepath.Join(t.TempDir(), "nodes")}}
	o := Options{Local: sqliteFile{}}

	if _, err := FindStores(t.Context(), s, o); err == nil || !strings.Contains(err.Error(), "no store in "+s.Local.Dir) {
		t.Errorf("where there is none: %v", err)
	}
	if _, err := os.Stat(s.Local.Dir); err == nil {
		t.Error("the directory was made")
	}

	begun, err := openStores(t.Context(), s, o)
	if err != nil {
		t.Fatal(err)
	}
	if err := begun.Close(); err != nil {
		t.Fatal(err)
	}
	found, err := FindStores(t.Context(), s, o)
	if err != nil {
		t.Fatal(err)
	}
	if err := found.Close(); err != nil {
		t.Error(err)
	}
}

func TestAStoreOfTheFormatBeforeIsFoundAndRefused(t *testing.T) {
	s := Settings{Local: Local{Dir: t.TempDir()}}
	if err := os.WriteFile(filepath.Join(s.Local.Dir, "state-3.log"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	_, err := FindStores(t.Context(), s, Options{Local: sqliteFile{}})
	if err == nil || !strings.Contains(err.Error(), "state-3.log is of the format before SQLite") {
		t.Errorf("error is %v", err)
	}
}

// TestAProgramWithoutAStoreOnThisMachineNeedsTables is the Lambda function without STATE_TABLE.
func TestAProgramWithoutAStoreOnThisMachineNeedsTables(t *testing.T) {
	s := Settings{Local: Local{Dir: t.TempDir()}}
	type opener = func(context.Context, Settings, Options) (*Stores, error)
	for name, open := range map[string]opener{"open": openStores, "find": FindStores} {
		_, err := open(t.Context(), s, Options{})
		if err == nil || !strings.Contains(err.Error(), "set STATE_TABLE and LOGS_TABLE") {
			t.Errorf("%s: error is %v", name, err)
		}
	}
}
