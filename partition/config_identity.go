package partition

// Identity is what one worker is: where it runs, and how much it can do. Only PoolSize must
// be the same for all workers of a group.
type Identity struct {
	// PoolSize is the number of stable IDs, 1 to 100,000; default 200. Workers beyond it are
	// standbys. Above 500 some defaults of Lease are others, and the buckets that Provision
	// creates allow more consumers than the servers' default of 1,000.
	PoolSize int
	// Pod and PodUID tell people what holds a stable ID; default: the host's name and a random
	// one.
	Pod, PodUID string
	// Version is the worker's version, reported beside them.
	Version string
	// Capacity is this worker's share of the load relative to others, more than 0 and up to a
	// million; default 1.
	Capacity float64
	// Node is where this worker runs, for those who take nodes away; may be empty.
	Node string
	// Zone is this worker's failure domain; a tie-break of the planner.
	Zone string
}

func (i Identity) resolve() Identity {
	defaulted(&i.PoolSize, 200)
	defaulted(&i.Capacity, 1)
	return i
}

func (i Identity) validate(f *faults) {
	f.within("Identity.PoolSize", i.PoolSize, 100000)
	notANumber := i.Capacity != i.Capacity
	if i.Capacity < 0 || notANumber || i.Capacity > 1e6 {
		f.add("Identity.Capacity is %v: give more than 0, up to a million", i.Capacity)
	}
}
