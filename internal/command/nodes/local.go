package nodes

import (
	"context"
	"time"

	"github.com/muster-dev/muster/nodes/connect"
	"github.com/muster-dev/muster/nodes/local"
)

// localStore is the SQLite file on this machine.
type localStore struct{}

// Holds reports whether a directory holds a store.
func (localStore) Holds(dir string) bool { return local.Holds(dir) }

// Open opens a cluster's store in a directory.
func (localStore) Open(
	ctx context.Context, dir, cluster string, now func() time.Time,
) (connect.RecordAndEventLog, error) {
	s, err := local.Open(ctx, dir, local.Options{Cluster: cluster, Now: now})
	if err != nil {
		return nil, err // and not s, a nil pointer in an interface that isn't nil
	}
	return s, nil
}

// LocalStore returns the kind of store that is a SQLite file on this machine.
func LocalStore() connect.LocalStore { return localStore{} }
