package e2e

import (
	"context"
	"fmt"
	"math"
	"math/rand/v2"
	"runtime"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/muster-dev/muster/defender"
	"github.com/muster-dev/muster/defender/replay"
	"github.com/muster-dev/muster/defender/strategy"
	"github.com/muster-dev/muster/defender/trace"
	"github.com/muster-dev/muster/defender/uchart"
	"github.com/muster-dev/muster/tchart"
)

const (
	loadName       = "load"
	caseStrategies = "strategies" // judged by the default strategies
)

// Histories: as many contexts as a defender keeps by default, and fewer where the
// charts of one are large.
const (
	loadHistory      = 100
	loadHistoryLarge = 30
	largePoints      = 20_000
)

// pool is the traces that a load consists of. Chambers share them, so that what is
// measured is not the writing of T-charts; each message is for a context of its own
// and has its T-chart read, decoded and judged.
type pool struct {
	source  replay.Source
	first   int // chamber of the source that is the first one here: those before are followed through faults
	history int // earlier contexts of each chamber

	traces []pooled
	at     map[*float64]int // by the trace's first time
}

type pooled struct {
	trace tchart.Trace
	key   defender.TChartKey
	blob  []byte
	chart *uchart.Chart
}

// poolChamber is whose T-charts the traces are in the store.
var poolChamber = defender.Chamber{Tool: "load", Name: "traces"}

// rounds is after how many contexts a chamber has had all traces that it will have.
const rounds = 200

func newPool(ctx context.Context, s *session) (*pool, error) {
	p := &pool{source: s.Source, first: len(s.Source.Followed()), history: loadHistory, at: map[*float64]int{}}
	if s.o.Points > 0 {
		p.source, p.first = steadyTraces(s.o.Seed, s.o.Points), 0
	}
	if s.o.Points > largePoints {
		p.history = loadHistoryLarge
	}
	var enc tchart.Encoder
	for chamber := range min(s.o.Chambers, rounds) {
		for n := range rounds {
			if err := p.enter(ctx, s.Store, &enc, p.source.Sample(p.first+chamber, n).Trace); err != nil {
				return nil, err
			}
		}
	}
	return p, nil
}

// enter makes a trace's T-chart durable, unless it is.
func (p *pool) enter(ctx context.Context, store defender.Store, enc *tchart.Encoder, t tchart.Trace) error {
	if len(t.Time) == 0 {
		return fmt.Errorf("trace %s has no sample: give others with --data", t.Context)
	}
	if _, known := p.at[&t.Time[0]]; known {
		return nil
	}
	x := pooled{trace: t, key: defender.TChartKey{Chamber: poolChamber, Context: fmt.Sprintf("trace%03d", len(p.traces))}}
	var err error
	if x.blob, err = enc.Append(nil, &t); err != nil {
		return fmt.Errorf("encoding trace %s: %w", t.Context, err)
	}
	if x.chart, err = uchart.Compute(&t); err != nil {
		return fmt.Errorf("computing the chart of trace %s: %w", t.Context, err)
	}
	p.at[&t.Time[0]] = len(p.traces)
	p.traces = append(p.traces, x)
	return store.PutTChart(ctx, x.key, x.blob, time.Now().Add(7*24*time.Hour))
}

// of returns the number of the trace of a chamber's n-th context.
func (p *pool) of(chamber, n int) int {
	return p.at[&p.source.Sample(p.first+chamber, n).Trace.Time[0]]
}

func (p *pool) points() float64 {
	sum := 0
	for _, x := range p.traces {
		sum += x.trace.Points()
	}
	return float64(sum) / float64(len(p.traces))
}

func (p *pool) bytesPerPoint() float64 {
	sum := 0
	for _, x := range p.traces {
		sum += len(x.blob)
	}
	return float64(sum) / float64(len(p.traces)) / p.points()
}

// Names of contexts end with the number of their trace.
const traceMark = ".t"

func withTrace(name string, at int) string { return name + traceMark + strconv.Itoa(at) }

// ref describes a context.
func (p *pool) ref(chamber defender.Chamber, name string, at int, end time.Time) defender.ContextRef {
	t := &p.traces[at].trace
	return defender.ContextRef{Chamber: chamber, ID: withTrace(name, at), Recipe: t.Recipe, Product: t.Product, Lot: t.Lot, Wafer: t.Wafer,
		Start: end.Add(-replay.Length(t)), End: end}
}

// sharedTraces is a store in which a context's T-chart is that of its trace.
type sharedTraces struct {
	defender.Store
	pool *pool
}

// TChart implements defender.Store.
func (s sharedTraces) TChart(ctx context.Context, key defender.TChartKey) ([]byte, error) {
	_, number, _ := strings.Cut(key.Context, traceMark)
	at, err := strconv.Atoi(number)
	if err != nil || at < 0 || at >= len(s.pool.traces) {
		return nil, fmt.Errorf("reading T-chart %s: %w", key, defender.ErrNotFound)
	}
	return s.Store.TChart(ctx, s.pool.traces[at].key)
}

// seed stores the earlier contexts of all chambers, with the verdicts that a
// defender would have given: a load on chambers without history is a lighter one,
// and their memory grows.
func (p *pool) seed(ctx context.Context, s *session) error {
	var by defender.Strategies = victim{standard: new(uchart.Judger).Judge}
	if s.o.Case == caseStrategies {
		by = strategy.Default()
	}
	ends := time.Now().Add(-time.Duration(p.history) * time.Second)
	// Chambers with the same traces have the same history, under the same names.
	series := map[string][]int{} // chambers
	for chamber := range s.Chambers {
		var b strings.Builder
		for n := range p.history {
			fmt.Fprintf(&b, "%d ", p.of(chamber, n))
		}
		series[b.String()] = append(series[b.String()], chamber)
	}
	g, ctx := errgroup.WithContext(ctx)
	g.SetLimit(64 * runtime.GOMAXPROCS(0))
	for _, chambers := range series {
		rows := p.judged(by, s.Chambers[chambers[0]], chambers[0], ends)
		for _, chamber := range chambers {
			g.Go(func() error {
				for _, u := range rows {
					u.Context.Chamber = s.Chambers[chamber]
					r := defender.NewResult(u.Context, u.Chart, u.Verdict, time.Now().Add(365*24*time.Hour))
					if _, err := s.Store.Commit(ctx, defender.Fence{}, r); err != nil {
						return err
					}
				}
				return nil
			})
		}
	}
	if err := g.Wait(); err != nil {
		return fmt.Errorf("storing earlier contexts: %w", err)
	}
	return nil
}

// judged returns the earlier contexts of a chamber.
func (p *pool) judged(by defender.Strategies, chamber defender.Chamber, number int, from time.Time) []defender.UChart {
	var rows []defender.UChart
	var past uchart.History
	for n := range p.history {
		at := p.of(number, n)
		ref := p.ref(chamber, fmt.Sprintf("seed%03d", n), at, from.Add(time.Duration(n)*time.Second))
		chart := p.traces[at].chart
		v := past.Add(ref.ID, chart, by.Judge(ref, past.Points(), chart))
		rows = append(rows, defender.UChart{Context: ref, Chart: chart, Verdict: v})
	}
	return rows
}

// repeated is a Source of a few normal traces, each chamber from another one on.
type repeated []*trace.Wafer

func (r repeated) Followed() map[int]int { return nil }

func (r repeated) Sample(chamber, n int) replay.Sample {
	return replay.Sample{Trace: r[(chamber*7+n)%len(r)].Trace}
}

// steadyTraces returns traces of about this many points: up to 100 sensors, read once
// a second in whole units, with a level of their own in each run, in four steps.
func steadyTraces(seed uint64, points int) replay.Source {
	const count, sensors, steps = 16, 100, 4
	svids := max(1, min(sensors, points/(4*steps)))
	rows := max(1, points/svids)
	rng := rand.New(rand.NewPCG(seed, 3))
	var all repeated
	for n := range count {
		w := &trace.Wafer{Trace: tchart.Trace{Context: fmt.Sprint("steady", n), Wafer: fmt.Sprint(n), Recipe: "steady"}}
		t := &w.Trace
		for i := range rows {
			t.Time = append(t.Time, float64(i))
			t.Step = append(t.Step, int32(1+i*steps/rows))
		}
		for at := range svids {
			column := make([]float64, rows)
			level := 1000*float64(at+1) + 3*rng.NormFloat64()
			for i := range column {
				column[i] = math.Round(level + 20*rng.NormFloat64())
			}
			t.SVIDs, t.Values = append(t.SVIDs, fmt.Sprint("Sensor ", at+1)), append(t.Values, column)
		}
		all = append(all, w)
	}
	return all
}
