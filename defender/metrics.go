package defender

import (
	"sync"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/muster-dev/muster/partition"
	"github.com/muster-dev/muster/partition/partitionprom"

	"github.com/muster-dev/muster/defender/uchart"
)

// Metrics counts what a defender does.
type Metrics struct {
	received, failed, done, dead, alarms, fenceRejections prometheus.Counter
	verdicts                                              *prometheus.CounterVec
	taking, reading, writing, calculating, judging        prometheus.Histogram

	mu           sync.Mutex
	hits, misses uint64
	all          []prometheus.Collector
	labels       prometheus.Labels
}

// buckets of the histograms, in seconds: from a store's round trip to the
// slowest context that is still acceptable, 10 s, and beyond: a quantile is never
// told to be above the last one.
var buckets = []float64{.0005, .001, .002, .005, .01, .02, .05, .1, .2, .5, 1, 1.5, 2, 5, 10, 20, 60}

// NewMetrics returns metrics whose series carry the labels.
func NewMetrics(labels prometheus.Labels) *Metrics {
	m := &Metrics{labels: labels}
	counter := func(name, help string) prometheus.Counter {
		c := prometheus.NewCounter(prometheus.CounterOpts{Namespace: "defender", Name: name, Help: help, ConstLabels: labels})
		m.all = append(m.all, c)
		return c
	}
	histogram := func(name, help string) prometheus.Histogram {
		h := prometheus.NewHistogram(prometheus.HistogramOpts{Namespace: "defender", Name: name, Help: help, ConstLabels: labels, Buckets: buckets})
		m.all = append(m.all, h)
		return h
	}
	m.received = counter("messages_received_total", "Messages that processing was begun for, again ones included.")
	m.done = counter("messages_processed_total", "Messages whose result is stored.")
	m.failed = counter("messages_failed_total", "Attempts that ended with an error.")
	m.dead = counter("messages_dead_total", "Messages that were dead-lettered.")
	m.alarms = counter("alarms_total", "Alarms that were published.")
	m.fenceRejections = counter("fence_rejections_total", "Writes that the store refused since a newer owner has the chamber.")
	m.verdicts = prometheus.NewCounterVec(prometheus.CounterOpts{Namespace: "defender", Name: "verdicts_total",
		Help: "Contexts by what was concluded of them, again ones included.", ConstLabels: labels}, []string{"verdict"})
	m.all = append(m.all, m.verdicts)
	for s := uchart.Learning; s <= uchart.Maintenance; s++ {
		m.verdicts.WithLabelValues(s.String()) // 0, so that the first one shows as an increase
	}
	m.taking = histogram("process_time_seconds", "Time to process one message.")
	m.reading = histogram("read_seconds", "Time to read one T-chart.")
	m.writing = histogram("write_seconds", "Time to store one U-chart.")
	m.calculating = histogram("calculation_seconds", "Time to decode one T-chart and compute its statistics.")
	m.judging = histogram("judge_seconds", "Time to judge one U-chart by its history.")
	m.all = append(m.all, prometheus.NewGaugeFunc(prometheus.GaugeOpts{Namespace: "defender", Name: "cache_hit_rate",
		Help: "Share of processed messages whose history was in memory, 0 to 1.", ConstLabels: labels}, m.hitRate))
	return m
}

// cache adds what tells of the history cache.
func (m *Metrics) cache(stats func() CacheStats) {
	gauge := func(name, help string, of func(CacheStats) float64) {
		m.all = append(m.all, prometheus.NewGaugeFunc(prometheus.GaugeOpts{Namespace: "defender", Name: name, Help: help, ConstLabels: m.labels},
			func() float64 { return of(stats()) }))
	}
	gauge("cache_bytes", "Memory that the histories of chambers take, about.", func(s CacheStats) float64 { return float64(s.Bytes) })
	gauge("cache_limit_bytes", "Memory that they may take.", func(s CacheStats) float64 { return float64(s.Limit) })
	gauge("cache_chambers", "Chambers whose history is in memory.", func(s CacheStats) float64 { return float64(s.Chambers) })
	m.all = append(m.all, prometheus.NewCounterFunc(prometheus.CounterOpts{Namespace: "defender", Name: "cache_evictions_total",
		Help: "Chambers whose history went for want of room.", ConstLabels: m.labels}, func() float64 { return float64(stats().Evictions) }))
}

// Collectors returns what to register, once the defender that counts is made.
func (m *Metrics) Collectors() []prometheus.Collector { return m.all }

func (m *Metrics) hitRate() float64 {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.hits+m.misses == 0 {
		return 0
	}
	return float64(m.hits) / float64(m.hits+m.misses)
}

func (m *Metrics) processed(p Processed) {
	m.done.Inc()
	m.verdicts.WithLabelValues(p.Verdict.State.String()).Inc()
	m.taking.Observe(p.Took.Seconds())
	m.mu.Lock()
	defer m.mu.Unlock()
	if p.CacheHit {
		m.hits++
	} else {
		m.misses++
	}
}

// WorkerMetrics says how the metrics of a defender's worker are named:
// defender_active_defenders, defender_assigned_chambers. assigned counts the chambers
// in slots; nil counts the slots.
func WorkerMetrics(assigned func(partition.Slots) int) partitionprom.Options {
	return partitionprom.Options{Names: partitionprom.Names{Prefix: Group, Keys: "chamber", Workers: "defender"}, Assigned: assigned}
}
