package fit

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/muster-dev/muster/nodes"
	"github.com/muster-dev/muster/nodes/sim"
)

// failing makes the second launch fail, so that nobody knows how it ended.
type failing struct{ launches int }

func (f *failing) Before(call string) error {
	if call == "cloud.Launch" {
		if f.launches++; f.launches == 2 {
			return errors.New("the connection broke")
		}
	}
	return nil
}

func (f *failing) After(_ string, err error) error { return err }

// The kinds of nodes that a plan asked for are launched, also those that only a later tick comes to, by another process that would
// plan otherwise by then.
func TestAScaleUpLaunchesTheKindsThatWerePlanned(t *testing.T) {
	p := policy()
	p.Sizing, p.MaxWorkers, p.MinWorkers, p.PendingUpFor = nodes.SizingFit, 10, 1, time.Minute
	f := New(Config{Catalog: small(), MemoryOverhead: 1e-12})
	w := sim.New(sim.Options{Policy: p, Workers: []string{"a"}, WorkerType: "x.small", Capacity: func(typ string) nodes.Resources { return f.Allocatable(small()[typ]) }})
	w.AddPods(1, sim.PodSpec{Name: "full", MilliCPU: 2000})
	w.AddPods(1, sim.PodSpec{Name: "memory", MilliCPU: 4000, Memory: 60 << 30})
	w.AddPods(12, sim.PodSpec{Name: "cpu", MilliCPU: 1000, Memory: 1 << 30}) // 4 beside the one above, 8 on another node
	w.AddPods(1, sim.PodSpec{Name: "never", MilliCPU: 99000})
	hook := &failing{}
	n := 0
	tick := func() nodes.Report {
		c := w.Client("A", hook)
		r, err := nodes.New(nodes.Config{Policy: p, Signals: c, Cloud: c, Cluster: c, Store: c, EventLog: c, Clock: w.Clock(), Sizer: f, Fitter: f, Screener: f,
			NewID: func() string { n++; return fmt.Sprint(n) }})
		if err != nil {
			t.Fatal(err)
		}
		report, _ := r.Tick(t.Context())
		w.Advance(time.Minute)
		return report
	}
	tick()
	report := tick()
	if d := report.Decision; d == nil || d.Action != nodes.ScaleUp || fmt.Sprint(d.Wanted) != "[{[mem.large] [] } {[x.large mem.large] [] }]" {
		t.Fatalf("%+v", d)
	}
	if got := w.Record().ScaleUpWanted; len(got) != 2 {
		t.Errorf("the record has %v", got)
	}
	w.RemovePods("cpu") // a new plan would not ask for the second node
	for range 4 {
		tick()
	}
	var types []string
	for _, e := range w.Ledger() {
		if e.Kind == sim.Launched {
			types = append(types, e.Request.Offering.Type)
		}
	}
	if fmt.Sprint(types) != "[mem.large x.large]" {
		t.Errorf("launched %v", types)
	}
	r := w.Record()
	if r.ScalingInProgress || r.ScaleUpWanted != nil {
		t.Errorf("the action is still open: %+v", r)
	}
	if f := w.Fleet(); f.Pending != 1 {
		t.Errorf("%d pods wait, want the one that never fits", f.Pending)
	}
	for range 4 {
		report = tick()
	}
	if d := report.Decision; d.Action == nodes.ScaleUp {
		t.Errorf("a pod that never fits triggers: %s %s", d.Reason, d.Detail)
	}
}
