package servertest_test

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/muster-dev/muster/partition"
	"github.com/muster-dev/muster/partition/partitiontest/await"
)

// scripted is a handler that ends each attempt at message 1 as it is told, and all
// others well.
type scripted struct {
	mu     sync.Mutex
	ends   []error
	seen   []string // attempts at message 1
	others int
	done   chan struct{} // closed when message 1 is processed
}

func (s *scripted) Handle(_ context.Context, m partition.Message) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if string(m.Data) != "1" {
		s.others++
		return nil
	}
	s.seen = append(s.seen, fmt.Sprintf("%d %v", m.Attempt, m.Queued))
	if len(s.ends) == 0 {
		close(s.done)
		return nil
	}
	err := s.ends[0]
	s.ends = s.ends[1:]
	return err
}

// TestFenceRejection: that a worker's fence is rejected is no failed attempt.
func TestFenceRejection(t *testing.T) {
	t.Parallel()
	fenced := fmt.Errorf("storing: %w", partition.ErrFenced)
	for name, tt := range map[string]struct {
		retry bool
		ends  []error
		seen  []string // attempt, and whether it came from the retry queue
	}{
		"at the head of its slot": {false, []error{fenced, fenced, fenced}, []string{"1 false", "1 false", "1 false", "1 false"}},
		"is not queued for retry": {true, []error{fenced, fenced, fenced}, []string{"1 false", "1 false", "1 false", "1 false"}},
		"in the retry queue":      {true, []error{errFails, fenced, fenced, fenced}, []string{"1 false", "2 true", "2 true", "2 true", "2 true"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			g := startGroup(t, oneServer(t), 0, func(c *partition.Config) {
				c.Slots, c.Delivery.RetryDelay, c.Retry.Disabled = 1, 5*time.Millisecond, true
				if tt.retry {
					c.Retry = partition.Retry{Delay: 5 * time.Millisecond, MaxDelay: 20 * time.Millisecond, Attempts: 3}
				}
			})
			h := &scripted{ends: tt.ends, done: make(chan struct{})}
			w, err := partition.New(g.connect("w0"), g.cfg, h)
			if err != nil {
				t.Fatal(err)
			}
			ctx, cancel := context.WithCancel(t.Context())
			ended := make(chan error, 1)
			go func() { ended <- w.Run(ctx) }()
			defer func() { cancel(); <-ended }()
			g.publish(1, 1)
			select {
			case <-h.done:
			case <-time.After(await.Patience):
				t.Error("the message is not processed")
			}
			h.mu.Lock()
			defer h.mu.Unlock()
			if !slices.Equal(h.seen, tt.seen) {
				t.Errorf("attempts are %v, want %v", h.seen, tt.seen)
			}
			if letters := g.deadLetters(); len(letters) > 0 {
				t.Errorf("dead letters %+v, want none", letters)
			}
		})
	}
}
