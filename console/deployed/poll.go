package deployed

import (
	"context"
	"time"
)

// readTimeout bounds one reading of a source.
const readTimeout = 5 * time.Second

// poller reads a source again and again.
type poller struct {
	every time.Duration // without a wake
	least time.Duration // between two readings
	wake  chan struct{}
	read  func(context.Context)
}

func newPoller(every, least time.Duration, read func(context.Context)) *poller {
	return &poller{every: every, least: least, wake: make(chan struct{}, 1), read: read}
}

// soon has the source read again.
func (p *poller) soon() {
	select {
	case p.wake <- struct{}{}:
	default:
	}
}

// run reads until ctx ends.
func (p *poller) run(ctx context.Context) {
	for {
		reading, done := context.WithTimeout(ctx, readTimeout)
		p.read(reading)
		done()
		if !pause(ctx, p.least) {
			return
		}
		select {
		case <-ctx.Done():
			return
		case <-p.wake:
		case <-time.After(p.every - p.least):
		}
	}
}

// pause waits. It reports false if ctx ended first.
func pause(ctx context.Context, d time.Duration) bool {
	select {
	case <-ctx.Done():
		return false
	case <-time.After(d):
		return true
	}
}
