// Package promtest holds series for tests that ask queries of Prometheus' own engine.
package promtest

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"math"
	"slices"
	"sync"
	"time"

	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/model"
	"github.com/prometheus/prometheus/model/histogram"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/model/value"
	"github.com/prometheus/prometheus/promql"
	"github.com/prometheus/prometheus/promql/parser"
	"github.com/prometheus/prometheus/storage"
	"github.com/prometheus/prometheus/tsdb/chunkenc"
	"github.com/prometheus/prometheus/tsdb/chunks"
	"github.com/prometheus/prometheus/util/annotations"
)

// Parser is the parser of queries, rules and descriptions of series.
var Parser = parser.NewParser(parser.Options{})

// NewEngine returns an engine with Prometheus' own settings. It is to be closed.
func NewEngine() *promql.Engine {
	return promql.NewEngine(promql.EngineOpts{Logger: slog.New(slog.DiscardHandler), MaxSamples: 10_000_000, Timeout: time.Minute,
		LookbackDelta: 5 * time.Minute, Parser: Parser})
}

// Series are samples that an engine can be asked about. The zero value is empty. It may be used by several goroutines.
type Series struct {
	mu   sync.Mutex
	all  map[string]*entry // by labels
	last map[string]bool   // those that the last scrape had
	n    int               // scrapes
}

var _ storage.Queryable = (*Series)(nil)

type entry struct {
	labels  labels.Labels
	samples []chunks.Sample
}

// Describe adds a series in promtool's notation, name{labels} values, with one value every step from Unix time 0 on.
func (s *Series) Describe(desc string, step time.Duration) error {
	lset, values, err := Parser.ParseSeriesDesc(desc)
	if err != nil {
		return fmt.Errorf("reading series %q: %w", desc, err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for i, v := range values {
		if !v.Omitted {
			s.add(lset, int64(i)*step.Milliseconds(), v.Value)
		}
	}
	return nil
}

// Scraped adds what one scrape of a target found. Series that the scrape before had and this one has not are ended, as Prometheus does.
func (s *Series) Scraped(at time.Time, families []*dto.MetricFamily, target map[string]string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := map[string]bool{}
	t := at.UnixMilli()
	for _, f := range families {
		for _, m := range f.Metric {
			b := labels.NewBuilder(labels.FromMap(target))
			for _, l := range m.Label {
				b.Set(l.GetName(), l.GetValue())
			}
			put := func(name string, v float64, le ...string) {
				for _, bound := range le {
					b.Set(labels.BucketLabel, bound)
				}
				b.Set(model.MetricNameLabel, name)
				now[s.add(b.Labels(), t, v)] = true
				b.Del(labels.BucketLabel)
			}
			switch {
			case m.Counter != nil:
				put(f.GetName(), m.Counter.GetValue())
			case m.Gauge != nil:
				put(f.GetName(), m.Gauge.GetValue())
			case m.Untyped != nil:
				put(f.GetName(), m.Untyped.GetValue())
			case m.Histogram != nil:
				infinite := false
				for _, x := range m.Histogram.Bucket {
					put(f.GetName()+"_bucket", float64(x.GetCumulativeCount()), bound(x.GetUpperBound()))
					infinite = infinite || math.IsInf(x.GetUpperBound(), 1)
				}
				if !infinite {
					put(f.GetName()+"_bucket", float64(m.Histogram.GetSampleCount()), bound(math.Inf(1)))
				}
				put(f.GetName()+"_sum", m.Histogram.GetSampleSum())
				put(f.GetName()+"_count", float64(m.Histogram.GetSampleCount()))
			}
		}
	}
	for key := range s.last {
		if !now[key] {
			s.add(s.all[key].labels, t, math.Float64frombits(value.StaleNaN))
		}
	}
	s.last = now
	s.n++
}

// Scrapes returns how often Scraped was called.
func (s *Series) Scrapes() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.n
}

func bound(le float64) string {
	if math.IsInf(le, 1) {
		return "+Inf"
	}
	return fmt.Sprint(le)
}

// add adds a sample and returns its series' key.
func (s *Series) add(l labels.Labels, t int64, v float64) string {
	if s.all == nil {
		s.all = map[string]*entry{}
	}
	key := l.String()
	e := s.all[key]
	if e == nil {
		e = &entry{labels: l}
		s.all[key] = e
	}
	e.samples = append(e.samples, sample{t, v})
	return key
}

// Names returns the names of all series, sorted.
func (s *Series) Names() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	var names []string
	for _, e := range s.all {
		names = append(names, e.labels.Get(model.MetricNameLabel))
	}
	slices.Sort(names)
	return slices.Compact(names)
}

// Querier implements storage.Queryable.
func (s *Series) Querier(int64, int64) (storage.Querier, error) { return querier{s}, nil }

type querier struct{ s *Series }

// Select implements storage.Querier.
func (q querier) Select(_ context.Context, _ bool, hints *storage.SelectHints, ms ...*labels.Matcher) storage.SeriesSet {
	q.s.mu.Lock()
	defer q.s.mu.Unlock()
	var out []storage.Series
	for _, e := range q.s.all {
		if slices.ContainsFunc(ms, func(m *labels.Matcher) bool { return !m.Matches(e.labels.Get(m.Name)) }) {
			continue
		}
		if samples := e.within(hints); len(samples) > 0 {
			out = append(out, storage.NewListSeries(e.labels, slices.Clone(samples)))
		}
	}
	slices.SortFunc(out, func(a, b storage.Series) int { return labels.Compare(a.Labels(), b.Labels()) })
	return &seriesSet{all: out}
}

// within returns the samples that a query needs, all without hints.
func (e *entry) within(hints *storage.SelectHints) []chunks.Sample {
	if hints == nil {
		return e.samples
	}
	first, _ := slices.BinarySearchFunc(e.samples, hints.Start, func(s chunks.Sample, at int64) int { return cmp.Compare(s.T(), at) })
	last, _ := slices.BinarySearchFunc(e.samples, hints.End+1, func(s chunks.Sample, at int64) int { return cmp.Compare(s.T(), at) })
	return e.samples[first:max(first, last)]
}

// LabelValues implements storage.LabelQuerier; the engine does not ask for it.
func (q querier) LabelValues(context.Context, string, *storage.LabelHints, ...*labels.Matcher) ([]string, annotations.Annotations, error) {
	return nil, nil, nil
}

// LabelNames implements storage.LabelQuerier; the engine does not ask for it.
func (q querier) LabelNames(context.Context, *storage.LabelHints, ...*labels.Matcher) ([]string, annotations.Annotations, error) {
	return nil, nil, nil
}

// Close implements storage.Querier.
func (q querier) Close() error { return nil }

type seriesSet struct {
	all []storage.Series
	at  int
}

func (s *seriesSet) Next() bool                        { s.at++; return s.at <= len(s.all) }
func (s *seriesSet) At() storage.Series                { return s.all[s.at-1] }
func (s *seriesSet) Err() error                        { return nil }
func (s *seriesSet) Warnings() annotations.Annotations { return nil }

type sample struct {
	t int64
	v float64
}

func (s sample) T() int64                      { return s.t }
func (s sample) ST() int64                     { return 0 }
func (s sample) F() float64                    { return s.v }
func (s sample) H() *histogram.Histogram       { return nil }
func (s sample) FH() *histogram.FloatHistogram { return nil }
func (s sample) Type() chunkenc.ValueType      { return chunkenc.ValFloat }
func (s sample) Copy() chunks.Sample           { return s }
