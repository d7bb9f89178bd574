package groupview

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/muster-dev/muster/console"
	"github.com/muster-dev/muster/partition"
	"github.com/muster-dev/muster/partition/report"
)

// askTimes is how often a worker is asked that does not answer, as a busy one may not.
const askTimes = 5

// Drain has a worker hand off its slots and take none until a time; the zero time ends that. The error of a worker that the group does
// not have matches [console.ErrUnknownTarget].
func Drain(ctx context.Context, nc *nats.Conn, group, worker string, until time.Time) error {
	var err error
	asked := false
	for range askTimes {
		_, err = partition.Open(nc, group).Drain(ctx, func(m report.Lease) bool {
			asked = asked || m.ID == worker
			return m.ID == worker
		}, until)
		if !errors.Is(err, partition.ErrSilent) {
			break
		}
	}
	if err == nil && !asked {
		return fmt.Errorf("%w: %q is no worker of group %s", console.ErrUnknownTarget, worker, group)
	}
	return err
}
