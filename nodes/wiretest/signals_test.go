package wiretest

import (
	"context"
	"testing"
	"time"

	"github.com/muster-dev/muster/nodes"
	"github.com/muster-dev/muster/nodes/daemon"
	"github.com/muster-dev/muster/nodes/kube"
	"github.com/muster-dev/muster/nodes/sim"
	"github.com/muster-dev/muster/nodes/sim/kubeapi"
	"github.com/muster-dev/muster/nodes/sim/promapi"
	"github.com/muster-dev/muster/nodes/sim/region"
)

// TestANodeWithinTwoSecondsWithoutPrometheus runs the daemon on a region in real time, over the wire. Nothing but the watch starts a tick:
// the next one of the schedule is an hour away. The machine that runs this may be busy, so the faster of two counts.
func TestANodeWithinTwoSecondsWithoutPrometheus(t *testing.T) {
	p, err := nodes.PolicyFromEnv(func(name string) (string, bool) {
		v, ok := map[string]string{"SIGNALS": "kubernetes", "CLUSTER": "prod", "PODS_PER_NODE": "1", "MAX_WORKERS": "8"}[name]
		return v, ok
	})
	if err != nil {
		t.Fatal(err)
	}
	r, err := region.Start(region.Options{Dir: t.TempDir(), History: 2 * time.Minute, Sim: sim.Options{Policy: p, Workers: []string{"a", "b"}, Boot: 6 * time.Second, Visible: 10 * time.Millisecond}})
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := r.Close(); err != nil {
			t.Error(err)
		}
	}()
	r.Prometheus.SetFault(promapi.Fault{Drop: true})
	r.Simulator.AddPods(4, sim.PodSpec{Name: "shop/old", MilliCPU: 1000})

	c, err := r.Config(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	cluster := c.Cluster.(*kube.Cluster)
	d, err := daemon.New(c, daemon.Options{Interval: time.Hour, Watch: cluster.WatchPending})
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- d.Run(ctx) }()
	defer func() {
		stop()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	}()
	watching := kubeapi.Use{Verb: "watch", Resource: "pods"}
	eventually(t, "the first tick is over and the watch has begun", func() bool { return d.Ready() == nil && r.Kube.Used()[watching] > 0 })

	fastest := time.Hour
	for range 2 {
		before := r.Simulator.Fleet()
		began := time.Now()
		r.Simulator.AddPods(1, sim.PodSpec{Name: "shop/new", MilliCPU: 1500})
		eventually(t, "an instance is launched", func() bool { return r.Simulator.Fleet().Alive > before.Alive })
		took := time.Since(began)
		t.Logf("launched after %s", took.Round(time.Millisecond))
		fastest = min(fastest, took)
		eventually(t, "the pod runs", func() bool { return r.Simulator.Fleet().Pending == 0 })
	}
	if fastest > 2*time.Second {
		t.Errorf("the fastest launch came %s after its pod became unschedulable, want within 2s", fastest)
	}
}

// eventually waits for what is to come by itself.
func eventually(t *testing.T, what string, done func() bool) {
	t.Helper()
	for deadline := time.Now().Add(time.Minute); !done(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("not within a minute: %s", what)
		}
	}
}
