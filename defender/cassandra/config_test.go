package cassandra_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/muster-dev/muster/defender/cassandra"
)

func env(kv map[string]string) func(string) (string, bool) {
	return func(k string) (string, bool) { v, ok := kv[k]; return v, ok }
}

func TestSettingsAreReadWithTheFilesThatTheyName(t *testing.T) {
	password := filepath.Join(t.TempDir(), "password")
	if err := os.WriteFile(password, []byte("secret\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	c, used, err := cassandra.ConfigFromEnv(env(map[string]string{
		"CASSANDRA_HOSTS": "a, b:9043", "CASSANDRA_KEYSPACE": "fdc", "CASSANDRA_DATACENTER": "dc1", "CASSANDRA_USERNAME": "muster",
		"CASSANDRA_PASSWORD_FILE": password, "CASSANDRA_TIMEOUT_SEC": "3",
	}))
	if err != nil || !used || len(c.Hosts) != 2 || c.Keyspace != "fdc" || c.Datacenter != "dc1" || c.Username != "muster" || c.Password != "secret" ||
		c.Timeout != 3*time.Second || c.TLS != nil {
		t.Errorf("got %+v, %v, %v", c, used, err)
	}
	if c, used, err := cassandra.ConfigFromEnv(env(nil)); err != nil || used || c.Keyspace != "muster" {
		t.Errorf("by default %+v, %v, %v", c, used, err)
	}
}

func TestWrongSettingsAreNamedAllAtOnceAndThePasswordNever(t *testing.T) {
	_, _, err := cassandra.ConfigFromEnv(env(map[string]string{"CASSANDRA_KEYSPACE": "Fdc; DROP", "CASSANDRA_TIMEOUT_SEC": "0", "CASSANDRA_USERNAME": "muster"}))
	for _, want := range []string{"CASSANDRA_KEYSPACE", "CASSANDRA_TIMEOUT_SEC", "CASSANDRA_PASSWORD_FILE"} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s is not in %v", want, err)
		}
	}
	file := filepath.Join(t.TempDir(), "ca")
	if err := os.WriteFile(file, []byte("no certificate"), 0o600); err != nil {
		t.Fatal(err)
	}
	_, _, err = cassandra.ConfigFromEnv(env(map[string]string{"CASSANDRA_HOSTS": "a", "CASSANDRA_CA_FILE": file, "CASSANDRA_USERNAME": "m", "CASSANDRA_PASSWORD_FILE": file + "-missing"}))
	for _, want := range []string{"CASSANDRA_CA_FILE", "CASSANDRA_PASSWORD_FILE", "no certificate is in it"} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s is not in %v", want, err)
		}
	}
}
