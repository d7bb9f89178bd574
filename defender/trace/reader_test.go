package trace_test

import (
	"errors"
	"io"
	"math"
	"os"
	"strings"
	"testing"
	"testing/iotest"

	"github.com/muster-dev/muster/defender/trace"
	"github.com/muster-dev/muster/internal/realdata"
)

const header = "set,wafer,name,fault,Time,Step Number,A,B\n"

func readAll(text string) ([]*trace.Wafer, error) {
	r, err := trace.NewReader(strings.NewReader(text), "x.csv")
	if err != nil {
		return nil, err
	}
	var wafers []*trace.Wafer
	for w, err := range r.All() {
		if err != nil {
			return wafers, err
		}
		wafers = append(wafers, w)
	}
	return wafers, nil
}

func TestWafersAreRead(t *testing.T) {
	t.Parallel()
	wafers, err := readAll("\ufeff" + header +
		"calibration,1,l2901.txm,,11.9,4,751,1e3\n" +
		"calibration,1,l2901.txm,,12.9,5,,NaN\n" +
		"test,1,l3115.txm,TCP +50,10,4, 1 ,2\n" +
		"test,2,other,\"a, b\",10,4,1,2\n")
	if err != nil {
		t.Fatal(err)
	}
	if len(wafers) != 3 {
		t.Fatalf("%d wafers, want 3", len(wafers))
	}
	w := wafers[0]
	if !w.Normal() || w.Experiment != "29" || w.Set != "calibration" || w.Trace.Context != "l2901.txm" || w.Trace.Wafer != "1" || w.Trace.Recipe != "experiment-29" {
		t.Errorf("first wafer is %+v", w)
	}
	if err := w.Trace.Validate(); err != nil {
		t.Error(err)
	}
	if tr := w.Trace; len(tr.Time) != 2 || tr.Time[1] != 12.9 || tr.Step[1] != 5 || tr.SVIDs[1] != "B" || tr.Values[1][0] != 1000 || !math.IsNaN(tr.Values[0][1]) || !math.IsNaN(tr.Values[1][1]) {
		t.Errorf("first trace is %+v", tr)
	}
	if w := wafers[1]; w.Normal() || w.Fault != "TCP +50" || w.Experiment != "31" || w.Trace.Values[0][0] != 1 {
		t.Errorf("second wafer is %+v", w)
	}
	if w := wafers[2]; w.Fault != "a, b" || w.Experiment != "" || w.Trace.Recipe != "" {
		t.Errorf("third wafer is %+v", w)
	}
}

func TestProblemsNameLineColumnAndFix(t *testing.T) {
	t.Parallel()
	row := "c,1,w1,,1,4,1,2\n"
	for _, test := range []struct {
		behaviour, text string
		want            []string // parts of each problem
	}{
		{"an empty file", "", []string{"x.csv:1: the file is empty"}},
		{"all missing columns at once", "set,wafer,Time,A\n", []string{`column "name": is missing: add it`, `column "Step Number": is missing`, `the file has the columns "set", "wafer", "Time", "A"`}},
		{"no sensor", "set,wafer,name,fault,Time,Step Number\n", []string{"no sensor column", "the file has the columns"}},
		{"a name twice", header[:len(header)-1] + ",A\n", []string{`column "A": names both field 7 and field 9`}},
		{"a field without a name", header[:len(header)-1] + ",\n", []string{"field 9 needs a name"}},
		{"several broken rows at once", header + row + "c,1,w1,,x,4,1,2\n" + row + "c,1,w1,,2,4.5,1,zwei\n" + "c,1,w1,,2\n",
			[]string{`x.csv:3: column "Time": "x" is not a time`, `x.csv:5: column "Step Number": "4.5" is not a recipe step`, `x.csv:5: column "B": "zwei" is not a number`, "x.csv:6: the row has 5 fields and the first line names 8"}},
		{"a time that is not finite", header + "c,1,w1,,inf,4,1,2\n" + "c,1,w1,,,4,1,2\n", []string{`x.csv:2: column "Time": "inf"`, `x.csv:3: column "Time": ""`}},
		{"a stray quote", header + row + "c,1,\"w\"1,,1,4,1,2\n" + "c,1,w1,,1,4,?,2\n", []string{"x.csv:3: ", `x.csv:4: column "A"`}},
		{"a wafer that comes back", header + row + "c,2,w2,,1,4,1,2\n" + row, []string{`x.csv:4: column "name": run "w1" was there before, at line 2`}},
		{"a fault that changes", header + row + "c,1,w1,bad,2,4,1,2\n", []string{`x.csv:3: column "name": run "w1" was there before`}},
		{"a wafer without a name", header + "c,1,,,1,4,1,2\n", []string{`x.csv:2: column "name": is empty`}},
	} {
		t.Run(test.behaviour, func(t *testing.T) {
			t.Parallel()
			_, err := readAll(test.text)
			var problems *trace.Problems
			if !errors.As(err, &problems) {
				t.Fatalf("error is %v, want Problems", err)
			}
			if len(problems.List) != len(test.want) || problems.More {
				t.Fatalf("problems are\n%v\nwant %q", err, test.want)
			}
			for i, want := range test.want {
				if got := problems.List[i].Error(); !strings.Contains(got, want) {
					t.Errorf("problem is %s, want %s", got, want)
				}
			}
		})
	}
}

func TestManyProblemsAreCapped(t *testing.T) {
	t.Parallel()
	_, err := readAll(header + strings.Repeat("c,1,w1\n", 1000))
	var problems *trace.Problems
	if !errors.As(err, &problems) || len(problems.List) != trace.MaxProblems || !problems.More || !strings.HasSuffix(err.Error(), "and more") {
		t.Errorf("error is %v, want %d problems and more", err, trace.MaxProblems)
	}
}

// TestReader_alike: a column that is no sensor leaves room for the next one, and the file isn't
// read to its end for it.
func TestReader_alike(t *testing.T) {
	t.Parallel()
	for behaviour, test := range map[string]struct {
		text string
		want int
	}{
		"two columns of text": {header + strings.Repeat("c,1,w1,,1,4,x,y\n", 1000), 4},
		"runs in turn":        {header + strings.Repeat("c,1,w1,,1,4,1,2\nc,1,w2,,1,4,1,2\n", 1000), 2},
		"few of them":         {header + strings.Repeat("c,1,w1,,1,4,x,2\n", 5) + "c,1,w1,,1,4,1,y\n", 3},
	} {
		r, err := trace.NewReader(io.MultiReader(strings.NewReader(test.text), iotest.ErrReader(errors.New("the end"))), "x.csv")
		if err != nil {
			t.Fatal(err)
		}
		for err == nil {
			_, err = r.Read() // the first run is whole
		}
		var problems *trace.Problems
		if behaviour == "few of them" { // which need the end of the file
			_, err = readAll(test.text)
		}
		if !errors.As(err, &problems) || len(problems.List) != test.want {
			t.Errorf("%s: the error is %v, want %d problems", behaviour, err, test.want)
		} else if problems.More != (behaviour != "few of them") {
			t.Errorf("%s: there are more: %t", behaviour, problems.More)
		}
	}
}

// TestReader_foreign: a file that isn't CSV is told as what it is.
func TestReader_foreign(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		"\x1f\x8b\x08\x00\x00":                 "x.csv: is compressed with gzip: decompress it first",
		"\x28\xb5\x2f\xfd\x00":                 "zstd",
		"PK\x03\x04\x14":                       "a ZIP archive, as workbooks of Excel are",
		"\xff\xfen\x00a\x00":                   "text in UTF-16: save it as UTF-8",
		"\xfe\xff\x00n":                        "text in UTF-16",
		"ARROW1\x00\x00":                       "an Arrow file: write it as Parquet or CSV",
		"name;Time;A\nx;1;2,5\n":               "x.csv: fields are separated by semicolons: write commas between them, and points in numbers",
		"name\tTime\tA\nx\t1\t2\n":             "separated by tabs",
		"name|Time|A\nx|1|2\n":                 "separated by bars",
		"name,Time,Step Number,A\rx,1,1,2\r":   "the lines end with a carriage return alone",
		"name\n":                               `column "Time": is missing`,
		"\"na;me\",Time,Step Number,A\n":       `column "name": is missing`,
		"name,Time,Step Number,A\r\nx,1,1,?\n": `x.csv:2: column "A"`,
	} {
		_, err := readAll(text)
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, want %q", text, err, want)
		}
	}
}

func TestWafersBeforeAProblemAreRead(t *testing.T) {
	t.Parallel()
	wafers, err := readAll(header + "c,1,w1,,1,4,1,2\n" + "c,2,w2,,1,4,1,2\n" + "c,3,w3,,1,4,1,?\n")
	if len(wafers) != 1 || err == nil {
		t.Errorf("%d wafers and error %v, want the first wafer and an error", len(wafers), err)
	}
}

func TestReadErrorsArePassedOn(t *testing.T) {
	t.Parallel()
	broken := errors.New("broken pipe")
	r, err := trace.NewReader(io.MultiReader(strings.NewReader(header+"c,1,w1,,1,4,1,2\n"), iotest.ErrReader(broken)), "x.csv")
	if err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if _, err := r.Read(); !errors.Is(err, broken) {
			t.Errorf("error is %v, want %v", err, broken)
		}
	}
}

func TestRecordedWafers(t *testing.T) {
	t.Parallel()
	f, err := os.Open(realdata.Path(t, "etch/lam9600_machine.csv"))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	r, err := trace.NewReader(f, "lam9600_machine.csv")
	if err != nil {
		t.Fatal(err)
	}
	normal, faulty, short := 0, 0, 0
	for w, err := range r.All() {
		if err != nil {
			t.Fatal(err)
		}
		if w.Normal() {
			normal++
		} else {
			faulty++
		}
		if len(w.Trace.Time) < 90 {
			short++
		}
		if len(w.Trace.SVIDs) != 19 || w.Experiment != "29" && w.Experiment != "31" {
			t.Errorf("wafer %s: %d SVIDs, experiment %q", w.Trace.Context, len(w.Trace.SVIDs), w.Experiment)
		}
	}
	if normal != 71 || faulty != 15 || short != 2 {
		t.Errorf("%d normal, %d faulty, %d truncated wafers, want 71, 15 and 2", normal, faulty, short)
	}
}

func FuzzReader(f *testing.F) {
	f.Add(header + "c,1,w1,,1,4,1,2\nc,1,w1,,2,4,,NaN\nt,1,w2,f,1,4,1,2\n")
	f.Add("set,wafer\n1,\"2\n")
	f.Fuzz(func(t *testing.T, text string) {
		wafers, err := readAll(text)
		var problems *trace.Problems
		if err != nil && (!errors.As(err, &problems) || len(problems.List) == 0 || len(problems.List) > trace.MaxProblems) {
			t.Fatalf("error is %v", err)
		}
		for _, w := range wafers {
			if err := w.Trace.Validate(); err != nil {
				t.Fatal(err)
			}
			if len(w.Trace.Time) == 0 {
				t.Fatal("a wafer without rows")
			}
		}
	})
}

func TestColumns(t *testing.T) {
	t.Parallel()
	const text = "timestamp,tool,recipe,run,lot,A,B,bad\n" +
		"2026-11-01T10:00:00Z,etch1:a,ox,1,L1,1,2,\n" +
		"2026-11-01T10:00:01.5+00:00,etch1:a,ox,1,L1,3,4,\n" +
		"2026-11-01 10:00:00,etch1:b,ox,1,L1,5,6,leak\n"
	read := func(c trace.Columns) ([]*trace.Wafer, error) {
		r, err := trace.NewColumnReader(strings.NewReader(text), "x.csv", c)
		if err != nil {
			return nil, err
		}
		var wafers []*trace.Wafer
		for w, err := range r.All() {
			if err != nil {
				return nil, err
			}
			wafers = append(wafers, w)
		}
		return wafers, nil
	}
	all := trace.Columns{Run: "run", Time: "timestamp", Step: trace.NoStep, Fault: "bad", Chamber: "tool", Recipe: "recipe", Ignore: []string{"lot"}}
	t.Run("say-what-holds-what", func(t *testing.T) {
		t.Parallel()
		wafers, err := read(all)
		if err != nil || len(wafers) != 2 {
			t.Fatalf("%d wafers, %v, want 2", len(wafers), err)
		}
		a, b := wafers[0], wafers[1]
		if a.Chamber != "etch1:a" || a.Trace.Recipe != "ox" || a.Trace.Context != "1" || !a.Normal() || b.Chamber != "etch1:b" || b.Fault != "leak" {
			t.Errorf("wafers are %+v and %+v", a, b)
		}
		if tr := a.Trace; tr.Time[1]-tr.Time[0] != 1.5 || tr.Step[0] != 1 || len(tr.SVIDs) != 2 || tr.Values[1][1] != 4 {
			t.Errorf("the trace is %+v", tr)
		}
	})
	for behaviour, test := range map[string]struct {
		change func(c *trace.Columns)
		want   []string
	}{
		"name-what-is-missing-and-what-is-there": {func(c *trace.Columns) { c.Chamber, c.Time = "chamber", "" }, []string{`column "chamber": is missing`, `column "Time": is missing`, `"timestamp", "tool", "recipe"`}},
		"ignore-what-is-there":                   {func(c *trace.Columns) { c.Ignore = []string{"lots"} }, []string{`column "lots": is missing`}},
		"are-sensors-unless-told-otherwise":      {func(c *trace.Columns) { c.Ignore = nil }, []string{`column "lot": "L1" is not a number`, "ignore the column"}},
	} {
		t.Run(behaviour, func(t *testing.T) {
			t.Parallel()
			c := all
			test.change(&c)
			_, err := read(c)
			for _, want := range test.want {
				if err == nil || !strings.Contains(err.Error(), want) {
					t.Errorf("the error doesn't say %s: %v", want, err)
				}
			}
		})
	}
}
