package e2e

import (
	"context"
	"fmt"
	"time"

	"github.com/muster-dev/muster/partition"
	"github.com/muster-dev/muster/partition/event"
)

// outageRun is a run of scenario broker-outage.
type outageRun struct{ *session }

// brokerOutage takes the broker away under load: all servers, for less or for
// more than a lease, or one of a cluster.
func brokerOutage(ctx context.Context, s *session) error { return outageRun{s}.run(ctx) }

func (s outageRun) run(ctx context.Context) error {
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
	var ids []string
	for _, w := range before.Workers {
		ids = append(ids, w.ID)
	}
	s.Traffic.hold.Store(int64(500 * time.Millisecond))
	if err := s.busy(ctx, before, ids, 1); err != nil {
		return err
	}
	away := 3 * time.Second
	if s.o.Case != "" {
		away = 10 * time.Second // more than a lease
	}
	began := time.Now()
	if s.o.Case == caseOneServer {
		s.Say("One of %d NATS servers is killed", s.o.Servers)
		s.Servers.Kill(0)
	} else {
		s.Say("The broker goes away for %v", away)
		s.Servers.Kill(s.Servers.Places()...)
	}
	select {
	case <-time.After(away):
	case <-ctx.Done():
		return ctx.Err()
	}
	if err := s.Servers.Start(ctx); err != nil {
		return err
	}
	back := time.Now()
	s.Say("The broker is back")
	if err := s.Wait(ctx, 90*time.Second, "all defenders STABLE again", func() bool {
		return s.View.Stable(s.o.Defenders) && s.Defenders.allStable()
	}); err != nil {
		return err
	}
	stable := time.Since(back)
	s.Say("%d defenders STABLE %.1f s after the broker's return", s.o.Defenders, stable.Seconds())
	for i := range s.Chambers {
		s.Traffic.publish(i, true)
	}
	runs, err := s.finish(ctx)
	if err != nil {
		return err
	}
	s.judgeOutage(before, began, back, runs)
	s.report.measure("back_to_stable_s", seconds(stable))
	return nil
}

func (s outageRun) judgeOutage(before *partition.Assignment, began, back time.Time, runs []run) {
	r, last := s.report, s.View.Latest()
	s.check.nothingMoved(before, last)
	s.check.spread(last, s.o.Defenders)
	equal(r, "plans", 0, s.View.count(began, event.Planned))
	lost := s.View.count(began, event.IdentityLost)
	r.measure("identities_lost", lost)
	r.measure("came_back_under_their_names", s.View.count(began, event.WorkerRejoined))
	first := map[string]int64{}
	for _, x := range runs {
		if at, ok := first[x.worker]; x.start > back.UnixNano() && (!ok || x.start < at) {
			first[x.worker] = x.start
		}
	}
	var ds []time.Duration
	for _, at := range first {
		ds = append(ds, time.Duration(at-back.UnixNano()))
	}
	d := distribution(ds)
	r.measure("back_to_first_start_ms", d)
	r.check("defenders that went on", fmt.Sprint(s.o.Defenders), len(first) == s.o.Defenders, "%d, ms after the broker's return: %s", len(first), d)
	s.check.epochs()
}
