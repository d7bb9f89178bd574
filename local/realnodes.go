package local

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"time"

	"github.com/muster-dev/muster/internal/lab"
	"github.com/muster-dev/muster/internal/lab/instances"
	"github.com/muster-dev/muster/internal/lab/machines"
	"github.com/muster-dev/muster/nodes"
	"github.com/muster-dev/muster/nodes/ec2"
	"github.com/muster-dev/muster/nodes/fit"
	"github.com/muster-dev/muster/nodes/kube"
	"github.com/muster-dev/muster/nodes/sim"
	"github.com/muster-dev/muster/nodes/sim/region"
)

// RealNodes says whether nodes are real, and how they boot. It is the value of a flag.
type RealNodes string

// The values of RealNodes.
const (
	NoRealNodes      RealNodes = ""
	RealNodesInit    RealNodes = "init"    // a small program runs the user data: nodes are up sooner
	RealNodesSystemd RealNodes = "systemd" // cloud-init runs it below systemd, as on a real instance
)

// Set sets it from its text.
func (r *RealNodes) Set(text string) error {
	switch form := RealNodes(text); form {
	case RealNodesInit, RealNodesSystemd:
		*r = form
		return nil
	default:
		return fmt.Errorf("%q: use %s or %s", text, RealNodesInit, RealNodesSystemd)
	}
}

// String returns its text.
func (r *RealNodes) String() string { return string(*r) }

// Type names the flag's values in its help.
func (r *RealNodes) Type() string { return "string" }

// possible returns nil where such nodes can be had, and otherwise the reason.
func (r RealNodes) possible(ctx context.Context) error {
	if r == RealNodesSystemd {
		return lab.SystemdNodes(ctx)
	}
	return lab.RealNodes(ctx)
}

// realNodes is a real control plane whose workers are real nodes: machines in namespaces
// that the region's instances boot, and that join by the user data of their launch. Defenders
// are containers there, which reach the broker at the gateway of the machines' network and
// have the store's folder as a shared volume.
type realNodes struct {
	testCluster

	instances *instances.Instances
	workers   *WorkerPlane
	release   lab.Release
	cloud     *ec2.Cloud
	template  nodes.Template
}

const (
	firstType      = "t3.large"            // of the workers that are there first: two processors, as defenderPod asks for
	joinToken      = "/muster/agent-token" //nolint:gosec // the name of a parameter of SSM
	containedImage = "registry.example.com/muster:this"
)

// onSharedVolume lets drains evict the defenders: to Kubernetes their volume is a folder of
// the node, but all nodes have the same one.
var onSharedVolume = kube.Rules{LocalStorage: kube.Evict}

// newInstances returns the machines of a region, with what their types have.
func newInstances(form RealNodes) *instances.Instances {
	types := fit.Shipped()
	return instances.New(instances.Options{
		Systemd: form == RealNodesSystemd,
		Memory:  func(typ string) int64 { return types[typ].MemoryMiB << 20 },
		CPUs:    func(typ string) int { return types[typ].VCPU },
	})
}

// openRealNodes starts a test cluster and launches its first workers, one in each of zones.
func openRealNodes(ctx context.Context, w *WorkerPlane, r *region.Region, booted *instances.Instances, zones []string) (platform, error) {
	release, err := lab.ReleaseOf(w.o.LabKubernetes)
	if err != nil {
		return nil, fmt.Errorf("--lab-kubernetes: %w", err)
	}
	binary, kept, err := prepareLab(ctx, w.o.LabKubernetes, w.Dir, w.Timeline)
	if err != nil {
		return nil, fmt.Errorf("--lab: %w", err)
	}
	c := &realNodes{testCluster: testCluster{region: r, dir: kept, drain: onSharedVolume}, instances: booted, workers: w, release: release}
	if err := c.open(ctx, binary, zones); err != nil {
		return nil, errors.Join(err, c.close())
	}
	return c, nil
}

func (c *realNodes) open(ctx context.Context, binary string, zones []string) error {
	image, err := buildImage(ctx, c.workers.Timeline)
	if err != nil {
		return err
	}
	forward, err := forwards(c.workers.Servers.URL)
	if err != nil {
		return err
	}
	if c.machines, err = machines.NewReal(c.region); err != nil {
		return err
	}
	c.lab, err = lab.Run(ctx, binary, c.dir, lab.Options{Kubernetes: c.release.Minor, Scrape: c.machines.Scrape(), AWS: c.region.AWSURL, RealNodes: true, Systemd: c.workers.o.RealNodes == RealNodesSystemd, Temporary: true,
		Images: []string{image}, Share: c.workers.Dir, Forward: forward})
	if err != nil {
		return err
	}

	c.instances.Attach(c.lab, c.region.Simulator)
	c.region.AWS.PutParameter(joinToken, c.lab.JoinToken)
	c.cloud, c.template, err = c.region.CloudWith(func(o *ec2.Config) {
		o.UserData, o.Join = ec2.UserDataK3s, ec2.Join{Server: c.lab.Server, TokenRef: "ssm:" + joinToken}
	})
	if err != nil {
		return err
	}
	if err := c.launch(ctx, zones); err != nil {
		return err
	}
	return c.machines.Attach(c.lab)
}

// launch launches the workers that are there before the node plane is.
func (c *realNodes) launch(ctx context.Context, zones []string) error {
	for i, zone := range zones {
		_, err := c.cloud.Launch(ctx, nodes.LaunchRequest{
			Token: fmt.Sprint("first-", i), ActionID: "first", Ordinal: i, Cluster: c.region.Simulator.Cluster(), Template: c.template,
			Offering: nodes.Offering{Zone: zone, Subnet: "subnet-" + zone, Type: firstType, Market: nodes.Spot},
		})
		if err != nil {
			return fmt.Errorf("launching the first workers: %w", err)
		}
	}
	return nil
}

func (c *realNodes) describe() string {
	v := c.lab.Versions
	return fmt.Sprintf("Kubernetes %s with kubelets and containerd %s on real nodes, kube-state-metrics %s and Prometheus %s (%s); the CPU load that node-exporter tells and EC2 (%s) are simulated; kubectl: KUBECONFIG=%s",
		v["Kubernetes"], c.release.Containerd, v["kube-state-metrics"], v["Prometheus"], c.lab.Prometheus, c.region.AWSURL, c.lab.Kubeconfig)
}

func (c *realNodes) plane(ctx context.Context) (nodes.Config, error) {
	config, err := c.testCluster.plane(ctx)
	config.Cloud, config.Template = c.cloud, c.template
	return config, err
}

// ledger leaves out what the region makes up of nodes that join.
func (c *realNodes) ledger() []sim.Entry {
	out := slices.Clone(c.machines.Ledger())
	for _, e := range c.region.Simulator.Ledger() {
		switch e.Kind {
		case sim.Launched, sim.LaunchRefused, sim.Terminated, sim.TakenAway, sim.Warned:
			out = append(out, e)
		}
	}
	slices.SortStableFunc(out, func(a, b sim.Entry) int { return a.At.Compare(b.At) })
	return out
}

func (c *realNodes) deploy(ctx context.Context, t *Cluster) (deployment, error) {
	l, err := t.workers.Defenders.contained(ctx)
	if err != nil {
		return nil, err
	}
	if l.Options.NATS, err = atGateway(l.Options.NATS); err != nil {
		return nil, err
	}
	d, err := c.machines.DeployContainers(ctx, machines.ContainerSpec{
		PodSpec: defenderPod(), Image: containedImage, Args: l.Arguments(), Env: append(l.Options.User.Environ(), "GOMAXPROCS=2"),
		Port: containedPort, Share: t.workers.Dir,
	}, t.adoptPod)
	return containedDeployment{d}, err
}

type containedDeployment struct{ *machines.Containers }

func (d containedDeployment) scale(ctx context.Context, n int) error { return d.Scale(ctx, n) }

// close ends the machines with the test cluster. What they were asked for last is over then.
func (c *realNodes) close() error {
	err := c.instances.Close()
	return errors.Join(err, c.testCluster.close())
}

// forwards returns what the machines' gateway must pass on, so that the servers of a URL are
// reached there at their own ports.
func forwards(servers string) (map[string]string, error) {
	out := map[string]string{}
	for each := range strings.SplitSeq(servers, ",") {
		u, err := url.Parse(each)
		if err != nil {
			return nil, fmt.Errorf("the broker's URL: %w", err)
		}
		out[u.Port()] = u.Host
	}
	return out, nil
}

// atGateway returns the URL by which machines reach the servers of one.
func atGateway(servers string) (string, error) {
	var out []string
	for each := range strings.SplitSeq(servers, ",") {
		u, err := url.Parse(each)
		if err != nil {
			return "", fmt.Errorf("the broker's URL: %w", err)
		}
		u.Host = net.JoinHostPort(lab.Gateway, u.Port())
		out = append(out, u.String())
	}
	return strings.Join(out, ","), nil
}

// buildImage returns an archive of a container image with this program, compiled again from
// the checkout for an image that has no libraries. It is kept outside of the checkout for as
// long as this program stays the same.
func buildImage(ctx context.Context, told *Timeline) (string, error) {
	source, err := lab.Source()
	if err != nil {
		return "", fmt.Errorf("--real-nodes: %w", err)
	}
	key, err := ownDigest()
	if err != nil {
		return "", err
	}
	cache, err := os.UserCacheDir()
	if err != nil {
		return "", err
	}
	archive := filepath.Join(cache, "muster-ci", "image-"+key+".tar")
	if now := time.Now(); os.Chtimes(archive, now, now) == nil { // it is there; pruneImages keeps what was used last
		return archive, nil
	}

	told.Say("Building the defenders' container image: it takes up to some minutes once")
	unfinished := strings.TrimSuffix(archive, ".tar") + fmt.Sprintf(".%d.tar", os.Getpid()) // so that another build at the same time does no harm
	defer func() { _ = os.Remove(unfinished) }()                                            // it is there only if something failed
	cmd := exec.CommandContext(ctx, "go", "-C", filepath.Join(filepath.Dir(source), "deploy", "image"), "run", "-buildvcs=false", ".",
		"--command", "muster", "--arch", runtime.GOARCH, "--name", containedImage, "--out", unfinished)
	if out, err := cmd.CombinedOutput(); err != nil {
		return "", fmt.Errorf("building the defenders' image: %w: %s", err, strings.TrimSpace(string(out)))
	}
	if err := os.Rename(unfinished, archive); err != nil {
		return "", fmt.Errorf("keeping the defenders' image: %w", err)
	}
	return archive, pruneImages(filepath.Dir(archive), keptImages)
}

// keptImages is how many images stay: of several checkouts, each with its last program.
const keptImages = 4

// removeIfThere removes a file, unless another process was faster.
func removeIfThere(path string) error {
	if err := os.Remove(path); !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}

// pruneImages removes all but the images that were used last, and builds that were cut off a
// day ago. A test cluster that runs has its own link to its image.
func pruneImages(dir string, keep int) error {
	found, err := filepath.Glob(filepath.Join(dir, "image-*.tar"))
	if err != nil {
		return err
	}
	used := map[string]time.Time{}
	var images []string
	var errs []error
	for _, path := range found {
		info, err := os.Stat(path)
		if err != nil {
			continue // another process was faster
		}
		used[path] = info.ModTime()
		whole := strings.Count(filepath.Base(path), ".") == 1
		switch {
		case whole:
			images = append(images, path)
		case time.Since(info.ModTime()) > 24*time.Hour:
			errs = append(errs, removeIfThere(path))
		}
	}
	slices.SortFunc(images, func(a, b string) int { return used[b].Compare(used[a]) })
	for _, path := range images[min(keep, len(images)):] {
		errs = append(errs, removeIfThere(path))
	}
	if err := errors.Join(errs...); err != nil {
		return fmt.Errorf("removing images that are not used any more: %w", err)
	}
	return nil
}

// ownDigest names this program by its content.
func ownDigest() (string, error) {
	path, err := os.Executable()
	if err != nil {
		return "", err
	}
	f, err := os.Open(path)
	if err != nil {
		return "", err
	}
	defer func() { _ = f.Close() }()
	h := sha256.New()
	if _, err := io.Copy(h, f); err != nil {
		return "", fmt.Errorf("reading this program: %w", err)
	}
	return hex.EncodeToString(h.Sum(nil))[:16], nil
}
