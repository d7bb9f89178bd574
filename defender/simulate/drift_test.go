package main

import (
	"testing"

	"github.com/muster-dev/muster/defender/strategy"
	"github.com/muster-dev/muster/defender/uchart"
)

// TestWanderingChambersReportDrift simulates chambers whose level wanders, and others whose
// level doesn't: limits follow the former, and their verdicts have to say so.
func TestWanderingChambersReportDrift(t *testing.T) {
	t.Parallel()
	const chambers, runs = 12, 200
	drifted := map[string]int{}
	for _, p := range processes() {
		switch p.name {
		case "independent normal", "AR(1) 0.5 from run to run", "lots of 25, lot sd 1 sigma", "random walk, 0.2 sigma per run":
		default:
			continue
		}
		drifted[p.name] = 0
		for n := range chambers {
			c, j := newChamber(p, 3, n), newJudge(strategy.Default())
			first, alarms := 0, 0
			for number := 1; number <= runs; number++ {
				v, err := j.judge(number, c.draw(), true)
				if err != nil {
					t.Fatal(err)
				}
				if first > 0 && v.State == uchart.Alarm {
					alarms++
				}
				if first == 0 && len(v.Drift) > 0 {
					first = number
				}
			}
			if first > 0 {
				drifted[p.name]++
				t.Logf("%s, chamber %d: drift from run %d on, then %d alarms", p.name, n, first, alarms)
			}
		}
	}
	t.Logf("chambers of %d that report drift: %v", chambers, drifted)
	for name, n := range drifted {
		want := 0
		if name == "random walk, 0.2 sigma per run" {
			want = chambers * 3 / 4
		}
		if n < want || want == 0 && n > 0 {
			t.Errorf("%s: %d of %d chambers report drift, want none, or three quarters of wandering ones", name, n, chambers)
		}
	}
}
