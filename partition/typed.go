package partition

import (
	"context"
	"encoding/json"
	"fmt"
	"reflect"
)

// HandlerOf returns a Handler that decodes each message's Data into a T and gives both to
// handle. decode fills the zero value that it is given; nil means json.Unmarshal. A decoder
// with settings is a function literal around the one of its package.
//
// handle returns what Handle of a Handler returns, under the same rules. If decode fails,
// handle isn't called, and the error is one made with GiveUp, since no later attempt decodes the
// message either.
//
// A type that embeds the returned Handler can add Preparer, Releaser, StateMover, CallHandler or
// Observer.
func HandlerOf[T any](
	handle func(ctx context.Context, m Message, value T) error,
	decode func(data []byte, value *T) error,
) Handler {
	if decode == nil {
		decode = func(data []byte, value *T) error { return json.Unmarshal(data, value) }
	}

	return HandlerFunc(func(ctx context.Context, m Message) error {
		var value T // a new one each time: what an attempt left in it must not reach the next
		if err := decode(m.Data, &value); err != nil {
			return GiveUp(fmt.Errorf("decoding message %d of key %s as %s: %w", m.Sequence, m.Key, reflect.TypeFor[T](), err))
		}
		return handle(ctx, m, value)
	})
}
