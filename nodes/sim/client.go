package sim

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"iter"
	"math"
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

// Client is one process's access to the simulator. It implements nodes.Signals, Cloud, Cluster, WorkerPlane, Store and Journal.
type Client struct {
	w     *Simulator
	actor string
	hook  Hook
}

var (
	_ nodes.Signals     = (*Client)(nil)
	_ nodes.Cloud       = (*Client)(nil)
	_ nodes.Cluster     = (*Client)(nil)
	_ nodes.Store       = (*Client)(nil)
	_ nodes.Journal     = (*Client)(nil)
	_ nodes.WorkerPlane = (*Client)(nil)
)

// Client returns access for a process of that name; hook may be nil.
func (w *Simulator) Client(actor string, hook Hook) *Client {
	return &Client{w: w, actor: actor, hook: hook}
}

// ErrLate, returned by a Hook's Before, lets the call take effect although its deadline has passed: the request was sent in time
// and arrives late.
var ErrLate = errors.New("late")

// arrivesLate is a context whose deadline has lost its meaning.
type arrivesLate struct{ context.Context }

func (arrivesLate) Err() error { return nil }

// ErrUnreachable is what every call of a part returns during its outage.
var ErrUnreachable = errors.New("unreachable")

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
	w := c.w
	if err := ctx.Err(); err != nil { // a request is not sent after its deadline
		w.mu.Lock()
		defer w.mu.Unlock()
		w.record(Entry{Kind: Expired, Actor: c.actor, Detail: call})
		return err
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.advance(w.now.Add(w.opts.Latency))
	if o := w.outageOf(part); o != nil && !o.partial {
		return fmt.Errorf("%s: %w", call, ErrUnreachable)
	}
	err := effect(ctx)
	w.settle()
	return err
}

func (w *Simulator) outageOf(part Part) *outage {
	for i, o := range w.outages {
		if o.part == part && !w.now.Before(o.from) && w.now.Before(o.until) {
			return &w.outages[i]
		}
	}
	return nil
}

func (c *Client) log(e Entry) {
	e.Actor = c.actor
	c.w.record(e)
}

// half returns the first half of a list with an error, while a part answers with half its lists.
func half[T any](w *Simulator, part Part, list []T) ([]T, error) {
	if o := w.outageOf(part); o != nil && o.partial {
		return list[:len(list)/2], &nodes.IncompleteError{What: string(part), Err: errors.New("the second page could not be read")}
	}
	return list, nil
}

// ---- cloud

// Workers lists the instances that are visible, for an hour after their end too.
func (c *Client) Workers(ctx context.Context) (out []nodes.Instance, err error) {
	err = c.do(ctx, CloudPart, "cloud.Workers", func(context.Context) error {
		for _, in := range c.w.instances {
			if c.w.visible(in) {
				out = append(out, in.Instance)
			}
		}
		var err error
		out, err = half(c.w, CloudPart, out)
		return err
	})
	return out, err
}

func (w *Simulator) visible(in *instance) bool {
	return !w.now.Before(in.visibleAt) && (in.goneAt.IsZero() || w.now.Sub(in.goneAt) < time.Hour)
}

// Lookup describes instances by ID.
func (c *Client) Lookup(ctx context.Context, ids []string) (map[string]nodes.Instance, error) {
	out := map[string]nodes.Instance{}
	err := c.do(ctx, CloudPart, "cloud.Lookup", func(context.Context) error {
		for _, id := range ids {
			if in := c.w.find(id); in != nil && c.w.visible(in) {
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
		for _, z := range c.w.opts.Zones {
			out = append(out, nodes.Subnet{ID: "subnet-" + z, Zone: z})
		}
		return nil
	})
	return out, err
}

// Launch starts an instance. A token is bound to its first request in its zone, whether or not that got an instance.
func (c *Client) Launch(ctx context.Context, req nodes.LaunchRequest) (out nodes.Instance, err error) {
	err = c.do(ctx, CloudPart, "cloud.Launch", func(ctx context.Context) error {
		_, late := ctx.(arrivesLate)
		in, err := c.launch(req, late)
		if err != nil {
			return err
		}
		out = in.Instance
		return nil
	})
	return out, err
}

func (c *Client) launch(req nodes.LaunchRequest, late bool) (*instance, error) {
	w := c.w
	key := req.Offering.Zone + "/" + req.Token
	use := w.tokens[key]
	if use == nil || req.Token == "" {
		use = &tokenUse{request: req}
		w.tokens[key] = use
	}
	refuse := func(kind nodes.LaunchFailure, code string) error {
		c.log(Entry{Kind: LaunchRefused, Request: req, Zone: req.Offering.Zone, Refusal: kind, Detail: code})
		return &nodes.LaunchError{Kind: kind, Code: code, Message: "refused"}
	}
	switch {
	case use.request != req:
		c.log(Entry{Kind: TokenMismatch, Request: req, Zone: req.Offering.Zone})
		return nil, refuse(nodes.FailPermanent, "IdempotentParameterMismatch")
	case use.instance != nil && !use.instance.alive():
		return nil, refuse(nodes.FailTokenSpent, "IdempotentInstanceTerminated")
	case use.instance != nil:
		c.log(Entry{Kind: LaunchedAgain, Instance: use.instance.ID, Request: req, Zone: req.Offering.Zone})
		return use.instance, nil
	}
	for _, s := range w.shortages {
		if s.matches(req.Offering, w.now) && w.launches >= s.FromLaunch {
			return nil, refuse(cmp.Or(s.Kind, nodes.FailCapacity), "InsufficientInstanceCapacity")
		}
	}
	in := w.newInstance(nodes.Instance{Type: req.Offering.Type, Zone: req.Offering.Zone, Market: req.Offering.Market, LaunchedAt: w.now, ActionID: req.ActionID})
	in.visibleAt = w.now.Add(w.opts.Visible)
	use.instance = in
	w.launches++
	var b Boot
	if len(w.boots) > 0 {
		b, w.boots = w.boots[0], w.boots[1:]
	}
	w.boot(in, b)
	c.log(Entry{Kind: Launched, Instance: in.ID, Request: req, Zone: in.Zone, Facts: w.facts(in), Late: late})
	return in, nil
}

func (s Shortage) matches(o nodes.Offering, now time.Time) bool {
	return (s.Zone == "" || s.Zone == o.Zone) && (s.Type == "" || s.Type == o.Type) && (s.Market == "" || s.Market == o.Market) &&
		(s.Until.IsZero() || now.Before(s.Until))
}

// Terminate ends an instance.
func (c *Client) Terminate(ctx context.Context, id string) error {
	return c.do(ctx, CloudPart, "cloud.Terminate", func(context.Context) error {
		if c.w.outageOf(TerminatePart) != nil {
			return fmt.Errorf("cloud.Terminate: %w", ErrUnreachable)
		}
		in := c.w.find(id)
		if in == nil || !in.alive() {
			return nil
		}
		c.log(Entry{Kind: Terminated, Instance: id, Zone: in.Zone, Facts: c.w.facts(in)})
		c.w.end(in)
		return nil
	})
}

// Diagnose returns an instance's state.
func (c *Client) Diagnose(ctx context.Context, id string) (d nodes.Diagnosis, err error) {
	err = c.do(ctx, CloudPart, "cloud.Diagnose", func(context.Context) error {
		if in := c.w.find(id); in != nil {
			d = nodes.Diagnosis{State: in.State, Console: "boot of " + id}
		}
		return nil
	})
	return d, err
}

// ---- cluster

// View shows nodes and pods.
func (c *Client) View(ctx context.Context) (v nodes.View, err error) {
	err = c.do(ctx, ClusterPart, "cluster.View", func(context.Context) error {
		at := make(map[*node]int, len(c.w.nodes))
		for i, n := range c.w.nodes {
			out := n.Node
			out.Claims = slices.Clone(n.claims)
			v.Nodes = append(v.Nodes, out)
			at[n] = i
		}
		for _, p := range c.w.pods {
			if p.node == nil {
				v.Pending = append(v.Pending, nodes.Pod{Name: p.Name, Requests: p.requests(), NeverFit: p.NeverFit, Scheduling: p.Scheduling})
			} else if i, ok := at[p.node]; ok {
				c.w.show(p, &v.Nodes[i])
			}
		}
		var err error
		v.Nodes, err = half(c.w, ClusterPart, v.Nodes)
		return err
	})
	return v, err
}

func (p *pod) requests() nodes.Resources {
	return nodes.Resources{MilliCPU: p.MilliCPU, Memory: p.Memory}
}

func (w *Simulator) show(p *pod, n *nodes.Node) {
	if p.Daemon {
		n.Daemon.MilliCPU += p.MilliCPU
		n.Daemon.Memory += p.Memory
		n.Daemon.Pods++
		return
	}
	n.Pods = append(n.Pods, nodes.Pod{Name: p.Name, Requests: p.requests(), Scheduling: p.Scheduling})
	switch {
	case p.Critical:
		n.Blocker = "pod " + p.Name + ": critical priority"
	case p.Blocked && p.goes.IsZero():
		n.Blocker = "pod " + p.Name + ": its disruption budget allows none"
	}
}

// Cordon makes a node unschedulable.
func (c *Client) Cordon(ctx context.Context, ref nodes.NodeRef, claim string) error {
	return c.onNode(ctx, "cluster.Cordon", ref, func(n *node) error {
		if n.Unschedulable && slices.Contains(n.claims, claim) {
			return nil
		}
		n.Unschedulable = true
		if !slices.Contains(n.claims, claim) {
			n.claims = append(n.claims, claim)
		}
		c.log(Entry{Kind: Cordoned, Instance: n.instance.ID, Node: ref, Detail: claim, Facts: c.w.facts(n.instance)})
		return nil
	})
}

// Uncordon takes a claim away.
func (c *Client) Uncordon(ctx context.Context, ref nodes.NodeRef, claim string) error {
	return c.onNode(ctx, "cluster.Uncordon", ref, func(n *node) error {
		if !slices.Contains(n.claims, claim) {
			return nil
		}
		n.claims = slices.DeleteFunc(n.claims, func(s string) bool { return s == claim })
		if len(n.claims) == 0 && !n.byHand {
			n.Unschedulable = false
		}
		c.log(Entry{Kind: Uncordoned, Instance: n.instance.ID, Node: ref, Detail: claim})
		return nil
	})
}

func (c *Client) onNode(ctx context.Context, call string, ref nodes.NodeRef, f func(*node) error) error {
	return c.do(ctx, ClusterPart, call, func(context.Context) error {
		n := c.w.findNode(ref)
		if n == nil {
			return fmt.Errorf("node %s with UID %s: not found", ref.Name, ref.UID)
		}
		return f(n)
	})
}

// Drain evicts pods and waits, in virtual time.
func (c *Client) Drain(ctx context.Context, req nodes.DrainRequest) (p nodes.DrainProgress, err error) {
	err = c.do(ctx, ClusterPart, "cluster.Drain", func(context.Context) error {
		n := c.w.findNode(req.Node)
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
	for _, p := range c.w.movable(n) {
		if p.Critical && !req.SkipCritical {
			return "pod " + p.Name + " has critical priority"
		}
	}
	return ""
}

func (c *Client) drain(n *node, req nodes.DrainRequest) nodes.DrainProgress {
	w := c.w
	for {
		left := 0
		why := ""
		next := req.Until
		for _, p := range w.movable(n) {
			if p.Critical { // only when such pods are to be passed over
				continue
			}
			if p.goes.IsZero() && !p.Blocked {
				c.evict(p, req.MaxGrace)
			}
			left++
			why = "pod " + p.Name
			if !p.goes.IsZero() && p.goes.Before(next) {
				next = p.goes
			}
		}
		if left == 0 {
			return nodes.DrainProgress{Done: true}
		}
		if !w.now.Before(req.Until) {
			return nodes.DrainProgress{Left: left, Why: why}
		}
		w.advance(next)
		if w.findNode(n.NodeRef) == nil {
			return nodes.DrainProgress{Done: true}
		}
	}
}

func (c *Client) evict(p *pod, most time.Duration) {
	w := c.w
	grace := cmp.Or(p.Grace, 2*time.Second)
	if most > 0 {
		grace = min(grace, most)
	}
	c.log(Entry{Kind: Evicted, Instance: p.node.instance.ID, Node: p.node.NodeRef, Detail: p.Name, Holding: p.holding(w.now)})
	if p.Stuck {
		p.goes = w.now.Add(1000 * time.Hour)
		return
	}
	from := p.node
	p.goes = w.now.Add(grace)
	w.after(grace, func() {
		if p.node == from {
			p.node, p.goes, p.since = nil, time.Time{}, w.now
		}
	})
}

// Remove deletes a Node object by name and UID.
func (c *Client) Remove(ctx context.Context, ref nodes.NodeRef) error {
	return c.do(ctx, ClusterPart, "cluster.Remove", func(context.Context) error {
		n := c.w.findNode(ref)
		if n == nil {
			return nil
		}
		c.log(Entry{Kind: NodeRemoved, Instance: n.instance.ID, Node: ref, Facts: c.w.facts(n.instance)})
		c.w.removeNode(n)
		return nil
	})
}

// Cost says that every node costs the same.
func (c *Client) Cost(context.Context, []string) (map[string]float64, error) { return nil, nil }

// DrainWorkers tells the workers on a node to give their work away, and returns how many still hold some.
func (c *Client) DrainWorkers(ctx context.Context, name string, _ time.Time) (left int, err error) {
	err = c.do(ctx, WorkersPart, "workers.DrainWorkers", func(context.Context) error {
		for _, p := range c.w.pods {
			if p.node == nil || p.node.Name != name || p.Work == 0 {
				continue
			}
			if p.handing.IsZero() || p.handingOn != p.node {
				p.handing, p.handingOn = c.w.now, p.node
			}
			if p.holding(c.w.now) {
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
		for _, p := range c.w.pods {
			if p.node != nil && p.node.Name == name {
				p.handing = time.Time{}
			}
		}
		return nil
	})
}

// ---- signals

// Observe reports the utilisation and the pending pods, and both over the policy's windows.
func (c *Client) Observe(ctx context.Context) (r nodes.Readings, err error) {
	err = c.do(ctx, SignalsPart, "signals.Observe", func(context.Context) error {
		w, p := c.w, c.w.opts.Policy
		w.settle()
		r.At = w.now
		last := w.history[len(w.history)-1]
		cpu := func(s sample) float64 { return s.cpu }
		pending := func(s sample) float64 { return float64(s.pending) }
		r.CPU, r.Pending = nodes.Read(last.cpu), nodes.Read(float64(last.pending))
		r.PendingOther = r.Pending
		r.CPUMin, r.CPUMax = w.over(p.CPUUpFor, cpu, math.Min), w.over(p.IdleDownFor, cpu, math.Max)
		r.PendingMin, r.PendingMax = w.over(p.PendingUpFor, pending, math.Min), w.over(p.IdleDownFor, pending, math.Max)
		r.ReadyIPsKnown = true
		for _, n := range w.nodes {
			if n.Ready && !n.ControlPlane {
				r.ReadyIPs = append(r.ReadyIPs, n.InternalIP)
			}
		}
		return nil
	})
	return r, err
}

// over folds a signal over the window that ends now. What was before the first sample is taken to have been like it.
func (w *Simulator) over(window time.Duration, value func(sample) float64, fold func(a, b float64) float64) nodes.Reading {
	v := value(w.history[len(w.history)-1])
	for i := len(w.history) - 2; i >= 0 && w.history[i+1].at.After(w.now.Add(-window)); i-- {
		v = fold(v, value(w.history[i]))
	}
	return nodes.Read(v)
}

// ---- store and journal

type store struct {
	record nodes.Record
	items  map[string]nodes.Interruption
}

func (s *store) open() []nodes.Interruption {
	var out []nodes.Interruption
	for _, i := range s.items {
		if !i.Closed {
			out = append(out, i)
		}
	}
	slices.SortFunc(out, func(a, b nodes.Interruption) int { return cmp.Compare(a.InstanceID, b.InstanceID) })
	return out
}

// markedFacts returns the facts of the instance that a write has marked, if it has marked one.
func (w *Simulator) markedFacts(before, after nodes.Record) Facts {
	for _, m := range after.Removals {
		if old, _ := before.Removal(m.InstanceID); m.Phase == nodes.PhaseTerminating && old.Phase != nodes.PhaseTerminating {
			if in := w.find(m.InstanceID); in != nil {
				return w.facts(in)
			}
		}
	}
	return Facts{}
}

// Load returns the record.
func (c *Client) Load(ctx context.Context) (r nodes.Record, err error) {
	err = c.do(ctx, StorePart, "store.Load", func(context.Context) error { r = c.w.store.record.Clone(); return nil })
	return r, err
}

// Apply makes a transition.
func (c *Client) Apply(ctx context.Context, t nodes.Transition) (r nodes.Record, err error) {
	err = c.do(ctx, StorePart, "store."+t.Name(), func(ctx context.Context) error {
		_, late := ctx.(arrivesLate)
		before := c.w.store.record
		next, changed, err := nodes.Applied(before, t)
		if err != nil {
			c.log(Entry{Kind: RefusedWrite, Detail: t.Name()})
			return err
		}
		if changed {
			c.w.store.record = next
			c.log(Entry{Kind: Written, Detail: t.Name(), Before: &before, After: &next, Facts: c.w.markedFacts(before, next), Late: late})
		}
		r = next.Clone()
		return nil
	})
	return r, err
}

// OpenInterruptions returns the interruptions that are not closed.
func (c *Client) OpenInterruptions(ctx context.Context) (out []nodes.Interruption, err error) {
	err = c.do(ctx, StorePart, "store.OpenInterruptions", func(context.Context) error { out = c.w.store.open(); return nil })
	return out, err
}

// ApplyInterruption makes a transition of an interruption.
func (c *Client) ApplyInterruption(ctx context.Context, id string, t nodes.InterruptionTransition) (i nodes.Interruption, err error) {
	err = c.do(ctx, StorePart, "store."+t.Name(), func(ctx context.Context) error {
		next, changed, err := nodes.AppliedInterruption(c.w.store.items[id], t)
		if err != nil {
			c.log(Entry{Kind: RefusedWrite, Detail: t.Name()})
			return err
		}
		if changed {
			e := Entry{Kind: WrittenItem, Instance: id, Detail: t.Name(), Item: &next}
			if in := c.w.find(id); in != nil && next.Marked && !c.w.store.items[id].Marked {
				e.Facts = c.w.facts(in)
			}
			c.w.store.items[id] = next
			c.log(e)
		}
		i = next
		return nil
	})
	return i, err
}

// Append adds an event.
func (c *Client) Append(ctx context.Context, e nodes.Event) error {
	return c.do(ctx, JournalPart, "journal.Append", func(context.Context) error {
		if !c.w.eventKeys[e.Key()] {
			c.w.eventKeys[e.Key()] = true
			c.w.events = append(c.w.events, e)
		}
		return nil
	})
}

// Read yields the matching events.
func (c *Client) Read(_ context.Context, q nodes.Query) iter.Seq2[nodes.Event, error] {
	c.w.mu.Lock()
	var out []nodes.Event
	for _, e := range c.w.events {
		if q.Matches(e) {
			out = append(out, e)
		}
	}
	c.w.mu.Unlock()
	if q.Limit > 0 && len(out) > q.Limit {
		out = out[len(out)-q.Limit:]
	}
	return func(yield func(nodes.Event, error) bool) {
		for _, e := range out {
			if !yield(e, nil) {
				return
			}
		}
	}
}
