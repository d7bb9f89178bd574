package e2e

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/muster-dev/muster/local"
	"github.com/muster-dev/muster/partition"
	"github.com/muster-dev/muster/partition/event"
)

// leaderKills is how often the leader is killed where nothing else happens.
const leaderKills = 3

// leaderDeath is one kill of the leader.
type leaderDeath struct {
	kill
	epoch uint64
	plans uint64 // version before
}

// leaderCrashRun is a run of scenario leader-crash.
type leaderCrashRun struct{ *session }

// leaderCrash kills the leader: in peace, during a window, or in the middle of a
// rebalancing.
func leaderCrash(ctx context.Context, s *session) error { return leaderCrashRun{s}.run(ctx) }

func (s leaderCrashRun) run(ctx context.Context) error {
	if err := s.begin(ctx); err != nil {
		return err
	}
	if err := s.warmUp(ctx); err != nil {
		return err
	}
	before := s.View.Latest()
	to := s.o.Defenders
	var deaths []leaderDeath
	var err error
	switch s.o.Case {
	case "":
		for range leaderKills {
			if err := s.expect(ctx, to); err != nil {
				return err
			}
			d, err := s.killLeader(ctx, 2)
			if err != nil {
				return err
			}
			deaths = append(deaths, d)
			if _, err := s.Defenders.Add(ctx, 1); err != nil {
				return err
			}
			if err := s.calm(ctx, to, d); err != nil {
				return err
			}
		}
	default:
		to += s.o.joining()
		var d leaderDeath
		if s.o.Case == "in-window" {
			d, err = s.killInWindow(ctx)
		} else {
			d, err = s.killMidRebalance(ctx, before)
		}
		if err != nil {
			return err
		}
		deaths = append(deaths, d)
		if _, err := s.Defenders.Add(ctx, 1); err != nil {
			return err
		}
		if err := s.calm(ctx, to, d); err != nil {
			return err
		}
	}
	runs, err := s.finish(ctx)
	if err != nil {
		return err
	}
	s.check.spread(s.View.Latest(), to)
	s.judgeLeaderCrash(deaths, runs)
	return nil
}

// calm waits until N defenders share everything without the killed one.
func (s leaderCrashRun) calm(ctx context.Context, n int, d leaderDeath) error {
	if err := s.Wait(ctx, 60*time.Second, fmt.Sprintf("%d defenders STABLE", n), func() bool {
		a := s.View.Latest()
		return a.Epoch > d.epoch && s.View.Stable(n)
	}); err != nil {
		return err
	}
	a := s.View.Latest()
	s.Say("%d defenders STABLE %.1f s after the leader's death; %s leads, map version %d", n, time.Since(d.at).Seconds(), a.Leader.ID, a.Version)
	return nil
}

// killLeader kills the leader with n messages on every slot it has.
func (s leaderCrashRun) killLeader(ctx context.Context, each int) (leaderDeath, error) {
	a := s.View.Latest()
	d := leaderDeath{kill: kill{id: a.Leader.ID, leader: true}, epoch: a.Epoch, plans: a.Version}
	m := s.Defenders.byID()[a.Leader.ID]
	if m == nil {
		return d, fmt.Errorf("no defender has the leader's ID %s", a.Leader.ID)
	}
	d.slots = s.Chambers.slotsOf(a, a.Leader.ID)
	if each > 0 {
		s.Traffic.hold.Store(int64(time.Second))
		if err := s.busy(ctx, a, []string{a.Leader.ID}, each); err != nil {
			return d, err
		}
	}
	d.at = m.Kill()
	s.Say("The leader, %s, is killed with %d slots", d.id, len(d.slots))
	return d, nil
}

// killInWindow: joining workers are waited for when the leader dies; the group
// isn't told how many will come.
func (s leaderCrashRun) killInWindow(ctx context.Context) (leaderDeath, error) {
	if err := s.SetExpected(ctx, 0); err != nil {
		return leaderDeath{}, err
	}
	began := time.Now()
	n := s.o.joining()
	s.Say("Scaling %d → %d defenders; the leader will be killed during the window", s.o.Defenders, s.o.Defenders+n)
	if _, err := s.Defenders.Add(ctx, n); err != nil {
		return leaderDeath{}, err
	}
	if err := s.Wait(ctx, 30*time.Second, "the joining workers detected", func() bool { return s.View.count(began, event.WorkerJoined) >= n }); err != nil {
		return leaderDeath{}, err
	}
	return s.killLeader(ctx, 2)
}

// killMidRebalance: the leader dies when its map is out and the handoffs are under way.
func (s leaderCrashRun) killMidRebalance(ctx context.Context, before *partition.Assignment) (leaderDeath, error) {
	n := s.o.joining()
	if err := s.expect(ctx, s.o.Defenders+n); err != nil {
		return leaderDeath{}, err
	}
	m := s.Defenders.byID()[before.Leader.ID]
	if m == nil {
		return leaderDeath{}, fmt.Errorf("no defender has the leader's ID %s", before.Leader.ID)
	}
	d := leaderDeath{kill: kill{id: before.Leader.ID, leader: true, slots: s.Chambers.slotsOf(before, before.Leader.ID)}, epoch: before.Epoch, plans: before.Version}
	s.Traffic.hold.Store(int64(time.Second))
	if err := s.busy(ctx, before, []string{d.id}, 2); err != nil {
		return d, err
	}
	chambers := s.Chambers.bySlot(s.o.Slots)
	out := make(chan struct{})
	var once sync.Once
	s.View.SetOnMap(func(a local.SeenMap) {
		once.Do(func() { close(out) })
		for slot := range a.Moves {
			for _, ch := range chambers[slot] {
				s.Traffic.publish(ch, true)
			}
		}
	})
	s.Say("Scaling %d → %d defenders; the leader will be killed when its map is out", s.o.Defenders, s.o.Defenders+n)
	if _, err := s.Defenders.Add(ctx, n); err != nil {
		return d, err
	}
	select {
	case <-out:
	case <-ctx.Done():
		return d, ctx.Err()
	case <-time.After(60 * time.Second):
		return d, fmt.Errorf("not within 60 s: a map for the joining workers")
	}
	d.at = m.Kill()
	s.Say("The leader, %s, is killed with %d handoffs under way", d.id, len(s.View.Latest().Moves))
	return d, nil
}

func (s leaderCrashRun) judgeLeaderCrash(deaths []leaderDeath, runs []run) {
	r := s.report
	starts := map[int][]run{}
	for _, x := range runs {
		starts[x.slot] = append(starts[x.slot], x)
	}
	ended := s.endings()
	var resume, elect []time.Duration
	unresumed := 0
	for _, d := range deaths {
		for _, slot := range d.slots {
			switch t, was, ok := resumed(starts[slot], d.kill, ended); {
			case ok:
				resume = append(resume, t)
			case was:
				unresumed++
			}
		}
		for _, e := range s.View.Since(d.at) {
			if e.Kind == event.Elected && e.Peer == e.Worker && e.Epoch > d.epoch {
				elect = append(elect, e.At.Sub(d.at))
				break
			}
		}
	}
	re, el := distribution(resume), distribution(elect)
	r.measure("kills_of_leader", len(deaths))
	r.measure("kill_to_elected_ms", el)
	r.measure("kill_of_leader_to_first_start_ms", re)
	r.check("leaders elected", fmt.Sprint(len(deaths)), el.N == len(deaths), "%d, ms after the kill: %s", el.N, el)
	r.check("the dead leader's slots that resumed elsewhere", "all", unresumed == 0 && re.N > 0, "%d, %d did not; ms after the kill: %s", re.N, unresumed, re)
	s.check.epochs()
}
