package ingest

import (
	"bytes"
	"errors"
	"fmt"
	"math"
	"net/http"
	"net/url"
	"reflect"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/ipc"
	"github.com/apache/arrow-go/v18/arrow/memory"
	"github.com/parquet-go/parquet-go"
)

// query is a request for a run, with more parameters.
func query(more string) string { return "chamber=etch1:a&run=r1&recipe=etch&wafer=7&" + more }

func parse(format Format, data, parameters string) (*Run, error) {
	q, err := url.ParseQuery(parameters)
	if err != nil {
		return nil, err
	}
	r, err := ParseRequest(q, nil)
	if err != nil {
		return nil, err
	}
	return Parse(format, []byte(data), r)
}

func mustParse(t *testing.T, format Format, data, parameters string) *Run {
	t.Helper()
	run, err := parse(format, data, parameters)
	if err != nil {
		t.Fatal(err)
	}
	return run
}

const (
	wideCSV = "ts,step,Pressure,RF Power\n" +
		"2026-03-01T12:00:00Z,4,1227,131.5\n" +
		"2026-03-01T12:00:00.1Z,4,1229,\n" +
		"2026-03-01T12:00:00.2Z,5,1221,130\n"
	wideMap = "time-column=ts&step-column=step"
)

// equal reports whether two runs are the same to the bit.
func equal(a, b *Run) bool {
	return reflect.DeepEqual(a.Ref, b.Ref) && difference(&a.Trace, &b.Trace) == "" && a.Trace.Tool == b.Trace.Tool && a.Trace.Context == b.Trace.Context
}

func TestFormatsHoldTheSameRun(t *testing.T) {
	t.Parallel()
	want := mustParse(t, CSV, wideCSV, query(wideMap))
	start := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	if got := want.Ref; got.Chamber.String() != "etch1:a" || got.ID != "r1" || got.Recipe != "etch" || got.Wafer != "7" || !got.Start.Equal(start) || !got.End.Equal(start.Add(200*time.Millisecond)) {
		t.Errorf("the run is %+v", got)
	}
	if got := want.Trace.Time; !reflect.DeepEqual(got, []float64{0, 0.1, 0.2}) {
		t.Errorf("the times are %v", got)
	}
	if got := want.Trace.Values; !reflect.DeepEqual(got[0], []float64{1227, 1229, 1221}) || got[1][0] != 131.5 || !math.IsNaN(got[1][1]) {
		t.Errorf("the values are %v", got)
	}
	if want.Trace.Tool != "etch1" || want.Trace.Chamber != "a" || want.Trace.Context != "r1" || !reflect.DeepEqual(want.Trace.Step, []int32{4, 4, 5}) {
		t.Errorf("the trace is %+v", want.Trace)
	}

	long := "ts,step,svid,v\n" +
		"2026-03-01T12:00:00.2Z,5,RF Power,130\n2026-03-01T12:00:00Z,4,Pressure,1227\n2026-03-01T12:00:00.1Z,4,Pressure,1229\n" +
		"2026-03-01T12:00:00Z,4,RF Power,131.5\n2026-03-01T12:00:00.2Z,5,Pressure,1221\n"
	for _, test := range []struct {
		name       string
		format     Format
		data       string
		parameters string
	}{
		{"JSON by row", JSON, `[{"ts":"2026-03-01T12:00:00Z","step":4,"Pressure":1227,"RF Power":131.5},
			{"ts":"2026-03-01T12:00:00.1Z","step":4,"Pressure":1229},{"RF Power":130,"ts":"2026-03-01T12:00:00.2Z","Pressure":1221,"step":5.0}]`, wideMap},
		{"JSON by column", JSON, `{"ts":["2026-03-01T12:00:00Z","2026-03-01 12:00:00.1","2026-03-01T13:00:00.2+01:00"],"step":[4,4,5],
			"Pressure":[1227,1229,1221],"RF Power":[131.5,null,130]}`, wideMap},
		{"seconds since 1970", CSV, "ts,step,Pressure,RF Power\n1772366400,4,1227,131.5\n1772366400.1,4,1229,NaN\n1772366400.2,5,1221,130\n", wideMap},
		{"milliseconds since 1970", JSON, `{"ts":[1772366400000,1772366400100,1772366400200],"step":[4,4,5],"Pressure":[1227,1229,1221],"RF Power":[131.5,null,130]}`, wideMap + "&time-unit=ms"},
		{"seconds from the start", CSV, "ts,step,Pressure,RF Power\n0,4,1227,131.5\n0.1,4,1229,\n0.2,5,1221,130\n", wideMap + "&start=2026-03-01T12:00:00Z"},
		{"Parquet", Parquet, parquetTable(t), wideMap},
		{"Arrow stream", ArrowStream, arrowTable(t, false), wideMap},
		{"Arrow file", ArrowFile, arrowTable(t, true), wideMap},
	} {
		t.Run(test.name, func(t *testing.T) {
			if got := mustParse(t, test.format, test.data, query(test.parameters)); !equal(got, want) {
				t.Errorf("the run is\n%+v, want\n%+v: %s", got, want, difference(&want.Trace, &got.Trace))
			}
		})
	}
	t.Run("long form", func(t *testing.T) {
		got := mustParse(t, CSV, long, query(wideMap+"&sensor-column=svid&value-column=v"))
		// Sensors come in the order in which they are first named.
		got.Trace.SVIDs[0], got.Trace.SVIDs[1] = got.Trace.SVIDs[1], got.Trace.SVIDs[0]
		got.Trace.Values[0], got.Trace.Values[1] = got.Trace.Values[1], got.Trace.Values[0]
		if !equal(got, want) {
			t.Errorf("the run is\n%+v, want\n%+v: %s", got, want, difference(&want.Trace, &got.Trace))
		}
	})
}

// TestColumnsSayWhichRun: what parameters don't say, columns do.
func TestColumnsSayWhichRun(t *testing.T) {
	t.Parallel()
	data := "Time,Step Number,P,tool,ch,id,rec,prod,lotid,slot\n0,1,5,etch1,a,r1,etch,X,L1,7\n1,1,6,etch1,a,r1,etch,X,L1,7\n"
	got := mustParse(t, CSV, data, "start=2026-03-01T12:00:00Z&tool-column=tool&chamber-column=ch&run-column=id&recipe-column=rec&product-column=prod&lot-column=lotid&wafer-column=slot")
	if r := got.Ref; r.Chamber.String() != "etch1:a" || r.ID != "r1" || r.Recipe != "etch" || r.Product != "X" || r.Lot != "L1" || r.Wafer != "7" {
		t.Errorf("the run is %+v", r)
	}
	if !reflect.DeepEqual(got.Trace.SVIDs, []string{"P"}) {
		t.Errorf("the sensors are %q", got.Trace.SVIDs)
	}
}

// parquetRow is a row of wideCSV.
type parquetRow struct {
	TS       time.Time `parquet:"ts,timestamp(microsecond)"`
	Step     int32     `parquet:"step,dict"`
	Pressure float32   `parquet:"Pressure"`
	Power    *float64  `parquet:"RF Power,optional"`
}

func parquetTable(t testing.TB) string {
	t.Helper()
	start, high, low := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC), 131.5, 130.0
	var b bytes.Buffer
	w := parquet.NewGenericWriter[parquetRow](&b, parquet.Compression(&parquet.Zstd))
	rows := []parquetRow{{start, 4, 1227, &high}, {start.Add(100 * time.Millisecond), 4, 1229, nil}}
	if _, err := w.Write(rows); err != nil {
		t.Fatal(err)
	}
	if err := w.Flush(); err != nil { // a second row group
		t.Fatal(err)
	}
	if _, err := w.Write([]parquetRow{{start.Add(200 * time.Millisecond), 5, 1221, &low}}); err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return b.String()
}

func arrowTable(t testing.TB, file bool) string {
	t.Helper()
	schema := arrow.NewSchema([]arrow.Field{
		{Name: "ts", Type: &arrow.TimestampType{Unit: arrow.Millisecond}}, {Name: "step", Type: arrow.PrimitiveTypes.Uint8},
		{Name: "Pressure", Type: arrow.PrimitiveTypes.Int16}, {Name: "RF Power", Type: arrow.PrimitiveTypes.Float64, Nullable: true},
	}, nil)
	b := array.NewRecordBuilder(memory.NewGoAllocator(), schema)
	defer b.Release()
	const start = 1772366400000
	b.Field(0).(*array.TimestampBuilder).AppendValues([]arrow.Timestamp{start, start + 100, start + 200}, nil)
	b.Field(1).(*array.Uint8Builder).AppendValues([]uint8{4, 4, 5}, nil)
	b.Field(2).(*array.Int16Builder).AppendValues([]int16{1227, 1229, 1221}, nil)
	b.Field(3).(*array.Float64Builder).AppendValues([]float64{131.5, 0, 130}, []bool{true, false, true})
	batch := b.NewRecordBatch()
	defer batch.Release()
	var out bytes.Buffer
	var w interface {
		Write(arrow.RecordBatch) error
		Close() error
	}
	w = ipc.NewWriter(&out, ipc.WithSchema(schema), ipc.WithZstd())
	if file {
		var err error
		if w, err = ipc.NewFileWriter(&out, ipc.WithSchema(schema), ipc.WithLZ4()); err != nil {
			t.Fatal(err)
		}
	}
	if err := errors.Join(w.Write(batch), w.Close()); err != nil {
		t.Fatal(err)
	}
	return out.String()
}

// TestMalformed: what is wrong is named, with the row, the column and what to do.
func TestMalformed(t *testing.T) {
	t.Parallel()
	const start = "&start=2026-03-01T12:00:00Z"
	short := "time-column=ts&step-column=-" + start
	for _, test := range []struct {
		name       string
		format     Format
		data       string
		parameters string
		want       []string
	}{
		{"nothing", CSV, "", query(wideMap), []string{"the first line has to name the columns"}},
		{"no rows", CSV, "ts,step,P\n", query(wideMap), []string{`"ts": has no row`}},
		{"names only", CSV, "ts,step\n0,1\n", query(wideMap + start), []string{"there is no sensor column"}},
		{"a missing column", CSV, "time,step,P\n0,1,2\n", query(wideMap + start), []string{`"ts": is missing: it was to hold the time`, `has the columns "time", "step", "P"`}},
		{"one name twice", CSV, "ts,P,P\n0,1,2\n", query(short), []string{`"P": names both column 2 and column 3`}},
		{"cells", CSV, "ts,step,P\n0,1,x\nnoon,2.5,1\n2,1\n", query(wideMap + start), []string{
			`row 1, "P": "x" is not a number: write one as 12.5`, `row 2, "ts": "noon" is not a time`, `row 2, "step": "2.5" is not a recipe step`, "row 3: has 2 fields"}},
		{"an open quote", CSV, "ts,P\n0,\"1\n", query(short), []string{"row 1: ", "put fields with commas or quotes in quotes"}},
		{"no start", CSV, "ts,P\n0,1\n", query("time-column=ts&step-column=-"), []string{`"start": is missing: times such as 0 count from the start`}},
		{"start and timestamps", CSV, "ts,P\n2026-03-01T12:00:00Z,1\n", query(short), []string{`"start": is given, and column "ts" has timestamps`}},
		{"numbers among timestamps", CSV, "ts,P\n2026-03-01T12:00:00Z,1\n5,1\n", query("time-column=ts&step-column=-"), []string{`row 2, "ts": "5" is a number among timestamps`}},
		{"two runs", CSV, "ts,P,id\n0,1,a\n1,1,b\n", "chamber=etch1:a&run-column=id&" + short, []string{`row 2, "id": is "b", and was "a" before: send one run at a time`}},
		{"a wrong name", CSV, "ts,P\n0,1\n", "chamber=etch1&run=r1&" + short, []string{`chamber "etch1" has no colon`}},
		{"a wrong unit", CSV, "ts,P\n1772366400000,1\n", query("time-column=ts&step-column=-"), []string{"row 1", "say which unit it is with time-unit"}},
		{"parameters", CSV, "", "chamber=a:b&chamber-column=c&colour=red&start=noon&time-unit=h&sensor-column=s", []string{
			`"run": is missing: give run=..., or name the column`, `"colour": is no parameter: there are chamber, chamber-column,`, `"start": "noon" is no time`,
			`"time-unit": "h" is no unit`, `"sensor-column": and value-column belong together`, `"chamber": is given, and chamber-column as well`}},
		{"two values of a time", CSV, "ts,s,v\n0,P,1\n0,P,2\n", query(short + "&sensor-column=s&value-column=v"), []string{`row 2, "s": "P" has a value at this time already`}},
		{"two steps of a time", CSV, "ts,n,s,v\n0,1,P,1\n0,2,Q,2\n", query("time-column=ts&step-column=n&sensor-column=s&value-column=v" + start), []string{`row 2, "n": is 2, and another row of the same time has 1`}},
		{"JSON that ends", JSON, `[{"ts":0,"P":1}`, query(short), []string{"ends too early, at byte"}},
		{"JSON that is a number", JSON, `5`, query(short), []string{"write an array of objects, one per row"}},
		{"JSON within a cell", JSON, `[{"ts":0,"P":1},{"ts":1,"P":[2]}]`, query(short), []string{`row 2, "P": there is [: write a number`}},
		{"JSON with a name twice", JSON, `[{"ts":0,"P":1,"P":2}]`, query(short), []string{`row 1, "P": is there twice`}},
		{"JSON columns of two lengths", JSON, `{"ts":[0,1],"P":[1]}`, query(short), []string{`"P": has 1 rows, and another column has 2`}},
		{"two JSON tables", JSON, `[{"ts":0,"P":1}] []`, query(short), []string{"something follows the table at byte"}},
		{"no Parquet", Parquet, "PAR1 but no more", query(short), []string{"this is no Parquet file that can be read"}},
		{"half a Parquet file", Parquet, parquetTable(t)[:200], query(wideMap), []string{"this is no Parquet file that can be read"}},
		{"no Arrow", ArrowStream, "no arrow", query(short), []string{"this is no Arrow stream that can be read"}},
		{"half an Arrow file", ArrowFile, arrowTable(t, true)[:200], query(wideMap), []string{"this is no Arrow file that can be read"}},
		{"half an Arrow stream", ArrowStream, arrowTable(t, false)[:600], query(wideMap), []string{"this is no Arrow stream that can be read"}},
	} {
		t.Run(test.name, func(t *testing.T) {
			_, err := parse(test.format, test.data, test.parameters)
			if p := new(Problems); !errors.As(err, &p) {
				t.Fatalf("the error is %v", err)
			}
			for _, want := range test.want {
				if !strings.Contains(err.Error(), want) {
					t.Errorf("the error is\n%v\nwant in it: %s", err, want)
				}
			}
		})
	}
}

// TestDamageTakesBoundedMemory: lengths that are claimed in binary formats are believed only as far as they may be.
// The test isn't parallel, as it measures what all tests take.
func TestDamageTakesBoundedMemory(t *testing.T) {
	const most = maxArrowBytes + 16<<20
	damages := []string{"\xff", "\x7f", "\x0f", "\xff\xff\xff\x7f", "\xff\xff\xff\xff\x0f", "\xfe\xff\xff\xff\x0f"} // also as the formats write numbers
	for format, of := range map[Format]string{
		Parquet: parquetTable(t), ArrowStream: arrowTable(t, false), ArrowFile: arrowTable(t, true),
	} {
		worst := uint64(0)
		for at := 0; at < len(of); at += 3 { // each place would take half a minute
			for _, damage := range damages {
				data := []byte(of)
				copy(data[at:], damage)
				worst = max(worst, taken(func() { _, _ = parse(format, string(data), query(wideMap)) }))
			}
		}
		if t.Logf("%s: %d bytes at most", format, worst); worst > most {
			t.Errorf("%s: %d bytes were taken, want %d at most", format, worst, most)
		}
	}
}

// taken returns how many bytes of memory f takes.
func taken(f func()) uint64 {
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	f()
	runtime.ReadMemStats(&after)
	return after.TotalAlloc - before.TotalAlloc
}

// TestTooLarge: nothing larger is taken than defenders take.
func TestTooLarge(t *testing.T) {
	t.Parallel()
	// In the long form each row may have its own time and sensor: n rows stand for n² values.
	var rows strings.Builder
	rows.WriteString("ts,s,v\n")
	for i := range 3000 {
		_, _ = fmt.Fprintf(&rows, "%d,s%d,1\n", i, i)
	}
	_, err := parse(CSV, rows.String(), query("time-column=ts&step-column=-&sensor-column=s&value-column=v&start=2026-03-01T12:00:00Z"))
	refusal := new(Refusal)
	if !errors.As(err, &refusal) || refusal.Status != http.StatusRequestEntityTooLarge {
		t.Errorf("3,000 sensors at 3,000 times: %v", err)
	}
}
