package trace_test

import (
	"bytes"
	"errors"
	"fmt"
	"math"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/parquet-go/parquet-go"

	"github.com/muster-dev/muster/defender/trace"
)

// sample is a row of a Parquet file, with sensors of several types.
type sample struct {
	Name  string   `parquet:"name,dict"`
	Time  float64  `parquet:"Time"`
	Step  int32    `parquet:"Step Number"`
	Fault *string  `parquet:"fault,optional"`
	Note  string   `parquet:"note"`
	A     *float64 `parquet:"a,optional"`
	B     int64    `parquet:"b"`
	C     float32  `parquet:"c"`
}

// samples are runs of different lengths, one with a fault, some samples missing.
func samples() (all []sample) {
	leak := "leak"
	for run := range 9 {
		for i := range 3 + run {
			a := float64(run) + float64(i)/8
			s := sample{Name: fmt.Sprintf("run-%d", run), Time: float64(i) / 10, Step: int32(1 + i/3), Note: "x", A: &a, B: int64(run - i), C: float32(i) / 4}
			if run == 4 {
				s.Fault = &leak
			}
			if i == 2 {
				s.A = nil
			}
			all = append(all, s)
		}
	}
	return all
}

// encode writes rows in row groups of seven and pages of a few values.
func encode[T any](t testing.TB, rows []T) []byte {
	t.Helper()
	var b bytes.Buffer
	w := parquet.NewGenericWriter[T](&b, parquet.MaxRowsPerRowGroup(7), parquet.PageBufferSize(32))
	if _, err := w.Write(rows); err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

// asCSV writes the same as text.
func asCSV(rows []sample) string {
	var b strings.Builder
	b.WriteString("name,Time,Step Number,fault,note,a,b,c\n")
	for _, s := range rows {
		fault, a := "", ""
		if s.Fault != nil {
			fault = *s.Fault
		}
		if s.A != nil {
			a = fmt.Sprint(*s.A)
		}
		fmt.Fprintf(&b, "%s,%v,%d,%s,%s,%s,%d,%v\n", s.Name, s.Time, s.Step, fault, s.Note, a, s.B, s.C)
	}
	return b.String()
}

// all reads everything, with each missing value as -1, since NaN equals nothing.
func all(t testing.TB, r *trace.Reader, err error) (wafers []trace.Wafer, failed error) {
	t.Helper()
	if err != nil {
		return nil, err
	}
	for w, err := range r.All() {
		if err != nil {
			return wafers, err
		}
		for _, column := range w.Trace.Values {
			for i, v := range column {
				if math.IsNaN(v) {
					column[i] = -1
				}
			}
		}
		wafers = append(wafers, *w)
	}
	return wafers, nil
}

func readParquet(t testing.TB, data []byte, c trace.Columns) ([]trace.Wafer, error) {
	t.Helper()
	r, err := trace.NewParquetReader(bytes.NewReader(data), int64(len(data)), "x.parquet", c)
	return all(t, r, err)
}

func TestParquetHasWhatCSVHas(t *testing.T) {
	t.Parallel()
	columns := trace.Columns{Ignore: []string{"note"}}
	got, err := readParquet(t, encode(t, samples()), columns)
	if err != nil {
		t.Fatal(err)
	}
	r, err := trace.NewColumnReader(strings.NewReader(asCSV(samples())), "x.csv", columns)
	want, err := all(t, r, err)
	if err != nil {
		t.Fatal(err)
	}
	if len(got) != 9 || !reflect.DeepEqual(got, want) {
		t.Errorf("Parquet has\n%+v\nand CSV has\n%+v", got, want)
	}
}

func TestTimesInParquet(t *testing.T) {
	t.Parallel()
	type row struct {
		Run   string    `parquet:"run"`
		At    time.Time `parquet:"at,timestamp(microsecond)"`
		Whole bool      `parquet:"valve"`
	}
	begin := time.Date(2026, 3, 1, 12, 0, 0, 250_000_000, time.UTC)
	data := encode(t, []row{{"r", begin, true}, {"r", begin.Add(1500 * time.Millisecond), false}})
	got, err := readParquet(t, data, trace.Columns{Run: "run", Time: "at", Step: trace.NoStep})
	if err != nil {
		t.Fatal(err)
	}
	if want := []float64{1772366400.25, 1772366401.75}; !reflect.DeepEqual(got[0].Trace.Time, want) {
		t.Errorf("the times are %v, want %v", got[0].Trace.Time, want)
	}
	if want := []float64{1, 0}; !reflect.DeepEqual(got[0].Trace.Values[0], want) {
		t.Errorf("a valve is %v, want %v", got[0].Trace.Values[0], want)
	}
}

func TestParquetThatCannotBeRead(t *testing.T) {
	t.Parallel()
	whole := encode(t, samples())
	type nested struct {
		Name string    `parquet:"name"`
		Time float64   `parquet:"Time"`
		Step float64   `parquet:"Step Number"`
		A    []float64 `parquet:"a"`
		B    string    `parquet:"b"`
	}
	for name, c := range map[string]struct {
		data    []byte
		columns trace.Columns
		want    []string
	}{
		"no Parquet":             {[]byte("name,Time\n"), trace.Columns{}, []string{"x.parquet: the Parquet file is broken: it has no footer at its end: write the file again"}},
		"cut off":                {whole[:len(whole)-9], trace.Columns{}, []string{"no footer"}},
		"a column is missing":    {whole, trace.Columns{Chamber: "tool"}, []string{`column "tool": is missing`}},
		"text where numbers are": {whole, trace.Columns{}, []string{`x.parquet:1: column "note": "x" is not a number`, "and more"}},
		"lists":                  {encode(t, []nested{{"r", 0, 1, []float64{1}, "1"}}), trace.Columns{}, []string{`column "a": is nested`}},
		"a step that is none":    {encode(t, []nested{{"r", 0, 1.5, nil, "1"}}), trace.Columns{Ignore: []string{"a"}}, []string{`column "Step Number": "1.5" is not a recipe step`}},
		"no time":                {encode(t, []nested{{"r", math.NaN(), 1, nil, "2"}}), trace.Columns{Ignore: []string{"a"}}, []string{`column "Time": "NaN" is not a time`}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			_, err := readParquet(t, c.data, c.columns)
			if problems := new(trace.Problems); !errors.As(err, &problems) {
				t.Errorf("error %v is none of the file", err)
			}
			for _, want := range c.want {
				if err == nil || !strings.Contains(err.Error(), want) {
					t.Errorf("error %v, want one with %q", err, want)
				}
			}
		})
	}
}

// FuzzParquet: whatever the file says, it is read or rejected, and runs are within their limits.
func FuzzParquet(f *testing.F) {
	f.Add(encode(f, samples()))
	f.Add(encode(f, samples()[:1]))
	f.Fuzz(func(t *testing.T, data []byte) {
		wafers, err := readParquet(t, data, trace.Columns{Ignore: []string{"note"}})
		if problems := new(trace.Problems); err != nil && !errors.As(err, &problems) {
			return
		}
		for _, w := range wafers {
			if len(w.Trace.Time) == 0 || len(w.Trace.Step) != len(w.Trace.Time) || len(w.Trace.Values[0]) != len(w.Trace.Time) {
				t.Errorf("a run has %d times and %d steps", len(w.Trace.Time), len(w.Trace.Step))
			}
		}
	})
}
