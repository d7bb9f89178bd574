package e2e

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/muster-dev/muster/defender"
	"github.com/muster-dev/muster/e2e/audit"
	"github.com/muster-dev/muster/internal/misuse"
	"github.com/muster-dev/muster/local"
	"github.com/muster-dev/muster/partition/report"
)

// session is one run of a scenario: the stack that it is played on, the parts by which the
// stack is disturbed and observed, and the report. Four parts stand before the stack's own
// and know more than those.
type session struct {
	*local.Stack
	Traffic   *traffic
	Defenders fleet
	View      seen
	Chambers  chambers

	o      Options
	rig    *rig
	pods   *pods
	report *Report
	check  *checks
}

// newSession starts everything but the defenders.
func newSession(ctx context.Context, o Options, name string) (*session, error) {
	s := &session{o: o, pods: newPods(), report: newReport(name, o.Case), Traffic: &traffic{truth: map[defender.TChartKey]string{}}}
	var err error
	if s.rig, err = newRig(o); err != nil {
		return nil, &misuse.Error{Err: err}
	}
	h := local.Hooks{Server: s.rig.server, Open: s.rig.open, Process: s.rig.process, Announce: s.Traffic.background,
		Pod: s.pods.attend, Interruption: s.pods.wrote}
	if o.provisionedByPrevious {
		h.Provision = provisionByPrevious(o)
	}
	if s.Stack, err = local.Start(ctx, o.Options, h); err != nil {
		return nil, errors.Join(err, s.rig.close())
	}

	s.Traffic.Traffic, s.Defenders, s.View, s.Chambers = s.Stack.Traffic, fleet{s.Stack.Defenders}, seen{s.Stack.View}, s.Stack.Chambers
	s.check = &checks{report: s.report, o: o, chambers: s.Chambers, view: s.View, endings: s.endings}
	if err := s.rig.startRecording(s.Dir); err != nil {
		return nil, errors.Join(err, s.close())
	}
	return s, nil
}

// close stops everything.
func (s *session) close() error {
	return errors.Join(s.CloseCluster(), s.Close(), s.rig.close())
}

// begin starts the first defenders and the traffic, and waits until all share
// all chambers.
func (s *session) begin(ctx context.Context) error {
	if err := s.assemble(ctx); err != nil {
		return err
	}
	s.Traffic.Rate.Store(int64(s.o.Rate))
	return nil
}

// assemble starts the first defenders and waits until all share all chambers.
func (s *session) assemble(ctx context.Context) error {
	// The first window must not wait for those that come later, whether or
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

// drain waits until everything that was published is processed.
func (s *session) drain(ctx context.Context) error {
	const within = 3 * time.Minute
	s.Traffic.Rate.Store(0)
	if err := s.Wait(ctx, within, "everything queued published", func() bool { return s.Traffic.Waiting() == 0 }); err != nil {
		return err
	}
	if faults := errors.Join(s.Traffic.Faults()...); faults != nil {
		return fmt.Errorf("the collector could not publish everything: %w", faults)
	}
	var pending func() (uint64, error)
	return s.Wait(ctx, within, "everything published processed", func() bool {
		// A request is lost that was sent to a broker which ended before it had read it.
		if pending == nil {
			var err error
			if pending, err = s.Pending(ctx); err != nil {
				return false
			}
		}
		n, err := pending()
		return err == nil && n == 0
	})
}

// expect tells the defenders how many they should be, if that is to be known.
func (s *session) expect(ctx context.Context, n int) error {
	if !s.o.Expect {
		n = 0
	}
	return s.SetExpected(ctx, n)
}

// warmUp gives every chamber a first context, and those that follow a series of
// wafers all of it.
func (s *session) warmUp(ctx context.Context) error {
	series := s.Source.Followed()
	for i := range s.Chambers {
		for range max(1, series[i]) {
			s.Traffic.publish(i, false)
		}
	}
	js, err := s.Pending(ctx)
	if err != nil {
		return err
	}
	want := int64(len(s.Chambers))
	rest := max(100, 2*int(float64(s.o.Rate)*s.o.Work.Seconds()))
	for _, n := range series {
		rest += n
	}
	limit := 3 * time.Minute
	if err := s.Wait(ctx, limit, "a first context of every chamber processed", func() bool {
		n, err := js()
		return err == nil && s.Traffic.Total() >= want && n < uint64(rest)
	}); err != nil {
		return err
	}
	s.Say("Every chamber has history; %d messages published", s.Traffic.Total())
	return nil
}

// busy gives each slot of some workers a message that is worked on for a while,
// and waits until the server has them.
func (s *session) busy(ctx context.Context, a *report.Map, ids []string, each int) error {
	chambers := s.Chambers.bySlot(a.Slots)
	want := s.Traffic.forced.Load()
	for _, id := range ids {
		for _, slot := range s.Chambers.slotsOf(a, id) {
			for range each {
				s.Traffic.press(chambers[slot][0])
				want++
			}
		}
	}
	return s.Wait(ctx, time.Minute, "the forced messages published", func() bool { return s.Traffic.forced.Load() >= want })
}

// forceOnMoves publishes a message for each chamber that a new map moves, the
// moment the map is seen.
func (s *session) forceOnMoves() {
	bySlot := s.Chambers.bySlot(s.o.Slots)
	s.View.SetOnMap(func(m local.SeenMap) {
		for _, slot := range slices.Sorted(maps.Keys(m.Moves)) {
			for _, ch := range bySlot[slot] {
				s.Traffic.publish(ch, true)
			}
		}
	})
}

// finish gives every chamber one more message, has all processed, and compares
// what was published with what was processed.
func (s *session) finish(ctx context.Context) ([]run, error) {
	s.View.SetOnMap(nil)
	s.Traffic.hold.Store(0)
	for i := range s.Chambers {
		s.Traffic.publish(i, false)
	}
	if err := s.drain(ctx); err != nil {
		return nil, err
	}
	runs, err := s.runs()
	if err != nil {
		return nil, err
	}
	pubs := s.Traffic.published()
	if err := s.keepPublished(pubs); err != nil {
		return nil, err
	}
	s.check.messages(pubs, runs)
	return runs, nil
}

// keepPublished writes what was published beside what was processed, for a person who
// wants to look closer.
func (s *session) keepPublished(pubs []publication) error {
	var b strings.Builder
	for _, p := range pubs {
		fmt.Fprintf(&b, "%d %d %s %t\n", p.At, p.Seq, p.Key, p.Forced)
	}
	if err := os.WriteFile(filepath.Join(s.Dir, "published"), []byte(b.String()), 0o644); err != nil {
		return fmt.Errorf("keeping what was published: %w", err)
	}
	return nil
}

// account has an auditor account for all messages that were published so far, and tells
// the first faults that it found.
func (s *session) account(ctx context.Context, auditor *audit.Auditor) (audit.Account, error) {
	pubs := s.Traffic.published()
	if err := s.keepPublished(pubs); err != nil {
		return audit.Account{}, err
	}
	published := make([]audit.Published, len(pubs))
	for i, p := range pubs {
		published[i] = audit.Published{Sequence: p.Seq, Key: p.Key, Context: p.Ref.ID}
	}
	deaths := map[string]time.Time{}
	for file, ns := range s.rig.endings(s.Defenders.All()) {
		deaths[file] = time.Unix(0, ns)
	}
	a, err := auditor.Account(ctx, published, deaths, nil)
	if err != nil {
		return a, err
	}
	for _, f := range a.Faults {
		s.Say("The auditor: %s", f)
	}
	s.report.measure("account", a)
	return a, nil
}

// auditConfig says where an auditor finds its evidence.
func (s *session) auditConfig() audit.Config {
	return audit.Config{Streams: s.Partition().Streams(), Dead: defender.DeadStream, Letters: defender.DeadSubject, Results: s.StorePath, Records: s.rig.records}
}

// endings returns, by recorder file, when each killed defender was gone.
func (s *session) endings() map[string]int64 { return s.rig.endings(s.Defenders.All()) }

// runs reads what all defenders have processed.
func (s *session) runs() ([]run, error) { return readAllRuns(s.rig.records) }
