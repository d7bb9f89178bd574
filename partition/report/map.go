package report

import (
	"time"

	"github.com/muster-dev/muster/partition/state"
)

// Process is one process of a worker: the stable ID, and the revision of the claim on it, which
// differs from each process to the next under the same ID.
type Process struct {
	ID    string
	Claim uint64
}

// Lease is what a worker's lease says of it, as of its last renewal. Version and State are
// therefore up to a renewal's interval old. A lease that has ended may still be listed: compare
// Renewed with the servers' time.
type Lease struct {
	Process

	Pod      string // it was started as; "" if it did not say
	Node     string // it runs on; "" if it did not say
	Zone     string
	State    state.State
	Version  uint64 // of the map it has
	Leaving  bool   // it hands its slots off and ends
	Draining bool   // it hands its slots off and takes none
	// Outdated: it is of an earlier version, which can't read the map of this one. It keeps
	// its slots and gets no others.
	Outdated bool
	// DrainEnd is when it stops draining by itself; zero if it does not drain.
	DrainEnd time.Time
	Capacity float64   // Config.Identity.Capacity
	Renewed  time.Time // when the server had the last renewal
}

// Map is an assignment map: which worker has each slot. Its slices by slot have Slots entries.
//
// Owner is who may process a slot's messages now: a slot in Moves is with its owner until that
// one has released it. The fence of an owner is the version in Since and its process's claim.
// Workers are those of the plan, of which one may have failed since.
type Map struct {
	Version    uint64 // grows by one with every plan, and by more when fences are raised
	Epoch      uint64 // of the leader that wrote it
	Leader     Process
	Generation int // of the slot count, from 1; resharding begins the next
	Slots      int
	Workers    []Process
	Owner      []int32  // by slot: index in Workers; -1: no owner
	Since      []uint64 // by slot: the version with which the owner got it, the first part of its fence
	// Moves has the handoffs that are not finished, by slot.
	Moves map[int]Handoff
	// Taking has the slots whose owner waits until the leader has taken them over.
	Taking map[int]bool
	// Resharding: slots of the generation before are still released.
	Resharding bool
}

// Handoff is a planned move of a slot that is not finished.
type Handoff struct {
	Next    int32  // index in Map.Workers of the next owner
	Version uint64 // of the map that planned it
}

// Settled reports whether every slot is with its owner.
func (m *Map) Settled() bool { return len(m.Moves) == 0 && len(m.Taking) == 0 && !m.Resharding }

// OwnerOf returns the stable ID of the worker that owns a slot or is about to, "" if there
// is none or the slot is out of range.
func (m *Map) OwnerOf(slot int) string {
	if slot < 0 || slot >= len(m.Owner) {
		return ""
	}
	owner := m.Owner[slot]
	if move, moves := m.Moves[slot]; moves {
		owner = move.Next
	}
	if owner < 0 {
		return ""
	}
	return m.Workers[owner].ID
}

// Counts returns the number of slots of each worker, by stable ID, as it will be when every
// move is done.
func (m *Map) Counts() map[string]int {
	n := make(map[string]int, len(m.Workers))
	for _, w := range m.Workers {
		n[w.ID] = 0
	}
	for slot := range m.Owner {
		if owner := m.OwnerOf(slot); owner != "" {
			n[owner]++
		}
	}
	return n
}
