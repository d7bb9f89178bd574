package e2e

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/muster-dev/muster/defender"
	"github.com/muster-dev/muster/partition/event"
	"github.com/muster-dev/muster/partition/plan"
	"github.com/muster-dev/muster/partition/report"
)

// scaleUpRun is a run of scenario scale-up.
type scaleUpRun struct{ *session }

// scaleUp: half as many defenders again join under load.
func scaleUp(ctx context.Context, s *session) error { return scaleUpRun{s}.run(ctx) }

func (s scaleUpRun) run(ctx context.Context) error {
	if err := s.begin(ctx); err != nil {
		return err
	}
	if err := s.warmUp(ctx); err != nil {
		return err
	}
	s.report.measure("defenders_before", s.o.Defenders)
	moving, err := s.predict()
	if err != nil {
		return err
	}
	if err := s.stageAll(ctx, moving); err != nil {
		return err
	}
	calling, err := s.startCalling(ctx)
	if err != nil {
		return err
	}
	step, err := s.scaleUpUnderLoad(ctx, moving)
	calls := calling.finish()
	if err != nil {
		return err
	}
	if err := (scaleUpJudge{step}).judge(); err != nil {
		return err
	}
	return s.judgeCalls(calls, nil)
}

// stageAll stages the contexts that are announced while slots move.
func (s scaleUpRun) stageAll(ctx context.Context, moving []int) error {
	for range pressureWaves {
		for _, ch := range moving {
			s.Traffic.stage(ch)
		}
	}
	for i := range s.Chambers {
		s.Traffic.stage(i)
	}
	return s.Wait(ctx, 2*time.Minute, "T-charts staged", func() bool { return s.Traffic.Ordered() == 0 })
}

// scaleUpUnderLoad has the defenders join, and waits until everything is processed.
func (s scaleUpRun) scaleUpUnderLoad(ctx context.Context, moving []int) (step, error) {
	before := s.View.Latest()
	s.forceOnMoves()
	pressing := make(chan struct{})
	pressure, release := context.WithCancel(ctx)
	s.Traffic.hold.Store(int64(s.holdTime()))
	go func() {
		defer close(pressing)
		s.press(pressure, moving, before.Version)
	}()
	step, err := s.scaleUpStep(ctx, before, len(moving))
	release()
	<-pressing
	if err != nil {
		return step, err
	}
	s.View.SetOnMap(nil)
	s.Traffic.hold.Store(0)
	// Everybody gets something to do after the move, too.
	for i := range s.Chambers {
		s.Traffic.publish(i, false)
	}
	if err := s.drain(ctx); err != nil {
		return step, err
	}
	// A defender that a busy machine made pause is not STABLE for that moment.
	return step, s.Wait(ctx, time.Minute, "all defenders STABLE", s.Defenders.allStable)
}

// pressureWaves is how many contexts of each slot under pressure are staged.
const pressureWaves = 6

// predict returns a chamber of each slot that the plan for the joining workers will
// move. Plans depend on nothing but their inputs, so this is the leader's.
func (s scaleUpRun) predict() ([]int, error) {
	a := s.View.Latest()
	bySlot := s.Chambers.bySlot(s.o.Slots)
	p := plan.Problem{Slots: s.o.Slots, Owners: a.Owner, Weights: make([]uint64, s.o.Slots), Budget: -1}
	for slot, chambers := range bySlot {
		p.Weights[slot] = uint64(len(chambers))
	}
	for _, w := range a.Workers {
		p.Workers = append(p.Workers, plan.Worker{ID: w.ID, Weight: 1})
	}
	for i := range s.o.joining() {
		p.Workers = append(p.Workers, plan.Worker{ID: fmt.Sprintf("%s-%d", defender.Group, s.o.Defenders+i), Weight: 1})
	}
	next, err := plan.Sticky().Plan(p)
	if err != nil {
		return nil, err
	}
	var chambers []int
	for _, m := range next.Moves {
		if len(bySlot[m.Slot]) > 0 {
			chambers = append(chambers, bySlot[m.Slot][0])
		}
	}
	return chambers, nil
}

// press keeps a message in work in each slot that is about to move, from a
// little before the map is expected until its moves are done, so that slots move
// with a handler in flight.
func (s scaleUpRun) press(ctx context.Context, chambers []int, version uint64) {
	begin := time.Now()
	every := max(s.holdTime()+s.o.Work, leastHold) * 7 / 10
	for a := s.View.Latest(); ctx.Err() == nil && (a.Version == version || !a.Settled()); a = s.View.Latest() {
		pause := 20 * time.Millisecond
		if s.planIsNear(begin) {
			for _, ch := range chambers {
				s.Traffic.press(ch)
			}
			pause = every
		}
		select {
		case <-ctx.Done():
		case <-time.After(pause):
		}
	}
}

// leastHold keeps messages that are soon done from coming faster than any stream
// of messages would.
const leastHold = time.Second

// briefly makes the messages of that case brief.
func briefly(o *Options, chosen func(flag string) bool) {
	if o.Case == caseBrief {
		suit(chosen, "work", &o.Work, 20*time.Millisecond)
	}
}

// holdTime is how much longer these messages are worked on, so that one that is
// in work when joining workers start still is when its slot moves.
func (s scaleUpRun) holdTime() time.Duration {
	if s.o.Case == caseBrief {
		return 0
	}
	if s.o.Processes {
		return 4 * time.Second // starting processes takes both cores
	}
	return time.Second
}

// planIsNear reports whether the leader is about to plan: at once where it knows
// how many defenders to expect, else in the last second of its window.
func (s scaleUpRun) planIsNear(begin time.Time) bool {
	if s.o.Expect {
		return true
	}
	var last time.Time
	for _, e := range s.View.Since(begin) {
		if e.Kind == event.WorkerJoined {
			last = e.At
		}
	}
	return !last.IsZero() && time.Since(last) > 9*time.Second
}

func (s scaleUpRun) scaleUpStep(ctx context.Context, before *report.Map, pressed int) (step, error) {
	n, to := s.o.joining(), s.o.Defenders+s.o.joining()
	st := step{session: s.session, began: time.Now(), from: s.o.Defenders, to: to, before: before}
	if err := s.expect(ctx, to); err != nil {
		return st, err
	}
	var err error
	switch s.o.Case {
	case "", caseBrief:
		if s.o.Expect {
			if err := s.Wait(ctx, time.Minute, "forced messages published", func() bool { return s.Traffic.forced.Load() >= int64(pressed) }); err != nil {
				return st, err
			}
			time.Sleep(s.holdTime() / 4) // until their processing has begun
		}
		s.Say("Scaling %d → %d defenders", st.from, to)
		_, err = s.Defenders.Add(ctx, n)
	case "joining-crash":
		err = s.joiningCrashes(ctx, n)
	case "partial":
		err = s.someComeLater(ctx, n)
	case "stale-claim":
		err = s.staleClaim(ctx, n)
	}
	if err != nil {
		return st, err
	}
	if err := s.Wait(ctx, 90*time.Second, fmt.Sprintf("%d defenders STABLE", to), func() bool { return s.View.Stable(to) }); err != nil {
		return st, err
	}
	st.settled = time.Now()
	last := s.View.Latest()
	for v := before.Version + 1; v <= last.Version; v++ {
		st.versions = append(st.versions, v)
	}
	for _, e := range s.View.Since(st.began) {
		if e.Kind == event.WorkerJoined {
			st.joined = e.At
		}
	}
	s.Say("%d defenders STABLE, assignment map version %d", to, last.Version)
	return st, nil
}

// joiningCrashes: one of the joining workers dies while the window is open; its
// replacement comes when the crashed one's ID has expired.
func (s scaleUpRun) joiningCrashes(ctx context.Context, n int) error {
	s.Say("Scaling %d → %d defenders; one of the joining workers will crash", s.o.Defenders, s.o.Defenders+n)
	// The last is held back until one has crashed, so that the window is open.
	added, err := s.Defenders.Add(ctx, n-1)
	if err != nil {
		return err
	}
	victim := added[len(added)/2]
	if err := s.Wait(ctx, 30*time.Second, "the joining workers detected", func() bool { return s.View.joined(s.Timeline.Began) >= s.o.Defenders+n-1 }); err != nil {
		return err
	}
	id := idOf(victim)
	victim.Kill()
	crashed := time.Now()
	s.Say("%s crashes during the window", id)
	if err := s.Wait(ctx, 15*time.Second, "the crash noticed", func() bool { return s.View.gone(crashed, id) }); err != nil {
		return err
	}
	if _, err := s.Defenders.Add(ctx, 1); err != nil {
		return err
	}
	to := s.o.Defenders + n - 1
	if err := s.Wait(ctx, 60*time.Second, fmt.Sprintf("%d defenders STABLE", to), func() bool { return s.View.Stable(to) }); err != nil {
		return err
	}
	s.Say("%d defenders STABLE without the crashed one", to)
	s.report.measure("defenders_without_crashed", to)
	js, err := jetstream.New(s.Conn)
	if err != nil {
		return err
	}
	kv, err := js.KeyValue(ctx, "stable-ids")
	if err != nil {
		return err
	}
	if err := s.Wait(ctx, 60*time.Second, "the crashed one's ID expired", func() bool { _, err := kv.Get(ctx, id); return err != nil }); err != nil {
		return err
	}
	s.Say("The claim on %s has expired %.1f s after the crash; its replacement starts", id, time.Since(crashed).Seconds())
	_, err = s.Defenders.Add(ctx, 1)
	return err
}

// someComeLater: two thirds of the joining workers come, the rest when the first have
// settled.
func (s scaleUpRun) someComeLater(ctx context.Context, n int) error {
	first := n * 2 / 3
	s.Say("Scaling %d → %d defenders; only %d joining workers can start", s.o.Defenders, s.o.Defenders+n, first)
	if _, err := s.Defenders.Add(ctx, first); err != nil {
		return err
	}
	to := s.o.Defenders + first
	if err := s.Wait(ctx, 60*time.Second, fmt.Sprintf("%d defenders STABLE", to), func() bool { return s.View.Stable(to) }); err != nil {
		return err
	}
	counts := s.Chambers.counts(s.View.Latest())
	s.Say("%d defenders STABLE with %d to %d chambers each; the other %d start", to, slices.Min(counts), slices.Max(counts), n-first)
	s.report.measure("partial_defenders", to)
	s.report.measure("partial_min_chambers", slices.Min(counts))
	s.report.measure("partial_max_chambers", slices.Max(counts))
	_, err := s.Defenders.Add(ctx, n-first)
	return err
}

// staleClaim: the first ID that the joining workers would take is still claimed.
func (s scaleUpRun) staleClaim(ctx context.Context, n int) error {
	js, err := jetstream.New(s.Conn)
	if err != nil {
		return err
	}
	kv, err := js.KeyValue(ctx, "stable-ids")
	if err != nil {
		return err
	}
	id := fmt.Sprintf("%s-%d", defender.Group, s.o.Defenders)
	if _, err := kv.Create(ctx, id, []byte(`{"schema":1,"pod":"crashed","instance":"stale"}`), jetstream.KeyTTL(30*time.Second)); err != nil {
		return fmt.Errorf("claiming %s as a crashed defender: %w", id, err)
	}
	s.Say("Scaling %d → %d defenders; %s is claimed by one that crashed before", s.o.Defenders, s.o.Defenders+n, id)
	_, err = s.Defenders.Add(ctx, n)
	return err
}
