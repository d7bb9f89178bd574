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
	refused     map[string]uint64 // by record
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
	// defender_chamber_movements_total and defender_assigned_chambers;
	// default "key".
	Keys string
	// Assigned returns how many keys lie in these slots; default: the number
	// of slots.
	Assigned func(slots []int) int
	// Labels are put on every series.
	Labels prometheus.Labels
}

type collector struct {
	w *Worker
	o MetricsOptions

	state, leader, id, version, assigned, slots, active *prometheus.Desc
	rebalances, moved, slotsMoved, emergencies, trust   *prometheus.Desc
	took, refused                                       *prometheus.Desc
}

// Collector returns the worker's metrics for a Prometheus registry:
// state{state}, is_leader, stable_id, assignment_version, assigned_<keys>s,
// assigned_slots, active_<prefix>s (leader only), trust_lost_total and
// records_refused_total{record}, and of the
// plans that this worker made as leader rebalance_events_total,
// rebalance_duration_seconds, <key>_movements_total, slot_movements_total and
// emergency_events_total.
func (w *Worker) Collector(o MetricsOptions) prometheus.Collector {
	defaulted(&o.Prefix, w.cfg.Name)
	defaulted(&o.Keys, "key")
	if o.Assigned == nil {
		o.Assigned = func(slots []int) int { return len(slots) }
	}
	desc := func(name, help string, labels ...string) *prometheus.Desc {
		return prometheus.NewDesc(o.Prefix+"_"+name, help, labels, o.Labels)
	}
	return &collector{w: w, o: o,
		state:       desc("state", "1 for the state that the worker is in, 0 for the others.", "state"),
		leader:      desc("is_leader", "1 while the worker leads."),
		id:          desc("stable_id", "The number in the worker's stable ID, -1 before it has one."),
		version:     desc("assignment_version", "Version of the assignment map that the worker has."),
		assigned:    desc("assigned_"+o.Keys+"s", "Keys in the slots that the worker pulls for."),
		slots:       desc("assigned_slots", "Slots that the worker pulls for."),
		active:      desc("active_"+o.Prefix+"s", "Live workers, as the leader sees them; 0 at the others."),
		rebalances:  desc("rebalance_events_total", "Plans made by this worker as leader."),
		took:        desc("rebalance_duration_seconds", "From plan to last hand-over of the last rebalance that this worker led."),
		moved:       desc(o.Keys+"_movements_total", "Keys moved by plans of this worker."),
		slotsMoved:  desc("slot_movements_total", "Slots moved by plans of this worker."),
		emergencies: desc("emergency_events_total", "Plans of this worker that a dead worker made necessary."),
		trust:       desc("trust_lost_total", "Times that the worker could not be sure of its lease and paused."),
		refused:     desc("records_refused_total", "Records of others that were not believed: not valid, too large, from the future, or of another version.", "record"),
	}
}

// Describe implements prometheus.Collector.
func (c *collector) Describe(ch chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{c.state, c.leader, c.id, c.version, c.assigned, c.slots, c.active,
		c.rebalances, c.took, c.moved, c.slotsMoved, c.emergencies, c.trust, c.refused} {
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
	gauge(c.leader, truth(s.Leading))
	gauge(c.id, float64(ordinal(s.ID)))
	gauge(c.version, float64(s.Version))
	gauge(c.assigned, float64(c.o.Assigned(s.Slots)))
	gauge(c.slots, float64(len(s.Slots)))
	gauge(c.active, float64(s.ActiveWorkers))
	e := &c.w.events
	e.mu.Lock()
	defer e.mu.Unlock()
	counter(c.rebalances, e.rebalances)
	gauge(c.took, e.lastTook.Seconds())
	counter(c.moved, e.keysMoved)
	counter(c.slotsMoved, e.slotsMoved)
	counter(c.emergencies, e.emergencies)
	counter(c.trust, e.trustLost)
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
