package console

import (
	"fmt"
	"strings"
	"testing"
	"time"
)

// group is a worker plane of workers in given states, all of which should be there.
func group(states ...string) *WorkerPlane {
	w := &WorkerPlane{Version: 1, Leader: "w-0", Expected: len(states)}
	for i, s := range states {
		w.Workers = append(w.Workers, Worker{ID: fmt.Sprintf("w-%d", i), State: s})
	}
	return w
}

func times(n int, state string) []string { return strings.Fields(strings.Repeat(state+" ", n)) }

func TestSeverity(t *testing.T) {
	with := func(w *WorkerPlane, change func(*WorkerPlane)) *WorkerPlane { change(w); return w }
	for _, c := range []struct {
		name  string
		sight sight
		after time.Duration // since the first look, at which everything served
		want  Severity
		says  string
	}{
		{"all serve", sight{workers: group(times(12, "STABLE")...)}, 0, OK, ""},
		{"a planned move", sight{workers: group(append(times(8, "STABLE"), times(22, "REBALANCING")...)...)}, time.Hour, OK, ""},
		{"one drained", sight{workers: with(group("STABLE", "STABLE", "FOLLOWER"), func(w *WorkerPlane) { w.Workers[2].Drained = noon.Add(time.Hour) })}, time.Hour, OK, ""},
		{"one that never gets a slot", sight{workers: group("STABLE", "STABLE", "FOLLOWER")}, time.Hour, Warning, "1 worker has not joined yet"},
		{"one failed", sight{workers: group(append(times(11, "STABLE"), StateFailed)...)}, 0, Critical, "1 worker failed: w-11"},
		{"one failed and another took its place", sight{workers: with(group(append(times(12, "STABLE"), StateFailed)...), func(w *WorkerPlane) { w.Expected = 12 })}, 0, OK, ""},
		{"one failed where the number is unknown", sight{workers: with(group(append(times(11, "STABLE"), StateFailed)...), func(w *WorkerPlane) { w.Expected = 0 })}, 0, Critical, "1 worker failed"},
		{"a node took four", sight{workers: with(group(append(times(8, "STABLE"), times(4, StateFailed)...)...), func(*WorkerPlane) {}), nodes: &NodePlane{Pending: []PendingPod{{Count: 4}}}}, 0, Critical, "4 workers failed"},
		{"three of thirty, the others paused", sight{workers: group(append(times(3, "STABLE"), times(27, "DEGRADED")...)...)}, 0, Critical, "Only 3 of 30 workers serve"},
		{"three of thirty, the others just start", sight{workers: with(group(times(3, "STABLE")...), func(w *WorkerPlane) { w.Expected = 30 })}, 5 * time.Second, OK, ""},
		{"three of thirty, the others don't come", sight{workers: with(group(times(3, "STABLE")...), func(w *WorkerPlane) { w.Expected = 30 })}, time.Minute, Critical, "Only 3 of 30 workers serve"},
		{"a scale-up whose pods wait for a node that is launched", sight{workers: with(group(times(8, "STABLE")...), func(w *WorkerPlane) { w.Expected = 30 }),
			nodes: &NodePlane{Pending: []PendingPod{{Count: 22}}, Action: &Action{Kind: "scale-up"}}}, time.Hour, OK, ""},
		{"pods that wait and no node is launched", sight{nodes: &NodePlane{Pending: []PendingPod{{Count: 2}}}}, 0, Warning, "2 pods are pending"},
		{"one paused", sight{workers: group(append(times(11, "STABLE"), "DEGRADED")...)}, 0, Warning, "its lease is uncertain"},
		{"no leader", sight{workers: with(group(times(3, "STABLE")...), func(w *WorkerPlane) { w.Leader = "" })}, 0, Critical, "no leader"},
		{"all failed", sight{workers: with(group(times(3, StateFailed)...), func(w *WorkerPlane) { w.Leader = "" })}, 0, Critical, "No worker is alive"},
		{"before the first map", sight{workers: &WorkerPlane{Expected: 30}}, time.Minute, OK, ""},
		{"no first map for long", sight{workers: &WorkerPlane{Expected: 30}}, time.Hour, Warning, "no assignment map"},
		{"a slot without an owner", sight{workers: with(group("STABLE"), func(w *WorkerPlane) { w.Owners = []int32{0, -1} })}, 0, Critical, "1 slot has no owner"},
		{"slots being taken over", sight{workers: with(group("STABLE"), func(w *WorkerPlane) { w.TakingOver = 3 })}, 0, Warning, "3 slots are being taken over"},
		{"messages pass through", sight{workers: with(group("STABLE"), func(w *WorkerPlane) { w.Waiting, w.Oldest = 500, noon.Add(-time.Second) })}, 0, OK, ""},
		{"messages wait", sight{workers: with(group("STABLE"), func(w *WorkerPlane) { w.Waiting, w.Oldest = 500, noon.Add(-2*time.Minute) })}, 0, Warning, "500 messages wait"},
		{"messages wait too long", sight{workers: with(group("STABLE"), func(w *WorkerPlane) { w.Waiting, w.Oldest = 1, noon.Add(-6*time.Minute) })}, 0, Critical, "1 message waits, the oldest for more than 5 min"},
		{"workers can't be read", sight{workers: &WorkerPlane{Error: "no route"}}, 0, Critical, "no route"},
		{"the node plane can't be read", sight{nodes: &NodePlane{Error: "EC2 is away"}}, 0, Warning, "EC2 is away"},
		{"a lost node", sight{nodes: &NodePlane{Nodes: []Node{{State: NodeLost}}}}, 0, Warning, "1 node is lost"},
		{"metrics of a plane that starts", sight{nodes: &NodePlane{Decision: &Decision{Reason: metricsMissing}}}, time.Minute, OK, ""},
		{"metrics that stay away", sight{nodes: &NodePlane{Decision: &Decision{Reason: metricsMissing}}}, time.Hour, Warning, "Metrics are unavailable"},
		{"an action in progress", sight{nodes: &NodePlane{Action: &Action{Kind: "scale-down"}, Decision: &Decision{Reason: "IN_PROGRESS"}}}, time.Hour, OK, ""},
		{"alarms", sight{alarms: &AlarmCount{Open: 10}}, 0, Warning, "10 open alarms"},
		{"acknowledged alarms", sight{alarms: &AlarmCount{Acknowledged: 10}}, 0, OK, ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			var a assessor
			a.assess(noon.Add(-c.after-time.Second), sight{}) // a page is open
			for at := noon.Add(-c.after); at.Before(noon); at = at.Add(2 * time.Second) {
				a.assess(at, c.sight)
			}
			h := a.assess(noon, c.sight)
			var all []string
			for _, f := range h.Findings {
				all = append(all, f.Text)
			}
			if got := strings.Join(all, "; "); h.Severity != c.want || !strings.Contains(got, c.says) || (c.want == OK) != (got == "") {
				t.Errorf("%s: %q, want %s with %q", h.Severity, got, c.want, c.says)
			}
		})
	}
	t.Run("what is missing at the first look counts at once", func(t *testing.T) {
		var a assessor
		if h := a.assess(noon, sight{workers: with(group("STABLE"), func(w *WorkerPlane) { w.Expected = 2 })}); h.Severity != Warning {
			t.Errorf("%+v", h)
		}
	})
	t.Run("a group that starts at the first look has its time", func(t *testing.T) {
		var a assessor
		if h := a.assess(noon, sight{workers: &WorkerPlane{Expected: 2}, nodes: &NodePlane{Decision: &Decision{Reason: metricsMissing}}}); h.Severity != OK {
			t.Errorf("%+v", h)
		}
	})
	t.Run("the worst finding comes first", func(t *testing.T) {
		var a assessor
		h := a.assess(noon, sight{nodes: &NodePlane{Paused: &Pause{}}, workers: group(append(times(11, "STABLE"), StateFailed)...), alarms: &AlarmCount{Open: 1}})
		if len(h.Findings) != 3 || h.Findings[0].Severity != Critical || h.Serving != 11 || h.Expected != 12 {
			t.Errorf("%+v", h)
		}
	})
}
