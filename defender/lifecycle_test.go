package defender_test

import (
	"encoding/json"
	"fmt"
	"testing"
	"time"

	"github.com/muster-dev/muster/defender"
	"github.com/muster-dev/muster/defender/trace"
	"github.com/muster-dev/muster/defender/uchart"
)

func TestAnAlarmIsOpenedRepeatedAndCleared(t *testing.T) {
	t.Parallel()
	states := map[byte]uchart.State{'.': uchart.Normal, 'A': uchart.Alarm, 'B': uchart.BadData, 'M': uchart.Maintenance, 'L': uchart.Learning}
	for _, test := range []struct{ run, want string }{ // o opened, r repeated, e escalated, c cleared
		{"..A.A...A", "--o-r--co"},
		{"A..A.....", "o--r--c--"},
		{"AAA...", "orr--c"},
		{"B..B...", "o--r--c"},
		{"A.M.A", "o-c-o"},
		{"M.A", "--o"},
		{"LLL", "---"},
		{"ALLLLL", "o-----"},   // who learns doesn't know that all is well
		{"A.LL.L.", "o-----c"}, // nor that it isn't
		{"BLLL...", "o-----c"},
		{"B.A..B.A...", "o-e--r-r--c"}, // the process alarms for the first time
	} {
		var history []defender.UChart
		got, opened := "", ""
		for i := range test.run {
			u := defender.UChart{Context: defender.ContextRef{Chamber: etcher, ID: fmt.Sprint("c", i)}, Verdict: uchart.Verdict{State: states[test.run[i]]}}
			n, ok := defender.NoticeOf(history, u, 3)
			again, okAgain := defender.NoticeOf(history, u, 3)
			if n != again || ok != okAgain {
				t.Errorf("%s: context %d gives another notice the second time", test.run, i)
			}
			switch {
			case !ok:
				got += "-"
			case n.Event == defender.AlarmOpened:
				opened = u.Context.ID
				fallthrough
			default:
				got += string(n.Event[:1])
				if n.Opened != opened || n.Count < 1 {
					t.Errorf("%s: context %d: notice %+v, want it opened by %s", test.run, i, n, opened)
				}
			}
			history = append(history, u)
		}
		if got != test.want {
			t.Errorf("%s: notices are %s, want %s", test.run, got, test.want)
		}
	}
}

func TestDriftIsToldOnceAndIsNoAlarm(t *testing.T) {
	t.Parallel()
	drift := []uchart.Drift{{SVID: "Vat Valve", Step: 4, Statistic: uchart.Mean, Center: 50, Level: 53, Sigmas: 4}}
	for _, test := range []struct{ run, want string }{ // d: drifted, D: drifted and alarm; d in want: told
		{"..d.dd.", "--d----"},
		{"..dM.d", "--d--d"},
		{"..Dd...d", "--o--c--"}, // an alarm's notice tells of it, too
		{"dA..d", "do--c"},
	} {
		var history []defender.UChart
		got := ""
		for i := range test.run {
			u := defender.UChart{Context: defender.ContextRef{Chamber: etcher, ID: fmt.Sprint("c", i)}, Verdict: uchart.Verdict{State: uchart.Normal}}
			switch test.run[i] {
			case 'd':
				u.Verdict.Drift = drift
			case 'D':
				u.Verdict.Drift, u.Verdict.State = drift, uchart.Alarm
			case 'A':
				u.Verdict.State = uchart.Alarm
			case 'M':
				u.Verdict.State = uchart.Maintenance
			}
			n, ok := defender.NoticeOf(history, u, 3)
			switch {
			case !ok:
				got += "-"
			case n.Event == defender.AlarmDrifted:
				got += "d"
				if n.Opened != "" || n.Count != 0 || n.Reason != "drifted since Phase I: Vat Valve, step 4, mean is at 53, 50 in Phase I (+4.0 sigma)" {
					t.Errorf("%s: the notice of context %d is %+v", test.run, i, n)
				}
			default:
				got += string(n.Event[:1])
			}
			if ok && (n.Drift != "") != (len(u.Verdict.Drift) > 0) {
				t.Errorf("%s: the notice of context %d says of drift %q", test.run, i, n.Drift)
			}
			history = append(history, u)
		}
		if got != test.want {
			t.Errorf("%s: notices are %s, want %s", test.run, got, test.want)
		}
	}
}

func (s *stage) notices() []defender.AlarmNotice {
	s.t.Helper()
	var list []defender.AlarmNotice
	for _, m := range s.stored(defender.AlarmStream) {
		var n defender.AlarmNotice
		if err := json.Unmarshal(m.Data, &n); err != nil {
			s.t.Fatal(err)
		}
		list = append(list, n)
	}
	return list
}

func TestMaintenanceStartsLimitsAgainAndClearsTheAlarm(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	d := s.defender(nil)
	g := trace.Generator{Seed: 1}
	at := now
	next := func(id string, w *trace.Wafer) uchart.State {
		t.Helper()
		at = at.Add(time.Minute)
		if err := d.Handle(t.Context(), s.context(id, w, at, first)); err != nil {
			t.Fatal(err)
		}
		return s.last().Verdict.State
	}
	for i := range 12 {
		next(fmt.Sprint("run", i), g.Wafer(i))
	}
	faulty, err := g.FaultyWafer(16, trace.Faults()[0])
	if err != nil {
		t.Fatal(err)
	}
	if state := next("faulty", faulty); state != uchart.Alarm {
		t.Fatalf("the faulty wafer is %s", state)
	}
	recipe := s.last().Context.Recipe
	at = at.Add(time.Minute)
	data, err := defender.MarshalCompletion(defender.NewMaintenance(etcher, "pm-7", "", at))
	if err != nil {
		t.Fatal(err)
	}
	m := s.context("unused", g.Wafer(1), at, first)
	m.Data = data
	for range 2 { // the second is a redelivery
		if err := d.Handle(t.Context(), m); err != nil {
			t.Fatal(err)
		}
	}
	if state := next("after", g.Wafer(20)); state != uchart.Learning {
		t.Errorf("after maintenance a context is %s, want learning", state)
	}
	if state := s.last().Verdict.Limits.N; state != 0 {
		t.Errorf("after maintenance limits rest on %d contexts", state)
	}
	// A context from before the maintenance, late, is judged by what was before it.
	if err := d.Handle(t.Context(), s.context("late", g.Wafer(21), at.Add(-90*time.Second), first)); err != nil {
		t.Fatal(err)
	}
	if state := s.last().Verdict.State; state != uchart.Normal {
		t.Errorf("a late context from before is %s, want normal", state)
	}
	notices := s.notices()
	if len(notices) != 2 || notices[0].Event != defender.AlarmOpened || notices[1].Event != defender.AlarmCleared || notices[1].Opened != "faulty" || notices[1].Recipe != recipe {
		t.Errorf("notices are %+v, want the alarm opened and cleared", notices)
	}
}

func TestADriftIsNotListedAsAnAlarm(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	s.alarmed(s.defender(byStrategy), 12, trace.Faults()[0])
	n := defender.AlarmNotice{Event: defender.AlarmDrifted, Alarm: defender.Alarm{Context: defender.ContextRef{Chamber: etcher, ID: "drifting"}, State: uchart.Normal, Reason: "drifted"}}
	data, err := json.Marshal(n)
	if err != nil {
		t.Fatal(err)
	}
	if err := s.conn.Publish(defender.AlarmSubject(etcher, "drifting"), data); err != nil {
		t.Fatal(err)
	}
	if err := s.conn.Flush(); err != nil {
		t.Fatal(err)
	}
	if got := len(s.notices()); got != 2 {
		t.Fatalf("the stream has %d notices, want the alarm and the drift", got)
	}
	list, err := defender.ListAlarms(t.Context(), s.conn, defender.AlarmListQuery{All: true, Limit: 10})
	if err != nil || len(list) != 1 || list[0].Opened == "" {
		t.Errorf("the alarms are %+v, %v, want one", list, err)
	}
}
