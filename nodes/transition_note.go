package nodes

import (
	"slices"
	"time"
)

// Note writes what a tick saw. Nil pointers and a nil Alive mean that it could not be seen.
type Note struct {
	Fence   int64
	Now     time.Time
	Workers *int
	Pending *bool    // pods pending
	Idle    *bool    // low CPU and nothing pending
	CPUHigh *bool    // CPU at or above CPU_UP
	Alive   []string // every instance that is pending or running
	Joined  []string // instances that have a node
}

// Name returns noteObservation.
func (Note) Name() string { return "noteObservation" }

// Apply sets workerCount and sets, keeps or zeroes the since-epochs. What could not be seen keeps the pending
// epoch, because the sustained query judges as well, but ends idleness: capacity is never taken away on a
// guess. Expired entries are dropped.
func (t Note) Apply(r Record) (Record, error) {
	if err := fenced(t, r, t.Fence); err != nil {
		return r, err
	}
	r = r.Clone()
	now := t.Now.Unix()
	if t.Workers != nil {
		r.WorkerCount = Num(int64(*t.Workers))
	}
	if t.Pending != nil {
		r.PendingSinceEpoch = Num(since(r.PendingSinceEpoch.Value(), *t.Pending, now))
	}
	r.IdleSinceEpoch = Num(since(r.IdleSinceEpoch.Value(), t.Idle != nil && *t.Idle, now))
	if t.CPUHigh != nil {
		r.CPUHighSinceEpoch = since(r.CPUHighSinceEpoch, *t.CPUHigh, now)
	}
	if t.Alive != nil {
		alive := setOf(t.Alive)
		r.Joined = slices.DeleteFunc(r.Joined, func(id string) bool { return !alive[id] })
		known := setOf(r.Joined)
		for _, id := range t.Joined {
			if !known[id] {
				known[id] = true
				r.Joined = append(r.Joined, id)
			}
		}
		if len(r.Joined) == 0 {
			r.Joined = nil
		}
		// A skip outlives its hour while the instance lives, so that the next failure is known to be the second.
		r.SkipList = nilIfEmpty(slices.DeleteFunc(r.SkipList, func(s Skip) bool { return !alive[s.InstanceID] }))
	}
	r.Exhausted = nilIfEmpty(slices.DeleteFunc(r.Exhausted, func(e Exhausted) bool { return e.UntilEpoch <= now }))
	return r, nil
}

// NoteTemplate writes what nodes of the current template turned out to be.
type NoteTemplate struct {
	Fence int64
	Pool  string // whose nodes they are; "" without pools
	Seen  TemplateSeen
}

// Name returns noteTemplate.
func (NoteTemplate) Name() string { return "noteTemplate" }

// Apply replaces what was known; nothing is kept of a template whose nodes are as promised.
func (t NoteTemplate) Apply(r Record) (Record, error) {
	if err := fenced(t, r, t.Fence); err != nil {
		return r, err
	}
	r = r.Clone()
	s := r.PoolState(t.Pool)
	s.TemplateSeen = nil
	if t.Seen.differs() || len(t.Seen.Sizes) > 0 || len(t.Seen.Unchecked) > 0 {
		seen := t.Seen.clone()
		s.TemplateSeen = &seen
	}
	r.putPool(s)
	return r, nil
}

func setOf(ids []string) map[string]bool {
	out := make(map[string]bool, len(ids))
	for _, id := range ids {
		out[id] = true
	}
	return out
}

func since(epoch int64, holds bool, now int64) int64 {
	switch {
	case !holds:
		return 0
	case epoch == 0:
		return now
	}
	return epoch
}
