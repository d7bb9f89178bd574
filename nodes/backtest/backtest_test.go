package backtest

import (
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/muster-dev/muster/internal/realdata"
	"github.com/muster-dev/muster/nodes"
	"github.com/muster-dev/muster/nodes/fit"
)

const head = "name,cpu_milli,memory_mib,num_gpu,gpu_milli,gpu_spec,qos,pod_phase,creation_time,deletion_time,scheduled_time\n"

// twenty is a trace of 20 pods. 18 of them ask for 1.9 cores and 1 GiB, so that two fit a node of 4 cores.
func twenty() string {
	var b strings.Builder
	b.WriteString(head)
	n := 0
	add := func(count, cpu, created, deleted int, scheduled string) {
		for range count {
			n++
			fmt.Fprintf(&b, "p%d,%d,1024,1,500,,LS,Running,%d,%d,%s\n", n, cpu, created, deleted, scheduled)
		}
	}
	add(2, 1900, 0, 1000, "0")       // p1, p2
	add(6, 1900, 30, 640, "40")      // p3 to p8 run 600 s
	add(2, 1900, 700, 800, "700")    // p9, p10 run 100 s
	add(2, 1900, 1000, 1050, "1000") // p11, p12 run 50 s
	add(6, 1900, 1500, 1700, "1500") // p13 to p18 run 200 s
	add(1, 1900, 1600, 1650, "")     // p19 never ran when it was recorded
	add(1, 5000, 1710, 1770, "1710") // p20 fits no node
	return b.String()
}

func read(t testing.TB, text string) Trace {
	t.Helper()
	trace, err := ReadTrace("trace.csv", strings.NewReader(text))
	if err != nil {
		t.Fatal(err)
	}
	return trace
}

// byHand is the policy and the simulator of the computation below: one type of 4 cores at 0.40 USD an hour, which boots in 90 s, a tick
// each minute.
func byHand(t testing.TB) Config {
	p := nodes.DefaultPolicy()
	p.InstanceTypes, p.Spot = []string{"four"}, false
	p.MinWorkers, p.MaxWorkers, p.MaxBatchUp, p.PodsPerNode, p.MaxActions = 1, 5, 2, 2, 1
	p.CPUUp, p.CPUDown = 1, 0.3 // two pods make 0.95: only waiting pods trigger
	p.PendingUpFor, p.IdleDownFor, p.CooldownUp, p.CooldownDown = time.Minute, 5*time.Minute, time.Minute, 2*time.Minute
	four := fit.InstanceType{Name: "four", VCPU: 4, MemoryMiB: 16384, OnDemand: 0.4, Spot: 0.1, Arch: "amd64"}
	return Config{Trace: read(t, twenty()), Window: Window{0, 2400 * time.Second}, Policy: p, Catalog: fit.Catalog{"four": four}, Zones: []string{"a"}, SpotShare: -1}
}

// The table of this test was computed by hand, second by second:
//
//	   0  node 1 is there. p1 and p2 come and run on it until 1000.
//	  30  p3 to p8 come; there is no room.
//	  60  tick: 6 pods wait, since 60.
//	 120  tick: for 60 s. ceil(6/2) = 3 nodes, MAX_BATCH_UP makes 2: nodes 2 and 3 are launched.
//	 210  nodes 2 and 3 are Ready: p3 to p6 are placed, waited 180 s, run until 810.
//	 240  tick: both are Ready, the action is complete.
//	 300  tick: COOLDOWN_UP_SEC is over, 2 pods have waited since 60: node 4 is launched.
//	 390  node 4 is Ready: p7 and p8 are placed, waited 360 s, run until 990.
//	 420  tick: complete.
//	 700  p9 and p10 come; 4 nodes are full.
//	 720  tick: 2 pods wait, since 720.
//	 780  tick: for 60 s: node 5 is launched, the last that MAX_WORKERS allows.
//	 810  p3 to p6 end: p9 and p10 are placed, waited 110 s, run until 910.
//	 870  node 5 is Ready.
//	 900  tick: complete. Use is 6 pods of 1.9 cores on 20 cores, 0.57.
//	 960  tick: 4 pods, 0.38.
//	1000  p1 and p2 end; p11 and p12 come and are placed at once.
//	1020  tick: 2 pods, 0.19: idle since 1020.
//	1320  tick: idle for 300 s: the oldest goes, node 1, which has lived 1320 s.
//	1440  tick: COOLDOWN_DOWN_SEC is over: node 2 goes, launched at 120.
//	1500  p13 to p18 come and fill the three nodes at once, until 1700.
//	1600  p19 comes, and is withdrawn at 1650, before any node could be had.
//	1710  p20 comes and never fits: it triggers nothing, and does not keep the cluster from being idle.
//	1740  tick: idle since 1740.
//	2040  tick: node 3 goes, launched at 120.
//	2160  tick: node 4 goes, launched at 300. Node 5 stays: MIN_WORKERS.
//	2400  the end.
//
// Waits of the 18 pods that ran: 10 times 0, 2 times 110, 4 times 180, 2 times 360; the 9th is 0, the 17th and 18th are 360; the
// mean is (220 + 720 + 720) / 18.
//
// Nodes: 1320 + (1440-120) + (2040-120) + (2160-300) + (2400-780) = 8040 s.
//
// With perfect foresight p1 to p18 run from their creation, and one node is kept: 1 node until 30; 8 pods need ceil(15.2/4) = 4 until
// 630; 1 until 700; 4 pods need 2 until 800; 1 until 1500; 6 pods need ceil(11.4/4) = 3 until 1700; 1 until 2400: 2400 + 600*3 +
// 100 + 200*2 = 4700 node-seconds. In fractions of nodes, but never less than the one that is kept: 30 + 600*3.8 + 70 + 100*1.9 +
// 700 + 200*2.85 + 700 = 4540.
func TestTwentyPodsComeOutAsComputedByHand(t *testing.T) {
	got, err := Run(t.Context(), byHand(t))
	if err != nil {
		t.Fatal(err)
	}
	near := func(name string, got, want, within float64) {
		t.Helper()
		if math.Abs(got-want) > within {
			t.Errorf("%s is %v, want %v", name, got, want)
		}
	}
	// The simulated calls take 20 ms each, so that what a tick does comes up to a second after it.
	near("p50", got.Waiting.P50, 0, 0)
	near("p90", math.Floor(got.Waiting.P90), 360, 0)
	near("p99", math.Floor(got.Waiting.P99), 360, 0)
	near("max", math.Floor(got.Waiting.Max), 360, 0)
	near("mean", got.Waiting.Mean, 1660./18, 0.3)
	near("node-hours", got.Nodes.Hours, 8040./3600, 5./3600)
	near("cost", got.Nodes.Cost, 0.4*8040/3600, 0.4*5/3600)
	near("foresight", got.Nodes.Foresight, 4700./3600, 1e-9)
	near("foresight's cost", got.Nodes.BoundCost, 0.4*4540/3600, 1e-9)
	if want := (Actions{ScaleUps: 3, ScaleDowns: 4, Launched: 4, Terminated: 4}); got.Actions != want {
		t.Errorf("actions %+v, want %+v", got.Actions, want)
	}
	got.Pods.Example = strings.SplitN(got.Pods.Example, ":", 2)[0]
	if want := (Pods{Total: 20, Ran: 18, NeverFit: 1, Withdrawn: 1, GPU: 20, Example: "p20"}); got.Pods != want {
		t.Errorf("pods %+v, want %+v", got.Pods, want)
	}
	if got.Ticks != 40 || got.Errors != 0 || got.Nodes.Most != 5 {
		t.Errorf("%d ticks, %d with errors, %d nodes at most; want 40, 0, 5: %s", got.Ticks, got.Errors, got.Nodes.Most, got.FirstErr)
	}
}

func TestTheSameSeedGivesTheSameResultAndAnotherSeedAnother(t *testing.T) {
	run := func(seed uint64) string {
		c := byHand(t)
		c.Seed, c.Spread, c.Policy.Sizing = seed, 0.3, nodes.SizingFit
		r, err := Run(t.Context(), c)
		if err != nil {
			t.Fatal(err)
		}
		r.Seed = 0
		b, err := json.Marshal(r)
		if err != nil {
			t.Fatal(err)
		}
		return string(b)
	}
	first := run(1)
	if again := run(1); again != first {
		t.Errorf("%s\n%s", first, again)
	}
	if other := run(2); other == first {
		t.Error("another seed gives the same")
	}
}

func TestAPodThatStillWaitsAtTheEndIsAccountedFor(t *testing.T) {
	c := byHand(t)
	c.Window.To = 200 * time.Second
	r, err := Run(t.Context(), c)
	if err != nil {
		t.Fatal(err)
	}
	if want := (Pods{Total: 8, Ran: 2, Pending: 6, GPU: 8}); r.Pods != want {
		t.Errorf("%+v, want %+v", r.Pods, want)
	}
}

func TestTheShareOfSpotSetsThePrice(t *testing.T) {
	for share, price := range map[float64]float64{-1: 0.4, 0: 0.4, 0.5: 0.25, 1: 0.1} {
		c := byHand(t)
		c.SpotShare = share
		r, err := Run(t.Context(), c)
		if err != nil {
			t.Fatal(err)
		}
		if got := r.Nodes.Cost / r.Nodes.Hours; math.Abs(got-price) > 1e-9 {
			t.Errorf("share %v: %v USD an hour, want %v", share, got, price)
		}
	}
}

func TestABrokenTraceIsOneErrorWithLineAndField(t *testing.T) {
	row := "p,1000,1024,0,0,,LS,Running,10,30,20\n"
	for name, test := range map[string]struct {
		text  string
		line  int
		field string
		why   string
	}{
		"empty":                        {"", 0, "", "it is empty"},
		"no pods":                      {head, 0, "", "it has no pod"},
		"a missing column":             {strings.Replace(head, "cpu_milli,", "", 1) + row, 1, "cpu_milli", "the column is missing"},
		"a line that is too short":     {head + row + "p,1\n", 3, "", "each line has as many fields"},
		"an open quote":                {head + `"p,1000` + "\n", 2, "", ""},
		"a negative time":              {head + row + strings.Replace(row, ",10,", ",-10,", 1), 3, "creation_time", "-10 is negative"},
		"not a number":                 {head + strings.Replace(row, ",1000,", ",many,", 1), 2, "cpu_milli", `"many" is not a whole number`},
		"an infinite number":           {head + strings.Replace(row, ",1000,", ",Inf,", 1), 2, "cpu_milli", "is not a whole number"},
		"a fraction":                   {head + strings.Replace(row, ",1024,", ",0.5,", 1), 2, "memory_mib", "is not a whole number"},
		"too much":                     {head + strings.Replace(row, ",1024,", ",1e300,", 1), 2, "memory_mib", "is more than"},
		"scheduled before its time":    {head + strings.Replace(row, ",20", ",9", 1), 2, "scheduled_time", "9 is before creation_time"},
		"deleted before it ran":        {head + strings.Replace(row, ",30,", ",19,", 1), 2, "deletion_time", "19 is before scheduled_time"},
		"deleted before it came":       {head + strings.Replace(row, ",30,20", ",9,", 1), 2, "deletion_time", "9 is before creation_time"},
		"an empty time":                {head + strings.Replace(row, ",30,", ",,", 1), 2, "deletion_time", `"" is not a whole number`},
		"no name":                      {head + strings.Replace(row, "p,", ",", 1), 2, "name", "it is empty"},
		"the first of several is said": {head + "p,x,y,0,0,,LS,Running,10,30,20\n", 2, "cpu_milli", `"x"`},
	} {
		_, err := ReadTrace("trace.csv", strings.NewReader(test.text))
		var te *TraceError
		if !errors.As(err, &te) || te.Line != test.line || te.Field != test.field || !strings.Contains(te.Why, test.why) || !strings.HasPrefix(err.Error(), "trace.csv") {
			t.Errorf("%s: %v, want line %d, field %q: %s", name, err, test.line, test.field, test.why)
		}
	}
}

func FuzzReadTrace(f *testing.F) {
	f.Add(twenty())
	f.Add(head + "p,1000,1024,0,0,,LS,Running,10,30,\n")
	f.Add("\ufeff" + head + "p,1.0,1024,0,0,,LS,Running,1e3,2000,1500\n")
	f.Fuzz(func(t *testing.T, text string) {
		trace, err := ReadTrace("f", strings.NewReader(text))
		if err != nil {
			return
		}
		last := time.Duration(0)
		for _, p := range trace.Pods {
			if p.Created < last || p.MilliCPU < 0 || p.Memory < 0 || p.GPUs < 0 || p.end() <= p.Created || p.Name == "" {
				t.Fatalf("%+v", p)
			}
			last = p.Created
		}
		if w := trace.Whole(); w.Length() <= 0 {
			t.Fatalf("%+v", w)
		}
	})
}

func TestTheBusiestWindowIsFoundAndCutWithWhatWasThere(t *testing.T) {
	trace := read(t, twenty())
	w := trace.Busiest(200 * time.Second)
	if w != (Window{0, 200 * time.Second}) { // 8 pods; from 1500 to 1700 there are 7
		t.Errorf("%v", w)
	}
	pods, carried := trace.Cut(Window{700 * time.Second, 1000 * time.Second})
	if len(pods) != 4 || carried != 2 || pods[0].Created != 0 || pods[0].Runs != 300*time.Second || pods[3].Created != 0 || pods[3].Runs != 100*time.Second {
		t.Errorf("%d carried of %+v", carried, pods)
	}
}

func TestSweepsCombineAndLeaveOutWhatMakesNoDifference(t *testing.T) {
	none := func(string) (string, bool) { return "", false }
	var axes []Axis
	for _, text := range []string{"SIZING=pods-per-node,fit", "pods-per-node=5,10", "PENDING_UP_SEC=60"} {
		a, err := ParseAxis(text)
		if err != nil {
			t.Fatal(err)
		}
		axes = append(axes, a)
	}
	got, err := Combine(axes, none)
	if err != nil || len(got) != 3 {
		t.Fatalf("%d combinations, %v; want 3: fit does not look at PODS_PER_NODE", len(got), err)
	}
	if p := got[1].Policy; p.PodsPerNode != 10 || p.Sizing != nodes.SizingPodsPerNode || p.PendingUpFor != time.Minute {
		t.Errorf("%+v", p)
	}
	for _, text := range []string{"", "=1", "CPU_UP=", "NO_SUCH=1", "CPU_UP"} {
		if _, err := ParseAxis(text); err == nil {
			t.Errorf("%q is taken", text)
		}
	}
	if _, err := Combine([]Axis{{"CPU_UP", []string{"2"}}}, none); err == nil || !strings.Contains(err.Error(), "CPU_UP") {
		t.Errorf("a wrong value is taken: %v", err)
	}
}

func TestChart(t *testing.T) {
	a, err := Run(t.Context(), byHand(t))
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	path := filepath.Join(dir, "a.SVG")
	if err := WriteChart(path, a, a); err != nil {
		t.Fatal(err)
	}
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{">nodes<", ">pods waiting<", ">day of the trace<", ">needed with perfect foresight<", "20 pods, four", `class="run1"`} {
		if !strings.Contains(string(data), want) {
			t.Errorf("the chart does not have %q", want)
		}
	}
	if err := WriteChart(filepath.Join(dir, "c.pdf"), a); err == nil {
		t.Error("a chart of another kind is written")
	}
}

func TestTheTableNamesTypesAndBounds(t *testing.T) {
	r, err := Run(t.Context(), byHand(t))
	if err != nil {
		t.Fatal(err)
	}
	var b strings.Builder
	if err := WriteTable(&b, r); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"instance types   four", "MAX_WORKERS      5", "GPUs of 20 pods ignored", "never fitting, for example: p20: it asks for 5000m CPU"} {
		if !strings.Contains(b.String(), want) {
			t.Errorf("%q is not in\n%s", want, b.String())
		}
	}
}

// A day of the real trace by both sizings: every pod is accounted for, and nothing fails.
func TestARealDay(t *testing.T) {
	f, err := os.Open(realdata.Path(t, "traces/openb_pod_list_cpu250.csv"))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = f.Close() }()
	trace, err := ReadTrace("openb", f)
	if err != nil {
		t.Fatal(err)
	}
	if len(trace.Pods) != 9420 {
		t.Errorf("%d pods, want 9420", len(trace.Pods))
	}
	w := trace.Busiest(24 * time.Hour)
	pods, _ := trace.Cut(w)
	p := nodes.DefaultPolicy()
	p.InstanceTypes, p.MaxWorkers = DefaultTypes(fit.Shipped(), pods), 100
	for _, sizing := range []nodes.SizingMode{nodes.SizingPodsPerNode, nodes.SizingFit} {
		p.Sizing = sizing
		r, err := Run(t.Context(), Config{Trace: trace, Window: w, Policy: p, SpotShare: -1, Spread: 0.3})
		if err != nil {
			t.Fatal(err)
		}
		o := r.Pods
		if o.Total != len(pods) || o.Ran+o.Pending+o.NeverFit+o.Withdrawn != o.Total || r.Errors > 0 || o.NeverFit > 0 || r.Nodes.Hours < r.Nodes.Foresight {
			t.Errorf("%s: %+v, %+v, %d ticks with errors: %s", sizing, o, r.Nodes, r.Errors, r.FirstErr)
		}
	}
}
