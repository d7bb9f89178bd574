package export_test

import (
	"bytes"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"testing"

	"github.com/cespare/xxhash/v2"

	"github.com/muster-dev/muster/defender/trace"
	"github.com/muster-dev/muster/internal/component"
	"github.com/muster-dev/muster/internal/realdata"
	"github.com/muster-dev/muster/tchart"
)

const readerDir = "../../tchart/python"

// decoded is a line of testdata/decode.py.
type decoded struct {
	Error  string   `json:"error"`
	Why    string   `json:"why"`
	Texts  []string `json:"texts"`
	Step   []int32  `json:"step"`
	Floats []string `json:"floats"`
}

// pythonReads returns what the Python reader finds in each blob.
func pythonReads(t *testing.T, blobs [][]byte) []decoded {
	t.Helper()
	python := filepath.Join(component.Tables().Fetch(t), "python", "bin", "python")
	args := []string{filepath.Join("testdata", "decode.py"), readerDir}
	dir := t.TempDir()
	for i, blob := range blobs {
		file := filepath.Join(dir, fmt.Sprint(i))
		if err := os.WriteFile(file, blob, 0o600); err != nil {
			t.Fatal(err)
		}
		args = append(args, file)
	}
	cmd := exec.CommandContext(t.Context(), python, args...)
	cmd.Env = append(cmd.Environ(), "PYTHONDONTWRITEBYTECODE=1")
	out, err := cmd.Output()
	if failed := new(exec.ExitError); errors.As(err, &failed) {
		t.Fatalf("%v\n%s", err, failed.Stderr)
	}
	if err != nil {
		t.Fatal(err)
	}
	var all []decoded
	for d := json.NewDecoder(bytes.NewReader(out)); d.More(); {
		var one decoded
		if err := d.Decode(&one); err != nil {
			t.Fatal(err)
		}
		all = append(all, one)
	}
	if len(all) != len(blobs) {
		t.Fatalf("it reads %d of %d blobs", len(all), len(blobs))
	}
	return all
}

// goReads returns what our decoder finds in a blob, in the same form.
func goReads(blob []byte) decoded {
	trace, err := tchart.Decode(blob)
	switch {
	case errors.Is(err, tchart.ErrVersion):
		return decoded{Error: "version"}
	case err != nil:
		return decoded{Error: "corrupt", Why: err.Error()}
	}
	d := decoded{Step: append([]int32{}, trace.Step...)}
	for _, text := range append([]string{trace.Tool, trace.Chamber, trace.Context, trace.Recipe, trace.Product, trace.Lot, trace.Wafer}, trace.SVIDs...) {
		d.Texts = append(d.Texts, hex.EncodeToString([]byte(text)))
	}
	for _, column := range append([][]float64{trace.Time}, trace.Values...) {
		var b []byte
		for _, v := range column {
			b = binary.LittleEndian.AppendUint64(b, math.Float64bits(v))
		}
		d.Floats = append(d.Floats, hex.EncodeToString(b))
	}
	return d
}

// compare fails where the two readers disagree. It returns how many blobs both read.
func compare(t *testing.T, blobs [][]byte) (read int) {
	t.Helper()
	for i, got := range pythonReads(t, blobs) {
		want := goReads(blobs[i])
		if got.Error == "" {
			read++
		}
		why := got.Why + "; " + want.Why
		got.Why, want.Why = "", ""
		if !reflect.DeepEqual(got, want) {
			t.Errorf("blob %d: Python reads error %q and Go %q (%s), %.200q and %.200q", i, got.Error, want.Error, why, fmt.Sprint(got), fmt.Sprint(want))
		}
	}
	return read
}

// TestPythonReadsTheGoldenFiles: a reader that was written from the specification reads what is recorded of each version.
func TestPythonReadsTheGoldenFiles(t *testing.T) {
	t.Parallel()
	files, err := filepath.Glob("../../tchart/testdata/*.tchart")
	if err != nil || len(files) == 0 {
		t.Fatalf("no golden file: %v", err)
	}
	var blobs [][]byte
	for _, file := range files {
		blob, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		blobs = append(blobs, blob)
	}
	if read := compare(t, blobs); read != len(blobs) {
		t.Errorf("it reads %d of %d golden files", read, len(blobs))
	}
}

// traces are of every kind of column: decimals, ticks, bit patterns, planes, raw, with exceptions, large and small.
func traces() []*tchart.Trace {
	r := rand.New(rand.NewPCG(5, 8))
	kinds := []func(i int, before float64) float64{
		func(i int, _ float64) float64 { return math.Round(1000+r.NormFloat64()*10) / 10 },
		func(i int, before float64) float64 { return math.Round((before+r.NormFloat64())*1000) / 1000 },
		func(i int, _ float64) float64 { return 12.5 },
		func(i int, _ float64) float64 { return math.Sin(float64(i) / 50) },
		func(i int, before float64) float64 { return before + r.NormFloat64() },
		func(i int, _ float64) float64 { return math.Float64frombits(r.Uint64()) },
		func(i int, _ float64) float64 { return float64(int64(r.Uint64()) >> (r.UintN(60) + 1)) },
		func(i int, _ float64) float64 {
			return []float64{1.5, math.NaN(), math.Inf(1), math.Copysign(0, -1), 7}[min(r.IntN(60), 4)]
		},
		func(i int, _ float64) float64 { return float64(float32(r.NormFloat64())) },
		func(i int, _ float64) float64 { return math.Exp(r.NormFloat64() * 100) },
		func(i int, before float64) float64 { return before + float64(r.IntN(3))*4096 },
	}
	var all []*tchart.Trace
	for n, rows := range []int{0, 1, 2, 15, 16, 17, 47, 48, 200, 1000} {
		t := &tchart.Trace{Tool: fmt.Sprintf("etch%d", n), Chamber: "a", Context: "lot7 wafer\x00\x01", Recipe: "Äß", Wafer: "12"}
		for row := range rows {
			t.Time = append(t.Time, math.Round(float64(row*10+row%3)/60*1e3)/1e3+float64(n))
			t.Step = append(t.Step, int32(row/40-n))
		}
		for k, next := range kinds {
			t.SVIDs = append(t.SVIDs, fmt.Sprintf("RF Power %d", k))
			var column []float64
			before := 0.0
			for row := range rows {
				before = next(row, before)
				column = append(column, before)
			}
			t.Values = append(t.Values, column)
		}
		all = append(all, t)
	}
	return all
}

func encode(t *testing.T, traces []*tchart.Trace) [][]byte {
	t.Helper()
	var blobs [][]byte
	for _, trace := range traces {
		blob, err := tchart.Encode(trace)
		if err != nil {
			t.Fatal(err)
		}
		blobs = append(blobs, blob)
	}
	return blobs
}

// TestPythonAndGoReadTheSame: of every kind of column to the bit, and of damaged blobs with a right checksum either
// the same or nothing.
func TestPythonAndGoReadTheSame(t *testing.T) {
	t.Parallel()
	blobs := encode(t, traces())
	if read := compare(t, blobs); read != len(blobs) {
		t.Errorf("it reads %d of %d blobs", read, len(blobs))
	}

	r := rand.New(rand.NewPCG(13, 21))
	var damaged [][]byte
	for len(damaged) < 600 {
		blob := bytes.Clone(blobs[r.IntN(8)]) // the small ones
		for range 1 + r.IntN(2) {
			blob[3+r.IntN(len(blob)-11)] ^= 1 << r.UintN(8)
		}
		if r.IntN(4) == 0 {
			blob = blob[:12+r.IntN(len(blob)-12)]
		}
		if r.IntN(10) > 0 {
			at := len(blob) - 8
			binary.LittleEndian.PutUint64(blob[at:], xxhash.Sum64(blob[:at]))
		}
		damaged = append(damaged, blob)
	}
	read := compare(t, damaged)
	t.Logf("of %d damaged blobs with a right checksum both read %d", len(damaged), read)
}

// TestPythonReadsRecordedWafers: those of an etcher.
func TestPythonReadsRecordedWafers(t *testing.T) {
	t.Parallel()
	files, err := filepath.Glob(filepath.Join(realdata.Path(t, "etch"), "*.csv"))
	if err != nil || len(files) == 0 {
		t.Fatalf("no recorded wafers: %v", err)
	}
	f, err := os.Open(files[0])
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = f.Close() }()
	reader, err := trace.NewReader(f, files[0])
	if err != nil {
		t.Fatal(err)
	}
	var wafers []*tchart.Trace
	for wafer, err := range reader.All() {
		if err != nil {
			t.Fatal(err)
		}
		if wafers = append(wafers, &wafer.Trace); len(wafers) == 20 {
			break
		}
	}
	blobs := encode(t, wafers)
	if read := compare(t, blobs); read != len(blobs) {
		t.Errorf("it reads %d of %d wafers", read, len(blobs))
	}
}
