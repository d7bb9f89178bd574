package console

import (
	"strings"
	"testing"
	"time"
)

func TestBacklog(t *testing.T) {
	t.Parallel()
	began := time.Date(2026, 1, 2, 2, 0, 0, 0, time.UTC)
	// at is a sample after some seconds, whose oldest message waits for a time.
	at := func(seconds int, waiting uint64, age time.Duration) Load {
		when := began.Add(time.Duration(seconds) * time.Second)
		return Load{At: when, Waiting: waiting, Oldest: when.Add(-age)}
	}
	for name, c := range map[string]struct {
		samples []Load
		state   string
		since   int // seconds; -1: nothing waits
		text    string
	}{
		"none":               {nil, NotMeasure, -1, "Nothing has been measured"},
		"one":                {[]Load{at(0, 0, 0)}, NotMeasure, -1, "only one sample"},
		"what comes is done": {[]Load{at(0, 9, time.Second), at(5, 0, 0), at(10, 12, time.Second)}, Keeping, -1, "Capacity is enough"},
		"it grows":           {[]Load{at(0, 0, 0), at(5, 50, 3*time.Second), at(10, 100, 8*time.Second)}, Growing, 5, "grows by 10.0 messages per second"},
		"it stays":           {[]Load{at(0, 50, time.Second), at(5, 50, 3*time.Second), at(10, 50, 8*time.Second)}, Growing, 5, "grows by 0.0"},
		"it shrinks":         {[]Load{at(0, 0, 0), at(5, 100, 8*time.Second), at(10, 50, 8*time.Second)}, Behind, 5, "gone in 5s"},
		"a break":            {[]Load{at(0, 90, 9*time.Second), at(5, 0, 0), at(10, 50, 3*time.Second), at(15, 90, 8*time.Second)}, Growing, 10, "not enough"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := backlogOf(c.samples)
			if b.State != c.state || !strings.Contains(b.Text, c.text) {
				t.Errorf("%s: %s", b.State, b.Text)
			}
			if c.since < 0 && !b.Since.IsZero() || c.since >= 0 && !b.Since.Equal(began.Add(time.Duration(c.since)*time.Second)) {
				t.Errorf("since %v", b.Since)
			}
		})
	}
}

func TestMentions(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]bool{
		"defender-1 acquired slot 7": true, "slot 7: defender-12 → defender-1": true, "(defender-1)": true,
		"defender-12 acquired": false, "my-defender-1 left": false, "defender-1-old": false, "": false,
	} {
		if got := mentions(text, "defender-1"); got != want {
			t.Errorf("%q: %t", text, got)
		}
	}
}
