package explain

import (
	"fmt"
	"slices"
	"time"

	"github.com/muster-dev/muster/internal/quantity"
	"github.com/muster-dev/muster/nodes"
)

// Outlook is what would have to happen for an action to be taken.
type Outlook struct {
	// Then is the first action if everything stays as it was seen: the same load, the same pods, the same workers; nil if waiting
	// alone brings none.
	Then *Moment `json:"then,omitempty"`
	// Paths are the ways to an action, with what closes them; none after a decision for an action, and while one is open.
	Paths []Path `json:"paths,omitempty"`
}

// Moment is a decision that would be made at a time.
type Moment struct {
	At       time.Time      `json:"at"`
	Decision nodes.Decision `json:"decision"`
}

// Path is one way to an action.
type Path struct {
	Action nodes.Action `json:"action"`
	Name   string       `json:"name"`  // repair, up or down: what its gates' names begin with
	Needs  []Need       `json:"needs"` // in the order of the gates
	// Earliest is when the action could be taken if everything that time alone does not bring were so from now on; zero if no
	// waiting suffices.
	Earliest time.Time `json:"earliest,omitzero"`
}

// Need is one gate that has to change.
type Need struct {
	Gate string `json:"gate"`
	What string `json:"what"`
	// When is when the gate opens by time alone; zero if it does not.
	When time.Time `json:"when,omitzero"`
}

// Ahead works out what would have to happen after a decision. d decides as the snapshot's decision was made; its Policy is the
// snapshot's.
func Ahead(d nodes.Decider, s nodes.Snapshot) Outlook {
	var out Outlook
	if s.Decision.Action != nodes.Noop || s.Record.ScalingInProgress || len(s.Decision.Cancel) > 0 {
		return out // what comes after an action depends on how it goes
	}
	out.Then = first(d, s, func(dec nodes.Decision) bool { return dec.Action != nodes.Noop })
	for _, p := range []struct {
		name   string
		action nodes.Action
		ease   func(nodes.Snapshot) []nodes.Snapshot
	}{{"repair", nodes.ScaleUp, easeRepair}, {"up", nodes.ScaleUp, easeUp}, {"down", nodes.ScaleDown, easeDown}} {
		if p.name == "repair" && !belowMinimum(s.Decision) {
			continue // nothing to repair
		}
		if p.name == "down" && byAPI(s.Policy) {
			continue // an idle cluster is what the CPU says; CONSOLIDATION shrinks it
		}
		path := Path{Action: p.action, Name: p.name, Needs: needs(s, p.name)}
		for _, eased := range p.ease(s) {
			eased.Observation.Buffers = nil // what is launched for them is on none of these paths
			m := first(d, eased, func(dec nodes.Decision) bool {
				if p.name == "up" && (dec.Reason == nodes.ReasonRoomExists || dec.Reason == nodes.ReasonNoNodeHelps) {
					return true // the trigger holds; of pods that are not there yet nobody knows what they need
				}
				return dec.Action == p.action && dec.Reason != nodes.ReasonConsolidates && dec.Reason != nodes.ReasonDrift && (p.name == "repair") == (dec.Reason == nodes.ReasonRepair)
			})
			if m != nil && (path.Earliest.IsZero() || m.At.Before(path.Earliest)) {
				path.Earliest = m.At
			}
		}
		out.Paths = append(out.Paths, path)
	}
	return out
}

func belowMinimum(d nodes.Decision) bool {
	return slices.ContainsFunc(d.Gates, func(g nodes.Gate) bool { return g.Name == "repair.min-workers" && !g.Passed })
}

// first returns the first moment, from the snapshot's on, at which the decision is of the kind that is looked for, if everything
// stays as it is in s. Only the end of a waiting time can change a decision then, so only these moments are tried.
func first(d nodes.Decider, s nodes.Snapshot, found func(nodes.Decision) bool) *Moment {
	d.Policy = s.Policy
	for _, at := range waitingEnds(s) {
		o, r := lasting(s, at)
		if dec := d.Decide(o, r, at); found(dec) {
			return &Moment{At: at, Decision: dec}
		}
	}
	return nil
}

// waitingEnds returns the snapshot's moment and every later one at which some waiting time is over, in order.
func waitingEnds(s nodes.Snapshot) []time.Time {
	out := []time.Time{s.Now}
	end := func(epoch int64, d time.Duration) {
		if at := time.Unix(epoch, 0).Add(d); epoch != 0 && at.After(s.Now) {
			out = append(out, at)
		}
	}
	p, r := s.Policy, s.Record
	end(r.CPUHighSinceEpoch, p.CPUUpFor)
	end(pendingSince(s), p.PendingUpFor)
	end(r.IdleSinceEpoch.Value(), p.IdleDownFor)
	end(r.LastScaleEpoch, p.CooldownUp)
	end(r.LastScaleEpoch, p.CooldownDown)
	end(r.BackoffUntilEpoch, 0)
	for _, pool := range r.PoolStates {
		end(pool.BackoffUntilEpoch, 0)
	}
	for _, e := range r.Exhausted {
		end(e.UntilEpoch, 0)
	}
	for _, at := range r.ConsolidatedEpochs {
		end(at, time.Hour)
	}
	if at := nextExpiry(s); !at.IsZero() {
		out = append(out, at)
	}
	if p.Consolidation != nodes.ConsolidationOff || p.Drift || p.ExpireAfter > 0 {
		out = append(out, p.ConsolidateWindows.Openings(s.Now)...)
	}
	for _, skip := range r.SkipList {
		end(skip.UntilEpoch, 0)
	}
	slices.SortFunc(out, time.Time.Compare)
	return slices.CompactFunc(out, time.Time.Equal)
}

// byAPI reports whether the signals are those of the Kubernetes API alone.
func byAPI(p nodes.Policy) bool { return p.Signals == nodes.SignalsKubernetes }

// pendingSince is since when a pod waits that a new node could run, as the decision has it; 0 if none does.
func pendingSince(s nodes.Snapshot) int64 {
	if at := nodes.PendingSince(s.Policy, s.Observation, s.Record); !at.IsZero() {
		return at.Unix()
	}
	return 0
}

// nextExpiry is when the next worker is older than EXPIRE_AFTER_SEC, zero if none will be. The later ones are not tried: in a large cluster
// each moment costs a decision.
func nextExpiry(s nodes.Snapshot) (next time.Time) {
	if s.Policy.ExpireAfter == 0 {
		return next
	}
	for _, w := range s.Observation.Fleet {
		at := w.Instance.LaunchedAt.Add(s.Policy.ExpireAfter)
		told := !w.Instance.LaunchedAt.IsZero() && !w.Instance.ControlPlane && at.After(s.Now)
		if told && (next.IsZero() || at.Before(next)) {
			next = at
		}
	}
	return next
}

// lasting returns what would be seen and recorded at a later moment if everything stays as it is: a window that lies wholly within
// the time since something began holds only the value that it has now.
func lasting(s nodes.Snapshot, at time.Time) (nodes.Observation, nodes.Record) {
	o, r, p := s.Observation, s.Record, s.Policy
	lasted := func(epoch int64, d time.Duration) bool { return epoch != 0 && !at.Before(time.Unix(epoch, 0).Add(d)) }
	later := at.After(s.Now)
	m := &o.Readings
	if later && lasted(r.CPUHighSinceEpoch, p.CPUUpFor) {
		m.CPUMin = m.CPU
	}
	if later && lasted(r.PendingSinceEpoch.Value(), p.PendingUpFor) {
		m.PendingMin = m.Pending
	}
	if later && lasted(r.IdleSinceEpoch.Value(), p.IdleDownFor) {
		m.CPUMax, m.PendingMax = m.CPU, m.Pending
	}
	return o, r
}

// ---- what if

// seen returns s as it would be if the load and the pending pods were these from now on, everything could be read and nothing was
// paused. What has lasted goes on lasting; what begins, begins now.
func seen(s nodes.Snapshot, cpu float64, pending int) nodes.Snapshot {
	never := 0
	for _, pod := range s.Observation.Pending {
		if pod.NeverFit != "" {
			never += pod.N()
		}
	}
	s.Record = s.Record.Clone()
	o, r, p, now := &s.Observation, &s.Record, s.Policy, s.Now.Unix()
	o.FleetKnown, o.FleetWhy = true, ""
	r.PausedSinceEpoch, r.PausedBy, r.PauseReason = 0, "", ""
	m := &o.Readings
	value := nodes.Read(cpu)
	count := nodes.Read(float64(never + pending))
	m.CPU, m.Pending = value, count
	// Where there is no reading of a window, nothing is known of it: it counts as not fulfilled until it has passed.
	known := func(r *nodes.Reading, or float64) {
		if !r.Known {
			*r = nodes.Read(or)
		}
	}
	known(&m.CPUMin, 0)
	known(&m.PendingMin, 0)
	known(&m.CPUMax, 1)
	known(&m.PendingMax, 1e9)
	mark := func(holds bool, since int64) int64 {
		switch {
		case !holds:
			return 0
		case since == 0:
			return now
		}
		return since
	}
	r.CPUHighSinceEpoch = mark(cpu >= p.CPUUp, r.CPUHighSinceEpoch)
	r.PendingSinceEpoch = nodes.Num(mark(pending > 0, r.PendingSinceEpoch.Value()))
	r.IdleSinceEpoch = nodes.Num(mark(pending == 0 && cpu <= p.CPUDown, r.IdleSinceEpoch.Value()))
	return s
}

// easeRepair lifts what waiting does not bring: the room below MAX_WORKERS.
func easeRepair(s nodes.Snapshot) []nodes.Snapshot {
	s.Observation.FleetKnown, s.Observation.FleetWhy = true, ""
	return []nodes.Snapshot{roomy(s)}
}

func roomy(s nodes.Snapshot) nodes.Snapshot {
	s.Policy.MaxWorkers = max(s.Policy.MaxWorkers, len(s.Observation.Fleet)+len(s.Observation.Interruptions)+1)
	return s
}

// easeUp gives each way in which the trigger can come about.
func easeUp(s nodes.Snapshot) []nodes.Snapshot {
	if belowMinimum(s.Decision) {
		s.Policy.MinWorkers = 0 // by the trigger, not by the repair that comes before it
	}
	s = roomy(s)
	cpu, pending := s.Observation.Readings.CPU.Value, waiting(s)
	high := max(cpu, s.Policy.CPUUp)
	switch {
	case byAPI(s.Policy):
		return []nodes.Snapshot{seen(s, cpu, max(pending, 1))}
	case s.Policy.Trigger == nodes.TriggerAll:
		return []nodes.Snapshot{seen(s, high, max(pending, 1))}
	}
	return []nodes.Snapshot{seen(s, high, pending), seen(s, cpu, max(pending, 1))}
}

// waiting returns the number of pending pods that a new node could run.
func waiting(s nodes.Snapshot) int {
	n := int(s.Observation.Readings.Pending.Value)
	for _, pod := range s.Observation.Pending {
		if pod.NeverFit != "" {
			n -= pod.N()
		}
	}
	return max(n, 0)
}

// easeDown makes the cluster idle and without interruptions. It does not invent workers that could go.
func easeDown(s nodes.Snapshot) []nodes.Snapshot {
	s.Observation.Interruptions = nil
	return []nodes.Snapshot{seen(s, min(s.Observation.Readings.CPU.Value, s.Policy.CPUDown), 0)}
}

// ---- what is missing

// needs lists the closed gates of a path, those of every action first. A gate that another one's need contains is left out: for how
// long something has to last is said with what has to last.
func needs(s nodes.Snapshot, path string) []Need {
	closed := map[string]bool{}
	for _, g := range s.Decision.Gates {
		closed[g.Name] = !g.Passed
	}
	contained := map[string]bool{
		"up.cpu": !closed["up.trigger"], "up.cpu-since": closed["up.cpu"] || !closed["up.trigger"], "up.cpu-sustained": closed["up.cpu"] || !closed["up.trigger"],
		"up.pending": !closed["up.trigger"], "up.pending-since": closed["up.pending"] || !closed["up.trigger"], "up.pending-sustained": closed["up.pending"] || !closed["up.trigger"],
		"down.idle-since":    closed["down.cpu"] || closed["down.no-pending"],
		"down.cpu-sustained": closed["down.cpu"], "down.pending-sustained": closed["down.no-pending"],
		"down.target": closed["down.pods-fit"] || closed["down.min-workers"],
	}
	var out []Need
	for _, g := range s.Decision.Gates {
		group, _ := split(g.Name)
		if g.Passed || group != "" && group != path || contained[g.Name] || path == "repair" && (g.Name == "not-paused" || g.Name == "metrics-known" || g.Name == "repair.min-workers") {
			continue
		}
		if n := need(s, g); n.What != "" {
			out = append(out, n)
		}
	}
	// What the trigger wants comes before its halves.
	slices.SortStableFunc(out, func(a, b Need) int { return rank(a) - rank(b) })
	return out
}

func rank(n Need) int {
	switch path, name := split(n.Gate); {
	case path == "":
		return 0
	case name == "trigger":
		return 1
	}
	return 2
}

// closedGate is a gate that is closed, and what is known when it is.
type closedGate struct {
	nodes.Snapshot
	gate nodes.Gate
}

// need returns what has to happen for a gate to open.
func need(s nodes.Snapshot, g nodes.Gate) Need {
	var n Need
	if of, known := needsByGate[g.Name]; known {
		n = of(closedGate{s, g})
	}
	n.Gate = g.Name
	return n
}

// since is a condition that has to hold for a time; epoch is since when it has, 0 if it doesn't.
func (w closedGate) since(what string, epoch int64, d time.Duration) Need {
	if epoch == 0 {
		return Need{What: fmt.Sprintf("%s for %s; that has not begun", what, Duration(d))}
	}
	began := time.Unix(epoch, 0)
	return Need{
		When: began.Add(d),
		What: fmt.Sprintf("%s for %s, which it has been for %s", what, Duration(d), Duration(w.Now.Sub(began))),
	}
}

// until is a time that has to pass, which began at epoch.
func (w closedGate) until(what string, epoch int64, d time.Duration) Need {
	when := time.Unix(epoch, 0).Add(d)
	return Need{When: when, What: fmt.Sprintf("%s, %s more", what, Duration(when.Sub(w.Now)))}
}

// afterFailures is the back-off that has to end.
func (w closedGate) afterFailures() Need {
	return w.until(fmt.Sprintf("the back-off after %s has to end", quantity.Of(w.Record.ScaleUpFailures, "failure")), w.Record.BackoffUntilEpoch, 0)
}

// fewerInstances is the limit that a scale-up runs into.
func (w closedGate) fewerInstances() Need {
	return Need{What: fmt.Sprintf("%s instances are there: fewer have to be, or MAX_WORKERS above %d", w.gate.Value, w.Policy.MaxWorkers)}
}

// needsByGate are what each gate waits for, by its name.
var needsByGate = map[string]func(closedGate) Need{
	"no-action": func(w closedGate) Need { return Need{What: "the action in progress (" + w.gate.Value + ") has to end"} },
	"fleet-known": func(w closedGate) Need {
		return Need{What: "instances, nodes and interruptions have to be readable: " + w.gate.Value}
	},
	"not-paused": func(w closedGate) Need {
		return Need{What: "the pause " + w.gate.Value + " has to be ended (muster nodes resume)"}
	},
	"metrics-known":      metricsNeed,
	"repair.backoff":     closedGate.afterFailures,
	"up.backoff":         closedGate.afterFailures,
	"repair.max-workers": closedGate.fewerInstances,
	"up.max-workers":     closedGate.fewerInstances,
	"up.trigger":         triggerNeed,
	"up.cpu": func(w closedGate) Need {
		return Need{What: fmt.Sprintf("average CPU at or above %s for %s; it is %s", Percent(w.Policy.CPUUp), Duration(w.Policy.CPUUpFor), reading(w.Observation.Readings.CPU))}
	},
	"up.cpu-since": func(w closedGate) Need {
		return w.since("CPU at or above "+Percent(w.Policy.CPUUp), w.Record.CPUHighSinceEpoch, w.Policy.CPUUpFor)
	},
	"up.cpu-sustained": func(w closedGate) Need {
		return Need{What: fmt.Sprintf("CPU never below %s within the last %s; its lowest was %s", Percent(w.Policy.CPUUp), Duration(w.Policy.CPUUpFor), reading(w.Observation.Readings.CPUMin))}
	},
	"up.pending": func(w closedGate) Need {
		return Need{What: fmt.Sprintf("a pending pod that a new node could run, for %s; there is none", Duration(w.Policy.PendingUpFor))}
	},
	"up.pending-since": func(w closedGate) Need {
		return w.since("pods pending", pendingSince(w.Snapshot), w.Policy.PendingUpFor)
	},
	"up.pending-sustained": func(w closedGate) Need {
		return Need{What: fmt.Sprintf("pods pending without a break within the last %s", Duration(w.Policy.PendingUpFor))}
	},
	"up.plan": func(w closedGate) Need { return Need{What: "pending pods that a new node would help: " + w.gate.Value} },
	"up.cooldown": func(w closedGate) Need {
		return w.until("the cooldown since the last action has to end", w.Record.LastScaleEpoch, w.Policy.CooldownUp)
	},
	"down.cpu": func(w closedGate) Need {
		return Need{What: fmt.Sprintf("average CPU at or below %s for %s; it is %s", Percent(w.Policy.CPUDown), Duration(w.Policy.IdleDownFor), reading(w.Observation.Readings.CPU))}
	},
	"down.no-pending": func(w closedGate) Need {
		return Need{What: fmt.Sprintf("no pending pod for %s; there are %s", Duration(w.Policy.IdleDownFor), w.gate.Value)}
	},
	"down.idle-since": func(w closedGate) Need {
		return w.since("the cluster idle", w.Record.IdleSinceEpoch.Value(), w.Policy.IdleDownFor)
	},
	"down.cpu-sustained": func(w closedGate) Need {
		return Need{What: fmt.Sprintf("CPU never above %s within the last %s; its highest was %s", Percent(w.Policy.CPUDown), Duration(w.Policy.IdleDownFor), reading(w.Observation.Readings.CPUMax))}
	},
	"down.pending-sustained": func(w closedGate) Need {
		return Need{What: fmt.Sprintf("no pending pod within the last %s", Duration(w.Policy.IdleDownFor))}
	},
	"down.cooldown": func(w closedGate) Need {
		return w.until("the cooldown since the last action has to end", w.Record.LastScaleEpoch, w.Policy.CooldownDown)
	},
	"down.no-interruption": func(w closedGate) Need {
		return Need{What: fmt.Sprintf("the open interruptions (%s) have to end", w.gate.Value)}
	},
	"down.min-workers": func(w closedGate) Need {
		return Need{What: fmt.Sprintf("more than %d available workers (MIN_WORKERS)", w.Policy.MinWorkers)}
	},
	"down.pods-fit": func(w closedGate) Need { return Need{What: "room for a worker's pods on the others: " + w.gate.Value} },
	"down.target": func(w closedGate) Need {
		return Need{What: "a worker that may be removed; the list above says of each why not"}
	},
}

func metricsNeed(w closedGate) Need {
	if byAPI(w.Policy) {
		return Need{What: "pending pods have to be readable in the Kubernetes API: " + w.gate.Value}
	}
	return Need{What: "CPU and pending pods have to be there: " + w.gate.Value}
}

func triggerNeed(w closedGate) Need {
	if byAPI(w.Policy) {
		return Need{What: "pending pods, by their conditions in the Kubernetes API:"}
	}
	if w.Policy.Trigger == nodes.TriggerAll {
		return Need{What: "high CPU and pending pods (SCALE_UP_TRIGGER=all):"}
	}
	return Need{What: "high CPU or pending pods (SCALE_UP_TRIGGER=any), that is one of the two:"}
}

func reading(r nodes.Reading) string {
	if !r.Known {
		return "missing"
	}
	return Percent(r.Value)
}
