package tchart_test

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/cespare/xxhash/v2"

	"github.com/muster-dev/muster/tchart"
)

// newTrace returns a trace whose columns are made by the given functions of the
// row, with timestamps about a second apart.
func newTrace(rows int, columns ...func(i int) float64) *tchart.Trace {
	t := &tchart.Trace{Tool: "tool001", Chamber: "chamber1", Context: "c", Recipe: "r", Wafer: "7"}
	rng := rand.New(rand.NewPCG(1, 2))
	for i := range rows {
		t.Time = append(t.Time, math.Round(1e4*(float64(i)+rng.Float64()/10))/1e4)
		t.Step = append(t.Step, int32(4+i*2/rows))
	}
	for c, value := range columns {
		t.SVIDs = append(t.SVIDs, fmt.Sprintf("SVID %d", c))
		column := make([]float64, rows)
		for i := range column {
			column[i] = value(i)
		}
		t.Values = append(t.Values, column)
	}
	return t
}

func same(a, b *tchart.Trace) bool {
	if a.Tool != b.Tool || a.Chamber != b.Chamber || a.Context != b.Context || a.Recipe != b.Recipe || a.Product != b.Product ||
		a.Lot != b.Lot || a.Wafer != b.Wafer || len(a.SVIDs) != len(b.SVIDs) || len(a.Step) != len(b.Step) || len(a.Values) != len(b.Values) {
		return false
	}
	for i := range a.SVIDs {
		if a.SVIDs[i] != b.SVIDs[i] {
			return false
		}
	}
	for i := range a.Step {
		if a.Step[i] != b.Step[i] {
			return false
		}
	}
	if !sameBits(a.Time, b.Time) {
		return false
	}
	for i := range a.Values {
		if !sameBits(a.Values[i], b.Values[i]) {
			return false
		}
	}
	return true
}

func sameBits(a, b []float64) bool {
	if len(a) != len(b) {
		return false
	}
	for i := range a {
		if math.Float64bits(a[i]) != math.Float64bits(b[i]) {
			return false
		}
	}
	return true
}

func constant(v float64) func(int) float64 { return func(int) float64 { return v } }

func cycle(values ...float64) func(int) float64 {
	return func(i int) float64 { return values[i%len(values)] }
}

func TestAnyTraceComesBackToTheBit(t *testing.T) {
	t.Parallel()
	rng := rand.New(rand.NewPCG(3, 4))
	payload := math.Float64frombits(0x7ff8_dead_beef_0001)
	signalling := math.Float64frombits(0xfff0_0000_0000_0001)
	noise := func(sd, digits float64) func(int) float64 {
		return func(int) float64 { return math.Round(rng.NormFloat64()*sd*digits) / digits }
	}
	traces := map[string]*tchart.Trace{
		"empty":             {},
		"no SVIDs":          newTrace(10),
		"no rows":           newTrace(0, constant(1)),
		"one row":           newTrace(1, constant(1.5), constant(math.NaN())),
		"zero and minus 0":  newTrace(40, constant(0), constant(math.Copysign(0, -1)), cycle(0, math.Copysign(0, -1))),
		"constants":         newTrace(100, constant(752), constant(-1e-7), constant(1e300), constant(math.Pi)),
		"NaN and infinity":  newTrace(100, cycle(1, 2, math.NaN(), 4), constant(math.NaN()), cycle(math.Inf(1), math.Inf(-1)), cycle(payload, signalling, 3, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1)),
		"decimals":          newTrace(300, noise(40, 1), noise(3, 100), noise(1, 1e6), noise(1e5, 10), noise(1e-3, 1e9)),
		"even numbers":      newTrace(300, func(i int) float64 { return 20000 + 2*math.Round(rng.NormFloat64()*20) }),
		"doubles":           newTrace(300, func(int) float64 { return rng.NormFloat64() }, func(int) float64 { return math.Float64frombits(rng.Uint64()) }),
		"single precision":  newTrace(300, func(int) float64 { return float64(float32(rng.NormFloat64())) }),
		"ramp":              newTrace(1000, func(i int) float64 { return float64(i) * 17 }, func(i int) float64 { return float64(i*i) / 8 }),
		"rarely moves":      newTrace(1000, func(i int) float64 { return float64(i / 300) }, func(i int) float64 { return cycle(0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 5)(i) }),
		"outliers":          newTrace(200, func(i int) float64 { return cycle(5, 6, 7, 1e15)(i / 50) }, cycle(0.5, -9007199254740992, 9007199254740992), cycle(1, 9007199254740994)),
		"tiny and huge":     newTrace(50, cycle(math.SmallestNonzeroFloat64, math.MaxFloat64, -math.MaxFloat64), cycle(1e-15, 2e-15)),
		"texts":             {Tool: "a\x00b\x01c", Chamber: "\x01\x01", Lot: strings.Repeat("\x00", tchart.MaxTextBytes), Product: "Äß", SVIDs: []string{"", "", "\x00"}, Values: make([][]float64, 3)},
		"extreme steps":     {Time: []float64{3, 2, math.NaN(), math.Inf(-1)}, Step: []int32{math.MinInt32, math.MaxInt32, 0, -1}},
		"time goes back":    {Time: []float64{10, 11, 12, 3.25}, Step: []int32{4, 4, 5, 4}},
		"many rows":         newTrace(40_000, noise(10, 10)),
		"many SVIDs":        newTrace(3, slices.Repeat([]func(int) float64{noise(10, 10)}, 2000)...),
		"changing noise":    newTrace(500, func(i int) float64 { return math.Round(rng.NormFloat64() * float64(1+i%100)) }),
		"sawtooth of 2^53":  newTrace(99, cycle(1<<53, -1<<53, 0)),
		"just not integers": newTrace(99, func(i int) float64 { return math.Nextafter(float64(i)/10, 0) }),
	}
	var enc tchart.Encoder // used again and again, as is the decoder and its trace
	var dec tchart.Decoder
	var got tchart.Trace
	for name, want := range traces {
		blob, err := enc.Append([]byte("before"), want)
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		fresh, err := tchart.Encode(want)
		if err != nil || "before"+string(fresh) != string(blob) {
			t.Errorf("%s: an encoder used before writes other bytes than a new one (error %v)", name, err)
		}
		if err := dec.Decode(blob[len("before"):], &got); err != nil {
			t.Errorf("%s: %v", name, err)
		} else if !same(want, &got) {
			t.Errorf("%s comes back different", name)
		}
	}
}

// TestFarOutliersComeBackToTheBit: values that creep up and return, with one whose bits are as
// far from theirs as a column of bits may reach, and farther: predictions must not overflow.
func TestFarOutliersComeBackToTheBit(t *testing.T) {
	t.Parallel()
	const low, rows = 0x3000_0000_0000_0000, 200
	for seed := range uint64(20) {
		for distance := uint64(1) << 57; distance <= 1<<61; distance *= 2 {
			rng := rand.New(rand.NewPCG(1, seed))
			bits := uint64(low)
			want := newTrace(rows, func(i int) float64 {
				switch {
				case i == rows-1-int(seed):
					return math.Float64frombits(low + distance)
				case i > rows/2:
					bits = low
				case i > 0:
					bits += rng.Uint64N(100)
				}
				return math.Float64frombits(bits)
			})
			blob, err := tchart.Encode(want)
			if err != nil {
				t.Fatal(err)
			}
			if got, err := tchart.Decode(blob); err != nil || !same(want, got) {
				t.Errorf("seed %d: an outlier at a distance of %#x comes back different (error %v)", seed, distance, err)
			}
		}
	}
}

func TestTracesThatDontFitAreRefused(t *testing.T) {
	t.Parallel()
	for name, change := range map[string]func(tr *tchart.Trace){
		"long text":      func(tr *tchart.Trace) { tr.Lot = strings.Repeat("x", tchart.MaxTextBytes+1) },
		"long name":      func(tr *tchart.Trace) { tr.SVIDs[0] = strings.Repeat("x", tchart.MaxTextBytes+1) },
		"missing step":   func(tr *tchart.Trace) { tr.Step = tr.Step[1:] },
		"missing column": func(tr *tchart.Trace) { tr.Values = tr.Values[1:] },
		"short column":   func(tr *tchart.Trace) { tr.Values[1] = tr.Values[1][1:] },
		"too many SVIDs": func(tr *tchart.Trace) { tr.SVIDs = make([]string, tchart.MaxSVIDs+1) },
	} {
		tr := newTrace(10, constant(1), constant(2))
		change(tr)
		if blob, err := tchart.Encode(tr); err == nil {
			t.Errorf("%s: encoded to %d bytes, want an error", name, len(blob))
		}
	}
}

// sealed returns a blob with a new checksum.
func sealed(body []byte) []byte {
	return binary.LittleEndian.AppendUint64(slices.Clone(body), xxhash.Sum64(body))
}

func TestDamagedBlobsAreErrors(t *testing.T) {
	t.Parallel()
	rng := rand.New(rand.NewPCG(5, 6))
	blob, err := tchart.Encode(newTrace(60, func(i int) float64 { return float64(i % 7) }, cycle(1, math.NaN(), 2, 3, 4), func(int) float64 { return rng.NormFloat64() }))
	if err != nil {
		t.Fatal(err)
	}
	var dec tchart.Decoder
	var got tchart.Trace
	for n := range blob {
		if err := dec.Decode(blob[:n], &got); !errors.Is(err, tchart.ErrCorrupt) {
			t.Errorf("the first %d of %d bytes: error is %v, want ErrCorrupt", n, len(blob), err)
		}
		if got.Points() != 0 || got.Context != "" {
			t.Fatalf("after an error the trace has content")
		}
	}
	for i := range blob {
		for bit := range 8 {
			broken := slices.Clone(blob)
			broken[i] ^= 1 << bit
			err := dec.Decode(broken, &got)
			if !errors.Is(err, tchart.ErrCorrupt) && !errors.Is(err, tchart.ErrVersion) {
				t.Fatalf("byte %d, bit %d flipped: error is %v", i, bit, err)
			}
		}
	}
	// Truncation that the checksum doesn't catch.
	body := blob[:len(blob)-8]
	for n := 4; n < len(body); n++ {
		if err := dec.Decode(sealed(body[:n]), &got); !errors.Is(err, tchart.ErrCorrupt) {
			t.Errorf("the first %d of %d bytes with a checksum: error is %v, want ErrCorrupt", n, len(body), err)
		}
	}
	if err := dec.Decode(sealed(append(slices.Clone(body), 0)), &got); !errors.Is(err, tchart.ErrCorrupt) {
		t.Errorf("a byte too many: error is %v, want ErrCorrupt", err)
	}
}

// TestOtherVersionsAreRefusedByName covers versions before and after the one that
// is read: an operator has to learn which version the blob has.
func TestOtherVersionsAreRefusedByName(t *testing.T) {
	t.Parallel()
	blob, err := tchart.Encode(newTrace(10, constant(1)))
	if err != nil {
		t.Fatal(err)
	}

	body := blob[:len(blob)-8]
	relabel := func(*tchart.Trace) {}
	for version := range 256 {
		if version == tchart.Version {
			continue
		}
		other := slices.Clone(body)
		other[3] = byte(version)
		want := fmt.Sprintf("unknown T-chart version %d: this program reads version %d", version, tchart.Version)

		var dec tchart.Decoder
		var got tchart.Trace
		err := dec.Decode(sealed(other), &got)
		if !errors.Is(err, tchart.ErrVersion) || err.Error() != want {
			t.Errorf("version %d: error is %v, want %q", version, err, want)
		}
		if _, err := dec.Relabel(nil, sealed(other), relabel); !errors.Is(err, tchart.ErrVersion) {
			t.Errorf("relabelling version %d: error is %v, want ErrVersion", version, err)
		}
	}
}

func TestClaimsAreCheckedBeforeMemoryIsTaken(t *testing.T) {
	head := func(rows, columns uint64) []byte {
		h := binary.AppendUvarint(nil, rows)
		h = binary.AppendUvarint(h, columns)
		h = append(h, make([]byte, 7)...) // empty strings
		b := append([]byte("MTC\x02"), byte(len(h)<<1))
		return sealed(append(append(b, h...), 0))
	}
	for name, blob := range map[string][]byte{
		"rows":      head(10<<30, 1),
		"columns":   head(1, 10<<30),
		"points":    head(tchart.MaxRows, tchart.MaxSVIDs),
		"names":     head(1, tchart.MaxSVIDs),
		"more rows": sealed([]byte("MTC\x02\x12\xff\xff\xff\xff\x7f\x01\x00\x00\x00\x00\x00\x00")),
		"header":    sealed([]byte("MTC\x02\xff\xff\xff\xff\xff\xff\xff\x7f")),
		"section":   sealed([]byte("MTC\x02\x12\x01\x00\x00\x00\x00\x00\x00\x00\x00\xff\xff\xff\xff\xff\x7f")),
	} {
		var dec tchart.Decoder
		var got tchart.Trace
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		err := dec.Decode(blob, &got)
		runtime.ReadMemStats(&after)
		bytes := after.TotalAlloc - before.TotalAlloc
		if !errors.Is(err, tchart.ErrCorrupt) {
			t.Errorf("%s: error is %v, want ErrCorrupt", name, err)
		}
		if bytes > 1<<20 {
			t.Errorf("%s: %d bytes are allocated for a blob of %d", name, bytes, len(blob))
		}
	}
}

func TestDecodingReusesMemory(t *testing.T) {
	blob, err := tchart.Encode(newTrace(100, func(i int) float64 { return float64(i * i % 31) }, constant(3)))
	if err != nil {
		t.Fatal(err)
	}
	var dec tchart.Decoder
	var got tchart.Trace
	if n := testing.AllocsPerRun(100, func() {
		if err := dec.Decode(blob, &got); err != nil {
			t.Fatal(err)
		}
	}); n > 1 {
		t.Errorf("decoding again allocates %v times", n)
	}
}

// recordedFile was written when the version was new, with all kinds of columns.
const recordedFile = "testdata/v2.tchart"

func TestARecordedBlobStaysReadable(t *testing.T) {
	t.Parallel()
	blob, err := os.ReadFile(recordedFile)
	if err != nil {
		t.Fatal(err)
	}
	got, err := tchart.Decode(blob)
	if err != nil {
		t.Fatal(err)
	}
	if !same(recorded(), got) {
		t.Error("the recorded blob is read differently")
	}
}

// recorded is the trace in recordedFile.
func recorded() *tchart.Trace {
	tr := newTrace(40, cycle(1, 2, 3, 5.5), constant(7), cycle(0, 0, 0, 0, 0, 0, 0, 4), cycle(2, math.NaN(), 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 18, 19),
		func(i int) float64 { return math.Sqrt(float64(i)) }, func(i int) float64 { return float64(float32(math.Sqrt(float64(i)))) })
	rng := rand.New(rand.NewPCG(11, 12))
	for i := range tr.Time {
		tr.Time[i] = math.Round(float64(5000+520*i+i%3)/512*1e4) / 1e4
	}
	for _, value := range []func(int) float64{
		func(int) float64 { return 20 + rng.NormFloat64() }, func(int) float64 { return rng.NormFloat64() },
		func(i int) float64 { return math.Round(1000 * math.Sin(float64(i)/9) * float64(i)) },
		func(int) float64 { return math.Float64frombits(rng.Uint64()) }, func(int) float64 { return math.Round(rng.NormFloat64() * 5000) },
	} {
		column := make([]float64, len(tr.Time))
		for i := range column {
			column[i] = value(i)
		}
		tr.SVIDs, tr.Values = append(tr.SVIDs, fmt.Sprint("RF Pwr ", len(tr.SVIDs))), append(tr.Values, column)
	}
	return tr
}

func TestRelabellingChangesStringsOnly(t *testing.T) {
	t.Parallel()
	want := newTrace(50, cycle(1, 2, 3), cycle(math.Pi, math.NaN()))
	blob, err := tchart.Encode(want)
	if err != nil {
		t.Fatal(err)
	}
	var dec tchart.Decoder
	for _, name := range []string{"another context", "", "a third\x00"} {
		blob, err = dec.Relabel(nil, blob, func(tr *tchart.Trace) {
			tr.Context, tr.Tool, tr.SVIDs = name, "tool002", nil
		})
		if err != nil {
			t.Fatal(err)
		}
		got, err := tchart.Decode(blob)
		if err != nil {
			t.Fatal(err)
		}
		if got.Context != name || got.Tool != "tool002" {
			t.Errorf("relabelled to %q of %q", got.Context, got.Tool)
		}
		got.Context, got.Tool = want.Context, want.Tool
		if !same(want, got) {
			t.Error("relabelling changes more than the strings")
		}
	}
	if _, err := dec.Relabel(nil, blob, func(tr *tchart.Trace) { tr.Lot = strings.Repeat("x", tchart.MaxTextBytes+1) }); err == nil {
		t.Error("a string that is too long is accepted")
	}
	if _, err := dec.Relabel(nil, blob[1:], func(*tchart.Trace) {}); !errors.Is(err, tchart.ErrCorrupt) {
		t.Errorf("error is %v, want ErrCorrupt", err)
	}
}

// FuzzDecode feeds bytes, as they are and with a valid checksum, to the decoder:
// whatever it accepts has to survive another round trip.
func FuzzDecode(f *testing.F) {
	rng := rand.New(rand.NewPCG(7, 8))
	for _, tr := range []*tchart.Trace{
		{}, newTrace(1, constant(1)), newTrace(40, cycle(1, 2, 3, 5.5), constant(math.NaN()), func(i int) float64 { return float64(i / 20) }),
		newTrace(40, func(int) float64 { return rng.NormFloat64() }, func(int) float64 { return float64(float32(rng.NormFloat64())) }),
	} {
		blob, err := tchart.Encode(tr)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(blob)
		f.Add(blob[:len(blob)-8])
	}
	blob, err := os.ReadFile(recordedFile)
	if err != nil {
		f.Fatal(err)
	}
	f.Add(blob)
	f.Add(blob[:len(blob)-8])
	f.Fuzz(func(t *testing.T, data []byte) {
		dec := tchart.Decoder{MaxPoints: 1 << 14} // what a few bytes claim takes time to make
		for _, blob := range [][]byte{data, sealed(data)} {
			var tr tchart.Trace
			if err := dec.Decode(blob, &tr); err != nil {
				continue
			}
			if n := len(tr.Time) * (len(tr.SVIDs) + 2); n > dec.MaxPoints {
				t.Fatalf("it took %d numbers, at most %d are allowed", n, dec.MaxPoints)
			}
			again, err := tchart.Encode(&tr)
			if err != nil {
				t.Fatalf("a decoded trace can't be encoded: %v", err)
			}
			back, err := tchart.Decode(again)
			if err != nil || !same(&tr, back) {
				t.Fatalf("a decoded trace doesn't survive a round trip: %v", err)
			}
		}
	})
}

func TestTracesLargerThanTheDecoderTakesAreRefusedBeforeMemoryIsTaken(t *testing.T) {
	t.Parallel()
	blob, err := os.ReadFile(recordedFile)
	if err != nil {
		t.Fatal(err)
	}
	tr, err := tchart.Decode(blob)
	if err != nil {
		t.Fatal(err)
	}

	numbers := len(tr.Time) * (len(tr.SVIDs) + 2)
	exact, less := tchart.Decoder{MaxPoints: numbers}, tchart.Decoder{MaxPoints: numbers - 1}
	var got tchart.Trace
	if err := exact.Decode(blob, &got); err != nil {
		t.Errorf("with as many as are allowed: %v", err)
	}

	got = tchart.Trace{}
	if err := less.Decode(blob, &got); !errors.Is(err, tchart.ErrTooLarge) || cap(got.Time) > 0 || cap(got.Values) > 0 {
		t.Errorf("with one more: %v, and room for %d rows", err, cap(got.Time))
	}
}

// FuzzRoundTrip makes a trace of the bytes.
func FuzzRoundTrip(f *testing.F) {
	f.Add([]byte("\x02some context\x00\x00\x00\x00\x00\x00\xf8\x7f01234567abcdefgh"), uint8(1), true)
	f.Add(make([]byte, 400), uint8(3), false)
	f.Fuzz(func(t *testing.T, data []byte, columns uint8, decimal bool) {
		tr := &tchart.Trace{Context: string(data[:min(len(data), 20)])}
		rows := len(data) / 8 / (int(columns) + 1)
		next := func() float64 {
			bits := binary.LittleEndian.Uint64(data)
			data = data[8:]
			if decimal {
				return float64(int32(bits)>>(bits>>58)) / [...]float64{1, 10, 100, 1e4}[bits>>56&3]
			}
			return math.Float64frombits(bits)
		}
		for i := range rows {
			tr.Time = append(tr.Time, next())
			tr.Step = append(tr.Step, int32(math.Float64bits(tr.Time[i])>>3))
		}
		for range columns {
			column := make([]float64, rows)
			for i := range column {
				column[i] = next()
			}
			tr.SVIDs = append(tr.SVIDs, "x")
			tr.Values = append(tr.Values, column)
		}
		blob, err := tchart.Encode(tr)
		if err != nil {
			t.Fatal(err)
		}
		got, err := tchart.Decode(blob)
		if err != nil {
			t.Fatal(err)
		}
		if !same(tr, got) {
			t.Fatal("trace comes back different")
		}
	})
}

func sampleTraces(b *testing.B) map[string]*tchart.Trace {
	rng := rand.New(rand.NewPCG(9, 10))
	noise := func(mean, sd, step float64) func(int) float64 {
		return func(int) float64 { return math.Round((mean+rng.NormFloat64()*sd)/step) * step }
	}
	var sensors []func(int) float64
	for i := range 100 {
		sensors = append(sensors, noise(float64(1000*i), []float64{0.3, 2, 10, 50, 300}[i%5], 1))
	}
	return map[string]*tchart.Trace{
		"19x100":            newTrace(100, sensors[:19]...),
		"100x1200":          newTrace(1200, sensors...),
		"100x1200-decimals": newTrace(1200, slices.Repeat([]func(int) float64{func(int) float64 { return math.Round(rng.NormFloat64()*1000) / 1000 }}, 100)...),
		"20x1200-doubles":   newTrace(1200, slices.Repeat([]func(int) float64{normal(rng)}, 20)...),
	}
}

func normal(rng *rand.Rand) func(int) float64 {
	return func(int) float64 { return rng.NormFloat64() }
}

func BenchmarkDecode(b *testing.B) {
	for name, tr := range sampleTraces(b) {
		b.Run(name, func(b *testing.B) {
			blob, err := tchart.Encode(tr)
			if err != nil {
				b.Fatal(err)
			}
			benchmarkDecode(b, blob, tr.Points())
		})
	}
}

func benchmarkDecode(b *testing.B, blob []byte, points int) {
	var dec tchart.Decoder
	var got tchart.Trace
	benchmarkPoints(b, points, func() {
		if err := dec.Decode(blob, &got); err != nil {
			b.Fatal(err)
		}
	})
	b.ReportMetric(float64(len(blob))/float64(points), "bytes/point")
}

func BenchmarkEncode(b *testing.B) {
	for name, tr := range sampleTraces(b) {
		b.Run(name, func(b *testing.B) {
			var enc tchart.Encoder
			var blob []byte
			benchmarkPoints(b, tr.Points(), func() {
				var err error
				if blob, err = enc.Append(blob[:0], tr); err != nil {
					b.Fatal(err)
				}
			})
		})
	}
}
