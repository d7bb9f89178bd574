package partition

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/nats-io/nats.go/jetstream"
)

// watchedBucket is a bucket of which only the watch is there.
type watchedBucket struct {
	jetstream.KeyValue
	jetstream.KeyWatcher
	updates chan jetstream.KeyValueEntry
}

func (b *watchedBucket) WatchAll(context.Context, ...jetstream.WatchOpt) (jetstream.KeyWatcher, error) {
	return b, nil
}
func (b *watchedBucket) Updates() <-chan jetstream.KeyValueEntry { return b.updates }
func (b *watchedBucket) Stop() error                             { return nil }

// TestASilentWatchEnds: a watch lasts as long as it tells something, and ends when it
// never does, or has not for as long as it should.
func TestASilentWatchEnds(t *testing.T) {
	t.Parallel()
	const quiet, every, times = 12 * time.Second, 10 * time.Second, 5
	for name, tt := range map[string]struct {
		quiet time.Duration
		tells int
		opts  []jetstream.WatchOpt
		ends  time.Duration // 0: it goes on
	}{
		"it never tells anything":           {quiet, 0, nil, apiTimeout},
		"it falls silent":                   {quiet, times, nil, (times-1)*every + quiet},
		"it may be silent for any time":     {0, times, nil, 0},
		"only what is new is told, of late": {0, 0, []jetstream.WatchOpt{jetstream.UpdatesOnly()}, 0},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				ctx, stop := context.WithCancel(t.Context())
				defer stop()
				b := &watchedBucket{updates: make(chan jetstream.KeyValueEntry)}
				go func() {
					for range tt.tells {
						b.updates <- nil
						time.Sleep(every)
					}
				}()
				began, told := time.Now(), 0
				ended := make(chan time.Duration, 1)
				go func() {
					if err := follow(ctx, b, tt.quiet, func(jetstream.KeyValueEntry) { told++ }, tt.opts...); err == nil {
						t.Error("it ends without an error")
					}
					ended <- time.Since(began)
				}()
				time.Sleep(time.Hour)
				stop()
				want := tt.ends
				if want == 0 {
					want = time.Hour
				}
				if got := <-ended; got != want || told != tt.tells {
					t.Errorf("it ends after %v and %d words, want %v and %d", got, told, want, tt.tells)
				}
			})
		})
	}
}
