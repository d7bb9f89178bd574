package deployed

import (
	"cmp"
	"context"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/muster-dev/muster/console"
	"github.com/muster-dev/muster/console/chamberview"
	"github.com/muster-dev/muster/defender"
	"github.com/muster-dev/muster/partition"
)

// results shows the defenders' store, which may be away, also at the start.
type results struct {
	open    func(context.Context) (defender.Store, error)
	contact *console.Contact
	alarms  *alarms
	group   *group
	poll    *poller

	mu       sync.Mutex
	store    defender.Store // nil until it could be opened
	chambers []defender.Chamber
	err      error
}

const resultsEvery = 10 * time.Second

func newResults(name string, open func(context.Context) (defender.Store, error), a *alarms, g *group) *results {
	r := &results{open: open, contact: console.NewContact(name), alarms: a, group: g, err: errOpening}
	r.poll = newPoller(resultsEvery, time.Second, r.read)
	return r
}

func (r *results) run(ctx context.Context) {
	r.poll.run(ctx)
	if s, _ := r.opened(); s != nil {
		_ = s.Close()
	}
}

func (r *results) read(ctx context.Context) {
	store, _ := r.opened()
	var err error
	if store == nil {
		if store, err = r.open(ctx); err != nil {
			r.keep(nil, nil, r.contact.Note(err))
			return
		}
	}
	infos, err := store.Chambers(ctx)
	var list []defender.Chamber
	for _, c := range infos {
		list = append(list, c.Chamber)
	}
	r.keep(store, list, r.contact.Note(err))
}

func (r *results) keep(s defender.Store, list []defender.Chamber, err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.store, r.err = s, err
	if err == nil {
		r.chambers = list
	}
}

// opened returns the store. One that did not answer last is asked all the same: it may be back.
func (r *results) opened() (defender.Store, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.store == nil {
		return nil, r.err
	}
	return r.store, nil
}

// known lists the chambers that the store or an alarm names.
func (r *results) known() map[defender.Chamber]int {
	open := map[defender.Chamber]int{}
	r.mu.Lock()
	for _, c := range r.chambers {
		open[c] = 0
	}
	r.mu.Unlock()
	list, _ := r.alarms.now() // the header says if they can't be read
	for _, a := range list {
		if a.Status() == "open" {
			open[a.Chamber]++
		} else if _, has := open[a.Chamber]; !has {
			open[a.Chamber] = 0
		}
	}
	return open
}

// list lists chambers by name, those with open alarms first. A chamber that is written in full is looked up in the store: not every
// installation registers its chambers.
func (r *results) list(ctx context.Context, contains string, limit int) ([]console.ChamberInfo, error) {
	out := []console.ChamberInfo{}
	for c, open := range r.known() {
		if strings.Contains(c.String(), contains) {
			out = append(out, console.ChamberInfo{Tool: c.Tool, Chamber: c.Name, Alarms: open})
		}
	}
	slices.SortFunc(out, func(a, b console.ChamberInfo) int {
		return cmp.Or(cmp.Compare(b.Alarms, a.Alarms), cmp.Compare(a.Tool, b.Tool), cmp.Compare(a.Chamber, b.Chamber))
	})
	if len(out) == 0 {
		if c, err := defender.ParseChamber(contains); err == nil && r.has(ctx, c) {
			out = append(out, console.ChamberInfo{Tool: c.Tool, Chamber: c.Name})
		}
	}
	return out[:min(limit, len(out))], nil
}

func (r *results) has(ctx context.Context, c defender.Chamber) bool {
	store, err := r.opened()
	if err != nil {
		return false
	}
	runs, err := store.UCharts(ctx, c, 1)
	return err == nil && len(runs) > 0
}

// charts shows a chamber.
func (r *results) charts(ctx context.Context, tool, name string) (console.Charts, error) {
	ch := defender.Chamber{Tool: tool, Name: name}
	if err := ch.Validate(); err != nil {
		return console.Charts{}, err
	}
	v := console.Charts{Tool: tool, Chamber: name, Series: []console.Series{}, Alarms: []console.Alarm{}}
	if view, err := r.group.seen(); err == nil {
		v.Slot = partition.SlotOf(view.Slots, tool, name)
		if m := view.Map(); m != nil {
			v.Owner = m.OwnerOf(v.Slot)
		}
	}
	list, _ := r.alarms.now()
	for _, a := range list {
		if a.Chamber == ch && len(v.Alarms) < 20 {
			v.Alarms = append(v.Alarms, chamberview.AlarmOf(a))
		}
	}
	store, err := r.opened()
	if err != nil {
		return v, err
	}
	v.Series, err = chamberview.ReadSeries(ctx, store, ch)
	return v, err
}

func (r *results) oneRun(ctx context.Context, tool, name, id string) (console.Run, error) {
	store, err := r.opened()
	if err != nil {
		return console.Run{}, err
	}
	return chamberview.ReadRun(ctx, store, defender.Chamber{Tool: tool, Name: name}, id)
}

// key finds a chamber's slot. It takes tool001:chamber1 and tool001.chamber1, as subjects and logs write it.
func (r *results) key(text string) (console.Key, error) {
	ch, err := chamberview.ParseKey(text)
	if err != nil {
		return console.Key{}, err
	}
	v, err := r.group.seen()
	if err != nil {
		return console.Key{}, err
	}
	_, known := r.known()[ch]
	return console.Key{Key: ch.String(), Slot: partition.SlotOf(v.Slots, ch.Tool, ch.Name), Known: known, Tool: ch.Tool, Chamber: ch.Name}, nil
}

// slot lists the known chambers of a slot.
func (r *results) slot(slot, slots int) []string {
	keys := []string{}
	for c := range r.known() {
		if partition.SlotOf(slots, c.Tool, c.Name) == slot {
			keys = append(keys, c.String())
		}
	}
	slices.Sort(keys)
	return keys
}
