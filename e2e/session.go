package e2e

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/muster-dev/muster/defender"
	"github.com/muster-dev/muster/internal/misuse"
	"github.com/muster-dev/muster/local"
)

// session is one run of a scenario: the stack that it plays on, and the parts by which it
// observes and disturbs that.
type session struct {
	*local.Stack
	Traffic   *traffic // the stack's
	Defenders fleet    // the stack's
	o         Options
	rig       *rig
	report    *Report
}

// newSession starts everything but the defenders.
func newSession(ctx context.Context, o Options, name string) (*session, error) {
	s := &session{o: o, report: newReport(name, o.Case), Traffic: &traffic{truth: map[defender.TChartKey]string{}}}
	var err error
	if s.rig, err = newRig(o); err != nil {
		return nil, &misuse.Error{Err: err}
	}
	h := local.Hooks{Server: s.rig.server, Open: s.rig.open, Process: s.rig.process, Announce: s.Traffic.background}
	if o.provisionedByPrevious {
		h.Provision = s.provisionByPrevious
	}
	if s.Stack, err = local.Start(ctx, o.Options, h); err != nil {
		return nil, errors.Join(err, s.rig.close())
	}
	s.Traffic.Traffic, s.Defenders = s.Stack.Traffic, fleet{s.Stack.Defenders}
	if err := s.rig.startRecording(s.Dir); err != nil {
		return nil, errors.Join(err, s.close())
	}
	return s, nil
}

// close stops everything.
func (s *session) close() error {
	return errors.Join(s.CloseCluster(), s.Close(), s.rig.close())
}

// Begin starts the first defenders and the traffic, and waits until all share
// all chambers.
func (s *session) Begin(ctx context.Context) error {
	if err := s.Assemble(ctx); err != nil {
		return err
	}
	s.Traffic.Rate.Store(int64(s.o.Rate))
	return nil
}

// Assemble starts the first defenders and waits until all share all chambers.
func (s *session) Assemble(ctx context.Context) error {
	// The first window must not wait for those who come later, whether or
	// not the scenario lets the number be known then.
	if err := s.SetExpected(ctx, s.o.Defenders); err != nil {
		return err
	}
	kind := "goroutines"
	if s.o.Processes {
		kind = "processes"
	}
	s.Say("Starting %d defenders as %s, %d chambers in %d slots", s.o.Defenders, kind, s.o.Chambers, s.o.Slots)
	if _, err := s.Defenders.Add(ctx, s.o.Defenders); err != nil {
		return err
	}
	if err := s.Wait(ctx, 2*time.Minute, "all defenders STABLE", func() bool { return s.View.Stable(s.o.Defenders) }); err != nil {
		return err
	}
	a := s.View.Latest()
	s.Say("%d defenders STABLE, assignment map version %d", s.o.Defenders, a.Version)
	return nil
}

// Drain waits until everything that was published is processed.
func (s *session) Drain(ctx context.Context) error {
	const within = 3 * time.Minute
	s.Traffic.Rate.Store(0)
	if err := s.Wait(ctx, within, "everything queued published", func() bool { return s.Traffic.Waiting() == 0 }); err != nil {
		return err
	}
	if faults := errors.Join(s.Traffic.Faults()...); faults != nil {
		return fmt.Errorf("the collector could not publish everything: %w", faults)
	}
	pending, err := s.Pending(ctx)
	if err != nil {
		return err
	}
	return s.Wait(ctx, within, "everything published processed", func() bool { n, err := pending(); return err == nil && n == 0 })
}

// Expect tells the defenders how many they should be, if that is to be known.
func (s *session) Expect(ctx context.Context, n int) error {
	if !s.o.Expect {
		n = 0
	}
	return s.SetExpected(ctx, n)
}
