package daemon

import (
	"cmp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/muster-dev/muster/nodes"
	"github.com/muster-dev/muster/nodes/explain"
)

// prices returns what an instance costs an hour, in US dollars; false if that is not known.
type prices func(instanceType string, market nodes.Market, zone string) (float64, bool)

// gauges sends the series that say how things are now, for one scrape. The caller holds seen.mu.
type gauges struct {
	now    time.Time
	policy nodes.Policy
	price  prices            // nil: no prices are known
	hashes map[string]string // by what new nodes are launched, by pool
	seen   *latest
	ch     chan<- prometheus.Metric
}

// collect sends all of them.
func (g gauges) collect() {
	g.gauge("min_workers", "MIN_WORKERS.", float64(g.policy.MinWorkers))
	g.gauge("max_workers", "MAX_WORKERS.", float64(g.policy.MaxWorkers))
	source := cmp.Or(g.policy.Signals, nodes.SignalsPrometheus)
	g.gauge("signals", "Where pending pods and load are read, as SIGNALS says: prometheus or kubernetes, which has no CPU.", 1, "source", string(source))
	if at := g.seen.lastTick; !at.IsZero() {
		g.gauge("last_tick_timestamp_seconds", "When the last tick ended, as a Unix time.", unix(at))
	}
	if at := g.seen.tokenEnds; !at.IsZero() {
		g.gauge("kubernetes_token_expires_timestamp_seconds", "When the token of the Kubernetes API expires, as a Unix time.", unix(at))
	}
	g.collectReadings()
	g.collectRecord()
	g.collectInterruptions()
	g.collectWorkers()
	g.collectPools()
}

func unix(t time.Time) float64 { return float64(t.UnixMilli()) / 1000 }

// gauge sends a gauge; labels are names and values in turn.
func (g gauges) gauge(name, help string, v float64, labels ...string) {
	var names, values []string
	for i := 0; i+1 < len(labels); i += 2 {
		names, values = append(names, labels[i]), append(values, labels[i+1])
	}
	g.ch <- prometheus.MustNewConstMetric(prometheus.NewDesc(prefix+name, help, names, nil), prometheus.GaugeValue, v, values...)
}

// collectReadings sends what was read of the metrics; what is missing is absent, never zero.
func (g gauges) collectReadings() {
	if r := g.seen.readings.CPU; r.Known {
		g.gauge("cpu_ratio", "Average CPU utilisation of the workers as last read, 0 to 1.", r.Value)
	}
	if r := g.seen.readings.Pending; r.Known {
		g.gauge("pending_pods", "Pods waiting as last read, by the count that drives.", r.Value)
	}
}

// collectRecord sends what the record says; nothing before it was read.
func (g gauges) collectRecord() {
	if g.seen.record == nil {
		return
	}
	st := explain.Stand(explain.Input{Now: g.now, Policy: g.policy, Record: *g.seen.record})
	age := 0.0
	for kind, names := range phases {
		for _, phase := range names {
			in := 0.0
			for _, a := range st.Actions {
				if a.Kind == kind && a.Phase == phase {
					in, age = in+1, max(age, float64(a.Age))
				}
			}
			g.gauge("action_phase", "Actions in progress by the phase that they are in.", in, "kind", kind, "phase", phase)
		}
	}
	paused := 0.0
	if g.seen.record.Paused() {
		paused = max(g.now.Sub(time.Unix(g.seen.record.PausedSinceEpoch, 0)).Seconds(), 1)
	}
	g.gauge("paused_seconds", "For how long scaling has been paused; 0 if it is not.", paused)
	g.gauge("action_age_seconds", "Age of the oldest action in progress; 0 if there is none.", age)
	left := func(epoch int64, d time.Duration) float64 {
		if epoch == 0 {
			return 0
		}
		return max(time.Unix(epoch, 0).Add(d).Sub(g.now).Seconds(), 0)
	}
	g.gauge("cooldown_seconds_left", "What is left of a cooldown.", left(g.seen.record.LastScaleEpoch, g.policy.CooldownUp), "of", "scale-up")
	g.gauge("cooldown_seconds_left", "What is left of a cooldown.", left(g.seen.record.LastScaleEpoch, g.policy.CooldownDown), "of", "scale-down")
	g.gauge("backoff_seconds_left", "What is left of the back-off after failed scale-ups.", left(g.seen.record.BackoffUntilEpoch, 0))
	g.gauge("scale_up_failures", "Scale-ups that failed in a row.", float64(g.seen.record.ScaleUpFailures))
	g.gauge("removals", "Instances on their way out.", float64(len(g.seen.record.Removals)))
}

// collectInterruptions sends the open interruptions.
func (g gauges) collectInterruptions() {
	byKind := map[nodes.InterruptionKind]int{nodes.Rebalance: 0, nodes.Health: 0, nodes.Warning: 0}
	for _, i := range g.seen.open {
		byKind[i.Kind]++
		if i.DeadlineEpoch != 0 {
			g.gauge("interruption_seconds_left", "Until an interruption's deadline; negative once it has passed.",
				time.Unix(i.DeadlineEpoch, 0).Sub(g.now).Seconds(), "instance", i.InstanceID, "kind", string(i.Kind), "drained", strconv.FormatBool(i.Drained))
		}
	}
	for kind, n := range byKind {
		g.gauge("interruptions_open", "Open interruptions by kind.", float64(n), "kind", string(kind))
	}
}

// collectWorkers sends the workers as they were last seen by cloud and cluster together.
func (g gauges) collectWorkers() {
	if g.seen.instancesAt.IsZero() || g.seen.nodesAt.IsZero() {
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
	workers := nodes.Match(g.seen.instances, g.seen.nodes)
	for _, w := range workers {
		in := w.Instance
		if in.State == nodes.StateTerminated {
			continue
		}
		counts[group{in.Zone, labelOf(explain.State(w)), in.Market}]++
		if !in.Alive() {
			continue
		}
		if n := w.Node; n != nil && !n.Ready && !n.NotReadySince.IsZero() {
			notReady = max(notReady, g.seen.nodesAt.Sub(n.NotReadySince))
		}
		if price, ok := g.priceOf(in); ok {
			costs[in.Market] += price
		} else {
			unpriced++
		}
	}
	g.gauge("not_ready_seconds", "How long the worker that has been so for longest has not been Ready; 0 if every worker that has joined is Ready.", notReady.Seconds())
	drifted := nodes.DriftedWorkers(g.policy, nodes.Observation{Fleet: workers, TemplateHashes: g.hashes}, g.seen.instancesAt)
	drifted = slices.DeleteFunc(drifted, func(d nodes.Drifted) bool { return d.Expired })
	g.gauge("drifted_workers", "Workers that are not as they would be launched now.", float64(len(drifted)))
	for at, n := range counts {
		g.gauge("workers", "Workers by zone, state and market as last seen.", float64(n), "zone", at.zone, "state", at.state, "market", string(at.market))
	}
	for market, c := range costs {
		g.gauge("cost_dollars_per_hour", "What the pending and running workers whose price is known cost an hour.", c, "market", string(market))
	}
	if g.price != nil {
		g.gauge("workers_without_price", "Pending and running workers whose price is not known.", float64(unpriced))
	}
	seen := g.seen.instancesAt
	if g.seen.nodesAt.Before(seen) {
		seen = g.seen.nodesAt
	}
	g.gauge("workers_seen_timestamp_seconds", "When the workers were last seen by both cloud and cluster, as a Unix time.", unix(seen))
}

// collectPools sends the pools, with the workers as they were last seen.
func (g gauges) collectPools() {
	if g.seen.instancesAt.IsZero() || g.seen.record == nil {
		return
	}
	o := nodes.Observation{Fleet: nodes.Match(g.seen.instances, g.seen.nodes), Interruptions: g.seen.open}
	for _, pool := range explain.Pools(g.policy, o, *g.seen.record, g.now) {
		g.gauge("pool_nodes", "Workers and launches in flight that count against a pool's limits.", float64(pool.Nodes), "pool", pool.Name)
		g.gauge("pool_backoff_seconds_left", "What is left of a pool's back-off after failed scale-ups.", float64(pool.Backoff), "pool", pool.Name)
		if p, _ := g.policy.PoolNamed(pool.Name); p.Limits.Nodes > 0 {
			g.gauge("pool_max_nodes", "Most nodes of a pool; absent without a limit.", float64(p.Limits.Nodes), "pool", pool.Name)
		}
	}
}

// priceOf goes by what decisions go by: the cloud's prices, and the table for what they lack.
func (g gauges) priceOf(in nodes.Instance) (float64, bool) {
	if g.seen.record != nil {
		if usd, known := g.seen.record.Prices.Current(g.now).Of(in.Type, in.Market, in.Zone); known {
			return usd, true
		}
	}
	if g.price == nil {
		return 0, false
	}
	return g.price(in.Type, in.Market, in.Zone)
}

// labelOf turns NotReady into not-ready.
func labelOf(state string) string {
	return strings.ToLower(strings.Replace(state, "NotReady", "not-ready", 1))
}
