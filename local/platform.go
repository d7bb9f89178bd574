package local

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"

	"github.com/muster-dev/muster/internal/lab"
	"github.com/muster-dev/muster/internal/lab/machines"
	"github.com/muster-dev/muster/nodes"
	"github.com/muster-dev/muster/nodes/kube"
	"github.com/muster-dev/muster/nodes/sim"
	"github.com/muster-dev/muster/nodes/sim/region"
)

// platform is what a Cluster runs on: one that is simulated as a whole, or a real control plane on simulated machines. The cloud is
// the region's either way.
type platform interface {
	describe() string
	plane(ctx context.Context) (nodes.Config, error)
	setLoad(load float64)
	deploy(ctx context.Context, start func(sim.PodRun) (sim.Process, error)) (deployment, error)
	fleet() sim.Fleet
	ledger() []sim.Entry
	close() error
}

// deployment is the defenders' Deployment.
type deployment interface {
	Run(ctx context.Context) error
	Pods() []sim.PodStatus
	// scale sets the number of replicas.
	scale(ctx context.Context, n int) error
}

// The defenders' Deployment.
const deployedIn, deployedAs = "fdc-system", "defender"

// defenderPod is the pod of a defender.
func defenderPod() sim.PodSpec {
	return sim.PodSpec{Name: deployedIn + "/" + deployedAs, MilliCPU: defenderMilliCPU, Memory: 256 << 20}
}

// openPlatform prepares the platform that the options ask for.
func openPlatform(ctx context.Context, c *Stack, r *region.Region) (platform, error) {
	if !c.o.Lab {
		return &simulated{r}, nil
	}
	binary, reason := lab.Built()
	if reason != "" {
		c.Say("Building the laboratory, a real Kubernetes control plane: it takes some minutes once")
		var err error
		if binary, err = lab.Build(ctx, c.Timeline); err != nil {
			return nil, fmt.Errorf("--lab: %w", err)
		}
	}
	dir, err := os.MkdirTemp("/dev/shm", "muster-lab-") // etcd writes a lot, and for nobody
	if err != nil {
		dir = filepath.Join(c.Dir, "lab")
		if err := os.Mkdir(dir, 0o755); err != nil {
			return nil, fmt.Errorf("--lab: %w", err)
		}
	}
	g := &laboratory{region: r, dir: dir}
	if g.machines, err = machines.New(r, nodes.Resources{MilliCPU: DefendersPerNode * defenderMilliCPU, Memory: 8 << 30, Pods: 110}); err != nil {
		return nil, errors.Join(err, g.close())
	}
	if g.lab, err = lab.Run(ctx, binary, dir, lab.Options{Scrape: g.machines.Scrape()}); err != nil {
		return nil, errors.Join(err, g.close())
	}
	if err := g.machines.Attach(g.lab); err != nil {
		return nil, errors.Join(err, g.close())
	}
	return g, nil
}

// simulated is a cluster of the region's own.
type simulated struct{ region *region.Region }

func (g *simulated) describe() string {
	return fmt.Sprintf("Simulated region: EC2 at %s, Kubernetes at %s, Prometheus at %s", g.region.AWSURL, g.region.KubeURL, g.region.PromURL)
}
func (g *simulated) plane(ctx context.Context) (nodes.Config, error) { return g.region.Config(ctx) }
func (g *simulated) setLoad(load float64)                            { g.region.World.SetLoad(load) }
func (g *simulated) fleet() sim.Fleet                                { return g.region.World.Fleet() }
func (g *simulated) ledger() []sim.Entry                             { return g.region.World.Ledger() }
func (g *simulated) close() error                                    { return nil }

func (g *simulated) deploy(_ context.Context, start func(sim.PodRun) (sim.Process, error)) (deployment, error) {
	return simulatedDeployment{g.region.World.Deploy(defenderPod(), start)}, nil
}

type simulatedDeployment struct{ *sim.Deployment }

func (d simulatedDeployment) scale(_ context.Context, n int) error { d.Scale(n); return nil }

// laboratory is a real control plane, with kube-state-metrics and Prometheus.
type laboratory struct {
	region   *region.Region
	machines *machines.Machines
	lab      *lab.Lab
	dir      string
}

func (g *laboratory) describe() string {
	v := g.lab.Versions
	return fmt.Sprintf("Kubernetes %s, kube-state-metrics %s and Prometheus %s (%s) are real, machines are KWOK %s's, EC2 is simulated at %s; kubectl: KUBECONFIG=%s",
		v["Kubernetes"], v["kube-state-metrics"], v["Prometheus"], g.lab.Prometheus, v["KWOK"], g.region.AWSURL, g.lab.Kubeconfig)
}

func (g *laboratory) plane(ctx context.Context) (nodes.Config, error) {
	c, err := g.region.Config(ctx)
	if err != nil {
		return c, err
	}
	account, err := g.machines.Account(ctx)
	if err != nil {
		return c, err
	}
	cluster, err := kube.New(account, kube.Options{})
	if err != nil {
		return c, fmt.Errorf("connecting to the laboratory: %w", err)
	}
	signals, err := g.machines.Signals(ctx, c.Policy)
	if err != nil {
		return c, fmt.Errorf("connecting to the laboratory's Prometheus: %w", err)
	}
	c.Cluster, c.Signals = cluster, signals
	return c, nil
}

func (g *laboratory) setLoad(load float64) { g.machines.SetLoad(load) }
func (g *laboratory) fleet() sim.Fleet     { return g.machines.Fleet() }

// ledger returns what happened to instances, by the region, and to nodes and pods, by the API.
func (g *laboratory) ledger() []sim.Entry {
	out := slices.Clone(g.machines.Ledger())
	for _, e := range g.region.World.Ledger() {
		switch e.Kind {
		case sim.Launched, sim.LaunchRefused, sim.Joined, sim.Terminated, sim.TakenAway, sim.Warned:
			out = append(out, e)
		}
	}
	slices.SortStableFunc(out, func(a, b sim.Entry) int { return a.At.Compare(b.At) })
	return out
}

func (g *laboratory) deploy(ctx context.Context, start func(sim.PodRun) (sim.Process, error)) (deployment, error) {
	d, err := g.machines.Deploy(ctx, defenderPod(), start)
	return labDeployment{d}, err
}

type labDeployment struct{ *machines.Deployment }

func (d labDeployment) scale(ctx context.Context, n int) error { return d.Scale(ctx, n) }

func (g *laboratory) close() error {
	var err error
	if g.machines != nil {
		err = g.machines.Close()
	}
	if g.lab != nil {
		g.lab.Stop()
	}
	return cmp.Or(err, os.RemoveAll(g.dir))
}
