// Package partitionprom makes Prometheus metrics of the figures of a worker of package
// partition.
package partitionprom

import (
	"cmp"
	"maps"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/muster-dev/muster/partition"
	"github.com/muster-dev/muster/partition/report"
	"github.com/muster-dev/muster/partition/state"
)

// Options say what a collector adds to the figures of a worker. The zero value is fit for any
// group.
type Options struct {
	// Assigned returns how many keys lie in these slots; default: the number
	// of slots. A panic is handled as Worker.CountKeys says.
	Assigned func(slots partition.Slots) int
	// Labels are put on every series, beside the label group.
	Labels prometheus.Labels
	// Names replaces words in the names of metrics, for a program whose metrics have names of
	// their own. Dashboards and alerts for any group rely on the fixed ones.
	Names Names
}

// Names are words in the names of metrics.
type Names struct {
	// Prefix stands before each name: "defender" makes defender_state. With it there is no
	// label group. Default: muster_partition.
	Prefix string
	// Keys is the word for keys in names: "chamber" makes
	// defender_chamber_movements_total and defender_assigned_chambers, and so does
	// "chambers"; default "key".
	Keys string
	// Workers is the word for workers in names: "defender" makes
	// defender_active_defenders; default "worker".
	Workers string
}

const (
	fixedPrefix = "muster_partition"
	labelGroup  = "group"
)

// source is what a collector needs of a worker.
type source interface {
	Metrics() report.Metrics
	CountKeys(count func(partition.Slots) int) int
}

// collector has a description for each metric; o says how they are named.
type collector struct {
	w source
	o Options

	state, leader, id, version, assigned, slots, active   *prometheus.Desc
	rebalances, moved, slotsMoved, emergencies, uncertain *prometheus.Desc
	took, rejected, standby, draining, oldest             *prometheus.Desc
	stalePins, forced, pause, detection                   *prometheus.Desc
	retryMessages, retryKeys, retryOldest                 *prometheus.Desc
	queued, retries, deadLettered                         *prometheus.Desc
	rollbacks, panics, recreated, raised                  *prometheus.Desc
	statesMoved, stateBytes, statesNotMoved               *prometheus.Desc
	writesRefused, fill, pending                          *prometheus.Desc
	inFlight, failed, duration                            *prometheus.Desc
}

// NewCollector returns the worker's metrics for a Prometheus registry. Their names begin with
// muster_partition_, and each has the label group, the name of the worker's group:
//
//   - of the worker: state{state}, is_leader, stable_id, assignment_version, assigned_keys,
//     assigned_slots, standby, draining, lease_uncertain_total, records_rejected_total{record},
//     writes_refused_seconds;
//   - of its handler: handlers_in_flight, handler_failures_total, handler_duration_seconds (a
//     histogram, whose count is the number of calls), handler_panics_total;
//   - of its slots: handoff_pause_seconds (a histogram), handoffs_forced_total,
//     stale_pins_freed_total, stream_rollbacks_total, resources_recreated_total;
//   - of the states of its slots, 0 without a StateMover: states_moved_total, state_bytes_moved_total,
//     states_not_moved_total;
//   - of the retry queue of its slots, 0 without Config.Retry: retry_queue_messages,
//     retry_queue_keys, retry_queue_oldest_seconds, messages_queued_total, retry_attempts_total,
//     messages_dead_lettered_total;
//   - of the plans that it made as leader: rebalance_events_total, rebalance_duration_seconds,
//     key_movements_total, slot_movements_total, emergency_events_total, fences_raised_total;
//   - of what it sees as leader, absent or 0 at the others: active_workers, detection_seconds (a
//     histogram), pending_messages, oldest_pending_seconds, stream_fill_ratio.
func NewCollector(w *partition.Worker, o Options) prometheus.Collector {
	return newCollector(w, o)
}

func newCollector(w source, o Options) *collector {
	labels := maps.Clone(o.Labels)
	if o.Names.Prefix == "" {
		if labels == nil {
			labels = prometheus.Labels{}
		}
		labels[labelGroup] = w.Metrics().Group
	}
	prefix := cmp.Or(o.Names.Prefix, fixedPrefix)
	key, keys := singular(cmp.Or(o.Names.Keys, "key")), plural(cmp.Or(o.Names.Keys, "key"))
	workers := plural(cmp.Or(o.Names.Workers, "worker"))
	if o.Assigned == nil {
		o.Assigned = func(s partition.Slots) int { return len(s.Slots) }
	}

	desc := func(name, help string, variable ...string) *prometheus.Desc {
		return prometheus.NewDesc(prefix+"_"+name, help, variable, labels)
	}
	return &collector{w: w, o: o,
		state:          desc("state", "1 for the state that the worker is in, 0 for the others.", "state"),
		leader:         desc("is_leader", "1 while the worker leads with a valid lease."),
		id:             desc("stable_id", "The number in the worker's stable ID, -1 before it has one."),
		version:        desc("assignment_version", "Version of the assignment map that the worker has."),
		assigned:       desc("assigned_"+keys, "Keys in the slots that the worker pulls for."),
		slots:          desc("assigned_slots", "Slots that the worker pulls for."),
		active:         desc("active_"+workers, "Live workers, as the leader sees them; 0 at the others."),
		rebalances:     desc("rebalance_events_total", "Plans made by this worker as leader."),
		took:           desc("rebalance_duration_seconds", "From plan to last handoff of the last rebalance that this worker led."),
		moved:          desc(key+"_movements_total", "Keys moved by plans of this worker."),
		slotsMoved:     desc("slot_movements_total", "Slots moved by plans of this worker."),
		emergencies:    desc("emergency_events_total", "Plans of this worker that a failed worker made necessary."),
		standby:        desc("standby", "1 while the worker is ready and waits for a stable ID."),
		draining:       desc("draining", "1 while the worker drains: it hands off its slots and takes none."),
		oldest:         desc("oldest_pending_seconds", "How long the oldest unprocessed message has waited, as the leader sees it every 10 s; absent at the others."),
		stalePins:      desc("stale_pins_freed_total", "Consumers of this worker's slots whose pinned client was gone and that were freed."),
		forced:         desc("handoffs_forced_total", "Slots that this worker handed off with a message unsettled, since its handler did not end in time."),
		pause:          desc("handoff_pause_seconds", "How long a message that waited while its slot was handed off to this worker was kept from beginning."),
		detection:      desc("detection_seconds", "From the last sign of life of a worker that failed, or from when this leader could see again, to its being declared failed."),
		statesMoved:    desc("states_moved_total", "States of slots that came to this worker from their old owners in handoffs."),
		stateBytes:     desc("state_bytes_moved_total", "Bytes of the states of slots that came to this worker."),
		statesNotMoved: desc("states_not_moved_total", "States of slots that could not come to this worker in a planned handoff, so that its handler prepared instead."),
		uncertain:      desc("lease_uncertain_total", "Times that the worker was uncertain of its lease and paused."),
		retryMessages:  desc("retry_queue_messages", "Messages of the worker's slots that are in the retry queue."),
		retryKeys:      desc("retry_queue_"+keys, "Keys of the worker's slots that have messages in the retry queue."),
		retryOldest:    desc("retry_queue_oldest_seconds", "How long the oldest message in the retry queue of the worker's slots has been there, 0 for none."),
		queued:         desc("messages_queued_total", "Messages that this worker has queued for retry, since they failed or came behind one of their key that had."),
		retries:        desc("retry_attempts_total", "Attempts of messages in the retry queue."),
		deadLettered:   desc("messages_dead_lettered_total", "Messages that were dead-lettered after too many attempts."),
		rollbacks:      desc("stream_rollbacks_total", "Times that this worker found a stream re-created, or without messages that it had."),
		panics:         desc("handler_panics_total", "Panics of the handler, or of another callback, that failed one call and not the process."),
		recreated:      desc("resources_recreated_total", "Streams and buckets of the group that were missing and that this worker created again."),
		raised:         desc("fences_raised_total", "Times that this worker, as leader, raised the fences of all slots, since the handlers' store had a higher one."),
		writesRefused:  desc("writes_refused_seconds", "For how long the servers have refused all of the worker's writes of its lease, name and other records of the group, 0 if the last one succeeded or was not answered."),
		fill:           desc("stream_fill_ratio", "Bytes of the fullest stream of messages over its limit, as the leader sees it every 10 s; at 1 publishers are refused; absent at the others."),
		pending:        desc("pending_messages", "Messages that are not processed, as the leader sees it every 10 s; absent at the others."),
		inFlight:       desc("handlers_in_flight", "Calls of the handler that run now."),
		failed:         desc("handler_failures_total", "Calls of the handler that returned an error or panicked."),
		duration:       desc("handler_duration_seconds", "How long calls of the handler took, failed ones included."),
		rejected:       desc("records_rejected_total", "Records of others that were rejected: not valid, too large, from the future, or of another version.", "record"),
	}
}

// Describe implements prometheus.Collector.
func (c *collector) Describe(ch chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{c.state, c.leader, c.id, c.version, c.assigned, c.slots, c.active,
		c.rebalances, c.took, c.moved, c.slotsMoved, c.emergencies, c.uncertain, c.rejected,
		c.standby, c.draining, c.oldest, c.stalePins, c.forced, c.pause, c.detection,
		c.retryMessages, c.retryKeys, c.retryOldest, c.queued, c.retries, c.deadLettered, c.rollbacks, c.panics, c.recreated, c.raised, c.writesRefused, c.fill,
		c.statesMoved, c.stateBytes, c.statesNotMoved,
		c.pending, c.inFlight, c.failed, c.duration} {
		ch <- d
	}
}

// Collect implements prometheus.Collector.
func (c *collector) Collect(ch chan<- prometheus.Metric) {
	m := c.w.Metrics()
	c.collectStates(ch, m)
	gauge(ch, c.assigned, float64(c.w.CountKeys(c.o.Assigned)))
	c.collectCounters(ch, m.Counters)
	ch <- histogram(c.pause, m.HandoffPause)
	ch <- histogram(c.detection, m.Detection)

	gauge(ch, c.inFlight, float64(m.Handlers.InFlight))
	counter(ch, c.failed, m.Handlers.Failed)
	ch <- histogram(c.duration, m.Handlers.Duration)
}

func (c *collector) collectStates(ch chan<- prometheus.Metric, m report.Metrics) {
	for _, s := range state.All {
		gauge(ch, c.state, truth(s == m.State), string(s))
	}
	gauge(ch, c.leader, truth(m.Leading))
	gauge(ch, c.id, float64(m.StableID))
	gauge(ch, c.version, float64(m.MapVersion))
	gauge(ch, c.slots, float64(len(m.Slots)))
	gauge(ch, c.active, float64(m.ActiveWorkers))
	gauge(ch, c.standby, truth(m.Standby))
	gauge(ch, c.draining, truth(m.Draining))
	gauge(ch, c.writesRefused, m.WritesRefused.Seconds())
	if m.Pending != nil {
		gauge(ch, c.pending, float64(m.Pending.Messages))
		gauge(ch, c.oldest, m.Pending.Oldest.Seconds())
		gauge(ch, c.fill, m.Pending.StreamFill)
	}

	gauge(ch, c.retryMessages, float64(m.Retry.Messages))
	gauge(ch, c.retryKeys, float64(m.Retry.Keys))
	gauge(ch, c.retryOldest, m.Retry.Oldest.Seconds())
}

func (c *collector) collectCounters(ch chan<- prometheus.Metric, n report.Counters) {
	counter(ch, c.rebalances, n.Rebalances)
	gauge(ch, c.took, n.RebalanceDuration.Seconds())
	counter(ch, c.moved, n.KeysMoved)
	counter(ch, c.slotsMoved, n.SlotsMoved)
	counter(ch, c.emergencies, n.Emergencies)

	counter(ch, c.uncertain, n.LeaseUncertain)
	counter(ch, c.stalePins, n.StalePinsFreed)
	counter(ch, c.forced, n.HandoffsForced)
	counter(ch, c.rollbacks, n.StreamRollbacks)
	counter(ch, c.panics, n.HandlerPanics)
	counter(ch, c.recreated, n.ResourcesRecreated)
	counter(ch, c.raised, n.FencesRaised)
	counter(ch, c.statesMoved, n.StatesMoved)
	counter(ch, c.stateBytes, n.StateBytes)
	counter(ch, c.statesNotMoved, n.StatesNotMoved)
	for record, rejected := range n.RecordsRejected {
		counter(ch, c.rejected, rejected, record)
	}

	counter(ch, c.queued, n.Queued)
	counter(ch, c.retries, n.Retried)
	counter(ch, c.deadLettered, n.DeadLettered)
}

func gauge(ch chan<- prometheus.Metric, d *prometheus.Desc, v float64, labels ...string) {
	ch <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, v, labels...)
}

func counter(ch chan<- prometheus.Metric, d *prometheus.Desc, v uint64, labels ...string) {
	ch <- prometheus.MustNewConstMetric(d, prometheus.CounterValue, float64(v), labels...)
}

func histogram(d *prometheus.Desc, h report.Histogram) prometheus.Metric {
	buckets := make(map[float64]uint64, len(h.Buckets))
	for _, b := range h.Buckets {
		buckets[b.Bound.Seconds()] = b.Count
	}
	return prometheus.MustNewConstHistogram(d, h.Count, h.Sum.Seconds(), buckets)
}

func truth(b bool) float64 {
	if b {
		return 1
	}
	return 0
}
