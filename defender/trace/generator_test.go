package trace_test

import (
	"bytes"
	"fmt"
	"math"
	"os"
	"reflect"
	"testing"

	"github.com/muster-dev/muster/defender/trace"
	"github.com/muster-dev/muster/defender/uchart"
	"github.com/muster-dev/muster/internal/realdata"
	"github.com/muster-dev/muster/tchart"
)

func TestWafersFollowFromTheSeed(t *testing.T) {
	t.Parallel()
	g, same, other := trace.Generator{Seed: 1, FaultRate: 0.3}, trace.Generator{Seed: 1, FaultRate: 0.3}, trace.Generator{Seed: 2, FaultRate: 0.3}
	for n := 20; n >= 0; n-- {
		w := g.Wafer(n)
		if err := w.Trace.Validate(); err != nil {
			t.Fatal(err)
		}
		if !reflect.DeepEqual(w, same.Wafer(n)) {
			t.Errorf("wafer %d differs from one time to the next", n)
		}
		if reflect.DeepEqual(w.Trace.Values, other.Wafer(n).Trace.Values) || reflect.DeepEqual(w.Trace.Values, g.Wafer(n+1).Trace.Values) {
			t.Errorf("wafer %d is that of another seed or number", n)
		}
	}
}

func TestFaultsComeAtTheirRate(t *testing.T) {
	t.Parallel()
	g := trace.Generator{Seed: 4, FaultRate: 0.25}
	faulty := map[string]int{}
	total := 0
	for n := range 2000 {
		if w := g.Wafer(n); !w.Normal() {
			faulty[w.Fault]++
			total++
		}
	}
	if total < 400 || total > 600 || len(faulty) != len(trace.Faults()) {
		t.Errorf("%d of 2000 wafers have faults: %v", total, faulty)
	}
	if _, err := g.FaultyWafer(0, "no such"); err == nil {
		t.Error("an unknown fault is accepted")
	}
}

// TestGeneratedFaultsAreFound judges generated wafers as the recorded ones are
// judged: they should be neither easier nor harder.
func TestGeneratedFaultsAreFound(t *testing.T) {
	t.Parallel()
	detected, falseAlarms := 0, 0
	const chambers, wafers = 4, 60
	for seed := range uint64(chambers) {
		g := trace.Generator{Seed: seed}
		var history []uchart.Point
		for n := range wafers {
			chart, err := uchart.Compute(&g.Wafer(n).Trace)
			if err != nil {
				t.Fatal(err)
			}
			v := uchart.Judge(history, chart, uchart.Policy{})
			if v.Flagged() {
				falseAlarms++
				t.Logf("false alarm: %s", v.Reason())
			}
			history = append(history, uchart.Point{Context: fmt.Sprint(n), Chart: chart, Flagged: v.Flagged()})
		}
		for _, fault := range trace.Faults() {
			w, err := g.FaultyWafer(wafers, fault)
			if err != nil {
				t.Fatal(err)
			}
			chart, err := uchart.Compute(&w.Trace)
			if err != nil {
				t.Fatal(err)
			}
			if v := uchart.Judge(history, chart, uchart.Policy{}); v.State == uchart.Alarm {
				detected++
			} else {
				t.Logf("missed: %s, score %.3g of %.3g", fault, v.Score, v.ScoreLimit)
			}
		}
	}
	t.Logf("%d of %d faults detected, %d false alarms on %d normal wafers", detected, chambers*len(trace.Faults()), falseAlarms, chambers*wafers)
	if detected < chambers*len(trace.Faults())*2/3 || falseAlarms > chambers*wafers*3/100 {
		t.Errorf("%d faults detected, %d false alarms", detected, falseAlarms)
	}
}

// TestGeneratedWafersLookLikeRecordedOnes compares means over wafers: levels,
// noise and how well they compress.
func TestGeneratedWafersLookLikeRecordedOnes(t *testing.T) {
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
	var recorded, generated looks
	for w, err := range r.All() {
		if err != nil {
			t.Fatal(err)
		}
		if w.Normal() && len(w.Trace.Time) > 90 && w.Experiment == "31" {
			recorded.add(t, w)
		}
	}
	for seed := range uint64(20) {
		g := trace.Generator{Seed: seed}
		generated.add(t, g.Wafer(int(seed)))
	}
	if a, b := recorded.bytes/recorded.points, generated.bytes/generated.points; math.Abs(a-b) > 0.15*a {
		t.Errorf("%.3f bytes a point, recorded ones take %.3f", b, a)
	}
	for i, name := range recorded.svids {
		if generated.svids[i] != name {
			t.Errorf("SVID %d is %q, recorded %q", i, generated.svids[i], name)
		}
		for step := range 2 {
			at := 2*i + step
			a, b := recorded.mean[at]/recorded.n, generated.mean[at]/generated.n
			sa, sb := recorded.sd[at]/recorded.n, generated.sd[at]/generated.n
			if math.Abs(a-b) > 0.02*math.Abs(a)+2*sa || sb < sa/2.5 || sb > sa*2.5 {
				t.Errorf("%s, step %d: %.4g ± %.3g, recorded %.4g ± %.3g", name, step+4, b, sb, a, sa)
			}
		}
	}
}

type looks struct {
	n, bytes, points float64
	svids            []string
	mean, sd         [38]float64
}

func (l *looks) add(t *testing.T, w *trace.Wafer) {
	t.Helper()
	blob, err := tchart.Encode(&w.Trace)
	if err != nil {
		t.Fatal(err)
	}
	c, err := uchart.Compute(&w.Trace)
	if err != nil {
		t.Fatal(err)
	}
	l.n++
	l.bytes += float64(len(blob))
	l.points += float64(w.Trace.Points())
	l.svids = c.SVIDs
	for svid := range c.SVIDs {
		for step := range 2 {
			mean, _ := c.Value(svid, step, uchart.Mean)
			sd, _ := c.Value(svid, step, uchart.StdDev)
			l.mean[2*svid+step] += mean
			l.sd[2*svid+step] += sd
		}
	}
}

func TestTemplatesAreWafersUnderOtherNames(t *testing.T) {
	t.Parallel()
	g := trace.Generator{Seed: 9, FaultRate: 0.5}
	templates, err := g.Templates(100, 8)
	if err != nil {
		t.Fatal(err)
	}
	var buffer []byte
	for i := range templates.Len() {
		w := templates.Wafer(i)
		if !reflect.DeepEqual(w, g.Wafer(100+i)) {
			t.Errorf("template %d is not wafer %d", i, 100+i)
		}
		buffer, err = templates.Append(buffer[:0], i, func(tr *tchart.Trace) { tr.Context, tr.Chamber = "new name", "chamber7" })
		if err != nil {
			t.Fatal(err)
		}
		got, err := tchart.Decode(bytes.Clone(buffer))
		if err != nil {
			t.Fatal(err)
		}
		if got.Context != "new name" || got.Chamber != "chamber7" || got.Lot != w.Trace.Lot || !reflect.DeepEqual(got.Values, w.Trace.Values) {
			t.Errorf("template %d comes back as %s of %s", i, got.Context, got.Chamber)
		}
	}
}

func ExampleGenerator() {
	g := trace.Generator{Seed: 1}
	w, err := g.FaultyWafer(30, "Pr +3")
	if err != nil {
		panic(err)
	}
	fmt.Println(len(w.Trace.SVIDs), "sensors, fault:", w.Fault)
	// Output: 19 sensors, fault: Pr +3
}

func BenchmarkGenerate(b *testing.B) {
	g := trace.Generator{}
	n := 0
	for b.Loop() {
		g.Wafer(n)
		n++
	}
	b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "wafers/s")
}

func BenchmarkTemplates(b *testing.B) {
	templates, err := (&trace.Generator{}).Templates(0, 16)
	if err != nil {
		b.Fatal(err)
	}
	var blob []byte
	n := 0
	for b.Loop() {
		blob, err = templates.Append(blob[:0], n%16, func(t *tchart.Trace) { t.Context = "context" })
		if err != nil {
			b.Fatal(err)
		}
		n++
	}
	b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "wafers/s")
}
