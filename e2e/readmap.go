package e2e

import (
	"context"
	"errors"

	"github.com/nats-io/nats.go"

	"github.com/muster-dev/muster/defender"
	"github.com/muster-dev/muster/partition"
	"github.com/muster-dev/muster/partition/report"
)

// readMap reads the assignment map. Scenarios that replace its bucket rely on it: a watch
// isn't told that another bucket has taken the name of its own.
func readMap(ctx context.Context, nc *nats.Conn) (*report.Map, error) {
	a, err := partition.Open(nc, defender.Group).Map(ctx)
	if err == nil && a == nil {
		err = errors.New("reading the assignment map: there is none yet")
	}
	return a, err
}
