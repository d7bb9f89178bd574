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

// Drifted is a worker that is not as it would be launched now, or that is too old.
type Drifted struct {
	InstanceID string `json:"instanceId"`
	Expired    bool   `json:"expired,omitempty"` // it is older than EXPIRE_AFTER_SEC
	Why        string `json:"why"`
}

// DriftedWorkers lists the workers that are not as they would be launched now, the oldest first: their template, labels or taints have
// another hash, or their type is not offered any more. It says nothing of
//
//   - a worker without a hash, because Muster didn't launch it, or did so before it gave hashes: what it was launched by is not known;
//   - a worker of a pool that is not in the file any more, because nothing says what would replace it;
//   - the zone, the market and the size of a type, in which workers of one pool may differ.
//
// A worker that is older than EXPIRE_AFTER_SEC is listed too, also one without a hash.
func DriftedWorkers(p Policy, o Observation, now time.Time) []Drifted {
	workers := slices.SortedStableFunc(slices.Values(o.Fleet), func(a, b Worker) int {
		return cmp.Or(a.Instance.LaunchedAt.Compare(b.Instance.LaunchedAt), cmp.Compare(a.Instance.ID, b.Instance.ID))
	})
	var out []Drifted
	for _, w := range workers {
		d := Drifted{InstanceID: w.Instance.ID, Why: expired(p, o, w.Instance, now)}
		d.Expired = d.Why != ""
		if d.Why = cmp.Or(d.Why, drift(p, o, w.Instance)); d.Why != "" {
			out = append(out, d)
		}
	}
	return out
}

// replaced lists those that are replaced: whether drift is and whether age is are two settings.
func replaced(p Policy, o Observation, now time.Time) []Drifted {
	all := DriftedWorkers(p, o, now)
	return slices.DeleteFunc(all, func(d Drifted) bool { return !d.Expired && !p.Drift })
}

// expired says that an instance is too old, "" if it is not.
func expired(p Policy, o Observation, in Instance, now time.Time) string {
	_, told := o.TemplateHashes[p.PoolOf(in.Pool)]
	age := now.Sub(in.LaunchedAt)
	if p.ExpireAfter == 0 || !in.Alive() || in.ControlPlane || !told || in.LaunchedAt.IsZero() || age < p.ExpireAfter {
		return ""
	}
	return fmt.Sprintf("it was launched %s ago, and EXPIRE_AFTER_SEC is %d", age.Truncate(time.Minute), int64(p.ExpireAfter/time.Second))
}

// drift says how an instance differs from what would be launched now, "" if it doesn't.
func drift(p Policy, o Observation, in Instance) string {
	name := p.PoolOf(in.Pool)
	now, told := o.TemplateHashes[name] // there is none of "" where there are pools
	if !in.Alive() || in.ControlPlane || in.TemplateHash == "" || !told {
		return ""
	}
	types := p.InstanceTypes
	if pool, _ := p.PoolNamed(name); len(pool.InstanceTypes) > 0 {
		types = pool.InstanceTypes
	}
	switch {
	case in.TemplateHash != now:
		return fmt.Sprintf("its template, labels or taints have changed (hash %s, of new nodes %s)", in.TemplateHash, now)
	case !slices.Contains(types, in.Type):
		return "its type " + in.Type + " is not offered any more"
	}
	return ""
}

// driftGates are those of the replacement of a drifted worker: a scale-up by one node, whose end opens the scale-down of the worker, or
// that scale-down at once if an earlier replacement has come to nothing and its node is there.
func driftGates(g *gates, in inputs, d Decider) (verdict, merger) {
	if !in.p.Drift && in.p.ExpireAfter == 0 {
		return verdict{}, merger{}
	}
	drifted := replaced(in.p, in.o, in.now)
	v := verdict{wanted: g.add("drift.workers", len(drifted), 1, len(drifted) > 0)}
	disruptionGates(g, "drift", in, &v)
	if v.detail == "" && len(drifted) > 0 {
		v.detail = fmt.Sprintf("%s drifted or expired, %s first", quantity.Of(len(drifted), "worker"), drifted[0].InstanceID)
	}
	if !v.wanted || v.blocker != "" || !in.o.FleetKnown {
		return v, merger{}
	}

	r := driftReplacer{consolidator: newConsolidator(in, d), drifted: drifted}
	found, reason, why := r.choose()
	v.action = ScaleUp
	if len(found.targets) > 0 {
		v.action = ScaleDown
	}
	v.need(g.add("drift.target", cmp.Or(found.why, why), "a drifted worker that can be replaced", found.why != ""), reason, why)
	v.holds = v.blocker == ""
	return v, found
}

// driftReplacer chooses the drifted worker to be replaced and what replaces it.
type driftReplacer struct {
	*consolidator
	drifted []Drifted
}

// choose returns what to do about the first drifted worker that can go. If none can, it says why.
func (r driftReplacer) choose() (found merger, reason Reason, why string) {
	var obstacles []string
	reason = ReasonNoTarget
	looked := 0
	for _, x := range r.drifted {
		i := slices.IndexFunc(r.cands, func(t thrifty) bool { return t.Instance.ID == x.InstanceID })
		if i < 0 {
			obstacles = append(obstacles, x.InstanceID+": "+r.unremovable(x.InstanceID))
			continue
		}
		if looked++; looked > mostAppraised {
			break
		}
		found, because, obstacle := r.replacement(r.cands[i], x.Why)
		if obstacle == "" {
			return found, "", ""
		}
		obstacles = append(obstacles, x.InstanceID+": "+obstacle)
		reason = cmp.Or(because, reason)
	}
	more := ""
	if n := len(obstacles) - mostCauses; n > 0 {
		obstacles, more = obstacles[:mostCauses], fmt.Sprintf("; and %d more", n)
	}
	return merger{}, reason, strings.Join(obstacles, "; ") + more
}

// unremovable says why a worker is no candidate.
func (r driftReplacer) unremovable(id string) string {
	i := slices.IndexFunc(r.in.o.Fleet, func(w Worker) bool { return w.Instance.ID == id })
	return unremovable(r.in.o.Fleet[i], r.in.o, r.in.r, r.in.now)
}

// replacement returns what to do about one worker: a node of its own zone and pool, of its own type if that is still offered.
func (r driftReplacer) replacement(t thrifty, drift string) (found merger, reason Reason, obstacle string) {
	fits := fleetKeeping(r.d.Fitter, r.consolidator.available(), r.in.kept).Without(t.Node, t.Node.Pods) == ""
	if fits && r.again(t) {
		target := Target{InstanceID: t.Instance.ID, Node: t.Node.NodeRef, Zone: t.Instance.Zone, Why: drift}
		return merger{targets: []Target{target}, why: t.Instance.ID + ": " + drift + "; its pods fit on the others since an earlier replacement"}, "", ""
	}

	if r.in.occupied >= r.in.p.MaxWorkers {
		return found, ReasonMaxWorkers, "a replacement has no room beside it; raise MAX_WORKERS by one"
	}
	if !r.launchable(t.Instance.Zone) {
		return found, "", "no subnet in zone " + t.Instance.Zone
	}
	question, may := r.inPool(r.question(t.Worker), t.Instance.Pool)
	if !may {
		return found, ReasonPoolLimit, "pool " + r.in.p.PoolOf(t.Instance.Pool) + " may launch nothing in zone " + t.Instance.Zone + "; see its gate"
	}
	want, ok := r.want(t, question, fits)
	if !ok {
		return found, "", "no node that is launched now would take its pods"
	}
	return merger{by: &want, pool: question.Policy.Pool, replaced: &Target{InstanceID: t.Instance.ID}, why: t.Instance.ID + ": " + drift}, "", ""
}

// want returns the node to launch. Whether it takes the pods, together with the others, is asked before it is launched, because new
// labels, taints or types may keep them away; and again once it is Ready, see exchange.
func (r driftReplacer) want(t thrifty, q Question, fits bool) (Want, bool) {
	want := Want{Zones: []string{t.Instance.Zone}}
	own := slices.Contains(q.Policy.InstanceTypes, t.Instance.Type)
	if own {
		want.Types = []string{t.Instance.Type}
	}
	if fits || r.d.Appraiser == nil {
		return want, true
	}
	if own {
		narrow := q
		narrow.Policy.InstanceTypes = want.Types
		if _, ok := r.d.Appraiser.Cheaper(narrow, math.Inf(1)); ok {
			return want, true
		}
	}
	found, ok := r.d.Appraiser.Cheaper(q, math.Inf(1))
	want.Types = found.Want.Types
	return want, ok
}

// again reports whether a replacement of a worker has failed after its launch and the worker can go without another. The node that was
// launched for it is still there then; without this, every further try would leave one node more.
func (r driftReplacer) again(t thrifty) bool {
	failed := slices.ContainsFunc(r.in.r.SkipList, func(s Skip) bool { return s.InstanceID == t.Instance.ID && s.Cause != causeNothingLaunched })
	return failed && r.in.available > r.in.p.MinWorkers && !r.lastOfZone(t.Worker) && !r.busyAfter(-t.Node.Allocatable.MilliCPU)
}
