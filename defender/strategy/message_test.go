package strategy_test

import (
	"fmt"
	"math"
	"math/rand/v2"
	"testing"

	"github.com/muster-dev/muster/defender/strategy"
	"github.com/muster-dev/muster/defender/uchart"
	"github.com/muster-dev/muster/internal/processor"
	"github.com/muster-dev/muster/tchart"
)

// BenchmarkDefaultMessage does what a message of 120,000 points asks for but the store's round
// trips, by the default strategies, in a chamber whose limits are frozen: decode the T-chart,
// compute, judge by the history, and train a model now and then. Beside it are its parts.
func BenchmarkDefaultMessage(b *testing.B) {
	const pool = 64
	var blobs [][]byte
	var charts []*uchart.Chart
	random := rand.New(rand.NewPCG(1, 2))
	for range pool {
		run := quantized(random, 100, 1200)
		blob, err := tchart.Encode(run)
		if err != nil {
			b.Fatal(err)
		}
		chart, err := uchart.Compute(run)
		if err != nil {
			b.Fatal(err)
		}
		blobs, charts = append(blobs, blob), append(charts, chart)
	}

	at := ref("tool001:chamber1", "recipe")
	set := strategy.Default()
	var past uchart.History
	var points []uchart.Point
	n := 0
	judge := func(chart *uchart.Chart) {
		points = past.AppendPoints(points[:0])
		context := fmt.Sprintf("run%06d", n)
		past.Add(context, chart, set.Judge(at, points, chart))
	}
	for ; n < 2*pool; n++ {
		judge(charts[n%pool])
	}

	var decoder tchart.Decoder
	var run tchart.Trace
	var calculator uchart.Calculator
	decode := func() {
		if err := decoder.Decode(blobs[n%pool], &run); err != nil {
			b.Fatal(err)
		}
	}
	compute := func() *uchart.Chart {
		chart, err := calculator.Compute(&run)
		if err != nil {
			b.Fatal(err)
		}
		return chart
	}
	for _, part := range []struct {
		name string
		run  func()
	}{
		{"all", func() { decode(); judge(compute()) }}, {"decode", decode}, {"compute", func() { compute() }}, {"judge", func() { judge(charts[n%pool]) }},
	} {
		b.Run(part.name, func(b *testing.B) {
			decode()
			before, first := processor.Time(), n
			for b.Loop() {
				part.run()
				n++
			}
			used := processor.Time() - before
			b.ReportMetric(used.Seconds()*1e3/float64(n-first), "cpu-ms/op")
		})
	}
}

// quantized returns a run of sensors with whole numbers, in four steps.
func quantized(random *rand.Rand, sensors, rows int) *tchart.Trace {
	t := &tchart.Trace{}
	for i := range rows {
		t.Time, t.Step = append(t.Time, float64(i)), append(t.Step, int32(1+i*4/rows))
	}
	for s := range sensors {
		level := 1000*float64(s) + 3*random.NormFloat64()
		column := make([]float64, rows)
		for i := range column {
			column[i] = math.Round(level + 20*random.NormFloat64())
		}
		t.SVIDs, t.Values = append(t.SVIDs, fmt.Sprint("SVID ", s)), append(t.Values, column)
	}
	return t
}
