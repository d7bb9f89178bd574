package e2e

import (
	"context"
	"fmt"
	"time"

	"github.com/muster-dev/muster/local"
	"github.com/muster-dev/muster/partition/event"
	"github.com/muster-dev/muster/partition/report"
)

// rollingRun is a run of scenario rolling-update.
type rollingRun struct{ *session }

// rollingUpdate replaces every defender under load: five at a time, the new ones
// after the old ones have gone; or ten, the new ones first; or as a Deployment does.
func rollingUpdate(ctx context.Context, s *session) error { return rollingRun{s}.run(ctx) }

func (s rollingRun) run(ctx context.Context) error {
	if err := s.begin(ctx); err != nil {
		return err
	}
	if err := s.warmUp(ctx); err != nil {
		return err
	}
	if err := s.expect(ctx, s.o.Defenders); err != nil {
		return err
	}
	before := s.View.Latest()
	began := time.Now()
	surge := s.o.Case == "surge"
	s.Traffic.hold.Store(int64(200 * time.Millisecond))
	if err := s.replaceAll(ctx, before); err != nil {
		return err
	}
	took := time.Since(began)
	runs, err := s.finish(ctx)
	if err != nil {
		return err
	}
	r, last := s.report, s.View.Latest()
	s.check.nothingMoved(before, last)
	s.check.spread(last, s.o.Defenders)
	equal(r, "defenders replaced under their names", s.o.Defenders, renewed(before, last))
	equal(r, "plans", 0, s.View.count(began, event.Planned))
	equal(r, "handoffs that were forced", 0, s.View.count(began, event.HandoffForced))
	if surge {
		standby := s.View.count(began, event.Standby)
		r.check("new defenders that waited as standbys", fmt.Sprint(s.o.Defenders), standby == s.o.Defenders, "%d", standby)
	}
	pause := distribution(pauses(runs, s.endings(), began, time.Now()))
	r.measure("rolling_update_s", seconds(took))
	r.measure("restart_pause_ms", pause)
	r.check("pause of a slot whose defender is replaced, ms", "measured", pause.N > 0, "%s", pause)
	return nil
}

// renewed counts the workers that have been replaced under their stable IDs.
func renewed(before, after *report.Map) (n int) {
	for i, w := range after.Workers {
		if i < len(before.Workers) && w.ID == before.Workers[i].ID && w.Claim > before.Workers[i].Claim {
			n++
		}
	}
	return n
}

// replaceAll replaces every defender as the case says.
func (s rollingRun) replaceAll(ctx context.Context, before *report.Map) error {
	old, batch, surge := s.Defenders.Running(), max(1, s.o.Defenders/6), s.o.Case == "surge"
	if s.o.Case == "deployment" {
		s.Say("Replacing %d defenders as a Deployment does, with at most %d more", s.o.Defenders, batch)
		return s.overlap(ctx, before, old, batch)
	}
	if surge {
		batch = max(1, s.o.Defenders/3)
	}
	s.Say("Replacing %d defenders, %d at a time, surge: %t", s.o.Defenders, batch, surge)
	for len(old) > 0 {
		n := min(batch, len(old))
		if err := s.replace(ctx, before, old[:n], surge); err != nil {
			return err
		}
		old = old[n:]
		s.Say("%d defenders are still to be replaced", len(old))
	}
	return nil
}

// overlap waits for no defender that ends: as soon as a new one has started, an old one is stopped,
// and the next new one starts. So several end at once, and leaders follow each other.
func (s rollingRun) overlap(ctx context.Context, before *report.Map, old []*local.Process, surge int) error {
	at, started, stopped := time.Now(), 0, 0
	for stopped < len(old) {
		more := min(stopped+surge, len(old)) - started
		if _, err := s.Defenders.Add(ctx, more); err != nil {
			return err
		}
		started += more
		if err := s.Wait(ctx, 30*time.Second, "a new one has started", func() bool { return s.View.count(at, event.Started) > stopped }); err != nil {
			return err
		}
		ready := min(s.View.count(at, event.Started), len(old))
		for _, m := range old[stopped:ready] {
			m.Stop()
		}
		stopped = ready
	}
	if err := ended(ctx, old, 40*time.Second); err != nil {
		return err
	}
	return s.Wait(ctx, 40*time.Second, "all defenders STABLE again", func() bool {
		return renewed(before, s.View.Latest()) == s.o.Defenders && s.View.Stable(s.o.Defenders)
	})
}

// replace stops some defenders and starts as many.
func (s rollingRun) replace(ctx context.Context, before *report.Map, old []*local.Process, surge bool) error {
	at := time.Now()
	if surge {
		if _, err := s.Defenders.Add(ctx, len(old)); err != nil {
			return err
		}
		if err := s.Wait(ctx, 30*time.Second, "the new ones wait for a name", func() bool {
			return s.View.count(at, event.Standby) >= len(old)
		}); err != nil {
			return err
		}
	}
	byMember := map[*local.Process]string{}
	for id, m := range s.Defenders.byID() {
		byMember[m] = id
	}
	var ids []string
	for _, m := range old {
		ids = append(ids, byMember[m])
	}
	if err := s.busy(ctx, before, ids, 1); err != nil {
		return err
	}
	for _, m := range old {
		m.Stop()
	}
	if err := ended(ctx, old, 40*time.Second); err != nil {
		return err
	}
	if !surge {
		if _, err := s.Defenders.Add(ctx, len(old)); err != nil {
			return err
		}
	}
	return s.Wait(ctx, 40*time.Second, "all defenders STABLE again", func() bool {
		return s.View.count(at, event.WorkerRejoined) >= len(old) && s.View.Stable(s.o.Defenders)
	})
}
