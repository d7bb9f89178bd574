package e2e

import (
	"testing"
	"time"

	dto "github.com/prometheus/client_model/go"

	"github.com/muster-dev/muster/local"
	"github.com/muster-dev/muster/nodes/sim"
)

// ender ends a defender at once: by Stop if it heeds that, else by Kill.
type ender struct {
	done   chan struct{}
	heeds  bool
	killed bool
}

func (e *ender) Stop() {
	if e.heeds {
		close(e.done)
	}
}

func (e *ender) Kill() {
	e.killed = true
	if !e.heeds {
		close(e.done)
	}
}

func (e *ender) Done() <-chan struct{} { return e.done }

// TestPods notes how a pod's defender ends, and what it had when it was told to.
func TestPods(t *testing.T) {
	t.Parallel()
	for name, heeds := range map[string]bool{"one that heeds SIGTERM": true, "one that does not": false} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			end := &ender{done: make(chan struct{}), heeds: heeds}
			silent := func() ([]*dto.MetricFamily, error) { return nil, local.ErrStarting }
			p := newPods()
			x := p.attend(sim.PodRun{Pod: "a", Node: "n"}, &local.Process{Name: "a", Done: end.done, Gather: silent}, end)
			x.Stop()
			x.Kill()
			<-x.Done()
			for p.started()["a"].endedAt().IsZero() {
				time.Sleep(time.Millisecond)
			}

			got := p.evictions([]sim.Entry{{Kind: sim.Evicted, Detail: "fab/a"}, {Kind: sim.Evicted, Detail: "fab/b"}})
			if len(got) != 1 {
				t.Fatalf("%d evictions, want one", len(got))
			}
			if got[0].left != 0 || got[0].took <= 0 {
				t.Errorf("it had %d slots and took %v", got[0].left, got[0].took)
			}
			if got[0].cut == heeds {
				t.Errorf("cut off: %t", got[0].cut)
			}
		})
	}
}
