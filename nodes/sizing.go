package nodes

import (
	"fmt"
	"time"

	"github.com/muster-dev/muster/internal/quantity"
)

// Sizer says which nodes a scale-up asks for. It is the seam at which another way of sizing comes in:
// everything around it, the batch limit and MAX_WORKERS, is applied to what it returns.
type Sizer interface {
	// Plan returns the nodes wanted for the pending pods that a new node could run, beside those that are
	// there and coming. It alters nothing that it is given.
	Plan(q Question) Plan
}

// Question is what a Sizer is asked.
type Question struct {
	Policy      Policy
	Observation Observation
	Exhausted   []Exhausted // offerings that can't be had now, of the record
	Now         time.Time
	Pending     int // pods waiting, by the metrics; at least 1
	Room        int // nodes that may be launched without passing MAX_WORKERS; at least 1
}

// Plan is a Sizer's answer.
type Plan struct {
	Nodes []Want // none: the pods have room
	Why   string // how it came to them
	// Coming says that some of the pods have their room on nodes that are on their way: until these are
	// there, no pod waits in vain.
	Coming bool
	// Helpless names a pod that no new node would help as things are, and why; "" if there is none.
	Helpless string
}

// Screener finds pods that no node that could be launched would run.
type Screener interface {
	// Screen returns the pending pods of an observation with NeverFit filled in. It alters nothing that it is given.
	Screen(p Policy, o Observation) []Pod
}

// Appraiser knows what instances cost, and what would do for less.
type Appraiser interface {
	// Price returns what an hour of an instance type costs in a market and a zone, in USD; false if that is not known. Without a zone it
	// is what it costs in any.
	Price(instanceType string, m Market, zone string) (usd float64, known bool)
	// Cheaper returns a node of any kind that costs less than below and that runs, beside the fleet of a question,
	// all pods that it has pending; false if there is none. It alters nothing that it is given.
	Cheaper(q Question, below float64) (Replacement, bool)
}

// Replacement is a node that would do for less.
type Replacement struct {
	Want  Want
	Type  string  // most wanted
	Price float64 // an hour of it, in USD
	Room  Resources
}

// PodsPerNode sizes by ceil(pending / PODS_PER_NODE). Nodes on their way take PODS_PER_NODE pods each, less
// those that run on the worker that they replace; so do nodes that have just joined, less those that run
// there.
type PodsPerNode struct{}

// Plan returns the quotient, rounded up, as nodes of any kind.
func (PodsPerNode) Plan(q Question) Plan {
	per := q.Policy.PodsPerNode
	coming, room := Arriving(q.Policy, q.Observation, q.Now), 0
	for _, a := range coming {
		room += max(per-podCount(a.Leaving), 0)
	}
	joined := joinedSince(q.Observation, q.Now.Add(-max(q.Policy.PendingUpFor, settleTime)))
	for _, w := range joined {
		room += max(per-podCount(w.Node.Pods), 0)
	}
	if room == 0 {
		n := (q.Pending + per - 1) / per
		return Plan{Nodes: make([]Want, n), Why: fmt.Sprintf("ceil(%d / %d) = %d", q.Pending, per, n)}
	}
	there := fmt.Sprintf("room for %d on %s on their way and %d just joined", room, quantity.Of(len(coming), "node"), len(joined))
	if q.Pending <= room {
		return Plan{Coming: true, Why: fmt.Sprintf("%s, %s", quantity.Of(q.Pending, "pod"), there)}
	}
	n := (q.Pending - room + per - 1) / per
	return Plan{
		Nodes:  make([]Want, n),
		Coming: true,
		Why:    fmt.Sprintf("ceil((%d - %d) / %d) = %d: %s", q.Pending, room, per, n, there),
	}
}

// settleTime is how long scheduler and metrics are given, at least, to show that pods run on a node that has joined.
const settleTime = time.Minute

// joinedSince returns the workers with nodes that take pods and have joined after a time. Pods that have been
// waiting for longer may well be those that such a node is there for.
func joinedSince(o Observation, since time.Time) []Worker {
	var out []Worker
	for _, w := range o.Fleet {
		if w.Available() && w.Node.CreatedAt.After(since) {
			out = append(out, w)
		}
	}
	return out
}

func podCount(pods []Pod) int {
	n := 0
	for _, p := range pods {
		n += p.N()
	}
	return n
}
