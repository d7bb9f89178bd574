package nodes

import (
	"cmp"
	"fmt"
	"slices"
	"time"
)

// Unhealthy is a worker that had joined and whose node is not Ready. It counts for MAX_WORKERS and runs nothing.
type Unhealthy struct {
	InstanceID string  `json:"instanceId"`
	Node       NodeRef `json:"node"`
	SinceEpoch int64   `json:"sinceEpoch"`
	Due        bool    `json:"due,omitempty"` // it is removed now
	Why        string  `json:"why,omitempty"` // what happens to it, or why it is kept
}

// UnhealthyWorkers lists the workers that are not Ready, the one that has been so for longest first, with
// what is to be done about each. At most one is due at a time. None is due while many are not Ready at once:
// then the control plane, the network or a zone has most likely failed and not the nodes, and removing them
// would make it worse. What an open scale-up or an interruption deals with is left to these.
func UnhealthyWorkers(p Policy, o Observation, r Record, now time.Time) []Unhealthy {
	if !o.FleetKnown {
		return nil
	}
	h, out := newHealth(p, o, r, now)
	for i := range out {
		out[i].Due, out[i].Why = h.verdict(out[i])
	}
	return out
}

// newHealth counts the workers and lists those that are not Ready, the one that has been so for longest first.
func newHealth(p Policy, o Observation, r Record, now time.Time) (*health, []Unhealthy) {
	h := &health{p: p, o: o, r: r, now: now, keep: map[string]bool{}}
	var out []Unhealthy
	for _, w := range o.Fleet {
		if !w.Instance.Alive() || w.Node == nil {
			continue
		}
		if w.Node.Ready {
			h.workers++
			continue
		}
		if h.elsewhere(w) {
			continue
		}
		h.workers++
		since := w.Node.notReadySince(now)
		if now.Sub(since) >= min(settleTime, p.NotReadyFor) { // one that has just joined becomes Ready a moment later
			h.down++
		}
		h.keep[w.Instance.ID] = w.Node.Keep
		out = append(out, Unhealthy{InstanceID: w.Instance.ID, Node: w.Node.NodeRef, SinceEpoch: since.Unix()})
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

	workers int    // that have joined
	down    int    // of those, not Ready for more than a moment
	first   string // the one that is removed before the others
	keep    map[string]bool
}

// elsewhere reports whether something else decides about the worker: the scale-up that launched it, its
// interruption or that of the worker that it replaces, or a removal of another cause.
func (h *health) elsewhere(w Worker) bool {
	id := w.Instance.ID
	if h.r.Launched(id) || h.r.Targets(id) {
		return true
	}
	if m, ok := h.r.Removal(id); ok && !m.NotReady {
		return true
	}
	return slices.ContainsFunc(h.o.Interruptions, func(i Interruption) bool { return i.InstanceID == id || i.ReplacementID == id })
}

func (h *health) verdict(u Unhealthy) (due bool, why string) {
	limit := h.p.NotReadyFor
	if _, removing := h.r.Removal(u.InstanceID); removing {
		h.first = u.InstanceID
		return false, "being removed"
	}
	switch {
	case limit == 0:
		return false, "kept: NOT_READY_TIMEOUT_SEC is 0"
	case h.keep[u.InstanceID]:
		return false, "kept: annotated against removal"
	case h.r.Paused():
		return false, "kept: scaling is paused"
	}
	if s, ok := h.r.Skipped(u.InstanceID, h.now); ok {
		return false, "kept for a while: " + s.Cause
	}
	if why := h.many(); why != "" {
		return false, "kept: " + why
	}
	if left := limit - h.now.Sub(time.Unix(u.SinceEpoch, 0)); left > 0 {
		return false, fmt.Sprintf("removed in %s unless it becomes Ready", left.Truncate(time.Second))
	}
	if h.first == "" && slices.ContainsFunc(h.r.Removals, func(m Removal) bool { return m.NotReady }) {
		return false, "removed after another"
	}
	if h.first != "" {
		return false, "removed after " + h.first
	}
	h.first = u.InstanceID
	return true, "removed now"
}

// many says that too many workers are not Ready to take it for their own fault: more than one, and a third or
// more, so that the failure of one zone of three is among them.
func (h *health) many() string {
	if h.down > 1 && 3*h.down >= h.workers {
		return fmt.Sprintf("%d of %d workers are not Ready, probably because of the control plane, the network or a zone", h.down, h.workers)
	}
	return ""
}
