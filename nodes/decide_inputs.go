package nodes

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"
)

// inputs is what the gates look at, worked out once: the policy, what was observed and recorded, and the counts that several gates
// compare. A gate reads them and changes none, so the order of the gates decides which one a NOOP names, and nothing else.
type inputs struct {
	p   Policy
	o   Observation
	r   Record
	now time.Time

	census
	occupied    int // what MAX_WORKERS is held against
	expected    int // what MIN_WORKERS is held against when repairing: available workers and replacements on their way
	pending     int // pods that a new node could run
	neverFit    int // pods that no new node could run
	neverFitWhy string
	unhealthy   []Unhealthy
	pools       *poolChooser // nil without pools
	kept        []Pod        // of capacity buffers, with room on nodes that are there
	metrics     string       // why the metrics don't show what is now; "" if they do
	upWindows   string       // why what has lasted can't, for a scale-up
	downWindows string       // and for a scale-down, whose window is longer: after a gap a scale-up needn't wait for it
}

func newInputs(p Policy, o Observation, r Record, now time.Time) inputs {
	in := inputs{p: p, o: o, r: r, now: now, census: count(o)}
	in.occupied = in.alive + in.intents + r.unlaunched()
	unhealthy, leaving := unhealthyWorkers(p, o, r, now)
	in.unhealthy = unhealthy
	in.expected = in.available + in.coming + in.joining() - leaving
	for _, pod := range o.Pending {
		if pod.NeverFit != "" {
			in.neverFit += pod.N()
			in.neverFitWhy = "pod " + pod.Name + ": " + pod.NeverFit
		}
	}
	in.pending = max(int(o.Readings.Pending.Value)-in.neverFit, 0)
	m := o.Readings
	if p.byAPI() {
		in.metrics = missing("pending", m.Pending, "pending", m.Pending)
		return in
	}
	in.metrics = missing("cpu", m.CPU, "pending", m.Pending)
	in.upWindows = missing("cpu-min", m.CPUMin, "pending-min", m.PendingMin)
	in.downWindows = missing("cpu-max", m.CPUMax, "pending-max", m.PendingMax)
	return in
}

// joining is how many nodes of open scale-ups are on their way.
func (in inputs) joining() int {
	n := in.r.unlaunched()
	for _, a := range Arriving(in.p, in.o, in.now) {
		if in.r.Launched(a.ID) {
			n++
		}
	}
	return n
}

// missing says why the first of two readings that is missing is, "" if both are there.
func missing(first string, a Reading, second string, b Reading) string {
	switch {
	case !a.Known:
		return first + ": " + cmp.Or(a.Why, "no value")
	case !b.Known:
		return second + ": " + cmp.Or(b.Why, "no value")
	}
	return ""
}

// signals says which readings a decision needs, and where they come from.
func (in inputs) signals() string {
	if in.p.byAPI() {
		return "pending, by the Kubernetes API"
	}
	return "cpu and pending"
}

// age is the time since an epoch, 0 if it is not set.
func (in inputs) age(epoch int64) time.Duration {
	if epoch == 0 {
		return 0
	}
	return in.now.Sub(time.Unix(epoch, 0)).Truncate(time.Second)
}

// lasted reports whether what began at epoch has lasted for d; something that has not begun has not.
func (in inputs) lasted(epoch int64, d time.Duration) bool { return epoch != 0 && in.age(epoch) >= d }

// cooled reports whether d has passed since the last completed action; without one it has.
func (in inputs) cooled(d time.Duration) bool {
	return in.r.LastScaleEpoch == 0 || in.age(in.r.LastScaleEpoch) >= d
}

// cpuText says why the CPU asks for a node.
func (in inputs) cpuText() string {
	return fmt.Sprintf("CPU at %s of %s for %s", text(in.o.Readings.CPU), text(in.p.CPUUp), text(in.age(in.r.CPUHighSinceEpoch)))
}

// unhealthyText names the workers that count and are not Ready or take no pods, "" if there are none.
func (in inputs) unhealthyText() string {
	var out []string
	for _, u := range in.unhealthy[:min(len(in.unhealthy), mostCauses)] {
		state := "has not been Ready"
		switch u.defect() {
		case impaired:
			state = "has failed its " + u.FailedCheck + " status check"
		case diskFull:
			state = "has been under disk pressure"
		}
		out = append(out, fmt.Sprintf("%s %s for %s (%s)", u.InstanceID, state, text(in.age(u.SinceEpoch)), u.Why))
	}
	if n := len(in.unhealthy) - len(out); n > 0 {
		out = append(out, fmt.Sprintf("and %d more", n))
	}
	return strings.Join(out, "; ")
}

// waitedInVain reports whether pods that a plan says to have room have waited so long that the scheduler,
// which tries again at least every five minutes, must see something that the plan does not. Pods that wait
// for a node that is not there yet have not waited in vain.
func (in inputs) waitedInVain(plan Plan) bool {
	return plan.Helpless == "" && !plan.Coming && in.lasted(in.r.PendingSinceEpoch.Value(), max(3*in.p.PendingUpFor, 10*time.Minute))
}

// inVain names a worker that was launched while the pods waited and that has taken none since, in one zone
// or, if every is true, in each one in which nodes can be launched. The scheduler has had its time to place a
// pod there, so another node of any kind would most likely stay empty as well.
func (in inputs) inVain(every bool) (why string) {
	since := in.r.PendingSinceEpoch.Value()
	if since == 0 || every && len(in.o.Zones) == 0 {
		return ""
	}
	empty := in.launchedEmpty(since)
	if every && slices.ContainsFunc(in.o.Zones, func(zone string) bool { return empty[zone] == "" }) {
		return ""
	}
	for _, z := range slices.Sorted(maps.Keys(empty)) {
		return fmt.Sprintf("launched in vain: %s joined while the pods waited and has taken none of them; compare its labels, taints and size with what they ask for", empty[z])
	}
	return ""
}

// inVainIn is inVain for the nodes of one pool, in whatever zone.
func (in inputs) inVainIn(pool string) (why string) {
	since := in.r.PendingSinceEpoch.Value()
	if since == 0 {
		return ""
	}
	ofPool := in
	ofPool.o.Fleet = slices.DeleteFunc(slices.Clone(in.o.Fleet), func(w Worker) bool { return in.p.PoolOf(w.Instance.Pool) != pool })
	return ofPool.inVain(false)
}

// launchedEmpty returns a worker per zone that joined after an epoch, long enough ago to have been given
// pods, and has none.
func (in inputs) launchedEmpty(since int64) map[string]string {
	out := map[string]string{}
	for _, w := range in.o.Fleet {
		if w.Instance.ActionID == "" || !w.Available() || len(w.Node.Pods) > 0 || w.Node.CreatedAt.Unix() <= since {
			continue
		}
		if in.now.Sub(w.Node.CreatedAt) >= max(settleTime, in.p.PendingUpFor) {
			out[w.Instance.Zone] = w.Instance.ID
		}
	}
	return out
}

// mostCauses is how many causes a decision names.
const mostCauses = 3
