package defender_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/muster-dev/muster/defender"
	"github.com/muster-dev/muster/defender/trace"
	"github.com/muster-dev/muster/defender/uchart"
	"github.com/muster-dev/muster/partition"
	"github.com/muster-dev/muster/partition/servertest/natstest"
)

// scripted judges by letters: A alarm, B bad data, anything else normal.
func scripted(script string, at *int) func(*defender.Config) {
	return func(c *defender.Config) {
		c.Judge = func([]uchart.Point, *uchart.Chart) uchart.Verdict {
			v := uchart.Verdict{State: uchart.Normal, Charts: 10}
			switch script[*at] {
			case 'A':
				v.State, v.Violated = uchart.Alarm, 1
			case 'B':
				v.State, v.Faults = uchart.BadData, []string{"it is"}
			}
			return v
		}
	}
}

// run has a new defender process runs [from, to) of the script.
func (s *stage) script(script string, from, to int) {
	s.t.Helper()
	at := from
	d := s.defender(scripted(script, &at))
	w := new(trace.Generator).Wafer(0)
	for ; at < to; at++ {
		m := s.context(fmt.Sprintf("run%02d", at), w, now.Add(time.Duration(at)*time.Minute), first)
		for range 2 { // the second is a redelivery
			if err := d.Handle(s.t.Context(), m); err != nil {
				s.t.Fatal(err)
			}
		}
	}
}

func TestAlarmsAreAcknowledgedOnceAndForGood(t *testing.T) {
	t.Parallel()
	srv := natstest.Start(t)
	s := newStage(t)
	connect := func() {
		t.Helper()
		s.conn = natstest.Connect(t, srv.URL())
		if err := defender.Provision(t.Context(), s.conn, defender.Partition(16)); err != nil {
			t.Fatal(err)
		}
	}
	connect()
	//                0         1
	//                0123456789012345
	const script = "....A.AA...B.A.."
	list := func(all bool) string {
		t.Helper()
		alarms, err := defender.ListAlarms(t.Context(), s.conn, defender.AlarmListQuery{Chamber: etcher, All: all, Limit: 10})
		if err != nil {
			t.Fatal(err)
		}
		var text []string
		for _, a := range alarms {
			by := ""
			if a.Acknowledged != nil {
				by = " by " + a.Acknowledged.By
			}
			text = append(text, fmt.Sprintf("%s %s %d%s", a.Opened, a.Status(), a.Count, by))
		}
		return strings.Join(text, ", ")
	}
	want := func(when, standing, all string) {
		t.Helper()
		if got := list(false); got != standing {
			t.Errorf("%s: standing alarms are %q, want %q", when, got, standing)
		}
		if got := list(true); got != all {
			t.Errorf("%s: all alarms are %q, want %q", when, got, all)
		}
	}
	want("at first", "", "")
	ack := defender.Acknowledgement{Chamber: etcher, Opened: "run04", By: "mia", Note: "RF match", At: now}
	if _, err := defender.Acknowledge(t.Context(), s.conn, ack); !errors.Is(err, defender.ErrNoAlarm) {
		t.Errorf("acknowledging what isn't there: %v", err)
	}
	s.script(script, 0, 8)
	want("after three flagged runs", "run04 open 3", "run04 open 3")
	for i, by := range []string{"mia", "leo"} {
		ack.By = by
		kept, err := defender.Acknowledge(t.Context(), s.conn, ack)
		if err != nil || kept.By != "mia" {
			t.Errorf("acknowledgement %d: kept is %+v, %v", i, kept, err)
		}
	}
	want("acknowledged", "run04 acknowledged 3 by mia", "run04 acknowledged 3 by mia")

	// Broker and defender start again.
	s.conn.Close()
	srv.Restart(t, func() error { return nil })
	connect()
	want("after a restart", "run04 acknowledged 3 by mia", "run04 acknowledged 3 by mia")
	s.script(script, 8, 16)
	want("cleared, and another", "run11 open 2", "run11 open 2, run04 cleared 3 by mia")
	if _, err := defender.Acknowledge(t.Context(), s.conn, ack); !errors.Is(err, defender.ErrNoAlarm) {
		t.Errorf("acknowledging what is cleared: %v", err)
	}
	ack.By, ack.Note, ack.Opened = "", "two\nlines", "a b"
	_, err := defender.Acknowledge(t.Context(), s.conn, ack)
	for _, what := range []string{"by is empty", "control character", `contains ' '`} {
		if err == nil || !strings.Contains(err.Error(), what) {
			t.Errorf("the error doesn't tell %q: %v", what, err)
		}
	}
}

func TestTheLiveAPIShowsWhatADefenderHasAndTakesAcknowledgements(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	if err := s.store.RegisterChambers(t.Context(), []defender.ChamberInfo{{Chamber: etcher, Weight: 1}}); err != nil {
		t.Fatal(err)
	}
	d := s.defender(nil)
	w, err := partition.New(s.conn, defender.Partition(16), d)
	if err != nil {
		t.Fatal(err)
	}
	s.script("..A", 0, 3)
	srv := httptest.NewServer(defender.Live(d, w))
	t.Cleanup(srv.Close)
	call := func(method, path, media, body string, code int, v any) {
		t.Helper()
		req, err := http.NewRequestWithContext(t.Context(), method, srv.URL+path, strings.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		req.Header.Set("Content-Type", media)
		res, err := http.DefaultClient.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		defer res.Body.Close()
		text, err := io.ReadAll(res.Body)
		if err != nil {
			t.Fatal(err)
		}
		if res.StatusCode != code {
			t.Errorf("%s %s is answered %s, %s; want %d", method, path, res.Status, text, code)
		}
		if v != nil {
			if err := json.NewDecoder(bytes.NewReader(text)).Decode(v); err != nil {
				t.Errorf("%s: %v", path, err)
			}
		}
	}
	var a defender.Assignments
	call("GET", "/api/v1/assignments", "", "", 200, &a)
	if a.Slots == nil || len(a.Slots) != 0 || a.Chambers == nil { // it hasn't begun
		t.Errorf("assignments are %+v", a)
	}
	var c defender.CacheStats
	call("GET", "/api/v1/cache/stats", "", "", 200, &c)
	if c.Limit != 512<<20 {
		t.Errorf("the cache is %+v", c)
	}
	var alarms []defender.AlarmStatus
	call("GET", "/api/v1/alarms/standing?chamber=tool001:chamber1", "", "", 200, &alarms)
	if len(alarms) != 1 || alarms[0].Opened != "run02" || alarms[0].Acknowledged != nil {
		t.Errorf("alarms are %+v", alarms)
	}
	call("GET", "/api/v1/alarms/standing?chamber=x&all=perhaps&limit=0", "", "", 400, nil)
	const ack = `{"chamber":"tool001:chamber1","opened":"run02","by":"mia"}`
	call("POST", "/api/v1/alarms/ack", "text/plain", ack, 415, nil)
	call("POST", "/api/v1/alarms/ack", "application/json", `{"chamber":"tool001:chamber1"}`, 400, nil)
	call("POST", "/api/v1/alarms/ack", "application/json", `{"x":"`+strings.Repeat("y", 1<<14)+`"}`, 400, nil)
	call("POST", "/api/v1/alarms/ack", "application/json", strings.Replace(ack, "run02", "run01", 1), 404, nil)
	var kept defender.Acknowledgement
	call("POST", "/api/v1/alarms/ack", "application/json", ack, 200, &kept)
	call("POST", "/api/v1/alarms/ack", "application/json; charset=utf-8", strings.Replace(ack, "mia", "leo", 1), 200, &kept)
	if kept.By != "mia" || kept.At.IsZero() {
		t.Errorf("kept is %+v", kept)
	}
	call("GET", "/api/v1/alarms/ack", "", "", 405, nil)
}

func TestAlarmsAreChartedThemselves(t *testing.T) {
	t.Parallel()
	// Every tenth run alarms, at uneven times, and in the end every other.
	var rows []defender.UChart
	at := now
	for i := range 240 {
		v := uchart.Verdict{State: uchart.Normal, Charts: 200}
		if i < 200 && i%10 == 9 || i >= 200 && i%2 == 1 {
			v.State, v.Violated = uchart.Alarm, 1
		}
		if i >= 230 {
			v.State, v.Violated = uchart.Alarm, 60
		}
		at = at.Add(time.Duration(20+i%7) * time.Minute)
		rows = append(rows, defender.UChart{Context: defender.ContextRef{Chamber: etcher, ID: fmt.Sprint("run", i), End: at}, Verdict: v})
	}
	c := defender.ChartAlarms(rows)
	if c.Violations == nil || c.Between == nil || c.Runs == nil {
		t.Fatalf("charts are %+v", c)
	}
	out := func(c *defender.AlarmChart) (first string, n int) {
		for _, p := range c.Points {
			if p.Out {
				if n++; n == 1 {
					first = p.Context
				}
			}
		}
		return first, n
	}
	if first, n := out(c.Violations); n < 10 || first != "run230" {
		t.Errorf("%d runs have too many violations, the first is %s, want run230 and those after it", n, first)
	}
	if len(c.Runs.Points) != len(c.Between.Points) || c.Runs.Points[0].Value != 9 || c.Runs.Baseline != 20 {
		t.Errorf("the chart of runs between has %d points, the first %+v, and rests on %d", len(c.Runs.Points), c.Runs.Points[0], c.Runs.Baseline)
	}
	if first, n := out(c.Between); n < 25 || first != "run201" {
		t.Errorf("%d times between alarms are out, the first before %s, want run201 and those after it", n, first)
	}
	for i, want := range map[int]string{9: "", 150: "", 199: "", 207: "h after the alarm before", 235: "of its charts are violated"} {
		n, ok := defender.NoticeOf(rows[:i], rows[i], 3)
		if ok != rows[i].Verdict.Flagged() || !strings.Contains(n.Trend, want) || (n.Trend == "") != (want == "") {
			t.Errorf("run %d: the notice is %+v, want its trend to tell %q", i, n, want)
		}
	}
	rows[100].Verdict = uchart.Verdict{State: uchart.Maintenance}
	if again := defender.ChartAlarms(rows); len(again.Violations.Points) != 139 {
		t.Errorf("after maintenance %d runs are charted, want 139", len(again.Violations.Points))
	}
	if c := defender.ChartAlarms(rows[:10]); c.Violations != nil || c.Between != nil || c.Runs != nil {
		t.Errorf("of ten runs there are charts: %+v", c)
	}
}
