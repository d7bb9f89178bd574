package nodes_test

import (
	"flag"
	"fmt"
	"iter"
	"regexp"
	"runtime/debug"
	"slices"
	"strings"
	"testing"
	"time"
)

var depth = flag.Int("crashpoints.depth", defaultDepth, "how much TestCrashPoints explores (1, under the race detector 0): 0 a small sample, 1 every single fault and a sample of the rest, 2 many pairs and interleavings too, 3 all of them")

// The schedules of depth 1 take ten minutes. A test runs a sixth of each scenario's, .ci/run another
// one each day.
var (
	share = flag.Int("crashpoints.share", 6, "explore every N-th schedule of a scenario; 1 for all")
	first = flag.Int("crashpoints.first", 0, "of every N-th schedule, explore those from this one on, below N")
)

var only = flag.String("crashpoints.scenario", "", "explore only scenarios whose name matches this expression")

// pauses are how long a process is stopped: not at all, almost until its lease runs out, just past it, and past a successor's too.
var pauses = []time.Duration{0, 58 * time.Second, 62 * time.Second, 130 * time.Second}

// claimPauses are those of a scenario with interruptions, whose claims are shorter: on both sides of a claim's end as well.
var claimPauses = []time.Duration{0, 6 * time.Second, 8 * time.Second, 11 * time.Second, 62 * time.Second, 130 * time.Second}

// plans yields the schedules of a scenario. calls is how many calls its run without faults makes; after gives the number of calls
// of a run with one fault.
func plans(sc *scenario, calls, depth int) iter.Seq[schedule] {
	stride := max(sc.stride, 1)
	if depth >= 2 {
		stride = max(stride/4, 1)
	}
	sample := func(full int) int { // how many calls apart, so that the default stays short
		if depth >= 3 {
			return stride
		}
		return stride * full
	}
	return func(yield func(schedule) bool) {
		if !singles(calls, map[int]int{0: 7 * stride, 1: stride, 2: stride, 3: stride}[depth], yield) {
			return
		}
		pairStep := map[int]int{0: sample(301), 1: sample(41), 2: sample(3), 3: sample(1)}[depth]
		if !pairs(calls, pairStep, yield) {
			return
		}
		pauseStep := map[int]int{0: sample(301), 1: sample(19), 2: sample(1), 3: sample(1)}[depth]
		times := pauses
		if len(sc.events) > 0 {
			times = claimPauses
		}
		interleavings(calls, pauseStep, depth, times, yield)
	}
}

// singles yields every fault that ends or confuses one process, at every step-th call.
func singles(calls, step int, yield func(schedule) bool) bool {
	for k := 1; k <= calls; k++ {
		for _, f := range []fault{crashBefore, crashAfter, lostReply} {
			if (k*3+int(f))%step == 0 && !yield(schedule{faults: map[int]fault{k: f}}) {
				return false
			}
		}
	}
	return true
}

// pairs yields two faults: the second soon after the first, while the first is being recovered from, or anywhere.
func pairs(calls, step int, yield func(schedule) bool) bool {
	distances := []int{1, 2, 3, 5, 8, 12, 17, 23, 31, 47, 70}
	n := 0
	for k := 1; k <= calls; k++ {
		for i, d := range distances {
			if n++; n%step != 0 {
				continue
			}
			first, second := fault((k+i)%3), fault((k/3+2*i)%3)
			if !yield(schedule{faults: map[int]fault{k: first, k + d: second}}) {
				return false
			}
		}
	}
	return true
}

// interleavings yields A stopped at a call, B running through or up to a call of its own, and both going on.
func interleavings(calls, step, depth int, pauses []time.Duration, yield func(schedule) bool) bool {
	stops := []int{0, 3, 9, 14}
	if depth >= 3 {
		stops = []int{0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 16, 18, 20, 25}
	}
	n := 0
	for k := 1; k <= calls; k++ {
		for _, f := range []fault{pauseBefore, pauseAfter, late} {
			for _, d := range pauses {
				for _, b := range stops {
					if n++; n%step != 0 {
						continue
					}
					twin := &pauses[0] == &claimPauses[0] && n/step%4 == 0
					if !yield(schedule{faults: map[int]fault{k: f}, pause: d, b: b, twin: twin}) {
						return false
					}
				}
			}
		}
	}
	return true
}

// TestCrashPoints runs every scenario under every schedule of the chosen depth and judges each run from the simulator's ledger.
func TestCrashPoints(t *testing.T) {
	defer debug.SetGCPercent(debug.SetGCPercent(400)) // many small worlds, each soon forgotten
	traces := map[uint64]bool{}
	cover := map[string]*[faults]int{}
	seen := map[string]int{} // violations by scenario and invariant; two examples of each are shown
	runs, violated := 0, 0
	chosen := regexp.MustCompile(*only)
	for _, sc := range everyScenario() {
		if !chosen.MatchString(sc.name) {
			continue
		}
		base := perform(&sc, schedule{}, nil, nil)
		traces[base.trace] = true
		began, n, at := time.Now(), 0, -1
		for plan := range plans(&sc, base.calls, *depth) {
			if at++; at%*share != *first {
				continue
			}
			p := perform(&sc, plan, nil, cover)
			n++
			traces[p.trace] = true
			vs := check(p.stage)
			for _, f := range p.failures {
				vs = append(vs, violation{"no panic", f})
			}
			for _, v := range vs {
				violated++
				if seen[sc.name+v.invariant]++; seen[sc.name+v.invariant] <= 2 {
					t.Errorf("%s, %s(%s): %s: %s", sc.name, plan, p.named(), v.invariant, v.what)
				}
			}
		}
		runs += n
		t.Logf("%-45s %3d calls, %5d runs in %s", sc.name, base.calls, n, time.Since(began).Round(time.Millisecond))
	}
	t.Log(table(cover))
	for call, c := range cover {
		for _, f := range []fault{crashBefore, crashAfter, lostReply} {
			if c[f] == 0 && *depth > 0 && *share == 1 && *only == "" {
				t.Errorf("%s was never met by %s", call, f)
			}
		}
	}
	t.Logf("%d schedules (distinct call traces of %d runs), %d violations", len(traces), runs, violated)
}

// named returns the calls at which the faults struck.
func (p *performance) named() string {
	var out []string
	for k := range p.plan.faults {
		if k <= len(p.names) {
			out = append(out, fmt.Sprintf("%d=%s", k, p.names[k-1]))
		}
	}
	slices.Sort(out)
	return strings.Join(out, ", ")
}

// table shows how often each fault struck each call.
func table(cover map[string]*[faults]int) string {
	var b strings.Builder
	fmt.Fprintf(&b, "coverage\n%-36s", "call")
	for f := range faults {
		fmt.Fprintf(&b, "%14s", f)
	}
	var calls []string
	for c := range cover {
		calls = append(calls, c)
	}
	slices.Sort(calls)
	for _, c := range calls {
		fmt.Fprintf(&b, "\n%-36s", c)
		for _, n := range cover[c] {
			fmt.Fprintf(&b, "%14d", n)
		}
	}
	return b.String()
}
