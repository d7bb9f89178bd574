package main

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/muster-dev/muster/defender"
	"github.com/muster-dev/muster/defender/uchart"
	"github.com/muster-dev/muster/internal/command"
	"github.com/muster-dev/muster/partition/servertest/natstest"
)

func TestAlarmsAreListedAndAcknowledgedFromTheShell(t *testing.T) {
	t.Parallel()
	srv := natstest.Start(t)
	call := func(code int, args ...string) string {
		t.Helper()
		got, out, errs := muster(append([]string{"defender", "alarms", args[0], "--nats", srv.URL()}, args[1:]...)...)
		if got != code {
			t.Errorf("%v: exit code is %d, want %d: %s", args, got, code, errs)
		}
		return out + errs
	}
	if text := call(command.ExitFailed, "list"); !strings.Contains(text, "has a defender") {
		t.Errorf("without a stream the message is %q", text)
	}
	nc := natstest.Connect(t, srv.URL())
	if err := defender.Provision(t.Context(), nc, defender.Partition(4)); err != nil {
		t.Fatal(err)
	}
	chamber := defender.Chamber{Tool: "etch01", Name: "a"}
	at := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	data, err := json.Marshal(defender.AlarmNotice{Event: defender.AlarmOpened, Opened: "lot7.w3", Count: 1, Strategy: "s@1",
		Alarm: defender.Alarm{Context: defender.ContextRef{Chamber: chamber, ID: "lot7.w3", Start: at, End: at}, State: uchart.Alarm, Reason: "T² is high"}})
	if err != nil {
		t.Fatal(err)
	}
	js := natstest.JetStream(t, nc)
	if _, err := js.Publish(t.Context(), defender.AlarmSubject(chamber, "lot7.w3"), data); err != nil {
		t.Fatal(err)
	}
	for _, step := range []struct {
		args []string
		want []string
	}{
		{[]string{"list"}, []string{"etch01:a", "lot7.w3", "open", "2026-03-01T12:00:00Z", "T² is high"}},
		{[]string{"ack", "etch01:a", "lot7.w3", "--by", "mia", "--note", "checking"}, []string{"acknowledged alarm lot7.w3 of etch01:a"}},
		{[]string{"ack", "etch01:a", "lot7.w3", "--by", "leo"}, []string{"was acknowledged by mia"}},
		{[]string{"list", "--chamber", "etch01:a"}, []string{"acknowledged", "mia"}},
		{[]string{"list", "--output", "json", "--all"}, []string{`"opened": "lot7.w3"`, `"note": "checking"`}},
	} {
		text := call(command.ExitOK, step.args...)
		for _, want := range step.want {
			if !strings.Contains(text, want) {
				t.Errorf("%v doesn't say %q: %s", step.args, want, text)
			}
		}
	}
	if text := call(command.ExitFailed, "ack", "etch01:a", "lot7.w4", "--by", "mia"); !strings.Contains(text, "no such standing alarm") {
		t.Errorf("an alarm that isn't there: %q", text)
	}
}
