package uchart_test

import (
	"fmt"
	"math"
	"math/rand/v2"
	"reflect"
	"slices"
	"testing"

	"github.com/muster-dev/muster/defender/uchart"
	"github.com/muster-dev/muster/tchart"
)

var nan, inf = math.NaN(), math.Inf(1)

// oneSVID returns a trace of a single SVID.
func oneSVID(time []float64, step []int32, values []float64) *tchart.Trace {
	return &tchart.Trace{SVIDs: []string{"x"}, Time: time, Step: step, Values: [][]float64{values}}
}

func TestDefinedResults(t *testing.T) {
	t.Parallel()
	const none = 12345 // stands for not valid
	steps := func(n int) []int32 { return slices.Repeat([]int32{4}, n) }
	for _, test := range []struct {
		behaviour string
		trace     *tchart.Trace
		want      [][uchart.NumStatistics]float64 // by step
		quality   uchart.Quality
	}{
		{
			"a ramp has its slope and area by the real timestamps",
			oneSVID([]float64{0, 1, 3}, steps(3), []float64{2, 4, 8}),
			[][8]float64{{3, 14.0 / 3, math.Sqrt(28.0 / 3), 2, 8, 6, 2, 15}},
			uchart.Quality{Rows: 3, Duration: 3, Longest: 2},
		}, {
			"a constant has no spread and no slope",
			oneSVID([]float64{0, 1, 2}, steps(3), []float64{0.1, 0.1, 0.1}),
			[][8]float64{{3, 0.1, 0, 0.1, 0.1, 0, 0, 0.2}},
			uchart.Quality{Rows: 3, Duration: 2, Longest: 1},
		}, {
			"one sample has no deviation, slope or area",
			oneSVID([]float64{7}, steps(1), []float64{-3}),
			[][8]float64{{1, -3, none, -3, -3, 0, none, none}},
			uchart.Quality{Rows: 1},
		}, {
			"no rows make a chart without steps",
			oneSVID(nil, nil, nil), nil, uchart.Quality{},
		}, {
			"NaN and infinities are left out and counted, the area spans them",
			oneSVID([]float64{0, 1, 2, 3, 4}, steps(5), []float64{nan, 1, inf, -inf, 3}),
			[][8]float64{{2, 2, math.Sqrt2, 1, 3, 2, 2.0 / 3, 6}},
			uchart.Quality{Rows: 5, Missing: 3, Duration: 4, Longest: 1},
		}, {
			"nothing but NaN is count 0",
			oneSVID([]float64{0, 1}, steps(2), []float64{nan, nan}),
			[][8]float64{{0, none, none, none, none, none, none, none}},
			uchart.Quality{Rows: 2, Missing: 2, Duration: 1, Longest: 1},
		}, {
			"rows before an earlier row are left out and counted",
			oneSVID([]float64{10, 11, 5, 10.5, 11, 12}, steps(6), []float64{1, 1, 100, 100, 4, 2}),
			[][8]float64{{4, 2, math.Sqrt2, 1, 4, 3, 0.5, 4}},
			uchart.Quality{Rows: 6, Backward: 2, Duration: 2, Longest: 1},
		}, {
			"rows without a time are left out and counted",
			oneSVID([]float64{nan, 1, inf, 2}, steps(4), []float64{9, 1, 9, 3}),
			[][8]float64{{2, 2, math.Sqrt2, 1, 3, 2, 2, 2}},
			uchart.Quality{Rows: 4, BadTime: 2, Duration: 1, Longest: 1},
		}, {
			"samples at one time have no slope",
			oneSVID([]float64{1, 1}, steps(2), []float64{1, 3}),
			[][8]float64{{2, 2, math.Sqrt2, 1, 3, 2, none, 0}},
			uchart.Quality{Rows: 2},
		}, {
			"steps are apart, and one that comes back is one step without area between",
			oneSVID([]float64{0, 1, 2, 3, 4}, []int32{5, 5, 4, 5, 5}, []float64{1, 1, 7, 3, 3}),
			[][8]float64{{1, 7, none, 7, 7, 0, none, none}, {4, 2, math.Sqrt(4.0 / 3), 1, 3, 2, 6.0 / 10, 4}},
			uchart.Quality{Rows: 5, Duration: 4, Longest: 1},
		}, {
			"a gap is counted and spanned",
			oneSVID([]float64{0, 1, 2, 3, 4, 5, 6, 7, 8, 108}, steps(10), slices.Repeat([]float64{1, 1}, 5)),
			[][8]float64{{10, 1, 0, 1, 1, 0, 0, 108}},
			uchart.Quality{Rows: 10, Gaps: 1, Duration: 108, Longest: 100},
		}, {
			"what overflows is not valid",
			oneSVID([]float64{0, 1}, steps(2), []float64{math.MaxFloat64, -math.MaxFloat64}),
			[][8]float64{{2, none, none, -math.MaxFloat64, math.MaxFloat64, none, none, 0}},
			uchart.Quality{Rows: 2, Duration: 1, Longest: 1},
		},
	} {
		t.Run(test.behaviour, func(t *testing.T) {
			t.Parallel()
			chart, err := uchart.Compute(test.trace)
			if err != nil {
				t.Fatal(err)
			}
			if chart.Quality != test.quality {
				t.Errorf("quality is %+v, want %+v", chart.Quality, test.quality)
			}
			if len(chart.Steps) != len(test.want) {
				t.Fatalf("steps are %v, want %d", chart.Steps, len(test.want))
			}
			for step, want := range test.want {
				for s := range uchart.Statistic(uchart.NumStatistics) {
					got, ok := chart.Value(0, step, s)
					if ok != (want[s] != none) || ok && math.Abs(got-want[s]) > 1e-14*math.Abs(want[s]) {
						t.Errorf("step %d: %s = %v, %t, want %v", chart.Steps[step], s, got, ok, want[s])
					}
				}
			}
		})
	}
}

func TestLargeMeansLoseNoDigits(t *testing.T) {
	t.Parallel()
	// The deviations are exact in binary, so the statistics about the mean are
	// the same with and without the offset.
	rng := rand.New(rand.NewPCG(1, 1))
	const n = 10_001
	var time, small, large []float64
	for i := range n {
		time = append(time, float64(i)/4)
		v := float64(rng.IntN(64)) / 64
		small = append(small, v)
		large = append(large, v+1<<36)
	}
	tr := &tchart.Trace{SVIDs: []string{"small", "large"}, Time: time, Step: make([]int32, n), Values: [][]float64{small, large}}
	chart, err := uchart.Compute(tr)
	if err != nil {
		t.Fatal(err)
	}
	for _, s := range []uchart.Statistic{uchart.StdDev, uchart.Range, uchart.Slope} {
		a, _ := chart.Value(0, 0, s)
		b, _ := chart.Value(1, 0, s)
		if math.Abs(a-b) > 1e-10*math.Abs(a) {
			t.Errorf("%s is %v without and %v with a large mean", s, a, b)
		}
	}
}

func TestComputingAgainGivesTheSameBits(t *testing.T) {
	t.Parallel()
	var calc uchart.Calculator
	for _, tr := range []*tchart.Trace{randomTrace(300, 7, 3), randomTrace(10, 1, 1), randomTrace(1000, 3, 5)} {
		first, err := uchart.Compute(tr)
		if err != nil {
			t.Fatal(err)
		}
		again, err := calc.Compute(tr)
		if err != nil {
			t.Fatal(err)
		}
		a, err := first.MarshalBinary()
		if err != nil {
			t.Fatal(err)
		}
		b, err := again.MarshalBinary()
		if err != nil || !slices.Equal(a, b) {
			t.Errorf("a calculator used before gives another chart (error %v)", err)
		}
	}
}

func TestChartsComeBackToTheBit(t *testing.T) {
	t.Parallel()
	want, err := uchart.Compute(randomTrace(300, 7, 3))
	if err != nil {
		t.Fatal(err)
	}
	data, err := want.MarshalBinary()
	if err != nil {
		t.Fatal(err)
	}
	got := new(uchart.Chart)
	if err := got.UnmarshalBinary(data); err != nil || !reflect.DeepEqual(want, got) {
		t.Fatalf("chart comes back as %+v, %v", got, err)
	}
	for n := range data {
		if got.UnmarshalBinary(data[:n]) == nil {
			t.Fatalf("the first %d of %d bytes are accepted", n, len(data))
		}
	}
	for i := range data {
		broken := slices.Clone(data)
		broken[i] ^= 0x10
		if got.UnmarshalBinary(broken) == nil {
			t.Fatalf("a change in byte %d is accepted", i)
		}
	}
}

func FuzzUnmarshalChart(f *testing.F) {
	chart, err := uchart.Compute(randomTrace(20, 2, 2))
	if err != nil {
		f.Fatal(err)
	}
	data, err := chart.MarshalBinary()
	if err != nil {
		f.Fatal(err)
	}
	f.Add(data)
	f.Fuzz(func(t *testing.T, data []byte) {
		var c uchart.Chart
		if c.UnmarshalBinary(data) != nil {
			return
		}
		again, err := c.MarshalBinary()
		if err != nil {
			t.Fatal(err)
		}
		var d uchart.Chart
		if err := d.UnmarshalBinary(again); err != nil {
			t.Fatal(err)
		}
	})
}

func randomTrace(rows, svids, steps int) *tchart.Trace {
	rng := rand.New(rand.NewPCG(uint64(rows), uint64(svids)))
	tr := &tchart.Trace{}
	now := 10.0
	for i := range rows {
		now += 0.9 + rng.Float64()/5
		tr.Time = append(tr.Time, now)
		tr.Step = append(tr.Step, int32(4+i*steps/rows))
	}
	for s := range svids {
		tr.SVIDs = append(tr.SVIDs, fmt.Sprint("SVID ", s))
		column := make([]float64, rows)
		for i := range column {
			column[i] = math.Round(1000 + 20*rng.NormFloat64())
		}
		tr.Values = append(tr.Values, column)
	}
	return tr
}

func BenchmarkCompute(b *testing.B) {
	for _, size := range []struct{ rows, svids, steps int }{{100, 19, 2}, {1200, 100, 10}} {
		tr := randomTrace(size.rows, size.svids, size.steps)
		b.Run(fmt.Sprintf("%dx%d", size.svids, size.rows), func(b *testing.B) {
			var calc uchart.Calculator
			b.SetBytes(int64(8 * tr.Points()))
			b.ReportAllocs()
			for b.Loop() {
				if _, err := calc.Compute(tr); err != nil {
					b.Fatal(err)
				}
			}
			b.ReportMetric(float64(tr.Points())*float64(b.N)/b.Elapsed().Seconds()/1e6, "Mpoints/s")
		})
	}
}

// BenchmarkSum is what there is to compare with: one addition a point.
func BenchmarkSum(b *testing.B) {
	tr := randomTrace(1200, 100, 10)
	sum := 0.0
	for b.Loop() {
		for _, column := range tr.Values {
			for _, v := range column {
				sum += v
			}
		}
	}
	if sum == 0 {
		b.Fatal("no sum")
	}
	b.ReportMetric(float64(tr.Points())*float64(b.N)/b.Elapsed().Seconds()/1e6, "Mpoints/s")
}
