package main

import (
	"bytes"
	"io"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/muster-dev/muster/defender/strategy"
	"github.com/muster-dev/muster/defender/uchart"
	"github.com/muster-dev/muster/internal/misuse"
)

func TestCommand(t *testing.T) {
	t.Parallel()
	t.Run("the_same_seed_gives_the_same_page", func(t *testing.T) {
		t.Parallel()
		args := []string{"--quick", "--seed", "5", "--process", "3 degrees|lots of 12"}
		var pages [2]bytes.Buffer
		for i := range pages {
			if err := command(args, &pages[i], io.Discard); err != nil {
				t.Fatal(err)
			}
		}
		if pages[0].String() != pages[1].String() {
			t.Errorf("the pages differ:\n%s\n%s", &pages[0], &pages[1])
		}
		if n := strings.Count(pages[0].String(), "\n| lots of 12"); n != 4 {
			t.Errorf("the process has %d rows, want one in each of 4 tables", n)
		}
		var other bytes.Buffer
		args[2] = "6"
		if err := command(args, &other, io.Discard); err != nil {
			t.Fatal(err)
		}
		if strings.ReplaceAll(other.String(), "eed 6", "eed 5") == pages[0].String() {
			t.Error("another seed gives the same figures")
		}
	})
	t.Run("kept_figures_are_shown_beside_others", func(t *testing.T) {
		t.Parallel()
		kept := filepath.Join(t.TempDir(), "kept.json")
		args := []string{"--quick", "--process", "8 sensors"}
		var page bytes.Buffer
		if err := command(append(args, "--json", kept), io.Discard, io.Discard); err != nil {
			t.Fatal(err)
		}
		if err := command(append(args, "--beside", kept), &page, io.Discard); err != nil {
			t.Fatal(err)
		}
		if !strings.Contains(page.String(), "| 100 → 100 |") {
			t.Errorf("nothing is beside:\n%s", &page)
		}
	})
	t.Run("wrong_usage_exits_with_2", func(t *testing.T) {
		t.Parallel()
		for _, args := range [][]string{{"--seed", "x"}, {"more"}, {"--process", "no such process"}, {"--strategies", "missing.yaml"}} {
			err := command(append([]string{"--quick"}, args...), io.Discard, io.Discard)
			if misuse.ExitCode(err) != 2 {
				t.Errorf("%v: the error is %v", args, err)
			}
		}
		if err := command([]string{"--beside", "missing.json"}, io.Discard, io.Discard); misuse.ExitCode(err) != 1 {
			t.Errorf("a missing file: the error is %v", err)
		}
	})
}

// TestProcesses checks that processes have the deviations and dependence that they are named
// by, and that a shift is one.
func TestProcesses(t *testing.T) {
	t.Parallel()
	want := map[string]struct{ variance, correlation float64 }{ // of levels, and of those of successive runs
		"independent normal": {1, 0}, "3 common factors": {1, 0}, "t, 5 degrees of freedom": {1, 0}, "log-normal": {1, 0},
		"AR(1) 0.5 from run to run": {1, 0.5}, "AR(1) 0.8 from run to run": {1, 0.8}, "AR(1) 0.6 of one common factor": {1, 0.8 * 0.6},
		"lots of 25, lot sd 2 sigma": {5, 0.8 * 24 / 25},
	}
	for _, p := range processes() {
		w, ok := want[p.name]
		if !ok {
			continue
		}
		var squares, products, n float64
		for number := range 8 {
			c := newChamber(p, 1, number)
			var last []float64
			for range 1000 {
				r := c.draw()
				means := make([]float64, len(c.bases))
				for i, column := range r.trace.Values {
					for _, x := range column {
						means[i] += (x - c.bases[i]) / float64(len(column))
					}
				}
				for i, x := range means {
					squares += x * x
					if last != nil {
						products += x * last[i]
						n++
					}
				}
				last = means
			}
		}
		noise := 1.0 / (steps * rowsPerStep) // of samples
		variance, correlation := squares/n-noise, products/(squares-noise*n)
		if math.Abs(variance/w.variance-1) > 0.1 || math.Abs(correlation-w.correlation) > 0.04 {
			t.Errorf("%s: variance %.2f and correlation %.2f, want %.2f and %.2f", p.name, variance, correlation, w.variance, w.correlation)
		}
	}
}

func TestShift(t *testing.T) {
	t.Parallel()
	r := newChamber(processes()[0], 1, 1).draw()
	var calc uchart.Calculator
	before, err := calc.Compute(r.trace)
	if err != nil {
		t.Fatal(err)
	}
	after, err := calc.Compute(r.shifted(fault{sensors: 4, sigmas: 2}).trace)
	if err != nil {
		t.Fatal(err)
	}
	for svid := range before.SVIDs {
		a, _ := before.Value(svid, 1, uchart.Mean)
		b, _ := after.Value(svid, 1, uchart.Mean)
		by := 0.0
		if svid < 4 {
			by = 2
		}
		if math.Abs(b-a-by) > 1e-9 {
			t.Errorf("sensor %d is off by %g, want %g", svid, b-a, by)
		}
	}
}

func TestRate(t *testing.T) {
	t.Parallel()
	even := rateOf([]int{1, 1, 1, 1}, []int{50, 50, 50, 50})
	if low, high := wilson(0.02, 200); even.low != low || even.high != high { // the design effect is 1
		t.Errorf("runs that are even over chambers have %v to %v, want Wilson's %v to %v", even.low, even.high, low, high)
	}
	// By SciPy: binomtest(4, 200).proportion_ci(0.95, "wilson").
	if math.Abs(even.low-0.0078044264) > 1e-9 || math.Abs(even.high-0.0502870869) > 1e-9 {
		t.Errorf("4 of 200 has %v to %v", even.low, even.high)
	}
	// All in one chamber of four: the variance between chambers is 12 over 4·0.02·0.98·50.
	one := rateOf([]int{4, 0, 0, 0}, []int{50, 50, 50, 50})
	if low, high := wilson(0.02, 200/(12*4.0/3/(200*0.02*0.98))); math.Abs(one.low-low) > 1e-12 || math.Abs(one.high-high) > 1e-12 {
		t.Errorf("runs of one chamber have %v to %v, want %v to %v", one.low, one.high, low, high)
	}
	if none := rateOf([]int{0}, []int{0}); none.String() != "-" || none.interval() != "-" {
		t.Errorf("nothing judged is %s, %s", none, none.interval())
	}
}

// TestPage holds the committed page to the program: its strategy, seed and processes.
func TestPage(t *testing.T) {
	t.Parallel()
	data, err := os.ReadFile("../../docs/results/false-alarms.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range processes() {
		if n := bytes.Count(data, []byte("\n| "+p.name+" |")); n != 4 {
			t.Errorf("%s has %d rows in the page, want 4: write it again by go run ./defender/simulate", p.name, n)
		}
	}
	if want := "Strategy: " + strategyName(strategy.Default()) + ". Seed 20261126. "; !bytes.Contains(data, []byte(want)) {
		t.Errorf("the page has no %q: write it again by go run ./defender/simulate", want)
	}
}
