package nodes

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/muster-dev/muster/internal/quantity"
)

// openPool is a pool as a decision sees it: what it may still launch, and why it may launch nothing.
type openPool struct {
	Pool
	policy   Policy      // narrowed to the pool, and to the types that its limits still allow
	o        Observation // narrowed to the pool
	allowed  allowance
	blocker  Reason // why nothing is launched in it now; "": something can be
	detail   string
	narrowed bool   // its limits leave no room for some of its types
	unwanted string // why pods don't get a node of it, found while choosing
}

// poolChooser chooses the pool of a scale-up. It asks what each pool may launch, and which pods its nodes would run.
type poolChooser struct {
	in    inputs
	sizer PoolSizer
	pools []*openPool // of the highest weight first
}

// newPoolChooser looks at every pool and lists what it found as gates, also if no scale-up is wanted.
func newPoolChooser(g *gates, in inputs, sizer PoolSizer) *poolChooser {
	c := &poolChooser{in: in, sizer: sizer}
	uses := PoolUses(in.p, in.o, in.r, sizer.Size)
	for _, pool := range in.p.byWeight() {
		a := &openPool{Pool: pool, policy: in.p.In(pool.Name), allowed: newAllowance(in.p, pool, *uses[pool.Name], sizer.Size)}
		// A node is priced by the market in which it can be bought. A replacement by the price of Spot that the share of Spot forbids
		// would be begun, launched nowhere and begun again, until the disruption budget is used up.
		a.policy.Spot = a.policy.Spot && a.allowed.permitsSpot()
		o, reach := in.o.InPool(pool)
		a.o = o
		types := a.allowed.fitting(a.policy.InstanceTypes)
		left := in.r.PoolState(pool.Name).backoffLeft(in.now)
		switch {
		case len(types) == 0:
			a.blocker, a.detail = ReasonPoolLimit, fmt.Sprintf("it uses %s of %s", a.allowed.use.text(), pool.Limits)
		case left > 0:
			a.blocker, a.detail = ReasonBackoff, fmt.Sprintf("%s in a row, back-off for %s more", quantity.Of(in.r.PoolState(pool.Name).ScaleUpFailures, "failure"), text(left))
		case !reach:
			a.blocker, a.detail = ReasonNoNodeHelps, "none of its zones has a subnet"
		}
		a.narrowed = len(types) < len(a.policy.InstanceTypes)
		a.policy.InstanceTypes = types
		found := a.allowed.use.text()
		if a.detail != "" && a.blocker != ReasonPoolLimit {
			found += "; " + a.detail
		}
		g.add("pool."+pool.Name, found, pool.Limits, a.blocker == "")
		c.pools = append(c.pools, a)
	}
	return c
}

// backoffLeft is how long no scale-up of the pool begins because of failures.
func (s PoolState) backoffLeft(now time.Time) time.Duration {
	if s.BackoffUntilEpoch == 0 {
		return 0
	}
	return max(time.Unix(s.BackoffUntilEpoch, 0).Sub(now), 0)
}

// general returns the pool for a node that no pod asks for in particular: one without taints that keep pods away goes first, then the
// highest weight, then the cheapest. It is nil if nothing can be launched.
func (c *poolChooser) general() *openPool {
	var best *openPool
	for _, a := range c.pools {
		if a.blocker == "" && (best == nil || c.compareGeneral(a, best) < 0) {
			best = a
		}
	}
	return best
}

func (c *poolChooser) compareGeneral(a, b *openPool) int {
	closed := func(x *openPool) int {
		if c.in.p.keepsPodsAway(x.Name) {
			return 1
		}
		return 0
	}
	return cmp.Or(cmp.Compare(closed(a), closed(b)), cmp.Compare(b.Weight, a.Weight), cmp.Compare(c.price(a, a.policy.InstanceTypes), c.price(b, b.policy.InstanceTypes)))
}

// price returns what an hour of the first of some types costs in a pool; infinite if that is not known.
func (c *poolChooser) price(a *openPool, types []string) float64 {
	market := OnDemand
	if a.policy.Spot {
		market = Spot
	}
	if len(types) > 0 {
		if usd, known := c.sizer.Price(types[0], market, ""); known {
			return usd
		}
	}
	return math.Inf(1)
}

// assignment gives each pending pod to the pool that it is to have a node of. of is nil for pods that no pool can have a node for now, and why
// says what stands in the way in each pool.
type assignment struct {
	pod Pod
	of  *openPool
	why string
}

// assignments decides for all pending pods: among the pools that would run a pod and may launch, the highest weight, then the cheapest for
// these pods alone. A pool whose offerings can't be had now is passed over.
func (c *poolChooser) assignments() []assignment {
	screened := make([][]Pod, len(c.pools))
	for i, a := range c.pools {
		if a.blocker == "" {
			screened[i] = c.sizer.Screen(a.policy, a.o)
		}
	}
	var out []assignment
	for k, pod := range c.in.o.Pending {
		if pod.NeverFit != "" {
			continue
		}
		s := assignment{pod: pod}
		var obstacles []string
		least := 0.0
		for i, a := range c.pools {
			if s.of != nil && a.Weight < s.of.Weight {
				break // what follows weighs less
			}
			why := cmp.Or(a.detail, a.unwanted)
			if why == "" {
				why = screened[i][k].NeverFit
			}
			if why != "" && a.narrowed && a.blocker == "" {
				why += fmt.Sprintf(" (it uses %s of %s, which leaves room for %s only)", a.allowed.use.text(), a.Limits, strings.Join(a.policy.InstanceTypes, ", "))
			}
			cost := 0.0
			if why == "" {
				cost, why = c.cost(a, pod)
			}
			if why != "" {
				obstacles = append(obstacles, "pool "+a.Name+": "+why)
			} else if s.of == nil || cost < least {
				s.of, least = a, cost
			}
		}
		s.why = strings.Join(obstacles, "; ")
		out = append(out, s)
	}
	return out
}

// cost returns what new nodes of a pool for some pods alone cost an hour, or why there are none. Pods that are bound to others, which are
// not asked about here, are taken to need one node: what they cost then only ranks the pools.
func (c *poolChooser) cost(a *openPool, pod Pod) (usd float64, why string) {
	o := Observation{Zones: a.o.Zones, TemplateSeen: a.o.TemplateSeen, Pending: []Pod{pod}}
	q := Question{Policy: a.policy, Observation: o, Exhausted: c.in.r.Exhausted, Now: c.in.now, Pending: pod.N(), Room: max(pod.N(), 1)}
	plan := c.sizer.Plan(q)
	if plan.Helpless != "" && len(plan.Nodes) == 0 {
		q.Exhausted = nil
		if stocked := c.sizer.Plan(q); len(stocked.Nodes) == 0 {
			return c.price(a, a.policy.InstanceTypes), ""
		}
		return 0, strings.TrimPrefix(plan.Helpless, "pod "+pod.Name+": ")
	}
	for _, w := range plan.Nodes {
		usd += c.price(a, w.Types)
	}
	return usd, ""
}

// poolPlan is a scale-up in one pool.
type poolPlan struct {
	*openPool
	plan   Plan // within the limits of the pool
	wanted int  // nodes, without its limits
	more   bool // other pools are to have nodes as well
}

// forPods plans for the pods of one pool after the other until one needs nodes. plans without a pool say why nothing is launched.
func (c *poolChooser) forPods(room int) (chosen poolPlan, plans []Plan, assignments []assignment) {
	for range c.pools { // each time round, at least one pool is found to be of no use
		assignments = c.assignments()
		chosen, plans = c.plan(assignments, room)
		if chosen.openPool == nil || len(chosen.plan.Nodes) > 0 {
			return chosen, plans, assignments
		}
		chosen.unwanted = "its limits leave no room for the nodes that the pods need"
	}
	return poolPlan{}, plans, assignments
}

// plan returns the first pool, by weight, that needs nodes for its pods.
func (c *poolChooser) plan(assignments []assignment, room int) (chosen poolPlan, plans []Plan) {
	for _, a := range c.pools {
		var pods []Pod
		for _, s := range assignments {
			if s.of == a {
				pods = append(pods, s.pod)
			}
		}
		if len(pods) == 0 {
			continue
		}
		o := a.o
		o.Pending = pods
		most := max(min(room, a.allowed.nodes()), 1)
		plan := c.sizer.Plan(Question{Policy: a.policy, Observation: o, Exhausted: c.in.r.Exhausted, Now: c.in.now, Pending: podCount(pods), Room: most})
		plans = append(plans, plan)
		switch {
		case chosen.openPool != nil:
			chosen.more = chosen.more || len(plan.Nodes) > 0
		case len(plan.Nodes) > 0:
			chosen = poolPlan{openPool: a, plan: plan, wanted: len(plan.Nodes)}
			chosen.plan.Nodes = a.allowed.cut(plan.Nodes, a.policy.InstanceTypes)
		}
	}
	return chosen, plans
}

// sizeInPool computes the pool and the nodes of a scale-up. See Decider.size, which does it without pools.
func (d Decider) sizeInPool(dec *Decision, g *gates, in inputs, byCPU bool) {
	room := in.p.MaxWorkers - in.occupied
	var pool *openPool
	var n int
	switch {
	case dec.Reason == ReasonRepair:
		n, pool = in.p.MinWorkers-in.expected, in.pools.general()
		dec.Detail = fmt.Sprintf("%d below MIN_WORKERS", n)
	case in.pending == 0:
		n, pool = 1, in.pools.general()
		dec.Detail = in.cpuText() + ", no pod is pending: one node"
	default:
		pool, n = in.pools.sizeForPods(dec, g, room, byCPU)
	}
	if dec.Action == Noop {
		return
	}
	if pool == nil {
		in.pools.blocked(dec)
		return
	}

	if len(dec.Wanted) == 0 { // of any type of the pool, as far as its limits go
		dec.Wanted = make([]Want, max(min(n, in.p.MaxBatchUp, room), 1))
	}
	dec.Wanted = pool.allowed.cut(dec.Wanted, pool.policy.InstanceTypes)
	if len(dec.Wanted) == 0 {
		in.pools.blocked(dec)
		return
	}
	dec.Wanted = dec.Wanted[:max(min(len(dec.Wanted), in.p.MaxBatchUp, room, pool.allowed.nodes()), 1)]
	dec.Pool, dec.Nodes = pool.Name, len(dec.Wanted)
	dec.More = dec.More || min(n, room) > dec.Nodes
	dec.Detail = "pool " + pool.Name + ": " + dec.Detail
	if dec.Nodes < n {
		dec.Detail = fmt.Sprintf("%s, capped to %d (MAX_BATCH_UP %d, room below MAX_WORKERS %d, pool %s uses %s of %s)",
			dec.Detail, dec.Nodes, in.p.MaxBatchUp, room, pool.Name, pool.allowed.use.text(), pool.Limits)
	}
}

// blocked makes the decision a NOOP because no pool may launch.
func (c *poolChooser) blocked(dec *Decision) {
	var why []string
	reason := Reason("")
	for _, a := range c.pools {
		if reason == "" || a.blocker == ReasonPoolLimit {
			reason = a.blocker
		}
		why = append(why, "pool "+a.Name+": "+a.detail)
	}
	*dec = Decision{Action: Noop, Reason: cmp.Or(reason, ReasonNoNodeHelps), Detail: strings.Join(why, "; ")}
}

// sizeForPods chooses the pool for the pending pods and returns how many nodes they need there. If no node is needed it makes the
// decision a NOOP that says why, in each pool.
func (c *poolChooser) sizeForPods(dec *Decision, g *gates, room int, byCPU bool) (*openPool, int) {
	chosen, plans, assignments := c.forPods(room)
	byCPU = byCPU && c.in.p.Trigger != TriggerAll
	plan := chosen.plan
	if chosen.openPool == nil {
		plan = together(plans)
	}
	without := slices.IndexFunc(assignments, func(s assignment) bool { return s.of == nil })
	if without >= 0 && plan.Helpless == "" {
		plan.Helpless = "pod " + assignments[without].pod.Name + ": " + assignments[without].why
	}
	waited := c.in.waitedInVain(plan) && !c.in.r.growing()
	pool := chosen.openPool
	if pool == nil && waited {
		pool = c.notInVain(assignments, &plan)
	}
	needed := len(plan.Nodes) > 0 || byCPU || pool != nil
	g.add("up.plan", plan.Why, "a node that helps", needed)

	dec.Wanted, dec.Detail, dec.More = plan.Nodes, plan.Why, chosen.more
	n := chosen.wanted
	switch {
	case n > 0:
	case byCPU:
		pool, n = c.general(), 1
		dec.Detail = c.in.cpuText() + ": one node; " + plan.Why
	case pool != nil:
		n = 1
		dec.Detail = fmt.Sprintf("pending for %s although there is room: one node; %s", text(c.in.age(c.in.r.PendingSinceEpoch.Value())), plan.Why)
	default:
		dec.Action, dec.Reason = Noop, ReasonRoomExists
		if plan.Helpless != "" {
			dec.Reason, dec.Detail = c.whyHelpless(assignments), plan.Helpless
		}
	}
	return pool, n
}

// together sums up plans of which none wants a node.
func together(plans []Plan) Plan {
	var out Plan
	var why []string
	for _, p := range plans {
		out.Coming = out.Coming || p.Coming
		out.Helpless = cmp.Or(out.Helpless, p.Helpless)
		why = append(why, p.Why)
	}
	out.Why = cmp.Or(strings.Join(why, "; "), "no pool has nodes for the pending pods")
	return out
}

// whyHelpless is the reason for which pods get no node: the limit of a pool if that is one of the obstacles, because a person can raise it.
func (c *poolChooser) whyHelpless(assignments []assignment) Reason {
	for _, s := range assignments {
		if s.of != nil {
			continue
		}
		for _, a := range c.pools {
			if a.blocker == ReasonPoolLimit || a.narrowed || a.unwanted != "" {
				return ReasonPoolLimit
			}
		}
		for _, a := range c.pools {
			if a.blocker == ReasonBackoff {
				return ReasonBackoff
			}
		}
	}
	return ReasonNoNodeHelps
}

// notInVain returns the pool of the first pod of which no node was launched in vain already. If there is none, the plan says so.
func (c *poolChooser) notInVain(assignments []assignment, plan *Plan) *openPool {
	for _, s := range assignments {
		if s.of == nil {
			continue
		}
		why := c.in.inVainIn(s.of.Name)
		if why == "" {
			return s.of
		}
		plan.Helpless = cmp.Or(plan.Helpless, "pool "+s.of.Name+": "+why)
	}
	return nil
}
