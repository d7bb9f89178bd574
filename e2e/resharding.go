package e2e

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/muster-dev/muster/defender"
	"github.com/muster-dev/muster/local"
	"github.com/muster-dev/muster/partition"
	"github.com/muster-dev/muster/partition/event"
	"github.com/muster-dev/muster/partition/report"
	"github.com/muster-dev/muster/partition/role"
)

// reshardingSlots is how many slots there are at first where the caller names none.
const reshardingSlots = 256

// fewSlots gives scenario resharding room to grow.
func fewSlots(o *Options, chosen func(flag string) bool) {
	suit(chosen, "slots", &o.Slots, reshardingSlots)
}

// reshardingHold is how much longer a message that is in work when its slot changes
// is worked on, at least.
const reshardingHold = 300 * time.Millisecond

// slotChange is one change of the number of slots as it was seen.
type slotChange struct {
	from, to int
	before   *report.Map
	began    time.Time
	dead     string // stable ID of the worker that was killed meanwhile; "" for none
	took     time.Duration
}

// reshardingRun is a run of scenario resharding.
type reshardingRun struct{ *session }

// reshard doubles the number of slots under load, with a handler at work and
// a message waiting in each: once, there and back, or with the leader killed in
// the middle.
func reshard(ctx context.Context, s *session) error { return reshardingRun{s}.run(ctx) }

func (s reshardingRun) run(ctx context.Context) error {
	if err := s.begin(ctx); err != nil {
		return err
	}
	if err := s.warmUp(ctx); err != nil {
		return err
	}
	if err := s.expect(ctx, s.o.Defenders); err != nil {
		return err
	}
	var changes []slotChange
	to := []int{2 * s.o.Slots}
	if s.o.Case == "back" {
		to = append(to, s.o.Slots)
	}
	for _, slots := range to {
		c, err := s.changeSlots(ctx, slots)
		if err != nil {
			return err
		}
		changes = append(changes, c)
	}
	runs, err := s.finish(ctx)
	if err != nil {
		return err
	}
	return s.judge(ctx, changes, runs)
}

// changeSlots changes the number of slots while every one of them is pressed.
func (s reshardingRun) changeSlots(ctx context.Context, to int) (slotChange, error) {
	c := slotChange{before: s.View.Latest(), to: to}
	c.from = c.before.Slots
	s.Traffic.hold.Store(int64(reshardingHold))
	pressed := s.Chambers.oneOfEach(c.from)
	// The moment the map is seen every slot there will be gets one more.
	s.View.SetOnMap(func(m local.SeenMap) {
		if m.Slots == to {
			for _, ch := range s.Chambers.oneOfEach(to) {
				s.Traffic.publish(ch, true)
			}
		}
	})
	waiting, err := s.Pending(ctx)
	if err != nil {
		return c, err
	}
	want := s.Traffic.forced.Load() + int64(len(pressed))
	for range 2 {
		for _, ch := range pressed {
			s.Traffic.press(ch)
		}
	}
	if err := s.Wait(ctx, 3*time.Minute, "messages in work in the slots", func() bool { return s.Traffic.forced.Load() >= want }); err != nil {
		return c, err
	}
	pressure, release := context.WithCancel(ctx)
	pressing := make(chan struct{})
	go func() {
		defer close(pressing)
		s.keepPressing(pressure, pressed, waiting)
	}()
	defer func() {
		release()
		<-pressing
	}()
	c.began = time.Now()
	s.Say("Changing %d → %d slots; a message is in work or waits in each of the %d that have chambers", c.from, to, len(pressed))
	operator, err := s.As(role.Operator)
	if err != nil {
		return c, err
	}
	if err := partition.Open(operator, defender.Group).Reshard(ctx, to); err != nil {
		return c, err
	}
	if s.o.Case == "leader-crash" {
		if err := s.killMidChange(ctx, &c); err != nil {
			return c, err
		}
	}
	n := len(s.Defenders.Running())
	if err := s.Wait(ctx, 3*time.Minute, fmt.Sprintf("%d slots, and all defenders STABLE", to), func() bool {
		return s.View.Latest().Slots == to && s.View.Stable(n)
	}); err != nil {
		return c, err
	}
	c.took = time.Since(c.began)
	s.Say("%d slots after %.1f s, assignment map version %d", to, c.took.Seconds(), s.View.Latest().Version)
	return c, nil
}

// keepPressing keeps a message in work in each slot that chambers are named of,
// and one waiting behind it.
func (s reshardingRun) keepPressing(ctx context.Context, chambers []int, waiting func() (uint64, error)) {
	t := time.NewTicker(reshardingHold + s.o.Work)
	defer t.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-t.C:
		}
		// No more than that, or everything ends with a long queue.
		if n, err := waiting(); err != nil || n > uint64(2*len(chambers)) || s.Traffic.Ordered() > 0 {
			continue
		}
		for _, ch := range chambers {
			s.Traffic.press(ch)
		}
	}
}

// killMidChange kills the leader when some slots have changed, and others not.
func (s reshardingRun) killMidChange(ctx context.Context, c *slotChange) error {
	if err := s.Wait(ctx, time.Minute, "the change under way", func() bool {
		a := s.View.Latest()
		return a.Resharding && len(a.Taking) < a.Slots
	}); err != nil {
		return err
	}
	a := s.View.Latest()
	m := s.Defenders.byID()[a.Leader.ID]
	if m == nil {
		return fmt.Errorf("no defender has the leader's ID %s", a.Leader.ID)
	}
	m.Kill()
	c.dead = a.Leader.ID
	s.Say("The leader, %s, is killed with %d of %d slots changed", c.dead, a.Slots-len(a.Taking), a.Slots)
	return s.expect(ctx, s.o.Defenders-1)
}

func (s reshardingRun) judge(ctx context.Context, changes []slotChange, runs []run) error {
	r, last := s.report, s.View.Latest()
	for _, c := range changes {
		name := fmt.Sprintf("%d to %d slots: ", c.from, c.to)
		pauses, busy := s.pauses(c, runs)
		d := distribution(pauses)
		r.measure(fmt.Sprintf("resharding_%d_to_%d_s", c.from, c.to), seconds(c.took))
		r.measure(fmt.Sprintf("resharding_%d_to_%d_pause_ms", c.from, c.to), d)
		r.check(name+"pause of a slot, ms", "measured", d.N > 0, "%s", d)
		pressed := len(s.Chambers.oneOfEach(c.from))
		r.timed(name+"slots that changed with a handler in flight", fmt.Sprintf("at least %d", pressed/8), busy >= pressed/8, "%d of %d", busy, c.from)
	}
	final := changes[len(changes)-1]
	equal(r, "slots", final.to, last.Slots)
	equal(r, "generation of the slots", 1+len(changes), last.Generation)
	equal(r, "handoffs that were forced", 0, s.View.count(changes[0].began, event.HandoffForced))
	if final.dead == "" {
		equal(r, "map versions", uint64(len(changes)), last.Version-changes[0].before.Version)
		equal(r, "leases lost", 0, s.View.count(changes[0].began, event.IdentityLost))
	} else {
		r.check("the change went on under another leader", "not "+final.dead, last.Leader.ID != final.dead, "%s", last.Leader.ID)
	}
	streams, err := s.Streams(ctx)
	if err != nil {
		return err
	}
	consumers := 0
	for _, stream := range streams {
		consumers += stream.CachedInfo().State.Consumers
	}
	equal(r, "consumers of the stream", final.to, consumers)
	s.checkSpread(last)
	s.check.epochs()
	return nil
}

// checkSpread checks that all chambers are covered, and as evenly as slots
// allow.
func (s reshardingRun) checkSpread(a *report.Map) {
	counts := s.Chambers.counts(a)
	covered := 0
	for _, n := range counts {
		covered += n
	}
	equal(s.report, "chambers covered", s.o.Chambers, covered)
	equal(s.report, "defenders in the map", len(s.Defenders.Running()), len(a.Workers))
	mean := float64(s.o.Chambers) / float64(len(a.Workers))
	most := max(1.05*mean, mean+1)
	if s.o.Case == "leader-crash" {
		// Only the killed one's slots have moved, each to the worker that had least
		// then: none has more than the mean and one slot.
		for _, chambers := range s.Chambers.bySlot(a.Slots) {
			most = max(most, mean+float64(len(chambers)))
		}
	}
	s.report.measure("min_chambers", slices.Min(counts))
	s.report.measure("max_chambers", slices.Max(counts))
	s.report.check("chambers each", fmt.Sprintf("at most %.0f (mean %.1f)", most, mean), float64(slices.Max(counts)) <= most, "%d to %d", slices.Min(counts), slices.Max(counts))
}

// pauses measures, for each slot of the larger number, how long no worker processed
// its keys when the slots changed: from the last end of a run, in the slot of the smaller
// number that the keys are in, before that was released, or the receipt of the next message
// if that was later, to the next start. It counts the old slots that were released with a
// handler at work.
func (s reshardingRun) pauses(c slotChange, runs []run) (pauses []time.Duration, busy int) {
	smaller, larger := min(c.from, c.to), max(c.from, c.to)
	released := map[int]int64{} // by slot of the smaller number, when the last of its keys was released
	for _, e := range s.View.Since(c.began) {
		switch {
		case e.At.After(c.began.Add(c.took)):
		case e.Kind == event.SlotReleasing && e.Busy:
			busy++
		case e.Kind == event.SlotReleased:
			u := e.Slot % smaller
			released[u] = max(released[u], e.Time.UnixNano())
		default:
		}
	}
	// A key's slot of the larger number tells its slot of the smaller.
	byPlace := map[int][]run{}
	ended := map[int]int64{} // by slot of the smaller number, the last run before that
	for _, r := range runs {
		at := partition.SlotOfKey(larger, r.key)
		byPlace[at] = append(byPlace[at], r)
		if unit := at % smaller; r.start < released[unit] {
			ended[unit] = max(ended[unit], r.end)
		}
	}
	for at, rs := range byPlace {
		when, ok := released[at%smaller]
		if !ok {
			continue // its owner was killed
		}
		slices.SortFunc(rs, func(a, b run) int { return cmp.Compare(a.start, b.start) })
		i, _ := slices.BinarySearchFunc(rs, when, func(r run, t int64) int { return cmp.Compare(r.start, t) })
		if i == len(rs) {
			continue
		}
		last, ok := ended[at%smaller]
		if !ok {
			last = when // none of them had been processed
		}
		pauses = append(pauses, max(0, time.Duration(rs[i].start-max(last, rs[i].published))))
	}
	return pauses, busy
}
