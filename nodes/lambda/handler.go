package lambda

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/aws/aws-lambda-go/events"

	"github.com/muster-dev/muster/internal/quantity"
	"github.com/muster-dev/muster/internal/secret"
	"github.com/muster-dev/muster/nodes"
	"github.com/muster-dev/muster/nodes/ec2"
	"github.com/muster-dev/muster/nodes/ec2/event"
)

// Plane is the node plane as a Handler uses it; *nodes.Reconciler is one.
type Plane interface {
	Tick(context.Context) (nodes.Report, error)
	Interrupt(context.Context, nodes.InterruptionEvent) error
}

// Handler handles invocations. It implements the Handler of github.com/aws/aws-lambda-go/lambda; several invocations may run at a time.
type Handler struct {
	c    Config
	open func(context.Context) (Plane, error)

	mu    sync.Mutex
	plane Plane
}

// New returns a Handler. open is called by the first invocation; if it fails, the next one tries again.
func New(c Config, open func(context.Context) (Plane, error)) *Handler {
	if c.Clock == nil {
		c.Clock = nodes.SystemClock{}
	}
	if c.Log == nil {
		c.Log = slog.Default()
	}
	return &Handler{c: c, open: open}
}

// mostConcurrent is how many interruptions of one invocation are worked on at a time.
const mostConcurrent = 20

// Answer is what a tick returns to its caller, for a person who invokes the function by hand.
type Answer struct {
	Tick   string `json:"tick"`
	Held   bool   `json:"held,omitempty"` // another tick was running
	Action string `json:"action,omitempty"`
	Reason string `json:"reason,omitempty"`
	Detail string `json:"detail,omitempty"`
}

// shape is as much of an event as tells what it is.
type shape struct {
	Source     string            `json:"source"`
	DetailType string            `json:"detail-type"`
	ID         string            `json:"id"`
	Records    []json.RawMessage `json:"Records"`
}

// Invoke handles one event: a scheduled one by a tick, an interruption or a batch of them from SQS by working on it. An event that it
// can't read, or that is not this function's, is refused by an error that says why.
func (h *Handler) Invoke(ctx context.Context, payload []byte) ([]byte, error) {
	var s shape
	if err := json.Unmarshal(payload, &s); err != nil {
		return nil, h.refuse("", fmt.Errorf("the event can't be read: %w", err))
	}
	ctx, cancel := h.limit(ctx)
	defer cancel()
	switch {
	case len(s.Records) > 0:
		return h.batch(ctx, payload)
	case s.DetailType == "Scheduled Event" && (s.Source == "aws.events" || s.Source == "aws.scheduler"):
		return h.tick(ctx, s.ID)
	}
	return nil, h.interruption(ctx, payload)
}

// limit ends the work before Lambda does.
func (h *Handler) limit(ctx context.Context) (context.Context, context.CancelFunc) {
	deadline, ok := ctx.Deadline()
	if !ok {
		return context.WithCancel(ctx)
	}
	return h.c.Clock.WithDeadline(ctx, deadline.Add(-h.c.Margin))
}

func (h *Handler) refuse(id string, err error) error {
	h.c.Log.Error("event refused", "event", id, "error", secret.Redact(err.Error()))
	return err
}

// get returns the plane, opened if need be.
func (h *Handler) get(ctx context.Context) (Plane, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.plane == nil {
		p, err := h.open(ctx)
		if err != nil {
			h.c.Log.Error("the node plane can't be opened", "error", secret.Redact(err.Error()))
			return nil, err
		}
		h.plane = p
	}
	return h.plane, nil
}

func (h *Handler) tick(ctx context.Context, id string) ([]byte, error) {
	if h.c.Function == Interruptions {
		return nil, h.refuse(id, errors.New("a scheduled event came to a function with MUSTER_FUNCTION=interruptions: point the schedule to the function that ticks"))
	}
	p, err := h.get(ctx)
	if err != nil {
		return nil, err
	}
	began := h.c.Clock.Now()
	report, err := p.Tick(ctx)
	for _, e := range report.Events {
		h.c.Log.Info(e.Kind, "tick", e.Tick, "action", e.ActionID, "instance", e.Instance, "message", secret.Redact(e.Message))
	}
	a := Answer{Tick: report.Tick, Held: report.Held}
	if d := report.Decision; d != nil {
		a.Action, a.Reason, a.Detail = string(d.Action), string(d.Reason), secret.Redact(d.Detail)
	}
	h.c.Log.Info("tick done", "tick", report.Tick, "seconds", h.c.Clock.Now().Sub(began).Seconds(), "held", report.Held, "failed", err != nil)
	if err != nil {
		return nil, errors.New(secret.Redact(err.Error()))
	}
	return json.Marshal(a)
}

// interruption handles an event that came directly.
func (h *Handler) interruption(ctx context.Context, payload []byte) error {
	list, err := h.parse(payload)
	if err != nil || len(list) == 0 {
		return err
	}
	return h.work(ctx, list)
}

// parse reads an event; nothing and no error for one that is of no concern.
func (h *Handler) parse(payload []byte) ([]nodes.InterruptionEvent, error) {
	list, err := event.Parse(payload)
	var unknown *event.UnknownError
	switch {
	case errors.As(err, &unknown) && unknown.Harmless:
		h.c.Log.Info("event of no concern", "event", unknown.ID, "why", unknown.Error())
		return nil, nil
	case err != nil:
		return nil, h.refuse("", err)
	case h.c.Function == Tick:
		return nil, h.refuse(list[0].ID, fmt.Errorf("event %s, a %s, came to a function with MUSTER_FUNCTION=tick: point its rule to the function that handles interruptions", list[0].ID, list[0].Kind))
	}
	return list, nil
}

// work handles events side by side: each can take its whole two minutes.
func (h *Handler) work(ctx context.Context, list []nodes.InterruptionEvent) error {
	p, err := h.get(ctx)
	if err != nil {
		return err
	}
	w := ec2.Worker{Handle: p.Interrupt, Clock: h.c.Clock, Log: h.c.Log}
	errs := make([]error, len(list))
	side(len(list), func(i int) {
		e := list[i]
		h.c.Log.Info("interruption", "event", e.ID, "kind", e.Kind, "instance", e.InstanceID, "age", h.c.Clock.Now().Sub(e.At).Round(time.Millisecond).String())
		if err := w.Work(ctx, e); err != nil {
			errs[i] = fmt.Errorf("event %s, %s of %s: %s", e.ID, e.Kind, e.InstanceID, secret.Redact(err.Error()))
		}
	})
	return errors.Join(errs...)
}

// side calls f for 0 to n-1, several at a time.
func side(n int, f func(int)) {
	var wg sync.WaitGroup
	slots := make(chan struct{}, mostConcurrent)
	for i := range n {
		slots <- struct{}{}
		wg.Go(func() {
			defer func() { <-slots }()
			f(i)
		})
	}
	wg.Wait()
}

// batch handles the messages of an SQS queue and names those that have to be delivered again. The event source mapping must report
// batch item failures. What can't be read is delivered again until the queue's redrive policy takes it out; what is well-formed and
// not for us is not.
func (h *Handler) batch(ctx context.Context, payload []byte) ([]byte, error) {
	var in events.SQSEvent
	if err := json.Unmarshal(payload, &in); err != nil {
		return nil, h.refuse("", fmt.Errorf("the batch can't be read: %w", err))
	}
	for _, m := range in.Records {
		if m.EventSource != "aws:sqs" {
			return nil, h.refuse(m.MessageId, fmt.Errorf("a batch of %.60q came, only those of aws:sqs are read", m.EventSource))
		}
	}
	failed := make([]bool, len(in.Records))
	side(len(in.Records), func(i int) { failed[i] = h.message(ctx, in.Records[i]) != nil })
	out := events.SQSEventResponse{BatchItemFailures: []events.SQSBatchItemFailure{}}
	for i, m := range in.Records {
		if failed[i] {
			out.BatchItemFailures = append(out.BatchItemFailures, events.SQSBatchItemFailure{ItemIdentifier: m.MessageId})
		}
	}
	if len(out.BatchItemFailures) == len(in.Records) {
		return nil, fmt.Errorf("none of %s could be handled; see the log", quantity.Of(len(in.Records), "message"))
	}
	return json.Marshal(out)
}

func (h *Handler) message(ctx context.Context, m events.SQSMessage) error {
	list, err := h.parse([]byte(m.Body))
	var unknown *event.UnknownError
	switch {
	case errors.As(err, &unknown):
		return nil // it has been logged, and coming again would not change it
	case err != nil || len(list) == 0:
		return err
	}
	return h.work(ctx, list)
}
