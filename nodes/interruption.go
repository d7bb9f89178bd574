package nodes

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"
)

// interruptions takes up the work on interruptions. They run beside ticks, without the tick's lease: each is
// an item of its own with a claim of its own, so that a warning's two minutes are not spent waiting for a
// tick to end.
type interruptions struct {
	*run
	surveyor surveyor
}

// handle notes an event and works on it. See Reconciler.Interrupt.
func (n interruptions) handle(ctx context.Context, e InterruptionEvent) error {
	in, concerned, err := n.concerned(ctx, e)
	if err != nil || !concerned {
		return err
	}

	// This write is the one that counts: once it is acknowledged, any later tick can take up everything after it.
	open := OpenInterruption{
		Event:    e,
		Now:      n.now(),
		Offering: Offering{Zone: in.Zone, Type: in.Type, Market: in.Market, Pool: in.Pool},
	}
	i, err := n.state.applyInterruption(ctx, e.InstanceID, open)
	if err != nil {
		return err
	}
	n.log.report(ctx, "interruption.opened", e.InstanceID, "%s", i.Kind)
	for !i.Closed && !n.workOn(ctx, i, 0) && n.urgent(i) && !n.config.stopping() {
		// Another worker has it already, perhaps since the rebalance that came before. It notices the warning
		// when it renews its claim. If it has died, waiting for the next tick would waste the time that is
		// left.
		taken, left := n.takeOver(ctx, []Interruption{i})
		if taken || len(left) == 0 {
			break
		}
		i = left[0]
	}
	return n.log.err()
}

// concerned looks up the instance of an event and reports whether there is anything to do about it.
func (n interruptions) concerned(ctx context.Context, e InterruptionEvent) (in Instance, concerned bool, err error) {
	found, lookupErr := n.surveyor.lookup(ctx, e.InstanceID)
	if lookupErr != nil {
		// The event is noted all the same, or an outage of the cloud's API would lose it. Whose instance it
		// is about is found out before anything is done.
		n.log.collect(lookupErr)
	}
	in, there := found[e.InstanceID]
	switch {
	case lookupErr == nil && (!there || in.Foreign):
		n.log.report(ctx, "interruption.foreign", e.InstanceID, "%s of an instance that is not this cluster's", e.Kind)
	case in.ControlPlane:
		n.log.report(ctx, "interruption.controlPlane", e.InstanceID, "%s of a server of the control plane: see to it", e.Kind)
	case e.Kind == StateChange:
		// The sweep deletes its node. It is made up for only through MIN_WORKERS or pending pods.
		n.log.report(ctx, "interruption.stateChange", e.InstanceID, "now %s", e.State)
	case e.Kind.urgency() < 0:
		return in, false, fmt.Errorf("event %s is of unknown kind %q", e.ID, e.Kind)
	case e.Kind == Warning && n.now().Sub(e.At) >= warningNotice:
		// The instance has ended, and ticks have dealt with what that meant.
		n.log.report(ctx, "interruption.tooLate", e.InstanceID, "warned at %s", e.At.UTC().Format(time.RFC3339))
	default:
		return in, true, nil
	}
	return in, false, nil
}

// urgent reports whether waiting for the next tick would waste a warning's time.
func (n interruptions) urgent(i Interruption) bool {
	return i.Kind == Warning && n.now().Unix() < i.DeadlineEpoch
}

// resume takes up every open interruption that no worker has claimed.
func (n interruptions) resume(ctx context.Context) {
	open, ok := n.open(ctx)
	if !ok {
		return
	}
	var held []Interruption // warnings that another worker has
	for _, i := range open {
		if !n.workOn(ctx, i, 0) && n.urgent(i) {
			held = append(held, i)
		}
	}
	n.takeOver(ctx, held)
}

// open reads the open interruptions.
func (n interruptions) open(ctx context.Context) (open []Interruption, ok bool) {
	err := n.calls.do(ctx, "reading interruptions", func(ctx context.Context) (err error) {
		open, err = n.config.Store.OpenInterruptions(ctx)
		return err
	})
	if err != nil {
		n.log.collect(err)
		return nil, false
	}
	return open, true
}

// takeOver takes up the warnings whose workers have died or have released them. A live worker renews its
// claim, so watching it for claimPatience tells the two apart. Without this look, the time until the claim
// expires, or even until the next tick, would be lost from a warning's two minutes. It returns the warnings
// that are still open, as last read, and whether it has worked on one.
func (n interruptions) takeOver(ctx context.Context, held []Interruption) (taken bool, left []Interruption) {
	if len(held) == 0 || n.config.stopping() {
		return false, nil
	}
	now, watched := n.watch(ctx, held)
	for _, was := range held {
		i, open := of(now, was.InstanceID)
		if !watched || !open || n.config.stopping() {
			continue
		}
		left = append(left, i)
		silent := i.Revision == was.Revision
		if (silent || i.Owner == "") && n.workOn(ctx, i, i.Revision) {
			taken = true
		}
	}
	return taken, left
}

// watch reads the open interruptions again and again, for claimPatience or until something was written to each
// of those that are held.
func (n interruptions) watch(ctx context.Context, held []Interruption) (now []Interruption, ok bool) {
	end := n.now().Add(claimPatience)
	for {
		if n.config.Clock.Sleep(ctx, min(time.Second, end.Sub(n.now()))) != nil {
			return nil, false
		}
		if now, ok = n.open(ctx); !ok {
			return nil, false
		}
		silent := slices.ContainsFunc(held, func(was Interruption) bool {
			i, open := of(now, was.InstanceID)
			return open && i.Revision == was.Revision
		})
		if !silent || !n.now().Before(end) {
			return now, true
		}
	}
}

// of returns an instance's interruption.
func of(list []Interruption, instanceID string) (Interruption, bool) {
	k := slices.IndexFunc(list, func(i Interruption) bool { return i.InstanceID == instanceID })
	if k < 0 {
		return Interruption{}, false
	}
	return list[k], true
}

// workOn claims an interruption and brings it as far as it goes now. False means that it is still to be
// worked on: another worker has claimed it, or an event has changed its kind meanwhile. silent is
// ClaimInterruption's Silent.
func (n interruptions) workOn(ctx context.Context, i Interruption, silent int64) bool {
	instanceID := i.InstanceID
	r := newRun(n.config, n.id+"/"+instanceID, nil)
	defer func() { n.log.include(r.log) }()
	c := &claimedInterruption{run: r}
	claimed, err := c.claim(ctx, instanceID, silent)
	if err != nil {
		c.log.fail(ctx, "claiming an interruption", err)
	}
	if err != nil || !claimed {
		return false
	}

	kind := c.item.Kind
	c.budget.stop = func() bool { return c.item.Kind != kind || n.config.stopping() } // a warning came: stop and begin again
	if err := newInterruptionWork(c).do(ctx); err != nil {
		c.log.fail(ctx, "interruption of "+instanceID, err)
	}
	c.release(ctx)
	return c.item.Kind == kind
}

// interruptionWork decides what is done about a claimed interruption.
type interruptionWork struct {
	*claimedInterruption
	surveyor  surveyor
	warning   *spotWarning
	rebalance *rebalance
}

func newInterruptionWork(c *claimedInterruption) interruptionWork {
	v, d := surveyor{c.run}, drainer{c.run}
	r := replacement{claimedInterruption: c, surveyor: v, launcher: launcher{c.run}}
	return interruptionWork{
		claimedInterruption: c,
		surveyor:            v,
		warning:             &spotWarning{claimedInterruption: c, surveyor: v, drainer: d, replacement: r},
		rebalance:           &rebalance{claimedInterruption: c, surveyor: v, drainer: d, replacement: r},
	}
}

// do looks at the instance, its node and the record, decides once whether it is to be replaced, and continues by kind.
func (w interruptionWork) do(ctx context.Context) error {
	s := w.surveyor.survey(ctx)
	if s.recordErr != nil || s.cloudErr != nil {
		return errors.Join(s.recordErr, s.cloudErr)
	}
	w.state.record = s.record
	if ours, err := w.identify(ctx, s); err != nil || !ours {
		return err
	}
	gone, err := w.surveyor.confirmedGone(ctx, s, w.item.InstanceID)
	if err != nil {
		return err
	}
	if err := w.plan(ctx, s, gone); err != nil {
		return err
	}
	if w.item.Kind == Warning {
		return w.warning.do(ctx, s, gone)
	}
	return w.rebalance.do(ctx, s, gone)
}

// identify finds out about an instance that could not be looked up when its event came, and closes the
// interruption of one that is not a worker of this cluster.
func (w interruptionWork) identify(ctx context.Context, s *survey) (bool, error) {
	if w.item.Offering.Type != "" {
		return true, nil
	}
	id := w.item.InstanceID
	found, err := w.surveyor.lookup(ctx, id)
	if err != nil {
		return false, err
	}
	in, there := found[id]
	switch {
	case there && !in.Foreign && !in.ControlPlane:
		o := Offering{Zone: in.Zone, Type: in.Type, Market: in.Market, Pool: in.Pool}
		return true, w.step(ctx, "identifyInterruption", func(i *Interruption) { i.Offering = o })
	case !there && (slices.Contains(s.record.Joined, id) || s.nodeOf(id).Name != ""):
		return true, nil // it was ours and has gone already
	}
	return false, w.close(ctx, "not a worker of this cluster")
}

// plan notes the node, and whether the worker gets a replacement: not one that a scale-down is about to
// remove, and not one that was no worker yet. Without a view of the nodes it is replaced, since it most
// likely was a worker. The answer is written down and stays: a later run that saw less must not launch a
// second replacement.
func (w interruptionWork) plan(ctx context.Context, s *survey, gone bool) error {
	id := w.item.InstanceID
	node := s.nodeOf(id)
	if w.item.Replace != "" && (w.item.Node.Name != "" || node.Name == "") {
		return nil
	}

	_, removing := w.state.record.Removal(id)
	neverJoined := s.viewErr == nil && node.Name == "" && !gone
	replace := ReplaceYes
	if removing || w.state.record.Targets(id) || neverJoined {
		replace = ReplaceNo
	}
	return w.step(ctx, "planInterruption", func(i *Interruption) {
		if i.Node.Name == "" {
			i.Node = node
		}
		if i.Replace == "" {
			i.Replace = replace
		}
	})
}
