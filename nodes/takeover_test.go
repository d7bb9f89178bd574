package nodes_test

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

// dies is a process that is killed right before its n-th call of that name.
type dies struct {
	call string
	n    int
	seen int
}

func (d *dies) Before(call string) error {
	if call == d.call {
		if d.seen++; d.seen == d.n {
			panic(errCrashed)
		}
	}
	return nil
}

func (*dies) After(_ string, err error) error { return err }

// starts returns a new process on the same simulator.
func (s *set) starts(t *testing.T, actor string, hook sim.Hook, change func(*nodes.Config)) *nodes.Reconciler {
	t.Helper()
	c := s.Client(actor, hook)
	config := s.config
	config.Signals, config.Cloud, config.Cluster, config.Store, config.EventLog, config.WorkerPlane = c, c, c, c, c, c
	if change != nil {
		change(&config)
	}
	r, err := nodes.New(config)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// killed runs f and reports whether its process was killed.
func killed(f func()) (dead bool) {
	defer func() {
		if v := recover(); v != nil {
			if err, ok := v.(error); !ok || !errors.Is(err, errCrashed) {
				panic(v)
			}
			dead = true
		}
	}()
	f()
	return false
}

// TestACrashDuringAWarning measures how much of a warning's two minutes a crash costs: from the death to the first eviction by the
// process that comes next. The evicted pod's grace is long, so that every second counts.
func TestACrashDuringAWarning(t *testing.T) {
	for _, tt := range []struct {
		name        string
		first, next string // who they say they are
		most        time.Duration
	}{
		{"the same daemon, restarted", "host:9808", "host:9808", time.Second},
		{"another process", "host:9808", "other:9808", 5 * time.Second},
		{"processes without a name", "", "", 5 * time.Second},
	} {
		for _, call := range []struct {
			name string
			n    int
		}{{"cluster.Drain", 1}, {"cluster.Drain", 3}, {"cloud.Launch", 1}, {"store.renewClaim", 1}, {"store.planInterruption", 1}} {
			t.Run(fmt.Sprintf("%s/killed at %s %d", tt.name, call.name, call.n), func(t *testing.T) {
				s := newSet(t, "ab", nil)
				for i := range 3 {
					s.AddPodOn(w1, sim.PodSpec{Name: fmt.Sprint("p", i), MilliCPU: 100, Grace: 30 * time.Second})
				}
				s.Advance(time.Minute)
				e := s.Announce(nodes.Warning, w1)
				first := s.starts(t, "A", &dies{call: call.name, n: call.n}, func(c *nodes.Config) { c.Holder = tt.first })
				if !killed(func() { _ = first.Interrupt(t.Context(), e) }) {
					t.Fatal("it was not killed")
				}
				died := s.Clock().Now()
				next := s.starts(t, "B", nil, func(c *nodes.Config) { c.Holder = tt.next })
				if _, err := next.Tick(t.Context()); err != nil {
					t.Fatal(err)
				}
				resumed := slices.IndexFunc(s.Ledger(), func(e sim.Entry) bool {
					return e.Kind == sim.WrittenItem && e.Actor == "B" && e.At.After(died) && e.Detail == "claimInterruption"
				})
				if resumed < 0 {
					t.Fatal("no worker resumed it")
				}
				if lost := s.Ledger()[resumed].At.Sub(died); lost > tt.most {
					t.Errorf("%s of the two minutes were lost, at most %s may be", lost, tt.most)
				}
				if n := s.count(sim.Lost); n > 0 {
					t.Errorf("pods were lost %d times", n)
				}
				launches := 0
				for _, e := range s.Ledger() {
					if e.Kind == sim.Launched && e.Request.ActionID == "int-"+w1 {
						launches++
					}
				}
				if launches != 1 {
					t.Errorf("%d replacements", launches)
				}
			})
		}
	}
}

// TestAClaimThatIsRenewedIsNotTaken: a tick beside a worker that is alive leaves the interruption to it, and does not wait long to
// find that out.
func TestAClaimThatIsRenewedIsNotTaken(t *testing.T) {
	s := newSet(t, "ab", nil)
	e := s.Announce(nodes.Warning, w1)
	c := s.Client("somebody", nil)
	if _, err := c.ApplyInterruption(t.Context(), w1, nodes.OpenInterruption{Event: e, Now: s.Clock().Now()}); err != nil {
		t.Fatal(err)
	}
	i, err := c.ApplyInterruption(t.Context(), w1, nodes.ClaimInterruption{Owner: "alive", Holder: "h", Process: "p1", Now: s.Clock().Now(), TTL: 9 * time.Second})
	if err != nil {
		t.Fatal(err)
	}
	keeper := &renews{s: s, i: i}
	r := s.starts(t, "B", keeper, func(c *nodes.Config) { c.Holder = "other" })
	began := s.Clock().Now()
	if _, err := r.Tick(t.Context()); err != nil {
		t.Fatal(err)
	}
	if took := s.Clock().Now().Sub(began); took > 6*time.Second {
		t.Errorf("the tick took %s", took)
	}
	open, err := c.OpenInterruptions(t.Context())
	if err != nil || len(open) != 1 || open[0].Owner != "alive" {
		t.Errorf("%+v, %v", open, err)
	}
}

// renews keeps another process's claim alive while this one calls.
type renews struct {
	s  *set
	i  nodes.Interruption
	in bool
}

func (k *renews) Before(string) error {
	if k.in {
		return nil
	}
	k.in = true
	defer func() { k.in = false }()
	until := k.s.Clock().Now().Add(9 * time.Second).Unix()
	_, err := k.s.Client("somebody", nil).ApplyInterruption(context.Background(), k.i.InstanceID,
		nodes.InterruptionStep{Step: "renewClaim", Owner: "alive", Fence: k.i.Fence, Change: func(i *nodes.Interruption) { i.UntilEpoch = until }})
	return err
}

func (*renews) After(_ string, err error) error { return err }

// TestAWarningsClaimIsCheap counts what renewing a claim writes to the store while a node is drained.
func TestAWarningsClaimIsCheap(t *testing.T) {
	s := newSet(t, "ab", nil)
	s.AddPodOn(w1, sim.PodSpec{Name: "slow", MilliCPU: 100, Grace: 60 * time.Second})
	e := s.Announce(nodes.Warning, w1)
	if err := s.starts(t, "A", nil, nil).Interrupt(t.Context(), e); err != nil {
		t.Fatal(err)
	}
	renewed := 0
	for _, w := range s.Ledger() {
		if w.Kind == sim.WrittenItem && w.Detail == "renewClaim" && w.At.Sub(e.At) < time.Minute {
			renewed++
		}
	}
	t.Logf("%d renewals in the minute of the drain", renewed)
	if renewed < 20 || renewed > 60 {
		t.Errorf("%d renewals in a minute: one every 1 to 3 s is due", renewed)
	}
}

// stalls is a process that hangs at a call for a while, during which another one runs.
type stalls struct {
	call string
	then func()
	done bool
}

func (h *stalls) Before(call string) error {
	if call == h.call && !h.done {
		h.done = true
		h.then()
	}
	return nil
}

func (*stalls) After(_ string, err error) error { return err }

// TestASlowWorkerLosesItsClaim: it is taken for dead, its call arrives after another worker has finished the same, and nothing is done
// twice.
func TestASlowWorkerLosesItsClaim(t *testing.T) {
	for _, call := range []string{"cloud.Launch", "cluster.Drain", "store.recordReplacement", "store.intendReplacement", "cluster.Cordon"} {
		t.Run("slow at "+call, func(t *testing.T) {
			s := newSet(t, "ab", nil)
			s.AddPodOn(w1, sim.PodSpec{Name: "p", MilliCPU: 100, Grace: 20 * time.Second})
			e := s.Announce(nodes.Warning, w1)
			other := s.starts(t, "B", nil, func(c *nodes.Config) { c.Holder = "other" })
			slow := &stalls{call: call, then: func() {
				began := s.Clock().Now()
				if _, err := other.Tick(t.Context()); err != nil {
					t.Error(err)
				}
				taken := slices.IndexFunc(s.Ledger(), func(e sim.Entry) bool {
					return e.Kind == sim.WrittenItem && e.Actor == "B" && e.Detail == "claimInterruption" && e.At.Sub(began) < 5*time.Second
				})
				if taken < 0 {
					t.Error("the other worker did not take the claim within 5 s")
				}
			}}
			_ = s.starts(t, "A", slow, func(c *nodes.Config) { c.Holder = "slow" }).Interrupt(t.Context(), e)
			launches, late := 0, 0
			taken := false
			for _, e := range s.Ledger() {
				taken = taken || e.Kind == sim.WrittenItem && e.Actor == "B" && e.Detail == "claimInterruption"
				if e.Kind == sim.Launched {
					launches++
				}
				if taken && e.Kind == sim.WrittenItem && e.Actor == "A" && e.Detail != "claimInterruption" && e.Detail != "releaseClaim" {
					late++
				}
			}
			if launches != 1 || s.count(sim.Lost) > 0 {
				t.Errorf("%d instances launched, %d times pods lost", launches, s.count(sim.Lost))
			}
			if late > 0 && !closedBy(s, "A") {
				t.Errorf("the slow worker wrote %d facts under a claim that it had lost", late)
			}
		})
	}
}

// closedBy reports whether a process has claimed the interruption again after another one released it.
func closedBy(s *set, actor string) bool {
	claims := 0
	for _, e := range s.Ledger() {
		if e.Kind == sim.WrittenItem && e.Actor == actor && e.Detail == "claimInterruption" {
			claims++
		}
	}
	return claims > 1
}

// TestClaimsOfFormerProcesses: only a claim of an earlier process of the same holder, or of an owner that writes nothing, is taken
// before its time.
func TestClaimsOfFormerProcesses(t *testing.T) {
	now := time.Unix(1000, 0)
	held := nodes.Interruption{InstanceID: "i-1", Owner: "o1", Holder: "h", Process: "p1", UntilEpoch: 1005, Fence: 3, Revision: 7}
	for _, tt := range []struct {
		name            string
		item            func(*nodes.Interruption)
		holder, process string
		silent          int64
		want            bool
	}{
		{"the same holder, another process", nil, "h", "p2", 0, true},
		{"the same process", nil, "h", "p1", 0, false},
		{"another holder", nil, "g", "p2", 0, false},
		{"without a holder", func(i *nodes.Interruption) { i.Holder, i.Process = "", "" }, "", "", 0, false},
		{"an expired claim", func(i *nodes.Interruption) { i.UntilEpoch = 999 }, "g", "p2", 0, true},
		{"an owner that has written nothing since", nil, "g", "p2", 7, true},
		{"an owner that has written since", nil, "g", "p2", 6, false},
		{"an item that is watched from its first revision", func(i *nodes.Interruption) { i.Revision = 0 }, "g", "p2", 0, false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			i := held
			if tt.item != nil {
				tt.item(&i)
			}
			got, changed, err := nodes.AppliedInterruption(i, nodes.ClaimInterruption{Owner: "o2", Holder: tt.holder, Process: tt.process, Silent: tt.silent, Now: now, TTL: 9 * time.Second})
			if changed != tt.want || tt.want != (err == nil) {
				t.Fatalf("taken %t, %v", changed, err)
			}
			if tt.want && (got.Owner != "o2" || got.Fence != 4 || got.UntilEpoch != 1009 || got.Holder != tt.holder || got.Process != tt.process) {
				t.Errorf("%+v", got)
			}
		})
	}
}
