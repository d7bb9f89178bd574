package e2e

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/muster-dev/muster/defender"
	"github.com/muster-dev/muster/e2e/audit"
	"github.com/muster-dev/muster/partition"
	"github.com/muster-dev/muster/partition/event"
)

// storageFullName is the scenario whose servers have little storage.
const storageFullName = "storage-full"

const (
	// smallStore is what each NATS server may keep.
	smallStore = 128 << 20
	// largeMessage is how large a message is that fills the storage. Its padding is a
	// header, which may have 64 KiB.
	largeMessage = 48 << 10
	// slowWork is what each of them takes, so that publishers are faster by far.
	slowWork = time.Second
	// fullFor is how long publishers try on: two leases.
	fullFor = 13 * time.Second
	// fillRate is how many messages are due in a second until the stream is full, and
	// fullRate afterwards: more than 48 slots process, so that the stream stays full. What
	// is due waits in the collector.
	fillRate = 400
	fullRate = 60
)

// smallStorage gives scenario storage-full as many defenders and slots as it needs to
// drain what is stored in half a minute, unless others are chosen.
func smallStorage(o *Options, chosen func(flag string) bool) {
	suit(chosen, "defenders", &o.Defenders, 6)
	suit(chosen, "chambers", &o.Chambers, 240)
	suit(chosen, "slots", &o.Slots, 48)
	suit(chosen, "work", &o.Work, 0)
}

// storageFull fills the storage with a backlog while handlers are slow. The limit of the
// stream leaves room for leases, so the defenders continue and make room themselves.
func storageFull(ctx context.Context, s *session) error {
	evidence := s.auditConfig()
	evidence.InMemory = true
	auditor, err := audit.Begin(ctx, s.Conn, evidence)
	if err != nil {
		return err
	}
	return errors.Join(storageFullRun{s}.run(ctx, auditor), auditor.Close())
}

// storageFullRun is a run of scenario storage-full.
type storageFullRun struct{ *session }

func (s storageFullRun) run(ctx context.Context, auditor *audit.Auditor) error {
	if err := s.begin(ctx); err != nil {
		return err
	}
	if err := s.warmUp(ctx); err != nil {
		return err
	}
	if err := s.expect(ctx, s.o.Defenders); err != nil {
		return err
	}
	limit, err := s.limit(ctx)
	if err != nil {
		return err
	}
	s.Say("The NATS server may keep %d MiB, the stream of messages %d MiB of that; each message now has %d KiB and takes %v", int64(smallStore)>>20, limit>>20, largeMessage>>10, slowWork)
	began := time.Now()
	var watch leaseWatch
	watching, stop := context.WithCancel(ctx)
	var wg sync.WaitGroup
	wg.Go(func() { watch.run(watching, s.session) })
	defer func() { stop(); wg.Wait() }()
	s.Traffic.slow.Store(int64(slowWork))
	s.Traffic.padding.Store(largeMessage)
	s.Traffic.Rate.Store(fillRate)
	if err := s.Wait(ctx, 2*time.Minute, "publishers refused", func() bool { return s.Traffic.refused.Load() > 0 }); err != nil {
		return err
	}
	first := s.Traffic.firstRefused()
	s.Say("Publishers are refused after %.1f s: %v", time.Since(began).Seconds(), first)
	s.Traffic.Rate.Store(fullRate)
	if err := pause(ctx, fullFor); err != nil {
		return err
	}
	fill, err := s.fill(ctx)
	if err != nil {
		return err
	}
	refused := s.Traffic.refused.Load()
	s.Say("For %v publishers have tried again, %d times in vain; the stream holds %.0f %% of its limit", fullFor, refused, 100*fill)
	drain := time.Now()
	s.Traffic.Rate.Store(0)
	s.Traffic.slow.Store(0)
	s.Traffic.padding.Store(0)
	if _, err := s.finish(ctx); err != nil {
		return err
	}
	s.Say("The backlog has drained by itself in %.1f s", time.Since(drain).Seconds())
	stop()
	wg.Wait()
	r := s.report
	r.measure("refused", refused)
	r.measure("drain_s", seconds(time.Since(drain)))
	var api *jetstream.APIError
	r.check("publications refused, with an error to try again on", "some", refused > 0 && partition.IsFull(first) && errors.As(first, &api), "%d: %v", refused, api)
	r.check("storage while publishers were refused", "over 95 % of the limit", fill > 0.95, "%.0f %%", 100*fill)
	watch.judge(s.session, began)
	return s.judgeAccount(ctx, auditor)
}

// fill is what the streams of messages hold of their limits.
func (s storageFullRun) fill(ctx context.Context) (float64, error) {
	v, err := partition.Open(s.Conn, defender.Group).Inspect(ctx)
	if err != nil {
		return 0, err
	}
	return v.Fill, nil
}

// limit is how many bytes all streams of messages may hold.
func (s storageFullRun) limit(ctx context.Context) (sum int64, err error) {
	all, err := s.Streams(ctx)
	if err != nil {
		return 0, err
	}
	for _, stream := range all {
		sum += stream.CachedInfo().Config.MaxBytes
	}
	return sum, nil
}

// leaseWatch looks at the group from outside while the storage is full.
type leaseWatch struct {
	looks  int
	oldest float64  // age of a lease, in seconds
	ended  []string // what the group said of its leases
	err    error
}

func (w *leaseWatch) run(ctx context.Context, s *session) {
	t := time.NewTicker(time.Second)
	defer t.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-t.C:
		}
		v, err := partition.Open(s.Conn, defender.Group).Inspect(ctx)
		if ctx.Err() != nil {
			return
		}
		if err != nil {
			w.err = err
			continue
		}
		w.looks++
		r := v.Report()
		for _, x := range r.Workers {
			w.oldest = max(w.oldest, x.LeaseAge)
		}
		if r.Why != "" {
			w.ended = append(w.ended, fmt.Sprintf("%s: %s", r.State, r.Why))
		}
	}
}

func (w *leaseWatch) judge(s *session, began time.Time) {
	r := s.report
	ttl := 6 * time.Second
	r.measure("oldest_lease_s", w.oldest)
	r.check("age of the oldest lease, s", fmt.Sprintf("less than %.0f", ttl.Seconds()), w.err == nil && w.looks > 0 && w.oldest < ttl.Seconds(), "%.1f in %d looks %s", w.oldest, w.looks, errorText(w.err))
	r.check("looks at which no worker led, or a lease had ended", "0", len(w.ended) == 0, "%d of %d %.200q", len(w.ended), w.looks, w.ended)
	equal(r, "defenders that lost their names", 0, s.View.count(began, event.IdentityLost))
	equal(r, "defenders declared dead", 0, s.View.count(began, event.WorkerGone))
}

func errorText(err error) string {
	if err == nil {
		return ""
	}
	return err.Error()
}

// judgeAccount has an auditor account for all messages of a run in which no defender died.
func (s storageFullRun) judgeAccount(ctx context.Context, auditor *audit.Auditor) error {
	var published []audit.Published
	for _, p := range s.Traffic.published() {
		published = append(published, audit.Published{Sequence: p.Seq, Key: p.Key, Context: p.Ref.ID})
	}
	a, err := auditor.Account(ctx, published, nil, nil)
	if err != nil {
		return err
	}
	for _, f := range a.Faults {
		s.Say("The auditor: %s", f)
	}
	r := s.report
	r.measure("account", a)
	r.check("messages that the stream took", "some", a.Messages > 0, "%d, %d of them again, %d not confirmed to the publisher", a.Messages, a.Resent, a.Unconfirmed)
	equal(r, "messages that nobody knows anything of", 0, a.Unknown)
	equal(r, "messages lost", 0, a.Lost)
	equal(r, "messages still in the stream", 0, a.Left)
	equal(r, "messages accounted for", a.Messages, a.Stored)
	equal(r, "dead letters", 0, a.DeadLetters)
	equal(r, "results stored twice, changed, or of nothing published", 0, a.StoredTwice+a.FromNowhere)
	equal(r, "begun while another of the chamber went on", 0, a.Concurrent)
	equal(r, "begun before the one before was done", 0, a.OutOfOrder)
	equal(r, "results stored out of order, or under an older fence", 0, a.EffectsDisorder+a.FenceBack)
	return nil
}
