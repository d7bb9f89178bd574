package defender

import (
	"context"
	"fmt"
	"os"

	"github.com/nats-io/nats.go"

	"github.com/muster-dev/muster/broker/access"
	"github.com/muster-dev/muster/defender"
	"github.com/muster-dev/muster/defender/collect"
	"github.com/muster-dev/muster/defender/connect"
	"github.com/muster-dev/muster/internal/misuse"
	"github.com/muster-dev/muster/partition"
)

// intake is what a command takes runs with: the broker, the store, and a collector that
// publishes to the streams that the defenders have.
type intake struct {
	nc        *nats.Conn
	store     defender.Store
	collector *collect.Collector
}

// openIntake connects to the broker under a client's name, and to the store.
func openIntake(ctx context.Context, url, client, store string) (in *intake, err error) {
	in = new(intake)
	defer func() {
		if err != nil {
			in.close()
		}
	}()
	if in.nc, err = access.Connect(url, client); err != nil {
		return nil, fmt.Errorf("%w: start the server or give another URL with --nats", err)
	}
	if in.store, err = connect.Open(ctx, store, os.LookupEnv); err != nil {
		return nil, &misuse.Error{Err: err}
	}
	in.collector, err = collectorFor(ctx, in.nc, in.store)
	return in, err
}

func (in *intake) close() {
	if in.store != nil {
		_ = in.store.Close()
	}
	if in.nc != nil {
		in.nc.Close()
	}
}

// collectorFor returns a collector that publishes to the streams that the defenders have.
func collectorFor(ctx context.Context, nc *nats.Conn, store defender.Store) (*collect.Collector, error) {
	group, err := partition.Open(nc, defender.Group).Config(ctx)
	if err != nil {
		return nil, fmt.Errorf("looking for the defenders' streams: %w: start a defender first, which creates them", err)
	}
	c, err := collect.New(store, nc)
	if err != nil {
		return nil, err
	}
	c.For(group)
	return c, nil
}
