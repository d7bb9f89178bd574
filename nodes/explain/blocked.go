package explain

import (
	"github.com/muster-dev/muster/nodes"
)

// Blocked says of each worker that a decision passed over what keeps it from being drained, if that is on the worker itself and a person
// can change it. That others go first, or that its pods fit nowhere else, changes by itself and is in the log.
func Blocked(s nodes.Snapshot) []nodes.NodeNotice {
	passed := map[string]bool{}
	for _, x := range s.Decision.Passed {
		passed[x.InstanceID] = true
	}
	var out []nodes.NodeNotice
	for _, w := range s.Observation.Fleet {
		if why := blocker(s, w); why != "" && passed[w.Instance.ID] {
			out = append(out, nodes.NodeNotice{Node: w.Node.NodeRef, Kind: nodes.NodeBlocked, Text: why})
		}
	}
	return out
}

// blocker says what keeps a worker from being drained.
func blocker(s nodes.Snapshot, w nodes.Worker) string {
	if w.Node == nil || !w.Available() {
		return ""
	}
	skipped, ok := s.Record.Skipped(w.Instance.ID, s.Now)
	switch {
	case w.Node.Keep:
		return "a scale-down does not take it: it is annotated against that"
	case w.Node.Blocker != "":
		return "a scale-down does not take it, because its drain would fail: " + w.Node.Blocker
	case ok:
		return "a scale-down does not take it for a while, because its drain failed: " + skipped.Cause
	}
	return ""
}
