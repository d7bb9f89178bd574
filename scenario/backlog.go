package scenario

import (
	"context"
	"fmt"
	"sync"
	"time"
)

// backlogAge is for how long a reading of the backlog is shown.
const backlogAge = time.Second

// backlog reads how many messages are stored and not processed.
type backlog struct {
	mu      sync.Mutex
	asked   time.Time
	waiting uint64
	oldest  time.Time // when the oldest of them was stored
}

// now returns the backlog as it was at most backlogAge ago.
func (b *backlog) now(ctx context.Context, c *cluster) (waiting uint64, oldest time.Time, err error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if time.Since(b.asked) < backlogAge {
		return b.waiting, b.oldest, nil
	}
	all, err := c.streams(ctx)
	if err != nil {
		return 0, time.Time{}, fmt.Errorf("reading the backlog: %w", err)
	}
	b.asked, b.waiting, b.oldest = time.Now(), 0, time.Time{}
	for _, s := range all {
		state := s.CachedInfo().State // it was read just now
		b.waiting += state.Msgs
		if first := state.FirstTime; state.Msgs > 0 && (b.oldest.IsZero() || first.Before(b.oldest)) {
			b.oldest = first.UTC()
		}
	}
	return b.waiting, b.oldest, nil
}
