package nodes

import (
	"slices"
	"time"
)

// Observation is everything a decision looks at besides the record: what the metrics, the cloud and the
// cluster show at one moment. It is plain data, so that it can be logged and decided on again.
type Observation struct {
	Readings Readings `json:"readings"`
	// Fleet is the cluster's workers; FleetKnown is false if the cloud or the cluster could not be read
	// completely, and then nothing may be concluded from what Fleet lacks.
	Fleet      []Worker `json:"fleet,omitempty"`
	FleetKnown bool     `json:"fleetKnown,omitempty"`
	FleetWhy   string   `json:"fleetWhy,omitempty"` // why it is unknown
	// StatusesWhy is why the status checks of the instances are unknown; Fleet then shows none that fails.
	StatusesWhy string  `json:"statusesWhy,omitempty"`
	Faults      []Fault `json:"faults,omitempty"`  // of workers; for people, no decision depends on them
	Pending     []Pod   `json:"pending,omitempty"` // unschedulable pods
	// Buffers are the capacity buffers, and BuffersWhy why they could not be read.
	Buffers    []Buffer `json:"buffers,omitempty"`
	BuffersWhy string   `json:"buffersWhy,omitempty"`
	// Launched are instances that open scale-ups have launched and that the cloud does not list yet.
	Launched []Instance `json:"launched,omitempty"`
	Zones    []string   `json:"zones,omitempty"` // in which nodes can be launched; nil: not asked for, or not known
	// TemplateSeen is what nodes of the current template turned out to be; nil: as the settings promise, or
	// none has joined yet.
	TemplateSeen *TemplateSeen `json:"templateSeen,omitempty"`
	// PoolsSeen is the same of the nodes of each pool.
	PoolsSeen map[string]*TemplateSeen `json:"poolsSeen,omitempty"`
	// TemplateHashes say by what a node would be launched now, by pool; without pools, by "". nil: not known, as in older event logs.
	TemplateHashes map[string]string `json:"templateHashes,omitempty"`
	// Interruptions are the open ones.
	Interruptions []Interruption     `json:"interruptions,omitempty"`
	Costs         map[string]float64 `json:"costs,omitempty"` // by node name, of the worker plane
}

// Worker is an instance and its node. An instance that has not joined has no node.
type Worker struct {
	Instance Instance `json:"instance"`
	Node     *Node    `json:"node,omitempty"`
}

// Available reports whether the worker counts for MIN_WORKERS and for the safety of its zone: alive, Ready,
// not cordoned.
func (w Worker) Available() bool {
	return w.Instance.Alive() && w.Node != nil && w.Node.Available()
}

// Match joins instances with their nodes; servers of the control plane are left out. A node belongs to an
// instance by provider ID, by a node name that is the instance ID, or, on stock K3s nodes that tell neither,
// by internal IP, which says something only as long as the instance exists: addresses are used again.
func Match(instances []Instance, nodes []Node) []Worker {
	byID := make(map[string]*Node, len(nodes))
	byIP := make(map[string]*Node)
	for i := range nodes {
		n := &nodes[i]
		if id := n.InstanceID(); id != "" {
			byID[id] = n
		} else if n.InternalIP != "" {
			byIP[n.InternalIP] = n
		}
	}
	out := make([]Worker, 0, len(instances))
	for _, in := range instances {
		w := Worker{Instance: in}
		if n := byID[in.ID]; n != nil {
			w.Node = n
		} else if n := byIP[in.PrivateIP]; n != nil && in.Alive() && in.PrivateIP != "" {
			w.Node = n
		}
		if in.ControlPlane || w.Node != nil && w.Node.ControlPlane {
			continue
		}
		out = append(out, w)
	}
	return out
}

// Classes returns pods with those that are alike for placement put together under the first one's name, in
// the order in which each kind comes first. Decisions are made on classes, so that what is logged is
// exactly what was decided on and stays small.
func Classes(pods []Pod) []Pod {
	type kind struct {
		requests   Resources
		neverFit   string
		scheduling string
	}
	var out []Pod
	index := map[kind]int{}
	for _, p := range pods {
		k := kind{p.Requests, p.NeverFit, p.Scheduling}
		if i, ok := index[k]; ok {
			out[i].Count = out[i].N() + p.N()
			out[i].Since = firstOf(out[i].Since, p.Since)
			out[i].Each = append(out[i].Each, p.Each...)
			continue
		}
		index[k] = len(out)
		out = append(out, p)
	}
	return out
}

// Arrival is a node on its way.
type Arrival struct {
	// Instance is as the cloud lists it. Of one that it does not list yet, only what was asked for is known,
	// and the ID may be empty.
	Instance
	Leaving []Pod // those that still run on the worker that it replaces
}

// Arriving returns the nodes that are launched, or about to be as an interrupted worker's replacement, and
// not Ready yet. One that is late does not count any more, so that pods needn't wait for it: see usualJoin. Nor
// does one that is cordoned or will itself be taken away.
func Arriving(p Policy, o Observation, now time.Time) []Arrival {
	a := newArrivals(o)
	limit := usualJoin(p, o)
	inTime := func(since time.Time) bool { return now.Sub(since) < limit }
	var out []Arrival
	for _, w := range o.Fleet {
		if a.joins(w) && inTime(w.Instance.LaunchedAt) {
			out = append(out, Arrival{w.Instance, a.leaving(a.replaces[w.Instance.ID])})
		}
	}
	for _, in := range o.Launched {
		if inTime(in.LaunchedAt) {
			out = append(out, Arrival{Instance: in})
		}
	}
	for _, i := range o.Interruptions {
		if _, there := a.listed[i.ReplacementID]; there || i.Closed || !i.replacing() {
			continue
		}
		at, since := i.Offering, i.OpenedEpoch // until it is decided, a node like the one that it is for
		if i.Intent != nil {
			at, since = i.Intent.Request.Offering, max(since, i.Intent.Epoch)
		}
		if inTime(time.Unix(since, 0)) {
			coming := Instance{
				ID:     i.ReplacementID,
				State:  StatePending,
				Type:   at.Type,
				Zone:   at.Zone,
				Market: at.Market,
				Pool:   at.Pool,
			}
			out = append(out, Arrival{coming, a.leaving(i.InstanceID)})
		}
	}
	return out
}

// usualJoin is how long a node may be expected to be on its way: three times as long as the nodes of the
// fleet took at the median, and a minute for it to become Ready, at most JOIN_TIMEOUT_SEC. A node that takes
// longer most likely never joins.
func usualJoin(p Policy, o Observation) time.Duration {
	var took []time.Duration
	for _, w := range o.Fleet {
		if w.Instance.ActionID == "" || w.Node == nil {
			continue
		}
		if d := w.Node.CreatedAt.Sub(w.Instance.LaunchedAt); d > 0 {
			took = append(took, d)
		}
	}
	if len(took) == 0 {
		return p.JoinTimeout
	}
	slices.Sort(took)
	return min(3*took[len(took)/2]+settleTime, p.JoinTimeout)
}

// arrivals finds out which workers are on their way and which they replace.
type arrivals struct {
	listed      map[string]Worker // by instance ID
	interrupted map[string]bool   // by instance ID
	replaces    map[string]string // the interrupted instance, by its replacement
}

func newArrivals(o Observation) arrivals {
	a := arrivals{listed: map[string]Worker{}, interrupted: map[string]bool{}, replaces: map[string]string{}}
	for _, w := range o.Fleet {
		a.listed[w.Instance.ID] = w
	}
	for _, i := range o.Interruptions {
		if i.Closed {
			continue
		}
		a.interrupted[i.InstanceID] = true
		if i.ReplacementID != "" {
			a.replaces[i.ReplacementID] = i.InstanceID
		}
	}
	return a
}

// joins reports whether a worker is not Ready yet and may become so.
func (a arrivals) joins(w Worker) bool {
	joining := w.Node == nil || !w.Node.Ready && !w.Node.Closed()
	return joining && w.Instance.Alive() && !a.interrupted[w.Instance.ID]
}

// leaving returns the pods that still run on a replaced worker.
func (a arrivals) leaving(replaced string) []Pod {
	if n := a.listed[replaced].Node; n != nil {
		return n.Pods
	}
	return nil
}

// census is the fleet, counted the ways that the limits count it.
type census struct {
	alive     int // pending and running instances, for MAX_WORKERS
	available int // Ready and uncordoned, for MIN_WORKERS
	zones     map[string]int
	coming    int // open replacements that are not available yet
	intents   int // launches of open interruptions of which no instance is listed yet
}

func count(o Observation) census {
	c := census{zones: map[string]int{}}
	listed := map[string]bool{}
	ready := map[string]bool{}
	for _, w := range o.Fleet {
		if w.Instance.Alive() {
			c.alive++
			listed[w.Instance.ID] = true
		}
		if w.Available() {
			c.available++
			c.zones[w.Instance.Zone]++
			ready[w.Instance.ID] = true
		}
	}
	c.alive += len(o.Launched)
	for _, i := range o.Interruptions {
		if i.Closed || !i.replacing() {
			continue
		}
		if !ready[i.ReplacementID] {
			c.coming++
		}
		if !listed[i.ReplacementID] {
			c.intents++
		}
	}
	return c
}
