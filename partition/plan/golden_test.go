package plan_test

import (
	"flag"
	"fmt"
	"hash/fnv"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/muster-dev/muster/partition/plan"
)

var update = flag.Bool("update", false, "rewrite golden files")

// changed is random, with more kinds of weights. Every other problem starts from
// a plan after which workers joined or failed, or weights changed.
func changed(r *rand.Rand, slots, workers int) plan.Problem {
	p := random(r, slots, workers)
	p.TuneOnly = r.IntN(4) == 0
	p.Budget = []int{-1, 0, 1, 2, 3, 5, 10, 30}[r.IntN(8)]
	if r.IntN(2) == 0 {
		p.Weights = make([]uint64, p.Slots)
		least, most := 0, []int{2, 3, 40, 60, 1000}[r.IntN(5)]
		if r.IntN(3) == 0 {
			least = 2 * most
		}
		for s := range p.Weights {
			p.Weights[s] = uint64(least + r.IntN(most+1))
		}
	}
	if r.IntN(2) == 0 {
		return p
	}
	start := p
	start.Budget = -1
	pl, err := plan.Sticky().Plan(start)
	if err != nil {
		panic(err)
	}
	p.Owners = pl.Owners
	switch n := len(p.Workers); r.IntN(3) {
	case 0:
		for s := range p.Weights {
			p.Weights[s] = p.Weights[s] * (7 + r.Uint64N(7)) / 10
		}
	case 1:
		for i := range 1 + r.IntN(3) {
			p.Workers = append(p.Workers, plan.Worker{ID: fmt.Sprintf("w%d", n+i)})
		}
	case 2:
		if n > 1 {
			p.Owners = renumber(p.Owners, p.Workers, p.Workers[:n-1])
			p.Workers = p.Workers[:n-1]
		}
	}
	return p
}

// The plan of a problem is the same on every machine and in every version. A
// leader with another processor or version would otherwise move slots merely
// because it leads. A change of what is planned shows up here, even where no
// bound and no balance is violated: then -update.
func TestPlansAreTheRecordedOnes(t *testing.T) {
	t.Parallel()
	const lines, each = 400, 20
	r := rand.New(rand.NewPCG(13, 14))
	var got []string
	for range lines {
		h := fnv.New64a()
		for i := range each {
			slots, workers := 1+r.IntN(12), 1+r.IntN(5)
			switch {
			case i == 0:
				slots, workers = 1+r.IntN(200), 1+r.IntN(25)
			case i%4 == 0:
				slots, workers = 1+r.IntN(60), 1+r.IntN(9)
			}
			p := changed(r, slots, workers)
			s := plan.Sticky()
			if i == 1 {
				s = plan.Ring(r.IntN(9))
			}
			pl := must(t, s, p)
			fmt.Fprintln(h, pl.Owners, pl.Moves, pl.Notes, pl.Stats.LowerBound)
		}
		got = append(got, fmt.Sprintf("%016x", h.Sum64()))
	}
	file := filepath.Join("testdata", "plans.golden")
	if *update {
		if err := os.WriteFile(file, []byte(strings.Join(got, "\n")+"\n"), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	for i, line := range strings.Fields(string(want)) {
		if i >= lines || got[i] != line {
			t.Fatalf("line %d of %s: a plan of problems %d to %d is not the recorded one", i+1, file, each*i, each*i+each-1)
		}
	}
}
