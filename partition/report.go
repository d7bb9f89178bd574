package partition

import (
	"cmp"
	"slices"
	"time"

	"github.com/muster-dev/muster/partition/state"
)

// Report is what a View means, for people and machines: who has what, what is on
// its way, and what an operator asked for. Durations are in seconds, loads in
// the unit of the keys' weights, or in slots where the leader has none.
type Report struct {
	At            time.Time      `json:"at"`
	Group         string         `json:"group"`
	Stream        string         `json:"stream"`
	Shards        int            `json:"shards,omitempty"`   // streams "<stream>-0" and so on; 0: the one stream
	State         state.State    `json:"state"`              // of the group as a whole, see View.State
	Why           string         `json:"why,omitempty"`      // what is wrong with the leases, and why
	Leader        string         `json:"leader,omitempty"`   // that was elected last; State says whether it leads
	LeaderAge     float64        `json:"leader_age_seconds"` // since the last renewal of its lease; -1 without one
	Version       uint64         `json:"version"`            // of the assignment map, 0 before the first
	Epoch         uint64         `json:"epoch"`
	Layout        int            `json:"layout"`
	Slots         int            `json:"slots"`
	Keys          int            `json:"keys,omitempty"`     // 0: not known
	Expected      int            `json:"expected,omitempty"` // 0: not known
	FirstAssigned time.Time      `json:"first_assigned,omitzero"`
	Planned       time.Time      `json:"planned,omitzero"`
	WorstOverMean float64        `json:"worst_over_mean"` // load of the fullest worker over the mean; 0: nobody has any
	Pending       uint64         `json:"pending_messages"`
	OldestPending float64        `json:"oldest_pending_seconds"`
	Fill          float64        `json:"fill"` // of the fullest stream of messages, 0 to 1 of its limit; at 1 publishers are refused
	Parked        ParkedReport   `json:"parked"`
	Workers       []WorkerReport `json:"workers"`
	Moves         []MoveReport   `json:"moves"`
	Standbys      []Standby      `json:"standbys"`
	Drains        []DrainReport  `json:"drains"`
	Pins          []PinReport    `json:"pins"`
}

// WorkerReport tells of one worker.
type WorkerReport struct {
	ID         string      `json:"id"`
	Claim      uint64      `json:"claim"`
	State      state.State `json:"state"` // GONE if it is in the map and has no lease, DEGRADED if its lease has ended and is still there
	Leading    bool        `json:"leading,omitempty"`
	Slots      int         `json:"slots"`     // that it owns now
	Incoming   int         `json:"incoming"`  // that are on their way to it
	Outgoing   int         `json:"outgoing"`  // of its own, on their way to another
	Keys       int         `json:"keys"`      // in the slots that it owns; 0 if not known
	Load       uint64      `json:"load"`      // of the slots that it owns
	OverMean   float64     `json:"over_mean"` // its load over the mean of all that own any
	Capacity   float64     `json:"capacity"`
	Node       string      `json:"node,omitempty"`
	Zone       string      `json:"zone,omitempty"`
	Pod        string      `json:"pod,omitempty"`
	LeaseAge   float64     `json:"lease_age_seconds"` // since its last renewal; -1 without a lease
	Version    uint64      `json:"version"`           // of the map that it has
	Leaving    bool        `json:"leaving,omitempty"`
	Draining   bool        `json:"draining,omitempty"`
	Restarting bool        `json:"restarting,omitempty"` // its slots wait for a successor of its name
	New        bool        `json:"new,omitempty"`        // not in the map yet
	Outdated   bool        `json:"outdated,omitempty"`   // of an earlier version, see MemberInfo: replace it
}

// MoveReport tells of one slot that is changing hands.
type MoveReport struct {
	Slot    int    `json:"slot"`
	From    string `json:"from,omitempty"` // "" if it is taken from a dead worker
	To      string `json:"to"`
	Version uint64 `json:"version"` // of the map that asked for it
}

// ParkedReport tells of the messages in the retry stream; see Config.Retry.
type ParkedReport struct {
	Messages int               `json:"messages"`
	Oldest   float64           `json:"oldest_seconds"` // since the first of them was parked; 0: there is none
	Keys     []ParkedKeyReport `json:"keys"`           // by descending messages, then by key
}

// ParkedKeyReport tells of one key that has parked messages.
type ParkedKeyReport struct {
	Key      string `json:"key"`
	Messages int    `json:"messages"`
	Slot     int    `json:"slot"`
	Owner    string `json:"owner,omitempty"` // of the slot, "" for nobody
}

// DrainReport tells of a worker that was asked to hand over everything.
type DrainReport struct {
	Worker string    `json:"worker"`
	Until  time.Time `json:"until,omitzero"` // then it takes slots again
	Slots  int       `json:"slots"`          // that it has yet
}

// PinReport tells of a pin and of what came of it.
type PinReport struct {
	Pin
	Owner string `json:"owner,omitempty"` // who has the slot, or will when its move is done
	Kept  bool   `json:"kept"`
	Why   string `json:"why,omitempty"` // why it is not kept
}

// State is what the group as a whole is doing: INIT before the first map,
// DEGRADED while the leader can't be sure of its lease or a lease has ended and was not
// removed, as when the servers have no room to write, ELECTION while no worker leads,
// EMERGENCY while slots are taken from the dead or
// wait for that, REBALANCING while slots change hands, SCALING while newcomers
// wait to be planned for, and STABLE otherwise.
func (v *View) State() state.State {
	if n, _ := v.staleLeases(); n > 0 && v.Map != nil {
		return state.Degraded
	}
	switch {
	case v.Map == nil:
		return state.Init
	case !v.leaderValid():
		return state.Election
	}
	var gone, newcomers, unsure bool
	counts := v.Map.Counts()
	for _, w := range v.Workers() {
		gone = gone || w.State == state.Gone && !w.Restarting && counts[w.ID] > 0
		unsure = unsure || w.Leading && w.State == state.Degraded
		newcomers = newcomers || w.New && !w.Leaving && !w.Draining && !w.Outdated
	}
	switch {
	case unsure:
		return state.Degraded
	case gone, len(v.Map.Taking) > 0:
		return state.Emergency
	case len(v.Map.Moves) > 0:
		return state.Rebalancing
	case newcomers:
		return state.Scaling
	}
	return state.Stable
}

// Report tells what the view means.
func (v *View) Report() Report {
	r := Report{At: v.At, Group: v.Group, Stream: v.Stream, State: v.State(), Leader: v.Leader, Layout: v.Layout, Slots: v.Slots,
		Expected: v.Expected, Pending: v.Pending, Workers: v.Workers(), Moves: v.moves(), Standbys: v.Standbys, Pins: v.pins()}
	if v.Shards > 1 {
		r.Shards = v.Shards
	}
	r.Why, r.Fill, r.LeaderAge = v.trouble(), v.Fill, -1
	if v.Leader != "" {
		r.LeaderAge = max(0, v.now().Sub(v.LeaderRenewed).Seconds())
	}
	if !v.Oldest.IsZero() {
		r.OldestPending = max(0, v.At.Sub(v.Oldest).Seconds())
	}
	if m := v.Map; m != nil {
		r.Version, r.Epoch, r.FirstAssigned, r.Planned = m.Version, m.Epoch, m.FirstAssigned, m.Planned
	}
	if v.Load != nil {
		for _, n := range v.Load.Keys {
			r.Keys += n
		}
	}
	r.Parked = v.parked()
	r.Drains = []DrainReport{}
	for _, w := range r.Workers {
		r.WorstOverMean = max(r.WorstOverMean, w.OverMean)
		if w.Draining {
			i := slices.IndexFunc(v.Members, func(m MemberInfo) bool { return m.ID == w.ID })
			r.Drains = append(r.Drains, DrainReport{Worker: w.ID, Until: v.Members[i].YieldEnd, Slots: w.Slots})
		}
	}
	if r.Standbys == nil {
		r.Standbys = []Standby{}
	}
	return r
}

func (v *View) parked() ParkedReport {
	out := ParkedReport{Messages: v.Parked.Messages, Keys: []ParkedKeyReport{}}
	if !v.Parked.Oldest.IsZero() {
		out.Oldest = max(0, v.At.Sub(v.Parked.Oldest).Seconds())
	}
	for key, n := range v.Parked.Keys {
		k := ParkedKeyReport{Key: key, Messages: n, Slot: SlotOfKey(v.Slots, key)}
		if v.Map != nil {
			k.Owner = v.Map.owner(k.Slot).ID
		}
		out.Keys = append(out.Keys, k)
	}
	slices.SortFunc(out.Keys, func(a, b ParkedKeyReport) int {
		return cmp.Or(cmp.Compare(b.Messages, a.Messages), cmp.Compare(a.Key, b.Key))
	})
	return out
}

// weight is the load of a slot as the leader knows it.
func (v *View) weight(slot int) uint64 {
	if v.Load == nil {
		return 1
	}
	return v.Load.Weights[slot]
}

// Workers tells of every worker that the map names or that has a lease, by
// ascending ID.
func (v *View) Workers() []WorkerReport {
	out := []WorkerReport{}
	at := make(map[string]int)
	add := func(w WorkerReport) {
		at[w.ID] = len(out)
		out = append(out, w)
	}
	for _, m := range v.Members {
		shown := m.State
		if v.stale(m.Renewed) {
			shown = state.Degraded
		}
		add(WorkerReport{ID: m.ID, Claim: m.Claim, State: shown, Leading: m.ID == v.Leader, Capacity: m.Capacity, Node: m.Node,
			Zone: m.Zone, Pod: m.Pod, LeaseAge: max(0, v.now().Sub(m.Renewed).Seconds()), Version: m.Version, Leaving: m.Leaving,
			Draining: m.Yielding, Outdated: m.Outdated, New: v.Map == nil || v.Map.index(m.Member) == none && v.Map.predecessor(m.Member) == none})
	}
	if v.Map == nil {
		return out
	}
	for i, m := range v.Map.Workers {
		if _, known := at[m.ID]; !known {
			add(WorkerReport{ID: m.ID, Claim: m.Claim, State: state.Gone, LeaseAge: -1})
		}
		out[at[m.ID]].Restarting = v.Map.Restarting[i]
	}
	var total, capacity float64
	for s := range v.Map.Owner {
		if o := v.Map.owner(s); o.ID != "" {
			w := &out[at[o.ID]]
			w.Slots++
			w.Load += v.weight(s)
			total += float64(v.weight(s))
			if v.Load != nil {
				w.Keys += v.Load.Keys[s]
			}
		}
	}
	for s, mv := range v.Map.Moves {
		if o := v.Map.owner(s); o.ID != "" {
			out[at[o.ID]].Outgoing++
		}
		out[at[v.Map.member(mv.Next).ID]].Incoming++
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
	slices.SortFunc(out, func(a, b WorkerReport) int { return compareIDs(a.ID, b.ID) })
	return out
}

// capacityOr1 is the capacity of a worker; one that is gone told nothing.
func capacityOr1(c float64) float64 {
	if c == 0 {
		return 1
	}
	return c
}

func (v *View) moves() []MoveReport {
	out := []MoveReport{}
	if v.Map == nil {
		return out
	}
	for s := range v.Map.Owner {
		mv, moving := v.Map.Moves[s]
		switch {
		case moving:
			out = append(out, MoveReport{Slot: s, From: v.Map.owner(s).ID, To: v.Map.member(mv.Next).ID, Version: mv.Version})
		case v.Map.Taking[s]:
			out = append(out, MoveReport{Slot: s, To: v.Map.owner(s).ID, Version: v.Map.Since[s]})
		}
	}
	return out
}

// pins tells which pins are kept, and why the others are not.
func (v *View) pins() []PinReport {
	out := []PinReport{}
	for _, p := range v.Pins {
		r := PinReport{Pin: p}
		if v.Map != nil {
			r.Owner = v.Map.OwnerOf(p.Slot)
		}
		i := slices.IndexFunc(v.Members, func(m MemberInfo) bool { return m.ID == p.Worker })
		switch r.Kept = r.Owner == p.Worker; {
		case p.Slot >= v.Slots:
			r.Why = "there is no such slot"
		case i < 0 && r.Kept:
			r.Kept, r.Why = false, "the worker is gone"
		case r.Kept:
		case i < 0:
			r.Why = "the worker is not there"
		case v.Members[i].Yielding:
			r.Why = "the worker is draining"
		case v.Members[i].Leaving:
			r.Why = "the worker leaves"
		case v.Members[i].Outdated:
			r.Why = "the worker is of an earlier version, which gets no slots"
		case v.Map == nil || v.Map.index(v.Members[i].Member) == none:
			r.Why = "the worker is not planned for yet"
		default:
			r.Why = "the leader has yet to plan it"
		}
		out = append(out, r)
	}
	return out
}

// KeyReport tells where a key is.
type KeyReport struct {
	Key   string `json:"key"`
	Slot  int    `json:"slot"`
	Owner string `json:"owner,omitempty"` // "" for nobody
	Next  string `json:"next,omitempty"`  // who will have it when its move is done
}

// Key tells where a key is, written as its tokens joined by KeySeparator.
func (v *View) Key(key string) KeyReport {
	r := KeyReport{Key: key, Slot: SlotOfKey(v.Slots, key)}
	if v.Map == nil {
		return r
	}
	r.Owner = v.Map.owner(r.Slot).ID
	if to := v.Map.OwnerOf(r.Slot); to != r.Owner {
		r.Next = to
	}
	return r
}
