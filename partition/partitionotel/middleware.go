package partitionotel

import (
	"context"
	"net/textproto"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/trace"

	"github.com/muster-dev/muster/partition"
	"github.com/muster-dev/muster/partition/event"
)

// Middleware traces each call of a handler, and what moving slots costs. With partition.Wrap it
// is best the first, so that the spans contain the other middleware.
//
// A span "process" is the handler's call. Its context is the handler's, so what the handler
// traces is within it, and it belongs to the trace of the publisher if the message's header
// has one. Each try of a message has its own. Beside the first one a span "wait" lasts from when
// the servers stored the message to when its handler was called; they compare two clocks.
//
// Of the events of the worker, three become spans of traces of their own: "release" is the
// handoff of a slot by its old owner, "resume" how long a slot's waiting message was kept from
// its handler, "rebalance" how long a leader's plan took to be carried out.
func (t *Tracing) Middleware() partition.Middleware {
	return func(next partition.Handler) partition.Handler { return &traced{t, next} }
}

// traced is a handler whose calls and events are traced.
type traced struct {
	*Tracing
	next partition.Handler
}

// Unwrap has the worker find what the handler implements beside Handle.
func (h *traced) Unwrap() partition.Handler { return h.next }

// Handle implements partition.Handler.
func (h *traced) Handle(ctx context.Context, m partition.Message) error {
	ctx = h.propagator.Extract(ctx, carrier(m.Header))
	about := trace.WithAttributes(h.about(m)...)
	if m.Attempt <= 1 && m.Delivered <= 1 && !m.Queued {
		_, wait := h.tracer.Start(ctx, "wait "+h.group, about, trace.WithTimestamp(m.Published))
		wait.End()
	}
	ctx, span := h.tracer.Start(ctx, "process "+h.group, about, trace.WithSpanKind(trace.SpanKindConsumer))

	// The worker recovers a panic and keeps its stack, which recovering it here would lose.
	returned := false
	defer func() {
		if !returned {
			span.SetStatus(codes.Error, "the handler panicked")
		}
		span.End()
	}()
	err := h.next.Handle(ctx, m)
	returned = true
	if err != nil {
		failed(span, err)
	}
	return err
}

// Observe implements partition.Observer: of itself, and of the handler's own if it is one.
func (h *traced) Observe(e event.Event) {
	switch e.Kind {
	case event.SlotReleased:
		h.lasted("release", e, attribute.Int("muster.slot", e.Slot))
	case event.SlotResumed:
		h.lasted("resume", e, attribute.Int("muster.slot", e.Slot))
	case event.Rebalanced:
		h.lasted("rebalance", e, attribute.Int64("muster.map.version", int64(e.Version)))
	default:
	}
	if o := observerOf(h.next); o != nil {
		o.Observe(e)
	}
}

// lasted makes a span of an event that says how long something took.
func (h *traced) lasted(what string, e event.Event, more ...attribute.KeyValue) {
	attributes := append(more, attribute.String("messaging.system", "nats"),
		attribute.String("messaging.consumer.group.name", h.group), attribute.String("muster.worker", e.Worker))
	_, span := h.tracer.Start(context.Background(), what+" "+h.group, trace.WithTimestamp(e.Time.Add(-e.Duration)),
		trace.WithAttributes(attributes...))
	span.End(trace.WithTimestamp(e.Time))
}

// observerOf returns the observer among what a handler wraps, nil if there is none.
func observerOf(h partition.Handler) partition.Observer {
	for h != nil {
		if o, ok := h.(partition.Observer); ok {
			return o
		}
		inner, ok := h.(interface{ Unwrap() partition.Handler })
		if !ok {
			return nil
		}
		h = inner.Unwrap()
	}
	return nil
}

// httpName is how HTTP writes the name of a header: "traceparent" as "Traceparent".
func httpName(name string) string { return textproto.CanonicalMIMEHeaderKey(name) }
