package partition

import (
	"maps"
	"testing"
	"time"
)

// With one replica on a cluster, a worker's own server may be cut off from the others, and
// so from the buckets, the streams and the leader. It still answers the worker's pings. The
// others see at once that nobody listens there any more.

// isolate cuts a worker's server off from the others.
func (w *simWorker) isolate() {
	l := w.link
	if !l.server || !l.client || l.cut {
		return
	}
	w.s.logf("%s: its server is isolated", w)
	l.holdTraffic()
	l.isolated = true
	w.s.srv.disconnected(w)
}

// rejoin connects the server with the others again. What was on its way arrives late.
func (w *simWorker) rejoin() {
	l := w.link
	if !l.isolated {
		return
	}
	l.isolated = false
	if !l.cut {
		return // the worker has lost its connection meanwhile
	}
	w.s.logf("%s: its server is back", w)
	w.s.srv.connected(w)
	l.release()
}

// ping asks the worker's server for an answer.
func (w *simWorker) ping(e pingEffect) {
	answered := pongInput{start: e.start, clustered: w.s.cluster}
	if w.link.isolated {
		w.later(2*w.s.delay(), func() { w.step(answered) })
		return
	}
	w.link.up(func() { w.link.down(func() { w.step(answered) }) })
}

// isolatedRun isolates the servers of some workers, one after the other or together, and
// returns what went wrong, nil for nothing.
func isolatedRun(seed uint64, together bool, broken simBreakage) (*sim, *simViolation) {
	s := newSim(seed, testing.Verbose())
	s.broken, s.cluster = broken, true
	s.cfg.Storage.Replicas = 1
	s.resize(12)
	s.faults = simFaults{latency: time.Millisecond, reconnect: 600 * time.Millisecond}
	for range 5 {
		s.startWorker()
	}
	s.run(8*time.Second, nil)
	end := s.now + 60*time.Second
	s.publish(end)

	for s.now < end && s.check.violation == nil {
		ws := s.live()
		s.rng.Shuffle(len(ws), func(i, j int) { ws[i], ws[j] = ws[j], ws[i] })
		cut := ws[:1]
		if together {
			cut = ws[:2]
		}
		for _, w := range cut {
			w.isolate()
		}
		s.run(s.now+s.between(100*time.Millisecond, 2*s.cfg.Lease.TTL), nil)
		for _, w := range cut {
			w.rejoin()
		}
		s.run(s.now+s.between(time.Second, 3*s.cfg.Lease.TTL), nil)
	}
	s.run(s.now+30*time.Second, nil)
	if s.check.violation == nil {
		s.allProcessed()
	}
	return s, s.check.violation
}

// allProcessed: after the last fault, every message that was published is processed.
func (s *sim) allProcessed() {
	for key, k := range s.check.keys {
		if k.Next() <= k.Published() {
			s.check.fail("liveness", "key %d: %d of %d messages are processed", key, k.Next()-1, k.Published())
			return
		}
	}
}

// TestIsolatedServer: a worker whose server is cut off from the others stops before its
// slots are given away, and works again when the server is back.
func TestIsolatedServer(t *testing.T) {
	oneGoroutine(t)
	t.Parallel()
	for name, together := range map[string]bool{"one": false, "two at once": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			for seed := uint64(1); seed <= 60; seed++ {
				if s, v := isolatedRun(seed, together, simBreakage{}); v != nil {
					t.Fatalf("seed %d: %s: %s\n%s", seed, v.name, v.text, s.lastSteps(simTold))
				}
			}
		})
	}
}

// TestPingOfAnIsolatedServerIsNoticed has the answer of a cluster's server confirm a lease,
// as that of a server on its own does.
func TestPingOfAnIsolatedServerIsNoticed(t *testing.T) {
	oneGoroutine(t)
	t.Parallel()
	broken := simBreakage{onInput: func(_ *simWorker, in input) input {
		if pong, is := in.(pongInput); is {
			pong.clustered = false
			return pong
		}
		return in
	}}
	expected := map[string]bool{"one-owner": true, "one-handler": true, "fenced-alive": true}
	for seed := uint64(1); seed <= 60; seed++ {
		if _, v := isolatedRun(seed, false, broken); v != nil {
			if !expected[v.name] {
				t.Fatalf("seed %d: %s: %s, want one of %v", seed, v.name, v.text, maps.Keys(expected))
			}
			t.Logf("seed %d: %s: %s", seed, v.name, v.text)
			return
		}
	}
	t.Error("nothing noticed")
}
