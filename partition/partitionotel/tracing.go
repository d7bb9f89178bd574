// Package partitionotel traces the messages of a worker of package partition with OpenTelemetry:
// from the publisher, through the time that a message waits, to its handler, and what moving a
// slot cost.
package partitionotel

import (
	"context"
	"strconv"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/trace"

	"github.com/muster-dev/muster/partition"
)

// scope names the tracer: the import path of this package.
const scope = "github.com/muster-dev/muster/partition/partitionotel"

// Options say where spans go. The zero value uses the global provider and propagator.
type Options struct {
	TracerProvider trace.TracerProvider
	// Propagator reads and writes the context of a trace in headers of messages; the W3C's if
	// nothing else is set, traceparent and baggage.
	Propagator propagation.TextMapPropagator
}

// Tracing makes the spans of one group. It may be used by several goroutines.
type Tracing struct {
	group      string
	tracer     trace.Tracer
	propagator propagation.TextMapPropagator
}

// New returns the tracing of a group, by the group's name.
func New(group string, o Options) *Tracing {
	if o.TracerProvider == nil {
		o.TracerProvider = otel.GetTracerProvider()
	}
	if o.Propagator == nil {
		o.Propagator = otel.GetTextMapPropagator()
	}
	if len(o.Propagator.Fields()) == 0 { // nobody has set one
		o.Propagator = propagation.NewCompositeTextMapPropagator(propagation.TraceContext{}, propagation.Baggage{})
	}
	return &Tracing{group: group, tracer: o.TracerProvider.Tracer(scope), propagator: o.Propagator}
}

// Publisher is what publishes: a *partition.Publisher.
type Publisher interface {
	Publish(ctx context.Context, m partition.Outgoing) (*jetstream.PubAck, error)
}

// Publish publishes a message with the context of its trace in the header, under a span "send"
// that ends when the servers have stored it. Its results are the publisher's.
func (t *Tracing) Publish(ctx context.Context, p Publisher, m partition.Outgoing) (*jetstream.PubAck, error) {
	ctx, span := t.tracer.Start(ctx, "send "+t.group, trace.WithSpanKind(trace.SpanKindProducer),
		trace.WithAttributes(append(t.common("send"), attribute.String("muster.key", m.Key))...))
	defer span.End()
	m.Header = t.Inject(ctx, m.Header)
	ack, err := p.Publish(ctx, m)
	if err != nil {
		failed(span, err)
		return ack, err
	}
	span.SetAttributes(attribute.String("messaging.destination.name", ack.Stream),
		attribute.Int64("muster.sequence.in_stream", int64(ack.Sequence)))
	return ack, nil
}

// Inject returns a copy of a header, which may be nil, with the context of the trace that ctx is
// part of: for a message that a program publishes itself.
func (t *Tracing) Inject(ctx context.Context, header nats.Header) nats.Header {
	out := nats.Header{}
	for name, values := range header {
		out[name] = append([]string(nil), values...)
	}
	t.propagator.Inject(ctx, carrier(out))
	return out
}

// common returns the attributes of every span about a message.
//
// Source: OpenTelemetry semantic conventions 1.37, "Messaging spans".
func (t *Tracing) common(operation string) []attribute.KeyValue {
	return []attribute.KeyValue{
		attribute.String("messaging.system", "nats"),
		attribute.String("messaging.operation.name", operation),
		attribute.String("messaging.operation.type", operation),
		attribute.String("messaging.consumer.group.name", t.group),
	}
}

// about returns the attributes of a span about a delivered message.
func (t *Tracing) about(m partition.Message) []attribute.KeyValue {
	return append(t.common("process"),
		attribute.String("messaging.destination.name", m.Subject),
		attribute.String("messaging.destination.partition.id", strconv.Itoa(m.Slot)),
		attribute.Int("messaging.message.body.size", len(m.Data)),
		attribute.String("muster.key", m.Key),
		attribute.Int64("muster.sequence", int64(m.Sequence)),
		attribute.Int("muster.attempt", m.Attempt),
		attribute.Int64("muster.delivered", int64(m.Delivered)),
		attribute.Bool("muster.queued", m.Queued),
		attribute.String("muster.fence", m.Fence.String()),
	)
}

func failed(span trace.Span, err error) {
	span.RecordError(err)
	span.SetStatus(codes.Error, err.Error())
}

// carrier has the headers of a NATS message. Their names are told apart by case; the
// conventions write them in lower case, and some clients as HTTP does.
type carrier nats.Header

// Get returns the first value under a name.
func (c carrier) Get(name string) string {
	if v := nats.Header(c).Get(name); v != "" {
		return v
	}
	return nats.Header(c).Get(httpName(name))
}

// Set replaces what is under a name.
func (c carrier) Set(name, value string) { nats.Header(c).Set(name, value) }

// Keys returns the names.
func (c carrier) Keys() []string {
	out := make([]string, 0, len(c))
	for name := range c {
		out = append(out, name)
	}
	return out
}
