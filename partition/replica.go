package partition

import (
	"context"
	"errors"
	"time"

	"github.com/nats-io/nats.go"
)

// How long a replica may be behind the others when it is read after a write.
const (
	catchUp      = 5 * time.Second
	catchUpPause = 20 * time.Millisecond
)

// caughtUp repeats a read of what is known to be there as long as it says that
// nothing is provisioned: any server of a cluster answers it, and one that is
// behind has not heard of the write yet.
func caughtUp(ctx context.Context, read func() error) error {
	ctx, cancel := context.WithTimeout(ctx, catchUp)
	defer cancel()
	for {
		err := read()
		// The stream of a bucket that was created a moment ago may not answer yet.
		if !errors.Is(err, errNotProvisioned) && !errors.Is(err, nats.ErrNoResponders) {
			return err
		}
		select {
		case <-ctx.Done():
			return err
		case <-time.After(catchUpPause):
		}
	}
}
