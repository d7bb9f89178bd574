package scenario

import (
	"context"
	"errors"
	"os/exec"
	"path/filepath"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/muster-dev/muster/defender/service"
	"github.com/muster-dev/muster/partition/event"

	"github.com/muster-dev/muster/nodes"
	"github.com/muster-dev/muster/nodes/sim"
)

// TestAPodsProcessGetsSIGTERMAndWhenItsGraceIsOverSIGKILL lets pods end whose processes heed the one or only the other.
func TestAPodsProcessGetsSIGTERMAndWhenItsGraceIsOverSIGKILL(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		trap   string
		signal syscall.Signal // that it ends by; 0: by itself
	}{
		"one that heeds SIGTERM": {"exit 0", 0},
		"one that does not":      {"", syscall.SIGKILL},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			ctx, stop := context.WithCancel(t.Context())
			var running sync.WaitGroup
			defer running.Wait()
			defer stop()
			world := sim.New(sim.Options{Policy: nodes.DefaultPolicy(), Workers: []string{"a"}, Start: time.Now()})
			running.Go(func() { sim.RealTime(ctx, world, 1) })

			cluster := &cluster{gone: map[string]int64{}}
			s := &site{s: &session{cluster: cluster}, pods: map[string]*podProcess{}}
			cmd := exec.Command("sh", "-c", "trap '"+c.trap+"' TERM; echo '{\"http\":\"127.0.0.1:1\"}'; while :; do sleep 0.05; done")
			started := make(chan *podProcess, 1)
			d := world.Deploy(sim.PodSpec{Name: "fab/defender", MilliCPU: 200, Grace: 2 * time.Second}, func(run sim.PodRun) (sim.Process, error) {
				m, err := cluster.follow(cmd, DefenderOptions{Options: service.Options{Pod: run.Pod, Node: run.Node, LogFile: filepath.Join(t.TempDir(), "log")}}, nil)
				if err != nil {
					return nil, err
				}
				p := s.attend(m, run)
				started <- p
				return p, nil
			})
			running.Go(func() {
				if err := d.Run(ctx); err != nil {
					t.Error(err)
				}
			})
			d.Scale(1)
			p := <-started
			for _, err := p.gather(); errors.Is(err, errStarting); _, err = p.gather() {
				time.Sleep(5 * time.Millisecond) // its trap is set before it says where it serves
			}
			d.Scale(0)
			<-p.done
			status, _ := cmd.ProcessState.Sys().(syscall.WaitStatus)
			switch {
			case c.signal == 0 && cmd.ProcessState.ExitCode() != 0, c.signal != 0 && (!status.Signaled() || status.Signal() != c.signal):
				t.Errorf("it ended with %v", cmd.ProcessState)
			case p.err != nil:
				t.Error(p.err)
			}
			s.mu.Lock()
			defer s.mu.Unlock()
			if p.told.IsZero() || p.cut != (c.signal != 0) || p.left != unknownSlots {
				t.Errorf("told %v, cut off %t, with %d slots", p.told, p.cut, p.left)
			}
		})
	}
}

// TestASlotHasNoOwnerFromItsReleaseUntilItIsAcquired adds up events as defenders send them.
func TestASlotHasNoOwnerFromItsReleaseUntilItIsAcquired(t *testing.T) {
	t.Parallel()
	start := time.Now()
	at := func(ms int) time.Time { return start.Add(time.Duration(ms) * time.Millisecond) }
	happened := func(ms int, kind event.Kind, worker string, slot int) seen {
		return seen{event.Event{Time: at(ms), Kind: kind, Worker: worker, Slot: slot}, at(ms)}
	}
	gone := happened(7000, event.WorkerGone, "a", 0)
	gone.Peer, gone.Duration = "d", 6*time.Second
	left := happened(2600, event.WorkerGone, "a", 0)
	left.Peer, left.Duration = "c", 100*time.Millisecond // all that the leader saw was that its lease is gone
	s := &session{cluster: &cluster{view: &view{events: []seen{
		happened(0, event.SlotAcquired, "a", 1), happened(0, event.SlotAcquired, "c", 2), happened(0, event.SlotAcquired, "d", 3),
		happened(100, event.SlotReleased, "a", 1), happened(150, event.SlotAcquired, "b", 1), // before the moment
		happened(1000, event.SlotReleased, "b", 1), happened(1030, event.SlotAcquired, "a", 1), // handed over
		happened(2500, event.Left, "c", 0), left, happened(3500, event.SlotAcquired, "a", 2), // it waited for a successor
		gone, happened(7200, event.SlotAcquired, "a", 3), // its owner fell silent
	}}}}
	d := distribution(s.ownerless(at(500)))
	if d.N != 3 || d.P50 != 1000 || d.Max != 6200 {
		t.Errorf("%+v", d)
	}
	if n := s.silent(at(500)); n != 1 {
		t.Errorf("%d fell silent", n)
	}
}
