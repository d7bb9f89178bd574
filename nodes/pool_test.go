package nodes_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/muster-dev/muster/nodes"
	"github.com/muster-dev/muster/nodes/fit"
)

// pooled is a question in pools: two full workers of no pool, and pods that have waited for an hour.
type pooled struct {
	p   nodes.Policy
	o   nodes.Observation
	r   nodes.Record
	now time.Time
}

func newPooled(pools ...nodes.Pool) *pooled {
	q := &pooled{p: nodes.DefaultPolicy(), r: nodes.NewRecord(""), now: time.Unix(100_000, 0)}
	q.p.Sizing, q.p.MaxWorkers, q.p.Spot, q.p.InstanceTypes, q.p.Pools = nodes.SizingFit, 20, false, []string{"m"}, pools
	for i, zone := range []string{"a", "b"} {
		w := q.worker(fmt.Sprintf("i-%d", i), zone, "")
		w.Node.Pods = []nodes.Pod{{Name: "old", Count: 2, Requests: nodes.Resources{MilliCPU: 1000}}}
		q.o.Fleet = append(q.o.Fleet, w)
	}
	q.o.FleetKnown, q.o.Zones = true, []string{"a", "b"}
	return q
}

func (q *pooled) worker(id, zone, pool string) nodes.Worker {
	return nodes.Worker{
		Instance: nodes.Instance{ID: id, State: nodes.StateRunning, Type: "m", Zone: zone, Market: nodes.OnDemand, Pool: pool, LaunchedAt: q.now.Add(-2 * time.Hour)},
		Node:     &nodes.Node{NodeRef: nodes.NodeRef{Name: id, UID: id}, Ready: true, Allocatable: nodes.Resources{MilliCPU: 2000, Memory: 8 << 30, Pods: 20}},
	}
}

// full adds live workers of a pool without room.
func (q *pooled) full(pool string, n int) *pooled {
	for i := range n {
		w := q.worker(fmt.Sprintf("i-%s-%d", pool, i), "a", pool)
		w.Node.Pods = []nodes.Pod{{Name: "old", Count: 2, Requests: nodes.Resources{MilliCPU: 1000}}}
		q.o.Fleet = append(q.o.Fleet, w)
	}
	return q
}

// wait lets a number of pods wait, of one core each unless they say otherwise.
func (q *pooled) wait(n int, scheduling string, milliCPU int64) *pooled {
	q.o.Pending = append(q.o.Pending, nodes.Pod{Name: fmt.Sprintf("default/p%d", len(q.o.Pending)), Count: n, Scheduling: scheduling, Requests: nodes.Resources{MilliCPU: milliCPU}})
	total := 0
	for _, p := range q.o.Pending {
		total += p.N()
	}
	q.o.Readings = nodes.Readings{CPU: nodes.Read(0.5), CPUMin: nodes.Read(0.5), CPUMax: nodes.Read(0.5)}
	q.o.Readings.Pending, q.o.Readings.PendingMin, q.o.Readings.PendingMax = nodes.Read(float64(total)), nodes.Read(float64(total)), nodes.Read(float64(total))
	q.r.PendingSinceEpoch = nodes.Num(q.now.Add(-time.Hour).Unix())
	return q
}

func (q *pooled) decide() nodes.Decision {
	f := poolCatalog()
	return nodes.Decider{Policy: q.p, Sizer: f, Fitter: f, Appraiser: f}.Decide(q.o, q.r, q.now)
}

// selecting is what pods say that only run on nodes with a label.
func selecting(name, value string) string {
	pod := &corev1.Pod{}
	pod.Spec.NodeSelector = map[string]string{name: value}
	return fit.Encode(pod)
}

func TestPoolOfAScaleUp(t *testing.T) {
	batch := nodes.Pool{Name: "batch", Labels: map[string]string{"team": "batch"}, Taints: []nodes.Taint{batchTaint}}
	general := nodes.Pool{Name: "general"}
	dear := nodes.Pool{Name: "dear", InstanceTypes: []string{"dear"}}
	arm := nodes.Pool{Name: "arm", InstanceTypes: []string{"arm"}}
	with := func(p nodes.Pool, change func(*nodes.Pool)) nodes.Pool { change(&p); return p }
	weighs := func(w int) func(*nodes.Pool) { return func(p *nodes.Pool) { p.Weight = w } }
	limited := func(n int) func(*nodes.Pool) { return func(p *nodes.Pool) { p.Limits.Nodes = n } }
	onlyBatch := batchPod("x").Scheduling

	for name, c := range map[string]struct {
		q      *pooled
		pool   string
		nodes  int
		reason nodes.Reason
		detail string
	}{
		"pods that fit only one pool's labels and taints": {newPooled(general, batch).wait(2, onlyBatch, 1000), "batch", 1, nodes.ReasonTriggered, ""},
		"pods that tolerate nothing stay off tainted":     {newPooled(with(batch, weighs(9)), general).wait(2, "", 1000), "general", 1, nodes.ReasonTriggered, ""},
		"pods for one architecture":                       {newPooled(general, arm).wait(2, selecting(corev1.LabelArchStable, "arm64"), 1000), "arm", 1, nodes.ReasonTriggered, ""},
		"of equal weight the cheapest":                    {newPooled(dear, general).wait(2, "", 1000), "general", 1, nodes.ReasonTriggered, ""},
		"a higher weight goes before a lower price":       {newPooled(general, with(dear, weighs(1))).wait(2, "", 1000), "dear", 1, nodes.ReasonTriggered, ""},
		"a full pool is passed over":                      {newPooled(general, with(dear, func(p *nodes.Pool) { p.Weight, p.Limits.Nodes = 1, 2 })).full("dear", 2).wait(2, "", 1000), "general", 1, nodes.ReasonTriggered, ""},
		"nodes are capped by the pool's limit":            {newPooled(with(general, limited(3))).full("general", 1).wait(10, "", 1000), "general", 2, nodes.ReasonTriggered, "of 3 nodes"},
		"a full pool alone":                               {newPooled(with(general, limited(2))).full("general", 2).wait(2, "", 1000), "", 0, nodes.ReasonPoolLimit, "pool general: it uses 2 nodes"},
		"capped by the pool's vCPUs":                      {newPooled(with(general, func(p *nodes.Pool) { p.Limits.CPU = 6 })).full("general", 1).wait(10, "", 1000), "general", 2, nodes.ReasonTriggered, "of 6 vCPU"},
		"capped by the pool's memory":                     {newPooled(with(general, func(p *nodes.Pool) { p.Limits.Memory = 20 << 30 })).full("general", 1).wait(10, "", 1000), "general", 1, nodes.ReasonTriggered, "of 20480 MiB"},
		"a type that the limit has no room for":           {newPooled(with(general, func(p *nodes.Pool) { p.InstanceTypes, p.Limits.CPU = []string{"m", "big"}, 3 })).wait(1, "", 3500), "", 0, nodes.ReasonPoolLimit, "leaves room for m only"},
		"a zone that a pool does not have":                {newPooled(with(general, func(p *nodes.Pool) { p.Zones = []string{"b"} }), with(dear, func(p *nodes.Pool) { p.Zones = []string{"a"} })).wait(1, selecting(corev1.LabelTopologyZone, "a"), 1000), "dear", 1, nodes.ReasonTriggered, ""},
		"a pool without a subnet in its zones":            {newPooled(with(general, func(p *nodes.Pool) { p.Zones = []string{"z"} })).wait(1, "", 1000), "", 0, nodes.ReasonNoNodeHelps, "none of its zones has a subnet"},
	} {
		t.Run(name, func(t *testing.T) {
			d := c.q.decide()
			if d.Pool != c.pool || d.Nodes != c.nodes || d.Reason != c.reason || !strings.Contains(d.Detail, c.detail) {
				t.Errorf("got %d nodes in %q because of %s (%s), want %d in %q because of %s (%s)", d.Nodes, d.Pool, d.Reason, d.Detail, c.nodes, c.pool, c.reason, c.detail)
			}
		})
	}

	t.Run("launches in flight count against the limit", func(t *testing.T) {
		q := newPooled(with(general, limited(2))).wait(4, "", 1000)
		q.p.MaxActions = 3
		q.r.ScalingInProgress, q.r.ScaleUpActionID, q.r.ScaleUpPool, q.r.ScaleUpRequested = true, "up", "general", 2
		q.r.ScaleUpStartedEpoch, q.r.ScaleUpInstanceIDs = q.now.Unix(), []string{"i-new"}
		q.o.Launched = []nodes.Instance{{ID: "i-new", State: nodes.StatePending, Type: "m", Zone: "a", Pool: "general", LaunchedAt: q.now}}
		uses := nodes.PoolUses(q.p, q.o, q.r, poolCatalog().Size)
		if u := uses["general"]; u.Nodes != 2 || u.MilliCPU != 4000 {
			t.Errorf("one launched and not listed and one still to be launched count as %+v", *u)
		}
	})
	t.Run("a pool's back-off holds up no other", func(t *testing.T) {
		q := newPooled(with(general, weighs(1)), dear).wait(2, "", 1000)
		q.r.PoolStates = []nodes.PoolState{{Name: "general", ScaleUpFailures: 1, BackoffUntilEpoch: q.now.Add(time.Minute).Unix()}}
		if d := q.decide(); d.Pool != "dear" {
			t.Errorf("got %q (%s)", d.Pool, d.Detail)
		}
	})
	t.Run("a pool out of stock is passed over", func(t *testing.T) {
		q := newPooled(general, with(dear, weighs(1))).wait(2, "", 1000)
		q.r.Exhausted = []nodes.Exhausted{{Type: "dear", UntilEpoch: q.now.Add(time.Minute).Unix()}}
		if d := q.decide(); d.Pool != "general" {
			t.Errorf("got %q (%s)", d.Pool, d.Detail)
		}
	})
	t.Run("what one pool's nodes turned out to lack is no other's fault", func(t *testing.T) {
		q := newPooled(batch, with(batch, func(p *nodes.Pool) { p.Name = "other" })).wait(2, onlyBatch, 1000)
		q.o.PoolsSeen = map[string]*nodes.TemplateSeen{"batch": {InstanceID: "i-9", Lacks: []string{"team=batch"}}}
		if d := q.decide(); d.Pool != "other" {
			t.Errorf("got %q (%s)", d.Pool, d.Detail)
		}
		q.o.PoolsSeen["other"] = q.o.PoolsSeen["batch"]
		if d := q.decide(); d.Reason != nodes.ReasonNoNodeHelps || !strings.Contains(d.Detail, "pool other: ") || !strings.Contains(d.Detail, "without the label team=batch") {
			t.Errorf("got %s: %s", d.Reason, d.Detail)
		}
	})
	t.Run("a node on its way in another pool counts as room", func(t *testing.T) {
		q := newPooled(with(general, func(p *nodes.Pool) { p.Weight, p.Limits.Nodes = 1, 1 }), dear).wait(2, "", 1000)
		q.o.Fleet = append(q.o.Fleet, nodes.Worker{Instance: nodes.Instance{ID: "i-new", State: nodes.StatePending, Type: "m", Zone: "a", Pool: "general", ActionID: "x", LaunchedAt: q.now.Add(-time.Minute)}})
		if d := q.decide(); d.Reason != nodes.ReasonRoomExists {
			t.Errorf("got %s in %q: %s", d.Reason, d.Pool, d.Detail)
		}
	})
	t.Run("pods of two pools bring nodes of both, one scale-up after the other", func(t *testing.T) {
		q := newPooled(general, batch).wait(2, "", 1000).wait(2, onlyBatch, 1000)
		if d := q.decide(); d.Pool != "general" || !d.More {
			t.Errorf("got %q, more %t", d.Pool, d.More)
		}
	})
	t.Run("below the minimum a pool for every pod goes first", func(t *testing.T) {
		q := newPooled(with(batch, weighs(9)), general)
		q.p.MinWorkers = 4
		q.wait(0, "", 1000)
		q.o.Pending = nil
		if d := q.decide(); d.Reason != nodes.ReasonRepair || d.Pool != "general" || d.Nodes != 2 {
			t.Errorf("got %s: %d in %q", d.Reason, d.Nodes, d.Pool)
		}
	})
	t.Run("pods that have to be near others get a node as well", func(t *testing.T) {
		db, web := &corev1.Pod{}, &corev1.Pod{}
		db.Namespace, db.Labels = "default", map[string]string{"app": "db"}
		web.Namespace = "default"
		near := corev1.PodAffinityTerm{TopologyKey: corev1.LabelTopologyZone, LabelSelector: &metav1.LabelSelector{MatchLabels: db.Labels}}
		web.Spec.Affinity = &corev1.Affinity{PodAffinity: &corev1.PodAffinity{RequiredDuringSchedulingIgnoredDuringExecution: []corev1.PodAffinityTerm{near}}}
		enc := fit.NewEncoder(slices.Values([]*corev1.Pod{db, web}), nil)
		q := newPooled(dear, general).wait(1, enc.Encode(web), 1000)
		n := q.o.Fleet[0].Node
		n.Labels = map[string]string{corev1.LabelTopologyZone: "a"}
		n.Pods[0].Scheduling = enc.Encode(db)
		if d := q.decide(); d.Pool != "general" || d.Nodes != 1 {
			t.Errorf("got %d in %q: %s %s", d.Nodes, d.Pool, d.Reason, d.Detail)
		}
	})
	t.Run("a worker is replaced at the price of the market that the share of Spot leaves", func(t *testing.T) {
		half := 50
		for spot, want := range []nodes.Market{nodes.Spot, nodes.OnDemand} {
			q := newPooled(with(general, func(p *nodes.Pool) { p.Name, p.InstanceTypes, p.SpotShare = nodes.DefaultPool, []string{"n"}, &half }))
			q.p.Consolidation, q.p.ConsolidatePerHour = nodes.ConsolidationReplace, 5
			q.o.Fleet[0].Instance.Type, q.o.Fleet[0].Node.Pods[0].Count = "dear", 1
			if spot == 1 {
				q.o.Fleet[1].Instance.Market = nodes.Spot
			}
			known := nodes.Read(0)
			q.o.Readings = nodes.Readings{CPU: nodes.Read(0.5), CPUMin: nodes.Read(0.5), CPUMax: nodes.Read(0.5), Pending: known, PendingMin: known, PendingMax: known}
			d := q.decide()
			if len(d.Replaces) != 1 || d.Replaces[0] != "i-0" || d.Wanted[0].Market != want {
				t.Errorf("with %d Spot workers: %s %s replaces %v by %+v, want i-0 by one of %s", spot, d.Action, d.Detail, d.Replaces, d.Wanted, want)
			}
		}
	})
	t.Run("every pool has a gate", func(t *testing.T) {
		d := newPooled(general, batch).wait(1, "", 1000).decide()
		for _, name := range []string{"pool.general", "pool.batch"} {
			if !slices.ContainsFunc(d.Gates, func(g nodes.Gate) bool { return g.Name == name && g.Passed && g.Value == "0 nodes, 0 vCPU, 0 MiB" }) {
				t.Errorf("there is no gate %s", name)
			}
		}
	})
}

// TestPoolLimitIsHeldAtTheLaunch: between a decision and its launches other nodes of the pool may have come, so each launch looks at the
// limits again. Here the decision asks for five nodes where two are allowed.
func TestPoolLimitIsHeldAtTheLaunch(t *testing.T) {
	all := poolScenarios()
	sc := all[slices.IndexFunc(all, func(sc scenario) bool { return sc.name == "a pool at its limit" })]
	greedy := func(*stage) brokenStore {
		return brokenStore{hook: func(t nodes.Transition) nodes.Transition {
			b, ok := t.(nodes.BeginScaleUp)
			if !ok {
				return nil
			}
			b.Requested, b.Wanted = 5, nil
			return b
		}}
	}
	s := perform(&sc, schedule{}, onStore(greedy), nil).stage
	if n := len(s.livingIn("batch")); n != 2 {
		t.Errorf("%d nodes were launched in a pool of two at most", n)
	}
	for _, v := range check(s) {
		t.Errorf("%s: %s", v.invariant, v.what)
	}
}
