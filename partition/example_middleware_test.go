package partition_test

import (
	"context"
	"fmt"
	"log/slog"
	"time"

	"github.com/muster-dev/muster/partition"
)

// orders is a handler that warms a cache before slots come to it.
type orders struct{}

func (orders) Handle(_ context.Context, m partition.Message) error {
	fmt.Printf("customer %s: %s\n", m.Key, m.Data)
	return nil
}

func (orders) Prepare(context.Context, partition.Slots) error { return nil }

// Middleware sees each message before and after the handler. The worker still calls
// orders.Prepare, although the middleware knows nothing of it.
func ExampleWrap() {
	slow := func(next partition.Handler) partition.Handler {
		return partition.HandlerFunc(func(ctx context.Context, m partition.Message) error {
			began := time.Now()
			err := next.Handle(ctx, m)
			if took := time.Since(began); took > time.Second {
				slog.Warn("A slow message.", "key", m.Key, "took", took)
			}
			return err
		})
	}
	handler := partition.Wrap(orders{}, slow)
	_ = handler.Handle(context.Background(), partition.Message{Key: "alice", Data: []byte("two apples")})
	// Output: customer alice: two apples
}
