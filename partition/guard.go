package partition

import (
	"fmt"
	"log/slog"
	"runtime/debug"

	"github.com/muster-dev/muster/partition/event"
)

// A panic in a handler would end the process. The message goes to the next worker
// then, and ends that, too: one poison message ends the whole group within seconds.
// So whatever the user has given is called through a guard: a panic becomes the
// error of that call, with its stack in the log, an event and a count.

// PanicError is the error of a handler, or of another callback, that has panicked or
// ended its goroutine. A dead letter has its stack.
type PanicError struct {
	Callback string // "Handle", "Prepare", …
	// Value is what it panicked with, nil if it called runtime.Goexit, as a test's
	// FailNow does.
	Value any
	Stack []byte
}

func (e *PanicError) Error() string {
	if e.Value == nil {
		return e.Callback + " ended its goroutine (runtime.Goexit)"
	}
	return fmt.Sprintf("%s panicked: %v", e.Callback, e.Value)
}

// Unwrap returns the error that it panicked with, if it was one.
func (e *PanicError) Unwrap() error {
	err, _ := e.Value.(error)
	return err
}

// guard calls what the user has given.
type guard struct {
	log *slog.Logger
	// tell reports a panic. It must not block: some callbacks are called by the
	// loop that takes reports.
	tell func(event.Event)
}

func newGuard(cfg Config, post func(input)) guard {
	return guard{log: cfg.Logger, tell: func(e event.Event) { go post(noteInput{e}) }}
}

// call calls f, in a goroutine of its own, since runtime.Goexit can't be stopped in
// the one that called it, and the loop has to live.
func (g guard) call(callback string, f func() error) error {
	ended := make(chan error, 1)
	g.start(callback, event.Event{}, f, func(err error) { ended <- err })
	return <-ended
}

// start calls f in a goroutine of its own, and then with what came of it.
func (g guard) start(callback string, about event.Event, f func() error, then func(error)) {
	go g.run(callback, about, f, then)
}

// run calls f, and then with what came of it, also if f ends the goroutine.
func (g guard) run(callback string, about event.Event, f func() error, then func(error)) {
	var err error
	returned := false
	defer func() {
		if v := recover(); !returned {
			err = &PanicError{callback, v, debug.Stack()}
		}
		//nolint:errorlint // one that a handler passes on was reported where it came from
		if p, ok := err.(*PanicError); ok && p.Callback == callback {
			g.report(p, about)
		}
		then(err)
	}()
	err = f()
	returned = true
}

// recovered is for a callback that is too frequent for a goroutine of its own. It is
// to be deferred.
func (g guard) recovered(callback string) {
	if v := recover(); v != nil {
		g.report(&PanicError{callback, v, debug.Stack()}, event.Event{})
	}
}

func (g guard) report(p *PanicError, about event.Event) {
	g.log.Error("A callback panicked; the worker lives on.", "callback", p.Callback, "slot", about.Slot, "err", p.Error(), "stack", string(p.Stack))
	about.Kind, about.Reason, about.Err = event.Panicked, p.Callback, p.Error()
	g.tell(about)
}

// expected guards Config.Rebalance.Expected: 0, which is unknown, if it panics.
func (g guard) expected(f func() int) func() int {
	if f == nil {
		return nil
	}
	return func() (n int) {
		defer g.recovered("Expected")
		return f()
	}
}

// assigned guards what counts the keys for CountKeys, which a scrape calls: the number of
// slots if it panics.
func (g guard) assigned(f func(Slots) int) func(Slots) int {
	return func(s Slots) int {
		n := len(s.Slots)
		func() {
			defer g.recovered("Assigned")
			n = f(s)
		}()
		return n
	}
}
