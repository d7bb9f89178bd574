package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"runtime/debug"
	"strings"
	"syscall"
	"time"

	"k8s.io/component-base/cli"
	"k8s.io/klog/v2"
	kubectl "k8s.io/kubectl/pkg/cmd"
	kubelet "k8s.io/kubernetes/cmd/kubelet/app"

	"github.com/muster-dev/muster/lab/network"
	"github.com/muster-dev/muster/lab/outlive"
)

// Ready is what the lab prints when it is up; of a Prometheus alone, only its URL and the time are told.
type Ready struct {
	Kubeconfig   string            `json:"kubeconfig,omitempty"`   // path; its user may do everything
	StateMetrics string            `json:"stateMetrics,omitempty"` // HOST:PORT of kube-state-metrics
	Prometheus   string            `json:"prometheus"`             // URL
	JoinToken    string            `json:"joinToken,omitempty"`    // that a kubelet may bootstrap with
	Server       string            `json:"server,omitempty"`       // URL of the API on the machines' network
	Seconds      float64           `json:"seconds"`                // that it took
	Versions     map[string]string `json:"versions,omitempty"`     // by component
}

func main() {
	command := ""
	if len(os.Args) > 1 {
		command = os.Args[1]
	}
	if filepath.Base(os.Args[0]) == "k3s" { // the name by which a machine's user data knows it
		command += " of K3s"
	}
	var err error
	switch command {
	case "kubectl":
		os.Args = os.Args[1:]
		os.Exit(cli.Run(kubectl.NewDefaultKubectlCommand()))
	case "kubelet":
		os.Args = os.Args[1:]
		os.Exit(cli.Run(kubelet.NewKubeletCommand(context.Background())))
	case "agent of K3s":
		err = agent(context.Background())
	case "machine":
		err = bootMachine()
	case "init":
		err = initialize()
	case "kernel-log":
		err = relayKernelLog()
	case "sweep":
		err = sweep()
	default:
		err = run(os.Args[1:])
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "lab:", err)
		os.Exit(1)
	}
}

const usage = "usage: lab serve --dir DIR, lab prometheus --dir DIR --listen HOST:PORT, or lab kubectl ARGS"

func run(args []string) error {
	if len(args) == 0 || args[0] != "serve" && args[0] != "prometheus" {
		return errors.New(usage)
	}
	flags := flag.NewFlagSet("lab "+args[0], flag.ContinueOnError)
	dir := flags.String("dir", "", "folder for everything that is written; it must exist")
	temporary := flags.Bool("temporary", false, "remove the folder at the end, also when the process that started this one was killed")
	listen := flags.String("listen", "127.0.0.1:0", "where Prometheus answers")
	var real machineSettings
	real.flags(flags)
	evictions := flags.Bool("evictions", false, "run a controller of EvictionRequests, which Kubernetes 1.37 serves without having one")
	interval := flags.Duration("scrape-interval", time.Second, "how often Prometheus reads")
	var targets []target
	flags.Func("scrape", "a further target of Prometheus, as JOB=HOST:PORT; may be repeated", func(s string) error {
		t, err := parseTarget(s)
		targets = append(targets, t)
		return err
	})
	if err := flags.Parse(args[1:]); err != nil {
		return err
	}
	if *dir == "" {
		return errors.New("--dir is missing")
	}
	var err error
	if *dir, err = filepath.Abs(*dir); err != nil {
		return err
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	outlive.Parent()
	go func() { // the process that started us may be killed; then our input ends
		_, _ = io.Copy(io.Discard, os.Stdin)
		cancel()
	}()
	if args[0] == "prometheus" {
		return servePrometheus(ctx, *dir, *listen, *interval, targets)
	}
	if *temporary {
		defer func() { _ = os.RemoveAll(*dir) }() // the process that started this one may remove it at the same time
	}
	logs, err := os.Create(filepath.Join(*dir, "lab.log"))
	if err != nil {
		return err
	}
	defer logs.Close()
	if err := logTo(logs); err != nil {
		return err
	}
	return serve(ctx, settings{*dir, *listen, *interval, targets, *evictions, real})
}

// logTo sends the components' logs to a file; klog has no other way than its flags.
func logTo(w io.Writer) error {
	flags := flag.NewFlagSet("klog", flag.ContinueOnError)
	klog.InitFlags(flags)
	for name, value := range map[string]string{"logtostderr": "false", "alsologtostderr": "false", "stderrthreshold": "FATAL"} {
		if err := flags.Set(name, value); err != nil {
			return err
		}
	}
	klog.SetOutput(w)
	return nil
}

// settings are those of a lab.
type settings struct {
	dir       string
	listen    string // of Prometheus
	interval  time.Duration
	targets   []target
	evictions bool // their controller runs
	machines  machineSettings
}

// machineSettings are those of real machines.
type machineSettings struct {
	packages string    // folder; empty: there are none
	runtime  string    // folder of a container runtime in place of the packages' one; empty: theirs
	cloud    string    // folder of cloud-init's packages; empty: no machine boots by systemd
	aws      string    // URL of the region's APIs
	share    string    // folder that every machine has at the same path; empty: none does
	images   []string  // archives of container images that every machine imports
	forwards []forward // what machines reach at the gateway
}

// forward is a port of the gateway, and what answers there.
type forward struct{ port, target string }

func (m *machineSettings) flags(f *flag.FlagSet) {
	f.StringVar(&m.packages, "packages", "", "folder of a container runtime's packages, for real machines; without it there are none")
	f.StringVar(&m.runtime, "containerd", "", "folder of a container runtime that real machines have in place of the packages' one")
	f.StringVar(&m.cloud, "cloud-init", "", "folder of cloud-init's packages, for real machines that boot by systemd; without it none can")
	f.StringVar(&m.aws, "aws", "", "URL of a region's APIs, which real machines reach by the names of AWS")
	f.StringVar(&m.share, "share", "", "folder that real machines have at the same path, as a volume that all of them mount")
	f.Func("image", "archive of a container image that real machines import; may be repeated", func(s string) error {
		m.images = append(m.images, s)
		return nil
	})
	f.Func("forward", "what real machines reach at a port of the gateway, as PORT=HOST:PORT; may be repeated", func(s string) error {
		port, target, ok := strings.Cut(s, "=")
		if !ok {
			return fmt.Errorf("%q: write PORT=HOST:PORT", s)
		}
		m.forwards = append(m.forwards, forward{port, target})
		return nil
	})
}

func serve(ctx context.Context, s settings) (err error) {
	begin := time.Now()
	c := newControlPlane(s.dir)
	defer c.stop()
	if s.machines.packages != "" {
		if c.network, err = network.New(); err != nil {
			return err
		}
	}
	if err := c.start(ctx); err != nil {
		return err
	}
	if s.evictions {
		if err := startEvictions(ctx, c.rest); err != nil {
			return fmt.Errorf("the controller of evictions: %w", err)
		}
	}
	ksm, err := c.startStateMetrics(ctx)
	if err != nil {
		return fmt.Errorf("kube-state-metrics: %w", err)
	}
	p, err := startPrometheus(filepath.Join(s.dir, "prometheus"), s.listen, s.interval, append(s.targets, target{"kube-state-metrics", ksm}))
	if err != nil {
		return fmt.Errorf("prometheus: %w", err)
	}
	defer p.stop()
	ready := Ready{Kubeconfig: c.kubeconfig, StateMetrics: ksm, Prometheus: p.url, JoinToken: c.token.String(), Versions: versions()}
	if s.machines.packages != "" {
		m, err := startMachines(ctx, c, s.machines)
		if err != nil {
			return err
		}
		defer func() { err = errors.Join(err, m.close()) }()
		ready.Server = c.inside
	}
	ready.Seconds = time.Since(begin).Seconds()
	if err := json.NewEncoder(os.Stdout).Encode(ready); err != nil {
		return err
	}
	select {
	case <-ctx.Done():
		return nil
	case err := <-c.failed:
		return err
	}
}

// servePrometheus runs a Prometheus without a control plane, on whatever an earlier one has left in dir.
func servePrometheus(ctx context.Context, dir, listen string, interval time.Duration, targets []target) error {
	begin := time.Now()
	p, err := startPrometheus(dir, listen, interval, targets)
	if err != nil {
		return fmt.Errorf("prometheus: %w", err)
	}
	defer p.stop()
	if err := json.NewEncoder(os.Stdout).Encode(Ready{Prometheus: p.url, Seconds: time.Since(begin).Seconds()}); err != nil {
		return err
	}
	<-ctx.Done()
	return nil
}

// versions tells what this program is made of.
func versions() map[string]string {
	out := map[string]string{}
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return out
	}
	names := map[string]string{
		"k8s.io/kubernetes": "Kubernetes", "go.etcd.io/etcd/server/v3": "etcd", "sigs.k8s.io/kwok": "KWOK",
		"k8s.io/kube-state-metrics/v2": "kube-state-metrics", "github.com/prometheus/prometheus": "Prometheus",
	}
	for _, m := range info.Deps {
		if name, ok := names[m.Path]; ok {
			out[name] = m.Version
		}
	}
	return out
}
