package partition

import (
	"context"
	"testing"
)

func TestInterrupts(t *testing.T) {
	begin := func(i *interrupts, call uint64) context.Context {
		ctx, cancel := context.WithCancel(t.Context())
		i.begin(handlerCall{1, call}, cancel)
		return ctx
	}
	ended := func(t *testing.T, ctx context.Context, want bool) {
		t.Helper()
		if got := ctx.Err() != nil; got != want {
			t.Errorf("the context has ended: %v, want %v", got, want)
		}
	}
	ahead := func(t *testing.T, i *interrupts, want bool) {
		t.Helper()
		if got := i.ahead(); got != want {
			t.Errorf("ahead of the machine: %v, want %v", got, want)
		}
	}

	t.Run("a loss ends all calls at once", func(t *testing.T) {
		var i interrupts
		a, b := begin(&i, 1), begin(&i, 2)
		i.lose()
		ended(t, a, true)
		ended(t, b, true)
		ahead(t, &i, true)
	})

	t.Run("a call that begins before the machine knows of the loss is ended", func(t *testing.T) {
		var i interrupts
		i.lose()
		ended(t, begin(&i, 1), true)
		i.tell(1)
		ended(t, begin(&i, 2), false)
		ahead(t, &i, false)
	})

	t.Run("a loss that the machine was told of first suspends nothing", func(t *testing.T) {
		var i interrupts
		i.tell(1)
		a := begin(&i, 1)
		i.lose()
		ended(t, a, true) // it is tried again; that costs less than telling the two apart
		ahead(t, &i, false)
	})

	t.Run("losses whose reports were dropped are told with the next", func(t *testing.T) {
		var i interrupts
		for range 15 {
			i.lose()
		}
		i.tell(10)
		ahead(t, &i, false)
		i.tell(1) // the machine hears of the next one first
		i.lose()
		ahead(t, &i, false)
		i.lose()
		ahead(t, &i, true)
	})

	t.Run("one call is ended alone, and one that has returned not at all", func(t *testing.T) {
		var i interrupts
		a, b := begin(&i, 1), begin(&i, 2)
		i.end(handlerCall{1, 1})
		ended(t, a, true)
		ended(t, b, false)
		i.returned(handlerCall{1, 2})
		i.lose()
		ended(t, b, false)
	})
}
