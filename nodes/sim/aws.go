package sim

import (
	"context"
	"time"
)

// RealTime lets the simulator's time run by the machine's clock until ctx ends: speed seconds of the simulator for each second, 1 or more.
// From then on calls take the time that they really take and no latency is added to them. It returns when ctx has ended.
//
// A world of which time passes by itself can be seen by processes that know nothing of it, through servers that speak the real
// protocols; package awsapi has one.
func RealTime(ctx context.Context, w *Simulator, speed float64) {
	const step = 10 * time.Millisecond
	w.mu.Lock()
	w.opts.Latency = 0
	began := w.now
	w.mu.Unlock()
	start := time.Now()
	tick := time.NewTicker(step)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
			elapsed := time.Duration(float64(time.Since(start)) * speed)
			w.mu.Lock()
			w.advance(began.Add(elapsed)) // not back, if somebody advanced it as well
			w.mu.Unlock()
		}
	}
}

// Zones returns the simulator's zones in their order; each has one subnet, subnet-ZONE.
func (w *Simulator) Zones() []string { return append([]string(nil), w.opts.Zones...) }

// Cluster returns the name of the simulator's cluster.
func (w *Simulator) Cluster() string { return w.opts.Policy.Cluster }
