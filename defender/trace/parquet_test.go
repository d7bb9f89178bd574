package trace_test

import (
	"bytes"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"reflect"
	"slices"
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
	return encodeBy(t, rows, parquet.MaxRowsPerRowGroup(7), parquet.PageBufferSize(32))
}

func encodeBy[T any](t testing.TB, rows []T, options ...parquet.WriterOption) []byte {
	t.Helper()
	var b bytes.Buffer
	w := parquet.NewGenericWriter[T](&b, options...)
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
	r, err := trace.NewColumnReader(strings.NewReader(asCSV(samples())), "x.csv", columns)
	want, err := all(t, r, err)
	if err != nil {
		t.Fatal(err)
	}
	for name, data := range map[string][]byte{
		"runs over row groups": encode(t, samples()),
		"runs over pages":      encodeBy(t, samples(), parquet.PageBufferSize(64)),
		"all in a page":        encodeBy(t, samples()),
		"pages of version 1":   encodeBy(t, samples(), parquet.DataPageVersion(1)),
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got, err := readParquet(t, data, columns)
			if err != nil {
				t.Fatal(err)
			}
			if len(got) != 9 || !reflect.DeepEqual(got, want) {
				t.Errorf("Parquet has\n%+v\nand CSV has\n%+v", got, want)
			}
		})
	}
}

// mixed is a row with a column of each type, in a dictionary and not.
type mixed struct {
	Run    int64    `parquet:"name"`
	Time   int32    `parquet:"Time"`
	Step   float64  `parquet:"Step Number,dict"`
	Fault  *string  `parquet:"fault,optional,dict"`
	Whole  float64  `parquet:"whole,dict"`
	Double *float64 `parquet:"double,optional,dict"`
	Single *float32 `parquet:"single,optional"`
	Count  *int32   `parquet:"count,optional,dict"`
	Valve  *bool    `parquet:"valve,optional"`
	Text   *string  `parquet:"text,optional"`
	Never  *float64 `parquet:"never,optional"`
}

// TestParquetOfAllTypes: whatever pages hold, a run is what its rows say one by one.
func TestParquetOfAllTypes(t *testing.T) {
	t.Parallel()
	random := rand.New(rand.NewPCG(1, 2))
	var rows []mixed
	var csv strings.Builder
	csv.WriteString("name,Time,Step Number,fault,whole,double,single,count,valve,text,never\n")
	for run := range 40 {
		for at := range 1 + random.IntN(30) {
			row, line := randomRow(random, int64(run), int32(at))
			rows = append(rows, row)
			csv.WriteString(line)
		}
	}

	r, err := trace.NewReader(strings.NewReader(csv.String()), "x.csv")
	want, err := all(t, r, err)
	if err != nil {
		t.Fatal(err)
	}
	for _, size := range []int{1, 50, 300, 1 << 20} {
		got, err := readParquet(t, encodeBy(t, rows, parquet.PageBufferSize(size)), trace.Columns{})
		if err != nil {
			t.Fatal(err)
		}
		if !reflect.DeepEqual(got, want) {
			t.Errorf("Parquet with pages of %d bytes has other runs than CSV", size)
		}
	}
}

// randomRow returns a row, and as a line of CSV. In every other run some values are missing.
func randomRow(random *rand.Rand, run int64, at int32) (mixed, string) {
	row := mixed{Run: run, Time: at, Step: float64(at / 9), Whole: float64(random.IntN(5)) / 4}
	fields := []string{fmt.Sprint(row.Run), fmt.Sprint(row.Time), fmt.Sprint(row.Step), "", fmt.Sprint(row.Whole)}
	if run%5 == 3 {
		row.Fault, fields[3] = new("leak"), "leak"
	}
	missing := func() bool { return run%2 == 1 && random.IntN(3) == 0 }
	n := random.IntN(9)
	row.Double = unless(missing(), float64(n)/8, &fields)
	row.Single = unless(missing(), float32(n)/4, &fields)
	row.Count = unless(missing(), int32(n-4), &fields)
	row.Valve = unless(missing(), n%3 == 0, &fields)
	row.Text = unless(missing(), fmt.Sprint(n), &fields)
	fields = append(fields, "")
	return row, strings.Join(fields, ",") + "\n"
}

// unless returns a value, nil if it is missing, and appends it to a line of CSV.
func unless[T any](missing bool, v T, line *[]string) *T {
	if missing {
		*line = append(*line, "")
		return nil
	}
	text := fmt.Sprint(v)
	*line = append(*line, strings.NewReplacer("true", "1", "false", "0").Replace(text))
	return &v
}

// TestParquetOfWrongTexts: a dictionary may have texts that are no numbers. The runs before the row that
// has one are read, and that row is named.
func TestParquetOfWrongTexts(t *testing.T) {
	t.Parallel()
	type row struct {
		Name string  `parquet:"name,dict"`
		Time string  `parquet:"Time,dict"`
		Step *string `parquet:"Step Number,optional,dict"`
		A    *string `parquet:"a,optional,dict"`
	}
	rows := make([]row, 60)
	for i := range rows {
		rows[i] = row{Name: fmt.Sprint("r", i/20), Time: fmt.Sprint(i), Step: new("1"), A: new(fmt.Sprint(i%3) + ".5")}
	}
	rows[7].A = nil
	for name, c := range map[string]struct {
		spoil func(*row)
		want  string
	}{
		"sensor":  {func(r *row) { r.A = new("broken") }, `x.parquet:54: column "a": "broken" is not a number`},
		"time":    {func(r *row) { r.Time = "noon" }, `x.parquet:54: column "Time": "noon" is not a time`},
		"step":    {func(r *row) { r.Step = new("one") }, `x.parquet:54: column "Step Number": "one" is not a recipe step`},
		"no step": {func(r *row) { r.Step = nil }, `x.parquet:54: column "Step Number": "" is not a recipe step`},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			spoiled := slices.Clone(rows)
			c.spoil(&spoiled[53])
			wafers, err := readParquet(t, encodeBy(t, spoiled), trace.Columns{})
			if err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("error %v, want one with %q", err, c.want)
			}
			if len(wafers) == 0 {
				t.Fatal("no run was read before the problem")
			}
			if got, want := wafers[0].Trace.Values[0][5:9], []float64{2.5, 0.5, -1, 2.5}; !slices.Equal(got, want) {
				t.Errorf("the sensor is %v, want %v", got, want)
			}
		})
	}
}

// TestParquetNamesTheRow: of a file that is read many rows at once, too.
func TestParquetNamesTheRow(t *testing.T) {
	t.Parallel()
	type row struct {
		Name string  `parquet:"name,dict"`
		Time float64 `parquet:"Time"`
		Step int64   `parquet:"Step Number"`
		A    string  `parquet:"a"`
	}
	rows := make([]row, 50)
	for i := range rows {
		rows[i] = row{Name: fmt.Sprint("r", i/20), Time: float64(i), Step: 1, A: "1.5"}
	}
	for name, c := range map[string]struct {
		spoil func(*row)
		want  string
	}{
		"sensor": {func(r *row) { r.A = "broken" }, `x.parquet:34: column "a": "broken" is not a number`},
		"time":   {func(r *row) { r.Time = math.Inf(1) }, `x.parquet:34: column "Time": "+Inf" is not a time`},
		"step":   {func(r *row) { r.Step = 1 << 40 }, `x.parquet:34: column "Step Number": "1099511627776" is not a recipe step`},
		"run":    {func(r *row) { r.Name = "" }, `x.parquet:34: column "name": is empty`},
		"again":  {func(r *row) { r.Name = "r0" }, `x.parquet:34: column "name": run "r0" was there before, at line 1`},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			spoiled := slices.Clone(rows)
			c.spoil(&spoiled[33])
			wafers, err := readParquet(t, encodeBy(t, spoiled), trace.Columns{})
			if err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("error %v, want one with %q", err, c.want)
			}
			if len(wafers) > 2 || len(wafers) == 0 || len(wafers[0].Trace.Time) != 20 {
				t.Errorf("%d runs were read before the problem, want one or two", len(wafers))
			}
		})
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

// TestDamagedParquet: a byte that is wrong makes other values or an error, and no panic.
func TestDamagedParquet(t *testing.T) {
	t.Parallel()
	whole := encodeBy(t, samples()[:2])
	for at := range whole {
		for _, wrong := range []byte{0x00, 0x7f, 0xff} {
			data := bytes.Clone(whole)
			data[at] = wrong
			_, err := readParquet(t, data, trace.Columns{Ignore: []string{"note"}})
			if problems := new(trace.Problems); err != nil && !errors.As(err, &problems) {
				t.Errorf("byte %d as %#x: error %v is none of the file", at, wrong, err)
			}
		}
	}
}

// TestParquetLZ4: a broken block of LZ4 would take all memory.
func TestParquetLZ4(t *testing.T) {
	t.Parallel()
	data := encodeBy(t, samples(), parquet.Compression(&parquet.Lz4Raw))
	_, err := readParquet(t, data, trace.Columns{Ignore: []string{"note"}})
	if err == nil || !strings.Contains(err.Error(), "is compressed with LZ4, which is not taken: write it with Snappy or Zstandard") {
		t.Errorf("got %v", err)
	}
}

// FuzzParquet: whatever the file says, it is read or rejected, and runs are within their limits.
func FuzzParquet(f *testing.F) {
	f.Add(encode(f, samples()))
	f.Add(encode(f, samples()[:1]))
	random := rand.New(rand.NewPCG(1, 2))
	var rows []mixed
	for i := range 20 {
		row, _ := randomRow(random, int64(i/7), int32(i))
		rows = append(rows, row)
	}
	f.Add(encodeBy(f, rows))
	f.Fuzz(func(t *testing.T, data []byte) {
		for _, columns := range []trace.Columns{{}, {Ignore: []string{"note"}}} {
			wafers, err := readParquet(t, data, columns)
			if problems := new(trace.Problems); err != nil && !errors.As(err, &problems) {
				return
			}
			for _, w := range wafers {
				rows := len(w.Trace.Time)
				if rows == 0 || len(w.Trace.Step) != rows {
					t.Errorf("a run has %d times and %d steps", rows, len(w.Trace.Step))
				}
				for i, column := range w.Trace.Values {
					if len(column) != rows {
						t.Errorf("a run has %d times and %d values of sensor %d", rows, len(column), i)
					}
				}
			}
		}
	})
}
