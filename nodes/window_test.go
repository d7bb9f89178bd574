package nodes

import (
	"strings"
	"testing"
	"time"
)

func TestWindows(t *testing.T) {
	for _, c := range []struct {
		windows string
		at      string // 2026-11-23 is a Monday
		open    bool
	}{
		{"", "2026-11-23T12:00:00Z", true},
		{"09:00-17:00", "2026-11-23T09:00:00Z", true},
		{"09:00-17:00", "2026-11-23T16:59:59Z", true},
		{"09:00-17:00", "2026-11-23T17:00:00Z", false},
		{"Mon-Fri 22:00-06:00", "2026-11-23T23:00:00Z", true},
		{"Mon-Fri 22:00-06:00", "2026-11-23T05:00:00Z", false}, // that night began on Sunday
		{"Mon-Fri 22:00-06:00", "2026-11-28T05:59:00Z", true},  // and this one on Friday
		{"Mon-Fri 22:00-06:00", "2026-11-28T06:00:00Z", false},
		{"Mon-Fri 22:00-06:00", "2026-11-28T23:00:00Z", false},
		{"Sat-Mon 00:00-24:00", "2026-11-23T23:59:00Z", true},
		{"Sat-Mon 00:00-24:00", "2026-11-24T00:00:00Z", false},
		{"sun 10:00-11:00, Tue 10:00-11:00", "2026-11-24T10:30:00Z", true},
		{"09:00-17:00", "2026-11-23T18:30:00+02:00", true}, // 16:30 UTC
	} {
		ws, err := parseWindows(c.windows)
		if err != nil {
			t.Fatal(err)
		}
		at, err := time.Parse(time.RFC3339, c.at)
		if err != nil {
			t.Fatal(err)
		}
		if got := ws.open(at); got != c.open {
			t.Errorf("%q at %s: open %t, want %t", c.windows, c.at, got, c.open)
		}
	}
}

func TestParseWindows(t *testing.T) {
	const text = "Mon-Fri 22:00-06:00,Sat 00:00-24:00,12:30-13:00"
	ws, err := parseWindows(text)
	if err != nil || ws.String() != text {
		t.Errorf("read as %q, %v", ws, err)
	}
	for _, wrong := range []string{"22:00", "22-06", "Mon 22:00", "Mon-Fri", "Mo 22:00-23:00", "Mon-Fri-Sat 10:00-11:00", "24:00-01:00", "10:00-10:00", "9:00-10:00", "10:00-25:00", "Mon 10:00-11:00 UTC"} {
		if _, err := parseWindows(wrong); err == nil || !strings.Contains(err.Error(), "HH:MM") {
			t.Errorf("%q gave %v", wrong, err)
		}
	}
}

func TestWindowsOpenings(t *testing.T) {
	ws, err := parseWindows("Mon-Tue 22:00-06:00,Sat 10:00-11:00")
	if err != nil {
		t.Fatal(err)
	}
	monday := time.Date(2026, 11, 23, 22, 0, 0, 0, time.UTC)
	var got []string
	for _, at := range ws.Openings(monday) {
		got = append(got, at.Format("Mon 2 15:04"))
	}
	if want := "Tue 24 22:00, Sat 28 10:00, Mon 30 22:00"; strings.Join(got, ", ") != want {
		t.Errorf("opens %v, want %s", got, want)
	}
}
