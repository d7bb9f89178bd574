package partition

import (
	"context"
	"time"
)

// pendingEvery is how often a leader looks how old the oldest message is.
const pendingEvery = 10 * time.Second

// watchPending keeps the publication time of the oldest unprocessed message up to
// date while this worker leads; one request a stream.
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
			w.oldest.Store(nil)
			continue
		}
		look, cancel := context.WithTimeout(ctx, apiTimeout)
		_, oldest, err := pendingOf(look, w.js, w.layout.streams())
		cancel()
		if err == nil {
			w.oldest.Store(&oldest)
		}
	}
}

// oldestPending is how long the oldest unprocessed message has waited, 0 if there
// is none; false if this worker does not lead or has yet to look.
func (w *Worker) oldestPending(now time.Time) (time.Duration, bool) {
	oldest := w.oldest.Load()
	switch {
	case oldest == nil:
		return 0, false
	case oldest.IsZero():
		return 0, true
	}
	return max(0, now.Sub(*oldest)), true
}
