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
// handle isn't called, and the error is a *DecodeError. With Retry.DeadLetters the message
// then goes to the dead letters at once, since no later attempt decodes it either. Without
// that it is kept like any other whose handler fails, since removing it would lose it.
//
// A type that embeds the returned Handler can add Preparer, Releaser, Abandoner or Observer.
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
			return &DecodeError{Key: m.Key, Sequence: m.Sequence, Type: reflect.TypeFor[T]().String(), Err: err}
		}
		return handle(ctx, m, value)
	})
}

// DecodeError says that a message's data is no value of the type that HandlerOf was given.
type DecodeError struct {
	Key      string // of the message
	Sequence uint64 // of the message
	Type     string // what it was to become: "main.Order"
	Err      error  // of the decoder
}

func (e *DecodeError) Error() string {
	return fmt.Sprintf("decoding message %d of key %s as %s: %v", e.Sequence, e.Key, e.Type, e.Err)
}

// Unwrap returns the decoder's error.
func (e *DecodeError) Unwrap() error { return e.Err }
