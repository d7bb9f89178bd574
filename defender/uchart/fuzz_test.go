package uchart_test

import (
	"encoding/binary"
	"encoding/json"
	"math"
	"testing"

	"github.com/muster-dev/muster/defender/spc"
	"github.com/muster-dev/muster/defender/uchart"
	"github.com/muster-dev/muster/tchart"
)

// FuzzJudge makes traces of bytes and has each judged by those before it, through
// codec, statistics and all charts there are: whatever comes, charts are consistent
// and verdicts are numbers that travel as JSON.
func FuzzJudge(f *testing.F) {
	seed := func(values ...float64) (b []byte) {
		for _, v := range values {
			b = binary.LittleEndian.AppendUint64(b, math.Float64bits(v))
		}
		return b
	}
	f.Add([]byte{}, uint8(0), uint8(0))
	f.Add(seed(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15), uint8(2), uint8(3))
	f.Add(seed(0, math.NaN(), 1, math.Inf(1), 1, math.MaxFloat64, -4, 0, math.Inf(-1), 7, 1e-310, 2), uint8(1), uint8(9))
	policy := uchart.Policy{MinHistory: 3, FalseAlarms: 0.01,
		Frozen: uchart.FrozenPolicy{Contexts: 4, EWMA: uchart.EWMAPolicy{Lambda: 0.2}, CUSUM: uchart.CUSUMPolicy{K: 0.5},
			Rules: uchart.RulesPolicy{Rules: spc.Nelson | spc.WesternElectric}},
		Multivariate: uchart.MultivariatePolicy{FalseAlarms: 0.01, MinHistory: 8, Refit: 4}}
	f.Fuzz(func(t *testing.T, data []byte, columns, each uint8) {
		width := 1 + int(columns%4)
		rows := 1 + int(each%8)
		number := func() float64 {
			if len(data) < 8 {
				return 0
			}
			v := math.Float64frombits(binary.LittleEndian.Uint64(data))
			data = data[8:]
			return v
		}
		var history []uchart.Point
		judger := uchart.Judger{Policy: policy}
		for n := 0; n < 14; n++ {
			tr := &tchart.Trace{SVIDs: make([]string, width), Values: make([][]float64, width)}
			for c := range width {
				tr.SVIDs[c] = string(rune('a' + c))
			}
			for i := range rows {
				at := number()
				tr.Time = append(tr.Time, float64(i)+at)
				tr.Step = append(tr.Step, int32(math.Float64bits(at)%3))
				for c := range width {
					tr.Values[c] = append(tr.Values[c], number())
				}
			}
			blob, err := tchart.Encode(tr)
			if err != nil {
				t.Fatal(err)
			}
			back, err := tchart.Decode(blob)
			if err != nil {
				t.Fatal(err)
			}
			chart, err := uchart.Compute(back)
			if err != nil {
				t.Fatalf("a trace within the limits has no chart: %v", err)
			}
			if err := chart.Validate(); err != nil {
				t.Fatal(err)
			}
			v := judger.Judge(history, chart)
			if v.State < uchart.Learning || v.State > uchart.BadData {
				t.Fatalf("the verdict is %+v", v)
			}
			if v.Flagged() != (v.Reason() != "") {
				t.Fatalf("the verdict is %s, its reason %q", v.State, v.Reason())
			}
			text, err := json.Marshal(v)
			if err != nil {
				t.Fatal(err)
			}
			if n == 13 { // once is enough: it trains a model again
				again, err := json.Marshal(uchart.Judge(history, chart, policy))
				if err != nil || string(again) != string(text) {
					t.Fatalf("judging again gives\n%s\nafter\n%s", again, text)
				}
			}
			history = append(history, uchart.NewPoint(string(rune('A'+n)), chart, v))
		}
	})
}
