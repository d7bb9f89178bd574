// Package simulate has `muster nodes run --simulate`: the node plane on a simulated region and
// cluster. Production binaries don't link it.
package simulate

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/muster-dev/muster/internal/command"
	nodescommand "github.com/muster-dev/muster/internal/command/nodes"
	"github.com/muster-dev/muster/nodes"
	"github.com/muster-dev/muster/nodes/connect"
	"github.com/muster-dev/muster/nodes/local"
	"github.com/muster-dev/muster/nodes/sim"
	"github.com/muster-dev/muster/nodes/sim/region"
)

// New returns the commands of the node plane, of which run can work on a simulated region.
func New() *cobra.Command {
	group := nodescommand.New(nodescommand.Options{Clocks: clocks, ExtendRun: extend})
	group.Example = "  muster nodes run --simulate\n" + group.Example
	return group
}

// options are those of a simulation.
type options struct {
	speed float64       // how many times faster than real time passes there, 1 to 20
	lasts time.Duration // 0: until it is interrupted
	seed  uint64
	quiet bool // no load comes by itself
}

// extend gives the command run its flag --simulate and those that go with it.
func extend(run *nodescommand.Command) {
	run.Long += "\n\n" +
		"With --simulate the cloud, the cluster and its Prometheus are simulated on this\n" +
		"machine, behind the protocols of the real ones: no account is needed, and load comes\n" +
		"and goes by itself. Times are shortened unless they are set."
	run.Example += "\n" +
		"  muster nodes run --simulate\n" +
		"  muster nodes run --simulate --speed 5 --pending-source phase"

	var o options
	var simulated bool
	f := run.Flags()
	f.BoolVar(&simulated, "simulate", false, "simulate cloud, cluster and Prometheus on this machine")
	f.Float64Var(&o.speed, "speed", 1, "with --simulate: how many times faster than real time passes there, 1 to 20")
	f.DurationVar(&o.lasts, "for", 0, "with --simulate: end after this long; 0 goes on until interrupted")
	f.Uint64Var(&o.seed, "seed", 1, "with --simulate: seed of what is drawn at random")
	f.BoolVar(&o.quiet, "no-load", false, "with --simulate: let no load come by itself")

	plain := run.RunE
	run.SetRun(func(cmd *cobra.Command, args []string) error {
		if !simulated {
			for _, name := range []string{"speed", "for", "seed", "no-load"} {
				if cmd.Flags().Changed(name) {
					return command.UsageError(cmd, fmt.Errorf("--%s goes with --simulate", name))
				}
			}
			return plain(cmd, args)
		}
		if !(o.speed >= 1 && o.speed <= 20) {
			return command.UsageError(cmd, fmt.Errorf("--speed is %v: use 1 to 20", o.speed))
		}
		return o.run(cmd.Context(), run)
	})
}

// simulatedDefaults shorten what would be long to wait for at a screen. Whatever is set goes before them.
var simulatedDefaults = map[string]string{
	"TICK_SEC": "5", "CPU_UP_SEC": "30", "PENDING_UP_SEC": "15", "IDLE_DOWN_SEC": "40", "COOLDOWN_UP_SEC": "20", "COOLDOWN_DOWN_SEC": "30",
	"JOIN_TIMEOUT_SEC": "90", "DRAIN_TIMEOUT_SEC": "180", "SCALE_DOWN_STUCK_SEC": "300", "MAX_WORKERS": "6", "PODS_PER_NODE": "4",
	"PROMETHEUS_STEP_SEC": "5", "PROMETHEUS_RATE_SEC": "20", "PROMETHEUS_MAX_AGE_SEC": "30",
}

// simulation is a simulated region with its cluster, served by the protocols of the real ones.
type simulation struct {
	*region.Region
	queue string
	dir   string            // of the store and the files that tell other commands where everything is
	env   map[string]string // where everything is
	speed float64
}

const (
	simulatedCluster = "simulated"
	simulatedToken   = "/muster/simulated/agent-token"
)

// run runs the daemon on a simulation, with everything between as it is with a real cloud: clients, protocols, store.
func (o options) run(ctx context.Context, n *nodescommand.Command) error {
	src, err := sources(n)
	if err != nil {
		return err
	}
	dir, _ := src.Lookup("DIR")
	if dir == "" {
		if dir, err = os.MkdirTemp("", "muster-nodes-"); err != nil {
			return err
		}
		defer func() { _ = os.RemoveAll(dir) }()
		src.Flags["DIR"] = dir
	} else if err := os.MkdirAll(dir, 0o700); err != nil {
		return command.UsageError(n.Command, fmt.Errorf("--dir: %w: name a directory that can be written", err))
	} else if local.Holds(dir) {
		return command.UsageError(n.Command, fmt.Errorf("--dir: %s holds the store of another run, whose instances this simulation doesn't have: name an empty directory", dir))
	}
	policy, err := nodes.PolicyFromEnv(src.Lookup)
	if err != nil {
		return command.UsageError(n.Command, err)
	}
	m, err := simulate(policy, dir, o)
	if err != nil {
		return err
	}
	defer func() { _ = m.Close() }() // after the daemon has ended, which works with the region to its end
	for name, v := range m.env {
		if isPrometheus(name) && policy.Signals == nodes.SignalsKubernetes {
			continue
		}
		src.Flags[name] = v
		if strings.HasPrefix(name, "AWS_") { // the SDK reads its credentials nowhere else, and must not find somebody's real ones
			if err := os.Setenv(name, v); err != nil {
				return err
			}
		}
	}
	d, err := n.OpenDaemon(ctx, src, m.clock())
	if err != nil {
		return err
	}
	defer func() { _ = d.Close() }()
	if o.lasts > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, o.lasts)
		defer cancel()
	}
	if err := m.introduce(n.OutOrStdout(), d.Policy()); err != nil {
		return err
	}
	if !o.quiet {
		go m.play(ctx, o, d.Log)
	}
	return d.Serve(ctx)
}

// sources leaves out whatever of the environment and the file says where a real cloud or cluster is.
func sources(n *nodescommand.Command) (connect.Sources, error) {
	src, err := n.Sources()
	if err != nil {
		return src, err
	}
	allowed := connect.Known(append(connect.Groups()[:1:1], nodescommand.DaemonSettings()))
	allowed = slices.DeleteFunc(allowed, func(name string) bool { return slices.Contains(nodescommand.Place(), name) })
	allowed = append(allowed, "PROMETHEUS_STEP_SEC", "PROMETHEUS_RATE_SEC", "PROMETHEUS_MAX_AGE_SEC", "PROMETHEUS_TIMEOUT_SEC", "DRAIN_BARE_PODS", "DRAIN_LOCAL_STORAGE")
	for name := range src.Flags {
		if !slices.Contains(allowed, name) && name != "DIR" {
			return src, command.UsageError(n.Command, fmt.Errorf("--simulate brings what %s would name: leave it out", name))
		}
	}
	env := src.Env
	src.Env = func(name string) (string, bool) {
		if !slices.Contains(allowed, name) {
			return "", false
		}
		return env(name)
	}
	for name := range src.File {
		if !slices.Contains(allowed, name) {
			delete(src.File, name)
		}
	}
	src.Defaults = maps.Clone(simulatedDefaults)
	if signals, _ := src.Lookup("SIGNALS"); nodes.SignalSource(signals) == nodes.SignalsKubernetes {
		for name := range simulatedDefaults {
			_, own := nodes.ModeDefault(nodes.SignalsKubernetes, name)
			if own || isPrometheus(name) || slices.Contains(nodes.WithoutEffect(), name) {
				delete(src.Defaults, name)
			}
		}
	}
	return src, nil
}

// isPrometheus reports whether a setting says where Prometheus is or how it is asked.
func isPrometheus(name string) bool { return strings.HasPrefix(name, "PROMETHEUS_") }

// simulate begins a region of three zones with two workers and ten minutes of history.
func simulate(p nodes.Policy, dir string, o options) (*simulation, error) {
	p.Cluster = simulatedCluster
	r, err := region.Start(region.Options{Dir: dir, Speed: o.speed, History: 10 * time.Minute, Scrape: 2 * time.Second,
		Parameters: map[string]string{simulatedToken: "K10simulated::agent:simulated"},
		Sim: sim.Options{Policy: p, Zones: []string{"sim-1a", "sim-1b", "sim-1c"}, Workers: []string{"sim-1a", "sim-1b"},
			Boot: 20 * time.Second, Visible: 2 * time.Second}})
	if err != nil {
		return nil, err
	}
	m := &simulation{Region: r, dir: dir, speed: o.speed, queue: r.AWSURL + "/000000000000/interruptions"}
	r.Simulator.AddPods(3, sim.PodSpec{Name: "base/web", MilliCPU: 500, Memory: 512 << 20})
	kubeconfig := filepath.Join(dir, "kubeconfig")
	m.env = map[string]string{
		"CLUSTER": simulatedCluster, "DIR": dir,
		"AWS_REGION": "sim-1", "AWS_ENDPOINT_URL": r.AWSURL, "AWS_ACCESS_KEY_ID": "simulated", "AWS_SECRET_ACCESS_KEY": "simulated", "AWS_SESSION_TOKEN": "",
		"AWS_EC2_METADATA_DISABLED": "true", "AWS_PROFILE": "",
		"LAUNCH_TEMPLATE": "lt-0123456789abcdef0", "LAUNCH_TEMPLATE_VERSION": "1", "INTERRUPTION_QUEUE": m.queue,
		"K3S_URL": "https://k3s.simulated:6443", "K3S_TOKEN_REF": "ssm:" + simulatedToken,
		"KUBECONFIG": kubeconfig, "PROMETHEUS_URL": r.PromURL, clockVariable: "",
	}
	if o.speed != 1 {
		m.env[clockVariable] = m.clockText()
	}
	text := "apiVersion: v1\nkind: Config\ncurrent-context: simulated\nclusters:\n- {name: simulated, cluster: {server: " + r.KubeURL + "}}\n" +
		"users:\n- {name: simulated, user: {}}\ncontexts:\n- {name: simulated, context: {cluster: simulated, user: simulated}}\n"
	if err := errors.Join(os.WriteFile(kubeconfig, []byte(text), 0o600), m.writeEnv(filepath.Join(dir, "env"))); err != nil {
		return nil, errors.Join(err, m.Close())
	}
	return m, nil
}

// writeEnv writes a file for a shell to read, so that other commands find the simulation as they would find a real cluster.
func (m *simulation) writeEnv(name string) error {
	var b strings.Builder
	env := map[string]string{}
	for k, v := range simulatedDefaults {
		env[k] = v
	}
	for k, v := range m.env {
		env[k] = v
	}
	names := make([]string, 0, len(env))
	for k := range env {
		names = append(names, k)
	}
	slices.Sort(names)
	for _, k := range names {
		fmt.Fprintf(&b, "export %s='%s'\n", k, strings.ReplaceAll(env[k], "'", `'\''`))
	}
	return os.WriteFile(name, []byte(b.String()), 0o600)
}

func (m *simulation) introduce(w io.Writer, p nodes.Policy) error {
	faster := ""
	if m.speed > 1 {
		faster = fmt.Sprintf(", where time passes %g times faster", m.speed)
	}
	_, err := fmt.Fprintf(w, `A simulated region and K3s cluster run on this machine%s: %d to %d workers, 2 now.
Deployments come and go, and now and then a Spot instance is taken away. Ctrl-C ends it.

In another terminal:
  . %s
  muster nodes status
  muster nodes explain
  muster nodes events --follow
  muster nodes doctor

`, faster, p.MinWorkers, p.MaxWorkers, filepath.Join(m.dir, "env"))
	return err
}

// play lets deployments come and go, and takes Spot instances away with a warning, until ctx ends.
func (m *simulation) play(ctx context.Context, o options, log *slog.Logger) {
	rng := rand.New(rand.NewPCG(o.seed, 0))
	clock := fastClock{m.Simulator.Clock().Now, m.speed}
	wait := func(least, most int) bool {
		return clock.Sleep(ctx, time.Duration(least+rng.IntN(most-least+1))*time.Second) == nil
	}
	if !wait(10, 15) {
		return
	}
	for round := 1; ; round++ {
		name := fmt.Sprintf("batch-%d/job", round)
		pods := 5 + rng.IntN(6)
		log.Info("simulation: a deployment comes", "deployment", name, "pods", pods)
		m.Simulator.AddPods(pods, sim.PodSpec{Name: name, MilliCPU: 700, Memory: 768 << 20, Grace: 5 * time.Second})
		if !wait(70, 90) {
			return
		}
		if round%2 == 1 {
			m.warn(rng, log)
			if !wait(60, 80) {
				return
			}
		}
		log.Info("simulation: the deployment goes", "deployment", name)
		m.Simulator.RemovePods(name)
		if !wait(150, 200) {
			return
		}
	}
}

// warn announces that a Spot instance will be taken away in two minutes, as EventBridge puts it into a queue.
func (m *simulation) warn(rng *rand.Rand, log *slog.Logger) {
	instances, err := m.Simulator.Client("script", nil).Workers(context.Background())
	if err != nil {
		return
	}
	instances = slices.DeleteFunc(instances, func(i nodes.Instance) bool {
		return i.ControlPlane || i.State != nodes.StateRunning || i.Market != nodes.Spot
	})
	if len(instances) == 0 {
		return
	}
	e := m.Simulator.Announce(nodes.Warning, instances[rng.IntN(len(instances))].ID)
	log.Info("simulation: a Spot instance is warned", "instance", e.InstanceID)
	body, err := json.Marshal(map[string]any{
		"id": e.ID, "detail-type": "EC2 Spot Instance Interruption Warning", "source": "aws.ec2", "time": e.At.UTC().Format(time.RFC3339), "region": "sim-1",
		"detail": map[string]string{"instance-id": e.InstanceID, "instance-action": "terminate"},
	})
	if err != nil {
		return
	}
	m.AWS.Send(m.queue, string(body))
}

// clock is the simulated time.
func (m *simulation) clock() nodes.Clock {
	if m.speed == 1 {
		return nodes.SystemClock{}
	}
	return fastClock{m.Simulator.Clock().Now, m.speed}
}

func (m *simulation) clockText() string {
	return fmt.Sprintf("%d %d %g", time.Now().UnixNano(), m.Simulator.Clock().Now().UnixNano(), m.speed)
}
