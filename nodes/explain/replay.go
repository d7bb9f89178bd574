package explain

import (
	"encoding/json"
	"fmt"
	"io"
	"reflect"
	"slices"
	"strings"
	"time"

	"github.com/muster-dev/muster/internal/quantity"
	"github.com/muster-dev/muster/nodes"
)

// Snapshot returns what a decision event was decided on.
func Snapshot(e nodes.Event) (nodes.Snapshot, error) {
	var s nodes.Snapshot
	if len(e.Data) == 0 {
		return s, fmt.Errorf("the decision of tick %s has no snapshot", e.Tick)
	}
	if err := json.Unmarshal(e.Data, &s); err != nil {
		return s, fmt.Errorf("reading the snapshot of tick %s: %w", e.Tick, err)
	}
	return s, nil
}

// Replayed is the result of repeating a decision.
type Replayed struct {
	Decisions   int          `json:"decisions"`
	Same        int          `json:"same"`
	Differences []Difference `json:"differences"`
	// Windows are settings that were changed although the metrics of the event log were measured over the old window.
	Windows []string `json:"windows,omitempty"`
}

// Difference is one decision that comes out differently.
type Difference struct {
	Tick string         `json:"tick"`
	At   time.Time      `json:"at"`
	Was  nodes.Decision `json:"was"`
	Is   nodes.Decision `json:"is"`
	// Fields names what differs: action, reason, detail, nodes, wanted, targets, passed, gates.
	Fields []string `json:"fields"`
	// Gates are those that differ.
	Gates []GateChange `json:"gates,omitempty"`
}

// GateChange is a gate as it was and as it is; one of the two may be zero.
type GateChange struct {
	Was nodes.Gate `json:"was"`
	Is  nodes.Gate `json:"is"`
}

// Replay repeats one recorded decision, by d's policy, which may be another than the recorded one. It adds what came of it
// to r.
func (r *Replayed) Replay(d nodes.Decider, tick string, s nodes.Snapshot) {
	r.windows(s.Policy, d.Policy)
	r.Decisions++
	is := d.Decide(s.Observation, s.Record, s.Now)
	diff := compare(s.Decision, is)
	if len(diff.Fields) == 0 {
		r.Same++
		return
	}
	diff.Tick, diff.At = tick, s.Now
	r.Differences = append(r.Differences, diff)
}

func (r *Replayed) windows(was, is nodes.Policy) {
	if byAPI(is) {
		return // no window was measured: what has lasted is told by conditions and the record
	}
	for _, w := range []struct {
		name    string
		was, is time.Duration
	}{{"CPU_UP_SEC", was.CPUUpFor, is.CPUUpFor}, {"PENDING_UP_SEC", was.PendingUpFor, is.PendingUpFor}, {"IDLE_DOWN_SEC", was.IdleDownFor, is.IdleDownFor}} {
		if w.was != w.is && !slices.Contains(r.Windows, w.name) {
			r.Windows = append(r.Windows, w.name)
		}
	}
	if was.Pending != is.Pending && !slices.Contains(r.Windows, "PENDING_SOURCE") {
		r.Windows = append(r.Windows, "PENDING_SOURCE")
	}
}

func compare(was, is nodes.Decision) Difference {
	d := Difference{Was: was, Is: is}
	add := func(name string, differs bool) {
		if differs {
			d.Fields = append(d.Fields, name)
		}
	}
	add("action", was.Action != is.Action)
	add("reason", was.Reason != is.Reason)
	add("detail", was.Detail != is.Detail)
	add("nodes", was.Nodes != is.Nodes)
	add("wanted", !same(was.Wanted, is.Wanted))
	add("targets", !same(unexplained(was.Targets), unexplained(is.Targets)))
	add("passed", !same(was.Passed, is.Passed))
	d.Gates = changes(was.Gates, is.Gates)
	add("gates", len(d.Gates) > 0)
	return d
}

// unexplained leaves out of targets what is there for people only.
func unexplained(targets []nodes.Target) []nodes.Target {
	targets = slices.Clone(targets)
	for i := range targets {
		targets[i].Why = ""
	}
	return targets
}

// same compares lists; an empty one is as good as none, since JSON keeps no difference.
func same[T any](a, b []T) bool { return len(a) == 0 && len(b) == 0 || reflect.DeepEqual(a, b) }

func changes(was, is []nodes.Gate) []GateChange {
	var out []GateChange
	left := slices.Clone(is)
	for _, w := range was {
		i := slices.IndexFunc(left, func(g nodes.Gate) bool { return g.Name == w.Name })
		if i < 0 {
			out = append(out, GateChange{Was: w})
			continue
		}
		if left[i] != w {
			out = append(out, GateChange{Was: w, Is: left[i]})
		}
		left = slices.Delete(left, i, i+1)
	}
	for _, g := range left {
		if g.Name == "not-paused" && g.Passed {
			continue // decided before there was a pause
		}
		out = append(out, GateChange{Is: g})
	}
	return out
}

// WriteReplayed writes a replay for people.
func WriteReplayed(w io.Writer, style Style, r Replayed) error {
	p := &page{Style: style}
	if len(r.Differences) > 0 {
		var rows [][]cell
		for _, d := range r.Differences {
			rows = append(rows, []cell{c(d.At.UTC().Format("2006-01-02 15:04:05")), c(d.Tick), c(inShort(d.Was)), colored(changeColor(d), inShort(d.Is)), c(d.why())})
		}
		p.table("", []string{"TIME (UTC)", "TICK", "WAS", "WOULD BE", "BECAUSE"}, rows)
		p.line("")
	}
	p.line("%s, %d the same, %s.", quantity.Of(r.Decisions, "decision"), r.Same, p.paint(ifThen(len(r.Differences) > 0, yellow, green), fmt.Sprintf("%d different", len(r.Differences))))
	for _, name := range r.Windows {
		p.line("Note: the metrics of the event log were measured under the old %s; what a query over the new one would have given is not known.", name)
	}
	if len(r.Differences) > 0 {
		p.line("Each decision is repeated on what was seen then; what a different earlier decision would have led to is not followed.")
	}
	return p.writeTo(w)
}

func changeColor(d Difference) string {
	if d.Was.Action != d.Is.Action {
		return yellow
	}
	return plain
}

// inShort is a decision in a few words.
func inShort(d nodes.Decision) string {
	switch d.Action {
	case nodes.ScaleUp:
		return fmt.Sprintf("%s +%d %s", d.Action, d.Nodes, d.Reason)
	case nodes.ScaleDown:
		return fmt.Sprintf("%s -%d %s", d.Action, len(d.Targets), d.Reason)
	}
	return fmt.Sprintf("%s %s", d.Action, d.Reason)
}

// why names the gates that open or close, or else whatever differs. That a gate is not asked any more is told if nothing else is.
func (d Difference) why() string {
	var turned, moved, gone []string
	for _, g := range d.Gates {
		name := g.Was.Name
		if name == "" {
			name = g.Is.Name
		}
		text := fmt.Sprintf("%s %s vs %s", name, inWords(g.Is.Value), inWords(g.Is.Threshold))
		switch {
		case g.Is.Name == "":
			gone = append(gone, name)
		case g.Was.Passed != g.Is.Passed:
			turned = append(turned, text+ifThen(g.Is.Passed, " passes", " does not pass"))
		default:
			moved = append(moved, text)
		}
	}
	for _, list := range [][]string{turned, moved} {
		if len(list) > 0 {
			return strings.Join(list, "; ")
		}
	}
	if len(gone) > 0 {
		return "not asked: " + strings.Join(gone, ", ")
	}
	return strings.Join(d.Fields, ", ")
}
