package nodes_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/muster-dev/muster/nodes"
	"github.com/muster-dev/muster/nodes/sim"
)

// listener is a Reporter that keeps what nodes are told, as a cluster does: one notice of each kind and cause, the first.
type listener struct {
	told   []nodes.NodeNotice
	calls  int
	broken bool
}

func (l *listener) Report(context.Context, nodes.Snapshot) error { return nil }

func (l *listener) TellNodes(_ context.Context, notices []nodes.NodeNotice) error {
	l.calls++
	if l.broken {
		return errors.New("no way")
	}
	for _, n := range notices {
		same := func(o nodes.NodeNotice) bool { return o.Node == n.Node && o.Kind == n.Kind && o.Cause == n.Cause }
		if !slices.ContainsFunc(l.told, same) {
			l.told = append(l.told, n)
		}
	}
	return nil
}

// of returns the texts about a node, each behind its kind.
func (l *listener) of(node string) (out []string) {
	for _, n := range l.told {
		if n.Node.Name == node {
			out = append(out, fmt.Sprintf("%s: %s", n.Kind, n.Text))
		}
	}
	return out
}

// heard checks what a node was told: as many notices, each with its words.
func (l *listener) heard(t *testing.T, node string, want ...[]string) {
	t.Helper()
	got := l.of(node)
	if len(got) != len(want) {
		t.Errorf("%s was told %q, want %d notices", node, got, len(want))
		return
	}
	for i, words := range want {
		for _, word := range words {
			if !strings.Contains(got[i], word) {
				t.Errorf("%q says nothing of %q", got[i], word)
			}
		}
	}
}

// TestNodeNotices follows nodes from the decision to their end, or until they are kept.
func TestNodeNotices(t *testing.T) {
	begin := func(t *testing.T, workers string, change func(*nodes.Policy)) (*set, *listener) {
		l := &listener{}
		return newSet(t, workers, func(c *nodes.Config) {
			c.Reporter = l
			if change != nil {
				change(&c.Policy)
			}
		}), l
	}

	t.Run("a scale-down", func(t *testing.T) {
		s, l := begin(t, "aab", nil)
		s.AddPodOn(w1, sim.PodSpec{Name: "p", MilliCPU: 100, Grace: 100 * time.Second})
		s.SetLoad(0.1)
		s.ticks(t, 8)
		if s.Instance(w1).Alive() {
			t.Fatal("it lives")
		}
		l.heard(t, w1, []string{"drains: ", "IDLE", "older than "})
	})
	t.Run("a scale-down whose first notice was lost", func(t *testing.T) {
		s, l := begin(t, "aab", nil)
		s.AddPodOn(w1, sim.PodSpec{Name: "p", MilliCPU: 100, Grace: 100 * time.Second})
		s.SetLoad(0.1)
		l.broken = true
		for l.calls == 0 {
			s.ticks(t, 1)
		}
		if l.calls != 1 || !s.logged(t, "report.failed") {
			t.Errorf("%d calls in the tick", l.calls)
		}
		l.broken = false
		s.ticks(t, 3)
		if s.Instance(w1).Alive() {
			t.Fatal("it lives")
		}
		l.heard(t, w1, []string{"drains: ", "by scale-down "})
	})
	t.Run("a drain that fails", func(t *testing.T) {
		s, l := begin(t, "aab", nil)
		s.AddPodOn(w1, sim.PodSpec{Name: "stuck", MilliCPU: 100, Stuck: true})
		s.SetLoad(0.1)
		for len(l.of(w1)) < 2 {
			s.ticks(t, 1)
		}
		l.heard(t, w1, []string{"drains: "}, []string{"kept: ", "not drained within DRAIN_TIMEOUT_SEC", "pod stuck"})
		if l.calls < 3 {
			t.Errorf("%d calls: the drain took one tick, so nothing was told again", l.calls)
		}
	})
	t.Run("a Spot warning", func(t *testing.T) {
		s, l := begin(t, "aab", nil)
		event := nodes.InterruptionEvent{ID: "e", Kind: nodes.Warning, InstanceID: w1, At: s.Clock().Now()}
		if err := s.Interrupt(t.Context(), event); err != nil {
			t.Fatal(err)
		}
		l.heard(t, w1, []string{"interrupted: ", "Spot interruption warning", event.At.Add(110 * time.Second).UTC().Format(time.TimeOnly)})
	})
	t.Run("a rebalance recommendation", func(t *testing.T) {
		s, l := begin(t, "aab", nil)
		if err := s.Interrupt(t.Context(), nodes.InterruptionEvent{ID: "e", Kind: nodes.Rebalance, InstanceID: w1, At: s.Clock().Now()}); err != nil {
			t.Fatal(err)
		}
		s.ticks(t, 6)
		l.heard(t, w1, []string{"drains: ", "rebalance"})
	})
	t.Run("a repair", func(t *testing.T) {
		s, l := begin(t, "aabb", nil)
		s.Flap(w1, 30*time.Second, 100*time.Hour)
		s.ticks(t, 20)
		if s.Instance(w1).Alive() {
			t.Fatal("it lives")
		}
		l.heard(t, w1, []string{"drains: ", "Ready since "})
	})
	t.Run("a repair of an impaired instance, behind its replacement", func(t *testing.T) {
		l := &listener{}
		s := newSet(t, "ab", func(c *nodes.Config) {
			c.Reporter, c.Policy.ImpairedFor, c.Statuses = l, 2*time.Minute, c.Cloud.(nodes.StatusReader)
		})
		s.Impair(w1, "system", 30*time.Second, 100*time.Hour)
		s.ticks(t, 15)
		if s.Instance(w1).Alive() {
			t.Fatal("it lives")
		}
		l.heard(t, w1, []string{"drains: ", "status check", "since "})
	})
	t.Run("a drain that is cancelled", func(t *testing.T) {
		s, l := begin(t, "aab", func(p *nodes.Policy) { p.MaxActions, p.PendingUpFor = 10, time.Second })
		s.AddPodOn(w1, sim.PodSpec{Name: "p", MilliCPU: 100, Grace: 1000 * time.Second})
		s.SetLoad(0.1)
		for len(l.of(w1)) == 0 {
			s.ticks(t, 1)
		}
		s.AddPods(5, one("new"))
		s.ticks(t, 2)
		l.heard(t, w1, []string{"drains: "}, []string{"spared: ", "cancelled"})
	})
}
