package uchart_test

import (
	"fmt"
	"math"
	"math/rand/v2"
	"testing"

	"github.com/muster-dev/muster/defender/uchart"
	"github.com/muster-dev/muster/internal/processor"
	"github.com/muster-dev/muster/tchart"
)

// large makes a trace of quantized sensors in four steps.
func large(rng *rand.Rand, svids, rows int) *tchart.Trace {
	tr := &tchart.Trace{}
	for i := range rows {
		tr.Time = append(tr.Time, float64(i))
		tr.Step = append(tr.Step, int32(1+i*4/rows))
	}
	for s := range svids {
		c := make([]float64, rows)
		level := 1000*float64(s) + 3*rng.NormFloat64()
		for i := range c {
			c[i] = math.Round(level + 20*rng.NormFloat64())
		}
		tr.SVIDs, tr.Values = append(tr.SVIDs, fmt.Sprint("SVID ", s)), append(tr.Values, c)
	}
	return tr
}

// BenchmarkMessage does what one message asks for but the store's round trips:
// decode the T-chart, compute, and judge by 100 earlier contexts. Beside it are its
// parts, and a loop that only adds the decoded floats up.
func BenchmarkMessage(b *testing.B) {
	for _, size := range []struct{ svids, rows, history int }{{20, 100, 100}, {100, 1200, 100}, {500, 7200, 30}} {
		rng := rand.New(rand.NewPCG(1, 2))
		var history []uchart.Point
		for i := range size.history {
			history = append(history, uchart.Point{Context: fmt.Sprint("run", i), Chart: chartOf(b, large(rng, size.svids, 120))})
		}
		tr := large(rng, size.svids, size.rows)
		for i := range history { // as long as the trace at hand
			for cell := range history[i].Chart.Valid {
				history[i].Chart.Values[cell*uchart.NumStatistics] = float64(size.rows / 4)
			}
			history[i].Content = history[i].Chart.Content() // as its verdict has it
		}
		blob, err := tchart.Encode(tr)
		if err != nil {
			b.Fatal(err)
		}
		var dec tchart.Decoder
		var got tchart.Trace
		var calc uchart.Calculator
		judge := uchart.Judger{Policy: uchart.Policy{FalseAlarms: 0.005, Multivariate: uchart.MultivariatePolicy{FalseAlarms: 0.005}}}
		decode := func() {
			if err := dec.Decode(blob, &got); err != nil {
				b.Fatal(err)
			}
		}
		var chart *uchart.Chart
		compute := func() {
			if chart, err = calc.Compute(&got); err != nil {
				b.Fatal(err)
			}
		}
		train := func() { (&uchart.Judger{Policy: judge.Policy}).Judge(history, chart) }
		verdict := func() { judge.Judge(history, chart) }
		sink := 0.0
		for _, part := range []struct {
			name string
			run  func()
		}{
			{"all", func() { decode(); compute(); verdict() }}, {"decode", decode}, {"compute", compute}, {"judge", verdict}, {"judge and train", train},
			{"plain loop", func() {
				for _, c := range got.Values {
					for _, v := range c {
						sink += v
					}
				}
			}},
		} {
			b.Run(fmt.Sprintf("%d points/%s", tr.Points(), part.name), func(b *testing.B) {
				decode()
				compute()
				verdict() // trains the model, which serves several contexts
				before, n := processor.Time(), 0
				for b.Loop() {
					part.run()
					n++
				}
				used := processor.Time() - before
				b.ReportMetric(used.Seconds()*1e3/float64(n), "cpu-ms/op")
				if used > 0 {
					b.ReportMetric(float64(tr.Points())*float64(n)/used.Seconds()/1e6, "Mpoints/cpu-s")
				}
			})
		}
	}
}
