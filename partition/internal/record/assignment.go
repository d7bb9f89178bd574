package record

import (
	"errors"
	"fmt"
	"time"
)

// MapSchema is the version of the assignment map's format. A map of a newer
// one is refused: its writer knows rules that this code does not. Those of the versions
// before are read. They are the JSON of [Assignment]; version 1 may have Moves as an object by
// slot. Version 3 is packedMap.
const (
	MapSchema       = 3
	OldestMapSchema = 1
)

// maxMapBytes bounds what is read as an assignment map, and what its columns are
// decompressed to.
const maxMapBytes = 4 << 20

// Assignment says who owns each slot: the map of slot -> (owner, next owner,
// version at which it last changed owner). It is kept in columns, a few bytes a
// slot, and is the same size for 2,400 keys and for ten million. The JSON of its fields is that
// of schemas 1 and 2; Encode writes a packedMap.
type Assignment struct {
	Schema  int     `json:"schema"`
	Version uint64  `json:"version"` // grows by one with every re-plan
	Epoch   uint64  `json:"epoch"`   // of the leader that wrote it
	Leader  Process `json:"leader"`
	// Layout and Slots name the division of the keys that it speaks of: its
	// generation, from 1, and its number of slots.
	Layout int `json:"layout"`
	Slots  int `json:"slots"`
	// FirstAssigned is the time of the first map of the cluster, Planned that
	// of this version.
	FirstAssigned time.Time `json:"first_assigned"`
	Planned       time.Time `json:"planned"`
	// Overrides is the revision of the overrides that this version rests on, 0 if there
	// were none, or if not all could be honoured yet.
	Overrides uint64 `json:"pins,omitempty"`
	// Moved counts the slots that this version moves.
	Moved int `json:"moved"`

	Workers []Process     `json:"workers"`
	Owner   OwnerColumn   `json:"owner"` // index in Workers; -1: nobody
	Since   VersionColumn `json:"since"` // version at which Owner became the owner, or came back after a restart
	// Moves holds the handoffs that are not finished, by slot.
	Moves MoveTable `json:"moves,omitempty"`
	// Taking holds the slots whose owner waits until the leader has taken
	// them from a dead one, or from its own predecessor.
	Taking map[int]bool `json:"taking,omitempty"`
	// Restarting holds the workers, by index, that restart: their
	// slots wait for it to rejoin under the same stable ID.
	Restarting map[int]bool `json:"restarting,omitempty"`
	// Former is the division before this one as long as somebody may still
	// work by it; nil: nobody does.
	Former *OldGeneration `json:"former,omitempty"`
}

// OldGeneration is a division of the keys that is being given up, slot by slot, for the
// one of the map.
type OldGeneration struct {
	Layout  int         `json:"layout"`
	Slots   int         `json:"slots"`
	Version uint64      `json:"version"` // of the map that gave it up
	Owner   OwnerColumn `json:"owner"`   // index in Workers of whose each slot was; -1: of nobody who lives
}

// clone returns a deep copy.
func (a *Assignment) Clone() *Assignment {
	c := *a
	c.Workers = append([]Process(nil), a.Workers...)
	c.Owner = append(OwnerColumn(nil), a.Owner...)
	c.Since = append(VersionColumn(nil), a.Since...)
	c.Moves = make(map[int]Move, len(a.Moves))
	for s, m := range a.Moves {
		c.Moves[s] = m
	}
	c.Taking = make(map[int]bool, len(a.Taking))
	for s := range a.Taking {
		c.Taking[s] = true
	}
	c.Restarting = make(map[int]bool, len(a.Restarting))
	for i := range a.Restarting {
		c.Restarting[i] = true
	}
	if a.Former != nil {
		f := *a.Former
		f.Owner = append(OwnerColumn(nil), f.Owner...)
		c.Former = &f
	}
	return &c
}

// owner returns the slot's owner, the zero Process for nobody.
func (a *Assignment) OwnerAt(slot int) Process { return a.Worker(a.Owner[slot]) }

func (a *Assignment) Worker(i int32) Process {
	if i == None {
		return Process{}
	}
	return a.Workers[i]
}

func (a *Assignment) Index(m Process) int32 {
	for i, w := range a.Workers {
		if w == m {
			return int32(i)
		}
	}
	return None
}

// Settled reports whether every slot is with its owner.
func (a *Assignment) Settled() bool {
	return len(a.Moves) == 0 && len(a.Taking) == 0 && a.Former == nil
}

// Counts returns the number of slots of each worker, by ID, as it will be when
// every move is done.
func (a *Assignment) Counts() map[string]int {
	n := make(map[string]int, len(a.Workers))
	for _, w := range a.Workers {
		n[w.ID] = 0
	}
	for s := range a.Owner {
		if i := a.Destination(s); i != None {
			n[a.Workers[i].ID]++
		}
	}
	return n
}

// predecessor returns the index of the worker whose stable ID m has under a
// later claim, -1 if there is none with slots to come back to.
func (a *Assignment) Predecessor(m Process) int32 {
	for i, w := range a.Workers {
		if w.ID != m.ID || w.Claim >= m.Claim {
			continue
		}
		for s := range a.Owner {
			if a.Destination(s) == int32(i) {
				return int32(i)
			}
		}
	}
	return None
}

// destination returns the index of the worker that owns the slot, or will when
// its move is done.
func (a *Assignment) Destination(slot int) int32 {
	if m, ok := a.Moves[slot]; ok {
		return m.Next
	}
	return a.Owner[slot]
}

// OwnerOf returns the stable ID of the worker that owns the slot or is about to,
// "" for nobody or for a slot out of range.
func (a *Assignment) OwnerOf(slot int) string {
	if slot < 0 || slot >= len(a.Owner) {
		return ""
	}
	return a.Worker(a.Destination(slot)).ID
}

// validate checks everything but the workers if these are known to be valid.
func (a *Assignment) validate(workersAreValid bool) error {
	if err := checkSchema(a.Schema, MapSchema, MapSchema); err != nil {
		return err
	}

	var f faults
	if a.Slots < 1 || a.Slots > MaxSlots {
		f.add("slots is %d, want 1 to %d", a.Slots, MaxSlots)
	}
	if len(a.Owner) != a.Slots || len(a.Since) != a.Slots {
		f.add("owner and since have %d and %d entries for %d slots", len(a.Owner), len(a.Since), a.Slots)
	}
	if !workersAreValid {
		a.validateWorkers(&f)
	}
	a.validateOwners(&f, "owner", a.Owner)
	a.validateSince(&f)
	a.validateFormer(&f)
	a.validateMarks(&f)
	return errors.Join(f...)
}

// faults are what is wrong with a map.
type faults []error

func (f *faults) add(format string, args ...any) { *f = append(*f, fmt.Errorf(format, args...)) }

// validateWorkers: each worker has a stable ID of its own.
func (a *Assignment) validateWorkers(f *faults) {
	for i, w := range a.Workers {
		if !w.valid() { // asked first, since every worker asks this of all others with each map
			f.add("%w", checkProcess(fmt.Sprintf("workers[%d]", i), w))
		}
	}

	if a.workersAscend() {
		return
	}
	seen := make(map[string]bool, len(a.Workers))
	for i, w := range a.Workers {
		if seen[w.ID] {
			f.add("workers[%d] is %q: named twice", i, w.ID)
		}
		seen[w.ID] = true
	}
}

// workersAscend reports whether the workers are in the order of their IDs, as leaders write
// them. Then none is named twice, which costs less to see than with a set of all.
func (a *Assignment) workersAscend() bool {
	for i := 1; i < len(a.Workers); i++ {
		if a.Workers[i-1].ID >= a.Workers[i].ID {
			return false
		}
	}
	return true
}

// has reports whether the index is one of a worker.
func (a *Assignment) has(worker int32) bool { return worker >= 0 && int(worker) < len(a.Workers) }

// validateOwners names the first owner that is no worker.
func (a *Assignment) validateOwners(f *faults, column string, owners OwnerColumn) {
	for s, i := range owners {
		if i != None && !a.has(i) {
			f.add("%s[%d] is %d, there are %d workers", column, s, i, len(a.Workers))
			return
		}
	}
}

// validateSince names the first slot whose owner got it with a later map.
func (a *Assignment) validateSince(f *faults) {
	for s, v := range a.Since {
		if v > a.Version {
			f.add("since[%d] is version %d, after the map's own %d", s, v, a.Version)
			return
		}
	}
}

// validateFormer: the generation before is an earlier one, and of the two numbers of slots
// one divides the other.
func (a *Assignment) validateFormer(f *faults) {
	former := a.Former
	if former == nil {
		return
	}

	inRange := former.Slots >= 1 && former.Slots <= MaxSlots && len(former.Owner) == former.Slots
	divides := inRange && (former.Slots%max(a.Slots, 1) == 0 || a.Slots%former.Slots == 0)
	earlier := former.Version <= a.Version && former.Layout < a.Layout
	if !divides || !earlier {
		f.add("former is no division before this one: layout %d of %d slots with %d owners, given up by version %d",
			former.Layout, former.Slots, len(former.Owner), former.Version)
	}
	a.validateOwners(f, "former.owner", former.Owner)
}

// validateMarks checks what the map says of single slots and workers.
func (a *Assignment) validateMarks(f *faults) {
	for s, m := range a.Moves {
		inRange := s >= 0 && s < a.Slots
		if !inRange || !a.has(m.Next) || m.Version > a.Version {
			f.add("moves[%d] is not a move of this map: %+v", s, m)
		}
	}
	for s := range a.Taking {
		if s < 0 || s >= len(a.Owner) || a.Owner[s] == None {
			f.add("taking[%d] has no owner to wait", s)
		}
	}
	for i := range a.Restarting {
		if i < 0 || i >= len(a.Workers) {
			f.add("restarting[%d] is no worker, there are %d", i, len(a.Workers))
		}
	}
}

// AssignmentKey is the key of the assignment map in the bucket
// "<name>-assignments".
const AssignmentKey = "assignment-map"

// checkOrder checks that a map can be what was written as a revision of the
// bucket, after another one. Its epoch counts writes before it, and so does its version
// unless it was raised; neither can be from the future, and an older one never wins.
func (a *Assignment) CheckOrder(rev uint64, before *Assignment, now time.Time) error {
	switch {
	case !plausibleVersion(a.Version, rev, now) || a.Epoch >= rev:
		return fmt.Errorf("version %d or epoch %d is from the future: it is write %d of its bucket", a.Version, a.Epoch, rev)
	case before == nil:
		return nil
	case a.Epoch < before.Epoch || a.Epoch == before.Epoch && a.Version < before.Version:
		return fmt.Errorf("epoch %d, version %d come after epoch %d, version %d: an older one never wins", a.Epoch, a.Version, before.Epoch, before.Version)
	}
	return nil
}
