package defender_test

import (
	"context"
	"encoding/json"
	"errors"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/muster-dev/muster/defender"
	"github.com/muster-dev/muster/defender/sqlite"
	"github.com/muster-dev/muster/defender/trace"
	"github.com/muster-dev/muster/defender/uchart"
	"github.com/muster-dev/muster/partition"
	"github.com/muster-dev/muster/partition/servertest/natstest"
	"github.com/muster-dev/muster/tchart"
)

// stage is a defender with a real broker and a real store; messages are handed
// to it directly.
type stage struct {
	t       *testing.T
	store   *sqlite.Store
	path    string // of its file
	conn    *nats.Conn
	js      jetstream.JetStream
	seq     uint64
	outcome []defender.Processed
}

var etcher = defender.Chamber{Tool: "tool001", Name: "chamber1"}

func newStage(t *testing.T) *stage {
	t.Helper()
	srv := natstest.Start(t)
	nc := natstest.Connect(t, srv.URL())
	if err := defender.Provision(t.Context(), nc, defender.Partition(16)); err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), "fdc.db")
	s, err := sqlite.Open(t.Context(), sqlite.Config{Path: path})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close() })
	js := natstest.JetStream(t, nc)
	return &stage{t: t, store: s, path: path, conn: nc, js: js}
}

func (s *stage) defender(change func(*defender.Config)) *defender.Defender {
	s.t.Helper()
	c := defender.Config{Store: s.store, Conn: s.conn, Processed: func(p defender.Processed) { s.outcome = append(s.outcome, p) },
		Judge: func(h []uchart.Point, c *uchart.Chart) uchart.Verdict { return uchart.Judge(h, c, uchart.Policy{}) }}
	if change != nil {
		change(&c)
	}
	d, err := defender.New(c)
	if err != nil {
		s.t.Fatal(err)
	}
	return d
}

// context makes a wafer's T-chart durable and returns its message.
func (s *stage) context(id string, w *trace.Wafer, end time.Time, fence partition.Fence) partition.Message {
	s.t.Helper()
	ref := defender.ContextRef{Chamber: etcher, ID: id, Recipe: "etch", Lot: w.Trace.Lot, Start: end.Add(-time.Minute), End: end}
	blob, err := tchart.Encode(&w.Trace)
	if err != nil {
		s.t.Fatal(err)
	}
	if err := s.store.PutTChart(s.t.Context(), ref.TChart(), blob, end.Add(24*time.Hour)); err != nil {
		s.t.Fatal(err)
	}
	return s.message(ref, fence)
}

func (s *stage) message(ref defender.ContextRef, fence partition.Fence) partition.Message {
	s.t.Helper()
	data, err := json.Marshal(defender.NewCompletion(ref))
	if err != nil {
		s.t.Fatal(err)
	}
	s.seq++
	return partition.Message{Subject: defender.CompletionSubject(etcher), Key: etcher.String(), Data: data, Sequence: s.seq, Fence: fence}
}

func (s *stage) last() defender.Processed { return s.outcome[len(s.outcome)-1] }

// stored returns what is in a stream.
func (s *stage) stored(stream string) []jetstream.RawStreamMsg {
	s.t.Helper()
	st, err := s.js.Stream(s.t.Context(), stream)
	if err != nil {
		s.t.Fatal(err)
	}
	var all []jetstream.RawStreamMsg
	for seq := uint64(1); ; seq++ {
		m, err := st.GetMsg(s.t.Context(), seq)
		if err != nil {
			return all
		}
		all = append(all, *m)
	}
}

var (
	now   = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	first = partition.Fence{Version: 1, Claim: 10}
	later = partition.Fence{Version: 2, Claim: 20}
)

// TestAnAlarmIsRaisedOnceHoweverOftenItsMessageComes also covers a crash
// between store and acknowledgement: that is a redelivery.
func TestAnAlarmIsRaisedOnceHoweverOftenItsMessageComes(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	d := s.defender(nil)
	g := trace.Generator{Seed: 1}
	for i := range 15 {
		if err := d.Handle(t.Context(), s.context("run"+string(rune('a'+i)), g.Wafer(i), now.Add(time.Duration(i)*time.Minute), first)); err != nil {
			t.Fatal(err)
		}
	}
	if st := s.last().Verdict.State; st != uchart.Normal {
		t.Fatalf("the fifteenth normal wafer is %v", st)
	}
	faulty, err := g.FaultyWafer(16, trace.Faults()[0])
	if err != nil {
		t.Fatal(err)
	}
	m := s.context("faulty", faulty, now.Add(time.Hour), first)
	var verdicts []uchart.Verdict
	for range 3 {
		if err := d.Handle(t.Context(), m); err != nil {
			t.Fatal(err)
		}
		verdicts = append(verdicts, s.last().Verdict)
	}
	// And by another defender, that has nothing in memory.
	if err := s.defender(nil).Handle(t.Context(), m); err != nil {
		t.Fatal(err)
	}
	if got := s.last(); got.Stored || got.CacheHit {
		t.Errorf("the other defender: stored %t, from memory %t", got.Stored, got.CacheHit)
	}
	for _, v := range append(verdicts, s.last().Verdict) {
		if v.State != uchart.Alarm || v.Score != verdicts[0].Score || v.Limits != verdicts[0].Limits {
			t.Errorf("verdict %+v, first it was %+v", v, verdicts[0])
		}
	}
	alarms, err := s.store.Alarms(t.Context(), defender.AlarmQuery{Chamber: etcher, Limit: 10})
	if err != nil || len(alarms) != 1 {
		t.Errorf("%d alarms are stored (%v), want 1", len(alarms), err)
	}
	if n := len(s.stored(defender.AlarmStream)); n != 1 {
		t.Errorf("%d alarms were published, want 1", n)
	}
}

func TestAStaleOwnerIsRefusedByTheStore(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	zombie, owner := s.defender(nil), s.defender(nil)
	g := trace.Generator{}
	if err := zombie.Handle(t.Context(), s.context("a", g.Wafer(0), now, first)); err != nil {
		t.Fatal(err)
	}
	if err := owner.Handle(t.Context(), s.context("b", g.Wafer(1), now.Add(time.Minute), later)); err != nil {
		t.Fatal(err)
	}
	err := zombie.Handle(t.Context(), s.context("c", g.Wafer(2), now.Add(2*time.Minute), first))
	if !errors.Is(err, defender.ErrFenced) {
		t.Errorf("the zombie's write gave %v, want it refused", err)
	}
	if _, err := s.store.UChart(t.Context(), etcher, "c"); !errors.Is(err, defender.ErrNotFound) {
		t.Errorf("the zombie's result: %v", err)
	}
}

func TestAWarmCacheCatchesUpWithWhatTheOldOwnerWroteMeanwhile(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	if err := s.store.RegisterChambers(t.Context(), []defender.ChamberInfo{{Chamber: etcher, Weight: 1}}); err != nil {
		t.Fatal(err)
	}
	old, next, cold := s.defender(nil), s.defender(nil), s.defender(nil)
	g := trace.Generator{}
	handle := func(d *defender.Defender, i int, fence partition.Fence) {
		t.Helper()
		if err := d.Handle(t.Context(), s.context("run"+string(rune('a'+i)), g.Wafer(i), now.Add(time.Duration(i)*time.Minute), fence)); err != nil {
			t.Fatal(err)
		}
	}
	for i := range 12 {
		handle(old, i, first)
	}
	if err := next.Prepare(t.Context(), partition.Slots{Of: 16, Slots: []int{partition.SlotOf(16, etcher.Tool, etcher.Name)}}); err != nil {
		t.Fatal(err)
	}
	handle(old, 12, first) // after the warming, before the move
	m := s.context("next", g.Wafer(13), now.Add(13*time.Minute), later)
	if err := next.Handle(t.Context(), m); err != nil {
		t.Fatal(err)
	}
	warm := s.last()
	if !warm.CacheHit {
		t.Error("the first message after a planned takeover read the history again")
	}
	// The verdict rests on all 13, as that of a defender without a cache.
	if err := cold.Handle(t.Context(), m); err != nil {
		t.Fatal(err)
	}
	if got, want := warm.Verdict.Limits, s.last().Verdict.Limits; got != want || got.N != 13 {
		t.Errorf("limits are %+v, without a cache %+v, want both to rest on 13 contexts", got, want)
	}
}

// givenUp reports whether the worker is to move the message to the dead letters at once.
func givenUp(err error) bool {
	var told interface{ GivenUp() bool }
	return errors.As(err, &told)
}

// unavailable reports whether the worker is told that the message is not to blame.
func unavailable(err error) bool {
	var told interface{ Unavailable() bool }
	return errors.As(err, &told)
}

func TestMessagesThatCantBeProcessedAreGivenUp(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	d := s.defender(nil)
	ref := defender.ContextRef{Chamber: etcher, ID: "missing", Recipe: "etch", Start: now.Add(-time.Minute), End: now}
	corrupt := defender.ContextRef{Chamber: etcher, ID: "corrupt", Recipe: "etch", Start: now.Add(-time.Minute), End: now}
	if err := s.store.PutTChart(t.Context(), corrupt.TChart(), []byte("nonsense"), now.Add(time.Hour)); err != nil {
		t.Fatal(err)
	}
	elsewhere := s.message(ref, first)
	elsewhere.Key = "tool009:chamber9"
	for _, c := range []struct {
		name string
		m    partition.Message
		want string
	}{
		{"not JSON", partition.Message{Key: etcher.String(), Data: []byte("{"), Sequence: 100, Fence: first}, "reading completion message"},
		{"of another chamber than its subject's", elsewhere, "its subject is that of tool009:chamber9"},
		{"its T-chart is gone", s.message(ref, first), "not found"},
		{"its T-chart is corrupt", s.message(corrupt, first), "can't be used"},
	} {
		if err := d.Handle(t.Context(), c.m); !givenUp(err) || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: the error is %v, want the message given up for %q", c.name, err, c.want)
		}
	}
}

func TestAnInterruptedAttemptLeavesTheContextAsItWas(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	d := s.defender(func(c *defender.Config) { c.Store = slowStore{c.Store} })
	m := s.context("interrupted", new(trace.Generator).Wafer(0), now, first)
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	if err := d.Handle(ctx, m); !errors.Is(err, context.DeadlineExceeded) || givenUp(err) {
		t.Errorf("an interrupted attempt gave %v", err)
	}
	if err := s.defender(nil).Handle(t.Context(), m); err != nil {
		t.Errorf("after the interruption: %v", err)
	}
}

// slowStore is a store that takes a minute for a result.
type slowStore struct{ defender.Store }

func (s slowStore) Commit(ctx context.Context, f defender.Fence, r defender.Result) (defender.CommitOutcome, error) {
	select {
	case <-time.After(time.Minute):
		return s.Store.Commit(ctx, f, r)
	case <-ctx.Done():
		return defender.CommitOutcome{}, ctx.Err()
	}
}

// unreadable is a store whose T-charts can't be read for a while.
type unreadable struct {
	defender.Store
	tries atomic.Int64
}

func (u *unreadable) TChart(ctx context.Context, key defender.TChartKey) ([]byte, error) {
	if u.tries.Add(-1) >= 0 {
		return nil, errors.New("the store is away")
	}
	return u.Store.TChart(ctx, key)
}

// away is a store that answers nothing for a while.
type away struct {
	unreadable
	refuses atomic.Bool
}

func (a *away) RaiseFence(ctx context.Context, chamber defender.Chamber, fence defender.Fence) error {
	if a.refuses.Load() {
		return errors.New("the store is away")
	}
	return a.Store.RaiseFence(ctx, chamber, fence)
}

// TestAnOutageSaysNothingOfAContext: when the store takes no write either, no attempt has failed.
// When it does, what can't be read may be the context's fault.
func TestAnOutageSaysNothingOfAContext(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	store := &away{unreadable: unreadable{Store: s.store}}
	d := s.defender(func(c *defender.Config) { c.Store = store })
	m := s.context("waits", new(trace.Generator).Wafer(0), now, first)

	store.refuses.Store(true)
	if err := d.Handle(t.Context(), m); !unavailable(err) {
		t.Errorf("with a store that is away: %v, want an error that says nothing of the message", err)
	}
	store.refuses.Store(false)
	store.tries.Store(3) // as often as an attempt reads
	if err := d.Handle(t.Context(), m); err == nil || unavailable(err) || givenUp(err) {
		t.Errorf("with a T-chart that can't be read: %v, want a failed attempt", err)
	}
	if err := d.Handle(t.Context(), m); err != nil {
		t.Errorf("once it can be read: %v", err)
	}
}

// TestAnAlarmThatCantBePublished: servers that take no alarm say nothing of the context either.
func TestAnAlarmThatCantBePublished(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	d := s.defender(func(c *defender.Config) {
		c.Judge = func([]uchart.Point, *uchart.Chart) uchart.Verdict { return uchart.Verdict{State: uchart.Alarm} }
	})
	m := s.context("faulty", new(trace.Generator).Wafer(0), now, first)
	s.conn.Close()
	if err := d.Handle(t.Context(), m); !unavailable(err) {
		t.Errorf("without servers: %v, want an error that says nothing of the message", err)
	}
}

func TestNewNamesEveryFault(t *testing.T) {
	t.Parallel()
	_, err := defender.New(defender.Config{CacheBytes: -1, MaxPoints: -1})
	for _, want := range []string{"Store", "Conn", "Judge", "CacheBytes", "MaxPoints"} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("the error does not name %s: %v", want, err)
		}
	}
}
