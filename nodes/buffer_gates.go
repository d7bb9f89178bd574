package nodes

import (
	"fmt"
	"slices"
	"strings"

	"github.com/muster-dev/muster/internal/quantity"
)

// refill is what a scale-up for capacity buffers would launch.
type refill struct {
	nodes  []Want
	pool   string // in which they are launched; "" without pools
	wanted int    // nodes, before MAX_BATCH_UP, MAX_WORKERS and the limits of the pool
	more   bool   // other pools are to have nodes as well
	why    string
	reason Reason // why there are no nodes, if there are none
}

// fill writes what is to be launched into a decision for a scale-up. Of a NOOP it leaves everything as it is.
func (f refill) fill(d *Decision) {
	if d.Action != ScaleUp {
		return
	}
	d.Nodes, d.Pool, d.Detail = len(f.nodes), f.pool, f.why
	d.More = f.more || f.wanted > len(f.nodes)
	if anyParticular(f.nodes) || f.pool != "" {
		d.Wanted = f.nodes
	}
}

// headroomGates are those of a scale-up for capacity buffers. The order of a decision keeps real pods first:
//
//  1. A buffer's pods are placed after all real pods, so a real pod that takes the headroom leaves the buffer short.
//  2. While a real pod waits and a node for it may not be launched yet, none is launched for a buffer: it would use up MAX_WORKERS.
//  3. While a real pod gets a node, the buffer waits for the next decision.
//
// Which nodes are to be launched is worked out only if everything else holds, because it is the expensive part. If none would help, the
// path is blocked, so that a buffer that can't be filled stops neither drift nor consolidation.
func headroomGates(g *gates, in inputs, d Decider, up verdict, stand []Headroom) (verdict, refill) {
	if len(stand) == 0 {
		return verdict{}, refill{}
	}
	var v verdict
	wanted, short := 0, 0
	for _, h := range stand {
		if h.NeverFit == "" {
			wanted, short = wanted+h.Replicas, short+h.Short()
		}
	}
	v.wanted = !g.add("buffer.room", wanted-short, wanted, short == 0)
	turn := in.o.Readings.Pending.Known && (in.pending == 0 || up.holds && up.blocker == "")
	v.need(g.add("buffer.after-pods", in.pending, "no pod that waits for its own node", turn), ReasonPodsPending, "")
	if in.p.parallel() {
		id := in.r.launching()
		v.need(g.add("buffer.launched", orNone(id), "no scale-up is launching", id == ""), ReasonInProgress, id+" is launching")
	}
	v.need(g.add("buffer.cooldown", in.age(in.r.LastScaleEpoch), in.p.CooldownUp, in.cooled(in.p.CooldownUp)), ReasonCooldownUp, "")
	v.need(backoffGate(g, "buffer.backoff", in), ReasonBackoff, backoffText(in.r))
	v.need(g.add("buffer.max-workers", in.occupied, in.p.MaxWorkers, in.occupied < in.p.MaxWorkers), ReasonMaxWorkers, in.unhealthyText())
	v.detail = strings.TrimPrefix(v.detail+"; "+shortText(stand), "; ")
	if !v.wanted || v.blocker != "" || !in.o.FleetKnown {
		return v, refill{}
	}

	f := newRefill(in, d)
	f.why = shortText(stand) + "; " + f.why
	v.need(g.add("buffer.plan", f.why, "a node that helps", len(f.nodes) > 0), f.reason, f.why)
	v.detail = f.why
	v.holds = v.blocker == ""
	return v, f
}

func orNone(s string) string {
	if s == "" {
		return "none"
	}
	return s
}

// shortText names the first buffers whose pods have no room.
func shortText(stand []Headroom) string {
	var out []string
	more := 0
	for _, h := range stand {
		switch {
		case h.Short() == 0 || h.NeverFit != "":
		case len(out) == mostCauses:
			more++
		default:
			out = append(out, fmt.Sprintf("capacity buffer %s has no room for %d of its %d pods", h.Buffer, h.Short(), h.Replicas))
		}
	}
	if more > 0 {
		out = append(out, "and "+quantity.Of(more, "more buffer"))
	}
	return strings.Join(out, "; ")
}

// newRefill works out which nodes are to be launched, within all limits.
func newRefill(in inputs, d Decider) refill {
	room := in.p.MaxWorkers - in.occupied
	q := bufferQuestion(in.p, in.o, in.r.Exhausted, in.now)
	q.Room = max(room, 1)
	if in.pools != nil {
		return in.pools.refill(q, room)
	}
	plan := d.Sizer.Plan(q)
	f := refill{wanted: len(plan.Nodes), why: plan.Why, nodes: plan.Nodes[:min(len(plan.Nodes), in.p.MaxBatchUp, room)]}
	f.blocked(plan)
	return f
}

// blocked says why there are no nodes, if there are none.
func (f *refill) blocked(plan Plan) {
	switch {
	case len(f.nodes) > 0:
	case plan.Helpless != "":
		f.reason, f.why = ReasonNoNodeHelps, plan.Helpless
	default:
		f.reason = ReasonRoomExists
	}
}

// refill chooses the pool for the pods of buffers as for pods that wait, with the same limits.
func (c *poolChooser) refill(q Question, room int) refill {
	with := &poolChooser{in: c.in, sizer: c.sizer}
	with.in.o.Pending = q.Observation.Pending
	for _, a := range c.pools {
		pool := *a
		pool.o.Pending = q.Observation.Pending
		with.pools = append(with.pools, &pool)
	}
	chosen, plans, assignments := with.forPods(room)
	if chosen.openPool == nil {
		plan := together(plans)
		without := slices.IndexFunc(assignments, func(s assignment) bool { return s.of == nil })
		if without >= 0 && plan.Helpless == "" {
			plan.Helpless = "pod " + assignments[without].pod.Name + ": " + assignments[without].why
		}
		f := refill{why: plan.Why}
		f.blocked(plan)
		if f.reason == ReasonNoNodeHelps {
			f.reason = with.whyHelpless(assignments)
		}
		return f
	}
	wants := chosen.plan.Nodes
	most := max(min(len(wants), c.in.p.MaxBatchUp, room, chosen.allowed.nodes()), 1)
	return refill{nodes: wants[:most], pool: chosen.Name, wanted: chosen.wanted, more: chosen.more,
		why: "pool " + chosen.Name + ": " + chosen.plan.Why}
}
