package deploy

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	natsserver "github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"

	"github.com/muster-dev/muster/broker/access"
	"github.com/muster-dev/muster/defender"
	"github.com/muster-dev/muster/defender/collect"
	"github.com/muster-dev/muster/defender/connect"
	"github.com/muster-dev/muster/defender/replay"
	"github.com/muster-dev/muster/internal/lab"
	"github.com/muster-dev/muster/internal/lab/labtest"
	"github.com/muster-dev/muster/partition"
	"github.com/muster-dev/muster/partition/event"
	"github.com/muster-dev/muster/partition/report"
	"github.com/muster-dev/muster/partition/role"
	"github.com/muster-dev/muster/partition/servertest/natstest"
	"github.com/muster-dev/muster/tchart"
)

const (
	defenders = 6
	slots     = 64
)

// TestHelmReleases packages, installs, upgrades and rolls back the charts with Helm on a real control plane. Real defenders run for
// the pods, connected as the chart says to a server that has the chart's configuration and accounts. While messages are
// published, an upgrade and a rollback replace every pod: no slot moves, no message is lost, and at no time fewer pods are
// ready than are wanted.
func TestHelmReleases(t *testing.T) {
	l := labtest.Start(t, lab.Options{})
	h := newHelm(t, l.Kubeconfig)
	charts := h.packaged(t)
	program := filepath.Join(t.TempDir(), "muster-defender")
	build := exec.Command("go", "build", "-trimpath", "-ldflags", "-s -w", "-o", program, "../cmd/muster-defender")
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("building muster-defender: %v\n%s", err, out)
	}
	k := startKubelet(t, l, "defender", program)
	c := &cluster{lab: l, helm: h, charts: charts, kubelet: k}
	c.secrets(t)
	c.nats(t)

	store := filepath.Join(t.TempDir(), "fdc.db")
	h.run(t, "install", "defender", charts["muster-defender"], "--namespace", "fdc-system", "--wait", "--timeout", "3m",
		"--set", "image.repository=registry.example.com/muster-defender", "--set", "nats.url="+c.url,
		"--set", fmt.Sprintf("group.replicas=1,group.slots=%d", slots), "--set", "store="+store, "--set", "autoscaling.minReplicas=1")
	// The number of pods is the autoscaler's or a person's, and no release sets it back.
	if _, err := l.Kubectl(t.Context(), "--namespace", "fdc-system", "scale", "deployment", "defender", fmt.Sprint("--replicas=", defenders)); err != nil {
		t.Fatal(err)
	}
	group := partition.Open(c.connect(t, role.Operator), defender.Group)
	labtest.Eventually(t, "setting the expected number", func() error { return group.Expect(t.Context(), defenders) })
	before := c.stable(t, group)
	if _, err := l.Kubectl(t.Context(), "--namespace", "fdc-system", "rollout", "status", "deployment", "defender", "--timeout", "2m"); err != nil {
		t.Fatal(err)
	}

	published := c.publish(t, store)
	c.revisions = 1
	t.Run("upgrade", func(t *testing.T) {
		before = c.replace(t, group, before, func() []string {
			return []string{"upgrade", "defender", charts["muster-defender"], "--reuse-values",
				"--set", fmt.Sprintf("image.tag=v0.1.%d", c.revisions), "--set", "settings.CASSANDRA_KEYSPACE=other"}
		})
	})
	t.Run("rollback", func(t *testing.T) {
		c.replace(t, group, before, func() []string { return []string{"rollback", "defender"} }) // to the revision before
	})
	published.check(t)
	c.history(t)
	c.nodes(t)
	for _, release := range []string{"defender", "nats"} {
		h.run(t, "uninstall", release, "--namespace", "fdc-system", "--wait", "--timeout", "3m")
	}
}

// cluster is a laboratory with the charts of the worker plane.
type cluster struct {
	lab       *lab.Lab
	helm      helm
	charts    map[string]string // the packages, by chart
	kubelet   *kubelet
	url       string            // of NATS
	passwords map[string]string // by user
	revisions int               // of the defenders' release
	began     time.Time         // when the last of them began
}

// secrets creates the namespace and a password for each user.
func (c *cluster) secrets(t *testing.T) {
	t.Helper()
	if _, err := c.lab.Kubectl(t.Context(), "create", "namespace", "fdc-system"); err != nil {
		t.Fatal(err)
	}
	c.passwords = map[string]string{}
	for i, r := range role.All {
		user := defender.Partition(0).User(r)
		c.passwords[user] = fmt.Sprintf("p%dsecret", i)
		if _, err := c.lab.Kubectl(t.Context(), "--namespace", "fdc-system", "create", "secret", "generic", "nats-"+user, "--from-literal=password="+c.passwords[user]); err != nil {
			t.Fatal(err)
		}
	}
}

// nats installs the chart of NATS and starts a server as its pod would: with the files of the installed ConfigMap and the
// environment of the installed StatefulSet.
func (c *cluster) nats(t *testing.T) {
	t.Helper()
	c.helm.run(t, "install", "nats", c.charts["muster-nats"], "--namespace", "fdc-system", "--set", "servers=1")
	config, err := c.lab.Kubectl(t.Context(), "--namespace", "fdc-system", "get", "configmap", "nats", "--output", "yaml")
	if err != nil {
		t.Fatal(err)
	}
	text, err := c.lab.Kubectl(t.Context(), "--namespace", "fdc-system", "get", "statefulset", "nats", "--output", "yaml")
	if err != nil {
		t.Fatal(err)
	}
	var servers appsv1.StatefulSet
	if err := yaml.Unmarshal([]byte(text), &servers); err != nil {
		t.Fatal(err)
	}
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "nats-0", Namespace: "fdc-system"}, Spec: servers.Spec.Template.Spec}
	env, err := environment(t.Context(), c.kubelet.client, pod)
	if err != nil {
		t.Fatal(err)
	}
	for name, value := range env {
		t.Setenv(name, value)
	}
	o, err := natsserver.ProcessConfigFile(natsConfig(t, config))
	if err != nil {
		t.Fatal(err)
	}
	if !o.SyncAlways {
		t.Error("the server acknowledges what isn't on the disk yet")
	}
	c.url = natstest.Start(t, func(own *natsserver.Options) {
		o.StoreDir, o.Host, o.Port, o.NoSigs, o.NoLog, o.HTTPPort = own.StoreDir, own.Host, own.Port, own.NoSigs, own.NoLog, 0
		*own = *o
	}).URL()
}

// connect connects as the user of a role.
func (c *cluster) connect(t *testing.T, r role.Role) *nats.Conn {
	t.Helper()
	user := defender.Partition(0).User(r)
	nc, err := access.ConnectAs(c.url, "test", access.User{Name: user, Password: c.passwords[user]})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(nc.Close)
	return nc
}

// stable waits until all defenders have their slots, and returns the map.
func (c *cluster) stable(t *testing.T, group *partition.Group) *report.Map {
	t.Helper()
	var m *report.Map
	labtest.Eventually(t, "waiting until the defenders are STABLE", func() (err error) {
		if m, err = group.Map(t.Context()); err != nil {
			return err
		}
		if m == nil {
			return errors.New("there is no map yet")
		}
		leases, err := group.Leases(t.Context())
		if err != nil {
			return err
		}
		live := 0
		for _, lease := range leases {
			if !lease.Leaving && lease.State == "STABLE" && time.Since(lease.Renewed) < 5*time.Second {
				live++
			}
		}
		if len(m.Workers) != defenders || !m.Settled() || live != defenders {
			return fmt.Errorf("%d workers, %d of them STABLE, settled: %t", len(m.Workers), live, m.Settled())
		}
		return nil
	})
	return m
}

// attempts is how often a release is tried whose defenders this machine kept waiting: one that waits for seconds can't
// renew its lease, and then others must have its slots.
const attempts = 3

// replace runs a release that replaces every pod, checks that nothing moved, and returns the map. What a machine does to it
// that keeps processes waiting says nothing of the chart, so then another release is made.
func (c *cluster) replace(t *testing.T, group *partition.Group, before *report.Map, release func() []string) *report.Map {
	for attempt := 1; ; attempt++ {
		after, problems := c.replaced(t, group, before, release())
		uncertain := 0
		err := group.Events(t.Context(), event.Query{Since: c.began, Kinds: []event.Kind{event.LeaseUncertain, event.WorkerSuspected}}, func(event.Event) error {
			uncertain++
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
		t.Logf("attempt %d: %d problems, and %d times a lease was uncertain", attempt, len(problems), uncertain)
		if len(problems) == 0 {
			return after
		}
		c.logEvents(t, group)
		if uncertain == 0 || attempt == attempts {
			t.Fatal(strings.Join(problems, "\n"))
		}
		before = after
	}
}

// logEvents logs what happened in the group since the last release began.
func (c *cluster) logEvents(t *testing.T, group *partition.Group) {
	t.Helper()
	err := group.Events(t.Context(), event.Query{Since: c.began}, func(e event.Event) error {
		t.Logf("%s %s %s %s", e.Time.Format("15:04:05.000"), e.Worker, e.Kind, e.Text())
		return nil
	})
	if err != nil {
		t.Error(err)
	}
}

// replaced runs a release and returns the map after it, and what is wrong.
func (c *cluster) replaced(t *testing.T, group *partition.Group, before *report.Map, release []string) (after *report.Map, problems []string) {
	t.Helper()
	wrong := func(format string, args ...any) { problems = append(problems, fmt.Sprintf(format, args...)) }
	c.began = time.Now()
	c.revisions++
	was := c.podNames(t)
	c.kubelet.watch()
	c.helm.run(t, append(release, "--namespace", "fdc-system", "--wait", "--timeout", "5m")...)
	labtest.Eventually(t, "waiting for the old pods' end", func() error {
		if now := c.podNames(t); len(now) != defenders {
			return fmt.Errorf("there are the pods %v", now)
		}
		return nil
	})
	for name := range c.podNames(t) {
		if was[name] {
			t.Errorf("pod %s was not replaced", name)
		}
	}
	if fewest := c.kubelet.fewestReady(); fewest < defenders {
		wrong("only %d pods were ready at some time, want %d or more", fewest, defenders)
	}
	after = c.stable(t, group)
	renewed := 0
	for i, w := range after.Workers {
		if w.ID == before.Workers[i].ID && w.Claim > before.Workers[i].Claim {
			renewed++
		}
	}
	if renewed != defenders {
		wrong("%d defenders were replaced under their names, want %d", renewed, defenders)
	}
	for slot := range before.Owner {
		if was, is := before.OwnerOf(slot), after.OwnerOf(slot); was != is {
			wrong("slot %d moved from %s to %s", slot, was, is)
		}
	}
	kinds := []event.Kind{event.Planned, event.HandoffForced}
	err := group.Events(t.Context(), event.Query{Since: c.began, Kinds: kinds}, func(e event.Event) error {
		wrong("%s %s of %s by %s: %s %s", e.Time.Format(time.TimeOnly), e.Kind, e.Peer, e.Worker, e.Reason, e.Duration)
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return after, problems
}

// podNames returns the defenders' pods.
func (c *cluster) podNames(t *testing.T) map[string]bool {
	t.Helper()
	pods, err := c.kubelet.client.Pods("fdc-system").List(t.Context(), metav1.ListOptions{LabelSelector: "app=defender"})
	if err != nil {
		t.Fatal(err)
	}
	out := map[string]bool{}
	for _, p := range pods.Items {
		out[p.Name] = true
	}
	return out
}

// history checks what Helm knows of the releases.
func (c *cluster) history(t *testing.T) {
	t.Helper()
	var revisions []struct {
		Revision    int
		Status      string
		Description string
	}
	out := c.helm.run(t, "history", "defender", "--namespace", "fdc-system", "--output", "json")
	if err := json.Unmarshal([]byte(out), &revisions); err != nil {
		t.Fatal(err)
	}
	last := revisions[len(revisions)-1]
	if len(revisions) != c.revisions || last.Status != "deployed" || !strings.Contains(last.Description, "ollback to") {
		t.Errorf("Helm's history is %s", out)
	}
}

// nodes installs the node plane's chart and asks the API server what its account may do.
func (c *cluster) nodes(t *testing.T) {
	t.Helper()
	c.helm.run(t, "install", "muster-nodes", c.charts["muster-nodes"], "--namespace", "muster", "--create-namespace", "--values", "charts/muster-nodes/ci/kubernetes-values.yaml")
	for question, want := range map[string]string{"delete nodes": "yes", "create pods --subresource=eviction": "yes", "create pods": "no", "list secrets": "no"} {
		args := append([]string{"auth", "can-i", "--as", "system:serviceaccount:muster:muster-nodes", "--all-namespaces"}, strings.Fields(question)...)
		out, _ := c.lab.Kubectl(t.Context(), args...) // a "no" is an error, too
		if got := strings.TrimSpace(out); got != want {
			t.Errorf("may it %s? %s, want %s", question, got, want)
		}
	}
	c.helm.run(t, "uninstall", "muster-nodes", "--namespace", "muster")
}

// publication is what was published, until it is checked.
type publication struct {
	store defender.Store
	stop  func()

	mu   sync.Mutex
	refs []defender.ContextRef
	err  error
}

// publish begins to publish contexts of some chambers, one after the other, as a data collector does.
func (c *cluster) publish(t *testing.T, path string) *publication {
	t.Helper()
	store, err := connect.Open(t.Context(), path, os.LookupEnv)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = store.Close() })
	chambers := replay.Chambers(48)
	if err := replay.Register(t.Context(), store, chambers); err != nil {
		t.Fatal(err)
	}
	source, err := replay.Open("", 1)
	if err != nil {
		t.Fatal(err)
	}
	collector, err := collect.New(store, c.connect(t, role.Collector))
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	p := &publication{store: store}
	var publishing sync.WaitGroup
	p.stop = func() { cancel(); publishing.Wait() }
	t.Cleanup(p.stop)
	publishing.Go(func() {
		var encoder tchart.Encoder
		for n := 0; ctx.Err() == nil; n++ {
			chamber := n % len(chambers)
			ref, trace := replay.Context(chambers[chamber], fmt.Sprintf("c%06d", n), source.Sample(chamber, n/len(chambers)).Trace, time.Now())
			blob, err := encoder.Append(nil, &trace)
			if err == nil {
				_, err = collector.Publish(context.WithoutCancel(ctx), ref, blob)
			}
			p.mu.Lock()
			p.refs, p.err = append(p.refs, ref), errors.Join(p.err, err)
			p.mu.Unlock()
			select {
			case <-ctx.Done():
			case <-time.After(20 * time.Millisecond):
			}
		}
	})
	return p
}

// check ends the publication and checks that every context has a result.
func (p *publication) check(t *testing.T) {
	t.Helper()
	p.stop()
	if p.err != nil {
		t.Fatal(p.err)
	}
	if len(p.refs) < 100 {
		t.Errorf("only %d contexts were published meanwhile", len(p.refs))
	}
	for _, ref := range p.refs {
		labtest.Eventually(t, "waiting for the result of "+ref.TChart().String(), func() error {
			_, err := p.store.UChart(t.Context(), ref.Chamber, ref.ID)
			return err
		})
	}
	t.Logf("%d contexts were published, and all of them have a result", len(p.refs))
}
