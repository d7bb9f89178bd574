package sim_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/muster-dev/muster/nodes"
	"github.com/muster-dev/muster/nodes/sim"
	"github.com/muster-dev/muster/nodes/storetest"
)

func TestConformance(t *testing.T) {
	storetest.Run(t, func(*testing.T) storetest.Open {
		w := sim.New(sim.Options{Policy: nodes.DefaultPolicy()})
		return func(*testing.T) (nodes.Store, nodes.EventLog) {
			c := w.Client("A", nil)
			return c, c
		}
	})
}

func simulator(workers ...string) (*sim.Simulator, *sim.Client) {
	w := sim.New(sim.Options{Policy: nodes.DefaultPolicy(), Workers: workers, Visible: 5 * time.Second, Boot: time.Minute})
	return w, w.Client("A", nil)
}

func request(token, zone, typ string, m nodes.Market) nodes.LaunchRequest {
	return nodes.LaunchRequest{Token: token, ActionID: "a", Offering: nodes.Offering{Zone: zone, Subnet: "subnet-" + zone, Type: typ, Market: m}}
}

func kindOf(err error) nodes.LaunchFailure {
	var le *nodes.LaunchError
	if errors.As(err, &le) {
		return le.Kind
	}
	return ""
}

func launch(t *testing.T, c *sim.Client, r nodes.LaunchRequest) nodes.Instance {
	t.Helper()
	in, err := c.Launch(t.Context(), r)
	if err != nil {
		t.Fatal(err)
	}
	return in
}

func TestATokenIsIdempotentWithinItsZone(t *testing.T) {
	_, c := simulator()
	first := launch(t, c, request("t", "a", "m", nodes.Spot))
	if again := launch(t, c, request("t", "a", "m", nodes.Spot)); again.ID != first.ID {
		t.Errorf("the token started %s and %s", first.ID, again.ID)
	}
	if other := launch(t, c, request("t", "b", "m", nodes.Spot)); other.ID == first.ID {
		t.Error("in another zone the token is another one")
	}
	if other := launch(t, c, request("u", "a", "m", nodes.Spot)); other.ID == first.ID {
		t.Error("another token started no other instance")
	}
}

func TestATokenIsBoundToItsFirstRequestEvenIfThatWasRefused(t *testing.T) {
	w, c := simulator()
	w.AddShortage(sim.Shortage{Type: "m"})
	if _, err := c.Launch(t.Context(), request("t", "a", "m", nodes.Spot)); kindOf(err) != nodes.FailCapacity {
		t.Fatalf("got %v", err)
	}
	if _, err := c.Launch(t.Context(), request("t", "a", "n", nodes.Spot)); kindOf(err) != nodes.FailPermanent {
		t.Errorf("got %v, want a mismatch", err)
	}
}

func TestTheTokenOfAnEndedInstanceIsSpent(t *testing.T) {
	_, c := simulator()
	in := launch(t, c, request("t", "a", "m", nodes.Spot))
	for range 2 { // ending it twice is no error
		if err := c.Terminate(t.Context(), in.ID); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := c.Launch(t.Context(), request("t", "a", "m", nodes.Spot)); kindOf(err) != nodes.FailTokenSpent {
		t.Errorf("got %v", err)
	}
}

func TestShortagesMatchByWhatTheyName(t *testing.T) {
	w, c := simulator()
	w.AddShortage(sim.Shortage{Zone: "a", Market: nodes.Spot})
	w.AddShortage(sim.Shortage{Type: "x", Kind: nodes.FailQuota})
	w.AddShortage(sim.Shortage{Type: "y", Kind: nodes.FailThrottled, Until: w.Clock().Now().Add(time.Minute)})
	n := 0
	try := func(zone, typ string, m nodes.Market) nodes.LaunchFailure {
		n++
		_, err := c.Launch(t.Context(), request(fmt.Sprint(n), zone, typ, m))
		return kindOf(err)
	}
	for _, c := range []struct {
		zone, typ string
		market    nodes.Market
		want      nodes.LaunchFailure
	}{
		{"a", "m", nodes.Spot, nodes.FailCapacity}, {"a", "m", nodes.OnDemand, ""}, {"b", "m", nodes.Spot, ""},
		{"b", "x", nodes.Spot, nodes.FailQuota}, {"b", "y", nodes.Spot, nodes.FailThrottled},
	} {
		if got := try(c.zone, c.typ, c.market); got != c.want {
			t.Errorf("%s %s %s: %q, want %q", c.zone, c.typ, c.market, got, c.want)
		}
	}
	w.Advance(time.Minute)
	if got := try("b", "y", nodes.Spot); got != "" {
		t.Errorf("after its time the shortage still gives %q", got)
	}
}

func TestAnInstanceIsListedLateJoinsAndIsForgottenAnHourAfterItsEnd(t *testing.T) {
	w, c := simulator()
	in := launch(t, c, request("t", "a", "m", nodes.Spot))
	listed := func() (nodes.InstanceState, bool) {
		found, err := c.Lookup(t.Context(), []string{in.ID})
		if err != nil {
			t.Fatal(err)
		}
		x, ok := found[in.ID]
		return x.State, ok
	}
	if _, ok := listed(); ok {
		t.Error("listed at once")
	}
	w.Advance(6 * time.Second)
	if s, ok := listed(); !ok || s != nodes.StateRunning {
		t.Errorf("after its delay %s, %t", s, ok)
	}
	w.Advance(time.Minute)
	if f := w.Fleet(); f.Ready != 1 {
		t.Errorf("after its boot %+v", f)
	}
	if err := c.Terminate(t.Context(), in.ID); err != nil {
		t.Fatal(err)
	}
	if s, _ := listed(); s != nodes.StateShuttingDown {
		t.Errorf("just ended %s", s)
	}
	w.Advance(time.Minute)
	if s, _ := listed(); s != nodes.StateTerminated {
		t.Errorf("a minute later %s", s)
	}
	if f := w.Fleet(); f.StaleNodes != 1 {
		t.Errorf("its Node object went by itself: %+v", f)
	}
	w.Advance(time.Hour)
	if _, ok := listed(); ok {
		t.Error("listed more than an hour after its end")
	}
}

func TestACallAfterItsDeadlineHasNoEffect(t *testing.T) {
	w, c := simulator()
	ctx, cancel := w.Clock().WithDeadline(t.Context(), w.Clock().Now().Add(time.Second))
	defer cancel()
	w.Advance(2 * time.Second)
	if _, err := c.Launch(ctx, request("t", "a", "m", nodes.Spot)); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("got %v", err)
	}
	if f := w.Fleet(); f.Alive != 0 {
		t.Errorf("%+v", f)
	}
}

func TestADrainStopsAtItsTimeAndGoesOnWhenCalledAgain(t *testing.T) {
	w, c := simulator("a")
	w.AddPodOn("i-002", sim.PodSpec{Name: "slow", Grace: 20 * time.Second})
	w.AddPodOn("i-002", sim.PodSpec{Name: "svclb", Daemon: true, Critical: true})
	v, err := c.View(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	node := v.Nodes[1].NodeRef
	if err := c.Cordon(t.Context(), node, "me"); err != nil {
		t.Fatal(err)
	}
	for i, want := range []bool{false, true} {
		p, err := c.Drain(t.Context(), nodes.DrainRequest{Node: node, Until: w.Clock().Now().Add(15 * time.Second)})
		if err != nil || p.Done != want {
			t.Errorf("call %d: %+v, %v", i, p, err)
		}
	}
}

func TestACriticalPodAbortsADrainUnlessItIsPassedOver(t *testing.T) {
	w, c := simulator("a")
	w.AddPodOn("i-002", sim.PodSpec{Name: "critical", Critical: true})
	v, _ := c.View(t.Context())
	node := v.Nodes[1]
	if node.Blocker == "" {
		t.Error("the view does not tell")
	}
	until := w.Clock().Now().Add(10 * time.Second)
	if _, err := c.Drain(t.Context(), nodes.DrainRequest{Node: node.NodeRef, Until: until}); err == nil {
		t.Error("it was drained")
	} else if _, blocked := nodes.IsDrainBlocked(err); !blocked {
		t.Errorf("got %v", err)
	}
	if p, err := c.Drain(t.Context(), nodes.DrainRequest{Node: node.NodeRef, Until: until, SkipCritical: true}); err != nil || !p.Done {
		t.Errorf("got %+v, %v", p, err)
	}
}

func TestANodeIsRemovedOnlyWithItsUID(t *testing.T) {
	w, c := simulator("a")
	if err := c.Remove(t.Context(), nodes.NodeRef{Name: "i-002", UID: "another"}); err != nil {
		t.Fatal(err)
	}
	if f := w.Fleet(); f.Ready != 1 {
		t.Errorf("%+v", f)
	}
}

func TestAnUnreachablePartSaysSoAndHalfAListIsIncomplete(t *testing.T) {
	w, c := simulator("a", "b")
	w.Outage(sim.ClusterPart, 0, time.Minute)
	w.Partial(sim.CloudPart, 0, time.Minute)
	if _, err := c.View(t.Context()); !errors.Is(err, sim.ErrUnreachable) {
		t.Errorf("got %v", err)
	}
	var half *nodes.IncompleteError
	if list, err := c.Workers(t.Context()); !errors.As(err, &half) || len(list) == 0 {
		t.Errorf("got %d, %v", len(list), err)
	}
	w.Advance(2 * time.Minute)
	if _, err := c.View(t.Context()); err != nil {
		t.Error(err)
	}
}

func TestSignalsFollowThePodsAndTheirWindows(t *testing.T) {
	w, c := simulator("a", "b")
	read := func() nodes.Readings {
		r, err := c.Observe(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		return r
	}
	w.AddPods(5, sim.PodSpec{Name: "p", MilliCPU: 1000})
	if r := read(); r.CPU.Value != 1 || r.Pending.Value != 1 || r.CPUMin.Value != 0 || r.PendingMin.Value != 0 {
		t.Errorf("just arrived: %+v", r)
	}
	w.Advance(4 * time.Minute)
	if r := read(); r.CPUMin.Value != 1 || r.PendingMin.Value != 1 {
		t.Errorf("after the window: %+v", r)
	}
}

func Example() {
	w := sim.New(sim.Options{Policy: nodes.DefaultPolicy(), Workers: []string{"a"}})
	c := w.Client("me", nil)
	in, err := c.Launch(context.Background(), nodes.LaunchRequest{Token: "t", Offering: nodes.Offering{Zone: "b", Type: "m5.large", Market: nodes.Spot}})
	if err != nil {
		panic(err)
	}
	fmt.Println(in.ID, in.State, w.Fleet().Ready)
	w.Advance(2 * time.Minute)
	fmt.Println(w.Instance(in.ID).State, w.Fleet().Ready)
	// Output:
	// i-003 pending 1
	// running 2
}
