// Package storetest is the suite that every [defender.Store] passes.
//
// An adapter's test calls [Run] with a function that returns an empty store:
//
//	func TestStore(t *testing.T) {
//		storetest.Run(t, func(t *testing.T) defender.Store { return open(t, t.TempDir()) })
//	}
package storetest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math"
	"reflect"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/muster-dev/muster/defender"
	"github.com/muster-dev/muster/defender/uchart"
)

// base is when the tests' contexts happen; rows expire long after it.
var base = time.Date(2031, 5, 6, 7, 8, 9, 123456789, time.UTC)

var chamber = defender.Chamber{Tool: "tool001", Name: "chamber1"}

// Run runs the suite. open returns a store without any content that the tests
// close; the suite calls it many times, at the same time too.
func Run(t *testing.T, open func(t *testing.T) defender.Store) {
	tests := []struct {
		name string
		run  func(t *testing.T, s defender.Store)
	}{
		{"a T-chart is read back as it was stored", tchartRoundTrip},
		{"a T-chart stored again is replaced", tchartReplaced},
		{"what isn't there is ErrNotFound", notFound},
		{"a result is read back to the bit", resultRoundTrip},
		{"history is strictly earlier, oldest first, of one recipe", historyOrder},
		{"history holds the newest", historyLimit},
		{"a redelivered context is not stored again", redelivery},
		{"a different result of a stored context leaves the first", differentResult},
		{"an older fence changes nothing", olderFence},
		{"fences compare by map version, then claim", fenceOrder},
		{"fences of chambers are independent", fencePerChamber},
		{"a raised fence keeps the previous owner out", raisedFence},
		{"chambers are listed in order with the latest weight", chambers},
		{"labels are read back in order, replaced and deleted", labels},
		{"alarms are those of flagged contexts, newest first", alarms},
		{"alarms that ended together have an order, too", alarmTies},
		{"racing owners: after a newer fence nothing older is stored", racingOwners},
		{"racing deliveries of one context store it once", racingDeliveries},
		{"expired rows are deleted, others stay", expiry},
		{"an ended context is reported", endedContext},
		{"invalid rows are refused", invalidRows},
		{"a closed store says so", closed},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			s := open(t)
			t.Cleanup(func() {
				if err := s.Close(); err != nil {
					t.Errorf("closing the store: %v", err)
				}
			})
			test.run(t, s)
		})
	}
}

// NewResult returns a made-up result for tests: the context's number i decides
// its ID, its time (i seconds after a fixed one) and its values.
func NewResult(c defender.Chamber, recipe string, i int, state uchart.State) defender.Result {
	ref := defender.ContextRef{
		Chamber: c, ID: fmt.Sprintf("ctx-%06d", i), Recipe: recipe, Product: "product é", Lot: "lot 7", Wafer: "12",
		Start: base.Add(time.Duration(i)*time.Second - time.Minute), End: base.Add(time.Duration(i) * time.Second),
	}
	chart := &uchart.Chart{
		SVIDs: []string{"RF Pwr", "Pressure"}, Steps: []int32{-1, 4, 5},
		Quality: uchart.Quality{Rows: 100 + i, Backward: 1, Missing: 2, Gaps: 3, Duration: 99.5, Longest: 1.25},
	}
	cells := len(chart.SVIDs) * len(chart.Steps)
	chart.Valid = make([]uint8, cells)
	chart.Values = make([]float64, cells*uchart.NumStatistics)
	for cell := range cells {
		for s := range uchart.NumStatistics {
			if (cell+s)%5 == 0 {
				continue
			}
			chart.Valid[cell] |= 1 << s
			chart.Values[cell*uchart.NumStatistics+s] = float64(i) + float64(cell)/3 + 1e-9*float64(s)
		}
	}
	chart.Values[1], chart.Values[2] = math.SmallestNonzeroFloat64, math.Copysign(0, -1)
	verdict := uchart.Verdict{
		State: state, Limits: uchart.LimitsID{Version: math.MaxUint64 - uint64(i), N: 25, First: "ctx-0", Last: "ctx-9"},
		Charts: 300, Score: 1.0 / 3, ScoreLimit: 2.0 / 3,
	}
	if verdict.Flagged() {
		verdict.Violated = 1
		verdict.Violations = []uchart.Violation{{SVID: "RF Pwr", Step: 4, Statistic: uchart.Slope, Value: 0.1, Center: 0.2, Lower: 0.15, Upper: 0.25, Sigmas: -6}}
		verdict.Faults = []string{"step 5 has 3 samples, its history 50"}
	}
	return defender.NewResult(ref, chart, verdict, base.Add(1000*time.Hour))
}

func result(i int) defender.Result { return NewResult(chamber, "etch/3", i, uchart.Normal) }

func fence(version, claim uint64) defender.Fence {
	return defender.Fence{MapVersion: version, ClaimRevision: claim}
}

func commit(t *testing.T, s defender.Store, f defender.Fence, r defender.Result) {
	t.Helper()
	out, err := s.Commit(t.Context(), f, r)
	if err != nil {
		t.Fatalf("Commit(%s) under %s: %v", r.UChart.Context.ID, f, err)
	}
	if want := (defender.CommitOutcome{Stored: true, Identical: true}); out != want {
		t.Fatalf("Commit(%s) = %+v, want %+v", r.UChart.Context.ID, out, want)
	}
}

func wantFenced(t *testing.T, err error, offered, stored defender.Fence) {
	t.Helper()
	var fenced *defender.FencedError
	if !errors.As(err, &fenced) || !errors.Is(err, defender.ErrFenced) {
		t.Fatalf("error is %v, want a FencedError", err)
	}
	if fenced.Offered != offered || fenced.Stored != stored {
		t.Fatalf("error is %v, want offered %s and stored %s", err, offered, stored)
	}
}

func ids(t *testing.T, found []defender.UChart, err error) []string {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, u := range found {
		names = append(names, u.Context.ID)
	}
	return names
}

func all(t *testing.T, s defender.Store, c defender.Chamber) []string {
	t.Helper()
	found, err := s.UCharts(t.Context(), c, 1<<20)
	names := ids(t, found, err)
	slices.Reverse(names)
	return names
}

func wantIDs(t *testing.T, got []string, want ...string) {
	t.Helper()
	if !slices.Equal(got, want) {
		t.Fatalf("contexts are %v, want %v", got, want)
	}
}

func tchartRoundTrip(t *testing.T, s defender.Store) {
	blob := make([]byte, 300_000)
	for i := range blob {
		blob[i] = byte(i * i >> 3)
	}
	for i, want := range [][]byte{{}, {0}, blob} {
		key := defender.TChartKey{Chamber: chamber, Context: fmt.Sprintf("c:%d", i)}
		if err := s.PutTChart(t.Context(), key, want, base.Add(time.Hour)); err != nil {
			t.Fatal(err)
		}
		got, err := s.TChart(t.Context(), key)
		if err != nil || !bytes.Equal(got, want) {
			t.Fatalf("T-chart of %d bytes comes back with %d, error %v", len(want), len(got), err)
		}
	}
}

func tchartReplaced(t *testing.T, s defender.Store) {
	key := defender.TChartKey{Chamber: chamber, Context: "c"}
	for _, want := range []string{"first", "second, longer"} {
		if err := s.PutTChart(t.Context(), key, []byte(want), base); err != nil {
			t.Fatal(err)
		}
		if got, err := s.TChart(t.Context(), key); err != nil || string(got) != want {
			t.Fatalf("TChart = %q, %v, want %q", got, err, want)
		}
	}
}

func notFound(t *testing.T, s defender.Store) {
	if _, err := s.TChart(t.Context(), defender.TChartKey{Chamber: chamber, Context: "none"}); !errors.Is(err, defender.ErrNotFound) {
		t.Errorf("TChart: error is %v, want ErrNotFound", err)
	}
	if _, err := s.UChart(t.Context(), chamber, "none"); !errors.Is(err, defender.ErrNotFound) {
		t.Errorf("UChart: error is %v, want ErrNotFound", err)
	}
	wantIDs(t, all(t, s, chamber))
	found, err := s.History(t.Context(), defender.HistoryQuery{Chamber: chamber, Recipe: "etch/3", Before: result(1).UChart.Context.Position(), Limit: 10})
	wantIDs(t, ids(t, found, err))
	if got, err := s.Chambers(t.Context()); err != nil || len(got) != 0 {
		t.Errorf("Chambers = %v, %v, want none", got, err)
	}
}

func resultRoundTrip(t *testing.T, s defender.Store) {
	for i, state := range []uchart.State{uchart.Learning, uchart.Normal, uchart.Alarm, uchart.BadData} {
		want := NewResult(chamber, "etch/3", i, state)
		commit(t, s, fence(1, 1), want)
		got, err := s.UChart(t.Context(), chamber, want.UChart.Context.ID)
		if err != nil {
			t.Fatal(err)
		}
		if !reflect.DeepEqual(got, want.UChart) {
			t.Errorf("stored %+v\nread   %+v", want.UChart, got)
		}
		// DeepEqual takes 0 and -0 for equal.
		if !math.Signbit(got.Chart.Values[2]) {
			t.Error("-0 comes back as 0")
		}
	}
}

func historyOrder(t *testing.T, s defender.Store) {
	other := defender.Chamber{Tool: "tool001", Name: "chamber10"}
	for _, i := range []int{5, 1, 4, 2, 3} {
		commit(t, s, fence(1, 1), result(i))
		commit(t, s, fence(1, 1), NewResult(chamber, "other", 10+i, uchart.Normal))
		commit(t, s, fence(1, 1), NewResult(other, "etch/3", i, uchart.Normal))
	}
	tie := result(4) // the same end as 4, and an ID after it
	tie.UChart.Context.ID = "ctx-000004b"
	commit(t, s, fence(1, 1), tie)

	query := func(before defender.Position) []string {
		found, err := s.History(t.Context(), defender.HistoryQuery{Chamber: chamber, Recipe: "etch/3", Before: before, Limit: 100})
		return ids(t, found, err)
	}
	at := func(i int) defender.Position { return result(i).UChart.Context.Position() }
	wantIDs(t, query(at(1)))
	wantIDs(t, query(at(4)), "ctx-000001", "ctx-000002", "ctx-000003")
	wantIDs(t, query(tie.UChart.Context.Position()), "ctx-000001", "ctx-000002", "ctx-000003", "ctx-000004")
	wantIDs(t, query(at(100)), "ctx-000001", "ctx-000002", "ctx-000003", "ctx-000004", "ctx-000004b", "ctx-000005")
	wantIDs(t, query(defender.Position{End: at(3).End.Add(1)}), "ctx-000001", "ctx-000002", "ctx-000003")
	wantIDs(t, query(defender.Position{End: at(3).End}), "ctx-000001", "ctx-000002")
	wantIDs(t, query(defender.Position{}))
	wantIDs(t, all(t, s, other), "ctx-000001", "ctx-000002", "ctx-000003", "ctx-000004", "ctx-000005")
}

func historyLimit(t *testing.T, s defender.Store) {
	for i := range 20 {
		commit(t, s, fence(1, 1), result(i))
	}
	for limit, want := range map[int][]string{-1: nil, 0: nil, 1: {"ctx-000014"}, 3: {"ctx-000012", "ctx-000013", "ctx-000014"}} {
		found, err := s.History(t.Context(), defender.HistoryQuery{Chamber: chamber, Recipe: "etch/3", Before: result(15).UChart.Context.Position(), Limit: limit})
		wantIDs(t, ids(t, found, err), want...)
	}
	found, err := s.UCharts(t.Context(), chamber, 2)
	wantIDs(t, ids(t, found, err), "ctx-000019", "ctx-000018")
}

func redelivery(t *testing.T, s defender.Store) {
	commit(t, s, fence(1, 1), result(1))
	for _, f := range []defender.Fence{fence(1, 1), fence(1, 2), fence(7, 1)} {
		out, err := s.Commit(t.Context(), f, result(1))
		if want := (defender.CommitOutcome{Identical: true}); err != nil || out != want {
			t.Fatalf("Commit again under %s = %+v, %v, want %+v", f, out, err, want)
		}
	}
	wantIDs(t, all(t, s, chamber), "ctx-000001")
}

func differentResult(t *testing.T, s defender.Store) {
	first := result(1)
	commit(t, s, fence(1, 1), first)
	for name, change := range map[string]func(r *defender.Result){
		"value": func(r *defender.Result) { r.UChart.Chart.Values[1]++ },
		"state": func(r *defender.Result) { r.UChart.Verdict.State = uchart.Learning },
		"alarm": func(r *defender.Result) {
			r.Alarm = &defender.Alarm{Context: r.UChart.Context, State: uchart.Alarm, Reason: "why not"}
		},
		"recipe": func(r *defender.Result) { r.UChart.Context.Recipe = "another" },
	} {
		other := result(1)
		change(&other)
		out, err := s.Commit(t.Context(), fence(1, 1), other)
		if err != nil || out != (defender.CommitOutcome{}) {
			t.Errorf("Commit with another %s = %+v, %v, want neither stored nor identical", name, out, err)
		}
	}
	got, err := s.UChart(t.Context(), chamber, first.UChart.Context.ID)
	if err != nil || !reflect.DeepEqual(got, first.UChart) {
		t.Errorf("read %+v, %v, want the first result", got, err)
	}
	if found, err := s.Alarms(t.Context(), defender.AlarmQuery{Limit: 10}); err != nil || len(found) != 0 {
		t.Errorf("Alarms = %v, %v, want none", found, err)
	}
}

func olderFence(t *testing.T, s defender.Store) {
	commit(t, s, fence(5, 5), result(1))
	for _, f := range []defender.Fence{{}, fence(5, 4), fence(4, 9)} {
		_, err := s.Commit(t.Context(), f, NewResult(chamber, "etch/3", 2, uchart.Alarm))
		wantFenced(t, err, f, fence(5, 5))
		_, err = s.Commit(t.Context(), f, result(1)) // stored already: refused all the same
		wantFenced(t, err, f, fence(5, 5))
		wantFenced(t, s.RaiseFence(t.Context(), chamber, f), f, fence(5, 5))
	}
	wantIDs(t, all(t, s, chamber), "ctx-000001")
	if found, err := s.Alarms(t.Context(), defender.AlarmQuery{Limit: 10}); err != nil || len(found) != 0 {
		t.Errorf("Alarms = %v, %v, want none", found, err)
	}
}

func fenceOrder(t *testing.T, s defender.Store) {
	for i, f := range []defender.Fence{fence(0, 0), fence(0, 9), fence(1, 1), fence(1, 1), fence(1, 2), fence(2, 1), fence(1<<62, 1), fence(1<<62, 1<<62)} {
		commit(t, s, f, result(i))
	}
	_, err := s.Commit(t.Context(), fence(2, 1<<62), result(100))
	wantFenced(t, err, fence(2, 1<<62), fence(1<<62, 1<<62))
}

func fencePerChamber(t *testing.T, s defender.Store) {
	commit(t, s, fence(9, 9), result(1))
	other := defender.Chamber{Tool: "tool001", Name: "chamber2"}
	commit(t, s, fence(1, 1), NewResult(other, "etch/3", 1, uchart.Normal))
}

func raisedFence(t *testing.T, s defender.Store) {
	commit(t, s, fence(1, 1), result(1))
	for range 2 {
		if err := s.RaiseFence(t.Context(), chamber, fence(2, 3)); err != nil {
			t.Fatal(err)
		}
	}
	_, err := s.Commit(t.Context(), fence(1, 1), result(2))
	wantFenced(t, err, fence(1, 1), fence(2, 3))
	commit(t, s, fence(2, 3), result(2))
}

func chambers(t *testing.T, s defender.Store) {
	info := func(tool, name string, weight int64) defender.ChamberInfo {
		return defender.ChamberInfo{Chamber: defender.Chamber{Tool: tool, Name: name}, Weight: weight}
	}
	for _, list := range [][]defender.ChamberInfo{
		{info("b", "2", 5), info("a", "9", 30_000), info("b", "1", 6)},
		nil,
		{info("b", "1", 3_600_000), info("a-b", "1", 1)},
	} {
		if err := s.RegisterChambers(t.Context(), list); err != nil {
			t.Fatal(err)
		}
	}
	got, err := s.Chambers(t.Context())
	want := []defender.ChamberInfo{info("a", "9", 30_000), info("a-b", "1", 1), info("b", "1", 3_600_000), info("b", "2", 5)}
	if err != nil || !slices.Equal(got, want) {
		t.Fatalf("Chambers = %v, %v, want %v", got, err, want)
	}
}

func labels(t *testing.T, s defender.Store) {
	label := func(chamber, context, fault string) defender.FaultLabel {
		c, err := defender.ParseChamber(chamber)
		if err != nil {
			t.Fatal(err)
		}
		return defender.FaultLabel{Chamber: c, Context: context, Recipe: "etch/3", Fault: fault, Opposite: "not " + fault, By: "mía", Note: "line 1\nline 2", At: base,
			Signature: []uchart.Level{{SVID: "RF Pwr", Sigmas: -1.0 / 3}, {SVID: "Pressure", Sigmas: math.SmallestNonzeroFloat64}}}
	}
	want := func(labels ...defender.FaultLabel) {
		t.Helper()
		got, err := s.Labels(t.Context())
		if err != nil || len(got) != len(labels) || len(got) > 0 && !reflect.DeepEqual(got, labels) {
			t.Errorf("Labels = %+v, %v, want %+v", got, err, labels)
		}
	}
	gone := defender.TChartKey{Chamber: chamber, Context: "ctx-1"}
	want()
	if err := s.DeleteLabel(t.Context(), gone); err != nil {
		t.Errorf("deleting a label that isn't there: %v", err)
	}

	for _, l := range []defender.FaultLabel{label("b:1", "ctx-2", "leak"), label("b:1", "ctx-10", "leak"), label("a:2", "ctx-9", "chuck"), label("b:1", "ctx-2", "arc")} {
		if err := s.PutLabel(t.Context(), l); err != nil {
			t.Fatal(err)
		}
	}
	want(label("a:2", "ctx-9", "chuck"), label("b:1", "ctx-10", "leak"), label("b:1", "ctx-2", "arc"))

	gone = defender.TChartKey{Chamber: defender.Chamber{Tool: "b", Name: "1"}, Context: "ctx-10"}
	for range 2 {
		if err := s.DeleteLabel(t.Context(), gone); err != nil {
			t.Fatal(err)
		}
	}
	want(label("a:2", "ctx-9", "chuck"), label("b:1", "ctx-2", "arc"))

	if err := s.PutLabel(t.Context(), defender.FaultLabel{Chamber: chamber, Context: "ctx-1"}); err == nil {
		t.Error("a label without a fault is stored")
	}
	want(label("a:2", "ctx-9", "chuck"), label("b:1", "ctx-2", "arc"))
}

func alarms(t *testing.T, s defender.Store) {
	other := defender.Chamber{Tool: "tool002", Name: "chamber1"}
	for i, state := range []uchart.State{uchart.Learning, uchart.Alarm, uchart.Normal, uchart.BadData, uchart.Alarm} {
		commit(t, s, fence(1, 1), NewResult(chamber, "etch/3", 2*i, state))
		commit(t, s, fence(1, 1), NewResult(other, "etch/3", 2*i+1, state))
	}
	query := func(q defender.AlarmQuery) []string {
		t.Helper()
		found, err := s.Alarms(t.Context(), q)
		if err != nil {
			t.Fatal(err)
		}
		var names []string
		for _, a := range found {
			names = append(names, a.Context.Chamber.Tool+" "+a.Context.ID+" "+a.State.String())
			if a.Reason == "" || a.Context.Recipe != "etch/3" || a.Context.Start.IsZero() {
				t.Errorf("alarm is incomplete: %+v", a)
			}
		}
		return names
	}
	everything := []string{"tool002 ctx-000009 alarm", "tool001 ctx-000008 alarm", "tool002 ctx-000007 bad-data", "tool001 ctx-000006 bad-data", "tool002 ctx-000003 alarm", "tool001 ctx-000002 alarm"}
	wantIDs(t, query(defender.AlarmQuery{Limit: 100}), everything...)
	wantIDs(t, query(defender.AlarmQuery{Limit: 2}), everything[:2]...)
	wantIDs(t, query(defender.AlarmQuery{}))
	wantIDs(t, query(defender.AlarmQuery{Limit: 100, Since: base.Add(6 * time.Second)}), everything[:4]...)
	wantIDs(t, query(defender.AlarmQuery{Limit: 100, Chamber: chamber}), everything[1], everything[3], everything[5])
	wantIDs(t, query(defender.AlarmQuery{Limit: 100, Chamber: chamber, Since: base.Add(6*time.Second + 1)}), everything[1])
}

// alarmTies commits contexts of the same ID that ended together in several chambers, in two orders: whatever the order of their commits,
// they are listed by chamber, descending, and a limit cuts there.
func alarmTies(t *testing.T, s defender.Store) {
	names := []string{"a", "d", "b", "c"}
	for i, order := range [][]string{names, {"c", "b", "a", "d"}} {
		for _, name := range order {
			commit(t, s, fence(1, 1), NewResult(defender.Chamber{Tool: "tool", Name: name}, "etch", i, uchart.Alarm))
		}
	}
	found, err := s.Alarms(t.Context(), defender.AlarmQuery{Limit: 7})
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, a := range found {
		got = append(got, a.Context.Chamber.Name+a.Context.ID[len(a.Context.ID)-1:])
	}
	if want := []string{"d1", "c1", "b1", "a1", "d0", "c0", "b0"}; !slices.Equal(got, want) {
		t.Errorf("Alarms are %v, want %v", got, want)
	}
}

// racingOwners lets owners with rising fences commit at once. Each notes in
// which order its commits succeeded; as a store goes only forward, no owner may
// succeed with a commit that it began after a newer owner's had succeeded.
func racingOwners(t *testing.T, s defender.Store) {
	const owners, contexts = 4, 12
	var mu sync.Mutex
	var highest defender.Fence // of all commits known to have succeeded
	stored := map[string]bool{}
	var g sync.WaitGroup
	for owner := range owners {
		f := fence(uint64(owner/2), uint64(owner))
		g.Go(func() {
			for i := range contexts {
				mu.Lock()
				before := highest
				mu.Unlock()
				r := result(owner*contexts + i)
				out, err := s.Commit(t.Context(), f, r)
				if errors.Is(err, defender.ErrFenced) {
					continue
				}
				if err != nil || !out.Stored {
					t.Errorf("Commit = %+v, %v", out, err)
					return
				}
				mu.Lock()
				if f.Compare(before) < 0 {
					t.Errorf("a commit under %s succeeded though it began after one under %s", f, before)
				}
				if f.Compare(highest) > 0 {
					highest = f
				}
				stored[r.UChart.Context.ID] = true
				mu.Unlock()
			}
		})
	}
	g.Wait()
	got := all(t, s, chamber)
	if len(got) != len(stored) {
		t.Errorf("%d contexts are stored, %d commits succeeded", len(got), len(stored))
	}
	for _, id := range got {
		if !stored[id] {
			t.Errorf("%s is stored though its commit was refused", id)
		}
	}
	if last := (owners - 1) * contexts; !stored[result(last).UChart.Context.ID] {
		t.Error("the newest owner was refused")
	}
}

func racingDeliveries(t *testing.T, s defender.Store) {
	var mu sync.Mutex
	stored := 0
	var g sync.WaitGroup
	for range 8 {
		g.Go(func() {
			out, err := s.Commit(t.Context(), fence(3, 3), NewResult(chamber, "etch/3", 1, uchart.Alarm))
			mu.Lock()
			defer mu.Unlock()
			if err != nil || !out.Identical {
				t.Errorf("Commit = %+v, %v", out, err)
			}
			if out.Stored {
				stored++
			}
		})
	}
	g.Wait()
	if stored != 1 {
		t.Errorf("%d of 8 commits of one context say that they stored it, want 1", stored)
	}
	if found, err := s.Alarms(t.Context(), defender.AlarmQuery{Limit: 10}); err != nil || len(found) != 1 {
		t.Errorf("Alarms = %v, %v, want one", found, err)
	}
}

// expiry uses the real time, since stores may delete by themselves.
func expiry(t *testing.T, s defender.Store) {
	const life = 1500 * time.Millisecond
	now := time.Now()
	soon, late := now.Add(life), now.Add(time.Hour)
	for i, expires := range []time.Time{soon, late} {
		r := NewResult(chamber, "etch/3", i, uchart.Alarm)
		r.Expires = expires
		commit(t, s, fence(1, 1), r)
		if err := s.PutTChart(t.Context(), r.UChart.Context.TChart(), []byte("x"), expires); err != nil {
			t.Fatal(err)
		}
	}
	if n, err := s.DeleteExpired(t.Context(), now); err != nil || n != 0 {
		t.Fatalf("DeleteExpired before any expiry = %d, %v, want 0", n, err)
	}
	time.Sleep(time.Until(soon) + life)
	if _, err := s.DeleteExpired(t.Context(), time.Now()); err != nil {
		t.Fatal(err)
	}
	wantIDs(t, all(t, s, chamber), "ctx-000001")
	if found, err := s.Alarms(t.Context(), defender.AlarmQuery{Limit: 10}); err != nil || len(found) != 1 {
		t.Errorf("Alarms = %v, %v, want one", found, err)
	}
	if _, err := s.TChart(t.Context(), result(0).UChart.Context.TChart()); !errors.Is(err, defender.ErrNotFound) {
		t.Errorf("TChart that expired: error is %v, want ErrNotFound", err)
	}
	if _, err := s.TChart(t.Context(), result(1).UChart.Context.TChart()); err != nil {
		t.Errorf("TChart that has not expired: %v", err)
	}
}

func endedContext(t *testing.T, s defender.Store) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, commitErr := s.Commit(ctx, fence(1, 1), result(1))
	_, historyErr := s.History(ctx, defender.HistoryQuery{Chamber: chamber, Recipe: "etch/3", Before: result(1).UChart.Context.Position(), Limit: 1})
	raiseErr := s.RaiseFence(ctx, chamber, fence(1, 1))
	for name, err := range map[string]error{"Commit": commitErr, "History": historyErr, "RaiseFence": raiseErr} {
		if !errors.Is(err, context.Canceled) {
			t.Errorf("%s: error is %v, want context.Canceled", name, err)
		}
	}
}

func invalidRows(t *testing.T, s defender.Store) {
	for name, change := range map[string]func(r *defender.Result){
		"no tool":         func(r *defender.Result) { r.UChart.Context.Chamber.Tool = "" },
		"no context":      func(r *defender.Result) { r.UChart.Context.ID = "" },
		"no chart":        func(r *defender.Result) { r.UChart.Chart = nil },
		"a NaN":           func(r *defender.Result) { r.UChart.Chart.Values[1] = math.NaN() },
		"a missing value": func(r *defender.Result) { r.UChart.Chart.Values = r.UChart.Chart.Values[1:] },
	} {
		r := result(1)
		change(&r)
		if _, err := s.Commit(t.Context(), fence(1, 1), r); err == nil {
			t.Errorf("a result with %s is accepted", name)
		}
	}
	if err := s.PutTChart(t.Context(), defender.TChartKey{}, nil, base); err == nil {
		t.Error("a T-chart without a key is accepted")
	}
	if err := s.RegisterChambers(t.Context(), []defender.ChamberInfo{{Chamber: chamber}}); err == nil {
		t.Error("a chamber of weight 0 is accepted")
	}
	wantIDs(t, all(t, s, chamber))
}

func closed(t *testing.T, s defender.Store) {
	commit(t, s, fence(1, 1), result(1))
	for range 2 {
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
	}
	_, commitErr := s.Commit(t.Context(), fence(1, 1), result(2))
	_, readErr := s.UChart(t.Context(), chamber, "ctx-000001")
	_, tchartErr := s.TChart(t.Context(), defender.TChartKey{Chamber: chamber, Context: "c"})
	_, labelsErr := s.Labels(t.Context())
	for name, err := range map[string]error{"Commit": commitErr, "UChart": readErr, "TChart": tchartErr, "Labels": labelsErr} {
		if !errors.Is(err, defender.ErrClosed) {
			t.Errorf("%s: error is %v, want ErrClosed", name, err)
		}
	}
}
