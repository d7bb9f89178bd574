package partitions

import (
	"fmt"
	"strings"
	"testing"

	"github.com/muster-dev/muster/partition/report"
	"github.com/muster-dev/muster/partition/state"
)

// TestStatus: a group without workers says so in its first line.
func TestStatus(t *testing.T) {
	t.Parallel()
	status := func(workers ...report.Worker) string {
		var b strings.Builder
		writeStatus(&b, report.Group{Group: "orders", State: state.Emergency, Leader: "orders-1", Epoch: 3, Version: 2, Slots: 64, Workers: workers}, false)
		first, _, _ := strings.Cut(b.String(), "\n")
		return first
	}
	dead := report.Worker{ID: "orders-1", State: state.Gone}
	if got := status(dead, dead); got != "Group orders is EMERGENCY: no worker is alive. The last leader was orders-1 (epoch 3)." {
		t.Error(got)
	}
	if got := status(dead, report.Worker{ID: "orders-2", State: state.Stable}); got != "Group orders is EMERGENCY, led by orders-1 (epoch 3)." {
		t.Error(got)
	}
}

func TestPartitionsStatusShowsWhatIsQueuedForRetry(t *testing.T) {
	t.Parallel()
	r := report.Group{RetryQueue: report.RetryQueue{Messages: 14, Oldest: 90, Keys: []report.RetryKey{{Key: "a:b", Messages: 3, Slot: 7, Owner: "jobs-2"}}}}
	for i := range 11 {
		r.RetryQueue.Keys = append(r.RetryQueue.Keys, report.RetryKey{Key: fmt.Sprintf("k:%d", i), Messages: 1, Slot: i})
	}
	for all, want := range map[bool]string{false: "and 2 more; see --all", true: "k:10"} {
		var out strings.Builder
		writeStatus(&out, r, all)
		for _, want := range []string{"no message waits; 14 of 12 keys have messages queued for retry, the oldest for 1m30s", "a:b         3         7     jobs-2", want} {
			if !strings.Contains(out.String(), want) {
				t.Errorf("all %v: it does not say %q:\n%s", all, want, out.String())
			}
		}
	}
}
