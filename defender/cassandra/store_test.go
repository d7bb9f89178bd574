package cassandra_test

import (
	"fmt"
	"os"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/muster-dev/muster/defender"
	"github.com/muster-dev/muster/defender/cassandra"
	"github.com/muster-dev/muster/defender/storetest"
	"github.com/muster-dev/muster/internal/component"
)

var (
	servers  component.Pool
	keyspace atomic.Int64
	creating sync.Mutex // one node takes schema changes one after another
)

func TestMain(m *testing.M) {
	code := m.Run()
	servers.Stop()
	os.Exit(code)
}

// fresh returns an empty keyspace of a server.
func fresh(t testing.TB, s *component.Server) cassandra.Config {
	t.Helper()
	c := cassandra.Config{Hosts: []string{s.Addr}, Keyspace: fmt.Sprintf("muster_%d", keyspace.Add(1)), Timeout: time.Minute}
	creating.Lock()
	defer creating.Unlock()
	if err := cassandra.CreateSchema(t.Context(), c, "{'class': 'SimpleStrategy', 'replication_factor': 1}"); err != nil {
		t.Fatal(err)
	}
	return c
}

func open(t testing.TB, c cassandra.Config) *cassandra.Store {
	t.Helper()
	s, err := cassandra.Open(t.Context(), c)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close() })
	return s
}

func TestStore(t *testing.T) {
	s := servers.Get(t, component.Cassandra())
	storetest.Run(t, func(t *testing.T) defender.Store { return open(t, fresh(t, s)) })
}
