package e2e

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/muster-dev/muster/defender"
	"github.com/muster-dev/muster/e2e/audit"
	"github.com/muster-dev/muster/partition"
)

// wipedName is the scenario in which the broker forgets.
const wipedName = "broker-wiped"

// Cases of scenario broker-wiped. In the plain one the whole store is lost while the
// defenders run.
const (
	caseBuckets     = "buckets"      // the group's buckets are lost
	caseStreams     = "streams"      // the streams are lost, the buckets kept
	caseCopy        = "copy"         // an older copy of the whole store is restored
	caseRestart     = "restart"      // the whole store is lost, and every defender starts again
	caseCopyRestart = "copy-restart" // an older copy is restored, and every defender starts again
)

// wipedWithin is how soon after the broker's return every chamber's next message is
// stored, where the defenders run.
const wipedWithin = 10 * time.Second

// wipedHold is for how long the messages would be in work that others wait behind when
// the broker is stopped. Their results are stored before, and they are interrupted while the
// broker is away, for wipedAway: no defender can confirm its lease then.
const (
	wipedHold = time.Minute
	wipedAway = 3 * time.Second
)

// smallWiped gives scenario broker-wiped few chambers, and messages that take little time,
// so that the time until they are processed again is the group's recovery.
func smallWiped(o *Options, chosen func(flag string) bool) {
	suit(chosen, "defenders", &o.Defenders, 6)
	suit(chosen, "chambers", &o.Chambers, 120)
	suit(chosen, "slots", &o.Slots, 60)
	suit(chosen, "rate", &o.Rate, 40)
	suit(chosen, "work", &o.Work, 100*time.Millisecond)
}

// wiped is one run of scenario broker-wiped.
type wiped struct {
	*session
	auditor *audit.ResultsAuditor
	queued  []contextID   // what only the broker had when it was stopped
	back    time.Time     // when it was there again
	probed  []publication // what was published then, a message for each chamber
}

// contextID names a context.
type contextID struct{ chamber, context string }

// brokerWiped has the broker forget: its store directory, or a part of it, is removed
// while it is stopped, or replaced by an older copy. The results are in another store, and
// are kept with their fences.
func brokerWiped(ctx context.Context, s *session) (err error) {
	w := &wiped{session: s}
	if w.auditor, err = audit.BeginResults(ctx, s.StorePath); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, w.auditor.Close()) }()
	if err := s.begin(ctx); err != nil {
		return err
	}
	if err := s.warmUp(ctx); err != nil {
		return err
	}
	if err := s.expect(ctx, s.o.Defenders); err != nil {
		return err
	}
	older := s.o.Case == caseCopy || s.o.Case == caseCopyRestart
	if older {
		// Messages that wait in the copy would be processed twice, which takes long.
		if err := w.drain(ctx); err != nil {
			return err
		}
		if err := w.copyStore(ctx); err != nil {
			return err
		}
	}
	if err := w.age(ctx); err != nil {
		return err
	}
	if err := w.fill(ctx); err != nil {
		return err
	}
	if err := w.forget(ctx, older); err != nil {
		return err
	}
	if err := w.recover(ctx); err != nil {
		return err
	}
	return w.judge(ctx)
}

// stores are the directories of the servers' streams, and where copies of them are kept.
func (w *wiped) stores() map[string]string {
	dirs := map[string]string{}
	for _, dir := range w.Servers.Dirs() {
		dirs[filepath.Join(dir, "jetstream")] = dir + ".older"
	}
	return dirs
}

// copyStore keeps a copy of what the broker has while messages are in work. It is stopped
// meanwhile: a copy of files that are written is worth nothing.
func (w *wiped) copyStore(ctx context.Context) error {
	if err := w.work(ctx, time.Second, 1); err != nil {
		return err
	}
	if err := w.Servers.Stop(); err != nil {
		return err
	}
	for dir, older := range w.stores() {
		if err := os.CopyFS(older, os.DirFS(dir)); err != nil {
			return fmt.Errorf("copying the broker's store: %w", err)
		}
	}
	if err := w.Servers.Start(ctx); err != nil {
		return err
	}
	w.Say("A copy of the broker's store is kept")
	return w.calm(ctx)
}

// calm waits until all defenders work, and everything is processed.
func (w *wiped) calm(ctx context.Context) error {
	if err := w.Wait(ctx, 2*time.Minute, "all defenders STABLE", w.Defenders.allStable); err != nil {
		return err
	}
	return w.drain(ctx)
}

// work gives each slot messages that are in work for a while, one after the other.
func (w *wiped) work(ctx context.Context, hold time.Duration, each int) error {
	a, err := w.latestMap(ctx)
	if err != nil {
		return err
	}
	var ids []string
	for _, m := range a.Workers {
		ids = append(ids, m.ID)
	}
	w.Traffic.hold.Store(int64(hold))
	return w.busy(ctx, a, ids, each)
}

// latestMap reads the assignment map: a watcher of a bucket is not told that another one
// is there under its name.
func (w *wiped) latestMap(ctx context.Context) (*partition.Assignment, error) {
	js, err := jetstream.New(w.Conn)
	if err != nil {
		return nil, err
	}
	kv, err := js.KeyValue(ctx, defender.Group+"-assignments")
	if err != nil {
		return nil, fmt.Errorf("reading the assignment map: %w", err)
	}
	e, err := kv.Get(ctx, partition.AssignmentKey)
	if err != nil {
		return nil, fmt.Errorf("reading the assignment map: %w", err)
	}
	return partition.DecodeAssignment(e.Value())
}

// age has two defenders replaced, one after the other, so that the stored fences are well
// above those of a group that begins.
func (w *wiped) age(ctx context.Context) error {
	for range 2 {
		w.Defenders.Running()[0].Kill()
		if _, err := w.Defenders.Add(ctx, 1); err != nil {
			return err
		}
		if err := w.Wait(ctx, 2*time.Minute, "all defenders STABLE after one was replaced", func() bool {
			a, err := w.latestMap(ctx)
			return err == nil && a.Settled() && len(a.Workers) == w.o.Defenders && w.Defenders.allStable()
		}); err != nil {
			return err
		}
		for i := range w.Chambers {
			w.Traffic.publish(i, false)
		}
		if err := w.drain(ctx); err != nil {
			return err
		}
	}
	return nil
}

// fill gives each slot one message that is in work, and one that waits behind it.
func (w *wiped) fill(ctx context.Context) error {
	if err := w.drain(ctx); err != nil {
		return err
	}
	file := filepath.Join(w.Dir, "hold")
	if err := os.WriteFile(file, nil, 0o644); err != nil {
		return fmt.Errorf("having messages held: %w", err)
	}
	w.Traffic.holdWhile.Store(&file)
	if err := w.work(ctx, wipedHold, 2); err != nil {
		return err
	}
	select {
	case <-time.After(time.Second): // the results of those in work are stored
	case <-ctx.Done():
		return ctx.Err()
	}
	return nil
}

// noteQueued notes what only the stopped broker has: what it has acknowledged and has no
// result. No handler is at work by now.
func (w *wiped) noteQueued(ctx context.Context) error {
	a, err := w.account(ctx)
	if err != nil {
		return err
	}
	for _, m := range a.Missing {
		w.queued = append(w.queued, contextID{m.Key, m.Context})
	}
	w.Say("%d messages are in the broker's streams and have no result", len(w.queued))
	return nil
}

// forget stops the broker, takes away what it knows, and starts it.
func (w *wiped) forget(ctx context.Context, older bool) error {
	w.Say("The broker is stopped, with messages in work and others that wait behind them")
	if err := w.Servers.Stop(); err != nil {
		return err
	}
	for dir, copied := range w.stores() {
		if err := w.remove(dir); err != nil {
			return fmt.Errorf("wiping the broker: %w", err)
		}
		if older {
			if err := os.CopyFS(dir, os.DirFS(copied)); err != nil {
				return fmt.Errorf("restoring the broker's older copy: %w", err)
			}
		}
	}
	select {
	case <-time.After(wipedAway):
	case <-ctx.Done():
		return ctx.Err()
	}
	if err := w.noteQueued(ctx); err != nil {
		return err
	}
	// Where the streams are kept, those that were in work come again.
	if err := os.Remove(*w.Traffic.holdWhile.Load()); err != nil {
		return fmt.Errorf("ending that messages are held: %w", err)
	}
	restart := w.o.Case == caseRestart || w.o.Case == caseCopyRestart
	if restart {
		for _, m := range w.Defenders.Running() {
			m.Kill()
		}
		w.View.Clear() // no worker is left to report that they have ended
	}
	if err := w.Servers.Start(ctx); err != nil {
		return err
	}
	w.back = time.Now()
	w.Say("The broker is back: %s", w.what())
	if !restart {
		return nil
	}
	if _, err := w.Defenders.Add(ctx, w.o.Defenders); err != nil {
		return err
	}
	// Nobody knows how many there should be. In a cluster a controller says so again.
	return w.Wait(ctx, time.Minute, "the expected number of defenders set", func() bool { return w.expect(ctx, w.o.Defenders) == nil })
}

// what says what the broker has forgotten.
func (w *wiped) what() string {
	switch w.o.Case {
	case caseBuckets:
		return "the defenders' buckets are gone"
	case caseStreams:
		return "the streams are gone"
	case caseCopy:
		return "it has an older copy of its store"
	case caseCopyRestart:
		return "it has an older copy of its store, and every defender starts again"
	case caseRestart:
		return "its store is gone, and every defender starts again"
	}
	return "its store is gone"
}

// remove removes the part of a store that the case is about.
func (w *wiped) remove(dir string) error {
	if w.o.Case != caseBuckets && w.o.Case != caseStreams {
		return os.RemoveAll(dir)
	}
	var streams []string
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err == nil && d.IsDir() && filepath.Base(filepath.Dir(path)) == "streams" {
			streams = append(streams, path)
			return filepath.SkipDir
		}
		return err
	})
	if err != nil {
		return err
	}
	removed := 0
	for _, path := range streams {
		if isBucket := strings.HasPrefix(filepath.Base(path), "KV_"); isBucket != (w.o.Case == caseBuckets) {
			continue
		}
		removed++
		if err := os.RemoveAll(path); err != nil {
			return err
		}
	}
	if removed == 0 {
		return fmt.Errorf("there is nothing to remove in %s: streams %q", dir, streams)
	}
	return nil
}

// recover publishes for every chamber, and waits until everything is processed.
func (w *wiped) recover(ctx context.Context) error {
	before := len(w.Traffic.published())
	w.Traffic.hold.Store(0)
	for i := range w.Chambers {
		w.Traffic.publish(i, false)
	}
	if err := w.Wait(ctx, 2*time.Minute, "a message of each chamber published", func() bool { return len(w.Traffic.published())-before >= len(w.Chambers) }); err != nil {
		return err
	}
	w.probed = w.Traffic.published()[before:]
	if err := w.Wait(ctx, 3*time.Minute, "a message of each chamber stored", func() bool {
		a, err := w.account(ctx)
		return err == nil && !slices.ContainsFunc(w.probed, func(p publication) bool { return a.StoredAt[p.Key+"/"+p.Ref.ID].IsZero() })
	}); err != nil {
		return err
	}
	w.Say("Every chamber is processed again %.1f s after the broker's return", time.Since(w.back).Seconds())
	w.Traffic.Rate.Store(int64(w.o.Rate))
	select {
	case <-time.After(3 * time.Second):
	case <-ctx.Done():
		return ctx.Err()
	}
	return w.calm(ctx)
}

func (w *wiped) account(ctx context.Context) (audit.ContextAccount, error) {
	var published []audit.Published
	for _, p := range w.Traffic.published() {
		published = append(published, audit.Published{Sequence: p.Seq, Key: p.Key, Context: p.Ref.ID})
	}
	return w.auditor.Account(ctx, published)
}

// deadLetters counts them. Their stream is created with the first one after a loss.
func (w *wiped) deadLetters(ctx context.Context) (uint64, error) {
	js, err := jetstream.New(w.Conn)
	if err != nil {
		return 0, err
	}
	s, err := js.Stream(ctx, defender.DeadStream)
	switch {
	case errors.Is(err, jetstream.ErrStreamNotFound):
		return 0, nil
	case err != nil:
		return 0, fmt.Errorf("counting the dead letters: %w", err)
	}
	return s.CachedInfo().State.Msgs, nil
}

func (w *wiped) judge(ctx context.Context) error {
	if err := w.keepPublished(w.Traffic.published()); err != nil {
		return err
	}
	a, err := w.account(ctx)
	if err != nil {
		return err
	}
	dead, err := w.deadLetters(ctx)
	if err != nil {
		return err
	}
	last, err := w.latestMap(ctx)
	if err != nil {
		return err
	}
	for _, f := range a.Faults {
		w.Say("The auditor: %s", f)
	}
	var took []time.Duration
	for _, p := range w.probed {
		took = append(took, a.StoredAt[p.Key+"/"+p.Ref.ID].Sub(w.back))
	}
	loss := len(w.queued)
	if w.o.Case == caseBuckets {
		loss = 0
	}
	unexplained := 0
	for _, m := range a.Missing {
		if !slices.Contains(w.queued, contextID{m.Key, m.Context}) {
			unexplained++
			w.Say("The auditor: %s/%s has no result, and the broker did not have it alone", m.Key, m.Context)
		}
	}
	r := w.report
	r.measure("published", a.Published)
	r.measure("stored", a.Stored)
	r.measure("lost", a.Unstored)
	r.check("published", "at least one message a chamber", a.Published >= w.o.Chambers, "%d", a.Published)
	r.check("messages that only the broker had when it was stopped", "some", len(w.queued) > 0, "%d", len(w.queued))
	equal(r, "messages lost, of those", loss, a.Unstored-unexplained)
	equal(r, "messages lost beside those", 0, unexplained)
	equal(r, "results stored twice, changed, or of nothing published", 0, a.StoredTwice+a.FromNowhere)
	equal(r, "results stored out of order", 0, a.OutOfOrder)
	equal(r, "results stored under an older fence", 0, a.FenceBack)
	equal(r, "dead letters", 0, int(dead))
	d := distribution(took)
	r.measure("back_to_stored_ms", d)
	r.timed("processed again after the broker's return, ms", fmt.Sprintf("within %d", wipedWithin.Milliseconds()), len(took) == w.o.Chambers && d.Max <= float64(wipedWithin.Milliseconds()), "%s", d)
	counts, covered := w.Chambers.counts(last), 0
	for _, n := range counts {
		covered += n
	}
	r.measure("min_chambers", slices.Min(counts))
	r.measure("max_chambers", slices.Max(counts))
	equal(r, "chambers covered", w.o.Chambers, covered)
	equal(r, "defenders in the map", w.o.Defenders, len(last.Workers))
	raised := w.Defenders.total("defender_fences_raised_total")
	r.measure("fences_raised", raised)
	if w.o.Case == caseRestart || w.o.Case == caseCopyRestart {
		r.check("fences raised above the stored ones", "at least once", raised >= 1, "%.0f", raised)
	}
	r.measure("created_again", w.Defenders.total("defender_resources_recreated_total"))
	r.measure("fence_rejections", w.Defenders.total("defender_fence_rejections_total"))
	return nil
}
