package local

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/muster-dev/muster/console"
	"github.com/muster-dev/muster/defender"
	"github.com/muster-dev/muster/defender/uchart"
	"github.com/muster-dev/muster/partition"
	"github.com/muster-dev/muster/partition/event"
	"github.com/muster-dev/muster/partition/role"
	"github.com/muster-dev/muster/partition/state"
)

// screen shows a cluster on the console.
type screen struct {
	*console.Console
	c        *Stack
	moves    *slotMoves
	failures *failures
	backlog  backlog

	mu       sync.Mutex
	bySlot   []int                // chambers, of as many slots as there are
	drained  map[string]time.Time // until when a worker takes no slots, by stable ID
	standing map[standing]bool    // alarms; true: acknowledged

	crewMu sync.Mutex
	crew   map[string]partition.MemberInfo // by stable ID, as the leases last told
	asked  time.Time                       // when that was
}

// standing names an alarm that is not cleared.
type standing struct {
	chamber defender.Chamber
	opened  string
}

// newScreen returns the console of a cluster that may still be starting; what isn't there yet is not shown.
func newScreen(c *Stack) (*screen, error) {
	s := &screen{c: c, moves: newSlotMoves(), failures: newFailures(), drained: map[string]time.Time{}, standing: map[standing]bool{}}
	var err error
	s.Console, err = console.New(console.Options{Title: "Muster", Nodes: nodesOf(c), Workers: s.workers, Chambers: s.chambers, Charts: s.charts, Alarms: s.alarms,
		Token: c.o.Token, Act: s.act})
	if err != nil {
		return nil, fmt.Errorf("making the console: %w", err)
	}
	return s, nil
}

// chambersIn returns how many chambers each of n slots has.
func (s *screen) chambersIn(slots int) []int {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.bySlot) != slots {
		s.bySlot = make([]int, slots)
		for _, ch := range s.c.Chambers {
			s.bySlot[partition.SlotOf(slots, ch.Tool, ch.Name)]++
		}
	}
	return s.bySlot
}

// nodesOf returns what shows the node plane, nil where there will be none.
func nodesOf(c *Stack) func(context.Context) (console.NodePlane, error) {
	if !c.o.OnNodes {
		return nil
	}
	return func(ctx context.Context) (console.NodePlane, error) {
		if t := c.Cluster.Load(); t != nil {
			return t.nodePlane(ctx)
		}
		return console.NodePlane{Nodes: []console.Node{}, Pending: []console.PendingPod{}, Interruptions: []console.Interruption{}}, nil
	}
}

// event puts an event of a defender onto the console.
func (s *screen) event(e SeenEvent) {
	s.Changed()
	s.failures.follow(e.Event, e.At)
	if move, ok := s.moves.follow(e.Event); ok {
		s.SlotMoved(move)
	}
	s.follow(e)
	if m, ok := momentOf(e); ok {
		s.Say(m)
	}
}

// follow notes which workers are drained.
func (s *screen) follow(e SeenEvent) {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch e.Kind {
	case event.Draining:
		if e.Duration > 0 {
			s.drained[e.Worker] = e.Time.Add(e.Duration)
		} else {
			delete(s.drained, e.Worker)
		}
	case event.IDClaimed:
		s.asked = time.Time{} // the name is in another pod now
	case event.Left, event.IdentityLost:
		delete(s.drained, e.Worker)
	case event.WorkerGone:
		delete(s.drained, e.Peer)
	default:
	}
}

// alarm puts a chamber's alarm onto the console.
func (s *screen) alarm(msg *nats.Msg) {
	var a defender.AlarmNotice
	if json.Unmarshal(msg.Data, &a) != nil {
		return // a hostile message is no alarm
	}
	s.stand(standing{a.Context.Chamber, a.Opened}, a.Event != defender.AlarmCleared, false)
	if a.Event == defender.AlarmCleared {
		s.Say(console.Moment{Plane: "alarms", Kind: "cleared", Subject: a.Context.Chamber.String(), Text: a.Context.Chamber.String() + ": the alarm of " + a.Opened + " is cleared, " + a.Reason})
		return
	}
	s.Say(console.Moment{Plane: "alarms", Kind: "alarm", Subject: a.Context.Chamber.String(), Level: "bad", Text: a.Context.Chamber.String() + ", context " + a.Context.ID + ": " + a.Reason})
}

// stand notes that an alarm stands or does not.
func (s *screen) stand(a standing, stands, acknowledged bool) {
	defer s.Changed() // the console counts them
	s.mu.Lock()
	defer s.mu.Unlock()
	if !stands {
		delete(s.standing, a)
		return
	}
	s.standing[a] = s.standing[a] || acknowledged
}

// alarms counts the alarms of all chambers.
func (s *screen) alarms(context.Context) (n console.AlarmCount, _ error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, acknowledged := range s.standing {
		if acknowledged {
			n.Acknowledged++
		} else {
			n.Open++
		}
	}
	return n, nil
}

// followAlarms puts alarms and their acknowledgements onto the console, also those of before.
func (s *screen) followAlarms(ctx context.Context, nc *nats.Conn) error {
	for subject, tell := range map[string]nats.MsgHandler{"dc-alarm.>": s.alarm, "dc-alarm-ack.>": s.acknowledged} {
		if _, err := nc.Subscribe(subject, tell); err != nil {
			return fmt.Errorf("following the alarms: %w", err)
		}
	}
	list, err := defender.ListAlarms(ctx, nc, defender.AlarmListQuery{Limit: 1 << 20})
	if err != nil {
		return err
	}
	for _, a := range list {
		s.stand(standing{a.Chamber, a.Opened}, true, a.Acknowledged != nil)
	}
	return nil
}

// acknowledged puts an acknowledgement of an alarm onto the console, wherever it was given.
func (s *screen) acknowledged(msg *nats.Msg) {
	var a defender.Acknowledgement
	if json.Unmarshal(msg.Data, &a) != nil || a.Validate() != nil {
		return
	}
	s.stand(standing{a.Chamber, a.Opened}, true, true)
	text := a.Chamber.String() + ": the alarm of " + a.Opened + " is acknowledged by " + a.By
	if a.Note != "" {
		text += ": " + a.Note
	}
	s.Say(console.Moment{Plane: "alarms", Kind: "acknowledged", Subject: a.Chamber.String(), Text: text})
}

// momentOf says in words what an event of a defender tells; not every event is worth a line.
func momentOf(e SeenEvent) (console.Moment, bool) {
	m := console.Moment{At: e.Time, Plane: "workers", Kind: string(e.Kind), Subject: cmp.Or(e.Worker, e.Peer)}
	line := func(level, format string, args ...any) (console.Moment, bool) {
		m.Level, m.Text = level, cmp.Or(e.Worker, "a worker")+": "+fmt.Sprintf(format, args...)
		return m, true
	}
	switch e.Kind {
	case event.IDClaimed:
		return line("", "claimed its stable ID after %.1f s", e.Duration.Seconds())
	case event.Elected:
		if e.Worker == e.Peer {
			return line("", "is the leader, epoch %d", e.Epoch)
		}
	case event.WorkerGone:
		level := "bad"
		if e.Reason == "left" { // in good order
			level = ""
		}
		return line(level, "%s is gone (%s)", e.Peer, e.Reason)
	case event.WorkerSuspected:
		return line("warn", "%s is suspected to have failed", e.Peer)
	case event.WorkerLeaving:
		return line("", "%s is leaving", e.Peer)
	case event.Topology:
		return line("", "topology change: %d → %d workers", e.Before, e.After)
	case event.WindowStarted:
		return line("", "stabilization window of %s (%s)", e.Duration.Round(time.Second), e.Reason)
	case event.WindowDone:
		return line("", "window complete after %.1f s: %d workers, %s", e.Duration.Seconds(), e.After, e.Reason)
	case event.Planned:
		return line("", "planned in %s: %d slots move (%s)", e.Duration.Round(time.Microsecond), e.Count, e.Reason)
	case event.MapPublished:
		return line("", "published map version %d for %d workers", e.Version, e.After)
	case event.Rebalanced:
		return line("good", "rebalanced to version %d, %.0f ms after the plan", e.Version, e.Duration.Seconds()*1000)
	case event.SlotTakenOver:
		return line("warn", "slot %d is taken over by %s", e.Slot, e.Peer)
	case event.LeaseUncertain:
		return line("bad", "paused: its lease is uncertain (%s)", e.Reason)
	case event.LeaseConfirmed:
		return line("good", "resumed after %.1f s", e.Duration.Seconds())
	case event.IdentityLost, event.HandoffForced, event.PrepareFailed, event.StalePinFreed, event.ResourceRecreated, event.FencesRaised:
		return line("warn", "%s %s%s", strings.ReplaceAll(string(e.Kind), "-", " "), e.Reason, e.Err)
	case event.StreamRolledBack, event.Panicked:
		return line("bad", "%s: %s: %s", strings.ReplaceAll(string(e.Kind), "-", " "), e.Reason, e.Err)
	case event.Draining:
		if e.Duration == 0 {
			return line("good", "undrained: takes slots again")
		}
		return line("warn", "drains: hands off its slots and takes none for %s", e.Duration.Round(time.Second))
	case event.Left:
		return line("", "left after a drain of %.1f s", e.Duration.Seconds())
	default:
	}
	return m, false
}

// workers is the worker plane as the console shows it.
func (s *screen) workers(ctx context.Context) (console.WorkerPlane, error) {
	v := console.WorkerPlane{Group: defender.Group, Workers: []console.Worker{}, Owners: []int32{}, Next: []int32{}, Keys: len(s.c.Chambers)}
	view := s.c.seen()
	if view == nil {
		return v, nil
	}
	if t := s.c.Cluster.Load(); t != nil {
		running, pending := t.Phases()
		v.Expected = running + pending
	}
	crew, err := s.leases(ctx)
	a, states := view.now()
	failed := s.failures.now(time.Now(), states, v.Expected)
	workers := map[string]*console.Worker{}
	for id, state := range states {
		workers[id] = &console.Worker{ID: id, State: string(state)}
	}
	for id, failure := range failed {
		workers[id] = &console.Worker{ID: id, State: console.StateFailed, Failed: &failure}
	}
	if a != nil {
		v.Epoch, v.Version = a.Epoch, a.Version
		for _, m := range a.Workers { // also those of whom no event has come yet
			if workers[m.ID] == nil {
				workers[m.ID] = &console.Worker{ID: m.ID, State: string(state.Init)}
			}
		}
		if w := workers[a.Leader.ID]; w != nil && w.Failed == nil {
			v.Leader, w.Leading = w.ID, true
		}
		s.divide(&v, a, workers)
	}
	at := map[string]int32{}
	for _, id := range slices.SortedFunc(maps.Keys(workers), byOrdinal) { // a worker keeps its place, whatever happens to it
		at[id] = int32(len(v.Workers))
		v.Workers = append(v.Workers, *workers[id])
	}
	if a != nil {
		place := func(m int32) int32 {
			if m < 0 {
				return -1
			}
			return at[a.Workers[m].ID]
		}
		v.Next = make([]int32, a.Slots)
		for slot := range v.Next {
			v.Owners = append(v.Owners, place(a.Owner[slot]))
			v.Next[slot] = -1
			if m, moving := a.Moves[slot]; moving {
				v.Next[slot] = place(m.Next)
			}
		}
	}
	waiting, oldest, backlogErr := s.backlog.now(ctx, s.c)
	v.Waiting, v.Oldest = waiting, oldest
	pids := s.c.processIDs()
	s.mu.Lock()
	defer s.mu.Unlock()
	for i := range v.Workers {
		w := &v.Workers[i]
		m := crew[w.ID]
		w.Pod, w.Node, w.PID = m.Pod, m.Node, pids[m.Pod]
		if until := s.drained[w.ID]; until.After(time.Now()) {
			w.Drained = until.UTC()
		}
	}
	return v, errors.Join(err, backlogErr)
}

// divide counts the slots of each worker of a map, with those on their way.
func (s *screen) divide(v *console.WorkerPlane, a *partition.Assignment, workers map[string]*console.Worker) {
	bySlot := s.chambersIn(a.Slots)
	for slot, o := range a.Owner {
		if a.Taking[slot] {
			v.TakingOver++
		}
		var owner *console.Worker
		if o >= 0 {
			owner = workers[a.Workers[o].ID]
			owner.Slots++
			owner.Keys += bySlot[slot]
		}
		if m, moving := a.Moves[slot]; moving {
			workers[a.Workers[m.Next].ID].Gaining++
			if owner != nil {
				owner.Losing++
			}
		}
	}
}

// leasesAge is how old the leases may be that are shown. After a claim they are read at once.
const leasesAge = 4 * time.Second

// leases returns what the workers' leases tell of them, by stable ID.
func (s *screen) leases(ctx context.Context) (map[string]partition.MemberInfo, error) {
	s.crewMu.Lock()
	defer s.crewMu.Unlock()
	s.mu.Lock()
	known, asked := time.Since(s.asked) < leasesAge, time.Now()
	if !known {
		s.asked = asked // before they are read: a claim meanwhile asks again
	}
	s.mu.Unlock()
	if known {
		return s.crew, nil
	}
	nc, err := s.c.As(role.Console)
	if err != nil {
		return s.crew, err
	}
	list, err := partition.Open(nc, defender.Group).Members(ctx)
	if err != nil {
		return s.crew, err
	}
	s.crew = make(map[string]partition.MemberInfo, len(list))
	for _, m := range list {
		s.crew[m.ID] = m
	}
	s.failures.leases(asked, s.crew, s.c.seen().shown())
	return s.crew, nil
}

// byOrdinal orders stable IDs by their numbers.
func byOrdinal(a, b string) int { return cmp.Or(cmp.Compare(len(a), len(b)), cmp.Compare(a, b)) }

// chambers lists chambers by name, those with open alarms first.
func (s *screen) chambers(_ context.Context, contains string, limit int) ([]console.ChamberInfo, error) {
	out := []console.ChamberInfo{}
	if s.c.seen() == nil {
		return out, nil
	}
	count := map[defender.Chamber]int{}
	s.mu.Lock()
	for a, acknowledged := range s.standing {
		if !acknowledged {
			count[a.chamber]++
		}
	}
	s.mu.Unlock()
	for _, c := range s.c.Chambers {
		if strings.Contains(c.String(), contains) {
			out = append(out, console.ChamberInfo{Tool: c.Tool, Chamber: c.Name, Alarms: count[c]})
		}
	}
	slices.SortStableFunc(out, func(a, b console.ChamberInfo) int { return cmp.Compare(b.Alarms, a.Alarms) })
	return out[:min(limit, len(out))], nil
}

// What the console shows of a chamber.
const (
	chartPoints  = 100
	chartSeries  = 8
	chartHistory = 40 // contexts before those that are shown, for the limits of the first
)

// charts shows a chamber's newest contexts: the score by which they are judged, and the charts that were outside their limits
// most often, filled up with means.
func (s *screen) charts(ctx context.Context, tool, name string) (console.Charts, error) {
	ch := defender.Chamber{Tool: tool, Name: name}
	if err := ch.Validate(); err != nil {
		return console.Charts{}, err
	}
	v := console.Charts{Tool: tool, Chamber: name, Series: []console.Series{}, Alarms: []console.Alarm{}}
	view := s.c.seen()
	if view == nil {
		return v, nil
	}
	if a, _ := view.now(); a != nil {
		v.Slot = partition.SlotOf(a.Slots, tool, name)
		v.Owner = a.OwnerOf(v.Slot)
	}
	charts, err := s.c.Store.UCharts(ctx, ch, chartPoints+chartHistory)
	if err != nil {
		return v, err
	}
	slices.Reverse(charts)
	nc, err := s.c.As(role.Console)
	if err != nil {
		return v, err
	}
	alarms, err := defender.ListAlarms(ctx, nc, defender.AlarmListQuery{Chamber: ch, All: true, Limit: 20})
	if err != nil {
		return v, err
	}
	for _, a := range alarms {
		v.Alarms = append(v.Alarms, alarmOf(a))
	}
	if len(charts) == 0 {
		return v, nil
	}
	limits, from := limitsOf(charts), max(0, len(charts)-chartPoints)
	charts, limits = charts[from:], limits[from:]
	v.Series = append(v.Series, scores(charts))
	for _, k := range worthShowing(charts) {
		v.Series = append(v.Series, seriesOf(charts, limits, k))
	}
	return v, nil
}

func alarmOf(a defender.AlarmStatus) console.Alarm {
	x := console.Alarm{ID: alarmID(a.Chamber, a.Opened), At: a.Since, Text: a.Opened + ": " + a.Reason, State: a.Status()}
	if a.Count > 1 {
		x.Text += fmt.Sprintf(" (%d runs)", a.Count)
	}
	if k := a.Acknowledged; k != nil {
		x.By, x.Note = k.By, k.Note
	}
	return x
}

// chartKey names one chart of a chamber.
type chartKey struct {
	svid string
	step int32
	stat uchart.Statistic
}

func worthShowing(charts []defender.UChart) []chartKey {
	outside := map[chartKey]int{}
	var keys []chartKey
	for _, u := range charts {
		for _, x := range u.Verdict.Violations {
			k := chartKey{x.SVID, x.Step, x.Statistic}
			if outside[k] == 0 {
				keys = append(keys, k)
			}
			outside[k]++
		}
	}
	slices.SortStableFunc(keys, func(a, b chartKey) int { return cmp.Compare(outside[b], outside[a]) })
	newest := charts[len(charts)-1].Chart
	for _, step := range newest.Steps {
		for _, svid := range newest.SVIDs {
			k := chartKey{svid, step, uchart.Mean}
			if len(keys) < chartSeries && outside[k] == 0 {
				keys = append(keys, k)
			}
		}
	}
	return keys[:min(chartSeries, len(keys))]
}

func scores(charts []defender.UChart) console.Series {
	out := console.Series{SVID: "score of the context", Stat: "score"}
	for _, u := range charts {
		p := console.Point{At: u.Context.End, Context: u.Context.ID, Value: &u.Verdict.Score}
		if u.Verdict.ScoreLimit > 0 {
			p.Upper = &u.Verdict.ScoreLimit
		}
		if u.Verdict.Flagged() {
			p.Flags = []string{u.Verdict.Reason()}
		}
		out.Points = append(out.Points, p)
	}
	return out
}

// limitsOf returns the limits of each context's charts by the contexts of its recipe before it. A verdict lists only those that are
// violated.
func limitsOf(charts []defender.UChart) []map[chartKey]uchart.ControlLimits {
	history := map[string][]uchart.Point{}
	out := make([]map[chartKey]uchart.ControlLimits, len(charts))
	for i, u := range charts {
		before := history[u.Context.Recipe]
		out[i] = map[chartKey]uchart.ControlLimits{}
		for _, l := range uchart.Limits(before, u.Chart, uchart.Policy{}) { // as judge does
			out[i][chartKey{l.SVID, l.Step, l.Statistic}] = l
		}
		history[u.Context.Recipe] = append(before, uchart.NewPoint(u.Context.ID, u.Chart, u.Verdict))
	}
	return out
}

func seriesOf(charts []defender.UChart, limits []map[chartKey]uchart.ControlLimits, k chartKey) console.Series {
	out := console.Series{SVID: k.svid, Step: fmt.Sprint(k.step), Stat: k.stat.String()}
	for n, u := range charts {
		p := console.Point{At: u.Context.End, Context: u.Context.ID}
		i := slices.Index(u.Chart.SVIDs, k.svid)
		if j, ok := slices.BinarySearch(u.Chart.Steps, k.step); ok && i >= 0 {
			if x, ok := u.Chart.Value(i, j, k.stat); ok {
				p.Value = &x
			}
		}
		if l, ok := limits[n][k]; ok {
			p.Lower, p.Centre, p.Upper = &l.Lower, &l.Center, &l.Upper
		}
		for _, x := range u.Verdict.Violations {
			if x.SVID == k.svid && x.Step == k.step && x.Statistic == k.stat {
				p.Lower, p.Centre, p.Upper = &x.Lower, &x.Center, &x.Upper
				p.Flags = []string{fmt.Sprintf("%+.1f sigma", x.Sigmas)}
			}
		}
		out.Points = append(out.Points, p)
	}
	return out
}
