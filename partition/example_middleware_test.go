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

// A handler gets its messages as values of a type.
func ExampleHandlerOf() {
	type order struct {
		Item  string
		Count int
	}
	handler := partition.HandlerOf(func(_ context.Context, m partition.Message, o order) error {
		fmt.Printf("customer %s: %d × %s\n", m.Key, o.Count, o.Item)
		return nil
	}, nil)

	_ = handler.Handle(context.Background(), partition.Message{Key: "alice", Data: []byte(`{"Item":"apple","Count":2}`)})
	fmt.Println(handler.Handle(context.Background(), partition.Message{Key: "bob", Sequence: 8, Data: []byte(`two apples`)}))
	// Output:
	// customer alice: 2 × apple
	// decoding message 8 of key bob as partition_test.order: invalid character 'w' in literal true (expecting 'r')
}
