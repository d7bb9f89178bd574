package nodes_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/muster-dev/muster/nodes"
	"github.com/muster-dev/muster/nodes/sim"
)

// responders answers requests for evictions: pods are at work for the first calls about each node.
type responders struct {
	now   func() time.Time
	calls int
	err   error

	asked     map[string]int
	answered  map[string]time.Time // when none was at work any more
	withdrawn map[string]int
}

func (r *responders) RequestEvictions(_ context.Context, n nodes.NodeRef) (int, error) {
	r.asked[n.Name]++
	if r.err != nil {
		return 0, r.err
	}
	if r.asked[n.Name] <= r.calls {
		return 1, nil
	}
	if r.answered[n.Name].IsZero() {
		r.answered[n.Name] = r.now()
	}
	return 0, nil
}

func (r *responders) WithdrawEvictions(_ context.Context, n nodes.NodeRef) error {
	r.withdrawn[n.Name]++
	return nil
}

// withResponders returns a cluster with a worker too many, whose pods respond to evictions.
func withResponders(t *testing.T, calls int, err error) (*set, *responders) {
	t.Helper()
	r := &responders{calls: calls, err: err, asked: map[string]int{}, answered: map[string]time.Time{}, withdrawn: map[string]int{}}
	s := newSet(t, "aaabbb", func(c *nodes.Config) {
		c.EvictionRequester = r
		r.now = c.Clock.Now
	})
	s.SetLoad(0.1)
	return s, r
}

// firstOf returns when something first happened on a node.
func (s *set) firstOf(k sim.Kind, node string) (at time.Time) {
	for _, e := range s.Ledger() {
		if e.Kind == k && e.Instance == node && at.IsZero() {
			at = e.At
		}
	}
	return at
}

func TestEvictionRequester(t *testing.T) {
	t.Run("is asked first and waited for", func(t *testing.T) {
		s, r := withResponders(t, 5, nil)
		s.ticks(t, 40)
		if s.count(sim.Terminated) == 0 {
			t.Fatal("no worker was removed")
		}
		for _, e := range s.Ledger() {
			if e.Kind != sim.Terminated {
				continue
			}
			answered, workers := r.answered[e.Instance], s.firstOf(sim.WorkersDrained, e.Instance)
			if r.asked[e.Instance] < 6 || answered.IsZero() {
				t.Errorf("%s was asked %d times", e.Instance, r.asked[e.Instance])
			}
			if workers.Before(answered) {
				t.Errorf("the workers of %s were asked at %s, and its pods were done at %s", e.Instance, workers, answered)
			}
		}
	})
	t.Run("is not waited for longer than three quarters of the time", func(t *testing.T) {
		s, r := withResponders(t, 1_000_000, nil)
		s.ticks(t, 60)
		if s.count(sim.Terminated) == 0 || len(r.answered) > 0 {
			t.Errorf("%d removed, answered %v", s.count(sim.Terminated), r.answered)
		}
	})
	t.Run("fails without harm: the workers are asked directly", func(t *testing.T) {
		forbidden := errors.New("forbidden")
		s, r := withResponders(t, 0, forbidden)
		for range 40 {
			s.Advance(time.Minute)
			if _, err := s.Tick(t.Context()); err != nil && !errors.Is(err, forbidden) {
				t.Fatal(err)
			}
		}
		if s.count(sim.Terminated) == 0 || s.count(sim.WorkersDrained) == 0 || len(r.asked) == 0 {
			t.Errorf("%d removed, %d asked directly, asked %v", s.count(sim.Terminated), s.count(sim.WorkersDrained), r.asked)
		}
	})
}
