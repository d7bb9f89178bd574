package console

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/muster-dev/muster/internal/quantity"
	"github.com/muster-dev/muster/nodes"
	"github.com/muster-dev/muster/nodes/explain"
)

// metricsMissing is the reason of a decision that waits for metrics.
const metricsMissing = string(nodes.ReasonMetricsMissing)

// Pricer tells what an instance costs in US dollars an hour; false if that is not known.
type Pricer func(instanceType string, market nodes.Market) (float64, bool)

// NodePlaneOf turns what the node plane saw and decided into what the page shows. price may be nil.
func NodePlaneOf(s nodes.Snapshot, price Pricer) NodePlane {
	v := NodePlane{At: s.Now, Min: s.Policy.MinWorkers, Max: s.Policy.MaxWorkers, Nodes: []Node{}, Pools: poolsOf(s), Pending: []PendingPod{}, Interruptions: []Interruption{},
		Decision: decisionOf(s), Actions: actionsOf(s)}
	if len(v.Actions) > 0 {
		v.Action = &v.Actions[0]
	}
	if !s.Observation.FleetKnown {
		v.Error = s.Observation.FleetWhy
	}
	if r := s.Record; r.Paused() {
		v.Paused = &Pause{Since: time.Unix(r.PausedSinceEpoch, 0).UTC(), By: r.PausedBy, Reason: r.PauseReason}
	}
	if r := s.Observation.Readings.CPU; r.Known {
		v.CPU = &r.Value
	}
	for _, p := range s.Observation.Pending {
		v.Pending = append(v.Pending, PendingPod{Name: p.Name, Count: p.N(), MilliCPU: p.Requests.MilliCPU, Memory: p.Requests.Memory, NeverFit: p.NeverFit})
	}
	interrupted := map[string]nodes.Interruption{}
	for _, i := range s.Observation.Interruptions {
		if !i.Closed {
			interrupted[i.InstanceID] = i
			v.Interruptions = append(v.Interruptions, interruptionOf(i))
		}
	}
	var cost float64
	priced := false
	for _, w := range s.Observation.Fleet {
		if w.Instance.State == nodes.StateTerminated && w.Node == nil {
			continue
		}
		n := nodeOf(w, s.Record, interrupted)
		n.Pool = s.Policy.PoolOf(w.Instance.Pool)
		if f := s.Observation.Fault(n.Instance); f.Name != "" {
			n.Fault, n.FaultSeen, n.FaultFix = string(f.Name), f.Saw, f.Name.Fix()
		}
		if price != nil && w.Instance.Alive() {
			if c, ok := price(n.Type, nodes.Market(n.Market)); ok {
				n.CostHour = c
				cost += c
				priced = true
			}
		}
		v.Nodes = append(v.Nodes, n)
	}
	chosen(v.Nodes, s.Decision)
	if priced {
		v.CostPerHour = &cost
	}
	slices.SortStableFunc(v.Nodes, func(a, b Node) int {
		return cmp.Or(cmp.Compare(a.Zone, b.Zone), a.Launched.Compare(b.Launched), cmp.Compare(a.Instance, b.Instance))
	})
	return v
}

// chosen says of each node whether a scale-down would take it, by the last decision. A decision that doesn't scale down names only
// the nodes that it passed over: the others would go.
func chosen(list []Node, d nodes.Decision) {
	stays := map[string]string{}
	for _, p := range d.Passed {
		stays[p.InstanceID] = p.Why
	}
	looked := len(d.Passed)+len(d.Targets) > 0
	for i := range list {
		why, passed := stays[list[i].Instance]
		list[i].Stays = why
		list[i].Goes = looked && !passed && list[i].State != NodeLost && list[i].State != NodeTerminating
	}
}

// Foresee adds to the decision what would have to happen for an action to begin.
func (v *NodePlane) Foresee(o explain.Outlook) {
	if v.Decision == nil {
		return
	}
	d := *v.Decision
	if o.Then != nil {
		what := quantity.Of(o.Then.Decision.Nodes, "node") + " launched"
		if o.Then.Decision.Action == nodes.ScaleDown {
			what = quantity.Of(len(o.Then.Decision.Targets), "node") + " removed"
		}
		d.Then = what + " at " + o.Then.At.UTC().Format("15:04:05") + " UTC"
	}
	for _, p := range o.Paths {
		path := Path{Name: p.Name, Earliest: p.Earliest, Needs: []string{}}
		for _, n := range p.Needs {
			path.Needs = append(path.Needs, n.What)
		}
		d.Next = append(d.Next, path)
	}
	v.Decision = &d
}

func decisionOf(s nodes.Snapshot) *Decision {
	if s.Decision.Action == "" {
		return nil
	}
	d := &Decision{At: s.Now, Action: string(s.Decision.Action), Reason: string(s.Decision.Reason), Means: explain.Meaning(s.Decision.Reason), Detail: s.Decision.Detail, Gates: []Gate{}}
	for _, g := range s.Decision.Gates {
		d.Gates = append(d.Gates, Gate{Name: g.Name, Value: g.Value, Threshold: g.Threshold, Passed: g.Passed})
	}
	return d
}

func nodeOf(w nodes.Worker, r nodes.Record, interrupted map[string]nodes.Interruption) Node {
	in := w.Instance
	n := Node{Instance: in.ID, Zone: in.Zone, Type: in.Type, Market: string(in.Market), Launched: in.LaunchedAt, State: NodeLaunching}
	if w.Node != nil {
		n.Name, n.Room, n.Protected = w.Node.Name, w.Node.Allocatable.Pods, w.Node.Keep
		n.Pods = w.Node.Daemon.Pods
		for _, p := range w.Node.Pods {
			n.Pods += p.N()
		}
		n.Note = w.Node.Blocker
	}
	i, taken := interrupted[in.ID]
	if taken && i.DeadlineEpoch > 0 {
		n.Deadline = time.Unix(i.DeadlineEpoch, 0).UTC()
	}
	removal, leaving := r.Removal(in.ID)
	switch {
	case !in.Alive() && w.Node != nil:
		n.State = NodeLost
	case !in.Alive() || leaving && removal.Phase == nodes.PhaseTerminating:
		n.State = NodeTerminating
	case taken:
		n.State = NodeInterrupted
	case leaving || r.Targets(in.ID):
		n.State = NodeDraining
	case w.Node == nil:
	case !w.Node.Ready:
		n.State = NodeNotReady
	case w.Node.Unschedulable:
		n.State = NodeCordoned
	default:
		n.State = NodeReady
	}
	return n
}

// actionsOf shows the open actions as the transactions they are: what has been made durable is done, what comes next is now.
func actionsOf(s nodes.Snapshot) []Action {
	ready := map[string]bool{}
	for _, w := range s.Observation.Fleet {
		ready[w.Instance.ID] = w.Instance.Alive() && w.Node != nil && w.Node.Ready
	}
	var out []Action
	for _, a := range s.Record.Actions() {
		r := s.Record.Of(a.ID())
		if a.Up() {
			out = append(out, *scaleUpOf(r, s.Policy, ready))
		} else {
			out = append(out, *scaleDownOf(r, s.Policy))
		}
	}
	return out
}

func scaleUpOf(r nodes.Record, p nodes.Policy, ready map[string]bool) *Action {
	launched, joined := len(r.ScaleUpInstanceIDs), 0
	for _, id := range r.ScaleUpInstanceIDs {
		if ready[id] {
			joined++
		}
	}
	started := time.Unix(r.ScaleUpStartedEpoch, 0).UTC()
	launch := Phase{Name: "launch", State: progress(launched, r.ScaleUpRequested, true), Detail: fmt.Sprintf("%d of %d", launched, r.ScaleUpRequested)}
	if i := r.ScaleUpIntent; i != nil {
		o := i.Request.Offering
		launch.Detail += fmt.Sprintf(", now %s %s in %s, attempt %d", o.Market, o.Type, o.Zone, i.Attempt+1)
	}
	verify := Phase{Name: "verify: joined and Ready", State: progress(joined, r.ScaleUpRequested, launch.State == "done"), Detail: fmt.Sprintf("%d of %d", joined, r.ScaleUpRequested)}
	return &Action{ID: r.ScaleUpActionID, Kind: "scale-up", Started: started, Until: started.Add(p.JoinTimeout), Phases: []Phase{
		{Name: "begin", State: "done", Detail: fmt.Sprintf("%d requested", r.ScaleUpRequested)}, launch, verify,
		{Name: "complete", State: progress(0, 1, verify.State == "done")}}}
}

func scaleDownOf(r nodes.Record, p nodes.Policy) *Action {
	started := time.Unix(r.ScaleDownStartedEpoch, 0).UTC()
	a := &Action{ID: r.ScaleDownActionID, Kind: "scale-down", Started: started, Until: started.Add(p.ScaleDownStuck),
		Phases: []Phase{{Name: "plan", State: "done", Detail: fmt.Sprintf("%d to remove", len(r.ScaleDownTargetInstanceIDs))}}}
	busy := false
	for _, id := range r.ScaleDownTargetInstanceIDs {
		ph := Phase{Name: id, State: "todo"}
		m, going := r.Removal(id)
		switch {
		case slices.Contains(r.ScaleDownCompletedInstanceIDs, id):
			ph.State, ph.Detail = "done", "drained, marked, terminated, Node object deleted"
		case going && m.Phase == nodes.PhaseTerminating:
			ph.State, ph.Detail, busy = "now", "marked TERMINATING, being terminated", true
		case going:
			ph.State, ph.Detail, busy = "now", "draining since "+time.Unix(m.DrainedSince, 0).UTC().Format("15:04:05")+" UTC", true
		case !busy:
			ph.State, busy = "now", true
		}
		a.Phases = append(a.Phases, ph)
	}
	a.Phases = append(a.Phases, Phase{Name: "complete", State: progress(0, 1, !busy)})
	return a
}

func interruptionOf(i nodes.Interruption) Interruption {
	v := Interruption{Instance: i.InstanceID, Kind: string(i.Kind), Opened: time.Unix(i.OpenedEpoch, 0).UTC(), Replacement: i.ReplacementID}
	if i.DeadlineEpoch > 0 {
		v.Deadline = time.Unix(i.DeadlineEpoch, 0).UTC()
	}
	hand := Phase{Name: "workers told to hand off", State: progress(0, 1, true)}
	if i.WorkersDrained {
		hand.State = "done"
	}
	replace := Phase{Name: "replacement", State: "now"}
	switch {
	case i.Replace == nodes.ReplaceNo:
		replace.State, replace.Detail = "done", "none needed"
	case i.LaunchFailed != "":
		replace.State, replace.Detail = "failed", i.LaunchFailed
	case i.Verified:
		replace.State, replace.Detail = "done", i.ReplacementID+" is Ready"
	case i.ReplacementID != "":
		replace.Detail = i.ReplacementID + " launched, not Ready yet"
	}
	drain := Phase{Name: "drain", State: "todo"}
	switch {
	case i.Drained:
		drain.State = "done"
	case i.DrainFailed != "":
		drain.State, drain.Detail = "failed", i.DrainFailed
	case i.DrainSince > 0:
		drain.State, drain.Detail = "now", "since "+time.Unix(i.DrainSince, 0).UTC().Format("15:04:05")+" UTC"
	}
	v.Phases = []Phase{hand, replace, drain}
	if i.Marked {
		v.Phases = append(v.Phases, Phase{Name: "terminate", State: "now"})
	}
	return v
}

// progress is the state of a phase that has done n of all, if it may begin.
func progress(n, all int, may bool) string {
	switch {
	case n >= all:
		return "done"
	case may:
		return "now"
	}
	return "todo"
}

// MomentOf turns a logged event into a moment of the timeline.
func MomentOf(e nodes.Event) Moment {
	m := Moment{At: e.At, Plane: "nodes", Kind: e.Kind, Subject: cmp.Or(e.Instance, e.ActionID), Text: e.Message}
	if e.Instance != "" {
		m.Text = e.Instance + ": " + m.Text
	}
	switch e.Kind {
	case "error":
		m.Level = "bad"
	case "scaleUp.completed", "scaleDown.completed", "scaling.resumed":
		m.Level = "good"
	case "scaleUp.failed", "scaleDown.failed", "scaleDown.cancelled", "scaling.paused", "scaling.held":
		m.Level = "warn"
	}
	return m
}

// SetScaling carries out PauseScaling and ResumeScaling as muster nodes pause and resume do. Its error matches [ErrDoneAlready] if it was
// so before.
func SetScaling(ctx context.Context, scaling nodes.Switch, cmd Command) error {
	by := cmp.Or(cmd.By, "console")
	if cmd.Name == PauseScaling {
		r, changed, err := scaling.Pause(ctx, by, cmd.Reason)
		if err == nil && !changed {
			return fmt.Errorf("%w: scaling was paused by %s (%s)", ErrDoneAlready, r.PausedBy, r.PauseReason)
		}
		return err
	}
	_, changed, err := scaling.Resume(ctx, by, cmd.Reason)
	if err == nil && !changed {
		return fmt.Errorf("%w: scaling is not paused", ErrDoneAlready)
	}
	return err
}
