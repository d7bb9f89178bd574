package command

import (
	"errors"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/pflag"
)

// moment reads a time: one in RFC 3339, a date, or so long ago, for example 2h or 3d.
func moment(text string, now time.Time) (time.Time, error) {
	if days, ok := strings.CutSuffix(text, "d"); ok {
		if n, err := strconv.Atoi(days); err == nil && n >= 0 && n < 100_000 {
			return now.Add(-time.Duration(n) * 24 * time.Hour), nil
		}
	}
	if d, err := time.ParseDuration(text); err == nil && d >= 0 {
		return now.Add(-d), nil
	}
	for _, layout := range []string{time.RFC3339, "2006-01-02T15:04:05", "2006-01-02 15:04:05", "2006-01-02 15:04", time.DateOnly} {
		if t, err := time.Parse(layout, text); err == nil {
			return t, nil
		}
	}
	return time.Time{}, errors.New("write how long ago, for example 30m, 2h or 3d, or a time in UTC, for example 2026-11-21T09:30:00Z")
}

// Moment is a flag whose value is a moment: one in RFC 3339, a date, or how long ago.
type Moment struct {
	At  time.Time                 // zero if the flag isn't given
	Now func() (time.Time, error) // what "how long ago" counts from; nil: the machine's clock

	text string
}

var _ pflag.Value = (*Moment)(nil)

func (m *Moment) String() string { return m.text }

// Type returns what help texts call the value.
func (m *Moment) Type() string { return "time" }

// Set reads the moment from text.
func (m *Moment) Set(text string) (err error) {
	m.text = text
	now := time.Now()
	if m.Now != nil {
		if now, err = m.Now(); err != nil {
			return err
		}
	}
	m.At, err = moment(text, now)
	return err
}
