package partition

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/muster-dev/muster/partition/internal/natstest"
)

// pullRig has pullers on a server, with one slot.
type pullRig struct {
	t   *testing.T
	url string
	cfg Config
	lay layout
	at  place
	js  jetstream.JetStream

	released chan string // what pullers report as released
}

func newPullRig(t *testing.T, inFlight int) *pullRig {
	cfg := Config{Name: "worker", Stream: "jobs", Subject: "jobs.*", Slots: 1, Retry: Retry{Disabled: true}, Delivery: Delivery{InFlight: inFlight}}.resolve()
	r := &pullRig{t: t, url: natstest.Start(t, natstest.Options{}), cfg: cfg, released: make(chan string, 9)}
	var err error
	if r.lay, err = r.cfg.validate(); err != nil {
		t.Fatal(err)
	}
	r.at = r.lay.firstGeneration().place(0)
	nc := connect(t, r.url)
	if r.js, err = jetstream.New(nc); err != nil {
		t.Fatal(err)
	}
	if err := Open(nc, r.cfg.Name).Provision(t.Context(), r.cfg); err != nil {
		t.Fatal(err)
	}
	return r
}

// puller returns one with a valid lease that holds the slot.
func (r *pullRig) puller(h HandlerFunc) *puller {
	nc := connect(r.t, r.url)
	js, err := jetstream.New(nc)
	if err != nil {
		r.t.Fatal(err)
	}
	p, err := newPuller(r.cfg, r.lay, nc, js, h, func(in input) {
		if _, is := in.(slotReleasedInput); is {
			r.released <- "released"
		}
	})
	if err != nil {
		r.t.Fatal(err)
	}
	r.t.Cleanup(p.close)
	p.trustUntil(time.Now().Add(time.Hour))
	p.suspend(false)
	p.hold(holdEffect{place: r.at, fence: Fence{1, 1}})
	return p
}

func (r *pullRig) publish(n int) {
	if _, err := r.js.Publish(r.t.Context(), "jobs.key", fmt.Append(nil, n)); err != nil {
		r.t.Fatal(err)
	}
}

// soon waits for a channel, for less than any repair needs.
func (r *pullRig) soon(what string, c <-chan string, want string) {
	r.t.Helper()
	select {
	case got := <-c:
		if got != want {
			r.t.Fatalf("%s: %q, want %q", what, got, want)
		}
	case <-time.After(stalePinCheck - time.Second):
		r.t.Fatalf("%s: not within %v", what, stalePinCheck-time.Second)
	}
}

// begins is a handler that tells what begins, and returns an error.
func begins(told chan string, err error) HandlerFunc {
	return func(_ context.Context, m Message) error {
		told <- string(m.Data)
		return err
	}
}

// TestPuller is how what the delivery decides is carried out on a server.
func TestPuller(t *testing.T) {
	t.Parallel()
	pullerTests(t, 1)
}

// TestPullerWithSeveralInFlight is TestPuller with several messages in flight.
func TestPullerWithSeveralInFlight(t *testing.T) {
	t.Parallel()
	pullerTests(t, 4)
	t.Run("a handoff ends where the consumer is gone", func(t *testing.T) {
		t.Parallel()
		r := newPullRig(t, 4)
		told := make(chan string, 1)
		p := r.puller(begins(told, nil))
		r.publish(1)
		r.soon("the first begins", told, "1")
		if err := r.js.DeleteConsumer(t.Context(), r.cfg.Stream, r.lay.consumer(r.at)); err != nil {
			t.Fatal(err)
		}
		p.release(releaseEffect{place: r.at})
		r.soon("the slot", r.released, "released")
	})
	t.Run("keys of a slot are handled side by side", func(t *testing.T) {
		t.Parallel()
		r := newPullRig(t, 4)
		both := make(chan string, 2)
		running := make(map[string]bool)
		r.puller(func(ctx context.Context, m Message) error {
			both <- m.Key
			<-ctx.Done()
			return ctx.Err()
		})
		for _, key := range []string{"a", "b"} {
			if _, err := r.js.Publish(t.Context(), "jobs."+key, nil); err != nil {
				t.Fatal(err)
			}
		}
		for range 2 {
			select {
			case key := <-both:
				running[key] = true
			case <-time.After(stalePinCheck - time.Second):
			}
		}
		if !running["a"] || !running["b"] {
			t.Errorf("handlers run of the keys %v, want a and b", running)
		}
	})
}

func pullerTests(t *testing.T, inFlight int) {
	for name, test := range map[string]func(r *pullRig){
		"what is processed leaves the stream": func(r *pullRig) {
			told := make(chan string, 1)
			r.puller(begins(told, nil))
			r.publish(1)
			r.soon("it begins", told, "1")
			for end := time.Now().Add(stalePinCheck); ; time.Sleep(10 * time.Millisecond) {
				s, err := r.js.Stream(r.t.Context(), r.cfg.Stream)
				if err != nil {
					r.t.Fatal(err)
				}
				if s.CachedInfo().State.Msgs == 0 {
					return
				}
				if time.Now().After(end) {
					r.t.Fatal("it stays there")
				}
			}
		},
		"what comes for a dropped slot goes to the next owner": func(r *pullRig) {
			told := make(chan string, 2)
			former := r.puller(begins(told, nil))
			r.publish(1)
			r.soon("the first begins", told, "1")
			former.dropSlot(r.at) // which leaves its pull at the server
			r.publish(2)
			next := make(chan string, 2)
			r.puller(begins(next, nil))
			r.soon("the second begins at the next owner", next, "2")
		},
		"a slot is free when it is reported as released": func(r *pullRig) {
			told := make(chan string, 1)
			former := r.puller(begins(told, nil))
			r.publish(1)
			r.soon("the first begins", told, "1")
			former.release(releaseEffect{place: r.at})
			r.soon("the slot", r.released, "released")
			former.nc.Close() // or it would return what comes, and the pin with it
			next := make(chan string, 1)
			r.puller(begins(next, nil))
			r.publish(2)
			r.soon("the second begins at the next owner", next, "2")
		},
		"what failed begins at the next owner of a handoff": func(r *pullRig) {
			told := make(chan string, 1)
			r.cfg.Delivery.RetryDelay = time.Hour
			former := r.puller(begins(told, errors.New("it fails")))
			r.publish(1)
			r.soon("it begins", told, "1")
			former.release(releaseEffect{place: r.at})
			next := make(chan string, 1)
			r.puller(begins(next, nil))
			r.soon("it begins at the next owner", next, "1")
		},
		"a handler whose lease is invalid is interrupted": func(r *pullRig) {
			told := make(chan string, 2)
			p := r.puller(func(ctx context.Context, _ Message) error {
				told <- "begun"
				select {
				case <-ctx.Done():
					told <- "interrupted"
				case <-time.After(2 * stalePinCheck):
				}
				return ctx.Err()
			})
			r.publish(1)
			r.soon("the handler", told, "begun")
			p.suspend(true)
			r.soon("the handler", told, "interrupted")
		},
		"a handler has its time, and no more": func(r *pullRig) {
			told := make(chan string, 2)
			r.cfg.Delivery.HandlerTimeout = 50 * time.Millisecond
			r.puller(func(ctx context.Context, _ Message) error {
				<-ctx.Done()
				told <- ctx.Err().Error()
				return nil
			})
			r.publish(1)
			r.soon("the handler ends with", told, context.DeadlineExceeded.Error())
		},
		"the end waits for the handlers": func(r *pullRig) {
			told := make(chan string, 2)
			p := r.puller(func(ctx context.Context, _ Message) error {
				told <- "begun"
				<-ctx.Done()
				time.Sleep(50 * time.Millisecond)
				told <- "ended"
				return nil
			})
			r.publish(1)
			r.soon("the handler", told, "begun")
			p.close()
			select {
			case <-told:
			default:
				r.t.Error("the handler runs yet")
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			test(newPullRig(t, inFlight))
		})
	}
}
