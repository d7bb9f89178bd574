package partitionotel_test

import (
	"context"
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
	api "go.opentelemetry.io/otel/trace"

	"github.com/muster-dev/muster/partition"
	"github.com/muster-dev/muster/partition/event"
	"github.com/muster-dev/muster/partition/partitionotel"
)

// recorder keeps the spans of a tracing.
type recorder struct {
	*partitionotel.Tracing
	spans *tracetest.InMemoryExporter
}

func newRecorder(t *testing.T) recorder {
	t.Helper()
	spans := tracetest.NewInMemoryExporter()
	provider := trace.NewTracerProvider(trace.WithSyncer(spans))
	t.Cleanup(func() { _ = provider.Shutdown(context.Background()) })
	return recorder{partitionotel.New("orders", partitionotel.Options{TracerProvider: provider}), spans}
}

// named returns the one span with a name.
func (r recorder) named(t *testing.T, name string) tracetest.SpanStub {
	t.Helper()
	all := r.spans.GetSpans()
	i := slices.IndexFunc(all, func(s tracetest.SpanStub) bool { return s.Name == name })
	if i < 0 {
		t.Fatalf("there is no span %q among %d", name, len(all))
	}
	return all[i]
}

func value(s tracetest.SpanStub, name string) string {
	for _, a := range s.Attributes {
		if a.Key == attribute.Key(name) {
			return a.Value.String()
		}
	}
	return ""
}

// stored is a Publisher that keeps what it publishes.
type stored struct {
	m   partition.Outgoing
	err error
}

func (s *stored) Publish(_ context.Context, m partition.Outgoing) (*jetstream.PubAck, error) {
	s.m = m
	return &jetstream.PubAck{Stream: "orders", Sequence: 7}, s.err
}

var published = time.Date(2026, 11, 25, 12, 0, 0, 0, time.UTC)

func message(header nats.Header) partition.Message {
	return partition.Message{Subject: "orders.customer1", Key: "customer1", Slot: 5, Data: []byte("{}"), Header: header,
		Sequence: 7, Published: published, Delivered: 1, Attempt: 1, Fence: partition.Fence{Version: 3, Claim: 9}}
}

// TestOneTrace: the publisher's span, the waiting and the handler's are of one trace, and so is
// what the handler traces.
func TestOneTrace(t *testing.T) {
	t.Parallel()
	r := newRecorder(t)
	out := new(stored)
	header := nats.Header{"Customer-Class": {"2"}}
	if _, err := r.Publish(t.Context(), out, partition.Outgoing{Key: "customer1", Header: header}); err != nil {
		t.Fatal(err)
	}
	if len(header) != 1 || out.m.Header.Get("Customer-Class") != "2" || out.m.Header.Get("traceparent") == "" {
		t.Errorf("the header is %v, what is published has %v", header, out.m.Header)
	}

	var within api.SpanContext
	h := partition.Wrap(partition.HandlerFunc(func(ctx context.Context, _ partition.Message) error {
		within = api.SpanContextFromContext(ctx)
		return nil
	}), r.Middleware())
	if err := h.Handle(t.Context(), message(out.m.Header)); err != nil {
		t.Fatal(err)
	}

	send, wait, process := r.named(t, "send orders"), r.named(t, "wait orders"), r.named(t, "process orders")
	if wait.Parent.SpanID() != send.SpanContext.SpanID() || process.Parent.SpanID() != send.SpanContext.SpanID() {
		t.Errorf("waiting has the parent %v and processing %v, want %v", wait.Parent.SpanID(), process.Parent.SpanID(), send.SpanContext.SpanID())
	}
	if within.SpanID() != process.SpanContext.SpanID() || within.TraceID() != send.SpanContext.TraceID() {
		t.Errorf("the handler runs within %v of %v", within.SpanID(), within.TraceID())
	}
	if !wait.StartTime.Equal(published) || process.SpanKind != api.SpanKindConsumer || send.SpanKind != api.SpanKindProducer {
		t.Errorf("waiting began %v, processing is a %v, sending a %v", wait.StartTime, process.SpanKind, send.SpanKind)
	}
	for name, want := range map[string]string{"messaging.system": "nats", "messaging.operation.type": "process",
		"messaging.destination.name": "orders.customer1", "messaging.destination.partition.id": "5", "messaging.consumer.group.name": "orders",
		"muster.key": "customer1", "muster.sequence": "7", "muster.attempt": "1", "muster.fence": "3.9"} {
		if got := value(process, name); got != want {
			t.Errorf("%s is %q, want %q", name, got, want)
		}
	}
	if process.Status.Code != codes.Unset {
		t.Errorf("the span of a message that was processed has the status %v", process.Status)
	}
}

// TestHeaderNames: a publisher of another language may have written the header as HTTP does.
func TestHeaderNames(t *testing.T) {
	t.Parallel()
	for _, name := range []string{"traceparent", "Traceparent"} {
		r := newRecorder(t)
		const id = "0af7651916cd43dd8448eb211c80319c"
		h := partition.Wrap(partition.HandlerFunc(func(context.Context, partition.Message) error { return nil }), r.Middleware())
		if err := h.Handle(t.Context(), message(nats.Header{name: {"00-" + id + "-b7ad6b7169203331-01"}})); err != nil {
			t.Fatal(err)
		}
		if got := r.named(t, "process orders").SpanContext.TraceID().String(); got != id {
			t.Errorf("%s: the trace is %s, want %s", name, got, id)
		}
	}
}

// TestFailures: a span of what failed says so, and a panic goes on to the worker.
func TestFailures(t *testing.T) {
	t.Parallel()
	full := errors.New("the table is full")
	t.Run("publisher", func(t *testing.T) {
		r := newRecorder(t)
		if _, err := r.Publish(t.Context(), &stored{err: full}, partition.Outgoing{Key: "k"}); !errors.Is(err, full) {
			t.Errorf("it returned %v", err)
		}
		if s := r.named(t, "send orders"); s.Status.Code != codes.Error || s.Status.Description != full.Error() {
			t.Errorf("status %+v", s.Status)
		}
	})
	t.Run("handler", func(t *testing.T) {
		r := newRecorder(t)
		h := partition.Wrap(partition.HandlerFunc(func(context.Context, partition.Message) error { return full }), r.Middleware())
		if err := h.Handle(t.Context(), message(nil)); !errors.Is(err, full) {
			t.Errorf("it returned %v", err)
		}
		if s := r.named(t, "process orders"); s.Status.Code != codes.Error || len(s.Events) != 1 {
			t.Errorf("status %+v, events %+v", s.Status, s.Events)
		}
	})
	t.Run("panic", func(t *testing.T) {
		r := newRecorder(t)
		h := partition.Wrap(partition.HandlerFunc(func(context.Context, partition.Message) error { panic("broken") }), r.Middleware())
		func() {
			defer func() {
				if p := recover(); p != "broken" {
					t.Errorf("the panic is %v", p)
				}
			}()
			_ = h.Handle(t.Context(), message(nil))
		}()
		if s := r.named(t, "process orders"); s.Status.Code != codes.Error || s.EndTime.IsZero() {
			t.Errorf("status %+v, ended %v", s.Status, s.EndTime)
		}
	})
	t.Run("a later try has no waiting of its own", func(t *testing.T) {
		r := newRecorder(t)
		h := partition.Wrap(partition.HandlerFunc(func(context.Context, partition.Message) error { return nil }), r.Middleware())
		m := message(nil)
		m.Attempt = 2
		if err := h.Handle(t.Context(), m); err != nil {
			t.Fatal(err)
		}
		if n := len(r.spans.GetSpans()); n != 1 {
			t.Errorf("%d spans, want 1", n)
		}
	})
}

// observer is a handler with an Observer.
type observer struct {
	partition.HandlerFunc
	seen []event.Kind
}

func (o *observer) Observe(e event.Event) { o.seen = append(o.seen, e.Kind) }

// TestEvents: what moving slots costs has spans, and the handler's own Observer sees every event.
func TestEvents(t *testing.T) {
	t.Parallel()
	r := newRecorder(t)
	inner := &observer{HandlerFunc: func(context.Context, partition.Message) error { return nil }}
	outer, ok := r.Middleware()(inner).(partition.Observer)
	if !ok {
		t.Fatal("the handler is no Observer")
	}
	for _, e := range []event.Event{
		{Kind: event.SlotReleased, Time: published, Duration: 20 * time.Millisecond, Slot: 3, Worker: "orders-1"},
		{Kind: event.SlotResumed, Time: published, Duration: 5 * time.Millisecond, Slot: 4},
		{Kind: event.Rebalanced, Time: published, Duration: time.Second, Version: 12},
		{Kind: event.MapReceived, Time: published},
	} {
		outer.Observe(e)
	}
	if len(inner.seen) != 4 || len(r.spans.GetSpans()) != 3 {
		t.Errorf("the handler saw %v, and there are %d spans", inner.seen, len(r.spans.GetSpans()))
	}
	release := r.named(t, "release orders")
	if d := release.EndTime.Sub(release.StartTime); d != 20*time.Millisecond || value(release, "muster.slot") != "3" || value(release, "muster.worker") != "orders-1" {
		t.Errorf("the release took %v: %v", d, release.Attributes)
	}
	if s := r.named(t, "rebalance orders"); !s.EndTime.Equal(published) || value(s, "muster.map.version") != "12" {
		t.Errorf("the rebalance ended %v: %v", s.EndTime, s.Attributes)
	}
}
