package local

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
			region := sim.New(sim.Options{Policy: nodes.DefaultPolicy(), Workers: []string{"a"}, Start: time.Now()})
			running.Go(func() { sim.RealTime(ctx, region, 1) })

			s := &Cluster{pods: map[string]*podProcess{}}
			cmd := exec.Command("sh", "-c", "trap '"+c.trap+"' TERM; echo '{\"http\":\"127.0.0.1:1\"}'; while :; do sleep 0.05; done")
			started := make(chan *podProcess, 1)
			d := region.Deploy(sim.PodSpec{Name: "fab/defender", MilliCPU: 200, Grace: 2 * time.Second}, func(run sim.PodRun) (sim.Process, error) {
				m, err := follow(cmd, Launch{Options: service.Options{Pod: run.Pod, Node: run.Node, LogFile: filepath.Join(t.TempDir(), "log")}})
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
			for _, err := p.Gather(); errors.Is(err, ErrStarting); _, err = p.Gather() {
				time.Sleep(5 * time.Millisecond) // its trap is set before it says where it serves
			}
			d.Scale(0)
			<-p.Process.Done
			status, _ := cmd.ProcessState.Sys().(syscall.WaitStatus)
			switch {
			case c.signal == 0 && cmd.ProcessState.ExitCode() != 0, c.signal != 0 && (!status.Signaled() || status.Signal() != c.signal):
				t.Errorf("it ended with %v", cmd.ProcessState)
			case p.Err != nil:
				t.Error(p.Err)
			}
		})
	}
}
