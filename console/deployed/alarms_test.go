package deployed

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/muster-dev/muster/console"
	"github.com/muster-dev/muster/defender"
	"github.com/muster-dev/muster/defender/uchart"
)

// TestAlarms: a notice is shown by itself, before anything is read, and a reading that has it shows it no second time.
func TestAlarms(t *testing.T) {
	page, err := console.New(console.Options{})
	if err != nil {
		t.Fatal(err)
	}
	a := newAlarms(link{})
	a.page = page
	chamber := defender.Chamber{Tool: "tool001", Name: "chamber1"}
	publish := func(subject string, v any) *nats.Msg {
		b, err := json.Marshal(v)
		if err != nil {
			t.Fatal(err)
		}
		return &nats.Msg{Subject: subject, Data: b}
	}
	end := time.Now().UTC()
	opened := publish(defender.AlarmSubject(chamber, "lot1"), defender.AlarmNotice{
		Alarm: defender.Alarm{Context: defender.ContextRef{ID: "lot1", Chamber: chamber, Recipe: "etch-a", End: end}, State: uchart.Alarm, Reason: "RF_Tuner mean 4.2 sigma"},
		Event: defender.AlarmOpened, Opened: "lot1", Count: 1, Recipe: "etch-a"})
	acknowledged := publish("dc-alarm-ack.tool001.chamber1.lot1", defender.Acknowledgement{Chamber: chamber, Opened: "lot1", By: "olga", At: end})
	want := func(when string, lines, open, acks int) {
		t.Helper()
		w := httptest.NewRecorder()
		r := httptest.NewRequest(http.MethodGet, "http://127.0.0.1/api/events", nil)
		page.ServeHTTP(w, r)
		if n := strings.Count(w.Body.String(), `"subject":"tool001:chamber1"`); n != lines {
			t.Errorf("%s: %d lines in the timeline, want %d: %s", when, n, lines, w.Body)
		}
		count, err := a.count(t.Context())
		if a.book != nil && err != nil || count.Open != open || count.Acknowledged != acks {
			t.Errorf("%s: %d open and %d acknowledged (%v), want %d and %d", when, count.Open, count.Acknowledged, err, open, acks)
		}
	}

	a.notice(opened)
	want("before the first reading, which will have the notice", 0, 0, 0)
	a.keep(defender.NewAlarmBook(), nil)
	a.notice(opened)
	want("after the notice", 1, 1, 0)
	a.notice(acknowledged)
	want("after its acknowledgement", 2, 0, 1)

	read := defender.NewAlarmBook()
	read.Take(opened.Subject, opened.Data)
	read.Take(acknowledged.Subject, acknowledged.Data)
	a.keep(read, nil)
	want("after a reading", 2, 0, 1)
}
