package partition

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/muster-dev/muster/partition/event"
	"github.com/muster-dev/muster/partition/internal/natstest"
	"github.com/muster-dev/muster/partition/internal/record"
)

// scriptedMover does what a test says, and notes what it was asked to do.
type scriptedMover struct {
	export   func(ctx context.Context) (io.Reader, error)
	importer func(ctx context.Context, state io.Reader) error
	prepared error // what Prepare returns
	hang     bool  // Prepare waits for the end of its context

	mu    sync.Mutex
	calls []string
	state []byte
}

func (s *scriptedMover) Handle(context.Context, Message) error { return nil }

func (s *scriptedMover) did(what string, slots Slots) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.calls = append(s.calls, fmt.Sprint(what, " ", slots.Slots))
}

func (s *scriptedMover) done() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.calls)
}

func (s *scriptedMover) Export(ctx context.Context, slot Slots) (io.Reader, error) {
	s.did("export", slot)
	return s.export(ctx)
}

func (s *scriptedMover) Import(ctx context.Context, slot Slots, state io.Reader) error {
	s.did("import", slot)
	if s.importer != nil {
		return s.importer(ctx, state)
	}
	data, err := io.ReadAll(state)
	if err == nil {
		s.state = data
	}
	return err
}

func (s *scriptedMover) Prepare(ctx context.Context, slots Slots) error {
	s.did("prepare", slots)
	if s.hang {
		<-ctx.Done()
		return ctx.Err()
	}
	return s.prepared
}

func (s *scriptedMover) Released(slots Slots) { s.did("released", slots) }

// exchangeRig has the exchanges of an old and of a new owner on a server.
type exchangeRig struct {
	t        *testing.T
	cfg      Config
	old, new *stateExchange
	from, to *scriptedMover

	mu     sync.Mutex
	events []event.Event
	loaded chan bool
}

var (
	oldOwner = record.Process{ID: "g-0", Claim: 5}
	newOwner = record.Process{ID: "g-1", Claim: 6}
)

func newExchangeRig(t *testing.T, change func(*Config)) *exchangeRig {
	t.Helper()
	cfg := Config{Name: "g", Stream: "s", Subject: "s.*", Slots: 8, State: StateHandoff{Timeout: time.Second}}
	if change != nil {
		change(&cfg)
	}
	url := natstest.Start(t, natstest.Options{})
	r := &exchangeRig{t: t, cfg: cfg.resolve(), from: &scriptedMover{}, to: &scriptedMover{}, loaded: make(chan bool, 9)}
	r.old = r.exchange(connect(t, url), oldOwner, r.from)
	r.new = r.exchange(connect(t, url), newOwner, r.to)
	return r
}

func (r *exchangeRig) exchange(nc *nats.Conn, self record.Process, h *scriptedMover) *stateExchange {
	cfg := r.cfg
	cfg.Logger = slog.New(slog.DiscardHandler)
	p := &puller{cfg: cfg, nc: nc, handler: h, guard: guard{cfg.Logger, func(event.Event) {}}, reports: &reports{give: func(in input) {
		r.mu.Lock()
		defer r.mu.Unlock()
		r.events = append(r.events, in.(noteInput).event)
	}}}
	x := p.newStateExchange()
	x.step = func(in deliveryInput) { r.loaded <- in.(loadedInput).complete }
	x.listen(self)
	if err := nc.Flush(); err != nil {
		r.t.Fatal(err)
	}
	return x
}

// move has the state of a slot offered and loaded, and reports whether the new owner has it all.
func (r *exchangeRig) move() bool {
	r.t.Helper()
	r.old.execute(exportEffect{place: rigSlot, state: stateMove{newOwner, 9}, leave: rigSlot.only()})
	return r.load(1)
}

func (r *exchangeRig) load(run uint64) bool {
	r.t.Helper()
	r.new.execute(loadEffect{place: rigSlot, run: run, state: stateMove{oldOwner, 9}})
	return r.result(10 * time.Second)
}

func (r *exchangeRig) result(within time.Duration) bool {
	r.t.Helper()
	select {
	case complete := <-r.loaded:
		return complete
	case <-time.After(within):
		r.t.Fatal("the load does not end")
		return false
	}
}

// told waits for an event, and returns it.
func (r *exchangeRig) told(kind event.Kind) event.Event {
	r.t.Helper()
	for end := time.Now().Add(5 * time.Second); time.Now().Before(end); time.Sleep(time.Millisecond) {
		r.mu.Lock()
		at := slices.IndexFunc(r.events, func(e event.Event) bool { return e.Kind == kind })
		var e event.Event
		if at >= 0 {
			e = r.events[at]
		}
		r.mu.Unlock()
		if at >= 0 {
			return e
		}
	}
	r.t.Fatalf("there is no event %s", kind)
	return event.Event{}
}

// did waits until a handler was called for exactly this.
func (r *exchangeRig) did(h *scriptedMover, want ...string) {
	r.t.Helper()
	for end := time.Now().Add(5 * time.Second); !slices.Equal(h.done(), want); time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			r.t.Fatalf("its calls are %q, want %q", h.done(), want)
		}
	}
}

func exporting(state []byte) func(context.Context) (io.Reader, error) {
	return func(context.Context) (io.Reader, error) { return bytes.NewReader(state), nil }
}

// TestStateExchange moves states that can be moved.
func TestStateExchange(t *testing.T) {
	t.Parallel()
	for _, size := range []int{0, 1, stateChunk, stateWindow*stateChunk + 7, 3 << 20} {
		t.Run(fmt.Sprint(size, " bytes"), func(t *testing.T) {
			t.Parallel()
			r := newExchangeRig(t, nil)
			state := bytes.Repeat([]byte("abcdefg"), size/7+1)[:size]
			r.from.export = exporting(state)
			if !r.move() || !bytes.Equal(r.to.state, state) {
				t.Errorf("%d bytes of %d came", len(r.to.state), size)
			}
			if e := r.told(event.StateMoved); e.Slot != rigSlot.slot || e.Peer != oldOwner.ID || e.Count != size {
				t.Errorf("the event is %+v", e)
			}
			r.did(r.to, "import [3]")
			r.did(r.from, "export [3]", "released [3]")
			r.old.close()
		})
	}
	t.Run("an Import that does not read to the end", func(t *testing.T) {
		t.Parallel()
		r := newExchangeRig(t, nil)
		r.from.export = exporting(make([]byte, 3<<20))
		r.to.importer = func(_ context.Context, state io.Reader) error {
			_, err := io.ReadFull(state, make([]byte, 10))
			return err
		}
		if !r.move() || r.told(event.StateMoved).Count != 3<<20 {
			t.Error("the rest was not read")
		}
	})
	t.Run("an Import that does not read to the end of a broken state", func(t *testing.T) {
		t.Parallel()
		r := newExchangeRig(t, nil)
		r.from.export = func(context.Context) (io.Reader, error) {
			return brokenAfter(make([]byte, 10*stateChunk), errors.New("broken")), nil
		}
		r.to.importer = func(_ context.Context, state io.Reader) error {
			_, err := io.ReadFull(state, make([]byte, 10))
			return err
		}
		r.move()
		r.did(r.to, "import [3]", "prepare [3]")
	})
	t.Run("a reader that is closed", func(t *testing.T) {
		t.Parallel()
		r := newExchangeRig(t, nil)
		closed := make(chan struct{})
		r.from.export = func(context.Context) (io.Reader, error) {
			in, out := io.Pipe()
			go func() {
				defer close(closed)
				_, _ = out.Write([]byte("abc"))
				_ = out.Close()
			}()
			return in, nil
		}
		if !r.move() || string(r.to.state) != "abc" {
			t.Errorf("it has %q", r.to.state)
		}
		<-closed
	})
}

// TestStateFallback: whatever goes wrong at the old owner, the new one prepares, in time, and says so.
func TestStateFallback(t *testing.T) {
	t.Parallel()
	large := make([]byte, 10*stateChunk)
	for name, tt := range map[string]struct {
		export func(ctx context.Context) (io.Reader, error)
		change func(*Config)
		reason string
	}{
		"an error":     {func(context.Context) (io.Reader, error) { return nil, errors.New("broken") }, nil, "broken"},
		"no reader":    {func(context.Context) (io.Reader, error) { return nil, nil }, nil, "no reader"},
		"a panic":      {func(context.Context) (io.Reader, error) { panic("as it was asked to") }, nil, "as it was asked to"},
		"a late error": {func(context.Context) (io.Reader, error) { return brokenAfter(large, errors.New("broken")), nil }, nil, "broken"},
		"a late panic": {func(context.Context) (io.Reader, error) { return brokenAfter(large, nil), nil }, nil, "panicked"},
		"a hang": {func(ctx context.Context) (io.Reader, error) {
			<-ctx.Done()
			return nil, ctx.Err()
		}, nil, ""},
		"a hang that ignores its context": {func(context.Context) (io.Reader, error) {
			time.Sleep(3 * time.Second)
			return nil, errors.New("late")
		}, nil, "deadline"},
		"a late hang":                 {func(ctx context.Context) (io.Reader, error) { return hungAfter(ctx, large), nil }, nil, ""},
		"more than the limit":         {exporting(large), func(c *Config) { c.State.MaxBytes = int64(len(large)) - 1 }, "MaxBytes"},
		"more than the limit at once": {exporting(large), func(c *Config) { c.State.MaxBytes = 1 }, "MaxBytes"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newExchangeRig(t, tt.change)
			r.from.export = tt.export
			begun := time.Now()
			if complete := r.move(); !complete || r.to.state != nil {
				t.Errorf("complete %t after Prepare, and %d bytes are imported", complete, len(r.to.state))
			}
			if took := time.Since(begun); took > r.cfg.State.Timeout+time.Second {
				t.Errorf("the new owner prepares after %v, the bound is %v", took, r.cfg.State.Timeout)
			}
			if calls := r.to.done(); calls[len(calls)-1] != "prepare [3]" {
				t.Errorf("the new owner's calls are %q, want Prepare last", calls)
			}
			if e := r.told(event.StateNotMoved); e.Peer != oldOwner.ID || !strings.Contains(e.Err, tt.reason) {
				t.Errorf("the event is %+v, want the reason %q", e, tt.reason)
			}
			r.did(r.from, "export [3]", "released [3]")
			r.old.close()
		})
	}
}

// brokenAfter gives data and then an error, or a panic if that is nil.
func brokenAfter(data []byte, err error) io.Reader {
	return io.MultiReader(bytes.NewReader(data), readerFunc(func([]byte) (int, error) {
		if err == nil {
			panic("the reader panicked")
		}
		return 0, err
	}))
}

func hungAfter(ctx context.Context, data []byte) io.Reader {
	return io.MultiReader(bytes.NewReader(data), readerFunc(func([]byte) (int, error) {
		<-ctx.Done()
		return 0, ctx.Err()
	}))
}

type readerFunc func([]byte) (int, error)

func (f readerFunc) Read(p []byte) (int, error) { return f(p) }

// TestStateImportFails: an Import that fails, in whatever way, is followed by Prepare.
func TestStateImportFails(t *testing.T) {
	t.Parallel()
	for name, importer := range map[string]func(ctx context.Context, state io.Reader) error{
		"an error": func(context.Context, io.Reader) error { return errors.New("it fails") },
		"a panic":  func(context.Context, io.Reader) error { panic("it fails") },
		"a slow read": func(ctx context.Context, _ io.Reader) error {
			<-ctx.Done()
			return fmt.Errorf("it fails: %w", ctx.Err())
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newExchangeRig(t, nil)
			r.from.export, r.to.importer = exporting([]byte("abc")), importer
			if !r.move() {
				t.Error("it is not complete after Prepare")
			}
			r.did(r.to, "import [3]", "prepare [3]")
			if e := r.told(event.StateNotMoved); !strings.Contains(e.Err, "it fails") {
				t.Errorf("the event is %+v", e)
			}
		})
	}
}

// TestStateOfAnotherHandoff: a state goes to the worker and the handoff that it is offered for.
func TestStateOfAnotherHandoff(t *testing.T) {
	t.Parallel()
	for name, offered := range map[string]exportEffect{
		"an earlier version": {place: rigSlot, state: stateMove{newOwner, 8}},
		"a later version":    {place: rigSlot, state: stateMove{newOwner, 10}},
		"another claim":      {place: rigSlot, state: stateMove{record.Process{ID: newOwner.ID, Claim: 7}, 9}},
		"another slot":       {place: generation{1, 8}.place(4), state: stateMove{newOwner, 9}},
		"another generation": {place: generation{2, 8}.place(3), state: stateMove{newOwner, 9}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newExchangeRig(t, nil)
			r.from.export = exporting([]byte("abc"))
			r.old.execute(offered)
			if r.load(1); r.to.state != nil {
				t.Error("a state came that is of another handoff")
			}
			r.did(r.to, "prepare [3]")
			if e := r.told(event.StateNotMoved); !strings.Contains(e.Err, errNoState.Error()) || e.Duration > r.cfg.State.Timeout/2 {
				t.Errorf("the event is %+v", e)
			}
			r.old.close()
		})
	}
}

// TestStateIsSentOnce: of two transfers of one handoff only the first gets anything, so nothing is
// read of the state after the first.
func TestStateIsSentOnce(t *testing.T) {
	t.Parallel()
	r := newExchangeRig(t, nil)
	r.from.export = exporting(make([]byte, 10*stateChunk))
	r.to.importer = func(_ context.Context, state io.Reader) error {
		if _, err := r.new.openTransfer(t.Context(), loadEffect{place: rigSlot, run: 2, state: stateMove{oldOwner, 9}}); !errors.Is(err, errNoState) {
			t.Errorf("a second transfer begins, or ends with %v", err)
		}
		_, err := io.Copy(io.Discard, state)
		return err
	}
	if !r.move() {
		t.Error("the first transfer fails")
	}
	r.did(r.to, "import [3]")
	if r.load(3); r.told(event.StateNotMoved).Err == "" {
		t.Error("a state comes twice")
	}
	r.did(r.from, "export [3]", "released [3]")
}

// TestStateOfAWorkerThatFails: an old owner that is gone ends the transfer at once, at whichever
// chunk, and one that is silent in time.
func TestStateOfAWorkerThatFails(t *testing.T) {
	t.Parallel()
	chunks := chunksOf(t, make([]byte, 6*16+5), 16)
	for cut := range chunks {
		for _, gone := range []bool{true, false} {
			t.Run(fmt.Sprintf("cut at chunk %d, gone %t", cut, gone), func(t *testing.T) {
				t.Parallel()
				r := newExchangeRig(t, func(c *Config) { c.State.Timeout = 1500 * time.Millisecond })
				r.old.close()
				nc := r.old.nc
				answered := 0
				var sub *nats.Subscription
				sub, err := nc.Subscribe(stateSubject(r.cfg.Name, oldOwner), func(msg *nats.Msg) {
					v, err := record.DecodeStateRequest(msg.Header.Get(record.StateHeader))
					if err != nil || answered == cut {
						if gone {
							_ = sub.Unsubscribe()
						}
						return
					}
					about := chunks[v.Chunk].about
					about.Transfer = v.Transfer
					answered++
					_ = nc.PublishMsg(&nats.Msg{Subject: msg.Reply, Header: nats.Header{record.StateHeader: []string{string(record.Encode(about))}}, Data: chunks[v.Chunk].data})
				})
				if err != nil {
					t.Fatal(err)
				}
				if err := nc.Flush(); err != nil {
					t.Fatal(err)
				}
				if r.load(1); r.to.state != nil {
					t.Error("half a state is imported")
				}
				e := r.told(event.StateNotMoved)
				if soon := e.Duration < time.Second; soon != gone {
					t.Errorf("it ends after %v: %s", e.Duration, e.Err)
				}
				if calls := r.to.done(); calls[len(calls)-1] != "prepare [3]" {
					t.Errorf("the calls are %q", calls)
				}
			})
		}
	}
}

// TestStatePrepares: slots that come together are prepared by one call, each once, and whatever comes
// of it is of all of them.
func TestStatePrepares(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		fails    error
		complete bool
	}{"well": {nil, true}, "with an error": {errors.New("broken"), false}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newExchangeRig(t, nil)
			r.to.prepared, r.new.prepares.gather = tt.fails, 300*time.Millisecond
			for i, slot := range []int{6, 2, 4} {
				r.new.execute(loadEffect{place: generation{1, 8}.place(slot), run: uint64(i)})
			}
			r.new.execute(loadEffect{place: generation{2, 16}.place(3), run: 3})
			for range 4 {
				if complete := r.result(5 * time.Second); complete != tt.complete {
					t.Errorf("complete is %t, want %t", complete, tt.complete)
				}
			}
			calls := r.to.done()
			slices.Sort(calls)
			if want := []string{"prepare [2 4 6]", "prepare [3]"}; !slices.Equal(calls, want) {
				t.Errorf("the calls are %q, want %q", calls, want)
			}
			if tt.fails != nil && !strings.Contains(r.told(event.PrepareFailed).Err, "broken") {
				t.Error("the event doesn't say why")
			}
		})
	}
	t.Run("that goes elsewhere", func(t *testing.T) {
		t.Parallel()
		r := newExchangeRig(t, nil)
		r.to.hang = true
		r.new.execute(loadEffect{place: rigSlot, run: 1})
		r.did(r.to, "prepare [3]")
		r.new.execute(stopLoadEffect{1})
		if r.result(time.Second) {
			t.Error("it is complete")
		}
	})
}

// TestStateIsWithdrawn: a slot that comes back, and a load that is of no use any more, end what is
// under way, and the handler is never called for the slot twice at a time.
func TestStateIsWithdrawn(t *testing.T) {
	t.Parallel()
	t.Run("the slot comes back before it was asked for", func(t *testing.T) {
		t.Parallel()
		r := newExchangeRig(t, nil)
		r.old.execute(exportEffect{place: rigSlot, state: stateMove{newOwner, 9}, leave: rigSlot.only()})
		r.old.execute(loadEffect{place: rigSlot, run: 2})
		r.result(time.Second / 2)
		r.did(r.from, "released [3]", "prepare [3]")
	})
	t.Run("the slot comes back while it is exported", func(t *testing.T) {
		t.Parallel()
		r := newExchangeRig(t, func(c *Config) { c.State.Timeout = time.Minute })
		exporting := make(chan struct{})
		r.from.export = func(ctx context.Context) (io.Reader, error) {
			close(exporting)
			<-ctx.Done()
			return nil, ctx.Err()
		}
		r.old.execute(exportEffect{place: rigSlot, state: stateMove{newOwner, 9}, leave: rigSlot.only()})
		r.new.execute(loadEffect{place: rigSlot, run: 1, state: stateMove{oldOwner, 9}})
		<-exporting
		r.old.execute(loadEffect{place: rigSlot, run: 2})
		r.result(5 * time.Second)
		r.result(5 * time.Second)
		r.did(r.from, "export [3]", "released [3]", "prepare [3]")
		r.did(r.to, "prepare [3]")
	})
	t.Run("the new owner's slot goes elsewhere", func(t *testing.T) {
		t.Parallel()
		r := newExchangeRig(t, func(c *Config) { c.State.Timeout = time.Minute })
		r.from.export = func(ctx context.Context) (io.Reader, error) {
			r.new.execute(stopLoadEffect{1})
			<-ctx.Done()
			return nil, ctx.Err()
		}
		r.old.execute(exportEffect{place: rigSlot, state: stateMove{newOwner, 9}, leave: rigSlot.only()})
		if complete := r.load(1); complete || len(r.to.done()) > 0 {
			t.Errorf("complete %t, and the calls are %q", complete, r.to.done())
		}
		r.old.execute(loadEffect{place: rigSlot, run: 2})
		r.result(5 * time.Second)
	})
	t.Run("nobody asks", func(t *testing.T) {
		t.Parallel()
		r := newExchangeRig(t, func(c *Config) { c.State.Timeout = 100 * time.Millisecond })
		r.old.execute(exportEffect{place: rigSlot, state: stateMove{newOwner, 9}, leave: rigSlot.only()})
		r.old.close()
		r.did(r.from, "released [3]")
	})
}
