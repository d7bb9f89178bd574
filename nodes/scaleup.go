package nodes

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"
)

// beginUp opens a scale-up and goes on with it.
func (t *run) beginUp(ctx context.Context, s *survey, o Observation, d Decision) error {
	err := t.state.apply(ctx, BeginScaleUp{Fence: t.state.fence, ActionID: t.newActionID(), Now: t.now(), Requested: d.Nodes, Wanted: d.Wanted, Repair: d.Reason == ReasonRepair})
	if err != nil {
		return err
	}
	t.log.report(ctx, "scaleUp.begun", "", "%d node(s): %s", d.Nodes, d.Detail)
	return t.carryOnUp(ctx, s, o.Readings)
}

// carryOnUp goes on with the open scale-up from wherever it was left: launch what is missing, then verify.
func (t *run) carryOnUp(ctx context.Context, s *survey, m Readings) error {
	if err := t.launchMissing(ctx, s); err != nil || !t.state.record.ScalingUp() {
		return err
	}
	if len(t.state.record.ScaleUpInstanceIDs) < t.state.record.ScaleUpRequested && !t.launchOverdue() {
		return nil // out of time for now; the next tick goes on launching
	}
	return t.verify(ctx, s, m)
}

// launchOverdue tells whether the action has had its time to launch.
func (t *run) launchOverdue() bool {
	return t.now().Sub(time.Unix(t.state.record.ScaleUpStartedEpoch, 0)) >= t.config.Policy.JoinTimeout
}

// joinOverdue tells whether the launched nodes have had their time to join. It counts from the last launch: one that was held up by
// an outage or by throttling is not given up while it boots.
func (t *run) joinOverdue() bool {
	since := t.state.record.ScaleUpStartedEpoch
	for _, l := range t.state.record.ScaleUpLaunches {
		since = max(since, l.Launched)
	}
	return t.now().Sub(time.Unix(since, 0)) >= t.config.Policy.JoinTimeout
}

// launchMissing launches the ordinals that are not recorded yet, one by one. Before each launch its complete request is in the
// record, so that whoever goes on after a crash sends the very same request and gets the very same instance.
func (t *run) launchMissing(ctx context.Context, s *survey) error {
	if len(t.state.record.ScaleUpInstanceIDs) >= t.state.record.ScaleUpRequested || t.launchOverdue() {
		return nil
	}
	subnets, err := (surveyor{t}).subnets(ctx)
	if err != nil {
		return err
	}
	var refusal *LaunchError // of the open intent, if that is known to have failed
	for len(t.state.record.ScaleUpInstanceIDs) < t.state.record.ScaleUpRequested && !t.budget.spent(ctx) {
		if t.state.record.ScaleUpIntent == nil || refusal != nil {
			ok, err := t.intendNext(ctx, s, subnets, refusal)
			if err != nil || !ok {
				return err
			}
			refusal = nil
		}
		intent := *t.state.record.ScaleUpIntent
		in, err := (launcher{t}).launch(ctx, intent.Request)
		switch {
		case err == nil:
			err := t.state.apply(ctx, RecordScaleUpInstances{Fence: t.state.fence, ActionID: t.state.record.ScaleUpActionID, Token: intent.Request.Token, InstanceID: in.ID, Launched: in.LaunchedAt})
			if err != nil {
				return err
			}
			t.log.report(ctx, "scaleUp.launched", in.ID, "%s in %s, %s, attempt %d", intent.Request.Offering.Type, intent.Request.Offering.Zone, intent.Request.Offering.Market, intent.Attempt)
		case final(err):
			errors.As(err, &refusal)
			t.log.report(ctx, "scaleUp.refused", "", "%v, attempt %d", err, intent.Attempt)
		default:
			// Nobody knows whether it runs. It is repeated to the letter by the next tick and never passed over.
			return err
		}
	}
	return nil
}

// intendNext writes down the next launch: the best offering that is not exhausted, for the ordinal after those recorded. If there
// is none, or the refusal says that none would do, it ends the launching and returns false.
func (t *run) intendNext(ctx context.Context, s *survey, subnets []Subnet, refusal *LaunchError) (bool, error) {
	now := t.now()
	attempt := 0
	exhausted := interruptedOfferings(s.open, now)
	var news []Exhausted
	if prev := t.state.record.ScaleUpIntent; prev != nil {
		attempt = prev.Attempt + 1
		news = exhaustedBy(refusal.Kind, prev.Request.Offering, now)
	}
	exhausted = append(append(exhausted, news...), t.state.record.Exhausted...)
	policy, subnets := t.wanted(subnets)
	order := LaunchOrder(policy, subnets, (launcher{t}).launchedPerZone(s), exhausted, now)
	if len(order) == 0 || refusal != nil && refusal.Kind == FailPermanent {
		return false, t.endLaunching(ctx, refusal, news)
	}
	actionID, ordinal := t.state.record.ScaleUpActionID, len(t.state.record.ScaleUpInstanceIDs)
	intent := Intent{Ordinal: ordinal, Attempt: attempt, Epoch: now.Unix(), Request: (launcher{t}).request(actionID, ordinal, attempt, order[0])}
	err := t.state.apply(ctx, IntendLaunch{Fence: t.state.fence, ActionID: actionID, Intent: intent, Exhausted: news})
	return err == nil, err
}

// wanted narrows the offerings to what the next ordinal should be.
func (t *run) wanted(subnets []Subnet) (Policy, []Subnet) {
	p, ordinal := t.config.Policy, len(t.state.record.ScaleUpInstanceIDs)
	if ordinal >= len(t.state.record.ScaleUpWanted) {
		return p, subnets
	}
	want := t.state.record.ScaleUpWanted[ordinal]
	if len(want.Types) > 0 {
		p.InstanceTypes = want.Types
	}
	if len(want.Zones) > 0 {
		subnets = slices.DeleteFunc(slices.Clone(subnets), func(s Subnet) bool { return !slices.Contains(want.Zones, s.Zone) })
	}
	return p, subnets
}

// endLaunching goes on with what was launched, or fails the action if that is nothing.
func (t *run) endLaunching(ctx context.Context, refusal *LaunchError, news []Exhausted) error {
	why := "every offering is exhausted"
	if refusal != nil {
		why += ", last: " + refusal.Error()
	}
	if refusal != nil && refusal.Kind == FailPermanent {
		why = refusal.Error()
	}
	launched := len(t.state.record.ScaleUpInstanceIDs)
	t.log.report(ctx, "scaleUp.reduced", "", "%d of %d launched: %s", launched, t.state.record.ScaleUpRequested, why)
	if launched == 0 {
		return t.failUp(ctx, nil, news)
	}
	return t.state.apply(ctx, ReduceScaleUp{Fence: t.state.fence, ActionID: t.state.record.ScaleUpActionID, Exhausted: news})
}

// verify completes the action when as many of its instances as requested are Ready now, by their own nodes, and fails it when the
// time to join is over.
func (t *run) verify(ctx context.Context, s *survey, m Readings) error {
	ready, known := t.readyInstances(ctx, s, m)
	id := t.state.record.ScaleUpActionID
	switch {
	case known && len(ready) >= t.state.record.ScaleUpRequested:
		err := t.state.apply(ctx, CompleteScaleUp{Fence: t.state.fence, ActionID: id, Now: t.now(),
			Unchecked: t.unchecked(s), Template: fingerprint(t.config.Template, t.config.Policy)})
		if err == nil {
			t.log.append(ctx, Event{Kind: "scaleUp.completed", ActionID: id, Message: fmt.Sprintf("%d Ready", len(ready))})
		}
		return err
	case !t.joinOverdue():
		t.log.report(ctx, "scaleUp.waiting", "", "%d of %d Ready", len(ready), t.state.record.ScaleUpRequested)
		return nil
	}
	var removals []Removal
	if s.cloudErr == nil && s.viewErr == nil {
		removals = t.missing(ctx, s)
	} else {
		// Without an observer nothing is known about the instances. They are kept, and the sweep judges when it can see.
		t.log.report(ctx, "scaleUp.unobserved", "", "the time to join is over and nothing can be seen: every instance is kept")
	}
	return t.failUp(ctx, removals, nil)
}

func (t *run) failUp(ctx context.Context, removals []Removal, exhausted []Exhausted) error {
	id := t.state.record.ScaleUpActionID
	backoff := max(t.config.Policy.CooldownUp, time.Minute)
	err := t.state.apply(ctx, FailScaleUp{Fence: t.state.fence, ActionID: id, Now: t.now(), Backoff: backoff, Removals: removals, Exhausted: exhausted})
	if err == nil {
		t.log.append(ctx, Event{Kind: "scaleUp.failed", ActionID: id, Message: fmt.Sprintf("%d instance(s) to be removed, next try after %d", len(removals), t.state.record.BackoffUntilEpoch)})
	}
	if err != nil || len(removals) == 0 {
		return err
	}
	return t.finishRemovals(ctx, (surveyor{t}).survey(ctx))
}

// readyInstances returns the action's instances that are Ready now. The Kubernetes API decides; if it can't be read, the metrics
// do. If both can be, a difference is journaled.
func (t *run) readyInstances(ctx context.Context, s *survey, m Readings) (ready []string, known bool) {
	if s.cloudErr != nil {
		return nil, false
	}
	var byMetrics []string
	for _, id := range t.state.record.ScaleUpInstanceIDs {
		w, _ := s.worker(id)
		if w.Instance.Alive() && w.Instance.PrivateIP != "" && slices.Contains(m.ReadyIPs, w.Instance.PrivateIP) {
			byMetrics = append(byMetrics, id)
		}
		if w.Instance.Alive() && w.Node != nil && w.Node.Ready {
			ready = append(ready, id)
		}
	}
	switch {
	case s.viewErr != nil:
		return byMetrics, m.ReadyIPsKnown
	case m.ReadyIPsKnown && !slices.Equal(ready, byMetrics):
		t.log.report(ctx, "scaleUp.disagreement", "", "Ready by the Kubernetes API: %v, by the metrics: %v", ready, byMetrics)
	}
	return ready, true
}

// missing returns the removals of the action's instances that are not Ready. None is marked yet: one may still join between now and
// its termination, and is looked at again right before its mark. One that had joined and has no node any more is somebody else's
// doing and left alone.
func (t *run) missing(ctx context.Context, s *survey) []Removal {
	var out []Removal
	for _, id := range t.state.record.ScaleUpInstanceIDs {
		w, listed := s.worker(id)
		if !listed || !w.Instance.Alive() || w.Node != nil && w.Node.Ready {
			continue
		}
		(launcher{t}).diagnose(ctx, id)
		if w.Node == nil && slices.Contains(t.state.record.Joined, id) {
			t.log.report(ctx, "scaleUp.orphan", id, "its node was there and is not any more: look at it")
			continue
		}
		out = append(out, Removal{InstanceID: id, Phase: PhaseDraining, Reason: "did not become Ready in time"})
	}
	return out
}
