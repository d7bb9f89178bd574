//go:build !race

package virtual

import (
	"errors"
	"math/rand/v2"
	"testing"
	"testing/synctest"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/muster-dev/muster/partition"
)

// TestAFarWorkerCreatesWhatIsLost: a request of the only worker takes 1.4 s, most of what one
// may take, and still it notices what is missing and creates it again.
func TestAFarWorkerCreatesWhatIsLost(t *testing.T) {
	registerClock(t)
	for _, stream := range []string{"jobs", "jobs-retry", "KV_work-heartbeats", "KV_work-assignments"} {
		t.Run(stream, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				time.Sleep(time.Until(today)) // a bubble begins in 2000
				c := partition.Config{Name: group, Stream: "jobs", Subject: "jobs.*.*", Slots: 4, Retry: partition.Retry{KeepFailing: true}}
				c.Lease.SuspicionGrace = 3 * time.Second
				o := options{config: c, keys: 8, every: time.Hour, latency: time.Millisecond}
				e := newEnvironment(t, o, newHistory(), rand.New(rand.NewPCG(1, 1)))
				p, err := e.begin()
				e.must(err)
				e.must(p.worker.Ready(t.Context()))
				p.link.latency.Store(int64(700 * time.Millisecond))

				e.must(e.js.DeleteStream(t.Context(), stream))
				for deleted := time.Now(); ; time.Sleep(time.Second) {
					_, err := e.js.Stream(t.Context(), stream)
					if err == nil {
						t.Logf("there again after %v", time.Since(deleted).Round(time.Second))
						return
					}
					if !errors.Is(err, jetstream.ErrStreamNotFound) {
						t.Fatal(err)
					}
					if time.Since(deleted) > 2*time.Minute {
						t.Fatal("the worker has not created it again after 2m")
					}
				}
			})
		})
	}
}
