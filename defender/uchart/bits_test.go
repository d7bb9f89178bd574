package uchart_test

import (
	"encoding/binary"
	"hash/crc32"
	"math"
	"math/rand/v2"
	"testing"

	"github.com/muster-dev/muster/defender/uchart"
	"github.com/muster-dev/muster/tchart"
)

// TestChartsKeepTheirBits pins the statistics of traces with all that is wrong with traces: stored
// charts and those computed since are compared.
func TestChartsKeepTheirBits(t *testing.T) {
	t.Parallel()
	random := rand.New(rand.NewPCG(3, 4))
	sum := crc32.NewIEEE()
	var calculator uchart.Calculator
	for n := range 400 {
		chart, err := calculator.Compute(spoiled(random, 1+n))
		if err != nil {
			t.Fatal(err)
		}
		for cell, valid := range chart.Valid {
			sum.Write([]byte{valid})
			for _, v := range chart.Values[cell*uchart.NumStatistics : (cell+1)*uchart.NumStatistics] {
				sum.Write(binary.LittleEndian.AppendUint64(nil, math.Float64bits(v)))
			}
		}
		q := chart.Quality
		for _, v := range []int{q.Rows, q.Missing, q.BadTime, q.Backward, q.Gaps} {
			sum.Write(binary.LittleEndian.AppendUint64(nil, uint64(v)))
		}
	}
	if got := sum.Sum32(); got != 0xd9f60a80 {
		t.Errorf("the checksum of the charts is %#x, was 0xd9f60a80", got)
	}
}

// spoiled returns a trace with gaps, rows that go back, steps that recur, missing values, and
// columns that rest, are huge or are next to nothing.
func spoiled(random *rand.Rand, rows int) *tchart.Trace {
	trace := &tchart.Trace{}
	now := 1e9 * random.Float64()
	for range rows {
		switch random.IntN(40) {
		case 0:
			now -= 3
		case 1:
			now += 30
		default:
			now += 0.9 + 0.2*random.Float64()
		}
		at := now
		if random.IntN(200) == 0 {
			at = math.NaN()
		}
		trace.Time = append(trace.Time, at)
		trace.Step = append(trace.Step, int32(len(trace.Step)*7/rows%3))
	}
	for s, scale := range []float64{1, 1e-300, 1e300, math.MaxFloat64, 0, 1e-3} {
		column := make([]float64, rows)
		for i := range column {
			column[i] = scale * (random.Float64() - 0.3)
			if random.IntN(50*(1+s)) == 0 {
				column[i] = []float64{math.NaN(), math.Inf(1), math.Inf(-1), math.Copysign(0, -1)}[random.IntN(4)]
			}
		}
		trace.SVIDs, trace.Values = append(trace.SVIDs, string(rune('a'+s))), append(trace.Values, column)
	}
	return trace
}
