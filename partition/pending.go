package partition

import (
	"context"
	"time"
)

// pendingEvery is how often a leader looks how old the oldest message is.
const pendingEvery = 10 * time.Second

// watchPending keeps what waits up to date while this worker leads; one request a
// stream.
func (w *Worker) watchPending(ctx context.Context) {
	t := time.NewTicker(pendingEvery)
	defer t.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-t.C:
		}
		if !w.Status().Leading {
			w.waiting.Store(nil)
			continue
		}
		look, cancel := context.WithTimeout(ctx, apiTimeout)
		waiting, err := pendingOf(look, w.js, w.layout.streams())
		cancel()
		if err == nil {
			w.waiting.Store(&waiting)
		}
	}
}

// oldestPending is how long the oldest unprocessed message has waited, 0 if there
// is none; false if this worker does not lead or has yet to look.
func (w *Worker) oldestPending(now time.Time) (time.Duration, bool) {
	waiting := w.waiting.Load()
	switch {
	case waiting == nil:
		return 0, false
	case waiting.oldest.IsZero():
		return 0, true
	}
	return max(0, now.Sub(waiting.oldest)), true
}
