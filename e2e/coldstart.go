package e2e

import (
	"context"
	"fmt"
	"time"

	"github.com/muster-dev/muster/partition/event"
)

// coldStartRun is a run of scenario cold-start.
type coldStartRun struct{ *session }

// coldStart: every chamber has a message when the first defender comes.
func coldStart(ctx context.Context, s *session) error { return coldStartRun{s}.run(ctx) }

func (s coldStartRun) run(ctx context.Context) error {
	n := s.o.Defenders
	for i := range s.Chambers {
		s.Traffic.publish(i, true)
	}
	if err := s.Wait(ctx, 2*time.Minute, "a message for each chamber published", func() bool { return s.Traffic.Ordered() == 0 }); err != nil {
		return err
	}
	if err := s.expect(ctx, n); err != nil {
		return err
	}
	began := time.Now()
	var err error
	switch s.o.Case {
	case "partial":
		err = s.coldPartial(ctx)
	case "joining-crash":
		err = s.coldCrash(ctx)
	default:
		s.Say("Starting %d defenders with %d messages waiting", n, s.Traffic.Total())
		_, err = s.Defenders.Add(ctx, n)
	}
	if err != nil {
		return err
	}
	if err := s.Wait(ctx, 90*time.Second, fmt.Sprintf("%d defenders STABLE", n), func() bool { return s.View.Stable(n) }); err != nil {
		return err
	}
	settled := time.Now()
	s.Traffic.Rate.Store(int64(s.o.Rate))
	first := s.View.Latest()
	s.Say("%d defenders STABLE, assignment map version %d", n, first.Version)
	if s.o.Case == "restart" {
		if err := s.restartAll(ctx); err != nil {
			return err
		}
	}
	runs, err := s.finish(ctx)
	if err != nil {
		return err
	}
	r, last := s.report, s.View.Latest()
	s.check.spread(last, n)
	want := uint64(1)
	if s.o.Case == "partial" {
		want = 2
	}
	equal(r, "map version", want, last.Version)
	if s.o.Case == "restart" {
		s.check.nothingMoved(first, last)
	}
	ids := map[string]bool{}
	for _, w := range first.Workers {
		ids[w.ID] = true
	}
	equal(r, "stable IDs unique", n, len(ids))
	s.coldTimes(began, settled, runs)
	return nil
}

func (s coldStartRun) coldTimes(began, settled time.Time, runs []run) {
	r := s.report
	var window time.Duration
	for _, e := range s.View.Since(began) {
		if e.Kind == event.WindowDone {
			window = e.Duration
			break
		}
	}
	r.measure("window_s", seconds(window))
	if s.o.Expect && s.o.Case != "partial" {
		r.timed("stabilization window, s", "ends as soon as all are there (under 30)", window > 0 && window < 30*time.Second, "%.1f", window.Seconds())
	} else {
		r.check("stabilization window, s", "30 or more", window >= 29900*time.Millisecond, "%.1f", window.Seconds())
	}
	r.measure("cold_start_s", seconds(settled.Sub(began)))
	if s.o.Case == "" {
		r.timed("whole cold start, s", "at most 60", settled.Sub(began) <= time.Minute, "%.1f", settled.Sub(began).Seconds())
	}
	busy := map[string]bool{}
	for _, x := range runs {
		busy[x.worker] = true
	}
	r.check("all defenders process messages", fmt.Sprint(s.o.Defenders), len(busy) >= s.o.Defenders, "%d", len(busy))
}

// coldPartial: a third of the defenders can't start before the window is over.
func (s coldStartRun) coldPartial(ctx context.Context) error {
	n := s.o.Defenders
	some := max(1, n*2/3)
	s.Say("Starting %d of %d defenders; the others can't be placed yet", some, n)
	if _, err := s.Defenders.Add(ctx, some); err != nil {
		return err
	}
	if err := s.Wait(ctx, 90*time.Second, fmt.Sprintf("%d defenders STABLE", some), func() bool { return s.View.Stable(some) }); err != nil {
		return err
	}
	s.Say("%d defenders STABLE; the other %d start", some, n-some)
	s.report.measure("partial_defenders", some)
	_, err := s.Defenders.Add(ctx, n-some)
	return err
}

// coldCrash: one of the first dies during the window, and is replaced.
func (s coldStartRun) coldCrash(ctx context.Context) error {
	n := s.o.Defenders
	s.Say("Starting %d defenders; one will crash during the window", n)
	began := time.Now()
	added, err := s.Defenders.Add(ctx, n-1)
	if err != nil {
		return err
	}
	if err := s.Wait(ctx, 30*time.Second, "the defenders detected", func() bool { return s.View.count(began, event.WorkerJoined) >= n-1 }); err != nil {
		return err
	}
	victim := added[len(added)/2]
	id := idOf(victim)
	victim.Kill()
	crashed := time.Now()
	s.Say("%s crashes during the window", id)
	if err := s.Wait(ctx, 15*time.Second, "the crash noticed", func() bool { return s.View.gone(crashed, id) }); err != nil {
		return err
	}
	_, err = s.Defenders.Add(ctx, 2)
	return err
}

// restartAll stops all defenders and restarts as many: they come back under
// the same names, to the same chambers.
func (s coldStartRun) restartAll(ctx context.Context) error {
	old := s.Defenders.Running()
	s.Say("All %d defenders are stopped and started again", len(old))
	for _, m := range old {
		m.Stop()
	}
	if err := ended(ctx, old, 40*time.Second); err != nil {
		return err
	}
	if _, err := s.Defenders.Add(ctx, len(old)); err != nil {
		return err
	}
	began := time.Now()
	if err := s.Wait(ctx, 60*time.Second, "all defenders STABLE again", func() bool { return s.View.Stable(len(old)) && len(s.Defenders.byID()) == len(old) }); err != nil {
		return err
	}
	s.Say("%d defenders STABLE again after %.1f s", len(old), time.Since(began).Seconds())
	s.report.measure("restart_s", seconds(time.Since(began)))
	return nil
}
