package nodes

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"
)

const (
	launchFirst    = 20 * time.Second // how long a warned node's drain waits for its replacement's launch
	retryPause     = 2 * time.Second  // between attempts that failed for no known reason
	closedLifetime = 7 * 24 * time.Hour
)

// Interrupt handles one event. When it returns nil the event is either of no concern or durably noted, and need not be delivered
// again; an interruption that could not be worked to its end now is taken up by the next tick. It runs beside ticks, without
// their lease.
func (r *Reconciler) Interrupt(ctx context.Context, e InterruptionEvent) error {
	t := r.newTick()
	found, err := (surveyor{t}).lookup(ctx, e.InstanceID)
	if err != nil {
		// The event is noted all the same, or an outage of the cloud's API would lose it; whose instance it is about is found out
		// before anything is done.
		t.log.collect(err)
	}
	in, there := found[e.InstanceID]
	switch {
	case err == nil && (!there || in.Foreign):
		t.log.report(ctx, "interruption.foreign", e.InstanceID, "%s of an instance that is not this cluster's", e.Kind)
		return nil
	case in.ControlPlane:
		t.log.report(ctx, "interruption.controlPlane", e.InstanceID, "%s of a server of the control plane: see to it", e.Kind)
		return nil
	case e.Kind == StateChange:
		t.log.report(ctx, "interruption.stateChange", e.InstanceID, "now %s", e.State)
		return nil // the sweep deletes its node; it is made up for only through MIN_WORKERS or pending pods
	case e.Kind.urgency() < 0:
		return fmt.Errorf("event %s is of unknown kind %q", e.ID, e.Kind)
	}
	if e.Kind == Warning && t.now().Sub(e.At) >= warningNotice {
		// Whatever could be done has been done by others: the instance has ended, and ticks have seen to what that meant.
		t.log.report(ctx, "interruption.tooLate", e.InstanceID, "warned at %s", e.At.UTC().Format(time.RFC3339))
		return nil
	}
	open := OpenInterruption{Event: e, Now: t.now(), Offering: Offering{Zone: in.Zone, Type: in.Type, Market: in.Market}}
	// This write is the one that counts. Everything after it can be taken up by somebody else.
	i, err := t.applyInterruption(ctx, e.InstanceID, open)
	if err != nil {
		return err
	}
	t.log.report(ctx, "interruption.opened", e.InstanceID, "%s", i.Kind)
	for !i.Closed && !t.workOn(ctx, e.InstanceID) && i.Kind == Warning && t.now().Unix() < i.DeadlineEpoch && !t.config.stopping() {
		// Somebody works on it already, perhaps on the rebalance that came before. They notice the warning when they renew their
		// claim; if they have died, waiting for the next tick would waste the time that is left.
		if err := t.config.Clock.Sleep(ctx, retryPause); err != nil {
			break
		}
	}
	return t.log.err()
}

// resumeInterruptions takes up every open interruption that nobody is working on.
func (t *run) resumeInterruptions(ctx context.Context) {
	var open []Interruption
	err := t.calls.do(ctx, "reading interruptions", func(ctx context.Context) (err error) {
		open, err = t.config.Store.OpenInterruptions(ctx)
		return err
	})
	if err != nil {
		t.log.collect(err)
		return
	}
	var held []Interruption // warnings that another worker has
	for _, i := range open {
		if !t.workOn(ctx, i.InstanceID) && i.Kind == Warning && t.now().Unix() < i.DeadlineEpoch {
			held = append(held, i)
		}
	}
	t.takeOver(ctx, held)
}

// takeOver takes up the warnings whose workers have died. A live worker renews its claim, so it takes one interval between
// renewals to tell the two apart; without this look the time until the next tick would be lost of a warning's two minutes.
func (t *run) takeOver(ctx context.Context, held []Interruption) {
	if len(held) == 0 || t.config.stopping() || t.config.Clock.Sleep(ctx, claimTenure.renew+time.Second) != nil {
		return
	}
	var open []Interruption
	err := t.calls.do(ctx, "reading interruptions", func(ctx context.Context) (err error) {
		open, err = t.config.Store.OpenInterruptions(ctx)
		return err
	})
	if err != nil {
		t.log.collect(err)
		return
	}
	for _, was := range held {
		k := slices.IndexFunc(open, func(i Interruption) bool { return i.InstanceID == was.InstanceID })
		if k < 0 || open[k].Owner != "" && (open[k].Fence != was.Fence || open[k].UntilEpoch != was.UntilEpoch) || t.config.stopping() {
			continue
		}
		expires := time.Unix(open[k].UntilEpoch+1, 0) // the second that it names still belongs to it
		if err := t.config.Clock.Sleep(ctx, max(expires.Sub(t.now()), 0)); err != nil {
			return
		}
		t.workOn(ctx, was.InstanceID)
	}
}

// workOn claims an interruption and brings it as far as it goes now. One that somebody else has claimed is left to them: false.
func (t *run) workOn(ctx context.Context, instanceID string) bool {
	w := &interruptionRun{run: newRun(t.config, t.id+"/"+instanceID, nil)}
	defer func() { t.log.include(w.log) }()
	claimed, err := w.claim(ctx, instanceID)
	if err != nil || !claimed {
		if err != nil {
			w.log.fail(ctx, "claiming an interruption", err)
		}
		return false
	}
	kind := w.i.Kind
	w.budget.stop = func() bool { return w.i.Kind != kind || t.config.stopping() } // a warning took over: leave off and begin again
	if err := w.work(ctx); err != nil {
		w.log.fail(ctx, "interruption of "+instanceID, err)
	}
	w.unclaim(ctx)
	return w.i.Kind == kind
}

// interruptionRun is a run that holds the claim of one interruption.
type interruptionRun struct {
	*run
	i        Interruption
	cordoned bool // the node carries our claim, as far as this run has seen
}

func (t *run) applyInterruption(ctx context.Context, id string, tr InterruptionTransition) (i Interruption, err error) {
	f := func(ctx context.Context) error {
		i, err = t.config.Store.ApplyInterruption(ctx, id, tr)
		return err
	}
	if err := t.calls.doSafe(ctx, tr.Name(), f); err == nil || IsRefused(err) || errors.Is(err, ErrLeaseLost) {
		return i, err
	}
	err = t.calls.doSafe(ctx, tr.Name(), f) // once more: it changes nothing if it had succeeded
	return i, err
}

func (w *interruptionRun) claim(ctx context.Context, id string) (bool, error) {
	start := w.now()
	i, err := w.applyInterruption(ctx, id, ClaimInterruption{Owner: w.id, Holder: w.config.self.holder, Process: w.config.self.process, Now: start, TTL: claimTenure.ttl})
	if IsRefused(err) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	w.i, w.state.fence = i, i.Fence
	w.lease.hold(start, claimTenure, true, func(ctx context.Context, now time.Time) error {
		i, err := w.config.Store.ApplyInterruption(ctx, id, w.fact("renewClaim", func(i *Interruption) { i.UntilEpoch = now.Add(claimTenure.ttl).Unix() }))
		if err == nil {
			w.i = i
		}
		return err
	})
	return true, nil
}

func (w *interruptionRun) unclaim(ctx context.Context) {
	w.lease.stopRenewing()
	if w.lease.taken {
		return
	}
	if err := w.step(ctx, "releaseClaim", func(i *Interruption) { i.Owner, i.Holder, i.Process, i.UntilEpoch = "", "", "", 0 }); err != nil {
		w.log.fail(ctx, "releasing an interruption", err)
	}
}

func (w *interruptionRun) fact(step string, change func(*Interruption)) InterruptionStep {
	return InterruptionStep{Step: step, Owner: w.id, Fence: w.state.fence, Change: change}
}

// step writes a fact.
func (w *interruptionRun) step(ctx context.Context, step string, change func(*Interruption)) error {
	i, err := w.applyInterruption(ctx, w.i.InstanceID, w.fact(step, change))
	if err == nil {
		w.i = i
	}
	return err
}

func (w *interruptionRun) close(ctx context.Context, outcome string, args ...any) error {
	text := fmt.Sprintf(outcome, args...)
	expires := w.now().Add(closedLifetime).Unix()
	kind := w.i.Kind
	err := w.step(ctx, "closeInterruption", func(i *Interruption) {
		if !i.Closed && i.Kind == kind { // one that a warning has taken over meanwhile is not done
			i.Closed, i.Outcome, i.ExpiresEpoch = true, text, expires
		}
	})
	if err == nil && w.i.Closed {
		w.log.report(ctx, "interruption.closed", w.i.InstanceID, "%s", text)
	}
	return err
}

// work looks at the instance, its node and the record, decides once whether it is to be replaced, and goes on by kind.
func (w *interruptionRun) work(ctx context.Context) error {
	s := (surveyor{w.run}).survey(ctx)
	if s.recordErr != nil || s.cloudErr != nil {
		return errors.Join(s.recordErr, s.cloudErr)
	}
	w.state.record = s.record
	if ours, err := w.identify(ctx, s); err != nil || !ours {
		return err
	}
	gone, err := (surveyor{w.run}).confirmedGone(ctx, s, w.i.InstanceID)
	if err != nil {
		return err
	}
	if err := w.plan(ctx, s, gone); err != nil {
		return err
	}
	if w.i.Kind == Warning {
		return w.warned(ctx, s, gone)
	}
	return w.rebalanced(ctx, s, gone)
}

// identify finds out about an instance that could not be looked up when its event came, and closes the interruption of one that is
// not a worker of this cluster.
func (w *interruptionRun) identify(ctx context.Context, s *survey) (bool, error) {
	if w.i.Offering.Type != "" {
		return true, nil
	}
	id := w.i.InstanceID
	found, err := (surveyor{w.run}).lookup(ctx, id)
	if err != nil {
		return false, err
	}
	in, there := found[id]
	switch {
	case there && !in.Foreign && !in.ControlPlane:
		o := Offering{Zone: in.Zone, Type: in.Type, Market: in.Market}
		return true, w.step(ctx, "identifyInterruption", func(i *Interruption) { i.Offering = o })
	case !there && (slices.Contains(s.record.Joined, id) || s.nodeOf(id).Name != ""):
		return true, nil // it was ours and has gone already
	}
	return false, w.close(ctx, "not a worker of this cluster")
}

// plan notes the node, and whether the worker gets a replacement: not one that a scale-down is about to remove, and not one that
// was no worker yet. Without a view of the nodes it is replaced, since it most likely was a worker.
func (w *interruptionRun) plan(ctx context.Context, s *survey, gone bool) error {
	id := w.i.InstanceID
	node := s.nodeOf(id)
	replace := ReplaceYes
	if _, removing := w.state.record.Removal(id); removing || w.state.record.Targets(id) || s.viewErr == nil && node.Name == "" && !gone {
		replace = ReplaceNo
	}
	if w.i.Replace != "" && (w.i.Node.Name != "" || node.Name == "") {
		return nil
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

// ---- a warning: the instance ends at the deadline, whatever we do

// warned saves what can be saved before the deadline: the node takes no new pods at once, the replacement's launch goes first for
// a moment, then launching and draining alternate.
func (w *interruptionRun) warned(ctx context.Context, s *survey, gone bool) error {
	deadline := time.Unix(w.i.DeadlineEpoch, 0)
	gone = gone || !w.now().Before(deadline) // too late to drain
	if !gone && w.i.Node.Name != "" {
		w.cordoned = s.cordoned(w.i.Node, w.i.claim()) // by an earlier run, unless somebody has uncordoned it since
		w.handOverWarned(ctx, deadline)
	}
	for w.i.Kind == Warning {
		launching := w.wantsLaunch()
		draining := !gone && w.i.Node.Name != "" && !w.i.Drained && w.i.DrainFailed == "" && w.now().Before(deadline)
		if !launching && !draining || w.stopping(ctx, deadline) {
			break
		}
		var err error
		if launching {
			err = w.launchReplacement(ctx, s)
		}
		if draining && (!launching || !w.wantsLaunch() || w.budget.used() >= launchFirst) {
			err = errors.Join(err, w.drainWarned(ctx, deadline))
		}
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
	return w.settle(ctx, deadline)
}

// stopping tells whether to leave the rest to the next tick: a warning is worked until its deadline, beyond that for one budget.
func (w *interruptionRun) stopping(ctx context.Context, deadline time.Time) bool {
	if d, ok := ctx.Deadline(); ok && d.Sub(w.now()) < leaseMargin || w.config.stopping() {
		return true
	}
	return !w.now().Before(deadline) && w.budget.spent(ctx)
}

// handOverWarned and drainWarned work without a valid claim, too: the instance goes at the deadline, so another worker that does the
// same beside this one does no harm, and the store may be away for longer than a claim lasts.
func (w *interruptionRun) handOverWarned(ctx context.Context, deadline time.Time) {
	defer w.lease.withoutHarm()()
	if err := w.cordonWarned(ctx); err != nil {
		w.log.collect(err) // the drain tries again
	}
	if !w.i.HandedOver {
		(drainer{w.run}).handedOff(ctx, w.i.Node, w.now(), deadline)
		if err := w.step(ctx, "handOver", func(i *Interruption) { i.HandedOver = true }); err != nil {
			w.log.collect(err)
		}
	}
}

// cordonWarned cordons the node, once is enough.
func (w *interruptionRun) cordonWarned(ctx context.Context) error {
	if w.cordoned {
		return nil
	}
	err := (drainer{w.run}).cordon(ctx, w.i.Node, w.i.claim())
	w.cordoned = err == nil
	return err
}

// drainWarned drains for one slice. Pods get no more grace than remains, and critical pods are passed over: they go with the node.
func (w *interruptionRun) drainWarned(ctx context.Context, deadline time.Time) error {
	defer w.lease.withoutHarm()()
	if err := w.cordonWarned(ctx); err != nil {
		return err
	}
	if !(drainer{w.run}).handedOff(ctx, w.i.Node, time.Unix(w.i.OpenedEpoch, 0), deadline) {
		return w.config.Clock.Sleep(ctx, handoffPoll)
	}
	if err := w.startDrain(ctx); lost(err) {
		return err
	} else if err != nil {
		w.log.collect(err) // it is written down for people; the drain can't wait
	}
	left := deadline.Sub(w.now())
	p, err := (drainer{w.run}).drainOnce(ctx, DrainRequest{Node: w.i.Node, Until: earlier(deadline, w.now().Add(w.lease.slice)), MaxGrace: left, SkipCritical: true})
	if why, blocked := IsDrainBlocked(err); blocked {
		return w.step(ctx, "drainFailed", func(i *Interruption) { i.DrainFailed = why })
	}
	if err != nil || !p.Done {
		return err
	}
	return w.step(ctx, "drained", func(i *Interruption) { i.Drained = true })
}

// settle closes a warning when the instance has ended and its replacement has joined or will not. An instance that has outlived its
// deadline by far is a worker again: closing it lets the sweep uncordon its node.
func (w *interruptionRun) settle(ctx context.Context, deadline time.Time) error {
	if w.i.Kind != Warning {
		return nil // another event took it over meanwhile; the next round sees to it
	}
	s := (surveyor{w.run}).survey(ctx)
	if err := s.fleetErr(); err != nil {
		return err
	}
	gone, err := (surveyor{w.run}).confirmedGone(ctx, s, w.i.InstanceID)
	if err != nil {
		return err
	}
	replaced, err := w.replacementSettled(ctx, s)
	if err != nil || !replaced {
		return err
	}
	switch {
	case gone:
		return w.close(ctx, "the instance has ended; drained %t; %s", w.i.Drained, w.replacementText())
	case w.now().Sub(deadline) >= warningLinger:
		return w.close(ctx, "the instance lives on after its deadline; %s", w.replacementText())
	}
	return nil
}

// ---- a rebalance or a scheduled change: there is time to replace first

// rebalanced launches and verifies the replacement, and only then drains and removes the instance. If anything fails the instance is
// kept.
func (w *interruptionRun) rebalanced(ctx context.Context, s *survey, gone bool) error {
	if w.i.Replace == ReplaceNo {
		return w.close(ctx, "nothing to replace")
	}
	for w.wantsLaunch() && !w.budget.spent(ctx) {
		if err := w.launchReplacement(ctx, s); err != nil {
			return err
		}
	}
	if err := s.fleetErr(); err != nil {
		return err
	}
	settled, err := w.replacementSettled(ctx, s)
	switch {
	case err != nil || !settled:
		return err
	case gone:
		return w.close(ctx, "the instance has ended; %s", w.replacementText())
	case !w.i.Verified:
		return w.close(ctx, "kept: %s", w.replacementText())
	case w.i.Marked:
		return w.endRebalanced(ctx)
	case w.i.Node.Name == "":
		return w.close(ctx, "kept: its node is not known")
	}
	return w.drainRebalanced(ctx)
}

// startDrain notes since when the node is drained.
func (w *interruptionRun) startDrain(ctx context.Context) error {
	if w.i.DrainSince != 0 {
		return nil
	}
	start := w.now().Unix()
	return w.step(ctx, "startDrain", func(i *Interruption) { i.DrainSince = start })
}

func (w *interruptionRun) drainRebalanced(ctx context.Context) error {
	if err := w.startDrain(ctx); err != nil {
		return err
	}
	m := Removal{InstanceID: w.i.InstanceID, ActionID: w.i.claim(), Node: w.i.Node, DrainedSince: w.i.DrainSince}
	drained, failure, err := (drainer{w.run}).drain(ctx, m)
	switch {
	case err != nil || failure == "" && !drained:
		return err
	case failure != "":
		return w.keepRebalanced(ctx, failure)
	}
	// As before a scale-down's mark: look again, with this node cordoned already.
	s := (surveyor{w.run}).survey(ctx)
	if err := s.fleetErr(); err != nil {
		return err
	}
	if why, _ := s.objection(w.i.InstanceID, w.config.Policy.MinWorkers); why != "" {
		return w.keepRebalanced(ctx, why)
	}
	if err := w.step(ctx, "markTerminating", func(i *Interruption) { i.Drained, i.Marked = true, true }); err != nil {
		return err
	}
	return w.endRebalanced(ctx)
}

func (w *interruptionRun) endRebalanced(ctx context.Context) error {
	if err := (drainer{w.run}).terminateAndRemove(ctx, w.i.InstanceID, w.i.Node, false); err != nil {
		return err
	}
	return w.close(ctx, "replaced and removed; %s", w.replacementText())
}

func (w *interruptionRun) keepRebalanced(ctx context.Context, why string) error {
	if err := (drainer{w.run}).uncordon(ctx, w.i.Node, w.i.claim()); err != nil {
		return err
	}
	return w.close(ctx, "kept: %s", why)
}

// ---- the replacement

func (w *interruptionRun) wantsLaunch() bool {
	return w.i.Replace == ReplaceYes && w.i.ReplacementID == "" && w.i.LaunchFailed == ""
}

// launchReplacement makes one attempt, by the same rules as a scale-up: the request is written down before it is sent, an unknown
// outcome is repeated, a refusal leads to the next offering. An error means an unknown outcome.
func (w *interruptionRun) launchReplacement(ctx context.Context, s *survey) error {
	if w.i.Intent == nil {
		if err := w.intendReplacement(ctx, s, nil); err != nil || w.i.LaunchFailed != "" {
			return err
		}
	}
	in, err := (launcher{w.run}).launch(ctx, w.i.Intent.Request)
	var refusal *LaunchError
	switch {
	case err == nil:
		err := w.step(ctx, "recordReplacement", func(i *Interruption) { i.ReplacementID = in.ID })
		if err == nil {
			w.log.report(ctx, "interruption.replacement", in.ID, "launched for %s", w.i.InstanceID)
		}
		return err
	case final(err) && errors.As(err, &refusal):
		return w.intendReplacement(ctx, s, refusal)
	}
	return err
}

func (w *interruptionRun) intendReplacement(ctx context.Context, s *survey, refusal *LaunchError) error {
	subnets, err := (surveyor{w.run}).subnets(ctx)
	if err != nil {
		return err
	}
	now := w.now()
	attempt := 0
	var news []Exhausted
	if prev := w.i.Intent; prev != nil {
		attempt = prev.Attempt + 1
		if refusal != nil {
			news = exhaustedBy(refusal.Kind, prev.Request.Offering, now)
		}
	}
	exhausted := append(interruptedOfferings(append(s.open, w.i), now), append(news, w.state.record.Exhausted...)...)
	zones := (launcher{w.run}).launchedPerZone(s)
	zones[w.i.Offering.Zone]-- // the one that is replaced
	order := LaunchOrder(w.config.Policy, subnets, zones, exhausted, now)
	if len(order) == 0 || refusal != nil && refusal.Kind == FailPermanent {
		why := "every offering is exhausted"
		if refusal != nil {
			why = refusal.Error()
		}
		return w.step(ctx, "failReplacement", func(i *Interruption) { i.LaunchFailed = why })
	}
	intent := Intent{Attempt: attempt, Epoch: now.Unix(), Request: (launcher{w.run}).request(w.i.claim(), 0, attempt, order[0])}
	return w.step(ctx, "intendReplacement", func(i *Interruption) {
		i.Intent = &intent
		i.Exhausted = append(i.Exhausted[:len(i.Exhausted):len(i.Exhausted)], newOnes(i.Exhausted, news)...)
	})
}

// newOnes returns those of news that are not in old, so that a repeated step adds nothing.
func newOnes(old, news []Exhausted) []Exhausted {
	var out []Exhausted
	for _, n := range news {
		known := false
		for _, o := range old {
			known = known || o == n
		}
		if !known {
			out = append(out, n)
		}
	}
	return out
}

// replacementSettled tells whether nothing more is to be expected of the replacement: it is Ready, there is none, or its time to
// join is over. One that did not join is reaped by the sweep once the interruption is closed.
func (w *interruptionRun) replacementSettled(ctx context.Context, s *survey) (bool, error) {
	switch {
	case w.i.Replace != ReplaceYes || w.i.Verified || w.i.LaunchFailed != "":
		return true, nil
	case w.i.ReplacementID == "":
		return w.i.Intent != nil && w.joinOver(), nil
	}
	if r, ok := s.worker(w.i.ReplacementID); ok && r.Instance.Alive() && r.Node != nil && r.Node.Ready {
		return true, w.step(ctx, "verifyReplacement", func(i *Interruption) { i.Verified = true })
	}
	return w.joinOver(), nil
}

func (w *interruptionRun) joinOver() bool {
	return w.now().Sub(time.Unix(w.i.Intent.Epoch, 0)) >= w.config.Policy.JoinTimeout
}

func (w *interruptionRun) replacementText() string {
	switch {
	case w.i.Replace != ReplaceYes:
		return "not replaced"
	case w.i.Verified:
		return "replaced by " + w.i.ReplacementID
	case w.i.LaunchFailed != "":
		return "no replacement: " + w.i.LaunchFailed
	}
	return "the replacement did not join"
}
