package daemon

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/muster-dev/muster/nodes"
)

// Metrics is what a Prometheus is told of a node plane; it is a prometheus.Collector. What ages is computed when it is asked for, so
// that an action that hangs shows as one whose age grows. docs/nodes/reference.md lists the series.
type Metrics struct {
	clock  nodes.Clock
	policy nodes.Policy
	price  prices // nil: no prices are known
	hashes map[string]string
	counts *counters
	seen   *latest
}

var _ prometheus.Collector = (*Metrics)(nil)

func newMetrics(c nodes.Config, price prices) *Metrics {
	return &Metrics{clock: c.Clock, policy: c.Policy, price: price, hashes: c.TemplateHashes(), counts: newCounters(), seen: &latest{clock: c.Clock}}
}

// ticked counts a tick, by what Reconciler.Tick returned and how long it took.
func (m *Metrics) ticked(report nodes.Report, err error, took time.Duration) {
	m.counts.ticked(report, err, took)
	m.seen.ticked()
}

// subnets takes a list of the subnets.
func (m *Metrics) subnets(list []nodes.Subnet) {
	m.counts.zones(list)
	m.seen.sawZones(list)
}

// drained counts drains that say how they ended. One that continues, or whose call failed, is tried again by the next tick; what it comes
// to if it is not is told by undrained.
func (m *Metrics) drained(n nodes.NodeRef, p nodes.DrainProgress, err error) {
	ended := nodes.NodeRef{}
	_, blocked := nodes.IsDrainBlocked(err)
	switch {
	case blocked:
		m.counts.drains.WithLabelValues("blocked").Inc()
		ended = n
	case err == nil && p.Done:
		m.counts.drains.WithLabelValues("done").Inc()
		ended = n
	}
	m.seen.drainSaid(ended)
}

// written takes a transition that was made. before is the record before it, nil if that isn't known.
func (m *Metrics) written(before *nodes.Record, t nodes.Transition, after nodes.Record) {
	m.seen.stored(after)
	m.counts.ended(t, before)
	m.undrained(before, t)
}

// undrained counts the drains that the end of a scale-down cuts off: their time was over.
func (m *Metrics) undrained(before *nodes.Record, t nodes.Transition) {
	// A cancelled one did not fail: its node is needed again.
	if failed, ok := t.(nodes.FailScaleDown); ok && !failed.Cancelled && before != nil {
		m.counts.drains.WithLabelValues("failed").Add(float64(m.seen.unfinished(before, failed.ActionID)))
	}
}

// Describe describes nothing beforehand: which series there are depends on what was seen.
func (m *Metrics) Describe(chan<- *prometheus.Desc) {}

// Collect sends every series.
func (m *Metrics) Collect(ch chan<- prometheus.Metric) {
	for _, c := range m.counts.all {
		c.Collect(ch)
	}
	m.seen.mu.Lock()
	defer m.seen.mu.Unlock()
	gauges{now: m.clock.Now(), policy: m.policy, price: m.price, hashes: m.hashes, seen: m.seen, ch: ch}.collect()
}
