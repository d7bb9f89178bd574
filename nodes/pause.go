package nodes

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/muster-dev/muster/internal/secret"
)

// maxPauseText is how many characters the name and the reason of a pause may have.
const maxPauseText = 500

// PauseScaling pauses scaling. It carries no fence, because a person who pauses holds no lease: stores make
// it one conditional write, so that it is neither lost under a tick's writes nor takes the lease from the
// tick. A tick that has decided but not begun is refused by the begin itself.
type PauseScaling struct {
	Now    time.Time
	By     string // who pauses; may be empty
	Reason string
}

// Name returns pauseScaling.
func (PauseScaling) Name() string { return "pauseScaling" }

// Apply sets the pause. One that is there already is kept as it is: its age, who is to be asked and why it is
// there stay true.
func (t PauseScaling) Apply(r Record) (Record, error) {
	if r.Paused() {
		return r, nil
	}
	r = r.Clone()
	r.PausedSinceEpoch, r.PausedBy, r.PauseReason = max(t.Now.Unix(), 1), t.By, t.Reason
	return r, nil
}

// set reports whether the pause of r is the one that t sets.
func (t PauseScaling) set(r Record) bool {
	return r.PausedSinceEpoch == max(t.Now.Unix(), 1) && r.PausedBy == t.By && r.PauseReason == t.Reason
}

// ResumeScaling ends a pause. Like PauseScaling it carries no fence.
type ResumeScaling struct{}

// Name returns resumeScaling.
func (ResumeScaling) Name() string { return "resumeScaling" }

// Apply removes the pause.
func (ResumeScaling) Apply(r Record) (Record, error) {
	if !r.Paused() {
		return r, nil
	}
	r = r.Clone()
	r.PausedSinceEpoch, r.PausedBy, r.PauseReason = 0, "", ""
	return r, nil
}

// CheckPause reports every fault of what a person gives with a pause. Who it is may be left out, and why only
// where reasonless is true.
func CheckPause(by, reason string, reasonless bool) error {
	errs := []error{checkPauseText("by", by), checkPauseText("reason", reason)}
	if strings.TrimSpace(reason) == "" && !reasonless {
		errs = append(errs, errors.New("the reason is empty: say why scaling is paused, for the people who find it paused"))
	}
	return errors.Join(errs...)
}

func checkPauseText(what, s string) error {
	if n := utf8.RuneCountInString(s); n > maxPauseText {
		return fmt.Errorf("%s has %d characters: write at most %d", what, n, maxPauseText)
	}
	if !utf8.ValidString(s) || strings.ContainsFunc(s, unicode.IsControl) {
		return fmt.Errorf("%s has characters that can't be shown: write one line of text", what)
	}
	return nil
}

// Switch pauses and resumes the scaling of a cluster from outside its ticks, and logs both.
type Switch struct {
	Store    Store
	EventLog EventLog
	Clock    Clock         // nil: SystemClock
	NewID    func() string // unique short strings, under which the event is logged; nil: random
}

// Pause pauses scaling and returns the record then. changed is false if it was paused already; that pause is
// kept. The error says what of CheckPause is wrong, that the record could not be written, or, with changed
// true, that it was and the event log was not.
func (s Switch) Pause(ctx context.Context, by, reason string) (r Record, changed bool, err error) {
	if err := CheckPause(by, reason, false); err != nil {
		return r, false, fmt.Errorf("pausing scaling: %w", err)
	}
	// Both are shown for as long as the pause lasts.
	t := PauseScaling{Now: s.now(), By: secret.Redact(strings.TrimSpace(by)), Reason: secret.Redact(strings.TrimSpace(reason))}
	if r, err = s.apply(ctx, t); err != nil {
		return r, false, fmt.Errorf("pausing scaling: %w", err)
	}
	if !t.set(r) {
		return r, false, nil
	}
	err = s.logEvent(ctx, Event{At: t.Now, Kind: "scaling.paused", Message: byWhom(t.By, t.Reason)})
	if err != nil {
		err = fmt.Errorf("scaling is paused, but that could not be logged: %w", err)
	}
	return r, true, err
}

// Resume ends the pause and returns the record as it was before and whether it was paused. A reason may be
// left out. Errors are those of Pause.
func (s Switch) Resume(ctx context.Context, by, reason string) (was Record, changed bool, err error) {
	if err := CheckPause(by, reason, true); err != nil {
		return was, false, fmt.Errorf("resuming scaling: %w", err)
	}
	if was, err = s.Store.Load(ctx); err != nil {
		return was, false, fmt.Errorf("resuming scaling: reading the record: %w", err)
	}
	if !was.Paused() {
		return was, false, nil
	}
	if _, err := s.apply(ctx, ResumeScaling{}); err != nil {
		return was, false, fmt.Errorf("resuming scaling: %w", err)
	}
	what := byWhom(secret.Redact(strings.TrimSpace(by)), secret.Redact(strings.TrimSpace(reason)))
	err = s.logEvent(ctx, Event{At: s.now(), Kind: "scaling.resumed", Message: what + "; it was paused " + was.pauseText()})
	if err != nil {
		err = fmt.Errorf("scaling is resumed, but that could not be logged: %w", err)
	}
	return was, true, err
}

func byWhom(by, why string) string {
	if by == "" {
		by = "somebody"
	}
	if why == "" {
		return "by " + by
	}
	return "by " + by + ": " + why
}

// apply makes a transition, once more if its outcome is unknown.
func (s Switch) apply(ctx context.Context, t Transition) (Record, error) {
	r, err := s.Store.Apply(ctx, t)
	if err == nil || IsRefused(err) || ctx.Err() != nil {
		return r, err
	}
	return s.Store.Apply(ctx, t)
}

func (s Switch) logEvent(ctx context.Context, e Event) error {
	e.Tick = rand.Text()[:12]
	if s.NewID != nil {
		e.Tick = s.NewID()
	}
	return s.EventLog.Append(ctx, e)
}

func (s Switch) now() time.Time {
	if s.Clock == nil {
		return time.Now()
	}
	return s.Clock.Now()
}
