package partition

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/nats-io/nats.go/jetstream"
)

func TestAReadOfAReplicaThatIsBehindIsRepeatedForAWhile(t *testing.T) {
	t.Parallel()
	other := errors.New("another layout")
	for _, c := range []struct {
		behaviour string
		behind    time.Duration // until the replica has caught up
		finds     error
		want      error
		after     time.Duration
	}{
		{"one that is not behind is read once", 0, nil, nil, 0},
		{"one that is behind is read until it has caught up", time.Second, nil, nil, time.Second},
		{"what else is wrong is told at once", 0, other, other, 0},
		{"and when it has caught up", time.Second, other, other, time.Second},
		{"one that never catches up is given up", time.Hour, nil, errNotProvisioned, catchUp},
	} {
		t.Run(c.behaviour, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				begun := time.Now()
				err := caughtUp(t.Context(), func() error {
					if time.Since(begun) < c.behind {
						return errNotProvisioned
					}
					return c.finds
				})
				if !errors.Is(err, c.want) || time.Since(begun) != c.after {
					t.Errorf("%v after %v, want %v after %v", err, time.Since(begun), c.want, c.after)
				}
			})
		})
	}
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	if err := caughtUp(ended, func() error { return errNotProvisioned }); !errors.Is(err, errNotProvisioned) {
		t.Errorf("after its context has ended: %v", err)
	}
}

// behind is a bucket as a replica shows it that has heard of nothing yet.
type behind struct{ jetstream.KeyValue }

func (behind) Bucket() string { return "behind" }

func (behind) Get(context.Context, string) (jetstream.KeyValueEntry, error) {
	return nil, jetstream.ErrKeyNotFound
}

func TestWhatAReplicaHasNotHeardOfIsNotProvisioned(t *testing.T) {
	t.Parallel()
	if _, err := recordedLayout(t.Context(), behind{}); !errors.Is(err, errNotProvisioned) {
		t.Errorf("the layout: %v", err)
	}
	if err := agree(t.Context(), nil, behind{}, Config{}, layout{}, false); !errors.Is(err, errNotProvisioned) {
		t.Errorf("whether messages are queued: %v", err)
	}
}
