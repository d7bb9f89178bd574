package nodes

import (
	"context"
	"errors"
	"time"
)

const (
	launchFirst = 20 * time.Second // how long a warned node's drain waits for its replacement's launch
	retryPause  = 2 * time.Second  // between attempts that failed for no known reason
)

// spotWarning works on the interruption of an instance that ends at a deadline, whatever is done about it.
//
// Its cordon, its handoff and its drain need no valid claim. The instance goes at the deadline, so another
// worker that does the same beside this one does no harm, and the store may be away for longer than a claim
// lasts.
type spotWarning struct {
	*claimedInterruption
	surveyor    surveyor
	drainer     drainer
	replacement replacement

	deadline time.Time
	cordoned bool // the node carries our claim, as far as this run has seen
}

// do saves what can be saved before the deadline: the node takes no new pods at once, the replacement's
// launch goes first for a moment, then launching and draining alternate.
func (w *spotWarning) do(ctx context.Context, s *survey, gone bool) error {
	w.deadline = time.Unix(w.item.DeadlineEpoch, 0)
	drainable := !gone && w.inTime() && w.item.Node.Name != ""
	if drainable {
		// An earlier run may have cordoned it, and a person may have uncordoned it since.
		w.cordoned = s.cordoned(w.item.Node, w.item.claim())
		w.beginHandoff(ctx)
	}

	for w.item.Kind == Warning {
		launching := w.replacement.wanted()
		draining := drainable && !w.item.Drained && w.item.DrainFailed == "" && w.inTime()
		if !launching && !draining || w.stopping(ctx) {
			break
		}
		err := w.advance(ctx, s, launching, draining)
		if lost(err) {
			return err
		}
		if err != nil {
			w.log.collect(err)
			if err := w.config.Clock.Sleep(ctx, retryPause); err != nil {
				return err
			}
		}
	}
	return w.settle(ctx)
}

// inTime reports whether there is time left to drain.
func (w *spotWarning) inTime() bool { return w.now().Before(w.deadline) }

// advance makes one attempt to launch, and drains for one slice unless the launch still goes first.
func (w *spotWarning) advance(ctx context.Context, s *survey, launching, draining bool) error {
	var err error
	if launching {
		err = w.replacement.launch(ctx, s)
	}
	launchGoesFirst := launching && w.replacement.wanted() && w.budget.used() < launchFirst
	if draining && !launchGoesFirst {
		err = errors.Join(err, w.drain(ctx))
	}
	return err
}

// stopping reports whether to leave the rest to the next tick: a warning is worked until its deadline, beyond
// that for one budget.
func (w *spotWarning) stopping(ctx context.Context) bool {
	if d, ok := ctx.Deadline(); ok && d.Sub(w.now()) < leaseMargin || w.config.stopping() {
		return true
	}
	return !w.inTime() && w.budget.spent(ctx)
}

// beginHandoff closes the node to new pods and asks the workers on it for their work, before anything that
// takes longer.
func (w *spotWarning) beginHandoff(ctx context.Context) {
	defer w.lease.withoutHarm()()
	if err := w.cordon(ctx); err != nil {
		w.log.collect(err) // the drain tries again
	}
	if !w.item.WorkersDrained {
		w.drainer.handedOff(ctx, w.item.Node, w.now(), w.deadline)
		if err := w.step(ctx, "drainWorkers", func(i *Interruption) { i.WorkersDrained = true }); err != nil {
			w.log.collect(err)
		}
	}
	// After the handoff has begun: people can wait, and the slots can't.
	w.people.tell(ctx, w.item.Node, NodeInterrupted, w.item.cause(), "the cloud takes it away: Spot interruption warning; it is drained until %s UTC",
		w.deadline.UTC().Format(time.TimeOnly))
}

// cordon cordons the node, once is enough.
func (w *spotWarning) cordon(ctx context.Context) error {
	if w.cordoned {
		return nil
	}
	err := w.drainer.cordon(ctx, w.item.Node, w.item.claim())
	w.cordoned = err == nil
	return err
}

// drain drains for one slice. Pods get no more grace than remains, and critical pods are passed over: they go
// with the node.
func (w *spotWarning) drain(ctx context.Context) error {
	defer w.lease.withoutHarm()()
	if err := w.cordon(ctx); err != nil {
		return err
	}
	if !w.drainer.handedOff(ctx, w.item.Node, time.Unix(w.item.OpenedEpoch, 0), w.deadline) {
		return w.config.Clock.Sleep(ctx, handoffPoll)
	}
	if err := w.startDrain(ctx); lost(err) {
		return err
	} else if err != nil {
		w.log.collect(err) // it is written down for people; the drain can't wait
	}

	left := w.deadline.Sub(w.now())
	p, err := w.drainer.drainOnce(ctx, DrainRequest{
		Node:         w.item.Node,
		Until:        earlier(w.deadline, w.now().Add(w.lease.slice)),
		MaxGrace:     left,
		SkipCritical: true,
	})
	if why, blocked := IsDrainBlocked(err); blocked {
		return w.step(ctx, "drainFailed", func(i *Interruption) { i.DrainFailed = why })
	}
	if err != nil || !p.Done {
		return err
	}
	return w.step(ctx, "drained", func(i *Interruption) { i.Drained = true })
}

// settle closes the interruption when the instance has ended and its replacement has joined or will not. An
// instance that has outlived its deadline by far is a worker again: closing the interruption lets the sweep
// uncordon its node.
func (w *spotWarning) settle(ctx context.Context) error {
	if w.item.Kind != Warning {
		return nil // another event changed it meanwhile; the next round works on that
	}
	s := w.surveyor.survey(ctx)
	if err := s.fleetErr(); err != nil {
		return err
	}
	gone, err := w.surveyor.confirmedGone(ctx, s, w.item.InstanceID)
	if err != nil {
		return err
	}
	replaced, err := w.replacement.settled(ctx, s)
	if err != nil || !replaced {
		return err
	}
	switch {
	case gone:
		return w.close(ctx, "the instance has ended; drained %t; %s", w.item.Drained, w.replacement.text())
	case w.now().Sub(w.deadline) >= warningLinger:
		return w.close(ctx, "the instance lives on after its deadline; %s", w.replacement.text())
	}
	return nil
}
