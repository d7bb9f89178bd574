package partition

import (
	"context"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go/jetstream"
)

// pendingEvery is how often a leader looks how old the oldest message is.
const pendingEvery = 10 * time.Second

// pendingWatch knows what the leader last saw of messages that are not processed. Its
// zero value knows nothing. get may be called at any time.
type pendingWatch struct {
	waiting atomic.Pointer[waitingMessages] // nil: not known
}

func (p *pendingWatch) get() *waitingMessages { return p.waiting.Load() }

// run keeps what waits up to date while this worker leads, until ctx ends: one request
// per stream.
func (p *pendingWatch) run(ctx context.Context, js jetstream.JetStream, lay layout, leading func() bool) {
	t := time.NewTicker(pendingEvery)
	defer t.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-t.C:
		}
		if !leading() {
			p.waiting.Store(nil)
			continue
		}
		if waiting, err := pendingOf(ctx, js, lay); err == nil {
			p.waiting.Store(&waiting)
		}
	}
}
