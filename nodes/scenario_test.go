package nodes_test

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/muster-dev/muster/nodes"
	"github.com/muster-dev/muster/nodes/sim"
)

// A scenario is a simulator, what happens in it by itself, and how it has to be at the end, whatever was crashed on the way.
type scenario struct {
	name    string
	policy  func(*nodes.Policy)
	workers string // a zone per initial worker, oldest first
	setup   func(*stage)
	events  []delivery
	paused  time.Duration       // when a person pauses scaling; 0: never
	resumed time.Duration       // when that is ended; 0: never
	later   time.Duration       // when arrive happens; 0: never
	arrive  func(*stage)        // between two ticks
	length  time.Duration       // until it has to be at rest without a crash
	stride  int                 // only every n-th call is tried at the default depth; 0: every
	want    func(*stage) string // always
	undone  func(*stage) string // only without a fault: a crash may use up a drain's time, and then the worker is kept
	// tolerated is what the general rest rule does not hold for.
	region    func(*sim.Options)
	appraiser nodes.Appraiser
	priced    bool // the cloud is asked for prices
	statuses  bool // the cloud is asked for status checks
	deaf      bool // workers can't be asked to hand over in time
	// responders: the cluster has EvictionRequests.
	responders bool
	nodeless   int  // instances without a node that nobody may touch
	outage     bool // of an API so long that a cordoned node stays cordoned past its drain's deadline
}

// delivery is an event of the cloud at a time. Instance picks the instance.
type delivery struct {
	at       time.Duration
	kind     nodes.InterruptionKind
	instance string
	twice    bool // delivered again a little later, as queues do
}

// stage is one run of a scenario.
type stage struct {
	*sim.Simulator
	policy nodes.Policy
	sc     *scenario
	plan   schedule
	stood  func(actor string, since, until time.Time) time.Duration // how long its tick stood still between two times; nil: it never did
}

// quick is a policy with short times, so that a run takes few ticks.
func quick() nodes.Policy {
	p := nodes.DefaultPolicy()
	p.CPUUpFor, p.PendingUpFor, p.IdleDownFor = 60*time.Second, 60*time.Second, 60*time.Second
	p.CooldownUp, p.CooldownDown = 60*time.Second, 60*time.Second
	p.JoinTimeout, p.DrainTimeout, p.ScaleDownStuck = 240*time.Second, 120*time.Second, 300*time.Second
	p.PodsPerNode, p.MaxWorkers, p.MinWorkers, p.MaxActions = 2, 6, 2, 1
	p.InstanceTypes = []string{"m", "n"}
	return p
}

func newStage(sc *scenario) *stage {
	p := quick()
	if sc.policy != nil {
		sc.policy(&p)
	}
	var zones []string
	for _, z := range sc.workers {
		zones = append(zones, string(z))
	}
	o := sim.Options{Policy: p, Workers: zones, Boot: 70 * time.Second, Visible: 3 * time.Second}
	if sc.region != nil {
		sc.region(&o)
	}
	w := sim.New(o)
	s := &stage{Simulator: w, policy: p, sc: sc}
	w.SetLoad(0.5)
	sc.setup(s)
	return s
}

// ids of the first workers: i-001 is the server.
const (
	w1 = "i-002"
	w2 = "i-003"
	w3 = "i-004"
	w4 = "i-005"
)

func one(name string) sim.PodSpec { return sim.PodSpec{Name: name, MilliCPU: 1000} }

// full fills two workers and asks for n pods more.
func full(n int) func(*stage) {
	return func(s *stage) { s.AddPods(4, one("old")); s.AddPods(n, one("new")) }
}

func idle(s *stage) { s.SetLoad(0.1) }

func (s *stage) count(k sim.Kind, match func(sim.Entry) bool) int {
	n := 0
	for _, e := range s.Ledger() {
		if e.Kind == k && (match == nil || match(e)) {
			n++
		}
	}
	return n
}

// fleet wants exactly this many available workers and no pending pods.
func fleet(available int) func(*stage) string {
	return func(s *stage) string {
		if f := s.Fleet(); f.Available != available || f.Pending != 0 {
			return fmt.Sprintf("want %d available workers and nothing pending, got %+v", available, f)
		}
		return ""
	}
}

// atLeast wants enough available workers for every pod.
func atLeast(available int) func(*stage) string {
	return func(s *stage) string {
		if f := s.Fleet(); f.Available < available || f.Pending != 0 {
			return fmt.Sprintf("want at least %d available workers and nothing pending, got %+v", available, f)
		}
		return ""
	}
}

func both(fs ...func(*stage) string) func(*stage) string {
	return func(s *stage) string {
		for _, f := range fs {
			if why := f(s); why != "" {
				return why
			}
		}
		return ""
	}
}

// alive wants instances to live, or not.
func alive(want bool, ids ...string) func(*stage) string {
	return func(s *stage) string {
		for _, id := range ids {
			if in := s.Instance(id); in.Alive() != want {
				return fmt.Sprintf("%s is %s, want alive %t", id, in.State, want)
			}
		}
		return ""
	}
}

// noneTerminated wants nothing terminated by us between two times.
func noneTerminated(from, to time.Duration) func(*stage) string {
	return func(s *stage) string {
		for _, e := range s.Ledger() {
			d := e.At.Sub(start)
			if e.Kind == sim.Terminated && d >= from && d < to {
				return fmt.Sprintf("%s was terminated after %s", e.Instance, d)
			}
		}
		return ""
	}
}

var start = time.Unix(1730001600, 0).UTC()

func minutes(n int) time.Duration { return time.Duration(n) * time.Minute }

func scenarios() []scenario {
	launched := func(n int) func(*stage) string {
		return func(s *stage) string {
			if got := s.count(sim.Launched, nil); got != n {
				return fmt.Sprintf("%d instances were launched, want %d", got, n)
			}
			return ""
		}
	}
	notReplaced := func(s *stage) string {
		if n := s.count(sim.Launched, func(e sim.Entry) bool { return e.Request.ActionID == "int-"+w1 }); n > 0 {
			return "a scale-down's target was replaced"
		}
		return ""
	}
	waitShort := func(p *nodes.Policy) { p.PendingUpFor, p.JoinTimeout = 15*time.Second, minutes(5) }
	repaired := func(p *nodes.Policy) { p.NotReadyFor, p.MaxWorkers, p.PodsPerNode = minutes(2), 3, 4 }
	filled := func(p *nodes.Policy) { p.DiskPressureFor, p.MaxWorkers, p.PodsPerNode = minutes(2), 4, 4 }
	fills := func(id string, d time.Duration, pods int) func(*stage) {
		return func(s *stage) {
			s.AddPodOn(id, sim.PodSpec{Name: "stays", MilliCPU: 500, Grace: 10 * time.Second})
			s.AddPods(pods, one("old"))
			s.FillDisk(id, 30*time.Second, d)
		}
	}
	return []scenario{
		{name: "a worker whose disk stays full", workers: "aab", length: minutes(24), policy: filled, setup: fills(w1, time.Hour, 2), want: atLeast(2), undone: both(alive(false, w1), alive(true, w2, w3), lostNone)},
		{name: "a worker whose disk has room again in time", workers: "aab", length: minutes(9), policy: filled, setup: fills(w1, 100*time.Second, 2), want: both(fleet(3), alive(true, w1))},
		{name: "a worker whose disk stays full at MIN_WORKERS", workers: "ab", length: minutes(24), policy: filled, setup: fills(w1, time.Hour, 1), want: both(atLeast(2), neverFewer(2)), undone: both(alive(false, w1), launched(1), lostNone)},
		{name: "a worker whose disk stays full at MAX_WORKERS", workers: "ab", length: minutes(24), policy: func(p *nodes.Policy) { filled(p); p.MaxWorkers = 2 }, setup: fills(w1, time.Hour, 1), want: both(atLeast(2), lostNone), undone: both(alive(false, w1), launched(1))},
		{name: "many workers whose disks are full", workers: "abab", length: minutes(9), policy: filled, want: both(fleet(4), alive(true, w1, w2)), setup: func(s *stage) {
			fills(w1, time.Hour, 4)(s)
			s.FillDisk(w2, 30*time.Second, time.Hour)
		}},
		{name: "a worker whose disk is full and whose pods a budget holds", workers: "aab", length: minutes(24), stride: 3, policy: filled, want: both(fleet(3), alive(true, w1)), setup: func(s *stage) {
			fills(w1, time.Hour, 2)(s)
			s.AddPodOn(w1, sim.PodSpec{Name: "stuck", MilliCPU: 100, Stuck: true})
		}},
		{name: "scale-up", workers: "ab", setup: full(4), length: minutes(7), want: both(fleet(4), launched(2))},
		{name: "scale-up, Spot short", workers: "ab", length: minutes(7), want: both(fleet(3), launched(1)), setup: func(s *stage) {
			full(2)(s)
			s.AddShortage(sim.Shortage{Market: nodes.Spot, Type: "m"})
			s.AddShortage(sim.Shortage{Market: nodes.Spot, Type: "n", Kind: nodes.FailQuota})
		}},
		{name: "scale-up, Spot not permitted", workers: "ab", length: minutes(7), stride: 2, want: both(fleet(4), launched(2)), setup: func(s *stage) {
			full(4)(s)
			s.AddShortage(sim.Shortage{Market: nodes.Spot, Kind: nodes.FailSpot})
		}},
		{name: "scale-up, a zone short", workers: "ab", length: minutes(7), want: both(fleet(4), launched(2)), setup: func(s *stage) {
			full(4)(s)
			s.AddShortage(sim.Shortage{Zone: "a", Kind: nodes.FailAddresses})
		}},
		{name: "partial launch", workers: "ab", length: minutes(12), want: atLeast(4), setup: func(s *stage) {
			full(4)(s)
			s.AddShortage(sim.Shortage{FromLaunch: 1, Until: start.Add(minutes(4))})
		}},
		{name: "nothing to launch", workers: "ab", length: minutes(16), want: atLeast(3), setup: func(s *stage) {
			full(2)(s)
			s.AddShortage(sim.Shortage{Until: start.Add(minutes(4))})
		}},
		{name: "a permanent error", workers: "ab", length: minutes(13), want: atLeast(3), setup: func(s *stage) {
			full(2)(s)
			s.AddShortage(sim.Shortage{Kind: nodes.FailPermanent, Until: start.Add(minutes(4))})
		}},
		{name: "throttled launches", workers: "ab", length: minutes(9), want: both(fleet(4), launched(2)), setup: func(s *stage) {
			full(4)(s)
			s.AddShortage(sim.Shortage{Kind: nodes.FailThrottled, Until: start.Add(minutes(4))})
		}},
		{name: "partial join", workers: "ab", length: minutes(14), want: atLeast(4), setup: func(s *stage) {
			full(4)(s)
			s.SetBoots(sim.Boot{}, sim.Boot{NeverJoins: true})
		}},
		{name: "join timeout", workers: "ab", length: minutes(14), want: atLeast(3), setup: func(s *stage) {
			full(2)(s)
			s.SetBoots(sim.Boot{NeverJoins: true})
		}},
		{name: "a node that never becomes Ready", workers: "ab", length: minutes(14), want: atLeast(3), setup: func(s *stage) {
			full(2)(s)
			s.SetBoots(sim.Boot{NeverReady: true})
		}},
		{name: "a node given up that becomes Ready again", workers: "ab", length: minutes(16), want: atLeast(4), setup: func(s *stage) {
			s.AddPods(4, one("old"))
			s.AddPods(4, sim.PodSpec{Name: "new", MilliCPU: 1000, Grace: 80 * time.Second})
			s.SetBoots(sim.Boot{}, sim.Boot{NeverJoins: true})
			s.Flap("i-004", 340*time.Second, 60*time.Second)
		}},
		{name: "an instance that dies while booting", workers: "ab", length: minutes(14), want: atLeast(3), setup: func(s *stage) {
			full(2)(s)
			s.SetBoots(sim.Boot{DiesAfter: 40 * time.Second})
		}},
		{name: "a late joiner", workers: "ab", length: minutes(9), want: fleet(3), setup: func(s *stage) {
			full(2)(s)
			s.SetBoots(sim.Boot{After: 200 * time.Second})
		}},
		{name: "a Ready flap while verifying", workers: "ab", length: minutes(12), want: atLeast(4), setup: func(s *stage) {
			full(4)(s)
			s.Flap(w1, 150*time.Second, 90*time.Second)
		}},
		{name: "an hour without the Kubernetes API", workers: "ab", length: minutes(72), stride: 12, setup: func(s *stage) {
			full(4)(s)
			s.SetBoots(sim.Boot{NeverJoins: true})
			s.Outage(sim.ClusterPart, 150*time.Second, time.Hour)
			s.Outage(sim.SignalsPart, 150*time.Second, time.Hour)
		}, want: both(noneTerminated(150*time.Second, 62*time.Minute), atLeast(4))},
		{name: "verified by the metrics alone", workers: "ab", length: minutes(12), want: both(fleet(4), launched(2)), setup: func(s *stage) {
			full(4)(s)
			s.Outage(sim.ClusterPart, 150*time.Second, minutes(6))
		}},
		{name: "a cloud outage while launching", workers: "ab", length: minutes(11), want: both(fleet(4)), setup: func(s *stage) {
			full(4)(s)
			s.Outage(sim.CloudPart, 120*time.Second+200*time.Millisecond, minutes(2))
		}},
		{name: "a store outage", workers: "ab", length: minutes(11), want: fleet(4), setup: func(s *stage) {
			full(4)(s)
			s.Outage(sim.StorePart, 130*time.Second, minutes(2))
			s.Outage(sim.EventLogPart, 60*time.Second, minutes(3))
		}},
		{name: "scale-down", workers: "abab", length: minutes(9), want: fleet(2), undone: alive(false, w1, w2), policy: func(p *nodes.Policy) { p.MaxBatchDown = 2 }, setup: func(s *stage) {
			idle(s)
			s.AddPodOn(w1, one("p"))
			s.AddPodOn(w2, one("q"))
		}},
		{name: "a drain across ticks", workers: "aab", length: minutes(8), want: fleet(2), undone: alive(false, w1), setup: func(s *stage) {
			idle(s)
			s.AddPodOn(w1, sim.PodSpec{Name: "slow", MilliCPU: 1000, Grace: 80 * time.Second})
		}},
		{name: "a mark that no claim stands behind", workers: "aab", length: minutes(3), stride: 2, want: fleet(3), setup: func(s *stage) { s.MarkByHand(w1) }},
		{name: "a drain that fails", workers: "aab", length: minutes(12), want: both(fleet(2), alive(true, w1)), setup: func(s *stage) {
			idle(s)
			s.AddPodOn(w1, sim.PodSpec{Name: "stuck", MilliCPU: 100, Stuck: true})
		}},
		{name: "the second drain of two fails", workers: "abab", length: minutes(15), want: atLeast(2), undone: alive(false, w1), policy: func(p *nodes.Policy) { p.MaxBatchDown = 2 }, setup: func(s *stage) {
			idle(s)
			s.AddPodOn(w2, sim.PodSpec{Name: "stuck", MilliCPU: 100, Stuck: true})
		}},
		{name: "a scale-down that is stuck", outage: true, workers: "aab", length: minutes(17), want: atLeast(2), setup: func(s *stage) {
			idle(s)
			s.AddPodOn(w1, sim.PodSpec{Name: "slow", MilliCPU: 1000, Grace: 80 * time.Second})
			s.Outage(sim.ClusterPart, 150*time.Second, minutes(9))
		}},
		{name: "terminations refused", outage: true, workers: "aabb", length: minutes(19), want: atLeast(2), undone: alive(false, w1), setup: func(s *stage) {
			idle(s)
			s.Outage(sim.TerminatePart, 0, minutes(11))
		}},
		{name: "a cloud outage during a scale-down", outage: true, workers: "aabb", length: minutes(17), want: atLeast(2), setup: func(s *stage) {
			idle(s)
			s.AddPodOn(w1, sim.PodSpec{Name: "slow", MilliCPU: 1000, Grace: 80 * time.Second})
			s.Outage(sim.CloudPart, 150*time.Second, minutes(9))
		}},
		{name: "a target that is reclaimed while it drains", workers: "aab", length: minutes(9), want: fleet(2), setup: func(s *stage) {
			idle(s)
			s.AddPodOn(w1, sim.PodSpec{Name: "slow", MilliCPU: 1000, Grace: 80 * time.Second})
			s.After(150*time.Second, func() {})
		}, events: []delivery{{at: 150 * time.Second, kind: reclaim, instance: w1}}},
		{name: "another worker is lost during a drain", workers: "aab", length: minutes(14), want: atLeast(2), setup: func(s *stage) {
			idle(s)
			s.AddPodOn(w1, sim.PodSpec{Name: "slow", MilliCPU: 1000, Grace: 80 * time.Second})
		}, events: []delivery{{at: 150 * time.Second, kind: reclaim, instance: w3}}},
		{name: "warning", workers: "ab", length: minutes(8), want: both(atLeast(2), alive(false, w1)), undone: fleet(2), setup: func(s *stage) {
			s.AddPodOn(w1, one("p"))
		}, events: []delivery{{at: 90 * time.Second, kind: nodes.Warning, instance: w1, twice: true}}},
		{name: "warning, Spot short", workers: "ab", length: minutes(8), stride: 2, want: both(atLeast(2), alive(false, w1)), undone: fleet(2), setup: func(s *stage) {
			s.AddPodOn(w1, one("p"))
			s.AddShortage(sim.Shortage{Market: nodes.Spot, Until: start.Add(95 * time.Second)})
		}, events: []delivery{{at: 90 * time.Second, kind: nodes.Warning, instance: w1}}},
		{name: "scale-down of a node with workers", workers: "aab", length: minutes(9), want: fleet(2), undone: alive(false, w1), setup: func(s *stage) {
			idle(s)
			s.AddPodOn(w1, sim.PodSpec{Name: "worker", MilliCPU: 1000, Work: 4 * time.Second})
		}},
		{name: "warning, pods wait for a replacement that boots slowly", workers: "ab", length: minutes(10), stride: 4, want: atLeast(2), undone: both(fleet(2), launched(1)), policy: waitShort, setup: func(s *stage) {
			full(0)(s)
			s.SetBoots(sim.Boot{After: 200 * time.Second})
		}, events: []delivery{{at: 70 * time.Second, kind: nodes.Warning, instance: w1}}},
		{name: "warning, more pods wait than its replacement takes", workers: "ab", length: minutes(12), stride: 4, want: atLeast(3), undone: both(fleet(3), launched(2)), policy: waitShort, setup: func(s *stage) {
			full(1)(s)
			s.SetBoots(sim.Boot{After: 200 * time.Second})
		}, events: []delivery{{at: 70 * time.Second, kind: nodes.Warning, instance: w1}}},
		{name: "warning of a node with workers", workers: "ab", length: minutes(8), want: both(atLeast(2), alive(false, w1)), undone: fleet(2), setup: func(s *stage) {
			s.AddPodOn(w1, sim.PodSpec{Name: "worker", MilliCPU: 1000, Work: 4 * time.Second})
		}, events: []delivery{{at: 90 * time.Second, kind: nodes.Warning, instance: w1}}},
		{name: "scale-down while the workers can't be asked", deaf: true, workers: "aab", length: minutes(9), want: fleet(2), undone: alive(false, w1), setup: func(s *stage) {
			idle(s)
			s.AddPodOn(w1, sim.PodSpec{Name: "worker", MilliCPU: 1000, Work: 4 * time.Second})
			s.Outage(sim.WorkersPart, 0, time.Hour)
		}},
		{name: "warning, nothing to launch", workers: "aab", length: minutes(18), want: atLeast(2), setup: func(s *stage) {
			s.AddShortage(sim.Shortage{})
		}, events: []delivery{{at: 90 * time.Second, kind: nodes.Warning, instance: w1}}},
		{name: "warning of a scale-down's target", workers: "aab", length: minutes(9), want: atLeast(2), undone: both(fleet(2), notReplaced), setup: func(s *stage) {
			idle(s)
			s.AddPodOn(w1, sim.PodSpec{Name: "slow", MilliCPU: 1000, Grace: 110 * time.Second})
		}, events: []delivery{{at: 175 * time.Second, kind: nodes.Warning, instance: w1}}},
		{name: "rebalance", workers: "ab", length: minutes(8), want: both(atLeast(2), launched(1)), undone: both(fleet(2), alive(false, w1)), setup: func(s *stage) {
			s.AddPodOn(w1, one("p"))
		}, events: []delivery{{at: 90 * time.Second, kind: nodes.Rebalance, instance: w1, twice: true}}},
		{name: "rebalance then warning", workers: "ab", length: minutes(9), want: both(fleet(2), alive(false, w1), launched(1)), setup: func(s *stage) {
			s.AddPodOn(w1, one("p"))
		}, events: []delivery{{at: 70 * time.Second, kind: nodes.Rebalance, instance: w1}, {at: 100 * time.Second, kind: nodes.Warning, instance: w1}}},
		{name: "rebalance, nothing to launch", workers: "ab", length: minutes(5), want: both(fleet(2), alive(true, w1)), setup: func(s *stage) {
			s.AddShortage(sim.Shortage{})
		}, events: []delivery{{at: 90 * time.Second, kind: nodes.Rebalance, instance: w1}}},
		{name: "rebalance, the replacement never joins", workers: "ab", length: minutes(12), want: both(fleet(2), alive(true, w1)), setup: func(s *stage) {
			s.SetBoots(sim.Boot{NeverJoins: true})
		}, events: []delivery{{at: 90 * time.Second, kind: nodes.Rebalance, instance: w1}}},
		{name: "scheduled change", workers: "ab", length: minutes(8), want: atLeast(2), undone: both(fleet(2), alive(false, w1)), setup: func(*stage) {},
			events: []delivery{{at: 90 * time.Second, kind: nodes.Health, instance: w1}}},
		{name: "two warnings at once", workers: "aabb", length: minutes(9), want: both(atLeast(2), alive(false, w1, w3)), undone: fleet(4), setup: func(s *stage) {
			s.AddPodOn(w1, one("p"))
			s.AddPodOn(w3, one("q"))
		}, events: []delivery{{at: 90 * time.Second, kind: nodes.Warning, instance: w1}, {at: 95 * time.Second, kind: nodes.Warning, instance: w3}}},
		{name: "two rebalances at once, one replacement", workers: "ab", length: minutes(12), want: atLeast(2), setup: func(s *stage) {
			s.AddShortage(sim.Shortage{FromLaunch: 1})
		}, events: []delivery{{at: 90 * time.Second, kind: nodes.Rebalance, instance: w1}, {at: 92 * time.Second, kind: nodes.Rebalance, instance: w2}}},
		{name: "a rebalance during a scale-down", workers: "aabb", length: minutes(14), want: atLeast(2), setup: func(s *stage) {
			idle(s)
			s.AddPodOn(w1, sim.PodSpec{Name: "slow", MilliCPU: 1000, Grace: 80 * time.Second})
		}, events: []delivery{{at: 130 * time.Second, kind: nodes.Rebalance, instance: w3}}},
		{name: "a rebalance of a scale-down's target", workers: "aab", length: minutes(12), want: atLeast(2), setup: func(s *stage) {
			idle(s)
			s.AddPodOn(w1, sim.PodSpec{Name: "slow", MilliCPU: 1000, Grace: 80 * time.Second})
		}, events: []delivery{{at: 130 * time.Second, kind: nodes.Rebalance, instance: w1}}},
		{name: "a warning of an instance that boots", workers: "ab", length: minutes(14), want: atLeast(3), setup: full(2),
			events: []delivery{{at: 150 * time.Second, kind: nodes.Warning, instance: "i-004"}}},
		{name: "a warning of a replacement", workers: "ab", length: minutes(14), want: both(atLeast(2), alive(false, w1, "i-004")), setup: func(*stage) {},
			events: []delivery{{at: 90 * time.Second, kind: nodes.Warning, instance: w1}, {at: 250 * time.Second, kind: nodes.Warning, instance: "i-004"}}},
		{name: "a warning without the Kubernetes API", workers: "ab", length: minutes(12), want: both(atLeast(2), alive(false, w1)), setup: func(s *stage) {
			s.Outage(sim.ClusterPart, 80*time.Second, minutes(4))
		}, events: []delivery{{at: 90 * time.Second, kind: nodes.Warning, instance: w1}}},
		{name: "a warning without the cloud's API", workers: "ab", length: minutes(12), want: both(atLeast(2), alive(false, w1)), setup: func(s *stage) {
			s.Outage(sim.CloudPart, 91*time.Second, time.Minute)
		}, events: []delivery{{at: 90 * time.Second, kind: nodes.Warning, instance: w1}}},
		{name: "a rebalance whose drain fails", workers: "ab", length: minutes(14), want: both(atLeast(3), alive(true, w1)), setup: func(s *stage) {
			s.AddPodOn(w1, sim.PodSpec{Name: "stuck", MilliCPU: 100, Stuck: true})
		}, events: []delivery{{at: 90 * time.Second, kind: nodes.Rebalance, instance: w1}}},
		{name: "below the minimum", workers: "ab", length: minutes(8), want: fleet(2), setup: func(*stage) {},
			events: []delivery{{at: 90 * time.Second, kind: reclaim, instance: w1}}},
		{name: "orphans", workers: "ab", length: minutes(7), want: both(fleet(2), alive(false, "i-004"), alive(true, "i-005")), nodeless: 1, setup: func(s *stage) {
			s.SetBoots(sim.Boot{NeverJoins: true}, sim.Boot{NeverJoins: true})
			s.orphan("ended-action")
			s.orphan("") // made by a person
		}},
		{name: "at the maximum", workers: "ab", length: minutes(5), policy: func(p *nodes.Policy) { p.MaxWorkers = 3 }, nodeless: 1, want: launched(1), setup: func(s *stage) {
			full(2)(s)
			s.SetBoots(sim.Boot{NeverJoins: true})
			s.orphan("") // counts, of whichever process
		}},
		{name: "one worker in each zone", workers: "ab", length: minutes(6), policy: func(p *nodes.Policy) { p.MinWorkers = 1 }, want: alive(true, w1, w2), setup: idle},
		{name: "down to no worker over two zones", workers: "ab", length: minutes(16), setup: idle, undone: fleet(0), want: atLeast(0),
			policy: func(p *nodes.Policy) { p.MinWorkers, p.EmptyZones = 0, true }},
		{name: "down to one worker over two zones", workers: "aabb", length: minutes(16), setup: idle, undone: fleet(1), want: atLeast(1),
			policy: func(p *nodes.Policy) { p.MinWorkers, p.EmptyZones = 1, true }},
		{name: "a warning during another's drain", workers: "aab", length: minutes(14), want: atLeast(2), setup: func(s *stage) {
			idle(s)
			s.AddPodOn(w1, sim.PodSpec{Name: "slow", MilliCPU: 1000, Grace: 80 * time.Second})
			s.AddShortage(sim.Shortage{Until: start.Add(minutes(4))})
		}, events: []delivery{{at: 150 * time.Second, kind: nodes.Warning, instance: w3}}},
		{name: "no metrics for a busy cluster", workers: "aab", length: minutes(8), want: alive(true, w1, w2, w3), setup: func(s *stage) {
			s.Outage(sim.SignalsPart, 30*time.Second, minutes(10))
		}},
		{name: "a pause before a scale-up", workers: "ab", setup: full(4), paused: 30 * time.Second, resumed: minutes(5), length: minutes(11), want: both(fleet(4), launched(2))},
		{name: "a pause during a scale-up", workers: "ab", setup: full(4), paused: 125 * time.Second, length: minutes(8), want: alive(true, w1, w2), undone: both(fleet(4), launched(2))},
		{name: "a pause during a scale-down", workers: "aabb", paused: 125 * time.Second, length: minutes(9), want: atLeast(2), undone: both(fleet(3), alive(false, w1)), setup: func(s *stage) {
			idle(s)
			s.AddPodOn(w1, sim.PodSpec{Name: "slow", MilliCPU: 1000, Grace: 80 * time.Second})
		}},
		{name: "below the minimum while paused", workers: "ab", paused: 30 * time.Second, length: minutes(8), want: fleet(2), setup: idle,
			events: []delivery{{at: 90 * time.Second, kind: reclaim, instance: w1}}},
		{name: "a warning while paused", workers: "aab", paused: 30 * time.Second, length: minutes(9), want: both(atLeast(2), alive(false, w1), alive(true, w2, w3)), setup: func(s *stage) {
			idle(s)
			s.AddPodOn(w1, one("p"))
		}, events: []delivery{{at: 90 * time.Second, kind: nodes.Warning, instance: w1}}},
		{name: "a worker that stays not Ready", workers: "aab", length: minutes(12), policy: repaired, undone: launched(1), setup: func(s *stage) {
			s.AddPodOn(w1, sim.PodSpec{Name: "worker", MilliCPU: 1000, Work: 4 * time.Second})
			s.AddPods(5, one("old")) // with it all that three workers take
			s.Flap(w1, 90*time.Second, time.Hour)
		}, want: both(alive(false, w1), alive(true, w2, w3), fleet(3))},
		{name: "a worker that is Ready again in time", workers: "aab", length: minutes(9), policy: repaired, setup: func(s *stage) {
			s.Flap(w1, 90*time.Second, 110*time.Second)
		}, want: both(alive(true, w1, w2, w3), noneTerminated(0, minutes(9)), launched(0))},
		{name: "a worker that is Ready again when it is given up", workers: "aab", length: minutes(12), policy: repaired, setup: func(s *stage) {
			s.AddPodOn(w1, sim.PodSpec{Name: "p", MilliCPU: 1000, Grace: 20 * time.Second})
			s.Flap(w1, 90*time.Second, 150*time.Second+300*time.Millisecond)
		}, want: atLeast(2)},
		{name: "many workers that are not Ready", workers: "abab", length: minutes(14), policy: func(p *nodes.Policy) { repaired(p); p.MaxWorkers = 4 }, setup: func(s *stage) {
			s.Flap(w1, 90*time.Second, minutes(8))
			s.Flap(w2, 92*time.Second, minutes(8))
		}, want: both(alive(true, w1, w2, w3, w4), noneTerminated(0, minutes(14)), fleet(4))},
		{name: "a worker that is not Ready while paused", workers: "aab", length: minutes(9), policy: repaired, paused: 30 * time.Second, setup: func(s *stage) {
			s.Flap(w1, 90*time.Second, minutes(5))
		}, want: both(alive(true, w1, w2, w3), noneTerminated(0, minutes(9)))},
		{name: "nodes that come without their label", workers: "ab", length: minutes(7), policy: func(p *nodes.Policy) { p.NodeLabels = map[string]string{"team": "a"} }, setup: full(4),
			undone: both(fleet(4), launched(2)), want: both(atLeast(4), func(s *stage) string {
				if seen := s.Record().TemplateSeen; seen == nil || !slices.Contains(seen.Lacks, "team=a") {
					return fmt.Sprintf("the record does not say what the nodes lack: %+v", seen)
				}
				return ""
			})},
		{name: "half a list of nodes", workers: "abab", length: minutes(9), want: both(alive(true, w1, w2, w3, w4), noneTerminated(0, minutes(9))), setup: func(s *stage) {
			s.orphan("ended-action") // it has joined, but half a list does not show it
			s.Partial(sim.ClusterPart, 100*time.Second, minutes(5))
		}},
	}
}

// reclaim is a delivery that takes the instance away without a warning, followed by the state-change event.
const reclaim nodes.InterruptionKind = "reclaim"

// orphan launches an instance for an action that the record does not know.
func (s *stage) orphan(action string) {
	c := s.Client("somebody", nil)
	_, err := c.Launch(context.Background(), nodes.LaunchRequest{Token: "orphan" + action, ActionID: action,
		Offering: nodes.Offering{Zone: "a", Subnet: "subnet-a", Type: "m", Market: nodes.OnDemand}})
	if err != nil {
		panic(err)
	}
}

// lostNone wants that no pod was lost with its node: all were evicted.
func lostNone(s *stage) string {
	if n := s.count(sim.Lost, nil); n > 0 {
		return fmt.Sprintf("the pods of %d workers were lost", n)
	}
	return ""
}
