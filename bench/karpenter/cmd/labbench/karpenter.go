package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"

	"github.com/muster-dev/muster/internal/lab"
)

// Karpenter's module, and the first version of Go that it builds with.
const (
	karpenterModule  = "sigs.k8s.io/karpenter"
	karpenterVersion = "v1.15.0"
	karpenterGo      = "go1.26.9"
)

// Settings of Karpenter in times of the trace: the defaults, and consolidateAfter as its getting started guide has it.
const (
	consolidateAfter = time.Minute
	batchIdle        = time.Second
	batchMax         = 10 * time.Second
)

const bootTime = 90 * time.Second // of a node from launch to Ready, in times of the trace

// karpenter is Karpenter with its KWOK provider.
type karpenter struct {
	scene  scene
	binary string
	source string // of its module

	counter *counter
	process *process
	claims  dynamic.NamespaceableResourceInterface
	stopped context.CancelFunc
	running sync.WaitGroup

	mu     sync.Mutex
	ledger ledger
	err    error
}

func newKarpenter(ctx context.Context, s scene) (contender, error) {
	cache, err := os.UserCacheDir()
	if err != nil {
		return nil, err
	}
	dir := filepath.Join(cache, "muster-ci", "karpenter-"+karpenterVersion)
	k := &karpenter{scene: s, binary: filepath.Join(dir, "kwok"), ledger: ledger{}}
	if _, err := os.Stat(k.binary); err != nil {
		install := exec.CommandContext(ctx, "go", "install", "-ldflags=-s -w", karpenterModule+"/kwok@"+karpenterVersion)
		install.Env = append(os.Environ(), "GOBIN="+dir, "GOTOOLCHAIN="+karpenterGo, "GOFLAGS=", "GOWORK=off")
		install.Stdout, install.Stderr = os.Stderr, os.Stderr
		if err := install.Run(); err != nil {
			return nil, fmt.Errorf("building Karpenter %s, which takes %s: %w", karpenterVersion, karpenterGo, err)
		}
	}
	download := exec.CommandContext(ctx, "go", "mod", "download", "-json", karpenterModule+"@"+karpenterVersion)
	download.Env = append(os.Environ(), "GOTOOLCHAIN="+karpenterGo, "GOFLAGS=", "GOWORK=off")
	text, err := download.Output()
	if err != nil {
		return nil, fmt.Errorf("fetching Karpenter's manifests: %w", err)
	}
	var module struct{ Dir string }
	if err := json.Unmarshal(text, &module); err != nil {
		return nil, fmt.Errorf("fetching Karpenter's manifests: %w", err)
	}
	k.source = module.Dir
	return k, nil
}

func (k *karpenter) name() string { return "Karpenter " + karpenterVersion }

// manifests are the pool and the class of its nodes. The label has the lab's kubelets play the nodes.
const manifests = `apiVersion: karpenter.kwok.sh/v1alpha1
kind: KWOKNodeClass
metadata: {name: default}
spec: {nodeRegistrationDelay: %s}
---
apiVersion: karpenter.sh/v1
kind: NodePool
metadata: {name: default}
spec:
  template:
    metadata:
      labels: {%s: %s}
    spec:
      nodeClassRef: {group: karpenter.kwok.sh, kind: KWOKNodeClass, name: default}
      expireAfter: Never
      requirements:
      - {key: karpenter.sh/capacity-type, operator: In, values: [on-demand]}
  disruption:
    consolidationPolicy: WhenEmptyOrUnderutilized
    consolidateAfter: %s
`

func (k *karpenter) start(ctx context.Context, l *lab.Lab, config *rest.Config, dir string) error {
	if err := k.apply(ctx, l, dir); err != nil {
		return err
	}
	types, err := k.scene.kwokTypes()
	if err != nil {
		return err
	}
	typesFile := filepath.Join(dir, "types.json")
	if err := os.WriteFile(typesFile, types, 0o600); err != nil {
		return err
	}
	if k.counter, err = newCounter(config, config.BearerToken); err != nil {
		return err
	}
	kubeconfig, err := k.counter.kubeconfig(dir)
	if err != nil {
		return err
	}
	client, err := dynamic.NewForConfig(config)
	if err != nil {
		return err
	}
	k.claims = client.Resource(schema.GroupVersionResource{Group: "karpenter.sh", Version: "v1", Resource: "nodeclaims"})
	port, err := freePort()
	if err != nil {
		return err
	}
	env := []string{"KUBECONFIG=" + kubeconfig, "INSTANCE_TYPES_FILE_PATH=" + typesFile, "SYSTEM_NAMESPACE=kube-system", "DISABLE_LEADER_ELECTION=true",
		"METRICS_PORT=0", fmt.Sprint("HEALTH_PROBE_PORT=", port), "CPU_REQUESTS=2000",
		"BATCH_IDLE_DURATION=" + k.scene.short(batchIdle).String(), "BATCH_MAX_DURATION=" + k.scene.short(batchMax).String()}
	if k.process, err = begin(k.binary, nil, env, filepath.Join(dir, "karpenter.log")); err != nil {
		return err
	}
	following, stop := context.WithCancel(ctx)
	k.stopped = stop
	k.running.Go(func() { k.follow(following) })
	if err := awaitReady(ctx, fmt.Sprintf("http://127.0.0.1:%d/readyz", port), k.process.failed); err != nil {
		_, stopErr := k.stop()
		return errors.Join(err, stopErr)
	}
	return nil
}

// apply creates Karpenter's kinds, and the pool.
func (k *karpenter) apply(ctx context.Context, l *lab.Lab, dir string) error {
	kinds := []string{filepath.Join(k.source, "kwok", "charts", "crds"), filepath.Join(k.source, "kwok", "apis", "crds")}
	if _, err := l.Kubectl(ctx, "apply", "--server-side", "-f", kinds[0], "-f", kinds[1]); err != nil {
		return err
	}
	if _, err := l.Kubectl(ctx, "wait", "--for=condition=Established", "--timeout=60s", "crd", "--all"); err != nil {
		return err
	}
	pool := filepath.Join(dir, "pool.yaml")
	text := fmt.Sprintf(manifests, k.scene.whole(bootTime), lab.KubeletLabel, lab.KubeletUp, k.scene.whole(consolidateAfter))
	if err := os.WriteFile(pool, []byte(text), 0o600); err != nil {
		return err
	}
	_, err := l.Kubectl(ctx, "apply", "-f", pool)
	return err
}

// follow notes when node claims are launched and gone: from the one to the other an instance is paid for.
func (k *karpenter) follow(ctx context.Context) {
	t := time.NewTicker(200 * time.Millisecond)
	defer t.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-t.C:
		}
		list, err := k.claims.List(ctx, metav1.ListOptions{})
		if ctx.Err() != nil {
			return
		}
		k.mu.Lock()
		k.err = errors.Join(k.err, err)
		if err == nil {
			k.see(list.Items, time.Now())
		}
		k.mu.Unlock()
	}
}

func (k *karpenter) see(claims []unstructured.Unstructured, now time.Time) {
	there := map[string]bool{}
	for _, c := range claims {
		// It has a provider ID from its launch on.
		if id, _, _ := unstructured.NestedString(c.Object, "status", "providerID"); id != "" {
			there[c.GetName()] = true
			k.ledger.launched(c.GetName(), c.GetLabels()["node.kubernetes.io/instance-type"], now)
		}
	}
	for name := range k.ledger {
		if !there[name] {
			k.ledger.ended(name, now)
		}
	}
}

func (k *karpenter) failed() error {
	k.mu.Lock()
	defer k.mu.Unlock()
	return errors.Join(k.err, k.process.failed())
}

func (k *karpenter) stop() (outcome, error) {
	now := time.Now()
	u := k.process.stop()
	k.stopped()
	k.running.Wait()
	calls, sum := k.counter.counts()
	k.counter.close()
	return outcome{ledger: k.ledger, until: now, usage: u, calls: calls, sum: sum}, k.err
}
