package partition

import (
	"context"
	"encoding/json"
	"errors"
	"strconv"
	"testing"
)

func TestHandlerOf(t *testing.T) {
	type order struct{ Apples, Pears int }

	t.Run("decodes JSON by default", func(t *testing.T) {
		var got []order
		h := HandlerOf(func(_ context.Context, _ Message, o order) error {
			got = append(got, o)
			return nil
		}, nil)

		for _, data := range []string{`{"Apples":2,"Pears":1}`, `{"Apples":3}`} {
			if err := h.Handle(t.Context(), Message{Data: []byte(data)}); err != nil {
				t.Fatal(err)
			}
		}
		if want := (order{Apples: 3}); got[1] != want {
			t.Errorf("the second message is %+v, want %+v: nothing of the first", got[1], want)
		}
	})

	t.Run("uses the decoder that it is given", func(t *testing.T) {
		var got int
		h := HandlerOf(func(_ context.Context, _ Message, n int) error {
			got = n
			return nil
		}, func(data []byte, n *int) (err error) {
			*n, err = strconv.Atoi(string(data))
			return err
		})

		if err := h.Handle(t.Context(), Message{Data: []byte("42")}); err != nil || got != 42 {
			t.Errorf("got %d, %v", got, err)
		}
	})

	t.Run("returns the handler's error as it is", func(t *testing.T) {
		h := HandlerOf(func(context.Context, Message, order) error { return ErrFenced }, nil)

		if err := h.Handle(t.Context(), Message{Data: []byte(`{}`)}); !errors.Is(err, ErrFenced) {
			t.Errorf("got %v", err)
		}
	})

	t.Run("gives a message up that can't be decoded", func(t *testing.T) {
		h := HandlerOf(func(context.Context, Message, *order) error {
			t.Error("the handler was called")
			return nil
		}, nil)
		err := h.Handle(t.Context(), Message{Key: "alice", Sequence: 7, Data: []byte(`{"Apples":`)})

		if !isHopeless(err) {
			t.Fatalf("the error is %v, want one of GiveUp", err)
		}
		var syntax *json.SyntaxError
		if !errors.As(err, &syntax) {
			t.Errorf("%v does not wrap the decoder's error", err)
		}
		if isDiscarded(err) {
			t.Error("the message is discarded, and so is lost")
		}
		const want = "decoding message 7 of key alice as *partition.order: unexpected end of JSON input"
		if err.Error() != want {
			t.Errorf("it says %q, want %q", err, want)
		}
	})

	t.Run("its hooks are found when a type embeds it", func(t *testing.T) {
		h := &warmed{Handler: HandlerOf(func(context.Context, Message, order) error { return nil }, nil)}

		if _, found := find[Preparer](Wrap(h, func(next Handler) Handler { return next })); !found {
			t.Error("no Preparer was found")
		}
	})
}

type warmed struct{ Handler }

func (*warmed) Prepare(context.Context, Slots) error { return nil }
