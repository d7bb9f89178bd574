package handoff

import (
	"reflect"
	"testing"
	"time"
)

func TestParseEvent(t *testing.T) {
	at := func(ns int64) time.Time { return time.Unix(0, ns) }
	for _, tt := range []struct {
		line string
		want javaEvent
	}{
		{"run 3 17 240 5 1000000 2000001 3000002", javaEvent{kind: "run", worker: 3, text: "3 17 240 5 1000000 2000001 3000002",
			run: run{message: message{240, 5}, worker: 3, unit: 17, arrived: at(1000000), start: at(2000001), end: at(3000002), done: true}}},
		{"owns 44 11", javaEvent{kind: "owns", worker: 44, count: 11, text: "44 11"}},
		{"revoked 2 7 9", javaEvent{kind: "revoked", worker: 2, partitions: []int32{7, 9}, text: "2 7 9"}},
		{"done add 3", javaEvent{kind: "done", text: "add 3"}},
		{"fault worker 3: lost its way", javaEvent{kind: "fault", text: "worker 3: lost its way"}},
	} {
		got, err := parseEvent(tt.line)
		if err != nil || !reflect.DeepEqual(got, tt.want) {
			t.Errorf("%s: %+v (%v), want %+v", tt.line, got, err, tt.want)
		}
	}
	for _, line := range []string{"", "run 1 2 3", "owns x 2", "owns 128 1", "owns -1 1", "revoked 2", "ran 1 2"} {
		if got, err := parseEvent(line); err == nil {
			t.Errorf("%q is read as %+v", line, got)
		}
	}
}

func TestMessagesAreReadAsTheyAreWritten(t *testing.T) {
	for _, m := range []message{{0, 0}, {2399, 123456}} {
		data := m.encode()
		got, err := decode(data)
		if err != nil || got != m || len(data) != messageSize {
			t.Errorf("%v of %d bytes is read as %v (%v)", m, len(data), got, err)
		}
	}
	for _, text := range []string{"", "1", "1 2", "a 2 ...", "1 b ..."} {
		if m, err := decode([]byte(text)); err == nil {
			t.Errorf("%q is read as %v", text, m)
		}
	}
}
