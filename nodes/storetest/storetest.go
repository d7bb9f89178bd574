// Package storetest is the conformance suite of stores and event logs: what the node plane relies on, under real concurrency. A store
// passes it by calling Run from its own tests:
//
//	func TestConformance(t *testing.T) {
//		storetest.Run(t, func(t *testing.T) storetest.Open {
//			dir := t.TempDir()
//			return func(t *testing.T) (nodes.Store, nodes.EventLog) { ... open dir once more ... }
//		})
//	}
package storetest

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"reflect"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/muster-dev/muster/nodes"
)

// Writers is how many handles race in every test that races.
const Writers = 8

// Open opens one more handle on the same storage, as another process would.
type Open func(t *testing.T) (nodes.Store, nodes.EventLog)

var start = time.Unix(1730000000, 0)

// Run runs the suite. Fresh prepares empty storage for one test.
func Run(t *testing.T, fresh func(t *testing.T) Open) {
	for _, c := range []struct {
		name string
		test func(*testing.T, Open)
	}{
		{"a new record is at rest", newRecord},
		{"a write is seen by every other handle", writesAreSeen},
		{"exactly one of the racing writers gets the lease", oneLease},
		{"exactly one of the racing begins wins", oneBegin},
		{"as many racing begins win as actions may be open", severalBegins},
		{"what the record says of pools is kept", pools},
		{"racing appends are neither lost nor doubled", appends},
		{"a lost reply is recognised by applying again", lostReply},
		{"a stale fence is refused for every write", staleFence},
		{"a refused write changes nothing", refusedWritesNothing},
		{"a pause and a tick's writes don't lose each other", pause},
		{"an interruption is opened once and claimed by one", interruptions},
		{"closed interruptions are not listed", closedInterruptions},
		{"events are kept in order, each once", eventLogOrder},
		{"racing events are neither lost nor doubled", eventLogRace},
		{"events are found by what was asked for", eventLogQuery},
		{"events are found across days and within a millisecond", eventLogTimes},
		{"large events come back whole", eventLogLarge},
		{"many events come back in order, and the newest of them", eventLogMany},
		{"an event that is there already stays as it was", eventLogFirst},
	} {
		t.Run(c.name, func(t *testing.T) { c.test(t, fresh(t)) })
	}
}

func newRecord(t *testing.T, open Open) {
	s, _ := open(t)
	r, err := s.Load(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if r.PK == "" || r.ScalingInProgress || r.LeaseOwner != "" || r.Revision != 0 {
		t.Errorf("got %+v", r)
	}
}

func writesAreSeen(t *testing.T, open Open) {
	a, _ := open(t)
	b, _ := open(t)
	for n := range 20 {
		w, r := a, b
		if n%2 == 1 {
			w, r = b, a
		}
		owner := fmt.Sprint("owner", n)
		got := must(t, w, nodes.AcquireLease{Owner: owner, Now: start.Add(time.Duration(n) * time.Hour), TTL: time.Minute})
		seen, err := r.Load(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if seen.LeaseOwner != owner || seen.Revision != got.Revision || seen.LeaseFence != int64(n+1) {
			t.Fatalf("after write %d the other handle sees owner %q, revision %d, fence %d", n, seen.LeaseOwner, seen.Revision, seen.LeaseFence)
		}
	}
}

func oneLease(t *testing.T, open Open) {
	wins := race(t, open, func(n int, s nodes.Store) error {
		_, err := s.Apply(t.Context(), nodes.AcquireLease{Owner: fmt.Sprint("w", n), Now: start, TTL: time.Minute})
		return err
	}, nodes.ErrLeaseHeld)
	if wins != 1 {
		t.Errorf("%d writers got the lease", wins)
	}
}

func oneBegin(t *testing.T, open Open) {
	fence := lease(t, open)
	wins := race(t, open, func(n int, s nodes.Store) error {
		var tr nodes.Transition = nodes.BeginScaleUp{Fence: fence, ActionID: fmt.Sprint("up", n), Now: start, Requested: 1}
		if n%2 == 1 {
			tr = nodes.BeginScaleDown{Fence: fence, ActionID: fmt.Sprint("down", n), Now: start, Targets: []string{"i-1"}}
		}
		_, err := s.Apply(t.Context(), tr)
		return err
	}, nodes.ErrScalingInProgress)
	if wins != 1 {
		t.Errorf("%d begins won", wins)
	}
}

func severalBegins(t *testing.T, open Open) {
	fence := lease(t, open)
	wins := race(t, open, func(n int, s nodes.Store) error {
		_, err := s.Apply(t.Context(), nodes.BeginScaleDown{Fence: fence, ActionID: fmt.Sprint("down", n), Now: start, Targets: []string{fmt.Sprint("i-", n)}, MaxActions: 3})
		return err
	}, nodes.ErrScalingInProgress)
	s, _ := open(t)
	r, err := s.Load(t.Context())
	if err != nil || wins != 3 || len(r.Actions()) != 3 || r.SchemaVersion != 2 {
		t.Fatalf("%d begins won and %d actions are open, in version %d: %v", wins, len(r.Actions()), r.SchemaVersion, err)
	}

	last := r.Actions()[2]
	for _, a := range r.Actions()[:2] {
		if r, err = s.Apply(t.Context(), nodes.FailScaleDown{Fence: fence, ActionID: a.ID(), Now: start}); err != nil {
			t.Fatal(err)
		}
	}
	if r.ActionID() != last.ID() || !r.Targets(last.ScaleDownTargetInstanceIDs[0]) || len(r.Actions()) != 1 || r.SchemaVersion > 1 {
		t.Errorf("with one left the record is %+v", r)
	}
}

// pools keeps what the record says of pools, in a version that a program without them refuses.
func pools(t *testing.T, open Open) {
	fence := lease(t, open)
	s, _ := open(t)
	seen := nodes.TemplateSeen{Template: "f", InstanceID: "i-1", Lacks: []string{"team=batch"}, Sizes: map[string]nodes.Resources{"m": {MilliCPU: 2000}}}
	must(t, s, nodes.NoteTemplate{Fence: fence, Pool: "batch", Seen: seen})
	must(t, s, nodes.BeginScaleUp{Fence: fence, ActionID: "up", Now: start, Requested: 1, Pool: "batch"})
	other, _ := open(t)
	r, err := other.Load(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if r.ScaleUpPool != "batch" || r.SchemaVersion != 3 || !reflect.DeepEqual(r.PoolState("batch").TemplateSeen, &seen) {
		t.Errorf("read back: pool %q, version %d, %+v", r.ScaleUpPool, r.SchemaVersion, r.PoolStates)
	}
	must(t, s, nodes.FailScaleUp{Fence: fence, ActionID: "up", Now: start, Backoff: time.Minute})
	if r, err = other.Load(t.Context()); err != nil || r.PoolState("batch").BackoffUntilEpoch != start.Add(time.Minute).Unix() || r.ScaleUpPool != "" {
		t.Errorf("after a failure: %+v, %v", r.PoolStates, err)
	}
}

// appends lets every writer complete its own targets and one that all share, each twice.
func appends(t *testing.T, open Open) {
	const each = 5
	fence := lease(t, open)
	targets := []string{"shared"}
	for n := range Writers {
		for k := range each {
			targets = append(targets, fmt.Sprintf("i-%d-%d", n, k))
		}
	}
	s, _ := open(t)
	must(t, s, nodes.BeginScaleDown{Fence: fence, ActionID: "down", Now: start, Targets: targets})
	race(t, open, func(n int, s nodes.Store) error {
		for k := range each {
			for _, id := range []string{fmt.Sprintf("i-%d-%d", n, k), "shared", fmt.Sprintf("i-%d-%d", n, k)} {
				if _, err := s.Apply(t.Context(), nodes.MarkScaleDownInstanceDone{Fence: fence, ActionID: "down", InstanceID: id}); err != nil {
					return err
				}
			}
		}
		return nil
	}, nil)
	r, err := s.Load(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	got := slices.Sorted(slices.Values(r.ScaleDownCompletedInstanceIDs))
	slices.Sort(targets)
	if !slices.Equal(got, targets) {
		t.Errorf("%d targets done, want %d, each once: %v", len(got), len(targets), got)
	}
}

func lostReply(t *testing.T, open Open) {
	fence := lease(t, open)
	a, _ := open(t)
	b, _ := open(t)
	intent := nodes.Intent{Request: nodes.LaunchRequest{Token: "t0"}}
	for _, tr := range []nodes.Transition{
		nodes.RenewLease{Owner: "me", Fence: fence, Now: start.Add(time.Second), TTL: time.Minute},
		nodes.BeginScaleUp{Fence: fence, ActionID: "up", Now: start, Requested: 1},
		nodes.IntendLaunch{Fence: fence, ActionID: "up", Intent: intent},
		nodes.RecordScaleUpInstances{Fence: fence, ActionID: "up", Token: "t0", InstanceID: "i-1"},
		nodes.CompleteScaleUp{Fence: fence, ActionID: "up", Now: start},
		nodes.BeginScaleDown{Fence: fence, ActionID: "down", Now: start, Targets: []string{"i-1"}},
		nodes.StartDrain{Fence: fence, Removal: nodes.Removal{InstanceID: "i-1", ActionID: "down", DrainedSince: 5}},
		nodes.MarkTerminating{Fence: fence, Removal: nodes.Removal{InstanceID: "i-1", ActionID: "down"}},
		nodes.MarkScaleDownInstanceDone{Fence: fence, ActionID: "down", InstanceID: "i-1"},
		nodes.CompleteScaleDown{Fence: fence, ActionID: "down", Now: start},
		nodes.ReleaseLease{Owner: "me", Fence: fence},
	} {
		first := must(t, a, tr)
		again, err := b.Apply(t.Context(), tr)
		if err != nil || again.Revision != first.Revision {
			t.Errorf("%s again: revision %d after %d, %v", tr.Name(), again.Revision, first.Revision, err)
		}
	}
}

func staleFence(t *testing.T, open Open) {
	old := lease(t, open)
	s, _ := open(t)
	must(t, s, nodes.AcquireLease{Owner: "successor", Now: start.Add(time.Hour), TTL: time.Minute})
	for _, tr := range []nodes.Transition{
		nodes.RenewLease{Owner: "me", Fence: old, Now: start, TTL: time.Minute},
		nodes.Note{Fence: old, Now: start},
		nodes.BeginScaleUp{Fence: old, ActionID: "up", Now: start, Requested: 1},
		nodes.BeginScaleDown{Fence: old, ActionID: "down", Now: start},
		nodes.MarkTerminating{Fence: old, Removal: nodes.Removal{InstanceID: "i-1"}},
		nodes.GiveBack{Fence: old, InstanceID: "i-1", Now: start},
	} {
		if _, err := s.Apply(t.Context(), tr); !errors.Is(err, nodes.ErrStaleFence) {
			t.Errorf("%s: %v", tr.Name(), err)
		}
	}
}

func refusedWritesNothing(t *testing.T, open Open) {
	fence := lease(t, open)
	s, _ := open(t)
	before, _ := s.Load(t.Context())
	if _, err := s.Apply(t.Context(), nodes.CompleteScaleUp{Fence: fence, ActionID: "none", Now: start}); !nodes.IsRefused(err) {
		t.Fatalf("got %v", err)
	}
	if after, _ := s.Load(t.Context()); after.Revision != before.Revision {
		t.Errorf("revision %d became %d", before.Revision, after.Revision)
	}
}

// pause lets people pause while a tick writes under its lease, and begin while others pause.
func pause(t *testing.T, open Open) {
	fence := lease(t, open)
	wins := race(t, open, func(n int, s nodes.Store) error {
		var err error
		switch {
		case n < 2:
			_, err = s.Apply(t.Context(), nodes.PauseScaling{Now: start.Add(time.Hour), By: "alice", Reason: "inventory"})
		case n == 2:
			_, err = s.Apply(t.Context(), nodes.BeginScaleUp{Fence: fence, ActionID: "up", Now: start, Requested: 1})
		default:
			for k := range 5 {
				if _, err = s.Apply(t.Context(), nodes.RenewLease{Owner: "me", Fence: fence, Now: start.Add(time.Duration(n*5+k) * time.Second), TTL: time.Minute}); err != nil {
					return err
				}
			}
		}
		return err
	}, nodes.ErrPaused)
	s, _ := open(t)
	r, err := s.Load(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if r.PausedSinceEpoch != start.Add(time.Hour).Unix() || r.PausedBy != "alice" || r.PauseReason != "inventory" {
		t.Errorf("the pause is %d by %q: %q", r.PausedSinceEpoch, r.PausedBy, r.PauseReason)
	}
	if r.LeaseOwner != "me" || r.LeaseFence != fence || r.LeaseUntilEpoch <= start.Add(time.Minute).Unix() {
		t.Errorf("the lease is %q's until %d, fence %d", r.LeaseOwner, r.LeaseUntilEpoch, r.LeaseFence)
	}
	if begun := wins == Writers; begun != r.ScalingUp() {
		t.Errorf("%d of %d writes went through, and a scale-up is open: %t", wins, Writers, r.ScalingUp())
	}
	must(t, s, nodes.ResumeScaling{})
	other, _ := open(t)
	if r, err = other.Load(t.Context()); err != nil || r.Paused() || r.PausedBy != "" || r.PauseReason != "" {
		t.Errorf("after the end of the pause: %+v, %v", r, err)
	}
}

func interruptions(t *testing.T, open Open) {
	event := nodes.InterruptionEvent{ID: "e", Kind: nodes.Warning, InstanceID: "i-1", At: start}
	race(t, open, func(_ int, s nodes.Store) error {
		_, err := s.ApplyInterruption(t.Context(), "i-1", nodes.OpenInterruption{Event: event, Now: start})
		return err
	}, nil)
	wins := race(t, open, func(n int, s nodes.Store) error {
		_, err := s.ApplyInterruption(t.Context(), "i-1", nodes.ClaimInterruption{Owner: fmt.Sprint("w", n), Now: start, TTL: time.Minute})
		return err
	}, nodes.ErrLeaseHeld)
	if wins != 1 {
		t.Errorf("%d writers claimed it", wins)
	}
	s, _ := open(t)
	list, err := s.OpenInterruptions(t.Context())
	if err != nil || len(list) != 1 || list[0].Fence != 1 || list[0].Revision != 2 {
		t.Errorf("got %+v, %v", list, err)
	}
	if _, err := s.ApplyInterruption(t.Context(), "i-1", nodes.InterruptionStep{Step: "late", Owner: "x", Fence: 0, Change: func(i *nodes.Interruption) { i.Drained = true }}); !errors.Is(err, nodes.ErrStaleFence) {
		t.Errorf("a stale step: %v", err)
	}
}

func closedInterruptions(t *testing.T, open Open) {
	s, _ := open(t)
	for _, id := range []string{"i-1", "i-2"} {
		e := nodes.InterruptionEvent{ID: id, Kind: nodes.Rebalance, InstanceID: id, At: start}
		if _, err := s.ApplyInterruption(t.Context(), id, nodes.OpenInterruption{Event: e, Now: start}); err != nil {
			t.Fatal(err)
		}
	}
	closing := nodes.InterruptionStep{Step: "close", Change: func(i *nodes.Interruption) { i.Closed = true }}
	if _, err := s.ApplyInterruption(t.Context(), "i-1", closing); err != nil {
		t.Fatal(err)
	}
	other, _ := open(t)
	list, err := other.OpenInterruptions(t.Context())
	if err != nil || len(list) != 1 || list[0].InstanceID != "i-2" {
		t.Errorf("got %+v, %v", list, err)
	}
}

func eventLogOrder(t *testing.T, open Open) {
	_, a := open(t)
	_, b := open(t)
	for n := range 50 {
		e := nodes.Event{At: start.Add(time.Duration(n/5) * time.Second), Tick: "t", Seq: n, Kind: "k"}
		for _, j := range []nodes.EventLog{a, b, a} { // the reply of the first append was lost, twice
			if err := j.Append(t.Context(), e); err != nil {
				t.Fatal(err)
			}
		}
	}
	n := 0
	for e, err := range b.Read(t.Context(), nodes.Query{}) {
		if err != nil {
			t.Fatal(err)
		}
		if e.Seq != n {
			t.Fatalf("event %d has sequence number %d", n, e.Seq)
		}
		n++
	}
	if n != 50 {
		t.Errorf("%d events, want 50", n)
	}
}

func eventLogRace(t *testing.T, open Open) {
	const each = 20
	var wg sync.WaitGroup
	for n := range Writers {
		_, j := open(t)
		wg.Go(func() {
			for k := range each {
				if err := j.Append(t.Context(), nodes.Event{At: start, Tick: fmt.Sprint("t", n), Seq: k}); err != nil {
					t.Error(err)
				}
			}
		})
	}
	wg.Wait()
	_, j := open(t)
	seen := map[string]int{}
	for e, err := range j.Read(t.Context(), nodes.Query{}) {
		if err != nil {
			t.Fatal(err)
		}
		seen[e.Key()]++
	}
	if len(seen) != Writers*each {
		t.Errorf("%d different events, want %d", len(seen), Writers*each)
	}
	for k, n := range seen {
		if n != 1 {
			t.Errorf("%s is there %d times", k, n)
		}
	}
}

func eventLogQuery(t *testing.T, open Open) {
	_, j := open(t)
	for n := range 10 {
		e := nodes.Event{At: start.Add(time.Duration(n) * time.Minute), Tick: fmt.Sprint("t", n%2), Seq: n, Kind: fmt.Sprint("k", n%5), ActionID: fmt.Sprint("a", n%3)}
		if err := j.Append(t.Context(), e); err != nil {
			t.Fatal(err)
		}
	}
	for _, c := range []struct {
		q    nodes.Query
		want []int
	}{
		{nodes.Query{Since: start.Add(8 * time.Minute)}, []int{8, 9}},
		{nodes.Query{Until: start.Add(2 * time.Minute)}, []int{0, 1}},
		{nodes.Query{Tick: "t1"}, []int{1, 3, 5, 7, 9}},
		{nodes.Query{Kind: "k2"}, []int{2, 7}},
		{nodes.Query{ActionID: "a0", Limit: 2}, []int{6, 9}},
		{nodes.Query{Limit: 3}, []int{7, 8, 9}},
	} {
		if got := seqs(t, j, c.q); !slices.Equal(got, c.want) {
			t.Errorf("%+v: got %v, want %v", c.q, got, c.want)
		}
	}
}

func eventLogTimes(t *testing.T, open Open) {
	_, j := open(t)
	midnight := time.Date(2024, 10, 28, 0, 0, 0, 0, time.UTC)
	at := []time.Duration{-25 * time.Hour, -time.Millisecond, 0, 300 * time.Microsecond, 600 * time.Microsecond, time.Hour, 49 * time.Hour}
	for n, d := range at {
		zone := time.FixedZone("away", (n-3)*3*3600) // what an event's time zone is does not matter
		if err := j.Append(t.Context(), nodes.Event{At: midnight.Add(d).In(zone), Tick: "t", Seq: n}); err != nil {
			t.Fatal(err)
		}
	}
	for _, c := range []struct {
		q    nodes.Query
		want []int
	}{
		{nodes.Query{}, []int{0, 1, 2, 3, 4, 5, 6}},
		{nodes.Query{Since: midnight}, []int{2, 3, 4, 5, 6}},
		{nodes.Query{Until: midnight}, []int{0, 1}},
		{nodes.Query{Since: midnight.Add(200 * time.Microsecond), Until: midnight.Add(600 * time.Microsecond)}, []int{3}},
		{nodes.Query{Since: midnight.Add(-24 * time.Hour), Until: midnight.Add(48 * time.Hour)}, []int{1, 2, 3, 4, 5}},
		{nodes.Query{Until: midnight.Add(48 * time.Hour), Limit: 5}, []int{1, 2, 3, 4, 5}},
		{nodes.Query{Limit: 6}, []int{1, 2, 3, 4, 5, 6}},
		{nodes.Query{Since: midnight.Add(50 * time.Hour)}, nil},
	} {
		if got := seqs(t, j, c.q); !slices.Equal(got, c.want) {
			t.Errorf("%+v: got %v, want %v", c.q, got, c.want)
		}
	}
}

// eventLogLarge appends events up to some megabytes, of content that can't be compressed and of content that can.
func eventLogLarge(t *testing.T, open Open) {
	_, a := open(t)
	_, b := open(t)
	var want []nodes.Event
	for n, size := range []int{0, 3_000, 5_000, 390_000, 520_000, 1_200_000} {
		for k, data := range []string{noise(size), strings.Repeat("pod ", size/4)} {
			raw, err := json.Marshal(map[string]string{"data": data})
			if err != nil {
				t.Fatal(err)
			}
			e := nodes.Event{At: start.Add(time.Duration(n) * time.Second), Tick: "t", Seq: k, Kind: fmt.Sprint("k", n), ActionID: "a", Instance: "i-1", Data: raw}
			if k == 1 {
				e.Message = strings.Repeat("m\u00f6", size/100)
			}
			for range 1 + k { // those that can't be compressed once
				if err := a.Append(t.Context(), e); err != nil {
					t.Fatal(err)
				}
			}
			want = append(want, e)
		}
	}
	var got []nodes.Event
	for e, err := range b.Read(t.Context(), nodes.Query{}) {
		if err != nil {
			t.Fatal(err)
		}
		got = append(got, e)
	}
	same := func(a, b nodes.Event) bool {
		return a.Key() == b.Key() && a.At.Equal(b.At) && a.Kind == b.Kind && a.ActionID == b.ActionID && a.Instance == b.Instance &&
			a.Message == b.Message && bytes.Equal(a.Data, b.Data)
	}
	if !slices.EqualFunc(got, want, same) {
		t.Errorf("%d events came back of %d, or not as they were", len(got), len(want))
	}
	if got := seqs(t, b, nodes.Query{Kind: "k5", Limit: 1}); !slices.Equal(got, []int{1}) {
		t.Errorf("the newest large one: got %v", got)
	}
}

// noise is text that can't be compressed much, the same in every run.
func noise(size int) string {
	b := make([]byte, size*3/4)
	_, _ = rand.NewChaCha8([32]byte{byte(size), byte(size >> 8), byte(size >> 16)}).Read(b) // never fails
	return base64.StdEncoding.EncodeToString(b)
}

// eventLogMany appends more than a server returns in one answer.
func eventLogMany(t *testing.T, open Open) {
	_, j := open(t)
	const n = 90
	raw, err := json.Marshal(noise(24_000))
	if err != nil {
		t.Fatal(err)
	}
	var all []int
	for k := range n {
		e := nodes.Event{At: start.Add(time.Duration(k) * time.Minute), Tick: "t", Seq: k, Kind: fmt.Sprint("k", k%10), Data: raw}
		if err := j.Append(t.Context(), e); err != nil {
			t.Fatal(err)
		}
		all = append(all, k)
	}
	for _, c := range []struct {
		q    nodes.Query
		want []int
	}{
		{nodes.Query{}, all},
		{nodes.Query{Limit: 75}, all[15:]},
		{nodes.Query{Kind: "k7"}, []int{7, 17, 27, 37, 47, 57, 67, 77, 87}},
		{nodes.Query{Kind: "k7", Limit: 2, Until: start.Add(80 * time.Minute)}, []int{67, 77}},
	} {
		if got := seqs(t, j, c.q); !slices.Equal(got, c.want) {
			t.Errorf("%+v: got %v, want %v", c.q, got, c.want)
		}
	}
	read := 0
	for _, err := range j.Read(t.Context(), nodes.Query{}) {
		if err != nil {
			t.Fatal(err)
		}
		if read++; read == 3 {
			break // a reader may stop when it has enough
		}
	}
}

func eventLogFirst(t *testing.T, open Open) {
	_, a := open(t)
	_, b := open(t)
	for n, size := range []int{12, 560_000} {
		for k, j := range []nodes.EventLog{a, b} {
			raw, err := json.Marshal(fmt.Sprint(k, noise(size+4*k)))
			if err != nil {
				t.Fatal(err)
			}
			if err := j.Append(t.Context(), nodes.Event{At: start, Tick: "t", Seq: n, Message: fmt.Sprint("by ", k), Data: raw}); err != nil {
				t.Fatal(err)
			}
		}
	}
	for e, err := range a.Read(t.Context(), nodes.Query{}) {
		if err != nil || e.Message != "by 0" || !bytes.HasPrefix(e.Data, []byte(`"0`)) {
			t.Errorf("event %d: %q, %.10s, %v", e.Seq, e.Message, e.Data, err)
		}
	}
}

func seqs(t *testing.T, j nodes.EventLog, q nodes.Query) []int {
	t.Helper()
	var got []int
	for e, err := range j.Read(t.Context(), q) {
		if err != nil {
			t.Fatal(err)
		}
		got = append(got, e.Seq)
	}
	return got
}

// lease takes the lease as "me" and returns its fence.
func lease(t *testing.T, open Open) int64 {
	s, _ := open(t)
	return must(t, s, nodes.AcquireLease{Owner: "me", Now: start, TTL: time.Minute}).LeaseFence
}

func must(t *testing.T, s nodes.Store, tr nodes.Transition) nodes.Record {
	t.Helper()
	r, err := s.Apply(t.Context(), tr)
	if err != nil {
		t.Fatalf("%s: %v", tr.Name(), err)
	}
	return r
}

// race lets Writers handles call f at the same time and returns how many succeeded; the others must have failed with lost.
func race(t *testing.T, open Open, f func(n int, s nodes.Store) error, lost error) int {
	t.Helper()
	var wg sync.WaitGroup
	errs := make([]error, Writers)
	ready := make(chan struct{})
	for n := range Writers {
		s, _ := open(t)
		wg.Go(func() {
			<-ready
			errs[n] = f(n, s)
		})
	}
	close(ready)
	wg.Wait()
	wins := 0
	for n, err := range errs {
		switch {
		case err == nil:
			wins++
		case lost == nil || !errors.Is(err, lost):
			t.Errorf("writer %d: %v", n, err)
		}
	}
	return wins
}
