package servertest_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/muster-dev/muster/partition"
	"github.com/muster-dev/muster/partition/event"
	"github.com/muster-dev/muster/partition/partitiontest/await"
	"github.com/muster-dev/muster/partition/state"
)

func (g *group) look(t *testing.T) *partition.View {
	t.Helper()
	v, err := partition.Open(g.pub.Conn(), g.cfg.Name).Inspect(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return v
}

// weighed has every worker know 200 keys, one of which is heavy.
func weighed(c *partition.Config) {
	c.Rebalance.Weights = func(context.Context) (map[string]uint64, error) {
		out := make(map[string]uint64)
		for k := range 200 {
			out[fmt.Sprintf("a%d:b%d", k, k%3)] = uint64(1 + k%4)
		}
		return out, nil
	}
}

// What a preview says of a joining worker is what the leader plans when it comes, slot
// by slot.
func TestForecastIsWhatTheLeaderPlans(t *testing.T) {
	t.Parallel()
	g := startGroup(t, oneServer(t), time.Millisecond, weighed)
	a, b := g.start("a"), g.start("b")
	await.That(t, "two share", g.settled(a, b))
	var before *partition.View
	await.That(t, "the load is told", func() bool {
		before = g.look(t)
		return before.Report().Keys > 0 && before.Map().Settled()
	})
	f, err := before.Forecast(partition.WhatIf{Add: 1})
	if err != nil {
		t.Fatal(err)
	}
	if !slices.Equal(f.Reasons, []string{"scale-up"}) || len(f.Moves) == 0 {
		t.Fatalf("forecast %+v", f)
	}
	c := g.start("c")
	await.That(t, "three share", g.settled(a, b, c))
	after := g.look(t)
	moved := map[int]string{}
	for s := range before.Slots {
		if to := after.Map().OwnerOf(s); to != before.Map().OwnerOf(s) {
			moved[s] = to
		}
	}
	told := map[int]string{}
	for _, m := range f.Moves {
		told[m.Slot] = m.To
	}
	if !maps.Equal(moved, told) {
		t.Errorf("it moved %v, the preview said %v", moved, told)
	}
	if f.Version != after.Map().Version {
		t.Errorf("version %d, the preview said %d", after.Map().Version, f.Version)
	}
	keys := 0
	r := after.Report()
	for _, w := range r.Workers {
		keys += w.Keys
		if w.LeaseAge < 0 || w.LeaseAge > 6 || w.OverMean < 0.9 || w.OverMean > 1.1 {
			t.Errorf("%+v", w)
		}
	}
	if keys != 200 || r.Keys != 200 || r.State != state.Stable || len(r.Workers) != 3 {
		t.Errorf("report %+v", r)
	}
}

// An override moves its slot, outlives the leader that saw it first, and is told to be
// unkept when its worker goes.
func TestOverridesHold(t *testing.T) {
	t.Parallel()
	g := startGroup(t, oneServer(t), time.Millisecond, nil)
	a, b, c := g.start("a"), g.start("b"), g.start("c")
	await.That(t, "three share", g.settled(a, b, c))
	v := g.look(t)
	key := "a1:b1"
	from := v.Key(key).Owner
	ws := map[string]*runningWorker{a.Status().ID: a, b.Status().ID: b, c.Status().ID: c}
	leader := ws[v.Leader]
	var to string
	for id, w := range ws {
		if id != from && w != leader {
			to = id
		}
	}
	if err := partition.Open(g.pub.Conn(), g.cfg.Name).Override(t.Context(), partition.Override{Key: key, Worker: to}); err != nil {
		t.Fatal(err)
	}
	kept := func() bool {
		v := g.look(t)
		r := v.Report()
		return len(r.Overrides) == 1 && r.Overrides[0].Kept && v.Key(key).Owner == to && v.Key(key).Next == ""
	}
	await.That(t, "the override is kept", kept)
	leader.stop()
	await.That(t, "another leads", func() bool {
		v := g.look(t)
		return v.Leader != "" && ws[v.Leader] != leader && v.State() == state.Stable
	})
	if !kept() {
		t.Errorf("under another leader: %+v", g.look(t).Report().Overrides)
	}
	ws[to].stop()
	await.That(t, "the override is not kept", func() bool {
		r := g.look(t).Report()
		return !r.Overrides[0].Kept && r.Overrides[0].Why == "the worker is not there" && r.Overrides[0].Owner != "" && r.Overrides[0].Owner != to
	})
	slot := v.Key(key).Slot
	if err := partition.Open(g.pub.Conn(), g.cfg.Name).RemoveOverrides(t.Context(), slot, (slot+1)%g.cfg.Slots); !errors.Is(err, partition.ErrNotOverridden) {
		t.Errorf("removing an override that is not there: %v", err)
	}
	if err := partition.Open(g.pub.Conn(), g.cfg.Name).RemoveOverrides(t.Context(), slot); err != nil {
		t.Fatal(err)
	}
	if overrides, err := partition.Open(g.pub.Conn(), g.cfg.Name).Overrides(t.Context()); err != nil || len(overrides) != 0 {
		t.Errorf("left are %v, %v", overrides, err)
	}
}

func TestOverridesThatMeanNothingAreRejectedAltogether(t *testing.T) {
	t.Parallel()
	g := startGroup(t, oneServer(t), time.Millisecond, nil)
	err := partition.Open(g.pub.Conn(), g.cfg.Name).Override(t.Context(), partition.Override{Slot: 64, Worker: "worker-0"}, partition.Override{Slot: 3}, partition.Override{Slot: 1, Worker: "worker-0"})
	for _, want := range []string{"slot 64", "slot 3"} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v does not say %q", err, want)
		}
	}
	if overrides, err := partition.Open(g.pub.Conn(), g.cfg.Name).Overrides(t.Context()); err != nil || len(overrides) != 0 {
		t.Errorf("overridden are %v, %v", overrides, err)
	}
}

// Events are kept: who comes later reads them, by kind and worker, and who
// follows gets those that come.
func TestEventsAreKept(t *testing.T) {
	t.Parallel()
	g := startGroup(t, oneServer(t), time.Millisecond, nil)
	begun := time.Now()
	a, b := g.start("a"), g.start("b")
	await.That(t, "two share", g.settled(a, b))
	read := func(q event.Query) []event.Event {
		var out []event.Event
		if err := partition.Open(g.pub.Conn(), g.cfg.Name).Events(t.Context(), q, func(e event.Event) error { out = append(out, e); return nil }); err != nil {
			t.Fatal(err)
		}
		return out
	}
	await.That(t, "a plan is kept", func() bool {
		return len(read(event.Query{Kinds: []event.Kind{event.Planned}})) == 1
	})
	if joins := read(event.Query{Kinds: []event.Kind{event.WorkerJoined}, Since: begun.Add(-time.Minute)}); len(joins) != 2 {
		t.Errorf("joins: %+v", joins)
	}
	if none := read(event.Query{Since: time.Now().Add(time.Hour)}); len(none) != 0 {
		t.Errorf("of the future: %+v", none)
	}
	for _, e := range read(event.Query{Slot: 5, BySlot: true}) {
		if e.Slot != 5 || !e.Kind.OfSlot() {
			t.Errorf("not of slot 5: %+v", e)
		}
	}
	if all := read(event.Query{}); len(all) < 10 {
		t.Errorf("%d events", len(all))
	}
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	told := false
	go b.stop()
	err := partition.Open(g.pub.Conn(), g.cfg.Name).Events(ctx, event.Query{Follow: true, Kinds: []event.Kind{event.Left}}, func(event.Event) error {
		told = true
		cancel()
		return nil
	})
	if err != nil || !told {
		t.Errorf("following: told %v, %v", told, err)
	}
}

// Who waits for a name is told, as long as it waits.
func TestStandbysAreTold(t *testing.T) {
	t.Parallel()
	g := startGroup(t, oneServer(t), time.Millisecond, nil)
	if err := partition.Open(g.pub.Conn(), g.cfg.Name).Expect(t.Context(), 1); err != nil {
		t.Fatal(err)
	}
	a := g.start("a")
	await.That(t, "one has all", g.settled(a))
	g.cfg.Identity.Pod, g.cfg.Identity.Zone = "pod-b", "z2"
	g.start("b")
	await.That(t, "a standby answers", func() bool {
		s := g.look(t).Standbys
		return len(s) == 1 && s[0].Pod == "pod-b" && s[0].Zone == "z2"
	})
	if err := partition.Open(g.pub.Conn(), g.cfg.Name).Expect(t.Context(), 2); err != nil {
		t.Fatal(err)
	}
	await.That(t, "it is no standby any more", func() bool { v := g.look(t); return len(v.Standbys) == 0 && len(v.Leases) == 2 })
}

func TestLookingAtNoGroupSaysSo(t *testing.T) {
	t.Parallel()
	g := startGroup(t, oneServer(t), time.Millisecond, nil)
	_, err := partition.Open(g.pub.Conn(), "nobody").Inspect(t.Context())
	if err == nil || !strings.Contains(err.Error(), "is there a group of this name") {
		t.Errorf("%v", err)
	}
	err = partition.Open(g.pub.Conn(), "nobody").Events(t.Context(), event.Query{}, nil)
	if err == nil || !strings.Contains(err.Error(), "is there a group of this name") {
		t.Errorf("%v", err)
	}
}
