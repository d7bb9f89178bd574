package promapi

import (
	"context"
	"math"
	"slices"
	"sync"

	"github.com/prometheus/common/model"
	"github.com/prometheus/prometheus/model/histogram"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/model/value"
	"github.com/prometheus/prometheus/storage"
	"github.com/prometheus/prometheus/tsdb/chunkenc"
	"github.com/prometheus/prometheus/tsdb/chunks"
	"github.com/prometheus/prometheus/util/annotations"
)

// history keeps the samples of all series. All targets are scraped at the same moments, which are numbered; a series is a list of
// runs over these numbers. Most series are constant and a CPU counter is linear as long as the load is, so that an hour of a
// thousand nodes takes little more memory than its labels. It implements storage.Queryable.
type history struct {
	mu     sync.RWMutex
	times  []int64 // of the scrapes, in milliseconds
	first  int     // number of times[0]
	keep   int64   // milliseconds
	byName map[string][]*series
	byKey  map[string]*series // by all labels
	half   bool               // leave out every other target of many, as a store that is partly gone does
}

// series is one series; its runs are in order and don't overlap.
type series struct {
	labels labels.Labels
	odd    bool // of the half that is left out while history.half
	runs   []run
}

// run is an unbroken sequence of samples on a straight line.
type run struct {
	from, to int     // numbers of scrapes, both included
	start    int64   // time at which value holds, in milliseconds
	value    float64 // stale markers are NaN of the kind that Prometheus uses
	slope    float64 // per second
}

func (r run) at(t int64) float64 {
	if r.slope == 0 {
		return r.value // also keeps the bits of a stale marker
	}
	return r.value + r.slope*float64(t-r.start)/1000
}

func newHistory(keep int64) *history {
	return &history{keep: keep, byName: map[string][]*series{}, byKey: map[string]*series{}}
}

// begin starts a scrape at a time and returns its number. A quarter of what is kept may be older than it should be.
func (h *history) begin(t int64) int {
	h.times = append(h.times, t)
	if n, _ := slices.BinarySearch(h.times, t-h.keep); n > 0 && n >= len(h.times)/4 {
		h.times = slices.Clone(h.times[n:])
		h.first += n
		h.trim()
	}
	return h.last()
}

func (h *history) last() int { return h.first + len(h.times) - 1 }

func (h *history) trim() {
	for name, list := range h.byName {
		list = slices.DeleteFunc(list, func(s *series) bool {
			i := 0
			for i < len(s.runs) && s.runs[i].to < h.first {
				i++
			}
			s.runs = slices.Clone(s.runs[i:])
			if len(s.runs) > 0 {
				s.runs[0].from = max(s.runs[0].from, h.first)
				return false
			}
			delete(h.byKey, string(s.labels.Bytes(nil)))
			return true
		})
		if len(list) == 0 {
			delete(h.byName, name)
		} else {
			h.byName[name] = list
		}
	}
}

// named returns the series of a name and labels; it may have been there before and ended.
func (h *history) named(name string, odd bool, more ...string) *series {
	l := labels.FromStrings(append([]string{model.MetricNameLabel, name}, more...)...)
	key := string(l.Bytes(nil))
	s := h.byKey[key]
	if s == nil {
		s = &series{labels: l, odd: odd}
		h.byKey[key] = s
		h.byName[name] = append(h.byName[name], s)
	}
	return s
}

// set appends a gauge's value to the scrape that has begun.
func (h *history) set(s *series, v float64) { h.append(s, v, 0) }

// count appends a counter that grows by slope per second from now on. Between two appends it has grown as it was said to.
func (h *history) count(s *series, slope float64) {
	v := 0.0
	if last := s.last(); last != nil {
		v = last.at(h.times[len(h.times)-1])
		if last.slope == slope && last.to == h.last()-1 {
			last.to++
			return
		}
	}
	h.append(s, v, slope)
}

// last returns the last run of real values.
func (s *series) last() *run {
	for i := len(s.runs) - 1; i >= 0; i-- {
		if !value.IsStaleNaN(s.runs[i].value) {
			return &s.runs[i]
		}
	}
	return nil
}

func (h *history) append(s *series, v, slope float64) {
	n := h.last()
	if k := len(s.runs) - 1; k >= 0 {
		last := &s.runs[k]
		if last.to == n {
			return
		}
		if last.to == n-1 && slope == 0 && last.slope == 0 && math.Float64bits(last.value) == math.Float64bits(v) {
			last.to = n
			return
		}
	}
	s.runs = append(s.runs, run{from: n, to: n, start: h.times[len(h.times)-1], value: v, slope: slope})
}

// end marks a series as gone, as Prometheus does when a scrape fails or no longer has it.
func (h *history) end(s *series) {
	if k := len(s.runs) - 1; k >= 0 && !value.IsStaleNaN(s.runs[k].value) {
		h.append(s, math.Float64frombits(value.StaleNaN), 0)
	}
}

// ---- what the engine needs

// Querier is storage.Queryable's.
func (h *history) Querier(mint, maxt int64) (storage.Querier, error) {
	return &querier{h: h, mint: mint, maxt: maxt}, nil
}

type querier struct {
	h          *history
	mint, maxt int64
}

// Select copies what the engine will read, so that it needs no lock while it evaluates.
func (q *querier) Select(_ context.Context, _ bool, _ *storage.SelectHints, matchers ...*labels.Matcher) storage.SeriesSet {
	h := q.h
	h.mu.RLock()
	defer h.mu.RUnlock()
	set := &seriesSet{}
	for _, s := range h.candidates(matchers) {
		if h.half && s.odd || !matches(s.labels, matchers) {
			continue
		}
		if runs := h.between(s.runs, q.mint, q.maxt); len(runs) > 0 {
			set.list = append(set.list, &view{labels: s.labels, times: h.times, first: h.first, runs: runs})
		}
	}
	slices.SortFunc(set.list, func(a, b *view) int { return labels.Compare(a.labels, b.labels) })
	return set
}

func (h *history) candidates(matchers []*labels.Matcher) []*series {
	for _, m := range matchers {
		if m.Name == model.MetricNameLabel && m.Type == labels.MatchEqual {
			return h.byName[m.Value]
		}
	}
	var all []*series
	for _, list := range h.byName {
		all = append(all, list...)
	}
	return all
}

func matches(l labels.Labels, matchers []*labels.Matcher) bool {
	for _, m := range matchers {
		if !m.Matches(l.Get(m.Name)) {
			return false
		}
	}
	return true
}

// between returns the runs that have a sample within a range of time.
func (h *history) between(runs []run, mint, maxt int64) []run {
	lo, _ := slices.BinarySearch(h.times, mint)
	hi, found := slices.BinarySearch(h.times, maxt)
	if !found {
		hi--
	}
	var out []run
	for _, r := range runs {
		if r.to >= h.first+lo && r.from <= h.first+hi {
			r.from = max(r.from, h.first)
			out = append(out, r)
		}
	}
	return out
}

// LabelValues is storage.LabelQuerier's.
func (q *querier) LabelValues(_ context.Context, name string, _ *storage.LabelHints, matchers ...*labels.Matcher) ([]string, annotations.Annotations, error) {
	return q.distinct(matchers, func(l labels.Labels, add func(string)) { add(l.Get(name)) }), nil, nil
}

// LabelNames is storage.LabelQuerier's.
func (q *querier) LabelNames(_ context.Context, _ *storage.LabelHints, matchers ...*labels.Matcher) ([]string, annotations.Annotations, error) {
	return q.distinct(matchers, func(l labels.Labels, add func(string)) { l.Range(func(l labels.Label) { add(l.Name) }) }), nil, nil
}

func (q *querier) distinct(matchers []*labels.Matcher, each func(labels.Labels, func(string))) []string {
	q.h.mu.RLock()
	defer q.h.mu.RUnlock()
	seen := map[string]bool{}
	for _, s := range q.h.candidates(matchers) {
		if matches(s.labels, matchers) {
			each(s.labels, func(v string) { seen[v] = true })
		}
	}
	delete(seen, "")
	out := make([]string, 0, len(seen))
	for v := range seen {
		out = append(out, v)
	}
	slices.Sort(out)
	return out
}

// Close is storage.Querier's.
func (q *querier) Close() error { return nil }

type seriesSet struct {
	list []*view
	i    int
}

// Next is storage.SeriesSet's.
func (s *seriesSet) Next() bool { s.i++; return s.i <= len(s.list) }

// At is storage.SeriesSet's.
func (s *seriesSet) At() storage.Series { return s.list[s.i-1] }

// Err is storage.SeriesSet's.
func (s *seriesSet) Err() error { return nil }

// Warnings is storage.SeriesSet's.
func (s *seriesSet) Warnings() annotations.Annotations { return nil }

// view is a series as it was when it was selected.
type view struct {
	labels labels.Labels
	times  []int64
	first  int
	runs   []run
}

// Labels is storage.Series'.
func (v *view) Labels() labels.Labels { return v.labels }

// Iterator is storage.Series'.
func (v *view) Iterator(chunkenc.Iterator) chunkenc.Iterator {
	return storage.NewListSeriesIterator(&cursor{view: v})
}

// cursor shows a view as a list of samples; it remembers where it is, because it is read from front to back.
type cursor struct {
	*view
	run     int // the run that holds the sample asked for last
	before  int // samples before that run
	current sample
}

// Len is storage.Samples'.
func (c *cursor) Len() int {
	n := 0
	for _, r := range c.runs {
		n += r.to - r.from + 1
	}
	return n
}

// Get is storage.Samples'. The sample is valid until the next call.
func (c *cursor) Get(i int) chunks.Sample {
	if i < c.before {
		c.run, c.before = 0, 0
	}
	for n := c.length(); i-c.before >= n; n = c.length() {
		c.before += n
		c.run++
	}
	r := c.runs[c.run]
	t := c.times[r.from+i-c.before-c.first]
	c.current = sample{t, r.at(t)}
	return &c.current
}

func (c *cursor) length() int { return c.runs[c.run].to - c.runs[c.run].from + 1 }

// sample is a number at a time; it implements chunks.Sample. These exporters have neither histograms nor start times.
type sample struct {
	t int64
	v float64
}

func (s *sample) T() int64                      { return s.t }
func (s *sample) ST() int64                     { return 0 }
func (s *sample) F() float64                    { return s.v }
func (s *sample) H() *histogram.Histogram       { return nil }
func (s *sample) FH() *histogram.FloatHistogram { return nil }
func (s *sample) Type() chunkenc.ValueType      { return chunkenc.ValFloat }
func (s *sample) Copy() chunks.Sample           { c := *s; return &c }
