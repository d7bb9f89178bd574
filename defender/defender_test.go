package defender_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/muster-dev/muster/defender"
	"github.com/muster-dev/muster/defender/uchart"
	"github.com/muster-dev/muster/partition"
)

func completion() defender.Completion {
	return defender.NewCompletion(defender.ContextRef{
		Chamber: defender.Chamber{Tool: "tool001", Name: "chamber1"}, ID: "lot7.wafer-12", Recipe: "etch/3", Lot: "lot 7", Wafer: "12",
		Start: time.Date(2031, 1, 2, 3, 4, 5, 6, time.UTC), End: time.Date(2031, 1, 2, 3, 24, 5, 6, time.UTC),
	})
}

func TestCompletionsSurviveJSON(t *testing.T) {
	t.Parallel()
	want := completion()
	data, err := json.Marshal(want)
	if err != nil {
		t.Fatal(err)
	}
	got, err := defender.ParseCompletion(data)
	if err != nil || !reflect.DeepEqual(got, want) {
		t.Errorf("ParseCompletion(%s) = %+v, %v, want %+v", data, got, err, want)
	}
	if ref := got.Ref(); defender.NewCompletion(ref) != want {
		t.Errorf("context is %+v", ref)
	}
	unknown := strings.Replace(string(data), "{", `{"later":1,`, 1)
	if _, err := defender.ParseCompletion([]byte(unknown)); err != nil {
		t.Errorf("a field of a later version is refused: %v", err)
	}
}

func TestAllFaultsOfACompletionAreReported(t *testing.T) {
	t.Parallel()
	c := completion()
	c.Schema, c.Tool, c.Chamber, c.TChart, c.Recipe = 2, "tool.1", "", "nonsense", strings.Repeat("x", 300)
	c.Start, c.End = c.End, c.Start
	err := c.Validate()
	if err == nil {
		t.Fatal("no error")
	}
	for _, want := range []string{"schema 2 is newer than 1", `tool "tool.1" contains '.'`, "chamber is empty", "nonsense", "recipe has 300 bytes", "is before start"} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("error doesn't say %q:\n%v", want, err)
		}
	}
	for behaviour, change := range map[string]func(c *defender.Completion){
		"schema 0":                   func(c *defender.Completion) { c.Schema = 0 },
		"a context with a slash":     func(c *defender.Completion) { c.Context = "a/b" },
		"a context with a line end":  func(c *defender.Completion) { c.Context = "a\nb" },
		"another context's T-chart":  func(c *defender.Completion) { c.TChart = "tool001:chamber1/other" },
		"no times":                   func(c *defender.Completion) { c.Start, c.End = time.Time{}, time.Time{} },
		"a time too far":             func(c *defender.Completion) { c.End = c.End.AddDate(300, 0, 0) },
		"a name that is too long":    func(c *defender.Completion) { c.Tool = strings.Repeat("t", 65) },
		"a wafer that isn't UTF-8":   func(c *defender.Completion) { c.Wafer = "\xff" },
		"a chamber that is wildcard": func(c *defender.Completion) { c.Chamber = "*" },
	} {
		c := completion()
		change(&c)
		if c.Validate() == nil {
			t.Errorf("%s is accepted", behaviour)
		}
	}
	if _, err := defender.ParseCompletion([]byte(`{"schema":"1"}`)); err == nil {
		t.Error("a schema that is text is accepted")
	}
}

func TestFencesCompareByMapVersionThenClaim(t *testing.T) {
	t.Parallel()
	ascending := []defender.Fence{{}, {MapVersion: 0, ClaimRevision: 7}, {MapVersion: 1, ClaimRevision: 0}, {MapVersion: 1, ClaimRevision: 3}, {MapVersion: 2, ClaimRevision: 1}}
	for i, a := range ascending {
		for j, b := range ascending {
			if got := a.Compare(b); (got < 0) != (i < j) || (got > 0) != (i > j) {
				t.Errorf("%s.Compare(%s) = %d", a, b, got)
			}
		}
	}
	err := fmt.Errorf("committing, %w", &defender.FencedError{Offered: ascending[1], Stored: ascending[4]})
	var fenced *defender.FencedError
	if !errors.Is(err, defender.ErrFenced) || !errors.As(err, &fenced) || fenced.Stored != ascending[4] {
		t.Errorf("error %v isn't recognized", err)
	}
	var by *partition.FencedError
	if !errors.Is(err, partition.ErrFenced) || !errors.As(err, &by) || by.Stored != (partition.Fence{Version: 2, Claim: 1}) {
		t.Errorf("package partition doesn't learn of %v which fence the store has", err)
	}
}

func TestChambersAreText(t *testing.T) {
	t.Parallel()
	var got struct{ Chamber defender.Chamber }
	if err := json.Unmarshal([]byte(`{"Chamber":"tool001:chamber1"}`), &got); err != nil || got.Chamber.Name != "chamber1" {
		t.Errorf("chamber is %v, %v", got, err)
	}
	for _, wrong := range []string{"", "tool001", ":", "a:", ":b", "a:b:c", "a b:c", "ä:b"} {
		if c, err := defender.ParseChamber(wrong); err == nil {
			t.Errorf("ParseChamber(%q) = %v, want an error", wrong, c)
		}
	}
	key := defender.TChartKey{Chamber: got.Chamber, Context: "a:b"}
	if back, err := defender.ParseTChartKey(key.String()); err != nil || back != key {
		t.Errorf("ParseTChartKey(%q) = %v, %v", key, back, err)
	}
}

func TestOnlyFlaggedVerdictsRaiseAlarms(t *testing.T) {
	t.Parallel()
	for _, state := range []uchart.State{uchart.Learning, uchart.Normal, uchart.Alarm, uchart.BadData} {
		v := uchart.Verdict{State: state, Faults: []string{"why"}}
		r := defender.NewResult(completion().Ref(), &uchart.Chart{}, v, time.Time{})
		if (r.Alarm != nil) != (state == uchart.Alarm || state == uchart.BadData) {
			t.Errorf("%s: alarm is %v", state, r.Alarm)
		}
		if r.Alarm != nil && (r.Alarm.State != state || r.Alarm.Reason == "" || r.Alarm.Context != r.UChart.Context) {
			t.Errorf("%s: alarm is %+v", state, r.Alarm)
		}
	}
}

func FuzzParseCompletion(f *testing.F) {
	data, err := json.Marshal(completion())
	if err != nil {
		f.Fatal(err)
	}
	f.Add(data)
	f.Fuzz(func(t *testing.T, data []byte) {
		c, err := defender.ParseCompletion(data)
		if err != nil {
			return
		}
		if err := c.Ref().Validate(); err != nil {
			t.Fatalf("an accepted message has an invalid context: %v", err)
		}
	})
}
