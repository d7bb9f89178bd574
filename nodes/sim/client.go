package sim

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"slices"
	"time"

	"github.com/muster-dev/muster/nodes"
)

// Hook sees a client's calls. Before runs before the effect and may make the call fail without one; After runs after it and may
// replace its result, which is what a lost reply looks like. Either may panic: that is a crash.
type Hook interface {
	Before(call string) error
	After(call string, err error) error
}

// Client is one process's access to the simulator. It implements nodes.Signals, Cloud, StatusReader, Cluster,
// EvictionRequester, WorkerPlane, Store and EventLog.
type Client struct {
	state *state
	actor string
	hook  Hook
}

var (
	_ nodes.Signals           = (*Client)(nil)
	_ nodes.EvictionRequester = (*Client)(nil)
	_ nodes.Cloud             = (*Client)(nil)
	_ nodes.StatusReader      = (*Client)(nil)
	_ nodes.Cluster           = (*Client)(nil)
	_ nodes.Store             = (*Client)(nil)
	_ nodes.EventLog          = (*Client)(nil)
	_ nodes.WorkerPlane       = (*Client)(nil)
)

// ErrLate, returned by a Hook's Before, lets the call take effect although its deadline has passed: the request was sent in time
// and arrives late.
var ErrLate = errors.New("late")

// arrivesLate is a context whose deadline has lost its meaning.
type arrivesLate struct{ context.Context }

func (arrivesLate) Err() error { return nil }

// do makes one call: it takes time, does not happen after its deadline or during an outage, and shows itself to the hook.
func (c *Client) do(ctx context.Context, part Part, call string, effect func(context.Context) error) error {
	if c.hook != nil {
		err := c.hook.Before(call)
		if errors.Is(err, ErrLate) {
			ctx = arrivesLate{ctx}
		} else if err != nil {
			return err
		}
	}
	err := c.locked(ctx, part, call, effect)
	if c.hook != nil {
		return c.hook.After(call, err)
	}
	return err
}

func (c *Client) locked(ctx context.Context, part Part, call string, effect func(context.Context) error) error {
	// The deadline is asked before the lock is taken, because a simulator's context takes the lock to know the time.
	expired := ctx.Err()
	s := c.state
	s.mu.Lock()
	defer s.mu.Unlock()
	if expired != nil { // a request is not sent after its deadline
		c.log(Entry{Kind: Expired, Detail: call})
		return expired
	}

	s.time.advance(s.time.now.Add(s.latency))
	if down, _ := s.outages.of(part); down {
		return fmt.Errorf("%s: %w", call, ErrUnreachable)
	}
	err := effect(ctx)
	s.settle()
	return err
}

func (c *Client) log(e Entry) {
	e.Actor = c.actor
	c.state.ledger.record(e)
}

// ---- cloud

// Workers lists the instances that are visible, for an hour after their end too.
func (c *Client) Workers(ctx context.Context) (out []nodes.Instance, err error) {
	err = c.do(ctx, CloudPart, "cloud.Workers", func(context.Context) error {
		for _, in := range c.state.fleet.instances {
			if in.visible(c.state.time.now) {
				out = append(out, in.Instance)
			}
		}
		var err error
		out, err = half(c.state.outages, CloudPart, out)
		return err
	})
	return out, err
}

// Lookup describes instances by ID.
func (c *Client) Lookup(ctx context.Context, ids []string) (map[string]nodes.Instance, error) {
	out := map[string]nodes.Instance{}
	err := c.do(ctx, CloudPart, "cloud.Lookup", func(context.Context) error {
		for _, id := range ids {
			if in := c.state.fleet.find(id); in != nil && in.visible(c.state.time.now) {
				out[id] = in.Instance
			}
		}
		return nil
	})
	return out, err
}

// Subnets lists one subnet per zone.
func (c *Client) Subnets(ctx context.Context) (out []nodes.Subnet, err error) {
	err = c.do(ctx, CloudPart, "cloud.Subnets", func(context.Context) error {
		for _, z := range c.state.zones {
			out = append(out, nodes.Subnet{ID: "subnet-" + z, Zone: z})
		}
		return nil
	})
	return out, err
}

// Impaired returns the failed status checks of running instances.
func (c *Client) Impaired(ctx context.Context, ids []string) (map[string]nodes.Impairment, error) {
	out := map[string]nodes.Impairment{}
	err := c.do(ctx, CloudPart, "cloud.Impaired", func(context.Context) error {
		if down, partial := c.state.outages.of(StatusesPart); down || partial {
			return fmt.Errorf("cloud.Impaired: %w", ErrUnreachable)
		}
		for _, id := range ids {
			if in := c.state.fleet.find(id); in != nil && in.State == nodes.StateRunning && in.impaired.Failed() {
				out[id] = in.impaired
			}
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	return out, nil
}

// OnDemandPrices returns the prices of the types that are sold.
func (c *Client) OnDemandPrices(ctx context.Context, types []string) (map[string]float64, error) {
	out := map[string]float64{}
	err := c.do(ctx, CloudPart, "cloud.OnDemandPrices", func(context.Context) error {
		c.state.pricesOf(types, nodes.OnDemand, "", out)
		return nil
	})
	return out, err
}

// SpotPrices returns the Spot prices of the types that are sold in each zone.
func (c *Client) SpotPrices(ctx context.Context, types, zones []string) (map[string]map[string]float64, error) {
	out := map[string]map[string]float64{}
	err := c.do(ctx, CloudPart, "cloud.SpotPrices", func(context.Context) error {
		for _, z := range zones {
			out[z] = map[string]float64{}
			c.state.pricesOf(types, nodes.Spot, z, out[z])
		}
		return nil
	})
	return out, err
}

// Launch starts an instance. A token is bound to its first request in its zone, whether or not that got an instance.
func (c *Client) Launch(ctx context.Context, req nodes.LaunchRequest) (nodes.Instance, error) {
	return c.LaunchAs(ctx, req, c.state.market.joins[req.Template.ID])
}

// LaunchAs starts an instance whose user data gives its node what j says.
func (c *Client) LaunchAs(ctx context.Context, req nodes.LaunchRequest, j Joins) (out nodes.Instance, err error) {
	err = c.do(ctx, CloudPart, "cloud.Launch", func(ctx context.Context) error {
		_, late := ctx.(arrivesLate)
		in, err := c.state.market.launch(c.actor, req, j, late)
		if err != nil {
			return err
		}
		out = in.Instance
		return nil
	})
	return out, err
}

// Terminate ends an instance.
func (c *Client) Terminate(ctx context.Context, id string) error {
	return c.do(ctx, CloudPart, "cloud.Terminate", func(context.Context) error {
		if down, partial := c.state.outages.of(TerminatePart); down || partial {
			return fmt.Errorf("cloud.Terminate: %w", ErrUnreachable)
		}
		in := c.state.fleet.find(id)
		if in == nil || in.Gone() {
			return nil
		}
		c.log(Entry{Kind: Terminated, Instance: id, Zone: in.Zone, Facts: c.state.fleet.facts(in)})
		c.state.fleet.end(in)
		return nil
	})
}

// Diagnose returns an instance's state and console. It takes the time of two requests, as EC2's does.
func (c *Client) Diagnose(ctx context.Context, id string) (d nodes.Diagnosis, err error) {
	for _, read := range []func(*instance){
		func(in *instance) { d.State = in.State },
		func(*instance) { d.Console = "boot of " + id },
	} {
		err = c.do(ctx, CloudPart, "cloud.Diagnose", func(context.Context) error {
			if in := c.state.fleet.find(id); in != nil {
				read(in)
			}
			return nil
		})
		if err != nil {
			return d, err
		}
	}
	return d, nil
}

// ---- cluster

// View shows nodes and pods.
func (c *Client) View(ctx context.Context) (v nodes.View, err error) {
	err = c.do(ctx, ClusterPart, "cluster.View", func(context.Context) error {
		at := make(map[*node]int, len(c.state.fleet.nodes))
		for i, n := range c.state.fleet.nodes {
			out := n.Node
			out.Claims = slices.Clone(n.claims)
			v.Nodes = append(v.Nodes, out)
			at[n] = i
		}
		for _, p := range c.state.pods.pods {
			if p.node == nil {
				v.Pending = append(v.Pending, nodes.Pod{Name: p.Name, Requests: p.requests(), NeverFit: p.NeverFit, Since: p.since, Scheduling: p.Scheduling})
			} else if i, ok := at[p.node]; ok {
				p.show(&v.Nodes[i])
			}
		}
		for _, b := range (&Kube{state: c.state}).Buffers() {
			v.Buffers = append(v.Buffers, b.shownAs())
		}
		var err error
		v.Nodes, err = half(c.state.outages, ClusterPart, v.Nodes)
		return err
	})
	return v, err
}

// Cordon makes a node unschedulable and marks it as to be deleted.
func (c *Client) Cordon(ctx context.Context, ref nodes.NodeRef, claim string) error {
	return c.onNode(ctx, "cluster.Cordon", ref, func(n *node) error {
		if n.Unschedulable && n.marked() && slices.Contains(n.claims, claim) {
			return nil
		}
		n.Unschedulable = true
		n.mark(true)
		if !slices.Contains(n.claims, claim) {
			n.claims = append(n.claims, claim)
		}
		c.log(Entry{Kind: Cordoned, Instance: n.instance.ID, Node: ref, Detail: claim, Facts: c.state.fleet.facts(n.instance)})
		return nil
	})
}

// Uncordon takes a claim away, and the marks if no other is left.
func (c *Client) Uncordon(ctx context.Context, ref nodes.NodeRef, claim string) error {
	return c.onNode(ctx, "cluster.Uncordon", ref, func(n *node) error {
		if len(n.claims) == 0 {
			n.mark(false)
		}
		if !slices.Contains(n.claims, claim) {
			return nil
		}
		n.claims = slices.DeleteFunc(n.claims, func(s string) bool { return s == claim })
		if len(n.claims) == 0 {
			n.mark(false)
		}
		if len(n.claims) == 0 && !n.byHand {
			n.Unschedulable = false
		}
		c.log(Entry{Kind: Uncordoned, Instance: n.instance.ID, Node: ref, Detail: claim})
		return nil
	})
}

func (c *Client) onNode(ctx context.Context, call string, ref nodes.NodeRef, f func(*node) error) error {
	return c.do(ctx, ClusterPart, call, func(context.Context) error {
		n := c.state.fleet.findNode(ref)
		if n == nil {
			return fmt.Errorf("node %s with UID %s: not found", ref.Name, ref.UID)
		}
		return f(n)
	})
}

// Drain evicts pods and waits, in virtual time.
func (c *Client) Drain(ctx context.Context, req nodes.DrainRequest) (p nodes.DrainProgress, err error) {
	err = c.do(ctx, ClusterPart, "cluster.Drain", func(context.Context) error {
		n := c.state.fleet.findNode(req.Node)
		if n == nil { // the client that deleted it took its pods with it
			p.Done = true
			return nil
		}
		if why := c.abort(n, req); why != "" {
			return &nodes.DrainBlockedError{Node: n.Name, Why: why}
		}
		p = c.drain(n, req)
		if p.Done {
			c.log(Entry{Kind: Drained, Instance: n.instance.ID, Node: req.Node})
		}
		return nil
	})
	return p, err
}

func (c *Client) abort(n *node, req nodes.DrainRequest) string {
	for _, p := range c.state.pods.movable(n) {
		if p.Critical && !req.SkipCritical {
			return "pod " + p.Name + " has critical priority"
		}
	}
	return ""
}

func (c *Client) drain(n *node, req nodes.DrainRequest) nodes.DrainProgress {
	s := c.state
	for {
		left := 0
		why := ""
		next := req.Until
		for _, p := range s.pods.movable(n) {
			if p.Critical { // only when such pods are to be passed over
				continue
			}
			if !p.evicted() && !p.Blocked {
				s.pods.evict(c.actor, p, req.MaxGrace)
			}
			left++
			why = "pod " + p.Name
			if p.evicted() && p.goes.Before(next) {
				next = p.goes
			}
		}
		if left == 0 {
			return nodes.DrainProgress{Done: true}
		}
		if !s.time.now.Before(req.Until) {
			return nodes.DrainProgress{Left: left, Why: why}
		}
		s.time.advance(next)
		if s.fleet.findNode(n.NodeRef) == nil {
			return nodes.DrainProgress{Done: true}
		}
	}
}

// Remove deletes a Node object by name and UID.
func (c *Client) Remove(ctx context.Context, ref nodes.NodeRef) error {
	return c.do(ctx, ClusterPart, "cluster.Remove", func(context.Context) error {
		n := c.state.fleet.findNode(ref)
		if n == nil {
			return nil
		}
		c.log(Entry{Kind: NodeRemoved, Instance: n.instance.ID, Node: ref, Facts: c.state.fleet.facts(n.instance)})
		c.state.fleet.removeNode(n)
		return nil
	})
}

// Kube makes one request to the Kubernetes API: it takes time, fails during an outage, and effect sees and changes the cluster by k,
// which must not be used afterwards.
func (c *Client) Kube(ctx context.Context, call string, effect func(k *Kube) error) error {
	return c.do(ctx, ClusterPart, "kube."+call, func(context.Context) error { return effect(&Kube{c.state, c.actor}) })
}

// Cost says that every node costs the same.
func (c *Client) Cost(context.Context, []string) (map[string]float64, error) { return nil, nil }

// DrainWorkers tells the workers on a node to give their work away, and returns how many still hold some.
func (c *Client) DrainWorkers(ctx context.Context, name string, _ time.Time) (left int, err error) {
	err = c.do(ctx, WorkersPart, "workers.DrainWorkers", func(context.Context) error {
		for _, p := range c.state.pods.pods {
			if p.node == nil || p.node.Name != name || p.Work == 0 || p.Responds {
				continue
			}
			if !p.askedHere() {
				p.drainAsked, p.drainAskedOn = c.state.time.now, p.node
			}
			if p.holding(c.state.time.now) {
				left++
			}
		}
		c.log(Entry{Kind: WorkersDrained, Instance: name})
		return nil
	})
	return left, err
}

// TakeBack lets the workers on a node work again.
func (c *Client) TakeBack(ctx context.Context, name string) error {
	return c.do(ctx, WorkersPart, "workers.TakeBack", func(context.Context) error {
		for _, p := range c.state.pods.pods {
			if p.node != nil && p.node.Name == name && !p.Responds {
				p.drainAsked = time.Time{}
			}
		}
		return nil
	})
}

// RequestEvictions asks the pods on a node that respond to give their work away, and returns how many are still at it.
func (c *Client) RequestEvictions(ctx context.Context, ref nodes.NodeRef) (responding int, err error) {
	err = c.do(ctx, ClusterPart, "cluster.RequestEvictions", func(ctx context.Context) error {
		n := c.state.fleet.findNode(ref)
		if down, _ := c.state.outages.of(RequestsPart); down || n == nil {
			return fmt.Errorf("cluster.RequestEvictions: %w", ErrUnreachable)
		}
		for _, p := range c.state.pods.pods {
			if p.node != n || !p.Responds {
				continue
			}
			if !p.askedHere() {
				p.drainAsked, p.drainAskedOn = c.state.time.now, n
			}
			if p.holding(c.state.time.now) {
				responding++
			}
		}
		_, late := ctx.(arrivesLate)
		c.log(Entry{Kind: EvictionsRequested, Instance: n.instance.ID, Node: ref, Late: late})
		return nil
	})
	return responding, err
}

// WithdrawEvictions lets the pods on a node that respond work again.
func (c *Client) WithdrawEvictions(ctx context.Context, ref nodes.NodeRef) error {
	return c.onNode(ctx, "cluster.WithdrawEvictions", ref, func(n *node) error {
		if down, _ := c.state.outages.of(RequestsPart); down {
			return fmt.Errorf("cluster.WithdrawEvictions: %w", ErrUnreachable)
		}
		for _, p := range c.state.pods.pods {
			if p.node == n && p.Responds {
				p.drainAsked = time.Time{}
			}
		}
		c.log(Entry{Kind: EvictionsWithdrawn, Instance: n.instance.ID, Node: ref})
		return nil
	})
}

// ---- signals

// Observe reports the utilisation and the pending pods, and both over the policy's windows.
func (c *Client) Observe(ctx context.Context) (r nodes.Readings, err error) {
	err = c.do(ctx, SignalsPart, "signals.Observe", func(context.Context) error {
		c.state.settle()
		r = c.state.signals.readings(c.state.policy)
		r.ReadyIPsKnown = true
		for _, n := range c.state.fleet.nodes {
			if n.Ready && !n.ControlPlane {
				r.ReadyIPs = append(r.ReadyIPs, n.InternalIP)
			}
		}
		return nil
	})
	return r, err
}

// ---- store and event log

// Load returns the record.
func (c *Client) Load(ctx context.Context) (r nodes.Record, err error) {
	err = c.do(ctx, StorePart, "store.Load", func(context.Context) error { r = c.state.store.record.Clone(); return nil })
	return r, err
}

// Apply makes a transition.
func (c *Client) Apply(ctx context.Context, t nodes.Transition) (r nodes.Record, err error) {
	err = c.do(ctx, StorePart, "store."+t.Name(), func(ctx context.Context) error {
		_, late := ctx.(arrivesLate)
		before := c.state.store.record
		next, changed, err := nodes.Applied(before, t)
		if err != nil {
			c.log(Entry{Kind: RefusedWrite, Detail: t.Name()})
			return err
		}
		if changed {
			c.state.store.record = next
			c.log(Entry{Kind: Written, Detail: t.Name(), Before: &before, After: &next, Facts: c.state.fleet.markedFacts(before, next), Late: late})
		}
		r = next.Clone()
		return nil
	})
	return r, err
}

// OpenInterruptions returns the interruptions that are not closed.
func (c *Client) OpenInterruptions(ctx context.Context) (out []nodes.Interruption, err error) {
	err = c.do(ctx, StorePart, "store.OpenInterruptions", func(context.Context) error { out = c.state.store.open(); return nil })
	return out, err
}

// ApplyInterruption makes a transition of an interruption.
func (c *Client) ApplyInterruption(ctx context.Context, id string, t nodes.InterruptionTransition) (i nodes.Interruption, err error) {
	err = c.do(ctx, StorePart, "store."+t.Name(), func(ctx context.Context) error {
		next, changed, err := nodes.AppliedInterruption(c.state.store.items[id], t)
		if err != nil {
			c.log(Entry{Kind: RefusedWrite, Detail: t.Name()})
			return err
		}
		if changed {
			e := Entry{Kind: WrittenItem, Instance: id, Detail: t.Name(), Item: &next}
			if in := c.state.fleet.find(id); in != nil && next.Marked && !c.state.store.items[id].Marked {
				e.Facts = c.state.fleet.facts(in)
			}
			c.state.store.items[id] = next
			c.log(e)
		}
		i = next
		return nil
	})
	return i, err
}

// Append adds an event.
func (c *Client) Append(ctx context.Context, e nodes.Event) error {
	return c.do(ctx, EventLogPart, "eventLog.Append", func(context.Context) error {
		c.state.events.append(e)
		return nil
	})
}

// Read yields the matching events.
func (c *Client) Read(_ context.Context, q nodes.Query) iter.Seq2[nodes.Event, error] {
	c.state.mu.Lock()
	out := c.state.events.read(q)
	c.state.mu.Unlock()
	return func(yield func(nodes.Event, error) bool) {
		for _, e := range out {
			if !yield(e, nil) {
				return
			}
		}
	}
}
