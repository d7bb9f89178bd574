package nodes_test

import (
	"context"
	"errors"
	"reflect"
	"slices"
	"testing"
	"time"

	"github.com/muster-dev/muster/nodes"
	"github.com/muster-dev/muster/nodes/sim"
)

// Deliberately broken variants. Each puts one mistake between the reconciler and the simulator, by wrapping an interface or by replacing
// a transition, so that production code carries no switches. The harness has to catch each by the invariant that names it.

type brokenVariant struct {
	name      string
	mistake   variant
	scenario  string
	invariant string
}

func brokenVariants() []brokenVariant {
	return []brokenVariant{
		{"no client token", onCloud(cloudHooks{request: func(r *nodes.LaunchRequest) { r.Token = "" }}), "scale-up", launchedOnce},
		{"the same token for another offering", onCloud(cloudHooks{request: func(r *nodes.LaunchRequest) {
			r.Token = nodes.LaunchToken(r.Cluster, r.ActionID, r.Ordinal, 0)
		}}), "scale-up, Spot short", tokenPerTry},
		{"an unknown outcome taken for a refusal", onCloud(cloudHooks{launched: unknownIsCapacity}), "scale-up", launchedOnce},
		{"no intent before a launch", onStore(noIntent), "scale-up", intentFirst},
		{"IDs recorded after all launches", onStore(recordLast()), "scale-up", recordedNext},
		{"cooldown at launch", onStore(cooldownAtLaunch), "scale-up", cooldownAtEnd},
		{"cooldown after a failure", onStore(cooldownAtFailure), "join timeout", cooldownAtEnd},
		{"begin without its condition", onStore(beginAnyway), "scale-up", oneAction},
		{"lease without fence", onStore(anyFence), "scale-up", writesFenced},
		{"lease that everybody gets", onStore(anyLease), "scale-up", writesFenced},
		{"missing instance treated as joined", onCluster(clusterHooks{view: missingIsReady}), "join timeout", verifiedReady},
		{"termination without its mark", onStore(noMark), "scale-down", markedFirst},
		{"termination without a drain", onCluster(clusterHooks{drain: drainLies}), "scale-down", drainedFirst},
		{"drain without a cordon", onCluster(clusterHooks{cordon: true}), "scale-down", drainedFirst},
		{"a drain restarted by every tick", onStore(drainRestarts), "a drain that fails", drainLimit},
		{"no uncordon after a failed drain", onCluster(clusterHooks{uncordon: true}), "a drain that fails", atRest},
		{"a mark taken back", onStore(markTakenBack), "scale-down", markFinal},
		{"a failed scale-down that forgets its marks", onStore(marksForgotten), "terminations refused", markFinal},
		{"no sweep", onCloud(cloudHooks{listed: func(_ *stage, in *nodes.Instance) bool { in.ActionID = ""; return true }}), "orphans", noneLeaked},
		{"a sweep that trusts an incomplete list", onCluster(clusterHooks{view: halfIsWhole}), "half a list of nodes", drainedFirst},
		{"a sweep that takes an outage for an empty cluster", onCluster(clusterHooks{view: outageIsEmpty}), "an hour without the Kubernetes API", asExpected},
		{"a sweep that reaps what people made", onCloud(cloudHooks{listed: func(_ *stage, in *nodes.Instance) bool { in.ActionID = "x"; return true }}), "orphans", onlyOurs},
		{"a dedup flag instead of a resumable interruption", dedupFlag, "warning", interruptsDone},
		{"instances that boot don't count for MAX_WORKERS", onCloud(cloudHooks{listed: onlyJoined}), "at the maximum", maxKept},
		{"cordoned nodes count for MIN_WORKERS", onCluster(clusterHooks{view: cordonsUnseen}), "a warning during another's drain", minKept},
		{"zones not looked at", onCloud(cloudHooks{listed: func(_ *stage, in *nodes.Instance) bool { in.Zone = "a"; return true }}), "one worker in each zone", zoneKept},
		{"missing metrics taken for zero", func(_ *stage, p ports) ports { p.Signals = zeroSignals{p.Signals}; return p }, "no metrics for a busy cluster", asExpected},
		{"Node objects of reclaimed instances left", onCluster(clusterHooks{remove: true}), "below the minimum", atRest},
		{"workers evicted before they have handed off", deafToWorkers, "scale-down of a node with workers", handedFirst},
		{"a pause that nobody looks at", onStore(pauseUnseen), "a pause before a scale-up", pauseHolds},
		{"a pause lost under what a tick notes", onStore(pauseLost), "a pause during a scale-up", pauseHolds},
		{"a claim without its fence", anyClaim, "warning, Spot short", launchedOnce},
		{"a claim taken under the fence of its former owner", sharedFence, "warning, Spot short", launchedOnce},
		{"a worker given up at once", onCluster(clusterHooks{view: longAgo}), "a worker that is Ready again in time", longNotReady},
		{"a full disk given up at once", onCluster(clusterHooks{view: fullForLong}), "a worker whose disk has room again in time", longNotReady},
		{"a full disk without a drain", onCluster(clusterHooks{drain: drainLies}), "a worker whose disk stays full", drainedFirst},
		{"an impaired worker given up at once", onStatuses(impairedForLong), "a worker whose instance is well again in time", longNotReady},
		{"an impaired worker without a drain", onCluster(clusterHooks{drain: drainLies}), "a worker whose instance stays impaired", drainedFirst},
		{"an impaired worker terminated without its mark", onStore(noMark), "a worker whose instance stays impaired", markedFirst},
		{"many impaired workers given up one by one", onStatuses(oneImpaired), "many workers whose instances are impaired", longNotReady},
		{"status checks remembered while they can't be read", onStatuses(remembered()), "a worker that is well again while status checks can't be read", longNotReady},
		{"many workers given up one by one", onCluster(clusterHooks{view: oneDown}), "many workers that are not Ready", longNotReady},
		{"launches that the cloud doesn't list yet don't count for MAX_WORKERS", onStore(launchesUnseen), "growth up to MAX_WORKERS, several actions", maxKept},
		{"a scale-up begun while another launches", onStore(beginBesideLaunch), "growth in one round, several actions", oneAction},
		{"a cancelled drain whose node stays cordoned", onCluster(clusterHooks{uncordon: true}), "pods that come during a drain, several actions", atRest},
		{"a consolidation that is not counted", onStore(consolidationsUncounted), "consolidation within its budget", budgetKept},
		{"a disruption budget that is not looked at", onStore(budgetUnseen), "consolidation within its budget", budgetKept},
		{"a replacement that is not waited for", onCluster(clusterHooks{view: missingIsReady}), "a worker replaced by a cheaper one", verifiedReady},
		{"a replaced worker that is not drained", onCluster(clusterHooks{drain: drainLies}), "a worker replaced by a cheaper one", drainedFirst},
		{"a replaced worker terminated without its mark", onStore(noMark), "a worker replaced by a cheaper one", markedFirst},
		{"a replacement that nobody writes down", onStore(noIntent), "a worker replaced by a cheaper one", intentFirst},
		{"a replacement that opens its scale-down while paused", onStore(pauseIgnored), "a pause during a replacement", pauseHolds},
		{"a worker replaced whatever has come to it meanwhile", newNodesHaveRoom, "a replacement without room for what has come meanwhile", asExpected},
		{"a pool's launches that the cloud doesn't list yet don't count for its limit", onStore(launchesUnseen), "a pool at its limit", poolKept},
		{"instances that nobody counts for their pool", onCloud(cloudHooks{listed: poolsUntold}), "a pool at its limit", poolKept},
		{"one template for every pool", onCloud(cloudHooks{request: onePoolsTemplate}), "pods of two pools", poolsOwn},
		{"a pool's labels that nobody compares", onCluster(clusterHooks{view: labelsSeen}), "a pool whose nodes come without its label", asExpected},
		{"a worker replaced of which nobody knows by what it was launched", onCloud(cloudHooks{listed: neverUpToDate}), "workers of which nobody knows by what they were launched", asExpected},
		{"new nodes that have drifted when they join", onCloud(cloudHooks{listed: neverUpToDate}), "drifted workers", asExpected},
		{"a replacement of a drifted worker that is not waited for", onCluster(clusterHooks{view: missingIsReady}), "drifted workers", verifiedReady},
		{"a drifted worker that is not drained", onCluster(clusterHooks{drain: drainLies}), "drifted workers", drainedFirst},
		{"a drifted worker terminated without its mark", onStore(noMark), "drifted workers", markedFirst},
		{"a replacement of a drifted worker that nobody writes down", onStore(noIntent), "drifted workers", intentFirst},
		{"drift whatever was begun within the hour", onStore(upBudgetUnseen), "drift within its budget", budgetKept},
		{"another node for each try at a drifted worker", onStore(culpritForgotten), "a drifted worker whose drain fails", atRest},
		{"an expired worker that is not drained", onCluster(clusterHooks{drain: drainLies}), "expired workers", drainedFirst},
		{"an expired worker terminated without its mark", onStore(noMark), "expired workers", markedFirst},
		{"a replacement of an expired worker that is not waited for", onCluster(clusterHooks{view: missingIsReady}), "expired workers", verifiedReady},
		{"responders that nobody waits for", respondersUnwaited, "scale-down of a node whose pods respond", handedFirst},
		{"pods evicted whose eviction nobody requested", respondersUnasked, "scale-down of a node whose pods respond", handedFirst},
		{"a warning that waits for no responder", respondersUnwaited, "warning of a node whose pods respond", handedFirst},
		{"requests for evictions that nobody takes back", requestsLeft, "a drain that fails, of a node whose pods respond", atRest},
		{"pods taken to have waited long", onCluster(clusterHooks{view: waitedLong}), "pods that are gone before PENDING_UP_SEC, without Prometheus", asExpected},
		{"an interrupted target replaced", onStore(targetsUnseen), "warning of a scale-down's target", targetsStay},
	}
}

// TestBrokenVariantsAreCaught shows that the harness bites.
func TestBrokenVariantsAreCaught(t *testing.T) {
	byName := map[string]scenario{}
	for _, sc := range everyScenario() {
		byName[sc.name] = sc
	}
	caught := 0
	for _, v := range brokenVariants() {
		t.Run(v.name, func(t *testing.T) {
			sc, ok := byName[v.scenario]
			if !ok {
				t.Fatalf("no scenario %q", v.scenario)
			}
			if found := slices.Contains(names(check(perform(&sc, schedule{}, nil, nil).stage)), v.invariant); found {
				t.Fatal("the scenario violates the invariant without the mistake")
			}
			runs, how, others := hunt(&sc, v)
			if how == "" {
				t.Fatalf("not caught by %q in %d runs; seen instead: %v", v.invariant, runs, others)
			}
			caught++
			t.Logf("caught by %q: %s (run %d)", v.invariant, how, runs)
		})
	}
	t.Logf("%d of %d broken variants caught, each by its named invariant", caught, len(brokenVariants()))
}

// hunt runs a broken variant by one schedule after another until its invariant is violated.
func hunt(sc *scenario, v brokenVariant) (runs int, how string, others []string) {
	try := func(plan schedule) bool {
		runs++
		for _, bad := range check(perform(sc, plan, v.mistake, nil).stage) {
			if bad.invariant == v.invariant {
				how = plan.String() + ": " + bad.what
				return false
			}
			if !slices.Contains(others, bad.invariant) {
				others = append(others, bad.invariant)
			}
		}
		return true
	}
	if !try(schedule{}) {
		return runs, how, others
	}
	calls := perform(sc, schedule{}, v.mistake, nil).calls
	plans(sc, calls, 2)(try)
	return runs, how, others
}

// ---- wrappers

type cloudHooks struct {
	request  func(*nodes.LaunchRequest)
	launched func(nodes.Instance, error) (nodes.Instance, error)
	listed   func(*stage, *nodes.Instance) bool // false: left out
}

type brokenCloud struct {
	nodes.Cloud
	s *stage
	h cloudHooks
}

func onCloud(h cloudHooks) variant {
	return func(s *stage, p ports) ports {
		p.Cloud = brokenCloud{p.Cloud, s, h}
		return p
	}
}

func (c brokenCloud) Launch(ctx context.Context, r nodes.LaunchRequest) (nodes.Instance, error) {
	if c.h.request != nil {
		c.h.request(&r)
	}
	in, err := c.Cloud.Launch(ctx, r)
	if c.h.launched != nil {
		return c.h.launched(in, err)
	}
	return in, err
}

func (c brokenCloud) Workers(ctx context.Context) ([]nodes.Instance, error) {
	list, err := c.Cloud.Workers(ctx)
	if c.h.listed == nil {
		return list, err
	}
	var out []nodes.Instance
	for _, in := range list {
		if in.ControlPlane || c.h.listed(c.s, &in) {
			out = append(out, in)
		}
	}
	return out, err
}

func unknownIsCapacity(in nodes.Instance, err error) (nodes.Instance, error) {
	var le *nodes.LaunchError
	if err != nil && !errors.As(err, &le) {
		err = &nodes.LaunchError{Kind: nodes.FailCapacity, Code: "Guessed"}
	}
	return in, err
}

func onlyJoined(s *stage, in *nodes.Instance) bool {
	return slices.ContainsFunc(s.Ledger(), func(e sim.Entry) bool { return e.Kind == sim.Joined && e.Instance == in.ID }) || in.ActionID == "" && in.Market == nodes.Spot
}

type clusterHooks struct {
	view                     func(*stage, nodes.View, error) (nodes.View, error)
	drain                    func(nodes.DrainRequest) (nodes.DrainProgress, error)
	cordon, uncordon, remove bool // true: does nothing
}

type brokenCluster struct {
	nodes.Cluster
	s *stage
	h clusterHooks
}

func onCluster(h clusterHooks) variant {
	return func(s *stage, p ports) ports {
		p.Cluster = brokenCluster{p.Cluster, s, h}
		return p
	}
}

func (c brokenCluster) View(ctx context.Context) (nodes.View, error) {
	v, err := c.Cluster.View(ctx)
	if c.h.view != nil {
		return c.h.view(c.s, v, err)
	}
	return v, err
}

func (c brokenCluster) Drain(ctx context.Context, r nodes.DrainRequest) (nodes.DrainProgress, error) {
	if c.h.drain != nil {
		return c.h.drain(r)
	}
	return c.Cluster.Drain(ctx, r)
}

func (c brokenCluster) Cordon(ctx context.Context, n nodes.NodeRef, claim string) error {
	if c.h.cordon {
		return nil
	}
	return c.Cluster.Cordon(ctx, n, claim)
}

func (c brokenCluster) Uncordon(ctx context.Context, n nodes.NodeRef, claim string) error {
	if c.h.uncordon {
		return nil
	}
	return c.Cluster.Uncordon(ctx, n, claim)
}

func (c brokenCluster) Remove(ctx context.Context, n nodes.NodeRef) error {
	if c.h.remove {
		return nil
	}
	return c.Cluster.Remove(ctx, n)
}

// impatient takes the first answer for the last.
type impatient struct{ nodes.WorkerPlane }

func (i impatient) DrainWorkers(ctx context.Context, node string, until time.Time) (int, error) {
	_, err := i.WorkerPlane.DrainWorkers(ctx, node, until)
	return 0, err
}

func deafToWorkers(_ *stage, p ports) ports {
	p.WorkerPlane = impatient{p.WorkerPlane}
	return p
}

func drainLies(nodes.DrainRequest) (nodes.DrainProgress, error) {
	return nodes.DrainProgress{Done: true}, nil
}

func missingIsReady(s *stage, v nodes.View, err error) (nodes.View, error) {
	for _, id := range s.Record().ScaleUpInstanceIDs {
		if !slices.ContainsFunc(v.Nodes, func(n nodes.Node) bool { return n.Name == id }) {
			v.Nodes = append(v.Nodes, nodes.Node{NodeRef: nodes.NodeRef{Name: id}, Ready: true})
		}
	}
	return v, err
}

func halfIsWhole(_ *stage, v nodes.View, err error) (nodes.View, error) {
	var half *nodes.IncompleteError
	if errors.As(err, &half) {
		err = nil
	}
	return v, err
}

func outageIsEmpty(_ *stage, v nodes.View, err error) (nodes.View, error) {
	if errors.Is(err, sim.ErrUnreachable) {
		err = nil
	}
	return v, err
}

func cordonsUnseen(_ *stage, v nodes.View, err error) (nodes.View, error) {
	for i := range v.Nodes {
		v.Nodes[i].Unschedulable, v.Nodes[i].ToBeDeleted = false, false
	}
	return v, err
}

// longAgo takes every node that is not Ready for one that has not been so for an hour.
func longAgo(s *stage, v nodes.View, err error) (nodes.View, error) {
	for i, n := range v.Nodes {
		if !n.Ready {
			v.Nodes[i].NotReadySince = s.Clock().Now().Add(-time.Hour)
		}
	}
	return v, err
}

// fullForLong takes every full disk for one that has been full for an hour.
func fullForLong(s *stage, v nodes.View, err error) (nodes.View, error) {
	for i, n := range v.Nodes {
		if !n.DiskFullSince.IsZero() {
			v.Nodes[i].DiskFullSince = s.Clock().Now().Add(-time.Hour)
		}
	}
	return v, err
}

// oneDown shows only the first of the nodes that are not Ready as such.
func oneDown(_ *stage, v nodes.View, err error) (nodes.View, error) {
	seen := false
	for i, n := range v.Nodes {
		v.Nodes[i].Ready = n.Ready || seen
		seen = seen || !n.Ready
	}
	return v, err
}

type zeroSignals struct{ nodes.Signals }

func (z zeroSignals) Observe(ctx context.Context) (nodes.Readings, error) {
	r, err := z.Signals.Observe(ctx)
	if err == nil {
		return r, nil
	}
	zero := nodes.Read(0)
	return nodes.Readings{CPU: zero, CPUMin: zero, CPUMax: zero, Pending: zero, PendingMin: zero, PendingMax: zero}, nil
}

// ---- transitions

// brokenStore replaces transitions. The hook returns nil for one that stays as it is.
type brokenStore struct {
	nodes.Store
	hook func(nodes.Transition) nodes.Transition
	load func(*nodes.Record)
}

// onStore makes a variant of a function that is re-created for every process, so that what it remembers dies with it.
func onStore(f func(*stage) brokenStore) variant {
	return func(s *stage, p ports) ports {
		b := f(s)
		b.Store = p.Store
		p.Store = b
		return p
	}
}

func (b brokenStore) Apply(ctx context.Context, t nodes.Transition) (nodes.Record, error) {
	if b.hook != nil {
		if other := b.hook(t); other != nil {
			t = other
		}
	}
	r, err := b.Store.Apply(ctx, t)
	if err == nil && b.load != nil {
		b.load(&r)
	}
	return r, err
}

func (b brokenStore) Load(ctx context.Context) (nodes.Record, error) {
	r, err := b.Store.Load(ctx)
	if err == nil && b.load != nil {
		b.load(&r)
	}
	return r, err
}

// loose is a transition under another's name with a change of its own and no condition.
type loose struct {
	nodes.Transition
	change func(nodes.Record) (nodes.Record, error)
}

func (l loose) Apply(r nodes.Record) (nodes.Record, error) { return l.change(r.Clone()) }

// then makes a transition and changes its result.
func then(t nodes.Transition, change func(before nodes.Record, after *nodes.Record)) nodes.Transition {
	return loose{t, func(r nodes.Record) (nodes.Record, error) {
		next, err := t.Apply(r)
		if err == nil {
			next = next.Clone()
			change(r, &next)
		}
		return next, err
	}}
}

func noIntent(*stage) brokenStore {
	var intent *nodes.Intent // in this process's memory only
	return brokenStore{
		hook: func(t nodes.Transition) nodes.Transition {
			switch t := t.(type) {
			case nodes.IntendLaunch:
				intent = &t.Intent
				return loose{t, func(r nodes.Record) (nodes.Record, error) { return r, nil }}
			case nodes.RecordScaleUpInstances:
				intent = nil
				return loose{t, func(r nodes.Record) (nodes.Record, error) {
					r.ScaleUpInstanceIDs = append(r.ScaleUpInstanceIDs, t.InstanceID)
					return r, nil
				}}
			}
			return nil
		},
		load: func(r *nodes.Record) { r.ScaleUpIntent = intent },
	}
}

func recordLast() func(*stage) brokenStore {
	return func(*stage) brokenStore {
		var ids []string // in this process's memory until all are launched
		var launches []nodes.Intent
		var intent *nodes.Intent
		return brokenStore{
			hook: func(t nodes.Transition) nodes.Transition {
				switch t := t.(type) {
				case nodes.IntendLaunch:
					intent = &t.Intent
					return loose{t, func(r nodes.Record) (nodes.Record, error) { r.ScaleUpIntent = &t.Intent; return r, nil }}
				case nodes.RecordScaleUpInstances:
					ids, launches = append(ids, t.InstanceID), append(launches, *intent)
					intent = nil
					return loose{t, func(r nodes.Record) (nodes.Record, error) {
						if len(ids) == r.ScaleUpRequested {
							r.ScaleUpIntent, r.ScaleUpInstanceIDs, r.ScaleUpLaunches = nil, slices.Clone(ids), slices.Clone(launches)
						}
						return r, nil
					}}
				}
				return nil
			},
			load: func(r *nodes.Record) {
				if len(ids) > 0 && r.ScalingUp() {
					r.ScaleUpInstanceIDs, r.ScaleUpIntent = slices.Clone(ids), intent
				}
			},
		}
	}
}

func cooldownAtLaunch(*stage) brokenStore {
	return brokenStore{hook: func(t nodes.Transition) nodes.Transition {
		if _, ok := t.(nodes.RecordScaleUpInstances); !ok {
			return nil
		}
		return then(t, func(_ nodes.Record, r *nodes.Record) { r.LastScaleEpoch = r.ScaleUpStartedEpoch })
	}}
}

func cooldownAtFailure(*stage) brokenStore {
	return brokenStore{hook: func(t nodes.Transition) nodes.Transition {
		f, ok := t.(nodes.FailScaleUp)
		if !ok {
			return nil
		}
		return then(t, func(_ nodes.Record, r *nodes.Record) { r.LastScaleEpoch = f.Now.Unix() })
	}}
}

func beginAnyway(*stage) brokenStore {
	return brokenStore{hook: func(t nodes.Transition) nodes.Transition {
		b, ok := t.(nodes.BeginScaleUp)
		if !ok {
			return nil
		}
		return loose{t, func(r nodes.Record) (nodes.Record, error) {
			r.ScalingInProgress, r.ScaleUpActionID, r.ScaleUpStartedEpoch, r.ScaleUpRequested = true, b.ActionID, b.Now.Unix(), b.Requested
			r.ScaleUpInstanceIDs, r.ScaleUpIntent, r.ScaleUpLaunches = []string{}, nil, nil
			return r, nil
		}}
	}}
}

// anyFence makes every transition under whatever fence the record has.
func anyFence(*stage) brokenStore {
	return brokenStore{hook: func(t nodes.Transition) nodes.Transition {
		v := reflect.New(reflect.TypeOf(t)).Elem()
		v.Set(reflect.ValueOf(t))
		f := v.FieldByName("Fence")
		if !f.IsValid() {
			return nil
		}
		return loose{t, func(r nodes.Record) (nodes.Record, error) {
			f.SetInt(r.LeaseFence)
			return v.Interface().(nodes.Transition).Apply(r)
		}}
	}}
}

// anyLease gives everybody the lease without raising the fence, which a release then takes from the process that works.
func anyLease(*stage) brokenStore {
	return brokenStore{hook: func(t nodes.Transition) nodes.Transition {
		a, ok := t.(nodes.AcquireLease)
		if !ok {
			return nil
		}
		return loose{t, func(r nodes.Record) (nodes.Record, error) {
			r.LeaseOwner, r.LeaseUntilEpoch = a.Owner, a.Now.Add(a.TTL).Unix()
			return r, nil
		}}
	}}
}

func noMark(*stage) brokenStore {
	return brokenStore{hook: func(t nodes.Transition) nodes.Transition {
		if _, ok := t.(nodes.MarkTerminating); !ok {
			return nil
		}
		return loose{t, func(r nodes.Record) (nodes.Record, error) { return r, nil }}
	}}
}

// marksForgotten ends a scale-down with everything that belongs to it.
func marksForgotten(*stage) brokenStore {
	return brokenStore{hook: func(t nodes.Transition) nodes.Transition {
		if _, ok := t.(nodes.FailScaleDown); !ok {
			return nil
		}
		return then(t, func(_ nodes.Record, r *nodes.Record) { r.Removals = nil })
	}}
}

// markTakenBack lets the next tick's observation clear marks.
func markTakenBack(*stage) brokenStore {
	return brokenStore{hook: func(t nodes.Transition) nodes.Transition {
		if _, ok := t.(nodes.Note); !ok {
			return nil
		}
		return then(t, func(_ nodes.Record, r *nodes.Record) {
			for i := range r.Removals {
				r.Removals[i].Phase = nodes.PhaseDraining
			}
		})
	}}
}

// drainRestarts shows every process a drain that has just begun.
func drainRestarts(s *stage) brokenStore {
	return brokenStore{load: func(r *nodes.Record) {
		for i := range r.Removals {
			r.Removals[i].DrainedSince = s.Clock().Now().Unix()
		}
	}}
}

// targetsUnseen hides an open scale-down from what reads the record without writing: the work on interruptions.
func targetsUnseen(*stage) brokenStore {
	held := false
	return brokenStore{
		hook: func(t nodes.Transition) nodes.Transition {
			held = held || t.Name() == "acquireLease"
			return nil
		},
		load: func(r *nodes.Record) {
			if !held {
				r.ScaleDownTargetInstanceIDs, r.Removals = nil, nil
			}
		},
	}
}

func pauseUnseen(*stage) brokenStore {
	return brokenStore{
		hook: func(t nodes.Transition) nodes.Transition {
			b, ok := t.(nodes.BeginScaleUp)
			if !ok {
				return nil
			}
			b.Repair = true
			return b
		},
		load: func(r *nodes.Record) { r.PausedSinceEpoch = 0 },
	}
}

// pauseLost writes what was read before instead of what is there.
func pauseLost(*stage) brokenStore {
	return brokenStore{hook: func(t nodes.Transition) nodes.Transition {
		if _, ok := t.(nodes.Note); !ok {
			return nil
		}
		return then(t, func(_ nodes.Record, r *nodes.Record) { r.PausedSinceEpoch, r.PausedBy, r.PauseReason = 0, "", "" })
	}}
}

// launchesUnseen forgets what open scale-ups have launched. The cloud lists it only some seconds later.
func launchesUnseen(*stage) brokenStore {
	return brokenStore{load: func(r *nodes.Record) {
		*r = r.Clone()
		r.ScaleUpLaunches = nil
		for i := range r.OtherActions {
			r.OtherActions[i].ScaleUpLaunches = nil
		}
	}}
}

// beginBesideLaunch opens, with each scale-up, a second one that launches as well.
func beginBesideLaunch(*stage) brokenStore {
	return brokenStore{hook: func(t nodes.Transition) nodes.Transition {
		b, ok := t.(nodes.BeginScaleUp)
		if !ok {
			return nil
		}
		return then(t, func(_ nodes.Record, r *nodes.Record) {
			r.OtherActions = append(r.OtherActions, nodes.ScalingAction{ScaleUpActionID: b.ActionID + "-too", ScaleUpStartedEpoch: b.Now.Unix(), ScaleUpRequested: b.Requested})
		})
	}}
}

// anyClaim lets a worker write facts about an interruption that another one has claimed.
func anyClaim(_ *stage, p ports) ports {
	p.Store = unfencedItems{p.Store}
	return p
}

type unfencedItems struct{ nodes.Store }

func (u unfencedItems) ApplyInterruption(ctx context.Context, id string, t nodes.InterruptionTransition) (nodes.Interruption, error) {
	if step, ok := t.(nodes.InterruptionStep); ok {
		t = unfencedStep{step}
	}
	return u.Store.ApplyInterruption(ctx, id, t)
}

type unfencedStep struct{ nodes.InterruptionStep }

func (u unfencedStep) Apply(i nodes.Interruption) (nodes.Interruption, error) {
	u.Change(&i)
	return i, nil
}

// sharedFence lets a worker take a claim without raising the fence, so that the store can't tell the two apart.
func sharedFence(_ *stage, p ports) ports {
	p.Store = sameFence{p.Store}
	return p
}

type sameFence struct{ nodes.Store }

func (s sameFence) ApplyInterruption(ctx context.Context, id string, t nodes.InterruptionTransition) (nodes.Interruption, error) {
	switch t := t.(type) {
	case nodes.ClaimInterruption:
		return s.Store.ApplyInterruption(ctx, id, lowClaim{t})
	case nodes.InterruptionStep:
		return s.Store.ApplyInterruption(ctx, id, fenceOnly{t})
	}
	return s.Store.ApplyInterruption(ctx, id, t)
}

type lowClaim struct{ nodes.ClaimInterruption }

func (c lowClaim) Apply(i nodes.Interruption) (nodes.Interruption, error) {
	next, err := c.ClaimInterruption.Apply(i)
	if err == nil {
		next.Fence = i.Fence
	}
	return next, err
}

type fenceOnly struct{ nodes.InterruptionStep }

func (f fenceOnly) Apply(i nodes.Interruption) (nodes.Interruption, error) {
	f.Owner = i.Owner
	return f.InterruptionStep.Apply(i)
}

// dedupFlag treats the interruption's item as a mere flag: seen once, done.
func dedupFlag(s *stage, p ports) ports {
	p.Store = flagStore{p.Store, s}
	return p
}

type flagStore struct {
	nodes.Store
	s *stage
}

func (f flagStore) OpenInterruptions(context.Context) ([]nodes.Interruption, error) { return nil, nil }

func (f flagStore) ApplyInterruption(ctx context.Context, id string, t nodes.InterruptionTransition) (nodes.Interruption, error) {
	if t.Name() == "openInterruption" && slices.ContainsFunc(f.s.Ledger(), func(e sim.Entry) bool { return e.Kind == sim.WrittenItem && e.Instance == id }) {
		return nodes.Interruption{InstanceID: id, Closed: true}, nil
	}
	return f.Store.ApplyInterruption(ctx, id, t)
}
