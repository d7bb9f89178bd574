package e2e

import (
	"context"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/muster-dev/muster/local"
	"github.com/muster-dev/muster/partition/event"
	"github.com/muster-dev/muster/partition/report"
)

// scaleDownRun is a run of scenario scale-down.
type scaleDownRun struct{ *session }

// scaleDown: a third of the defenders go, by SIGTERM, all at once, each with a
// message in work on every slot it has.
func scaleDown(ctx context.Context, s *session) error { return scaleDownRun{s}.run(ctx) }

func (s scaleDownRun) run(ctx context.Context) error {
	from := s.o.Defenders
	to := from * 2 / 3
	if err := s.begin(ctx); err != nil {
		return err
	}
	if err := s.warmUp(ctx); err != nil {
		return err
	}
	before := s.View.Latest()
	leaving := s.drawLeaving(before, from-to)
	for i := range s.Chambers {
		s.Traffic.stage(i)
	}
	if err := s.Wait(ctx, 2*time.Minute, "T-charts staged", func() bool { return s.Traffic.Ordered() == 0 }); err != nil {
		return err
	}
	s.forceOnMoves()
	s.Traffic.hold.Store(int64(500 * time.Millisecond))
	ids := s.Defenders.byID()
	var going []*local.Process
	for _, id := range leaving {
		if ids[id] == nil {
			return fmt.Errorf("no defender has the ID %s", id)
		}
		going = append(going, ids[id])
	}
	if err := s.expect(ctx, to); err != nil {
		return err
	}
	if err := s.busy(ctx, before, leaving, 2); err != nil {
		return err
	}
	st := step{session: s.session, began: time.Now(), from: from, to: to, before: before}
	s.Say("Scaling %d → %d defenders", from, to)
	for _, m := range going {
		m.Stop()
	}
	if s.o.Case == "leaving-crash" {
		if err := s.Wait(ctx, 20*time.Second, "the plan", func() bool { return s.View.Latest().Version > before.Version }); err != nil {
			return err
		}
		going[0].Kill()
		s.Say("%s is killed while it hands off", leaving[0])
		going = going[1:]
	}
	if err := s.Wait(ctx, 60*time.Second, fmt.Sprintf("%d defenders STABLE", to), func() bool { return s.View.Stable(to) }); err != nil {
		return err
	}
	if err := ended(ctx, going, 40*time.Second); err != nil {
		return err
	}
	st.settled = time.Now()
	last := s.View.Latest()
	for v := before.Version + 1; v <= last.Version; v++ {
		st.versions = append(st.versions, v)
	}
	s.Say("%d defenders STABLE, assignment map version %d", to, last.Version)
	runs, err := s.finish(ctx)
	if err != nil {
		return err
	}
	s.judgeScaleDown(st, leaving, runs)
	return nil
}

// drawLeaving draws the workers that leave. The leader is among them only where the case says
// so.
func (s scaleDownRun) drawLeaving(a *report.Map, n int) []string {
	var ids []string
	for _, w := range a.Workers {
		if w != a.Leader {
			ids = append(ids, w.ID)
		}
	}
	rng := rand.New(rand.NewPCG(s.o.Seed, 2))
	rng.Shuffle(len(ids), func(i, j int) { ids[i], ids[j] = ids[j], ids[i] })
	ids = ids[:n]
	if s.o.Case == "leader-leaves" {
		ids[0] = a.Leader.ID
	}
	return ids
}

func (s scaleDownRun) judgeScaleDown(st step, leaving []string, runs []run) {
	r, last := s.report, s.View.Latest()
	s.check.spread(last, st.to)
	// Everything the leaving workers had, and nothing else but what evens the rest out.
	had := 0
	chambers := s.Chambers.bySlot(s.o.Slots)
	for _, id := range leaving {
		for _, slot := range s.Chambers.slotsOf(st.before, id) {
			had += len(chambers[slot])
		}
	}
	moved, slots := st.moved()
	limit := had*83/80 + 1
	r.measure("moved_chambers", moved)
	r.measure("moved_slots", slots)
	r.measure("version_increments", len(st.versions))
	if s.o.Case == "leaving-crash" {
		limit = 2 * had
	} else {
		// Workers that learn far apart of their end are planned away one after the other.
		r.timed("map version increments", "1 or 2", len(st.versions) == 1 || len(st.versions) == 2, "%d", len(st.versions))
	}
	r.check("chambers moved", fmt.Sprintf("%d, of those who leave, to %d", had, limit), moved >= had && moved <= limit, "%d", moved)
	left := 0
	for _, e := range s.View.Since(st.began) {
		if e.Kind == event.Left && slices.Contains(leaving, e.Worker) {
			left++
		}
	}
	want := len(leaving)
	if s.o.Case == "leaving-crash" {
		want--
	}
	equal(r, "defenders that left after they had handed off", want, left)
	equal(r, "handoffs that were forced", 0, s.View.count(st.began, event.HandoffForced))
	st.checkHandoffs(s.Traffic.published(), runs)
	if s.o.Case == "leader-leaves" {
		s.checkElection(st)
	}
	r.measure("scale_down_s", seconds(st.settled.Sub(st.began)))
	r.timed("whole scale-down, s", "at most 40", st.settled.Sub(st.began) <= 40*time.Second, "%.1f", st.settled.Sub(st.began).Seconds())
	s.check.epochs()
}

// checkElection tells how long it was from the leader's SIGTERM until another
// worker led.
func (s scaleDownRun) checkElection(st step) {
	for _, e := range s.View.Since(st.began) {
		if e.Kind == event.Elected && e.Peer == e.Worker {
			took := e.At.Sub(st.began)
			s.report.measure("leader_left_to_elected_ms", math.Round(float64(took)/1e4)/100)
			s.report.timed("from the leader's SIGTERM until another leads, ms", "at most 50", took <= 50*time.Millisecond, "%.1f", float64(took)/1e6)
			return
		}
	}
	s.report.check("another leads", "yes", false, "no")
}
