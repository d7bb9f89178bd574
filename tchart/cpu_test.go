package tchart_test

import "testing"

// benchmarkPoints reports points per second of processor time, which a machine
// that is busy with other work doesn't change much, beside the usual figures.
func benchmarkPoints(b *testing.B, points int, run func()) {
	b.SetBytes(int64(8 * points))
	b.ReportAllocs()
	before := processorTime()
	n := 0
	for b.Loop() {
		run()
		n++
	}
	if used := processorTime() - before; used > 0 {
		b.ReportMetric(float64(points)*float64(n)/used.Seconds()/1e6, "Mpoints/cpu-s")
	}
}
