package nodes

import (
	"context"
	"fmt"
	"time"

	"github.com/muster-dev/muster/internal/quantity"
)

// handoffPoll is the time between two questions how far the workers on a node are with handing off.
const handoffPoll = time.Second

// drainer takes a node out of service, and gives it back: cordon, handoff of the workers on it, drain, termination.
type drainer struct{ *run }

// drain cordons a node, waits for its workers to hand off, and drains it until it is done, has failed, or the
// tick has no more time. A failure is for good; not done and no failure means that the next tick continues.
// The cordon is repeated by every tick: it is idempotent, and the one of an earlier tick may have been lost.
func (d drainer) drain(ctx context.Context, m Removal) (done bool, failure string, err error) {
	deadline := time.Unix(m.DrainedSince, 0).Add(d.config.Policy.DrainTimeout)
	if !d.now().Before(deadline) {
		return false, "not drained within DRAIN_TIMEOUT_SEC", nil
	}
	// The cordon comes before everything else, or the work that is handed off, and the pods that are evicted,
	// could come back.
	if err := d.cordon(ctx, m.Node, m.claim()); err != nil {
		return false, "", err
	}
	if ready, err := d.awaitHandoff(ctx, m, deadline); err != nil || !ready {
		return false, "", err
	}
	return d.evict(ctx, m, deadline)
}

// awaitHandoff waits until the drain may begin; false means that the tick has no more time to wait.
func (d drainer) awaitHandoff(ctx context.Context, m Removal, deadline time.Time) (bool, error) {
	for !d.handedOff(ctx, m.Node, time.Unix(m.DrainedSince, 0), deadline) {
		if d.budget.turnOver(ctx) {
			d.continues(ctx, m, "its workers are handing off")
			return false, nil
		}
		if err := d.config.Clock.Sleep(ctx, handoffPoll); err != nil {
			return false, err
		}
	}
	return true, nil
}

// handedOff asks the workers on a node to hand off their work and reports whether the drain may begin: when
// they hold nothing any more, or three quarters of the time from since to deadline are over. What remains is
// for evicting them as they are, which is slower for their work but not wrong: they hand off when they are
// told to stop. A worker plane that doesn't answer is asked again for half of the time.
//
// Pods that can respond to their eviction are asked first. The workers are asked once those have answered: of a
// worker that has handed off that is the proof, and of one in a pod without a responder the request.
func (d drainer) handedOff(ctx context.Context, n NodeRef, since, deadline time.Time) bool {
	if d.responding(ctx, n) && d.now().Before(since.Add(deadline.Sub(since)*3/4)) {
		return false
	}
	if d.config.WorkerPlane == nil {
		return true
	}
	var left int
	ask := func(ctx context.Context) (err error) {
		left, err = d.config.WorkerPlane.DrainWorkers(ctx, n.Name, deadline)
		return err
	}
	err := d.calls.do(ctx, "asking for a drain of the workers", ask)
	if err != nil && !lost(err) { // only the reply may have been lost
		err = d.calls.do(ctx, "asking for a drain of the workers", ask)
	}
	patience := deadline.Sub(since) * 3 / 4
	if err != nil {
		d.log.collect(err)
		patience = deadline.Sub(since) / 2
	}
	return err == nil && left == 0 || !d.now().Before(since.Add(patience))
}

// responding reports whether pods on a node still get ready for their eviction. What can't be asked for is not
// waited for: the workers are then asked directly, and the eviction itself is told to the pods, too.
func (d drainer) responding(ctx context.Context, n NodeRef) bool {
	if d.config.EvictionRequester == nil {
		return false
	}
	var left int
	ask := func(ctx context.Context) (err error) {
		left, err = d.config.EvictionRequester.RequestEvictions(ctx, n)
		return err
	}
	err := d.calls.do(ctx, "requesting evictions", ask)
	if err != nil && !lost(err) { // only the reply may have been lost, and then responders are at work
		err = d.calls.do(ctx, "requesting evictions", ask)
	}
	if err != nil {
		d.log.collect(err)
		return false
	}
	return left > 0
}

// withdraw takes the requests for evictions back. Failing at it stops nothing: the caller still uncordons.
func (d drainer) withdraw(ctx context.Context, n NodeRef) error {
	if d.config.EvictionRequester == nil {
		return nil
	}
	err := d.calls.do(ctx, "withdrawing the requests for evictions", func(ctx context.Context) error {
		return d.config.EvictionRequester.WithdrawEvictions(ctx, n)
	})
	if err != nil && !lost(err) {
		d.log.collect(err)
		return nil
	}
	return err
}

// evict drains in slices, between which the lease is renewed.
func (d drainer) evict(ctx context.Context, m Removal, deadline time.Time) (done bool, failure string, err error) {
	for {
		slice := d.budget.turn(d.lease.slice)
		p, err := d.drainOnce(ctx, DrainRequest{Node: m.Node, Until: earlier(deadline, d.now().Add(slice)), Since: time.Unix(m.DrainedSince, 0)})
		if why, blocked := IsDrainBlocked(err); blocked {
			return false, why, nil
		}
		switch {
		case err != nil:
			return false, "", err
		case p.Done:
			return true, "", nil
		case !d.now().Before(deadline):
			return false, fmt.Sprintf("not drained within DRAIN_TIMEOUT_SEC: %s left, %s", quantity.Of(p.Left, "pod"), p.Why), nil
		case d.budget.turnOver(ctx):
			d.continues(ctx, m, fmt.Sprintf("%s left, %s", quantity.Of(p.Left, "pod"), p.Why))
			return false, "", nil
		}
	}
}

// continues logs that a drain is left to the next tick. One that goes on in this tick's next round is not worth
// an event.
func (d drainer) continues(ctx context.Context, m Removal, how string) {
	if d.budget.spent(ctx) {
		d.log.report(ctx, "drain.continues", m.InstanceID, "%s", how)
	}
}

func (d drainer) drainOnce(ctx context.Context, req DrainRequest) (p DrainProgress, err error) {
	err = d.calls.do(ctx, "draining "+req.Node.Name, func(ctx context.Context) (err error) {
		p, err = d.config.Cluster.Drain(ctx, req)
		return err
	})
	return p, err
}

// cordon makes a node unschedulable, and marks it as to be deleted, in the name of a claim. Cordoning again is no error.
func (d drainer) cordon(ctx context.Context, n NodeRef, claim string) error {
	return d.calls.do(ctx, "cordoning "+n.Name, func(ctx context.Context) error {
		return d.config.Cluster.Cordon(ctx, n, claim)
	})
}

// uncordon gives a node back, and its workers their work. Failing at the latter stops nothing: what they were
// asked for ends by itself.
func (d drainer) uncordon(ctx context.Context, n NodeRef, claim string) error {
	if err := d.withdraw(ctx, n); err != nil {
		return err
	}
	if d.config.WorkerPlane != nil {
		takeBack := func(ctx context.Context) error { return d.config.WorkerPlane.TakeBack(ctx, n.Name) }
		if err := d.calls.do(ctx, "taking the request for the drain back", takeBack); err != nil {
			if lost(err) {
				return err
			}
			d.log.collect(err)
		}
	}
	return d.calls.do(ctx, "uncordoning "+n.Name, func(ctx context.Context) error {
		return d.config.Cluster.Uncordon(ctx, n, claim)
	})
}

// terminateAndRemove ends an instance, unless it is gone, and deletes its Node object, if there is one. The
// instance goes first: as long as it may run pods, its Node object shows them.
func (d drainer) terminateAndRemove(ctx context.Context, id string, node NodeRef, gone bool) error {
	if !gone {
		err := d.calls.do(ctx, "terminating "+id, func(ctx context.Context) error {
			return d.config.Cloud.Terminate(ctx, id)
		})
		if err != nil {
			return err
		}
	}
	if node.Name == "" {
		return nil
	}
	return d.calls.do(ctx, "deleting node "+node.Name, func(ctx context.Context) error {
		return d.config.Cluster.Remove(ctx, node)
	})
}
