package codec

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"math"
	"math/bits"
	"math/rand/v2"
	"os"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/apache/arrow-go/v18/arrow/ipc"
	"github.com/klauspost/compress/zstd"
	"github.com/parquet-go/parquet-go"
	"github.com/parquet-go/parquet-go/compress"
	"github.com/parquet-go/parquet-go/encoding"

	"github.com/muster-dev/muster/defender/trace"
	"github.com/muster-dev/muster/tchart"
)

// codec writes a trace's values and timestamps; decode returns a sum, so that no
// work is left out. Only Muster's writes steps, names and a checksum, too.
type codec struct {
	name   string
	encode func(*tchart.Trace) []byte
	decode func([]byte, *tchart.Trace) float64
}

func columns(t *tchart.Trace) [][]float64 { return append([][]float64{t.Time}, t.Values...) }

func sum(xs []float64) float64 {
	s := 0.0
	for _, x := range xs {
		s += x
	}
	return s
}

func contenders(t *testing.T) []codec {
	enc, err := zstd.NewWriter(nil, zstd.WithEncoderLevel(zstd.SpeedBestCompression), zstd.WithEncoderConcurrency(1))
	if err != nil {
		t.Fatal(err)
	}
	dec, err := zstd.NewReader(nil, zstd.WithDecoderConcurrency(1))
	if err != nil {
		t.Fatal(err)
	}
	var muster tchart.Encoder
	var reader tchart.Decoder
	var back tchart.Trace
	var plain []byte
	var xs []float64
	unzip := func(b []byte) []byte {
		plain, err = dec.DecodeAll(b, plain[:0])
		if err != nil {
			panic(err)
		}
		return plain
	}
	return []codec{
		{"muster", func(tr *tchart.Trace) []byte {
			b, err := muster.Append(nil, tr)
			if err != nil {
				panic(err)
			}
			return b
		}, func(b []byte, _ *tchart.Trace) float64 {
			if err := reader.Decode(b, &back); err != nil {
				panic(err)
			}
			return back.Values[0][0]
		}},
		{"zstd, raw columns", func(tr *tchart.Trace) []byte {
			var raw []byte
			for _, c := range columns(tr) {
				for _, v := range c {
					raw = binary.LittleEndian.AppendUint64(raw, math.Float64bits(v))
				}
			}
			return enc.EncodeAll(raw, nil)
		}, func(b []byte, _ *tchart.Trace) float64 {
			p := unzip(b)
			xs = xs[:0]
			for i := 0; i < len(p); i += 8 {
				xs = append(xs, math.Float64frombits(binary.LittleEndian.Uint64(p[i:])))
			}
			return xs[0]
		}},
		{"zstd, byte planes", func(tr *tchart.Trace) []byte {
			var raw []byte
			for _, c := range columns(tr) {
				for p := range 8 {
					for _, v := range c {
						raw = append(raw, byte(math.Float64bits(v)>>(8*p)))
					}
				}
			}
			return enc.EncodeAll(raw, nil)
		}, func(b []byte, tr *tchart.Trace) float64 {
			p, n := unzip(b), len(tr.Time)
			xs = xs[:0]
			for c := 0; c+8*n <= len(p); c += 8 * n {
				for i := range n {
					var v uint64
					for k := range 8 {
						v |= uint64(p[c+k*n+i]) << (8 * k)
					}
					xs = append(xs, math.Float64frombits(v))
				}
			}
			return xs[0]
		}},
		{"zstd, varint deltas of decimals", func(tr *tchart.Trace) []byte {
			var raw []byte
			for _, c := range columns(tr) {
				raw = deltas(raw, c)
			}
			return enc.EncodeAll(raw, nil)
		}, func(b []byte, tr *tchart.Trace) float64 {
			p, n := unzip(b), len(tr.Time)
			xs = xs[:0]
			for len(p) > 0 {
				scale := math.Pow10(int(p[0]))
				p = p[1:]
				last := int64(0)
				for range n {
					d, used := binary.Varint(p)
					p = p[used:]
					last += d
					xs = append(xs, float64(last)/scale)
				}
			}
			return xs[0]
		}},
		{"Gorilla XOR", func(tr *tchart.Trace) []byte {
			var w gorilla
			for _, c := range columns(tr) {
				w.write(c)
			}
			return w.bytes()
		}, nil},
		parquetCodec("Parquet, byte stream split, zstd", &parquet.ByteStreamSplit, &parquet.Zstd),
		parquetCodec("Parquet, dictionary, zstd", &parquet.RLEDictionary, &parquet.Zstd),
		arrowCodec("Arrow IPC, zstd", false, ipc.WithZstd()),
		arrowCodec("Arrow IPC, lz4", false, ipc.WithLZ4()),
		arrowCodec("Arrow IPC, dictionary, zstd", true, ipc.WithZstd()),
	}
}

// deltas appends the varint differences of a column as decimals; a column that is
// none is left with its bits.
func deltas(raw []byte, c []float64) []byte {
	digits := 0
	for _, v := range c {
		for digits < 15 && math.Round(v*math.Pow10(digits))/math.Pow10(digits) != v {
			digits++
		}
	}
	raw = append(raw, byte(digits))
	last := int64(0)
	for _, v := range c {
		k := int64(math.Round(v * math.Pow10(digits)))
		if digits == 15 {
			k = int64(math.Float64bits(v))
		}
		raw = binary.AppendVarint(raw, k-last)
		last = k
	}
	return raw
}

// gorilla is the XOR encoding of Pelkonen et al. (Gorilla, VLDB 2015), of sizes
// only.
type gorilla struct{ n int }

func (g *gorilla) write(c []float64) {
	var last uint64
	lead, trail := 65, 0
	for i, v := range c {
		b := math.Float64bits(v)
		if i == 0 {
			g.n += 64
			last = b
			continue
		}
		x := b ^ last
		last = b
		g.n++
		if x == 0 {
			continue
		}
		l, t := min(bits.LeadingZeros64(x), 31), bits.TrailingZeros64(x)
		g.n++
		if l >= lead && t >= trail {
			g.n += 64 - lead - trail
			continue
		}
		lead, trail = l, t
		g.n += 5 + 6 + 64 - l - t
	}
}

func (g *gorilla) bytes() []byte { return make([]byte, (g.n+7)/8) }

func parquetCodec(name string, encoding encoding.Encoding, zip compress.Codec) codec {
	return codec{name, func(tr *tchart.Trace) []byte {
		group := parquet.Group{}
		for i := range columns(tr) {
			group[fmt.Sprintf("c%03d", i)] = parquet.Compressed(parquet.Encoded(parquet.Leaf(parquet.DoubleType), encoding), zip)
		}
		var b bytes.Buffer
		w := parquet.NewWriter(&b, parquet.NewSchema("t", group))
		rows := make([]parquet.Row, len(tr.Time))
		for i := range rows {
			for c, column := range columns(tr) {
				rows[i] = append(rows[i], parquet.DoubleValue(column[i]).Level(0, 0, c))
			}
		}
		if _, err := w.WriteRows(rows); err != nil {
			panic(err)
		}
		if err := w.Close(); err != nil {
			panic(err)
		}
		return b.Bytes()
	}, nil}
}

func etch(t *testing.T) []*tchart.Trace {
	name := os.Getenv("MUSTER_DATA") + "/etch/lam9600_machine.csv"
	f, err := os.Open(name)
	if err != nil {
		t.Skip("the recorded etch is not there: set MUSTER_DATA")
	}
	defer f.Close()
	r, err := trace.NewReader(f, name)
	if err != nil {
		t.Fatal(err)
	}
	var list []*tchart.Trace
	for w, err := range r.All() {
		if err != nil {
			t.Fatal(err)
		}
		list = append(list, &w.Trace)
	}
	return list
}

func noisy(signal func(i int, noise float64) float64) []*tchart.Trace {
	rng := rand.New(rand.NewPCG(1, 2))
	tr := &tchart.Trace{}
	for i := range 1200 {
		tr.Time = append(tr.Time, float64(i))
		tr.Step = append(tr.Step, int32(i/400))
	}
	for s := range 50 {
		c := make([]float64, 1200)
		for i := range c {
			c[i] = signal(i, rng.NormFloat64())
		}
		tr.SVIDs, tr.Values = append(tr.SVIDs, fmt.Sprint("S", s)), append(tr.Values, c)
	}
	return []*tchart.Trace{tr}
}

func processorTime() time.Duration {
	var u syscall.Rusage
	_ = syscall.Getrusage(syscall.RUSAGE_SELF, &u)
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// TestTable prints bytes a point, of sensor values with their timestamps, and
// millions of points decoded in a second of processor time.
func TestTable(t *testing.T) {
	walk := 0.0
	for _, set := range []struct {
		name   string
		traces []*tchart.Trace
	}{
		{"etch, 86 wafers of about 1,900 points", etch(t)},
		{"quantized noise, 60,000 points", noisy(func(_ int, x float64) float64 { return math.Round(5000 + 40*x) })},
		{"full-precision noise around 20", noisy(func(_ int, x float64) float64 { return 20 + x })},
		{"full-precision noise around 0", noisy(func(_ int, x float64) float64 { return x })},
		{"full-precision ramp with noise", noisy(func(i int, x float64) float64 { return 300 + float64(i)/7 + x/100 })},
		{"full-precision random walk", noisy(func(i int, x float64) float64 { walk += x / 10; return 100 + walk })},
	} {
		var b strings.Builder
		fmt.Fprintf(&b, "%s\n", set.name)
		best, muster := math.Inf(1), 0.0
		for _, c := range contenders(t) {
			points, size := 0, 0
			var blobs [][]byte
			for _, tr := range set.traces {
				blob := c.encode(tr)
				blobs = append(blobs, blob)
				size += len(blob)
				points += tr.Points()
			}
			per := float64(size) / float64(points)
			if c.name == "muster" {
				muster = per
			} else {
				best = min(best, per)
			}
			speed := ""
			if c.decode != nil {
				before, n := processorTime(), 0
				for processorTime()-before < 200*time.Millisecond {
					for i, blob := range blobs {
						c.decode(blob, set.traces[i])
					}
					n++
				}
				speed = fmt.Sprintf("%8.0f", float64(n*points)/(processorTime()-before).Seconds()/1e6)
			}
			fmt.Fprintf(&b, "  %-34s %8.3f %s\n", c.name, per, speed)
		}
		t.Log(b.String())
		if muster > best*1.002 {
			t.Errorf("%s: muster takes %.3f bytes a point, the best other one %.3f", set.name, muster, best)
		}
	}
}
