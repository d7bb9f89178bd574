package partition

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/muster-dev/muster/partition/internal/record"
	"github.com/muster-dev/muster/partition/plan"
	"github.com/muster-dev/muster/partition/report"
)

// WhatIf is a change of a group whose plan is to be previewed. The zero value changes nothing.
type WhatIf struct {
	Without         []string   // workers to treat as failed
	Drain           []string   // workers to treat as draining
	Add             int        // number of workers that join, of capacity 1
	Overrides       []Override // overrides to add
	RemoveOverrides []int      // slots whose override is removed
	// Balance asks for a plan even if nothing would have the leader plan.
	Balance bool
	// Strategy plans; default plan.Sticky(). It must be what the workers are
	// configured with.
	Strategy plan.Strategy
}

// Forecast plans as the leader would, from what can be seen from outside. What
// only the leader knows may change it: which suspects it waits for, and weights
// that it learned since. The error names every fault of w.
func (v *View) Forecast(w WhatIf) (report.Forecast, error) {
	f := forecaster{v: v, what: make(map[string]string), keeps: make(map[record.Process]bool), f: report.Forecast{Slots: v.Slots, Version: 1, Reasons: []string{}, Moves: []report.ForecastMove{}}}
	if v.assignment != nil {
		f.f.Version = v.assignment.Version + 1
	}
	if err := f.check(w); err != nil {
		return report.Forecast{}, err
	}
	f.gather(w)
	f.owners(w)
	before, err := f.measure()
	if err != nil {
		return report.Forecast{}, fmt.Errorf("forecasting: %w", err)
	}
	f.f.WorstOverMeanBefore = before
	f.f.WorstOverMean = before
	f.reasons(w)
	if len(f.f.Reasons) == 0 && !w.Balance {
		f.f.Version--
		f.workers(f.p.Owners)
		return f.f, nil
	}
	defaulted(&w.Strategy, plan.Sticky())
	pl, err := w.Strategy.Plan(f.p)
	if err != nil {
		return report.Forecast{}, fmt.Errorf("forecasting: %w", err)
	}
	f.take(pl)
	return f.f, nil
}

// forecaster gathers what a plan needs: from the view's leases and map, and from what is
// assumed beside them, it makes the problem that the leader would solve, as the leader would.
// Its fields by slot and by worker have the order of the problem, so they are filled in the
// order in which the methods of this file call each other.
type forecaster struct {
	v                      *View
	f                      report.Forecast
	p                      plan.Problem
	processes              []record.Process  // as the problem's workers
	what                   map[string]string // by worker: new, draining, outdated or gone
	was                    []string          // by slot, who has it or will
	frozen                 map[int]record.Process
	keeps                  map[record.Process]bool // outdated workers that stay
	joiners, leaving, dead int
}

func (f *forecaster) check(w WhatIf) error {
	var errs []error
	known := make(map[string]bool)
	for _, m := range f.v.Leases {
		known[m.ID] = true
	}
	for _, id := range slices.Concat(w.Without, w.Drain) {
		if !known[id] {
			errs = append(errs, fmt.Errorf("%q is no worker of group %s: it has %s", id, f.v.Group, f.v.names()))
		}
	}
	for _, id := range w.Drain {
		if slices.Contains(w.Without, id) {
			errs = append(errs, fmt.Errorf("%q can't be gone and drain: choose one", id))
		}
	}
	if w.Add < 0 || w.Add > 100000 {
		errs = append(errs, fmt.Errorf("%d workers to add: give 0 to 100000", w.Add))
	}
	for _, p := range w.Overrides {
		if s := p.slot(f.v.Slots); s < 0 || s >= f.v.Slots {
			errs = append(errs, fmt.Errorf("slot %d is outside 0 to %d", s, f.v.Slots-1))
		}
	}
	return errors.Join(errs...)
}

// names lists some of the workers.
func (v *View) names() string {
	var ids []string
	for _, m := range v.Leases {
		if len(ids) == 5 {
			ids = append(ids, fmt.Sprintf("%d more", len(v.Leases)-5))
			break
		}
		ids = append(ids, m.ID)
	}
	if ids == nil {
		return "none"
	}
	return strings.Join(ids, ", ")
}

// gather makes the list of workers: those with a lease, those of the map without one, and
// those that join in the preview.
func (f *forecaster) gather(w WhatIf) {
	listed := make(map[string]bool)
	for _, m := range f.v.Leases {
		listed[m.ID] = true
		f.gatherLive(m, w)
	}
	if f.v.assignment != nil {
		f.gatherUnleased(listed)
	}
	for i, n := 0, 0; i < w.Add; n++ {
		if id := fmt.Sprintf("%s-%d", f.v.Group, n); !listed[id] && f.what[id] == "" {
			listed[id] = true
			f.add(record.Process{ID: id}, plan.Worker{ID: id}, "new")
			f.joiners++
			i++
		}
	}
}

// add adds a worker to the problem.
func (f *forecaster) add(m record.Process, pw plan.Worker, what string) {
	f.processes = append(f.processes, m)
	f.p.Workers = append(f.p.Workers, pw)
	if what != "" {
		f.what[m.ID] = what
	}
}

// gatherLive adds a worker with a lease, unless it is to have no part in the plan.
func (f *forecaster) gatherLive(m report.Lease, w WhatIf) {
	at, inMap := f.placeOf(record.Process(m.Process))
	goes := m.Leaving || m.Draining || slices.Contains(w.Drain, m.ID)
	if inMap && m.Leaving && f.v.assignment.Restarting[int(f.v.assignment.Index(at))] {
		goes = false // its slots wait for it
	}

	worker := plan.Worker{ID: m.ID, Weight: m.Capacity, Zone: m.Zone, Draining: goes || m.Outdated}
	switch {
	case slices.Contains(w.Without, m.ID):
		f.what[m.ID] = "gone"
		f.dead++
	case worker.Draining && !inMap:
	case goes:
		f.leaving++
		f.add(at, worker, "draining")
	case m.Outdated:
		f.keeps[at] = true
		f.add(at, worker, "outdated")
	case !inMap:
		f.joiners++
		f.add(at, worker, "new")
	default:
		f.add(at, worker, "")
	}
}

// placeOf returns the member of the map whose slots a live worker has. A successor takes
// its predecessor's place, and nothing moves.
func (f *forecaster) placeOf(m record.Process) (at record.Process, inMap bool) {
	cur := f.v.assignment
	if cur == nil {
		return m, false
	}
	if cur.Index(m) != record.None {
		return m, true
	}
	if i := cur.Predecessor(m); i != record.None {
		return cur.Workers[i], true
	}
	return m, false
}

// gatherUnleased adds the workers of the map that have no lease and are awaited, and
// counts those that have slots and are not.
func (f *forecaster) gatherUnleased(listed map[string]bool) {
	cur := f.v.assignment
	counts := cur.Counts()
	for i, m := range cur.Workers {
		switch {
		case listed[m.ID]:
		case cur.Restarting[i]:
			listed[m.ID] = true
			f.add(m, plan.Worker{ID: m.ID}, "")
		case counts[m.ID] > 0:
			f.what[m.ID] = "gone"
			f.dead++
		}
	}
}

// owners fills in whose each slot is, and the overrides.
func (f *forecaster) owners(w WhatIf) {
	f.p.Slots = f.v.Slots
	if f.v.load != nil {
		f.p.Weights = f.v.load.Weights
	}
	f.frozen = owners(&f.p, f.v.assignment, f.processes)
	f.f.InMotion = len(f.frozen)
	f.keepOutdated()
	f.was = make([]string, f.v.Slots)
	for s := range f.was {
		if f.v.assignment != nil {
			f.was[s] = f.v.assignment.OwnerOf(s)
		}
	}
	now := time.Now()
	overrides := slices.Clone(f.v.Overrides)
	for _, p := range w.Overrides {
		p.At = now
		overrides = append(overrides, p)
	}
	at := bySlot(overrides, f.v.Slots)
	for _, s := range w.RemoveOverrides {
		delete(at, s)
	}
	for s := range f.v.Slots {
		if p, ok := at[s]; ok {
			f.p.Overrides = append(f.p.Overrides, plan.Override{Slot: s, Worker: p.Worker})
		}
	}
}

// keepOutdated leaves the slots of outdated workers where they are.
func (f *forecaster) keepOutdated() {
	keeps := make([]bool, len(f.processes))
	for i, m := range f.processes {
		keeps[i] = f.keeps[m]
		if keeps[i] {
			f.f.Notes = append(f.f.Notes, outdatedNote(m.ID))
		}
	}
	keepSlots(&f.p, keeps, func(slot int, owner int32) { f.frozen[slot] = f.processes[owner] })
}

// reasons tells why the leader would plan.
func (f *forecaster) reasons(w WhatIf) {
	add := func(reason string) { f.f.Reasons = append(f.f.Reasons, reason) }
	if f.dead > 0 {
		add(reasonCrash)
	}
	if f.leaving > 0 {
		add("scale-down")
	}
	switch {
	case f.joiners > 0 && f.v.assignment == nil:
		add("cold start")
	case f.joiners > 0:
		add("scale-up")
	}
	if len(w.Overrides) > 0 || len(w.RemoveOverrides) > 0 || f.v.assignment != nil && f.v.assignment.Overrides != f.v.overridesRevision {
		add(reasonOverrides)
	}
	// As the leader does: a death or an override alone does not tune the balance.
	if f.joiners > 0 || f.leaving > 0 || len(f.f.Reasons) == 0 {
		f.p.Budget = -1
	}
}

// measure tells how even the loads are now, over those that have any.
func (f *forecaster) measure() (float64, error) {
	worst := 0.0
	for _, w := range f.v.Workers() {
		worst = max(worst, w.OverMean)
	}
	return worst, f.p.Validate()
}

// take turns a plan into the forecast.
func (f *forecaster) take(pl plan.Plan) {
	owners := slices.Clone(pl.Owners)
	for _, m := range pl.Moves {
		if _, moving := f.frozen[m.Slot]; moving {
			owners[m.Slot] = f.p.Owners[m.Slot]
			continue
		}
		load := f.v.weight(m.Slot)
		move := report.ForecastMove{Slot: m.Slot, To: f.p.Workers[m.To].ID, Load: load, Reason: m.Reason.String(), Why: plan.Explain(f.p, m)}
		if m.From >= 0 {
			move.From = f.p.Workers[m.From].ID
		}
		f.f.Moves = append(f.f.Moves, move)
		f.f.MovedLoad += load
	}
	f.f.Notes, f.f.LowerBound, f.f.WorstOverMean = append(f.f.Notes, pl.Notes...), pl.Stats.LowerBound, pl.Stats.WorstOverMean
	f.workers(owners)
}

func (f *forecaster) workers(owners []int32) {
	by := make(map[string]*report.ForecastWorker)
	get := func(id string) *report.ForecastWorker {
		if by[id] == nil {
			by[id] = &report.ForecastWorker{ID: id, What: f.what[id]}
		}
		return by[id]
	}
	for _, w := range f.p.Workers {
		get(w.ID).Zone = w.Zone
	}
	for s, o := range owners {
		if f.was[s] != "" {
			w := get(f.was[s])
			w.Before++
			w.LoadBefore += f.v.weight(s)
		}
		if o >= 0 {
			w := get(f.p.Workers[o].ID)
			w.After++
			w.Load += f.v.weight(s)
		}
	}
	f.f.Workers = []report.ForecastWorker{}
	for _, w := range by {
		f.f.Workers = append(f.f.Workers, *w)
	}
	slices.SortFunc(f.f.Workers, func(a, b report.ForecastWorker) int { return compareIDs(a.ID, b.ID) })
}
