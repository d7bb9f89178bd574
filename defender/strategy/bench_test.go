package strategy_test

import (
	"fmt"
	"testing"

	"github.com/muster-dev/muster/defender/strategy"
	"github.com/muster-dev/muster/defender/trace"
	"github.com/muster-dev/muster/defender/uchart"
	"github.com/muster-dev/muster/internal/processor"
)

// BenchmarkDefaultStrategies judges contexts of a chamber one after the other, with
// a history of 100 and all that a defender remembers, so that now and then a model of
// principal components is trained; beside it the same without those.
func BenchmarkDefaultStrategies(b *testing.B) {
	const history, pool = 100, 300
	generator := trace.Generator{Seed: 1}
	var charts []*uchart.Chart
	for i := range pool {
		chart, err := uchart.Compute(&generator.Wafer(i).Trace)
		if err != nil {
			b.Fatal(err)
		}
		charts = append(charts, chart)
	}
	for name, set := range map[string]*strategy.Set{"default": strategy.Default(), "univariate": univariate(b)} {
		b.Run(name, func(b *testing.B) {
			at := ref("tool001:chamber1", "recipe")
			var points []uchart.Point
			judge := func(i int) {
				if len(points) == 2*history {
					points = append([]uchart.Point(nil), points[history:]...)
				}
				chart, context := charts[i%pool], fmt.Sprintf("run%06d", i)
				v := set.Judge(at, points[max(0, len(points)-history):], chart)
				points = append(points, uchart.NewPoint(context, chart, v))
			}
			n := 0
			for ; n < 2*history; n++ {
				judge(n)
			}
			b.ReportAllocs()
			before, first := processor.Time(), n
			for b.Loop() {
				judge(n)
				n++
			}
			used := processor.Time() - before
			b.ReportMetric(used.Seconds()*1e3/float64(n-first), "cpu-ms/op")
		})
	}
}

func univariate(b *testing.B) *strategy.Set {
	set, err := strategy.Parse([]byte("schema: 1\nversion: 1\nstrategies: [{name: default, multivariate: {enabled: false}}]\n"), "univariate")
	if err != nil {
		b.Fatal(err)
	}
	return set
}
