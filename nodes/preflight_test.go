package nodes_test

import (
	"strings"
	"testing"
	"time"

	"github.com/muster-dev/muster/nodes"
	"github.com/muster-dev/muster/nodes/sim"
)

// TestADrainSurvivesAnyCrashIfItsTimeIsAsAdvised crashes an ordinary scale-down at every call: with the advised time no drain is given
// up for it, with less some are.
func TestADrainSurvivesAnyCrashIfItsTimeIsAsAdvised(t *testing.T) {
	givenUp := func(limit time.Duration) int {
		sc := &scenario{name: "an ordinary drain", workers: "aab", length: minutes(8),
			policy: func(p *nodes.Policy) { p.DrainTimeout, p.ScaleDownStuck = limit, 15*time.Minute },
			setup: func(s *stage) {
				idle(s)
				s.AddPodOn(w1, sim.PodSpec{Name: "slow", MilliCPU: 1000, Grace: 30 * time.Second})
			}}
		n := 0
		for k := 1; k <= perform(sc, schedule{}, nil, nil).calls; k++ {
			p := perform(sc, schedule{faults: map[int]fault{k: crashAfter}}, nil, nil)
			for e := range p.stage.Client("reader", nil).Read(t.Context(), nodes.Query{}) {
				if strings.Contains(e.Message, "not drained within") {
					n++
					break
				}
			}
		}
		return n
	}
	for _, c := range []struct {
		limit   time.Duration
		advised bool
	}{{120 * time.Second, false}, {180 * time.Second, true}} {
		p := quick()
		p.DrainTimeout, p.ScaleDownStuck = c.limit, 15*time.Minute
		if err := p.Validate(); err != nil {
			t.Errorf("%s is refused: %v", c.limit, err)
		}
		if got := len(p.Advice()) == 0; got != c.advised {
			t.Errorf("advice about %s: %+v", c.limit, p.Advice())
		}
		if n := givenUp(c.limit); (n == 0) != c.advised {
			t.Errorf("%s: %d crashes made a drain be given up", c.limit, n)
		}
	}
	if a := nodes.DefaultPolicy().Advice(); len(a) != 0 {
		t.Errorf("advice about the defaults: %+v", a)
	}
}

// TestAdviceOnReplacements: a disruption budget under which DRIFT and EXPIRE_AFTER_SEC can't do what they say.
func TestAdviceOnReplacements(t *testing.T) {
	for name, c := range map[string]struct {
		change func(*nodes.Policy)
		want   string // setting; "" none
	}{
		"old workers, enough of the budget": {func(p *nodes.Policy) { p.ExpireAfter, p.MaxWorkers, p.ConsolidatePerHour = 24*time.Hour, 144, 6 }, ""},
		"more workers than the budget":      {func(p *nodes.Policy) { p.ExpireAfter, p.MaxWorkers, p.ConsolidatePerHour = 24*time.Hour, 145, 6 }, "EXPIRE_AFTER_SEC"},
		"drift without a budget":            {func(p *nodes.Policy) { p.Drift, p.ConsolidatePerHour = true, 0 }, "CONSOLIDATE_PER_HOUR"},
		"neither":                           {func(p *nodes.Policy) { p.ConsolidatePerHour = 0 }, ""},
	} {
		t.Run(name, func(t *testing.T) {
			p := nodes.DefaultPolicy()
			c.change(&p)
			if err := p.Validate(); err != nil {
				t.Fatal(err)
			}
			got := ""
			for _, a := range p.Advice() {
				if a.OK || a.Fix == "" {
					t.Errorf("%+v", a)
				}
				got += strings.TrimPrefix(a.Name, "setting: ")
			}
			if got != c.want {
				t.Errorf("advice about %q, want %q", got, c.want)
			}
		})
	}
}
