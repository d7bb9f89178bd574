package record

// Move is a planned handoff of one slot: Next is the index of the new owner
// in Workers, Version the map's version that planned it.
type Move struct {
	Next    int32  `json:"next"`
	Version uint64 `json:"version"`
}

// None stands for "no worker" in a map's columns.
const None int32 = -1
