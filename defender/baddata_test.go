package defender_test

import (
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/cespare/xxhash/v2"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/muster-dev/muster/defender"
	"github.com/muster-dev/muster/defender/trace"
	"github.com/muster-dev/muster/defender/uchart"
	"github.com/muster-dev/muster/partition"
	"github.com/muster-dev/muster/tchart"
)

// sealed replaces the checksum of a blob, so that what else is wrong is found.
func sealed(blob []byte) []byte {
	body := blob[:len(blob)-8]
	return binary.LittleEndian.AppendUint64(append([]byte(nil), body...), xxhash.Sum64(body))
}

// claim is a blob of version 1 whose header claims a trace of this many rows and
// columns.
func claim(rows, columns uint64) []byte {
	head := binary.AppendUvarint(binary.AppendUvarint(nil, rows), columns)
	head = append(head, make([]byte, 7)...)
	blob := append([]byte("MTC\x02"), binary.AppendUvarint(nil, uint64(len(head))<<1)...)
	return sealed(append(append(blob, head...), make([]byte, 40)...))
}

// TestBadDataThroughTheWholePipeline hands what collectors may send, by fault or by
// accident, to a defender with a history: store, codec, statistics, verdict, row and
// dead letter are the real ones. Each ends as told here, and the next wafer is judged
// as if nothing had been.
func TestBadDataThroughTheWholePipeline(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	metrics := defender.NewMetrics(nil)
	d := s.defender(func(c *defender.Config) {
		c.MaxPoints, c.Metrics = 1<<21, metrics
		strategies(t, "schema: 1\nversion: 1\nstrategies: [{name: a, univariate: {phase1: {runs: 12}, ewma: {lambda: 0.2}, cusum: {k: 0.5}}}]")(c)
	})
	reg := prometheus.NewRegistry()
	reg.MustRegister(metrics.Collectors()...)
	g := trace.Generator{Seed: 1}
	blob := func(change func(tr *tchart.Trace)) func(t *testing.T, w *trace.Wafer) []byte {
		return func(t *testing.T, w *trace.Wafer) []byte {
			change(&w.Trace)
			b, err := tchart.Encode(&w.Trace)
			if err != nil {
				t.Fatal(err)
			}
			return b
		}
	}
	bytesOf := func(change func(b []byte) []byte) func(t *testing.T, w *trace.Wafer) []byte {
		return func(t *testing.T, w *trace.Wafer) []byte {
			return change(blob(func(*tchart.Trace) {})(t, w))
		}
	}
	cut := func(tr *tchart.Trace, n int) {
		tr.Time, tr.Step = tr.Time[:n], tr.Step[:n]
		for i := range tr.Values {
			tr.Values[i] = tr.Values[i][:n]
		}
	}
	for _, test := range []struct {
		name  string
		blob  func(t *testing.T, w *trace.Wafer) []byte
		state uchart.State // of the row; 0 for a dead letter
		want  string       // in the reason or the dead letter
	}{
		{"a few NaN", blob(func(tr *tchart.Trace) { tr.Values[0][3], tr.Values[1][5] = math.NaN(), math.NaN() }), uchart.Normal, ""},
		{"an SVID of NaN only", blob(func(tr *tchart.Trace) {
			for i := range tr.Values[0] {
				tr.Values[0][i] = math.NaN()
			}
		}), uchart.BadData, "has no value"},
		{"NaN everywhere", blob(func(tr *tchart.Trace) {
			for _, c := range tr.Values {
				for i := range c {
					c[i] = math.NaN()
				}
			}
		}), uchart.BadData, "values are missing"},
		{"infinities", blob(func(tr *tchart.Trace) {
			for _, c := range tr.Values {
				for i := range c {
					c[i] = math.Inf(1 - 2*(i%2))
				}
			}
		}), uchart.BadData, "values are missing"},
		{"the largest numbers there are", blob(func(tr *tchart.Trace) {
			for i := range tr.Values[0] {
				tr.Values[0][i] = math.Copysign(math.MaxFloat64, float64(i%2)-0.5)
			}
		}), uchart.BadData, "too large to compute with"},
		{"the smallest numbers there are", blob(func(tr *tchart.Trace) {
			for i := range tr.Values[0] {
				tr.Values[0][i] = math.SmallestNonzeroFloat64
			}
		}), uchart.Alarm, ""},
		{"no rows", blob(func(tr *tchart.Trace) { cut(tr, 0) }), uchart.BadData, "no sample"},
		{"one row", blob(func(tr *tchart.Trace) { cut(tr, 1) }), uchart.BadData, "is missing"},
		{"no SVIDs", blob(func(tr *tchart.Trace) { tr.SVIDs, tr.Values = nil, nil }), uchart.BadData, "is missing"},
		{"truncated at half", blob(func(tr *tchart.Trace) { cut(tr, len(tr.Time)/2) }), uchart.BadData, "usually"},
		{"a step of one sample", blob(func(tr *tchart.Trace) {
			first := tr.Step[0]
			for i := range tr.Step {
				if i > 0 && tr.Step[i] == first {
					tr.Step[i] = tr.Step[len(tr.Step)-1]
				}
			}
		}), uchart.BadData, "samples, usually"},
		{"a step nobody knows", blob(func(tr *tchart.Trace) { tr.Step[0] = math.MaxInt32 }), uchart.BadData, "usually not there"},
		{"time that goes back", blob(func(tr *tchart.Trace) {
			for i := len(tr.Time) / 2; i < len(tr.Time); i++ {
				tr.Time[i] -= 1000
			}
		}), uchart.BadData, "before an earlier row's"},
		{"time that stands still", blob(func(tr *tchart.Trace) {
			for i := range tr.Time {
				tr.Time[i] = 5
			}
		}), uchart.BadData, "have the same time"},
		{"no times", blob(func(tr *tchart.Trace) {
			for i := range tr.Time {
				tr.Time[i] = math.NaN()
			}
		}), uchart.BadData, "no sample with a usable time"},
		{"infinite times", blob(func(tr *tchart.Trace) {
			for i := range tr.Time {
				tr.Time[i] = math.Inf(1)
			}
		}), uchart.BadData, "no sample with a usable time"},
		{"a clock that jumps ahead", blob(func(tr *tchart.Trace) {
			for i := len(tr.Time) / 2; i < len(tr.Time); i++ {
				tr.Time[i] += 1e9
			}
		}), uchart.BadData, "nothing was recorded"},
		{"an SVID twice", blob(func(tr *tchart.Trace) { tr.SVIDs[1] = tr.SVIDs[0] }), uchart.BadData, "is missing"},
		{"SVIDs without names", blob(func(tr *tchart.Trace) { clear(tr.SVIDs) }), uchart.BadData, "is missing"},

		{"nothing", func(*testing.T, *trace.Wafer) []byte { return nil }, 0, "corrupt T-chart"},
		{"another format", func(*testing.T, *trace.Wafer) []byte { return []byte("PAR1 and so on, as much as it takes") }, 0, "corrupt T-chart"},
		{"a version of tomorrow", bytesOf(func(b []byte) []byte { b[3] = 9; return sealed(b) }), 0, "unknown T-chart version 9"},
		{"a truncated blob", bytesOf(func(b []byte) []byte { return b[:len(b)/2] }), 0, "checksum"},
		{"a truncated blob with a valid checksum", bytesOf(func(b []byte) []byte { return sealed(b[:len(b)/2]) }), 0, "corrupt T-chart"},
		{"a flipped bit", bytesOf(func(b []byte) []byte { b[len(b)/2] ^= 4; return b }), 0, "checksum"},
		{"10 GB in a header", func(*testing.T, *trace.Wafer) []byte { return claim(10<<30/8, 1) }, 0, "claims more than"},
		{"10 GB by rows times columns", func(*testing.T, *trace.Wafer) []byte { return claim(1<<22, 1<<14) }, 0, "claims more than"},
		{"a header of 10 GB", func(*testing.T, *trace.Wafer) []byte {
			return sealed(append(binary.AppendUvarint([]byte("MTC\x02"), 10<<31), make([]byte, 40)...))
		}, 0, "header doesn't fit"},
		{"more rows than the defender takes", func(t *testing.T, _ *trace.Wafer) []byte {
			n := 1 << 20
			b, err := tchart.Encode(&tchart.Trace{Time: make([]float64, n), Step: make([]int32, n), SVIDs: []string{"a"}, Values: [][]float64{make([]float64, n)}})
			if err != nil {
				t.Fatal(err)
			}
			return b
		}, 0, "too large"},
		{"more SVIDs than a chart takes", func(t *testing.T, _ *trace.Wafer) []byte {
			tr := &tchart.Trace{}
			for i := range 300 {
				tr.Time, tr.Step = append(tr.Time, float64(i)), append(tr.Step, int32(i))
			}
			for i := range 4000 {
				tr.SVIDs, tr.Values = append(tr.SVIDs, fmt.Sprint(i)), append(tr.Values, make([]float64, 300))
			}
			b, err := tchart.Encode(tr)
			if err != nil {
				t.Fatal(err)
			}
			return b
		}, 0, "can't be used"},
	} {
		t.Run(strings.ReplaceAll(test.name, " ", "-"), func(t *testing.T) {
			name := strings.NewReplacer(" ", "-", ",", "").Replace(test.name)
			chamber, spared := defender.Chamber{Tool: "bad", Name: name}, defender.Chamber{Tool: "spared", Name: name}
			handle := func(c defender.Chamber, id string, minute int, blob []byte) (partition.Message, error) {
				t.Helper()
				end := now.Add(time.Duration(minute) * time.Minute)
				ref := defender.ContextRef{Chamber: c, ID: id, Recipe: "etch", Start: end.Add(-time.Minute), End: end}
				if err := s.store.PutTChart(t.Context(), ref.TChart(), blob, end.Add(24*time.Hour)); err != nil {
					t.Fatal(err)
				}
				m := s.message(ref, first)
				m.Key, m.Subject = c.String(), defender.CompletionSubject(c)
				return m, d.Handle(t.Context(), m)
			}
			good := func(c defender.Chamber, i int) uchart.Verdict {
				t.Helper()
				if _, err := handle(c, fmt.Sprint("run", i), i, blob(func(*tchart.Trace) {})(t, g.Wafer(i))); err != nil {
					t.Fatal(err)
				}
				return s.last().Verdict
			}
			for i := range 22 {
				good(chamber, i)
				good(spared, i)
			}
			counted := verdicts(t, reg, test.state)
			_, err := handle(chamber, "bad", 22, test.blob(t, g.Wafer(22)))
			if n := verdicts(t, reg, test.state) - counted; test.state != 0 && n != 1 {
				t.Errorf("it was counted %v times", n)
			}
			u, missing := s.store.UChart(t.Context(), chamber, "bad")
			if test.state == 0 {
				if !givenUp(err) || !strings.Contains(err.Error(), test.want) {
					t.Errorf("the error is %v, want the message given up for %q", err, test.want)
				}
				if !errors.Is(missing, defender.ErrNotFound) {
					t.Errorf("it has a row, too: %+v, %v", u, missing)
				}
			} else {
				if err != nil || missing != nil {
					t.Fatalf("errors are %v and %v", err, missing)
				}
				if u.Verdict.State != test.state || !strings.Contains(u.Verdict.Reason(), test.want) {
					t.Errorf("the verdict is %s, %q, want %s that tells %q", u.Verdict.State, u.Verdict.Reason(), test.state, test.want)
				}
				if err := u.Chart.Validate(); err != nil {
					t.Error(err)
				}
			}
			// What can't be judged leaves no trace in the judgement of the next.
			got, want := good(chamber, 23), good(spared, 23)
			if test.state == 0 || test.state == uchart.BadData {
				if a, b := withoutStanding(got), withoutStanding(want); a != b {
					t.Errorf("the next wafer's verdict is\n%s\nwithout what went before it\n%s", a, b)
				}
			}
		})
	}
}

// withoutStanding returns a verdict but for the alarm that bad data raised.
// verdicts returns how many contexts were counted with a verdict.
func verdicts(t *testing.T, g prometheus.Gatherer, state uchart.State) float64 {
	t.Helper()
	families, err := g.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range families {
		for _, m := range f.Metric {
			if f.GetName() == "defender_verdicts_total" && m.Label[0].GetValue() == state.String() {
				return m.Counter.GetValue()
			}
		}
	}
	return 0
}

func withoutStanding(v uchart.Verdict) string {
	v.Standing = nil
	text, err := json.Marshal(v)
	if err != nil {
		return err.Error()
	}
	return string(text)
}
