package explain

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/muster-dev/muster/internal/quantity"
	"github.com/muster-dev/muster/nodes"
)

// Waiting says of the pods that wait for a node why they do and what will happen, as one notice for those of which the same is true. d
// decides as the snapshot's decision was made. The texts name moments, not how much time is left, so that they stay the same from one
// tick to the next while nothing changes.
func Waiting(d nodes.Decider, s nodes.Snapshot) []nodes.PodNotice {
	if len(s.Observation.Pending) == 0 {
		return nil
	}
	d.Policy = s.Policy
	w := &waitingRoom{Snapshot: s, decider: d, screened: map[string][]nodes.Pod{}}
	w.coming = nodes.Arriving(s.Policy, s.Observation, s.Now)
	var out []nodes.PodNotice
	for k, pod := range s.Observation.Pending {
		n := w.notice(k, pod)
		n.Pods = pod.Each
		out = append(out, n)
	}
	return out
}

// waitingRoom is what is known when pods are told something.
type waitingRoom struct {
	nodes.Snapshot
	decider  nodes.Decider
	coming   []nodes.Arrival
	screened map[string][]nodes.Pod // what each pool's nodes would run, by pool, once it was asked for
	held     *nodes.PodNotice       // why nothing is launched now, for every pod that no other reason has; once it was asked for
}

// notice says what is true of one kind of pods, the kth that waits.
func (w *waitingRoom) notice(k int, pod nodes.Pod) nodes.PodNotice {
	if pod.NeverFit != "" {
		return nodes.PodNotice{Cause: nodes.ReasonNeverFit, Forever: true,
			Text: "no node that can be launched would run it: " + pod.NeverFit + "; it waits until the pod or Muster's settings change"}
	}
	if w.Decision.Action == nodes.ScaleUp {
		return w.launching(k)
	}
	on := w.onTheirWay(k)
	if w.Decision.Reason == nodes.ReasonRoomExists {
		if on == "" { // by the sizing; the scheduler may see it otherwise
			return nodes.PodNotice{Cause: w.Decision.Reason, Text: "no node is launched now, because there should be room for it: " + w.Decision.Detail + "; if it still waits then, a node is launched for it"}
		}
		return nodes.PodNotice{Cause: w.Decision.Reason, Launch: true, Text: "there is room for it on nodes that are on their way: " + on}
	}
	n := w.nothing()
	if on != "" {
		n.Text += "; on their way are " + on
	}
	return n
}

// launching is what is told while nodes are launched.
func (w *waitingRoom) launching(k int) nodes.PodNotice {
	d := w.Decision
	if why := w.never(d.Pool, k); why != "" {
		return nodes.PodNotice{Cause: nodes.ReasonInProgress, Text: fmt.Sprintf(
			"the nodes that are launched now, in pool %s, would not run it: %s; the other pools have their turn afterwards", d.Pool, why)}
	}
	text := fmt.Sprintf("%s launched%s", ifThen(d.Nodes == 1, "1 node is", fmt.Sprintf("%d nodes are", d.Nodes)), prefixed(" in pool ", d.Pool))
	if d.Reason != nodes.ReasonTriggered {
		text += " (" + string(d.Reason) + ")"
	}
	text += fmt.Sprintf("; a node that has not joined %s after its launch is replaced (JOIN_TIMEOUT_SEC)", Duration(w.Policy.JoinTimeout))
	return nodes.PodNotice{Cause: nodes.ReasonTriggered, Launch: true, Text: text}
}

// onTheirWay lists the nodes on their way that would run the kth pod, "" if there are none.
func (w *waitingRoom) onTheirWay(k int) string {
	const most = 3
	var out []string
	more := 0
	for _, a := range w.coming {
		pool := w.Policy.PoolOf(a.Pool)
		if w.never(pool, k) != "" {
			continue
		}
		if len(out) == most {
			more++
			continue
		}
		text := fmt.Sprintf("%s (%s in %s%s)", cmp.Or(a.ID, "one"), a.Type, a.Zone, prefixed(", pool ", pool))
		if !a.LaunchedAt.IsZero() {
			text += ", launched at " + clock(a.LaunchedAt, w.Now) + " UTC"
		}
		out = append(out, text)
	}
	if more > 0 {
		out = append(out, fmt.Sprintf("and %d more", more))
	}
	return strings.Join(out, "; ")
}

// never says why nodes of a pool would not run the kth pod, "" if they would or without pools.
func (w *waitingRoom) never(pool string, k int) string {
	s, ok := w.decider.Sizer.(nodes.PoolSizer)
	p, known := w.Policy.PoolNamed(pool)
	if !ok || !known {
		return ""
	}
	if _, asked := w.screened[pool]; !asked {
		o, reach := w.Observation.InPool(p)
		w.screened[pool] = slices.Clone(o.Pending)
		if reach {
			w.screened[pool] = s.Screen(w.Policy.In(pool), o)
		}
	}
	return w.screened[pool][k].NeverFit
}

// nothing is what is told while no node is launched.
func (w *waitingRoom) nothing() nodes.PodNotice {
	if w.held != nil {
		return *w.held
	}
	d := w.Decision
	why, passes := w.obstacles()
	if why == "" || slices.Contains(detailed, d.Reason) {
		why = cmp.Or(d.Detail, why)
	}
	n := nodes.PodNotice{Cause: d.Reason, Text: "no node is launched now (" + string(d.Reason) + ")" + prefixed(": ", why)}
	then := first(w.decider, w.Snapshot, func(dec nodes.Decision) bool {
		return dec.Action == nodes.ScaleUp && dec.Reason != nodes.ReasonHeadroom
	})
	switch {
	case w.Record.ScalingInProgress || len(d.Cancel) > 0: // what comes after an action depends on how it goes
	case then != nil:
		n.Text += "; if nothing changes, a node is launched at " + clock(then.At, w.Now) + " UTC"
	case passes: // and what is decided then is not known yet
	default:
		n.Forever = true
		n.Text += "; no node is launched until that changes"
	}
	w.held = &n
	return n
}

// detailed are the reasons whose details say more than the gates do.
var detailed = []nodes.Reason{nodes.ReasonNoNodeHelps, nodes.ReasonPoolLimit, nodes.ReasonBackoff, nodes.ReasonMetricsMissing, nodes.ReasonFleetUnknown}

// obstacles lists the gates that keep a scale-up for pending pods from being begun, and says whether time alone opens one of them.
func (w *waitingRoom) obstacles() (text string, passes bool) {
	var out []string
	waits := false
	for _, n := range needs(w.Snapshot, "up") {
		byCPU := strings.HasPrefix(n.Gate, "up.cpu")
		if (n.Gate == "up.trigger" || byCPU) && w.Policy.Trigger != nodes.TriggerAll {
			continue // pods alone suffice
		}
		if n.Gate == "up.pending-sustained" && waits {
			continue // which the wait is for
		}
		waits = waits || n.Gate == "up.pending-since"
		passes = passes || !n.When.IsZero()
		what := n.What
		if settled := w.lasting(n); settled != "" {
			what = settled
		}
		out = append(out, what)
	}
	return strings.Join(out, "; "), passes
}

// lasting is what time alone ends, said without how much of it is left.
func (w *waitingRoom) lasting(n Need) string {
	var what string
	switch n.Gate {
	case "up.pending":
		return "the metrics do not show it as pending yet"
	case "up.pending-since":
		what = fmt.Sprintf("pods have to be pending for %s (PENDING_UP_SEC)", Duration(w.Policy.PendingUpFor))
	case "up.cooldown":
		what = fmt.Sprintf("the cooldown of %s since the last action (COOLDOWN_UP_SEC)", Duration(w.Policy.CooldownUp))
	case "up.backoff":
		what = "the back-off after " + quantity.Of(w.Record.ScaleUpFailures, "failure")
	default:
		return ""
	}
	if n.When.IsZero() {
		return what
	}
	return what + ", until " + clock(n.When, w.Now) + " UTC"
}

// PoolStatuses says how the pools stand. A policy without pools has one kind of nodes, which is shown as the pool named default.
func PoolStatuses(d nodes.Decider, s nodes.Snapshot) []nodes.PoolStatus {
	d.Policy = s.Policy
	uses := nodes.PoolUses(s.Policy, s.Observation, s.Record, sizeOf(d))
	var out []nodes.PoolStatus
	for _, pool := range s.Policy.Pools {
		x := nodes.PoolStatus{Name: pool.Name, Nodes: uses[pool.Name].Nodes, Spot: uses[pool.Name].Spot, Limits: pool.Limits.String(), Launch: poolLaunch(s, pool.Name)}
		out = append(out, counted(s, x, pool.Name))
	}
	if len(s.Policy.Pools) == 0 {
		x := nodes.PoolStatus{Name: nodes.DefaultPool, Limits: quantity.Of(s.Policy.MaxWorkers, "node"), Launch: launchNow(s)}
		for _, w := range s.Observation.Fleet {
			if w.Instance.Alive() {
				x.Nodes++
			}
			if w.Instance.Alive() && w.Instance.Market == nodes.Spot {
				x.Spot++
			}
		}
		x.Nodes += len(s.Observation.Launched)
		out = append(out, counted(s, x, ""))
	}
	return out
}

// sizeOf tells what a type has; nil if that is not known.
func sizeOf(d nodes.Decider) func(string) (nodes.Resources, bool) {
	if s, ok := d.Sizer.(nodes.PoolSizer); ok {
		return s.Size
	}
	return nil
}

// counted adds what the workers of a pool are and have.
func counted(s nodes.Snapshot, x nodes.PoolStatus, pool string) nodes.PoolStatus {
	var memory int64
	for _, w := range s.Observation.Fleet {
		if s.Policy.PoolOf(w.Instance.Pool) != pool || !w.Instance.Alive() {
			continue
		}
		switch {
		case w.Available():
			x.Ready++
		case w.Node == nil:
			x.Joining++
		}
		if w.Node != nil {
			x.CPU += w.Node.Allocatable.MilliCPU
			memory += w.Node.Allocatable.Memory
		}
	}
	for _, in := range s.Observation.Launched {
		if s.Policy.PoolOf(in.Pool) == pool {
			x.Joining++
		}
	}
	x.CPU = (x.CPU + 999) / 1000
	x.Memory = fmt.Sprintf("%dMi", memory>>20)
	return x
}

// launchNow is "yes", or why no node of any kind is launched now, whatever is asked for.
func launchNow(s nodes.Snapshot) string {
	r := s.Record
	for _, g := range s.Decision.Gates {
		if g.Name == "up.max-workers" && !g.Passed {
			return fmt.Sprintf("no: MAX_WORKERS is %d", s.Policy.MaxWorkers)
		}
	}
	switch {
	case r.Paused():
		return "no: paused"
	case s.Now.Before(time.Unix(r.BackoffUntilEpoch, 0)):
		return backedOff(s, r.ScaleUpFailures, r.BackoffUntilEpoch)
	}
	return "yes"
}

// poolLaunch is launchNow of one pool.
func poolLaunch(s nodes.Snapshot, name string) string {
	if now := launchNow(s); now != "yes" {
		return now
	}
	kept := s.Record.PoolState(name)
	if s.Now.Before(time.Unix(kept.BackoffUntilEpoch, 0)) {
		return backedOff(s, kept.ScaleUpFailures, kept.BackoffUntilEpoch)
	}
	for _, g := range s.Decision.Gates {
		if g.Name == "pool."+name && !g.Passed {
			_, why, other := strings.Cut(g.Value, "; ")
			return "no: " + ifThen(other, why, "its limits are reached")
		}
	}
	return "yes"
}

func backedOff(s nodes.Snapshot, failures int, until int64) string {
	return fmt.Sprintf("no: %s in a row, back-off until %s UTC", quantity.Of(failures, "failure"), clock(time.Unix(until, 0), s.Now))
}
