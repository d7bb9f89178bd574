package console

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"
)

// Severity says how urgently a person is needed.
type Severity string

// The severities. Planned work, such as a rebalance in progress, is OK.
const (
	OK       Severity = "ok"
	Warning  Severity = "warning"
	Critical Severity = "critical"
)

func (s Severity) rank() int { return slices.Index([]Severity{OK, Warning, Critical}, s) }

// Finding is one thing that needs a person.
type Finding struct {
	Severity Severity `json:"severity"`
	Panel    string   `json:"panel"` // that shows more of it, by its ID on the page
	Text     string   `json:"text"`
}

// Health sums up both planes.
type Health struct {
	Severity Severity  `json:"severity"` // of the worst finding
	Findings []Finding `json:"findings"` // the worst first
	Serving  int       `json:"serving"`  // workers that serve their slots, or are drained
	Stable   int       `json:"stable"`   // of them, those without a slot on its way
	Expected int       `json:"expected"` // workers that there should be
}

// sight is what one reading found; nil for what is not shown.
type sight struct {
	nodes   *NodePlane
	workers *WorkerPlane
	alarms  *AlarmCount
	sources []Source
}

// Limits of what is no fault yet. The times of waiting messages are those of the alerts.
const (
	startGrace   = 15 * time.Second // that a worker or node may take to join before it is reported as missing
	metricsGrace = 2 * time.Minute  // that metrics may take to reach back far enough
	waitsLong    = time.Minute
	waitsTooLong = 5 * time.Minute
	lookAway     = 30 * time.Second // after which the next look is a first one again
)

// assessor judges what is seen. It remembers since when each condition holds, so that what passes by itself is not reported.
type assessor struct {
	since map[string]time.Time
	last  time.Time
}

// assess judges one reading.
func (a *assessor) assess(now time.Time, s sight) Health {
	// The planes are read only while somebody looks. What is missing at the first look may have been for hours: it gets no
	// grace.
	fresh := a.last.IsZero() || now.Sub(a.last) > lookAway
	if a.since == nil || fresh {
		a.since = map[string]time.Time{}
	}
	a.last = now
	j := &judgement{a: a, now: now, fresh: fresh, Health: Health{Severity: OK, Findings: []Finding{}}}
	j.sources(s)
	pending := 0
	if s.nodes != nil {
		pending = j.nodePlane(*s.nodes)
	}
	if s.workers != nil {
		j.workerPlane(*s.workers, pending)
	}
	if s.alarms != nil {
		j.alarms(*s.alarms)
	}
	slices.SortStableFunc(j.Findings, func(x, y Finding) int { return cmp.Compare(y.Severity.rank(), x.Severity.rank()) })
	if len(j.Findings) > 0 {
		j.Severity = j.Findings[0].Severity
	}
	return j.Health
}

// sources judges what can't be read, but for what the judgement of a plane says by itself.
func (j *judgement) sources(s sight) {
	var said string
	if s.nodes != nil {
		said += s.nodes.Error
	}
	if s.workers != nil {
		said += s.workers.Error
	}
	if s.alarms != nil {
		said += s.alarms.Error
	}
	for _, x := range s.sources {
		if text := x.Name + " is away since "; !x.Away.IsZero() && !strings.Contains(said, text) {
			j.find(Warning, "sources", "%s%s", text, x.Away.Format("15:04:05 UTC"))
		}
	}
}

// judgement is one assessment while it is made.
type judgement struct {
	Health
	a     *assessor
	now   time.Time
	fresh bool
}

func (j *judgement) find(s Severity, panel, format string, args ...any) {
	j.Findings = append(j.Findings, Finding{s, panel, fmt.Sprintf(format, args...)})
}

// lasts reports whether a condition holds and has been seen to hold for a time.
func (j *judgement) lasts(name string, holds bool, grace time.Duration) bool {
	if !holds {
		delete(j.a.since, name)
		return false
	}
	began, known := j.a.since[name]
	if !known {
		began = j.now
		j.a.since[name] = began
	}
	return j.now.Sub(began) >= grace
}

// joins reports whether something has not joined for longer than it may take, or had not at the first look.
func (j *judgement) joins(name string, missing bool) bool {
	if _, known := j.a.since[name]; missing && !known && j.fresh {
		j.a.since[name] = j.now.Add(-startGrace)
	}
	return j.lasts(name, missing, startGrace)
}

// nodePlane returns how many pods wait for a node.
func (j *judgement) nodePlane(n NodePlane) (pending int) {
	if n.Error != "" {
		j.find(Warning, "nodes", "The node plane can't be read: %s", n.Error)
	}
	states := map[NodeState]int{}
	for _, x := range n.Nodes {
		states[x.State]++
	}
	if lost := states[NodeLost]; lost > 0 {
		j.find(Warning, "nodes", "%s", counted(lost, "node is lost", "nodes are lost"))
	}
	if down := states[NodeNotReady]; j.joins("not ready", down > 0) {
		j.find(Warning, "nodes", "%s", counted(down, "node is not ready", "nodes are not ready"))
	}
	if open := len(n.Interruptions); open > 0 {
		j.find(Warning, "action", "%s", counted(open, "node is being interrupted", "nodes are being interrupted"))
	}
	var never int
	for _, p := range n.Pending {
		pending += p.Count
		if p.NeverFit != "" {
			never += p.Count
		}
	}
	if never > 0 {
		j.find(Warning, "nodes", "%s", counted(never, "pod fits no node", "pods fit no node"))
	}
	scalingUp := n.Action != nil && n.Action.Kind == "scale-up" || slices.ContainsFunc(n.Actions, func(a Action) bool { return a.Kind == "scale-up" })
	if pending > never && !scalingUp && len(n.Interruptions) == 0 { // else a node is on its way
		j.find(Warning, "decision", "%s", counted(pending-never, "pod is pending and no node is being launched", "pods are pending and no node is being launched"))
	}
	if n.Paused != nil {
		j.find(Warning, "action", "Scaling is paused")
	}
	if j.lasts("metrics", n.Decision != nil && n.Decision.Reason == metricsMissing, metricsGrace) {
		j.find(Warning, "decision", "Metrics are unavailable: nothing is scaled by load")
	}
	return pending
}

// The states of a worker, by what they mean to its slots.
var (
	servingStates = []string{"STABLE", "REBALANCING", "SCALING", "EMERGENCY"}
	joiningStates = []string{"INIT", "CLAIMING_ID", "ELECTION", "FOLLOWER", "LEADER"}
)

// pausedState is that of a worker whose lease is uncertain.
const pausedState = "DEGRADED"

// crew is how many workers there are, by what they do.
type crew struct {
	failed                []string
	live, paused, joining int
}

// workerPlane judges the workers. pending pods are workers that wait for a node: the node plane's matter.
func (j *judgement) workerPlane(w WorkerPlane, pending int) {
	if w.Error != "" {
		j.find(Critical, "workers", "The workers can't be read: %s", w.Error)
	}

	c := j.count(w.Workers)
	j.Expected = w.Expected
	if w.Expected == 0 {
		j.Expected = c.live + len(c.failed)
	}
	if w.Version == 0 { // they have not begun; no worker has anything that it could lose
		if j.lasts("start", j.Expected > 0, metricsGrace) {
			j.find(Warning, "workers", "The workers have no assignment map yet")
		}
		return
	}

	switch {
	case c.live == 0:
		j.find(Critical, "workers", "No worker is alive")
	case w.Leader == "":
		j.find(Critical, "workers", "There is no leader")
	}
	j.crew(c, pending)
	j.slots(w)
	j.backlog(w)
	if w.DeadLetters > 0 {
		j.find(Warning, "dead-letters", "%s", counted(w.DeadLetters, "dead letter waits for a person", "dead letters wait for a person"))
	}
}

// count counts the workers, and those that serve their slots into the health.
func (j *judgement) count(workers []Worker) crew {
	var c crew
	for _, x := range workers {
		if x.State == StateFailed {
			c.failed = append(c.failed, x.ID)
			continue
		}
		c.live++
		switch {
		case !x.Drained.IsZero(): // as a person or the node plane wants it
			j.Serving++
			if x.Slots == 0 {
				j.Stable++
			}
		case slices.Contains(servingStates, x.State):
			j.Serving++
			if x.State == "STABLE" {
				j.Stable++
			}
		case x.State == pausedState:
			c.paused++
		case slices.Contains(joiningStates, x.State):
			c.joining++
		}
	}
	return c
}

// crew judges whether there are as many workers as there should be.
func (j *judgement) crew(c crew, pending int) {
	staying := j.Serving + c.paused + c.joining // the others are leaving
	if len(c.failed) > 0 && staying < j.Expected {
		j.find(Critical, "workers", "%s: %s", counted(len(c.failed), "worker failed", "workers failed"), names(c.failed))
	}

	due := max(0, j.Expected-pending)
	missing := max(0, due-staying-len(c.failed))
	few := c.live > 0 && j.Serving*2 < due
	lasting := j.joins("few", few)
	broken := c.paused+len(c.failed) > c.joining+missing // those that join get their time
	if few && (lasting || broken) {
		j.find(Critical, "workers", "Only %d of %d workers serve their slots", j.Serving, due)
	}

	if c.paused > 0 {
		j.find(Warning, "workers", "%s", counted(c.paused, "worker is paused: its lease is uncertain", "workers are paused: their leases are uncertain"))
	}
	if j.joins("missing", c.joining+missing > 0) {
		j.find(Warning, "workers", "%s", counted(c.joining+missing, "worker has not joined yet", "workers have not joined yet"))
	}
}

// slots judges whether every slot has an owner.
func (j *judgement) slots(w WorkerPlane) {
	var orphans int
	for _, o := range w.Owners {
		if o < 0 {
			orphans++
		}
	}
	if orphans > 0 {
		j.find(Critical, "workers", "%s", counted(orphans, "slot has no owner", "slots have no owner"))
	}
	if w.TakingOver > 0 {
		j.find(Warning, "moves", "%s", counted(w.TakingOver, "slot is being taken over", "slots are being taken over"))
	}
}

// backlog judges for how long messages have waited.
func (j *judgement) backlog(w WorkerPlane) {
	waited := j.now.Sub(w.Oldest)
	if w.Waiting == 0 || w.Oldest.IsZero() || waited < waitsLong {
		return
	}
	s, limit := Warning, waitsLong
	if waited >= waitsTooLong {
		s, limit = Critical, waitsTooLong
	}
	j.find(s, "workers", "%s, the oldest for more than %.0f min", counted(int(w.Waiting), "message waits", "messages wait"), limit.Minutes())
}

func (j *judgement) alarms(a AlarmCount) {
	if a.Error != "" {
		j.find(Warning, "chamber", "The alarms can't be counted: %s", a.Error)
	}
	if a.Open > 0 {
		j.find(Warning, "chamber", "%s", counted(a.Open, "open alarm", "open alarms"))
	}
}

func counted(n int, one, many string) string {
	if n == 1 {
		return "1 " + one
	}
	return fmt.Sprintf("%d %s", n, many)
}

// names lists the first few of many.
func names(all []string) string {
	const most = 4
	if len(all) <= most {
		return strings.Join(all, ", ")
	}
	return fmt.Sprintf("%s and %d more", strings.Join(all[:most], ", "), len(all)-most)
}
