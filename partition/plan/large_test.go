package plan_test

import (
	"math/rand/v2"
	"testing"

	"github.com/muster-dev/muster/partition/plan"
)

// Problems with too many slots for all trades to be tried.
func TestPropertiesOfLargeProblems(t *testing.T) {
	t.Parallel()
	r := rand.New(rand.NewPCG(31, 32))
	for i := range 3000 {
		p := changed(r, 900, 1+i%90)
		if p.Slots <= 256 || p.Weights == nil {
			continue
		}
		pl := must(t, plan.Sticky(), p)
		samePlanInAnyOrder(t, r, plan.Sticky(), p, pl)
		comesToRest(t, p, pl)
		tuningIsInBudget(t, p)
		tuningAloneIsInBudget(t, p)
		if t.Failed() {
			t.Fatalf("case %d: %d slots, %d workers, budget %d, tune only %t", i, p.Slots, len(p.Workers), p.Budget, p.TuneOnly)
		}
	}
}

// comesToRest plans again and again. Since not all trades are tried, the first plan may leave one to
// the next where the weights keep some load off, but soon nothing moves any more.
func comesToRest(t *testing.T, p plan.Problem, pl plan.Plan) {
	t.Helper()
	if p.Budget > 0 {
		return // each plan has a budget of its own
	}
	for range 8 {
		p.Owners = pl.Owners
		if pl = must(t, plan.Sticky(), p); len(pl.Moves) == 0 {
			return
		}
	}
	t.Errorf("planning for the ninth time still moves %+v", pl.Moves)
}
