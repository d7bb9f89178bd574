package nodes

import (
	"fmt"
	"slices"
	"strings"
	"time"
)

// Window is a part of every week, in UTC. One that ends at or before the time at which it begins ends on the next day.
type Window struct {
	First time.Weekday // the days on which it begins, from First to Last
	Last  time.Weekday
	From  int // minutes of the day
	To    int // minutes of the day, up to 24:00
}

// Windows are when something may begin; none: always.
type Windows []Window

const dayMinutes = 24 * 60

// holds reports whether a window is open at a time.
func (w Window) holds(at time.Time) bool {
	at = at.UTC()
	minute := at.Hour()*60 + at.Minute()
	yesterday := (at.Weekday() + 6) % 7
	if w.To > w.From {
		return w.on(at.Weekday()) && minute >= w.From && minute < w.To
	}
	return w.on(at.Weekday()) && minute >= w.From || w.on(yesterday) && minute < w.To
}

// on reports whether the window begins on a day. The week has no end: Sat-Mon is three days.
func (w Window) on(d time.Weekday) bool { return (d-w.First+7)%7 <= (w.Last-w.First+7)%7 }

// String writes a window as it is read.
func (w Window) String() string {
	days := ""
	switch {
	case w.First == w.Last:
		days = shortDay(w.First) + " "
	case (w.Last-w.First+7)%7 < 6:
		days = shortDay(w.First) + "-" + shortDay(w.Last) + " "
	}
	return fmt.Sprintf("%s%02d:%02d-%02d:%02d", days, w.From/60, w.From%60, w.To/60, w.To%60)
}

func shortDay(d time.Weekday) string { return d.String()[:3] }

// open reports whether one of the windows is open at a time.
func (ws Windows) open(at time.Time) bool {
	return len(ws) == 0 || slices.ContainsFunc(ws, func(w Window) bool { return w.holds(at) })
}

// Openings lists when windows open within a week after a time.
func (ws Windows) Openings(after time.Time) []time.Time {
	var out []time.Time
	midnight := after.UTC().Truncate(24 * time.Hour)
	for day := range 8 {
		date := midnight.AddDate(0, 0, day)
		for _, w := range ws {
			if at := date.Add(time.Duration(w.From) * time.Minute); w.on(date.Weekday()) && at.After(after) {
				out = append(out, at)
			}
		}
	}
	return out
}

// String lists the windows.
func (ws Windows) String() string {
	var out []string
	for _, w := range ws {
		out = append(out, w.String())
	}
	return strings.Join(out, ",")
}

// parseWindows reads windows such as Mon-Fri 22:00-06:00,Sat-Sun 00:00-24:00; without days a window is of every day.
func parseWindows(text string) (Windows, error) {
	var out Windows
	for part := range strings.SplitSeq(text, ",") {
		if part = strings.TrimSpace(part); part == "" {
			continue
		}
		w, ok := parseWindow(part)
		if !ok {
			return nil, fmt.Errorf("%q is no window: write [DAY[-DAY] ]HH:MM-HH:MM in UTC, for example Mon-Fri 22:00-06:00,Sat-Sun 00:00-24:00", part)
		}
		out = append(out, w)
	}
	return out, nil
}

func parseWindow(text string) (Window, bool) {
	w := Window{First: time.Monday, Last: time.Sunday}
	fields := strings.Fields(text)
	if len(fields) == 2 {
		first, last, several := strings.Cut(fields[0], "-")
		if !several {
			last = first
		}
		var known, alsoKnown bool
		w.First, known = parseDay(first)
		w.Last, alsoKnown = parseDay(last)
		if !known || !alsoKnown {
			return w, false
		}
		fields = fields[1:]
	}
	if len(fields) != 1 {
		return w, false
	}
	from, to, ok := strings.Cut(fields[0], "-")
	var fromRead, toRead bool
	w.From, fromRead = parseMinute(from)
	w.To, toRead = parseMinute(to)
	return w, ok && fromRead && toRead && w.From < dayMinutes && w.From != w.To
}

func parseDay(text string) (time.Weekday, bool) {
	for d := time.Sunday; d <= time.Saturday; d++ {
		if strings.EqualFold(text, shortDay(d)) {
			return d, true
		}
	}
	return 0, false
}

// parseMinute reads a time of the day, up to 24:00.
func parseMinute(text string) (int, bool) {
	if text == "24:00" {
		return dayMinutes, true
	}
	at, err := time.Parse("15:04", text)
	return at.Hour()*60 + at.Minute(), err == nil && len(text) == 5
}

func readWindows(p *Policy, v string) (err error) {
	p.ConsolidateWindows, err = parseWindows(v)
	return err
}
