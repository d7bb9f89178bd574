package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/muster-dev/muster/defender/strategy"
	"github.com/muster-dev/muster/internal/component"
)

// TestIndependentCodeAgrees has the default strategy, written a second time with NumPy,
// judge chambers of three processes: the share of false alarms has to be the same but for
// sampling error.
func TestIndependentCodeAgrees(t *testing.T) {
	t.Parallel()
	python := filepath.Join(component.NumPy().Fetch(t), "python", "bin", "python")
	s := sizes{chambers: 24, runs: 140, probeFrom: 1000, probeEvery: 1}
	const seed = 8
	pairs := []struct{ ours, theirs string }{
		{"independent normal", "normal"},
		{"t, 3 degrees of freedom", "student:3"},
		{"AR(1) 0.5 from run to run", "autoregressive:0.5"},
	}
	args := []string{filepath.Join("testdata", "independent.py"), fmt.Sprint(seed), fmt.Sprint(s.chambers), fmt.Sprint(s.runs)}
	for _, p := range pairs {
		args = append(args, p.theirs)
	}
	cmd := exec.CommandContext(t.Context(), python, args...)
	cmd.Env = append(cmd.Environ(), "OPENBLAS_NUM_THREADS=1")
	out, err := cmd.Output()
	if err != nil {
		var failed *exec.ExitError
		if errors.As(err, &failed) {
			t.Fatalf("%v\n%s", err, failed.Stderr)
		}
		t.Fatal(err)
	}
	var counts map[string][][2]int
	if err := json.Unmarshal(out, &counts); err != nil {
		t.Fatal(err)
	}

	for _, pair := range pairs {
		for _, p := range processes() {
			if p.name != pair.ours {
				continue
			}
			tallies, err := simulate(strategy.Default(), p, s, seed)
			if err != nil {
				t.Fatal(err)
			}
			ours, theirs := figuresOf(p, tallies).Rate, rateOfCounts(counts[pair.theirs])
			t.Logf("%s: %s %% of %d runs here (%s), %s %% of %d runs by NumPy (%s)", p.name, ours, ours.n, ours.interval(), theirs, theirs.n, theirs.interval())
			if theirs.n == 0 || math.Abs(ours.share()-theirs.share()) > 3*math.Hypot(ours.deviation(), theirs.deviation()) {
				t.Errorf("%s: the shares differ by more than 3 standard errors, %.2f and %.2f %%", p.name, 100*ours.deviation(), 100*theirs.deviation())
			}
		}
	}
}

func rateOfCounts(counts [][2]int) rate {
	ks, ns := make([]int, len(counts)), make([]int, len(counts))
	for i, c := range counts {
		ks[i], ns[i] = c[0], c[1]
	}
	return rateOf(ks, ns)
}

// deviation is about the standard error, by the interval.
func (r rate) deviation() float64 { return (r.high - r.low) / (2 * 1.96) }
