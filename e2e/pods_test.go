package e2e

import (
	"path/filepath"
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

// TestPods_contained notes what a defender in a container has noted of its own end, which a
// kubelet began.
func TestPods_contained(t *testing.T) {
	t.Parallel()
	told := time.Now().Add(-3 * time.Second).UTC()
	noted := func(t *testing.T, lines ...ending) *pod {
		t.Helper()
		d := &local.Process{Name: "a", Done: make(chan struct{})}
		d.Options.LogFile = filepath.Join(t.TempDir(), "a.log")
		for _, l := range lines {
			if err := endingFile(endingOf(d.Options.LogFile)).add(l); err != nil {
				t.Fatal(err)
			}
		}
		p := newPods()
		p.attend(sim.PodRun{Pod: "a", Node: "n"}, d, nil)
		close(d.Done)
		for p.started()["a"].endedAt().IsZero() {
			time.Sleep(time.Millisecond)
		}
		return p.started()["a"]
	}

	t.Run("it ends by itself", func(t *testing.T) {
		t.Parallel()
		p := noted(t, ending{Told: told, Slots: 7}, ending{Ended: told.Add(time.Second)})
		if got, want := p.eviction(), (eviction{left: 7, took: time.Second}); got != want {
			t.Errorf("got %+v, want %+v", got, want)
		}
		if !p.toldAt().Equal(told) {
			t.Errorf("it got SIGTERM at %v, want %v", p.toldAt(), told)
		}
	})

	t.Run("it is killed at the end of its grace", func(t *testing.T) {
		t.Parallel()
		if got := noted(t, ending{Told: told, Slots: 0}).eviction(); !got.cut || got.took <= 0 {
			t.Errorf("got %+v", got)
		}
	})

	t.Run("a later run of its container counts", func(t *testing.T) {
		t.Parallel()
		p := noted(t, ending{Told: told.Add(-time.Minute), Slots: 7}, ending{Ended: told.Add(-50 * time.Second)}, ending{Told: told, Slots: 1})
		if got := p.eviction(); !got.cut || got.left != 1 {
			t.Errorf("got %+v", got)
		}
	})

	t.Run("a kubelet's work that nothing was noted of", func(t *testing.T) {
		t.Parallel()
		if got := noted(t).eviction(); got.took != 0 || got.cut {
			t.Errorf("got %+v", got)
		}
	})
}
