package local

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/muster-dev/muster/defender"
	"github.com/muster-dev/muster/partition"
	"github.com/muster-dev/muster/partition/event"
	"github.com/muster-dev/muster/partition/state"
)

// View is what can be seen of the defenders from outside: their events and the
// assignment maps.
type View struct {
	mu      sync.Mutex
	states  map[string]state.State // by stable ID
	claims  map[string]uint64      // by stable ID, that of its newest holder
	events  []SeenEvent
	maps    []SeenMap
	onMap   func(SeenMap)   // called for each new version, at once, if set
	onEvent func(SeenEvent) // called for each event, if set
	tell    func(SeenEvent) // called for each event

	sub   *nats.Subscription
	watch jetstream.KeyWatcher
	done  chan struct{}
}

// SeenEvent is an event of a defender, with the time at which it arrived here.
type SeenEvent struct {
	event.Event
	At time.Time // by our clock
}

// SeenMap is an assignment map, with the time at which it arrived here.
type SeenMap struct {
	*partition.Assignment
	At time.Time
}

func newView(ctx context.Context, nc *nats.Conn, tell func(SeenEvent)) (*View, error) {
	v := &View{tell: tell, states: map[string]state.State{}, claims: map[string]uint64{}, done: make(chan struct{})}
	var err error
	if v.sub, err = nc.Subscribe(partition.Open(nc, defender.Group).EventSubject(), v.event); err != nil {
		return nil, fmt.Errorf("following the defenders' events: %w", err)
	}
	if err := v.sub.SetPendingLimits(-1, -1); err != nil {
		return nil, fmt.Errorf("following the defenders' events: %w", err)
	}
	js, err := jetstream.New(nc)
	if err != nil {
		return nil, fmt.Errorf("following the assignment map: %w", err)
	}
	kv, err := js.KeyValue(ctx, defender.Group+"-assignments")
	if err != nil {
		return nil, fmt.Errorf("following the assignment map: %w", err)
	}
	if v.watch, err = kv.Watch(ctx, partition.AssignmentKey); err != nil {
		return nil, fmt.Errorf("following the assignment map: %w", err)
	}
	go v.follow()
	return v, nil
}

func (v *View) close() {
	_ = v.sub.Unsubscribe()
	_ = v.watch.Stop()
	<-v.done
}

func (v *View) event(msg *nats.Msg) {
	var e event.Event
	if json.Unmarshal(msg.Data, &e) != nil {
		return
	}
	v.mu.Lock()
	defer v.mu.Unlock()
	s := SeenEvent{e, time.Now()}
	v.events = append(v.events, s)
	if v.onEvent != nil {
		v.onEvent(s)
	}
	v.tell(s)
	switch e.Kind {
	case event.StateChanged:
		if e.Worker != "" {
			v.states[e.Worker] = e.To
		}
	case event.IDClaimed:
		v.claims[e.Worker] = e.Claim
	case event.WorkerGone:
		// The leader may tell it when the ID's next holder is at work.
		if v.claims[e.Peer] == e.Claim {
			delete(v.states, e.Peer)
		}
	case event.Left, event.IdentityLost:
		delete(v.states, e.Worker)
	default:
	}
}

func (v *View) follow() {
	defer close(v.done)
	for e := range v.watch.Updates() {
		if e == nil || e.Operation() != jetstream.KeyValuePut {
			continue
		}
		a, err := partition.DecodeAssignment(e.Value())
		if err != nil {
			continue
		}
		m := SeenMap{a, time.Now()}
		v.mu.Lock()
		newer := len(v.maps) == 0 || v.maps[len(v.maps)-1].Version < a.Version
		v.maps = append(v.maps, m)
		call := v.onMap
		v.mu.Unlock()
		if newer && call != nil {
			call(m)
		}
	}
}

// SetOnEvent has f called for each event, at once; nil ends that.
func (v *View) SetOnEvent(f func(SeenEvent)) {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.onEvent = f
}

// SetOnMap has f called for each new version of the map, at once; nil ends that.
func (v *View) SetOnMap(f func(SeenMap)) {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.onMap = f
}

// Latest returns the newest map, nil before the first.
func (v *View) Latest() *partition.Assignment {
	v.mu.Lock()
	defer v.mu.Unlock()
	if len(v.maps) == 0 {
		return nil
	}
	return v.maps[len(v.maps)-1].Assignment
}

// Versions returns all maps in the order in which they were seen.
func (v *View) Versions() []SeenMap {
	v.mu.Lock()
	defer v.mu.Unlock()
	return slices.Clone(v.maps)
}

// now returns the newest map, nil before the first, and every defender's state.
func (v *View) now() (*partition.Assignment, map[string]state.State) {
	v.mu.Lock()
	defer v.mu.Unlock()
	if len(v.maps) == 0 {
		return nil, maps.Clone(v.states)
	}
	return v.maps[len(v.maps)-1].Assignment, maps.Clone(v.states)
}

// shown returns the state that every defender last reported.
func (v *View) shown() map[string]state.State {
	v.mu.Lock()
	defer v.mu.Unlock()
	return maps.Clone(v.states)
}

// FirstOf returns the first map of a version as it was published.
func (v *View) FirstOf(version uint64) (SeenMap, bool) {
	v.mu.Lock()
	defer v.mu.Unlock()
	for _, m := range v.maps {
		if m.Version == version {
			return m, true
		}
	}
	return SeenMap{}, false
}

func (v *View) count(s state.State) int {
	v.mu.Lock()
	defer v.mu.Unlock()
	n := 0
	for _, x := range v.states {
		if x == s {
			n++
		}
	}
	return n
}

// Clear forgets the states of workers that are all gone.
func (v *View) Clear() {
	v.mu.Lock()
	defer v.mu.Unlock()
	clear(v.states)
}

// Since returns the events from a time on.
func (v *View) Since(t time.Time) []SeenEvent {
	v.mu.Lock()
	defer v.mu.Unlock()
	var es []SeenEvent
	for _, e := range v.events {
		if !e.At.Before(t) {
			es = append(es, e)
		}
	}
	return es
}

// Stable reports whether n defenders, and no others, have all slots, with
// no handoff under way.
func (v *View) Stable(n int) bool {
	a := v.Latest()
	return a != nil && a.Settled() && len(a.Workers) == n && v.count(state.Stable) == n
}
