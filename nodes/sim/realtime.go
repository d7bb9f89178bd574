package sim

import (
	"context"
	"time"
)

// RealTime lets the simulator's time run by the machine's clock until ctx ends: speed seconds of the simulator for each second, 1 or more.
// From then on calls take the time that they really take and no latency is added to them. It returns when ctx has ended.
//
// A region whose time passes by itself can be seen by processes that know nothing of it, through servers that speak the real
// protocols; package awsapi has one.
func RealTime(ctx context.Context, w *Simulator, speed float64) {
	s := w.state
	const step = 10 * time.Millisecond
	s.mu.Lock()
	s.latency = 0
	began := s.time.now
	s.mu.Unlock()
	start := time.Now()
	tick := time.NewTicker(step)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
			elapsed := time.Duration(float64(time.Since(start)) * speed)
			s.mu.Lock()
			s.time.advance(began.Add(elapsed)) // not back, if a caller advanced it as well
			s.mu.Unlock()
		}
	}
}
