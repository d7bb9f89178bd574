package nodes

import (
	"context"
	"errors"
	"slices"
	"time"
)

// replacement launches the instance that replaces an interrupted one, by the same rules as a scale-up: the
// complete request is written down before it is sent, a request of unknown outcome is repeated, and a refusal
// leads to the next offering.
type replacement struct {
	*claimedInterruption
	surveyor surveyor
	launcher launcher
}

// wanted reports whether there is something to launch: the worker is to be replaced, and its replacement has
// neither been launched nor failed.
func (r replacement) wanted() bool {
	return r.item.Replace == ReplaceYes && r.item.ReplacementID == "" && r.item.LaunchFailed == ""
}

// launch makes one attempt. An error means that its outcome is unknown.
func (r replacement) launch(ctx context.Context, s *survey) error {
	if r.item.Intent == nil {
		if err := r.intend(ctx, s, nil); err != nil || r.item.LaunchFailed != "" {
			return err
		}
	}
	in, err := r.launcher.launch(ctx, r.item.Intent.Request)
	var refusal *LaunchError
	switch {
	case err == nil:
		err := r.step(ctx, "recordReplacement", func(i *Interruption) { i.ReplacementID = in.ID })
		if err == nil {
			r.log.report(ctx, "interruption.replacement", in.ID, "launched for %s", r.item.InstanceID)
		}
		return err
	case final(err) && errors.As(err, &refusal):
		return r.intend(ctx, s, refusal)
	}
	return err
}

// intend writes down the next request: the best offering that is not exhausted. If there is none, or the
// refusal says that none would do, it writes down that the launch has failed.
func (r replacement) intend(ctx context.Context, s *survey, refusal *LaunchError) error {
	subnets, err := r.surveyor.subnets(ctx)
	if err != nil {
		return err
	}

	now := r.now()
	attempt := 0
	var news []Exhausted
	if prev := r.item.Intent; prev != nil {
		attempt = prev.Attempt + 1
		if refusal != nil {
			news = exhaustedBy(refusal.Kind, prev.Request.Offering, now)
		}
	}
	exhausted := append(interruptedOfferings(append(s.open, r.item), now), append(news, r.state.record.Exhausted...)...)
	zones := r.launcher.launchedPerZone(s)
	zones[r.item.Offering.Zone]-- // the one that is replaced
	order := r.offerings(s, subnets, zones, exhausted)

	if len(order) == 0 || refusal != nil && refusal.Kind == FailPermanent {
		why := "every offering is exhausted"
		if refusal != nil {
			why = refusal.Error()
		}
		return r.step(ctx, "failReplacement", func(i *Interruption) { i.LaunchFailed = why })
	}
	intent := Intent{
		Attempt: attempt,
		Epoch:   now.Unix(),
		Request: r.launcher.request(r.item.claim(), 0, attempt, order[0]),
	}
	return r.step(ctx, "intendReplacement", func(i *Interruption) {
		i.Intent = &intent
		i.Exhausted = append(i.Exhausted[:len(i.Exhausted):len(i.Exhausted)], newOnes(i.Exhausted, news)...)
	})
}

// offerings lists what can be had, best first. With pools it is what the interrupted worker's pool has, within its limits once that
// worker is gone; a worker of no pool is replaced by a node of the pool that is for every pod.
func (r replacement) offerings(s *survey, subnets []Subnet, zones map[string]int, exhausted []Exhausted) []Offering {
	policy := r.config.Policy
	if len(policy.Pools) == 0 {
		return launchOrder(policy, subnets, zones, exhausted, nil, r.now())
	}
	name := policy.PoolOf(r.item.Offering.Pool)
	if name == "" {
		pools := policy.byWeight()
		i := max(slices.IndexFunc(pools, func(p Pool) bool { return !policy.keepsPodsAway(p.Name) }), 0)
		name = pools[i].Name
	}
	pool, _ := policy.PoolNamed(name)
	if len(pool.Zones) > 0 {
		subnets = slices.DeleteFunc(slices.Clone(subnets), func(s Subnet) bool { return !slices.Contains(pool.Zones, s.Zone) })
	}
	allowed := r.launcher.allowance(s, pool, r.item.InstanceID)
	order := launchOrder(policy.In(name), subnets, zones, exhausted, nil, r.now())
	return slices.DeleteFunc(order, func(o Offering) bool { return !allowed.permits(o) })
}

// newOnes returns those of news that are not in old, so that a repeated step adds nothing.
func newOnes(old, news []Exhausted) []Exhausted {
	var out []Exhausted
	for _, n := range news {
		if !slices.Contains(old, n) {
			out = append(out, n)
		}
	}
	return out
}

// settled reports whether nothing more is to be expected of the replacement: it is Ready, there is none, or
// its time to join is over. One that did not join is reaped by the sweep once the interruption is closed.
func (r replacement) settled(ctx context.Context, s *survey) (bool, error) {
	switch {
	case r.item.Replace != ReplaceYes || r.item.Verified || r.item.LaunchFailed != "":
		return true, nil
	case r.item.ReplacementID == "":
		return r.item.Intent != nil && r.joinOverdue(), nil
	}
	w, ok := s.worker(r.item.ReplacementID)
	if ok && w.Instance.Alive() && w.Node != nil && w.Node.Ready {
		return true, r.step(ctx, "verifyReplacement", func(i *Interruption) { i.Verified = true })
	}
	return r.joinOverdue(), nil
}

func (r replacement) joinOverdue() bool {
	return r.now().Sub(time.Unix(r.item.Intent.Epoch, 0)) >= r.config.Policy.JoinTimeout
}

// text says what became of the replacement.
func (r replacement) text() string {
	switch {
	case r.item.Replace != ReplaceYes:
		return "not replaced"
	case r.item.Verified:
		return "replaced by " + r.item.ReplacementID
	case r.item.LaunchFailed != "":
		return "no replacement: " + r.item.LaunchFailed
	}
	return "the replacement did not join"
}
