// Package connect opens the store that a name stands for, so that every command takes the same names: the path of a SQLite file, or
// "cassandra" for the keyspace that the CASSANDRA_ settings describe.
package connect

import (
	"context"
	"errors"
	"fmt"

	"github.com/muster-dev/muster/defender"
	"github.com/muster-dev/muster/defender/cassandra"
	"github.com/muster-dev/muster/defender/sqlite"
	"github.com/muster-dev/muster/setting"
)

// Cassandra is the name that stands for Cassandra; a SQLite file of this name is "./cassandra".
const Cassandra = "cassandra"

// Open opens a store. The settings of Cassandra are read from the environment that lookup stands for. The error is a *setting.Error,
// which lists everything that is wrong, where it is the settings.
func Open(ctx context.Context, name string, lookup setting.Lookup) (defender.Store, error) {
	return open(ctx, name, lookup, sqlite.Config{Path: name})
}

// OpenReader is Open for those who only read. A SQLite file has to be there, and nothing can be written to it; what may be written to
// Cassandra, the role of the settings says.
func OpenReader(ctx context.Context, name string, lookup setting.Lookup) (defender.Store, error) {
	return open(ctx, name, lookup, sqlite.Config{Path: name, ReadOnly: true})
}

func open(ctx context.Context, name string, lookup setting.Lookup, file sqlite.Config) (defender.Store, error) {
	if name != Cassandra {
		return opened(sqlite.Open(ctx, file))
	}
	c, err := Config(lookup)
	if err != nil {
		return nil, err
	}
	s, err := cassandra.Open(ctx, c)
	if errors.Is(err, cassandra.ErrNoSchema) {
		err = fmt.Errorf("%w: create it with muster defender create-schema", err)
	}
	return opened(s, err)
}

// Check returns what is wrong with the settings of a store, without opening it: nil, or a *setting.Error that lists everything.
func Check(name string, lookup setting.Lookup) error {
	if name != Cassandra {
		return nil
	}
	_, err := Config(lookup)
	return err
}

// opened keeps a nil store of a type from becoming a store that is not nil.
func opened[S defender.Store](s S, err error) (defender.Store, error) {
	if err != nil {
		return nil, err
	}
	return s, nil
}

// Config reads the settings of Cassandra for somebody who has named it: without hosts they are wrong, too.
func Config(lookup setting.Lookup) (cassandra.Config, error) {
	c, used, err := cassandra.ConfigFromEnv(lookup)
	if !used {
		err = setting.Join(setting.Problems([]setting.Problem{
			{Setting: "CASSANDRA_HOSTS", Fix: "name some Cassandra nodes, host or host:port, separated by commas"}}, nil), err)
	}
	return c, err
}
