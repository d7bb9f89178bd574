package daemon

import (
	"errors"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/muster-dev/muster/nodes"
)

// prefix stands before every name.
const prefix = "muster_nodes_"

// counters are the series that count what a node plane does: its ticks and what they decide, its calls and what comes of them.
type counters struct {
	ticks, decisions, events, launches, drains, errs, interruptions *prometheus.CounterVec
	terminations, leaseLost                                         prometheus.Counter
	tickDuration                                                    prometheus.Histogram
	actionDuration, callDuration                                    *prometheus.HistogramVec
	all                                                             []prometheus.Collector
}

func newCounters() *counters {
	c := &counters{}
	counters := func(name, help string, labels ...string) *prometheus.CounterVec {
		v := prometheus.NewCounterVec(prometheus.CounterOpts{Name: prefix + name, Help: help}, labels)
		c.all = append(c.all, v)
		return v
	}
	counter := func(name, help string) prometheus.Counter {
		v := prometheus.NewCounter(prometheus.CounterOpts{Name: prefix + name, Help: help})
		c.all = append(c.all, v)
		return v
	}
	histograms := func(name, help string, buckets []float64, labels ...string) *prometheus.HistogramVec {
		v := prometheus.NewHistogramVec(prometheus.HistogramOpts{Name: prefix + name, Help: help, Buckets: buckets}, labels)
		c.all = append(c.all, v)
		return v
	}
	c.ticks = counters("ticks_total", "Ticks by result: decided, carried-on with an action, held by another tick, failed.", "result")
	c.decisions = counters("decisions_total", "Decisions by action and reason.", "action", "reason")
	c.events = counters("events_total", "Journaled events by kind.", "kind")
	c.launches = counters("launches_total", "Launch requests by result: launched, a kind of refusal, or unknown.", "result", "market", "zone")
	c.drains = counters("drains_total", "Drains by result: done, blocked, failed, which are those whose time was over.", "result")
	c.interruptions = counters("interruption_events_total", "Interruption events by result: noted, failed.", "result")
	c.errs = counters("errors_total", "Calls that failed, by call; refusals that belong to normal work are not counted.", "call")
	c.terminations = counter("terminations_total", "Terminations that were asked for.")
	c.leaseLost = counter("lease_lost_total", "Ticks that lost their lease while they ran.")
	c.tickDuration = prometheus.NewHistogram(prometheus.HistogramOpts{Name: prefix + "tick_duration_seconds", Help: "How long a tick took.",
		Buckets: []float64{.05, .1, .25, .5, 1, 2.5, 5, 10, 20, 40, 60, 120, 300}})
	c.all = append(c.all, c.tickDuration)
	c.actionDuration = histograms("action_duration_seconds", "From the beginning of a scaling action to its end, by kind and result: completed, failed.",
		[]float64{10, 30, 60, 120, 180, 300, 450, 600, 900, 1800}, "kind", "result")
	c.callDuration = histograms("call_duration_seconds", "How long a call to cloud, cluster, metrics, store or event log took.",
		[]float64{.001, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10, 15}, "call")
	c.begin()
	return c
}

// begin makes what may happen at any time known as not having happened yet: an increase is seen only from one value to the next, and
// the first failure must not be the one that goes unseen.
func (c *counters) begin() {
	for v, results := range map[*prometheus.CounterVec][]string{
		c.ticks: {"decided", "carried-on", "held", "failed"}, c.drains: {"done", "blocked", "failed"}, c.interruptions: {"noted", "failed"},
	} {
		for _, r := range results {
			v.WithLabelValues(r)
		}
	}
	for kind := range phases {
		for _, r := range []string{"completed", "failed"} {
			c.actionDuration.WithLabelValues(kind, r)
		}
	}
	c.actionDuration.WithLabelValues("scale-down", "cancelled")
}

// phases are those that an action can be in, by its kind.
var phases = map[string][]string{"scale-up": {"launching", "verifying"}, "scale-down": {"draining", "terminating"}}

// launchResults are the values of the label result of launches_total.
var launchResults = []string{"launched", string(nodes.FailCapacity), string(nodes.FailQuota), string(nodes.FailAddresses), string(nodes.FailSpotRole), string(nodes.FailSpot),
	string(nodes.FailThrottled), string(nodes.FailTokenSpent), string(nodes.FailPermanent), "unknown"}

// zones makes what launches in subnets may lead to known, as begin does: a first scale-up may be refused everywhere.
func (c *counters) zones(subnets []nodes.Subnet) {
	for _, s := range subnets {
		for _, market := range []nodes.Market{nodes.Spot, nodes.OnDemand} {
			for _, r := range launchResults {
				c.launches.WithLabelValues(r, string(market), s.Zone)
			}
		}
	}
}

// called counts a call.
func (c *counters) called(call string, took time.Duration, err error) {
	c.callDuration.WithLabelValues(call).Observe(took.Seconds())
	c.errs.WithLabelValues(call) // known from its first call on
	if err != nil && !ordinary(err) {
		c.failed(call)
	}
}

// failed counts a call that failed.
func (c *counters) failed(call string) { c.errs.WithLabelValues(call).Inc() }

// ordinary reports whether an error is an answer that is part of normal work.
func ordinary(err error) bool {
	var refused *nodes.LaunchError
	_, blocked := nodes.IsDrainBlocked(err)
	return nodes.IsRefused(err) || errors.As(err, &refused) || blocked
}

// ticked counts a tick, by what Reconciler.Tick returned and how long it took.
func (c *counters) ticked(report nodes.Report, err error, took time.Duration) {
	c.ticks.WithLabelValues(result(report, err)).Inc()
	c.tickDuration.Observe(took.Seconds())
	if d := report.Decision; d != nil {
		c.decisions.WithLabelValues(string(d.Action), string(d.Reason)).Inc()
	}
	if errors.Is(err, nodes.ErrLeaseLost) || errors.Is(err, nodes.ErrStaleFence) {
		c.leaseLost.Inc()
	}
}

// result sums up a tick: failed, held (by another tick), decided, or carried-on with an action.
func result(report nodes.Report, err error) string {
	switch {
	case err != nil:
		return "failed"
	case report.Held:
		return "held"
	case report.Decision == nil || report.Carried || report.Decision.Reason == nodes.ReasonInProgress:
		return "carried-on"
	}
	return "decided"
}

// interrupted counts an interruption event, by what Reconciler.Interrupt returned.
func (c *counters) interrupted(err error) {
	r := "noted"
	if err != nil {
		r = "failed"
	}
	c.interruptions.WithLabelValues(r).Inc()
}

// launched counts a launch request.
func (c *counters) launched(o nodes.Offering, err error) {
	r := "launched"
	var refused *nodes.LaunchError
	switch {
	case errors.As(err, &refused):
		r = string(refused.Kind)
	case err != nil:
		r = "unknown"
	}
	c.launches.WithLabelValues(r, string(o.Market), o.Zone).Inc()
}

// ended notes how long an action took, if a transition is its end. before is the record before it, nil if that
// isn't known.
func (c *counters) ended(t nodes.Transition, before *nodes.Record) {
	if before == nil {
		return
	}
	took := func(now time.Time, id, kind, result string) {
		if r := before.Of(id); r.ActionID() == id { // else it had ended before: a repeated write
			began := max(r.ScaleUpStartedEpoch, r.ScaleDownStartedEpoch)
			c.actionDuration.WithLabelValues(kind, result).Observe(now.Sub(time.Unix(began, 0)).Seconds())
		}
	}
	switch t := t.(type) {
	case nodes.CompleteScaleUp:
		took(t.Now, t.ActionID, "scale-up", "completed")
	case nodes.FailScaleUp:
		took(t.Now, t.ActionID, "scale-up", "failed")
	case nodes.CompleteScaleDown:
		took(t.Now, t.ActionID, "scale-down", "completed")
	case nodes.FailScaleDown:
		took(t.Now, t.ActionID, "scale-down", downResult(t))
	}
}

func downResult(t nodes.FailScaleDown) string {
	if t.Cancelled {
		return "cancelled"
	}
	return "failed"
}
