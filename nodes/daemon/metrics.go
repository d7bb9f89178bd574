package daemon

import (
	"errors"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/muster-dev/muster/nodes"
	"github.com/muster-dev/muster/nodes/explain"
)

// Metrics is what a Prometheus is told of a node plane; it is a prometheus.Collector. What ages is computed when it is asked for, so
// that an action that hangs shows as one whose age grows. docs/nodes/reference.md lists the series.
type Metrics struct {
	clock    nodes.Clock
	policy   nodes.Policy
	price    func(string, nodes.Market, string) (float64, bool)
	happened func(nodes.Event) // is told of every event

	ticks, decisions, events, launches, drains, errs, interruptions *prometheus.CounterVec
	terminations, leaseLost                                         prometheus.Counter
	tickDuration                                                    prometheus.Histogram
	actionDuration, callDuration                                    *prometheus.HistogramVec
	all                                                             []prometheus.Collector

	mu          sync.Mutex
	record      *nodes.Record // as last read or written
	recordAt    time.Time     // when the store last answered
	started     int64         // of the action that was last seen in progress
	open        []nodes.Interruption
	instances   []nodes.Instance
	instancesAt time.Time
	nodes       []nodes.Node
	nodesAt     time.Time
	zonesKnown  bool
	drainEnded  nodes.NodeRef // of the last drain that said itself how it ended
	readings    nodes.Readings
	lastTick    time.Time
	tokenEnds   time.Time
}

var _ prometheus.Collector = (*Metrics)(nil)

// prefix stands before every name.
const prefix = "muster_nodes_"

func newMetrics(c nodes.Config, o Options) *Metrics {
	m := &Metrics{clock: c.Clock, policy: c.Policy, price: o.Price}
	counters := func(name, help string, labels ...string) *prometheus.CounterVec {
		v := prometheus.NewCounterVec(prometheus.CounterOpts{Name: prefix + name, Help: help}, labels)
		m.all = append(m.all, v)
		return v
	}
	counter := func(name, help string) prometheus.Counter {
		v := prometheus.NewCounter(prometheus.CounterOpts{Name: prefix + name, Help: help})
		m.all = append(m.all, v)
		return v
	}
	histograms := func(name, help string, buckets []float64, labels ...string) *prometheus.HistogramVec {
		v := prometheus.NewHistogramVec(prometheus.HistogramOpts{Name: prefix + name, Help: help, Buckets: buckets}, labels)
		m.all = append(m.all, v)
		return v
	}
	m.ticks = counters("ticks_total", "Ticks by result: decided, carried-on with an action, held by another tick, failed.", "result")
	m.decisions = counters("decisions_total", "Decisions by action and reason.", "action", "reason")
	m.events = counters("events_total", "Journaled events by kind.", "kind")
	m.launches = counters("launches_total", "Launch requests by result: launched, a kind of refusal, or unknown.", "result", "market", "zone")
	m.drains = counters("drains_total", "Drains by result: done, blocked, failed, which are those whose time was over.", "result")
	m.interruptions = counters("interruption_events_total", "Interruption events by result: noted, failed.", "result")
	m.errs = counters("errors_total", "Calls that failed, by call; refusals that belong to normal work are not counted.", "call")
	m.terminations = counter("terminations_total", "Terminations that were asked for.")
	m.leaseLost = counter("lease_lost_total", "Ticks that lost their lease while they ran.")
	m.tickDuration = prometheus.NewHistogram(prometheus.HistogramOpts{Name: prefix + "tick_duration_seconds", Help: "How long a tick took.",
		Buckets: []float64{.05, .1, .25, .5, 1, 2.5, 5, 10, 20, 40, 60, 120, 300}})
	m.all = append(m.all, m.tickDuration)
	m.actionDuration = histograms("action_duration_seconds", "From the beginning of a scaling action to its end, by kind and result: completed, failed.",
		[]float64{10, 30, 60, 120, 180, 300, 450, 600, 900, 1800}, "kind", "result")
	m.callDuration = histograms("call_duration_seconds", "How long a call to cloud, cluster, metrics, store or journal took.",
		[]float64{.001, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10, 15}, "call")
	m.begin()
	return m
}

// begin makes what may happen at any time known as not having happened yet: an increase is seen only from one value to the next, and
// the first failure must not be the one that goes unseen.
func (m *Metrics) begin() {
	for v, results := range map[*prometheus.CounterVec][]string{
		m.ticks: {"decided", "carried-on", "held", "failed"}, m.drains: {"done", "blocked", "failed"}, m.interruptions: {"noted", "failed"},
	} {
		for _, r := range results {
			v.WithLabelValues(r)
		}
	}
	for kind := range phases {
		for _, r := range []string{"completed", "failed"} {
			m.actionDuration.WithLabelValues(kind, r)
		}
	}
}

// launchResults are the values of the label result of launches_total.
var launchResults = []string{"launched", string(nodes.FailCapacity), string(nodes.FailQuota), string(nodes.FailAddresses), string(nodes.FailSpotRole), string(nodes.FailSpot),
	string(nodes.FailThrottled), string(nodes.FailTokenSpent), string(nodes.FailPermanent), "unknown"}

// sawSubnets makes what launches there may lead to known, as begin does: a first scale-up may be refused everywhere.
func (m *Metrics) sawSubnets(subnets []nodes.Subnet) {
	for _, s := range subnets {
		for _, market := range []nodes.Market{nodes.Spot, nodes.OnDemand} {
			for _, r := range launchResults {
				m.launches.WithLabelValues(r, string(market), s.Zone)
			}
		}
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.zonesKnown = m.zonesKnown || len(subnets) > 0
}

// zonesMissing reports whether the zones are not known yet.
func (m *Metrics) zonesMissing() bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return !m.zonesKnown
}

func (m *Metrics) called(call string, took time.Duration, err error) {
	m.callDuration.WithLabelValues(call).Observe(took.Seconds())
	m.errs.WithLabelValues(call) // known from its first call on
	if err != nil && !ordinary(err) {
		m.failed(call)
	}
}

func (m *Metrics) failed(call string) { m.errs.WithLabelValues(call).Inc() }

// ticked counts a tick, by what Reconciler.Tick returned and how long it took.
func (m *Metrics) ticked(report nodes.Report, err error, took time.Duration) {
	m.ticks.WithLabelValues(result(report, err)).Inc()
	m.tickDuration.Observe(took.Seconds())
	if d := report.Decision; d != nil {
		m.decisions.WithLabelValues(string(d.Action), string(d.Reason)).Inc()
	}
	if errors.Is(err, nodes.ErrLeaseLost) || errors.Is(err, nodes.ErrStaleFence) {
		m.leaseLost.Inc()
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.lastTick = m.clock.Now()
}

// interrupted counts an interruption event, by what Reconciler.Interrupt returned.
func (m *Metrics) interrupted(err error) {
	r := "noted"
	if err != nil {
		r = "failed"
	}
	m.interruptions.WithLabelValues(r).Inc()
}

func (m *Metrics) launched(o nodes.Offering, err error) {
	r := "launched"
	var refused *nodes.LaunchError
	switch {
	case errors.As(err, &refused):
		r = string(refused.Kind)
	case err != nil:
		r = "unknown"
	}
	m.launches.WithLabelValues(r, string(o.Market), o.Zone).Inc()
}

// drained counts drains that say how they ended. One that goes on, or whose call failed, is tried again by the next tick; what it comes
// to if it is not is told by undrained.
func (m *Metrics) drained(n nodes.NodeRef, p nodes.DrainProgress, err error) {
	_, blocked := nodes.IsDrainBlocked(err)
	ended := nodes.NodeRef{}
	switch {
	case blocked:
		m.drains.WithLabelValues("blocked").Inc()
		ended = n
	case err == nil && p.Done:
		m.drains.WithLabelValues("done").Inc()
		ended = n
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.drainEnded = ended
}

// undrained counts the drains that the end of a scale-down cuts off: their time was over.
func (m *Metrics) undrained(before *nodes.Record, t nodes.Transition) {
	if _, failed := t.(nodes.FailScaleDown); !failed || before == nil {
		return
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, id := range before.ScaleDownTargetInstanceIDs {
		r, started := before.Removal(id)
		if started && before.Targets(id) && r.Phase != nodes.PhaseTerminating && r.Node != m.drainEnded {
			m.drains.WithLabelValues("failed").Inc()
		}
	}
}

// ended notes how long an action took when it ends.
func (m *Metrics) ended(t nodes.Transition) {
	m.mu.Lock()
	began := m.started
	m.mu.Unlock()
	took := func(now time.Time, kind, result string) {
		if began != 0 {
			m.actionDuration.WithLabelValues(kind, result).Observe(now.Sub(time.Unix(began, 0)).Seconds())
		}
	}
	switch t := t.(type) {
	case nodes.CompleteScaleUp:
		took(t.Now, "scale-up", "completed")
	case nodes.FailScaleUp:
		took(t.Now, "scale-up", "failed")
	case nodes.CompleteScaleDown:
		took(t.Now, "scale-down", "completed")
	case nodes.FailScaleDown:
		took(t.Now, "scale-down", "failed")
	}
}

func (m *Metrics) tokenExpires(at time.Time) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.tokenEnds = at
}

// Describe describes nothing beforehand: which series there are depends on what was seen.
func (m *Metrics) Describe(chan<- *prometheus.Desc) {}

// Collect sends every series.
func (m *Metrics) Collect(ch chan<- prometheus.Metric) {
	for _, c := range m.all {
		c.Collect(ch)
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	s := sink{ch}
	now := m.clock.Now()
	s.gauge("min_workers", "MIN_WORKERS.", float64(m.policy.MinWorkers))
	s.gauge("max_workers", "MAX_WORKERS.", float64(m.policy.MaxWorkers))
	if !m.lastTick.IsZero() {
		s.gauge("last_tick_timestamp_seconds", "When the last tick ended, as a Unix time.", unix(m.lastTick))
	}
	if !m.tokenEnds.IsZero() {
		s.gauge("kubernetes_token_expires_timestamp_seconds", "When the token of the Kubernetes API expires, as a Unix time.", unix(m.tokenEnds))
	}
	m.collectReadings(s)
	m.collectRecord(s, now)
	m.collectInterruptions(s, now)
	m.collectWorkers(s)
}

func unix(t time.Time) float64 { return float64(t.UnixMilli()) / 1000 }

type sink struct{ ch chan<- prometheus.Metric }

func (s sink) gauge(name, help string, v float64, labels ...string) {
	var names, values []string
	for i := 0; i+1 < len(labels); i += 2 {
		names, values = append(names, labels[i]), append(values, labels[i+1])
	}
	s.ch <- prometheus.MustNewConstMetric(prometheus.NewDesc(prefix+name, help, names, nil), prometheus.GaugeValue, v, values...)
}

// collectReadings sends what was read of the metrics; what is missing is absent, never zero.
func (m *Metrics) collectReadings(s sink) {
	if r := m.readings.CPU; r.Known {
		s.gauge("cpu_ratio", "Average CPU utilisation of the workers as last read, 0 to 1.", r.Value)
	}
	if r := m.readings.Pending; r.Known {
		s.gauge("pending_pods", "Pods waiting as last read, by the count that drives.", r.Value)
	}
}

// phases are those that an action can be in, by its kind.
var phases = map[string][]string{"scale-up": {"launching", "verifying"}, "scale-down": {"draining", "terminating"}}

func (m *Metrics) collectRecord(s sink, now time.Time) {
	if m.record == nil {
		return
	}
	st := explain.Stand(explain.Input{Now: now, Policy: m.policy, Record: *m.record})
	age := 0.0
	for kind, names := range phases {
		for _, phase := range names {
			in := 0.0
			if a := st.Action; a != nil && a.Kind == kind && a.Phase == phase {
				in, age = 1, max(now.Sub(time.Unix(m.started, 0)).Seconds(), 0)
			}
			s.gauge("action_phase", "1 for the phase that the action in progress is in.", in, "kind", kind, "phase", phase)
		}
	}
	paused := 0.0
	if m.record.Paused() {
		paused = max(now.Sub(time.Unix(m.record.PausedSinceEpoch, 0)).Seconds(), 1)
	}
	s.gauge("paused_seconds", "For how long scaling has been paused; 0 if it is not.", paused)
	s.gauge("action_age_seconds", "Age of the action in progress; 0 if there is none.", age)
	left := func(epoch int64, d time.Duration) float64 {
		if epoch == 0 {
			return 0
		}
		return max(time.Unix(epoch, 0).Add(d).Sub(now).Seconds(), 0)
	}
	s.gauge("cooldown_seconds_left", "What is left of a cooldown.", left(m.record.LastScaleEpoch, m.policy.CooldownUp), "of", "scale-up")
	s.gauge("cooldown_seconds_left", "What is left of a cooldown.", left(m.record.LastScaleEpoch, m.policy.CooldownDown), "of", "scale-down")
	s.gauge("backoff_seconds_left", "What is left of the back-off after failed scale-ups.", left(m.record.BackoffUntilEpoch, 0))
	s.gauge("scale_up_failures", "Scale-ups that failed in a row.", float64(m.record.ScaleUpFailures))
	s.gauge("removals", "Instances on their way out.", float64(len(m.record.Removals)))
}

func (m *Metrics) collectInterruptions(s sink, now time.Time) {
	byKind := map[nodes.InterruptionKind]int{nodes.Rebalance: 0, nodes.Health: 0, nodes.Warning: 0}
	for _, i := range m.open {
		byKind[i.Kind]++
		if i.DeadlineEpoch != 0 {
			s.gauge("interruption_seconds_left", "Until an interruption's deadline; negative once it has passed.",
				time.Unix(i.DeadlineEpoch, 0).Sub(now).Seconds(), "instance", i.InstanceID, "kind", string(i.Kind), "drained", strconv.FormatBool(i.Drained))
		}
	}
	for kind, n := range byKind {
		s.gauge("interruptions_open", "Open interruptions by kind.", float64(n), "kind", string(kind))
	}
}

// collectWorkers sends the workers as they were last seen by cloud and cluster together.
func (m *Metrics) collectWorkers(s sink) {
	if m.instancesAt.IsZero() || m.nodesAt.IsZero() {
		return
	}
	type group struct {
		zone, state string
		market      nodes.Market
	}
	counts := map[group]int{}
	costs := map[nodes.Market]float64{}
	unpriced := 0
	var notReady time.Duration
	for _, w := range nodes.Match(m.instances, m.nodes) {
		in := w.Instance
		if in.State == nodes.StateTerminated {
			continue
		}
		counts[group{in.Zone, labelOf(explain.State(w)), in.Market}]++
		if !in.Alive() {
			continue
		}
		if n := w.Node; n != nil && !n.Ready && !n.NotReadySince.IsZero() {
			notReady = max(notReady, m.nodesAt.Sub(n.NotReadySince))
		}
		if price, ok := m.priceOf(in); ok {
			costs[in.Market] += price
		} else {
			unpriced++
		}
	}
	s.gauge("not_ready_seconds", "How long the worker that has been so for longest has not been Ready; 0 if every worker that has joined is Ready.", notReady.Seconds())
	for g, n := range counts {
		s.gauge("workers", "Workers by zone, state and market as last seen.", float64(n), "zone", g.zone, "state", g.state, "market", string(g.market))
	}
	for market, c := range costs {
		s.gauge("cost_dollars_per_hour", "What the pending and running workers whose price is known cost an hour.", c, "market", string(market))
	}
	if m.price != nil {
		s.gauge("workers_without_price", "Pending and running workers whose price is not known.", float64(unpriced))
	}
	seen := m.instancesAt
	if m.nodesAt.Before(seen) {
		seen = m.nodesAt
	}
	s.gauge("workers_seen_timestamp_seconds", "When the workers were last seen by both cloud and cluster, as a Unix time.", unix(seen))
}

func (m *Metrics) priceOf(in nodes.Instance) (float64, bool) {
	if m.price == nil {
		return 0, false
	}
	return m.price(in.Type, in.Market, in.Zone)
}

// labelOf turns NotReady into not-ready.
func labelOf(state string) string {
	return strings.ToLower(strings.Replace(state, "NotReady", "not-ready", 1))
}
