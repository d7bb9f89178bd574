package deployed

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/muster-dev/muster/console"
	"github.com/muster-dev/muster/internal/secret"
	"github.com/muster-dev/muster/nodes"
	"github.com/muster-dev/muster/nodes/connect"
	"github.com/muster-dev/muster/nodes/explain"
	"github.com/muster-dev/muster/nodes/fit"
)

// nodePlane shows a node plane by its record and its event log. It asks neither the cloud nor the cluster: what it shows of nodes is
// what the last decision saw.
type nodePlane struct {
	open    func(context.Context) (*connect.Stores, error)
	contact *console.Contact
	pages   []*console.Console
	poll    *poller

	since    time.Time            // events before are known
	told     map[string]time.Time // those of the last minutes, by their keys
	deciders connect.Deciders

	latest      nodes.Snapshot // as the newest decision has it
	hasDecision bool

	mu     sync.Mutex
	stores *connect.Stores // nil until they could be opened
	begun  bool
	plane  console.NodePlane
	err    error
}

const (
	nodesEvery = 5 * time.Second
	nodesPast  = 24 * time.Hour
	nodesMost  = 2000 // events of it
	// eventsOverlap is how much is read again: processes' clocks differ, and an event may come behind a later one.
	eventsOverlap = time.Minute
	// lastTick is how old the last decision may be before the console says that no process ticks.
	lastTick = 5 * time.Minute
)

// errOpening says that a source has not been opened yet.
var errOpening = errors.New("it is still being opened: try again in a moment")

func newNodePlane(name string, open func(context.Context) (*connect.Stores, error)) *nodePlane {
	n := &nodePlane{open: open, contact: console.NewContact(name), err: errOpening, told: map[string]time.Time{}}
	n.plane = console.NodePlane{Nodes: []console.Node{}, Pending: []console.PendingPod{}, Interruptions: []console.Interruption{}}
	n.poll = newPoller(nodesEvery, time.Second, n.read)
	return n
}

func (n *nodePlane) run(ctx context.Context) {
	n.poll.run(ctx)
	if s := n.opened(); s != nil {
		_ = s.Close()
	}
}

func (n *nodePlane) opened() *connect.Stores {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.stores
}

// setScaling pauses scaling or resumes it.
func (n *nodePlane) setScaling(ctx context.Context, cmd console.Command) error {
	if n == nil {
		return fmt.Errorf("%w: there is no node plane here", console.ErrUnknownCommand)
	}
	s := n.opened()
	if s == nil {
		n.mu.Lock()
		defer n.mu.Unlock()
		return n.err
	}
	defer n.poll.soon()
	return console.SetScaling(ctx, nodes.Switch{Store: s.Store, EventLog: s.EventLog, Clock: nodes.SystemClock{}}, cmd)
}

// read reads what is durable.
func (n *nodePlane) read(ctx context.Context) {
	err := n.contact.Note(n.readAll(ctx))
	n.mu.Lock()
	n.err = err
	n.mu.Unlock()
	for _, p := range n.pages {
		p.Changed()
	}
}

func (n *nodePlane) readAll(ctx context.Context) (err error) {
	stores := n.opened()
	if stores == nil {
		if stores, err = n.open(ctx); err != nil {
			return err
		}
		n.mu.Lock()
		n.stores = stores
		n.mu.Unlock()
	}
	events, err := n.newEvents(ctx, stores.EventLog)
	if err != nil {
		return err
	}
	snap, found, err := n.lastDecision(ctx, stores.EventLog, events)
	if err != nil {
		return err
	}
	record, err := stores.Store.Load(ctx)
	if err != nil {
		return fmt.Errorf("reading the record: %w", err)
	}
	if err := sameCluster(snap, record); err != nil {
		return err
	}
	open, err := stores.Store.OpenInterruptions(ctx)
	if err != nil {
		return fmt.Errorf("reading interruptions: %w", err)
	}
	n.say(events)
	if found {
		n.show(snap, record, open)
	}
	return nil
}

// sameCluster returns an error if a decision is of another cluster than the record: the console would show its nodes and none of its
// actions. A cluster's name is in its record's key.
func sameCluster(s nodes.Snapshot, r nodes.Record) error {
	if s.Record.PK == "" || s.Record.PK == r.PK { // the former: no decision
		return nil
	}
	name := strings.TrimPrefix(strings.TrimPrefix(s.Record.PK, nodes.RecordKey("")), "#")
	if name == "" {
		return fmt.Errorf("the last decision is of a cluster without a name, and the record is %q: unset CLUSTER", r.PK)
	}
	return fmt.Errorf("the last decision is of cluster %q, and the record is %q: set CLUSTER to %q", name, r.PK, name)
}

// newEvents reads the events since the last reading: of the last day at first.
func (n *nodePlane) newEvents(ctx context.Context, log nodes.EventLog) ([]nodes.Event, error) {
	q := nodes.Query{Since: n.since.Add(-eventsOverlap)}
	if n.since.IsZero() {
		q = nodes.Query{Since: time.Now().Add(-nodesPast), Limit: nodesMost}
	}
	var out []nodes.Event
	for e, err := range log.Read(ctx, q) {
		if err != nil {
			return nil, fmt.Errorf("reading the event log: %w", err)
		}
		if _, told := n.told[e.Key()]; !told {
			out = append(out, e)
		}
	}
	return out, nil
}

// lastDecision returns what the newest decision was made on: of new events, or at first of all that are kept.
func (n *nodePlane) lastDecision(ctx context.Context, log nodes.EventLog, events []nodes.Event) (nodes.Snapshot, bool, error) {
	for _, e := range slices.Backward(events) {
		if e.Kind == "decision" {
			s, err := explain.Snapshot(e)
			return s, true, err
		}
	}
	n.mu.Lock()
	begun := n.begun
	n.mu.Unlock()
	if begun {
		return n.latest, n.hasDecision, nil
	}
	for e, err := range log.Read(ctx, nodes.Query{Kind: "decision", Limit: 1}) {
		if err != nil {
			return nodes.Snapshot{}, false, fmt.Errorf("reading the event log: %w", err)
		}
		s, err := explain.Snapshot(e)
		return s, true, err
	}
	return nodes.Snapshot{}, false, nil
}

// say puts events into the timelines; what merely continues is no line.
func (n *nodePlane) say(events []nodes.Event) {
	var moments []console.Moment
	for _, e := range events {
		if e.At.After(n.since) {
			n.since = e.At
		}
		n.told[e.Key()] = e.At
		switch e.Kind {
		case "decision", "lease.held", "scaleUp.waiting":
			continue
		}
		m := console.MomentOf(e)
		m.Text = secret.Redact(m.Text)
		moments = append(moments, m)
	}
	for key, at := range n.told {
		if n.since.Sub(at) > 2*eventsOverlap {
			delete(n.told, key)
		}
	}
	n.mu.Lock()
	first := !n.begun
	n.begun = true
	n.mu.Unlock()
	for _, p := range n.pages {
		if first {
			p.Recall(moments)
			continue
		}
		for _, m := range moments {
			p.Say(m)
		}
	}
}

// show keeps what the console shows, by the newest decision and what has become durable since.
func (n *nodePlane) show(s nodes.Snapshot, record nodes.Record, open []nodes.Interruption) {
	n.latest, n.hasDecision = s, true
	s.Record, s.Observation.Interruptions = record, open
	var price console.Pricer
	if catalog, err := fit.OpenCatalog(s.Policy.InstanceTable); err == nil {
		price = func(instanceType string, market nodes.Market) (float64, bool) {
			p := catalog[instanceType].Price(market)
			return p, p > 0
		}
	}
	v := console.NodePlaneOf(s, price)
	if d, err := n.deciders.For(s.Policy); err == nil { // else its table is on another machine
		v.Foresee(explain.Ahead(d, n.latest))
	}
	n.mu.Lock()
	n.plane = v
	n.mu.Unlock()
}

// now is the node plane as it was read last.
func (n *nodePlane) now(context.Context) (console.NodePlane, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	v := n.plane
	switch age := time.Since(v.At); {
	case n.err != nil:
		return v, n.err
	case v.At.IsZero():
		return v, errors.New("no tick has been logged yet: is muster nodes run at work?")
	case age > lastTick:
		return v, fmt.Errorf("the last tick was %s ago: no process ticks, and nothing scales", cmp.Or(age.Round(time.Minute), time.Minute))
	}
	return v, nil
}
