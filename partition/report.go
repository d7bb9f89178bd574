package partition

import (
	"cmp"
	"slices"

	"github.com/muster-dev/muster/partition/internal/record"
	"github.com/muster-dev/muster/partition/report"
	"github.com/muster-dev/muster/partition/state"
)

// State is what the group as a whole is doing: INIT before the first map,
// DEGRADED while the leader can't be sure of its lease or a lease has ended and was not
// removed, as when the servers have no room to write, ELECTION while no worker leads,
// EMERGENCY while slots are taken from the dead or
// wait for that, REBALANCING while slots change hands, SCALING while workers that join
// wait to be planned for, and STABLE otherwise.
func (v *View) State() state.State {
	if n, _ := v.staleLeases(); n > 0 && v.assignment != nil {
		return state.Degraded
	}
	switch {
	case v.assignment == nil:
		return state.Init
	case !v.leaderValid():
		return state.Election
	}
	var gone, joining, unsure bool
	counts := v.assignment.Counts()
	for _, w := range v.Workers() {
		gone = gone || w.State == state.Gone && !w.Restarting && counts[w.ID] > 0
		unsure = unsure || w.Leading && w.State == state.Degraded
		joining = joining || w.New && !w.Leaving && !w.Draining && !w.Outdated
	}
	switch {
	case unsure:
		return state.Degraded
	case gone, len(v.assignment.Taking) > 0:
		return state.Emergency
	case len(v.assignment.Moves) > 0:
		return state.Rebalancing
	case joining:
		return state.Scaling
	}
	return state.Stable
}

// Report tells what the view means.
func (v *View) Report() report.Group {
	r := report.Group{At: v.At, Group: v.Group, Stream: v.Stream, State: v.State(), Leader: v.Leader, Layout: v.Generation, Slots: v.Slots,
		Expected: v.Expected, Pending: v.Pending, Workers: v.Workers(), Moves: v.moves(), Standbys: v.Standbys, Overrides: v.overrides()}
	if v.Shards > 1 {
		r.Shards = v.Shards
	}
	r.Source, r.NotCopied, r.SourceFault = v.Source, v.NotCopied, v.SourceFault
	r.Why, r.Fill, r.LeaderAge = v.trouble(), v.Fill, -1
	if v.Leader != "" {
		r.LeaderAge = max(0, v.now().Sub(v.LeaderRenewed).Seconds())
	}
	if !v.Oldest.IsZero() {
		r.OldestPending = max(0, v.At.Sub(v.Oldest).Seconds())
	}
	if m := v.assignment; m != nil {
		r.Version, r.Epoch, r.FirstAssigned, r.Planned = m.Version, m.Epoch, m.FirstAssigned, m.Planned
	}
	if v.load != nil {
		for _, n := range v.load.Keys {
			r.Keys += n
		}
	}
	r.RetryQueue = v.retryQueue()
	r.Drains = []report.Drain{}
	for _, w := range r.Workers {
		r.WorstOverMean = max(r.WorstOverMean, w.OverMean)
		if w.Draining {
			i := slices.IndexFunc(v.Leases, func(m report.Lease) bool { return m.ID == w.ID })
			r.Drains = append(r.Drains, report.Drain{Worker: w.ID, Until: v.Leases[i].DrainEnd, Slots: w.Slots})
		}
	}
	if r.Standbys == nil {
		r.Standbys = []report.Standby{}
	}
	return r
}

func (v *View) retryQueue() report.RetryQueue {
	out := report.RetryQueue{Messages: v.RetryQueue.Messages, Keys: []report.RetryKey{}}
	if !v.RetryQueue.Oldest.IsZero() {
		out.Oldest = max(0, v.At.Sub(v.RetryQueue.Oldest).Seconds())
	}
	for key, n := range v.RetryQueue.Keys {
		k := report.RetryKey{Key: key, Messages: n, Slot: SlotOfKey(v.Slots, key)}
		if v.assignment != nil {
			k.Owner = v.assignment.OwnerAt(k.Slot).ID
		}
		out.Keys = append(out.Keys, k)
	}
	slices.SortFunc(out.Keys, func(a, b report.RetryKey) int {
		return cmp.Or(cmp.Compare(b.Messages, a.Messages), cmp.Compare(a.Key, b.Key))
	})
	return out
}

// weight is the load of a slot as the leader knows it.
func (v *View) weight(slot int) uint64 {
	if v.load == nil {
		return 1
	}
	return v.load.Weights[slot]
}

// Workers tells of every worker that the map names or that has a lease, by
// ascending ID.
func (v *View) Workers() []report.Worker {
	out := []report.Worker{}
	at := make(map[string]int)
	add := func(w report.Worker) {
		at[w.ID] = len(out)
		out = append(out, w)
	}
	for _, m := range v.Leases {
		process := record.Process(m.Process)
		unknown := v.assignment == nil ||
			v.assignment.Index(process) == record.None && v.assignment.Predecessor(process) == record.None
		shown := m.State
		if v.stale(m.Renewed) {
			shown = state.Degraded
		}
		add(report.Worker{ID: m.ID, Claim: m.Claim, State: shown, Leading: m.ID == v.Leader, Capacity: m.Capacity, Node: m.Node,
			Zone: m.Zone, Pod: m.Pod, LeaseAge: max(0, v.now().Sub(m.Renewed).Seconds()), Version: m.Version, Leaving: m.Leaving,
			Draining: m.Draining, Outdated: m.Outdated, New: unknown})
	}
	if v.assignment == nil {
		return out
	}
	for i, m := range v.assignment.Workers {
		if _, known := at[m.ID]; !known {
			add(report.Worker{ID: m.ID, Claim: m.Claim, State: state.Gone, LeaseAge: -1})
		}
		out[at[m.ID]].Restarting = v.assignment.Restarting[i]
	}
	var total, capacity float64
	for s := range v.assignment.Owner {
		if o := v.assignment.OwnerAt(s); o.ID != "" {
			w := &out[at[o.ID]]
			w.Slots++
			w.Load += v.weight(s)
			total += float64(v.weight(s))
			if v.load != nil {
				w.Keys += v.load.Keys[s]
			}
		}
	}
	for s, mv := range v.assignment.Moves {
		if o := v.assignment.OwnerAt(s); o.ID != "" {
			out[at[o.ID]].Outgoing++
		}
		out[at[v.assignment.Worker(mv.Next).ID]].Incoming++
	}
	for _, w := range out {
		if w.Slots > 0 {
			capacity += capacityOr1(w.Capacity)
		}
	}
	for i := range out {
		if w := &out[i]; w.Load > 0 {
			w.OverMean = float64(w.Load) / (total * capacityOr1(w.Capacity) / capacity)
		}
	}
	slices.SortFunc(out, func(a, b report.Worker) int { return compareIDs(a.ID, b.ID) })
	return out
}

// capacityOr1 is the capacity of a worker; one that is gone told nothing.
func capacityOr1(c float64) float64 {
	if c == 0 {
		return 1
	}
	return c
}

func (v *View) moves() []report.Move {
	out := []report.Move{}
	if v.assignment == nil {
		return out
	}
	for s := range v.assignment.Owner {
		mv, moving := v.assignment.Moves[s]
		switch {
		case moving:
			out = append(out, report.Move{Slot: s, From: v.assignment.OwnerAt(s).ID, To: v.assignment.Worker(mv.Next).ID, Version: mv.Version})
		case v.assignment.Taking[s]:
			out = append(out, report.Move{Slot: s, To: v.assignment.OwnerAt(s).ID, Version: v.assignment.Since[s]})
		}
	}
	return out
}

// overrides tells which overrides are kept, and why the others are not.
func (v *View) overrides() []report.Override {
	out := []report.Override{}
	for _, p := range v.Overrides {
		r := report.Override{Slot: p.Slot, Key: p.Key, Worker: p.Worker, At: p.At}
		if v.assignment != nil {
			r.Owner = v.assignment.OwnerOf(p.Slot)
		}
		i := slices.IndexFunc(v.Leases, func(m report.Lease) bool { return m.ID == p.Worker })
		switch r.Kept = r.Owner == p.Worker; {
		case p.Slot >= v.Slots:
			r.Why = "there is no such slot"
		case i < 0 && r.Kept:
			r.Kept, r.Why = false, "the worker is gone"
		case r.Kept:
		case i < 0:
			r.Why = "the worker is not there"
		case v.Leases[i].Draining:
			r.Why = "the worker is draining"
		case v.Leases[i].Leaving:
			r.Why = "the worker leaves"
		case v.Leases[i].Outdated:
			r.Why = "the worker is of an earlier version, which gets no slots"
		case v.assignment == nil || v.assignment.Index(record.Process(v.Leases[i].Process)) == record.None:
			r.Why = "the worker is not planned for yet"
		default:
			r.Why = "the leader has yet to plan it"
		}
		out = append(out, r)
	}
	return out
}

// Key tells where a key is, written as its tokens joined by KeySeparator.
func (v *View) Key(key string) report.Key {
	r := report.Key{Key: key, Slot: SlotOfKey(v.Slots, key)}
	if v.assignment == nil {
		return r
	}
	r.Owner = v.assignment.OwnerAt(r.Slot).ID
	if to := v.assignment.OwnerOf(r.Slot); to != r.Owner {
		r.Next = to
	}
	return r
}
