package ec2_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/muster-dev/muster/nodes"
	"github.com/muster-dev/muster/nodes/sim"
)

// The same behaviour is asked of the simulated cloud as package nodes' own tests use it and of the adapter over the wire. What the
// crash-point harness proves with the one then holds for the other.
func TestConformance(t *testing.T) {
	for _, via := range []string{"direct", "wire"} {
		t.Run(via, func(t *testing.T) {
			for _, c := range conformance {
				t.Run(c.name, func(t *testing.T) {
					t.Parallel()
					r := open(t, func(s *setup) { s.sim.Workers = c.workers; s.api.PageSize = 5 })
					cloud := nodes.Cloud(r.cloud)
					if via == "direct" {
						cloud = r.w.Client("A", nil)
					}
					c.run(t, r.w, cloud)
				})
			}
		})
	}
}

var conformance = []struct {
	name    string
	workers []string
	run     func(*testing.T, *sim.Simulator, nodes.Cloud)
}{
	{"a list has every instance, servers marked, instances of others are foreign", slices.Repeat([]string{"a", "b"}, 6), func(t *testing.T, w *sim.Simulator, c nodes.Cloud) {
		list, err := c.Workers(t.Context())
		if err != nil || len(list) != 13 {
			t.Fatalf("%d instances, %v", len(list), err)
		}
		for i, in := range list {
			if want := w.Instance(in.ID); in != want || in.ControlPlane != (i == 0) || in.Foreign {
				t.Errorf("listed %+v\nit is  %+v", in, want)
			}
		}
	}},
	{"a launch gives a pending instance with its action", nil, func(t *testing.T, w *sim.Simulator, c nodes.Cloud) {
		in := launch(t, c, request("t", "b", "m5.large", nodes.Spot))
		if in != w.Instance(in.ID) || in.State != nodes.StatePending || in.ActionID != "action" || in.Market != nodes.Spot || in.Zone != "b" || in.Type != "m5.large" {
			t.Errorf("%+v", in)
		}
		if od := launch(t, c, request("u", "a", "m5.large", nodes.OnDemand)); od.Market != nodes.OnDemand {
			t.Errorf("%+v", od)
		}
	}},
	{"a token gives the same instance again", nil, func(t *testing.T, _ *sim.Simulator, c nodes.Cloud) {
		first, again := launch(t, c, request("t", "a", "m", nodes.Spot)), launch(t, c, request("t", "a", "m", nodes.Spot))
		other, zone := launch(t, c, request("u", "a", "m", nodes.Spot)), launch(t, c, request("t", "b", "m", nodes.Spot))
		if first.ID != again.ID || other.ID == first.ID || zone.ID == first.ID || zone.ID == other.ID {
			t.Errorf("%s, again %s, other token %s, other zone %s", first.ID, again.ID, other.ID, zone.ID)
		}
	}},
	{"a token with another request is refused for good", nil, func(t *testing.T, w *sim.Simulator, c nodes.Cloud) {
		launch(t, c, request("t", "a", "m", nodes.Spot))
		for name, change := range map[string]func(*nodes.LaunchRequest){
			"type": func(r *nodes.LaunchRequest) { r.Offering.Type = "n" }, "market": func(r *nodes.LaunchRequest) { r.Offering.Market = nodes.OnDemand },
			"version": func(r *nodes.LaunchRequest) { r.Template.Version = "8" }, "action": func(r *nodes.LaunchRequest) { r.ActionID = "b" },
			"user data": func(r *nodes.LaunchRequest) { r.Template.UserDataRef += "&version=v1.36.3%2Bk3s1" },
			"groups":    func(r *nodes.LaunchRequest) { r.Template.SecurityGroups = "sg-1,sg-2" },
			"role":      func(r *nodes.LaunchRequest) { r.Template.InstanceProfile = "p" },
			"ordinal":   func(r *nodes.LaunchRequest) { r.Ordinal = 1 },
		} {
			other := request("t", "a", "m", nodes.Spot)
			change(&other)
			if _, err := c.Launch(t.Context(), other); kindOf(err) != nodes.FailPermanent {
				t.Errorf("another %s: %v", name, err)
			}
		}
		if n := len(entries(w, sim.TokenMismatch)); n != 8 {
			t.Errorf("%d mismatches", n)
		}
	}},
	{"the token of an ended instance is spent", nil, func(t *testing.T, w *sim.Simulator, c nodes.Cloud) {
		in := launch(t, c, request("t", "a", "m", nodes.Spot))
		w.Advance(10 * time.Second)
		for range 2 {
			if err := c.Terminate(t.Context(), in.ID); err != nil {
				t.Fatal(err)
			}
		}
		if _, err := c.Launch(t.Context(), request("t", "a", "m", nodes.Spot)); kindOf(err) != nodes.FailTokenSpent {
			t.Errorf("got %v", err)
		}
		if s := w.Instance(in.ID).State; s != nodes.StateShuttingDown {
			t.Errorf("it is %s", s)
		}
	}},
	{"every kind of refusal keeps its meaning", nil, func(t *testing.T, w *sim.Simulator, c nodes.Cloud) {
		for i, kind := range []nodes.LaunchFailure{nodes.FailCapacity, nodes.FailQuota, nodes.FailAddresses, nodes.FailSpotRole, nodes.FailThrottled} {
			for _, m := range []nodes.Market{nodes.Spot, nodes.OnDemand} {
				typ := fmt.Sprintf("m%d.large", i)
				w.AddShortage(sim.Shortage{Type: typ, Kind: kind})
				if _, err := c.Launch(t.Context(), request(typ+string(m), "a", typ, m)); kindOf(err) != kind {
					t.Errorf("%s, %s: %v", kind, m, err)
				}
			}
		}
		if n := w.Fleet().Alive; n != 0 {
			t.Errorf("%d instances", n)
		}
	}},
	{"a new instance is listed late and an ended one for an hour", nil, func(t *testing.T, w *sim.Simulator, c nodes.Cloud) {
		in := launch(t, c, request("t", "a", "m", nodes.Spot))
		state := func() nodes.InstanceState {
			found, err := c.Lookup(t.Context(), []string{in.ID, "i-fff"})
			if err != nil || found["i-fff"].ID != "" {
				t.Fatal(found, err)
			}
			return found[in.ID].State
		}
		for _, step := range []struct {
			after time.Duration
			want  nodes.InstanceState
		}{{0, ""}, {6 * time.Second, nodes.StateRunning}} {
			if w.Advance(step.after); state() != step.want {
				t.Errorf("after %s: %q", step.after, state())
			}
		}
		if err := c.Terminate(t.Context(), in.ID); err != nil || state() != nodes.StateShuttingDown {
			t.Error(err, state())
		}
		if w.Advance(time.Minute); state() != nodes.StateTerminated {
			t.Error(state())
		}
		if w.Advance(time.Hour); state() != "" {
			t.Error(state())
		}
		if err := c.Terminate(t.Context(), in.ID); err != nil {
			t.Errorf("ending one that is forgotten: %v", err)
		}
	}},
	{"subnets have their zones", nil, func(t *testing.T, _ *sim.Simulator, c nodes.Cloud) {
		list, err := c.Subnets(t.Context())
		if want := []nodes.Subnet{{ID: "subnet-a", Zone: "a"}, {ID: "subnet-b", Zone: "b"}}; err != nil || !slices.Equal(list, want) {
			t.Errorf("%v, %v", list, err)
		}
	}},
	{"a diagnosis has state and console", []string{"a"}, func(t *testing.T, _ *sim.Simulator, c nodes.Cloud) {
		if d, err := c.Diagnose(t.Context(), "i-002"); err != nil || d.State != nodes.StateRunning || d.Console != "boot of i-002" {
			t.Errorf("%+v, %v", d, err)
		}
	}},
	{"half a list says so", slices.Repeat([]string{"a"}, 11), func(t *testing.T, w *sim.Simulator, c nodes.Cloud) {
		w.Partial(sim.CloudPart, 0, time.Minute)
		list, err := c.Workers(t.Context())
		var half *nodes.IncompleteError
		if !errors.As(err, &half) || len(list) != 6 {
			t.Errorf("%d, %v", len(list), err)
		}
	}},
	{"an outage is an error and no refusal", []string{"a"}, func(t *testing.T, w *sim.Simulator, c nodes.Cloud) {
		w.Outage(sim.CloudPart, 0, time.Minute)
		if _, err := c.Workers(t.Context()); err == nil {
			t.Error("listed")
		}
		if _, err := c.Launch(t.Context(), request("t", "a", "m", nodes.Spot)); err == nil || kindOf(err) != "" {
			t.Errorf("launched: %v", err)
		}
		if err := c.Terminate(t.Context(), "i-002"); err == nil {
			t.Error("terminated")
		}
	}},
	{"nothing happens after the deadline", []string{"a"}, func(t *testing.T, w *sim.Simulator, c nodes.Cloud) {
		ctx, cancel := w.Clock().WithDeadline(t.Context(), w.Clock().Now().Add(time.Second))
		defer cancel()
		w.Advance(2 * time.Second)
		_, err := c.Launch(ctx, request("t", "a", "m", nodes.Spot))
		if !errors.Is(err, context.DeadlineExceeded) || kindOf(err) != "" {
			t.Errorf("launching: %v", err)
		}
		if err := c.Terminate(ctx, "i-002"); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("terminating: %v", err)
		}
		if f := w.Fleet(); f.Alive != 1 {
			t.Errorf("%+v", f)
		}
	}},
}

func launch(t *testing.T, c nodes.Cloud, r nodes.LaunchRequest) nodes.Instance {
	t.Helper()
	in, err := c.Launch(t.Context(), r)
	if err != nil {
		t.Fatal(err)
	}
	return in
}

func entries(w *sim.Simulator, kind sim.Kind) []sim.Entry {
	return slices.DeleteFunc(slices.Clone(w.Ledger()), func(e sim.Entry) bool { return e.Kind != kind })
}
