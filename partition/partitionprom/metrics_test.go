package partitionprom

import (
	"os"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/muster-dev/muster/partition"
	"github.com/muster-dev/muster/partition/report"
	"github.com/muster-dev/muster/partition/state"
)

// fixed is a worker whose figures don't change.
type fixed report.Metrics

func (f fixed) Metrics() report.Metrics { return report.Metrics(f) }
func (f fixed) CountKeys(count func(partition.Slots) int) int {
	return count(partition.Slots{Of: 16, Slots: f.Slots})
}

func histogramOf(d time.Duration, bounds ...time.Duration) report.Histogram {
	h := report.Histogram{Count: 1, Sum: d}
	for _, b := range bounds {
		n := uint64(0)
		if d <= b {
			n = 1
		}
		h.Buckets = append(h.Buckets, report.Bucket{Bound: b, Count: n})
	}
	return h
}

// TestCollector: every name, label, help text and unit. Dashboards and alerts rely on them.
func TestCollector(t *testing.T) {
	t.Parallel()
	m := fixed{
		Group: "orders", State: state.Stable, Leading: true, StableID: 7, MapVersion: 3,
		Slots: []int{1, 4}, ActiveWorkers: 5, Standby: true, Draining: true,
		WritesRefused: 2500 * time.Millisecond,
		Pending:       &report.PendingMetrics{Messages: 1200, Oldest: 90 * time.Second, StreamFill: 0.25},
		Handlers:      report.HandlerMetrics{InFlight: 6, Failed: 15, Duration: histogramOf(20*time.Millisecond, 10*time.Millisecond, 25*time.Millisecond)},
		Retry:         report.RetryMetrics{Messages: 30, Keys: 10, Oldest: time.Minute},
		Counters: report.Counters{
			Rebalances: 1, RebalanceDuration: 1500 * time.Millisecond, SlotsMoved: 7, KeysMoved: 70, Emergencies: 2,
			LeaseUncertain: 3, HandoffsForced: 4, StalePinsFreed: 5, StreamRollbacks: 6, HandlerPanics: 8, ResourcesRecreated: 9, FencesRaised: 11,
			RecordsRejected: map[string]uint64{"map": 0, "claim": 1}, Queued: 12, Retried: 13, DeadLettered: 14,
			StatesMoved: 16, StateBytes: 1700, StatesNotMoved: 18,
		},
		HandoffPause: histogramOf(3*time.Millisecond, 2500*time.Microsecond, 5*time.Millisecond, 2500*time.Millisecond),
		Detection:    histogramOf(time.Minute, time.Second, 30*time.Second),
	}
	c := newCollector(m, Options{Names: Names{Prefix: "orders", Keys: "chamber"}, Labels: prometheus.Labels{"site": "a"}, Assigned: func(s partition.Slots) int { return 10 * len(s.Slots) }})
	want, err := os.ReadFile("testdata/metrics.txt")
	if err != nil {
		t.Fatal(err)
	}
	if err := testutil.CollectAndCompare(c, strings.NewReader(string(want))); err != nil {
		t.Error(err)
	}
}

// TestCollectorOfAFollower: what only a leader knows is absent elsewhere, rather than 0.
func TestCollectorOfAFollower(t *testing.T) {
	t.Parallel()
	c := newCollector(fixed{Group: "orders"}, Options{})
	for _, name := range []string{"muster_partition_pending_messages", "muster_partition_oldest_pending_seconds", "muster_partition_stream_fill_ratio"} {
		if n := testutil.CollectAndCount(c, name); n != 0 {
			t.Errorf("there is %s", name)
		}
	}
}

// TestFixedNames: whatever a group is called, its series have the same names, with the group as a
// label beside those of the program.
func TestFixedNames(t *testing.T) {
	t.Parallel()
	for _, group := range []string{"orders", "device-twins"} {
		c := newCollector(fixed{Group: group, MapVersion: 3}, Options{Labels: prometheus.Labels{"site": "a"}})
		want := `# HELP muster_partition_assignment_version Version of the assignment map that the worker has.
# TYPE muster_partition_assignment_version gauge
muster_partition_assignment_version{group="` + group + `",site="a"} 3
`
		if err := testutil.CollectAndCompare(c, strings.NewReader(want), "muster_partition_assignment_version"); err != nil {
			t.Error(err)
		}
	}
}
