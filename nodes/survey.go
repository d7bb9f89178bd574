package nodes

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"
)

// survey is one look at the cloud, the record, the interruptions and the cluster, in this order. The order
// matters:
//
//  1. The instances come first. An instance in the list was launched before the record was read, so the
//     record either names the action that launched it, or that action has ended.
//  2. The nodes come last. An instance in the list either had joined when they were read, or had not joined
//     at a moment after the list.
//
// Read the other way round, an instance launched in between would look like one that no action knows, and
// would be removed.
//
// Each part has an error of its own. What could not be read is empty, so nothing may be concluded from its
// absence.
type survey struct {
	instances []Instance
	cloudErr  error
	record    Record
	recordErr error
	open      []Interruption
	openErr   error
	view      View
	viewErr   error
	statusErr error // of the status checks, which are read only where a repair is judged

	workers []Worker // instances with their nodes
}

// fleetErr is why nothing may be concluded from what the survey lacks; nil if it is complete.
func (s *survey) fleetErr() error { return errors.Join(s.cloudErr, s.viewErr, s.openErr) }

// worker returns the worker of an instance, false if it was not seen.
func (s *survey) worker(instanceID string) (Worker, bool) {
	i := slices.IndexFunc(s.workers, func(w Worker) bool { return w.Instance.ID == instanceID })
	if i < 0 {
		return Worker{}, false
	}
	return s.workers[i], true
}

// cordoned reports whether a node was seen cordoned, by a claim among others; false also if it was not seen.
func (s *survey) cordoned(ref NodeRef, claim string) bool {
	return slices.ContainsFunc(s.view.Nodes, func(n Node) bool {
		return n.NodeRef == ref && n.Unschedulable && n.ToBeDeleted && slices.Contains(n.Claims, claim)
	})
}

// availableBeside returns the number of Ready, uncordoned workers besides one, in all and in its zone, and
// whether there are some in other zones.
func (s *survey) availableBeside(instanceID string) (all, inZone int, severalZones bool) {
	zones := map[string]int{}
	own := ""
	for _, w := range s.workers {
		if w.Instance.ID == instanceID {
			own = w.Instance.Zone
		} else if w.Available() {
			all++
			zones[w.Instance.Zone]++
		}
	}
	inZone = zones[own]
	delete(zones, own)
	return all, inZone, len(zones) > 0
}

// nodeOf returns the node of an instance, also of one that the cloud has stopped listing.
func (s *survey) nodeOf(id string) NodeRef {
	if w, ok := s.worker(id); ok && w.Node != nil {
		return w.Node.NodeRef
	}
	for _, n := range s.view.Nodes {
		if n.InstanceID() == id && !n.ControlPlane {
			return n.NodeRef
		}
	}
	return NodeRef{}
}

// objection says why a target may not be removed as things are now, and which instance is to blame for that,
// if one is. It is asked before a target's drain begins and once more before it is marked, when its own node
// is cordoned already.
func (s *survey) objection(id string, p Policy) (why, blame string) {
	w, ok := s.worker(id)
	all, inZone, several := s.availableBeside(id)
	switch {
	case !ok || w.Node == nil:
		return "its node is not there", ""
	case w.Node.Blocker != "":
		return w.Node.Blocker, id
	case w.Node.Keep:
		return "annotated against scale-down", ""
	case all < p.MinWorkers:
		return fmt.Sprintf("only %d other workers are available", all), ""
	case several && inZone == 0 && !p.EmptyZones:
		return "it has become the last worker of its zone", ""
	}
	return "", ""
}

// fleet is what a survey shows of the workers.
func (s *survey) fleet() Observation {
	return Observation{Fleet: s.workers, FleetKnown: s.fleetErr() == nil, Interruptions: s.open}
}

// launchedUnlisted returns the instances that open scale-ups have launched and that the cloud's list, which may
// lag, does not show yet. They count like those that it shows, or they would be launched again.
func (s *survey) launchedUnlisted() []Instance { return s.launchedUnlistedBy(s.record) }

// launchedUnlistedBy is launchedUnlisted by a record that may be newer than the survey's.
func (s *survey) launchedUnlistedBy(r Record) []Instance {
	listed := map[string]bool{}
	for _, in := range s.instances {
		listed[in.ID] = true
	}
	var out []Instance
	for _, l := range r.Launches() {
		if s.cloudErr == nil && !listed[l.InstanceID] {
			at := l.Request.Offering
			out = append(out, Instance{
				ID:         l.InstanceID,
				State:      StatePending,
				Type:       at.Type,
				Zone:       at.Zone,
				Market:     at.Market,
				Pool:       at.Pool,
				ActionID:   l.Request.ActionID,
				LaunchedAt: time.Unix(l.Launched, 0),
			})
		}
	}
	return out
}

// aliveAndJoined lists the instances that are alive, and those of them that have a node. An instance whose
// Node object is still there counts as alive if it is remembered to have joined: it is remembered as ours
// until the object has been deleted as well.
func (s *survey) aliveAndJoined() (alive, joined []string) {
	alive = []string{}
	for _, w := range s.workers {
		if w.Instance.Alive() {
			alive = append(alive, w.Instance.ID)
			if w.Node != nil {
				joined = append(joined, w.Instance.ID)
			}
		}
	}
	for _, node := range s.view.Nodes {
		if id := node.InstanceID(); id != "" && slices.Contains(s.record.Joined, id) && !slices.Contains(alive, id) {
			alive = append(alive, id)
		}
	}
	return alive, joined
}

// surveyor looks at the cloud, the record, the cluster and the metrics. It changes none of them.
type surveyor struct{ *run }

// survey reads in the order that the type's comment explains.
func (v surveyor) survey(ctx context.Context) *survey {
	s := &survey{}
	s.cloudErr = v.calls.doSafe(ctx, "listing instances", func(ctx context.Context) (err error) {
		s.instances, err = v.config.Cloud.Workers(ctx)
		return err
	})
	s.recordErr = v.calls.doSafe(ctx, "reading the record", func(ctx context.Context) (err error) {
		s.record, err = v.config.Store.Load(ctx)
		return err
	})
	s.openErr = v.calls.doSafe(ctx, "reading interruptions", func(ctx context.Context) (err error) {
		s.open, err = v.config.Store.OpenInterruptions(ctx)
		return err
	})
	s.viewErr = v.calls.doSafe(ctx, "reading nodes", func(ctx context.Context) (err error) {
		s.view, err = v.config.Cluster.View(ctx)
		return err
	})
	if s.cloudErr != nil {
		s.instances = nil // a part of a list proves nothing
	}
	if s.viewErr != nil {
		s.view = View{}
	}

	s.view.Pending = Classes(s.view.Pending)
	for i := range s.view.Nodes {
		s.view.Nodes[i].Pods = Classes(s.view.Nodes[i].Pods)
	}
	s.workers = Match(s.instances, s.view.Nodes)
	return s
}

// observe adds the metrics to a survey.
func (v surveyor) observe(ctx context.Context, s *survey) Observation {
	v.readStatuses(ctx, s)
	o := Observation{Fleet: s.workers, Pending: s.view.Pending, Interruptions: s.open, FleetKnown: s.fleetErr() == nil}
	o.Launched = s.launchedUnlisted()
	if heedsBuffers(v.config.Policy, v.config.Sizer) {
		o.Buffers, o.BuffersWhy = s.view.Buffers, s.view.BuffersWhy
	}
	v.readTemplates(s.record, &o)
	if !o.FleetKnown {
		o.FleetWhy = s.fleetErr().Error()
	} else if v.config.Screener != nil && len(o.Pending)+len(o.Buffers) > 0 {
		v.screen(ctx, &o)
	}
	if s.statusErr != nil {
		o.StatusesWhy = s.statusErr.Error()
	}
	o.Faults = v.faults(ctx, s)
	v.readMetrics(ctx, s, &o)
	if v.config.WorkerPlane != nil && s.viewErr == nil {
		v.readCosts(ctx, &o, s.view.Nodes)
	}
	return o
}

// readMetrics reads the metrics. Readings that can't be had are missing, with the reason: no decision takes
// them for zeros. With SIGNALS=kubernetes they are what the survey has shown of the pods.
func (v surveyor) readMetrics(ctx context.Context, s *survey, o *Observation) {
	if v.config.Policy.byAPI() {
		o.Readings = ClusterReadings(o.Pending, v.now())
		if s.viewErr != nil {
			o.Readings.Pending = Missing(s.viewErr.Error())
		}
		return
	}
	err := v.calls.do(ctx, "reading metrics", func(ctx context.Context) (err error) {
		o.Readings, err = v.config.Signals.Observe(ctx)
		return err
	})
	if err != nil {
		why := Missing(err.Error())
		o.Readings = Readings{
			CPU: why, CPUMin: why, CPUMax: why,
			Pending: why, PendingMin: why, PendingMax: why, PendingOther: why,
		}
		v.log.collect(err)
	}
}

// readCosts asks the worker plane what taking each node away costs. Costs only break ties, so failing at it
// stops nothing.
func (v surveyor) readCosts(ctx context.Context, o *Observation, nodes []Node) {
	err := v.calls.do(ctx, "asking for costs", func(ctx context.Context) (err error) {
		o.Costs, err = v.config.WorkerPlane.Cost(ctx, nodeNames(nodes))
		return err
	})
	if err != nil {
		v.log.collect(err)
	}
}

// screen finds the pods that no new node would run. It has to know where nodes can be launched, or a pod that
// waits for the first node of a zone would look like one that never fits.
func (v surveyor) screen(ctx context.Context, o *Observation) {
	subnets, err := v.subnets(ctx)
	if err != nil {
		v.log.collect(err)
		return
	}
	for _, s := range subnets {
		if !slices.Contains(o.Zones, s.Zone) {
			o.Zones = append(o.Zones, s.Zone)
		}
	}
	slices.Sort(o.Zones)
	o.Pending = v.screened(*o)
	o.Buffers = v.screenBuffers(*o)
}

// screened returns the pending pods of an observation with why no new node would run them.
func (v surveyor) screened(o Observation) []Pod {
	if len(v.config.Policy.Pools) > 0 {
		return v.screenPools(o)
	}
	return v.config.Screener.Screen(v.config.Policy, o)
}

// screenBuffers returns the buffers with why no new node would run their pods.
func (v surveyor) screenBuffers(o Observation) []Buffer {
	if len(o.Buffers) == 0 {
		return nil
	}
	out := slices.Clone(o.Buffers)
	o.Pending = nil
	for _, b := range out {
		p, _ := b.pods()
		o.Pending = append(o.Pending, p)
	}
	for i, p := range v.screened(o) {
		out[i].Pod.NeverFit = p.NeverFit
	}
	return out
}

// screenPools finds the pods that no node of any pool would run, and says why in each.
func (v surveyor) screenPools(o Observation) []Pod {
	out := slices.Clone(o.Pending)
	why := make([][]string, len(out))
	for _, pool := range v.config.Policy.Pools {
		narrowed, reach := o.InPool(pool)
		if !reach {
			for k := range why {
				why[k] = append(why[k], "pool "+pool.Name+": none of its zones has a subnet")
			}
			continue
		}
		for k, p := range v.config.Screener.Screen(v.config.Policy.In(pool.Name), narrowed) {
			if p.NeverFit != "" {
				why[k] = append(why[k], "pool "+pool.Name+": "+p.NeverFit)
			}
		}
	}
	for k := range out {
		if len(why[k]) == len(v.config.Policy.Pools) {
			out[k].NeverFit = cmp.Or(out[k].NeverFit, strings.Join(why[k], "; "))
		}
	}
	return out
}

// readTemplates adds what nodes of the current templates turned out to be.
func (v surveyor) readTemplates(r Record, o *Observation) {
	current := func(pool string) *TemplateSeen {
		seen := r.PoolState(pool).TemplateSeen
		if seen == nil || seen.Template != v.config.templateHash(pool) {
			return nil
		}
		return seen
	}
	o.TemplateHashes = v.config.TemplateHashes()
	o.TemplateSeen = current("")
	for _, name := range v.config.Policy.PoolNames() {
		if seen := current(name); seen != nil {
			if o.PoolsSeen == nil {
				o.PoolsSeen = map[string]*TemplateSeen{}
			}
			o.PoolsSeen[name] = seen
		}
	}
}

func nodeNames(nodes []Node) []string {
	out := make([]string, len(nodes))
	for i, n := range nodes {
		out[i] = n.Name
	}
	return out
}

// confirmedGone reports whether the cloud says that an instance is ending or has ended. One that it no longer
// shows is asked for by ID, because a list may lag.
func (v surveyor) confirmedGone(ctx context.Context, s *survey, id string) (bool, error) {
	if s.cloudErr != nil {
		return false, nil
	}
	for _, in := range s.instances {
		if in.ID == id {
			return in.Gone(), nil
		}
	}
	found, err := v.lookup(ctx, id)
	in, there := found[id]
	return err == nil && (!there || in.Gone()), err
}

// lookup describes instances by ID; those that the cloud doesn't know are absent.
func (v surveyor) lookup(ctx context.Context, ids ...string) (found map[string]Instance, err error) {
	err = v.calls.doSafe(ctx, "looking instances up", func(ctx context.Context) (err error) {
		found, err = v.config.Cloud.Lookup(ctx, ids)
		return err
	})
	return found, err
}

// subnets lists the subnets in which nodes may be launched.
func (v surveyor) subnets(ctx context.Context) (subnets []Subnet, err error) {
	err = v.calls.doSafe(ctx, "listing subnets", func(ctx context.Context) (err error) {
		subnets, err = v.config.Cloud.Subnets(ctx)
		return err
	})
	return subnets, err
}
