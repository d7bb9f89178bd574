package deployed

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/muster-dev/muster/console"
	"github.com/muster-dev/muster/console/chamberview"
	"github.com/muster-dev/muster/console/groupview"
	"github.com/muster-dev/muster/defender"
	"github.com/muster-dev/muster/nodes/connect"
	"github.com/muster-dev/muster/partition"
)

// Options say what is shown, and to whom.
type Options struct {
	// NATS is the connection to the servers. It may be away, also at the start.
	NATS *nats.Conn
	// Groups are the names of the groups: each has a console of its own, beside the node plane.
	Groups []string
	// Store opens the defenders' store, of which StoreName is shown; nil: there is none. It is for the group of the defenders.
	Store     func(context.Context) (defender.Store, error)
	StoreName string
	// Nodes opens the node plane's record and event log, of which NodesName is shown; nil: there is none.
	Nodes     func(context.Context) (*connect.Stores, error)
	NodesName string
	// Users says who may read and act; nil: everybody who reaches it may read.
	Users *console.Users
	// Audit keeps what operators do. Without it nobody may act.
	Audit *Audit
	Hosts []string // see console.Options
}

// Consoles are the consoles of the groups.
type Consoles struct {
	o       Options
	groups  []*group
	pages   []*console.Console
	alarms  *alarms
	results *results
	nodes   *nodePlane
}

// New returns the consoles. They show nothing before Run.
func New(o Options) (*Consoles, error) {
	c := &Consoles{o: o}
	l := link{nc: o.NATS, contact: console.NewContact("NATS")}
	if o.Nodes != nil {
		c.nodes = newNodePlane(o.NodesName, o.Nodes)
	}
	for _, name := range o.Groups {
		g := newGroup(name, l)
		c.groups = append(c.groups, g)
		if name == defender.Group {
			c.alarms = newAlarms(l)
			if o.Store != nil {
				c.results = newResults(o.StoreName, o.Store, c.alarms, g)
			}
		}
	}
	for _, g := range c.groups {
		page, err := console.New(c.options(g, l))
		if err != nil {
			return nil, err
		}
		g.page = page
		c.pages = append(c.pages, page)
		if g.name == defender.Group {
			c.alarms.page = page
		}
	}
	if c.nodes != nil {
		c.nodes.pages = c.pages
	}
	return c, nil
}

// options are those of a group's console.
func (c *Consoles) options(g *group, l link) console.Options {
	o := console.Options{Title: "Muster " + g.name, Workers: g.workers, Load: g.measured, Users: c.o.Users, Hosts: c.o.Hosts, Peers: c.peers(g.name)}
	o.Lookups = console.Lookups{Preview: g.preview, DeadLetters: g.listLetters, Slot: g.slot, Key: g.key}
	contacts := []*console.Contact{l.contact, g.contact}
	if g.name == defender.Group {
		contacts = append(contacts, c.alarms.contact)
		o.Alarms, o.AlarmList = c.alarms.count, c.alarms.shown
		if r := c.results; r != nil {
			contacts = append(contacts, r.contact)
			o.Chambers, o.Charts, o.Run = r.list, r.charts, r.oneRun
			o.Key = func(_ context.Context, text string) (console.Key, error) { return r.key(text) }
			o.Slot = func(ctx context.Context, slot int) (console.Slot, error) {
				v, err := g.slot(ctx, slot)
				if view, viewErr := g.seen(); err == nil && viewErr == nil {
					v.Keys = r.slot(slot, view.Slots)
				}
				return v, err
			}
		}
	}
	if c.nodes != nil {
		contacts = append(contacts, c.nodes.contact)
		o.Nodes = c.nodes.now
	}
	o.Sources = func() (all []console.Source) {
		for _, x := range contacts {
			all = append(all, x.Source())
		}
		return all
	}
	if c.o.Audit != nil {
		o.Act, o.Record = acts{g, l, c.nodes}.act, c.o.Audit.record(g.name)
	}
	return o
}

// peers are the links between the groups' consoles.
func (c *Consoles) peers(here string) []console.Peer {
	var all []console.Peer
	for _, name := range c.o.Groups {
		all = append(all, console.Peer{Title: name, Address: "../" + name + "/", Here: name == here})
	}
	return all
}

// slot says what a slot holds. The keys of a group are in its messages and its handlers' stores alone.
func (g *group) slot(_ context.Context, slot int) (console.Slot, error) {
	v, err := g.seen()
	if err != nil {
		return console.Slot{}, err
	}
	if slot >= v.Slots {
		return console.Slot{}, fmt.Errorf("%w: there are slots 0 to %d", console.ErrUnknownTarget, v.Slots-1)
	}
	return console.Slot{Slot: slot, Keys: []string{}}, nil
}

// key finds a key's slot.
func (g *group) key(_ context.Context, text string) (console.Key, error) {
	v, err := g.seen()
	if err != nil {
		return console.Key{}, err
	}
	if err := (partition.Config{Subject: v.Subject}).CheckKey(text); err != nil {
		return console.Key{}, fmt.Errorf("%w: %w", console.ErrUnknownTarget, err)
	}
	return console.Key{Key: text, Slot: v.Key(text).Slot}, nil
}

// Run reads what the consoles show until ctx ends.
func (c *Consoles) Run(ctx context.Context) {
	var running sync.WaitGroup
	defer running.Wait()
	for _, g := range c.groups {
		before := c.o.Audit.of(g.name)
		for _, d := range before {
			g.page.Replay(d)
		}
		running.Go(func() { g.run(ctx, before) })
		running.Go(func() { g.page.Run(ctx) })
	}
	if c.alarms != nil {
		running.Go(func() { c.alarms.run(ctx) })
	}
	if c.results != nil {
		running.Go(func() { c.results.run(ctx) })
	}
	if c.nodes != nil {
		running.Go(func() { c.nodes.run(ctx) })
	}
}

// Handler serves the consoles: each group's below its name, and a single one's at the root as well.
func (c *Consoles) Handler() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /healthz", func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte("ok\n")) })
	if len(c.pages) == 1 {
		mux.Handle("/", c.pages[0])
		return mux
	}
	for i, g := range c.groups {
		path := "/groups/" + g.name
		mux.Handle(path+"/", http.StripPrefix(path, c.pages[i]))
	}
	mux.Handle("GET /{$}", http.RedirectHandler("/groups/"+c.groups[0].name+"/", http.StatusFound))
	return mux
}

// acts carries out what an operator asks for.
type acts struct {
	group *group
	link  link
	nodes *nodePlane // nil: none is shown
}

func (a acts) act(ctx context.Context, cmd console.Command) error {
	switch cmd.Name {
	case console.DrainWorker:
		return groupview.Drain(ctx, a.link.nc, a.group.name, cmd.Target, time.Now().Add(console.DrainFor).Truncate(time.Millisecond))
	case console.UndrainWorker:
		return groupview.Drain(ctx, a.link.nc, a.group.name, cmd.Target, time.Time{})
	case console.AcknowledgeFailure:
		if !a.group.failures.Acknowledge(cmd.Target) {
			return fmt.Errorf("%w: no failed worker %q is shown", console.ErrUnknownTarget, cmd.Target)
		}
		a.group.poll.soon()
		return nil
	case console.Acknowledge:
		return chamberview.Acknowledge(ctx, a.link.nc, cmd.Target, cmd.By, cmd.Reason)
	case console.PauseScaling, console.ResumeScaling:
		return a.nodes.setScaling(ctx, cmd)
	}
	return fmt.Errorf("%w %q", console.ErrUnknownCommand, cmd.Name)
}

// CheckGroups returns what is wrong with names of groups: everything, at once.
func CheckGroups(names []string) error {
	var errs []error
	if len(names) == 0 {
		errs = append(errs, errors.New("no group is named"))
	}
	for i, name := range names {
		if name == "" || strings.ContainsAny(name, "/.*> \t") {
			errs = append(errs, fmt.Errorf("%q is no group: give the name that its workers' IDs begin with", name))
		}
		if slices.Contains(names[:i], name) {
			errs = append(errs, fmt.Errorf("group %q is named twice", name))
		}
	}
	return errors.Join(errs...)
}
