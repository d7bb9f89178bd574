package nodes_test

import (
	"fmt"
	"time"

	"github.com/muster-dev/muster/nodes"
	"github.com/muster-dev/muster/nodes/sim"
)

// upToDate wants exactly n workers to have been launched since the beginning, all of them alive and in a pool; "" is that of a cluster
// without pools.
func upToDate(pool string, n int) func(*stage) string {
	return func(s *stage) string {
		if ids, all := s.livingIn(pool), s.count(sim.Launched, nil); len(ids) != n || all != n {
			return fmt.Sprintf("%d were launched, and alive are %v, want %d", all, ids, n)
		}
		return ""
	}
}

// neverFewer wants this many others to be available whenever a worker is terminated: its replacement came first.
func neverFewer(available int) func(*stage) string {
	return func(s *stage) string {
		for _, e := range s.Ledger() {
			if e.Kind == sim.Terminated && e.Facts.Available < available {
				return fmt.Sprintf("%s was terminated with %d others available, want %d", e.Instance, e.Facts.Available, available)
			}
		}
		return ""
	}
}

// driftScenarios are those of DRIFT: the workers that are there at the beginning were launched by another template. The load stays between
// CPU_DOWN and CPU_UP, so nothing else removes one.
func driftScenarios() []scenario {
	on := func(p *nodes.Policy) { p.Drift, p.ConsolidatePerHour, p.MaxWorkers = true, 6, 3 }
	once := func(p *nodes.Policy) { on(p); p.ConsolidatePerHour = 1 }
	pods := func(s *stage) {
		s.SetLoad(0.4)
		for i, w := range []string{w1, w2} {
			s.AddPodOn(w, sim.PodSpec{Name: fmt.Sprint("p", i), MilliCPU: 1500, Grace: 20 * time.Second})
		}
	}
	pool := func(p *nodes.Policy) {
		on(p)
		p.Sizing = nodes.SizingFit
		p.Pools = []nodes.Pool{{Name: nodes.DefaultPool, InstanceTypes: []string{"m"}, Limits: nodes.Limits{Nodes: 3}}}
	}
	full := func(p *nodes.Policy) { pool(p); p.Pools[0].Limits.Nodes = 2 }
	old := func(o *sim.Options) { o.WorkerHash = "of-another-template" }
	stay := both(alive(true, w1, w2), noneTerminated(0, minutes(30)))
	out := []scenario{
		{name: "drifted workers", workers: "ab", policy: on, setup: pods, length: minutes(14), want: both(atLeast(2), neverFewer(2)),
			undone: both(fleet(2), alive(false, w1, w2), upToDate("", 2))},
		{name: "drift within its budget", workers: "ab", policy: once, setup: pods, length: minutes(12), stride: 3, want: atLeast(2),
			undone: both(fleet(2), alive(false, w1), alive(true, w2))},
		{name: "drifted workers at MAX_WORKERS", workers: "ab", policy: func(p *nodes.Policy) { on(p); p.MaxWorkers = 2 }, setup: pods, length: minutes(6), stride: 3, want: both(stay, fleet(2))},
		{name: "drift while it is off", workers: "ab", policy: func(p *nodes.Policy) { on(p); p.Drift = false }, setup: pods, length: minutes(6), stride: 3, want: both(stay, fleet(2))},
		{name: "workers of which nobody knows by what they were launched", workers: "ab", policy: on, setup: pods, length: minutes(6), stride: 3, want: both(stay, fleet(2))},
		{name: "a drifted worker whose replacement never joins", workers: "ab", policy: once, length: minutes(14), stride: 2, want: both(alive(true, w1, w2), fleet(2)), setup: func(s *stage) {
			pods(s)
			s.SetBoots(sim.Boot{NeverJoins: true}, sim.Boot{NeverJoins: true})
		}},
		{name: "expired workers", workers: "ab", policy: func(p *nodes.Policy) { on(p); p.Drift, p.ExpireAfter = false, 24*time.Hour }, setup: pods, length: minutes(14),
			want: both(atLeast(2), neverFewer(2)), undone: both(fleet(2), alive(false, w1, w2), upToDate("", 2))},
		// What launches nothing takes nothing from the budget of one worker an hour.
		{name: "a drifted worker whose replacement can't be had at first", workers: "ab", policy: once, length: minutes(30), stride: 3, want: atLeast(2),
			undone: both(fleet(2), alive(false, w1), alive(true, w2), upToDate("", 1)), setup: func(s *stage) {
				pods(s)
				s.AddShortage(sim.Shortage{Until: start.Add(8 * time.Minute)})
			}},
		// For its second try no other node is launched.
		{name: "a drifted worker whose drain fails", workers: "aab", policy: func(p *nodes.Policy) { on(p); p.MaxWorkers = 6 }, length: minutes(24), stride: 6, want: both(atLeast(3), alive(true, w1)), undone: func(s *stage) string {
			tries := s.count(sim.Cordoned, func(e sim.Entry) bool { return e.Instance == w1 })
			if n := s.count(sim.Launched, nil); n != 3 || tries < 2 {
				return fmt.Sprintf("%d nodes were launched for three workers, of which the third was drained %d times", n, tries)
			}
			return ""
		}, setup: func(s *stage) {
			pods(s)
			s.AddPodOn(w1, sim.PodSpec{Name: "stuck", MilliCPU: 100, Stuck: true})
		}},
		{name: "drifted workers of a pool", workers: "ab", policy: pool, setup: pods, length: minutes(14), stride: 2, want: both(atLeast(2), neverFewer(2)),
			undone: both(fleet(2), alive(false, w1, w2), upToDate(nodes.DefaultPool, 2))},
		{name: "drifted workers of a pool at its limit", workers: "ab", policy: full, setup: pods, length: minutes(6), stride: 3, want: both(stay, fleet(2))},
		{name: "a warning during the replacement of a drifted worker", workers: "ab", policy: once, setup: pods, length: minutes(14), stride: 3,
			events: []delivery{{at: 150 * time.Second, kind: nodes.Warning, instance: w2}}, want: both(atLeast(2), alive(false, w2))},
	}
	for i := range out {
		if out[i].name != "workers of which nobody knows by what they were launched" {
			out[i].region = old
		}
	}
	return out
}

// neverUpToDate shows every instance as launched by another template.
func neverUpToDate(_ *stage, in *nodes.Instance) bool {
	in.TemplateHash = "of-another-template"
	return true
}

// upBudgetUnseen begins replacements whatever was begun before.
func upBudgetUnseen(*stage) brokenStore {
	return brokenStore{hook: func(t nodes.Transition) nodes.Transition {
		b, ok := t.(nodes.BeginScaleUp)
		if !ok {
			return nil
		}
		b.PerHour = 1000
		return b
	}, load: func(r *nodes.Record) { r.ConsolidatedEpochs = nil }}
}

// culpritForgotten ends a scale-down without saying whose drain failed.
func culpritForgotten(*stage) brokenStore {
	return brokenStore{hook: func(t nodes.Transition) nodes.Transition {
		f, ok := t.(nodes.FailScaleDown)
		if !ok {
			return nil
		}
		f.Culprit = ""
		return f
	}}
}
