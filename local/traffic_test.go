package local

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/muster-dev/muster/defender"
	"github.com/muster-dev/muster/defender/collect"
	"github.com/muster-dev/muster/defender/replay"
)

// TestTrafficOnASlowMachine orders messages while the machine cannot publish as fast as the
// background's rate says: they are published all the same, soon, and counted apart from what
// the background is behind.
func TestTrafficOnASlowMachine(t *testing.T) {
	const chambers = 40
	synctest.Test(t, func(t *testing.T) {
		collector, err := collect.New(acceptingStore{}, &nats.Conn{})
		if err != nil {
			t.Fatal(err)
		}
		source, err := replay.GenerateTraces(1)
		if err != nil {
			t.Fatal(err)
		}
		slowly := func(context.Context, *collect.Collector, Prepared) error {
			time.Sleep(100 * time.Millisecond)
			return nil
		}
		traffic := newTraffic(collector, source, replay.Chambers(chambers), slowly)
		defer traffic.close()
		traffic.Rate.Store(1000) // of the 80 messages/s that the lanes publish
		time.Sleep(10 * time.Second)

		for at := range chambers {
			traffic.Queue(Order{Chamber: at})
		}
		if n := traffic.Ordered(); n != chambers {
			t.Errorf("%d orders wait, want %d: those of the background are not among them", n, chambers)
		}
		// One of each chamber is published in half a second: the background's, and then these.
		time.Sleep(1100 * time.Millisecond)

		if n := traffic.Ordered(); n != 0 {
			t.Errorf("%d of %d orders wait after 1.1 s", n, chambers)
		}
		if n := traffic.Waiting(); n < chambers-Lanes || n > chambers {
			t.Errorf("%d messages wait, want about one of each of the %d chambers", n, chambers)
		}
	})
}

// acceptingStore takes every T-chart and keeps none.
type acceptingStore struct{ defender.Store }

func (acceptingStore) PutTChart(context.Context, defender.TChartKey, []byte, time.Time) error {
	return nil
}
