package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"k8s.io/client-go/rest"

	"github.com/muster-dev/muster/internal/lab"
	"github.com/muster-dev/muster/internal/lab/machines"
	"github.com/muster-dev/muster/nodes"
	"github.com/muster-dev/muster/nodes/sim"
	"github.com/muster-dev/muster/nodes/sim/region"
)

const maxWorkers = 1000

// Settings of Muster in times of the trace: those of docs/results/backtest.md that cost least.
const (
	tick         = time.Minute
	idleDown     = 5 * time.Minute
	cooldownDown = time.Minute
	drainTimeout = 5 * time.Minute
	stuck        = 15 * time.Minute
	joinTimeout  = 10 * time.Minute
	perHour      = 20
)

// muster is the daemon of the node plane, on a simulated region.
type muster struct {
	scene    scene
	binary   string
	region   *region.Region
	machines *machines.Machines
	counter  *counter
	process  *process
}

func newMuster(ctx context.Context, s scene) (contender, error) {
	source, err := lab.Source()
	if err != nil {
		return nil, err
	}
	cache, err := os.UserCacheDir()
	if err != nil {
		return nil, err
	}
	m := &muster{scene: s, binary: filepath.Join(cache, "muster-ci", "labbench-muster-nodes")}
	build := exec.CommandContext(ctx, "go", "build", "-ldflags=-s -w", "-o", m.binary, "./cmd/muster-nodes")
	build.Dir, build.Stderr = filepath.Dir(source), os.Stderr
	build.Env = append(os.Environ(), "GOWORK=")
	if err := build.Run(); err != nil {
		return nil, fmt.Errorf("building muster-nodes: %w", err)
	}
	return m, nil
}

func (m *muster) name() string { return "Muster" }

func (m *muster) start(ctx context.Context, l *lab.Lab, config *rest.Config, dir string) error {
	p := nodes.DefaultPolicy()
	p.Cluster = "local"
	var err error
	o := region.Options{Dir: dir, Sim: sim.Options{Policy: p, Zones: zones, Boot: m.scene.whole(bootTime), Visible: m.scene.short(time.Second)}}
	if m.region, err = region.Start(o); err != nil {
		return err
	}
	if m.machines, err = machines.New(m.region, nodes.Resources{MilliCPU: 2000, Memory: 8 << 30, Pods: 110}); err != nil {
		return err
	}
	m.machines.Sized(func(name string) nodes.Resources {
		t, _ := m.scene.of(name) // bill reports a type that is not known
		return t.allocatable
	})
	if err := m.machines.Attach(l); err != nil {
		return err
	}
	account, err := m.machines.Account(ctx)
	if err != nil {
		return err
	}
	if m.counter, err = newCounter(config, account.BearerToken); err != nil {
		return err
	}
	kubeconfig, err := m.counter.kubeconfig(dir)
	if err != nil {
		return err
	}
	port, err := freePort()
	if err != nil {
		return err
	}
	address := fmt.Sprintf("127.0.0.1:%d", port)
	if m.process, err = begin(m.binary, []string{"run"}, m.settings(kubeconfig, dir, address), filepath.Join(dir, "muster.log")); err != nil {
		return err
	}
	if err := awaitReady(ctx, "http://"+address+"/readyz", m.process.failed); err != nil {
		_, stopErr := m.stop()
		return errors.Join(err, stopErr)
	}
	return nil
}

// settings are the environment of the daemon, which serves its readiness at an address.
func (m *muster) settings(kubeconfig, dir, address string) []string {
	s := m.scene
	seconds := func(d time.Duration) string { return fmt.Sprint(int(s.whole(d).Seconds())) }
	// The budget is of an hour, and the run ends before one is over: it may spend what the window's hours would allow.
	budget := max(int(perHour*s.window.Length().Hours()), 1)
	return []string{"CLUSTER=local", "DIR=" + filepath.Join(dir, "daemon"), "KUBECONFIG=" + kubeconfig, "HTTP=" + address,
		"AWS_ENDPOINT_URL=" + m.region.AWSURL, "AWS_REGION=local", "AWS_ACCESS_KEY_ID=simulated", "AWS_SECRET_ACCESS_KEY=simulated",
		"LAUNCH_TEMPLATE=lt-00000001", "LAUNCH_TEMPLATE_VERSION=1", "USER_DATA=template",
		"SIGNALS=kubernetes", "SIZING=fit", "CONSOLIDATION=replace", fmt.Sprint("CONSOLIDATE_PER_HOUR=", budget), "SPOT=false", "EMPTY_ZONES=true",
		"INSTANCE_TYPES=" + strings.Join(s.names(), ","), "MIN_WORKERS=0", fmt.Sprint("MAX_WORKERS=", maxWorkers),
		"TICK_SEC=" + seconds(tick), "IDLE_DOWN_SEC=" + seconds(idleDown), "COOLDOWN_DOWN_SEC=" + seconds(cooldownDown),
		"DRAIN_TIMEOUT_SEC=" + seconds(drainTimeout), "SCALE_DOWN_STUCK_SEC=" + seconds(stuck), "JOIN_TIMEOUT_SEC=" + seconds(joinTimeout)}
}

func (m *muster) failed() error { return m.process.failed() }

func (m *muster) stop() (outcome, error) {
	now := time.Now()
	events := m.region.Simulator.Ledger() // before the end of the daemon, which finishes its action
	u := m.process.stop()
	calls, sum := m.counter.counts()
	m.counter.close()
	err := errors.Join(m.machines.Close(), m.region.Close())
	l := ledger{}
	for _, e := range events {
		switch e.Kind {
		case sim.Launched:
			l.launched(e.Instance, e.Request.Offering.Type, e.At)
		case sim.Terminated, sim.TakenAway:
			l.ended(e.Instance, e.At)
		}
	}
	return outcome{ledger: l, until: now, usage: u, calls: calls, sum: sum}, err
}
