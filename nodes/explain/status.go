package explain

import (
	"cmp"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/muster-dev/muster/internal/quantity"
	"github.com/muster-dev/muster/nodes"
)

// Status is how a cluster stands at one moment, put together from its record, its interruptions and what was last seen of its
// workers. Durations are in whole seconds.
type Status struct {
	At            time.Time            `json:"at"`
	Cluster       string               `json:"cluster"`
	Lease         Lease                `json:"lease"`
	Paused        *Pause               `json:"paused,omitempty"`  // nil: not paused
	Action        *Action              `json:"action,omitempty"`  // that began first; nil: none in progress
	Actions       []Action             `json:"actions,omitempty"` // all that are in progress, in the order in which they began
	Waits         []Wait               `json:"waits"`             // cooldowns and back-offs that are not over
	Seen          *Seen                `json:"seen,omitempty"`    // nil: nobody has looked yet
	Zones         []Zone               `json:"zones"`
	Pools         []Pool               `json:"pools,omitempty"` // absent without pools, or before anybody has looked
	Workers       []Worker             `json:"workers"`
	Interruptions []Interruption       `json:"interruptions"`
	Removals      []nodes.Removal      `json:"removals"`
	SkipList      []nodes.Skip         `json:"skipList"`           // those that still hold
	Exhausted     []nodes.Exhausted    `json:"exhaustedOfferings"` // those that still hold
	LastDecision  *nodes.Decision      `json:"lastDecision,omitempty"`
	Prices        string               `json:"prices,omitempty"` // where they come from; "": the table of instance types
	Record        nodes.Record         `json:"record"`
	Open          []nodes.Interruption `json:"interruptionItems"`
}

// Lease is who may write.
type Lease struct {
	Held  bool   `json:"held"`
	Owner string `json:"owner,omitempty"`
	Left  int64  `json:"leftSeconds,omitempty"` // until others may take it; negative once they may
	Fence int64  `json:"fence"`
}

// Pause is scaling being paused.
type Pause struct {
	Since  time.Time `json:"since"`
	Age    int64     `json:"ageSeconds"`
	By     string    `json:"by,omitempty"`
	Reason string    `json:"reason,omitempty"`
}

// Action is the scaling action in progress.
type Action struct {
	ID    string `json:"id"`
	Kind  string `json:"kind"`  // scale-up or scale-down
	Phase string `json:"phase"` // launching, verifying, draining or terminating
	Age   int64  `json:"ageSeconds"`
	Left  int64  `json:"leftSeconds"` // until it is given up; negative once that is due
	What  string `json:"what"`        // how far it is
}

// Wait is something that time alone ends.
type Wait struct {
	What string `json:"what"`
	Left int64  `json:"leftSeconds"`
}

// Seen tells who looked at the workers and when.
type Seen struct {
	At       time.Time      `json:"at"`
	Tick     string         `json:"tick,omitempty"` // "" if it was just now
	Known    bool           `json:"known"`          // whether everything could be read
	Why      string         `json:"why,omitempty"`
	Readings nodes.Readings `json:"readings"`
	// Signals is where the readings come from.
	Signals nodes.SignalSource `json:"signals,omitempty"`
	Pending int                `json:"pendingPods"` // by the Kubernetes API
}

// Zone is the workers of an availability zone, counted.
type Zone struct {
	Zone     string `json:"zone"`
	Ready    int    `json:"ready"`    // Ready and not cordoned
	Cordoned int    `json:"cordoned"` // Ready and cordoned
	NotReady int    `json:"notReady"` // joined, not Ready
	Joining  int    `json:"joining"`  // launched, without a node
	Ending   int    `json:"ending"`   // stopping or gone, still shown
	Pods     int    `json:"pods"`
}

// Pool is a pool with what counts against its limits: workers, and launches in flight.
type Pool struct {
	Name     string `json:"name"`
	Weight   int    `json:"weight"`
	Nodes    int    `json:"nodes"`
	Spot     int    `json:"spot"` // of them
	Limits   string `json:"limits"`
	Failures int    `json:"failures,omitempty"`       // scale-ups that failed in a row
	Backoff  int64  `json:"backoffSeconds,omitempty"` // until the next
	Differs  string `json:"differs,omitempty"`        // how its nodes differ from what it says
}

// Worker is one worker.
type Worker struct {
	Instance string       `json:"instance"`
	Node     string       `json:"node,omitempty"`
	Zone     string       `json:"zone"`
	Type     string       `json:"type"`
	Market   nodes.Market `json:"market"`
	State    string       `json:"state"` // Ready, Cordoned, NotReady, Joining, Launched since the others were seen, or the instance's own
	Age      int64        `json:"ageSeconds"`
	Pods     int          `json:"pods"`
	Pool     string       `json:"pool,omitempty"`
	Note     string       `json:"note,omitempty"`
}

// Interruption is an open interruption.
type Interruption struct {
	Instance    string                 `json:"instance"`
	Kind        nodes.InterruptionKind `json:"kind"`
	Age         int64                  `json:"ageSeconds"`
	Left        *int64                 `json:"leftSeconds,omitempty"` // until its deadline; nil: it has none
	Drain       string                 `json:"drain"`
	Replacement string                 `json:"replacement"`
}

// Input is what a Status is put together from.
type Input struct {
	Now    time.Time
	Policy nodes.Policy
	Record nodes.Record
	Open   []nodes.Interruption
	// Last is what was last seen, by the tick of that ID; nil if there is nothing. With Live it has been seen just now.
	Last *nodes.Snapshot
	Tick string
	Live bool
}

// Stand puts a Status together.
func Stand(in Input) Status {
	now, r := in.Now, in.Record
	s := Status{At: now, Cluster: r.PK, Record: r, Open: in.Open, Removals: r.Removals, Zones: []Zone{}, Workers: []Worker{}, Interruptions: []Interruption{}, Waits: []Wait{}}
	left := func(epoch int64) int64 { return epoch - now.Unix() }
	s.Lease = Lease{Held: r.LeaseOwner != "" && left(r.LeaseUntilEpoch) >= 0, Owner: r.LeaseOwner, Fence: r.LeaseFence}
	if r.LeaseOwner != "" {
		s.Lease.Left = left(r.LeaseUntilEpoch)
	}
	s.Paused = PauseOf(r, now)
	s.Actions = actions(in)
	if len(s.Actions) > 0 {
		s.Action = &s.Actions[0]
	}
	wait := func(what string, until int64) {
		if until > 0 && left(until) > 0 {
			s.Waits = append(s.Waits, Wait{What: what, Left: left(until)})
		}
	}
	if r.LastScaleEpoch > 0 {
		wait("cooldown of scale-up", r.LastScaleEpoch+seconds(in.Policy.CooldownUp))
		wait("cooldown of scale-down", r.LastScaleEpoch+seconds(in.Policy.CooldownDown))
	}
	wait("back-off after "+quantity.Of(r.ScaleUpFailures, "failed scale-up"), r.BackoffUntilEpoch)
	s.SkipList = slices.DeleteFunc(slices.Clone(r.SkipList), func(k nodes.Skip) bool { return left(k.UntilEpoch) <= 0 })
	s.Exhausted = slices.DeleteFunc(slices.Clone(r.Exhausted), func(e nodes.Exhausted) bool { return left(e.UntilEpoch) <= 0 })
	for _, i := range in.Open {
		s.Interruptions = append(s.Interruptions, interruption(i, now))
	}
	slices.SortStableFunc(s.Interruptions, func(a, b Interruption) int { return cmp.Compare(urgency(a), urgency(b)) })
	if r.Prices != nil {
		s.Prices = r.Prices.Text(now)
	}
	if in.Last != nil {
		s.see(in)
	}
	return s
}

// PauseOf returns the pause of a record, nil if there is none.
func PauseOf(r nodes.Record, now time.Time) *Pause {
	if !r.Paused() {
		return nil
	}
	since := time.Unix(r.PausedSinceEpoch, 0).UTC()
	return &Pause{Since: since, Age: max(seconds(now.Sub(since)), 0), By: r.PausedBy, Reason: r.PauseReason}
}

func seconds(d time.Duration) int64 { return int64(d / time.Second) }

// urgency sorts what has least time first, and what has no deadline last.
func urgency(i Interruption) int64 {
	if i.Left == nil {
		return 1 << 62
	}
	return *i.Left
}

func actions(in Input) []Action {
	var out []Action
	for _, a := range in.Record.Actions() {
		if x := action(in, in.Record.Of(a.ID())); x != nil {
			out = append(out, *x)
		}
	}
	if x := action(in, in.Record); x != nil && len(out) == 0 {
		out = append(out, *x)
	}
	return out
}

// action describes the action that the record's own attributes are of.
func action(in Input, r nodes.Record) *Action {
	switch {
	case r.ScalingUp():
		a := &Action{ID: r.ActionID(), Kind: "scale-up", Phase: "verifying", Age: in.Now.Unix() - r.ScaleUpStartedEpoch}
		since := r.ScaleUpStartedEpoch
		for _, l := range r.ScaleUpLaunches {
			since = max(since, l.Launched)
		}
		a.Left = since + seconds(in.Policy.JoinTimeout) - in.Now.Unix()
		n := len(r.ScaleUpInstanceIDs)
		a.What = fmt.Sprintf("%d of %d launched%s", n, r.ScaleUpRequested, prefixed(" in pool ", r.ScaleUpPool))
		if n < r.ScaleUpRequested {
			a.Phase = "launching"
			if i := r.ScaleUpIntent; i != nil {
				o := i.Request.Offering
				a.What += fmt.Sprintf(", trying %s %s in %s (attempt %d)", o.Type, o.Market, o.Zone, i.Attempt+1)
			}
		}
		if n > 0 {
			a.What += ": " + strings.Join(r.ScaleUpInstanceIDs, ", ")
		}
		return a
	case r.ScalingDown():
		a := &Action{ID: r.ActionID(), Kind: "scale-down", Phase: strings.ToLower(string(r.ScaleDownPhase)), Age: in.Now.Unix() - r.ScaleDownStartedEpoch}
		a.Left = r.ScaleDownStartedEpoch + seconds(in.Policy.ScaleDownStuck) - in.Now.Unix()
		a.What = fmt.Sprintf("%d of %d removed: %s", len(r.ScaleDownCompletedInstanceIDs), len(r.ScaleDownTargetInstanceIDs), strings.Join(r.ScaleDownTargetInstanceIDs, ", "))
		return a
	case r.ScalingInProgress:
		return &Action{Kind: "unnamed", Phase: "unknown", What: "scalingInProgress names no action; the next tick repairs that"}
	}
	return nil
}

func interruption(i nodes.Interruption, now time.Time) Interruption {
	out := Interruption{Instance: i.InstanceID, Kind: i.Kind, Age: now.Unix() - i.OpenedEpoch, Drain: "not begun", Replacement: "undecided"}
	if i.DeadlineEpoch != 0 {
		left := i.DeadlineEpoch - now.Unix()
		out.Left = &left
	}
	switch {
	case i.Drained:
		out.Drain = "done"
	case i.DrainFailed != "":
		out.Drain = "failed: " + i.DrainFailed
	case i.DrainSince != 0:
		out.Drain = "for " + Duration(now.Sub(time.Unix(i.DrainSince, 0)))
	}
	if i.Marked {
		out.Drain += ", terminating"
	}
	switch {
	case i.Replace == nodes.ReplaceNo:
		out.Replacement = "none needed"
	case i.LaunchFailed != "":
		out.Replacement = "can't be had: " + i.LaunchFailed
	case i.Verified:
		out.Replacement = i.ReplacementID + " Ready"
	case i.ReplacementID != "":
		out.Replacement = i.ReplacementID + " joining"
	case i.Intent != nil:
		out.Replacement = "launching"
	}
	return out
}

// see adds the workers as they were last seen.
func (s *Status) see(in Input) {
	o := in.Last.Observation
	s.Seen = &Seen{At: in.Last.Now, Tick: in.Tick, Known: o.FleetKnown, Why: o.FleetWhy, Readings: o.Readings, Signals: in.Last.Policy.Signals}
	if in.Live {
		s.Seen.Tick = ""
	}
	for _, p := range o.Pending {
		s.Seen.Pending += p.N()
	}
	d := in.Last.Decision
	s.LastDecision = &d
	s.Pools = Pools(in.Policy, o, in.Record, in.Now)
	zones := map[string]*Zone{}
	known := map[string]bool{}
	for _, w := range o.Fleet {
		known[w.Instance.ID] = true
		s.Workers = append(s.Workers, worker(w, in))
	}
	// What was launched since then is known from the record.
	launches := in.Record.Launches()
	for _, i := range in.Open {
		if i.Intent != nil {
			launches = append(launches, *i.Intent)
		}
	}
	for _, l := range launches {
		if l.InstanceID == "" || known[l.InstanceID] {
			continue
		}
		at := l.Request.Offering
		x := worker(nodes.Worker{Instance: nodes.Instance{ID: l.InstanceID, Zone: at.Zone, Type: at.Type, Market: at.Market, Pool: at.Pool, LaunchedAt: time.Unix(l.Launched, 0)}}, in)
		x.State = "Launched"
		s.Workers = append(s.Workers, x)
	}
	for _, x := range s.Workers {
		z := zones[x.Zone]
		if z == nil {
			z = &Zone{Zone: x.Zone}
			zones[x.Zone] = z
		}
		z.Pods += x.Pods
		switch x.State {
		case "Ready":
			z.Ready++
		case "Cordoned":
			z.Cordoned++
		case "NotReady":
			z.NotReady++
		case "Joining", "Launched":
			z.Joining++
		default:
			z.Ending++
		}
	}
	slices.SortStableFunc(s.Workers, func(a, b Worker) int {
		return cmp.Or(cmp.Compare(a.Zone, b.Zone), cmp.Compare(b.Age, a.Age), cmp.Compare(a.Instance, b.Instance))
	})
	for _, z := range zones {
		s.Zones = append(s.Zones, *z)
	}
	slices.SortFunc(s.Zones, func(a, b Zone) int { return cmp.Compare(a.Zone, b.Zone) })
}

// Pools describes the pools of a policy; nil without pools.
func Pools(p nodes.Policy, o nodes.Observation, r nodes.Record, now time.Time) []Pool {
	uses := nodes.PoolUses(p, o, r, nil)
	var out []Pool
	for _, pool := range p.Pools {
		use, kept := uses[pool.Name], r.PoolState(pool.Name)
		x := Pool{Name: pool.Name, Weight: pool.Weight, Nodes: use.Nodes, Spot: use.Spot, Limits: pool.Limits.String(), Failures: kept.ScaleUpFailures}
		if kept.BackoffUntilEpoch != 0 {
			x.Backoff = max(kept.BackoffUntilEpoch-now.Unix(), 0)
		}
		if kept.TemplateSeen != nil {
			x.Differs = kept.TemplateSeen.Text()
		}
		out = append(out, x)
	}
	return out
}

func worker(w nodes.Worker, in Input) Worker {
	i := w.Instance
	out := Worker{Instance: i.ID, Zone: dash(i.Zone), Type: i.Type, Market: i.Market, State: State(w), Pool: in.Policy.PoolOf(i.Pool)}
	if !i.LaunchedAt.IsZero() {
		out.Age = max(seconds(in.Now.Sub(i.LaunchedAt)), 0)
	}
	var notes []string
	if n := w.Node; n != nil {
		out.Node = n.Name
		for _, p := range n.Pods {
			out.Pods += p.N()
		}
		if n.Keep {
			notes = append(notes, "kept by annotation")
		}
		if n.ToBeDeleted {
			notes = append(notes, "marked as to be deleted by "+strings.Join(n.Claims, ", "))
		}
		if n.Blocker != "" {
			notes = append(notes, "a drain would fail: "+n.Blocker)
		}
	}
	alone := in.Last.Observation
	alone.Fleet = []nodes.Worker{w}
	for _, x := range nodes.DriftedWorkers(in.Policy, alone, in.Now) {
		state := "drifted: "
		if x.Expired {
			state = "expired: "
		}
		notes = append(notes, state+x.Why)
	}
	if m, ok := in.Record.Removal(i.ID); ok {
		note := "being removed, " + strings.ToLower(string(m.Phase))
		if m.DrainedSince != 0 && m.Phase == nodes.PhaseDraining {
			note += " for " + Duration(in.Now.Sub(time.Unix(m.DrainedSince, 0)))
		}
		notes = append(notes, note)
	} else if in.Record.Targets(i.ID) {
		notes = append(notes, "to be removed")
	}
	if in.Record.Launched(i.ID) {
		notes = append(notes, "of the open scale-up")
	}
	if k, ok := in.Record.Skipped(i.ID, in.Now); ok {
		notes = append(notes, fmt.Sprintf("not taken by a scale-down for %s: %s", Duration(time.Unix(k.UntilEpoch, 0).Sub(in.Now)), k.Cause))
	}
	for _, x := range in.Open {
		if x.InstanceID == i.ID {
			notes = append(notes, "interrupted: "+string(x.Kind))
		}
		if x.ReplacementID == i.ID {
			notes = append(notes, "replaces "+x.InstanceID)
		}
	}
	if f := in.Last.Observation.Fault(i.ID); f.Name != "" {
		notes = append(notes, string(f.Name))
	}
	out.Note = strings.Join(notes, "; ")
	return out
}

// State is a worker's state in one word: Ready, Cordoned (Ready, but takes nothing new), NotReady, Joining (alive, without a node),
// or the instance's own if it is neither pending nor running.
func State(w nodes.Worker) string {
	switch {
	case !w.Instance.Alive():
		return string(w.Instance.State)
	case w.Node == nil:
		return "Joining"
	case !w.Node.Ready:
		return "NotReady"
	case w.Node.Closed():
		return "Cordoned"
	}
	return "Ready"
}

// WriteStatus writes a status for people.
func WriteStatus(w io.Writer, style Style, s Status) error {
	p := &page{Style: style}
	p.line("%s at %s UTC", p.paint(bold, s.Cluster), s.At.UTC().Format("2006-01-02 15:04:05"))
	p.summary(s)
	p.fleet(s)
	if len(s.Interruptions) > 0 {
		p.title("Interruptions")
		var rows [][]cell
		for _, i := range s.Interruptions {
			left := c("no deadline")
			if i.Left != nil {
				left = colored(ifThen(*i.Left < 60, red, yellow), leftText(*i.Left))
			}
			rows = append(rows, []cell{c(i.Instance), c(string(i.Kind)), c(age(i.Age)), left, c(i.Drain), c(i.Replacement)})
		}
		p.table("  ", []string{"INSTANCE", "KIND", "AGE", "TIME LEFT", "DRAIN", "REPLACEMENT"}, rows)
	}
	p.remembered(s)
	return p.writeTo(w)
}

func (p *page) summary(s Status) {
	row := func(name, format string, args ...any) {
		pad := styled(strings.Repeat(" ", 8-len(name)))
		p.line("  %s%s  "+format, append([]any{p.paint(dim, name), pad}, args...)...)
	}
	if z := s.Paused; z != nil {
		row("paused", "%s%s%s", p.paint(yellow, "for "+age(z.Age)), prefixed(" by ", z.By), prefixed(": ", z.Reason))
	}
	for i, a := range s.Actions {
		row(ifThen(i == 0, "action", ""), "%s %s: %s for %s, %s", p.paint(cyan, a.Kind), a.ID, p.paint(cyan, a.Phase), age(a.Age), a.What)
		if a.Kind != "unnamed" {
			row("", "given up in %s", leftText(a.Left))
		}
	}
	if len(s.Actions) == 0 {
		row("action", "none in progress")
	}
	switch {
	case s.Lease.Held:
		row("lease", "held by tick %s for another %s", s.Lease.Owner, age(s.Lease.Left))
	case s.Lease.Owner != "":
		row("lease", "expired %s ago; tick %s did not give it back", age(-s.Lease.Left), s.Lease.Owner)
	default:
		row("lease", "free")
	}
	if len(s.Waits) == 0 {
		row("waits", "none")
	}
	for i, w := range s.Waits {
		row(ifThen(i == 0, "waits", ""), "%s: %s left", w.What, age(w.Left))
	}
	if s.Prices != "" {
		row("prices", "%s", s.Prices)
	}
	if d := s.LastDecision; d != nil {
		row("decision", "%s %s%s", p.paint(ifThen(d.Action == nodes.Noop, plain, green), string(d.Action)), string(d.Reason), prefixed(": ", d.Detail))
	}
}

func age(seconds int64) string { return Duration(time.Duration(seconds) * time.Second) }

func leftText(seconds int64) string {
	if seconds < 0 {
		return "over since " + age(-seconds)
	}
	return age(seconds)
}

func (p *page) fleet(s Status) {
	if s.Seen == nil {
		p.title("Workers")
		p.line("  No tick has looked at them yet. --live asks the cloud and the cluster now.")
		return
	}
	by := "now"
	if s.Seen.Tick != "" {
		by = fmt.Sprintf("%s ago, by tick %s", Duration(s.At.Sub(s.Seen.At)), s.Seen.Tick)
	}
	p.title(fmt.Sprintf("Workers, seen %s", by))
	if !s.Seen.Known {
		p.line("  %s: %s", p.paint(red, "not everything could be read"), s.Seen.Why)
	}
	m := s.Seen.Readings
	pending := ifThen(m.Pending.Known, fmt.Sprint(m.Pending.Value), "missing")
	if s.Seen.Signals == nodes.SignalsKubernetes {
		p.line("  pending pods %s, by the Kubernetes API (SIGNALS=kubernetes)", pending)
	} else {
		p.line("  CPU %s, pending pods %s", reading(m.CPU), pending)
	}
	if len(s.Workers) == 0 {
		p.pools(s.Pools)
		p.line("  none")
		return
	}
	p.pools(s.Pools)
	var rows [][]cell
	var all Zone
	count := func(n int, color string) cell { return colored(ifThen(n > 0, color, dim), fmt.Sprint(n)) }
	add := func(z Zone) {
		rows = append(rows, []cell{c(z.Zone), count(z.Ready, green), count(z.Cordoned, yellow), count(z.NotReady, red), count(z.Joining, cyan), count(z.Ending, yellow), num(z.Pods)})
	}
	for _, z := range s.Zones {
		all.Ready += z.Ready
		all.Cordoned += z.Cordoned
		all.NotReady += z.NotReady
		all.Joining += z.Joining
		all.Ending += z.Ending
		all.Pods += z.Pods
		add(z)
	}
	if len(s.Zones) > 1 {
		all.Zone = "all"
		add(all)
	}
	p.table("  ", []string{"ZONE", "READY", "CORDONED", "NOT READY", "JOINING", "ENDING", "PODS"}, rows)
	p.line("")
	rows = nil
	for _, w := range s.Workers {
		rows = append(rows, []cell{c(w.Zone), c(w.Instance), colored(stateColor(w.State), w.State), c(age(w.Age)), c(w.Type), c(string(w.Market)), num(w.Pods),
			c(ifThen(w.Node == w.Instance, "", w.Node)), c(w.Note)})
		if len(s.Pools) > 0 {
			last := len(rows) - 1
			rows[last] = append([]cell{c(dash(w.Pool))}, rows[last]...)
		}
	}
	headings := []string{"ZONE", "INSTANCE", "STATE", "AGE", "TYPE", "MARKET", "PODS", "NODE", "NOTE"}
	if len(s.Pools) > 0 {
		headings = append([]string{"POOL"}, headings...)
	}
	p.table("  ", headings, rows)
}

// pools writes the pools, if there are some.
func (p *page) pools(pools []Pool) {
	if len(pools) == 0 {
		return
	}
	var rows [][]cell
	for _, x := range pools {
		note := x.Differs
		if x.Backoff > 0 {
			note = fmt.Sprintf("back-off after %s: %s left%s", quantity.Of(x.Failures, "failed scale-up"), age(x.Backoff), prefixed("; ", note))
		}
		rows = append(rows, []cell{c(x.Name), num(x.Weight), num(x.Nodes), num(x.Spot), c(x.Limits), c(note)})
	}
	p.table("  ", []string{"POOL", "WEIGHT", "NODES", "SPOT", "LIMITS", "NOTE"}, rows)
	p.line("")
}

func stateColor(state string) string {
	switch state {
	case "Ready":
		return green
	case "NotReady":
		return red
	case "Joining", "Launched":
		return cyan
	}
	return yellow
}

// remembered writes what the record keeps in mind for a while.
func (p *page) remembered(s Status) {
	now := s.At
	left := func(epoch int64) cell { return c(Duration(time.Unix(epoch, 0).Sub(now))) }
	if len(s.Removals) > 0 {
		p.title("On their way out")
		var rows [][]cell
		for _, m := range s.Removals {
			since := "-"
			if m.DrainedSince != 0 {
				since = Duration(now.Sub(time.Unix(m.DrainedSince, 0)))
			}
			rows = append(rows, []cell{c(m.InstanceID), c(string(m.Phase)), c(since), c(dash(m.ActionID)), c(m.Reason)})
		}
		p.table("  ", []string{"INSTANCE", "PHASE", "DRAINED FOR", "ACTION", "REASON"}, rows)
	}
	if len(s.SkipList) > 0 {
		p.title("Not taken by a scale-down for a while")
		var rows [][]cell
		for _, k := range s.SkipList {
			rows = append(rows, []cell{c(k.InstanceID), num(k.Failures), left(k.UntilEpoch), c(k.Cause)})
		}
		p.table("  ", []string{"INSTANCE", "FAILURES", "FOR ANOTHER", "CAUSE"}, rows)
	}
	if len(s.Exhausted) > 0 {
		p.title("Offerings that could not be had")
		var rows [][]cell
		for _, e := range s.Exhausted {
			rows = append(rows, []cell{c(anyIfEmpty(e.Zone)), c(anyIfEmpty(e.Subnet)), c(anyIfEmpty(e.Type)), c(anyIfEmpty(string(e.Market))), left(e.UntilEpoch)})
		}
		p.table("  ", []string{"ZONE", "SUBNET", "TYPE", "MARKET", "FOR ANOTHER"}, rows)
	}
}

func anyIfEmpty(s string) string {
	if s == "" {
		return "any"
	}
	return s
}

// WriteChecks writes the results of checks for people, those that failed with what to do.
func WriteChecks(w io.Writer, style Style, checks []nodes.Check) error {
	p := &page{Style: style}
	rows := make([][]cell, 0, len(checks))
	failed := 0
	for _, k := range checks {
		result := colored(green, "ok")
		if !k.OK {
			result = colored(red, "FAILED")
			failed++
		}
		rows = append(rows, []cell{result, c(k.Name), c(k.Detail)})
	}
	p.table("", []string{"RESULT", "CHECK", "FOUND"}, rows)
	if failed > 0 {
		p.title("What to do")
		for _, k := range checks {
			if !k.OK {
				p.line("  %s  %s", p.paint(red, k.Name), k.Fix)
			}
		}
	}
	p.line("")
	p.line("%s, %s.", quantity.Of(len(checks), "check"), p.paint(ifThen(failed > 0, red, green), fmt.Sprintf("%d failed", failed)))
	return p.writeTo(w)
}
