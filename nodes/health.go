package nodes

import (
	"cmp"
	"fmt"
	"slices"
	"time"
)

// Unhealthy is a worker that had joined and whose node is not Ready, whose instance fails a status check, or that takes no pods because
// its disk is full. It counts for MAX_WORKERS.
type Unhealthy struct {
	InstanceID  string  `json:"instanceId"`
	Node        NodeRef `json:"node"`
	SinceEpoch  int64   `json:"sinceEpoch"`
	DiskFull    bool    `json:"diskFull,omitempty"`    // it is Ready and under disk pressure
	FailedCheck string  `json:"failedCheck,omitempty"` // the status check that its instance fails, if that is what it is judged by
	Due         bool    `json:"due,omitempty"`         // it is removed now
	Why         string  `json:"why,omitempty"`         // what happens to it, or why it is kept
}

// defect is what the worker is judged by.
func (u Unhealthy) defect() defect {
	switch {
	case u.FailedCheck != "":
		return impaired
	case u.DiskFull:
		return diskFull
	}
	return notReady
}

// what names what is wrong.
func (u Unhealthy) what() string {
	switch u.defect() {
	case impaired:
		return "its " + u.FailedCheck + " status check has failed"
	case diskFull:
		return "under disk pressure"
	}
	return "not Ready"
}

// unless says what keeps it.
func (u Unhealthy) unless() string {
	switch u.defect() {
	case impaired:
		return "its " + u.FailedCheck + " status check passes again"
	case diskFull:
		return "its disk has room again"
	}
	return "it becomes Ready"
}

// UnhealthyWorkers lists the workers that are not Ready, whose instance fails a status check or whose disk is full, the one that has been
// so for longest first, with what is to be done about each. At most one is due at a time. None is due while many are like it at once:
// then the control plane, the network or a zone has most likely failed and not the nodes, and removing them
// would make it worse. What an open scale-up or an interruption deals with is left to these.
func UnhealthyWorkers(p Policy, o Observation, r Record, now time.Time) []Unhealthy {
	out, _ := unhealthyWorkers(p, o, r, now)
	return out
}

// unhealthyWorkers also returns how many of these are available and are removed once there are others for them.
func unhealthyWorkers(p Policy, o Observation, r Record, now time.Time) (out []Unhealthy, leaving int) {
	if !o.FleetKnown {
		return nil, 0
	}
	h, out := newHealth(p, o, r, now)
	for i, u := range out {
		out[i].Due, out[i].Why = h.verdict(u)
		if h.leaving[u.InstanceID] && h.kept(u) == "" {
			leaving++
		}
	}
	return out, leaving
}

// newHealth counts the workers and lists those with a defect, the one that has had it for longest first.
func newHealth(p Policy, o Observation, r Record, now time.Time) (*health, []Unhealthy) {
	h := &health{p: p, o: o, r: r, now: now, keep: map[string]bool{}, leaving: map[string]bool{}}
	var out []Unhealthy
	for _, w := range o.Fleet {
		if !w.Instance.Alive() || w.Node == nil {
			continue
		}
		all := w.defects(now)
		if len(all) == 0 {
			h.workers++
			continue
		}
		if h.elsewhere(w) {
			continue
		}
		h.workers++
		h.count(all)
		worst := decisive(all, p, now)
		if worst.defect.replacedFirst() && w.Available() && worst.over(p, now) {
			h.leaving[w.Instance.ID] = true
		}
		h.keep[w.Instance.ID] = w.Node.Keep
		out = append(out, unhealthy(w, worst))
	}
	slices.SortStableFunc(out, func(a, b Unhealthy) int { return cmp.Compare(a.SinceEpoch, b.SinceEpoch) })
	return h, out
}

// unhealthy returns a worker as it is judged by a defect.
func unhealthy(w Worker, l lasting) Unhealthy {
	u := Unhealthy{InstanceID: w.Instance.ID, Node: w.Node.NodeRef, SinceEpoch: l.since.Unix(), DiskFull: l.defect == diskFull}
	if l.defect == impaired {
		u.FailedCheck = w.Instance.Impairment.Check
	}
	return u
}

// health judges the workers of one moment.
type health struct {
	p   Policy
	o   Observation
	r   Record
	now time.Time

	workers  int    // that have joined
	failed   int    // of those, for more than a moment: not Ready, or with an instance that fails a status check
	impaired bool   // some of these fail a status check
	full     int    // of the workers, for more than a moment: under disk pressure
	first    string // the one that is removed before the others
	keep     map[string]bool
	leaving  map[string]bool // available, and unwell for too long
}

// count adds a worker with defects, once to those that have failed and once to those whose disk is full.
func (h *health) count(all []lasting) {
	failed := false
	for _, l := range all {
		switch {
		case !l.settled(h.p, h.now):
		case l.defect == diskFull:
			h.full++
		default:
			failed = true
			h.impaired = h.impaired || l.defect == impaired
		}
	}
	if failed {
		h.failed++
	}
}

// elsewhere reports whether something else decides about the worker: the scale-up that launched it, its
// interruption or that of the worker that it replaces, or a removal of another cause.
func (h *health) elsewhere(w Worker) bool {
	id := w.Instance.ID
	if h.r.Launched(id) || h.r.Targets(id) {
		return true
	}
	if m, ok := h.r.Removal(id); ok && !m.repairs() {
		return true
	}
	return slices.ContainsFunc(h.o.Interruptions, func(i Interruption) bool { return i.InstanceID == id || i.ReplacementID == id })
}

func (h *health) verdict(u Unhealthy) (due bool, why string) {
	if _, removing := h.r.Removal(u.InstanceID); removing {
		h.first = u.InstanceID
		return false, "being removed"
	}
	if why := h.kept(u); why != "" {
		return false, why
	}
	if left := u.defect().limit(h.p) - h.now.Sub(time.Unix(u.SinceEpoch, 0)); left > 0 {
		return false, fmt.Sprintf("removed in %s unless %s", left.Truncate(time.Second), u.unless())
	}
	if u.defect().replacedFirst() && h.short() {
		return false, "removed once another worker is there for it"
	}
	if h.first == "" && slices.ContainsFunc(h.r.Removals, func(m Removal) bool { return m.repairs() }) {
		return false, "removed after another"
	}
	if h.first != "" {
		return false, "removed after " + h.first
	}
	h.first = u.InstanceID
	return true, "removed now"
}

// kept says why a worker is not removed however long it stays as it is, "" if it is.
func (h *health) kept(u Unhealthy) string {
	switch {
	case u.defect().limit(h.p) == 0:
		return "kept: " + u.defect().setting() + " is 0"
	case h.keep[u.InstanceID]:
		return "kept: annotated against removal"
	case h.r.Paused():
		return "kept: scaling is paused"
	}
	if s, ok := h.r.Skipped(u.InstanceID, h.now); ok {
		return "kept for a while: " + s.Cause
	}
	if why := h.many(u.defect()); why != "" {
		return "kept: " + why
	}
	return ""
}

// many says that too many workers have a defect to take it for their own fault: more than one, and a third or more, so that the failure
// of one zone of three is among them. Workers that are not Ready and those whose instances fail a status check count together, since
// the failure of a zone shows as either.
func (h *health) many(d defect) string {
	down := h.failed
	if d == diskFull {
		down = h.full
	}
	state := "are not Ready"
	switch {
	case down <= 1 || 3*down < h.workers:
		return ""
	case d == diskFull:
		return fmt.Sprintf("%d of %d workers are under disk pressure, probably because of what runs on them", down, h.workers)
	case h.impaired:
		state = "are not Ready or fail a status check"
	}
	return fmt.Sprintf("%d of %d workers %s, probably because of the control plane, the network or a zone", down, h.workers, state)
}

// short reports whether MIN_WORKERS would not be there without the workers that are unwell and still run their pods. At MAX_WORKERS
// nothing can be launched beside them, and one goes first.
func (h *health) short() bool {
	c := count(h.o)
	return c.available-len(h.leaving) < h.p.MinWorkers && c.alive+c.intents+h.r.unlaunched() < h.p.MaxWorkers
}
