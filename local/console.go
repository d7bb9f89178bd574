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
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/muster-dev/muster/console"
	"github.com/muster-dev/muster/console/chamberview"
	"github.com/muster-dev/muster/console/groupview"
	"github.com/muster-dev/muster/defender"
	"github.com/muster-dev/muster/partition"
	"github.com/muster-dev/muster/partition/event"
	"github.com/muster-dev/muster/partition/report"
	"github.com/muster-dev/muster/partition/role"
	"github.com/muster-dev/muster/partition/state"
)

// screen shows both planes on the console.
type screen struct {
	*console.Console
	plane    *WorkerPlane
	cluster  *atomic.Pointer[Cluster] // nil where there will be none
	moves    *groupview.Moves
	failures *groupview.Failures
	moments  groupview.Moments
	load     *load

	mu       sync.Mutex
	bySlot   []int                // chambers, of as many slots as there are
	drained  map[string]time.Time // until when a worker takes no slots, by stable ID
	standing map[standing]bool    // alarms; true: acknowledged

	crewMu sync.Mutex
	crew   map[string]report.Lease // by stable ID, as the leases last told
	asked  time.Time               // when that was
}

// standing names an alarm that is not cleared.
type standing struct {
	chamber defender.Chamber
	opened  string
}

// newScreen returns the console of planes that may still be starting; what isn't there yet is not shown. A nil cluster stands for none.
func newScreen(w *WorkerPlane, cluster *atomic.Pointer[Cluster]) (*screen, error) {
	s := &screen{plane: w, cluster: cluster, moves: groupview.NewMoves(), failures: groupview.NewFailures(), drained: map[string]time.Time{}, standing: map[standing]bool{}}
	s.load = &load{running: w.running}
	o := console.Options{Load: s.measure, Title: "Muster", Workers: s.workers, Chambers: s.chambers, Charts: s.charts, Alarms: s.alarms, Lookups: s.lookups(), Token: w.o.Token, Act: commands{w, s.nodePlane, s.failures}.act}
	if cluster != nil {
		o.Nodes = s.nodes
	}
	var err error
	if s.Console, err = console.New(o); err != nil {
		return nil, fmt.Errorf("making the console: %w", err)
	}
	return s, nil
}

// nodePlane returns the cluster, nil while there is none.
func (s *screen) nodePlane() *Cluster {
	if s.cluster == nil {
		return nil
	}
	return s.cluster.Load()
}

// nodes is the node plane as the console shows it.
func (s *screen) nodes(ctx context.Context) (console.NodePlane, error) {
	if t := s.nodePlane(); t != nil {
		return t.nodePlane(ctx)
	}
	return console.NodePlane{Nodes: []console.Node{}, Pending: []console.PendingPod{}, Interruptions: []console.Interruption{}}, nil
}

// measure measures the load once everything is started.
func (s *screen) measure(ctx context.Context) (console.Load, error) {
	if s.plane.seen() == nil {
		return console.Load{}, errStarting
	}
	s.load.backlog = s.plane.backlog // nothing else measures
	return s.load.read(ctx)
}

// chambersIn returns how many chambers each of n slots has.
func (s *screen) chambersIn(slots int) []int {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.bySlot) != slots {
		s.bySlot = make([]int, slots)
		for _, ch := range s.plane.Chambers {
			s.bySlot[partition.SlotOf(slots, ch.Tool, ch.Name)]++
		}
	}
	return s.bySlot
}

// event puts an event of a defender onto the console.
func (s *screen) event(e SeenEvent) {
	s.Changed()
	s.failures.Follow(e.Event, e.At)
	if move, ok := s.moves.Follow(e.Event); ok {
		s.SlotMoved(move)
	}
	s.follow(e)
	if m, ok := s.moments.Of(e.Event); ok {
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
	if a.Event == defender.AlarmDrifted {
		s.Say(console.Moment{Plane: "alarms", Kind: "drift", Subject: a.Context.Chamber.String(), Level: "warn", Text: a.Context.Chamber.String() + ", context " + a.Context.ID + ": " + a.Reason})
		return
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

// workers is the worker plane as the console shows it.
func (s *screen) workers(ctx context.Context) (console.WorkerPlane, error) {
	v := console.WorkerPlane{Group: defender.Group, Workers: []console.Worker{}, Owners: []int32{}, Next: []int32{}, Keys: len(s.plane.Chambers)}
	view := s.plane.seen()
	if view == nil {
		return v, nil
	}
	if t := s.nodePlane(); t != nil {
		running, pending := t.Phases()
		v.Expected = running + pending
	}
	crew, err := s.leases(ctx)
	a, states := view.now()
	failed := s.failures.Now(time.Now(), states, v.Expected)
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
		place := func(worker int32) int32 {
			if worker < 0 {
				return -1
			}
			return at[a.Workers[worker].ID]
		}
		v.Next = make([]int32, a.Slots)
		for slot := range v.Next {
			v.Owners = append(v.Owners, place(a.Owner[slot]))
			v.Next[slot] = -1
			if move, moving := a.Moves[slot]; moving {
				v.Next[slot] = place(move.Next)
			}
		}
	}
	waiting, oldest, backlogErr := s.plane.backlog.shown(ctx)
	v.Waiting, v.Oldest = waiting, oldest
	pids := s.plane.Defenders.processIDs()
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
func (s *screen) divide(v *console.WorkerPlane, a *report.Map, workers map[string]*console.Worker) {
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
		if move, moving := a.Moves[slot]; moving {
			workers[a.Workers[move.Next].ID].Gaining++
			if owner != nil {
				owner.Losing++
			}
		}
	}
}

// leasesAge is how old the leases may be that are shown. After a claim they are read at once.
const leasesAge = 4 * time.Second

// leases returns what the workers' leases tell of them, by stable ID.
func (s *screen) leases(ctx context.Context) (map[string]report.Lease, error) {
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
	nc, err := s.plane.As(role.Console)
	if err != nil {
		return s.crew, err
	}
	list, err := partition.Open(nc, defender.Group).Leases(ctx)
	if err != nil {
		return s.crew, err
	}
	s.crew = make(map[string]report.Lease, len(list))
	for _, m := range list {
		s.crew[m.ID] = m
	}
	s.failures.Leases(asked, s.crew, s.plane.seen().shown())
	return s.crew, nil
}

// byOrdinal orders stable IDs by their numbers.
func byOrdinal(a, b string) int { return cmp.Or(cmp.Compare(len(a), len(b)), cmp.Compare(a, b)) }

// chambers lists chambers by name, those with open alarms first.
func (s *screen) chambers(_ context.Context, contains string, limit int) ([]console.ChamberInfo, error) {
	out := []console.ChamberInfo{}
	if s.plane.seen() == nil {
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
	for _, c := range s.plane.Chambers {
		if strings.Contains(c.String(), contains) {
			out = append(out, console.ChamberInfo{Tool: c.Tool, Chamber: c.Name, Alarms: count[c]})
		}
	}
	slices.SortStableFunc(out, func(a, b console.ChamberInfo) int { return cmp.Compare(b.Alarms, a.Alarms) })
	return out[:min(limit, len(out))], nil
}

// charts shows a chamber's newest contexts: the score by which they are judged, and the charts that were outside their limits
// most often, filled up with means.
func (s *screen) charts(ctx context.Context, tool, name string) (console.Charts, error) {
	ch := defender.Chamber{Tool: tool, Name: name}
	if err := ch.Validate(); err != nil {
		return console.Charts{}, err
	}
	v := console.Charts{Tool: tool, Chamber: name, Series: []console.Series{}, Alarms: []console.Alarm{}}
	view := s.plane.seen()
	if view == nil {
		return v, nil
	}
	if a, _ := view.now(); a != nil {
		v.Slot = partition.SlotOf(a.Slots, tool, name)
		v.Owner = a.OwnerOf(v.Slot)
	}
	nc, err := s.plane.As(role.Console)
	if err != nil {
		return v, err
	}
	alarms, err := defender.ListAlarms(ctx, nc, defender.AlarmListQuery{Chamber: ch, All: true, Limit: 20})
	if err != nil {
		return v, err
	}
	for _, a := range alarms {
		v.Alarms = append(v.Alarms, chamberview.AlarmOf(a))
	}
	v.Series, err = chamberview.ReadSeries(ctx, s.plane.Store, ch)
	return v, err
}
