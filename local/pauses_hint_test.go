package local

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/muster-dev/muster/partition/event"
)

// TestPausesHint: on a machine that is too slow, hundreds of pauses make a few lines, and one of them says what to do.
func TestPausesHint(t *testing.T) {
	t.Parallel()
	began := time.Date(2026, 1, 31, 2, 10, 0, 0, time.UTC)
	for name, c := range map[string]struct {
		defenders, pausing int
		reason             string
		hints              int
	}{
		"most pause for a moment":         {30, 24, slowReason, 1},
		"few pause":                       {30, 5, slowReason, 0},
		"the servers are away":            {30, 30, "connection lost", 0},
		"there are few defenders already": {4, 4, slowReason, 0},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := pauses{every: pausesEvery, hint: true}
			var lines []string
			// Four times in a minute defenders pause one after the other within 2 s, and all go on after 5 s.
			for second := range 60 {
				now := began.Add(time.Duration(second) * time.Second)
				at := func(kind event.Kind, from, to int) {
					for i := from; i < to; i++ {
						p.event(now, event.Event{Kind: kind, Worker: fmt.Sprintf("defender-%d", i), Reason: c.reason})
					}
				}
				switch second % 15 {
				case 0:
					at(event.LeaseUncertain, 0, min(3, c.pausing))
				case 2:
					at(event.LeaseUncertain, min(3, c.pausing), c.pausing)
				case 5:
					at(event.LeaseConfirmed, 0, c.pausing)
				}
				if line := p.line(now, c.defenders); line != "" {
					lines = append(lines, line)
				}
			}
			text := strings.Join(lines, "\n")
			if len(lines) < 4 || len(lines) > 8 {
				t.Errorf("%d pauses make %d lines:\n%s", 4*c.pausing, len(lines), text)
			}
			if n := strings.Count(text, "try --defenders"); n != c.hints {
				t.Errorf("%d hints, want %d:\n%s", n, c.hints, text)
			}
			if want := fmt.Sprintf("All defenders continue: %d pauses", c.pausing); !strings.Contains(text, want) {
				t.Errorf("no line has %q:\n%s", want, text)
			}
		})
	}
}
