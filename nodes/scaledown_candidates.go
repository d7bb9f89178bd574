package nodes

import (
	"cmp"
	"fmt"
	"slices"
	"time"
)

// Target is a worker chosen for removal.
type Target struct {
	InstanceID string  `json:"instanceId"`
	Node       NodeRef `json:"node"`
	Zone       string  `json:"zone"`
	Why        string  `json:"why,omitempty"` // it goes before the others that could go, for people
}

// Passed is a worker that was not chosen, and why.
type Passed struct {
	InstanceID string `json:"instanceId"`
	Why        string `json:"why"`
	PodsStay   bool   `json:"podsStay,omitempty"` // because the remaining workers can't take its pods
}

// selectTargets chooses up to n workers for removal, in the order in which they go, and says of every other
// why it was passed over. Each comes from the zone with most workers at that point, the oldest of the zone
// first, at equal age the one that costs the worker plane least. What one action launched is of equal age,
// that of the first of it, although the seconds differ in which the cloud took the requests. A zone is never
// emptied while there are several, unless EMPTY_ZONES says so, and no worker is chosen that could not be drained, or whose pods the
// remaining workers can't take.
func selectTargets(p Policy, o Observation, r Record, fit Fitter, n int, now time.Time) ([]Target, []Passed) {
	var candidates []candidate
	var passed, gone []Passed
	var remaining []*Node
	for _, w := range o.Fleet {
		switch why := unremovable(w, o, r, now); {
		case why == "":
			candidates = append(candidates, candidate{Worker: w, place: len(candidates)})
		case w.Instance.Gone(): // listed last: the cloud shows it for an hour
			gone = append(gone, Passed{InstanceID: w.Instance.ID, Why: why})
		default:
			passed = append(passed, Passed{InstanceID: w.Instance.ID, Why: why})
		}
		if w.Available() {
			remaining = append(remaining, w.Node)
		}
	}
	var chosen []Target
	var leaving []Pod
	zones := count(o).zones
	keepZones := len(zones) > 1 && !p.EmptyZones
	fleet := fleetOf(fit, remaining)
	next := succession{zones: zones, launched: launches(o.Fleet), costs: o.Costs}
	// The order changes only when one is chosen, so candidates are sorted once and after each choice, and not
	// searched for each.
	next.sort(candidates)
	for len(chosen) < n && len(candidates) > 0 {
		w := candidates[0].Worker
		candidates = candidates[1:]
		if keepZones && zones[w.Instance.Zone] <= 1 {
			why := fmt.Sprintf("last worker of zone %s (EMPTY_ZONES=false)", w.Instance.Zone)
			passed = append(passed, Passed{InstanceID: w.Instance.ID, Why: why})
			continue
		}
		// Together with the pods of those chosen before: two targets must not both count on the same room.
		together := append(leaving[:len(leaving):len(leaving)], w.Node.Pods...)
		if why := fleet.Without(w.Node, together); why != "" {
			passed = append(passed, Passed{InstanceID: w.Instance.ID, Why: why, PodsStay: true})
			continue
		}
		why := next.why(w, candidates)
		fleet.Remove(w.Node)
		leaving = together
		zones[w.Instance.Zone]--
		chosen = append(chosen, Target{
			InstanceID: w.Instance.ID,
			Node:       w.Node.NodeRef,
			Zone:       w.Instance.Zone,
			Why:        why,
		})
		next.sort(candidates)
	}
	slices.SortFunc(candidates, func(a, b candidate) int { return cmp.Compare(a.place, b.place) })
	for _, w := range candidates {
		passed = append(passed, Passed{InstanceID: w.Instance.ID, Why: "others go first"})
	}
	return chosen, append(passed, gone...)
}

// unremovable says why a worker is not a candidate, "" if it is one.
func unremovable(w Worker, o Observation, r Record, now time.Time) string {
	switch {
	case w.Instance.ControlPlane || w.Node != nil && w.Node.ControlPlane:
		return "control plane"
	case w.Instance.State != StateRunning:
		return "instance is " + string(w.Instance.State)
	case w.Node == nil:
		return "has no node"
	}
	if why := undrainable(w.Node); why != "" {
		return why
	}
	if s, ok := r.Skipped(w.Instance.ID, now); ok {
		return "skipped after a failed drain: " + s.Cause
	}
	if _, ok := r.Removal(w.Instance.ID); ok {
		return "already being removed"
	}
	for _, i := range o.Interruptions {
		if i.InstanceID == w.Instance.ID {
			return "interrupted"
		}
		if i.ReplacementID == w.Instance.ID {
			return "an open replacement"
		}
	}
	return ""
}

// undrainable says why a node should not be drained now, "" if it can be.
func undrainable(n *Node) string {
	switch {
	case !n.Ready:
		return "node is not Ready"
	case n.ToBeDeleted:
		return "node is cordoned and marked as to be deleted"
	case n.Unschedulable:
		return "node is cordoned"
	case n.Keep:
		return "annotated against scale-down"
	}
	return n.Blocker
}

// succession is the order in which workers go.
type succession struct {
	zones    map[string]int       // workers in each, as long as those chosen are not taken off
	launched map[string]time.Time // by instance ID
	costs    map[string]float64   // by node name
}

// candidate is a worker that may go, with what decides when.
type candidate struct {
	Worker
	place    int // in the fleet
	inZone   int
	launched time.Time
	cost     float64
}

// compareCandidates orders two workers, the one that is drained first being less, and reports by what.
func compareCandidates(a, b candidate) (order int, by string) {
	if order = cmp.Compare(b.inZone, a.inZone); order != 0 { // fuller zone first
		return order, "zone"
	}
	if order = a.launched.Compare(b.launched); order != 0 { // then older
		return order, "age"
	}
	if order = cmp.Compare(a.cost, b.cost); order != 0 { // then cheaper
		return order, "cost"
	}
	return cmp.Or(cmp.Compare(a.Instance.Zone, b.Instance.Zone), cmp.Compare(a.Instance.ID, b.Instance.ID)), "name"
}

// weigh looks up what decides about a worker.
func (s succession) weigh(c candidate) candidate {
	c.inZone, c.launched, c.cost = s.zones[c.Instance.Zone], s.launched[c.Instance.ID], s.costs[c.Node.Name]
	return c
}

// sort puts the worker that goes first at the front.
func (s succession) sort(cs []candidate) {
	for i := range cs {
		cs[i] = s.weigh(cs[i])
	}
	slices.SortStableFunc(cs, func(a, b candidate) int { order, _ := compareCandidates(a, b); return order })
}

// why tells by what a worker goes before the one that would go next, the first of the others in their order;
// "" if there is none.
func (s succession) why(w Worker, others []candidate) string {
	if len(others) == 0 {
		return ""
	}
	next := others[0]
	switch _, by := compareCandidates(s.weigh(candidate{Worker: w}), next); by {
	case "zone":
		return fmt.Sprintf("zone %s has %d workers, %s has %d", w.Instance.Zone, s.zones[w.Instance.Zone], next.Instance.Zone, s.zones[next.Instance.Zone])
	case "age":
		return "older than " + next.Instance.ID
	case "cost":
		return fmt.Sprintf("as old as %s, and costs the workers %s, not %s", next.Instance.ID, text(s.costs[w.Node.Name]), text(s.costs[next.Node.Name]))
	}
	return fmt.Sprintf("as old as %s, and costs the workers as much, %s", next.Instance.ID, text(s.costs[w.Node.Name]))
}

// launches tells when each worker was launched, those of one action together.
func launches(fleet []Worker) map[string]time.Time {
	first := map[string]time.Time{} // by action
	for _, w := range fleet {
		if at, ok := first[w.Instance.ActionID]; !ok || w.Instance.LaunchedAt.Before(at) {
			first[w.Instance.ActionID] = w.Instance.LaunchedAt
		}
	}
	out := make(map[string]time.Time, len(fleet))
	for _, w := range fleet {
		out[w.Instance.ID] = w.Instance.LaunchedAt
		if w.Instance.ActionID != "" {
			out[w.Instance.ID] = first[w.Instance.ActionID]
		}
	}
	return out
}
