package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/muster-dev/muster/nodes"
	"github.com/muster-dev/muster/nodes/connect"
	"github.com/muster-dev/muster/nodes/local"
	"github.com/muster-dev/muster/nodes/sim"
	"github.com/muster-dev/muster/nodes/sim/region"
)

// simulateOptions are those of a simulation.
type simulateOptions struct {
	speed float64
	lasts time.Duration
	seed  uint64
	quiet bool
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

// runSimulated runs the daemon on a simulation, with everything between as it is with a real cloud: clients, protocols, store.
func (n *nodesCommand) runSimulated(ctx context.Context, o simulateOptions) error {
	src, err := n.simulatedSources()
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
		return usageError(n.Command, fmt.Errorf("--dir: %w: name a directory that can be written", err))
	} else if local.Holds(dir) {
		return usageError(n.Command, fmt.Errorf("--dir: %s holds the store of another run, whose instances this simulation doesn't have: name an empty directory", dir))
	}
	policy, err := nodes.PolicyFromEnv(src.Lookup)
	if err != nil {
		return usageError(n.Command, err)
	}
	m, err := simulate(policy, dir, o)
	if err != nil {
		return err
	}
	defer func() { _ = m.Close() }() // after the daemon has ended, which works with the region to its end
	for name, v := range m.env {
		src.Flags[name] = v
		if strings.HasPrefix(name, "AWS_") { // the SDK reads its credentials nowhere else, and must not find somebody's real ones
			if err := os.Setenv(name, v); err != nil {
				return err
			}
		}
	}
	plane, d, log, err := n.openDaemon(ctx, src, m.clock())
	if err != nil {
		return err
	}
	defer func() { _ = plane.close() }()
	if o.lasts > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, o.lasts)
		defer cancel()
	}
	if err := m.introduce(n.OutOrStdout(), plane.Config.Policy); err != nil {
		return err
	}
	if !o.quiet {
		go m.play(ctx, o, log)
	}
	return n.serve(ctx, plane, d, log)
}

// simulatedSources leaves out whatever of the environment and the file says where a real cloud or cluster is.
func (n *nodesCommand) simulatedSources() (connect.Sources, error) {
	src, err := n.sources()
	if err != nil {
		return src, err
	}
	allowed := connect.Known(append(connect.Groups()[:1:1], daemonGroup()))
	allowed = slices.DeleteFunc(allowed, func(name string) bool { return slices.Contains(where, name) })
	allowed = append(allowed, "PROMETHEUS_STEP_SEC", "PROMETHEUS_RATE_SEC", "PROMETHEUS_MAX_AGE_SEC", "PROMETHEUS_TIMEOUT_SEC", "DRAIN_BARE_PODS", "DRAIN_LOCAL_STORAGE")
	for name := range src.Flags {
		if !slices.Contains(allowed, name) && name != "DIR" {
			return src, usageError(n.Command, fmt.Errorf("--simulate brings what %s would name: leave it out", name))
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
	src.Defaults = simulatedDefaults
	return src, nil
}

// simulate begins a region of three zones with two workers and ten minutes of history.
func simulate(p nodes.Policy, dir string, o simulateOptions) (*simulation, error) {
	p.Cluster = simulatedCluster
	r, err := region.Start(region.Options{Dir: dir, Speed: o.speed, History: 10 * time.Minute, Scrape: 2 * time.Second,
		Parameters: map[string]string{simulatedToken: "K10simulated::agent:simulated"},
		Sim: sim.Options{Policy: p, Zones: []string{"sim-1a", "sim-1b", "sim-1c"}, Workers: []string{"sim-1a", "sim-1b"},
			Boot: 20 * time.Second, Visible: 2 * time.Second}})
	if err != nil {
		return nil, err
	}
	m := &simulation{Region: r, dir: dir, speed: o.speed, queue: r.AWSURL + "/000000000000/interruptions"}
	r.World.AddPods(3, sim.PodSpec{Name: "base/web", MilliCPU: 500, Memory: 512 << 20})
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

// ---- time

// clock is the simulated time.
func (m *simulation) clock() nodes.Clock {
	if m.speed == 1 {
		return nodes.SystemClock{}
	}
	return fastClock{m.World.Clock().Now, m.speed}
}

// clockVariable tells other processes the time of a simulation that runs faster: a moment of the machine's clock, the simulation's time
// at that moment, both in nanoseconds since 1970, and how many times faster it passes.
const clockVariable = "MUSTER_SIMULATED_CLOCK"

func (m *simulation) clockText() string {
	return fmt.Sprintf("%d %d %g", time.Now().UnixNano(), m.World.Clock().Now().UnixNano(), m.speed)
}

// commandClock is the clock by which a command looks at a cluster: the machine's, unless the environment is that of a simulation which
// runs faster. Ages, leases and waiting times are told by the clock of those who tick.
func commandClock() (nodes.Clock, error) {
	text := os.Getenv(clockVariable)
	if text == "" {
		return nodes.SystemClock{}, nil
	}
	var machine, simulated int64
	var speed float64
	if n, err := fmt.Sscanf(text, "%d %d %g", &machine, &simulated, &speed); err != nil || n != 3 || !(speed > 0) {
		return nil, fmt.Errorf("%s is %q: unset it, or read the simulation's env file again", clockVariable, text)
	}
	now := func() time.Time {
		return time.Unix(0, simulated).Add(time.Duration(float64(time.Since(time.Unix(0, machine))) * speed))
	}
	return fastClock{now, speed}, nil
}

// unhurried is a clock of the same time by which waiting takes as long as on the machine's, for who only looks: nothing that is looked at
// is held meanwhile.
func unhurried(c nodes.Clock) nodes.Clock {
	if f, ok := c.(fastClock); ok {
		return fastClock{f.now, 1}
	}
	return c
}

// fastClock reads a world's time while sim.RealTime lets it pass; it waits in real time. Deadlines are told in the world's time, by
// which the adapters keep them, and end contexts in real time.
type fastClock struct {
	now   func() time.Time
	speed float64
}

var _ nodes.Clock = fastClock{}

func (c fastClock) Now() time.Time { return c.now() }

func (c fastClock) real(d time.Duration) time.Duration {
	return time.Duration(float64(d) / c.speed)
}

func (c fastClock) Sleep(ctx context.Context, d time.Duration) error {
	return nodes.SystemClock{}.Sleep(ctx, c.real(d))
}

func (c fastClock) WithDeadline(ctx context.Context, t time.Time) (context.Context, context.CancelFunc) {
	if d, ok := c.deadline(ctx); ok && d.Before(t) {
		t = d
	}
	ctx, cancel := context.WithTimeout(ctx, c.real(t.Sub(c.Now())))
	return fastContext{ctx, t}, cancel
}

// deadline returns a context's deadline in the world's time. The world's time may be far
// ahead of the machine's: a deadline of the machine, which a server or a page put on the
// context, would be past if it were taken for one of the world.
func (c fastClock) deadline(ctx context.Context) (time.Time, bool) {
	d, ok := ctx.Deadline()
	if !ok {
		return time.Time{}, false
	}
	// A context made of a fastContext inherits its deadline, unless it was given one of
	// its own by the machine's clock.
	if of, made := ctx.Value(fastDeadline{}).(time.Time); made && of.Equal(d) {
		return d, true
	}
	return c.Now().Add(time.Duration(float64(time.Until(d)) * c.speed)), true
}

// fastDeadline is the key by which a context tells the world's deadline that it has.
type fastDeadline struct{}

type fastContext struct {
	context.Context
	deadline time.Time
}

func (c fastContext) Value(key any) any {
	if key == (fastDeadline{}) {
		return c.deadline
	}
	return c.Context.Value(key)
}

func (c fastContext) Deadline() (time.Time, bool) { return c.deadline, true }

// ---- what happens there

// play lets deployments come and go, and takes Spot instances away with a warning, until ctx ends.
func (m *simulation) play(ctx context.Context, o simulateOptions, log *slog.Logger) {
	rng := rand.New(rand.NewPCG(o.seed, 0))
	clock := fastClock{m.World.Clock().Now, m.speed}
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
		m.World.AddPods(pods, sim.PodSpec{Name: name, MilliCPU: 700, Memory: 768 << 20, Grace: 5 * time.Second})
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
		m.World.RemovePods(name)
		if !wait(150, 200) {
			return
		}
	}
}

// warn announces that a Spot instance will be taken away in two minutes, as EventBridge puts it into a queue.
func (m *simulation) warn(rng *rand.Rand, log *slog.Logger) {
	instances, err := m.World.Client("script", nil).Workers(context.Background())
	if err != nil {
		return
	}
	instances = slices.DeleteFunc(instances, func(i nodes.Instance) bool {
		return i.ControlPlane || i.State != nodes.StateRunning || i.Market != nodes.Spot
	})
	if len(instances) == 0 {
		return
	}
	e := m.World.Announce(nodes.Warning, instances[rng.IntN(len(instances))].ID)
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
