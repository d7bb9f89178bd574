package ec2

import (
	"cmp"
	"context"
	"log/slog"
	"time"

	"github.com/muster-dev/muster/internal/secret"
	"github.com/muster-dev/muster/nodes"
	"github.com/muster-dev/muster/nodes/ec2/event"
)

// Worker handles events one by one as their short life demands: those that come too late are dropped, those that can't be noted are
// tried again at once, since the two minutes of a warning are too short to wait for a redelivery.
type Worker struct {
	Handle func(context.Context, nodes.InterruptionEvent) error // Reconciler.Interrupt
	Clock  nodes.Clock                                          // nil: SystemClock
	Log    *slog.Logger                                         // nil: slog's default
	Retry  time.Duration                                        // pause after a failure; 0: 2 s
}

// Work handles an event. It returns nil when the event need not be delivered again: it has been handled, or dropped with a line in the
// log. A scheduled change is tried once, since there is time to deliver it again.
func (w Worker) Work(ctx context.Context, e nodes.InterruptionEvent) error {
	clock, log := w.Clock, w.Log
	if clock == nil {
		clock = nodes.SystemClock{}
	}
	if log == nil {
		log = slog.Default()
	}
	log = log.With("event", e.ID, "kind", e.Kind, "instance", e.InstanceID)
	for {
		if now := clock.Now(); event.Stale(e, now) {
			log.Warn("event dropped: it is too old", "age", now.Sub(e.At).Round(time.Second).String())
			return nil
		}
		err := w.Handle(ctx, e)
		if err == nil {
			return nil
		}
		log.Error("event could not be handled", "error", secret.Redact(err.Error()))
		if e.Kind == nodes.Health || clock.Sleep(ctx, cmp.Or(w.Retry, 2*time.Second)) != nil {
			return err
		}
	}
}
