package nodes_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/muster-dev/muster/nodes"
	"github.com/muster-dev/muster/nodes/sim"
)

// pressedStage is a simulator in which the tick after the next begins a scale-up.
func pressedStage(t *testing.T, p ports) (*stage, *sim.Client, func() (nodes.Report, error)) {
	t.Helper()
	s := newStage(&scenario{workers: "ab", setup: full(4)})
	c := s.Client("A", nil)
	if p.Store == nil {
		p.Store = c
	}
	r, err := nodes.New(nodes.Config{Policy: s.policy, Signals: c, Cloud: c, Cluster: c, Store: p.Store, EventLog: c, Clock: s.Clock()})
	if err != nil {
		t.Fatal(err)
	}
	return s, c, func() (nodes.Report, error) {
		s.Advance(time.Minute)
		return r.Tick(t.Context())
	}
}

func TestAPauseStopsWhatATickWouldBeginUntilItIsEnded(t *testing.T) {
	t.Parallel()
	s, c, tick := pressedStage(t, ports{})
	sw := nodes.Switch{Store: c, EventLog: c, Clock: s.Clock()}
	if _, changed, err := sw.Pause(t.Context(), "alice", " inventory "); !changed || err != nil {
		t.Fatal(changed, err)
	}
	for range 4 {
		report, err := tick()
		if err != nil || report.Decision.Reason != nodes.ReasonPaused || !strings.HasSuffix(report.Decision.Detail, " by alice: inventory") {
			t.Fatalf("%+v, %v", report.Decision, err)
		}
	}
	if _, changed, err := sw.Pause(t.Context(), "bob", "lunch"); changed || err != nil {
		t.Errorf("a second pause: changed %t, %v", changed, err)
	}
	was, changed, err := sw.Resume(t.Context(), "bob", "")
	if !changed || err != nil || was.PausedBy != "alice" {
		t.Errorf("resuming: %q, changed %t, %v", was.PausedBy, changed, err)
	}
	if _, changed, err := sw.Resume(t.Context(), "bob", ""); changed || err != nil {
		t.Errorf("resuming what is not paused: changed %t, %v", changed, err)
	}
	// The waiting times went on, so that the first tick may act.
	if report, err := tick(); err != nil || report.Decision.Action != nodes.ScaleUp {
		t.Errorf("%+v, %v", report.Decision, err)
	}
	var kinds []string
	for e, err := range c.Read(t.Context(), nodes.Query{}) {
		if err != nil {
			t.Fatal(err)
		}
		if strings.HasPrefix(e.Kind, "scaling.") {
			kinds = append(kinds, e.Kind+" "+e.Message)
		}
	}
	want := []string{"scaling.paused by alice: inventory", "scaling.resumed by bob; it was paused since 2024-10-27T04:00:00Z by alice: inventory"}
	if !slices.Equal(kinds, want) {
		t.Errorf("logged %q, want %q", kinds, want)
	}
}

// pausesBefore lets a person pause between a tick's decision and its begin.
type pausesBefore struct {
	nodes.Store
	begin string
}

func (p pausesBefore) Apply(ctx context.Context, t nodes.Transition) (nodes.Record, error) {
	if t.Name() == p.begin {
		if _, err := p.Store.Apply(ctx, nodes.PauseScaling{Now: time.Unix(5, 0), Reason: "just now"}); err != nil {
			return nodes.Record{}, err
		}
	}
	return p.Store.Apply(ctx, t)
}

func TestAPauseBetweenDecisionAndBeginIsKept(t *testing.T) {
	t.Parallel()
	late := &pausesBefore{begin: "beginScaleUp"}
	s, c, tick := pressedStage(t, ports{Store: late})
	late.Store = c
	for n := range 3 {
		report, err := tick()
		if err != nil {
			t.Fatalf("tick %d failed, but being second to a pause is no failure: %v", n, err)
		}
		held := slices.ContainsFunc(report.Events, func(e nodes.Event) bool { return e.Kind == "scaling.held" })
		if decided := report.Decision.Action == nodes.ScaleUp; decided != held {
			t.Errorf("tick %d: decided %t, held %t", n, decided, held)
		}
	}
	r, err := c.Load(t.Context())
	if err != nil || !r.Paused() || r.ScalingInProgress || r.LeaseOwner != "" || s.count(sim.Launched, nil) != 0 {
		t.Errorf("%+v, %v, %d launched", r, err, s.count(sim.Launched, nil))
	}
}

// brokenEventLog takes nothing.
type brokenEventLog struct{ nodes.EventLog }

func (brokenEventLog) Append(context.Context, nodes.Event) error { return errors.New("disk full") }

func TestASwitchSaysWhatIsWrong(t *testing.T) {
	t.Parallel()
	s, c, _ := pressedStage(t, ports{})
	sw := nodes.Switch{Store: c, EventLog: c, Clock: s.Clock()}
	_, changed, err := sw.Pause(t.Context(), strings.Repeat("x", 501), " \n")
	if changed || err == nil {
		t.Fatal("a pause without a reason was taken")
	}
	for _, want := range []string{"by has 501 characters", "the reason is empty", "can't be shown"} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("%v lacks %q", err, want)
		}
	}
	if r, _ := c.Load(t.Context()); r.Paused() {
		t.Error("it paused all the same")
	}
	sw.EventLog = brokenEventLog{}
	if r, changed, err := sw.Pause(t.Context(), "", "why not"); !changed || !r.Paused() || err == nil || !strings.Contains(err.Error(), "scaling is paused, but") {
		t.Errorf("without an event log: changed %t, paused %t, %v", changed, r.Paused(), err)
	}
	if _, changed, err := sw.Resume(t.Context(), "", "done"); !changed || err == nil || !strings.Contains(err.Error(), "scaling is resumed, but") {
		t.Errorf("without an event log: changed %t, %v", changed, err)
	}
}
