package workers

import (
	"context"
	"testing"
	"time"

	"github.com/muster-dev/muster/partition"
	"github.com/muster-dev/muster/partition/servertest/natstest"
)

type idle struct{}

func (idle) Handle(context.Context, partition.Message) error { return nil }

func TestANodeCostsWhatItsWorkersHaveAndIsEmptiedOnRequest(t *testing.T) {
	srv := natstest.Start(t)
	cfg := partition.Config{Name: "worker", Stream: "jobs", Subject: "jobs.*.*", Slots: 30, Rebalance: partition.Rebalance{ColdWindow: 500 * time.Millisecond, PlannedWindow: 200 * time.Millisecond}}
	if err := partition.Open(natstest.Connect(t, srv.URL()), cfg.Name).Provision(t.Context(), cfg); err != nil {
		t.Fatal(err)
	}
	for _, node := range []string{"n1", "n1", "n2"} {
		cfg.Identity.Node = node
		w, err := partition.New(natstest.Connect(t, srv.URL()), cfg, idle{})
		if err != nil {
			t.Fatal(err)
		}
		ctx, stop := context.WithCancel(context.Background())
		done := make(chan struct{})
		go func() { defer close(done); _ = w.Run(ctx) }()
		t.Cleanup(func() { stop(); <-done })
	}
	p := New(natstest.Connect(t, srv.URL()), "worker")
	costs := func() (map[string]float64, error) { return p.Cost(t.Context(), []string{"n1", "n2", "n3"}) }
	eventually(t, "all slots at three workers", func() bool {
		c, err := costs()
		return err == nil && c["n1"] == 20 && c["n2"] == 10 && c["n3"] == 0
	})
	eventually(t, "n1 emptied", func() bool {
		left, err := p.DrainWorkers(t.Context(), "n1", time.Now().Add(time.Minute))
		return err == nil && left == 0
	})
	eventually(t, "n2 has all", func() bool { c, err := costs(); return err == nil && c["n1"] == 0 && c["n2"] == 30 })
	if left, err := p.DrainWorkers(t.Context(), "n3", time.Now().Add(time.Minute)); err != nil || left != 0 {
		t.Errorf("a node without workers: %d left, %v", left, err)
	}
	if err := p.TakeBack(t.Context(), "n1"); err != nil {
		t.Fatal(err)
	}
	eventually(t, "n1 has its share again", func() bool { c, err := costs(); return err == nil && c["n1"] == 20 })
}

func eventually(t *testing.T, what string, ok func() bool) {
	t.Helper()
	for end := time.Now().Add(20 * time.Second); time.Now().Before(end); time.Sleep(20 * time.Millisecond) {
		if ok() {
			return
		}
	}
	t.Fatalf("never: %s", what)
}
