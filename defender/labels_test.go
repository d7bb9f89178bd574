package defender_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/muster-dev/muster/defender"
	"github.com/muster-dev/muster/defender/strategy"
	"github.com/muster-dev/muster/defender/trace"
	"github.com/muster-dev/muster/defender/uchart"
)

// alarmed has a defender process normal wafers and a faulty one after them, and returns the
// notice of that. Numbers of wafers go on from one call to the next.
func (s *stage) alarmed(d *defender.Defender, normal int, fault string) defender.AlarmNotice {
	s.t.Helper()
	g := trace.Generator{Seed: 1}
	next := func(w *trace.Wafer) string {
		id := fmt.Sprintf("run%03d", len(s.outcome))
		if err := d.Handle(s.t.Context(), s.context(id, w, now.Add(time.Duration(len(s.outcome))*time.Minute), first)); err != nil {
			s.t.Fatal(err)
		}
		return id
	}
	for range normal {
		next(g.Wafer(len(s.outcome)))
	}
	w, err := g.FaultyWafer(len(s.outcome), fault)
	if err != nil {
		s.t.Fatal(err)
	}
	id := next(w)
	notices := s.notices()
	if len(notices) == 0 || notices[len(notices)-1].Context.ID != id {
		s.t.Fatalf("wafer %s with fault %q has no notice: its verdict is %+v", id, fault, s.last().Verdict)
	}
	return notices[len(notices)-1]
}

func byStrategy(c *defender.Config) { c.Strategies = strategy.Default() }

func TestAlarmsNameTheFaultOfTheMostSimilarLabelledRun(t *testing.T) {
	t.Parallel()
	s, faults := newStage(t), trace.Faults()
	without := s.alarmed(s.defender(byStrategy), 30, faults[0])
	if without.Classification != nil {
		t.Errorf("without labels the alarm is said to be %+v", without.Classification)
	}
	u, err := s.store.UChart(t.Context(), etcher, without.Context.ID)
	if err != nil {
		t.Fatal(err)
	}
	label, err := defender.NewFaultLabel(u, "a leak")
	if err != nil {
		t.Fatal(err)
	}
	if err := s.store.PutLabel(t.Context(), label); err != nil {
		t.Fatal(err)
	}

	// Another owner, which hasn't read the labels before.
	same := s.alarmed(s.defender(byStrategy), 5, faults[0])
	if m := same.Classification; m == nil || m.Fault != "a leak" || m.Reversed || !strings.HasSuffix(m.Nearest[0].Run, without.Context.ID) {
		t.Errorf("the same fault is said to be %+v", m)
	}
	list, err := defender.ListAlarms(t.Context(), s.conn, defender.AlarmListQuery{All: true, Limit: 1})
	if err != nil || len(list) != 1 || list[0].Fault == nil || list[0].Fault.Fault != "a leak" {
		t.Errorf("the list of alarms is %+v, %v", list, err)
	}
}

func TestARunWithoutSignatureCannotBeLabelled(t *testing.T) {
	t.Parallel()
	u := defender.UChart{Context: defender.ContextRef{Chamber: etcher, ID: "a"}, Verdict: uchart.Verdict{State: uchart.Normal}}
	if _, err := defender.NewFaultLabel(u, "leak"); !errors.Is(err, defender.ErrNoSignature) || !strings.Contains(err.Error(), "normal") {
		t.Errorf("the error is %v", err)
	}
	err := defender.FaultLabel{Chamber: etcher, Context: "a b", Note: strings.Repeat("x", 2000)}.Validate()
	for _, want := range []string{"a b", "fault is", "note has 2000", "signature"} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("the faults of a label are %v, want %q among them", err, want)
		}
	}
}

// unlabelled is a store whose labels can't be read.
type unlabelled struct{ defender.Store }

func (unlabelled) Labels(context.Context) ([]defender.FaultLabel, error) {
	return nil, errors.New("the labels are away")
}

func TestAnAlarmIsRaisedWhenLabelsCannotBeRead(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	n := s.alarmed(s.defender(func(c *defender.Config) {
		byStrategy(c)
		c.Store = unlabelled{s.store}
	}), 30, trace.Faults()[0])
	if n.Classification != nil || n.Event != defender.AlarmOpened {
		t.Errorf("the notice is %+v", n)
	}
}
