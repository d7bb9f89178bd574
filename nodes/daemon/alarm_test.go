package daemon_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/muster-dev/muster/nodes"
	"github.com/muster-dev/muster/nodes/daemon"
	"github.com/muster-dev/muster/nodes/sim"
)

// byAPI changes a stage's node plane to one without Prometheus, whose pods have to wait for d.
func byAPI(d time.Duration) func(*nodes.Config) {
	return func(c *nodes.Config) {
		c.Signals = nil
		c.Policy.Signals, c.Policy.PendingUpFor, c.Policy.CooldownUp = nodes.SignalsKubernetes, d, 0
	}
}

// pods is a watch that finds what is sent to it.
type pods struct {
	found  chan time.Time
	breaks chan error
}

func newPods() *pods { return &pods{found: make(chan time.Time), breaks: make(chan error)} }

func (p *pods) watch(ctx context.Context, found func(time.Time)) error {
	for {
		select {
		case <-ctx.Done():
			return nil
		case err := <-p.breaks:
			return err
		case since := <-p.found:
			found(since)
		}
	}
}

// ticks returns after how long from a moment ticks have ended.
func (s *stage) ticks(t *testing.T, after time.Time) (out []time.Duration) {
	t.Helper()
	for _, line := range strings.Split(s.log.String(), "\n") {
		if !strings.Contains(line, "msg=tick ") {
			continue
		}
		text, _, _ := strings.Cut(strings.TrimPrefix(line, "time="), " ")
		at, err := time.Parse(time.RFC3339Nano, text)
		if err != nil {
			t.Fatal(err)
		}
		if at.After(after) {
			out = append(out, at.Sub(after))
		}
	}
	return out
}

func TestWokenTicks(t *testing.T) {
	// begin starts a daemon whose only tick within the hour is over, with a full cluster.
	begin := func(t *testing.T, wait time.Duration) (*stage, *pods) {
		p := newPods()
		s := start(t, daemon.Options{Interval: time.Hour, Watch: p.watch}, byAPI(wait))
		s.simulator.AddPods(4, sim.PodSpec{Name: "old", MilliCPU: 1000})
		time.Sleep(2*time.Minute + 100*time.Millisecond) // PODS_PER_NODE counts nodes that have just joined
		return s, p
	}
	launched := func(s *stage, after time.Time) (out []time.Duration) {
		for _, e := range s.simulator.Ledger() {
			if e.Kind == sim.Launched {
				out = append(out, e.At.Sub(after))
			}
		}
		return out
	}

	t.Run("a pod that becomes unschedulable has its node launched within two seconds", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			s, p := begin(t, 0)
			now := time.Now()
			s.simulator.AddPods(1, sim.PodSpec{Name: "new", MilliCPU: 1000})
			p.found <- now
			time.Sleep(10 * time.Second)
			if got := launched(s, now); len(got) != 1 || got[0] > 2*time.Second {
				t.Errorf("launched after %v, want once within 2s\n%s", got, s.log)
			}
			if got := s.ticks(t, now); len(got) != 1 {
				t.Errorf("ticks after %v, want one", got)
			}
			s.end(t)
		})
	})
	t.Run("pods that come together take one tick", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			s, p := begin(t, 0)
			now := time.Now()
			for range 20 {
				p.found <- time.Now()
				time.Sleep(5 * time.Millisecond)
			}
			time.Sleep(10 * time.Second)
			if got := s.ticks(t, now); len(got) != 1 {
				t.Errorf("ticks after %v, want one", got)
			}
			s.end(t)
		})
	})
	t.Run("at most one a second", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			s, p := begin(t, 0)
			now := time.Now()
			for range 100 {
				p.found <- time.Now()
				time.Sleep(100 * time.Millisecond)
			}
			time.Sleep(10 * time.Second)
			got := s.ticks(t, now)
			if len(got) < 9 || len(got) > 11 {
				t.Errorf("%d ticks for ten seconds of pods: %v", len(got), got)
			}
			for i := range got[1:] {
				if gap := got[i+1] - got[i]; gap < time.Second {
					t.Errorf("two ticks within %s: %v", gap, got)
				}
			}
			s.end(t)
		})
	})
	t.Run("when a pod has waited for PENDING_UP_SEC, by its condition", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			s, p := begin(t, time.Minute)
			now := time.Now()
			s.simulator.AddPods(1, sim.PodSpec{Name: "new", MilliCPU: 1000})
			p.found <- now.Add(-20 * time.Second)
			p.found <- now.Add(time.Hour) // by a clock that is ahead: from now on
			time.Sleep(3 * time.Minute)
			got := s.ticks(t, now)
			if len(got) != 2 || got[0].Truncate(time.Second) != 40*time.Second || got[1].Truncate(time.Second) != 60*time.Second {
				t.Errorf("ticks after %v, want after 40 and 60 s", got)
			}
			s.end(t)
		})
	})
	t.Run("a watch that breaks is begun again", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			s, p := begin(t, 0)
			p.breaks <- errors.New("connection refused")
			p.breaks <- nil
			now := time.Now()
			p.found <- now
			time.Sleep(10 * time.Second)
			if got := s.ticks(t, now); len(got) != 1 {
				t.Errorf("ticks after %v, want one", got)
			}
			if warned := func(l string) bool {
				return strings.Contains(l, "watching pods") && strings.Contains(l, "connection refused")
			}; !slices.ContainsFunc(strings.Split(s.log.String(), "\n"), warned) {
				t.Error("that it broke is not logged")
			}
			s.end(t)
		})
	})
}

// TestWithoutPrometheusItIsNotBlind: the alert NodesBlind has to know that there is no CPU to be read.
func TestWithoutPrometheusItIsNotBlind(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := start(t, daemon.Options{}, byAPI(0))
		time.Sleep(90 * time.Second)
		_, body := s.page("/metrics")
		for _, want := range []string{`muster_nodes_signals{source="kubernetes"} 1`, "muster_nodes_pending_pods 0"} {
			if !strings.Contains(body, want) {
				t.Errorf("%s is not in\n%s", want, body)
			}
		}
		if strings.Contains(body, "muster_nodes_cpu_ratio") {
			t.Error("there is a CPU")
		}
		s.simulator.Outage(sim.ClusterPart, 0, time.Hour)
		time.Sleep(2 * time.Minute)
		if _, body := s.page("/metrics"); strings.Contains(body, "muster_nodes_pending_pods") {
			t.Error("pending pods of a cluster that can't be read")
		}
		s.end(t)
	})
}
