package partition

import (
	"context"
	"errors"
	"slices"
	"testing"

	"github.com/muster-dev/muster/partition/event"
)

// everything is a handler with all optional interfaces.
type everything struct{ HandlerFunc }

func (everything) Prepare(context.Context, Slots) error { return nil }
func (everything) Released(Slots)                       {}
func (everything) Observe(event.Event)                  {}

// preparing wraps a handler as users do, and replaces one of its interfaces.
type preparing struct{ Handler }

func (preparing) Prepare(context.Context, Slots) error { return errors.New("replaced") }
func (p preparing) Unwrap() Handler                    { return p.Handler }

func TestWrap(t *testing.T) {
	var calls []string
	note := func(name string) Middleware {
		return func(next Handler) Handler {
			return HandlerFunc(func(ctx context.Context, m Message) error {
				calls = append(calls, name)
				err := next.Handle(ctx, m)
				calls = append(calls, name+" done")
				return err
			})
		}
	}
	failed := errors.New("failed")
	base := everything{func(context.Context, Message) error {
		calls = append(calls, "handler")
		return failed
	}}

	t.Run("the first middleware is the outermost", func(t *testing.T) {
		calls = nil
		if err := Wrap(base, note("first"), note("second")).Handle(t.Context(), Message{}); !errors.Is(err, failed) {
			t.Errorf("the error is %v, want the handler's", err)
		}
		want := []string{"first", "second", "handler", "second done", "first done"}
		if !slices.Equal(calls, want) {
			t.Errorf("calls %q, want %q", calls, want)
		}
	})
	t.Run("without middleware it is the handler", func(t *testing.T) {
		if _, is := Wrap(base).(everything); !is {
			t.Errorf("it is a %T", Wrap(base))
		}
	})
	t.Run("a wrapped handler keeps its interfaces", func(t *testing.T) {
		for name, h := range map[string]Handler{
			"itself":              base,
			"middleware":          Wrap(base, note("one"), note("two")),
			"unwrapper":           preparing{base},
			"both":                Wrap(preparing{Wrap(base, note("inner"))}, note("outer")),
			"unwrapper as result": Wrap(base, func(next Handler) Handler { return preparing{next} }),
		} {
			checkFound[Preparer](t, name, h)
			checkFound[Releaser](t, name, h)
			checkFound[Observer](t, name, h)
		}
	})
	t.Run("a wrapper replaces an interface", func(t *testing.T) {
		outer := Wrap(base, func(next Handler) Handler { return preparing{next} }, note("outermost"))
		p, _ := find[Preparer](outer)
		if _, is := p.(preparing); !is {
			t.Errorf("found a %T", p)
		}
	})
	t.Run("nothing is found where nothing is", func(t *testing.T) {
		if found, is := find[Releaser](Wrap(base.HandlerFunc, note("one"))); is {
			t.Errorf("found a %T", found)
		}
	})
}

func checkFound[T any](t *testing.T, name string, h Handler) {
	t.Helper()
	if _, is := find[T](h); !is {
		t.Errorf("%s: a %T is not found", name, *new(T))
	}
}
