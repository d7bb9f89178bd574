package daemon

import (
	"slices"
	"sync"
	"time"

	"github.com/muster-dev/muster/nodes"
)

// latest is what was seen last of each part: the record and the open interruptions in the store, the instances in the cloud, the
// nodes of the cluster, the readings. Each part has a time of its own where its age matters, because one may answer while
// another doesn't.
type latest struct {
	clock nodes.Clock

	mu          sync.Mutex
	record      *nodes.Record // as last read or written
	recordAt    time.Time     // when the store last answered
	open        []nodes.Interruption
	instances   []nodes.Instance
	instancesAt time.Time
	nodes       []nodes.Node
	nodesAt     time.Time
	zonesKnown  bool
	drainEnded  nodes.NodeRef // of the last drain that said itself how it ended
	readings    nodes.Readings
	lastTick    time.Time
	tokenEnds   time.Time
}

// interruption keeps the list of open interruptions current between two reads of it.
func (l *latest) interruption(i nodes.Interruption) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.open = slices.DeleteFunc(slices.Clone(l.open), func(o nodes.Interruption) bool { return o.InstanceID == i.InstanceID })
	if !i.Closed {
		l.open = append(l.open, i)
	}
}

// interruptions takes a list of the open interruptions.
func (l *latest) interruptions(list []nodes.Interruption) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.open = slices.Clone(list)
}

// workers takes a list of the workers' instances.
func (l *latest) workers(list []nodes.Instance) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.instances = slices.Clone(list)
	l.instancesAt = l.clock.Now()
}

// cluster takes a list of the nodes.
func (l *latest) cluster(list []nodes.Node) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.nodes = slices.Clone(list)
	l.nodesAt = l.clock.Now()
}

// stored takes the record as read or written.
func (l *latest) stored(r nodes.Record) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.record, l.recordAt = &r, l.clock.Now()
}

// known returns the record as last read or written, nil before.
func (l *latest) known() *nodes.Record {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.record
}

// reachedStore notes that the store answered.
func (l *latest) reachedStore() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.recordAt = l.clock.Now()
}

// storeReached returns when the store last answered.
func (l *latest) storeReached() time.Time {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.recordAt
}

// observed takes what was read of the metrics.
func (l *latest) observed(r nodes.Readings) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.readings = r
}

// ticked notes the end of a tick.
func (l *latest) ticked() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.lastTick = l.clock.Now()
}

// tokenExpires notes when the token of the Kubernetes API expires.
func (l *latest) tokenExpires(at time.Time) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.tokenEnds = at
}

// sawZones notes that the subnets have been listed, unless there were none.
func (l *latest) sawZones(subnets []nodes.Subnet) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.zonesKnown = l.zonesKnown || len(subnets) > 0
}

// zonesMissing reports whether the zones are not known yet.
func (l *latest) zonesMissing() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return !l.zonesKnown
}

// drainSaid notes the node of a drain that said itself how it ended, none for one that did not.
func (l *latest) drainSaid(n nodes.NodeRef) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.drainEnded = n
}

// unfinished returns how many drains a failed scale-down cuts off, which have not said how they ended. before is the record before it.
func (l *latest) unfinished(before *nodes.Record, actionID string) int {
	l.mu.Lock()
	defer l.mu.Unlock()
	n := 0
	for _, id := range before.Of(actionID).ScaleDownTargetInstanceIDs {
		r, started := before.Removal(id)
		if started && before.Targets(id) && r.Phase != nodes.PhaseTerminating && r.Node != l.drainEnded {
			n++
		}
	}
	return n
}
