package nodes

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"slices"
	"time"
)

// launcher launches instances for a scale-up and for an interruption's replacement.
type launcher struct{ *run }

// request is a complete launch request: the same arguments give the same request, token included.
func (l launcher) request(actionID string, ordinal, attempt int, o Offering) LaunchRequest {
	return LaunchRequest{
		Token:    LaunchToken(l.config.Policy.Cluster, actionID, ordinal, attempt),
		Offering: o,
		Template: l.config.template(o.Pool),
		Cluster:  l.config.Policy.Cluster,
		ActionID: actionID,
		Ordinal:  ordinal,

		TemplateHash: l.config.templateHash(o.Pool),
	}
}

// launch sends a request. After an error that is not a final refusal the instance may run: only the identical
// request may follow.
func (l launcher) launch(ctx context.Context, req LaunchRequest) (in Instance, err error) {
	err = l.calls.do(ctx, "launching an instance", func(ctx context.Context) (err error) {
		in, err = l.config.Cloud.Launch(ctx, req)
		return err
	})
	return in, err
}

// launchedPerZone counts pending and running workers by zone, those included that an open action launched a
// moment ago and the cloud does not list yet.
func (l launcher) launchedPerZone(s *survey) map[string]int {
	zones := map[string]int{}
	for _, w := range s.workers {
		if w.Instance.Alive() {
			zones[w.Instance.Zone]++
		}
	}
	for _, launch := range l.state.record.Launches() {
		if _, listed := s.worker(launch.InstanceID); !listed {
			zones[launch.Request.Offering.Zone]++
		}
	}
	return zones
}

// allowance is what a pool may launch beside what it uses now. The worker that a launch replaces is left out: it is going.
func (l launcher) allowance(s *survey, pool Pool, replaced string) allowance {
	o := s.fleet()
	o.Launched = s.launchedUnlistedBy(l.state.record)
	if replaced != "" {
		o.Fleet = slices.DeleteFunc(slices.Clone(o.Fleet), func(w Worker) bool { return w.Instance.ID == replaced })
		o.Interruptions = slices.DeleteFunc(slices.Clone(o.Interruptions), func(i Interruption) bool { return i.InstanceID == replaced })
	}
	size := l.config.size()
	uses := PoolUses(l.config.Policy, o, l.state.record.withoutLaunching(), size)
	return newAllowance(l.config.Policy, pool, *uses[pool.Name], size)
}

// withoutLaunching returns the record without what open scale-ups have still to launch: a launch is checked one by one.
func (r Record) withoutLaunching() Record {
	r.ScaleUpRequested = len(r.ScaleUpInstanceIDs)
	r.OtherActions = slices.Clone(r.OtherActions)
	for i := range r.OtherActions {
		r.OtherActions[i].ScaleUpRequested = len(r.OtherActions[i].ScaleUpInstanceIDs)
	}
	return r
}

// diagnose logs what the cloud knows about an instance that did not join. It is for people; failing at it
// changes nothing.
func (l launcher) diagnose(ctx context.Context, w Worker) {
	instanceID := w.Instance.ID
	var d Diagnosis
	err := l.calls.do(ctx, "diagnosing "+instanceID, func(ctx context.Context) (err error) {
		d, err = l.config.Cloud.Diagnose(ctx, instanceID)
		return err
	})
	if err != nil {
		l.log.collect(err)
		return
	}
	name, _ := faultOfBoot(d)
	if w.Node != nil {
		name, _ = faultOfNode(*w.Node, d.Console)
	}
	l.log.report(ctx, "scaleUp.diagnosis", instanceID, "%s; %s %s: %s", name, d.State, d.Reason, redact(d.Console))
}

// final reports whether a failed launch is known to have started nothing and need not be repeated as it is.
func final(err error) bool {
	kind := launchFailure(err)
	return kind != "" && kind != FailThrottled
}

// LaunchToken returns the client token of one attempt at one instance of an action, 64 characters long.
// Another attempt is another token: a token is bound to its first request, and sent with another one the
// cloud would refuse it or, in another zone, start a second instance.
func LaunchToken(cluster, actionID string, ordinal, attempt int) string {
	sum := sha256.Sum256(fmt.Appendf(nil, "%q %q %d %d", cluster, actionID, ordinal, attempt))
	return hex.EncodeToString(sum[:])
}

// interruptedOfferings are those that open interruptions say are short: of what is being taken away, no more
// will be had.
func interruptedOfferings(open []Interruption, now time.Time) []Exhausted {
	var out []Exhausted
	for _, i := range open {
		out = append(out, i.Exhausted...)
		if o := i.Offering; o.Type != "" {
			out = append(out, Exhausted{
				Zone:       o.Zone,
				Type:       o.Type,
				Market:     o.Market,
				UntilEpoch: now.Add(exhaustedIn).Unix(),
			})
		}
	}
	return out
}
