package nodes

import "time"

// Config is what a Reconciler works with. Signals, Cloud, Cluster, Store and Journal are required.
type Config struct {
	Policy  Policy
	Signals Signals
	Cloud   Cloud
	Cluster Cluster
	Store   Store
	Journal Journal

	WorkerPlane WorkerPlane   // nil: the nodes carry no workers that want to know
	Clock       Clock         // nil: SystemClock
	Template    Template      // what new instances boot from
	Sizer       Sizer         // nil: PodsPerNode; required by SizingFit
	Fitter      Fitter        // nil: RequestsFit
	Screener    Screener      // nil: only pods that the Cluster itself says never fit are taken not to
	NewID       func() string // unique short strings; nil: random
	// Holder names what at most one process can be at a time, such as an address that only one can listen on. A process takes the
	// claims that an earlier one of the same name has left behind, instead of waiting until they expire. "": it takes none.
	Holder string

	self       identity
	TickBudget time.Duration // after which a tick begins nothing new; 0: 50 s
	Stopping   func() bool   // true once the process is about to end: a tick then begins nothing new; nil: never
}

func (c *Config) stopping() bool { return c.Stopping != nil && c.Stopping() }

// identity is a process as its claims name it.
type identity struct{ holder, process string }
