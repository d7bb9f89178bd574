package nodes_test

import (
	"flag"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/muster-dev/muster/nodes"
	"github.com/muster-dev/muster/nodes/sim"
)

var fleetSeeds = flag.Int("fleet.seeds", 1+5*defaultDepth, "how many simulated hours TestFleetForAnHour plays")

var fleetFirst = flag.Uint64("fleet.first", 0, "seed of the first of them")

// fleetPolicy has everything on at once: three pools with limits of nodes, of vCPUs and of memory, Spot and On-Demand, several actions at a
// time, consolidation by removal and by replacement, repair.
func fleetPolicy(p *nodes.Policy) {
	share := func(percent int) *int { return &percent }
	p.Sizing, p.MaxActions, p.MaxWorkers, p.MinWorkers, p.MaxBatchUp, p.MaxBatchDown = nodes.SizingFit, 4, 12, 3, 3, 2
	p.Consolidation, p.ConsolidatePerHour, p.NotReadyFor, p.CPUUp = nodes.ConsolidationReplace, 12, 3*time.Minute, 0.95
	p.PendingUpFor, p.IdleDownFor, p.CooldownUp, p.CooldownDown, p.ScaleDownStuck = 20*time.Second, 20*time.Second, 20*time.Second, 20*time.Second, 10*time.Minute
	p.Pools = []nodes.Pool{
		{Name: nodes.DefaultPool, InstanceTypes: []string{"m", "n", "big"}, SpotShare: share(50), Limits: nodes.Limits{CPU: 14}},
		{Name: "batch", InstanceTypes: []string{"m", "big"}, SpotShare: share(100), Labels: map[string]string{"team": "batch"}, Taints: []nodes.Taint{batchTaint}, Limits: nodes.Limits{Nodes: 3}},
		{Name: "preferred", InstanceTypes: []string{"n"}, Weight: 5, Zones: []string{"b"}, SpotShare: share(100), Limits: nodes.Limits{Memory: 24 << 30}},
	}
}

// fleetScenario is the cluster that a fleet races for. Its load is constant, so that only pods and consolidations change it.
func fleetScenario() *scenario {
	return &scenario{name: "a fleet for an hour", workers: "aab", policy: fleetPolicy,
		setup: func(s *stage) { s.SetLoad(0.4); s.AddPods(3, sim.PodSpec{Name: "stays", MilliCPU: 1100}) },
		region: func(o *sim.Options) {
			joining(o)
			o.Latency, o.WorkerType = 150*time.Millisecond, "dear" // so that the first workers are replaced
			o.Capacity = func(typ string) nodes.Resources {
				r := nodes.Resources{MilliCPU: 2000, Memory: 8 << 30, Pods: 20}
				if typ == "big" {
					r.MilliCPU, r.Memory = 4000, 16<<30
				}
				return r
			}
		},
		want: waiting(0),
	}
}

// playHour races for an hour in which pods come and go and the cloud takes instances away, and then until everything is at rest.
func playHour(seed uint64, v variant) *racers {
	f := newRacers(fleetScenario(), seed, v)
	end := f.now().Add(time.Hour)
	for f.now().Before(end) {
		f.happen()
		f.until(earliest(f.now().Add(time.Duration(20+f.random.IntN(70))*time.Second), end))
	}

	f.calm = true
	f.SetBoots()
	for range 60 {
		f.until(f.now().Add(time.Minute))
		if f.resting() {
			break
		}
	}
	return f
}

// resting reports whether nothing is open, nothing waits and nobody is at work.
func (f *racers) resting() bool {
	for _, a := range f.actors {
		if len(a.running) > 0 {
			f.until(f.now().Add(time.Second)) // a tick ends within seconds, and the others begin only later
		}
	}
	for _, a := range f.actors {
		if len(a.running) > 0 {
			return false
		}
	}
	r := f.Record()
	open := r.ScalingInProgress || len(r.Removals) > 0 || r.LeaseOwner != "" || f.OpenItems() > 0
	fleet := f.Fleet()
	return !open && fleet.Pending == 0 && fleet.Cordoned == 0 && fleet.Nodeless == 0 && fleet.StaleNodes == 0 && fleet.Available >= f.policy.MinWorkers
}

// happen lets one thing happen that is not of the fleet's doing.
func (f *racers) happen() {
	switch n := f.random.IntN(20); {
	case n < 11:
		f.podsCome()
	case n < 13:
		f.announce(nodes.Warning)
	case n < 14:
		f.announce(nodes.Rebalance)
	case n < 15:
		if in := f.someWorker(nil); in.ID != "" {
			f.TakeAway(in.ID)
			f.send(nodes.InterruptionEvent{ID: "state-" + in.ID, Kind: nodes.StateChange, InstanceID: in.ID, At: f.now(), State: nodes.StateShuttingDown})
		}
	case n < 16:
		if in := f.someWorker(nil); in.ID != "" {
			f.Flap(in.ID, time.Second, time.Duration(20+f.random.IntN(400))*time.Second)
		}
	case n < 17:
		f.SetBoots(sim.Boot{NeverJoins: true})
	case n < 18:
		f.AddShortage(sim.Shortage{Type: []string{"m", "n", "big"}[f.random.IntN(3)], Market: nodes.Spot, Until: f.now().Add(5 * time.Minute)})
	}
}

// podsCome adds some pods alike that run for some minutes.
func (f *racers) podsCome() {
	spec := sim.PodSpec{MilliCPU: int64(300 + 300*f.random.IntN(5)), Memory: 512 << 20}
	if f.random.IntN(3) == 0 {
		spec = batchPod("")
	}
	f.ids++
	spec.Name = fmt.Sprintf("p%d", f.ids)
	spec.Runs = time.Duration(60+f.random.IntN(360)) * time.Second
	spec.Grace = time.Duration(1+f.random.IntN(40)) * time.Second
	spec.Responds = f.ids%2 == 0 // at once: what is shown is that no request outlives its drain
	f.AddPods(1+f.random.IntN(4), spec)
}

// someWorker returns a live worker that a condition is true of.
func (f *racers) someWorker(which func(nodes.Instance) bool) nodes.Instance {
	var list []nodes.Instance
	for _, in := range f.Instances() {
		if in.Alive() && !in.ControlPlane && (which == nil || which(in)) {
			list = append(list, in)
		}
	}
	if len(list) == 0 {
		return nodes.Instance{}
	}
	return list[f.random.IntN(len(list))]
}

// announce interrupts a Spot worker.
func (f *racers) announce(kind nodes.InterruptionKind) {
	in := f.someWorker(func(in nodes.Instance) bool { return in.Market == nodes.Spot })
	if in.ID == "" {
		return
	}
	e := f.Announce(kind, in.ID)
	f.send(e)
	if f.random.IntN(4) == 0 { // queues deliver twice
		f.send(e)
	}
}

func (f *racers) send(e nodes.InterruptionEvent) {
	f.queue = append(f.queue, message{InterruptionEvent: e, due: f.now().Add(time.Duration(1+f.random.IntN(4)) * time.Second)})
}

// judged returns what is wrong with an hour.
func (f *racers) judged() []violation {
	out := check(f.stage)
	for _, p := range f.panics {
		out = append(out, violation{"no panic", p})
	}
	return out
}

// TestFleetForAnHour lets two daemons and a function race for one cluster of pools for a simulated hour, with kills, lost replies, late
// calls and processes that stand still, while pods come and go, Spot workers are interrupted and nodes fail.
func TestFleetForAnHour(t *testing.T) {
	done := map[string]int{}
	met := map[fate]int{}
	for seed := *fleetFirst; seed < *fleetFirst+uint64(*fleetSeeds); seed++ {
		f := playHour(seed, nil)
		for _, v := range f.judged() {
			t.Errorf("seed %d: %s: %s", seed, v.invariant, v.what)
		}
		for at, n := range f.counts {
			met[at] += n
		}
		for _, e := range f.Ledger() {
			done[string(e.Kind)]++
			if e.Kind == sim.Written || e.Kind == sim.WrittenItem {
				done[e.Detail]++
			}
		}
	}

	t.Logf("%v; %v", met, done)
	if *fleetSeeds < 6 { // too few hours to hold every kind of fault
		return
	}
	for _, kind := range []string{string(sim.Launched), string(sim.LaunchedAgain), string(sim.Terminated), string(sim.TakenAway), string(sim.Expired),
		string(sim.EvictionsRequested), "beginScaleUp", "beginScaleDown", "completeReplacement", "recordReplacement", "failScaleUp"} {
		if done[kind] == 0 {
			t.Errorf("%s never happened: the hours show less than they are to", kind)
		}
	}
	for at := fateBefore; at <= fateLate; at++ {
		if met[at] == 0 {
			t.Errorf("no process met this: %s", at)
		}
	}
}

// TestFleetCatchesBrokenVariants shows that the hour bites: each mistake violates the invariant that names it within some hours.
func TestFleetCatchesBrokenVariants(t *testing.T) {
	for _, v := range []brokenVariant{
		{name: "no client token", mistake: onCloud(cloudHooks{request: func(r *nodes.LaunchRequest) { r.Token = "" }}), invariant: launchedOnce},
		{name: "no sweep", mistake: onCloud(cloudHooks{listed: func(_ *stage, in *nodes.Instance) bool { in.ActionID = ""; return true }}), invariant: noneLeaked},
		{name: "a drain that is not made", mistake: onCluster(clusterHooks{drain: drainLies}), invariant: drainedFirst},
		{name: "a drain without a cordon", mistake: onCluster(clusterHooks{cordon: true}), invariant: drainedFirst},
		{name: "a termination without its mark", mistake: onStore(noMark), invariant: markedFirst},
		{name: "a lease that everybody gets", mistake: onStore(anyLease), invariant: writesFenced},
		{name: "a scale-up begun while another launches", mistake: onStore(beginBesideLaunch), invariant: oneAction},
		{name: "launches that the cloud doesn't list yet don't count", mistake: onStore(launchesUnseen), invariant: poolKept},
		{name: "instances that nobody counts for their pool", mistake: onCloud(cloudHooks{listed: poolsUntold}), invariant: poolKept},
		{name: "one template for every pool", mistake: onCloud(cloudHooks{request: func(r *nodes.LaunchRequest) { r.Template.ID = "lt-default" }}), invariant: poolsOwn},
		{name: "a disruption budget that is not looked at", mistake: onStore(budgetUnseen), invariant: budgetKept},
		{name: "a claim taken under the fence of its former owner", mistake: sharedFence, invariant: launchedOnce},
	} {
		t.Run(v.name, func(t *testing.T) {
			var others []string
			for seed := range uint64(12) {
				for _, bad := range playHour(seed, v.mistake).judged() {
					if bad.invariant == v.invariant {
						t.Logf("caught by seed %d: %s", seed, bad.what)
						return
					}
					if !slices.Contains(others, bad.invariant) {
						others = append(others, bad.invariant)
					}
				}
			}
			t.Errorf("not caught by %q; seen instead: %v", v.invariant, others)
		})
	}
}
