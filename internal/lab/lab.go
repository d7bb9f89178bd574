// Package lab runs the laboratory: a real Kubernetes control plane in a process of its own, with simulated kubelets and, with
// Options.RealNodes, with machines in namespaces that boot and join it by a real kubelet and container runtime. The program is a
// module of its own (folder lab), because building it takes minutes; this package builds it once into a cache outside the checkout,
// keyed by its sources and the Go version, and starts, waits for and stops it.
//
// In tests, labtest.Start is all that is needed:
//
//	l := labtest.Start(t, lab.Options{})
//	config, err := clientcmd.BuildConfigFromFlags("", l.Kubeconfig)
//
// Where the program has not been built the test is skipped, or fails with MUSTER_REQUIRE=all in the environment. Build it with
//
//	go run ./internal/lab/build
//
// It is made of one version of Kubernetes or another: see Release.
package lab

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
)

// KubeletLabel says what a node's kubelet does: one of the values below, or nothing, and then there is none.
const KubeletLabel = "lab.muster.dev/kubelet"

// The values of KubeletLabel.
const (
	KubeletUp       = "up"        // healthy: the node is Ready
	KubeletNotReady = "not-ready" // alive, and reports NotReady
	KubeletGone     = "gone"      // says nothing any more: the node is found Unknown after about 8 s
)

// ProcessLabel on a pod says where its process is: with the value ProcessOutside the pod stays, once its deletion has begun, until
// the program that runs the process deletes it with a grace of 0, as a kubelet does.
const (
	ProcessLabel   = "lab.muster.dev/process"
	ProcessOutside = "outside"
)

// Lab is a running laboratory.
type Lab struct {
	Kubeconfig   string            // path; its user may do everything
	StateMetrics string            // HOST:PORT of kube-state-metrics
	Prometheus   string            // URL of a Prometheus that reads kube-state-metrics every second
	Server       string            // URL of the API on the network of real nodes; empty without them
	JoinToken    string            // with which a kubelet may ask for its certificate, and nothing else
	Seconds      float64           // that the start took
	Versions     map[string]string // by component

	binary  string
	dir     string
	real    bool // nodes
	process *process
}

// Options of a laboratory. The zero value works.
type Options struct {
	Kubernetes string // minor version of a Release; empty: the default

	Scrape    map[string]string // further targets of Prometheus: HOST:PORT by job
	AWS       string            // URL of a region's APIs, which real nodes reach by the names of AWS
	RealNodes bool              // Boot may be called; the error of RealNodes says what that takes
	Evictions bool              // a controller of EvictionRequests runs; of release 1.37 only, which serves them without one
	Systemd   bool              // real nodes may boot by systemd; the error of SystemdNodes says what that takes
	Temporary bool              // the folder is removed at the end, also after this process was killed

	// What real nodes have besides.
	Images  []string          // archives of container images
	Share   string            // folder that they have at the same path, as a volume that all of them mount; empty: none
	Forward map[string]string // HOST:PORT by the port of Gateway at which they reach it
}

// Gateway is the address at which real nodes and their pods reach what Options.Forward names.
const Gateway = "10.77.0.1"

// Source returns the folder of the lab's module, looked for beside the working directory and its parents.
func Source() (string, error) {
	wd, err := os.Getwd()
	if err != nil {
		return "", err
	}
	for dir := wd; ; dir = filepath.Dir(dir) {
		source := filepath.Join(dir, "lab")
		if mod, err := os.ReadFile(filepath.Join(source, "go.mod")); err == nil && strings.HasPrefix(string(mod), "module github.com/muster-dev/muster/lab\n") {
			return source, nil
		}
		if dir == filepath.Dir(dir) {
			return "", fmt.Errorf("the lab's sources (lab/go.mod) are neither in %s nor in a folder above it", wd)
		}
	}
}

// Binary returns where the program for these sources, this release of Kubernetes and this version of Go is, or would be once built.
func Binary(source string, r Release) (string, error) {
	h := sha256.New()
	h.Write(fmt.Appendln(nil, runtime.Version(), runtime.GOOS, runtime.GOARCH, r.Version))
	err := filepath.WalkDir(source, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() || strings.HasSuffix(path, "_test.go") {
			return err
		}
		b, err := os.ReadFile(path)
		h.Write(fmt.Appendln(nil, strings.TrimPrefix(path, source), len(b)))
		h.Write(b)
		return err
	})
	if err != nil {
		return "", err
	}
	cache, err := os.UserCacheDir()
	if err != nil {
		return "", err
	}
	return filepath.Join(cache, "muster-ci", "lab-"+hex.EncodeToString(h.Sum(nil))[:16], "lab"), nil
}

// keyOf names what is made of some texts.
func keyOf(texts []string) string {
	sum := sha256.Sum256([]byte(strings.Join(texts, "\n")))
	return hex.EncodeToString(sum[:])[:16]
}

// Build builds the program unless that has been done, and returns where it is. It takes minutes the first time; output gets what the
// compiler says.
func Build(ctx context.Context, r Release, output io.Writer) (string, error) {
	source, err := Source()
	if err != nil {
		return "", err
	}
	binary, err := Binary(source, r)
	if err != nil {
		return "", err
	}
	if _, err := os.Stat(binary); err == nil {
		return binary, nil
	}
	if err := os.MkdirAll(filepath.Dir(binary), 0o755); err != nil {
		return "", err
	}
	flags := "-s -w -X k8s.io/component-base/version.gitVersion=" + r.Version + " -X k8s.io/client-go/pkg/version.gitVersion=" + r.Version
	// The program of the pods first: where the other one is, it is too.
	if err := r.build(ctx, source, "./pod", filepath.Join(filepath.Dir(binary), "pod"), "-s -w", output, "CGO_ENABLED=0"); err != nil {
		return "", err
	}
	return binary, r.build(ctx, source, ".", binary, flags, output)
}

// build builds a program of the lab's module.
func (r Release) build(ctx context.Context, source, pkg, binary, flags string, output io.Writer, env ...string) error {
	unfinished := fmt.Sprintf("%s.%d", binary, os.Getpid()) // so that another build at the same time does no harm
	defer func() { _ = os.Remove(unfinished) }()            // it is there only if something failed
	args := slices.Concat([]string{"build", "-buildvcs=false", "-ldflags", flags, "-o", unfinished}, r.flags(), []string{pkg})
	cmd := exec.CommandContext(ctx, "go", args...)
	cmd.Dir, cmd.Stdout, cmd.Stderr = source, output, output
	cmd.Env = append(append(os.Environ(), "GOWORK=off"), env...) // the lab is outside of the workspace
	if err := cmd.Run(); err != nil {
		return fmt.Errorf("building the lab of Kubernetes %s in %s: %w", r.Version, source, err)
	}
	return os.Rename(unfinished, binary)
}

// Built returns the program, or the reason for which there is none, in plain words.
func Built(r Release) (binary, reason string) {
	source, err := Source()
	if err != nil {
		return "", err.Error()
	}
	binary, err = Binary(source, r)
	if err != nil {
		return "", "where the lab would be is not known: " + err.Error()
	}
	if _, err := os.Stat(binary); err != nil {
		return "", "the lab (a real control plane of Kubernetes " + r.Version + ") has not been built: run `" + r.command() + "`, which takes some minutes once"
	}
	return binary, ""
}

// Run starts a laboratory that writes below dir, an existing folder, and waits until it is up. Stop stops it; so does the end of this
// process, however it ends.
func Run(ctx context.Context, binary, dir string, o Options) (*Lab, error) {
	l := &Lab{binary: binary, dir: dir, real: o.RealNodes}
	args := append([]string{"serve", "--dir", dir}, o.args()...)
	folders, err := o.folders(ctx)
	if err != nil {
		return nil, fmt.Errorf("starting the lab: %w", err)
	}
	args = append(args, folders...)
	p, err := start(ctx, binary, args, l)
	if err != nil {
		return nil, fmt.Errorf("starting the lab, see %s: %w", filepath.Join(dir, "lab.log"), err)
	}
	l.process = p
	return l, nil
}

// folders returns the flags for what real nodes are made of, and fetches or builds that if need be.
func (o Options) folders(ctx context.Context) (args []string, err error) {
	if !o.RealNodes {
		return nil, nil
	}
	release, err := ReleaseOf(o.Kubernetes)
	if err != nil {
		return nil, err
	}
	packages, err := nodePackages(ctx)
	if err != nil {
		return nil, err
	}
	args = append(args, "--packages", packages)

	containerd, err := release.containerd(ctx)
	if err != nil {
		return nil, err
	}
	if containerd != "" {
		args = append(args, "--containerd", containerd)
	}

	if o.Systemd {
		packages, err := cloudInit(ctx)
		if err != nil {
			return nil, err
		}
		args = append(args, "--cloud-init", packages)
	}
	return args, nil
}

func (o Options) args() (args []string) {
	for job, addr := range o.Scrape {
		args = append(args, "--scrape", job+"="+addr)
	}
	if o.AWS != "" {
		args = append(args, "--aws", o.AWS)
	}
	for _, archive := range o.Images {
		args = append(args, "--image", archive)
	}
	if o.Share != "" {
		args = append(args, "--share", o.Share)
	}
	if o.Evictions {
		args = append(args, "--evictions")
	}
	if o.Temporary {
		args = append(args, "--temporary")
	}
	for port, target := range o.Forward {
		args = append(args, "--forward", port+"="+target)
	}
	return args
}

// Stop stops the laboratory and waits for its end, and removes what real nodes have left
// if it was killed. It may be called more than once.
func (l *Lab) Stop() {
	l.process.stop()
	if l.real {
		_ = l.sweep() // the next lab sweeps too
	}
}

// PID returns the number of the laboratory's process.
func (l *Lab) PID() int { return l.process.cmd.Process.Pid }

// Kill ends the laboratory by SIGKILL, and its real nodes with it. Stop is still to be called.
func (l *Lab) Kill() { l.process.kill() }

// Prometheus is a Prometheus in a process of its own, beside the laboratory's, which can be killed alone.
type Prometheus struct {
	URL string // where it answers

	process *process
}

// RunPrometheus starts a further Prometheus, which reads the targets of o and nothing else. It keeps what it reads in dir, an existing
// folder, and goes on there if another one wrote to it before. listen is its HOST:PORT.
func (l *Lab) RunPrometheus(ctx context.Context, dir, listen string, o Options) (*Prometheus, error) {
	var ready struct{ Prometheus string }
	p, err := start(ctx, l.binary, append([]string{"prometheus", "--dir", dir, "--listen", listen}, o.args()...), &ready)
	if err != nil {
		return nil, fmt.Errorf("starting a Prometheus at %s: %w", listen, err)
	}
	return &Prometheus{URL: ready.Prometheus, process: p}, nil
}

// Stop stops it and waits for its end. It may be called more than once.
func (p *Prometheus) Stop() { p.process.stop() }

// Kill ends it by SIGKILL and waits until it is gone. What it wrote stays, also what a
// power cut would lose because it was never synced.
func (p *Prometheus) Kill() { p.process.kill() }

// Kubectl runs kubectl, of the same version as the API, as a user who may do everything.
func (l *Lab) Kubectl(ctx context.Context, args ...string) (string, error) {
	cmd := exec.CommandContext(ctx, l.binary, append([]string{"kubectl"}, args...)...)
	cmd.Env = append(os.Environ(), "KUBECONFIG="+l.Kubeconfig)
	var stdout, stderr strings.Builder
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	if err := cmd.Run(); err != nil {
		return stdout.String(), errors.Join(fmt.Errorf("kubectl %s: %w", strings.Join(args, " "), err), errors.New(strings.TrimSpace(stderr.String())))
	}
	return stdout.String(), nil
}
