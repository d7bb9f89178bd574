package partition

import (
	"maps"
	"sync"
	"time"

	"github.com/muster-dev/muster/partition/event"
	"github.com/muster-dev/muster/partition/report"
)

// since is the time from t to now, 0 if t is zero or ahead.
func since(t, now time.Time) time.Duration {
	if t.IsZero() {
		return 0
	}
	return max(0, now.Sub(t))
}

// eventCounts adds up what the metrics say of events. The zero value counts from zero.
type eventCounts struct {
	mu        sync.Mutex
	counters  report.Counters // RecordsRejected has only kinds that were
	pause     histogram
	detection histogram
}

func (c *eventCounts) count(e event.Event) {
	c.mu.Lock()
	defer c.mu.Unlock()
	n := &c.counters
	switch e.Kind {
	case event.Planned:
		n.Rebalances++
		n.SlotsMoved += uint64(e.Count)
		n.KeysMoved += e.Keys
		if e.Reason == reasonCrash {
			n.Emergencies++
		}
	case event.Rebalanced:
		n.RebalanceDuration = e.Duration
	case event.LeaseUncertain:
		n.LeaseUncertain++
	case event.StalePinFreed:
		n.StalePinsFreed++
	case event.HandoffForced:
		n.HandoffsForced++
	case event.StreamRolledBack:
		n.StreamRollbacks++
	case event.Panicked:
		n.HandlerPanics++
	case event.ResourceRecreated:
		n.ResourcesRecreated++
	case event.FencesRaised:
		n.FencesRaised++
	case event.StateMoved:
		n.StatesMoved++
		n.StateBytes += uint64(e.Count)
	case event.StateNotMoved:
		n.StatesNotMoved++
	case event.SlotResumed:
		c.pause.observe(e.Duration)
	case event.WorkerGone:
		if e.Duration > 0 {
			c.detection.observe(e.Duration)
		}
	case event.RecordRejected:
		if n.RecordsRejected == nil {
			n.RecordsRejected = make(map[string]uint64)
		}
		n.RecordsRejected[e.Reason]++
	default:
	}
}

// snapshot returns copies of what was counted, with every kind of record.
func (c *eventCounts) snapshot() (counters report.Counters, pause, detection report.Histogram) {
	rejected := make(map[string]uint64, len(records))
	for _, kind := range records {
		rejected[kind] = 0
	}

	c.mu.Lock()
	defer c.mu.Unlock()
	maps.Copy(rejected, c.counters.RecordsRejected)
	counters = c.counters
	counters.RecordsRejected = rejected
	return counters, c.pause.snapshot(), c.detection.snapshot()
}
