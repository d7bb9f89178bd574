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
	nodeplane "github.com/muster-dev/muster/nodes/connect"
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
	deploy(ctx context.Context, t *Cluster) (deployment, error) // of t's defenders
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

// What a cluster's nodes take: ten defenders of 200m on two cores.
const (
	defenderMilliCPU = 200
	DefendersPerNode = 10
)

// defenderPod is the pod of a defender.
func defenderPod() sim.PodSpec {
	return sim.PodSpec{Name: deployedIn + "/" + deployedAs, MilliCPU: defenderMilliCPU, Memory: 256 << 20}
}

// openPlatform prepares the platform that the options ask for.
func openPlatform(ctx context.Context, o Options, dir string, told *Timeline, r *region.Region) (platform, error) {
	if !o.Lab {
		return &simulated{r}, nil
	}
	binary, kept, err := prepareLab(ctx, o.LabKubernetes, dir, told)
	if err != nil {
		return nil, fmt.Errorf("--lab: %w", err)
	}
	c := &testCluster{region: r, dir: kept}
	if err := c.open(ctx, binary); err != nil {
		return nil, errors.Join(err, c.close())
	}
	return c, nil
}

// prepareLab builds the test cluster unless that has been done, and makes the folder that it
// writes to.
func prepareLab(ctx context.Context, kubernetes, dir string, told *Timeline) (binary, kept string, err error) {
	release, err := lab.ReleaseOf(kubernetes)
	if err != nil {
		return "", "", err
	}
	binary, reason := lab.Built(release)
	if reason != "" {
		told.Say("Building the test cluster, a real Kubernetes control plane: it takes some minutes once")
		if binary, err = lab.Build(ctx, release, told); err != nil {
			return "", "", err
		}
	}
	if kept, err = os.MkdirTemp("/dev/shm", "muster-lab-"); err == nil { // etcd writes a lot that need not last
		return binary, kept, nil
	}
	kept = filepath.Join(dir, "lab")
	return binary, kept, os.Mkdir(kept, 0o755)
}

// simulated is a cluster of the region's own.
type simulated struct{ region *region.Region }

func (s *simulated) describe() string {
	return fmt.Sprintf("Simulated region: EC2 at %s, Kubernetes at %s, Prometheus at %s", s.region.AWSURL, s.region.KubeURL, s.region.PromURL)
}
func (s *simulated) plane(ctx context.Context) (nodes.Config, error) { return s.region.Config(ctx) }
func (s *simulated) setLoad(load float64)                            { s.region.Simulator.SetLoad(load) }
func (s *simulated) fleet() sim.Fleet                                { return s.region.Simulator.Fleet() }
func (s *simulated) ledger() []sim.Entry                             { return s.region.Simulator.Ledger() }
func (s *simulated) close() error                                    { return nil }

func (s *simulated) deploy(_ context.Context, t *Cluster) (deployment, error) {
	return simulatedDeployment{s.region.Simulator.Deploy(defenderPod(), t.startPod)}, nil
}

type simulatedDeployment struct{ *sim.Deployment }

func (d simulatedDeployment) scale(_ context.Context, n int) error { d.Scale(n); return nil }

// testCluster is a real control plane, with kube-state-metrics and Prometheus.
type testCluster struct {
	region   *region.Region
	machines *machines.Machines
	lab      *lab.Lab
	dir      string
	drain    kube.Rules // zero: the defaults
}

func (c *testCluster) open(ctx context.Context, binary string) error {
	var err error
	if c.machines, err = machines.New(c.region, nodes.Resources{MilliCPU: DefendersPerNode * defenderMilliCPU, Memory: 8 << 30, Pods: 110}); err != nil {
		return err
	}
	if c.lab, err = lab.Run(ctx, binary, c.dir, lab.Options{Scrape: c.machines.Scrape(), Temporary: true}); err != nil {
		return err
	}
	return c.machines.Attach(c.lab)
}

func (c *testCluster) describe() string {
	v := c.lab.Versions
	return fmt.Sprintf("Kubernetes %s, kube-state-metrics %s and Prometheus %s (%s) are real, machines are KWOK %s's, EC2 is simulated at %s; kubectl: KUBECONFIG=%s",
		v["Kubernetes"], v["kube-state-metrics"], v["Prometheus"], c.lab.Prometheus, v["KWOK"], c.region.AWSURL, c.lab.Kubeconfig)
}

func (c *testCluster) plane(ctx context.Context) (nodes.Config, error) {
	config, err := c.region.Config(ctx)
	if err != nil {
		return config, err
	}
	account, err := c.machines.Account(ctx)
	if err != nil {
		return config, err
	}
	cluster, err := kube.New(account, kube.Options{Drain: c.drain})
	if err != nil {
		return config, fmt.Errorf("connecting to the test cluster: %w", err)
	}
	signals, err := c.machines.Signals(ctx, config.Policy)
	if err != nil {
		return config, fmt.Errorf("connecting to the test cluster's Prometheus: %w", err)
	}
	decider, err := new(nodeplane.Deciders).For(config.Policy)
	if err != nil {
		return config, err
	}
	config.Cluster, config.EvictionRequester, config.Signals = cluster, cluster, signals
	config.Reporter = nodeplane.Reporter{Cluster: cluster, Decider: decider}
	return config, nil
}

func (c *testCluster) setLoad(load float64) { c.machines.SetLoad(load) }
func (c *testCluster) fleet() sim.Fleet     { return c.machines.Fleet() }

// ledger returns what happened to instances, by the region, and to nodes and pods, by the API.
func (c *testCluster) ledger() []sim.Entry {
	out := slices.Clone(c.machines.Ledger())
	for _, e := range c.region.Simulator.Ledger() {
		switch e.Kind {
		case sim.Launched, sim.LaunchRefused, sim.Joined, sim.Terminated, sim.TakenAway, sim.Warned:
			out = append(out, e)
		}
	}
	slices.SortStableFunc(out, func(a, b sim.Entry) int { return a.At.Compare(b.At) })
	return out
}

func (c *testCluster) deploy(ctx context.Context, t *Cluster) (deployment, error) {
	d, err := c.machines.Deploy(ctx, defenderPod(), t.startPod)
	return labDeployment{d}, err
}

type labDeployment struct{ *machines.Deployment }

func (d labDeployment) scale(ctx context.Context, n int) error { return d.Scale(ctx, n) }

func (c *testCluster) close() error {
	var err error
	if c.machines != nil {
		err = c.machines.Close()
	}
	if c.lab != nil {
		c.lab.Stop()
	}
	return cmp.Or(err, os.RemoveAll(c.dir))
}
