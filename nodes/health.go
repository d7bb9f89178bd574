package nodes

import (
	"cmp"
	"fmt"
	"slices"
	"time"
)

// Unhealthy is a worker that had joined and whose node is not Ready, or takes no pods because its disk is full. It counts for MAX_WORKERS.
type Unhealthy struct {
	InstanceID string  `json:"instanceId"`
	Node       NodeRef `json:"node"`
	SinceEpoch int64   `json:"sinceEpoch"`
	DiskFull   bool    `json:"diskFull,omitempty"` // it is Ready and under disk pressure
	Due        bool    `json:"due,omitempty"`      // it is removed now
	Why        string  `json:"why,omitempty"`      // what happens to it, or why it is kept
}

// what names what is wrong.
func (u Unhealthy) what() string {
	if u.DiskFull {
		return "under disk pressure"
	}
	return "not Ready"
}

// limit is how long that may last; 0: permanently.
func (u Unhealthy) limit(p Policy) time.Duration {
	if u.DiskFull {
		return p.DiskPressureFor
	}
	return p.NotReadyFor
}

// over reports whether it has lasted for too long.
func (u Unhealthy) over(p Policy, now time.Time) bool {
	return u.limit(p) > 0 && now.Sub(time.Unix(u.SinceEpoch, 0)) >= u.limit(p)
}

// UnhealthyWorkers lists the workers that are not Ready or whose disk is full, the one that has been so for longest first, with
// what is to be done about each. At most one is due at a time. None is due while many are not Ready at once:
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
		if h.full[u.InstanceID] && h.kept(u) == "" {
			leaving++
		}
	}
	return out, leaving
}

// newHealth counts the workers and lists those that are not Ready, the one that has been so for longest first.
func newHealth(p Policy, o Observation, r Record, now time.Time) (*health, []Unhealthy) {
	h := &health{p: p, o: o, r: r, now: now, down: map[bool]int{}, keep: map[string]bool{}, full: map[string]bool{}}
	var out []Unhealthy
	for _, w := range o.Fleet {
		if !w.Instance.Alive() || w.Node == nil {
			continue
		}
		if w.Node.Ready && w.Node.DiskFullSince.IsZero() {
			h.workers++
			continue
		}
		if h.elsewhere(w) {
			continue
		}
		h.workers++
		u := Unhealthy{InstanceID: w.Instance.ID, Node: w.Node.NodeRef, DiskFull: w.Node.Ready, SinceEpoch: w.Node.unhealthySince(now).Unix()}
		if now.Sub(w.Node.unhealthySince(now)) >= min(settleTime, u.limit(p)) { // one that has just joined becomes Ready a moment later
			h.down[u.DiskFull]++
		}
		if u.DiskFull && w.Available() && u.over(p, now) {
			h.full[u.InstanceID] = true
		}
		h.keep[w.Instance.ID] = w.Node.Keep
		out = append(out, u)
	}
	slices.SortStableFunc(out, func(a, b Unhealthy) int { return cmp.Compare(a.SinceEpoch, b.SinceEpoch) })
	return h, out
}

// health judges the workers of one moment.
type health struct {
	p   Policy
	o   Observation
	r   Record
	now time.Time

	workers int          // that have joined
	down    map[bool]int // of those, for more than a moment: under disk pressure (true), not Ready
	first   string       // the one that is removed before the others
	keep    map[string]bool
	full    map[string]bool // available, and under disk pressure for too long
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
	if left := u.limit(h.p) - h.now.Sub(time.Unix(u.SinceEpoch, 0)); left > 0 {
		unless := "it becomes Ready"
		if u.DiskFull {
			unless = "its disk has room again"
		}
		return false, fmt.Sprintf("removed in %s unless %s", left.Truncate(time.Second), unless)
	}
	if u.DiskFull && h.short() {
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
	limit := u.limit(h.p)
	switch {
	case limit == 0 && u.DiskFull:
		return "kept: DISK_PRESSURE_TIMEOUT_SEC is 0"
	case limit == 0:
		return "kept: NOT_READY_TIMEOUT_SEC is 0"
	case h.keep[u.InstanceID]:
		return "kept: annotated against removal"
	case h.r.Paused():
		return "kept: scaling is paused"
	}
	if s, ok := h.r.Skipped(u.InstanceID, h.now); ok {
		return "kept for a while: " + s.Cause
	}
	if why := h.many(u.DiskFull); why != "" {
		return "kept: " + why
	}
	return ""
}

// many says that too many workers are not Ready, or under disk pressure, to take it for their own fault: more than one, and a third or
// more, so that the failure of one zone of three is among them.
func (h *health) many(diskFull bool) string {
	down := h.down[diskFull]
	switch {
	case down <= 1 || 3*down < h.workers:
		return ""
	case diskFull:
		return fmt.Sprintf("%d of %d workers are under disk pressure, probably because of what runs on them", down, h.workers)
	}
	return fmt.Sprintf("%d of %d workers are not Ready, probably because of the control plane, the network or a zone", down, h.workers)
}

// short reports whether MIN_WORKERS would not be there without a worker whose disk is full, which still runs its pods. At MAX_WORKERS
// nothing can be launched beside it, and it goes first.
func (h *health) short() bool {
	c := count(h.o)
	return c.available-len(h.full) < h.p.MinWorkers && c.alive+c.intents+h.r.unlaunched() < h.p.MaxWorkers
}

// unhealthySince is since when a node is not Ready or, if it is, its disk is full.
func (n Node) unhealthySince(now time.Time) time.Time {
	if n.Ready {
		return n.DiskFullSince
	}
	return n.notReadySince(now)
}
