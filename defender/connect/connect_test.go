package connect_test

import (
	"errors"
	"path/filepath"
	"strings"
	"testing"

	"github.com/muster-dev/muster/defender/connect"
	"github.com/muster-dev/muster/defender/sqlite"
	"github.com/muster-dev/muster/setting"
)

func env(kv map[string]string) setting.Lookup {
	return func(k string) (string, bool) { v, ok := kv[k]; return v, ok }
}

func TestAPathIsASQLiteFileWhateverTheSettingsOfCassandra(t *testing.T) {
	t.Parallel()
	s, err := connect.Open(t.Context(), filepath.Join(t.TempDir(), "cassandra"), env(map[string]string{"CASSANDRA_HOSTS": "127.0.0.1:1"}))
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	if _, ok := s.(*sqlite.Store); !ok {
		t.Errorf("opened %T", s)
	}
	if s, err := connect.Open(t.Context(), filepath.Join(t.TempDir(), "no", "such", "folder", "fdc.db"), env(nil)); err == nil || s != nil {
		t.Errorf("a file that can't be made: %v, %v", s, err)
	}
}

func TestWrongSettingsOfCassandraAreToldAllAtOnce(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		env  map[string]string
		want []string
	}{
		"nothing is set": {nil, []string{"1 wrong setting", "CASSANDRA_HOSTS"}},
		"no hosts, and more": {map[string]string{"CASSANDRA_TIMEOUT_SEC": "soon", "CASSANDRA_KEYSPACE": "Fdc", "CASSANDRA_USERNAME": "m"},
			[]string{"4 wrong settings", "CASSANDRA_HOSTS", "CASSANDRA_TIMEOUT_SEC", "CASSANDRA_KEYSPACE", "CASSANDRA_PASSWORD_FILE"}},
		"hosts, and a missing file": {map[string]string{"CASSANDRA_HOSTS": "a", "CASSANDRA_CA_FILE": filepath.Join(t.TempDir(), "none")}, []string{"1 wrong setting", "CASSANDRA_CA_FILE"}},
	} {
		s, err := connect.Open(t.Context(), connect.Cassandra, env(c.env))
		if wrong := new(setting.Error); s != nil || !errors.As(err, &wrong) {
			t.Errorf("%s: %v, %v", name, s, err)
			continue
		}
		if checked := connect.Check(connect.Cassandra, env(c.env)); checked == nil || checked.Error() != err.Error() {
			t.Errorf("%s: checking says %v, opening %v", name, checked, err)
		}
		if err := connect.Check("fdc.db", env(c.env)); err != nil {
			t.Errorf("%s: SQLite needs none of it: %v", name, err)
		}
		for _, want := range c.want {
			if !strings.Contains(err.Error(), want) {
				t.Errorf("%s: %q is not in %v", name, want, err)
			}
		}
	}
}

func TestAServerThatIsAwayIsNoWrongSetting(t *testing.T) {
	t.Parallel()
	_, err := connect.Open(t.Context(), connect.Cassandra, env(map[string]string{"CASSANDRA_HOSTS": "127.0.0.1:1", "CASSANDRA_TIMEOUT_SEC": "1"}))
	if err == nil || errors.As(err, new(*setting.Error)) || !strings.Contains(err.Error(), "127.0.0.1:1") || !strings.Contains(err.Error(), "CASSANDRA_HOSTS") {
		t.Errorf("got %v", err)
	}
}
