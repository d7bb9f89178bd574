package explain

import (
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/muster-dev/muster/internal/quantity"
	"github.com/muster-dev/muster/nodes"
)

// Tick is everything that is known about one tick.
type Tick struct {
	ID       string          `json:"tick"`
	At       time.Time       `json:"at"`
	Snapshot *nodes.Snapshot `json:"-"`                  // nil if it came to no decision
	Decision *nodes.Decision `json:"decision,omitempty"` // the snapshot's
	Outlook  *Outlook        `json:"outlook,omitempty"`
	Events   []nodes.Event   `json:"events"` // in order; a decision's without its snapshot
}

// About puts a tick together from its events, which are in order. by gives what decides by a policy as that tick did.
func About(by func(nodes.Policy) (nodes.Decider, error), events []nodes.Event) (Tick, error) {
	var t Tick
	for _, e := range events {
		if t.ID == "" {
			t.ID, _, _ = strings.Cut(e.Tick, "/") // work on an interruption adds its instance
			t.At = e.At
		}
		if e.Kind == "decision" {
			s, err := Snapshot(e)
			if err != nil {
				return t, err
			}
			d, err := by(s.Policy)
			if err != nil {
				return t, err
			}
			outlook := Ahead(d, s)
			t.Snapshot, t.Decision, t.Outlook = &s, &s.Decision, &outlook
		}
		e.Data = nil
		t.Events = append(t.Events, e)
	}
	return t, nil
}

// WriteTick writes a tick for people. now is the time of writing, by which ages are told.
func WriteTick(w io.Writer, style Style, t Tick, now time.Time) error {
	p := &page{Style: style}
	p.line("Tick %s at %s UTC, %s ago", p.paint(bold, t.ID), t.At.UTC().Format("2006-01-02 15:04:05"), Duration(now.Sub(t.At)))
	if t.Snapshot != nil {
		p.decision(*t.Snapshot)
		p.outlook(*t.Snapshot, *t.Outlook)
	} else {
		p.undecided(t)
	}
	p.title("What it did")
	p.events(t.Events, t.At)
	return p.writeTo(w)
}

// undecided says why a tick came to no decision.
func (p *page) undecided(t Tick) {
	for _, e := range t.Events {
		if e.Kind == "lease.held" {
			p.line("It did nothing: another tick held the lease.")
			return
		}
	}
	p.line("It came to no decision; what it met is below.")
}

// WriteSnapshot writes a decision with its gates and what lies ahead.
func WriteSnapshot(w io.Writer, style Style, s nodes.Snapshot, o Outlook) error {
	p := &page{Style: style}
	p.decision(s)
	p.outlook(s, o)
	return p.writeTo(w)
}

func (p *page) decision(s nodes.Snapshot) {
	d := s.Decision
	color := ifThen(d.Action == nodes.Noop, yellow, green)
	p.line("%s because of %s%s", p.paint(color, string(d.Action)), p.paint(bold, string(d.Reason)), prefixed(": ", d.Detail))
	if text := Meaning(d.Reason); text != "" {
		p.line("  %s", text)
	}
	switch d.Action {
	case nodes.ScaleUp:
		p.line("  to launch: %s%s", quantity.Of(d.Nodes, "node"), prefixed(" in pool ", d.Pool))
		for _, id := range d.Replaces {
			p.line("  it replaces: %s, which goes once the node is Ready and its pods fit", id)
		}
		for _, w := range d.Wanted {
			p.line("    of %s in %s", orAny(w.Types, "any offered type"), orAny(w.Zones, "any zone"))
		}
	case nodes.ScaleDown:
		for _, t := range d.Targets {
			p.line("  to remove: %s (node %s) in %s%s", t.InstanceID, t.Node.Name, t.Zone, prefixed(": ", t.Why))
		}
	}
	if prices := s.Record.Prices; prices != nil {
		p.line("  prices: %s", prices.Text(s.Now))
	}
	if len(d.Unhealthy) > 0 {
		p.title("Workers that are not Ready, whose instances are impaired, or whose disks are full")
		rows := make([][]cell, 0, len(d.Unhealthy))
		for _, u := range d.Unhealthy {
			rows = append(rows, []cell{c(u.InstanceID), c(u.Node.Name), c(time.Unix(u.SinceEpoch, 0).UTC().Format(time.DateTime)), c(u.Why)})
		}
		p.table("  ", []string{"INSTANCE", "NODE", "SINCE", "WHAT HAPPENS"}, rows)
	}
	if why := s.Observation.StatusesWhy; why != "" {
		p.line("  status checks are not known: %s", why)
	}
	p.faults(s.Observation.Faults)
	p.buffers(d.Headroom)
	p.title("Gates")
	p.gates(d.Gates)
	if len(d.Passed) > 0 {
		p.title("Workers that a scale-down would not take")
		rows := make([][]cell, 0, len(d.Passed))
		for _, x := range d.Passed {
			rows = append(rows, []cell{c(x.InstanceID), c(x.Why)})
		}
		p.table("  ", []string{"INSTANCE", "WHY"}, rows)
	}
}

// faults names what is wrong with workers, and says what to do.
func (p *page) faults(faults []nodes.Fault) {
	if len(faults) == 0 {
		return
	}
	p.title("What is wrong with workers")
	rows := make([][]cell, 0, len(faults))
	for _, f := range faults {
		rows = append(rows, []cell{c(f.InstanceID), colored(red, string(f.Name)), c(f.Name.Fix()), c(f.Saw)})
	}
	p.table("  ", []string{"INSTANCE", "FAULT", "WHAT TO DO", "SEEN"}, rows)
}

func orAny(list []string, empty string) string {
	if len(list) == 0 {
		return empty
	}
	return strings.Join(list, " or ")
}

func prefixed(prefix, s string) string {
	if s = strings.TrimSpace(s); s == "" {
		return ""
	}
	return prefix + s
}

// groups are the paths in the order in which they are shown, and what each is for.
var groups = [][2]string{{"", "any action"}, {"repair", "scale up to MIN_WORKERS"}, {"up", "scale up"}, {"down", "scale down"}, {"buffer", "fill capacity buffers"}, {"drift", "replace drifted or expired workers"}, {"consolidate", "consolidate"},
	{"pool", "launch in a pool"}}

func (p *page) gates(gates []nodes.Gate) {
	var rows [][]cell
	for _, group := range groups {
		title := group[1]
		for _, g := range gates {
			path, name := split(g.Name)
			if path != group[0] {
				continue
			}
			passed := colored(green, "yes")
			if !g.Passed {
				passed = colored(yellow, "no")
			}
			rows = append(rows, []cell{colored(cyan, title), c(name), c(inWords(g.Value)), c(inWords(g.Threshold)), passed})
			title = ""
		}
	}
	p.table("  ", []string{"FOR", "GATE", "VALUE", "THRESHOLD", "PASSED"}, rows)
}

// names of the paths in sentences.
var pathNames = map[string]string{"repair": "Scale up to MIN_WORKERS", "up": "Scale up", "down": "Scale down"}

func (p *page) outlook(s nodes.Snapshot, o Outlook) {
	p.title("What next")
	switch {
	case s.Decision.Action != nodes.Noop:
		p.line("  The action begins. What comes next depends on how it goes; its cooldown counts from its end.")
	case len(s.Decision.Cancel) > 0:
		p.line("  The scale-down is cancelled. The next decision counts its nodes.")
	case len(s.Record.Actions()) > 1:
		p.line("  %d actions go on. What comes next depends on how they go; a cooldown counts from the end of the last.", len(s.Record.Actions()))
	case s.Record.ScalingInProgress:
		p.line("  The action goes on. What comes next depends on how it goes; its cooldown counts from its end.")
	case o.Then != nil:
		d := o.Then.Decision
		what := quantity.Of(d.Nodes, "node")
		if d.Action == nodes.ScaleDown {
			what = quantity.Of(len(d.Targets), "worker")
		}
		p.line("  If everything stays as it was seen: %s of %s (%s) at %s, %s later.", p.paint(green, string(d.Action)), what, d.Reason,
			clock(o.Then.At, s.Now), Duration(o.Then.At.Sub(s.Now)))
	default:
		p.line("  If everything stays as it was seen: nothing.")
	}
	for _, path := range o.Paths {
		if len(path.Needs) == 0 {
			continue
		}
		when := "no waiting suffices"
		if !path.Earliest.IsZero() {
			when = fmt.Sprintf("at the earliest at %s, %s after that tick", clock(path.Earliest, s.Now), Duration(path.Earliest.Sub(s.Now)))
		}
		p.line("")
		p.line("  %s: %s. It needs", p.paint(bold, pathNames[path.Name]), when)
		var rows [][]cell
		for _, n := range path.Needs {
			until := ""
			if !n.When.IsZero() {
				until = ", so from " + clock(n.When, s.Now)
			}
			rows = append(rows, []cell{colored(dim, n.Gate), c(n.What + until)})
		}
		p.columns("    ", nil, rows)
	}
}

// Meaning says in a sentence what a reason means; "" for an unknown one.
func Meaning(r nodes.Reason) string {
	return map[nodes.Reason]string{
		nodes.ReasonTriggered:       "The trigger of a scale-up holds.",
		nodes.ReasonRepair:          "There are fewer workers than MIN_WORKERS.",
		nodes.ReasonIdle:            "The cluster has been idle for long enough.",
		nodes.ReasonConsolidates:    "The pods of a worker fit elsewhere, for less.",
		nodes.ReasonDrift:           "A worker is not as it would be launched now, or older than EXPIRE_AFTER_SEC; a new node is Ready before it goes.",
		nodes.ReasonHeadroom:        "The pods of a capacity buffer have no room, and no pod that waits needs a node.",
		nodes.ReasonSteady:          "Nothing asks for a change.",
		nodes.ReasonInProgress:      "An action is in progress.",
		nodes.ReasonMetricsMissing:  "A metric is missing, stale, partial or not a number; nothing is decided on a guess.",
		nodes.ReasonFleetUnknown:    "The cloud or the Kubernetes API could not be read completely; nothing is concluded from what is not seen.",
		nodes.ReasonPaused:          "Scaling is paused; only what is below MIN_WORKERS or interrupted is made up for. muster nodes resume ends it.",
		nodes.ReasonCPUTooShort:     "CPU is high, but not yet for CPU_UP_SEC.",
		nodes.ReasonPendingTooShort: "Pods are pending, but not yet for PENDING_UP_SEC.",
		nodes.ReasonTriggerPartial:  "SCALE_UP_TRIGGER=all wants high CPU and pending pods; only one of the two is there.",
		nodes.ReasonRoomExists:      "Every pending pod fits a node that is there or coming.",
		nodes.ReasonNoNodeHelps:     "A new node could not run the pending pods either, because of other pods.",
		nodes.ReasonNeverFit:        "The only pending pods are of a kind that no new node could run.",
		nodes.ReasonCooldownUp:      "The last action ended less than COOLDOWN_UP_SEC ago.",
		nodes.ReasonCancels:         "The nodes of an open scale-down are needed again: it is cancelled.",
		nodes.ReasonBackoff:         "Scale-ups have failed; the next try waits.",
		nodes.ReasonMaxWorkers:      "As many workers as MAX_WORKERS allows are there.",
		nodes.ReasonPoolLimit:       "No pool whose nodes would run the pods may launch one within its limits.",
		nodes.ReasonIdleTooShort:    "The cluster is idle, but not yet for IDLE_DOWN_SEC.",
		nodes.ReasonPodsPending:     "CPU is low, but pods are pending.",
		nodes.ReasonCooldownDown:    "The last action ended less than COOLDOWN_DOWN_SEC ago.",
		nodes.ReasonInterruption:    "A worker is being interrupted; no other is taken away meanwhile.",
		nodes.ReasonWindow:          "None of CONSOLIDATE_WINDOWS is open.",
		nodes.ReasonBudget:          "CONSOLIDATION, DRIFT and EXPIRE_AFTER_SEC have removed as many workers within the hour as CONSOLIDATE_PER_HOUR allows.",
		nodes.ReasonMinWorkers:      "A scale-down would leave fewer workers than MIN_WORKERS.",
		nodes.ReasonNoTarget:        "No worker may be taken away.",
		nodes.ReasonPodsDontFit:     "The remaining workers can't take a worker's pods.",
	}[r]
}

// WriteEvents writes events for people, oldest first.
func WriteEvents(w io.Writer, style Style, events []nodes.Event) error {
	p := &page{Style: style}
	if len(events) == 0 {
		p.line("No events.")
		return p.writeTo(w)
	}
	p.table("", eventHeadings, eventRows(events))
	return p.writeTo(w)
}

// WriteMoreEvents writes events that follow others, without headings, in columns as wide as most fields need.
func WriteMoreEvents(w io.Writer, style Style, events []nodes.Event) error {
	p := &page{Style: style}
	p.columns("", []int{19, 12, 22, 23, 19}, eventRows(events))
	return p.writeTo(w)
}

var eventHeadings = []string{"TIME (UTC)", "TICK", "KIND", "ACTION", "INSTANCE", "MESSAGE"}

func eventRows(events []nodes.Event) [][]cell {
	rows := make([][]cell, 0, len(events))
	for _, e := range events {
		rows = append(rows, []cell{c(e.At.UTC().Format("2006-01-02 15:04:05")), colored(dim, e.Tick), colored(eventColor(e.Kind), e.Kind),
			c(dash(e.ActionID)), c(dash(e.Instance)), c(e.Message)})
	}
	return rows
}

func (p *page) events(events []nodes.Event, beside time.Time) {
	rows := make([][]cell, 0, len(events))
	for _, e := range events {
		rows = append(rows, []cell{c(clock(e.At, beside)), colored(eventColor(e.Kind), e.Kind), c(dash(e.Instance)), c(e.Message)})
	}
	p.table("  ", []string{"TIME", "KIND", "INSTANCE", "MESSAGE"}, rows)
}

func dash(s string) string {
	if s == "" {
		return "-"
	}
	return s
}

// eventColor shows what a person looks for first: failures, then changes of the cluster.
func eventColor(kind string) string {
	_, what, _ := strings.Cut(kind, ".")
	switch {
	case kind == "error" || slices.Contains([]string{"failed", "drainFailed", "diagnosis", "orphan", "unobserved", "tooLate"}, what):
		return red
	case slices.Contains([]string{"refused", "reduced", "disagreement", "givenBack", "foreign", "controlPlane", "paused", "held"}, what) || strings.HasPrefix(kind, "interruption."):
		return yellow
	case kind == "decision" || kind == "lease.held" || what == "waiting":
		return plain
	}
	return green
}
