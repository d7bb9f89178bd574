package defender_test

import (
	"encoding/json"
	"fmt"
	"math"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/muster-dev/muster/defender"
	"github.com/muster-dev/muster/defender/strategy"
	"github.com/muster-dev/muster/defender/trace"
	"github.com/muster-dev/muster/defender/uchart"
	"github.com/muster-dev/muster/partition"
)

// everything judges by all that there is.
const everything = `
schema: 1
version: 4
strategies:
- name: everything
  univariate:
    false_alarms: 0.01
    phase1: {runs: 14}
    ewma: {lambda: 0.2}
    cusum: {k: 0.5, statistics: [mean, stddev]}
    rules: {names: [nelson-2, western-electric-2], svids: ["SVID*1", "*ressure*"]}
  multivariate: {window: 24, refit: 32}
  alarm: {clear_after: 2}
`

const moving = `schema: 1
version: 1
strategies: [{name: moving, univariate: {limits: moving}, multivariate: {window: 40}}]
`

func strategies(t *testing.T, text string) func(*defender.Config) {
	t.Helper()
	set, err := strategy.Parse([]byte(text), "test")
	if err != nil {
		t.Fatal(err)
	}
	return func(c *defender.Config) {
		c.Strategies = set
		c.ClearAfter = func(ref defender.ContextRef) int {
			s, _ := set.Of(ref)
			return s.ClearAfter()
		}
	}
}

// TestTheSameTracesGiveTheSameRowsInEveryProcess sends one course of wafers,
// longer than a history is, with faults, drift and maintenance, through one defender;
// through defenders that hand over, planned and not, with each message delivered again
// at some later time; and through one that can keep hardly anything in memory.
func TestTheSameTracesGiveTheSameRowsInEveryProcess(t *testing.T) {
	t.Parallel()
	g := trace.Generator{Seed: 5}
	wafer := func(i int) *trace.Wafer {
		w := g.Wafer(i)
		if i%37 == 30 {
			var err error
			if w, err = g.FaultyWafer(i, trace.Faults()[i%len(trace.Faults())]); err != nil {
				t.Fatal(err)
			}
		}
		for k := range w.Trace.Values[0] {
			w.Trace.Values[0][k] *= 1 + 1e-4*float64(max(0, i-80))
		}
		return w
	}
	one, notices := everyWay(t, everything, 145, 118, wafer)
	seen := map[string]int{}
	list, err := one.store.UCharts(t.Context(), etcher, 1000)
	if err != nil {
		t.Fatal(err)
	}
	for _, u := range list {
		v := u.Verdict
		seen[v.State.String()]++
		if v.Frozen != nil {
			seen["frozen"]++
		}
		if v.Multivariate != nil {
			seen["multivariate"]++
		}
		for _, s := range v.Signals {
			seen[s.By]++
		}
	}
	t.Logf("seen: %v, %d notices", seen, len(notices))
	for _, what := range []string{"learning", "normal", "alarm", "maintenance", "multivariate", uchart.SignalEWMA, uchart.SignalCUSUM} {
		if seen[what] == 0 {
			t.Errorf("no row has %s: the comparison says nothing of it", what)
		}
	}
	if seen["frozen"] != 2 {
		t.Errorf("limits were frozen %d times, want once and once after maintenance", seen["frozen"])
	}
}

// everyWay sends wafers through one defender, through several and through one with a
// small cache, compares what they store, and returns the first with its notices.
func everyWay(t *testing.T, text string, wafers, maintained int, wafer func(i int) *trace.Wafer) (one *stage, notices []string) {
	t.Helper()
	maintenance, err := defender.MarshalCompletion(defender.NewMaintenance(etcher, "pm", "etch", now.Add(time.Duration(maintained)*time.Minute)))
	if err != nil {
		t.Fatal(err)
	}
	send := func(s *stage, fence func(i int) partition.Fence) []partition.Message {
		var list []partition.Message
		for i := range wafers {
			m := s.context(fmt.Sprintf("run%03d", i), wafer(i), now.Add(time.Duration(i)*time.Minute+time.Second), fence(i))
			if i == maintained {
				pm := m
				pm.Data = maintenance
				list = append(list, pm)
			}
			list = append(list, m)
		}
		return list
	}
	handle := func(d *defender.Defender, m partition.Message) {
		t.Helper()
		if err := d.Handle(t.Context(), m); err != nil {
			t.Fatal(err)
		}
	}
	one = newStage(t)
	d := one.defender(strategies(t, text))
	for _, m := range send(one, func(int) partition.Fence { return first }) {
		handle(d, m)
	}

	several := newStage(t)
	if err := several.store.RegisterChambers(t.Context(), []defender.ChamberInfo{{Chamber: etcher, Weight: 1}}); err != nil {
		t.Fatal(err)
	}
	owner := func(i int) partition.Fence { return partition.Fence{Version: uint64(1 + i/23), Claim: 5} }
	messages := send(several, owner)
	d = several.defender(strategies(t, text))
	for i, m := range messages {
		if i > 0 && m.Fence != messages[i-1].Fence {
			d = several.defender(strategies(t, text))
			if i%2 == 0 { // planned
				if err := d.Prepare(t.Context(), partition.Slots{Of: 16, Slots: []int{partition.SlotOf(16, etcher.Tool, etcher.Name)}}); err != nil {
					t.Fatal(err)
				}
			}
		}
		handle(d, m)
		handle(d, m) // at once
		if again := i - 1 - i%9; again >= 0 && i%4 == 0 {
			late := messages[again]
			late.Fence = m.Fence
			handle(d, late)
		}
	}

	small := newStage(t)
	d = small.defender(func(c *defender.Config) {
		strategies(t, text)(c)
		c.CacheBytes = 1
	})
	for _, m := range send(small, func(int) partition.Fence { return first }) {
		handle(d, m)
	}
	if s := d.CacheStats(); s.Bytes != 0 || s.Chambers != 0 || s.Evictions == 0 {
		t.Errorf("the small cache is %+v, want nothing kept", s)
	}

	want := rows(t, one)
	notices = texts(t, one.notices())
	for name, s := range map[string]*stage{"several defenders": several, "a small cache": small} {
		got := rows(t, s)
		if len(got) != len(want) {
			t.Fatalf("%s: %d rows, want %d", name, len(got), len(want))
		}
		for i := range got {
			if got[i] != want[i] {
				t.Fatalf("%s: row %d is\n%s\nwant\n%s", name, i, got[i], want[i])
			}
		}
		if got := texts(t, s.notices()); fmt.Sprint(got) != fmt.Sprint(notices) {
			t.Errorf("%s: notices are\n%v\nwant\n%v", name, got, notices)
		}
	}
	return one, notices
}

// TestALastingFault has a fault last longer than a history is.
func TestALastingFault(t *testing.T) {
	t.Parallel()
	t.Run("is-an-alarm-whichever-defender-judges-it", func(t *testing.T) {
		t.Parallel()
		g := trace.Generator{Seed: 6}
		const from, to, wafers = 50, 175, 215
		one, notices := everyWay(t, moving, wafers, wafers, func(i int) *trace.Wafer {
			w := g.Wafer(i)
			if i%7 == 3 || i >= 60 && i < to && i%11 == 0 { // wafers that are flagged one by one, and not
				for k := range w.Trace.Values[1] {
					w.Trace.Values[1][k] += 25
				}
			}
			if i >= 90 && i < 96 || i >= 190 && i < 196 { // a sensor that is dead for a while
				for k := range w.Trace.Values[6] {
					w.Trace.Values[6][k] = math.NaN()
				}
			}
			if i >= from && i < to && i%25 != 13 {
				for k := range w.Trace.Values[0] {
					w.Trace.Values[0][k] += 20
				}
			}
			return w
		})
		list, err := one.store.UCharts(t.Context(), etcher, 1000)
		if err != nil {
			t.Fatal(err)
		}
		after := 0
		for _, u := range list {
			run, err := strconv.Atoi(strings.TrimPrefix(u.Context.ID, "run"))
			if err != nil {
				continue // maintenance
			}
			fault := run >= from && run < to && run%25 != 13
			if fault && u.Verdict.State != uchart.Alarm || run >= from && u.Verdict.State == uchart.Learning {
				t.Errorf("run %d is %s", run, u.Verdict.State)
			}
			if run >= to && run%7 != 3 && u.Verdict.State == uchart.Normal {
				after++
			}
			if dead := run >= 90 && run < 96 || run >= 190 && run < 196; dead != (len(u.Verdict.Suspended) == 1) || dead && u.Verdict.Charts == 0 && u.Verdict.Multivariate == nil {
				t.Errorf("run %d suspends %q and judges %d charts", run, u.Verdict.Suspended, u.Verdict.Charts)
			}
			if run >= from && run < to && u.Verdict.Standing == nil {
				t.Errorf("run %d: no alarm stands", run)
			}
		}
		if after < 20 {
			t.Errorf("after the fault %d runs are normal", after)
		}
		t.Logf("%d notices", len(notices))
	})
}

func rows(t *testing.T, s *stage) []string {
	t.Helper()
	list, err := s.store.UCharts(t.Context(), etcher, 1000)
	if err != nil {
		t.Fatal(err)
	}
	var all []string
	for _, u := range list {
		chart, err := u.Chart.MarshalBinary()
		if err != nil {
			t.Fatal(err)
		}
		verdict, err := json.Marshal(u.Verdict)
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, fmt.Sprintf("%+v %x %s", u.Context, chart, verdict))
	}
	return all
}

func texts(t *testing.T, notices []defender.AlarmNotice) []string {
	t.Helper()
	var all []string
	for _, n := range notices {
		all = append(all, fmt.Sprintf("%s %s %s %d %s %s", n.Context.ID, n.Event, n.Opened, n.Count, n.Strategy, n.Reason))
	}
	return all
}

// TestWhatIsStoredFirstStays has a message come again after the rules have changed.
func TestWhatIsStoredFirstStays(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	m := s.context("again", new(trace.Generator).Wafer(0), now, first)
	state := uchart.Normal
	d := s.defender(func(c *defender.Config) {
		c.Judge = func([]uchart.Point, *uchart.Chart) uchart.Verdict { return uchart.Verdict{State: state} }
	})
	for _, state = range []uchart.State{uchart.Normal, uchart.Alarm} {
		if err := d.Handle(t.Context(), m); err != nil {
			t.Fatal(err)
		}
		if got := s.last().Verdict.State; got != uchart.Normal {
			t.Errorf("the verdict is %s, stored is normal", got)
		}
	}
	if n := s.notices(); len(n) != 0 {
		t.Errorf("notices are %+v, of a verdict that isn't stored", n)
	}
}

// TestALongAlarmKeepsItsName has more flagged wafers in a row than a history holds.
func TestALongAlarmKeepsItsName(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	d := s.defender(func(c *defender.Config) {
		c.History = 8
		c.Judge = func([]uchart.Point, *uchart.Chart) uchart.Verdict { return uchart.Verdict{State: uchart.Alarm} }
	})
	w := new(trace.Generator).Wafer(0)
	for i := range 20 {
		if err := d.Handle(t.Context(), s.context(fmt.Sprintf("run%02d", i), w, now.Add(time.Duration(i)*time.Minute), first)); err != nil {
			t.Fatal(err)
		}
	}
	for i, n := range s.notices() {
		if n.Opened != "run00" || n.Count != i+1 || (n.Event == defender.AlarmOpened) != (i == 0) {
			t.Errorf("notice %d is %s of %s, number %d", i, n.Event, n.Opened, n.Count)
		}
	}
}
