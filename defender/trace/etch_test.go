package trace_test

import (
	"bytes"
	"compress/zlib"
	"encoding/binary"
	"math"
	"os"
	"slices"
	"testing"

	"github.com/muster-dev/muster/defender/trace"
	"github.com/muster-dev/muster/internal/realdata"
	"github.com/muster-dev/muster/tchart"
)

func etchWafers(t testing.TB) []*trace.Wafer {
	t.Helper()
	path := realdata.Path(t, "etch/lam9600_machine.csv")
	f, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	r, err := trace.NewReader(f, "lam9600_machine.csv")
	if err != nil {
		t.Fatal(err)
	}
	var wafers []*trace.Wafer
	for w, err := range r.All() {
		if err != nil {
			t.Fatal(err)
		}
		wafers = append(wafers, w)
	}
	return wafers
}

func TestRecordedTracesTakeAtMostFourFifthsOfAByteAPoint(t *testing.T) {
	t.Parallel()
	wafers := etchWafers(t)
	var enc tchart.Encoder
	var dec tchart.Decoder
	var got tchart.Trace
	blobBytes, bareBytes, deltaBytes, points := 0, 0, 0, 0
	for _, w := range wafers {
		blob, err := enc.Append(nil, &w.Trace)
		if err != nil {
			t.Fatal(err)
		}
		if err := dec.Decode(blob, &got); err != nil {
			t.Fatal(err)
		}
		if !slices.EqualFunc(w.Trace.Values, got.Values, slices.Equal[[]float64]) {
			t.Fatalf("the values of wafer %s come back different", w.Trace.Context)
		}
		points += w.Trace.Points()
		blobBytes += len(blob)
		bare := w.Trace
		bare.SVIDs = make([]string, len(w.Trace.SVIDs))
		if blob, err = enc.Append(nil, &bare); err != nil {
			t.Fatal(err)
		}
		bareBytes += len(blob)
		deltaBytes += len(deltaZlib(t, &w.Trace))
	}
	t.Logf("%d wafers, %d points: %.4f bytes a point, of them %.4f for names of sensors; plain deltas and zlib: %.3f",
		len(wafers), points, per(blobBytes, points), per(blobBytes-bareBytes, points), per(deltaBytes, points))
	if per(blobBytes, points) > 0.8 {
		t.Errorf("%.3f bytes a point, want at most 0.8", per(blobBytes, points))
	}
}

func per(bytes, points int) float64 { return float64(bytes) / float64(points) }

// deltaZlib is what the format is measured against: varints of differences in
// units of 1e-4, compressed, without names.
func deltaZlib(t testing.TB, tr *tchart.Trace) []byte {
	var raw []byte
	for _, column := range append([][]float64{tr.Time}, tr.Values...) {
		scale := 1.0
		for _, v := range column {
			for math.Round(v*scale)/scale != v && scale < 1e5 {
				scale *= 10
			}
		}
		last := int64(0)
		for _, v := range column {
			k := int64(math.Round(v * scale))
			raw = binary.AppendVarint(raw, k-last)
			last = k
		}
	}
	var b bytes.Buffer
	z, err := zlib.NewWriterLevel(&b, 9)
	if err != nil {
		t.Fatal(err)
	}
	z.Write(raw)
	z.Close()
	return b.Bytes()
}
