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
