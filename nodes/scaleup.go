package nodes

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/muster-dev/muster/internal/quantity"
)

// scaleUp launches nodes and waits until they are Ready. Any tick can continue it from wherever it was left,
// because every step is in the record:
//
//  1. BeginScaleUp opens the action, before anything is launched.
//  2. IntendLaunch writes down one complete launch request, before it is sent. After a crash, or when the
//     outcome is unknown, the very same request is sent again: its token makes the cloud return the instance
//     that the first one started.
//  3. RecordScaleUpInstances names the instance, and frees the place for the next request.
//  4. CompleteScaleUp ends the action once all are Ready. FailScaleUp ends it when their time is over, and
//     names in the same write every instance that is to be removed, so that there is no moment at which an
//     instance belongs to nothing.
type scaleUp struct {
	*run
	surveyor surveyor
	launcher launcher
	removals removals
}

// begin opens a scale-up and continues it.
func (u scaleUp) begin(ctx context.Context, s *survey, o Observation, d Decision) error {
	id := u.newActionID()
	u.state.workOn(id)
	err := u.state.apply(ctx, BeginScaleUp{
		Fence:      u.state.fence,
		ActionID:   id,
		Now:        u.now(),
		Requested:  d.Nodes,
		Pool:       d.Pool,
		Wanted:     d.Wanted,
		Replaces:   d.Replaces,
		PerHour:    u.config.Policy.ConsolidatePerHour,
		Repair:     d.Reason == ReasonRepair,
		MaxActions: u.config.Policy.MaxActions,
	})
	if err != nil {
		return err
	}
	u.log.report(ctx, "scaleUp.begun", "", "%s: %s", quantity.Of(d.Nodes, "node"), d.Detail) // the detail names the pool
	for _, old := range d.Replaces {
		u.people.tell(ctx, s.nodeOf(old), NodeReplaced, id, "a node that replaces it is launched; it goes once that is Ready and its pods fit: %s; %s", d.Reason, d.Detail)
	}
	return u.proceed(ctx, s, o.Readings)
}

// proceed continues the open scale-up from wherever it was left: launch what is missing, then verify.
func (u scaleUp) proceed(ctx context.Context, s *survey, m Readings) error {
	if err := u.launchMissing(ctx, s); err != nil || !u.state.record.ScalingUp() {
		return err
	}
	if !u.allLaunched() && !u.launchOverdue() {
		return nil // out of time for now; the next tick continues to launch
	}
	return u.verify(ctx, s, m)
}

// allLaunched reports whether every node that was asked for is launched and recorded.
func (u scaleUp) allLaunched() bool {
	return len(u.state.record.ScaleUpInstanceIDs) >= u.state.record.ScaleUpRequested
}

// launchOverdue reports whether the action has had its time to launch.
func (u scaleUp) launchOverdue() bool {
	return u.now().Sub(time.Unix(u.state.record.ScaleUpStartedEpoch, 0)) >= u.config.Policy.JoinTimeout
}

// joinOverdue reports whether the launched nodes have had their time to join. It counts from the last launch:
// one that was held up by an outage or by throttling is not failed while it boots.
func (u scaleUp) joinOverdue() bool {
	since := u.state.record.ScaleUpStartedEpoch
	for _, l := range u.state.record.ScaleUpLaunches {
		since = max(since, l.Launched)
	}
	return u.now().Sub(time.Unix(since, 0)) >= u.config.Policy.JoinTimeout
}

// launchMissing launches the ordinals that are not recorded yet, one by one. Before each launch its complete
// request is in the record, so that the tick after a crash sends the very same request and gets the very same
// instance.
func (u scaleUp) launchMissing(ctx context.Context, s *survey) error {
	if u.allLaunched() || u.launchOverdue() {
		return nil
	}
	subnets, err := u.surveyor.subnets(ctx)
	if err != nil {
		return err
	}

	var refusal *LaunchError // of the open intent, if that is known to have failed
	for !u.allLaunched() && !u.budget.spent(ctx) {
		if u.state.record.ScaleUpIntent == nil || refusal != nil {
			ok, err := u.intendNext(ctx, s, subnets, refusal)
			if err != nil || !ok {
				return err
			}
		}
		if refusal, err = u.launchIntended(ctx); err != nil {
			return err
		}
	}
	return nil
}

// launchIntended sends the request that is in the record. A refusal means that nothing was started and that
// another offering should be tried. After an error it is unknown whether the instance runs: the next tick
// sends the identical request again.
func (u scaleUp) launchIntended(ctx context.Context) (refusal *LaunchError, err error) {
	intent := *u.state.record.ScaleUpIntent
	in, err := u.launcher.launch(ctx, intent.Request)
	if final(err) {
		errors.As(err, &refusal)
		u.log.report(ctx, "scaleUp.refused", "", "%v, attempt %d", err, intent.Attempt)
		return refusal, nil
	}
	if err != nil {
		return nil, err
	}

	err = u.state.apply(ctx, RecordScaleUpInstances{
		Fence:      u.state.fence,
		ActionID:   u.state.record.ScaleUpActionID,
		Token:      intent.Request.Token,
		InstanceID: in.ID,
		Launched:   in.LaunchedAt,
	})
	if err != nil {
		return nil, err
	}
	o := intent.Request.Offering
	u.log.report(ctx, "scaleUp.launched", in.ID, "%s in %s, %s, attempt %d", o.Type, o.Zone, o.Market, intent.Attempt)
	return nil, nil
}

// intendNext writes down the next launch: the best offering that is not exhausted, for the ordinal after
// those recorded. If there is none, or the refusal says that none would do, it ends the launching and returns
// false.
func (u scaleUp) intendNext(ctx context.Context, s *survey, subnets []Subnet, refusal *LaunchError) (bool, error) {
	now := u.now()
	attempt := 0
	exhausted := interruptedOfferings(s.open, now)
	var news []Exhausted
	if prev := u.state.record.ScaleUpIntent; prev != nil {
		attempt = prev.Attempt + 1
		news = exhaustedBy(refusal.Kind, prev.Request.Offering, now)
	}
	exhausted = append(append(exhausted, news...), u.state.record.Exhausted...)

	order := u.offerings(s, subnets, exhausted)
	if len(order) == 0 || refusal != nil && refusal.Kind == FailPermanent {
		return false, u.endLaunching(ctx, refusal, news)
	}
	actionID, ordinal := u.state.record.ScaleUpActionID, len(u.state.record.ScaleUpInstanceIDs)
	intent := Intent{
		Ordinal: ordinal,
		Attempt: attempt,
		Epoch:   now.Unix(),
		Request: u.launcher.request(actionID, ordinal, attempt, order[0]),
	}
	err := u.state.apply(ctx, IntendLaunch{Fence: u.state.fence, ActionID: actionID, Intent: intent, Exhausted: news})
	return err == nil, err
}

// offerings lists what would do for the next ordinal and can be had, best first. Of a pool, each is within its limits now, whatever was
// launched since the decision.
func (u scaleUp) offerings(s *survey, subnets []Subnet, exhausted []Exhausted) []Offering {
	policy, subnets := u.wanted(subnets)
	order := launchOrder(policy, subnets, u.launcher.launchedPerZone(s), exhausted, u.prices(), u.now())
	order = slices.DeleteFunc(order, func(o Offering) bool { return !u.paysFor(o) })
	if len(u.config.Policy.Pools) == 0 {
		return order
	}
	pool, known := u.config.Policy.PoolNamed(u.state.record.ScaleUpPool)
	if !known {
		return nil // it is not in the file any more
	}
	allowed := u.launcher.allowance(s, pool, "")
	return slices.DeleteFunc(order, func(o Offering) bool { return !allowed.permits(o) })
}

// wanted narrows the offerings to what the next ordinal should be.
func (u scaleUp) wanted(subnets []Subnet) (Policy, []Subnet) {
	p, ordinal := u.config.Policy.In(u.state.record.ScaleUpPool), len(u.state.record.ScaleUpInstanceIDs)
	if pool, ok := p.PoolNamed(p.Pool); ok && len(pool.Zones) > 0 {
		subnets = slices.DeleteFunc(slices.Clone(subnets), func(s Subnet) bool { return !slices.Contains(pool.Zones, s.Zone) })
	}
	if ordinal >= len(u.state.record.ScaleUpWanted) {
		return p, subnets
	}
	want := u.state.record.ScaleUpWanted[ordinal]
	if len(want.Types) > 0 {
		p.InstanceTypes = want.Types
	}
	p.Spot = p.Spot && want.Market != OnDemand
	if len(want.Zones) > 0 {
		subnets = slices.DeleteFunc(slices.Clone(subnets), func(s Subnet) bool { return !slices.Contains(want.Zones, s.Zone) })
	}
	return p, subnets
}

// prices returns those by which the Spot types of the next ordinal are ordered, nil if these are any type: the settings' order is then
// the operator's choice, and the cheapest of them would often be the smallest. Types that were chosen for pods all hold them.
func (u scaleUp) prices() *Prices {
	wanted, ordinal := u.state.record.ScaleUpWanted, len(u.state.record.ScaleUpInstanceIDs)
	if ordinal >= len(wanted) || len(wanted[ordinal].Types) == 0 {
		return nil
	}
	return u.state.record.Prices.Current(u.now())
}

// paysFor reports whether the next ordinal may be bought in an offering's market: that of a consolidation is cheaper in one alone.
func (u scaleUp) paysFor(o Offering) bool {
	wanted, ordinal := u.state.record.ScaleUpWanted, len(u.state.record.ScaleUpInstanceIDs)
	return ordinal >= len(wanted) || wanted[ordinal].Market == "" || wanted[ordinal].Market == o.Market
}

// endLaunching continues with what was launched, or fails the action if that is nothing.
func (u scaleUp) endLaunching(ctx context.Context, refusal *LaunchError, news []Exhausted) error {
	why := "every offering is exhausted"
	if pool := u.state.record.ScaleUpPool; pool != "" {
		why = "every offering of pool " + pool + " is exhausted or beyond its limits"
	}
	if refusal != nil {
		why += ", last: " + refusal.Error()
	}
	if refusal != nil && refusal.Kind == FailPermanent {
		why = refusal.Error()
	}
	launched := len(u.state.record.ScaleUpInstanceIDs)
	u.log.report(ctx, "scaleUp.reduced", "", "%d of %d launched: %s", launched, u.state.record.ScaleUpRequested, why)
	if launched == 0 {
		return u.fail(ctx, nil, news, false)
	}
	return u.state.apply(ctx, ReduceScaleUp{
		Fence:     u.state.fence,
		ActionID:  u.state.record.ScaleUpActionID,
		Exhausted: news,
	})
}

// verify completes the action when as many of its instances as requested are Ready now, by their own nodes,
// and fails it when the time to join is over.
func (u scaleUp) verify(ctx context.Context, s *survey, m Readings) error {
	ready, known := u.readyInstances(ctx, s, m)
	id := u.state.record.ScaleUpActionID
	switch {
	case known && len(ready) >= u.state.record.ScaleUpRequested:
		objection := ""
		if len(u.state.record.ScaleUpReplaces) > 0 {
			done, why, err := u.exchange().handOn(ctx, s)
			if done || err != nil {
				return err
			}
			objection = why
		}
		err := u.state.apply(ctx, CompleteScaleUp{Fence: u.state.fence, ActionID: id, Now: u.now(),
			Unchecked: u.unchecked(s), Template: u.fingerprint(), Objection: objection})
		if err == nil {
			u.log.append(ctx, Event{
				Kind:     "scaleUp.completed",
				ActionID: id,
				Message:  fmt.Sprintf("%d Ready", len(ready)),
			})
		}
		return err
	case !u.joinOverdue():
		u.log.report(ctx, "scaleUp.waiting", "", "%d of %d Ready", len(ready), u.state.record.ScaleUpRequested)
		return nil
	}
	var removals []Removal
	joins := false
	var late []Exhausted
	if s.cloudErr == nil && s.viewErr == nil {
		removals, joins = u.missing(ctx, s), u.othersJoin(s)
		late = u.offeringsOf(removals)
	} else {
		// Without an observer nothing is known about the instances. They are kept, and the sweep judges when
		// it can see.
		u.log.report(ctx, "scaleUp.unobserved", "", "the time to join is over and nothing can be seen: every instance is kept")
	}
	return u.fail(ctx, removals, late, joins)
}

// othersJoin reports whether a node that Muster launched has joined since the action began: then nodes join in
// general, and what did not is a matter of these instances alone.
func (u scaleUp) othersJoin(s *survey) bool {
	began := time.Unix(u.state.record.ScaleUpStartedEpoch, 0)
	return slices.ContainsFunc(s.workers, func(w Worker) bool {
		return w.Instance.ActionID != "" && w.Node != nil && w.Node.Ready && w.Node.CreatedAt.After(began)
	})
}

// offeringsOf returns the offerings of instances that did not join. They are not tried for a while, in which
// what is wrong with a zone or a type, say, shows.
func (u scaleUp) offeringsOf(removals []Removal) []Exhausted {
	var out []Exhausted
	for _, l := range u.state.record.ScaleUpLaunches {
		missing := slices.ContainsFunc(removals, func(m Removal) bool { return m.InstanceID == l.InstanceID })
		if o := l.Request.Offering; missing {
			for _, e := range exhaustedBy(FailCapacity, o, u.now()) {
				e.Pool = o.Pool // what is wrong may be with this pool's template alone
				out = append(out, e)
			}
		}
	}
	return out
}

// fail ends the action without its cooldown and begins to remove instances. The removals are part of the
// write that ends the action: in between, no instance belongs to neither. A back-off follows, unless nodes join
// in general.
func (u scaleUp) fail(ctx context.Context, removals []Removal, exhausted []Exhausted, joins bool) error {
	id, pool := u.state.record.ScaleUpActionID, u.state.record.ScaleUpPool
	backoff := max(u.config.Policy.CooldownUp, time.Minute)
	// What could not be had for a replacement is no reason to keep pods waiting. What was launched and did not join is.
	unneeded := len(u.state.record.ScaleUpReplaces) > 0 && len(u.state.record.ScaleUpInstanceIDs) == 0
	if joins || unneeded {
		backoff = 0
	}
	err := u.state.apply(ctx, FailScaleUp{
		Fence:     u.state.fence,
		ActionID:  id,
		Now:       u.now(),
		Backoff:   backoff,
		Removals:  removals,
		Exhausted: exhausted,
	})
	if err != nil {
		return err
	}
	text := fmt.Sprintf("%s to be removed, next try after %d", quantity.Of(len(removals), "instance"), u.state.record.PoolState(pool).BackoffUntilEpoch)
	if pool != "" {
		text = "pool " + pool + ": " + text
	}
	switch {
	case unneeded:
		text = "it was to replace a worker, so there is no back-off"
	case joins:
		text = quantity.Of(len(removals), "instance") + " to be removed; others have joined since, so there is no back-off"
	}
	u.log.append(ctx, Event{Kind: "scaleUp.failed", ActionID: id, Message: text})
	if len(removals) == 0 {
		return nil
	}
	return u.removals.advanceAll(ctx, u.surveyor.survey(ctx))
}

// readyInstances returns the action's instances that are Ready now. The Kubernetes API decides; if it can't
// be read, the metrics do. If both can be, a difference is logged.
func (u scaleUp) readyInstances(ctx context.Context, s *survey, m Readings) (ready []string, known bool) {
	if s.cloudErr != nil {
		return nil, false
	}
	var byMetrics []string
	for _, id := range u.state.record.ScaleUpInstanceIDs {
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
		u.log.report(ctx, "scaleUp.disagreement", "", "Ready by the Kubernetes API: %v, by the metrics: %v", ready, byMetrics)
	}
	return ready, true
}

// missing returns the removals of the action's instances that are not Ready. None is marked yet: one may
// still join between now and its termination, and is looked at again right before its mark. One that had
// joined and has no node any more is somebody else's doing and left alone.
func (u scaleUp) missing(ctx context.Context, s *survey) []Removal {
	var out []Removal
	for _, id := range u.state.record.ScaleUpInstanceIDs {
		w, listed := s.worker(id)
		if !listed || !w.Instance.Alive() || w.Node != nil && w.Node.Ready {
			continue
		}
		u.launcher.diagnose(ctx, w)
		if w.Node == nil && slices.Contains(u.state.record.Joined, id) {
			u.log.report(ctx, "scaleUp.orphan", id, "its node was there and is not any more: look at it")
			continue
		}
		out = append(out, Removal{InstanceID: id, Phase: PhaseDraining, Reason: "did not become Ready in time"})
	}
	return out
}

// fingerprint is that of the action's nodes.
func (u scaleUp) fingerprint() string {
	return u.config.templateHash(u.state.record.ScaleUpPool)
}

// unchecked lists the open scale-up's instances of the current template whose nodes were not compared with it: they can't be seen now, or
// the launch was recorded after the survey, as after a lost reply, and by then the node had joined.
func (u scaleUp) unchecked(s *survey) []string {
	known := map[string]bool{}
	for _, l := range s.record.Launches() {
		known[l.InstanceID] = s.viewErr == nil
	}
	var out []string
	for _, l := range u.state.record.ScaleUpLaunches {
		if !known[l.InstanceID] && l.Request.Template == u.config.template(u.state.record.ScaleUpPool) {
			out = append(out, l.InstanceID)
		}
	}
	return out
}
