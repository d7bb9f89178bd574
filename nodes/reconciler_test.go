package nodes_test

import (
	"context"
	"encoding/json"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/muster-dev/muster/nodes"
	"github.com/muster-dev/muster/nodes/sim"
)

// set puts a reconciler beside a simulator.
type set struct {
	*sim.Simulator
	*nodes.Reconciler
	client *sim.Client
	config nodes.Config
}

func newSet(t *testing.T, workers string, change func(*nodes.Config)) *set {
	t.Helper()
	p := quick()
	w := sim.New(sim.Options{Policy: p, Workers: strings.Split(workers, ""), Boot: 70 * time.Second})
	w.SetLoad(0.5)
	c := w.Client("A", nil)
	n := 0
	s := &set{Simulator: w, client: c, config: nodes.Config{Policy: p, Signals: c, Cloud: c, Cluster: c, Store: c, EventLog: c, WorkerPlane: c, Clock: w.Clock(),
		NewID: func() string { n++; return fmt.Sprint("x", n) }}}
	if change != nil {
		change(&s.config)
	}
	var err error
	if s.Reconciler, err = nodes.New(s.config); err != nil {
		t.Fatal(err)
	}
	return s
}

// ticks does one tick a minute and returns the last report.
func (s *set) ticks(t *testing.T, n int) nodes.Report {
	t.Helper()
	var r nodes.Report
	for range n {
		s.Advance(time.Minute)
		var err error
		if r, err = s.Tick(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	return r
}

func (s *set) count(k sim.Kind) int {
	n := 0
	for _, e := range s.Ledger() {
		if e.Kind == k {
			n++
		}
	}
	return n
}

func TestNewListsWhatIsMissing(t *testing.T) {
	if _, err := nodes.New(nodes.Config{Policy: nodes.DefaultPolicy()}); err == nil {
		t.Error("a reconciler without ports was accepted")
	}
	c := sim.New(sim.Options{Policy: quick()}).Client("A", nil)
	_, err := nodes.New(nodes.Config{Signals: c, Cloud: c, Cluster: c, Store: c, EventLog: c})
	if err == nil || !strings.Contains(err.Error(), "MAX_WORKERS") {
		t.Errorf("an empty policy: %v", err)
	}
	p := quick()
	p.Sizing = nodes.SizingFit
	if _, err := nodes.New(nodes.Config{Policy: p, Signals: c, Cloud: c, Cluster: c, Store: c, EventLog: c}); err == nil {
		t.Error("SIZING=fit without a sizer was accepted")
	}
}

func TestATickThatFindsTheLeaseHeldDoesNothing(t *testing.T) {
	s := newSet(t, "ab", nil)
	if _, err := s.client.Apply(t.Context(), nodes.AcquireLease{Owner: "other", Now: s.Clock().Now(), TTL: 5 * time.Minute}); err != nil {
		t.Fatal(err)
	}
	before := s.Record()
	if r := s.ticks(t, 1); !r.Held || r.Decision != nil {
		t.Errorf("got %+v", r)
	}
	if !reflect.DeepEqual(before, s.Record()) {
		t.Error("the record was written")
	}
}

func TestATickTakesOverAnExpiredLease(t *testing.T) {
	s := newSet(t, "ab", nil)
	if _, err := s.client.Apply(t.Context(), nodes.AcquireLease{Owner: "dead", Now: s.Clock().Now(), TTL: time.Minute}); err != nil {
		t.Fatal(err)
	}
	if r := s.ticks(t, 2); r.Held {
		t.Error("the lease of a dead process was not taken over")
	}
}

func TestEveryDecisionIsLoggedSoThatItCanBeMadeAgain(t *testing.T) {
	s := newSet(t, "aab", nil)
	s.AddPods(6, one("old"))
	s.AddPods(5, one("new"))
	s.ticks(t, 4)
	s.RemovePods("")
	s.SetLoad(0.1)
	s.ticks(t, 6)
	actions := map[nodes.Action]int{}
	for e, err := range s.client.Read(t.Context(), nodes.Query{Kind: "decision"}) {
		if err != nil {
			t.Fatal(err)
		}
		var snap nodes.Snapshot
		if err := json.Unmarshal(e.Data, &snap); err != nil {
			t.Fatal(err)
		}
		again := nodes.Decide(snap.Policy, snap.Observation, snap.Record, snap.Now)
		if !reflect.DeepEqual(again, snap.Decision) {
			t.Errorf("%s: decided %s because %s, again %s because %s", e.Key(), snap.Decision.Action, snap.Decision.Reason, again.Action, again.Reason)
		}
		actions[again.Action]++
	}
	if actions[nodes.ScaleUp] == 0 || actions[nodes.ScaleDown] == 0 || actions[nodes.Noop] == 0 {
		t.Errorf("not every action was met: %v", actions)
	}
}

func TestPlanWritesNothing(t *testing.T) {
	s := newSet(t, "ab", nil)
	s.AddPods(4, one("old"))
	s.AddPods(4, one("new"))
	s.ticks(t, 1)
	s.Advance(2 * time.Minute)
	before := len(s.Ledger())
	snap, err := s.Plan(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if snap.Decision.Action != nodes.ScaleUp || snap.Decision.Nodes != 2 {
		t.Errorf("got %+v", snap.Decision)
	}
	if n := len(s.Ledger()); n != before {
		t.Errorf("%d things happened: %+v", n-before, s.Ledger()[before:])
	}
}

func TestAFlagThatNamesNoActionIsRepaired(t *testing.T) {
	s := newSet(t, "ab", nil)
	s.SetRecord(func(r *nodes.Record) { r.ScalingInProgress = true })
	s.ticks(t, 1)
	if s.Record().ScalingInProgress {
		t.Error("it still blocks all scaling")
	}
}

func TestAnActionOfAnotherProgramIsCarriedOn(t *testing.T) {
	s := newSet(t, "ab", nil)
	s.SetRecord(func(r *nodes.Record) { // as the record's specification has it, without this program's additions
		r.ScalingInProgress, r.ScaleUpActionID, r.ScaleUpRequested = true, "1730000300-req-xyz", 1
		r.ScaleUpStartedEpoch, r.ScaleUpInstanceIDs = start.Unix(), []string{w1}
	})
	s.ticks(t, 1)
	if r := s.Record(); r.ScalingInProgress || r.LastScaleEpoch == 0 {
		t.Errorf("got %+v", r)
	}
}

func TestWhatAPersonCordonedStaysCordoned(t *testing.T) {
	s := newSet(t, "aab", nil)
	s.CordonByHand(w1)
	s.SetLoad(0.1)
	s.ticks(t, 6)
	if f := s.Fleet(); f.Cordoned != 1 || s.count(sim.Uncordoned) != 0 || s.count(sim.Terminated) != 0 {
		t.Errorf("got %+v, %d uncordoned, %d terminated", f, s.count(sim.Uncordoned), s.count(sim.Terminated))
	}
}

func TestInterruptIgnoresWhatIsNotItsConcern(t *testing.T) {
	for name, c := range map[string]struct {
		event func(*set) nodes.InterruptionEvent
		kind  string // logged
	}{
		"an instance that is not there": {func(s *set) nodes.InterruptionEvent {
			return nodes.InterruptionEvent{Kind: nodes.Warning, InstanceID: "i-999", At: s.Clock().Now()}
		}, "interruption.foreign"},
		"the control plane": {func(s *set) nodes.InterruptionEvent {
			return nodes.InterruptionEvent{Kind: nodes.Rebalance, InstanceID: "i-001", At: s.Clock().Now()}
		}, "interruption.controlPlane"},
		"a state change": {func(s *set) nodes.InterruptionEvent {
			return nodes.InterruptionEvent{Kind: nodes.StateChange, InstanceID: w1, State: nodes.StateStopping}
		}, "interruption.stateChange"},
		"a warning that comes after the end": {func(s *set) nodes.InterruptionEvent {
			return nodes.InterruptionEvent{Kind: nodes.Warning, InstanceID: w1, At: s.Clock().Now().Add(-3 * time.Minute)}
		}, "interruption.tooLate"},
	} {
		t.Run(name, func(t *testing.T) {
			s := newSet(t, "ab", nil)
			if err := s.Interrupt(t.Context(), c.event(s)); err != nil {
				t.Fatal(err)
			}
			if s.OpenItems() != 0 || s.count(sim.Cordoned)+s.count(sim.Launched) != 0 {
				t.Error("something was done about it")
			}
			if !s.logged(t, c.kind) {
				t.Errorf("%s was not logged", c.kind)
			}
		})
	}
}

func (s *set) logged(t *testing.T, kind string) bool {
	for range s.client.Read(t.Context(), nodes.Query{Kind: kind}) {
		return true
	}
	return false
}

func TestInterruptRefusesAnUnknownKind(t *testing.T) {
	s := newSet(t, "ab", nil)
	if err := s.Interrupt(t.Context(), nodes.InterruptionEvent{Kind: "eclipse", InstanceID: w1}); err == nil {
		t.Error("it was accepted")
	}
}

func TestAWarnedNodeIsCordonedAndItsWorkersToldAtOnce(t *testing.T) {
	s := newSet(t, "ab", nil)
	s.AddPodOn(w1, sim.PodSpec{Name: "slow", MilliCPU: 100, Grace: 10 * time.Minute})
	s.AddPodOn(w1, sim.PodSpec{Name: "critical", MilliCPU: 100, Critical: true})
	at := s.Clock().Now()
	if err := s.Interrupt(t.Context(), s.Announce(nodes.Warning, w1)); err != nil {
		t.Fatal(err)
	}
	seen := map[sim.Kind]time.Duration{}
	for _, e := range s.Ledger() {
		if _, ok := seen[e.Kind]; !ok {
			seen[e.Kind] = e.At.Sub(at)
		}
	}
	for _, k := range []sim.Kind{sim.Cordoned, sim.WorkersDrained, sim.Launched, sim.Evicted} {
		if d, ok := seen[k]; !ok || d > 3*time.Second {
			t.Errorf("%s after %s, %t", k, d, ok)
		}
	}
	if took := s.Clock().Now().Sub(at); took > 112*time.Second {
		t.Errorf("the work took %s, past its deadline", took)
	}
	if n := s.count(sim.Terminated); n != 0 {
		t.Errorf("%d instances were terminated by us", n)
	}
}

// counting counts calls.
type counting map[string]int

func (c counting) Before(call string) error        { c[call]++; return nil }
func (c counting) After(_ string, err error) error { return err }

func TestAWarnedNodeIsCordonedOnceUnlessSomebodyUncordonsIt(t *testing.T) {
	calls := counting{}
	s := newSet(t, "ab", nil)
	c := s.Client("A", calls)
	s.config.Cluster = c
	var err error
	if s.Reconciler, err = nodes.New(s.config); err != nil {
		t.Fatal(err)
	}
	s.AddPodOn(w1, sim.PodSpec{Name: "p", MilliCPU: 100, Grace: 25 * time.Second}) // some slices of a drain
	if err := s.Interrupt(t.Context(), s.Announce(nodes.Warning, w1)); err != nil {
		t.Fatal(err)
	}
	s.Advance(10 * time.Second)
	cordons := func(when string, want int) {
		t.Helper()
		if got := calls["cluster.Cordon"]; got != want {
			t.Errorf("%s: cordoned %d times, want %d", when, got, want)
		}
	}
	tick := func() {
		t.Helper()
		if _, err := s.Tick(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	cordons("when it was warned", 1)
	tick()
	tick()
	cordons("after two ticks more", 1)
	v, err := s.client.View(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for _, n := range v.Nodes {
		if n.Name == w1 {
			if err := s.client.Uncordon(t.Context(), n.NodeRef, "int-"+w1); err != nil {
				t.Fatal(err)
			}
		}
	}
	tick()
	cordons("when somebody had uncordoned it", 2)
	tick()
	cordons("and after another tick", 2)
}

// TestATickWithAnOpenActionLogsWhatItSaw: or replay and explain would have a gap as long as an action.
func TestATickWithAnOpenActionLogsWhatItSaw(t *testing.T) {
	s := newSet(t, "ab", nil)
	s.AddPods(4, one("old"))
	s.AddPods(4, one("new"))
	s.ticks(t, 2)
	if !s.Record().ScalingUp() {
		t.Fatal("no scale-up is open")
	}
	r := s.ticks(t, 1)
	if r.Decision == nil || r.Decision.Action != nodes.Noop || r.Decision.Reason != nodes.ReasonInProgress {
		t.Fatalf("decided %+v", r.Decision)
	}
	for _, e := range r.Events {
		if e.Kind != "decision" {
			continue
		}
		var snap nodes.Snapshot
		if err := json.Unmarshal(e.Data, &snap); err != nil {
			t.Fatal(err)
		}
		if len(snap.Observation.Fleet) != 4 || !snap.Record.ScalingUp() || snap.Record.ActionID() != snap.Decision.Detail {
			t.Errorf("the snapshot shows %d workers, action %q, detail %q", len(snap.Observation.Fleet), snap.Record.ActionID(), snap.Decision.Detail)
		}
		return
	}
	t.Errorf("no decision among %+v", r.Events)
}

func TestATickLeavesOffBeforeItsProcessIsStopped(t *testing.T) {
	s := newSet(t, "ab", nil)
	s.AddPods(4, one("old"))
	s.AddPods(4, one("new"))
	s.ticks(t, 1)
	s.Advance(2 * time.Minute)
	ctx, cancel := s.Clock().WithDeadline(t.Context(), s.Clock().Now().Add(10*time.Second))
	defer cancel()
	if _, err := s.Tick(ctx); err != nil {
		t.Fatal(err)
	}
	if n := s.count(sim.Launched); n != 0 {
		t.Errorf("%d launches with 10 s left", n)
	}
	if r := s.Record(); r.LeaseOwner != "" || !r.ScalingUp() {
		t.Errorf("the lease is held by %q, scaling up %t", r.LeaseOwner, r.ScalingUp())
	}
	s.ticks(t, 4)
	if f := s.Fleet(); f.Available != 4 {
		t.Errorf("the next ticks did not go on: %+v", f)
	}
}

func TestLaunchTokensDifferByAttemptAndFitTheirLimit(t *testing.T) {
	seen := map[string]bool{}
	for _, cluster := range []string{"", "blue"} {
		for _, action := range []string{"1730000300-abc", strings.Repeat("long", 100)} {
			for ordinal := range 3 {
				for attempt := range 3 {
					token := nodes.LaunchToken(cluster, action, ordinal, attempt)
					if len(token) > 64 || seen[token] {
						t.Errorf("token %q, %d characters, seen %t", token, len(token), seen[token])
					}
					seen[token] = true
				}
			}
		}
	}
}

func TestClassesPutPodsTogetherThatAreAlike(t *testing.T) {
	a, b := nodes.Resources{MilliCPU: 1}, nodes.Resources{MilliCPU: 2}
	got := nodes.Classes([]nodes.Pod{{Name: "1", Requests: a}, {Name: "2", Requests: b}, {Name: "3", Requests: a}, {Name: "4", Requests: a, NeverFit: "x"}, {Name: "5", Requests: b, Count: 4}})
	want := []nodes.Pod{{Name: "1", Requests: a, Count: 2}, {Name: "2", Requests: b, Count: 5}, {Name: "4", Requests: a, NeverFit: "x"}}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("got %+v", got)
	}
}

// TestMetricsVerifyWhenTheAPICanNotBeRead looks at the moment, where the scenario looks at the end.
func TestMetricsVerifyWhenTheAPICanNotBeRead(t *testing.T) {
	s := newSet(t, "ab", nil)
	s.AddPods(4, one("old"))
	s.AddPods(2, one("new"))
	s.ticks(t, 2)
	if !s.Record().ScalingUp() {
		t.Fatal("no scale-up was begun")
	}
	s.Outage(sim.ClusterPart, 0, time.Hour)
	for range 3 {
		s.Advance(time.Minute)
		_, _ = s.Tick(t.Context()) // it reports that the API is unreachable
	}
	if r := s.Record(); r.ScalingInProgress || r.LastScaleEpoch == 0 {
		t.Errorf("not completed by the metrics: %+v", r)
	}
}

func ExampleReconciler_Tick() {
	policy := nodes.DefaultPolicy()
	simulator := sim.New(sim.Options{Policy: policy, Workers: []string{"a", "b"}})
	simulator.SetLoad(0.9) // busy from now on
	client := simulator.Client("daemon", nil)
	r, err := nodes.New(nodes.Config{Policy: policy, Signals: client, Cloud: client, Cluster: client, Store: client, EventLog: client, Clock: simulator.Clock()})
	if err != nil {
		panic(err)
	}
	for range 7 {
		simulator.Advance(time.Minute)
		if _, err := r.Tick(context.Background()); err != nil {
			panic(err)
		}
	}
	var kinds []string
	for e := range client.Read(context.Background(), nodes.Query{}) {
		if strings.HasPrefix(e.Kind, "scaleUp.") && !slices.Contains(kinds, e.Kind) {
			kinds = append(kinds, e.Kind)
		}
	}
	fmt.Println(kinds, simulator.Fleet().Available)
	// Output: [scaleUp.begun scaleUp.launched scaleUp.waiting scaleUp.completed] 3
}

func TestAnEventIsNotLostWhenTheCloudCanNotBeAsked(t *testing.T) {
	s := newSet(t, "ab", nil)
	s.Outage(sim.CloudPart, 0, 30*time.Second)
	if err := s.Interrupt(t.Context(), s.Announce(nodes.Warning, w1)); err == nil {
		t.Error("the outage was not reported")
	}
	if s.OpenItems() != 1 {
		t.Fatal("the event was not noted")
	}
	s.ticks(t, 1)
	if s.count(sim.Launched) != 1 || s.count(sim.Cordoned) != 1 {
		t.Error("the next tick did not take it up")
	}
}

func TestAnEventOfAnotherClusterNotedInAnOutageIsClosed(t *testing.T) {
	s := newSet(t, "ab", nil)
	s.Outage(sim.CloudPart, 0, 30*time.Second)
	_ = s.Interrupt(t.Context(), nodes.InterruptionEvent{Kind: nodes.Rebalance, InstanceID: "i-999", At: s.Clock().Now()})
	s.ticks(t, 1)
	if s.OpenItems() != 0 || s.count(sim.Launched) != 0 {
		t.Errorf("%d open, %d launched", s.OpenItems(), s.count(sim.Launched))
	}
}

// thief is a sim.Hook that does something once, before a call.
type thief struct {
	call string
	do   func()
	seen []string // calls after it
	done bool
}

func (h *thief) Before(call string) error {
	if h.done {
		h.seen = append(h.seen, call)
	}
	if call == h.call && !h.done {
		h.done = true
		h.do()
	}
	return nil
}

func (h *thief) After(_ string, err error) error { return err }

func TestATickWhoseLeaseHasPassedOnDoesNothingMore(t *testing.T) {
	hook := &thief{call: "cluster.Drain"}
	s := newSet(t, "aab", nil)
	hooked := s.Client("A", hook)
	c := s.config
	c.Signals, c.Cloud, c.Cluster, c.Store, c.EventLog = hooked, hooked, hooked, hooked, hooked
	r, err := nodes.New(c)
	if err != nil {
		t.Fatal(err)
	}
	hook.do = func() {
		s.Advance(61 * time.Second)
		if _, err := s.client.Apply(context.Background(), nodes.AcquireLease{Owner: "B", Now: s.Clock().Now(), TTL: time.Minute}); err != nil {
			t.Error(err)
		}
	}
	s.SetLoad(0.1)
	s.AddPodOn(w1, one("p"))
	for range 4 {
		s.Advance(time.Minute)
		_, _ = r.Tick(t.Context())
		if hook.done {
			break
		}
	}
	if !hook.done {
		t.Fatal("nothing was drained")
	}
	if len(hook.seen) > 0 {
		t.Errorf("it went on to call %v", hook.seen)
	}
	if s.count(sim.Evicted)+s.count(sim.Terminated) > 0 {
		t.Error("what it was about to do had an effect")
	}
}

func TestALeaseIsRenewedWhileATickIsLong(t *testing.T) {
	s := newSet(t, "aab", func(c *nodes.Config) { c.TickBudget = 10 * time.Minute })
	s.SetLoad(0.1)
	s.AddPodOn(w1, sim.PodSpec{Name: "slow", Grace: 100 * time.Second})
	s.ticks(t, 3)
	renewals := 0
	for _, e := range s.Ledger() {
		if e.Kind == sim.Written && e.Detail == "renewLease" {
			renewals++
		}
	}
	if renewals < 4 || s.count(sim.Terminated) != 1 {
		t.Errorf("%d renewals in a drain of 100 s, %d terminated", renewals, s.count(sim.Terminated))
	}
}

// TestReconcilersAtTheSameTime lets processes tick with real concurrency, where the harness interleaves them one call at a time.
func TestReconcilersAtTheSameTime(t *testing.T) {
	for _, name := range []string{"scale-up", "scale-down", "partial join", "the second drain of two fails",
		"growth in one round, several actions", "several drains, several actions", "pods that come during a drain, several actions"} {
		t.Run(name, func(t *testing.T) {
			all := everyScenario()
			sc := &all[slices.IndexFunc(all, func(sc scenario) bool { return sc.name == name })]
			s := newStage(sc)
			s.plan = schedule{faults: map[int]fault{0: pauseBefore, -1: pauseBefore, -2: pauseBefore}, pause: 5 * time.Minute}
			var wg sync.WaitGroup
			together := newConvoy(3)
			for at, actor := range []string{"A", "B", "C"} {
				c := s.Client(actor, nil)
				r, err := nodes.New(nodes.Config{Policy: s.policy, Signals: c, Cloud: c, Cluster: c, Store: c, EventLog: c, Clock: s.Clock()})
				if err != nil {
					t.Fatal(err)
				}
				wg.Go(func() {
					for range 80 {
						together.next(at)
						s.Advance(20 * time.Second)
						_, _ = r.Tick(t.Context())
					}
				})
			}
			wg.Wait()
			if sc.arrive != nil {
				sc.arrive(s)
			}
			p := &performance{stage: s}
			for range 20 {
				s.Advance(time.Minute)
				_ = p.run("A", tickOnce)
			}
			for _, v := range check(s) {
				t.Errorf("%s: %s", v.invariant, v.what)
			}
		})
	}
}

// convoy keeps goroutines that move one virtual clock about as far as each other. Without it
// the clock of one that the machine doesn't run for a moment is moved on by hours.
type convoy struct {
	mu     sync.Mutex
	moved  sync.Cond
	rounds []int // that each has begun
}

// ahead is by how many rounds one may be in front of another. With more, two that go on would
// see to it that the lease of the third runs out in every tick.
const ahead = 1

func newConvoy(n int) *convoy {
	c := &convoy{rounds: make([]int, n)}
	c.moved.L = &c.mu
	return c
}

// next begins the next round of one, once the others have got near. All have as many rounds.
func (c *convoy) next(i int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for c.rounds[i] >= slices.Min(c.rounds)+ahead {
		c.moved.Wait()
	}
	c.rounds[i]++
	c.moved.Broadcast()
}
