package e2e

import (
	"context"
	"time"
)

// pause waits for a time; it is an error if the context ends before.
func pause(ctx context.Context, d time.Duration) error {
	select {
	case <-time.After(d):
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
