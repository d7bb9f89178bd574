package partition

import (
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// eventCounts adds up what the metrics tell of events.
type eventCounts struct {
	mu          sync.Mutex
	rebalances  uint64
	slotsMoved  uint64
	keysMoved   uint64
	emergencies uint64
	trustLost   uint64
	lastTook    time.Duration
	ghosts      uint64
	forced      uint64
	rollbacks   uint64
	panics      uint64
	recreated   uint64
	raised      uint64
	pause       histogram
	detection   histogram
	refused     map[string]uint64 // by record
}

// bounds of the histograms' buckets, in seconds.
var bounds = [...]float64{0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30}

// histogram counts durations by bounds.
type histogram struct {
	counts [len(bounds)]uint64 // not cumulative
	n      uint64
	sum    float64 // seconds
}

func (h *histogram) observe(d time.Duration) {
	s := d.Seconds()
	h.n++
	h.sum += s
	for i, b := range bounds {
		if s <= b {
			h.counts[i]++
			return
		}
	}
}

// buckets returns the cumulative counts by upper bound.
func (h *histogram) buckets() map[float64]uint64 {
	out := make(map[float64]uint64, len(bounds))
	var sum uint64
	for i, b := range bounds {
		sum += h.counts[i]
		out[b] = sum
	}
	return out
}

func (c *eventCounts) count(e Event) {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch e.Kind {
	case EventPlanned:
		c.rebalances++
		c.slotsMoved += uint64(e.Count)
		c.keysMoved += e.Keys
		if e.Reason == reasonCrash {
			c.emergencies++
		}
	case EventRebalanced:
		c.lastTook = e.Duration
	case EventTrustLost:
		c.trustLost++
	case EventGhostHealed:
		c.ghosts++
	case EventHandoverForced:
		c.forced++
	case EventStreamRolledBack:
		c.rollbacks++
	case EventPanicked:
		c.panics++
	case EventResourceRecreated:
		c.recreated++
	case EventFencesRaised:
		c.raised++
	case EventSlotResumed:
		c.pause.observe(e.Duration)
	case EventWorkerGone:
		if e.Duration > 0 {
			c.detection.observe(e.Duration)
		}
	case EventRefused:
		if c.refused == nil {
			c.refused = make(map[string]uint64)
		}
		c.refused[e.Reason]++
	default:
	}
}

// MetricsOptions say how a worker's metrics are named.
type MetricsOptions struct {
	// Prefix stands before each name: "defender" makes defender_state.
	Prefix string
	// Keys is the word for keys in names: "chamber" makes
	// defender_chamber_movements_total and defender_assigned_chambers, and so does
	// "chambers"; default "key".
	Keys string
	// Workers is the word for workers in names: "defender" makes
	// defender_active_defenders; default "worker".
	Workers string
	// Assigned returns how many keys lie in these slots; default: the number
	// of slots.
	Assigned func(slots Slots) int
	// Labels are put on every series.
	Labels prometheus.Labels
}

type collector struct {
	w *Worker
	o MetricsOptions

	state, leader, id, version, assigned, slots, active *prometheus.Desc
	rebalances, moved, slotsMoved, emergencies, trust   *prometheus.Desc
	took, refused, standby, draining, oldest            *prometheus.Desc
	ghosts, forced, pause, detection                    *prometheus.Desc
	parkedMsgs, parkedKeys, parkedOldest                *prometheus.Desc
	parked, retries, abandoned                          *prometheus.Desc
	rollbacks, panics, recreated, raised                *prometheus.Desc
	writesRefused, fill                                 *prometheus.Desc
}

// Collector returns the worker's metrics for a Prometheus registry:
// state{state}, is_leader, stable_id, assignment_version, assigned_<keys>s,
// assigned_slots, standby, draining, active_<worker>s (leader only), trust_lost_total,
// records_refused_total{record}, handover_pause_seconds (a histogram), handovers_forced_total,
// ghost_pins_healed_total, stream_rollbacks_total, handler_panics_total,
// resources_recreated_total, fences_raised_total and writes_refused_seconds, of the plans that this worker made as leader
// rebalance_events_total, rebalance_duration_seconds, <key>_movements_total,
// slot_movements_total and emergency_events_total, and as leader
// detection_seconds (a histogram), oldest_pending_seconds and stream_fill_ratio. All 0 without
// Config.Retry are parked_messages, parked_<key>s and parked_oldest_seconds of the
// worker's slots, messages_parked_total, parked_attempts_total and
// messages_abandoned_total.
func (w *Worker) Collector(o MetricsOptions) prometheus.Collector {
	defaulted(&o.Prefix, w.cfg.Name)
	defaulted(&o.Keys, "key")
	defaulted(&o.Workers, "worker")
	key, keys := singular(o.Keys), plural(o.Keys)
	if o.Assigned == nil {
		o.Assigned = func(s Slots) int { return len(s.Slots) }
	}
	o.Assigned = w.guard.assigned(o.Assigned)
	desc := func(name, help string, labels ...string) *prometheus.Desc {
		return prometheus.NewDesc(o.Prefix+"_"+name, help, labels, o.Labels)
	}
	return &collector{w: w, o: o,
		state:         desc("state", "1 for the state that the worker is in, 0 for the others.", "state"),
		leader:        desc("is_leader", "1 while the worker leads and is sure of its lease."),
		id:            desc("stable_id", "The number in the worker's stable ID, -1 before it has one."),
		version:       desc("assignment_version", "Version of the assignment map that the worker has."),
		assigned:      desc("assigned_"+keys, "Keys in the slots that the worker pulls for."),
		slots:         desc("assigned_slots", "Slots that the worker pulls for."),
		active:        desc("active_"+plural(o.Workers), "Live workers, as the leader sees them; 0 at the others."),
		rebalances:    desc("rebalance_events_total", "Plans made by this worker as leader."),
		took:          desc("rebalance_duration_seconds", "From plan to last hand-over of the last rebalance that this worker led."),
		moved:         desc(key+"_movements_total", "Keys moved by plans of this worker."),
		slotsMoved:    desc("slot_movements_total", "Slots moved by plans of this worker."),
		emergencies:   desc("emergency_events_total", "Plans of this worker that a dead worker made necessary."),
		standby:       desc("standby", "1 while the worker is ready and waits for a stable ID."),
		draining:      desc("draining", "1 while the worker gives its slots away and takes none, because it was asked to."),
		oldest:        desc("oldest_pending_seconds", "How long the oldest unprocessed message has waited, as the leader sees it every 10 s; absent at the others."),
		ghosts:        desc("ghost_pins_healed_total", "Consumers of this worker's slots that served nobody and were freed."),
		forced:        desc("handovers_forced_total", "Slots that this worker gave up with a message unsettled, since its handler did not end in time."),
		pause:         desc("handover_pause_seconds", "How long a message that waited while its slot was handed over to this worker was kept from beginning."),
		detection:     desc("detection_seconds", "From the last sign of life of a worker that died, or from when this leader could see again, to its being declared dead."),
		trust:         desc("trust_lost_total", "Times that the worker could not be sure of its lease and paused."),
		parkedMsgs:    desc("parked_messages", "Messages of the worker's slots that are parked in the retry stream."),
		parkedKeys:    desc("parked_"+keys, "Keys of the worker's slots that have parked messages."),
		parkedOldest:  desc("parked_oldest_seconds", "How long the oldest parked message of the worker's slots is parked, 0 for none."),
		parked:        desc("messages_parked_total", "Messages that this worker has parked, since they failed or came behind one of their key that had."),
		retries:       desc("parked_attempts_total", "Attempts of parked messages."),
		abandoned:     desc("messages_abandoned_total", "Messages that were given up after too many attempts."),
		rollbacks:     desc("stream_rollbacks_total", "Times that this worker found a stream made again, or without messages that it had."),
		panics:        desc("handler_panics_total", "Panics of the handler, or of another callback, that failed one call and not the process."),
		recreated:     desc("resources_recreated_total", "Streams and buckets of the group that were missing and that this worker created again."),
		raised:        desc("fences_raised_total", "Times that this worker, as leader, raised the fences of all slots, since the handlers' store had a higher one."),
		writesRefused: desc("writes_refused_seconds", "For how long the servers have refused all of the worker's writes of its lease, name and other records of the group, 0 if the last one succeeded or was not answered."),
		fill:          desc("stream_fill_ratio", "Bytes of the fullest stream of messages over its limit, as the leader sees it every 10 s; at 1 publishers are refused; absent at the others."),
		refused:       desc("records_refused_total", "Records of others that were not believed: not valid, too large, from the future, or of another version.", "record"),
	}
}

// Describe implements prometheus.Collector.
func (c *collector) Describe(ch chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{c.state, c.leader, c.id, c.version, c.assigned, c.slots, c.active,
		c.rebalances, c.took, c.moved, c.slotsMoved, c.emergencies, c.trust, c.refused,
		c.standby, c.draining, c.oldest, c.ghosts, c.forced, c.pause, c.detection,
		c.parkedMsgs, c.parkedKeys, c.parkedOldest, c.parked, c.retries, c.abandoned, c.rollbacks, c.panics, c.recreated, c.raised, c.writesRefused, c.fill} {
		ch <- d
	}
}

// Collect implements prometheus.Collector.
func (c *collector) Collect(ch chan<- prometheus.Metric) {
	s := c.w.Status()
	gauge := func(d *prometheus.Desc, v float64, labels ...string) {
		ch <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, v, labels...)
	}
	counter := func(d *prometheus.Desc, v uint64) {
		ch <- prometheus.MustNewConstMetric(d, prometheus.CounterValue, float64(v))
	}
	for _, st := range States {
		gauge(c.state, truth(st == s.State), string(st))
	}
	// One that can't be sure of its lease decides nothing, and another may lead by now.
	gauge(c.leader, truth(s.Leading && time.Now().Before(s.TrustedUntil)))
	gauge(c.id, float64(ordinal(s.ID)))
	gauge(c.version, float64(s.Version))
	gauge(c.assigned, float64(c.o.Assigned(Slots{s.SlotsOf, s.Slots})))
	gauge(c.slots, float64(len(s.Slots)))
	gauge(c.active, float64(s.ActiveWorkers))
	gauge(c.standby, truth(s.Standby))
	gauge(c.draining, truth(s.Yielding))
	if d, known := c.w.oldestPending(time.Now()); known {
		gauge(c.oldest, d.Seconds())
	}
	if w := c.w.waiting.Load(); w != nil {
		gauge(c.fill, w.fill)
	}
	refusedFor := time.Duration(0)
	if !s.refused.IsZero() {
		refusedFor = max(0, time.Since(s.refused))
	}
	gauge(c.writesRefused, refusedFor.Seconds())
	p := c.w.Parked() // all 0 without Config.Retry
	gauge(c.parkedMsgs, float64(p.Messages))
	gauge(c.parkedKeys, float64(p.Keys))
	age := time.Duration(0)
	if !p.Oldest.IsZero() {
		age = max(0, time.Since(p.Oldest))
	}
	gauge(c.parkedOldest, age.Seconds())
	counter(c.parked, p.Parked)
	counter(c.retries, p.Retries)
	counter(c.abandoned, p.Abandoned)
	e := &c.w.events
	e.mu.Lock()
	defer e.mu.Unlock()
	counter(c.rebalances, e.rebalances)
	gauge(c.took, e.lastTook.Seconds())
	counter(c.moved, e.keysMoved)
	counter(c.slotsMoved, e.slotsMoved)
	counter(c.emergencies, e.emergencies)
	counter(c.trust, e.trustLost)
	counter(c.ghosts, e.ghosts)
	counter(c.forced, e.forced)
	counter(c.rollbacks, e.rollbacks)
	counter(c.panics, e.panics)
	counter(c.recreated, e.recreated)
	counter(c.raised, e.raised)
	ch <- prometheus.MustNewConstHistogram(c.pause, e.pause.n, e.pause.sum, e.pause.buckets())
	ch <- prometheus.MustNewConstHistogram(c.detection, e.detection.n, e.detection.sum, e.detection.buckets())
	for _, r := range records {
		ch <- prometheus.MustNewConstMetric(c.refused, prometheus.CounterValue, float64(e.refused[r]), r)
	}
}

func truth(b bool) float64 {
	if b {
		return 1
	}
	return 0
}
